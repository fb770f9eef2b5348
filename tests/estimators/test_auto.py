"""Estimators without settings: what needs no care, any cut, files, intervals, adding, refusals."""

import copy
import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import dokl
from dokl import AutoClassifier, AutoRegressor
from dokl.base.errors import BadFile, BadInput, FingerprintMismatch, UnknownName
from dokl.learning.experts import saving as banks
from dokl.learning.experts.bank import features
from dokl.learning.experts.kinds import for_numbers
from variants import first

pytestmark = pytest.mark.usefixtures("short_searches")
RNG = np.random.default_rng(0)
X = RNG.normal(size=(700, 3))
Y = np.sin(2 * X[:, 0]) + X[:, 1] ** 2 + 0.05 * RNG.normal(size=700)
LABELS = np.array(["low", "mid", "high"])[np.digitize(Y, [0.2, 1.0])]
SMALL = {"n_components": 60, "random_state": 0}


def error(f, y=Y, start=300):
    return float(np.mean((f - y)[start:] ** 2) / np.var(y[start:]))


@pytest.fixture(scope="module")
def taught(short_searches_of_module):
    """A model of all rows, and what it said of each before: means and standard deviations."""
    with short_searches_of_module():
        model = AutoRegressor(**SMALL)
        return model, *model.prequential(X, Y, return_std=True)


@pytest.fixture
def model(taught):
    return taught[0]


@pytest.mark.full_searches
def test_it_learns_in_one_pass_and_says_what_matters():
    model = AutoRegressor(**SMALL)
    f = model.prequential(X, Y)
    assert error(f) < 0.02
    assert model.relevance_[2] < 0.1 < model.relevance_[:2].min()
    assert model.remembers_.startswith("remembers ")
    experts = model.experts_
    assert len(experts) == len(for_numbers())
    assert sum(row["weight"] for row in experts) == pytest.approx(1.0)
    assert experts[0]["weight"] == max(row["weight"] for row in experts)


def test_inputs_with_a_linear_effect_are_relevant():
    y = np.sin(2 * X[:, 0]) + 3 * X[:, 1]
    found = AutoRegressor(**SMALL).fit(X[:300], y[:300])
    assert found.relevance_[1] > 0.6
    assert found.relevance_[2] < 0.05 < found.relevance_[0]
    labels = AutoClassifier(**SMALL).fit(X[:300], X[:300, 1] > 0)
    assert labels.relevance_.argmax() == 1


@pytest.fixture(scope="module")
def uncut(short_searches_of_module):
    """A model of the first 330 rows, and what it said of them."""
    with short_searches_of_module():
        model = AutoRegressor(**SMALL)
        return model, model.prequential(X[:330], Y[:330])


@pytest.mark.parametrize("cut", [1, 37, 256])
def test_any_cut_gives_the_same(cut, uncut):
    (whole, f), cut_up, told = uncut, AutoRegressor(**SMALL), []
    for i in range(0, 330, cut):
        told.append(cut_up.prequential(X[i : min(330, i + cut)], Y[i : min(330, i + cut)]))
    np.testing.assert_allclose(np.concatenate(told), f, atol=1e-7)
    np.testing.assert_allclose(cut_up.predict(X), whole.predict(X), atol=1e-7)


def test_offset_scale_constant_columns_and_first_zeros_change_nothing(taught):
    _, plain, _ = taught
    for offset, scale in ((1e4, 1.0), (0.0, 1e-6), (-3e7, 1e3)):
        f = AutoRegressor(**SMALL).prequential(X[:300], offset + scale * Y[:300])
        # Nothing is known before the first row.
        np.testing.assert_allclose((f[1:] - offset) / scale, plain[1:300], atol=2e-3)
    odd, y = np.hstack([X * [1e-3, 1e5, 1.0], np.full((700, 1), 7.0)])[:450], Y[:450]
    assert error(AutoRegressor(**SMALL).prequential(odd, y), y) < 0.03
    first = np.vstack([np.zeros((1, 3)), X[:450]])
    assert error(AutoRegressor(**SMALL).prequential(first, np.append(0.0, y))[1:], y) < 0.03


def test_awkward_beginnings():
    rng = np.random.default_rng(1)
    constant = AutoRegressor(**SMALL).partial_fit(X[:200], np.full(200, 3.0))
    np.testing.assert_allclose(constant.predict(X[:5]), 3.0, atol=1e-6)
    wide = rng.normal(size=(40, 60))
    assert np.isfinite(AutoRegressor(**SMALL).fit(wide, wide[:, 0]).predict(wide)).all()
    one = AutoRegressor(**SMALL).partial_fit(X[:1], Y[:1])
    assert one.predict(X[:1]) == Y[:1]
    assert (one.relevance_ == 1 / 3).all()


