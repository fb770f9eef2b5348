"""Rows that wait to be learned: none keeps those of others from being learned."""

import numpy as np
import pytest

from dokl.base.errors import Diverged
from dokl.learning.squares.blocks import NotDefinite
from dokl.live.certificates.signing import Seals
from dokl.live.protocol import batches
from dokl.live.protocol.learning_line import LearningLine, learn_next, line_up_all, readmit
from dokl.live.protocol.logs import OriginLog
from dokl.live.protocol.roll import Roll
from row_net import CountingLearner, Net, chain, counting, entry, fail_on, heard_rows


@pytest.mark.parametrize("error", [Diverged("no"), np.linalg.LinAlgError("no"), ValueError("no")])
def test_a_batch_that_cannot_be_learned_is_tried_once(error, monkeypatch):
    tried = fail_on(monkeypatch, {2.0}, error)
    net = Net()
    for link in (("a", "b"), ("d", "a")):
        net.cut(link)
    for _ in range(4):
        net.row("c")
        net.settle_some("bcd", 1.0)
    net.settle(5.0)  # all four come together
    node = net.nodes["a"]
    assert [y for _, y in node.heard] == [1.0, 3.0, 4.0]
    assert tried == [4, 3, 1]
    assert node.notices == ["not learned"]
    facts = node.protocol._way.facts()
    assert (facts["failed"], facts["failed_rows"], facts["behind"]) == ({"c": 1}, 1, 0)
    assert "1 rows of 'c' could not be learned, and were passed over" in node.protocol.disputes()
    net.crash("a")  # nor after a restart
    net.settle(5.0)
    assert tried == [4, 3, 1]


def test_rows_that_are_learned_again_and_fail_count_once(monkeypatch):
    """One that leaves takes its rows away, and all others are lined up again."""

    def forgetting(self, state):
        for name in self.names:
            state = self.receive_from(state, name, 0)
        return state

    fail_on(monkeypatch, {2.0}, Diverged("no"))
    monkeypatch.setattr(CountingLearner, "forget_others", forgetting)
    net = Net()
    for name in "cccd":
        net.row(name)
        net.settle(2.0)
    node = net.nodes["a"].protocol
    assert node._way.facts()["failed"] == {"c": 1}
    node.change(["b"], None, Roll(frozenset("abc"), Seals()))
    net.settle_some("a", 5.0)
    assert [y for _, y in net.nodes["a"].heard] == [1.0, 3.0, 4.0, 1.0, 3.0]
    assert node._way.facts()["failed"] == {"c": 1}


def line_of(waiting):
    """A learner, and a line of (origin, first row) whose rows are worth 0 ... n - 1 in order; the
    logs keep the last of each origin's batches of ten rows, as many as there are.
    """
    learner = counting("a")
    context, found = batches.Context.of(learner), {}
    for i, (name, first) in enumerate(waiting):
        log = found.get(name, OriginLog())
        follows = log.end == first
        rows = np.zeros((10, 1)), np.full((10, 1), float(i))
        packed = entry(*rows, first, log.tip, origin=name, context=context)
        batch = batches.read_batch(context, packed)
        found[name] = OriginLog((*log.batches, batch) if follows else (batch,))
    line = LearningLine(tuple((name, first, False) for name, first in waiting))
    return line, found, learner, context


def test_batches_behind_one_that_is_gone_are_learned():
    line, found, learner, context = line_of([("a", 0), ("b", 0), ("a", 100), ("b", 10)])
    assert found["a"].base == 100
    state = learner.start()
    while line.waiting:
        line, state, _, _ = learn_next(line, found, learner, state, context, 2.0)
    assert heard_rows(state) == tuple(
        (o, y) for o, y in zip("bab", (1.0, 2.0, 3.0), strict=True) for _ in range(10)
    )
    assert line.skipped == {"a": 100}


def learned_all(line, found, learner, context, state=None):
    """The line, the state and the values of batches when nothing in line is left to learn."""
    state = learner.start() if state is None else state
    while line.waiting:
        line, state, _, _ = learn_next(line, found, learner, state, context, 2.0)
    return line, state, [y for _, y in heard_rows(state)][::10]


def learn_failing(waiting, error, of, monkeypatch):
    """What is learned of a line where an error comes of batches of these values."""
    line, found, learner, context = line_of(waiting)
    fail_on(monkeypatch, of, error)
    line, _, learned = learned_all(line, found, learner, context)
    return line, learned


