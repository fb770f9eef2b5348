"""Push and pull over a fake link: agreement, faults, newcomers, silence, and going back."""

from dataclasses import replace

import networkx as nx
import numpy as np
import pytest

from dokl.base.errors import BadInput, Diverged
from dokl.live.description import ExchangePolicy
from dokl.live.protocol import Protocol
from dokl.live.protocol.effects import (
    Ask,
    Combined,
    LearnedRows,
    Notice,
    Save,
    SendTheta,
)
from dokl.live.protocol.local import Queue
from dokl.live.protocol.messages import unpack
from dokl.network.state import pack as pack_state
from dokl.network.state import unpack as unpack_state
from fake_link import PULL, PUSH, Link, described, grown, letter, reasons, rows, theta_message
from variants import first

RING, PAIR, PATH = nx.cycle_graph(5), nx.path_graph(2), nx.path_graph(3)
RANDOM = nx.connected_watts_strogatz_graph(8, 4, 0.4, seed=1)
NAMES = [letter(k) for k in range(8)]


def busy(link, rng, seconds, n=5, names=None):
    """All nodes get n rows every 0.1 seconds of the same function."""
    for name in names or list(link.nodes):
        for i in range(int(seconds * 10)):
            link.feed(name, *rows(rng, n), at=link.now + 0.1 * i + float(link.rng.uniform(0, 0.1)))


def error(link, name, rng):
    X, Y = rows(rng, 200, noise=0.0)
    node = link.nodes[name]
    return float(np.mean((link.learner.predict(node.state, X) - Y) ** 2))


# -- agreement --------------------------------------------------------------------------------
@pytest.mark.parametrize("policy", [PUSH, PULL], ids=["push", "pull"])
@pytest.mark.parametrize("loss", first(0.3, 0.0), ids=["lossy", "reliable"])
def test_nodes_agree_on_one_function(rng, policy, loss):
    link = Link(described(RANDOM), policy, loss=loss, delay=(0.001, 0.3)).start()
    busy(link, rng, 6)
    link.run(10)
    assert all(error(link, name, rng) < 0.05 for name in link.nodes)
    assert link.apart() < 0.3
    link.run(30)
    assert link.apart() < 1e-3
    assert link.reasons() <= {"stale", "duplicate"}, "only what was overtaken"
    assert sum(node.learned for node in link.nodes.values()) == 8 * 300


@pytest.mark.parametrize("policy", [PUSH, PULL, replace(PUSH, dtype="float16")])
def test_an_idle_network_falls_silent(rng, policy):
    link = Link(described(RING), policy).start()
    busy(link, rng, 3)
    link.run(40)
    before = dict(link.sent)
    assert before["theta" if policy.mode == "push" else "ask"] > 50
    link.run(2000)
    assert link.sent == before
    assert all(node.next_due(link.now) is None for node in link.nodes.values())
    assert link.apart() < (1e-5 if policy.dtype == "float32" else 5e-3)
    busy(link, rng, 1, names=["n00"])
    link.run(20)
    assert link.sent != before, "and wakes up again"
    assert link.apart() < 1e-2


def test_the_last_theta_arrives_though_messages_are_lost(rng):
    """One burst, then silence: a single message would be lost three times in ten."""
    for seed in range(10):
        link = Link(described(PAIR), seed=seed, loss=0.3).start()
        link.run(2)
        link.feed("n00", *rows(rng, 50))
        link.run(30)
        assert np.linalg.norm(link.theta("n01")) > 0


def test_exchange_by_samples(small, rng):
    policy = ExchangePolicy(mode="push", every_seconds=0.0, every_samples=20)
    node = Protocol(small, "n00", ["n01"], policy, 1, small.start())
    node.peer_up("n01", 0.0)
    sends = [
        sum(isinstance(e, SendTheta) for e in node.samples(*rows(rng, 5), 0.001 * i))
        for i in range(12)
    ]
    assert sends == [0, 0, 0, 1] * 3
    assert not [e for e in node.tick(0.5) if isinstance(e, SendTheta)]


