"""One target that cannot be meant: learning ends, and the rest is learned as without it."""

import subprocess
import sys

import numpy as np
import pytest

from commands import dokl, write_csv
from dokl import AutoRegressor, NetworkRegressor, load

SCRIPT = """
import numpy as np
from dokl import AutoRegressor

rng = np.random.default_rng(0)
X, y = rng.normal(size=(300, 3)), rng.normal(size=300)
y[100] = {wild}
model = AutoRegressor(50, random_state=0).{how}(X, y)
print(np.isfinite(model.predict(X)).all())
"""


def rows(n, seed=0):
    X = np.random.default_rng(seed).normal(size=(n, 3))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2]


def error(model, **given):
    X, y = rows(400, seed=9)
    return np.mean((model.predict(X, **given) - y) ** 2) / np.var(y)


@pytest.mark.parametrize("how", ["fit", "partial_fit"])
@pytest.mark.parametrize("wild", ["1e30", "-1e300"])
def test_learning_ends(how, wild):
    # A process of its own: a loop without end inside threads cannot be stopped from within.
    script = SCRIPT.format(how=how, wild=wild)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, timeout=300
    )
    assert done.stdout.strip() == "True", done.stderr


@pytest.mark.parametrize("wild", [1e10, 1e30, -1e300])
@pytest.mark.parametrize("at", [0, 20, 100, 260])
def test_the_rest_is_learned_as_without_it(wild, at):
    X, y = rows(280)
    clean = AutoRegressor(200, random_state=0).partial_fit(X, y)
    y[at] = wild
    model = AutoRegressor(200, random_state=0)
    told = model.prequential(X, y)
    assert np.abs(np.delete(told, at)[5:]).max() < 100.0
    assert error(model) < 3.0 * error(clean) + 0.02
    fitted = AutoRegressor(200, random_state=0).fit(X, y)
    assert error(fitted) < 0.05


def test_row_by_row_is_the_same_as_at_once():
    X, y = rows(150)
    y[[3, 90]] = 1e30, -1e30
    told = AutoRegressor(50, random_state=0).prequential(X, y)
    model = AutoRegressor(50, random_state=0)
    single = [model.prequential(X[i : i + 1], y[i : i + 1])[0] for i in range(150)]
    np.testing.assert_allclose(single, told, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("how", ["fit", "partial_fit"])
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
