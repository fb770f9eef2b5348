"""Values that cannot be meant: learning ends, and the rest is learned as without them."""

import functools
import subprocess
import sys

import numpy as np
import pytest

from commands import dokl, write_csv
from dokl import AutoRegressor, NetworkRegressor, load
from dokl.base.errors import BadInput
from variants import first

pytestmark = pytest.mark.usefixtures("short_searches")
SCRIPT = """
import numpy as np
from dokl import AutoRegressor

rng = np.random.default_rng(0)
X, y = rng.normal(size=(300, 3)), rng.normal(size=300)
y[100] = {wild}
for how in ("fit", "partial_fit"):
    model = getattr(AutoRegressor(50, random_state=0), how)(X, y)
    print(how, np.isfinite(model.predict(X)).all(), flush=True)
"""


def rows(n, seed=0):
    X = np.random.default_rng(seed).normal(size=(n, 3))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2]


@pytest.fixture(scope="module")
def clean_error():
    """Of a model of the same rows where nothing is wild, learned this way; with full searches."""
    return functools.cache(
        lambda how: error(getattr(AutoRegressor(200, random_state=0), how)(*rows(280)))
    )


def error(model, **given):
    X, y = rows(400, seed=9)
    return np.mean((model.predict(X, **given) - y) ** 2) / np.var(y)


@pytest.mark.parametrize("wild", first("-1e300", "1e30"))
def test_learning_ends(wild):
    # A process of its own: a loop without end inside threads cannot be stopped from within.
    script = SCRIPT.format(wild=wild)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, timeout=300
    )
    assert done.stdout.split() == ["fit", "True", "partial_fit", "True"], done.stderr


@pytest.mark.full_searches
@pytest.mark.parametrize("wild", first(1e30, 1e10, -1e300))
@pytest.mark.parametrize("at", first(0, 100, 20, 260, always=2))
def test_the_rest_is_learned_as_without_it(wild, at, clean_error):
    X, y = rows(280)
    y[at] = wild
    model = AutoRegressor(200, random_state=0)
    told = model.prequential(X, y)
    assert np.abs(np.delete(told, at)[5:]).max() < 100.0
    assert error(model) < 3.0 * clean_error("partial_fit") + 0.02
    fitted = AutoRegressor(200, random_state=0).fit(X, y)
    assert error(fitted) < 0.05


