"""Whatever is wrong gets one clear message, and the model stays as it was before the call."""

import functools
import pickle

import networkx as nx
import numpy as np
import pytest
from scipy.sparse import csr_array

from dokl import (
    DiffusionClassifier,
    DiffusionRegressor,
    KernelClassifier,
    KernelRegressor,
    RandomFeatures,
    schedules,
)
from dokl.base.errors import BadGraph, BadInput, Diverged, UnknownName
from dokl.learning.losses import Loss

rng = np.random.default_rng(0)
X = rng.normal(size=(60, 2))
y = np.sin(X[:, 0])
labels = np.where(X[:, 0] > 0, "up", "down")
NEW = rng.normal(size=(7, 2))
SMALL = {"n_components": 20, "random_state": 0, "passes": 1}

Regressor = functools.partial(KernelRegressor, **SMALL)
Classifier = functools.partial(KernelClassifier, **SMALL)
Network = functools.partial(DiffusionRegressor, "ring", n_nodes=4, **SMALL)
NetworkOfClassifiers = functools.partial(DiffusionClassifier, "ring", n_nodes=4, **SMALL)
EVERY = [Regressor, Classifier, Network, NetworkOfClassifiers]
REGRESSORS = [Regressor, Network]
CLASSIFIERS = [Classifier, NetworkOfClassifiers]


def targets(make):
    return labels if make in CLASSIFIERS else y


def first_call(model, X, y):
    """`partial_fit`, with the classes named where there are any."""
    if hasattr(model, "decision_function"):
        return model.partial_fit(X, y, classes=["down", "up"])
    return model.partial_fit(X, y)


def learned(model):
    """Every number of a model, as bytes; parameters may be functions and stay out."""
    return pickle.dumps({name: v for name, v in vars(model).items() if name.endswith("_")})


def refused(model, call, error, match):
    """The call raises, says so, and changes nothing: no attribute, no number."""
    before, content = dict(vars(model)), learned(model)
    with pytest.raises(error, match=match):
        call()
    assert vars(model).keys() == before.keys()
    assert all(vars(model)[name] is value for name, value in before.items())
    assert learned(model) == content
    started = hasattr(model, "state_") or hasattr(model, "feature_map_")
    assert hasattr(model, "n_features_in_") == started


def refused_everywhere(make, good, bad, error, match):
    """Bad rows, in every call that takes rows, before and after the model has learned."""
    fresh = make()
    refused(fresh, lambda: fresh.fit(*bad), error, match)
    refused(fresh, lambda: first_call(fresh, *bad), error, match)
    started = make().fit(*good)
    was = started.predict(NEW)
    refused(started, lambda: started.fit(*bad), error, match)
    refused(started, lambda: started.partial_fit(*bad), error, match)
    np.testing.assert_array_equal(started.predict(NEW), was)


# --- rows -------------------------------------------------------------------------------


@pytest.mark.parametrize("make", EVERY)
@pytest.mark.parametrize(("bad", "said"), [(np.nan, "X contains NaN"), (np.inf, "X contains inf")])
@pytest.mark.parametrize("form", [np.asarray, np.float32, csr_array])
def test_nan_or_infinity_in_x(make, bad, said, form):
    spoiled = X.copy()
    spoiled[5, 1] = bad
    good = form(X), targets(make)
    refused_everywhere(make, good, (form(spoiled), targets(make)), ValueError, said)
    started = make().fit(*good)
    refused(started, lambda: started.predict(form(spoiled)), ValueError, said)


@pytest.mark.parametrize("make", REGRESSORS)
@pytest.mark.parametrize(("bad", "said"), [(np.nan, "y contains NaN"), (np.inf, "y contains inf")])
def test_nan_or_infinity_in_y(make, bad, said):
    spoiled = np.where(np.arange(60) == 5, bad, y)
    refused_everywhere(make, (X, y), (X, spoiled), ValueError, said)
    refused_everywhere(make, (X, y), (X, spoiled.astype(np.float32)), ValueError, said)
    both = np.column_stack([y, spoiled])
    refused_everywhere(make, (X, np.column_stack([y, y])), (X, both), ValueError, said)


def test_nan_among_labels():
    model = Classifier().fit(X, y > 0)
    spoiled = np.where(np.arange(60) == 5, np.nan, 1.0)
    refused(model, lambda: model.partial_fit(X, spoiled), BadInput, "nan is not one of the classes")
    refused(model, lambda: model.fit(X, spoiled), ValueError, "y contains NaN")


