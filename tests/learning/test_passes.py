"""Rows added up and solved at once know what rows learned one after another do."""

import numpy as np
import pytest

from dokl import AutoRegressor
from dokl.learning.experts import device
from dokl.learning.experts.maps import nested_map
from dokl.learning.scales import isotropic
from dokl.learning.squares import blocks, passes
from dokl.learning.squares import memory as memories
from dokl.learning.squares.memory import Numbers


def problem(n=1500, D=40, seed=0):
    rng = np.random.default_rng(seed)
    Z, theta = rng.normal(size=(n, D)) / np.sqrt(D), rng.normal(size=(2, D))
    return Z, Z @ theta.T + 0.1 * rng.normal(size=(n, 2)), rng.uniform(0.5, 2.0, n)


def both(Z, Y, w, bound=10.0, parts=512):
    numbers, fresh = Numbers(0.1, 1.0, bound), memories.start(Z.shape[1], Y.shape[1], 0.1)
    known = passes.start(numbers, fresh)
    for at in range(0, len(Z), parts):
        some = slice(at, at + parts)
        known = passes.learn(known, Z[some], Y[some], w[some])
    one_by_one, _ = blocks.learn(numbers, memories.start(Z.shape[1], Y.shape[1], 0.1), Z, Y, w)
    return known, one_by_one


def test_sums_give_what_rows_one_after_another_give():
    known, truth = both(*problem())
    np.testing.assert_allclose(passes.solve(known).theta, truth.theta, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(passes.solve(known).covariance(), truth.covariance(), atol=1e-9)
    np.testing.assert_allclose(passes.solve(known).noise, truth.noise, rtol=0.03)
    assert known.trusted


@pytest.mark.parametrize("at", [100, 700, 1400])
def test_one_wild_target_moves_little(at):
    Z, Y, w = problem()
    wild = Y.copy()
    wild[at] += 1e9
    (known, truth), (calm, _) = both(Z, wild, w), both(Z, Y, w)
    apart = np.abs(passes.solve(known).theta - passes.solve(calm).theta).max()
    assert apart <= 3 * np.abs(truth.theta - passes.solve(calm).theta).max()
    assert (passes.solve(known).noise < 1.3 * passes.solve(calm).noise).all()
    assert known.moved == 1


def test_rows_of_two_functions_are_not_trusted():
    Z, Y, w = problem()
    Y[800:] = -20 * Y[800:]
    assert not both(Z, Y, w)[0].trusted


def test_a_memory_that_forgets_knows_nothing_of_rows_long_ago():
    Z, Y, _ = problem(n=2000)
    numbers = Numbers(0.1, 1.0 - 1.0 / 10.0)
    few = passes.rows_that_count(numbers, len(Z))
    assert few == pytest.approx(10 * passes.LONG, abs=1)
    whole, last = (
        blocks.learn(numbers, memories.start(40, 2, 0.1), Z[-n:], Y[-n:])[0] for n in (2000, few)
    )
    np.testing.assert_allclose(last.theta, whole.theta, atol=1e-2)


@pytest.mark.parametrize("kernel", ["gaussian", "matern32"])
def test_centres_are_chosen_where_least_is_explained(kernel):
    """Several at a time, against one by one: what they leave unexplained is the same."""
    X = np.random.default_rng(0).normal(size=(600, 4))
    K = nested_map(kernel, isotropic(3.0, 4), X, 600).transform(X)[:, 5:]
    K = K @ K.T
    left, explained = np.diag(K).copy(), np.zeros((600, 0))
    for _ in range(100):
        i = int(np.argmax(left))
        new = (K[:, i] - explained @ explained[i]) / np.sqrt(left[i])
        explained, left = np.column_stack([explained, new]), left - new**2
    few = nested_map(kernel, isotropic(3.0, 4), X, 100).transform(X)[:, 5:]
    assert 1.0 - (few**2).sum(axis=1).mean() <= 1.05 * left.mean() + 1e-6


def test_fit_of_many_rows_has_honest_intervals(short_searches):
    """Rows that made the maps do not weigh: intervals of rows that nobody has seen hold."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 6))
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.3 * rng.normal(size=4000)
    model = AutoRegressor(n_components=200, random_state=0).fit(X[:3000], y[:3000])
    low, high = model.predict_interval(X[3000:], coverage=0.9)
    assert 0.86 < np.mean((low <= y[3000:]) & (y[3000:] <= high)) < 0.95
    assert model.score(X[3000:], y[3000:]) > 0.9


def test_a_device_adds_up_what_the_processor_does(monkeypatch, short_searches):
    """JAX on the CPU stands for a GPU, and few rows for many."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 4))
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.3 * rng.normal(size=3000)
    y[[100, 1000]] = 1e6, -1e6
    said = []
    for least in (10_000, 1):
        monkeypatch.setattr(device, "MANY_ROWS", least)
        monkeypatch.setattr(device, "present", lambda: True)
        model = AutoRegressor(n_components=60, random_state=0).fit(X, y)
        said.append(np.column_stack(model.predict(X[:50], return_std=True)))
    np.testing.assert_allclose(said[1], said[0], rtol=1e-2, atol=1e-3)
