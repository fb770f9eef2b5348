"""A bank folded into what predicts: one vector for each map, and no matrix.

The features of a map are L^-1 k(U, x), so its experts are a sum of kernels at its centres,

    f = theta'[1, b x/sqrt(d), a L^-1 k(U, x)] = c + s'x + sum_i h_i k(u_i, x),   h = a L^-T theta

with the experts' theta weighed and added. Constants and slopes of all maps add up, too. What is
lost is how sure the bank is of a row, which takes the matrices. A vector on a map that a network
has agreed on becomes the same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dokl.arrays import Array
from dokl.experts.agreed import AgreedMap
from dokl.experts.bank import AT_ONCE, Bank
from dokl.experts.bending import Bending
from dokl.experts.maps import NestedMap
from dokl.experts.scaling import Scaling
from dokl.scales import KERNELS, correlation, squared_distances


@dataclass(frozen=True)
class Bumps:
    """A sum of kernels. lengths: (d,); centres: (M, d) over their lengths; heights: (m, M)."""

    kernel: str
    lengths: Array
    centres: Array
    heights: Array

    def at(self, rows: Array) -> Array:
        """(n, m) for standardised rows: (n, d)."""
        near = correlation(self.kernel, squared_distances(rows / self.lengths, self.centres))
        return np.asarray(near @ self.heights.T)


@dataclass(frozen=True)
class Folded:
    """base: (m,) and slope: (m, d) for standardised rows and targets; bumps: one for each map.

    inputs: bent only by the maps of networks, which are not written to files in this form.
    """

    inputs: Scaling | Bending
    targets: Scaling
    base: Array
    slope: Array
    bumps: tuple[Bumps, ...]


def folded(bank: Bank) -> Folded:
    """What predicts as the bank does now; before the first pilot the mean of the targets."""
    now, d, m = bank.now, bank.d, bank.m
    if now is None:
        weight, first, _ = bank.total
        mean = first / weight if weight else first
        as_they_are = Scaling(np.zeros(d), np.ones(d)), Scaling(mean, np.ones(m))
        return Folded(*as_they_are, np.zeros(m), np.zeros((m, d)), ())
    base, slope, bumps = np.zeros(m), np.zeros((m, d)), []
    for key, theta in _added(bank).items():
        parts = _parts(now.maps[key], theta)
        base += parts[0]
        slope += parts[1]
        bumps.append(parts[2])
    return Folded(now.inputs, now.targets, base, slope, tuple(bumps))


def folded_vector(made: AgreedMap, theta: Array, bias: Array, offset: Array) -> Folded:
    """What predicts as theta: (m, D) does on the features of a map, with a constant bias: (m,), of
    targets from which an offset (m,) was taken before they were learned.
    """
    base, slope, bumps = _parts(made.nested, theta)
    targets = Scaling(made.targets.outward(offset), made.targets.size)
    return Folded(made.inputs, targets, base + bias, slope, (bumps,))


def _parts(made: NestedMap, theta: Array) -> tuple[Array, Array, Bumps]:
    """Constant (m,), slope (m, d) and bumps of theta: (m, D of the first features or all)."""
    d = made.centres.shape[1]
    slope = theta[:, 1 : d + 1] * (made.scales.linear / math.sqrt(d))
    return theta[:, 0], slope, _bumps(made, theta[:, d + 1 :])


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
    from scipy.linalg.blas import dtrsm

    M = theta.shape[1]
    lower = np.asfortranarray(made.lower[:M, :M])
    heights = dtrsm(made.scales.amplitude, lower, theta.T, lower=1, trans_a=1) if M else theta.T
    return Bumps(
        made.kernel, made.scales.lengths, made.centres[:M], np.ascontiguousarray(heights.T)
    )


def predict(made: Folded, X: Array) -> Array:
    """Means (n, m) of rows X: (n, d)."""
    out = np.empty((len(X), len(made.base)))
    for i in range(0, len(X), AT_ONCE):
        rows = made.inputs.clipped(X[i : i + AT_ONCE])
        total = made.base + rows @ made.slope.T
        for each in made.bumps:
            total += each.at(rows)
        out[i : i + AT_ONCE] = made.targets.outward(total)
    return out


# -- files ---------------------------------------------------------------------------------------
def to_arrays(made: Folded) -> tuple[list[str], dict[str, Array]]:
    """The kernels' names, and every array by name."""
    out = {"base": made.base, "slope": made.slope}
    for name, scaling in (("inputs", made.inputs), ("targets", made.targets)):
        out |= {f"{name}.centre": scaling.centre, f"{name}.size": scaling.size}
    for i, each in enumerate(made.bumps):
        parts = {"lengths": each.lengths, "centres": each.centres, "heights": each.heights}
        out |= {f"map.{i}.{name}": array for name, array in parts.items()}
    return [each.kernel for each in made.bumps], out


def from_arrays(kernels: Sequence[str], arrays: Mapping[str, Array]) -> Folded:
    """What was written; KeyError, TypeError or ValueError where that cannot be."""
    m, d = arrays["slope"].shape
    bumps = []
    for i, kernel in enumerate(kernels):
        if kernel not in KERNELS:
            raise ValueError(f"{kernel!r} is no kernel")
        M = len(arrays[f"map.{i}.centres"])
        shapes = {"lengths": (d,), "centres": (M, d), "heights": (m, M)}
        parts = [checked(arrays, f"map.{i}.{name}", *shape) for name, shape in shapes.items()]
        bumps.append(Bumps(kernel, *parts))
    inputs, targets = (
        Scaling(checked(arrays, f"{name}.centre", k), checked(arrays, f"{name}.size", k))
        for name, k in (("inputs", d), ("targets", m))
    )
    base, slope = checked(arrays, "base", m), checked(arrays, "slope", m, d)
    return Folded(inputs, targets, base, slope, tuple(bumps))


def checked(arrays: Mapping[str, Array], name: str, *shape: int) -> Array:
    """The array of this name, if it has this shape and finite numbers."""
    array = arrays[name]
    if array.shape != shape or not np.isfinite(array).all():
        raise ValueError(f"{name} is not {shape} finite numbers")
    return array
