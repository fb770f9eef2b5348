"""What a node of least squares knows, with the newest rows as a short list beside the matrix.

The covariance of theta, in units of the noise variance, is

    P_now = a P + b I - sum_i c_i^2 w_i w_i'          i = 1..n, rows w_i since P was last written

A matrix of D x D is too large to write for every row: a row adds one w to the list, and every
`LIST` rows the list is folded into P. So a row costs one product P z, what was before stays intact
(old arrays are never written to, but for places of the list beyond its own n), and rows that are
fed one by one give the same bits however they are cut into calls.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dokl.base import unlocked
from dokl.base.arrays import Array

LIST = 64
# Noise variance to begin with, for targets of unit variance, and the rows that this counts for.
FIRST_NOISE, FIRST_ROWS = 0.01, 10.0
LEAST_NOISE = 1e-12
# Where innovations are bounded, a row adds to the noise as one of this many standard deviations at
# most. As many as the bound itself, 100 s2, would make one wild row in a hundred raise it for ever.
CALM = 3.0


@dataclass(frozen=True)
class Numbers:
    """Settings of a learner: ridge rho, memory factor lam, bound on innovations (infinite: none).

    A memory of N rows is lam = 1 - 1/N.
    """

    rho: float
    lam: float = 1.0
    bound: float = math.inf

    @property
    def calm(self) -> float:
        """How many standard deviations of a row count in the noise."""
        return self.bound if self.bound == math.inf else min(self.bound, CALM)


@dataclass(frozen=True)
class Memory:
    """theta: (m, D); P: (D, D) in Fortran's order, its lower triangle; a, b: see above; W: (LIST,
    D) and c: (LIST,) with n in use; num: (m,) and den: noise variance num/den.
    """

    theta: Array
    P: Array
    a: float
    b: float
    W: Array
    c: Array
    n: int
    num: Array
    den: float

    @property
    def noise(self) -> Array:
        """s2: (m,), the noise variance of each output; never 0, however constant targets are."""
        return np.maximum(self.num / self.den, LEAST_NOISE)

    def times(self, Z: Array) -> Array:
        """P_now Z': (D, B) for rows Z: (B, D)."""
        if len(Z) == 1:
            from scipy.linalg.blas import dsymv

            G = dsymv(self.a, self.P, Z[0], lower=1)[:, None]
        else:
            G = unlocked.symm(self.a, self.P, Z)
        if self.b:
            G += self.b * Z.T
        if self.n:
            W = self.W[: self.n]
            G -= W.T @ ((self.c[: self.n] ** 2)[:, None] * (W @ Z.T))
        return np.asarray(G)

    def variance(self, Z: Array) -> Array:
        """z'P_now z of each row of Z: (B, D)."""
        return np.asarray(np.einsum("bd,db->b", Z, self.times(Z)))

    def predict(self, Z: Array) -> tuple[Array, Array]:
        """Means and variances (B, m) of targets of rows Z: (B, D)."""
        return Z @ self.theta.T, (1.0 + self.variance(Z))[:, None] * self.noise

    def covariance(self) -> Array:
        """P_now as a full symmetric matrix."""
        P = fold(self).P
        return np.tril(P) + np.tril(P, -1).T


def start(D: int, m: int, rho: float) -> Memory:
    """The prior: theta = 0, P = I/rho."""
    P = np.zeros((D, D), order="F")
    P.T.flat[:: D + 1] = 1.0 / rho
    noise = np.full(m, FIRST_NOISE * FIRST_ROWS), FIRST_ROWS
    empty = np.zeros((LIST, D)), np.zeros(LIST), 0
    return Memory(np.zeros((m, D)), P, 1.0, 0.0, *empty, *noise)


def fold(memory: Memory, over: bool = False) -> Memory:
    """The same knowledge with an empty list, in arrays of its own, or written over P."""
    n = memory.n
    if not n and memory.a == 1.0 and not memory.b:
        return memory
    W = memory.W[:n] * memory.c[:n, None]
    P = memory.P if over else np.array(memory.P, order="F")
    unlocked.syrk(-1.0, W, memory.a, P)
    P.T.flat[:: len(P) + 1] += memory.b
    empty: dict[str, Any] = {"W": np.zeros_like(memory.W), "c": np.zeros(LIST), "n": 0}
    return replace(memory, P=P, a=1.0, b=0.0, **empty)


def listed(memory: Memory, W: Array) -> tuple[Array, Array, int]:
    """The list with further w: (B, D); they must fit."""
    n = memory.n + len(W)
    memory.W[memory.n : n] = W
    c = memory.c.copy()
    c[memory.n : n] = 1.0
    return memory.W, c, n
