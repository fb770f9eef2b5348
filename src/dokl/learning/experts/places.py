"""Where groups of rows (the nodes of a network) lie: learned points: near ones are alike.

One kernel over rows x and their groups i, with kappa a Gaussian or Matern 3/2 of squared distance,

    e_ij = |v_i - v_j|^2 + [i != j] (u_i + u_j)
    s    = sum_c (x_c - x'_c)^2 / l_c^2 + e_ij
    k    = a^2 kappa(s) + (b^2 x'x'/d) exp(-e_ij/2) + c^2 [i = j] + noise

v_i is a point in two dimensions, u_i >= 0 how far group i is from everybody. All points together:
one function for all groups. Clusters: groups that share with their like. A far point or a large u:
a group that learns alone. Points, u and c are learned with the length scales, by the same
likelihood (`dokl.learning.scales`). Penalties keep groups of few rows near the middle, and a group
that was not among the rows takes the mean point and a common u.

>>> rng = np.random.default_rng(0)
>>> X, group = rng.normal(size=(240, 1)), np.arange(240) % 4
>>> y = np.where(group % 2, -1.0, 1.0)[:, None] * np.sin(2 * X)
>>> scales, places = learn_places(X, y, group)
>>> near, far = places.apart(np.array([0]), np.array([2, 1]))[0]
>>> bool(10 * near < far)  # groups 0 and 2 have one function, 1 and 3 another
True
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dokl.base import random_numbers
from dokl.base.arrays import Array
from dokl.base.unlocked import one_thread
from dokl.learning import classification, scales
from dokl.learning.scales import Scales, squared_distances

DIMENSIONS = 2
POINT_PENALTY, ALONE_PENALTY, OFFSET_PENALTY = 0.05, 0.1, 0.025
# Where log u and log c begin.
ALONE, OFFSET = -3.0, math.log(0.3)
# How far apart points begin, once for each start; the better likelihood wins.
STARTS = (0.2, 0.5, 1.5)
# All starts are tried on this many of the rows; the better one goes on with all of them.
FEW = 300


@dataclass(frozen=True)
class GroupPlaces:
    """Of the groups with these numbers: (G,), ascending, points v: (G, 2) and alone u: (G,)."""

    numbers: Array
    points: Array
    alone: Array

    def apart(self, one: Array, other: Array) -> Array:
        """e between groups of rows: (n,) and (k,) numbers -> (n, k)."""
        (v, u), (w, z) = self.of(one), self.of(other)
        found = squared_distances(v, w)
        found += np.where(one[:, None] != other, u[:, None] + z, 0.0)
        return found

    def of(self, group: Array) -> tuple[Array, Array]:
        """Points (n, 2) and u (n,) of groups by number: (n,); unknown ones are in the middle."""
        if not len(self.numbers):
            return np.zeros((len(group), DIMENSIONS)), np.full(len(group), math.exp(ALONE))
        at = np.minimum(np.searchsorted(self.numbers, group), len(self.numbers) - 1)
        known = self.numbers[at] == group
        middle, common = self.points.mean(axis=0), math.exp(float(np.log(self.alone).mean()))
        points = np.where(known[:, None], self.points[at], middle)
        return points, np.where(known, self.alone[at], common)


def learn_places(
    X: Array, Y: Array, group: Array, kernel: str = "gaussian", seed: int = 0,
    evaluations: int = 60, near: GroupPlaces | None = None,
) -> tuple[Scales, GroupPlaces]:  # fmt: skip
    """Scales and places by standardised rows X: (n, d), Y: (n, m) of groups by number: (n,).

    near: places of the same groups, at which one search begins; otherwise several begin.
    """
    rows = _Rows.of(X, Y, group, kernel)
    d = rows.X.shape[1]
    middle = 0.5 * math.log(d)
    first = np.concatenate([np.full(d, middle), [0.0, scales.SLOPE, scales.NOISE, OFFSET]])
    limits = [(middle - 4.0, middle + 6.0)] * d
    limits += [(-3.0, 3.0), (-5.0, 3.0), (math.log(1e-3), 0.7), (-5.0, 1.0)]
    return _best(negative_likelihood, rows, first, limits, seed, evaluations, near)


def learn_class_places(
    X: Array, classes: Array, count: int, group: Array, kernel: str = "gaussian", seed: int = 0,
    evaluations: int = 30,
) -> tuple[Scales, GroupPlaces]:  # fmt: skip
    """The same for rows of classes by number: (n,), of which there are `count`."""
    rows = _Rows.of(X, classification.targets(classes, count), group, kernel, classes)
    d = rows.X.shape[1]
    middle = 0.5 * math.log(d)
    begin = [0.0, 0.0, 0.5 * math.log(0.1), OFFSET, math.log(3.0)]
    first = np.concatenate([np.full(d, middle), begin])
    limits = [(middle - 4.0, middle + 6.0)] * d
    limits += [(-5.0, 3.0), (-5.0, 3.0), (math.log(1e-3), 1.5), (-5.0, 1.0), (-3.0, 6.0)]
    return _best(class_loss, rows, first, limits, seed, evaluations)


Objective = Callable[[Array, Any], tuple[float, Array]]


@one_thread()
def _best(
    objective: Objective, rows: _Rows, first: Array, limits: list[Any], seed: int,
    evaluations: int, near: GroupPlaces | None = None,
) -> tuple[Scales, GroupPlaces]:  # fmt: skip
    """The best of searches from different points, or that from near places."""
    from scipy.optimize import minimize
    from scipy.special import ndtri

    d, G = rows.X.shape[1], len(rows.numbers)
    spread = ndtri(random_numbers.uniforms(seed, ("places", G), G * DIMENSIONS))
    bounds = [*limits, *[(None, None)] * len(spread), *[(-9.0, 4.0)] * G]

    def search(begin: Array, among: _Rows, most: int) -> Any:
        options = {"maxfun": most, "maxiter": most}
        given = objective, begin, (among,), "L-BFGS-B"
        return minimize(*given, jac=True, bounds=bounds, options=options)

    few = rows.some(FEW)
    if near is None:
        starts = [np.concatenate([first, size * spread, np.full(G, ALONE)]) for size in STARTS]
        found = [search(begin, few, evaluations) for begin in starts]
        p = min(found, key=lambda result: float(result.fun)).x
    else:
        p = np.concatenate([first, near.points.ravel(), np.log(near.alone)])
    if near is not None or few is not rows:
        # Points of few rows are a good start. Their lengths are a bad one: where few rows look
        # linear, nothing depends on the lengths any more.
        p = search(np.concatenate([first, p[len(first) :]]), rows, evaluations).x
    a, b, noise, c = np.exp(p[d : d + 4]) ** np.array([1, 1, 2, 1])
    points, alone = rows.places(p)
    learned = Scales(np.exp(p[:d]), float(a), float(b), float(noise), float(c))
    return learned, GroupPlaces(rows.numbers, points, np.exp(alone))


@dataclass(frozen=True)
class _Rows:
    """Rows sorted by group: X (n, d), Y (n, m), classes (n,) or None; numbers: (G,) of the groups,
    at: (n,) the place of each row's group among them, starts: (G,) its first row.
    """

    X: Array
    Y: Array
    kernel: str
    classes: Array | None
    numbers: Array
    at: Array
    starts: Array

    @classmethod
    def of(
        cls, X: Array, Y: Array, group: Array, kernel: str, classes: Array | None = None
    ) -> _Rows:
        order = np.argsort(group, kind="stable")
        numbers, starts = np.unique(group[order], return_index=True)
        at = np.repeat(np.arange(len(numbers)), np.diff(np.append(starts, len(group))))
        chosen = None if classes is None else classes[order]
        return cls(X[order], Y[order], kernel, chosen, numbers, at, starts)

    def some(self, most: int) -> _Rows:
        """At most about `most` of the rows, evenly over the groups, each of which keeps one."""
        if len(self.X) <= most:
            return self
        step = len(self.X) / most
        place = np.arange(len(self.X)) - self.starts[self.at]
        keep = (np.floor((place + 1) / step) > np.floor(place / step)) | (place == 0)
        X, Y, at = self.X[keep], self.Y[keep], self.at[keep]
        classes = None if self.classes is None else self.classes[keep]
        starts = np.searchsorted(at, np.arange(len(self.numbers)))
        return _Rows(X, Y, self.kernel, classes, self.numbers, at, starts)

    def places(self, p: Array) -> tuple[Array, Array]:
        """Points (G, 2) and log u (G,), the last numbers of p."""
        G = len(self.numbers)
        return p[-G - G * DIMENSIONS : -G].reshape(G, DIMENSIONS), p[-G:]


def negative_likelihood(p: Array, rows: _Rows) -> tuple[float, Array]:
    """Minus the log marginal likelihood with its penalty, and its gradient.

    p: logarithms of the d lengths, of a, b, the noise's standard deviation and c; then the points,
    group by group, and the logarithms of u.
    """
    d = rows.X.shape[1]
    made = _covariances(p, rows)
    found = scales.likelihood_by_kernel(made.K, rows.Y)
    if found is None:
        return 1e25, np.zeros_like(p)
    value, pull = found
    pull = np.tril(pull) + np.tril(pull, -1).T
    slope = _by_parameters(rows, made, pull, p)
    off = p[: d + 4] - np.concatenate([np.full(d, 0.5 * math.log(d)), [0.0, 0.0, 0.0, OFFSET]])
    weight = np.array([scales.PENALTY] * d + [0.0, 0.0, 0.0, OFFSET_PENALTY])
    return _with_penalties(value, slope, p, rows, off, weight)


def class_loss(p: Array, rows: _Rows) -> tuple[float, Array]:
    """The log loss of what other rows predict for a row (`scales.leave_one_out_loss`), with its
    penalty, and its gradient. p: as above, with the logarithm of the steepness after c.
    """
    d = rows.X.shape[1]
    made = _covariances(p, rows)
    assert rows.classes is not None
    found = scales.class_loss_by_kernel(made.K, rows.Y, rows.classes, math.exp(p[d + 4]))
    if found is None:
        return 1e25, np.zeros_like(p)
    value, pull, by_steepness = found
    slope = _by_parameters(rows, made, pull, p)
    slope = np.insert(slope, d + 4, by_steepness)
    begin = np.concatenate([np.full(d, 0.5 * math.log(d)), [0.0, 0.0, 0.5 * math.log(0.1), OFFSET]])
    weight = scales.CLASS_PENALTY * np.array([1.0] * (d + 2) + [4.0, 1.0])
    return _with_penalties(value, slope, p, rows, p[: d + 4] - begin, weight)


def _with_penalties(
    value: float, slope: Array, p: Array, rows: _Rows, off: Array, weight: Array
) -> tuple[float, Array]:
    """Both with what keeps parameters near where they begin; slope is overwritten."""
    points, alone = rows.places(p)
    G = len(alone)
    slope[: len(off)] += 2.0 * weight * off
    slope[-G - points.size : -G] += 2.0 * POINT_PENALTY * points.ravel()
    slope[-G:] += 2.0 * ALONE_PENALTY * (alone - ALONE)
    value += float(weight @ off**2) + POINT_PENALTY * float((points**2).sum())
    return value + ALONE_PENALTY * float(((alone - ALONE) ** 2).sum()), slope


@dataclass(frozen=True)
class _Covariances:
    """Rows over their lengths (n, d); a^2 kappa, minus twice its derivative by s, the linear part
    with exp(-e/2), and all of the kernel, each (n, n); points (G, 2) and u (G,).
    """

    scaled: Array
    smooth: Array
    slope: Array
    linear: Array
    K: Array
    points: Array
    alone: Array


def _covariances(p: Array, rows: _Rows) -> _Covariances:
    X, (n, d) = rows.X, rows.X.shape
    points, alone = rows.places(p)
    a2, b2, noise, c2 = np.exp(2.0 * p[d : d + 4])
    u, scaled = np.exp(alone), X / np.exp(p[:d])
    e = squared_distances(points, points) + u[:, None] + u
    e.flat[:: len(e) + 1] = 0.0
    spread = e[np.ix_(rows.at, rows.at)]
    s = squared_distances(scaled, scaled)
    s += spread
    if rows.kernel == "gaussian":
        smooth = slope = a2 * np.exp(-0.5 * s)
    else:
        root = np.sqrt(3.0 * s)
        slope = a2 * np.exp(-root)
        smooth = (1.0 + root) * slope
        slope = 3.0 * slope
    linear = np.exp(-0.5 * e)[np.ix_(rows.at, rows.at)]
    linear *= (X * (b2 / d)) @ X.T
    K = smooth + linear
    for start, stop in zip(rows.starts, [*rows.starts[1:], n], strict=True):
        K[start:stop, start:stop] += c2
    K.flat[:: n + 1] += noise
    return _Covariances(scaled, smooth, slope, linear, K, points, u)


def _by_parameters(rows: _Rows, made: _Covariances, pull: Array, p: Array) -> Array:
    """Derivatives by p, without the steepness, from those by K: (n, n), symmetric."""
    scaled, d = made.scaled, rows.X.shape[1]
    noise, c2 = np.exp(2.0 * p[d + 2 : d + 4])
    bend = pull * made.slope
    along = 2.0 * (bend.sum(axis=1) @ scaled**2 - (scaled * (bend @ scaled)).sum(axis=0))
    by_linear = pull * made.linear
    amplitude = float((pull * made.smooth).sum())
    within = _by_pairs(rows, pull).trace()
    rest = [amplitude, by_linear.sum(), noise * np.trace(pull), c2 * within]
    bend += by_linear
    N = -0.5 * _by_pairs(rows, bend)
    np.fill_diagonal(N, 0.0)
    pulled = N.sum(axis=1)
    by_points = 4.0 * (pulled[:, None] * made.points - N @ made.points)
    by_alone = 2.0 * pulled * made.alone
    return np.concatenate([along, 2.0 * np.array(rest), by_points.ravel(), by_alone])


def _by_pairs(rows: _Rows, values: Array) -> Array:
    """Sums over pairs of groups: (n, n) -> (G, G)."""
    return np.add.reduceat(np.add.reduceat(values, rows.starts, axis=0), rows.starts, axis=1)