def test_row_by_row_is_the_same_as_at_once():
    X, y = rows(150)
    y[[3, 90]] = 1e30, -1e30
    told = AutoRegressor(50, random_state=0).prequential(X, y)
    model = AutoRegressor(50, random_state=0)
    single = [model.prequential(X[i : i + 1], y[i : i + 1])[0] for i in range(150)]
    np.testing.assert_allclose(single, told, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("how", first("partial_fit", "fit"))
def test_networks(how):
    X, y = rows(320)
    nodes = np.array([f"n{i % 4}" for i in range(320)])
    clean = getattr(NetworkRegressor(n_components=100, random_state=0), how)(X, y, nodes=nodes)
    y[[7, 201]] = 1e300, -1e30
    model = getattr(NetworkRegressor(n_components=100, random_state=0), how)(X, y, nodes=nodes)
    everywhere = np.resize(nodes, 400)
    assert error(model, nodes=everywhere) < 2.0 * error(clean, nodes=everywhere) + 0.01
    assert np.max(model.cooperation_.alone) < 100.0


def test_tables(tmp_path):
    X, y = rows(600)
    y[[7, 300]] = 1e300, -1e300
    write_csv(tmp_path / "wild.csv", {"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "y": y})
    dokl("train", tmp_path / "wild.csv", "--target", "y", "--model", tmp_path / "wild.dokl")
    assert error(load(tmp_path / "wild.dokl").estimator) < 0.025


@pytest.mark.full_searches
@pytest.mark.parametrize("how", ["fit", "partial_fit"])
def test_an_absurd_input_does_not_decide_about_all_others(how, clean_error):
    X, y = rows(280)
    X[7], X[90, 1] = 1e300, -1e9
    with np.errstate(all="raise", under="ignore"):
        model = getattr(AutoRegressor(200, random_state=0), how)(X, y)
    assert error(model) < 3.0 * clean_error(how) + 0.02


@pytest.mark.parametrize("unit", [1e300, 1e-300])
def test_inputs_in_absurd_units(unit):
    X, y = rows(200)
    model = AutoRegressor(200, random_state=0).fit(unit * X, y)
    assert np.mean((model.predict(unit * X) - y) ** 2) < 0.02 * np.var(y)


@pytest.mark.parametrize("unit", [1e-160, 1e-310])
def test_targets_next_to_nothing_are_zero(unit):
    X, y = rows(200)
    model = AutoRegressor(200, random_state=0)
    f, sd = model.prequential(X, unit * y, return_std=True)
    assert np.isfinite([f, sd]).all()
    assert np.abs(model.predict(X)).max() < 1e-60


def test_inputs_of_all_sizes_down_to_nothing():
    X, y = rows(200)
    X[:, 0] = np.exp(np.random.default_rng(1).uniform(-740, 80, size=200))
    X[:, 2] = np.where(X[:, 2] > 0, 5e-324, 0.0)
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        model = AutoRegressor(200, random_state=0).partial_fit(X, y)
        assert np.isfinite(model.predict(X)).all()


@pytest.mark.parametrize("how", first("fit", "partial_fit"))
@pytest.mark.parametrize("off", first(1e-6, 1e-3))
def test_a_sensor_that_is_off_most_of_the_time(how, off):
    # A fifth of the rows is no error, however small the rest is.
    rng = np.random.default_rng(0)
    on = rng.random(900) < 0.2
    x, z = np.where(on, rng.uniform(1, 10, 900), off * rng.normal(size=900)), rng.normal(size=900)
    X = np.column_stack([x, z])
    for y in (np.sin(x) + 0.3 * z, np.where(on, x + z, off * z)):
        model = getattr(AutoRegressor(200, random_state=0), how)(X[:700], y[:700])
        assert np.mean((model.predict(X[700:]) - y[700:]) ** 2) < 0.06 * np.var(y)


@pytest.mark.parametrize("how", first("fit", "partial_fit"))
def test_rows_in_two_spots(how):
    X, y = rows(160)
    later = np.arange(160) > 80
    X, y = X + 1e6 * later[:, None], y + 1e6 * later
    model = getattr(AutoRegressor(200, random_state=0), how)(X, y)
    assert np.abs(model.predict(X) - y).max() < (100.0 if how == "fit" else 5e5)


@pytest.mark.parametrize("how", ["fit", "partial_fit"])
@pytest.mark.parametrize("unit", [1e308, 1e-310])
def test_a_frozen_model_of_inputs_in_absurd_units(how, unit, tmp_path):
    X, y = rows(160)
    X[::3, 0], X[:, 1] = unit, unit
    model = getattr(AutoRegressor(50, experts="lasting", random_state=0), how)(X, y)
    again = load(model.save(tmp_path / "m.dokl"))
    for steps in (1, 50):
        lower, upper = again.predict_interval(X, steps_ahead=steps)
        assert (lower < upper).all()
        assert np.isfinite(upper - lower).all()


def test_targets_in_absurd_units():
    X, y = rows(160)
    model = AutoRegressor(50, random_state=0).partial_fit(X, 1e-300 * y)
    lower, upper = model.predict_interval(X)
    assert np.isfinite([lower, upper]).all()


@pytest.mark.parametrize("how", first("fit", "partial_fit"))
@pytest.mark.parametrize("weight", first(1e9, 1e6, 1e4))
def test_rows_of_large_weights_are_not_wild(how, weight):
    X, y = rows(200)
    model = AutoRegressor(200, random_state=0)
    most = 0.06 if how == "fit" else 0.2
    assert error(getattr(model, how)(X, y, sample_weight=np.full(200, weight))) < most


@pytest.mark.parametrize("how", first("fit", "partial_fit"))
def test_one_wild_target_of_large_weight(how):
    X, y = rows(200)
    y[[20, 100]] = 1e30, 1e4
    model = AutoRegressor(200, random_state=0)
    assert error(getattr(model, how)(X, y, sample_weight=np.full(200, 10.0))) < 0.1


@pytest.mark.parametrize("how", first("fit", "partial_fit"))
@pytest.mark.parametrize("old_first", first(False, True))
def test_weights_of_many_powers_of_ten(how, old_first):
    X, y = rows(200)
    w = 0.7 ** np.arange(200)
    w = w[::-1] if old_first else 1e9 * w
    model = getattr(AutoRegressor(200, random_state=0), how)(X, y, sample_weight=w)
    assert np.isfinite(model.predict(X)).all()
    assert error(model) < 1.5


@pytest.mark.parametrize("seed", first(*range(3)))
def test_a_tenth_of_outliers_is_not_a_second_size(seed):
    # Scaled by the outliers, everything else was one value: R2 -50 to -500.
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(1000, 3))
    y = np.sin(X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=1000)
    wild = np.where(rng.random(600) < 0.1, y[:600] + 1000.0, y[:600])
    model = AutoRegressor(100, bound=3, random_state=0).partial_fit(X[:600], wild)
    assert model.score(X[600:], y[600:]) > 0.7


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"y": 1e200}, "targets are about .*1e.70 at most"),
        ({"sample_weight": 1e300}, "sample_weight of row 0 is 1e.300"),
    ],
)
def test_what_cannot_be_learned_is_refused_in_one_line(given, message):
    X, y = rows(60)
    weight = given.get("sample_weight", 1.0) * np.ones(60)
    with pytest.raises(BadInput, match=message):
        AutoRegressor(50, random_state=0).fit(X, given.get("y", 1.0) * y, sample_weight=weight)
