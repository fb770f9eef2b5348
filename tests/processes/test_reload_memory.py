"""Reloads leave nothing behind: no objects, and no memory that grows with their number."""

import gc
import signal
from collections import Counter
from dataclasses import replace

from lab import Lab, samples, wait_for
from peer import free_addresses

from dokl.live.description import read
from dokl.live.description.text import text
from dokl.live.transports.zenoh import ZenohTransport
from live_networks import on_disk

KINDS = ("SSLContext", "SSLObject", "LinkGuard", "Voucher", "ZenohSession", "Edge", "_End",
         "Network")  # fmt: skip
RELOADS, EACH = 30, 80_000  # bytes; 18,000 were measured, and 260,000 before


def living():
    gc.collect()
    found = Counter(type(each).__name__ for each in gc.get_objects())
    return {kind: found[kind] for kind in KINDS}


def test_a_session_that_was_reopened_leaves_no_objects(tmp_path):
    network = on_disk(tmp_path, links=(("a", "b"),))
    nodes = zip(network.nodes.items(), free_addresses(2), strict=True)
    placed = {name: replace(node, address=address) for (name, node), address in nodes}
    inputs = replace(network.inputs, fingerprint=None)
    network.path.write_text(text(replace(network, nodes=placed, inputs=inputs)))
    network = read(network.path)
    here, there = (ZenohTransport(network, name) for name in network.names)
    there.open()
    here.open()
    try:

        def reopened():
            wait_for(lambda: here._inbox.up == {"b"}, "linked")
            here.reopen(network)
            wait_for(lambda: here._had == here._wanted and here._wire is not None, "open again")
            wait_for(lambda: here._inbox.up == {"b"}, "linked again")
            here.receive(), here.events()

        for _ in range(2):
            reopened()
        before = living()
        for _ in range(6):
            reopened()
        wait_for(lambda: living() == before, f"{before} and no more, not {living()}")
    finally:
        here.close()
        there.close()


def test_memory_does_not_grow_with_every_reload(tmp_path):
    with Lab(tmp_path, [("a", "b"), ("b", "c")]) as lab:
        lab.start()
        lab.post("b", *samples(100, 1))
        lab.neighbours_up("b")

        def reload():
            before = len(lab.lines("b", "neighbour up"))
            lab.signal("b", signal.SIGHUP)
            wait_for(lambda: len(lab.lines("b", "neighbour up")) >= before + 2, "both are back")

        for _ in range(10):  # until everything has been used once
            reload()
        before = lab.status("b")["process"]["memory_bytes"]
        for _ in range(RELOADS):
            reload()
        grown = lab.status("b")["process"]["memory_bytes"] - before
        assert grown < RELOADS * EACH, f"{grown / RELOADS / 1000:.0f} kB with every reload"
