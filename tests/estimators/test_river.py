"""The River adapter: River's own checks, features by name, classes that appear, batches."""

import copy
import importlib
import math
import pickle
import sys

import numpy as np
import pytest

pytest.importorskip("river")

import pandas as pd
from river import checks, datasets, evaluate, metrics, preprocessing

from dokl import Gaussian, Laplacian, Matern, kernels, losses
from dokl.base.errors import BadInput, Diverged, MissingExtra
from dokl.estimators.river import AutoClassifier, AutoRegressor, KernelClassifier, KernelRegressor
from dokl.estimators.river_inputs import NamedFrequencies, Table, label_of

MODELS = {
    "regressor": KernelRegressor(),
    "regressor, few features at hand": KernelRegressor("matern32", max_features=3, intercept=True),
    "regressor, averaged": KernelRegressor("cauchy", loss="huber", average="uniform", alpha=1e-3),
    "classifier": KernelClassifier(),
    "classifier, hinge": KernelClassifier("laplacian", loss="hinge", max_features=5),
    "classifier, standardised": KernelClassifier(standardise=True),
    "auto regressor": AutoRegressor(n_components=10),
    "auto classifier": AutoClassifier(n_components=10, experts="one"),
}


def named_checks():
    for name, model in MODELS.items():
        skips = model._unit_test_skips()
        assert not skips
        again = set()
        for number, check in enumerate(checks.yield_checks(model)):
            # One data set is enough for what takes long: banks, and memory over ten times the rows;
            # and one bank, which is that of one expert.
            grows, bank = check.__name__ == "check_bounded_memory_growth", name.startswith("auto")
            long = (bank or grows) and check.__name__ in again
            long |= name == "auto regressor"
            again.add(check.__name__)
            marks = [pytest.mark.slow] if long else []
            yield pytest.param(model, check, id=f"{name}-{check.__name__}-{number}", marks=marks)


@pytest.mark.usefixtures("short_searches")
@pytest.mark.parametrize(("model", "check"), list(named_checks()))
def test_rivers_own_checks(model, check):
    check(model.clone())


def stream(n, d=4, seed=0, gaps=0.3):
    """Rows as dicts in which features are missing, in changing order, and three classes."""
    rng = np.random.default_rng(seed)
    for _ in range(n):
        x = rng.normal(size=d)
        names = [j for j in rng.permutation(d) if rng.random() > gaps]
        label = ("none", "one", "both")[int(x[0] > 0) + int(x[1] > 0)]
        yield {f"x{j}": float(x[j]) for j in names}, float(np.sin(x[0]) + x[1] ** 2), label


def frame(rows, order=None):
    return pd.DataFrame([x for x, *_ in rows], columns=order)


# -- frequencies by name -------------------------------------------------------------------------
def test_a_names_frequencies_never_change():
    row = NamedFrequencies(Gaussian(2.0), F=3, seed=5).row("age")
    golden = [-0.2915172810132065, -0.21885211315291075, -0.5270384649997532]
    np.testing.assert_allclose(row, golden, rtol=1e-12)


def test_names_equal_as_keys_have_equal_labels():
    assert label_of(1) == label_of(1.0) == label_of(True) == label_of(np.int64(1))
    assert label_of((1, "a")) == label_of((1.0, "a"))
    labels = [label_of(n) for n in ("1", 1, 1.5, (1,), ("1",), None, "json", ("a", ("b",)))]
    assert len(set(labels)) == len(labels)
    with pytest.raises(BadInput, match="drawn from its name"):
        label_of(object())


@pytest.mark.parametrize(
    "kernel",
    [
        Gaussian(1.5),
        Matern(2.0, nu=1.5),
        kernels.Cauchy(2.0),
        kernels.RationalQuadratic(1.0),
        Laplacian(3.0),
    ],
)
def test_the_features_are_those_of_the_kernel(kernel):
    frequencies = NamedFrequencies(kernel, F=20_000, seed=1)
    delta = np.array([0.7, -0.4, 1.1])
    angles = sum(v * frequencies.row(name) for v, name in zip(delta, "abc", strict=True))
    assert np.cos(angles).mean() == pytest.approx(float(kernel(delta)), abs=0.02)
    # one input alone: the others contribute nothing
    alone = float(kernel(np.array([0.7, 0.0, 0.0])))
    assert np.cos(0.7 * frequencies.row("a")).mean() == pytest.approx(alone, abs=0.02)


