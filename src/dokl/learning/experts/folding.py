"""A bank folded into what predicts: one vector for each map, and no matrix.

The features of a map are L^-1 k(U, x), so its experts are a sum of kernels at its centres,

    f = theta'[1, b x/sqrt(d), a L^-1 k(U, x)] = c + s'x + sum_i h_i k(u_i, x),   h = a L^-T theta

with the experts' theta weighed and added. Constants and slopes of all maps add up, too; slopes of
ranks stay with their map. What is lost is how sure the bank is of a row, which takes the matrices.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dokl.base.arrays import Array
from dokl.base.codec import IF_SET
from dokl.base.unlocked import one_thread
from dokl.learning.experts.bank import AT_ONCE, Bank, mean_and_variance
from dokl.learning.experts.maps import GroupedMap, NestedMap
from dokl.learning.experts.ranks import Ranks
from dokl.learning.experts.scaling import Scaling, follow_on, limits
from dokl.learning.scales import correlation, squared_distances


@dataclass(frozen=True)
class Bumps:
    """A sum of kernels. lengths: (d,); centres: (M, d) over their lengths; heights: (m, M); apart:
    (M,), what is added to the squared distance from each centre; ranked: whether rows count by
    their ranks, and slope: (m, d), of these.
    """

    kernel: str
    lengths: Array
    centres: Array
    heights: Array
    apart: Array
    ranked: bool = False
    slope: Array | None = None

    def at(self, rows: Array) -> Array:
        """(n, m) for standardised rows: (n, d), or their ranks."""
        squared = squared_distances(rows / self.lengths, self.centres)
        near = correlation(self.kernel, squared + self.apart) @ self.heights.T
        return np.asarray(near if self.slope is None else near + rows @ self.slope.T)


@dataclass(frozen=True)
class Folded:
    """base: (m,) and slope: (m, d) for standardised rows and targets; bumps: one for each map;
    ranks: of standardised rows, where a map counts by them; extent: how far standardised rows
    have come, (d,), or (n, d) for the rows to predict (`scaling.follow`, `follow_on`).
    """

    inputs: Scaling
    targets: Scaling
    base: Array
    slope: Array
    bumps: tuple[Bumps, ...]
    ranks: Ranks | None = None
    extent: Array | None = field(default=None, metadata=IF_SET)

    def standardised(self, X: Array) -> Array:
        """Rows X: (n, d), cut off."""
        return self.inputs.clipped(X, limits(self.extent))


@dataclass(frozen=True)
class Waves:
    """f = theta z + constant, z = scale [cos(omega'x + phases)], or [cos, sin] where it is paired:
    a vector on random features.

    omega: (d, F), phases: (F,) or None, theta: (m, D), constant: (m,).
    """

    omega: Array
    phases: Array | None
    scale: float
    theta: Array
    constant: Array

    def at(self, X: Array) -> Array:
        """(n, m) for rows X: (n, d)."""
        angles = X @ self.omega
        if self.phases is None:
            z = np.hstack([np.cos(angles), np.sin(angles)])
        else:
            z = np.cos(angles + self.phases)
        return np.asarray(self.scale * (z @ self.theta.T) + self.constant)


Part = Folded | Waves  # parts of a node's prediction add up


@one_thread()  # the same bits whether or not other threads learn meanwhile
def fold(bank: Bank, group: int = -1) -> Folded:
    """What predicts as the bank does now; before the first pilot the mean of the targets.

    group: where the bank's rows are of groups, the one whose rows are predicted; -1 is any other.
    """
    now, d, m = bank.now, bank.d, bank.m
    if now is None:
        mean, _ = mean_and_variance(bank.total)
        as_they_are = Scaling(np.zeros(d), np.ones(d)), Scaling(mean, np.ones(m))
        return Folded(*as_they_are, np.zeros(m), np.zeros((m, d)), ())
    d -= now.places is not None
    base, slope, bumps, ranks = np.zeros(m), np.zeros((m, d)), [], None
    for key, theta in _add_vectors(bank).items():
        made = now.maps[key]
        parts = _parts_at(made, theta, group)
        ranks = made.ranks or ranks  # the same for all maps that count by them
        base += parts[0]
        slope += parts[1]
        bumps.append(parts[2])
    return Folded(now.inputs, now.targets, base, slope, tuple(bumps), ranks, bank.extent)


@one_thread()
def predict_groups(bank: Bank, X: Array) -> Array:
    """Means (n, m) of rows X: (n, d) of many groups, whose number is the last column, by the same
    sums of kernels; without what is known of their errors.
    """
    now, out = bank.now, np.zeros((len(X), bank.m))
    assert now is not None
    rows, d = now.inward(X, bank.extent), bank.d - 1
    for key, theta in _add_vectors(bank).items():
        made, M = now.maps[key], theta.shape[1] - d - 1
        assert isinstance(made, GroupedMap)
        heights = _heights(made.lower, 1.0, theta[:, d + 1 :])
        slope = theta[:, 1 : d + 1] * (made.scales.linear / math.sqrt(d))
        given = made.counted(rows)
        out += theta[:, 0] + given[:, :-1] @ slope.T
        for at in range(0, len(X), AT_ONCE):
            part = slice(at, at + AT_ONCE)
            out[part] += made.covariance(given[part], made.centres[:M]) @ heights.T
    return now.targets.outward(out)


def folded_on_map(
    made: NestedMap | GroupedMap, inputs: Scaling, targets: Scaling, theta: Array, group: int
) -> Folded:
    """What predicts as theta: (m, D) does on the features of a map, for the rows of a group."""
    base, slope, bumps = _parts_at(made, theta, group)
    return Folded(inputs, targets, base, slope, (bumps,), made.ranks)


def _parts_at(made: NestedMap | GroupedMap, theta: Array, group: int) -> tuple[Array, Array, Bumps]:
    """Constant (m,), slope (m, d) of standardised rows and bumps of theta: (m, D of the first
    features or all), for the rows of a group where the map has groups.
    """
    grouped = isinstance(made, GroupedMap)
    base, slope, bumps = (
        _parts_of_group(made, theta, group) if grouped else _parts(made, theta)  # type: ignore[arg-type]
    )
    if made.ranks is None:
        return base, slope, bumps
    return base, np.zeros_like(slope), replace(bumps, ranked=True, slope=slope)


def _parts(made: NestedMap, theta: Array) -> tuple[Array, Array, Bumps]:
    """The same without groups, with the slope of rows as they are counted."""
    d = made.centres.shape[1]
    slope = theta[:, 1 : d + 1] * (made.scales.linear / math.sqrt(d))
    return theta[:, 0], slope, _bumps(made, theta[:, d + 1 :])


def _parts_of_group(made: GroupedMap, theta: Array, group: int) -> tuple[Array, Array, Bumps]:
    """The same for the rows of one group: how far its centres are is fixed then, so a Gaussian
    kernel and the linear part only become lower.
    """
    d, s, m = made.centres.shape[1] - 1, made.scales, len(theta)
    h, M = _heights(made.lower, 1.0, theta[:, d + 1 :]), theta.shape[1] - d - 1
    centres, groups = made.centres[:M, :-1], made.centres[:M, -1].astype(np.int64)
    apart = made.places.apart(np.array([group]), groups)[0]
    near = h * np.exp(-0.5 * apart)
    base = theta[:, 0] + s.offset**2 * h[:, groups == group].sum(axis=1)
    slope = theta[:, 1 : d + 1] * (s.linear / math.sqrt(d))
    if made.slopes:
        slope = slope + near @ centres * (s.linear**2 / d)
    smooth = made.kernel == "gaussian"
    heights, rest = (near, np.zeros(M)) if smooth else (h, apart)
    bumps = Bumps(made.kernel, s.lengths, centres / s.lengths, s.amplitude**2 * heights, rest)
    return base, slope.reshape(m, d), bumps


def _add_vectors(bank: Bank) -> dict[tuple[Any, str], Array]:
    """For each map that counts the experts' vectors, weighed and added: (m, D of the widest)."""
    out: dict[tuple[Any, str], Array] = {}
    for kind, memory, w in zip(bank.kinds, bank.memories, bank.weights, strict=True):
        if w > 0:
            own, before = w * memory.theta, out.get(kind.features, np.zeros((bank.m, 0)))
            whole = np.zeros((bank.m, max(own.shape[1], before.shape[1])))
            for part in (own, before):
                whole[:, : part.shape[1]] += part
            out[kind.features] = whole
    return out


def _bumps(made: NestedMap, theta: Array) -> Bumps:
    """theta: (m, M), of the first M features beyond the linear ones."""
    M = theta.shape[1]
    heights = _heights(made.lower, made.scales.amplitude, theta)
    return Bumps(made.kernel, made.scales.lengths, made.centres[:M], heights, np.zeros(M))


def _heights(lower: Array, amplitude: float, theta: Array) -> Array:
    """a L^-T theta of theta: (m, M), by the first M rows of L."""
    from scipy.linalg.blas import dtrsm

    M = theta.shape[1]
    if not M:
        return theta
    first = np.asfortranarray(lower[:M, :M])
    return np.ascontiguousarray(dtrsm(amplitude, first, theta.T, lower=1, trans_a=1).T)


def predict_sum(parts: Sequence[Part], X: Array) -> Array:
    """Means (n, m) of rows X: (n, d): what all parts add up to."""
    return np.asarray(sum(predict(part, X) for part in parts))


def ahead(made: Part, steps: Array, rows: int) -> Part:
    """The same for rows at these distances (n,) beyond the n rows learned."""
    if isinstance(made, Waves):
        return made
    return replace(made, extent=follow_on(made.extent, steps, rows))


@one_thread()
def predict(made: Part, X: Array) -> Array:
    """Means (n, m) of rows X: (n, d)."""
    if isinstance(made, Waves):
        return made.at(X)
    out = np.empty((len(X), len(made.base)))
    whole = made.standardised(X)
    for i in range(0, len(X), AT_ONCE):
        rows = whole[i : i + AT_ONCE]
        total = made.base + rows @ made.slope.T
        ranked = rows if made.ranks is None else made.ranks.of(rows)
        for each in made.bumps:
            total += each.at(ranked if each.ranked else rows)
        out[i : i + AT_ONCE] = made.targets.outward(total)
    return out