def test_several_outputs_weights_and_rows_of_weight_zero():
    both = np.column_stack([Y, -2 * Y])
    model = AutoRegressor(**SMALL)
    f, sd = model.prequential(X, both, return_std=True)
    assert f.shape == sd.shape == (700, 2)
    assert error(f[:, 1], both[:, 1]) < 0.03
    rows, weight = X[:350], np.ones(350)
    weight[::7] = 0
    spoiled = np.where(weight > 0, Y[:350], 1e9)
    told = AutoRegressor(**SMALL).prequential(rows, spoiled, sample_weight=weight)
    assert np.isnan(told[::7]).all()
    kept = weight > 0
    alone = AutoRegressor(**SMALL).prequential(rows[kept], Y[:350][kept])
    np.testing.assert_allclose(told[kept], alone, atol=1e-9)


def test_one_wild_target_does_not_stay():
    spoiled = Y.copy()
    spoiled[400] = 1e5
    f = AutoRegressor(**SMALL).prequential(X[:600], spoiled[:600])
    assert error(f, Y[:600], start=450) < 0.1


@pytest.mark.full_searches
@pytest.mark.parametrize("how", first("partial_fit", "fit"))
def test_one_wild_target_in_thirty_raises_no_noise_for_ever(how):
    wild = np.random.default_rng(5).random(600) < 1 / 30  # its own: not what other tests left
    spoiled = np.where(wild, 100 * Y[:600], Y[:600])
    model = getattr(AutoRegressor(**SMALL), how)(X[:600], spoiled)
    assert model.score(X[600:], Y[600:]) > 0.8  # by draw .65 to .99, and below 0 without the bound


def test_fit_weighs_experts_by_rows_that_did_not_choose_their_scales():
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(700, 60))
    target = rows[:, 0] + rng.normal(size=700)
    model = AutoRegressor(**SMALL).fit(rows[:150], target[:150])
    lower, upper = model.predict_interval(rows[150:], 0.9)
    assert np.mean((lower <= target[150:]) & (target[150:] <= upper)) > 0.75


def fit_against_partial_fit(draw):
    """Errors without noise of a model that saw all 500 rows at once, and one by one."""
    rng = np.random.default_rng(draw)
    rows, new = rng.normal(size=(500, 4)), np.random.default_rng(1000 + draw).normal(size=(2000, 4))
    f, goal = (np.sin(2 * each[:, 0]) + each[:, 1] * each[:, 2] for each in (rows, new))
    y = f + 0.1 * rng.normal(size=500)
    models = AutoRegressor().fit(rows, y), AutoRegressor().partial_fit(rows, y)
    return [np.mean((model.predict(new) - goal) ** 2) for model in models]


@pytest.mark.slow
@pytest.mark.full_searches
def test_fit_is_not_behind_partial_fit():
    errors = np.array([fit_against_partial_fit(draw) for draw in range(20)])
    assert errors[2, 0] < errors[2, 1]  # 15 % behind when weighed by halves
    assert (errors[:, 0] < 1.1 * errors[:, 1]).all()  # 1.08 in draw 16
    assert errors[:, 0].mean() < 0.5 * errors[:, 1].mean()  # .0049 and .0139


def test_intervals_cover(taught):
    rng = np.random.default_rng(1)
    model, f, sd = taught
    assert 0.8 < np.mean(np.abs(f - Y)[200:] < 1.645 * sd[200:]) <= 1.0
    fresh = rng.normal(size=(400, 3))
    y = np.sin(2 * fresh[:, 0]) + fresh[:, 1] ** 2 + 0.05 * rng.normal(size=400)
    covered = []
    for coverage in (0.5, 0.9, 0.97):
        lower, upper = model.predict_interval(fresh, coverage)
        covered.append(np.mean((lower <= y) & (y <= upper)))
    assert covered == sorted(covered)
    assert 0.8 < covered[1] < 0.98
    mean, std = model.predict(fresh, return_std=True)
    np.testing.assert_allclose(mean, model.predict(fresh), atol=1e-9)
    assert (std > 0).all()
    with pytest.raises(BadInput, match="between 0 and 1"):
        model.predict_interval(fresh, 90)


