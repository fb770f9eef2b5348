"""A neighbour with false rows, live: honest nodes stay as good as they would be alone."""

import functools
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
from test_agents_sums import EVERY, SumsLink

from dokl.learning.squares.sums import Sums
from dokl.live.certificates.signing import Seals
from dokl.live.protocol import standing
from dokl.live.protocol.effects import Refuse
from dokl.live.protocol.messages import SUMS
from dokl.live.protocol.standing import Standing
from dokl.network.sums import origins
from dokl.network.sums.checks import Trial
from dokl.network.sums.origins import Entry
from fake_link import rows
from variants import first

FAULTY, HONEST = "n03", ("n00", "n01", "n02")
WORSE_HERE = f"the rows of '{FAULTY}' make predictions worse here, and are left out"


class Lab(SumsLink):
    """Three honest nodes and a faulty one, all linked."""

    def __init__(self, seed=0):
        super().__init__(nx.complete_graph(4), replace(EVERY, fewest_rows=20), seed=seed)
        self.roll = replace(self.roll, target=20.0, rate=100.0, begun=-60.0)
        self.start(*HONEST)
        self.incarnation, self.faults = 10**6, []
        self.own = self.learner.start()

    def live(self, attack, turns=80):
        """Honest rows everywhere, and what the attack makes of the faulty node's."""
        self.up.add(FAULTY)
        self._meet(FAULTY)
        for turn in range(turns):
            for name in HONEST:
                self.teach(name, 10)
            for entry in attack(self, turn):
                self.say(entry)
            self.run(0.5)

    def say(self, entry):
        """The faulty node tells all its neighbours, sealed by itself."""
        self.incarnation += 1
        data = Seals().seal(origins.to_bytes(entry))
        self.faults.append(data)
        self.send(data)

    def send(self, data):
        node = self.nodes["n00"]._node  # whose header will do, with another's step
        for peer in self._near(FAULTY):
            body = FAULTY, node.pack_body(SUMS, data, self.now)
            self.carry(FAULTY, peer, "message", body)

    def attacked(self, n, sign=-1.0):
        """The faulty node's sums after n more rows whose targets are turned round."""
        X, Y = rows(self.source, n)
        self.own, _ = self.learner.learn(self.own, X, sign * Y)
        return self.learner.own_sums(self.own)

    def ratios(self):
        """The recent error of each honest node over that of its own experts alone."""
        return [self.learner.worth(self.nodes[name].state)["ratio"] for name in HONEST]


def flipped_labels(lab, turn):
    return [Entry(FAULTY, 1, lab.attacked(10))]


def flipped_signs(lab, turn):
    own = lab.attacked(10)
    return [Entry(FAULTY, 1, replace(own, zz=-own.zz, zy=-own.zy))]


def noise(lab, turn):
    own = lab.attacked(10)
    zy = own.zy + lab.source.normal(size=own.zy.shape) * 0.3 * np.sqrt(own.rows)
    return [Entry(FAULTY, 1, replace(own, zy=zy))]


def inflated(lab, turn):
    """As many rows as are believed of one who was silent until now, and as fast as they are."""
    own, k = lab.attacked(10), 60
    return [
        Entry(FAULTY, 1, Sums(k * own.rows, k * own.weight, k * own.zz, k * own.zy, k * own.yy))
    ]


def stale(lab, turn):
    """Earlier false sums, again and again, among new ones."""
    for data in lab.faults[:3]:
        lab.send(data)
    return [Entry(FAULTY, turn % 3, lab.attacked(10))]


def peace(lab, turn):
    """The faulty node's place is empty."""
    return []


ATTACKS = first(flipped_labels, noise, inflated, flipped_signs, stale)


@functools.cache
def lived(attack):
    """A network after an attack: to look at."""
    lab = Lab()
    lab.live(attack)
    return lab


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_honest_nodes_stay_as_good_as_alone(attack):
    lab = lived(attack)
    assert max(lab.ratios()) < 1.1
    told = {effect.reason for effect in lab.effects(Refuse)}
    named = [text for name in HONEST for text in lab.nodes[name].facts()["problems"]]
    assert told & {"sums"} or named
    assert not any(repr(name) in text for name in HONEST for text in named)


@pytest.mark.parametrize(
    "attack", first(flipped_labels, inflated), ids=lambda attack: attack.__name__
)
def test_who_hurts_is_named_and_left_out_alone(attack):
    """The rows of the others still count, and are worth something."""
    lab = lived(attack)
    for name in HONEST:
        facts = lab.nodes[name].facts()
        assert facts["sums"]["hurting"] == [FAULTY]
        assert not facts["sums"]["left_out"]
        assert facts["problems"] == [WORSE_HERE]
    X, Y = rows(np.random.default_rng(99), 300, noise=0.0)
    honest = lived(peace)
    errors = [
        max(np.mean((made.learner.predict(made.nodes[n].state, X) - Y) ** 2) for n in HONEST)
        for made in (lab, honest)
    ]
    assert errors[0] < 1.5 * errors[1] + 1e-4


def loud(lab, turn):
    own = lab.attacked(10)
    return [Entry(FAULTY, 1, replace(own, zy=10 * own.zy, yy=100 * own.yy))]


