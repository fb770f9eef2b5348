"""Length scales: the gradient against differences, a density against SciPy, what is found."""

from collections import Counter

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from dokl.base.errors import UnknownName
from dokl.learning import classification, scales
from dokl.learning.scales import (
    CLASS_PENALTY,
    KERNELS,
    PENALTY,
    correlation,
    learn_class_scales,
    learn_scales,
    leave_one_out_loss,
    negative_likelihood,
    squared_distances,
)


def pilot(n=40, d=3, m=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, np.sin(X[:, :1]) + 0.3 * rng.normal(size=(n, m))


@pytest.mark.parametrize("kernel", KERNELS)
def test_gradient_is_a_derivative(kernel):
    X, Y = pilot()
    p = np.random.default_rng(1).normal(size=6) * 0.3
    value, slope = negative_likelihood(p, X, Y, kernel)
    h = 1e-5
    for i, one in enumerate(np.eye(6)):
        up, down = (negative_likelihood(p + s * h * one, X, Y, kernel)[0] for s in (1, -1))
        assert slope[i] == pytest.approx((up - down) / (2 * h), rel=1e-5, abs=1e-6)
    assert np.isfinite(value)


def test_a_matrix_that_is_not_positive_has_a_gradient_of_every_number():
    """Rows that are all alike, and next to no noise."""
    X, Y = np.ones((40, 2)), pilot(m=1)[1]
    value, slope = negative_likelihood(np.array([0.0, 0.0, 0.0, -1.0, -50.0]), X, Y, "gaussian")
    assert (value, slope.shape) == (1e25, (5,))


@pytest.mark.parametrize("kernel", KERNELS)
def test_value_is_a_gaussian_density(kernel):
    X, Y = pilot(12)
    p = np.array([0.3, -0.2, 0.8, 0.1, -0.4, -0.7])
    lengths, (a, b, noise) = np.exp(p[:3]), np.exp(p[3:])
    K = a**2 * correlation(kernel, squared_distances(X / lengths, X / lengths))
    K += b**2 * X @ X.T / 3 + noise**2 * np.eye(12)
    density = sum(multivariate_normal(cov=K).logpdf(y) for y in Y.T)
    value, _ = negative_likelihood(p, X, Y, kernel)
    off = p[:3] - 0.5 * np.log(3)
    expected = -density - 0.5 * Y.size * np.log(2 * np.pi) + PENALTY * off @ off
    assert value == pytest.approx(expected, rel=1e-10)


def test_useless_inputs_get_long_scales():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(300, 10))
    y = np.sin(2 * X[:, 0]) + X[:, 1] ** 2 + 0.05 * rng.normal(size=300)
    for kernel in KERNELS:
        found = learn_scales(X, y[:, None], kernel)
        assert set(np.argsort(found.lengths)[:2]) == {0, 1}
        assert np.sum(1 / found.lengths[:2]) > 0.6 * np.sum(1 / found.lengths)
        assert 0.0005 < found.noise < 0.05


def test_same_rows_same_scales():
    X, Y = pilot(100)
    one, two = learn_scales(X, Y), learn_scales(X, Y)
    np.testing.assert_array_equal(one.lengths, two.lengths)


@pytest.fixture
def searched(monkeypatch):
    """How many evaluations there were, by rows."""
    counts = Counter()

    def counted(p, X, *given):
        counts[len(X)] += 1
        return negative_likelihood(p, X, *given)

    monkeypatch.setattr(scales, "negative_likelihood", counted)
    return counts


def test_many_rows_are_searched_on_half_of_them_first(monkeypatch, searched):
    rng = np.random.default_rng(4)
    X = rng.normal(size=(600, 4))
    Y = np.sin(2 * X[:, :1]) + X[:, 1:2] * X[:, 2:3] + 0.1 * rng.normal(size=(600, 1))

    def value(found):
        own = np.append(found.lengths, [found.amplitude, found.linear, np.sqrt(found.noise)])
        return negative_likelihood(np.log(own), X, Y, "gaussian")[0]

    soon = value(learn_scales(X, Y))
    assert searched[600] <= 22
    assert 30 <= searched[300] <= 42
    monkeypatch.setattr(scales, "HALVED", 600)
    searched.clear()
    assert soon <= value(learn_scales(X, Y)) + 0.5  # nats, of 600 rows
    assert set(searched) == {600}


