"""A neighbour that lies within the rules: where one can be stood, the others hardly notice."""

import networkx as nx
import numpy as np
import pytest

from dokl.live.description import ExchangePolicy
from dokl.live.protocol import outliers
from dokl.live.protocol.effects import SendTheta
from fake_link import PULL, PUSH, Link, described, rows, theta_message

FAULTY, HONEST = "n04", ("n00", "n01", "n02", "n03")


class Lab(Link):
    """Four honest nodes, everybody linked, and one place in which somebody else sits."""

    attacker = FAULTY

    def __init__(self, policy=PUSH, graph=None, seed=0):
        network = described(nx.complete_graph(5) if graph is None else graph)
        super().__init__(network, policy, seed)
        self.source, self.step = np.random.default_rng(seed), 0
        honest = [name for name in network.names if name != self.attacker]
        self.start(*honest)
        self.teach(300)
        self.run(20)

    def teach(self, n):
        for name in self.nodes:
            self.feed(name, *rows(self.source, n))

    def error(self):
        """The worst node's, on rows without noise."""
        X, Y = rows(np.random.default_rng(99), 300, noise=0.0)
        said = [self.learner.predict(node.state, X) for node in self.nodes.values()]
        return max(float(np.mean((f - Y) ** 2)) for f in said)

    def attack(self, attack, seconds=15.0, learning=True):
        """The faulty node sends `attack(theta of the receiver, turn)`."""
        self.up.add(self.attacker)
        self._meet(self.attacker)
        worst = 0.0
        for turn in range(round(seconds / 0.1)):
            self.step += 1
            for peer in sorted(self.nodes.keys() & set(self._near(self.attacker))):
                theta = attack(self.theta(peer), turn)
                about = {"degree": len(self._near(self.attacker)), "wall": self.now}
                body = self.attacker, theta_message(self.learner, theta, self.step, **about)
                self.carry(self.attacker, peer, "message", body)
            if learning and turn % 5 == 0:
                self.teach(5)
            self.run(0.1)
            worst = max(worst, self.error() if turn % 5 == 4 else 0.0)
        return worst

    def leave(self):
        self.up.discard(self.attacker)
        for peer in self._near(self.attacker):
            self._at(self.now + 0.006, "lost", peer, self.attacker)
        self.run(2)

    def facts(self, name="n00"):
        return self.nodes[name].facts()


def largest(theta, turn):
    """As large as is accepted: predictions of nearly a million times the targets."""
    return np.full(theta.shape, 4e5 / np.sqrt(theta.size))


def flipped(theta, turn):
    return -theta


def drifting(theta, turn):
    """A little beside the receiver's, always in the same direction."""
    return theta + 0.4 / np.sqrt(theta.size)


ATTACKS = {"largest": largest, "flipped": flipped, "drifting": drifting}


@pytest.mark.parametrize("learning", [True, False], ids=["learning", "idle"])
@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_a_liar_that_can_be_stood_changes_little(attack, learning):
    lab = Lab()
    before = lab.error()
    assert before < 0.02
    assert lab.attack(attack, 5.0, learning) < 2 * before + 1e-3
    lab.leave()
    lab.teach(100)
    lab.run(5)
    assert lab.error() < 1.5 * before + 1e-3


def test_without_robust_mixing_the_same_liar_poisons_all():
    lab = Lab(ExchangePolicy(every_seconds=0.1, mixing="mean"))
    assert lab.attack(largest, 2.0) > 1e3


@pytest.mark.parametrize("attack", [largest, flipped])
def test_a_vector_far_from_all_others_is_told_and_weighs_nothing(attack):
    lab = Lab()
    lab.attack(attack, 10.0)
    assert lab.facts()["problems"] == []  # it could be one that starts again from nothing
    lab.attack(attack, 6.0)
    facts = lab.facts()
    assert facts["problems"] == [f"the vector of '{FAULTY}' is far from all others, and not used"]
    assert facts["neighbours"][FAULTY]["weight"] == 0
    assert facts["neighbours"][FAULTY]["why"] == "outside"
    assert facts["neighbours"]["n01"]["weight"] == pytest.approx(0.2)
    lab.leave()
    lab.teach(1)
    lab.run(1)
    assert lab.facts()["problems"] == [f"the vector of '{FAULTY}' was far from all others"]
    lab.run(700)
    lab.teach(1)
    lab.run(1)
    assert lab.facts()["problems"] == []


