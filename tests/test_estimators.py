"""The estimators: what they learn, how they are fed, and that they are scikit-learn's kind."""

import functools
import gzip
import os
import pickle
import warnings
from pathlib import Path

import joblib
import networkx as nx
import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array, random_array
from sklearn.base import clone
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from dokl import (
    DiffusionClassifier,
    DiffusionRegressor,
    Exchange,
    Gaussian,
    KernelClassifier,
    KernelRegressor,
    Problem,
    RandomFeatures,
    gradient,
    graphs,
    losses,
    run,
    schedules,
)
from dokl.base.errors import BadInput
from dokl.estimators.learner import NothingLearned
from dokl.learning.features import VARIANTS
from dokl.network.state import to_arrays
from dokl.simulation.streams import Shards

DATA = Path(os.environ.get("DOKL_DATA", Path(__file__).parents[2] / "shared" / "data"))
SMALL = {"sigma": 1.0, "n_components": 50, "random_state": 0}

Regressor = functools.partial(KernelRegressor, **SMALL)
Classifier = functools.partial(KernelClassifier, **SMALL)
FOUR = {"n_nodes": 4}
Network = functools.partial(DiffusionRegressor, "ring", **FOUR, **SMALL)
NetworkOfClassifiers = functools.partial(DiffusionClassifier, "ring", **FOUR, **SMALL)
EVERY = [Regressor, Classifier, Network, NetworkOfClassifiers]


def f(X):
    return np.sin(2 * X[:, 0]) + X[:, 0] * X[:, 1]


def rows(n, seed=0, noise=0.1):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, f(X) + noise * rng.normal(size=n)


X, y = rows(400)
NEW, TRUE = rows(300, seed=1, noise=0.0)
three = np.digitize(y, [-0.5, 0.7])


def targets(make):
    return y > 0 if make in (Classifier, NetworkOfClassifiers) else y


def started(make, n=400, **parameters):
    """A model that has seen n rows through `partial_fit`."""
    model = make(**parameters)
    named = {"classes": [False, True]} if hasattr(model, "decision_function") else {}
    return model.partial_fit(X[:n], targets(make)[:n], **named)


def scores_of(model, X, **nodes):
    decide = getattr(model, "decision_function", None)
    return model.predict(X, **nodes) if decide is None else decide(X, **nodes)


def same_state(a, b):
    pairs = zip(to_arrays(a.state_).items(), to_arrays(b.state_).items(), strict=True)
    return all(u == v and np.array_equal(x, y) for (u, x), (v, y) in pairs)


# --- feeding ----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("average", ["none", "uniform", "weighted"])
@pytest.mark.parametrize("make", [Regressor, Classifier])
def test_one_call_or_row_by_row_or_chunks(make, average, dtype):
    begin = functools.partial(started, make, average=average, dtype=dtype, intercept=True)
    whole, by_row, chunks = begin(400), begin(1), begin(1)
    for i in range(1, 400):
        by_row.partial_fit(X[i : i + 1], targets(make)[i : i + 1])
    for part in np.split(np.arange(1, 400), [1, 20, 170]):
        chunks.partial_fit(X[part], targets(make)[part])
    assert same_state(whole, by_row)
    assert same_state(whole, chunks)


@pytest.mark.parametrize("make", [Network, NetworkOfClassifiers])
def test_a_network_fed_step_by_step(make):
    nodes = np.arange(400) % 4
    whole, steps = started(make), started(make, 4)
    for i in range(4, 400, 4):
        own = np.random.default_rng(i).permutation(4) + i  # the order of nodes does not matter
        steps.partial_fit(X[own], targets(make)[own], nodes=nodes[own])
    assert same_state(whole, steps)


def test_dealing_goes_on_where_it_stopped():
    model = started(Network, 1)
    for i in range(1, 42):
        model.partial_fit(X[i : i + 1], y[i : i + 1])
    assert model.state_.count.tolist() == [11, 11, 10, 10]


@pytest.mark.parametrize("make", EVERY)
def test_fit_starts_anew(make):
    fresh = make().fit(X, targets(make))
    again = started(make).fit(X, targets(make))
    assert same_state(fresh, again)
    assert fresh.fingerprint_ == again.fingerprint_
    other = make(sigma="scale").fit(X, targets(make))
    assert other.sigma_ != other.fit(3 * X, targets(make)).sigma_


