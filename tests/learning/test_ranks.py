"""Inputs by their ranks: the transform, what it buys, files and exports."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm, rankdata

from dokl import AutoRegressor, load
from dokl.base import files
from dokl.estimators import folded
from dokl.estimators.auto import Auto
from dokl.learning.experts.kinds import for_numbers
from dokl.learning.experts.ranks import FEW_VALUES, KNOTS, Ranks, checked_ranks, ranks_of
from dokl.learning.experts.scaling import CLIP

RNG = np.random.default_rng(0)


def skewed(n, seed=0):
    """Inputs over six powers of ten, one of them with ties, one of few values, and a target."""
    rng = np.random.default_rng(seed)
    X = np.exp(3 * rng.normal(size=(n, 3)))
    X[:, 1] = np.ceil(X[:, 1])
    X[:, 2] = rng.integers(0, 4, n)
    y = np.sin(np.log(X[:, 0])) + 0.3 * np.log(X[:, 1]) + 0.2 * X[:, 2]
    return X, y + 0.05 * rng.normal(size=n)


# -- the transform -----------------------------------------------------------------------------
def test_scores_are_those_of_middle_ranks():
    x = np.round(RNG.normal(size=400), 1)  # ties, and fewer values than knots
    ranks = ranks_of(x[:, None], np.ones(400))
    expected = norm.ppf((rankdata(x) - 0.5) / 400)
    expected = (expected - expected.mean()) / expected.std()
    np.testing.assert_allclose(ranks.of(x[:, None])[:, 0], expected, atol=1e-12)


def test_many_values_are_followed_closely_by_few_knots():
    x = np.clip(RNG.standard_t(2, size=(5000, 1)), -CLIP, CLIP)
    ranks = ranks_of(x, np.ones(5000))
    assert len(ranks.values) <= KNOTS
    found = ranks.of(x)[:, 0]
    expected = norm.ppf((rankdata(x[:, 0]) - 0.5) / 5000)
    assert np.abs(found - expected / expected.std()).max() < 0.2
    beyond = ranks.of(np.array([[-1e9], [1e9]]))
    assert beyond[0, 0] == found.min()
    assert beyond[1, 0] == found.max()
    ordered = ranks.of(np.sort(x, axis=0))[:, 0]
    assert (np.diff(ordered) >= 0).all()


def test_few_values_stay_as_they_are():
    x = np.tile(np.linspace(-2.0, 2.0, FEW_VALUES - 1), 20)
    both = np.column_stack([x, RNG.normal(size=len(x))])
    np.testing.assert_allclose(ranks_of(both, np.ones(len(x))).of(both)[:, 0], x, atol=1e-12)


def test_weights_count_as_rows():
    x = RNG.normal(size=(40, 1))
    weight = RNG.integers(1, 4, 40)
    twice = np.repeat(x, weight, axis=0)
    one, other = ranks_of(x, weight.astype(float)), ranks_of(twice, np.ones(len(twice)))
    np.testing.assert_allclose(one.of(x), other.of(x), atol=1e-12)


def test_ranks_of_a_file_are_checked():
    good = ranks_of(RNG.normal(size=(50, 2)), np.ones(50))
    assert checked_ranks(good, 2) is good
    for bad in (
        Ranks(good.values[::-1], good.scores),
        Ranks(good.values, -good.scores),
        Ranks(good.values, good.scores[:, :1]),
        Ranks(good.values, good.scores * np.nan),
    ):
        with pytest.raises(ValueError, match="ranks"):
            checked_ranks(bad, 2)


# -- what it buys ------------------------------------------------------------------------------
@pytest.mark.usefixtures("short_searches")
def test_skewed_inputs_are_learned_better_with_ranks(monkeypatch):
    X, y = skewed(500)
    found = {}
    for name in ("with", "without"):
        kinds = tuple(k for k in for_numbers() if name == "with" or not k.ranked)
        monkeypatch.setitem(Auto._sets, "all", lambda kinds=kinds: kinds)
        told = AutoRegressor(100, random_state=0).prequential(X, y)
        found[name] = np.mean((told - y)[200:] ** 2)
    assert found["with"] < 0.5 * found["without"]


@pytest.mark.usefixtures("short_searches")
def test_skewed_inputs_of_groups_are_learned_better_with_ranks(monkeypatch, tmp_path):
    X, y = skewed(360)
    group = np.arange(len(X)) % 3
    X, y = np.column_stack([X, group]), y + group
    found = {}
    for name in ("with", "without"):
        kinds = tuple(k for k in for_numbers() if name == "with" or not k.ranked)
        monkeypatch.setitem(Auto._sets, "all", lambda kinds=kinds: kinds)
        model = AutoRegressor(80, groups=3, random_state=0)
        found[name] = np.mean((model.prequential(X, y) - y)[120:] ** 2)
        again = load(model.save(tmp_path / f"{name}.dokl"))
        np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert found["with"] < 0.7 * found["without"]


# -- files and exports -------------------------------------------------------------------------
@pytest.fixture(scope="module")
def model(short_searches_of_module):
    X, y = skewed(300)
    with short_searches_of_module():
        return AutoRegressor(80, random_state=0).partial_fit(X, y)


def test_experts_on_ranks_count(model):
    weights = {row["expert"]: row["weight"] for row in model.experts_}
    assert sum(w for name, w in weights.items() if "of ranks" in name) > 0.1


@pytest.mark.usefixtures("short_searches")
def test_a_file_goes_on_where_it_was(tmp_path, model):
    X, y = skewed(220, seed=1)
    again = load(model.save(tmp_path / "m.dokl"))
    assert again.fingerprint_ == model.fingerprint_
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    told = [AutoRegressor.prequential(each, X, y) for each in (again, load(tmp_path / "m.dokl"))]
    np.testing.assert_array_equal(*told)


def test_a_small_file_predicts_the_same(tmp_path, model):
    X = np.vstack([skewed(100, seed=2)[0], [[1e9, 0.0, -7.0]]])
    mean, _ = model.predict(X, return_std=True)
    small = folded(model)
    np.testing.assert_allclose(small.predict(X), mean, atol=1e-9)
    again = load(small.save(tmp_path / "small.dokl"))
    np.testing.assert_array_equal(again.predict(X), small.predict(X))


def test_files_of_banks_without_ranks_are_read(tmp_path):
    """As earlier versions wrote them: kinds without the word, and no table of ranks."""
    plain = tuple(k for k in for_numbers() if not k.ranked)
    X, y = skewed(200)
    old = AutoRegressor(50, random_state=0).partial_fit(X[:10], y[:10])
    settings = replace(old.bank_.settings, kinds=plain)
    old.bank_ = replace(old.bank_, settings=settings, mixture=type(old.bank_.mixture)(
        np.zeros(len(plain)), np.zeros(len(plain))))  # fmt: skip
    old.partial_fit(X[10:], y[10:])
    meta, arrays = files.read(old.save(tmp_path / "old.dokl"))
    assert not any("ranks" in name for name in arrays)
    for kind in meta["bank"]["settings"]["kinds"]:
        del kind["ranked"]
    files.write(tmp_path / "older.dokl", "model", meta, arrays)
    np.testing.assert_array_equal(load(tmp_path / "older.dokl").predict(X), old.predict(X))


@pytest.mark.parametrize("std", [True, False])
def test_onnx(model, std):
    runtime, onnx = pytest.importorskip("onnxruntime"), pytest.importorskip("onnx")
    assert onnx
    from dokl.tables.export.onnx import onnx_model

    X = np.vstack([skewed(100, seed=3)[0], [[1e9, 0.0, -7.0]]])
    made = runtime.InferenceSession(onnx_model(model, std=std).SerializeToString())
    found = made.run(["prediction"], {"X": X})[0]
    np.testing.assert_allclose(found, model.predict(X), atol=1e-5)
