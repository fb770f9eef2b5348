"""Newcomers and trust: where a node starts from, and what it refuses."""

from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dokl.base.errors import BadInput
from dokl.live.description import ExchangePolicy
from dokl.live.protocol import Protocol
from dokl.live.protocol.effects import (
    Combined,
    LearnedRows,
    Notice,
    Refuse,
    Save,
    SendHello,
    SendTheta,
)
from dokl.live.protocol.messages import HELLO, Message, pack, unpack
from dokl.network.state import pack as pack_state
from fake_link import PEGASOS, PULL, PUSH, Link, described, grown, reasons, rows, theta_message

PAIR, PATH = nx.path_graph(2), nx.path_graph(3)


# -- newcomers --------------------------------------------------------------------------------
@pytest.mark.parametrize("policy", [PUSH, PULL], ids=["push", "pull"])
def test_a_newcomer_starts_from_its_neighbours(rng, policy):
    network = described(PATH, labels=("n", "y"), **PEGASOS)
    link = Link(network, policy).start("n00", "n02")
    for name in ("n00", "n02"):
        X, y = rows(rng, 3000)
        link.feed(name, X, np.sign(y))
    link.run(20)
    before = link.theta("n00"), link.theta("n02")
    link.start("n01")
    X, y = rows(rng, 1)
    link.feed("n01", X, np.sign(y), at=link.now + 0.01)
    link.run(0.9)
    node = link.nodes["n01"]
    assert node.learned == 1
    assert "n00, n02" in link.notices("joined")[0]
    assert node.state.count[0] == 3001, "its step goes on where the neighbours' is"
    mean = (before[0] + before[1]) / 2
    assert np.linalg.norm(link.theta("n01") - mean) < 0.3 * np.linalg.norm(mean)
    link.run(20)
    assert link.apart() < 1e-2
    X, y = rows(rng, 300)
    right = [np.mean(np.sign(link.learner.predict(n.state, X)) == np.sign(y)) for n in [node]]
    assert right[0] > 0.9


@pytest.mark.parametrize("mode", ["push", "pull"])
def test_a_newcomer_starts_from_its_neighbours_where_samples_set_the_pace(rng, mode):
    """Its neighbours may not learn enough rows in the time that it waits, or none at all."""
    policy = ExchangePolicy(mode=mode, every_seconds=0.0, every_samples=50)
    link = Link(described(PATH), policy).start("n00", "n02")
    for name in ("n00", "n02"):
        link.feed(name, *rows(rng, 500))
    link.run(10)
    link.start("n01")
    link.feed("n01", *rows(rng, 1), at=link.now + 0.01)
    link.run(1.5)
    assert "n00, n02" in link.notices("joined")[0]
    sent = dict(link.sent)
    link.run(1000)
    assert sum(link.sent.values()) < sum(sent.values()) + 30, "and then there is silence"


def test_samples_wait_for_a_newcomers_start(small, rng):
    node = Protocol(small, "n00", ["n01"], PUSH, 1)
    X, Y = rows(rng, 9)
    assert node.samples(X, Y, 0.0) == []
    assert (node.queued, node.learned, node.next_due(0.0)) == (9, 0, 2.0)
    with pytest.raises(BadInput, match="row 0"):
        node.samples([[np.nan, 1.0]], [[1.0]], 0.1)
    node.peer_up("n01", 0.1)
    assert node.message("n01", theta_message(small, 0.0, hello=True, step=3), 0.2) == []
    effects = node.message("n01", theta_message(small, 0.1, step=3), 0.3)
    assert [type(e) for e in effects] == [Notice, Save, LearnedRows]
    expected, _ = small.learn(small.adopt(small.start(), [np.full((1, 20), 0.1)], [50]), X, Y)
    assert pack_state(node.state) == pack_state(expected)
    assert (node.queued, node.learned) == (0, 9)


def test_a_newcomer_without_experienced_neighbours_starts_from_zero(small, rng):
    X, Y = rows(rng, 9)
    expected = pack_state(small.learn(small.start(), X, Y)[0])
    alone = Protocol(small, "n00", ["n01"], PUSH, 1)
    alone.samples(X, Y, 0.0)
    assert alone.learned == 0
    alone.tick(2.0)
    assert pack_state(alone.state) == expected
    among = Protocol(small, "n00", ["n01"], PUSH, 1)
    among.samples(X, Y, 0.0)
    among.peer_up("n01", 0.1)
    among.message("n01", theta_message(small, 0, hello=True, step=0, count=0, learned=0), 0.2)
    assert pack_state(among.state) == expected, "at once when all are newborn"
    hermit = Protocol(small, "n00", [], PUSH, 1)
    hermit.samples(X, Y, 0.0)
    assert pack_state(hermit.state) == expected


def test_a_newborn_theta_is_not_sent(small):
    """Its zeros would pull the others down."""
    node = Protocol(small, "n00", ["n01"], PUSH, 1)
    effects = [*node.peer_up("n01", 0.0), *node.tick(0.0), *node.tick(3.0), *node.tick(30.0)]
    assert {type(e) for e in effects} == {SendHello}


def test_a_vector_that_the_first_samples_refute_is_dropped(small, rng):
    node = Protocol(small, "n00", ["n01"], PUSH, 1)
    node.peer_up("n01", 0.0)
    node.message("n01", theta_message(small, 0.0, hello=True, step=3), 0.2)
    node.message("n01", theta_message(small, 1e29, step=3), 0.3)
    X, Y = rows(rng, 9)
    effects = node.samples(X, Y, 0.4)
    assert [e.kind for e in effects if isinstance(e, Notice)] == ["restarted"]
    assert pack_state(node.state) == pack_state(small.learn(small.start(), X, Y)[0])


