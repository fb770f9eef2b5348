"""Rows that are lacking: who is asked for them, who answers, and what is given up."""

import pytest

from dokl.base.errors import BadInput
from dokl.live.protocol import batches, logs, row_sharing
from dokl.live.protocol.logs import OriginLog
from dokl.live.protocol.messages import HAVE, HEADER, ROWS, STRETCH, WANT, mark_of
from row_net import (
    LINKS,
    NAMES,
    Disk,
    Net,
    chain,
    entry,
    forged,
    one_has_the_newest_alone,
    parted,
    without,
)


def delayed(net, way, delay, seconds):
    """Go on for a while; what goes one way takes so long."""
    late = []
    for _ in range(int(seconds / 0.1)):
        net.now += 0.1
        for name in NAMES:
            net.nodes[name].tick(net.now)
        late += [(net.now + delay, data) for data in net.queues[way]]
        net.queues[way].clear()
        while late and late[0][0] <= net.now:
            node = net.nodes[way[1]]
            node.do(node.protocol.message, way[0], late.pop(0)[1], net.now)
        for each in net.queues:
            while each != way and net.queues[each]:
                net.deliver(each)


def test_who_claims_rows_and_has_none_holds_nobody_up():
    net = parted()
    claimed = logs._VERSION.pack(mark_of("c"), 0, 1_000_000, b"x" * 8)
    have = forged(net, "b", HAVE, claimed)
    without(net, ("b", "a"), [have], 10.0)
    assert net.nodes["a"].logs["c"].end == 5
    assert net.nodes["a"].logs["c"].missing == 0


def test_rows_are_not_given_up_before_every_neighbour_has_said_what_it_has():
    """One has the newest rows only, and answers before the other has said that it has all."""
    net = one_has_the_newest_alone()
    without(net, ("d", "a"), [], 3.0)
    net.settle(30.0)
    assert net.nodes["a"].logs["c"].missing == 0
    assert [y for who, y in net.nodes["a"].heard if who == "c"] == net.nodes["c"].disk.rows


@pytest.mark.parametrize("delay", [4.0, 12.0])
def test_an_answer_that_takes_long_is_one(delay):
    """A slow link: nothing that comes over it is given up for what another has."""
    net = one_has_the_newest_alone()
    net.settle_some(NAMES, 0.2)  # both have said what they have
    delayed(net, ("d", "a"), delay, 60.0)
    assert net.nodes["a"].logs["c"].missing == 0
    assert [y for who, y in net.nodes["a"].heard if who == "c"] == net.nodes["c"].disk.rows


def test_over_a_slow_link_a_question_is_not_repeated_every_second():
    net = parted()
    net.cut(("a", "b"))
    asked, send = [], net.send

    def sent(name, data):
        if name == "a" and data[5] == WANT:
            asked.append(net.now)
        send(name, data)

    net.send = sent
    delayed(net, ("d", "a"), 10.0, 40.0)
    assert net.nodes["a"].logs["c"].end == 5
    assert len(asked) <= 5


@pytest.mark.parametrize("claims", [False, True])
def test_who_comes_and_goes_delays_nobody_for_long(claims):
    """It is never away when the other answers; and perhaps claims to have what is lacking."""
    net = one_has_the_newest_alone()
    net.cut(("c", "d"))
    node, way = net.nodes["a"], ("d", "a")
    for _ in range(100):
        node.do(node.protocol.peer_lost, "d", net.now)
        node.do(node.protocol.peer_up, "d", net.now)
        tip = net.random.randbytes(8)
        have = forged(net, "d", HAVE, logs._VERSION.pack(mark_of("c"), 0, 1_000, tip))
        without(net, way, [have] * claims, 0.6)
    assert node.logs["c"].end == 4
    assert node.logs["c"].missing == 3


def claimed_by_one_that_never_answers(net):
    """What comes in place of all that d sends to a: a list of rows of c, and no answer."""
    return [forged(net, "d", HAVE, logs._VERSION.pack(mark_of("c"), 0, 1_000, b"x" * 8))]


def test_patience_with_a_gap_begins_with_a_batch_whose_seal_is_good(monkeypatch):
    """Anybody can make up later rows without one."""
    net = one_has_the_newest_alone()
    have, way = claimed_by_one_that_never_answers(net), net.nodes["a"].protocol._way

    def broken(batch):
        raise BadInput("its seal is broken")

    with monkeypatch.context() as patch:
        patch.setattr(way, "_check_seal", broken)
        without(net, ("d", "a"), have, 40.0)
    assert not way.asking.gaps
    without(net, ("d", "a"), have, 20.0)
    assert "c" not in way.logs
    without(net, ("d", "a"), have, 40.0)
    assert (way.logs["c"].end, way.logs["c"].missing) == (4, 3)


