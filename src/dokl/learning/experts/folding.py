"""A bank folded into what predicts: one vector for each map, and no matrix.

The features of a map are L^-1 k(U, x), so its experts are a sum of kernels at its centres,

    f = theta'[1, b x/sqrt(d), a L^-1 k(U, x)] = c + s'x + sum_i h_i k(u_i, x),   h = a L^-T theta

with the experts' theta weighed and added. Constants and slopes of all maps add up, too; slopes of
ranks stay with their map. What is lost is how sure the bank is of a row, which takes the matrices.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dokl.base.arrays import Array
from dokl.base.unlocked import one_thread
from dokl.learning.experts.bank import AT_ONCE, Bank, mean_and_variance
from dokl.learning.experts.maps import GroupedMap, NestedMap
from dokl.learning.experts.ranks import Ranks, checked_ranks
from dokl.learning.experts.scaling import Scaling
from dokl.learning.scales import KERNELS, correlation, squared_distances


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
    ranks: of standardised rows, where a map counts by them.
    """

    inputs: Scaling
    targets: Scaling
    base: Array
    slope: Array
    bumps: tuple[Bumps, ...]
    ranks: Ranks | None = None


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
def folded(bank: Bank, group: int = -1) -> Folded:
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
    for key, theta in _added(bank).items():
        made = now.maps[key]
        if isinstance(made, GroupedMap):
            parts = _parts_of_group(made, theta, group)
        else:
            parts = _parts(made, theta)
            ranks = made.ranks or ranks  # the same for all maps that count by them
        base += parts[0]
        slope += parts[1]
        bumps.append(parts[2])
    return Folded(now.inputs, now.targets, base, slope, tuple(bumps), ranks)


@one_thread()
def predict_groups(bank: Bank, X: Array) -> Array:
    """Means (n, m) of rows X: (n, d) of many groups, whose number is the last column, by the same
    sums of kernels; without what is known of their errors.
    """
    now, out = bank.now, np.zeros((len(X), bank.m))
    assert now is not None
    rows, d = now.inward(X), bank.d - 1
    for key, theta in _added(bank).items():
        made, M = now.maps[key], theta.shape[1] - d - 1
        assert isinstance(made, GroupedMap)
        heights = _heights(made.lower, 1.0, theta[:, d + 1 :])
        slope = theta[:, 1 : d + 1] * (made.scales.linear / math.sqrt(d))
        out += theta[:, 0] + rows[:, :-1] @ slope.T
        for at in range(0, len(X), AT_ONCE):
            part = slice(at, at + AT_ONCE)
            out[part] += made.covariance(rows[part], made.centres[:M]) @ heights.T
    return now.targets.outward(out)


def folded_on_map(
    made: NestedMap | GroupedMap, inputs: Scaling, targets: Scaling, theta: Array, group: int
) -> Folded:
    """What predicts as theta: (m, D) does on the features of a map, for the rows of a group."""
    grouped = isinstance(made, GroupedMap)
    parts = _parts_of_group(made, theta, group) if grouped else _parts(made, theta)  # type: ignore[arg-type]
    return Folded(inputs, targets, parts[0], parts[1], (parts[2],))


def _parts(made: NestedMap, theta: Array) -> tuple[Array, Array, Bumps]:
    """Constant (m,), slope (m, d) and bumps of theta: (m, D of the first features or all)."""
    d = made.centres.shape[1]
    slope, bumps = theta[:, 1 : d + 1] * (made.scales.linear / math.sqrt(d)), theta[:, d + 1 :]
    if made.ranks is None:
        return theta[:, 0], slope, _bumps(made, bumps)
    ranked = replace(_bumps(made, bumps), ranked=True, slope=slope)
    return theta[:, 0], np.zeros_like(slope), ranked


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


def _added(bank: Bank) -> dict[tuple[Any, str], Array]:
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


