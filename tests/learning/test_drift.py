"""Intervals of a frozen model: wider the further a row lies beyond training, where rows drift."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import dokl
from commands import dokl as run
from commands import json_of, rows_of
from dokl import AutoRegressor
from dokl.base.errors import BadInput
from dokl.estimators.predict_only import folded
from dokl.learning import drift
from dokl.learning.experts import rivals
from variants import first

pytestmark = pytest.mark.usefixtures("short_searches")
SMALL = {"n_components": 50, "random_state": 0}
N, LAST = 1500, slice(1200, 1500)


def stream(walk: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """A function with noise, and an offset that walks."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, 3))
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.2 * rng.normal(size=N)
    return X, y + np.cumsum(walk * rng.normal(size=N))


def held(model, X, y, **how) -> tuple[float, float]:
    """Share of the last fifth inside 90 % intervals, and their width on average."""
    lower, upper = model.predict_interval(X[LAST], 0.9, **how)
    inside = (lower <= y[LAST]) & (y[LAST] <= upper)
    return float(inside.mean()), float((upper - lower).mean())


@pytest.fixture(scope="module")
def _model(short_searches_of_module):
    X, y = stream(0.1, 1)
    with short_searches_of_module():
        return AutoRegressor(**SMALL).partial_fit(X[:1200], y[:1200]), X, y


@pytest.fixture
def drifting(_model):
    return copy.deepcopy(_model[0]), *_model[1:]


@pytest.mark.parametrize("how", ["fit", "partial_fit"])
def test_a_walking_offset_widens_a_frozen_model(how, drifting):
    model, X, y = drifting
    model = model if how == "partial_fit" else AutoRegressor(**SMALL).fit(X[:1200], y[:1200])
    follows, usual = held(model, X, y, steps_ahead=1), held(model, X, y)
    by_row = held(model, X, y, steps_ahead=np.arange(1, 301))
    least = {"partial_fit": 0.8, "fit": 0.75}[how]  # `fit` has seen one stretch of drift
    assert follows[0] < 0.7
    assert usual[0] >= least
    assert by_row[0] >= least
    assert usual[1] > 1.3 * follows[1]


@pytest.mark.parametrize("seed", first(0, 1))
@pytest.mark.parametrize("how", ["fit", "partial_fit"])
def test_rows_in_no_order_widen_nothing(how, seed):
    X, y = stream(0.0, seed)
    model = getattr(AutoRegressor(**SMALL), how)(X[:1200], y[:1200])
    width = held(model, X, y, steps_ahead=1)[1]
    for steps in (None, np.arange(1, 301)):
        share, wide = held(model, X, y, steps_ahead=steps)
        assert wide < 1.05 * width
        assert share > 0.8


def test_further_is_never_narrower_and_the_next_row_is_as_wide_as_ever(drifting):
    model, X, _ = drifting
    row = X[1200:1201]
    widths = [
        float(np.subtract(*model.predict_interval(row, steps_ahead=h)[::-1])[0])
        for h in (1, 2, 8, 50, 150, 400, 2000, 10**7)
    ]
    assert widths == sorted(widths)
    assert widths[-1] < np.inf
    sd = model.predict(row, return_std=True)[1]
    tracked = model.bank_.tracker.widths[0, list(model.bank_.tracker.levels).index(0.9)]
    assert widths[0] == pytest.approx(float(2 * tracked * sd[0]), rel=1e-12)


def test_a_row_has_the_same_interval_in_any_company(drifting):
    model, X, _ = drifting
    whole = model.predict_interval(X[LAST])
    alone = [model.predict_interval(X[i : i + 1]) for i in (1200, 1300, 1499)]
    for end in (0, 1):
        np.testing.assert_allclose([one[end][0] for one in alone], whole[end][[0, 100, 299]])


def test_any_cut_and_any_file_give_the_same(tmp_path, drifting):
    model, X, y = drifting
    other = AutoRegressor(**SMALL)
    for i in range(0, 700, 70):
        other.partial_fit(X[i : i + 70], y[i : i + 70])
    other = dokl.load(other.save(tmp_path / "m.dokl"))  # amid copies
    other.partial_fit(X[700:850], y[700:850]).partial_fit(X[850:1200], y[850:1200])
    for steps in (None, 40):
        for ours, theirs in zip(
            other.predict_interval(X, steps_ahead=steps),
            model.predict_interval(X, steps_ahead=steps),
            strict=True,
        ):
            np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_a_saved_model_goes_on_to_the_same_bits(tmp_path, drifting):
    model, X, y = drifting
    path = dokl.save(model, tmp_path / "m.dokl", exact=True)
    first, second = dokl.load(path), dokl.load(path)
    before = first.predict_interval(X)
    np.testing.assert_array_equal(before, model.predict_interval(X))
    for each in (first, second):
        each.partial_fit(X[1200:1300], y[1200:1300])
    np.testing.assert_array_equal(first.predict_interval(X), second.predict_interval(X))
    np.testing.assert_array_equal(first.bank_.drift.counts, second.bank_.drift.counts)


def test_files_grow_by_less_than_a_tenth(tmp_path):
    X, y = stream(0.1)
    model = AutoRegressor(n_components=200, random_state=0).partial_fit(X[:960], y[:960])
    size = model.save(tmp_path / "m.dokl").stat().st_size
    known, model.bank_ = model.bank_.drift, dokl.load(tmp_path / "m.dokl").bank_
    assert len(known.rows) > 3
    more = sum(part.nbytes for part in (known.counts, *known.thetas, known.variance))
    assert more < 0.1 * size


