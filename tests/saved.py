"""Models of every kind, for the tests of saving and loading."""

import copy

import networkx as nx
import numpy as np

import dokl
from dokl import graphs, losses, schedules
from dokl.learning.kernels import Cauchy, Laplacian, Matern, RationalQuadratic
from dokl.network.saving import encode
from dokl.network.state import to_arrays

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 3))
NUMBERS = X[:, 0] * X[:, 1] + 0.1
SIDES = (X[:, 0] > 0).astype(int) + (X[:, 1] > 0)
WEIGHTS = graphs.weights(graphs.ring(4))


def labelled(labels):
    return np.array(labels)[SIDES % len(labels)]


def regressor(**params):
    return dokl.KernelRegressor(**{"n_components": 20, "random_state": 3, **params}), NUMBERS


def classifier(labels=("no", "yes"), **params):
    settings = {"n_components": 20, "random_state": 3, **params}
    return dokl.KernelClassifier(**settings), labelled(labels)


def network(graph="ring", **params):
    settings = {"n_components": 20, "n_nodes": 4, "random_state": 3, **params}
    return dokl.DiffusionRegressor(graph, **settings), NUMBERS


def cooperating(graph, **params):
    settings = {"n_components": 20, "n_nodes": 4, "random_state": 3, **params}
    return dokl.NetworkRegressor(graph, **settings), NUMBERS


def stations():
    return nx.cycle_graph(["a", "b", "c", "d"])


CASES = {
    **{kernel: regressor(kernel=kernel) for kernel in ("gaussian", "laplacian", "matern12")},
    **{
        repr(kernel): regressor(kernel=kernel)
        for kernel in (Cauchy(2.0), RationalQuadratic(1.5, 0.7), Matern(1.0, 2.2), Laplacian(3.0))
    },
    **{
        variant: regressor(features=variant, sigma=0.1 + 0.2)
        for variant in ("cos", "paired", "orthogonal", "sobol", "structured")
    },
    "odd": regressor(n_components=21, sigma="median"),
    **{name: regressor(loss=name) for name in ("squared", "huber", "absolute", "quantile")},
    **{
        repr(loss.spec()): regressor(loss=loss)
        for loss in (losses.huber(0.3), losses.quantile(0.9), losses.epsilon_insensitive(0.2))
    },
    **{
        repr(getattr(step, "name", step)): regressor(step=step, alpha=1e-3)
        for step in (
            0.1,
            np.float32(0.2),
            schedules.sqrt(0.3),
            schedules.pegasos(1e-3, 1e3),
            schedules.inverse_power(0.4, 0.7, 2.0),
            schedules.normalised(0.6, 1e-6),
            schedules.Schedule("by hand", 0.3, 1.0, 0.25, True, 0.1),
        )
    },
    **{average: regressor(average=average) for average in ("uniform", "weighted")},
    "intercept": regressor(intercept=True, average="uniform"),
    "long intercept": regressor(intercept=2.0),
    "float64": regressor(dtype=np.float64),
    "reference": regressor(engine="reference", dtype="float32"),
    "numpy numbers": regressor(n_components=np.int64(20), alpha=np.float64(1e-4)),
    "several outputs": (regressor()[0], np.c_[NUMBERS, X[:, 2], X[:, 0]]),
    "one output as a matrix": (regressor()[0], NUMBERS[:, None]),
    "unseeded": regressor(random_state=None),
    "text": classifier(["größe", "日本"]),
    "three texts": classifier(["a", "bb", "ccc"], loss="logistic", intercept=True),
    "truth": classifier([False, True], average="none"),
    "whole": classifier([-1, 5, 2**60]),
    "real": classifier([1.0, 2.0]),
    "objects": classifier(np.array(["a", "b", "c"], object)),
    "mixed-width": classifier(np.array(["a", "b"], "U9"), loss="squared_hinge"),
    "pegasos": classifier(step="pegasos", alpha=0.1),
    **{graph: network(graph) for graph in ("ring", "random", "exponential", "geometric")},
    "named nodes": network(stations(), intercept=True),
    "tuples as nodes": network(nx.grid_2d_graph(2, 2)),
    "mixed nodes": network(nx.cycle_graph([3, "x", 2.5, (1, "y")])),
    "shuffled nodes": network(nx.path_graph([2, 0, 1])),
    "matrix": network(WEIGHTS.toarray()),
    "sparse matrix": network(WEIGHTS),
    "list of lists": network(WEIGHTS.toarray().tolist()),
    "uniform rule": network(nx.star_graph(3), rule="uniform", order="cta", every=3),
    "alone": network("complete", rule="alone"),
    "cooperation": cooperating(stations()),
    "cooperation alone": cooperating("complete", rule="alone"),
    "cooperating classifiers": (
        dokl.NetworkClassifier(stations(), n_components=20, random_state=3),
        labelled(["x", "y", "z"]),
    ),
    "network of classifiers": (
        dokl.DiffusionClassifier(stations(), n_components=20, random_state=3, average="uniform"),
        labelled(["x", "y", "z"]),
    ),
}


def scores(model):
    return getattr(model, "decision_function", model.predict)(X)


def started(model, y):
    """A clone that has learned a little."""
    model = copy.deepcopy(model)
    classes = {"classes": np.unique(y)} if hasattr(model, "decision_function") else {}
    return model.partial_fit(X[:80], y[:80], **classes)


def arrays_of(model):
    """All that it knows, by name."""
    return (
        encode(model.network_, exact=False)[1]
        if hasattr(model, "network_")
        else to_arrays(model.state_)
    )


def same_state(a, b, single=False):
    """single: to single precision, in which files hold covariances."""
    ours, theirs = arrays_of(a), arrays_of(b)
    assert list(ours) == list(theirs)
    for name, value in ours.items():
        if single and value.dtype.kind == "f":
            close(value, theirs[name], name)
        else:
            np.testing.assert_array_equal(value, theirs[name], name, strict=True)


def close(values, others, name=""):
    """Equal to single precision of the largest."""
    largest = float(np.abs(others).max(initial=0.0))
    np.testing.assert_allclose(values, others, 0.0, 1e-5 * largest, err_msg=name)
