"""Networks of the gradient method: names of nodes, weights of links, what cooperation gains."""

import functools

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from gradient_models import (
    NEW,
    SMALL,
    TRUE,
    Network,
    Regressor,
    X,
    rows,
    same_state,
    scores_of,
    three,
    y,
)
from sklearn.base import clone

from dokl import (
    DiffusionClassifier,
    DiffusionRegressor,
    Exchange,
    KernelClassifier,
    KernelRegressor,
    Problem,
    gradient,
    graphs,
    run,
)
from dokl.network.state import to_arrays
from dokl.simulation.streams import Shards

STATIONS = nx.Graph([("north", "east"), ("east", "south"), ("south", "west"), ("west", "north")])


def test_nodes_by_name_in_uneven_numbers():
    names = np.array(["south", "north", "north", "east", "north", "south"])
    model = DiffusionRegressor(STATIONS, **SMALL).partial_fit(X[:6], y[:6], nodes=names)
    assert model.nodes_.tolist() == ["north", "east", "south", "west"]
    assert model.state_.count.tolist() == [3, 1, 2, 0]
    assert model.state_.clock == 3
    as_list = DiffusionRegressor(STATIONS, **SMALL).partial_fit(X[:6], y[:6], nodes=names.tolist())
    series = DiffusionRegressor(STATIONS, **SMALL)
    series.partial_fit(X[:6], y[:6], nodes=pd.Series(names, index=range(10, 16)))
    assert same_state(model, as_list)
    assert same_state(model, series)
    model.partial_fit(X[:5], y[:5], nodes="west")  # one name is for all rows
    assert model.state_.count.tolist() == [3, 1, 2, 5]


def test_predicting_with_nodes():
    nodes = np.array(["north", "east", "south", "west"] * 100)
    model = DiffusionRegressor(STATIONS, intercept=True, rule="alone", **SMALL)
    model.fit(X, y + 10 * (nodes == "west"), nodes=nodes)
    own = {name: model.predict(NEW, nodes=name) for name in model.nodes_}
    mixed = model.predict(NEW, nodes=np.resize(nodes, 300))
    for i, name in enumerate(np.resize(nodes, 300)):
        assert mixed[i] == pytest.approx(own[name][i], rel=1e-5, abs=1e-5)
    consensus = np.mean(list(own.values()), axis=0)  # the mean of the vectors, as f is linear
    np.testing.assert_allclose(model.predict(NEW), consensus, rtol=1e-3, atol=1e-3)
    assert (own["west"] - own["north"]).mean() > 5
    assert model.coef_.shape == (4, 1, 50)


@pytest.mark.parametrize(
    "graph", [nx.grid_2d_graph(2, 2), nx.Graph([("a", 1), (1, (2, 3)), ((2, 3), 4.5)])]
)
def test_names_may_be_anything(graph):
    names = list(graph)
    model = DiffusionRegressor(graph, **SMALL).fit(X, y, nodes=names * 100)
    plain = DiffusionRegressor(nx.convert_node_labels_to_integers(graph), **SMALL)
    assert same_state(model, plain.fit(X, y, nodes=list(range(4)) * 100))
    assert list(model.nodes_) == names
    for k, name in enumerate(names):
        np.testing.assert_array_equal(model.predict(X, nodes=name), plain.predict(X, nodes=k))


def test_names_keep_their_places():
    """A path 2 - 0 - 1 whose nodes do not come in the order of their numbers."""
    model = DiffusionRegressor(nx.Graph([(2, 0), (0, 1)]), **SMALL)
    model.partial_fit(X[:1], [3.0], nodes=[2])
    heard = {name: bool(model.predict(X[:1], nodes=name)[0] != 0) for name in (0, 1, 2)}
    assert heard == {2: True, 0: True, 1: False}


def test_dealing_without_nodes():
    model = Network(passes=1).fit(X[:390], y[:390])
    assert sorted(model.state_.count.tolist()) == [97, 97, 98, 98]
    plain = Network(passes=1, shuffle=False).fit(X[:390], y[:390])
    named = Network(passes=1, shuffle=False).fit(X[:390], y[:390], nodes=np.arange(390) % 4)
    assert same_state(plain, named)
    few = Network(passes=1).fit(X[:2], y[:2])  # fewer rows than nodes
    assert few.state_.count.sum() == 2


@pytest.mark.parametrize("one", [{"graph": [[1.0]]}, {"graph": "random", "n_nodes": 1}])
def test_one_node_is_the_single_estimator(one):
    for single, network, t in (
        (KernelRegressor, DiffusionRegressor, y),
        (KernelClassifier, DiffusionClassifier, three),
    ):
        a, b = single(**SMALL).fit(X, t), network(**one, **SMALL).fit(X, t)
        assert same_state(a, b)
        assert same_state(a.partial_fit(X, t), b.partial_fit(X, t))
        np.testing.assert_array_equal(scores_of(a, NEW), scores_of(b, NEW))
        assert a.coef_.shape == b.coef_.shape


def test_alone_is_separate_models():
    nodes = np.random.default_rng(0).integers(4, size=400)
    for alone in ({"graph": np.eye(4)}, {"graph": "ring", "n_nodes": 4, "rule": "alone"}):
        model = DiffusionRegressor(**alone, **SMALL).partial_fit(X, y, nodes=nodes)
        for k in range(4):
            single = Regressor().partial_fit(X[nodes == k], y[nodes == k])
            np.testing.assert_array_equal(model.state_.theta[k], single.state_.theta[0])