def test_intervals_before_each_row_was_learned(taught):
    f, sd, lower, upper = AutoRegressor(**SMALL).prequential(
        X, Y, return_std=True, return_interval=0.9
    )
    np.testing.assert_array_equal(f, taught[1])
    np.testing.assert_allclose(upper - f, f - lower)
    assert (upper > f)[sd > 0].all()
    assert 0.85 < np.mean(((lower <= Y) & (upper >= Y))[200:]) < 0.95
    wide = AutoRegressor(**SMALL).prequential(X, Y, return_interval=0.97)[2]
    assert (wide >= upper).all()
    assert (wide > upper)[300:].mean() > 0.9
    fresh = AutoRegressor(**SMALL)
    with pytest.raises(BadInput, match="between 0 and 1"):
        fresh.prequential(X, Y, return_interval=90)
    assert not hasattr(fresh, "bank_")


def test_predictions_are_those_of_the_experts_weighed(model):
    bank = model.bank_
    Z = features(bank, bank.now, X, range(len(bank.memories)))
    each = [Z[i] @ memory.theta.T for i, memory in enumerate(bank.memories)]
    expected = bank.now.targets.outward(np.tensordot(bank.weights, each, 1))[:, 0]
    np.testing.assert_allclose(model.predict(X), expected, atol=1e-11)


@pytest.mark.slow
@pytest.mark.full_searches
def test_fit_uses_all_rows_and_starts_anew():
    model = AutoRegressor(**SMALL).fit(X[:500], Y[:500])
    assert model.score(X[500:], Y[500:]) > 0.98
    again = model.fit(X[:500], Y[:500]).predict(X)
    np.testing.assert_array_equal(again, AutoRegressor(**SMALL).fit(X[:500], Y[:500]).predict(X))


def test_clone_pickle_and_pipelines(model):
    copied = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(copied.predict(X), model.predict(X))
    with pytest.raises(NotFittedError):
        clone(model).predict(X)
    piped = make_pipeline(StandardScaler(), AutoRegressor(**SMALL)).fit(X, Y)
    assert piped.score(X, Y) > 0.98


@pytest.mark.parametrize("rows", [1, 100, 700])
def test_a_loaded_model_predicts_the_same_and_continues_to_single_precision(tmp_path, rows, taught):
    model = copy.deepcopy(taught[0]) if rows == len(X) else AutoRegressor(**SMALL)
    if rows < len(X):
        model.partial_fit(X[:rows], Y[:rows])
    loaded = dokl.load(model.save(tmp_path / "auto.dokl"))
    assert loaded.get_params() == model.get_params()
    (mean, sd), known = (m.predict(X, return_std=True) for m in (loaded, model))
    np.testing.assert_array_equal(mean, known[0])
    np.testing.assert_allclose(sd, known[1], rtol=1e-6)
    more = [m.prequential(X[:250], Y[:250], return_std=True) for m in (model, loaded)]
    np.testing.assert_allclose(more[0], more[1], atol=1e-5)
    assert loaded.fingerprint_ == model.fingerprint_


def test_a_damaged_file_is_refused(tmp_path, model, monkeypatch):
    meta, arrays = banks.encode(model.bank_)
    arrays["memories.0.theta"] = arrays["memories.0.theta"][:, :-1]
    monkeypatch.setattr(banks, "encode", lambda bank, exact: (meta, arrays))
    path = model.save(tmp_path / "bad.dokl")
    with pytest.raises(BadFile, match="damaged"):
        dokl.load(path)


# --- adding and taking away -----------------------------------------------------------------------


def test_merge_is_learning_both_and_without_is_never_having_had_it():
    first = AutoRegressor(experts="one", **SMALL).partial_fit(X[:200], Y[:200]).freeze()
    other = first.fresh().partial_fit(X[200:], Y[200:])
    whole = pickle.loads(pickle.dumps(first)).partial_fit(X[200:], Y[200:])
    merged = dokl.merge(first, other)
    np.testing.assert_allclose(merged.predict(X), whole.predict(X), atol=1e-9)
    np.testing.assert_allclose(whole.without(other).predict(X), first.predict(X), atol=1e-9)
    np.testing.assert_allclose(whole.without(first).predict(X), other.predict(X), atol=1e-9)
    assert other.fingerprint_ == first.fingerprint_
    assert first.fresh().bank_.seen == 0


