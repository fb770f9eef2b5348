"""The tables of states are whole and loud, and nothing in them never happens."""

import importlib
from collections import Counter
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest

from dokl.live.description import ExchangePolicy
from dokl.live.protocol import Protocol, states
from dokl.live.protocol.states import TABLES, Event, IllegalTransition, Life, after
from fake_link import described, rows, theta_message

PUSH = ExchangePolicy(mode="push", every_seconds=0.1, join_seconds=0.5)
PULL, OFF = replace(PUSH, mode="pull"), replace(PUSH, mode="off")
BY_SAMPLES = replace(PUSH, every_seconds=0.0, every_samples=5)
CTA = ExchangePolicy(mode="lockstep", patience_seconds=1.0)
ATC = replace(CTA, order="atc")
POLICIES = (PUSH, PULL, OFF, BY_SAMPLES, CTA, ATC)
PEERS = ("n01", "n02", "n03")
CODE = ("gossip", "lockstep", "machine", "node", "neighbours")
LAST = Life.LEARNING  # nothing leads out of it but the end of the process


@pytest.fixture(scope="module")
def learner():
    return described(nx.path_graph(2)).learner()


@pytest.fixture(scope="module")
def other():
    """A learner whose messages carry another fingerprint."""
    return described(nx.path_graph(2), sigma=3.0).learner()


@pytest.fixture
def taken(monkeypatch):
    """Counts (state, event) of every transition that the code asks for."""
    found = Counter()

    def counting(state, event):
        found[state, event] += 1
        return after(state, event)

    for name in CODE:
        module = importlib.import_module(f"dokl.live.protocol.{name}")
        monkeypatch.setattr(module, "after", counting)
    return found


# -- the tables ------------------------------------------------------------------------------
@pytest.mark.parametrize("table", TABLES, ids=lambda table: type(next(iter(table))).__name__)
def test_a_table_has_a_row_for_each_state_and_a_way_to_it(table):
    kind = type(next(iter(table)))
    assert list(table) == list(kind), "one row for each state, in the order of the enum"
    assert all(type(to) is kind for row in table.values() for to in row.values())
    reached = {to for state, row in table.items() for to in row.values() if to is not state}
    assert reached | {next(iter(kind))} == set(kind)
    assert all(set(row.values()) - {state} for state, row in table.items() if state is not LAST)


def test_every_event_and_every_machine_is_in_use():
    assert {event for table in TABLES for row in table.values() for event in row} == set(Event)
    machines = {type(next(iter(table))) for table in TABLES}
    enums = {each for each in vars(states).values() if isinstance(each, type(Event))}
    assert machines == {each for each in enums if len(each)} - {Event}


def test_what_cannot_be_is_refused_loudly_and_changes_nothing(learner):
    with pytest.raises(IllegalTransition, match="LEARNED cannot come when Life is JOINING") as told:
        after(Life.JOINING, Event.LEARNED)
    assert "only JOIN, NO_JOIN, ADOPTED, NOBODY" in str(told.value)
    node = Protocol(learner, "n00", PEERS, PUSH, 1)._node
    X, Y = rows(np.random.default_rng(0), 3)
    with pytest.raises(IllegalTransition):
        node.learn(X, Y)
    assert (node.life, node.learned, node.step) == (Life.JOINING, 0, 0)


# -- the code --------------------------------------------------------------------------------
def test_all_that_the_tables_allow_happens(taken, learner, other):
    """Whatever comes is in the tables, or a walk would raise; and each entry is needed."""
    for seed in range(100):
        walk(learner, other, seed)
    start_from_a_neighbour(learner)
    start_without_anybody(learner)
    jump_while_some_are_absent(learner)
    jump_after_a_change_of_order(learner)
    disbelieve_a_neighbour(learner, other)
    listed = {(state, event) for table in TABLES for state, row in table.items() for event in row}
    assert {f"{s} {e.name}" for s, e in listed} - {f"{s} {e.name}" for s, e in taken} == set()


def walk(learner, other, seed):
    """Random events of all kinds, changes of the description among them."""
    rng = np.random.default_rng(seed)
    state = None if rng.random() < 0.6 else learner.start()
    peers = [name for name in PEERS if rng.random() < 0.7]
    node = Protocol(learner, "n00", peers, POLICIES[seed % 6], 1, state)
    now = 0.0
    for _ in range(80):
        now += float(rng.choice([0, 0.01, 0.1, 0.3, 1.1], p=[0.3, 0.3, 0.2, 0.15, 0.05]))
        random_event(node, learner if rng.random() < 0.95 else other, rng, now)


