"""Networks of few nodes with few rows each: as good as one place that is told the station."""

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


@pytest.fixture(scope="module")
def learned():
    X, y, owner = stations(80)
    model = network()
    return model, y, owner, model.prequential(X, y, nodes=owner, return_interval=0.9)


def test_as_good_as_one_place_that_is_told_the_station(learned):
    model, y, owner, (f, _, _) = learned
    X, _, _ = stations(80)
    told = np.hstack([X, np.eye(K)[owner]])
    one = dokl.AutoRegressor(random_state=0)
    rows = slice(20 * K, None)
    ours, theirs = (np.mean((g - y)[rows] ** 2) for g in (f, one.prequential(told, y)))
    assert ours < 1.3 * theirs
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


def test_offsets_are_those_of_the_stations(learned):
    model, *_ = learned
    X, y, owner = stations(200, seed=2)
    means = np.array([y[owner == k].mean() for k in range(K)])
    found = model.network_.map.targets.size * model.network_.map.offsets[:, 0]
    np.testing.assert_allclose(found - found.mean(), means - means.mean(), atol=3.0)
    # A row of no node in particular is predicted as one of any.
    each = np.mean([model.predict(X[:20], nodes=k) for k in range(K)], axis=0)
    np.testing.assert_allclose(model.predict(X[:20]), each, atol=4.0)


def test_offsets_are_kept_in_files(learned, tmp_path):
    model, *_ = learned
    X = stations(5)[0]
    back = dokl.load(model.save(tmp_path / "model.dokl"))
    for nodes in (None, 4):
        np.testing.assert_array_equal(back.predict(X, nodes=nodes), model.predict(X, nodes=nodes))


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


def test_rows_that_chose_the_map_do_not_narrow_intervals():
    """`fit` tracks widths on rows that its map has not seen, as learning row by row does."""

    def rough(n, seed):
        rng = np.random.default_rng(seed)
        X = rng.uniform(-2, 2, size=(n, 4))
        f = np.sin(2 * X[:, 0] * X[:, 1]) + np.cos(2 * X[:, 2])
        return X, f + 0.3 * rng.normal(size=n)

    model = network().fit(*rough(60 * K, 1))
    X, y = rough(900, 9)
    lower, upper = model.predict_interval(X, 0.9, nodes=np.arange(900) % K)
    assert 0.87 < ((lower <= y) & (y <= upper)).mean() < 0.95


def test_halves_are_of_each_nodes_rows():
    index = np.array([[0, -1], [1, 2], [3, -1], [4, 5]])
    first, second = pilots._halves(index)
    assert first.tolist() == [[0, -1], [1, 2]]
    assert second.tolist() == [[3, -1], [4, 5]]
