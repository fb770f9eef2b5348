"""A live node that shares sums is the own learner that also listens, as in a simulation."""

import hashlib
from dataclasses import replace
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from test_agents_sums import SumsLink, network_of

from dokl import AutoClassifier, AutoRegressor
from dokl.base.errors import BadInput
from dokl.learning.experts.kinds import Settings
from dokl.live.dashboard.layout import learned_places
from dokl.live.description import Network, read
from dokl.live.description.text import text
from dokl.live.sums import SumsLearner
from dokl.network import agreed, summing
from dokl.network.sums import checks, origins
from fake_link import described, rows
from live_networks import small

pytestmark = pytest.mark.usefixtures("short_searches")

GOLDEN = Path(__file__).parents[1] / "golden" / "squares.state"


def three(n, seed=0):
    """Rows of two kinds of nodes: what an odd one learns is the opposite."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    node = np.arange(n) % 4
    y = np.where(node % 2, -1.0, 1.0) * np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=n)
    return X, y[:, None], [f"n{k:02d}" for k in node]


@pytest.fixture(scope="module")
def made():
    X, y, nodes = three(200)
    return agreed.learned_map(X, y, 40, nodes=nodes)


# -- the own learner -------------------------------------------------------------------------
@pytest.mark.parametrize("labels", [(), ("dry", "wet"), ("a", "b", "c")])
def test_a_node_without_neighbours_is_the_lone_learner_to_the_bit(labels):
    network = described(nx.path_graph(2), labels=labels, kind=Network, method="squares")
    learner, (X, Y) = network.learner(), rows(np.random.default_rng(0), 140)
    kinds = np.digitize(Y[:, 0], [0.0, 0.5][: len(labels) - 1])
    if labels:
        eye = 2.0 * np.eye(len(labels)) - 1.0
        Y = eye[kinds] if len(labels) > 2 else eye[kinds][:, 1:]
    _, said = learner.learn(learner.start(), X, Y)
    model = (AutoClassifier if labels else AutoRegressor)(random_state=network.model.seed)
    for i in range(len(X)):
        if i:
            expected = model._scores(X[i : i + 1]) if labels else model.predict(X[i : i + 1])
            assert np.allclose(said[i], expected, rtol=0, atol=1e-12)
        if labels:
            model.partial_fit(X[i : i + 1], kinds[i : i + 1], classes=range(len(labels)))
        else:
            model.partial_fit(X[i : i + 1], Y[i])


@pytest.mark.parametrize("at", [0, 40])
def test_sums_with_a_target_of_any_size_can_be_sent(made, at):
    """Squares beyond float32 arrived as infinity: neighbours refused this node's sums for ever."""
    learner = SumsLearner(made, 0, Settings(most=20), None, "")
    X, Y, _ = three(60)
    Y[at] = -3e38
    state, _ = learner.learn(learner.start(), X, Y)
    entry = origins.Entry("n00", 1, learner.own_sums(state))
    with np.errstate(over="raise"):
        assert origins.from_bytes(origins.to_bytes(entry)).sums.rows == 60


def test_what_a_node_reports_as_alone_is_a_lone_learner():
    link = SumsLink(nx.path_graph(3)).start()
    for _ in range(12):
        for name in link.nodes:
            link.teach(name, 10)
        link.run(2)
    for name, node in link.nodes.items():
        X, Y = (np.concatenate(parts) for parts in zip(*link.journal[name], strict=True))
        bank = summing.start(link.learner.made, link.learner.settings)
        _, alone = summing.learn(bank, link.learner.made, -1, X, Y)
        keep = 0.999 ** np.arange(len(X) - 51, -1, -1)
        squared = (alone.mean - Y)[50:, 0] ** 2
        told = link.learner.worth(node.state)["alone"]
        assert told == pytest.approx(keep @ squared / keep.sum(), rel=1e-9)


# -- live and simulated -----------------------------------------------------------------------
class Noted(SumsLearner):
    """A learner that notes what happens to its node."""

    def __init__(self, *given):
        super().__init__(*given)
        self.events = []

    def learn_saying(self, state, X, Y):
        found = super().learn_saying(state, X, Y)
        self.events.append(("rows", X, Y, found[1]))
        return found

    def knowing(self, state, total, left):
        self.events.append(("heard", (total, *left)))
        return super().knowing(state, total, left)


def test_an_agent_and_a_simulated_node_with_the_same_events_agree_to_the_bit(made):
    """Rows cut otherwise: the agent gets them ten at a time, the simulated node seven."""
    network = replace(network_of(nx.path_graph(4)), given_map=made)
    network = replace(network, model=replace(network.model, map="lab.map", D=made.D))
    X, y, _ = three(480, 1)
    link = SumsLink(nx.path_graph(4))
    link.network, events = network, {}

    for name in network.names:
        link.learner = Noted(made, made.number(name), network.alone, None, network.fingerprint)
        events[name] = link.learner.events
        link.start(name)
    for i in range(0, 480, 40):
        for k, name in enumerate(network.names):
            mine = slice(i + k, i + 40, 4)
            link._done(name, link.nodes[name].samples(X[mine], y[mine], link.now))
        link.run(2)
    for name in network.names:
        node = summing.start(made, network.alone)
        live, simulated = [], []
        waiting = [np.empty((0, 2)), np.empty((0, 1))]
        for kind, *what in [*events[name], ("heard", None)]:
            if kind == "rows":
                waiting = [np.vstack(pair) for pair in zip(waiting, what[:2], strict=True)]
                live.append(what[2])
                continue
            for j in range(0, len(waiting[0]), 7):
                part = (each[j : j + 7] for each in waiting)
                node, said = summing.learn(node, made, made.number(name), *part)
                simulated.append(said.mean)
            waiting = [each[:0] for each in waiting]
            node = node if what[0] is None else summing.receive(node, made, what[0])
        assert np.array_equal(np.vstack(live), np.vstack(simulated))
        assert sum(kind == "heard" for kind, *_ in events[name]) > 2


