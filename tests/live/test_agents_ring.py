"""A faulty neighbour in a ring, by gradient steps: two neighbours are too few to leave one out.

Honest nodes clip what it sends by their own rows (`agents/protocol/own_rows.py`): their error stays
below that of a node that has learned its own rows alone, and both its neighbours name it.
"""

from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
from test_agents_attacks import Lab, drifting, flipped, largest

from dokl.live.protocol import own_rows
from dokl.live.protocol.machine import UNGUARDED
from fake_link import PULL, PUSH, Link, described, rows
from variants import first

FAULTY, BESIDE = "n05", ("n00", "n04")


class Ring(Lab):
    """Five honest nodes of a ring of six."""

    attacker = FAULTY

    def __init__(self, policy=PUSH, seed=0):
        super().__init__(policy, nx.cycle_graph(6), seed)

    def alone(self):
        """The error of a node that has learned as many rows as each, and nobody else's."""
        X, Y = rows(np.random.default_rng(99), 300, noise=0.0)
        n = next(iter(self.nodes.values())).learned
        state, _ = self.learner.learn(self.learner.start(), *rows(np.random.default_rng(7), n))
        return float(np.mean((self.learner.predict(state, X) - Y) ** 2))

    def named(self, now=None):
        """Who names whom."""
        return {
            (name, peer)
            for name, node in self.nodes.items()
            for text in node.facts(now)["problems"]
            for peer in self.network.names
            if repr(peer) in text
        }


def noise(theta, turn):
    return 10.0 * np.random.default_rng(turn).normal(size=theta.shape)


def constant(theta, turn):
    return np.ones(theta.shape)


def small(theta, turn):
    """Next to nothing: no distance shows it."""
    return np.full(theta.shape, 0.01)


ATTACKS = (flipped, largest, noise, constant, small)


@pytest.mark.parametrize("attack", first(*ATTACKS, always=2), ids=lambda attack: attack.__name__)
def test_a_faulty_neighbour_of_a_ring_does_no_harm_and_is_named(attack):
    ring = Ring()
    before = ring.error()
    worst = ring.attack(attack, 18.0)
    assert worst < min(1.3 * before, ring.alone())
    assert ring.named() == {(name, FAULTY) for name in BESIDE}


@pytest.mark.parametrize("policy", [PUSH, PULL], ids=["push", "pull"])
@pytest.mark.parametrize(
    "attack", first(small, *ATTACKS[:-1], drifting), ids=lambda attack: attack.__name__
)
def test_nor_does_it_while_nobody_learns(attack, policy):
    """Pulling again and again gains nothing: the bound is what rows were predicted by before."""
    ring = Ring(policy)
    before = ring.error()
    assert ring.attack(attack, 10.0, learning=False) < 1.5 * before


def test_without_the_clip_all_are_lost_at_once():
    ring = Ring(replace(PUSH, clip=0.0))
    assert ring.facts()["assumptions"] == [
        "neighbour 'n05' is down: its weight 0.333 is back at self, the graph is not the described "
        "one",
        UNGUARDED,
    ]
    assert ring.attack(largest, 1.0) > 1e6


@pytest.mark.parametrize("graph", [nx.path_graph(2), nx.path_graph(4), nx.star_graph(3)])
def test_honest_nodes_of_few_neighbours_agree_and_nobody_is_named(graph):
    """Also with rows at one end only, and after one has started again from nothing."""
    link = Link(described(graph), PUSH, seed=3).start()
    source = np.random.default_rng(4)
    first, *_, last = link.nodes
    for turn in range(60):
        for name in link.nodes if turn > 20 else (first,):
            link.feed(name, *rows(source, 5))
        link.run(0.5)
        assert not any(node.facts()["problems"] for node in link.nodes.values())
        if turn == 40:
            link.kill(last)
            link.run(1.0)
            link.start(last)
    link.run(30)
    assert link.apart() < 1e-2


def test_nodes_of_other_inputs_agree_again_after_a_partition_while_rows_come():
    """Each has seen half of the inputs, and mixing costs it something there; nobody is named."""
    link, source = Link(described(nx.path_graph(2), D=60), PUSH, seed=3).start(), Halves()
    link.run(1)
    link.part(("n00", "n01"))
    for _ in range(20):
        source.teach(link, 25)
        link.run(0.2)
    parted = source.error(link)
    link.heal()
    for _ in range(60):
        source.teach(link, 10)
        link.run(0.5)
        assert not any(node.facts()["problems"] for node in link.nodes.values())
    assert source.error(link) < 0.5 * parted
    assert link.apart() < 1e-2


class Halves:
    """Rows of sin(2 x1) x2, of positive x1 for the first node and of negative for the other."""

    def __init__(self):
        self.rng = np.random.default_rng(1)

    def rows(self, n):
        X = self.rng.normal(size=(n, 2))
        return X, np.sin(2 * X[:, :1]) * X[:, 1:] + 0.05 * self.rng.normal(size=(n, 1))

    def teach(self, link, n):
        for name, sign in zip(link.nodes, (1.0, -1.0), strict=True):
            X, Y = self.rows(4 * n)
            there = X[:, 0] * sign > 0
            link.feed(name, X[there][:n], Y[there][:n])

    def error(self, link):
        X, Y = self.rows(1000)
        said = [link.learner.predict(node.state, X) for node in link.nodes.values()]
        return max(float(np.mean((f - Y) ** 2)) for f in said)


def test_a_problem_of_a_neighbour_ends_also_where_no_more_rows_come():
    ring = Ring()
    ring.attack(flipped, 18.0)
    assert ring.named()
    assert ring.named(ring.now + 590.0)
    assert ring.named(ring.now + 610.0) == set()


def test_a_neighbour_that_is_repaired_is_believed_again():
    ring = Ring()
    ring.attack(flipped, 18.0)
    assert ring.named()
    ring.attack(lambda theta, turn: theta, 25.0)
    harmed = [ring.nodes[name]._node.peers[FAULTY].harms for name in BESIDE]
    assert harmed == [False, False]


def test_own_rows_shorten_a_difference_and_do_not_move_with_it():
    rng = np.random.default_rng(0)
    learner = described().learner()
    X, Y = rows(rng, 150)
    state, f, _ = learner.learn_saying(learner.start(), X, Y)
    kept = own_rows.append(None, learner, X, Y, f)
    assert kept.X.shape == (own_rows.MOST, 2)
    theta = state.theta[0]
    assert own_rows.shares(kept, learner, state, [theta, -theta, 1e3 + theta]) == [1.0, 1 / 16, 0.0]
    more = own_rows.append(kept, learner, X[:30], Y[:30], f[:30])
    assert np.array_equal(more.X, np.concatenate([X[80:], X[:30]]))
    assert more.usual != kept.usual
