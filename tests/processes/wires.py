"""What the tests of the Zenoh transport share: open nodes, and bounded waits."""

import time
from contextlib import ExitStack, contextmanager

from peer import certify, free_addresses, network

from dokl.live.transports.zenoh import ZenohTransport

LINE = (("a", "b"), ("b", "c"))
SECONDS = 10.0  # a bound for what takes milliseconds, on a machine that may be busy
QUIET = 0.6  # how long to listen before believing that nothing comes
THETA = 400_000  # bytes


def until(true, seconds=SECONDS):
    """Wait until a function gives something true, and give that."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = true()
        if found:
            return found
        time.sleep(0.005)
    raise AssertionError(f"not within {seconds} s")


def lab(folder, names="abc", links=LINE, **how):
    made = network(folder, dict(zip(names, free_addresses(len(names)), strict=True)), links, **how)
    if made.secure:
        certify(made)
    return made


@contextmanager
def opened(made, names=None, **how):
    """Transports of these nodes, open and linked."""
    with ExitStack() as stack:
        nodes = {name: ZenohTransport(made, name, **how) for name in names or made.names}
        for node in nodes.values():
            stack.callback(node.close)
            node.open()
        yield nodes


def wait_up(node, *peers):
    up = set()

    def looked():
        for peer, here in node.events():
            (up.add if here else up.discard)(peer)
        return up >= set(peers)

    until(looked)


def wait_event(node, peer, up, seconds=SECONDS):
    until(lambda: (peer, up) in node.events(), seconds)


def heard(node, send=lambda: None, seconds=QUIET):
    """Everything that a node receives in this time, while `send` is called again and again."""
    found, end = set(), time.monotonic() + seconds
    while time.monotonic() < end:
        send()
        found.update(node.receive())
        time.sleep(0.02)
    return found


def wait_heard(node, message, send=lambda: None):
    def looked():
        send()
        time.sleep(0.02)
        return message in node.receive()

    until(looked)
