"""Networks of few nodes with few rows each: as good as one place that knows the station."""

import numpy as np
import pytest

import dokl

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
    about = {"share": "rows", "n_components": 100, **settings}
    return dokl.NetworkRegressor(n_nodes=K, random_state=0, **about)


@pytest.fixture(scope="module")
def learned():
    X, y, owner = stations(80)
    model = network()
    return model, y, owner, model.prequential(X, y, nodes=owner, return_interval=0.9)


def test_as_good_as_one_place_that_knows_the_station(learned):
    model, y, owner, (f, _, _) = learned
    X, _, _ = stations(80)
    known = np.hstack([X, np.eye(K)[owner]])
    one = dokl.AutoRegressor(random_state=0)
    rows = slice(40 * K, None)
    ours, theirs = (np.mean((g - y)[rows] ** 2) for g in (f, one.prequential(known, y)))
    assert ours < 1.1 * theirs
    new, true, place = stations(50, seed=1)
    there = one.predict(np.hstack([new, np.eye(K)[place]]))
    assert np.mean((model.predict(new, nodes=place) - true) ** 2) < 1.3 * np.mean(
        (there - true) ** 2
    )


def test_intervals_of_short_streams_cover(learned):
    model, y, _, (_, lower, upper) = learned
    inside = (lower <= y) & (y <= upper)
    assert 0.84 < inside[30 * K :].mean() < 0.96
    new, true, place = stations(50, seed=1)
    lower, upper = model.predict_interval(new, 0.9, nodes=place)
    assert 0.84 < ((lower <= true) & (true <= upper)).mean() < 0.97


def test_a_row_of_no_node_in_particular_is_predicted_as_one_of_any(learned):
    model, *_ = learned
    X, _, _ = stations(20, seed=2)
    each = np.mean([model.predict(X, nodes=k) for k in range(K)], axis=0)
    np.testing.assert_allclose(model.predict(X), each, atol=5.0)


@pytest.mark.parametrize("level", [0.0, 1e4])
def test_the_level_is_known_from_the_first_rows(level):
    """A step later every node knows it, from its own row or from others."""
    X, y, owner = stations(6, level=level)
    f = network().prequential(X, y, nodes=owner)
    late = slice(2 * K, None)
    assert np.abs(f - y)[late].max() < 60.0
