"""Estimators without settings in River: inputs and classes that come up late, gaps, batches."""

import math
import pickle
import warnings

import numpy as np
import pytest

pytest.importorskip("river")

import pandas as pd
from river import evaluate, metrics

from dokl import estimators
from dokl.base.errors import BadInput
from dokl.estimators import river_inputs
from dokl.estimators.river import (
    AutoClassifier,
    AutoRegressor,
    KernelClassifier,
    KernelRegressor,
)
from dokl.estimators.river_inputs import IgnoredInput

pytestmark = pytest.mark.usefixtures("short_searches")

SMALL = {"n_components": 10, "experts": "one"}


def rows(n, d=3, seed=0):
    """X: (n, d) of unlike sizes, a smooth target far from 0, and three classes."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * 10.0 ** np.arange(d) + 5.0
    y = 1e4 + np.sin(X[:, 0]) + X[:, 1] / 10
    return X, y, np.array(["low", "middle", "high"])[np.digitize(y, [1e4, 1e4 + 1.0])]


def dicts(X, names="abcdefgh"):
    return [dict(zip(names, x.tolist(), strict=False)) for x in X]


def frame(X, names="abcdefgh"):
    return pd.DataFrame(X, columns=list(names[: X.shape[1]]))


def loop(model, xs, ys):
    for x, y in zip(xs, ys, strict=True):
        model.learn_one(x, y)
    return model


# -- learning ------------------------------------------------------------------------------------
def test_it_is_the_estimator_of_the_same_rows():
    X, y, _ = rows(130)
    ours = loop(AutoRegressor(20, seed=3), dicts(X), y.tolist())
    theirs = estimators.AutoRegressor(20, random_state=3).partial_fit(X, y)
    np.testing.assert_allclose(ours.predict_many(frame(X)), theirs.predict(X), rtol=1e-9)
    assert ours.features == ["a", "b", "c"]
    assert ours.relevance == pytest.approx(dict(zip("abc", theirs.relevance_, strict=True)))
    assert ours.seen == 130


def test_raw_features_and_targets_need_no_care():
    X, y, labels = rows(400)
    model, errors = AutoRegressor(100), []
    for x, t in zip(dicts(X), y.tolist(), strict=True):
        errors.append((model.predict_one(x) or 0.0) - t)
        model.learn_one(x, t)
    assert np.var(errors[200:]) < 0.05 * np.var(y)
    classifier = AutoClassifier(100)
    classifier.learn_many(frame(X[:300]), pd.Series(labels[:300]))
    assert np.mean(classifier.predict_many(frame(X[300:])) == labels[300:]) > 0.85


def test_batches_are_the_loop_however_they_are_cut():
    X, y, labels = rows(140)
    X[np.random.default_rng(1).random(X.shape) < 0.2] = np.nan
    for model, t in ((AutoRegressor(**SMALL), y), (AutoClassifier(**SMALL), labels)):
        one, many = loop(model.clone(), dicts(X), t.tolist()), model.clone()
        for a, b in ((0, 10), (10, 70), (70, 140)):
            many.learn_many(frame(X[a:b]), pd.Series(t[a:b]))
        found = many.predict_many(frame(X))
        for i, x in enumerate(dicts(X)):
            same = found[i] if t is labels else pytest.approx(found[i], rel=1e-9)
            assert one.predict_one(x) == same


def test_weights_count_rows_and_nothing_is_no_row():
    X, y, _ = rows(40)
    model = AutoRegressor(**SMALL)
    model.learn_many(frame(X), pd.Series(y), w=np.arange(40) % 2.0)
    same = loop(AutoRegressor(**SMALL), dicts(X[1::2]), y[1::2].tolist())
    assert model.seen == same.seen == 20
    assert model.predict_one({"a": 1.0}) == same.predict_one({"a": 1.0})


def test_an_empty_model_and_empty_rows():
    X = frame(np.ones((2, 1)))
    regressor, classifier = AutoRegressor(**SMALL), AutoClassifier(**SMALL)
    assert regressor.predict_one({"a": 1.0}) is None
    assert classifier.predict_one({"a": 1.0}) is None
    assert list(classifier.predict_many(X)) == [None, None]
    assert regressor.relevance == {}
    regressor.learn_many(X[:0], pd.Series([], dtype=float))
    for _ in range(40):
        regressor.learn_one({}, 2.0)
        classifier.learn_one({}, "only")
    assert regressor.predict_one({"a": 1.0}) == pytest.approx(2.0)
    assert classifier.predict_one({}) == "only"
    assert len(regressor.predict_many(X[:0])) == len(classifier.predict_many(X[:0])) == 0


# -- inputs --------------------------------------------------------------------------------------
def test_what_is_missing_stands_at_the_mean_of_the_rows_before():
    X, y, _ = rows(60)
    model = loop(AutoRegressor(**SMALL), dicts(X), y.tolist())
    at_mean = model.predict_one({"a": 1.0, "b": 2.0, "c": float(X[:, 2].mean())})
    for gap in ({}, {"c": None}, {"c": math.nan}):
        assert model.predict_one({"a": 1.0, "b": 2.0, **gap}) == pytest.approx(at_mean, rel=1e-12)
    sparse = loop(AutoRegressor(**SMALL, missing="zero"), dicts(X), y.tolist())
    x = {"a": 1.0, "b": 2.0}
    assert sparse.predict_one(x) == sparse.predict_one({**x, "c": 0.0})


def test_inputs_come_up_in_the_first_rows_and_before_row_1000():
    X, y, _ = rows(130, d=3)
    xs = dicts(X)
    for x in xs[:10]:
        del x["b"]  # comes up at row 10, which all rows so far are learned again with
    for x in xs[:80]:
        del x["c"]  # comes up later, and waits for row 125
    model = loop(AutoRegressor(**SMALL), xs[:120], y[:120].tolist())
    assert model.features == ["a", "b"]
    loop(model, xs[120:], y[120:].tolist())
    assert model.features == ["a", "b", "c"]
    X[:10, 1], X[:80, 2] = X[10, 1], X[80, 2]  # before its first value, that one stands for it
    same = loop(AutoRegressor(**SMALL), dicts(X), y.tolist())
    x = {"a": 1.0, "b": 3.0, "c": 40.0}
    assert model.predict_one(x) == pytest.approx(same.predict_one(x), rel=1e-9)


@pytest.fixture
def soon(monkeypatch):
    """The first rows end at row 60, for speed."""
    assert river_inputs.INTAKES == (30, 60, 125, 250, 500, 1000)
    monkeypatch.setattr(river_inputs, "INTAKES", (30, 60))


def test_inputs_that_come_up_later_are_ignored_with_one_warning(soon):
    X, y, _ = rows(60)
    model = AutoRegressor(**SMALL)
    model.learn_many(frame(X), pd.Series(y))
    assert model._columns.first is None  # the rows are no longer kept
    with pytest.warns(IgnoredInput, match="'late' came up after 60 rows"):
        model.learn_one({"a": 1.0, "late": 1.0}, 1e4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.learn_one({"a": 1.0, "late": None, "later": 1.0}, 1e4)
    assert model.ignored == 2
    assert model.features == ["a", "b", "c"]
    assert model.predict_one({"late": 9.0}) == model.predict_one({})


# -- classes -------------------------------------------------------------------------------------
@pytest.mark.parametrize("last", ["low", "middle", "high"])
def test_a_class_that_comes_up_late_is_as_if_known_from_the_start(last):
    X, _, labels = rows(100)
    order = np.argsort(labels == last, kind="stable")
    X, labels = X[order], labels[order]
    names = list(dict.fromkeys(labels.tolist()))
    late = loop(AutoClassifier(**SMALL), dicts(X), labels.tolist())
    known = loop(AutoClassifier(**SMALL, classes=names), dicts(X), labels.tolist())
    ours, theirs = (m.estimator.decision_function(X) for m in (late, known))
    np.testing.assert_allclose(ours, theirs, rtol=1e-7, atol=1e-9)


def test_a_class_that_comes_up_after_the_first_rows_begins_with_those_that_are_kept(soon):
    X, y, _ = rows(240)
    X[:120, 2], X[120:, 2] = -100.0, np.where(np.arange(120) % 2, 100.0, -100.0)
    labels = np.where(y > 1e4 + 0.5, "above", "below").astype(object)
    labels[X[:, 2] > 0] = "far"
    model = AutoClassifier(**SMALL)
    model.learn_many(frame(X[:120]), pd.Series(labels[:120]))
    assert set(model.predict_many(frame(X))) == {"above", "below"}
    model.learn_many(frame(X[120:]), pd.Series(labels[120:]))
    assert model.seen == 240
    found = model.predict_many(frame(X))
    assert np.mean((found == "far") == (labels == "far")) > 0.95
    assert set(found) == {"above", "below", "far"}


def test_probabilities_are_those_of_the_estimator():
    X, _, labels = rows(60)
    model = loop(AutoClassifier(**SMALL), dicts(X), labels.tolist())
    p = model.predict_proba_many(frame(X))
    assert p.columns.tolist() == list(dict.fromkeys(labels.tolist()))
    np.testing.assert_allclose(p, model.estimator.predict_proba(X), rtol=1e-9)
    one = model.predict_proba_one(dicts(X)[0])
    assert one == pytest.approx(p.iloc[0].to_dict())
    assert max(one, key=one.get) == model.predict_one(dicts(X)[0])
    assert AutoClassifier().predict_proba_one({"a": 1.0}) == {}
    single = AutoClassifier(**SMALL)
    single.learn_one({"a": 1.0}, "only")
    assert single.predict_proba_one({"a": 1.0}) == {"only": 1.0}


# -- keeping, and bad input ----------------------------------------------------------------------
def test_a_pickle_goes_on_as_if_nothing_had_been():
    X, _, labels = rows(90)
    model = loop(AutoClassifier(**SMALL), dicts(X[:50]), labels[:50].tolist())
    back = pickle.loads(pickle.dumps(model))
    for each in (model, back):
        loop(each, dicts(X[50:]), labels[50:].tolist())
    assert list(model.predict_many(frame(X))) == list(back.predict_many(frame(X)))


def test_a_call_that_fails_changes_nothing():
    X, y, labels = rows(40)
    model = loop(AutoRegressor(**SMALL), dicts(X), y.tolist())
    saved = pickle.dumps(model)
    for x, target, w, message in (
        ({"a": 1.0}, math.nan, 1.0, "a target is NaN or infinite"),
        ({"a": 1.0}, "much", 1.0, "must be a number"),
        ({"new": math.inf}, 1.0, 1.0, "'new' is infinite"),
        ({"a": "red"}, 1.0, 1.0, "'a' is 'red', not a number"),
        ({"new": 1.0}, 1.0, -1.0, "sample_weight"),
        ({"a": 1e200}, 1.0, 1.0, "'a' holds more than can be squared"),
    ):
        with pytest.raises(BadInput, match=message):
            model.learn_one(x, target, w)
    assert pickle.dumps(model) == saved
    classifier = loop(AutoClassifier(**SMALL), dicts(X), labels.tolist())
    saved = pickle.dumps(classifier)
    with pytest.raises(BadInput, match="not a label"):
        classifier.learn_one({"a": 1.0}, None)
    with pytest.raises(BadInput, match="sample_weight"):
        classifier.learn_one({"a": 1.0}, "a fourth", w=-1.0)
    assert pickle.dumps(classifier) == saved


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_components": 0}, "n_components"),
        ({"experts": "none"}, "experts"),
        ({"missing": "median"}, "'mean'"),
        ({"bound": 0.0}, "bound"),
    ],
)
def test_bad_parameters_are_refused_at_once(parameters, message):
    with pytest.raises(BadInput, match=message):
        AutoRegressor(**parameters)


def test_before_the_first_target_nothing_is_predicted():
    X, y, _ = rows(60)
    model = AutoRegressor(50)
    assert model.predict_one({"x0": 1.0}) is None
    assert model.predict_many(frame(X[:3])).isna().all()
    # River leaves rows without a prediction out of the metric: the first one costs nothing.
    stream = [(dict(zip("abc", x, strict=False)), t) for x, t in zip(X, y, strict=True)]
    assert evaluate.progressive_val_score(stream, AutoRegressor(50), metrics.MAE()).get() < 10.0


@pytest.mark.parametrize("kind", [AutoRegressor, AutoClassifier, KernelRegressor, KernelClassifier])
def test_a_seed_may_be_called_as_in_river_or_as_in_scikit_learn(kind):
    X = rows(60)[0] / [1.0, 10.0, 100.0]
    y = (X[:, 0] > 5).astype(int).tolist()

    def said(**seeds):
        model = loop(kind(n_components=20, **seeds), dicts(X), y)
        again = pickle.loads(pickle.dumps(model))
        probe = dicts(X[:20])
        known = hasattr(model, "predict_proba_one")
        found = [m.predict_proba_one(x) if known else m.predict_one(x)
                 for m in (model, again) for x in probe]  # fmt: skip
        assert found[:20] == found[20:]  # None is drawn once
        return found

    assert said(seed=3) == said(random_state=3) == said(seed=5, random_state=3)
    if kind is KernelRegressor:
        assert said(seed=3) != said(seed=4)
        assert said(seed=None) != said(seed=None)
    assert kind(random_state=7).clone().random_state == 7