# -- trust ------------------------------------------------------------------------------------
def test_every_refusal_has_its_reason_and_is_counted(small, rng):
    node = grown(small, rng)
    good = theta_message(small, 1.0, step=4)
    before = pack_state(node.state)
    assert reasons(node.message("nobody", good, 0.1)) == ["stranger"]
    assert reasons(node.message("n01", b"rubbish", 0.1)) == ["size"]
    assert reasons(node.message("n01", b"X" + good[1:], 0.1)) == ["magic"]
    assert reasons(node.message("n01", good[:4] + b"\x09" + good[5:], 0.1)) == ["version"]
    assert reasons(node.message("n01", good[:5] + b"\x09" + good[6:], 0.1)) == ["kind"]
    assert reasons(node.message("n01", good[:-4] + b"\xff" * 4, 0.1)) == ["finite"]
    assert reasons(node.message("n01", theta_message(small, 1e9, step=4), 0.1)) == ["large"]
    assert not reasons(node.message("n01", good, 0.1))
    assert reasons(node.message("n01", good, 0.1)) == ["duplicate"]
    assert reasons(node.message("n01", theta_message(small, 1.0, step=3), 0.1)) == ["stale"]
    facts = node.facts()
    assert facts["refused"] == {
        "stranger": 1, "size": 1, "magic": 1, "version": 1, "kind": 1, "finite": 1, "large": 1,
        "duplicate": 1, "stale": 1,
    }  # fmt: skip
    assert facts["neighbours"]["n01"]["refused"] == 8
    assert facts["neighbours"]["n01"]["received"] == 1
    assert pack_state(node.state) == before


def test_another_omega_is_refused_at_hello(small, rng):
    other = described(PAIR, seed=4).learner()
    node = grown(small, rng)
    hello = Protocol(other, "n01", ["n00"], PUSH, 5).hello(0.0)
    (refusal,) = node.message("n01", hello, 0.1)
    assert refusal.reason == "fingerprint"
    assert small.fingerprint in refusal.text
    assert other.fingerprint in refusal.text
    assert reasons(node.message("n01", theta_message(small, 1.0), 0.2)) == ["fingerprint"]
    assert not [e for e in node.tick(0.5) if isinstance(e, Combined)]
    assert "refused" in node.facts()["assumptions"][0]
    assert not reasons(node.message("n01", theta_message(small, 0, hello=True, wall=1.0), 0.6))
    assert not reasons(node.message("n01", theta_message(small, 1.0), 0.7)), "once it is mended"
    assert [e for e in node.tick(0.9) if isinstance(e, Combined)]


def test_another_size_is_refused_at_hello(small, rng):
    node = grown(small, rng)
    about = {"degree": 1, "incarnation": 3, "step": 1}
    hello = pack(Message(HELLO, small.fingerprint, 1, 22, **about))
    assert reasons(node.message("n01", hello, 0.1)) == ["shape"]


def test_a_liar_within_the_rules_is_bounded_by_the_clip(small, rng):
    """theta moves by at most weight * tau for each exchange, so learning holds its own."""
    ends = {}
    for clip in (0.0, 0.05):
        node = grown(small, np.random.default_rng(1), policy=replace(PUSH, clip=clip))
        for i in range(200):
            now = 0.1 * i + 0.1
            node.message("n01", theta_message(small, 1000.0, step=i + 1), now)
            before = node.state.theta.astype(float)
            node.tick(now + 0.01)
            moved = np.linalg.norm(node.state.theta - before)
            assert not clip or moved <= 0.5 * clip * 1.001
            node.samples(*rows(rng, 20), now + 0.02)
        X, Y = rows(rng, 200, noise=0.0)
        ends[clip] = float(np.mean((small.predict(node.state, X) - Y) ** 2))
    assert "clipped" in node.facts()["assumptions"][0]
    assert ends[0.05] < 0.05
    assert ends[0.0] > 100


def test_float16_that_does_not_fit_is_said_once(small, rng):
    node = grown(small, rng, policy=replace(PUSH, dtype="float16", every_seconds=0.1))
    said = []
    for i in range(5):
        X, Y = rows(rng, 5)
        said += node.samples(X, 1e6 * Y, 0.2 * i + 0.2)
        said += node.tick(0.2 * i + 0.35)
    assert sum(isinstance(e, Notice) and e.kind == "clipped" for e in said) == 1
    ours = {"fingerprint": small.fingerprint, "m": 1, "D": small.D}
    sent = [unpack(e.data, **ours).theta for e in said if isinstance(e, SendTheta)]
    assert np.abs(sent[-1]).max() == 65504.0


@given(st.lists(st.tuples(st.integers(0, 143), st.integers(0, 255)), max_size=5), st.binary())
@settings(max_examples=200, deadline=None)
def test_hostile_bytes_never_do_more_than_be_refused(small, changes, tail):
    node = grown(small, np.random.default_rng(3))
    before = node.state.theta.astype(float)
    data = bytearray(theta_message(small, 1.0))
    for at, value in changes:
        data[at] = value
    for mode in (bytes(data), bytes(data) + tail, tail):
        effects = node.message("n01", mode, 0.1)
        assert all(isinstance(e, Refuse) and e.reason and e.text for e in effects)
    node.tick(0.2)
    assert np.isfinite(node.state.theta).all()
    assert np.linalg.norm(node.state.theta - before) <= 1e6 * 2


def test_newborn_nodes_without_samples_are_silent():
    for policy in (PUSH, PULL):
        link = Link(described(PATH), policy).start().run(20)
        before = dict(link.sent)
        assert before["theta"] == 0
        link.run(500)
        assert link.sent == before
        assert all(node.next_due(link.now) is None for node in link.nodes.values())
