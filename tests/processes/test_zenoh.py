"""Who hears whom: real Zenoh sessions on loopback, with certificates and access control."""

import json
import os
import threading
import time
from contextlib import contextmanager

import pytest
import zenoh
from wires import LINE, QUIET, SECONDS, THETA, heard, lab, opened, until, wait_heard, wait_up

from dokl.live.transports import QUEUE
from dokl.live.transports.zenoh_settings import configuration


# -- strangers' tools --------------------------------------------------------------------------
@contextmanager
def session(settings):
    """A Zenoh session that keeps to no rules of ours."""
    config = zenoh.Config()
    for key, value in settings.items():
        config.insert_json5(key, json.dumps(value))
    with zenoh.open(config) as made:
        yield made


def rogue(made, name, victim, *, protocol="tls", certificates=None):
    """Settings of a peer that dials `victim` with the certificate of `name`, without a table."""
    settings = configuration(made, name, THETA)
    settings["transport/link/protocols"] = [protocol]
    settings["listen/endpoints"] = []
    settings["connect/endpoints"] = [f"{protocol}/{made.nodes[victim].address}"]
    del settings["access_control"]
    if certificates is not None:
        settings["transport/link/tls"] = certificates
    return settings


def shout(speaker, *names):
    """A function that says theta, hello and alive in all these names, by a raw session."""

    def say():
        for name in names:
            for kind in ("theta", "hello"):
                speaker.put(f"dokl/lab/{kind}/{name}", f"forged {name}".encode())

    return say


# -- talking -----------------------------------------------------------------------------------
@pytest.mark.parametrize("secure", [True, False], ids=["mtls", "insecure"])
def test_neighbours_talk_and_others_do_not(tmp_path, secure):
    made = lab(tmp_path, secure=secure)
    with opened(made) as nodes:
        wait_up(nodes["b"], "a", "c")
        wait_up(nodes["a"], "b")
        said = {name: set() for name in nodes}

        def talk():
            for name, node in nodes.items():
                for kind in ("hello", "theta"):
                    node.send(kind, f"{kind} {name}".encode())
            for name, node in nodes.items():
                said[name].update(node.receive())
            return len(said["a"]) >= 2 and len(said["b"]) >= 4 and len(said["c"]) >= 2

        until(talk)
        end = time.monotonic() + QUIET
        while time.monotonic() < end:
            talk()
            time.sleep(0.02)
        for name in made.names:
            assert said[name] == {
                (peer, kind, f"{kind} {peer}".encode())
                for peer in made.neighbours(name)
                for kind in ("hello", "theta")
            }
        assert nodes["a"].bytes_out["b"] > 0
        assert nodes["b"].bytes_in["a"] > 0


def test_pulling(tmp_path):
    woken = threading.Event()
    made = lab(tmp_path)
    with opened(made, wake=woken.set) as nodes:
        wait_up(nodes["b"], "a", "c")
        nodes["b"].ask("a", (0, 0))  # nothing is offered yet
        time.sleep(0.1)
        theta = os.urandom(THETA)
        nodes["a"].offer(theta, (3, 7), b"short")
        woken.clear()
        nodes["b"].ask("a", (3, 6))
        assert woken.wait(SECONDS)
        assert nodes["b"].receive() == [("a", "theta", theta)]
        nodes["a"].offer(theta, (3, 7), b"short")
        wait_heard(nodes["b"], ("a", "hello", b"short"), lambda: nodes["b"].ask("a", (3, 7)))
        assert nodes["a"].bytes_out["b"] >= THETA + 5
        assert nodes["b"].bytes_in["a"] >= THETA + 5
        nodes["c"].ask("a", (0, 0))  # no neighbour: nothing, and no error
        assert heard(nodes["c"], seconds=0.2) == set()