def test_the_small_copy_widens_as_well(tmp_path, drifting):
    model, X, y = drifting
    small = dokl.load(folded(model).save(tmp_path / "small.dokl"))
    assert held(small, X, y, steps_ahead=1)[0] < 0.8 <= held(small, X, y)[0]
    np.testing.assert_array_equal(small.predict_interval(X), folded(model).predict_interval(X))


def test_several_outputs_have_distances_of_their_own():
    X, still = stream(0.0, 1)
    _, moving = stream(0.1, 1)
    model = AutoRegressor(**SMALL).partial_fit(X[:800], np.c_[still, moving][:800])
    near, far = (
        np.subtract(*model.predict_interval(X[LAST], steps_ahead=h)[::-1]) for h in (1, 200)
    )
    assert far[:, 0].mean() < 1.05 * near[:, 0].mean()
    assert far[:, 1].mean() > 1.2 * near[:, 1].mean()


def test_nothing_counted_widens_nothing():
    few = AutoRegressor(**SMALL).partial_fit(np.arange(20.0)[:, None], np.arange(20.0))
    row = np.array([[3.0]])
    assert few.predict_interval(row) == few.predict_interval(row, steps_ahead=1)
    ends = drift.widths(drift.start(2).counts[0], 0.9, np.array([1.6, 1.7]), np.array([1.0, 99.0]))
    np.testing.assert_array_equal(ends, [[1.6, 1.7]] * 2)


@pytest.mark.parametrize("steps", [0, -1, np.nan, "soon", [1, 2], [[1]], np.inf])
def test_steps_that_cannot_be_are_refused(steps, drifting):
    model, X, _ = drifting
    with pytest.raises(BadInput, match="steps_ahead must be a number of rows from 1 on"):
        model.predict_interval(X[:3], steps_ahead=steps)


# -- command line --------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def files(tmp_path_factory, short_searches_of_module):
    folder = tmp_path_factory.mktemp("drift")
    X, y = stream(0.1, 1)
    table = np.c_[X, y]
    for name, rows in (("first", table[:1200]), ("last", table[LAST])):
        np.savetxt(folder / f"{name}.csv", rows, delimiter=",", header="a,b,c,y", comments="")
    with short_searches_of_module():
        told = json_of(
            "train", folder / "first.csv", "--target", "y", "--model", folder / "m.dokl",
            "--components", 50, "-p", "random_state=0", "--json",
        )  # fmt: skip
    return folder, told


def test_predict_counts_rows_from_the_last_learned_one(files):
    folder, _ = files
    model, data = dokl.load(folder / "m.dokl"), folder / "last.csv"
    rows = {name: np.genfromtxt(data, delimiter=",", names=True)[name] for name in "abc"}
    for more, begin in (((), 1), (("--steps-ahead", 301), 301)):
        found = rows_of(run("predict", folder / "m.dokl", data, "--interval", 90, *more).stdout)
        ahead = begin + np.arange(300)
        for end, values in zip(
            ("lower", "upper"), model.predict_interval(rows, steps_ahead=ahead), strict=True
        ):
            np.testing.assert_allclose([float(row[end]) for row in found], values, rtol=1e-9)
    refused = run("predict", folder / "m.dokl", data, "--steps-ahead", 0, code=2)
    assert "not in the range" in refused.stderr


def test_evaluate_and_train_say_how_often_frozen_intervals_hold(files):
    folder, told = files
    scored = json_of("evaluate", folder / "m.dokl", folder / "last.csv", "--json")["intervals"]
    assert scored["rows"] == 300
    assert scored["coverage"] >= 0.8
    frozen = told["frozen"]["intervals"]
    assert frozen["rows"] > 30
    assert frozen["half_width"] > 0
    assert any(line.startswith("frozen there: 90 % intervals held") for line in told["words"])


# -- what stands beside a bank --------------------------------------------------------------------
def weights_beside(faults):
    """Of a bank that stands still, a linear function and two inputs, after two times 100 rows."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(500, 2)).cumsum(axis=0)
    y = x[:, :1] + rng.normal(size=(500, 1))
    y[400 + np.array(faults, int)] += 1000.0
    known = rivals.with_copy(rivals.start(x[:300], y[:300], np.ones(300)))
    for at in (300, 400):
        some, copies = slice(at, at + 100), len(known.copies)
        bank = np.full((copies, 100, 1), x[at - 1, 0])
        known, _ = rivals.judged(known, bank, x[some], y[some], np.ones(100))
        known = rivals.with_copy(known)
    return rivals.beside(known).weights[0]


def test_faults_that_nobody_foresaw_decide_nothing():
    usual = weights_beside([])
    assert usual[0] < 0.01
    assert usual[2] > 0.5
    np.testing.assert_allclose(weights_beside([3, 50, 51]), usual, atol=0.05)


def test_without_copies_nothing_is_compared():
    known = rivals.start(np.eye(3), np.arange(3.0)[:, None], np.ones(3))
    same, found = rivals.judged(
        known, np.zeros((0, 2, 1)), np.eye(3)[:2], np.ones((2, 1)), np.ones(2)
    )
    assert same is known
    assert found.shape == (0, 2, 1)