def test_a_kernel_that_cannot_be_drawn_by_name_is_refused():
    mine = kernels.Custom(lambda v: v.sum(-1), lambda rng, n, d: rng.random((n, d)), name="mine")
    with pytest.raises(BadInput, match="input by input"):
        KernelRegressor(mine)


def test_the_table_is_bounded_and_forgets_nothing_that_matters():
    table = Table(NamedFrequencies(Gaussian(1.0), F=4, seed=0), limit=3)
    first = table.turns[table.slots(["a"])[0]].copy()
    for name in "bcdefg":
        table.slots([name])
    assert len(table.turns) == 3
    assert "a" not in table.slot_of
    np.testing.assert_array_equal(table.turns[table.slots(["a"])[0]], first)


def test_rows_in_use_are_not_evicted_by_the_same_call():
    table = Table(NamedFrequencies(Gaussian(1.0), F=2, seed=0), limit=3)
    table.slots("abc")
    slots = table.slots("dea")  # a is the oldest, and needed
    assert len(set(slots)) == 3
    expected = [table.frequencies.row(name) / (2 * np.pi) for name in "dea"]
    np.testing.assert_array_equal(table.turns[slots], expected)
    assert len(set(table.slots("abcdefgh"))) == 8  # one call may need more than the limit


def test_how_many_features_are_at_hand_makes_no_difference():
    few, many = KernelRegressor(max_features=2), KernelRegressor()
    for x, y, _ in stream(150, d=6):
        assert few.predict_one(x) == pytest.approx(many.predict_one(x), rel=1e-9, abs=1e-12)
        few.learn_one(x, y)
        many.learn_one(x, y)
    assert len(few.machine.table.turns) <= 6


def test_absent_zero_none_and_nan_are_the_same():
    model = KernelRegressor()
    for x, y, _ in stream(30):
        model.learn_one(x, y)
    plain = model.predict_one({"x0": 0.5})
    for nothing in (0, 0.0, None, math.nan, False):
        assert model.predict_one({"x0": 0.5, "x1": nothing}) == plain
    assert model.predict_one({}) == model.predict_one({"unheard of": 0})