def test_targets_too_large_for_float32():
    model = Regressor().fit(X, y)
    said = "y has values too large for float32: scale it, or use dtype='float64'"
    refused(model, lambda: model.partial_fit(X, 1e300 * y), BadInput, said)
    refused(model, lambda: model.fit(X, 1e300 * y), BadInput, said)
    assert np.isfinite(Regressor(dtype="float64").fit(X, 1e100 * y).predict(X)).all()


@pytest.mark.parametrize("make", EVERY)
def test_wrong_dimension(make):
    good, started = (X, targets(make)), make().fit(X, targets(make))
    wide = np.hstack([X, X])
    for call in (
        lambda: started.partial_fit(wide, targets(make)),
        lambda: started.predict(wide),
        lambda: started.predict(csr_array(wide)),
    ):
        refused(started, call, ValueError, "X has 4 features, but .* is expecting 2 features")
    refused_everywhere(make, good, (X[:, 0], targets(make)), ValueError, "Expected 2D array")
    refused_everywhere(make, good, (X, targets(make)[:-1]), ValueError, "inconsistent numbers of")
    refused_everywhere(make, good, (X[:0], targets(make)[:0]), ValueError, "0 sample")


def test_other_number_of_outputs():
    model = Regressor().fit(X, np.column_stack([y, -y]))
    said = "y has 1 outputs, the model was started with 2"
    refused(model, lambda: model.partial_fit(X, y), BadInput, said)


@pytest.mark.parametrize("make", CLASSIFIERS)
def test_one_class_only(make):
    said = r"at least two classes, and there is one class only: \['up'\]"
    same = np.full(60, "up")
    fresh, started = make(), make().fit(X, labels)
    refused(fresh, lambda: fresh.fit(X, same), BadInput, said)
    refused(fresh, lambda: fresh.partial_fit(X, same, classes=["up"]), BadInput, said)
    refused(started, lambda: started.fit(X, same), BadInput, said)
    weight = (labels == "up").astype(float)
    refused(fresh, lambda: fresh.fit(X, labels, sample_weight=weight), BadInput, said)
    started.partial_fit(X, same)  # one class in a later chunk is nothing unusual


@pytest.mark.parametrize("make", CLASSIFIERS)
def test_classes(make):
    fresh, started = make(), make().partial_fit(X, labels, classes=["up", "down"])
    said = r"the first call of partial_fit must name all classes: partial_fit\(X, y, classes="
    refused(fresh, lambda: fresh.partial_fit(X, labels), BadInput, said)
    said = r"'left' is not one of the classes, \['down', 'up'\]: the first partial_fit\(classes"
    odd = np.where(np.arange(60) == 3, "left", labels)
    refused(started, lambda: started.partial_fit(X, odd), BadInput, said)
    call = functools.partial(fresh.partial_fit, X, odd, classes=["down", "up"])
    refused(fresh, call, BadInput, said)
    said = r"classes \['a', 'b'\] differ from those of the first call, \['down', 'up'\]"
    call = functools.partial(started.partial_fit, X, labels, classes=["a", "b"])
    refused(started, call, BadInput, said)
    refused(started, lambda: started.partial_fit(X, y > 0), BadInput, "True is not one of")
    refused(started, lambda: started.fit(X, y), ValueError, "Unknown label type: continuous")


@pytest.mark.parametrize("make", EVERY)
def test_sample_weights(make):
    fresh, started, target = make(), make().fit(X, targets(make)), targets(make)
    ones = np.ones(60)
    for weight, said in [
        (
            np.where(np.arange(60) == 7, -1, ones),
            "sample_weight of row 7 is -1: it must be from 0 to 1e.09",
        ),
        (np.where(np.arange(60) == 7, np.nan, ones), "sample_weight of row 7 is nan"),
        (ones[1:], r"sample_weight must have shape \(60,\), as y has; got \(59,\)"),
        ("balanced", "sample_weight must be numbers"),
    ]:
        for model in (fresh, started):
            call = functools.partial(model.fit, X, target, sample_weight=weight)
            refused(model, call, BadInput, said)
        call = functools.partial(started.partial_fit, X, target, sample_weight=weight)
        refused(started, call, BadInput, said)
    for model in (fresh, started):
        call = functools.partial(model.fit, X, target, sample_weight=0 * ones)
        refused(model, call, BadInput, "all sample weights are zero: there is nothing to start")


@pytest.mark.parametrize("make", EVERY)
def test_predicting_before_learning(make):
    fresh = make()
    refused(fresh, lambda: fresh.predict(X), ValueError, "not fitted yet")
    refused(fresh, lambda: fresh.coef_, ValueError, "not fitted yet")