def test_without_loss_everything_comes_in_order(tmp_path):
    woken = threading.Event()
    with opened(lab(tmp_path, "ab", LINE[:1]), lossless=True, wake=woken.set) as nodes:
        wait_up(nodes["a"], "b")
        found = []
        for start_at in range(0, 200, QUEUE // 2):
            woken.clear()
            block = range(start_at, start_at + QUEUE // 2)
            for step in block:
                nodes["a"].send("hello" if step % 10 == 9 else "theta", b"%d" % step + b"." * 5000)
            assert woken.wait(SECONDS)
            last = block[-1]
            until(lambda: found.extend(nodes["b"].receive()) or _steps(found)[-1:] == [last])  # noqa: B023
        assert _steps(found) == list(range(last + 1))
        assert [kind for _, kind, _ in found[8:11]] == ["theta", "hello", "theta"]


def _steps(found):
    return [int(data.rstrip(b".")) for _, _, data in found]


def test_a_message_that_is_too_large_is_refused_and_the_link_stays(tmp_path):
    made = lab(tmp_path, "ab", LINE[:1])
    with opened(made, max_bytes=1000) as nodes:
        wait_up(nodes["a"], "b")
        wait_up(nodes["b"], "a")
        nodes["a"].send("theta", b"x" * 1001)
        until(lambda: nodes["b"].receive() or nodes["b"].refused["a"] == 1)
        assert nodes["b"].bytes_in == {"a": 0}
        nodes["a"].send("theta", b"x" * 3_000_000)  # more than Zenoh itself puts together
        assert heard(nodes["b"]) == set()
        assert nodes["b"].refused["a"] == 1, "it did not even come to be counted"
        wait_heard(nodes["b"], ("a", "theta", b"y"), lambda: nodes["a"].send("theta", b"y"))
        assert nodes["b"].events() == []


# -- strangers ---------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """a - b - c, where only a runs, and a foreign authority has made papers for b."""
    made = lab(tmp_path_factory.mktemp("guarded"))
    foreign = lab(tmp_path_factory.mktemp("foreign"))
    with opened(made, ["a"]) as nodes:
        yield made, foreign, nodes["a"]


def tls(made, **changed):
    return configuration(made, "b", THETA)["transport/link/tls"] | changed


@pytest.mark.parametrize(
    "kind", ["valid", "plain TCP", "no certificate", "foreign", "foreign CN b"]
)
def test_who_has_no_certificate_of_ours_gets_nothing_in_or_out(guarded, kind):
    made, foreign, a = guarded
    authority = str(made.certificate_files("b")[0])
    nothing = {"root_ca_certificate": authority, "enable_mtls": False}
    settings = {
        "valid": lambda: rogue(made, "b", "a"),
        "plain TCP": lambda: rogue(made, "b", "a", protocol="tcp"),
        "no certificate": lambda: rogue(made, "b", "a", certificates=nothing),
        "foreign": lambda: rogue(foreign, "b", "a") | _to(made),
        "foreign CN b": lambda: rogue(
            made, "b", "a", certificates=tls(foreign, root_ca_certificate=authority)
        ),
    }[kind]()
    a.events()
    with session(settings) as stranger:
        ears = stranger.declare_subscriber("dokl/lab/theta/a", zenoh.handlers.RingChannel(1))
        token = stranger.liveliness().declare_token("dokl/lab/alive/b")
        answers = []

        def say():
            shout(stranger, "b")()
            a.send("theta", b"secret")
            answers.extend(_answers(stranger, "dokl/lab/pull/a/b"))

        a.offer(b"secret", (1, 1), b"short")
        seen = {(peer, data) for peer, _, data in heard(a, say, 1.0)}
        came = ears.try_recv() is not None
        up = ("b", True) in a.events()
        token.undeclare()
    assert (seen, came, bool(answers), up) == (
        ({("b", b"forged b")}, True, True, True)
        if kind == "valid"
        else (set(), False, False, False)
    )


def _to(made):
    return {"connect/endpoints": [f"tls/{made.nodes['a'].address}"]}


def _answers(asker, key):
    return [reply.ok for reply in asker.get(key, timeout=0.05) if reply.ok is not None]


def test_a_neighbour_that_forges_anothers_key_is_not_heard(tmp_path):
    made = lab(tmp_path)
    with opened(made, ["b"]) as nodes, session(rogue(made, "c", "b")) as forger:
        b = nodes["b"]
        tokens = [forger.liveliness().declare_token(f"dokl/lab/alive/{n}") for n in "abc"]
        far = zenoh.Locality.REMOTE  # not what it says itself
        ring = zenoh.handlers.RingChannel(1000)
        everything = forger.declare_subscriber("dokl/**", ring, allowed_origin=far)
        forged = forger.declare_queryable("dokl/lab/pull/a/b", lambda q: q.reply(q.key_expr, b"no"))
        b.offer(b"for a only", (1, 1), b"short")
        stolen = []

        def say():
            shout(forger, "a", "b", "c")()
            b.send("theta", b"for neighbours")
            b.ask("a", (0, 0))
            stolen.extend(_answers(forger, "dokl/lab/pull/b/a"))

        seen = heard(b, say, 1.5)
        assert seen == {("c", kind, b"forged c") for kind in ("theta", "hello")}  # as itself: yes
        assert b.events() == [("c", True)]
        # Until a new link has told what it subscribes to, Zenoh sends it all that it may hear.
        early = set()
        while (sample := everything.try_recv()) is not None:
            early.add(str(sample.key_expr))
        assert early <= {"dokl/lab/theta/b", "dokl/lab/hello/b"}
        heard(b, say, 1.0)
        assert everything.try_recv() is None  # a subscription to everything is denied
        assert stolen == []
        assert b.bytes_in["a"] == 0
        forged.undeclare()
        del tokens


def test_a_revoked_node_is_not_heard(tmp_path):
    made = lab(tmp_path)
    with opened(made) as nodes:
        wait_up(nodes["b"], "a", "c")
        nodes["b"].reopen(made.without(["c"]))

        def say():
            for name in "ac":
                nodes[name].send("theta", name.encode())
            nodes["b"].send("theta", b"b")
            nodes["c"].ask("b", (0, 0))

        nodes["b"].offer(b"secret", (1, 1), b"short")
        wait_heard(nodes["b"], ("a", "theta", b"a"), say)
        nodes["c"].receive()
        seen = heard(nodes["b"], say)
        assert seen == {("a", "theta", b"a")}
        assert nodes["c"].receive() == []
        nodes["b"].reopen(made)  # pardoned
        wait_heard(nodes["b"], ("c", "theta", b"c"), say)
