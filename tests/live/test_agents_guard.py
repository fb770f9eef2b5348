"""The guard before Zenoh: failed handshakes leave nothing behind in memory."""

import gc
import socket
import ssl
import time
from collections import Counter
from dataclasses import replace

import pytest

from dokl.live.description import host_port
from dokl.live.doors import accepting
from dokl.live.transports.guard import LinkGuard
from live_networks import on_disk

KINDS = ("SSLObject", "SSLProtocol", "_End", "Place", "Task")
HANDSHAKES, WAIT = 40, 120.0


def hello(connection):
    """The first message of a handshake, then gone."""
    said = ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), said).do_handshake()
    connection.sendall(said.read())


def garbage(connection):
    """What is no TLS at all."""
    connection.sendall(b"x" * 200)
    ended(connection)


def nameless(connection):
    """A handshake without a certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with context.wrap_socket(connection) as wrapped:
        ended(wrapped)


def ended(connection):
    """Wait until the other side has closed."""
    try:
        while connection.recv(1000):
            pass
    except OSError:
        pass


@pytest.fixture
def guard(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    network = on_disk(tmp_path, links=(("a", "b"),))
    node = replace(network.node("a"), address=f"127.0.0.1:{port}")
    made = LinkGuard(replace(network, nodes={**network.nodes, "a": node}), "a")
    made.open()
    yield made
    made.close()


@pytest.fixture
def uncollected():
    """Without the garbage collector: how many objects of each kind came since the beginning."""
    gc.collect()
    gc.disable()
    first = living()
    yield lambda: living() - first
    gc.enable()


def living():
    found = Counter(type(each).__name__ for each in gc.get_objects())
    return Counter({kind: found[kind] for kind in KINDS})


@pytest.mark.parametrize("fails", [hello, garbage, nameless])
def test_failed_handshakes_leave_no_objects(guard, uncollected, fails):
    at = host_port(guard._network.node("a").address)
    before = uncollected()
    for _ in range(HANDSHAKES):
        with socket.create_connection(at, WAIT) as connection:
            fails(connection)
    limit = time.monotonic() + WAIT
    while uncollected() - before and time.monotonic() < limit:
        time.sleep(0.05)
    assert not uncollected() - before


def test_connections_that_make_room_leave_no_objects(guard, uncollected):
    at = host_port(guard._network.node("a").address)
    before = uncollected()
    opened = [socket.create_connection(at, WAIT) for _ in range(300)]  # more than there are places
    for connection in opened:
        connection.close()
    limit = time.monotonic() + WAIT
    while uncollected() - before and time.monotonic() < limit:
        time.sleep(0.05)
    assert not uncollected() - before


def test_memory_goes_back_to_the_system_after_failed_connections(guard, monkeypatch):
    trimmed = []
    monkeypatch.setattr(accepting, "_TRIM", 0.0)
    monkeypatch.setattr(accepting, "trim_memory", lambda: trimmed.append(True))
    with socket.create_connection(host_port(guard._network.node("a").address), WAIT) as connection:
        garbage(connection)
    limit = time.monotonic() + WAIT
    while not trimmed and time.monotonic() < limit:
        time.sleep(0.05)
    assert trimmed
