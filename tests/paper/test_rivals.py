"""Rows long after the last: what predicts beside a frozen model as far as its copies did worse."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest

import dokl
from dokl import AutoRegressor
from dokl.estimators.predict_only import folded
from dokl.learning.experts import rivals, saving

pytestmark = pytest.mark.usefixtures("short_searches")
SMALL = {"n_components": 50, "experts": "lasting", "random_state": 0}
FIRST, LAST = slice(0, 400), slice(400, 600)
STEPS = np.arange(2, 202)


def season(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """A daily series with a trend, a week and a year: earlier values, and circles."""
    rng, t = np.random.default_rng(seed), np.arange(610)
    week, year = 2 * np.pi * t / 7, 2 * np.pi * t / 365.25
    y = 0.02 * t + 3 * np.sin(week) + 2 * np.sin(year) + rng.normal(size=610)
    circles = np.sin(week), np.cos(week), np.sin(year), np.cos(year)
    return np.c_[np.roll(y, 7), np.roll(y, 1), *circles][10:], y[10:]


def rmse(model, X, y, **how) -> float:
    return float(np.sqrt(np.mean((model.predict(X[LAST], **how) - y[LAST]) ** 2)))


@pytest.fixture(scope="module")
def _model(short_searches_of_module):
    X, y = season()
    with short_searches_of_module():
        return AutoRegressor(**SMALL).partial_fit(X[FIRST], y[FIRST]), X, y


@pytest.fixture
def ageing(_model):
    return copy.deepcopy(_model[0]), *_model[1:]


@pytest.mark.parametrize("how", ["fit", "partial_fit"])
def test_where_a_model_ages_earlier_values_count(how, ageing):
    model, X, y = ageing
    model = model if how == "partial_fit" else AutoRegressor(**SMALL).fit(X[FIRST], y[FIRST])
    repeated = float(np.sqrt(np.mean((X[LAST, 0] - y[LAST]) ** 2)))
    far, near = rmse(model, X, y, steps_ahead=STEPS), rmse(model, X, y)
    assert far < repeated
    assert near > {"partial_fit": 2.0, "fit": 1.1}[how] * far


def test_the_next_row_is_predicted_as_ever(ageing):
    model, X, _ = ageing
    np.testing.assert_array_equal(model.predict(X, steps_ahead=1), model.predict(X))
    mixed = model.predict(X[:2], steps_ahead=[1, 50])
    assert mixed[0] == pytest.approx(model.predict(X[:1])[0], rel=1e-9)
    assert mixed[1] == pytest.approx(model.predict(X[1:2], steps_ahead=3)[0], rel=1e-9)


def test_rows_in_no_order_lose_nothing():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(800, 3))
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.normal(size=800)
    for how in ("fit", "partial_fit"):
        model = getattr(AutoRegressor(**SMALL), how)(X[FIRST], y[FIRST])
        assert rmse(model, X, y, steps_ahead=STEPS) < 1.005 * rmse(model, X, y)


def test_intervals_and_deviations_go_with_it(ageing):
    model, X, y = ageing
    said, sd = model.predict(X[LAST], return_std=True, steps_ahead=STEPS)
    np.testing.assert_allclose(said, model.predict(X[LAST], steps_ahead=STEPS))
    assert (sd >= model.predict(X[LAST], return_std=True)[1] - 1e-12).all()
    lower, upper = model.predict_interval(X[LAST], 0.9, steps_ahead=STEPS)
    np.testing.assert_allclose((lower + upper) / 2, said)
    assert ((lower <= y[LAST]) & (y[LAST] <= upper)).mean() > 0.85
    plain = model.predict_interval(X[LAST], 0.9)
    assert (upper - lower).mean() < (plain[1] - plain[0]).mean()


def test_other_experts_do_without(ageing):
    _, X, y = ageing
    model = AutoRegressor(50, random_state=0).partial_fit(X[:200], y[:200])
    assert model.bank_.rivals is None
    near = X[:190]  # rows that lie further out count further, the later they are
    np.testing.assert_array_equal(model.predict(near, steps_ahead=9), model.predict(near))


def test_any_cut_and_any_file_give_the_same(tmp_path, ageing):
    model, X, y = ageing
    other = AutoRegressor(**SMALL)
    for i in range(0, 310, 37):
        other.partial_fit(X[i : min(310, i + 37)], y[i : min(310, i + 37)])
    other = dokl.load(other.save(tmp_path / "m.dokl"))  # amid copies
    other.partial_fit(X[310:400], y[310:400])
    for method in ("predict", "predict_interval"):
        ours, theirs = (getattr(m, method)(X, steps_ahead=40) for m in (other, model))
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    again = dokl.load(model.save(tmp_path / "m.dokl"))
    np.testing.assert_array_equal(
        again.predict_interval(X, steps_ahead=40), model.predict_interval(X, steps_ahead=40)
    )


def test_the_small_copy_says_the_same(tmp_path, ageing):
    model, X, _ = ageing
    small = dokl.load(folded(model).save(tmp_path / "small.dokl"))
    for steps in (1, 40):
        np.testing.assert_allclose(
            small.predict(X, steps_ahead=steps), model.predict(X, steps_ahead=steps)
        )
    ends = small.predict_interval(X, steps_ahead=40)
    np.testing.assert_allclose(np.mean(ends, axis=0), model.predict(X, steps_ahead=40))


def test_several_outputs_have_weights_of_their_own(ageing):
    _, X, y = ageing
    rng = np.random.default_rng(3)
    both = np.c_[y, X[:, 2] ** 2 + 0.1 * rng.normal(size=600)]
    model = AutoRegressor(**SMALL).partial_fit(X[FIRST], both[FIRST])
    ages, stays = rivals.beside(model.bank_.rivals).weights[:, 0]
    assert ages < 0.5 < stays


@pytest.mark.parametrize("wild", [1e6, 1e12, -1e100])
def test_wild_inputs_and_new_values_of_constant_ones(wild, ageing):
    _, X, y = ageing
    X = np.c_[X, np.zeros(600), np.arange(600) % 97 == 50]
    X[200, 4] = X[300, 6] = wild
    model = AutoRegressor(**SMALL).partial_fit(X[FIRST], y[FIRST])
    repeated = float(np.sqrt(np.mean((X[LAST, 0] - y[LAST]) ** 2)))
    assert rmse(model, X, y, steps_ahead=STEPS) < 1.2 * repeated
    assert np.isfinite(model.predict(np.full((1, 8), wild), steps_ahead=9)).all()


def test_a_file_that_does_not_fit_is_refused(ageing):
    model = ageing[0].bank_
    known = model.rivals
    for wrong in (
        {"origin": known.origin[:1]},
        {"products": -known.products[:, :1]},
        {"scale": 0.0 * known.scale},
        {"counts": known.counts - 1.0},
        {"rows": -1.0},
        {"copies": (replace(known.copies[0], low=known.low[:1]),)},
    ):
        bank = replace(model, rivals=replace(known, **wrong))
        with pytest.raises(ValueError, match=r"rivals|beside|are not|not an array"):
            saving.check_bank(saving.compact(bank), bank.d, bank.m)