# --- parameters -------------------------------------------------------------------------

PARAMETERS = [
    ({"step": 0}, BadInput, "step mu must be a finite number above 0, got 0"),
    ({"step": -0.5}, BadInput, "step mu must be a finite number above 0, got -0.5"),
    ({"step": np.nan}, BadInput, "step mu must be a finite number above 0, got nan"),
    ({"step": True}, BadInput, "step mu must be a finite number above 0, got True"),
    ({"step": lambda n, q: -1.0}, BadInput, "a step must be above 0; .* makes it -1.0 at n = 1"),
    ({"step": lambda n, q: 0.0}, BadInput, "a step must be above 0; .* makes it 0.0 at n = 1"),
    ({"step": "autp"}, UnknownName, "unknown step 'autp': did you mean 'auto'"),
    ({"step": "sqrt"}, BadInput, "step 'sqrt' needs its numbers: pass a schedule, e.g. dokl"),
    ({"step": "pegasos", "alpha": 0.0}, BadInput, "needs an alpha above 0"),
    ({"n_components": 0}, BadInput, "n_components must be a whole number, at least 1, got 0"),
    ({"n_components": -2}, BadInput, "n_components must be a whole number, at least 1, got -2"),
    ({"n_components": 2.5}, BadInput, "n_components must be a whole number, at least 1, got 2.5"),
    ({"kernel": "gausian"}, UnknownName, "unknown kernel 'gausian': did you mean 'gaussian'"),
    ({"kernel": 3}, BadInput, "kernel must be a name or a Kernel, got 3"),
    ({"kernel": "laplacian", "features": "orthogonal"}, BadInput, "needs an isotropic kernel"),
    ({"sigma": "meadian"}, UnknownName, "unknown sigma 'meadian': did you mean 'median'"),
    ({"sigma": 0.0}, BadInput, "sigma must be a number above 0, 'scale' or 'median', got 0.0"),
    ({"sigma": np.inf}, BadInput, "sigma must be a number above 0, 'scale' or 'median', got inf"),
    ({"features": "ortogonal"}, UnknownName, "unknown features 'ortogonal'.*'orthogonal'"),
    ({"features": "autp"}, UnknownName, "unknown features 'autp': did you mean 'auto'"),
    ({"loss": "logstic"}, UnknownName, "unknown loss 'logstic': did you mean 'logistic'"),
    ({"loss": "squard"}, UnknownName, "unknown loss 'squard': did you mean 'squared'"),
    ({"engine": "nuba"}, UnknownName, "unknown engine 'nuba': did you mean 'numba'"),
    ({"average": "weigthed"}, UnknownName, "unknown average 'weigthed': did you mean 'weighted'"),
    ({"alpha": -1e-3}, BadInput, "alpha must be a finite number, at least 0, got -0.001"),
    ({"intercept": "yes"}, BadInput, "intercept must be a finite number, at least 0, got 'yes'"),
    ({"dtype": "float16"}, BadInput, "dtype must be float32 or float64, got 'float16'"),
    ({"random_state": -1}, BadInput, r"seed must be an integer from 0 to 2\*\*64 - 1, got -1"),
]
PARAMETERS += [
    (
        {"n_components": 7, "features": name},
        BadInput,
        f"features '{name}' come in pairs .* an even n_components, got 7: use 8, or features='cos'",
    )
    for name in ("paired", "orthogonal", "sobol", "structured")
]


def parameter_refused(make, parameters, error, match):
    """On a new model and on one that has learned, which goes on predicting as before."""
    fresh = make().set_params(**parameters)
    refused(fresh, lambda: fresh.fit(X, targets(make)), error, match)
    refused(fresh, lambda: first_call(fresh, X, targets(make)), error, match)
    started = make().fit(X, targets(make))
    was = started.predict(NEW)
    started.set_params(**parameters)
    refused(started, lambda: started.fit(X, targets(make)), error, match)
    np.testing.assert_array_equal(started.predict(NEW), was)


@pytest.mark.parametrize(("parameters", "error", "match"), PARAMETERS)
@pytest.mark.parametrize("make", EVERY)
def test_bad_parameters(make, parameters, error, match):
    parameter_refused(make, parameters, error, match)