def test_rows_of_another_origin_prove_no_gap():
    net = one_has_the_newest_alone()
    net.cut(("d", "a"))
    way = net.nodes["a"].protocol._way
    far = chain(way.context, "d", 5, 1)[-1:]
    listed = [logs._VERSION.pack(mark_of(name), 0, 1_000, b"x" * 8) for name in "cd"]
    have = forged(net, "b", HAVE, b"".join(listed))
    head, body = mark_of("a") + mark_of("c") + b"x" * 8, batches.pack_batches(far, set())
    without(net, ("b", "a"), [have, forged(net, "b", STRETCH, head + body)], 5.0)
    assert not way.asking.gaps
    assert net.nodes["a"].protocol._node.refused["rows"]


def test_a_batch_of_an_unknown_certificate_proves_no_gap(monkeypatch):
    net = one_has_the_newest_alone()
    have, way = claimed_by_one_that_never_answers(net), net.nodes["a"].protocol._way
    with monkeypatch.context() as patch:
        patch.setattr(row_sharing, "unpack_batches", lambda data, known: [None])
        without(net, ("d", "a"), have, 5.0)
    assert not way.asking.gaps


def test_a_gap_ends_when_nobody_has_later_rows():
    """Those who may have the rows between are waited for anew when there are later ones again."""
    net = one_has_the_newest_alone()
    have, way = claimed_by_one_that_never_answers(net), net.nodes["a"].protocol._way
    without(net, ("d", "a"), have, 10.0)
    assert way.asking.gaps
    net.cut(("a", "b"))
    without(net, ("d", "a"), [forged(net, "d", HAVE, b"")], 40.0)
    net.join(("a", "b"))
    without(net, ("d", "a"), have, 20.0)
    assert "c" not in way.logs
    without(net, ("d", "a"), have, 20.0)
    assert way.logs["c"].end == 4


def test_who_answers_with_nothing_again_and_again_holds_nobody_up():
    net = one_has_the_newest_alone()
    net.cut(("c", "d"))
    for _ in range(400):
        tip = net.random.randbytes(8)
        have = forged(net, "d", HAVE, logs._VERSION.pack(mark_of("c"), 0, 1_000, tip))
        answer = forged(net, "d", STRETCH, mark_of("a") + mark_of("c") + tip)
        without(net, ("d", "a"), [answer, have], 0.1)
    assert net.nodes["a"].logs["c"].end == 4


def test_who_never_says_what_it_has_holds_nobody_up():
    net = one_has_the_newest_alone(2, hearing="bc")
    without(net, ("d", "a"), [], 25.0)
    assert net.nodes["a"].logs["c"].end == 2


def test_who_asks_without_end_is_answered_at_a_pace_and_holds_nobody_up():
    net = parted()
    way, sent = net.nodes["b"].protocol._way, []
    net.send = lambda name, data: sent.append(data) if name == "b" and data[5] == STRETCH else None

    def ask(origin):
        question = forged(net, "a", WANT, logs.pack_want("b", origin, []))
        net.nodes["b"].do(net.nodes["b"].protocol.message, "a", question, net.now)

    for _ in range(100):
        net.now += 0.01
        ask(mark_of("c"))
        net.nodes["b"].tick(net.now)
    assert 15 < len(sent) <= 21
    for i in range(40):
        ask(bytes([i]) * 8)  # of nobody
    question = forged(net, "c", WANT, logs.pack_want("b", mark_of("c"), []))
    net.nodes["b"].do(net.nodes["b"].protocol.message, "c", question, net.now)
    assert ("c", mark_of("c")) in way.wanted
    while way.wanted:
        net.tick("b", 0.05)
    assert sent[-1][HEADER.size :][:8] == mark_of("c")


def test_who_is_asked_for_many_origins_is_not_given_up_for_one_that_has_less():
    """It answers one question after the other, and has all rows; the other has the newest."""
    many = tuple(f"o{i}" for i in range(40))
    net = Net(more=many)
    for link in (("a", "b"), ("d", "a")):
        net.cut(link)
    net.settle_some(NAMES, 2.0)
    context = net.nodes["b"].protocol._way.context
    for name in many:
        log, before = [], batches.NOTHING
        for first in range(4):
            packed = entry([[0.0]], [[1.0]], first, before, origin=name, context=context)
            log.append(batches.read_batch(context, packed))
            before = log[-1].hash
        for node, kept in (("b", log), ("c", log), ("d", log[-1:])):
            way = net.nodes[node].protocol._way
            way.logs = {**way.logs, name: OriginLog(tuple(kept))}
    for link in (("a", "b"), ("d", "a")):
        net.join(link)
    net.settle_some(NAMES, 30.0)
    found = net.nodes["a"].logs
    assert {(found[name].end, found[name].missing) for name in many} == {(4, 0)}


