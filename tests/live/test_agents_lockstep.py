"""Lockstep over a fake link: the reference engine's thetas, and no deadlock whatever happens."""

from dataclasses import replace

import networkx as nx
import numpy as np
import pytest

from dokl.base.arrays import Block
from dokl.live.description import ExchangePolicy
from dokl.live.protocol.effects import LearnedRows, Notice, Save, SendTheta
from dokl.live.protocol.messages import unpack
from dokl.network.exchange import Exchange, Mixing
from dokl.network.graphs import metropolis
from dokl.network.state import pack as pack_state
from dokl.network.state import unpack as unpack_state
from dokl.simulation.diffusion import init
from dokl.simulation.engines import reference
from fake_link import Link, described, reasons, rows, theta_message
from variants import first

LOCKSTEP = ExchangePolicy(mode="lockstep", patience_seconds=5.0)
RING, RANDOM = nx.cycle_graph(5), nx.connected_watts_strogatz_graph(7, 4, 0.4, seed=2)
PAIR, PATH = nx.path_graph(2), nx.path_graph(3)
CLASSES = ("a", "b", "c")
STEPS = 40


def stream(K, n, d=2, m=1, classify=False, seed=1):
    """X: (n, K, d), Y: (n, K, m)."""
    rng = np.random.default_rng(seed)
    X, y = rows(rng, n * K, d)
    Y = np.sign(y + 0.01)
    if m > 1:
        kinds = np.digitize(y[:, 0], (-0.3, 0.3))
        Y = np.where(kinds[:, None] == np.arange(m), 1.0, -1.0)
    return X.reshape(n, K, d), (Y if classify else y).reshape(n, K, m)


def truth(network, graph, X, Y, order):
    """Final thetas (K, m, D) and predictions (n, K, m) of the reference engine in float64."""
    n, K, d = X.shape
    exchange = Exchange(
        metropolis(graph), order, intercept=network.model.intercept, mixing=Mixing(rule="ios")
    )
    problem = network.problem()
    start = init(problem, exchange, K, Y.shape[2])
    block = Block(X.reshape(n * K, d), Y.reshape(n * K, -1), None, np.arange(n * K).reshape(n, K))
    state, f = reference.advance(reference.plan(problem, exchange), start, block)
    return state, f


def feed_all(link, X, Y, batch=7, pause=0.05):
    """Each node's rows in batches, at times of its own."""
    for k, name in enumerate(link.network.names):
        at = link.now
        for i in range(0, len(X), batch):
            link.feed(name, X[i : i + batch, k], Y[i : i + batch, k], at=at)
            at += pause * float(link.rng.uniform(0, 2 * batch))
        link.finish(name, at=at)


REGRESSION = {"D": 40, "loss": "squared", "schedule": "constant", "mu": 0.5}
HINGE = {"D": 40, "loss": "hinge", "schedule": "pegasos", "mu": None, "lam": 0.01, "n0": 5.0}


@pytest.mark.parametrize("order", ["cta", "atc"])
@pytest.mark.parametrize("loss", first(0.25, 0.0), ids=["lossy", "reliable"])
@pytest.mark.parametrize(
    ("graph", "model", "labels", "d"),
    [
        (RING, REGRESSION, (), 2),
        (RANDOM, {**REGRESSION, "intercept": 0.8}, (), 9),
        (RING, {**HINGE, "intercept": 1.0}, ("n", "y"), 2),
        (RANDOM, HINGE, CLASSES, 3),
    ],
    ids=["squared", "intercept", "hinge", "classes"],
)
def test_lockstep_equals_the_reference_engine(graph, model, labels, d, loss, order):
    network = described(graph, d=d, labels=labels, **model)
    X, Y = stream(len(graph), STEPS, d, network.m, bool(labels))
    expected, predictions = truth(network, graph, X, Y, order)
    # Patience is for the dead: no run of bad luck on this link may look like that.
    policy = replace(LOCKSTEP, order=order, patience_seconds=60.0)
    link = Link(network, policy, seed=4, loss=loss, delay=(0.001, 0.2)).start()
    feed_all(link, X, Y)
    link.run(300)
    for k, name in enumerate(network.names):
        node = link.nodes[name]
        assert (node.step, node.learned, node.queued) == (STEPS, STEPS, 0)
        apart = np.linalg.norm(link.theta(name) - expected.theta[k])
        assert apart <= 1e-4 * np.linalg.norm(expected.theta[k])
        assert np.allclose(node.state.bias[0], expected.bias[k], atol=1e-4)
        f = np.concatenate([effect.f for effect in link.effects(LearnedRows, name)])
        assert np.allclose(f, predictions[:, k], atol=1e-3)
    assert not link.notices("silent")
    assert not link.notices("jumped")
    assert not link.reasons()