@pytest.mark.parametrize(
    "error", [MemoryError(), OSError(), RuntimeError("can't start new thread"), KeyError("a bug")]
)
def test_what_rows_cannot_cause_passes_none_of_them_over(error, monkeypatch):
    line, learned = learn_failing([("b", 0), ("c", 0), ("b", 10)], error, {0.0}, monkeypatch)
    assert learned == [1.0]
    assert (line.failed, line.aside) == ({}, {"b": (0, f"{type(error).__name__}: {error}")})


def test_what_befalls_the_rows_of_several_origins_in_turn_loses_few_of_them(monkeypatch):
    lined = [("b", 0), ("c", 0), ("d", 0), ("b", 10), ("c", 10), ("a", 0)]
    error, bad = ValueError("a bug"), {0.0, 1.0, 2.0, 3.0, 4.0}
    line, learned = learn_failing(lined, error, bad, monkeypatch)
    assert learned == [5.0]
    assert line.failed == {"b": 10, "c": 10}
    assert {name: first for name, (first, _) in line.aside.items()} == {"b": 10, "c": 10, "d": 0}


def test_who_is_put_aside_is_learned_later_but_for_rows_that_are_gone(monkeypatch):
    line, found, learner, context = line_of([("b", 0), ("b", 10), ("c", 0)])
    with monkeypatch.context() as patch:
        fail_on(patch, {0.0}, MemoryError())
        line, state, _ = learned_all(line, found, learner, context)
    found["b"] = OriginLog(found["b"].batches[1:])
    line, state = readmit(line, found, learner, state, 2.0)
    assert (line.skipped, line.aside) == ({"b": 10}, {})
    line, state, learned = learned_all(line, found, learner, context, state)
    assert learned == [2.0, 1.0]


def test_three_origins_whose_rows_cannot_be_learned_stop_nobody(monkeypatch):
    """Nor do they keep their neighbour from passing rows on."""
    net, bad = Net(), {float(i) for i in range(1, 100)} - {7.0, 11.0, 15.0}
    fail_on(monkeypatch, bad, ValueError("no"))
    node = net.nodes["a"]
    for name in "bcdbcd":
        net.row(name)
        net.settle(1.0)
    assert any("of 'd' cannot be learned now" in text for text in node.protocol.disputes())
    assert node.protocol._way.facts()["failed_rows"] == 2
    for _ in range(3):
        for name in "abcd":
            net.row(name)
        net.settle(2.0)
        assert node.heard[-1] == ("a", net.value - 3)  # at once
        assert all(log.end == node.logs[name].end for name, log in net.nodes["c"].logs.items())
        net.settle(12.0)  # those put aside have their turn
    heard = {name: sorted(net.nodes[name].heard) for name in "bcd"}
    assert heard["b"] == heard["c"] == heard["d"]
    assert len(heard["b"]) == 18
    assert sorted(node.heard) == [("a", 7.0), ("a", 11.0), ("a", 15.0)]
    assert node.protocol._way.facts()["failed_rows"] > 2


def test_rows_that_cannot_be_learned_are_passed_over_where_others_can(monkeypatch):
    lined = [("b", 0), ("b", 10), ("b", 20), ("c", 0), ("d", 0), ("c", 10), ("d", 10)]
    error, bad = NotDefinite("no"), {0.0, 1.0, 2.0, 3.0, 5.0, 6.0}
    line, learned = learn_failing(lined, error, bad, monkeypatch)
    assert learned == [4.0]
    assert line.failed == {"b": 30, "c": 20, "d": 10}


def test_of_an_origin_that_sends_much_few_rows_are_in_line_before_those_of_others():
    context, log, tip = batches.Context.of(counting("a")), OriginLog(), batches.NOTHING
    for first in range(0, 256 * 40, 256):
        rows = np.zeros((256, 1)), np.zeros((256, 1))
        sealed = entry(*rows, first, tip, origin="b", context=context)
        log = OriginLog((*log.batches, batches.read_batch(context, sealed)))
        tip = log.tip
    (other,) = chain(context, "c", 1, 1)
    found = {"b": log, "c": OriginLog((other,))}
    line = line_up_all(found, {}, 2.0)
    assert [name for name, _, _ in line.waiting] == ["b"] * 8 + ["c"]