@pytest.mark.parametrize("make", EVERY)
def test_passes_and_shuffle(make):
    plain = make(passes=1, shuffle=False).fit(X, targets(make))
    assert same_state(plain, started(make))
    assert same_state(
        make(passes=3, shuffle=False).fit(X, targets(make)),
        started(make).partial_fit(X, targets(make)).partial_fit(X, targets(make)),
    )
    shuffled = make(passes=1).fit(X, targets(make))
    assert not same_state(plain, shuffled)
    assert shuffled.state_.count.tolist() == plain.state_.count.tolist()
    K = len(plain.state_.count)
    assert make().fit(X, targets(make)).state_.clock == 400 // K * min(100, 10_000 * K // 400)


def test_every_row_of_a_pass_is_seen_once():
    line = np.arange(10.0)[:, None]
    model = KernelRegressor(
        sigma=0.1, features="paired", n_components=4000, passes=1, random_state=3, step=1.0
    ).fit(line, line[:, 0])
    np.testing.assert_allclose(model.predict(line), line[:, 0], atol=0.8)
    assert model.state_.count.tolist() == [10]


@pytest.mark.parametrize("make", EVERY)
def test_seeds(make):
    first, second = (make().fit(X, targets(make)) for _ in range(2))
    assert first.fingerprint_ == second.fingerprint_
    assert same_state(first, second)
    drawn = [make(random_state=None).fit(X, targets(make)) for _ in range(2)]
    assert drawn[0].fingerprint_ != drawn[1].fingerprint_
    states = [np.random.RandomState(5), np.random.RandomState(5)]
    old = [make(random_state=state).fit(X, targets(make)) for state in states]
    assert same_state(*old)
    assert make(random_state=np.int64(0)).fit(X, targets(make)).fingerprint_ == first.fingerprint_


def test_the_fingerprint_covers_what_nodes_must_share():
    def print_of(labels=three, X=X, **parameters):
        return Classifier(**parameters).fit(X, labels).fingerprint_

    base = print_of()
    assert base == print_of()
    assert base == print_of(alpha=0.1, loss="logistic", dtype="float64", step=0.1)
    other = [
        print_of(sigma=1.1),
        print_of(sigma="scale"),
        print_of(kernel="matern"),
        print_of(n_components=52),
        print_of(features="paired"),
        print_of(random_state=1),
        print_of(labels=three + 1),
        print_of(labels=three > 0),
        print_of(labels=np.array(list("abc"))[three]),
        print_of(X=X[:, :1]),
    ]
    assert len({base, *other}) == 11
    assert Regressor().fit(X, y).fingerprint_ == RandomFeatures(**SMALL).fit(X).fingerprint_