def test_same_events_same_bits():
    def run():
        link = Link(described(RING, D=40), LOCKSTEP, seed=9, loss=0.2).start()
        feed_all(link, *stream(5, 20))
        link.run(60)
        return [pack_state(node.state) for node in link.nodes.values()], link.sent

    assert run() == run()


def test_bits_do_not_depend_on_the_link():
    """Which message comes first decides nothing: only rounds do."""
    ends = set()
    for seed, loss in ((1, 0.0), (2, 0.3), (3, 0.1)):
        link = Link(described(RING, D=40), LOCKSTEP, seed=seed, loss=loss, delay=(0, 0.3)).start()
        feed_all(link, *stream(5, 20))
        link.run(200)
        ends.add(tuple(pack_state(node.state) for node in link.nodes.values()))
    assert len(ends) == 1


def test_a_theta_goes_out_for_each_round_and_is_saved():
    link = Link(described(PAIR), LOCKSTEP, delay=(0.01, 0.01)).start()
    X, Y = stream(2, 10)
    feed_all(link, X, Y, batch=10)
    link.run(3)
    ours = {"fingerprint": link.learner.fingerprint, "m": 1, "D": 20}
    sent = [unpack(e.data, **ours).step for e in link.effects(SendTheta, "n00")]
    assert set(sent) == set(range(11))
    assert len(link.effects(Save, "n00")) >= 10


def test_it_starts_when_all_described_neighbours_are_there():
    link = Link(described(PATH), LOCKSTEP).start("n00", "n01")
    X, Y = stream(3, 5)
    for k in (0, 1):
        link.feed(f"n0{k}", X[:, k], Y[:, k])
    link.run(1)
    # n00 has round 1 by its only neighbour, which waits for n02 first
    assert link.nodes["n01"].learned == 0
    link.start("n02")
    link.feed("n02", X[:, 2], Y[:, 2])
    link.run(2)
    assert [node.learned for node in link.nodes.values()] == [5, 5, 5]
    assert not link.notices("silent")


def test_who_never_comes_is_waited_for_as_long_as_patience_lasts():
    link = Link(described(PATH), LOCKSTEP).start("n00", "n01")
    X, Y = stream(3, 5)
    for k in (0, 1):
        link.feed(f"n0{k}", X[:, k], Y[:, k])
    link.run(4.5)
    assert link.nodes["n01"].learned == 0
    link.run(1.5)
    assert [node.learned for node in link.nodes.values()] == [5, 5]
    assert any("n02" in text for text in link.notices("silent"))


def test_a_silent_neighbour_delays_once_by_patience():
    """Up, but without samples: it is given up once, and not again at every round."""
    link = Link(described(PAIR), LOCKSTEP).start()
    X, Y = stream(2, 30)
    link.feed("n00", X[:, 0], Y[:, 0])
    link.run(4.9)
    assert link.nodes["n00"].learned == 1, "theta(0) of both is there, theta(1) of one is not"
    link.run(0.4)
    assert link.nodes["n00"].learned == 30
    assert len(link.notices("silent")) == 1
    facts = link.nodes["n00"].facts()
    assert facts["neighbours"]["n01"]["weight"] == 0.0
    assert facts["silences"] == 1
    assert any("silent" in text for text in facts["assumptions"])


def test_a_hung_neighbour_comes_back_into_step():
    link = Link(described(RING), LOCKSTEP).start()
    X, Y = stream(5, 200)
    for k, name in enumerate(link.network.names):
        for i in range(200):
            link.feed(name, X[i : i + 1, k], Y[i : i + 1, k], at=0.2 + i * 0.1)
    link.run(3)
    link.hung.add("n02")
    link.run(10)
    others = [node.learned for name, node in link.nodes.items() if name != "n02"]
    assert min(others) > link.nodes["n02"].learned + 20, "they went on without it"
    link.wake()
    link.run(10)
    assert link.notices("jumped")
    steps = {node.step for node in link.nodes.values()}
    assert max(steps) - min(steps) <= 2
    assert not link.nodes["n01"].facts()["assumptions"]


def test_a_dead_neighbour_is_not_waited_for():
    link = Link(described(PAIR), LOCKSTEP).start()
    X, Y = stream(2, 30)
    link.feed("n00", X[:, 0], Y[:, 0])
    link.feed("n01", X[:3, 1], Y[:3, 1])
    link.run(0.5)
    link.kill("n01")
    link.run(0.1)
    assert link.nodes["n00"].learned == 30
    assert any("down" in text for text in link.nodes["n00"].facts()["assumptions"])


