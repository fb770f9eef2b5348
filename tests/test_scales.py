"""Length scales: the gradient against differences, a density against SciPy, what is found."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from dokl.errors import UnknownName
from dokl.scales import (
    KERNELS,
    PENALTY,
    correlation,
    learn_scales,
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
        assert found.relevance[:2].sum() > 0.6
        assert found.relevance.sum() == pytest.approx(1.0)
        assert 0.0005 < found.noise < 0.05


def test_same_rows_same_scales():
    X, Y = pilot(100)
    one, two = learn_scales(X, Y), learn_scales(X, Y)
    np.testing.assert_array_equal(one.lengths, two.lengths)


def test_awkward_pilots():
    constant = learn_scales(np.zeros((20, 2)), np.zeros((20, 1)))
    assert np.isfinite(constant.lengths).all()
    few = learn_scales(np.random.default_rng(0).normal(size=(5, 40)), np.ones((5, 1)))
    assert np.isfinite(few.lengths).all()
    with pytest.raises(UnknownName, match="kernel"):
        learn_scales(np.ones((3, 1)), np.ones((3, 1)), "rough")
