"""Two classes for two algorithms over a graph: no value of a parameter chooses between them."""

import inspect

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.base import clone

import dokl
from dokl.base.errors import BadInput

pytestmark = pytest.mark.usefixtures("short_searches")

X = np.random.default_rng(0).normal(size=(80, 2))
NUMBERS = np.sin(X[:, 0]) + X[:, 1]
LABELS = np.where(NUMBERS > 0, "up", "down")
PAIRS = [
    (dokl.NetworkRegressor, dokl.DiffusionRegressor, NUMBERS),
    (dokl.NetworkClassifier, dokl.DiffusionClassifier, LABELS),
]
SHARED = {"graph", "n_nodes", "rule", "every", "n_components", "verbose", "random_state"}
GRADIENT = {
    "order", "kernel", "sigma", "features", "loss", "step", "alpha", "average", "intercept",
    "passes", "shuffle", "dtype", "engine",
}  # fmt: skip


@pytest.mark.parametrize(("network", "diffusion", "y"), PAIRS)
def test_each_has_its_own_parameters_and_no_others(network, diffusion, y):
    assert set(network().get_params()) == {*SHARED, "share", "experts"}
    assert set(diffusion().get_params()) == SHARED | GRADIENT
    usual = inspect.signature(diffusion).parameters
    for name in (*GRADIENT, "learner"):  # even with the value that the other has anyway
        with pytest.raises(TypeError, match=name):
            network(**{name: usual[name].default if name in usual else "auto"})
    with pytest.raises(TypeError, match="learner"):
        diffusion(learner="gradient")


@pytest.mark.parametrize(("network", "diffusion", "y"), PAIRS)
def test_equal_values_of_another_type_give_the_same_model(network, diffusion, y):
    small = {"n_nodes": 4, "n_components": 20, "random_state": 0}
    pairs = [
        ({"alpha": 0.5}, {"alpha": np.float32(0.5)}),
        ({"alpha": 1.0}, {"alpha": 1}),
        ({"alpha": 0.0}, {"alpha": 0}),
        ({"intercept": False}, {"intercept": 0}),
        ({"step": 1.0}, {"step": 1}),
        ({"shuffle": True}, {"shuffle": 1}),
        ({"every": 2}, {"every": np.int64(2)}),
    ]
    for one, other in pairs:
        a, b = (diffusion("ring", **small, **given).fit(X, y) for given in (one, other))
        assert a.state_.theta.tobytes() == b.state_.theta.tobytes(), (one, other)
    few = {**small, "n_components": np.int64(20), "every": np.int64(1)}
    a, b = (network("ring", **given).partial_fit(X, y, **_classes(y)) for given in (small, few))
    np.testing.assert_array_equal(a.predict(X), b.predict(X))


def _classes(y):
    return {"classes": np.unique(y)} if y.dtype.kind == "U" else {}


@pytest.mark.parametrize(("network", "diffusion", "y"), PAIRS)
@pytest.mark.parametrize(
    ("rows", "what"),
    [
        (csr_array(X), "is sparse"),
        (np.tile(X, 151), "has 302 inputs"),
        (np.tile(X, 151).tolist(), "has 302 inputs"),
    ],
    ids=["sparse", "wide", "wide list"],
)
def test_rows_that_only_diffusion_takes(network, diffusion, y, rows, what):
    model = network("ring", n_nodes=4)
    for learn in (model.fit, lambda *given: model.partial_fit(*given, **_classes(y))):
        with pytest.raises(BadInput, match=f"X {what}, and {network.__name__} takes .*: "
                                           f"{diffusion.__name__} takes"):  # fmt: skip
            learn(rows, y)
        assert not hasattr(model, "network_")
    given = {"n_nodes": 4, "n_components": 20, "passes": 1, "random_state": 0}
    assert diffusion("ring", **given).fit(rows, y).predict(rows).shape == (80,)


@pytest.mark.parametrize(("network", "diffusion", "y"), PAIRS)
def test_graphs_names_and_scores_are_the_same(network, diffusion, y):
    names = np.array(["x", "y", "z"])[np.arange(80) % 3]
    for kind in (network, diffusion):
        model = kind("ring", n_components=20, random_state=0).fit(X, y, nodes=names)
        assert model.nodes_.tolist() == ["x", "y", "z"]
        assert model.score(X, y, nodes=names) > 0.3
        with pytest.raises(BadInput, match="node 'q' is not in the graph, whose 3 nodes"):
            model.predict(X, nodes="q")
        assert clone(model).get_params().keys() == model.get_params().keys()


def test_what_only_one_of_them_has():
    diffusion = dokl.DiffusionRegressor("ring", n_nodes=4, n_components=20).fit(X, NUMBERS)
    assert not hasattr(diffusion, "predict_interval")
    assert not hasattr(diffusion, "cooperation_")
    network = dokl.NetworkRegressor("ring", n_nodes=4, n_components=20).fit(X, NUMBERS)
    assert not hasattr(network, "coef_")
    assert hasattr(dokl.NetworkClassifier(), "predict_proba")
    with pytest.raises(AttributeError, match="DiffusionClassifier\\(loss='logistic'\\)"):
        dokl.DiffusionClassifier().predict_proba  # noqa: B018
    assert hasattr(dokl.DiffusionClassifier(loss="logistic"), "predict_proba")


def test_weights_too_small_to_learn_from():
    with pytest.raises(BadInput, match="nothing to start from"):
        dokl.NetworkRegressor("ring", n_nodes=4).partial_fit(X, NUMBERS, sample_weight=1e-300)
