"""What can happen to links: real Zenoh sessions that are killed, parted, slowed and changed."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import pytest
from peer import certify, free_addresses, network, start
from proxy import Proxy
from wires import LINE, SECONDS, THETA, heard, lab, opened, until, wait_event, wait_heard, wait_up

from dokl.base.errors import BadFile, BadInput
from dokl.live.description import host_port
from dokl.live.transports.zenoh import ZenohTransport
from dokl.live.transports.zenoh_settings import LEASE_MS


# -- faults ------------------------------------------------------------------------------------
@contextmanager
def process(made, name):
    child = start(made, name)
    try:
        assert child.stdout.readline() == "open\n"
        yield child
    finally:
        child.kill()
        child.wait(SECONDS)
        child.stdout.close()


def is_heard(node, peer):
    node.receive()
    until(lambda: {kind for who, kind, _ in node.receive() if who == peer} >= {"theta", "hello"})


def test_a_killed_and_a_hung_neighbour(tmp_path):
    made = lab(tmp_path, "ab", LINE[:1])
    with opened(made, ["a"]) as nodes:
        a = nodes["a"]
        with process(made, "b") as child:
            wait_event(a, "b", True)
            is_heard(a, "b")
            child.send_signal(signal.SIGKILL)
            wait_event(a, "b", False, 5)
        with process(made, "b") as child:
            wait_event(a, "b", True)
            is_heard(a, "b")
            child.send_signal(signal.SIGSTOP)
            wait_event(a, "b", False, LEASE_MS / 1000 + 5)
            child.send_signal(signal.SIGCONT)
            wait_event(a, "b", True)
            is_heard(a, "b")


@pytest.mark.parametrize("how", ["pause", "cut"])
def test_a_partition_and_its_healing(tmp_path, how):
    ports = dict(zip("ab", free_addresses(2), strict=True))
    with Proxy(ports["a"]) as proxy:
        made = network(tmp_path, ports, LINE[:1], {"b->a": proxy.address})
        certify(made)
        with opened(made) as nodes:
            a, b = nodes["a"], nodes["b"]
            wait_up(a, "b")
            wait_up(b, "a")
            getattr(proxy, how)()
            wait_event(a, "b", False)
            wait_event(b, "a", False)
            assert heard(a, lambda: b.send("theta", b"x"), 0.3) == set()
            proxy.heal()
            wait_event(a, "b", True)
            wait_heard(a, ("b", "theta", b"y"), lambda: b.send("theta", b"y"))
            wait_heard(b, ("a", "theta", b"z"), lambda: a.send("theta", b"z"))


# -- a changed description ---------------------------------------------------------------------
def test_who_accepts_and_says_nothing_is_dialled_again(tmp_path, monkeypatch):
    monkeypatch.setattr("dokl.live.transports.zenoh_settings.OPEN_MS", 300)
    made = lab(tmp_path, "ab", LINE[:1])
    host, port = host_port(made.node("a").address)
    with socket.create_server((host, port)) as silent, opened(made, ["b"]) as nodes:
        silent.settimeout(9)
        held = [silent.accept()[0] for _ in range(3)]
        silent.close()
        with opened(made, ["a"]):  # there at last, while those connections stay open
            wait_up(nodes["b"], "a")
        for each in held:
            each.close()


def test_a_new_neighbour_and_new_certificates_without_a_new_process(tmp_path):
    made = lab(tmp_path)
    small = made.without(["c"])
    with opened(small) as nodes:
        a, b = nodes["a"], nodes["b"]
        wait_up(b, "a")
        with chattering(b):
            b.reopen(made)
            with opened(made, ["c"]) as more:
                c = more["c"]
                wait_up(c, "b")
                wait_heard(c, ("b", "theta", b"b"))
                certify(made)  # by a new authority: who has the old papers only is a stranger now
                for node in (b, c):
                    node.reopen(made)
                wait_event(c, "b", False)
                wait_event(c, "b", True)
                wait_heard(c, ("b", "theta", b"b"))
                a.receive()
                assert heard(a) == set()
                a.reopen(small)
                wait_heard(a, ("b", "theta", b"b"))


@contextmanager
def chattering(node):
    """Use a node all the time, from another thread; an error there is an error here."""
    stop, failed = threading.Event(), []

    def chatter():
        try:
            while not stop.wait(0.01):
                node.send("theta", b"b")
                node.send("hello", b"b")
                node.receive()
                node.ask("a", (0, 0))
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=chatter, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(SECONDS)
    assert not failed
    assert not thread.is_alive()


def test_a_bad_description_changes_nothing(tmp_path):
    made = lab(tmp_path, "ab", LINE[:1])
    with opened(made) as nodes:
        a, b = nodes["a"], nodes["b"]
        wait_up(a, "b")
        wait_up(b, "a")
        key = made.certificate_files("a")[2]
        content = key.read_bytes()
        key.write_bytes(made.certificate_files("b")[2].read_bytes())
        with pytest.raises(BadFile, match=r"a\.key: this key does not belong to a\.pem"):
            a.reopen(made)
        with pytest.raises(BadInput, match="unknown node"):
            a.reopen(made.without(["a"]))
        wait_heard(a, ("b", "theta", b"x"), lambda: b.send("theta", b"x"))
        assert a.events() == b.events() == []
        key.write_bytes(content)


def test_a_port_that_is_taken_is_named(tmp_path):
    made = lab(tmp_path, "ab", LINE[:1])
    with (
        opened(made, ["a"]),
        pytest.raises(BadInput, match=f"'a' cannot open links at {made.nodes['a'].address}"),
    ):
        ZenohTransport(made, "a").open()
    with pytest.raises(BadFile, match=r"lab\.certs/ca\.pem"):
        ZenohTransport(network(tmp_path / "no", {"a": "127.0.0.1:7"}, ()), "a").open()


# -- a slow link -------------------------------------------------------------------------------
@pytest.fixture
def star(tmp_path):
    """a in the middle; b behind a link of 2 Mbit/s, c behind a fast one."""
    ports = dict(zip("abc", free_addresses(3), strict=True))
    with Proxy(ports["a"], rate=250_000) as proxy:
        made = network(tmp_path, ports, (("a", "b"), ("a", "c")), {"b->a": proxy.address})
        certify(made)
        with opened(made) as nodes:
            wait_up(nodes["a"], "b", "c")
            for name in "bc":
                wait_up(nodes[name], "a")
            yield nodes
            proxy.throttle(None)  # sessions with a full link take long to close
            time.sleep(0.5)


def stamped():
    return f"{time.monotonic():20.9f}".encode() + b"." * (THETA - 20)


def stamps(node):
    """When the thetas were made that a node receives now."""
    return [float(data[:20]) for _, kind, data in node.receive() if kind == "theta"]


def test_pulling_over_a_slow_link_gives_fresh_answers_and_starves_nobody(star):
    fast, slow, last = 0, [], 0.0  # slow: (when it was made, the earliest that is fresh)
    fresh, end = 0.0, time.monotonic() + 3 * SECONDS
    while len(slow) < 3 and time.monotonic() < end:
        before, last = last, time.monotonic()
        fast += len(stamps(star["c"]))
        for made in stamps(star["b"]):
            slow.append((made, fresh))
            fresh = before  # the next one was asked for after this one had come, in that round
        for node in star.values():
            node.offer(stamped(), (1, time.monotonic_ns()), b"short")
        for name in "bc":
            star[name].ask("a", (0, 0))
            star["a"].ask(name, (0, 0))
        star["a"].receive()
        time.sleep(0.05)
    assert len(slow) == 3
    assert all(made >= earliest for made, earliest in slow)
    assert fast >= 3 * len(slow)


def test_pushing_over_a_slow_link_stalls_neither_caller_nor_others(star):
    fast = slow = 0
    longest, end = 0.0, time.monotonic() + 3 * SECONDS
    while slow < 3 and time.monotonic() < end:
        message, before = stamped(), time.monotonic()
        star["a"].send("theta", message)
        longest = max(longest, time.monotonic() - before)
        slow += len(stamps(star["b"]))
        fast += len(stamps(star["c"]))
        time.sleep(0.05)
    assert slow == 3
    assert longest < 1  # a message is 1.6 s on the line
    assert fast >= 3 * slow


# -- manners -----------------------------------------------------------------------------------
def test_an_idle_transport_rests(tmp_path):
    with opened(lab(tmp_path)) as nodes:
        wait_up(nodes["b"], "a", "c")
        nodes["a"].offer(b"x", (1, 1), b"")
        wait_heard(nodes["b"], ("a", "theta", b"x"), lambda: nodes["b"].ask("a", (0, 0)))
        before = time.process_time()
        time.sleep(2)
        assert time.process_time() - before < 0.2  # of 2 s, for three nodes


def test_closing_leaves_no_thread_and_everything_after_is_ignored(tmp_path):
    before = set(threading.enumerate())
    made = lab(tmp_path, "ab", LINE[:1])
    with opened(made) as nodes:
        wait_up(nodes["a"], "b")
        nodes["b"].offer(b"x", (1, 1), b"")
        wait_heard(nodes["a"], ("b", "theta", b"x"), lambda: nodes["a"].ask("b", (0, 0)))
    until(lambda: set(threading.enumerate()) <= before)
    a = nodes["a"]
    a.send("theta", b"x")
    a.ask("b", (0, 0))
    a.reopen(made)
    a.close()
    assert a.receive() == []


def test_a_stuck_link_holds_up_neither_reopening_nor_closing(tmp_path):
    ports = dict(zip("abc", free_addresses(3), strict=True))
    with Proxy(ports["a"]) as proxy:
        made = network(tmp_path, ports, LINE, {"b->a": proxy.address})
        certify(made)
        with opened(made, lossless=True) as nodes:
            b, c = nodes["b"], nodes["c"]
            wait_up(b, "a", "c")
            proxy.pause()
            _fill(b)
            before = time.monotonic()
            b.reopen(made)
            assert time.monotonic() - before < 2
            wait_heard(c, ("b", "theta", b"x"), lambda: b.send("theta", b"x"))
            proxy.heal()
            wait_event(b, "a", True)
            proxy.pause()
            _fill(b)
            before = time.monotonic()
            b.close()
            assert time.monotonic() - before < 6
            proxy.heal()


def _fill(node):
    for _ in range(10):
        node.send("theta", b"x" * THETA)
    time.sleep(0.3)


def test_a_program_that_forgets_to_close_ends_all_the_same(tmp_path):
    made = lab(tmp_path, "ab", LINE[:1])
    text = "import sys, time, peer; n = peer.network(sys.argv[1], {'a': sys.argv[2]}, ());" + (
        "t = peer.ZenohTransport(n, 'a'); t.open(); t.send('theta', b'x'); time.sleep(0.2)"
    )
    words = [sys.executable, "-c", text, str(tmp_path), made.nodes["a"].address]
    here = os.path.dirname(__file__)
    done = subprocess.run(words, timeout=30, cwd=here, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
