"""Classifiers' probabilities, and estimators among scikit-learn's own."""

import functools
import pickle

import joblib
import numpy as np
import pytest
from gradient_models import (
    EVERY,
    NEW,
    TRUE,
    Classifier,
    Network,
    NetworkOfClassifiers,
    X,
    same_state,
    scores_of,
    started,
    targets,
    three,
    y,
)
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from dokl import (
    DiffusionClassifier,
    Gaussian,
    KernelClassifier,
    KernelRegressor,
    RandomFeatures,
    losses,
)

# -- probabilities --------------------------------------------------------------------------------


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


# -- scikit-learn's company -----------------------------------------------------------------------


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