@one_thread()
def predict(made: Part, X: Array) -> Array:
    """Means (n, m) of rows X: (n, d)."""
    if isinstance(made, Waves):
        return made.at(X)
    out = np.empty((len(X), len(made.base)))
    for i in range(0, len(X), AT_ONCE):
        rows = made.inputs.clipped(X[i : i + AT_ONCE])
        total = made.base + rows @ made.slope.T
        ranked = rows if made.ranks is None else made.ranks.of(rows)
        for each in made.bumps:
            total += each.at(ranked if each.ranked else rows)
        out[i : i + AT_ONCE] = made.targets.outward(total)
    return out


# -- files ---------------------------------------------------------------------------------------
WAVES = "waves"  # in place of the kernels' names


def to_arrays(made: Part) -> tuple[list[str], dict[str, Array]]:
    """The kernels' names, and every array by name."""
    if isinstance(made, Waves):
        given = vars(made) | {"scale": np.array(made.scale)}
        return [WAVES], {name: array for name, array in given.items() if array is not None}
    out = {"base": made.base, "slope": made.slope}
    for name, scaling in (("inputs", made.inputs), ("targets", made.targets)):
        out |= {f"{name}.centre": scaling.centre, f"{name}.size": scaling.size}
    for i, each in enumerate(made.bumps):
        parts = {"lengths": each.lengths, "centres": each.centres, "heights": each.heights}
        parts |= {"apart": each.apart} if each.apart.any() else {}
        parts |= {} if each.slope is None else {"slope": each.slope}
        out |= {f"map.{i}.{name}": array for name, array in parts.items()}
    if made.ranks is not None:
        out |= {"ranks.values": made.ranks.values, "ranks.scores": made.ranks.scores}
    return [each.kernel for each in made.bumps], out


def from_arrays(kernels: Sequence[str], arrays: Mapping[str, Array]) -> Part:
    """What was written; KeyError, TypeError or ValueError where that cannot be."""
    if list(kernels) == [WAVES]:
        return _waves(arrays)
    m, d = arrays["slope"].shape
    bumps = []
    for i, kernel in enumerate(kernels):
        if kernel not in KERNELS:
            raise ValueError(f"{kernel!r} is no kernel")
        M = len(arrays[f"map.{i}.centres"])
        shapes = {"lengths": (d,), "centres": (M, d), "heights": (m, M)}
        parts = [checked(arrays, f"map.{i}.{name}", *shape) for name, shape in shapes.items()]
        there = f"map.{i}.apart" in arrays
        apart = checked(arrays, f"map.{i}.apart", M) if there else np.zeros(M)
        ranked = f"map.{i}.slope" in arrays
        slope = checked(arrays, f"map.{i}.slope", m, d) if ranked else None
        bumps.append(Bumps(kernel, parts[0], parts[1], parts[2], apart, ranked, slope))
    inputs, targets = (
        Scaling(checked(arrays, f"{name}.centre", k), checked(arrays, f"{name}.size", k))
        for name, k in (("inputs", d), ("targets", m))
    )
    base, slope = checked(arrays, "base", m), checked(arrays, "slope", m, d)
    ranks = None
    if any(each.ranked for each in bumps):
        ranks = checked_ranks(Ranks(arrays["ranks.values"], arrays["ranks.scores"]), d)
    return Folded(inputs, targets, base, slope, tuple(bumps), ranks)


def _waves(arrays: Mapping[str, Array]) -> Waves:
    (d, F), (m, D) = arrays["omega"].shape, arrays["theta"].shape
    phases = checked(arrays, "phases", F) if "phases" in arrays else None
    if (2 * F if phases is None else F) != D:
        raise ValueError(f"{D} features of {F} waves")
    omega, theta = checked(arrays, "omega", d, F), checked(arrays, "theta", m, D)
    return Waves(
        omega, phases, float(checked(arrays, "scale")), theta, checked(arrays, "constant", m)
    )


def checked(arrays: Mapping[str, Array], name: str, *shape: int) -> Array:
    """The array of this name, if it has this shape and finite numbers."""
    array = arrays[name]
    if array.shape != shape or not np.isfinite(array).all():
        raise ValueError(f"{name} is not {shape} finite numbers")
    return array
