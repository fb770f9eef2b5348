"""Claims about rows that nobody has proved, and rows that an origin sealed to do harm."""

import zlib
from dataclasses import replace

import pytest

from dokl.base.errors import BadInput
from dokl.live.certificates.signing import Seals
from dokl.live.protocol import batches, logs, row_sharing
from dokl.live.protocol.logs import OriginLog
from dokl.live.protocol.messages import HAVE, HEADER, ROWS, STRETCH, WANT, mark_of
from dokl.live.protocol.states import Trust
from row_net import (
    CONTEXT,
    NAMES,
    Net,
    chain,
    entry,
    fail_on,
    forged,
    one_has_the_newest_alone,
    parted,
)


def send(net, way, kind, body):
    """A message that a node would never send arrives."""
    node = net.nodes[way[1]]
    node.do(node.protocol.message, way[0], forged(net, way[0], kind, body), net.now)


def test_a_batch_of_few_rows_takes_no_more_memory_than_these():
    """A stream of zlib may have any number of blocks with nothing in them."""
    sealed = entry([[1.0]], [[2.0]])
    packed = batches.read_batch(CONTEXT, sealed).entry
    head, body = packed[:69], zlib.decompress(packed[69:])
    sizes = len(body).to_bytes(2, "little"), (len(body) ^ 0xFFFF).to_bytes(2, "little")
    checksum = zlib.adler32(body).to_bytes(4, "big")

    def padded(blocks):
        nothing = b"\0\0\0\xff\xff" * blocks
        return head + b"\x78\x9c" + nothing + b"\1" + b"".join(sizes) + body + checksum

    read = batches.read_batch(CONTEXT, Seals().seal(padded(1)))
    assert batches.read_rows(CONTEXT, read)[0].tolist() == [[1.0]]
    with pytest.raises(BadInput, match="impossible size"):
        batches.read_batch(CONTEXT, Seals().seal(padded(100)))


def test_who_sends_the_losers_of_a_fork_again_counts_no_further_one():
    old = chain(CONTEXT, "o", 3, 1)
    new = chain(CONTEXT, "o", 2, 2, last=old[0])
    log = OriginLog(tuple(old))
    for batch in (new[0], new[1], *old, *old):
        log, _ = logs.add(log, batch, 100)
    assert (log.batches[1:], log.forks) == (tuple(new), 1)


def test_the_losers_of_forks_are_counted_only_so_often():
    (here,) = chain(CONTEXT, "o", 1, 9)
    log = OriginLog((here,))
    losers = [
        batches.read_batch(CONTEXT, entry([[float(i)]], [[0.0]], origin="o")) for i in range(100)
    ]
    for batch in (*losers, *losers):
        log, what = logs.add(log, batch, 100)
        assert what == logs.BEATEN
    assert (log.batches, log.forks) == ((here,), logs.MOST_FORKS)


def test_rows_that_never_came_are_not_behind():
    """An origin may give its rows any numbers."""
    way = Net(more=("o",)).nodes["a"].protocol._way
    (last,) = chain(way.context, "o", 1, 1)
    far = replace(last, first=1 << 61)
    way.logs = {"o": OriginLog((far,))}
    assert way.facts()["behind"] == 10


def test_rows_of_an_origin_that_was_taken_out_keep_none_of_others_away():
    """Who sends them has not reloaded the description yet, and is believed."""
    net = Net()
    net.settle_some(NAMES, 3.0)
    way = net.nodes["a"].protocol._way
    gone, (honest,) = chain(way.context, "gone", 40, 1), chain(way.context, "c", 1, 1)
    for seconds in (0.0, 2.0, 4.0):
        net.now += seconds
        send(net, ("b", "a"), ROWS, batches.pack_batches([*gone, honest], set()))
    assert way.logs["c"].end == 10
    assert "gone" not in way.logs
    assert net.nodes["a"].protocol._node.refused == {"stranger": 120}
    assert net.nodes["a"].protocol._node.peers["b"].trust is Trust.ALIKE


