"""What an infinite memory is a function of: sums over its rows. They add up, and subtract.

    X = (weight, Z'wZ, Z'wy, y'wy),   P = (Z'wZ + rho I)^-1,   theta = P Z'wy

Whoever adds the sums of two streams knows what one who saw both would know, and whoever subtracts
one again knows what one who never saw it would know.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dokl.base import unlocked
from dokl.base.arrays import Array
from dokl.learning.squares.blocks import NotDefinite
from dokl.learning.squares.memory import FIRST_NOISE, FIRST_ROWS, LIST, Memory


@dataclass(frozen=True)
class Sums:
    """rows: how many; weight: their sum; zz: (D, D) in Fortran's order, its lower triangle;
    zy: (m, D); yy: (m,).
    """

    rows: int
    weight: float
    zz: Array
    zy: Array
    yy: Array

    def __add__(self, other: Sums) -> Sums:
        return self._with(other, 1)

    def __sub__(self, other: Sums) -> Sums:
        return self._with(other, -1)

    def _with(self, other: Sums, sign: int) -> Sums:
        counts = self.rows + sign * other.rows, self.weight + sign * other.weight
        pairs = (self.zz, other.zz), (self.zy, other.zy), (self.yy, other.yy)
        return Sums(*counts, *(a + sign * b for a, b in pairs))


def nothing(D: int, m: int) -> Sums:
    """Of no rows."""
    return Sums(0, 0.0, np.zeros((D, D), order="F"), np.zeros((m, D)), np.zeros(m))


def added(sums: Sums, Z: Array, Y: Array, weight: Array | None = None) -> Sums:
    """The sums with rows Z: (n, D), Y: (n, m) of these weights, in arrays of its own."""
    root = None if weight is None or (weight == 1.0).all() else np.sqrt(weight)[:, None]
    Z, Y = (Z, Y) if root is None else (Z * root, Y * root)
    zz = np.array(sums.zz, order="F")
    unlocked.syrk(1.0, Z, 1.0, zz)
    total = float(len(Z)) if weight is None else float(weight.sum())
    counts = sums.rows + len(Z), sums.weight + total
    return Sums(*counts, zz, sums.zy + Y.T @ Z, sums.yy + (Y * Y).sum(axis=0))


def times(sums: Sums, factor: float) -> Sums:
    """The same rows, each of so many times its weight."""
    zz, zy, yy = (factor * part for part in (sums.zz, sums.zy, sums.yy))
    return Sums(sums.rows, factor * sums.weight, zz, zy, yy)


def narrowed(sums: Sums, D: int) -> Sums:
    """The sums of the first D features of the same rows."""
    if sums.zy.shape[1] == D:
        return sums
    zz, zy = np.asfortranarray(sums.zz[:D, :D]), np.ascontiguousarray(sums.zy[:, :D])
    return Sums(sums.rows, sums.weight, zz, zy, sums.yy)


def solved(sums: Sums, rho: float) -> Memory:
    """What one who learned these rows would know: the posterior, and the noise they left.

    Raises NotDefinite where sums were subtracted that were never in it.
    """
    from scipy.linalg import lapack

    D = sums.zy.shape[1]
    P = np.array(sums.zz, order="F")
    P.T.flat[:: D + 1] += rho
    if not unlocked.potrf(P):
        raise NotDefinite
    theta = lapack.dpotrs(P, sums.zy.T, lower=1)[0].T
    unlocked.potri(P)
    # The innovations of all rows, e^2/s, add up to what the best fit and the prior leave.
    left = np.maximum(sums.yy - (theta * sums.zy).sum(axis=1), 0.0)
    num, den = FIRST_NOISE * FIRST_ROWS + left, FIRST_ROWS + sums.weight
    known = np.ascontiguousarray(theta), P
    return Memory(*known, 1.0, 0.0, np.zeros((LIST, D)), np.zeros(LIST), 0, num, den)


def definite(memory: Memory) -> bool:
    """Whether the matrix can still be a covariance, at a glance: no variance below 0."""
    return bool(np.isfinite(memory.den) and memory.den > 0) and not bool(
        (memory.P.diagonal() * memory.a + memory.b < 0).any() or math.isnan(memory.P[0, 0])
    )