def test_nodes_of_two_kinds_learn_with_their_like(made):
    """The map knows who is alike, so a node with few rows profits from its own kind alone."""
    link = SumsLink(nx.path_graph(4))
    network = replace(link.network, given_map=made)
    link.network = replace(network, model=replace(network.model, map="lab.map", D=made.D))
    for name in link.network.names:
        link.learner = link.network.learner(name)
        link.start(name)
    X, y, _ = three(600, 2)
    for k, name in enumerate(link.network.names):
        mine = slice(k, 600 if k != 2 else 120, 4)
        link._done(name, link.nodes[name].samples(X[mine], y[mine], link.now))
    link.run(10)
    fresh = three(400, 3)[0][::2]
    said = link.network.learner("n02").predict(link.nodes["n02"].state, fresh)
    lone = AutoRegressor(random_state=3).partial_fit(X[2:120:4], y[2:120:4, 0])
    errors = [
        np.mean((f - np.sin(2 * fresh[:, 0])) ** 2) for f in (said[:, 0], lone.predict(fresh))
    ]
    assert errors[0] < 0.5 * errors[1]


# -- the map ----------------------------------------------------------------------------------
def test_a_description_with_a_map_is_read_again_and_refuses_another(made, tmp_path):
    network = small(tmp_path / "lab.toml", links=(("a", "b"),))
    model = replace(network.model, method="squares", map="lab.map", D=made.D)
    inputs = type(network.inputs).plain(2)
    network = replace(network, model=model, inputs=inputs, given_map=made)
    network.path.write_text(text(network))
    with pytest.raises(BadInput, match=r"lab\.map"):
        read(network.path)
    agreed.save(made, tmp_path / "lab.map")
    again = read(network.path)
    assert again.fingerprint == network.fingerprint
    assert again.agreed_map.nodes == ("n00", "n01", "n02", "n03")
    X, y, nodes = three(150, 9)
    agreed.save(agreed.learned_map(X, y, 40, nodes=nodes), tmp_path / "lab.map")
    with pytest.raises(BadInput, match=r"fingerprint|features"):
        read(network.path)
    data = bytearray((tmp_path / "lab.map").read_bytes())
    data[-3] ^= 1
    (tmp_path / "lab.map").write_bytes(data)
    with pytest.raises(BadInput, match="damaged"):
        read(network.path)


def test_sums_on_a_learned_map_pass_the_checks_and_wrong_ones_do_not(made):
    network = replace(network_of(nx.path_graph(2)), given_map=made)
    network = replace(network, model=replace(network.model, map="lab.map", D=made.D))
    learner = network.learner("n01")
    X, y, _ = three(120, 4)
    state, _ = learner.learn(learner.start(), 100.0 * X, y)
    own, limits = learner.own_sums(state), checks.RowLimits(1.0 + 1e-6, learner.largest_target(5.0))
    assert checks.faults(own, learner.layout, limits) == []
    for wrong in (replace(own, zz=2 * own.zz), replace(own, yy=100 * own.yy, zy=10 * own.zy)):
        assert checks.faults(wrong, learner.layout, limits)


# -- earlier versions -------------------------------------------------------------------------
def test_a_node_of_an_earlier_version_keeps_the_sums_of_all_its_rows():
    """Packed by the last commit whose nodes were no single learners; never write this file
    again.
    """
    data = GOLDEN.read_bytes()
    assert hashlib.sha256(data).hexdigest() == HASH
    network = described(nx.path_graph(2), method="squares", D=12)
    assert network.fingerprint == "ebf747b74faf18f6"
    learner, (X, Y) = network.learner(), rows(np.random.default_rng(0), 200)
    state = learner.unpack(data)
    own, Z = learner.own_sums(state), learner.made.transform(X[:150])
    assert own.rows == 150
    # A few wild rows weigh less.
    np.testing.assert_allclose(own.zy, Y[:150].T @ Z, atol=0.02 * np.abs(own.zy).max())
    np.testing.assert_allclose(np.tril(own.zz), np.tril(Z.T @ Z), atol=0.02 * own.zz.max())
    expected = Z @ np.linalg.solve(Z.T @ Z + 0.01 * np.eye(12), Z.T @ Y[:150])
    assert np.mean((learner.predict(state, X[:150]) - expected) ** 2) < 0.01 * Y.var()
    later, _ = learner.learn(state, X[150:], Y[150:])
    assert learner.own_rows(later) == 200
    assert learner.own_rows(learner.unpack(learner.pack(later))) == 200


HASH = "800eaeb12d5462be6ac0e10bd4b1641ebe7f4f39058223da9c476f82a45896e9"


def test_the_page_can_draw_nodes_by_who_is_alike(made):
    network = replace(network_of(nx.path_graph(5)), given_map=made)
    assert learned_places(network_of(nx.path_graph(5))) is None  # a drawn map knows no places
    network = replace(network, model=replace(network.model, map="lab.map", D=made.D))
    drawn = learned_places(network)
    apart = {(a, b): np.hypot(*np.subtract(drawn[a], drawn[b])) for a in drawn for b in drawn}
    assert apart["n00", "n02"] < 0.3 * apart["n00", "n01"]
    assert apart["n01", "n03"] < 0.3 * apart["n01", "n02"]
    assert 0 < apart["n04", "n00"] < apart["n01", "n00"]  # unknown: between the two kinds
