"""Widths, defaults and steps of the gradient method."""

import functools
import gzip
import os
import warnings
from pathlib import Path

import numpy as np
import pytest
from gradient_models import (
    EVERY,
    NEW,
    Classifier,
    Regressor,
    X,
    rows,
    same_state,
    scores_of,
    started,
    y,
)
from scipy.sparse import csr_array

from dokl import (
    DiffusionClassifier,
    DiffusionRegressor,
    Gaussian,
    KernelClassifier,
    KernelRegressor,
    losses,
    schedules,
)
from dokl.base.errors import BadInput
from dokl.estimators.learner import NothingLearned
from dokl.learning.features import VARIANTS

DATA = Path(os.environ.get("DOKL_DATA", Path(__file__).parents[3] / "shared" / "data"))


# -- widths ---------------------------------------------------------------------------------------


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


# -- defaults that win ----------------------------------------------------------------------------


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


# -- steps ----------------------------------------------------------------------------------------


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


# -- many inputs ----------------------------------------------------------------------------------


def test_many_inputs_that_drown_the_one_that_matters_are_said():
    X = np.random.default_rng(0).normal(size=(300, 400))
    for model, target in (
        (KernelRegressor(n_components=100, random_state=0), 2 * X[:, 0]),
        (KernelClassifier(n_components=100, random_state=0), X[:, 0] > 1.0),
    ):
        with pytest.warns(NothingLearned, match="400 inputs count equally"):
            model.fit(X, target)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        copies = np.repeat(X[:, :2], 200, axis=1)  # as many inputs, and all of them matter
        KernelRegressor(n_components=100, random_state=0).fit(copies, 2 * X[:, 0])