def test_a_finished_neighbour_is_not_waited_for():
    link = Link(described(PAIR), LOCKSTEP).start()
    X, Y = stream(2, 30)
    link.feed("n00", X[:, 0], Y[:, 0])
    link.feed("n01", X[:10, 1], Y[:10, 1])
    link.finish("n01")
    link.run(2)
    assert [node.learned for node in link.nodes.values()] == [30, 10]
    assert not link.notices("silent")
    # and with more samples it takes part again
    link.feed("n01", X[:5, 1], Y[:5, 1])
    link.feed("n00", X[:5, 0], Y[:5, 0])
    link.run(8)
    assert [node.learned for node in link.nodes.values()] == [35, 15]


@pytest.mark.parametrize("order", ["cta", "atc"])
def test_a_restarted_node_joins_at_its_neighbours_round(order):
    policy = replace(LOCKSTEP, order=order)
    link = Link(described(RING), policy, loss=0.1).start()
    X, Y = stream(5, 120)
    for k, name in enumerate(link.network.names):
        for i in range(120):
            link.feed(name, X[i : i + 1, k], Y[i : i + 1, k], at=0.2 + i * 0.1)
    link.run(4)
    node = link.nodes["n03"]
    packed, learned = pack_state(node.state), node.learned
    link.kill("n03")
    link.run(3)
    link.start("n03", state=unpack_state(packed), learned=learned)
    link.run(4)  # while all still have rows
    steps = [node.step for node in link.nodes.values()]
    assert min(steps) >= learned + 30
    assert max(steps) - min(steps) <= 2
    assert link.apart() < 0.5
    assert [e.kind for e in link.effects(Notice)] == ["jumped"]


def test_a_newcomer_starts_from_its_neighbours():
    link = Link(described(PATH), LOCKSTEP).start("n00", "n01")
    X, Y = stream(3, 300)
    for k in (0, 1):
        for i in range(300):
            link.feed(f"n0{k}", X[i : i + 1, k], Y[i : i + 1, k], at=0.1 * i)
    link.run(15)
    link.start("n02")
    link.feed("n02", X[:5, 2], Y[:5, 2])
    link.run(1.0)
    assert link.notices("joined")
    assert link.nodes["n02"].state.count[0] > 50
    assert link.nodes["n02"].step > 50


def test_an_idle_network_falls_silent():
    link = Link(described(RING), LOCKSTEP, loss=0.2).start()
    feed_all(link, *stream(5, 20))
    link.run(60)
    before = dict(link.sent)
    link.run(1000)
    assert link.sent == before
    assert all(node.next_due(link.now) is None for node in link.nodes.values())


def test_a_row_that_diverges_is_passed_over():
    network = described(PAIR, loss="squared", schedule="constant", mu=50.0)
    link = Link(network, LOCKSTEP).start()
    X, Y = stream(2, 40)
    feed_all(link, X, Y, batch=40)
    link.run(20)
    assert [node.learned for node in link.nodes.values()] == [40, 40]
    assert link.notices("diverged")
    assert all(np.isfinite(link.theta(name)).all() for name in link.nodes)


def test_rounds_that_cannot_be_are_refused():
    link = Link(described(PAIR), LOCKSTEP).start()
    X, Y = stream(2, 5)
    feed_all(link, X, Y)
    link.run(5)
    node, theta = link.nodes["n00"], link.learner.start().theta[0]
    late = theta_message(link.learner, theta, 9, incarnation=1)
    far = theta_message(link.learner, theta, 1 << 61, incarnation=1000)
    assert reasons(node.message("n01", late, 5.0)) == ["stale"]
    assert reasons(node.message("n01", far, 5.0)) == ["numbers"]
    assert node.step == 5


def test_back_undoes_a_round():
    link = Link(described(PAIR), LOCKSTEP).start()
    X, Y = stream(2, 10)
    for k, name in enumerate(link.nodes):
        link.feed(name, X[:4, k], Y[:4, k])
    link.run(2)
    node, twin = link.nodes["n00"], link.nodes["n01"]
    mark = node.mark()
    before = pack_state(node.state), node.step, node.queued, node.facts(), node.next_due(2.0)
    theta = [e.data for e in twin.samples(X[4:6, 1], Y[4:6, 1], 2.0) if isinstance(e, SendTheta)]
    first = [node.samples(X[4:9, 0], Y[4:9, 0], 2.0), node.message("n01", theta[0], 2.0)]
    assert node.learned == 6
    assert node.queued == 3
    node.back(mark)
    after = pack_state(node.state), node.step, node.queued, node.facts(), node.next_due(2.0)
    assert before == after
    again = [node.samples(X[4:9, 0], Y[4:9, 0], 2.0), node.message("n01", theta[0], 2.0)]
    assert str(first) == str(again)