# -- learning ------------------------------------------------------------------------------------
def naive_scores(rows, classes, model, slope):
    """One vector per class, all known from the start, as plain loops."""
    frequencies = NamedFrequencies(Gaussian(model.sigma), model.n_components // 2, model.seed)
    theta = np.zeros((len(classes), model.n_components))
    schedule = model.machine.method.schedule
    for n, (x, label) in enumerate(rows, 1):
        z, mu = naive_features(frequencies, x), schedule(n, 1.0)
        for c, name in enumerate(classes):
            y = 1.0 if name == label else -1.0
            pull = mu * slope(y, theta[c] @ z)
            theta[c] = (1 - mu * model.alpha) * theta[c] - pull * z
    return lambda x: theta @ naive_features(frequencies, x)


def naive_features(frequencies, x):
    angles = sum((v * frequencies.row(name) for name, v in x.items()), np.zeros(frequencies.F))
    return np.concatenate([np.cos(angles), np.sin(angles)]) / math.sqrt(frequencies.F)


def test_classes_that_appear_late_are_as_if_known_from_the_start():
    rows = [(x, label) for x, _, label in stream(120)]
    rows.sort(key=lambda row: row[1] == "both")  # this class comes last
    model = KernelClassifier(n_components=40, average="none", loss="hinge")
    for x, label in rows:
        model.learn_one(x, label)
    classes = list(dict.fromkeys(label for _, label in rows))
    scores = naive_scores(rows, classes, model, losses.hinge().slope)
    for x, _ in rows:
        ours = model._scores(model._one(x))[0, 1:]
        np.testing.assert_allclose(ours, scores(x), rtol=1e-8, atol=1e-9)


def test_learn_many_is_learn_one_in_a_loop():
    rows = list(stream(90))
    one, many = KernelClassifier(intercept=True), KernelClassifier(intercept=True)
    reg_one, reg_many = KernelRegressor("laplacian"), KernelRegressor("laplacian")
    for start in (0, 7, 60):
        part = rows[start : {0: 7, 7: 60, 60: 90}[start]]
        for x, y, label in part:
            one.learn_one(x, label)
            reg_one.learn_one(x, y)
        many.learn_many(frame(part), pd.Series([label for *_, label in part]))
        reg_many.learn_many(frame(part), pd.Series([y for _, y, _ in part]))
    X = frame(rows)
    proba = many.predict_proba_many(X)
    for i, (x, *_) in enumerate(rows):
        p = one.predict_proba_one(x)
        assert list(p) == list(proba.columns)
        np.testing.assert_allclose(list(p.values()), proba.iloc[i], rtol=1e-9)
        assert one.predict_one(x) == many.predict_many(X)[i]
        assert reg_one.predict_one(x) == pytest.approx(reg_many.predict_many(X)[i], rel=1e-9)


def test_empty_batches_and_an_empty_model():
    model, X = KernelClassifier(), pd.DataFrame({"a": [1.0, 2.0]}, index=[5, 6])
    model.learn_many(X[:0], pd.Series([], dtype=object))
    assert model.predict_one({"a": 1.0}) is None
    assert model.predict_proba_one({"a": 1.0}) == {}
    assert list(model.predict_many(X)) == [None, None]
    assert model.predict_proba_many(X).shape == (2, 0)
    regressor = KernelRegressor()
    regressor.learn_many(X[:0], pd.Series([], dtype=float))
    assert regressor.predict_one({"a": 1.0}) == 0.0
    assert list(regressor.predict_many(X).index) == [5, 6]


def test_weights_multiply_the_step():
    whole, weighted = KernelRegressor(step=0.5), KernelRegressor(step=1.0)
    for x, y, _ in stream(20):
        whole.learn_one(x, y)
        weighted.learn_one(x, y, w=0.5)
    x = next(stream(1))[0]
    assert whole.predict_one(x) == pytest.approx(weighted.predict_one(x))
    before = whole.predict_one(x)
    whole.learn_one(x, 100.0, w=0.0)
    assert whole.predict_one(x) == before


def test_it_learns_what_neither_input_says_alone():
    rng, model, hits = np.random.default_rng(0), KernelClassifier(sigma=0.5), []
    for _ in range(1200):
        a, b = rng.uniform(-1, 1, 2)
        x, y = {"a": float(a), "b": float(b)}, bool(a * b > 0)
        hits.append(model.predict_one(x) == y)
        model.learn_one(x, y)
    assert np.mean(hits[-400:]) > 0.94


def test_it_works_in_a_pipeline():
    model = preprocessing.StandardScaler() | KernelRegressor(sigma=3.0, intercept=True)
    score = evaluate.progressive_val_score(datasets.TrumpApproval(), model, metrics.MAE())
    assert score.get() < 1.0


# -- running standardisation ---------------------------------------------------------------------
def test_standardising_is_what_a_scaler_before_the_model_does():
    ours, scaler = KernelRegressor(standardise=True), preprocessing.StandardScaler()
    classifier = KernelClassifier(standardise=True)
    piped, classes = scaler | KernelRegressor(), scaler.clone() | KernelClassifier()
    for x, y, label in stream(60):
        x = {name: 100.0 + 7.0 * value for name, value in x.items()}
        assert ours.predict_one(x) == pytest.approx(piped.predict_one(x), rel=1e-6, abs=1e-9)
        assert classifier.predict_one(x) == classes.predict_one(x)
        for model, target in ((ours, y), (piped, y), (classifier, label), (classes, label)):
            model.learn_one(x, target)


def test_standardised_batches_are_the_loop():
    rows = [({k: 3.0 * v - 9.0 for k, v in x.items()}, y) for x, y, _ in stream(50)]
    one, many = KernelRegressor(standardise=True), KernelRegressor(standardise=True)
    for x, y in rows:
        one.learn_one(x, y)
    many.learn_many(frame(rows[:20]), pd.Series([y for _, y in rows[:20]]))
    many.learn_many(frame(rows[20:]), pd.Series([y for _, y in rows[20:]]))
    predicted = many.predict_many(frame(rows))
    for i, (x, _) in enumerate(rows):
        assert one.predict_one(x) == pytest.approx(predicted[i], rel=1e-9)
    # the mean of a feature is what an absent one stands at, and a new one says nothing
    assert one.predict_one({"x0": 1.0, "new": 5.0, "x1": None}) == one.predict_one({"x0": 1.0})


def test_a_call_that_fails_leaves_the_scaling():
    model = KernelRegressor(standardise=True)
    for x, y, _ in stream(20):
        model.learn_one(x, y)
    saved = pickle.dumps(model)
    with pytest.raises(BadInput, match="NaN or infinite"):
        model.learn_one({"x0": 100.0, "new": 1.0}, math.nan)
    with pytest.raises(BadInput, match="'x0' holds more than can be squared"):
        model.learn_one({"x0": 1e200}, 0.0)
    assert pickle.dumps(model) == saved


# -- keeping -------------------------------------------------------------------------------------
def test_a_pickle_holds_what_was_learned_and_no_frequencies():
    model = KernelClassifier(n_components=100)
    for x, _, label in stream(60):
        model.learn_one(x, label)
    saved = pickle.dumps(model)
    assert len(saved) < 8 * 100 * (2 * 4 + 1)  # theta and its mean, four outputs, and little else
    back = pickle.loads(saved)
    for x, *_ in stream(20, seed=1):
        assert back.predict_proba_one(x) == model.predict_proba_one(x)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: m.clone(include_attributes=True)])