def test_what_cannot_be_merged_is_refused(model):
    one = AutoRegressor(experts="one", **SMALL).partial_fit(X[:200], Y[:200])
    two = AutoRegressor(experts="one", **SMALL).partial_fit(X[200:400], Y[200:400])
    with pytest.raises(FingerprintMismatch):
        dokl.merge(one, two)
    with pytest.raises(BadInput, match="experts='one'"):
        dokl.merge(model, model)
    with pytest.raises(BadInput, match="never learned"):
        one.fresh().without(one)
    with pytest.raises(BadInput, match="learned nothing"):
        dokl.merge(one, AutoRegressor())
    with pytest.raises(BadInput, match="no map yet"):
        AutoRegressor(**SMALL).partial_fit(X[:5], Y[:5]).fresh()


# --- classification -------------------------------------------------------------------------------


def test_classes():
    model = AutoClassifier(**SMALL)
    said = model.prequential(X, LABELS, classes=["low", "mid", "high"])
    assert np.mean(said[300:] == LABELS[300:]) > 0.8
    assert model.decision_function(X).shape == (700, 3)
    assert AutoClassifier(**SMALL).fit(X, LABELS).score(X, LABELS) > 0.9
    two = AutoClassifier(**SMALL).fit(X, Y > 0.5)
    assert two.decision_function(X).shape == (700,)
    assert two.score(X, Y > 0.5) > 0.9


def test_a_class_that_comes_late_is_no_wild_target():
    late = np.concatenate([np.flatnonzero(LABELS != "high"), np.flatnonzero(LABELS == "high")])
    rows, labels, first = X[late], LABELS[late], np.sum(LABELS != "high")
    found = {}
    for bound in (10.0, AutoClassifier().bound):
        model = AutoClassifier(bound=bound, **SMALL)
        said = model.prequential(rows, labels, classes=["low", "mid", "high"])
        found[bound] = np.mean(said[first : first + 40] == "high")
    assert found[np.inf] > max(0.5, found[10.0])


def test_classes_saved_weighed_and_refused(tmp_path):
    model = AutoClassifier(class_weight={"low": 3.0}, **SMALL)
    model.partial_fit(X[:300], LABELS[:300], classes=["low", "mid", "high"])
    loaded = dokl.load(model.save(tmp_path / "c.dokl"))
    assert loaded.get_params() == model.get_params()
    assert (loaded.predict(X) == model.predict(X)).all()
    balanced = AutoClassifier(class_weight="balanced", **SMALL).fit(X, LABELS)
    assert (dokl.load(balanced.save(tmp_path / "b.dokl")).predict(X) == balanced.predict(X)).all()
    with pytest.raises(BadInput, match="must name all classes"):
        AutoClassifier(**SMALL).partial_fit(X, LABELS)
    with pytest.raises(BadInput, match="'none' is not one of the classes"):
        model.partial_fit(X[:1], ["none"])
    with pytest.raises(BadInput, match="one class only"):
        AutoClassifier(**SMALL).fit(X, np.ones(700))
    with pytest.raises(BadInput, match="differ from those of the first call"):
        model.partial_fit(X[:1], LABELS[:1], classes=["low", "mid"])


# --- bad input ------------------------------------------------------------------------------------


def test_bad_rows_are_refused_and_nothing_changes(model):
    before = pickle.dumps(model.bank_)
    for bad in (np.nan, np.inf):
        with pytest.raises(ValueError, match=r"NaN|infinity"):
            model.partial_fit(X[:3], [0.0, bad, 1.0])
    with pytest.raises(ValueError, match="infinity"):
        model.partial_fit(np.where(X[:3] > X[2, 2], np.inf, X[:3]), Y[:3])
    with pytest.raises(ValueError, match="features"):
        model.partial_fit(X[:3, :2], Y[:3])
    with pytest.raises(BadInput, match="2 outputs, the model was started with 1"):
        model.partial_fit(X[:3], np.ones((3, 2)))
    assert pickle.dumps(model.bank_) == before


def test_bad_parameters_are_named():
    with pytest.raises(BadInput, match=r"n_components=200000 takes .* GB .* this machine has"):
        AutoRegressor(200_000).fit(X, Y)
    with pytest.raises(UnknownName, match="experts"):
        AutoRegressor(experts="some").fit(X, Y)
    with pytest.raises(BadInput, match="bound"):
        AutoRegressor(bound=0).fit(X, Y)
    with pytest.raises(BadInput, match="n_components"):
        AutoRegressor(0).fit(X, Y)