def test_the_half_has_rows_of_two_sources_in_turn():
    """It was every other row, all of one source: 1,300 nats worse, of 1,000 rows."""
    rng = np.random.default_rng(0)
    X, second = rng.normal(size=(600, 4)), np.arange(600) % 2
    X[:, 3] = 2.0 * second - 1.0
    Y = np.where(second, np.sin(3 * X[:, 0]), np.cos(2 * X[:, 1]) * X[:, 2])[:, None]
    found = learn_scales(X, Y + 0.1 * rng.normal(size=Y.shape))
    assert found.noise < 0.1
    assert found.lengths[3] < 3


def test_half_of_the_rows_that_look_linear_are_no_beginning(searched):
    X = np.random.default_rng(5).normal(size=(520, 2))
    Y = X[:, :1] + 0.1 * np.random.default_rng(6).normal(size=(520, 1))
    rest = np.delete(np.arange(520), scales.half_of(520))
    Y[rest] += 0.5 * np.sin(3 * X[rest, 1:])
    found = learn_scales(X, Y)
    assert searched[520] > 22
    assert found.lengths[1] < 2


def test_awkward_pilots():
    constant = learn_scales(np.zeros((20, 2)), np.zeros((20, 1)))
    assert np.isfinite(constant.lengths).all()
    few = learn_scales(np.random.default_rng(0).normal(size=(5, 40)), np.ones((5, 1)))
    assert np.isfinite(few.lengths).all()
    with pytest.raises(UnknownName, match="kernel"):
        learn_scales(np.ones((3, 1)), np.ones((3, 1)), "rough")


def class_pilot(classes, n=30, seed=0):
    rng = np.random.default_rng(seed)
    numbers = rng.integers(0, classes, n)
    return rng.normal(size=(n, 3)), classification.targets(numbers, classes), numbers


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("classes", [2, 3])
def test_gradient_without_a_row_is_a_derivative(kernel, classes):
    given = *class_pilot(classes), kernel
    p = np.random.default_rng(1).normal(size=7) * 0.3
    _, slope = leave_one_out_loss(p, *given)
    h = 1e-5
    for i, one in enumerate(np.eye(7)):
        up, down = (leave_one_out_loss(p + s * h * one, *given)[0] for s in (1, -1))
        assert slope[i] == pytest.approx((up - down) / (2 * h), rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("classes", [2, 3])
def test_the_loss_is_that_of_really_leaving_rows_out(classes):
    X, Y, numbers = class_pilot(classes, n=12)
    p = np.array([0.3, -0.2, 0.8, 0.1, -0.4, -0.7, 0.5])
    lengths, (a, b, noise, steep) = np.exp(p[:3]), np.exp(p[3:])
    K = a**2 * correlation("gaussian", squared_distances(X / lengths, X / lengths))
    K += b**2 * X @ X.T / 3 + noise**2 * np.eye(12)
    total = 0.0
    for i, others in enumerate(~np.eye(12, dtype=bool)):
        known = np.linalg.solve(K[np.ix_(others, others)], (Y - Y.mean(axis=0))[others])
        f = Y.mean(axis=0) + K[i, others] @ known
        level = steep * (np.append(-f, f) if classes == 2 else f)
        total += np.log(np.exp(level).sum()) - level[numbers[i]]
    off = p[:6] - np.array([*[0.5 * np.log(3)] * 3, 0, 0, 0.5 * np.log(0.1)])
    total += CLASS_PENALTY * (off**2 @ [1, 1, 1, 1, 1, 4])
    assert leave_one_out_loss(p, X, Y, numbers, "gaussian")[0] == pytest.approx(total, rel=1e-10)


def test_inputs_that_tell_no_classes_apart_get_long_scales():
    X = np.random.default_rng(3).normal(size=(300, 8))
    numbers = (X[:, 0] * X[:, 1] > 0).astype(int) + (X[:, 1] > 1)
    for kernel in KERNELS:
        found = learn_class_scales(X, numbers, 3, kernel)
        assert set(np.argsort(found.lengths)[:2]) == {0, 1}
        assert np.sum(1 / found.lengths[:2]) > 0.5 * np.sum(1 / found.lengths)
    with pytest.raises(UnknownName, match="matern"):
        learn_class_scales(X, numbers, 3, "matern")


def test_a_pilot_of_one_class_keeps_to_the_middle():
    X = np.random.default_rng(3).normal(size=(20, 4))
    found = learn_class_scales(X, np.zeros(20, int), 2)
    np.testing.assert_allclose(found.lengths, 2.0, rtol=1e-3)
    assert found.noise == pytest.approx(0.1, rel=1e-3)
