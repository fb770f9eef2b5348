"""Networks of few nodes with few rows each."""

import numpy as np
import pytest

import dokl
from dokl.estimators import pilots

K = 6


def stations(n, seed=0, level=100.0):
    """Stations that measure the same nonlinear function but for an offset; n rows each, in turn."""
    rng = np.random.default_rng(7)
    offsets = rng.normal(size=K)
    rng, owner = np.random.default_rng(seed), np.arange(K * n) % K
    X = rng.normal(size=(K * n, 3))
    f = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] * X[:, 2] + offsets[owner]
    return X, level + 10 * (f + 0.1 * rng.normal(size=K * n)), owner


def network(**settings):
    return dokl.NetworkRegressor(n_nodes=K, random_state=0, n_components=100, **settings)


@pytest.mark.parametrize("level", [0.0, 1e4])
def test_the_first_step_knows_the_level(level):
    """Only the first row of all is guessed without having seen any."""
    X, y, owner = stations(4, level=level)
    f = network().prequential(X, y, nodes=owner)
    assert f[0] == 0.0
    assert np.abs(f[1:] - y[1:]).max() < 60.0


def test_the_first_step_is_cut_where_pilots_are_due():
    index = np.array([[-1, 0, -1, -1, -1, -1], [6, 1, 2, 3, 4, 5], [7, 8, 9, -1, -1, -1]])
    weight = np.ones(10)
    weight[[0, 2]] = 1e-30  # no label
    found = pilots._begun_in_turn(weight, index)
    first, *steps, last = found.tolist()
    assert first == index[0].tolist()
    assert last == index[2].tolist()
    assert [[row for row in step if row >= 0] for step in steps] == [[1], [2, 3, 4, 5], [6]]
    nothing = np.full(10, 1e-30)
    np.testing.assert_array_equal(pilots._begun_in_turn(nothing, index), index)