def test_weights_as_a_matrix():
    A = graphs.weights(STATIONS)
    nodes = np.arange(400) % 4
    model = DiffusionRegressor(A.toarray(), **SMALL).fit(X, y, nodes=nodes)
    assert same_state(model, DiffusionRegressor(A, **SMALL).fit(X, y, nodes=nodes))
    named = DiffusionRegressor(STATIONS, **SMALL).fit(X, y, nodes=np.array(list(STATIONS))[nodes])
    assert same_state(model, named)
    assert model.nodes_.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("order", ["cta", "atc"])
@pytest.mark.parametrize("classifying", [False, True])
def test_a_network_is_what_the_engine_runs(order, classifying):
    make, t = (DiffusionClassifier, y > 0) if classifying else (DiffusionRegressor, y)
    model = make("random", n_nodes=6, order=order, every=2, intercept=True, **SMALL)
    named = {"classes": [False, True]} if classifying else {}
    model.partial_fit(X[:396], t[:396], **named)
    problem = Problem(model.feature_map_, gradient(model.loss_, model.schedule_, model.alpha))
    average = "weighted" if classifying else "none"
    weights = graphs.weights(graphs.build("random", 6, seed=0))
    exchange = Exchange(weights, order, 2, 1.0, average)
    target = np.where(t, 1.0, -1.0) if classifying else t
    stream = Shards(X[:396].astype(np.float32), target[:396], 6, shuffle=False)
    state = run(problem, exchange, stream, record="state", show_progress=False).states[0]
    for name, value in to_arrays(state).items():
        np.testing.assert_array_equal(to_arrays(model.state_)[name], value)


def mean_square(model, K, shift=None):
    """Error of each node's own predictions, averaged over nodes."""
    shift = np.zeros(K) if shift is None else shift
    return np.mean(
        [((model.predict(NEW, nodes=k) - TRUE - shift[k]) ** 2).mean() for k in range(K)]
    )


def test_together_beats_alone_and_separate():
    together, alone, separate = [], [], []
    for seed in range(3):
        X, y = rows(400, seed)
        nodes = np.arange(400) % 20
        make = functools.partial(
            DiffusionRegressor, "random", sigma=1.0, n_components=100, random_state=seed, passes=1
        )
        together.append(mean_square(make().fit(X, y, nodes=nodes), 20))
        alone.append(mean_square(make(rule="alone").fit(X, y, nodes=nodes), 20))
        single = KernelRegressor(sigma=1.0, n_components=100, random_state=seed, passes=1)
        errors = []
        for k in range(20):
            p = clone(single).fit(X[nodes == k], y[nodes == k]).predict(NEW)
            errors.append(((p - TRUE) ** 2).mean())
        separate.append(np.mean(errors))
    assert np.mean(together) < 0.9 * np.mean(alone)
    assert np.mean(together) < 0.9 * np.mean(separate)


def test_a_private_intercept_learns_each_stations_offset():
    offset = np.random.default_rng(5).normal(size=8) * 3
    X, y = rows(1600, 3)
    nodes = np.arange(1600) % 8
    make = functools.partial(DiffusionRegressor, "random", n_nodes=8, passes=3, **SMALL)
    private = make(intercept=True).fit(X, y + offset[nodes], nodes=nodes)
    shared = make().fit(X, y + offset[nodes], nodes=nodes)
    assert mean_square(private, 8, offset) < 0.2 * mean_square(shared, 8, offset)
    learned = private.state_.bias[:, 0]
    assert len(set(learned.tolist())) == 8
    assert np.corrcoef(learned, offset)[0, 1] > 0.98


@pytest.mark.parametrize("rule", ["metropolis", "alone"])
@pytest.mark.parametrize("average", ["none", "uniform"])
def test_a_node_without_rows_has_no_say_in_the_mean(rule, average):
    x = np.random.default_rng(0).uniform(-3, 3, size=(3000, 1))
    high = np.sin(x[:, 0]) + 10
    names = np.array(["north", "east", "south"])[np.arange(3000) % 3]
    settings = {"rule": rule, "intercept": True, "average": average, "passes": 5} | SMALL
    model = DiffusionRegressor(STATIONS, **settings).fit(x, high, nodes=names)
    assert model.state_.count.tolist() == [5000, 5000, 5000, 0]
    assert ((model.predict(x) - high) ** 2).mean() < 0.05


def test_nodes_that_know_as_much_weigh_as_much():
    model = Network(intercept=True).fit(X, y)
    theta, bias = model.state_.pooled()
    np.testing.assert_array_equal(theta, model.state_.theta.mean(axis=0))
    np.testing.assert_array_equal(bias, model.state_.bias.mean(axis=0))
    model.state_.count[:] = [300, 100, 0, 0]
    theta, bias = model.state_.pooled()
    assert theta.dtype == bias.dtype == np.float32
    a, b = model.state_.theta[:2]
    np.testing.assert_allclose(theta, 0.75 * a + 0.25 * b, rtol=1e-5, atol=1e-6)