def test_what_waits_to_be_sent_is_bounded(monkeypatch):
    monkeypatch.setattr(row_sharing, "MOST_FLOOD", 3)
    net = Net()
    for link in LINKS[2:]:
        net.cut(link)
    for _ in range(9):
        net.row("a")
        net.tick("a", 0.6)
    for data in net.queues["a", "b"]:
        net.nodes["b"].protocol.message("a", data, net.now)
    assert len(net.nodes["b"].protocol._way.flood) == 3
    net.settle(30.0)
    assert all(node.logs["a"].end == 9 for node in net.nodes.values())


def test_answers_to_another_are_not_taken_for_all_there_is(monkeypatch):
    """Two ask for the same rows; the one whose answers the other reads, too, goes away."""
    monkeypatch.setattr(row_sharing, "MESSAGE", 1000)
    net = Net()
    for _ in range(12):
        net.row("d")
        net.settle_some(NAMES, 0.7)
    for link in LINKS:
        net.cut(link)
    net.crash("a", Disk())
    net.crash("c", Disk())
    net.join(("a", "b"))
    net.join(("b", "c"))
    way = net.nodes["c"].protocol._way
    for _ in range(40):
        net.settle_some("abc", 0.1)
        if way.logs and net.up["a", "b"]:
            net.cut(("a", "b"))
            assert way.logs["d"].end < 12
    net.settle_some("bc", 30.0)
    assert net.nodes["c"].logs["d"].end == 12


def test_an_answer_that_nobody_asked_for_changes_nothing():
    net = parted()
    tip = net.nodes["d"].logs["c"].tip[:8]
    answer = forged(net, "b", STRETCH, mark_of("a") + mark_of("c") + tip)
    without(net, ("b", "a"), [answer], 10.0)
    assert net.nodes["a"].logs["c"].end == 5


def test_a_newcomer_does_not_flood_what_its_neighbours_have():
    net = parted()
    net.settle(10.0)
    assert net.nodes["a"].logs["c"].end == 5
    assert net.nodes["a"].floods == []


def test_who_asks_without_end_gets_few_bytes_a_second(monkeypatch):
    net = parted()
    sent = []
    net.send = lambda name, data: sent.append(len(data)) if data[5] == STRETCH else None
    question = forged(net, "a", WANT, logs.pack_want("b", mark_of("c"), []))
    monkeypatch.setattr(row_sharing, "ANSWER_BYTES", 2000.0)
    for _ in range(100):
        net.now += 0.1
        net.nodes["b"].do(net.nodes["b"].protocol.message, "a", question, net.now)
        net.nodes["b"].tick(net.now)
    assert 10_000 < sum(sent) < 22_000 + max(sent)


def test_an_answer_to_somebody_who_has_less_is_not_read(monkeypatch):
    net = parted()
    node, log = net.nodes["d"], net.nodes["c"].logs["c"]
    body = batches.pack_batches(list(log.batches), set())
    head = mark_of("a") + mark_of("c") + log.tip[:8]
    monkeypatch.setattr(row_sharing, "unpack_batches", None)
    node.do(node.protocol.message, "c", forged(net, "c", STRETCH, head + body), net.now)
    assert node.logs["c"].end == 5


def test_no_seal_is_checked_of_what_changes_nothing(monkeypatch):
    """Batches that an origin sealed for places far ahead would each take a check, without end."""
    net = Net()
    net.settle_some(NAMES, 1.0)
    node, checked = net.nodes["a"], []
    way = node.protocol._way
    monkeypatch.setattr(way, "_check_seal", checked.append, raising=True)
    far = [entry([[0.0]], [[1.0]], first, b"x" * 16, origin="c", context=way.context)
           for first in range(5, 105)]  # fmt: skip
    body = batches.pack_batches([batches.read_batch(way.context, each) for each in far], set())
    node.do(node.protocol.message, "b", forged(net, "b", ROWS, body), net.now)
    assert not checked
    assert "c" not in node.logs


def test_of_a_message_of_rubbish_little_is_read():
    net = Net()
    net.settle_some(NAMES, 1.0)
    node, body = net.nodes["a"], b""
    for _ in range(1000):
        body += batches._LENGTH.pack(6) + b"\1" + batches._LENGTHS.pack(0, 0) + b"x"
    node.do(node.protocol.message, "b", forged(net, "b", ROWS, body), net.now)
    assert 0 < node.protocol._node.refused["rows"] <= row_sharing.MOST_REFUSED