@pytest.mark.parametrize("attack", [largest, flipped])
@pytest.mark.parametrize("away", [1, 2, 3])
def test_a_liar_does_not_profit_from_those_who_are_down(attack, away):
    """A node restarts while others are down, and hears the faulty node among the first."""
    lab = Lab()
    before = lab.error()
    for name in HONEST[4 - away :]:
        lab.kill(name)
    assert lab.attack(attack, 16.0) < 2 * before + 1e-3
    assert lab.facts()["problems"] == [
        f"the vector of '{FAULTY}' is far from all others, and not used"
    ]


def test_honest_nodes_exchange_also_when_most_are_down():
    lab = Lab()
    for name in HONEST[2:]:
        lab.kill(name)
    before = lab.nodes["n00"].facts()["combines"]
    for _ in range(20):
        lab.teach(5)
        lab.run(0.3)
    assert lab.nodes["n00"].facts()["combines"] > before + 10
    assert lab.apart() < 0.1


def test_where_nobody_can_be_left_out_it_is_said():
    lab = Lab(ExchangePolicy(every_seconds=0.1, clip=1e-3), nx.path_graph([0, 1, 2, 3, 4]))
    learned = lab.theta("n03")
    lab.attack(lambda theta, turn: -learned, 16.0, learning=False)
    (text,) = lab.facts("n03")["problems"]
    assert text == f"the vector of '{FAULTY}' is far from all others, and clipped"
    lab.attack(lambda theta, turn: theta, 8.0)
    assert f"the vector of '{FAULTY}' was far from all others" in lab.facts("n03")["problems"]


@pytest.mark.parametrize("policy", [PUSH, PULL], ids=["push", "pull"])
def test_honest_nodes_agree_although_some_are_left_out(policy):
    """And then there is silence, and nobody is told to be far."""
    for graph in (nx.complete_graph(5), nx.star_graph(4), nx.circulant_graph(7, [1, 2])):
        link = Link(described(graph), policy).start()
        for i, name in enumerate(link.nodes):
            link.feed(name, *rows(np.random.default_rng(i), 100))
        link.run(60)
        assert link.apart() < 1e-3
        sent = dict(link.sent)
        link.run(500)
        assert link.sent == sent
        assert not any(node.facts()["problems"] for node in link.nodes.values())


def test_who_never_comes_nearer_is_not_told_for_ever():
    lab = Lab()
    lab.attack(flipped, 1.0, learning=False)
    count = len(lab.effects(SendTheta))
    lab.attack(flipped, 20.0, learning=False)
    later = len(lab.effects(SendTheta))
    assert later - count < 4 * 70


def test_the_first_who_speaks_is_not_believed_for_it():
    """It is judged by how many have something to say, not by who was heard so far."""
    own, attacker = np.zeros(3), np.ones(3)
    speakers = [0.2, 0.2, 0.2, 0.2]
    assert outliers.left_out("ios", own, [(0.2, attacker)], speakers) == [True]
    assert outliers.left_out("ios", own, [(0.5, attacker)], [0.5]) == [False]
    assert outliers.left_out("mean", own, [(0.2, attacker)], speakers) == [False]


def test_far_is_a_question_of_the_others():
    rng = np.random.default_rng(0)
    near = [np.ones(50) + 0.1 * rng.normal(size=50) for _ in range(4)]
    assert outliers.far(near[0], [*near[1:], -near[0]]) == [False, False, False, True]
    assert outliers.far(near[0], near[1:]) == [False] * 3
    assert outliers.far(near[0], [-near[1]]) == [True]
    assert outliers.far(near[0], [near[1], -near[1]]) == [False, True]