def random_event(node, sender, rng, now):
    peer, policy = rng.choice(PEERS), POLICIES[rng.integers(6)]
    about = {"wall": now, "count": int(rng.choice([0, 50])), "hello": bool(rng.random() < 0.4)}
    version = int(rng.integers(0, 9)), int(rng.choice([6, 7, 7, 7, 8]))
    data = theta_message(sender, rng.normal(), *version, **about)
    X, Y = rows(rng, int(rng.integers(1, 4)))
    events = [
        lambda: node.samples(X, Y, now),
        lambda: node.message(peer, data, now),
        lambda: node.tick(now),
        lambda: node.peer_up(peer, now),
        lambda: node.peer_lost(peer, now),
        lambda: node.finish(now),
        lambda: node.change([name for name in PEERS if rng.random() < 0.8], policy),
    ]
    events[rng.choice(7, p=[0.15, 0.38, 0.2, 0.13, 0.05, 0.03, 0.06])]()


def start_from_a_neighbour(learner):
    """A newcomer that asked before it is given something."""
    node = Protocol(learner, "n00", ["n01"], PULL, 1)
    node.peer_up("n01", 0.0)
    node.tick(0.0)
    node.message("n01", theta_message(learner, 1.0), 0.1)
    assert node._node.life is Life.LEARNING


def start_without_anybody(learner):
    """A newcomer to which nobody comes, and then a new description or a neighbour."""
    for policy in (PULL, OFF, None):
        node = Protocol(learner, "n00", ["n01"], PUSH, 1)
        node.tick(0.0)
        node.tick(1.0)
        assert node._node.life is Life.FROM_ZERO
        node.change(["n01"], policy)
    node.peer_up("n01", 1.0)
    node.message("n01", theta_message(learner, 1.0), 1.0)
    node.tick(2.0)
    assert node.facts()["combines"] == 1


def disbelieve_a_neighbour(learner, other):
    """Nothing that it sends is in order, or two speak in its name; and what may come then."""

    def refused():
        node = Protocol(learner, "n00", ["n01"], PUSH, 1)
        for at in (0.0, 1.0, 2.5):
            node.too_large("n01", at)
        return node

    node = refused()
    node.message("n01", theta_message(learner, 1.0, hello=True), 3.0)
    assert not node.facts()["problems"]
    refused().message("n01", theta_message(other, 1.0), 3.0)
    node = refused()
    node.seen_twice(["n01"], 3.0)
    assert "two agents" in node.facts()["problems"][0]
    node.seen_twice([], 4.0)
    assert not node.facts()["problems"]


def far_ahead(learner, *policies):
    """A node in lockstep that follows its one neighbour to round 9 while another is absent."""
    node = Protocol(learner, "n00", ["n01", "n02"], policies[0], 1)
    node.peer_up("n01", 0.0)
    node.message("n01", theta_message(learner, 1.0, 9, count=0), 0.0)
    node.samples(*rows(np.random.default_rng(0), 1), 0.0)
    assert (node.step, node.queued) == (9, 1)
    for policy in policies[1:]:
        node.change(["n01", "n02"], policy)
    return node


def jump_while_some_are_absent(learner):
    node = far_ahead(learner, CTA, PUSH)  # new, and yet past round 0
    node.message("n01", theta_message(learner, 1.0, 10), 0.1)
    node.tick(0.2)
    node.tick(1.0)
    assert node._node.life is Life.LEARNING
    for policies in ((ATC,), (ATC, CTA)):
        node = far_ahead(learner, *policies)
        node.message("n01", theta_message(learner, 1.0, 20), 0.1)
        assert node.step == 20


def jump_after_a_change_of_order(learner):
    for before, policy in ((CTA, CTA), (CTA, ATC), (ATC, ATC), (ATC, CTA)):
        node = Protocol(learner, "n00", ["n01"], before, 1)
        node.peer_up("n01", 0.0)
        node.message("n01", theta_message(learner, 1.0, 0), 0.0)
        node.samples(*rows(np.random.default_rng(0), 2), 0.0)
        node.change(["n01"], policy)
        node.message("n01", theta_message(learner, 1.0, 20), 0.1)
        assert node.step >= 20