@pytest.mark.parametrize("make", EVERY)
@pytest.mark.parametrize("passes", [0, -1, 1.5, "many", True])
def test_bad_passes(make, passes):
    model = make().set_params(passes=passes)
    said = "passes must be a whole number, at least 1, or 'auto', got"
    refused(model, lambda: model.fit(X, targets(make)), BadInput, said)


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge", "logistic"])
def test_losses_of_classifiers_in_regressors(loss):
    said = f"loss '{loss}' is for classes -1 and 1; a regressor takes squared, huber, absolute"
    parameter_refused(Regressor, {"loss": loss}, BadInput, said)


BROKEN = nx.Graph([("north", "east"), ("south", "west")])
NETWORKS = [
    ({"graph": "rnig"}, UnknownName, "unknown graph 'rnig': did you mean 'ring'"),
    ({"graph": "smal_world"}, UnknownName, "did you mean 'small-world'"),
    ({"rule": "metropols"}, UnknownName, "unknown weight rule 'metropols'.*'metropolis'"),
    ({"order": "atcc"}, UnknownName, "unknown order 'atcc': did you mean 'atc'"),
    ({"every": 0}, BadInput, "every must be a whole number of steps, at least 1, got 0"),
    ({"n_nodes": 0}, BadInput, "a whole number of nodes, at least 1; got 0"),
    ({"graph": BROKEN}, BadGraph, "disconnected: 2 parts, with no path from node '.*' to '.*'"),
    ({"graph": nx.empty_graph(3)}, BadGraph, "disconnected: 3 parts, with no path from node 0 to"),
    ({"graph": nx.DiGraph([(0, 1)])}, BadGraph, "links must be undirected"),
    ({"graph": nx.Graph()}, BadGraph, "the graph has no nodes"),
    ({"graph": np.ones((3, 3))}, BadGraph, "row 0 of the weights sums to 3, not 1"),
    ({"graph": [[0.5, 0.5], [0.2, 0.8]]}, BadGraph, "column 0 of the weights sums to 0.7, not 1"),
    ({"graph": [[1.5, -0.5], [-0.5, 1.5]]}, BadGraph, r"not negative: entry \(0, 1\) is -0.5"),
    ({"graph": [[np.nan, 1.0], [1.0, 0.0]]}, BadGraph, "must be finite"),
    ({"graph": np.ones((2, 3)) / 3}, BadGraph, r"a square matrix \(K, K\); got shape \(2, 3\)"),
    ({"graph": np.kron(np.eye(2), np.full((2, 2), 0.5))}, BadGraph, "not connected: 2 parts"),
    ({"graph": [[0, 1.0], [1.0, 0]]}, BadGraph, "only swap their estimates"),
    ({"graph": None}, BadInput, "graph must be the name of a topology, a networkx graph or"),
    ({"graph": 5}, BadInput, "graph must be the name of a topology, a networkx graph or"),
]


@pytest.mark.parametrize(("parameters", "error", "match"), NETWORKS)
@pytest.mark.parametrize("make", [Network, NetworkOfClassifiers])
def test_bad_networks(make, parameters, error, match):
    parameter_refused(make, parameters, error, match)


@pytest.mark.parametrize("make", [Network, NetworkOfClassifiers])
@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        (np.arange(60), "node 4 is not in the graph, whose 4 nodes are 0, 1, 2, 3\\. Rows"),
        ("north", "node 'north' is not in the graph"),
        (["north"] * 60, "node 'north' is not in the graph"),
        ([0, 1], "nodes names 2 nodes for 60 rows: it takes one per row"),
        ([[0]] * 60, "nodes must be one name, or a list with a name for each row"),
    ],
)
def test_bad_nodes(make, nodes, said):
    fresh, started = make(), make().fit(X, targets(make))
    for call in (fresh.fit, functools.partial(first_call_with_nodes, fresh)):
        refused(fresh, functools.partial(call, X, targets(make), nodes=nodes), BadInput, said)
    for call in (started.fit, started.partial_fit):
        refused(started, functools.partial(call, X, targets(make), nodes=nodes), BadInput, said)
    refused(started, lambda: started.predict(X, nodes=nodes), BadInput, said)


def first_call_with_nodes(model, X, y, nodes):
    named = {"classes": ["down", "up"]} if hasattr(model, "decision_function") else {}
    return model.partial_fit(X, y, nodes=nodes, **named)


