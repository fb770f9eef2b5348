"""Nodes killed, hung and cut off at random, on a link that loses and reorders: all goes on."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dokl.base.errors import Diverged
from dokl.live.description import ExchangePolicy
from dokl.live.protocol import Protocol
from dokl.network.state import pack as pack_state
from dokl.network.state import unpack as unpack_state
from fake_link import PULL, PUSH, Link, described, rows, theta_message
from variants import first

GRAPHS = [nx.cycle_graph(5), nx.path_graph(3), nx.star_graph(4), nx.complete_graph(4)]
POLICIES = {
    "cta": ExchangePolicy(mode="lockstep", patience_seconds=2.0),
    "atc": ExchangePolicy(mode="lockstep", order="atc", patience_seconds=2.0),
    "push": PUSH,
    "pull": PULL,
}


class Chaos:
    """A network to which things happen."""

    def __init__(self, policy, seed):
        self.rng = np.random.default_rng(seed)
        loss, longest = self.rng.choice([0, 0.1, 0.3]), self.rng.choice([0.01, 0.1, 0.6])
        network = described(GRAPHS[seed % 4])
        self.link = Link(network, policy, seed, float(loss), (0.001, float(longest))).start()
        self.dead = {}

    def one(self):
        return str(self.rng.choice(sorted(self.link.nodes)))

    def kill(self):
        if len(self.link.nodes) > 1:
            name = self.one()
            node = self.link.nodes[name]
            self.dead[name] = pack_state(node.state), node.learned
            self.link.kill(name)

    def restart(self):
        for name, (packed, learned) in self.dead.items():
            state = unpack_state(packed) if learned else None
            self.link.start(name, state=state, learned=learned)
        self.dead = {}

    def hang(self):
        self.link.hung.add(self.one())

    def part(self):
        links = self.link.network.links
        self.link.part(links[int(self.rng.integers(len(links)))])

    def samples(self):
        for name in self.link.nodes:
            if self.rng.random() < 0.8:
                self.link.feed(name, *rows(self.rng, int(self.rng.integers(1, 6))))

    def happen(self, times):
        events = [self.kill, self.restart, self.hang, self.link.wake, self.part, self.link.heal]
        for _ in range(times):
            self.samples()
            if self.rng.random() < 0.6:
                events[int(self.rng.integers(6))]()
            self.link.run(float(self.rng.uniform(0, 1.5)))
        for event in (self.link.wake, self.link.heal, self.restart):
            event()
        self.samples()
        self.link.run(40)
        return self.link


@pytest.mark.parametrize("seed", first(*range(4)))
@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_whatever_happens_all_rows_are_learned_and_silence_returns(policy, seed):
    link = Chaos(policy, seed).happen(25)
    assert len(link.nodes) == len(link.network.names)
    for node in link.nodes.values():
        assert node.queued == 0
        assert node.next_due(link.now) is None
        assert not any("down" in text for text in node.facts()["assumptions"])
    assert link.reasons() <= {"stale", "duplicate"}
    assert policy.mode == "lockstep" or link.apart() < 1e-3


# -- going back -------------------------------------------------------------------------------
@given(st.integers(0, 10_000))
@settings(max_examples=40, deadline=None)
def test_back_is_as_if_nothing_had_come(small, seed):
    """A node that goes back at random moments ends like its twin that never heard of it."""
    rng = np.random.default_rng(seed)
    policy = (PUSH, PULL, ExchangePolicy(mode="lockstep"))[seed % 3]
    make = (None, small.start())[seed // 3 % 2]
    node, twin = (Protocol(small, "n00", ["n01", "n02"], policy, 1, make) for _ in range(2))
    now = 0.0
    for _ in range(30):
        now += float(rng.uniform(0, 0.4))
        event, undone = some_event(small, rng, now), some_event(small, rng, now)
        mark = node.mark()
        outcome(node, undone)
        node.back(mark)
        assert outcome(node, event) == outcome(twin, event)
        assert str(node.facts()) == str(twin.facts())
        assert pack_state(node.state) == pack_state(twin.state)
        assert (node.step, node.queued, node.learned) == (twin.step, twin.queued, twin.learned)
        assert node.next_due(now) == twin.next_due(now)


def some_event(learner, rng, now):
    peer, step = f"n0{rng.integers(1, 4)}", int(rng.integers(0, 6))
    data = theta_message(learner, rng.normal(), step, hello=bool(rng.random() < 0.3))
    X, Y = rows(rng, int(rng.integers(1, 5)))
    events = [
        lambda node: node.samples(X, Y, now),
        lambda node: node.message(peer, data, now),
        lambda node: node.tick(now),
        lambda node: node.peer_up(peer, now),
        lambda node: node.peer_lost(peer, now),
        lambda node: node.finish(now),
        lambda node: node.change(["n01", "n03"]) or [],
    ]
    return events[rng.choice(7, p=[0.25, 0.3, 0.2, 0.15, 0.05, 0.025, 0.025])]


def outcome(node, event):
    try:
        return str(event(node))
    except Diverged as error:
        return str(error)