def attacked_loudly():
    """A network just after the first false sums: they come after ten rows of one's own."""
    lab = Lab()
    lab.roll = replace(lab.roll, target=200.0)
    lab.start(*HONEST)
    for name in HONEST:
        lab.teach(name, 10)
    lab.live(loud, turns=1)
    return lab.run(5)


def test_targets_of_another_size_are_left_out_before_anything_was_judged():
    lab = attacked_loudly()
    for name in HONEST:
        facts, way = lab.nodes[name].facts(), lab.nodes[name]._way
        assert way.standing.trial.hurts.get(FAULTY) is None
        assert facts["sums"]["hurting"] == [FAULTY]
        assert facts["problems"] == []
        assert (
            f"the targets of '{FAULTY}' are more than 5 times as large as here, and its rows are "
            "left out"
        ) in facts["assumptions"]
        total = origins.total({n: e for n, e in way.others.items() if n != FAULTY})
        total += lab.learner.own_sums(lab.nodes[name].state)
        best = lab.learner.knowing(lab.nodes[name].state, total, (total, total))
        thetas = [s.node.memories[0].theta for s in (best, lab.nodes[name].state)]
        assert np.allclose(*thetas)


@pytest.mark.slow
def test_targets_of_another_size_are_named_once_it_is_no_chance():
    lab = attacked_loudly()
    lab.live(loud)
    assert max(lab.ratios()) < 1.1
    for name in HONEST:
        assert lab.nodes[name].facts()["problems"] == [WORSE_HERE]


def test_nobody_honest_is_left_out():
    lab = Lab()
    lab.live(lambda lab, turn: [Entry(FAULTY, 1, lab.attacked(10, sign=1.0))], turns=60)
    for name in HONEST:
        assert lab.nodes[name].facts()["sums"]["hurting"] == []
        assert lab.nodes[name].facts()["problems"] == []
    assert max(lab.ratios()) < 1.05


@pytest.mark.slow
def test_one_who_takes_its_rows_back_is_judged_again():
    """As after a repaired sensor and `dokl agent rollback`."""
    lab = Lab()
    lab.live(flipped_labels)
    lab.own = lab.learner.start()
    lab.live(lambda lab, turn: [Entry(FAULTY, 2, lab.attacked(10, sign=1.0))], turns=60)
    assert lab.nodes["n00"].facts()["sums"]["hurting"] == []


def test_nobody_wipes_off_what_is_held_against_it_by_taking_rows_back():
    """One row, most rows or all but one: a faulty origin stays out, and so does its record."""
    lab = lived(flipped_labels)
    node = lab.nodes["n00"]
    held = node._way.standing
    told = node._way.account[FAULTY].sums.rows
    assert held.out == {FAULTY}
    for left in (told - 1, told // 4, 1):
        assert standing._still(held, {FAULTY: left, "n01": 400}).out == {FAULTY}
    assert standing._still(held, {FAULTY: told - 1}).back == held.trial.back
    assert standing._still(held, {FAULTY: told // 4}).back == {FAULTY: standing.PROBATION}


def test_few_rows_fewer_do_not_hide_one_who_is_about_to_be_left_out():
    held = Standing(Trial({"a": 3.0, "b": -3.0}, {"a": 2.0}), rows={"a": 9, "b": 9})
    assert standing._still(held, {"a": 8, "b": 8}) == held.trial
    assert standing._still(held, {"a": 8}) == Trial({"a": 3.0}, {"a": 2.0})


def test_what_is_held_against_an_origin_clears_itself_when_the_streams_end():
    lab = lived(flipped_labels)
    end = lab.now
    for name in HONEST:
        node = lab.nodes[name]
        assert node.facts(end)["problems"] == [WORSE_HERE]
        assert node.facts(end + 601)["problems"] == []
        # Its rows are no better for that.
        assert node.facts(end + 601)["sums"]["hurting"] == [FAULTY]
        left = f"the rows of '{FAULTY}' made predictions worse here, and are left out"
        assert left in node.facts(end + 601)["assumptions"]


@pytest.mark.slow
def test_a_faulty_origin_that_takes_back_a_row_at_a_time_stays_out():
    def wiping(lab, turn):
        own = lab.attacked(10)
        return [Entry(FAULTY, turn, replace(own, rows=own.rows + 30 - 11 * turn % 31))]

    lab = Lab()
    lab.live(wiping)
    assert all(lab.nodes[n].facts()["sums"]["hurting"] == [FAULTY] for n in HONEST)
    seen = []
    for turn in range(40, 60):
        lab.live(lambda lab, _, turn=turn: wiping(lab, turn), turns=1)
        seen += [lab.nodes[n].facts()["sums"]["hurting"] for n in HONEST]
    assert all(each == [FAULTY] for each in seen)


@pytest.mark.slow
def test_nothing_is_said_of_one_who_was_taken_out_of_the_network():
    lab = Lab()
    lab.live(flipped_labels)
    node = lab.nodes["n00"]
    node._way.standing = replace(node._way.standing, loud=frozenset({FAULTY}))
    node._way.going = FAULTY, (b"a piece", b"another")
    node.change(["n01", "n03"], None, replace(lab.roll, names=frozenset(HONEST)))
    assert node.facts()["problems"] == []
    assert node.facts()["sums"]["hurting"] == []
    assert node._way.going == ("", ())
    lab.run(5)
    assert FAULTY not in node._way.standing.rows