def test_exchange_is_no_more_frequent_than_asked_for(rng):
    link = Link(described(PAIR), replace(PUSH, every_seconds=1.0)).start()
    busy(link, rng, 10)
    link.run(10.5)
    assert 18 <= link.sent["theta"] <= 24


def test_mode_off_is_off(small, rng):
    node = Protocol(small, "n00", ["n01"], ExchangePolicy(mode="off"), 1)
    assert node.peer_up("n01", 0.0) == []
    (learned,) = node.samples(*rows(rng, 10), 0.0)
    assert isinstance(learned, LearnedRows)
    assert node.tick(9.0) == node.finish(9.0) == []
    assert node.next_due(9.0) is None
    assert reasons(node.message("n01", node.packed(0.0), 9.0)) == ["off"]
    assert node.facts()["assumptions"] == []


# -- weights ----------------------------------------------------------------------------------
def test_metropolis_weights_from_local_knowledge(small, rng):
    node = grown(small, rng, ("a", "b", "c"))
    before = node.state.theta[0].astype(float)
    node.message("a", theta_message(small, 1.0, degree=1), 0.1)
    node.message("b", theta_message(small, -2.0, degree=9), 0.1)
    effects = node.tick(0.2)
    (combined,) = [e for e in effects if isinstance(e, Combined)]
    assert combined.peers == ("a", "b")
    assert any(isinstance(e, Save) for e in effects)
    expected = before + (1.0 - before) / 4 + (-2.0 - before) / 10
    assert np.allclose(node.state.theta[0], expected, atol=1e-6)
    facts = node.facts()["neighbours"]
    assert [facts[p]["weight"] for p in "abc"] == [1 / 4, 1 / 10, 1 / 4]
    assert facts["a"]["distance2"] == pytest.approx(np.sum((1 - before) ** 2))
    assert facts["c"]["distance2"] is None
    assert combined.distance2 == pytest.approx(
        (facts["a"]["distance2"] + facts["b"]["distance2"]) / 2
    )


def test_a_theta_is_used_once_and_only_the_newest(small, rng):
    node = grown(small, rng)
    node.message("n01", theta_message(small, 5.0, step=1), 0.1)
    node.message("n01", theta_message(small, 1.0, step=2), 0.1)
    before = node.state.theta[0].astype(float)
    node.tick(0.2)
    assert np.allclose(node.state.theta[0], (before + 1.0) / 2, atol=1e-6)
    assert not [e for e in node.tick(5.0) if isinstance(e, Combined)]


def test_a_neighbour_that_is_down_gives_its_weight_back(small, rng):
    node = grown(small, rng)
    node.message("n01", theta_message(small, 5.0), 0.1)
    node.peer_lost("n01", 0.15)
    before = pack_state(node.state)
    assert not [e for e in node.tick(0.2) if isinstance(e, Combined)]
    assert pack_state(node.state) == before
    facts = node.facts()
    assert facts["neighbours"]["n01"]["weight"] == 0.0
    assert "n01" in facts["assumptions"][0]
    assert "self" in facts["assumptions"][0]
    node.peer_up("n01", 0.3)
    assert node.facts()["assumptions"] == []


def test_the_intercept_stays_private(rng):
    learner = described(PAIR, intercept=1.0).learner()
    state, _ = learner.learn(learner.start(), *rows(rng, 50))
    node = Protocol(learner, "n00", ["n01"], PUSH, 1, state, 50)
    node.peer_up("n01", 0.0)
    node.message("n01", theta_message(learner, 0.0), 0.1)
    node.tick(0.2)
    assert node.state.bias.tobytes() == state.bias.tobytes()
    assert len(node.packed(0.2)) == 64 + 4 * learner.D


# -- faults -----------------------------------------------------------------------------------
def test_a_partition_heals(rng):
    link = Link(described(RING), delay=(0.001, 0.05)).start()
    busy(link, rng, 3)
    link.run(10)
    link.part(("n00", "n01"), ("n02", "n03"))  # {n01, n02} against {n03, n04, n00}
    link.run(0.1)
    assert "n01" in link.nodes["n00"].facts()["assumptions"][0]
    busy(link, rng, 3, names=["n01"], n=20)
    link.run(20)
    assert link.apart() > 1e-3
    assert link.apart(["n01", "n02"]) < 1e-4
    link.heal()
    link.run(20)
    assert link.apart() < 1e-4
    assert not any(node.facts()["assumptions"] for node in link.nodes.values())


