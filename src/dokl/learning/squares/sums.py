"""What an infinite memory is a function of: sums over its rows. They add up, and subtract.

    X = (weight, Z'wZ, Z'wy, y'wy),   P = (Z'wZ + rho I)^-1,   theta = P Z'wy

The sums of two streams add up to what one learner of both would know, and subtracting
one again knows what one who never saw it would know.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dokl.base import unlocked
from dokl.base.arrays import Array
from dokl.learning.squares.blocks import NotDefinite
from dokl.learning.squares.memory import (
    FIRST_NOISE,
    FIRST_ROWS,
    LEAST_NOISE,
    LIST,
    Memory,
)


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


def no_rows(D: int, m: int) -> Sums:
    """Of no rows."""
    return Sums(0, 0.0, np.zeros((D, D), order="F"), np.zeros((m, D)), np.zeros(m))


def add(sums: Sums, Z: Array, Y: Array, weight: Array | None = None) -> Sums:
    """The sums with rows Z: (n, D), Y: (n, m) of these weights, in arrays of its own."""
    root = None if weight is None or (weight == 1.0).all() else np.sqrt(weight)[:, None]
    Z, Y = (Z, Y) if root is None else (Z * root, Y * root)
    zz = np.array(sums.zz, order="F")
    unlocked.syrk(1.0, Z, 1.0, zz)
    total = float(len(Z)) if weight is None else float(weight.sum())
    counts = sums.rows + len(Z), sums.weight + total
    return Sums(*counts, zz, sums.zy + Y.T @ Z, sums.yy + (Y * Y).sum(axis=0))


def times(sums: Sums, factor: float) -> Sums:
    """The same rows, each of n times its weight."""
    zz, zy, yy = (factor * part for part in (sums.zz, sums.zy, sums.yy))
    return Sums(sums.rows, factor * sums.weight, zz, zy, yy)


def narrow(sums: Sums, D: int) -> Sums:
    """The sums of the first D features of the same rows."""
    if sums.zy.shape[1] == D:
        return sums
    zz, zy = np.asfortranarray(sums.zz[:D, :D]), np.ascontiguousarray(sums.zy[:, :D])
    return Sums(sums.rows, sums.weight, zz, zy, sums.yy)


@dataclass(frozen=True)
class Solution:
    """What sums come to, without the inverse that only learning on needs. theta: (m, D); factor: C
    (D, D) in Fortran's order, lower, with Z'wZ + rho I = C C'; num: (m,) and den: noise num/den.
    """

    theta: Array
    factor: Array
    num: Array
    den: float

    @property
    def noise(self) -> Array:
        """The noise variance of each output, (m,); never 0."""
        return np.maximum(self.num / self.den, LEAST_NOISE)

    def variance(self, Z: Array) -> Array:
        """z'Pz of each row of Z: (B, D)."""
        half = np.array(Z.T, order="F")
        unlocked.trsm_left(1.0, self.factor, half)
        return np.asarray(np.einsum("db,db->b", half, half))

    def memory(self) -> Memory:
        """From which rows are learned one after another."""
        D, P = len(self.factor), self.factor.copy(order="F")
        unlocked.potri(P)
        nothing = np.zeros((LIST, D)), np.zeros(LIST), 0
        return Memory(self.theta, P, 1.0, 0.0, *nothing, self.num, self.den)


def solution(sums: Sums, rho: float) -> Solution:
    """The posterior of these rows, and the noise they left.

    Raises NotDefinite where sums were subtracted that were never in it.
    """
    from scipy.linalg import lapack

    factor = np.array(sums.zz, order="F")
    factor.T.flat[:: len(factor) + 1] += rho
    if not unlocked.potrf(factor):
        raise NotDefinite
    theta = lapack.dpotrs(factor, sums.zy.T, lower=1)[0].T
    # The innovations of all rows, e^2/s, add up to what the best fit and the prior leave.
    left = np.maximum(sums.yy - (theta * sums.zy).sum(axis=1), 0.0)
    num, den = FIRST_NOISE * FIRST_ROWS + left, FIRST_ROWS + sums.weight
    return Solution(np.ascontiguousarray(theta), factor, num, den)


def solve(sums: Sums, rho: float) -> Memory:
    """What one who learned these rows would know. Raises NotDefinite as `solution` does."""
    return solution(sums, rho).memory()