@pytest.mark.parametrize("make", EVERY)
def test_the_same_numbers_in_any_form(make):
    t = targets(make)
    labels = t if t.dtype == bool else t.astype(np.float32)
    forms = [
        (X.astype(np.float32), labels),
        (np.asfortranarray(X), t),
        (X.tolist(), t.tolist()),
        (csr_array(X), t),
        (np.repeat(X, 2, axis=1)[:, ::2], np.repeat(t, 2)[::2]),
    ]
    whole = started(make).partial_fit(X, t)
    for rows, labels in forms:
        model = started(make).partial_fit(rows, labels)
        np.testing.assert_allclose(model.state_.theta, whole.state_.theta, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(
            scores_of(model, rows), scores_of(whole, X), rtol=1e-4, atol=1e-4
        )


def test_names_of_columns_are_held_to():
    frame = pd.DataFrame(X, columns=["east", "north"])
    model = Regressor().partial_fit(frame, pd.Series(y))
    assert same_state(model, started(Regressor))
    assert model.feature_names_in_.tolist() == ["east", "north"]
    with pytest.raises(ValueError, match="feature names should match"):
        model.partial_fit(frame[["north", "east"]], y)
    with pytest.warns(UserWarning, match="X does not have valid feature names"):
        model.partial_fit(X, y)


def test_changed_parameters_wait_for_fit():
    changed = {"alpha": 0.5, "step": 0.01, "dtype": "float64", "loss": "huber", "engine": "none"}
    plain = started(Regressor).partial_fit(X, y)
    model = started(Regressor).set_params(**changed).partial_fit(X, y)
    assert same_state(plain, model)
    again = pickle.loads(pickle.dumps(started(Regressor).set_params(**changed)))
    assert same_state(plain, again.partial_fit(X, y))


# --- sparse, weights, outputs -----------------------------------------------------------


@pytest.mark.parametrize("features", VARIANTS)
@pytest.mark.parametrize("sigma", [2.0, "scale", "median"])
def test_sparse_is_dense(features, sigma):
    sparse = random_array((300, 40), density=0.1, format="csr", rng=np.random.default_rng(0))
    dense = sparse.toarray()
    target = dense.sum(axis=1)
    make = functools.partial(
        KernelRegressor, sigma=sigma, features=features, n_components=64, random_state=0
    )
    a, b = make().partial_fit(sparse, target), make().partial_fit(dense, target)
    assert a.sigma_ == pytest.approx(b.sigma_, rel=1e-6)
    np.testing.assert_allclose(a.predict(sparse), b.predict(dense), rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(a.predict(dense), a.predict(sparse), rtol=1e-4, atol=1e-5)
    for form in ("csc", "coo"):
        other = make().partial_fit(sparse.asformat(form), target)
        np.testing.assert_array_equal(other.predict(sparse), a.predict(sparse))


def test_sparse_network_of_classifiers():
    sparse = random_array((200, 30), density=0.2, format="csr", rng=np.random.default_rng(0))
    labels = np.digitize(sparse.sum(axis=1), [2.5, 3.5])
    nodes = np.random.default_rng(1).integers(4, size=200)
    models = [
        NetworkOfClassifiers(passes=2).fit(rows, labels, nodes=nodes)
        for rows in (sparse, sparse.toarray())
    ]
    scores = [model.decision_function(sparse, nodes=nodes) for model in models]
    np.testing.assert_allclose(*scores, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("sigma", [1.0, "scale", "median"])
@pytest.mark.parametrize("make", EVERY)
def test_weight_zero_is_a_row_removed(make, sigma):
    weight, t = np.random.default_rng(2).integers(0, 3, size=400) / 2, targets(make)
    kept = weight > 0
    a = make(sigma=sigma).fit(X, t, sample_weight=weight)
    b = make(sigma=sigma).fit(X[kept], t[kept], sample_weight=weight[kept])
    assert same_state(a, b)
    a.partial_fit(X, t, sample_weight=weight)
    b.partial_fit(X[kept], t[kept], sample_weight=weight[kept])
    assert same_state(a, b)
    assert same_state(a, b.partial_fit(X, t, sample_weight=0))


def test_weight_zero_with_nodes_and_with_a_class_of_its_own():
    weight, nodes = np.where(three == 2, 0.0, 1.0), np.random.default_rng(3).integers(4, size=400)
    kept = weight > 0
    a = NetworkOfClassifiers().fit(X, three, nodes=nodes, sample_weight=weight)
    b = NetworkOfClassifiers().fit(X[kept], three[kept], nodes=nodes[kept])
    assert a.classes_.tolist() == b.classes_.tolist() == [0, 1]
    assert same_state(a, b)


def test_a_row_of_weight_zero_has_no_prediction():
    weight = np.where(np.arange(400) % 3 == 1, 0.0, 1.0)
    kept = weight > 0
    for names in (["no", "yes"], [False, True], [0, 1], [3, 4, 5], [1.0, 2.0], ["a", "b", "c"]):
        labels = np.array(names)[three if len(names) == 3 else (y > 0).astype(int)]
        plain = Classifier().prequential(X[kept], labels[kept], classes=names)
        assert plain.dtype == labels.dtype
        found = Classifier().prequential(X, labels, classes=names, sample_weight=weight)
        assert found[kept].tolist() == plain.tolist()
        assert pd.isna(found[~kept]).all()
        assert found.dtype == (labels.dtype if labels.dtype.kind == "f" else object)
    assert np.isnan(Regressor().prequential(X, y, sample_weight=weight)[~kept]).all()


@pytest.mark.parametrize("make", [Regressor, Network])
def test_weights_scale_the_gradient(make):
    heavy = make(step=0.1, dtype="float64").partial_fit(X, y, sample_weight=3.0)
    plain = make(step=0.3, dtype="float64").partial_fit(X, y)
    np.testing.assert_allclose(heavy.state_.theta, plain.state_.theta, rtol=1e-9, atol=1e-12)
    mixed = make(step=0.2, dtype="float64")
    mixed.partial_fit(X, y, sample_weight=np.where(X[:, 0] > 0, 1.0, 0.5))
    by_hand = make(step=lambda n, q: 0.2, dtype="float64", engine="reference")
    for i in range(0, 400, len(mixed.state_.count)):
        part = slice(i, i + len(mixed.state_.count))
        by_hand.partial_fit(X[part], y[part], sample_weight=np.where(X[part, 0] > 0, 1.0, 0.5))
    np.testing.assert_allclose(mixed.predict(NEW), by_hand.predict(NEW), rtol=1e-8, atol=1e-10)


def test_weights_move_a_classifier():
    noise = np.random.default_rng(0).random(400) < 0.5
    weight = np.where(noise, 5.0, 1.0)
    share = [
        Classifier(loss="logistic").fit(X, noise, sample_weight=w).predict(NEW).mean()
        for w in (None, weight)
    ]
    assert share[0] < 0.7
    assert share[1] > 0.95


def test_several_outputs_are_single_ones_side_by_side():
    Y = np.column_stack([y, -2 * y + 1, X[:, 1] ** 2])
    for make in (Regressor, Network):
        together = make(intercept=True).partial_fit(X, Y)
        apart = [make(intercept=True).partial_fit(X, column) for column in Y.T]
        assert together.predict(NEW).shape == (300, 3)
        for i, single in enumerate(apart):
            own, alone = together.state_.theta[:, i], single.state_.theta[:, 0]
            np.testing.assert_allclose(own, alone, rtol=1e-3, atol=1e-4)
        side_by_side = np.column_stack([single.predict(NEW) for single in apart])
        np.testing.assert_allclose(together.predict(NEW), side_by_side, rtol=1e-3, atol=1e-3)
    assert Regressor().fit(X, Y[:, :1]).predict(NEW).shape == (300, 1)
    assert Regressor().fit(X, Y[:, 0]).predict(NEW).shape == (300,)
    assert Regressor().fit(X, Y).score(X, Y) > 0.8


@pytest.mark.parametrize("make", [Classifier, NetworkOfClassifiers])
def test_several_classes_are_each_against_the_rest(make):
    model = make(loss="logistic").partial_fit(X, three, classes=[0, 1, 2])
    scores = model.decision_function(NEW)
    assert scores.shape == (300, 3)
    for c in range(3):
        against = make(loss="logistic").partial_fit(X, three == c, classes=[False, True])
        alone = against.decision_function(NEW)
        assert alone.shape == (300,)
        np.testing.assert_allclose(scores[:, c], alone, rtol=1e-3, atol=1e-3)
    np.testing.assert_array_equal(model.predict(NEW), scores.argmax(axis=1))
    assert make(n_components=200).fit(X, three).score(X, three) > 0.85


@pytest.mark.parametrize("make", [Classifier, NetworkOfClassifiers])
@pytest.mark.parametrize(
    "names", [["ham", "spam"], [False, True], [-1, 1], [2.0, 7.0], np.array(["a", "b"], object)]
)
def test_labels_of_any_kind(make, names):
    names = np.asarray(names)
    labels = names[(y > 0).astype(int)]
    plain = make().fit(X, y > 0)
    model = make().fit(X, labels)
    assert model.classes_.dtype == names.dtype
    np.testing.assert_array_equal(model.classes_, names)
    np.testing.assert_array_equal(model.decision_function(NEW), plain.decision_function(NEW))
    np.testing.assert_array_equal(model.predict(NEW), names[plain.predict(NEW).astype(int)])
    assert model.score(X, labels) > 0.9
    fed = make().partial_fit(X, labels, classes=names[::-1])
    assert same_state(fed, make().partial_fit(X, y > 0, classes=[True, False]))
    as_list = make().partial_fit(X, labels, classes=names).partial_fit(X, labels.tolist())
    assert same_state(fed.partial_fit(X, labels), as_list)


def test_a_class_that_comes_late():
    early = three < 2
    model = Classifier().partial_fit(X[early], three[early], classes=[0, 1, 2])
    assert set(model.predict(NEW)) <= {0, 1}
    assert set(model.partial_fit(X, three).partial_fit(X, three).predict(NEW)) == {0, 1, 2}


# --- probabilities ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "make", [KernelClassifier, functools.partial(DiffusionClassifier, n_nodes=4)]
)
def test_probabilities_mean_something(make):
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(6000, 1))
    truth = 1 / (1 + np.exp(-2 * np.sin(2 * X[:, 0])))
    labels = np.where(rng.random(6000) < truth, "yes", "no")
    model = make(loss="logistic", sigma=0.5, n_components=100, random_state=0, alpha=1e-3)
    p = model.fit(X, labels).predict_proba(X)
    assert p.shape == (6000, 2)
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-12)
    assert np.abs(p[:, 1] - truth).mean() < 0.04  # classes_ are sorted: "no", "yes"
    np.testing.assert_array_equal(p[:, 1] > 0.5, model.predict(X) == "yes")
    np.testing.assert_allclose(np.exp(model.predict_log_proba(X)), p)