def test_of_rows_that_a_neighbour_claims_only_those_of_the_network_are_noted():
    net = Net()
    listed = [logs._VERSION.pack(i.to_bytes(8, "big"), 0, 1 << 63, b"x" * 8) for i in range(4000)]
    listed.append(logs._VERSION.pack(mark_of("c"), 0, 1 << 63, b"x" * 8))
    send(net, ("b", "a"), HAVE, b"".join(listed))
    assert list(net.nodes["a"].protocol._way.asking.theirs["b"]) == [mark_of("c")]


def test_neighbours_that_never_say_what_they_have_start_no_endless_talk(monkeypatch):
    """Two nodes, each beside a mute one, ask for lists, and get each other's."""
    net, listed, send_on = Net(), [], Net.send

    def noted(self, name, data):
        if data[5] == HAVE:
            listed.append(self.now)
        send_on(self, name, data)

    monkeypatch.setattr(Net, "send", noted)
    for _ in range(600):
        net.now += 0.1
        for name in "ab":
            net.nodes[name].tick(net.now)
        for way in net.queues:
            while net.queues[way]:
                net.deliver(way, drop=way not in (("a", "b"), ("b", "a")))
    assert len(listed) > 0
    assert max(listed) < 115.0


def test_who_asks_much_delays_the_answer_to_another_by_one(monkeypatch):
    net, answered = parted(), []

    def sent(name, data):
        if name == "b" and data[5] == STRETCH:
            answered.append(data[HEADER.size :][:8])

    net.send = sent
    origins = [mark_of("c")] + [bytes([i]) * 8 for i in range(15)]
    way = net.nodes["b"].protocol._way
    monkeypatch.setattr(way, "marks", dict.fromkeys(origins, "c"))
    for origin in origins:
        send(net, ("a", "b"), WANT, logs.pack_want("b", origin, []))
    send(net, ("c", "b"), WANT, logs.pack_want("b", mark_of("c"), []))
    for _ in range(4):
        net.tick("b", row_sharing.ANSWER_SECONDS + 0.01)
    assert answered == [mark_of(name) for name in ("a", "c", "a", "a")]


def test_rows_that_cannot_be_learned_do_not_have_the_state_written_each_time(monkeypatch):
    net, saved = Net(), []
    fail_on(monkeypatch, {float(i) for i in range(100)}, ValueError("no"))
    way = net.nodes["a"].protocol._way
    save = way._save
    monkeypatch.setattr(way, "_save", lambda: saved.append(net.now) or save())
    begun = net.now
    while net.now < begun + 30:
        net.row("c")
        net.settle(1.0)
    assert way.line.failed["c"] > 20
    assert 3 <= len(saved) <= 5


def test_a_neighbour_that_gives_the_newest_rows_alone_hides_none_of_another_way():
    """It is quicker than the other one, which has not heard of the rows yet."""
    net = one_has_the_newest_alone(4, hearing="bc")
    net.settle_some(NAMES, 3.0)
    assert "c" not in net.nodes["a"].logs
    net.join(("c", "d"))
    net.settle_some(NAMES, 20.0)
    log = net.nodes["a"].logs["c"]
    assert (log.end, log.missing) == (4, 0)


def test_batches_of_single_rows_have_a_quota_of_their_own():
    """Each takes a check of its seal, however few rows are in it."""
    way = Net(kept=20).nodes["a"].protocol._way
    way.roll = replace(way.roll, rate=32.0)
    many = []
    for first in range(40):
        sealed = entry([[0.0]], [[0.0]], first, b"x" * 16, origin="c", context=way.context)
        many.append(batches.read_batch(way.context, sealed))
    faults = [way._faults(batch, 100.0) for batch in many[:30]]
    assert [bool(each) for each in faults] == [False] * 20 + [True] * 10
    faults = [way._faults(batch, 101.0) for batch in many[30:40]]
    assert faults == [""] * 6 + ["more than 6 batches a second"] * 4
