"""Places of groups: the gradient, the kernel, and what is learned."""

import numpy as np
import pytest

from dokl.learning import classification
from dokl.learning.experts import maps, places
from dokl.learning.experts.places import GroupPlaces
from dokl.learning.scales import Scales


def rows_of(kernel, classes=None):
    rng = np.random.default_rng(0)
    X, group, Y = rng.normal(size=(40, 3)), rng.integers(5, size=40), rng.normal(size=(40, 2))
    if classes is not None:
        Y = classification.targets(classes, 3)
    return places._Rows.of(X, Y, group, kernel, classes)


@pytest.mark.parametrize("kernel", ["gaussian", "matern32"])
@pytest.mark.parametrize("classifying", [False, True])
def test_the_gradient_is_that_of_differences(kernel, classifying):
    rng = np.random.default_rng(1)
    classes = rng.integers(3, size=40) if classifying else None
    rows = rows_of(kernel, classes)
    objective = places.class_loss if classifying else places.negative_likelihood
    p = np.concatenate([0.3 * rng.normal(size=7 + classifying), rng.normal(size=15)])
    _, slope = objective(p, rows)
    steps = 1e-5 * np.eye(len(p))
    by_steps = [(objective(p + s, rows)[0] - objective(p - s, rows)[0]) / 2e-5 for s in steps]
    np.testing.assert_allclose(slope, by_steps, atol=1e-6 * np.abs(slope).max())


@pytest.mark.parametrize("kernel", ["gaussian", "matern32"])
@pytest.mark.parametrize("slopes", [False, True])
def test_features_give_the_kernel_on_the_centres(kernel, slopes):
    rng = np.random.default_rng(2)
    X = np.hstack([rng.normal(size=(60, 2)), rng.integers(4, size=(60, 1))])
    where = GroupPlaces(np.arange(3), rng.normal(size=(3, 2)), np.array([0.1, 0.5, 1.0]))
    found = Scales(np.array([1.0, 2.0]), 0.8, 0.6, 0.01, 0.4)
    made = maps.grouped_map(kernel, found, where, X, 60, slopes)
    Z = made.transform(X)[:, 3:]
    np.testing.assert_allclose(Z @ Z.T, made.covariance(X, X), atol=1e-4)
    assert np.linalg.eigvalsh(made.covariance(X, X)).min() > -1e-9


def test_unknown_groups_lie_in_the_middle():
    where = GroupPlaces(np.array([2, 5]), np.array([[0.0, 0.0], [2.0, 0.0]]), np.array([0.1, 0.4]))
    points, alone = where.of(np.array([5, 3, -1]))
    np.testing.assert_allclose(points, [[2, 0], [1, 0], [1, 0]])
    np.testing.assert_allclose(alone, [0.4, 0.2, 0.2])
    apart = where.apart(np.array([3]), np.array([3, 2]))
    np.testing.assert_allclose(apart, [[0.0, 1.0 + 0.3]])


def test_one_function_puts_all_together_and_one_odd_apart():
    rng = np.random.default_rng(3)
    X, group = rng.normal(size=(300, 2)), np.arange(300) % 5
    f = np.sin(2 * X[:, :1])
    everybody = np.arange(5)
    _, where = places.learn_places(X, f + 0.05 * rng.normal(size=f.shape), group)
    assert where.apart(everybody, everybody).max() < 0.5
    odd = np.where((group == 2)[:, None], X[:, 1:] - f, f) + 0.05 * rng.normal(size=f.shape)
    _, where = places.learn_places(X, odd, group)
    apart = where.apart(everybody, everybody)
    others = np.ix_([0, 1, 3, 4], [0, 1, 3, 4])
    assert apart[2, [0, 1, 3, 4]].min() > 3 * apart[others].max()