def test_probabilities_of_several_classes():
    model = Classifier(loss="logistic").fit(X, three)
    p = model.predict_proba(NEW)
    assert p.shape == (300, 3)
    assert (p >= 0).all()
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-12)
    np.testing.assert_array_equal(p.argmax(axis=1), model.predict(NEW))
    model.state_.mean_theta[:] *= 1e6  # certain of everything: no overflow, no division by zero
    p = model.predict_proba(NEW)
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-12)
    assert (model.predict_log_proba(NEW) <= 0).all()


def test_probabilities_of_one_node():
    model = NetworkOfClassifiers(loss="logistic", rule="alone").fit(X, y > 0)
    p = np.array([model.predict_proba(NEW, nodes=k)[:, 1] for k in range(4)])
    assert p.std(axis=0).max() > 0.01
    log_odds = np.log(p / (1 - p))
    own = [model.decision_function(NEW, nodes=k) for k in range(4)]
    np.testing.assert_allclose(log_odds, own, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(model.predict_log_proba(NEW, nodes=1)[:, 1], np.log(p[1]))


@pytest.mark.parametrize("make", [Classifier, NetworkOfClassifiers])
def test_probabilities_are_for_the_logistic_loss(make):
    for loss in ("hinge", "squared_hinge", "squared", losses.hinge()):
        assert not hasattr(make(loss=loss), "predict_proba")
        assert not hasattr(make(loss=loss).fit(X, y > 0), "predict_log_proba")
    with pytest.raises(AttributeError) as raised:
        make().predict_proba(X)
    assert "needs loss='logistic'; this model has 'hinge'" in str(raised.value)
    assert hasattr(make(loss=losses.logistic()), "predict_proba")


# --- scikit-learn's company -------------------------------------------------------------


def test_pipeline():
    skewed = X * [100.0, 0.01] + [5.0, -3.0]
    model = make_pipeline(StandardScaler(), KernelRegressor(sigma=1.0, random_state=0))
    assert model.fit(skewed, y).score(skewed, y) > 0.9
    weighted = model.fit(skewed, y, kernelregressor__sample_weight=np.ones(400))
    assert weighted.score(skewed, y) > 0.9
    network = make_pipeline(StandardScaler(), Network())
    nodes = np.arange(400) % 4
    assert network.fit(skewed, y, diffusionregressor__nodes=nodes).score(skewed, y) > 0.7
    chain = make_pipeline(RandomFeatures(sigma=1.0, random_state=0), Ridge(1e-3))
    assert chain.fit(X, y).score(NEW, TRUE) > 0.95


def test_grid_search():
    grid = {"sigma": [0.01, 1.0], "alpha": [0.0, 10.0]}
    search = GridSearchCV(KernelRegressor(n_components=100, passes=3, random_state=0), grid, cv=3)
    assert search.fit(X, y).best_params_ == {"sigma": 1.0, "alpha": 0.0}
    assert search.best_estimator_.sigma_ == 1.0
    grid = {"diffusionclassifier__sigma": [0.01, 1.0], "diffusionclassifier__alpha": [1e-4, 1e2]}
    model = make_pipeline(
        StandardScaler(), DiffusionClassifier("complete", n_nodes=3, random_state=0)
    )
    found = GridSearchCV(model, grid, cv=3).fit(X, np.where(y > 0, "up", "down"))
    assert found.best_params_["diffusionclassifier__sigma"] == 1.0
    assert found.best_score_ > 0.85
    assert cross_val_score(Classifier(), csr_array(X), three, cv=3).mean() > 0.7


@pytest.mark.parametrize("make", EVERY)
@pytest.mark.parametrize("features", ["orthogonal", "structured", "cos"])
def test_pickle_joblib_and_clone(make, features, tmp_path):
    model, t = started(make, features=features), targets(make)
    joblib.dump(model, tmp_path / "model")
    copies = [pickle.loads(pickle.dumps(model)), joblib.load(tmp_path / "model")]
    for copy in copies:
        assert same_state(model, copy)
        np.testing.assert_array_equal(scores_of(copy, NEW), scores_of(model, NEW))
    model.partial_fit(X, t)
    for copy in copies:
        assert same_state(model, copy.partial_fit(X, t))
        assert copy.fingerprint_ == model.fingerprint_
    new = clone(model)
    assert not hasattr(new, "state_")
    assert new.get_params() == model.get_params()
    assert same_state(new.fit(X, t), model.fit(X, t))


@pytest.mark.parametrize("make", EVERY)
def test_memory_does_not_grow(make):
    few = len(pickle.dumps(started(make, 8)))
    model = started(make)
    for _ in range(20):
        model.partial_fit(np.tile(X, (10, 1)), np.tile(targets(make), 10))
    assert len(pickle.dumps(model)) <= few + 64
    kept = sum(a.nbytes for a in model.state_.nodes.values())
    assert kept < 4 * 2 * 50 * 8 + 1000


def test_the_transformer():
    z = RandomFeatures("gaussian", sigma=2.0, n_components=2000, random_state=0).fit(X)
    Z = z.transform(NEW)
    gaps = NEW[:, None] - NEW[None]
    np.testing.assert_allclose(Z @ Z.T, Gaussian(2.0)(gaps), atol=0.08)
    np.testing.assert_allclose(z.transform(csr_array(NEW)), Z, atol=1e-12)
    assert z.get_feature_names_out()[:2].tolist() == ["randomfeatures0", "randomfeatures1"]
    small = clone(z).set_params(dtype="float32", n_components=31).fit(X)
    assert small.transform(NEW).dtype == np.float32
    assert small.feature_map_.variant == "cos"
    assert RandomFeatures("laplacian").fit(X).feature_map_.variant == "paired"
    many = np.random.default_rng(0).normal(size=(5000, 2))  # more rows than are mapped at once
    np.testing.assert_array_equal(z.transform(many)[4990:], z.transform(many[4990:]))


# --- widths -----------------------------------------------------------------------------


@pytest.mark.parametrize("form", [np.asarray, csr_array])
def test_widths_from_data(form):
    X = np.random.default_rng(0).normal(2, 3, size=(3000, 4))
    scale = KernelRegressor(n_components=10).partial_fit(form(X), X[:, 0]).sigma_
    assert 1 / (2 * scale**2) == pytest.approx(1 / (4 * X.var(axis=0).mean()), rel=1e-5)
    even = (X - X.mean(axis=0)) / X.std(axis=0)
    scale = KernelRegressor(n_components=10).fit(form(even), X[:, 0]).sigma_
    assert 1 / (2 * scale**2) == pytest.approx(1 / (4 * even.var()), rel=1e-5)  # gamma="scale"
    shifted = X + np.array([1013, 21, 60, -5])
    assert KernelRegressor(n_components=10).fit(form(shifted), X[:, 0]).sigma_ == pytest.approx(
        KernelRegressor(n_components=10).fit(form(X), X[:, 0]).sigma_, rel=1e-4
    )
    median = KernelRegressor(sigma="median", n_components=10).partial_fit(form(X), X[:, 0]).sigma_
    true = np.median(np.linalg.norm(X[:1500] - X[1500:], axis=1))
    assert median == pytest.approx(true, rel=0.05)


@pytest.mark.parametrize("sigma", ["scale", "median"])
def test_widths_of_data_without_spread(sigma):
    model = KernelRegressor(sigma=sigma, n_components=10).partial_fit([[3.0, 3.0]], [1.0])
    assert model.sigma_ == 1.0  # sqrt(d/2), as for unit variance


def test_a_kernel_object_has_its_own_width():
    model = KernelRegressor(Gaussian(1.0), sigma="median", n_components=50, random_state=0)
    assert same_state(model.fit(X, y), Regressor().fit(X, y))
    assert model.sigma_ == 1.0


# --- networks ---------------------------------------------------------------------------

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


# --- defaults that win ------------------------------------------------------------------


def wave(n, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, np.sin(3 * X[:, 0]) + X[:, 1] + 0.3 * rng.normal(size=n) > 0


def test_classifiers_beat_the_papers_choices_after_one_pass():
    paper = {"step": "pegasos", "average": "none"}
    gains = []
    for seed in range(4):
        (X, labels), test = wave(1000, seed), wave(2000, 100 + seed)
        for make, extra in (
            (KernelClassifier, {}),
            (functools.partial(DiffusionClassifier, n_nodes=20), {"order": "cta"}),
        ):
            ours = make(passes=1, random_state=seed).fit(X, labels)
            theirs = make(passes=1, random_state=seed, **paper, **extra).fit(X, labels)
            gains.append(ours.score(*test) - theirs.score(*test))
    assert np.mean(gains[::2]) > 0.03
    assert np.mean(gains[1::2]) > 0.01


@pytest.mark.skipif(
    not (DATA / "banana.csv.gz").exists(),
    reason=f"no banana.csv.gz in {DATA}: DOKL_DATA names another folder",
)
def test_banana_beats_the_papers_table():
    """Twenty nodes, 1300 rows, one pass: the paper has 16.38 % error, averaged over nodes."""
    with gzip.open(DATA / "banana.csv.gz") as file:
        data = np.loadtxt(file, delimiter=",", skiprows=1)
    X, labels = data[:, :2], data[:, 2]

    def error(**parameters):
        wrong = []
        for seed in range(6):
            rows = np.random.default_rng(seed).permutation(4000)[:1300]
            model = DiffusionClassifier(n_nodes=20, passes=1, random_state=seed, **parameters)
            model.fit(X[rows], labels[rows])
            nodes = [model.predict(X[4000:], nodes=k) != labels[4000:] for k in range(20)]
            wrong.append(100 * np.mean(nodes))
        return np.mean(wrong)

    given = {"sigma": 0.7, "alpha": 1 / 316, "n_components": 200}
    assert error() < 13  # every parameter left alone; 16.38 is the paper's
    assert error(**given) < 11.8  # 11.02 has been measured
    papers = error(**given, features="cos", order="cta", step="pegasos", average="none")
    assert 14.5 < papers < 17.5


@pytest.mark.parametrize(
    "make", [KernelRegressor, functools.partial(DiffusionRegressor, n_nodes=4)]
)
def test_regressors_keep_tracking(make):
    X, y = rows(6000)
    y[3000:] *= -1  # a new target, from one row to the next
    model, errors = make(sigma=1.0, n_components=200, random_state=0), []
    for i in range(0, 6000, 200):
        part = slice(i, i + 200)
        if i:
            errors.append(((model.predict(X[part]) - y[part]) ** 2).mean())
        model.partial_fit(X[part], y[part])
    before, at, after = np.mean(errors[9:14]), errors[14], np.mean(errors[-5:])
    assert at > 10 * before
    assert after < 2 * before


def test_a_quantile_is_a_quantile():
    X, y = rows(4000, noise=1.0)
    for level in (0.1, 0.9):
        model = Regressor(loss=losses.quantile(level), average="weighted").fit(X, y)
        assert (y < model.predict(X)).mean() == pytest.approx(level, abs=0.03)


# --- steps ------------------------------------------------------------------------------

FEATURES = ["auto", *VARIANTS]


@pytest.mark.parametrize("intercept", [False, True, 2.0])
@pytest.mark.parametrize("alpha", [0.0, 1e-4, 3.0])
@pytest.mark.parametrize("features", FEATURES)
def test_the_automatic_step_is_safe(features, alpha, intercept):
    """mu (curvature |z|^2 + alpha) <= 1 in every step, for whatever |z|^2 is possible."""
    shape = {"features": features, "alpha": alpha, "intercept": intercept, "n_components": 8}
    for loss in losses.BUILTIN.values():
        models = [KernelClassifier(loss=loss(), **shape).partial_fit(X[:4], [0, 1, 0, 1], [0, 1])]
        if not loss().margin:
            models.append(KernelRegressor(loss=loss(), **shape).partial_fit(X[:4], y[:4]))
        for model in models:
            c2 = float(intercept) ** 2
            longest = model.feature_map_.sup_norm2 + c2
            curvature = loss().curvature if np.isfinite(loss().curvature) else 1.0
            for q in (longest, 0.5 * longest, 1e-3 + c2):
                mu = model.schedule_(1, q)
                assert mu * alpha <= 1
                if not loss().bounded or not model._classifying:
                    assert mu * (curvature * q + alpha) <= 1 + 1e-12


@pytest.mark.parametrize("features", FEATURES)
@pytest.mark.parametrize("loss", sorted(losses.BUILTIN))
def test_the_automatic_step_never_diverges(loss, features):
    rng = np.random.default_rng(0)
    X, noise = rng.normal(size=(2000, 3)), rng.normal(size=2000)
    for alpha in (0.0, 1e-2, 20.0):
        parameters = {"loss": loss, "features": features, "alpha": alpha, "intercept": True}
        make = functools.partial(KernelClassifier, n_components=16, random_state=0, **parameters)
        assert np.isfinite(make().fit(X, noise > 0).decision_function(X)).all()
        if not losses.resolve(loss).margin:
            make = functools.partial(KernelRegressor, n_components=16, random_state=0, **parameters)
            assert np.abs(make().fit(X, noise).predict(X)).max() < 10


def test_steps_by_every_kind_of_name():
    def schedule(model):
        return model.partial_fit(X[:4], [0, 1, 0, 1], classes=[0, 1]).schedule_

    auto = schedule(Classifier())
    assert (auto.name, auto.scale, auto.offset) == ("pegasos", 1e4, pytest.approx(1e3))
    paper = schedule(Classifier(step="pegasos", alpha=0.01))
    assert (paper.name, paper.scale, paper.offset) == ("pegasos", 100.0, 0.0)
    assert schedule(Classifier(step=0.3)).name == "constant"
    assert schedule(Classifier(step=schedules.sqrt(0.3))).name == "sqrt"
    regressor = started(Regressor)
    assert regressor.schedule_(10_000, 1.0) == pytest.approx(0.5)
    with pytest.raises(BadInput, match=r"e.g. dokl.schedules.inverse_power\(...\)"):
        schedule(Classifier(step="inverse_power"))


def test_functions_of_your_own():
    def slope(y, f):
        return f - y

    mine = losses.Loss("mine", lambda y, f: 0.5 * (f - y) ** 2, slope, curvature=1.0)
    own = Regressor(loss=mine, step=lambda n, q: 0.5 / q, engine="reference").partial_fit(X, y)
    builtin = Regressor(engine="reference").partial_fit(X, y)
    np.testing.assert_allclose(own.predict(NEW), builtin.predict(NEW), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("make", EVERY)
def test_both_engines(make):
    a, b = (started(make, engine=e, dtype="float64") for e in ("numba", "reference"))
    assert (a.engine_, b.engine_) == ("numba", "reference")
    np.testing.assert_allclose(scores_of(a, NEW), scores_of(b, NEW), rtol=1e-7, atol=1e-9)


# --- speed ------------------------------------------------------------------------------


def test_many_inputs_that_drown_the_one_that_matters_are_said():
    X = np.random.default_rng(0).normal(size=(300, 400))
    for model, y in (
        (KernelRegressor(n_components=100, random_state=0), 2 * X[:, 0]),
        (KernelClassifier(n_components=100, random_state=0), X[:, 0] > 1.0),
    ):
        with pytest.warns(NothingLearned, match="400 inputs count alike"):
            model.fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        copies = np.repeat(X[:, :2], 200, axis=1)  # as many inputs, and all of them matter
        KernelRegressor(n_components=100, random_state=0).fit(copies, 2 * X[:, 0])