@pytest.mark.parametrize(
    ("parameters", "match"),
    [
        ({"n_components": 0}, "n_components must be a whole number"),
        ({"n_components": 7, "features": "paired"}, "an even n_components, got 7"),
        ({"features": "sobel"}, "unknown features 'sobel': did you mean 'sobol'"),
        ({"kernel": "cauchi"}, "unknown kernel 'cauchi': did you mean 'cauchy'"),
        ({"sigma": -1.0}, "sigma must be a number above 0"),
        ({"dtype": int}, "dtype must be float32 or float64"),
    ],
)
def test_the_transformer(parameters, match):
    fresh = RandomFeatures(**parameters)
    refused(fresh, lambda: fresh.fit(X), BadInput, match)
    started = RandomFeatures(n_components=10, random_state=0).fit(X)
    was = started.transform(NEW)
    refused(started, lambda: started.fit(np.full((3, 2), np.nan)), ValueError, "contains NaN")
    refused(started, lambda: started.transform(X[:, :1]), ValueError, "X has 1 features")
    started.set_params(**{**parameters, "dtype": "float64"})
    if parameters.keys() != {"dtype"}:
        refused(started, lambda: started.fit(X), BadInput, match)
    np.testing.assert_array_equal(started.transform(NEW), was)


# --- divergence -------------------------------------------------------------------------


# Four nodes that average bear a longer step than one.
@pytest.mark.parametrize(("make", "step"), [(Regressor, 5), (Network, 20)])
@pytest.mark.parametrize("engine", ["numba", "reference"])
def test_divergence_names_step_and_limit(make, step, engine):
    many = np.tile(X, (10, 1)), np.tile(y, 10)
    said = (
        rf"diverged at step \d+.* step of schedule 'constant' is {step} at n = 1.* below 2 = 2/"
        r".*Use a step of at most 1. Nothing was changed"
    )
    fresh = make(step=float(step), engine=engine)
    refused(fresh, lambda: fresh.fit(*many), Diverged, said)
    refused(fresh, lambda: fresh.partial_fit(*many), Diverged, said)
    assert not hasattr(fresh, "state_")

    started = make(step=float(step), engine=engine).partial_fit(X[:2], y[:2])
    state, was = started.state_, started.predict(NEW)
    theta = state.theta.copy()
    refused(started, lambda: started.partial_fit(*many), Diverged, said)
    assert started.state_ is state
    np.testing.assert_array_equal(started.state_.theta, theta)
    np.testing.assert_array_equal(started.predict(NEW), was)


def test_divergence_in_an_unbounded_margin_loss():
    rng = np.random.default_rng(1)
    model = Classifier(loss="squared_hinge", step=5.0, alpha=0.0)
    many = np.tile(X, (20, 1)), np.tile(labels, 20)
    flipped = many[0], np.where(rng.random(1200) < 0.5, *np.unique(labels))
    refused(model, lambda: model.fit(*flipped), Diverged, "'constant' is 5")


def test_divergence_by_sample_weights_says_so():
    model = Regressor()
    many = np.tile(X, (10, 1)), np.tile(y, 10)
    call = functools.partial(model.fit, *many, sample_weight=20.0)
    said = "Sample weights multiply the step: divide them by the largest, 20"
    refused(model, call, Diverged, said)
    assert model.fit(*many, sample_weight=1.0).score(X, y) > 0.5


# --- what cannot be compiled ------------------------------------------------------------


TABLE = {"half": 0.5, "one": 1.0}  # a dictionary from outside is nothing that Numba takes


def odd_slope(y, f):
    return TABLE["one"] * (f - y)


def odd_rate(n, q):
    return TABLE["half"]


ODD = Loss("odd", lambda y, f: 0.5 * (f - y) ** 2, odd_slope, curvature=1.0)


@pytest.mark.parametrize("parameters", [{"loss": ODD}, {"step": odd_rate}])
def test_an_engine_that_cannot_compile(parameters):
    said = "engine 'numba' cannot run this problem .*: use engine='reference'"
    parameter_refused(Regressor, {**parameters, "engine": "numba"}, BadInput, said)


def test_auto_falls_back_with_a_notice_once():
    from dokl.simulation.engines.choice import EngineNotice

    model = Regressor(step=odd_rate)
    with pytest.warns(EngineNotice, match="does not compile .*: using the slower reference"):
        model.partial_fit(X, y)
    assert model.engine_ == "reference"
    model.partial_fit(X, y)  # warnings are errors here: no second notice,
    again = pickle.loads(pickle.dumps(model)).partial_fit(X, y)  # nor after a pickle
    constant = Regressor(step=schedules.constant(0.5), engine="reference")
    for _ in range(3):
        constant.partial_fit(X, y)
    np.testing.assert_allclose(again.predict(NEW), constant.predict(NEW), rtol=1e-5)