def test_a_dead_node_and_the_rest_goes_on(rng):
    link = Link(described(RING)).start()
    busy(link, rng, 3)
    link.run(3)
    link.kill("n02")
    busy(link, rng, 5)
    link.run(25)
    assert link.apart() < 1e-4
    assert max(error(link, name, rng) for name in link.nodes) < 0.05
    for name in ("n01", "n03"):
        assert "'n02' is down" in link.nodes[name].facts()["assumptions"][0]
    assert link.nodes["n00"].facts()["assumptions"] == []


def test_a_restarted_node_comes_back(rng):
    link = Link(described(RING)).start()
    busy(link, rng, 3)
    link.run(3)
    node = link.nodes["n02"]
    packed, learned = pack_state(node.state), node.learned
    link.kill("n02")
    busy(link, rng, 2)
    link.run(20)
    link.start("n02", state=unpack_state(packed), learned=learned)
    link.run(20)
    assert link.apart() < 1e-4
    assert link.nodes["n02"].learned == learned
    assert link.reasons() <= {"stale"}


def test_a_lower_incarnation_is_fine_after_a_loss(small, rng):
    """A clock that was set back must not shut a node out."""
    node = grown(small, rng)
    assert not reasons(node.message("n01", theta_message(small, 1.0, 5, incarnation=100), 0.1))
    late = theta_message(small, 2.0, 9, incarnation=60)
    assert reasons(node.message("n01", late, 0.1)) == ["stale"]
    node.peer_lost("n01", 0.2)
    old = theta_message(small, 1.0, 5, incarnation=100)  # was on its way, and proves nothing
    assert reasons(node.message("n01", old, 0.3)) == ["duplicate"]
    node.peer_up("n01", 0.3)
    assert not reasons(node.message("n01", theta_message(small, 2.0, 1, incarnation=60), 0.3))
    assert reasons(node.message("n01", theta_message(small, 2.0, 1, incarnation=50), 0.3)) == [
        "stale"
    ]


# -- samples ----------------------------------------------------------------------------------
def test_what_cannot_be_learned_changes_nothing(rng):
    learner = described(PAIR, schedule="constant", mu=50.0).learner()
    node = Protocol(learner, "n00", [], PUSH, 1)
    mark = str(node.facts()), pack_state(node.state), node.step
    with pytest.raises(Diverged):
        node.samples(*rows(rng, 200), 0.0)
    with pytest.raises(BadInput):
        node.samples([[1.0]], [[1.0]], 0.0)
    assert (str(node.facts()), pack_state(node.state), node.step) == mark


def test_a_newcomer_that_was_killed_before_it_began_is_still_one(small, rng):
    X, Y = rows(rng, 30)
    node = Protocol(small, "n00", ["n01"], PUSH, 1)
    effects = node.samples(X, Y, 0.0)
    assert (node.queued, node.learned) == (30, 0)
    assert not any(isinstance(effect, Save) for effect in effects)
    again = Protocol(small, "n00", ["n01"], PUSH, 2)  # the store had no snapshot
    again.replay(X, Y)
    assert (again.queued, again.learned) == (30, 0)
    again.tick(0.0)
    due = again.next_due(0.0)
    assert due is not None
    effects = again.tick(due)  # nobody came: from zero, and saved, so that it is none any more
    assert (again.queued, again.learned) == (0, 30)
    assert any(isinstance(effect, Save) for effect in effects)
    effects = again.samples(X, Y, due)
    assert not any(isinstance(effect, Save) for effect in effects)


def test_rows_that_diverge_at_replay_are_passed_over(rng):
    wild = described(schedule="constant", mu=50.0, variant="cos").learner()
    X, Y = rows(rng, 3000)
    node = Protocol(wild, "n00", ["n01"], PUSH, 2, wild.start())
    effects = node.replay(X, Y)
    assert node.learned == 3000
    assert any(isinstance(effect, Notice) and effect.kind == "diverged" for effect in effects)