@pytest.mark.parametrize("model", [KernelRegressor(), AutoRegressor(10, "one")])
def test_copies_go_their_own_way(copied, model):
    model = model.clone()
    for x, y, _ in stream(20):
        model.learn_one(x, y)
    twin, x = copied(model), {"x0": 1.0, "new": 0.5}
    before = model.predict_one(x)
    assert twin.predict_one(x) == before
    for number in range(40):
        twin.learn_one({f"other {number}": 1.0}, 5.0)
    assert model.predict_one(x) == before
    assert twin.predict_one(x) != before


# -- bad input -----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("x", "message"),
    [
        ({"a": 1.0, "b": "red"}, "'b' is 'red', not a number"),
        ({"b": "3"}, "'b' is '3', not a number"),
        ({"b": [1.0, 2.0]}, "'b' is .*, not a number"),
        ({"a": math.inf}, "'a' is infinite"),
        ({"a": math.nan, "b": -math.inf}, "'b' is infinite"),
    ],
)
def test_what_is_no_number_is_named(x, message):
    model = KernelRegressor()
    with pytest.raises(BadInput, match=message):
        model.learn_one(x, 1.0)
    with pytest.raises(BadInput, match=message):
        model.predict_one(x)


def test_bad_frames_are_refused():
    with pytest.raises(BadInput, match="must hold numbers"):
        KernelRegressor().predict_many(pd.DataFrame({"a": ["red"]}))
    with pytest.raises(BadInput, match="'b' is infinite"):
        KernelRegressor().predict_many(pd.DataFrame({"a": [1.0], "b": [-np.inf]}))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_components": 3}, "must be even: use 4"),
        ({"sigma": 0.0}, "sigma"),
        ({"kernel": "gausian"}, "gaussian"),
        ({"loss": "hinge"}, "regressor takes"),
        ({"max_features": 0}, "max_features"),
        ({"seed": -1}, "seed"),
        (
            {"loss": losses.Loss("mine", lambda y, f: 0.0, lambda y, f: object())},
            "cannot run this problem",
        ),
    ],
)
def test_bad_parameters_are_refused_at_once(parameters, message):
    with pytest.raises(BadInput, match=message):
        KernelRegressor(**parameters)


def test_a_call_that_fails_changes_nothing():
    model = KernelClassifier()
    model.learn_one({"a": 1.0}, "x")
    saved = pickle.dumps(model)
    with pytest.raises(BadInput, match="not a label"):
        model.learn_one({"a": 1.0}, None)
    with pytest.raises(BadInput, match="sample_weight"):
        model.learn_one({"a": 1.0}, "new", w=-1.0)
    assert pickle.dumps(model) == saved
    regressor = KernelRegressor(step=5.0)
    with pytest.raises(BadInput, match="NaN or infinite"):
        regressor.learn_one({"a": 1.0}, math.nan)
    with pytest.raises(Diverged):
        regressor.learn_many(pd.DataFrame({"a": np.ones(100)}), pd.Series(np.ones(100)))
    assert regressor.predict_one({"a": 1.0}) == 0.0


def test_without_river_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "river", None)
    monkeypatch.delitem(sys.modules, "dokl.estimators.river")
    with pytest.raises(MissingExtra, match=r"dokl\[river\]"):
        importlib.import_module("dokl.estimators.river")