def test_replay_gives_the_state_before(small, rng):
    X, Y = rows(rng, 90)
    node = Protocol(small, "n00", ["n01"], ExchangePolicy(mode="off"), 1)
    for i in range(0, 90, 3):
        node.samples(X[i : i + 3], Y[i : i + 3], 0.0)
    for policy in (PUSH, PULL, ExchangePolicy(mode="off")):
        again = Protocol(small, "n00", ["n01"], policy, 2, small.start())
        again.replay(X[:70], Y[:70])
        again.replay(X[70:], Y[70:])
        assert pack_state(again.state) == pack_state(node.state)
        assert (again.learned, again.queued) == (90, 0)
        assert again.samples(X[:1], Y[:1], 0.0)[0].learned == 91


@pytest.mark.parametrize(("batches", "size"), [(40, 500), (3000, 1), (10, 2000)])
def test_a_queue_lets_go_of_rows_that_were_learned(batches, size):
    queue, found = Queue(), []
    X = np.arange(batches * size, dtype=float).reshape(-1, 1)
    for i in range(0, len(X), size):
        queue.add(X[i : i + size], X[i : i + size])
    while queue.rows:
        if queue.rows % 7 == 0:  # going back, and taking the same rows again
            mark, rows = queue.mark(), queue.rows
            queue.add(X[:3], X[:3])
            while queue.rows > max(0, rows - 1500):
                queue.take(300)
            queue.back(mark)
            assert queue.rows == rows
        found.append(queue.take(300)[0])
        held = sum(len(rows) for rows, _ in queue._batches)
        assert held <= queue.rows + 1024 + size
    np.testing.assert_array_equal(np.concatenate(found), X)


# -- pull -------------------------------------------------------------------------------------
def test_pull_asks_for_what_is_newer(small, rng):
    node = grown(small, rng, policy=PULL)
    asked = [e for e in node.tick(0.2) if isinstance(e, Ask)]
    assert asked == [Ask("n01", (0, 0))]
    node.message("n01", theta_message(small, 1.0, step=6), 0.25)
    assert [e for e in node.tick(0.35) if isinstance(e, Ask)] == [Ask("n01", (7, 6))]
    node.message("n01", theta_message(small, 0, step=6, hello=True, wall=1.0), 0.4)
    assert [e for e in node.tick(0.5) if isinstance(e, Ask)], "it will change as we did"
    node.message("n01", theta_message(small, 0, step=6, hello=True, wall=2.0), 3.0)
    assert not [e for e in node.tick(4.0) if isinstance(e, Ask)], "nothing new there"
    node.message("n01", theta_message(small, 0, step=8, hello=True, wall=3.0), 5.0)
    effects = node.tick(5.1)
    assert [e for e in effects if isinstance(e, Ask)] == [Ask("n01", (7, 6))]
    assert not [e for e in effects if isinstance(e, SendTheta)]


# -- changing and going back ------------------------------------------------------------------
def test_a_new_description(small, rng):
    node = grown(small, rng)
    node.change(["n01", "n02"], replace(PUSH, clip=1.0))
    node.peer_up("n02", 1.0)
    assert set(node.facts()["neighbours"]) == {"n01", "n02"}
    ours = {"fingerprint": small.fingerprint, "m": 1, "D": small.D}
    assert unpack(node.hello(1.0), **ours).degree == 2
    assert unpack(node.packed(1.0), **ours).degree == 2
    node.change(["n02"])
    assert reasons(node.message("n01", theta_message(small, 1.0), 2.0)) == ["stranger"]
    node.change(["n02"], ExchangePolicy(mode="lockstep"))
    node.samples(*rows(rng, 3), 3.0)
    queued = node.queued
    assert queued > 0
    node.change(["n02"], PUSH)
    assert node.next_due(3.1) <= 3.1
    node.learn_queued(3.1)
    assert node.queued == 0
    assert node.learned == 53
