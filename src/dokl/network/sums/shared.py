"""Sums that travel: a node's copy of the network's sums as one vector of numbers, and back.

    X = (rows, weight, Z'wZ below the diagonal, Z'wy, y'wy)        S = 2 + D (D + 1)/2 + m (D + 1)

Nodes average their copies, so each comes to hold 1/K of the network's total. Multiplying by
K and solves knows what one place with all rows would know:

    P = (K X_zz + rho I)^-1,   theta = P K X_zy

Forgetting is back to the prior, as in `rows`, and not linear: a finite memory forgets what it got
at an exchange before it adds to it, by as many rows as the network has learned since the one
before. Only `rows` is never discounted, so that it counts these.
"""

from __future__ import annotations

import numpy as np

from dokl.base.arrays import Array
from dokl.learning.squares import sums as added_up
from dokl.learning.squares.blocks import NotDefinite
from dokl.learning.squares.memory import Memory, Numbers
from dokl.learning.squares.sums import Sums, solve

ROWS = 0  # where a vector counts its rows


def size(D: int, m: int) -> int:
    """How many numbers."""
    return 2 + D * (D + 1) // 2 + m * (D + 1)


def pack(sums: Sums) -> Array:
    """Sums as one vector: (S,)."""
    from scipy.linalg import lapack

    triangle, _ = lapack.dtrttp(sums.zz, uplo="L")
    return np.concatenate([[sums.rows, sums.weight], triangle, sums.zy.ravel(), sums.yy])


def unpack(vector: Array, D: int, m: int, times: float = 1.0) -> Sums:
    """The sums that were packed, times a number: K, where they are a node's copy."""
    from scipy.linalg import lapack

    vector = times * vector.astype(np.float64)
    end = 2 + D * (D + 1) // 2
    zz, _ = lapack.dtpttr(D, vector[2:end], uplo="L")
    zy = vector[end : end + m * D].reshape(m, D)
    return Sums(round(float(vector[ROWS])), float(vector[1]), zz, zy, vector[end + m * D :])


def of_rows(Z: Array, Y: Array, weight: Array | None) -> Array:
    """The vector (S,) of rows Z: (n, D), Y: (n, m)."""
    return pack(added_up.add(added_up.no_rows(Z.shape[1], Y.shape[1]), Z, Y, weight))


def to_memory(sums: Sums, rho: float) -> Memory:
    """What one who saw these rows would know.

    Sums that were rounded on their way need not be of any rows. How far Z'Z is below zero shows
    how far they are off, and nothing smaller than that is believed: the ridge is raised by twice as
    much.
    """
    from scipy.linalg import lapack

    lower = np.array(sums.zz, order="F")
    lower.T.flat[:: len(lower) + 1] += 0.1 * rho
    if lapack.dpotrf(lower, lower=1, clean=0, overwrite_a=1)[1] == 0:
        return solve(sums, rho)
    least = float(np.linalg.eigvalsh(sums.zz, UPLO="L")[0])
    return solve(sums, rho - 2.0 * least)


def forget(numbers: Numbers, sums: Sums, memory: Memory, rows: float) -> Sums:
    """What is left of sums, of which `memory` was learned, after n further rows."""
    from scipy.linalg import lapack
    from scipy.linalg.blas import dsymm

    D, gone = len(memory.P), numbers.lam**rows
    P = np.array(gone * memory.P, order="F")
    P.T.flat[:: D + 1] += (1.0 - gone) / numbers.rho
    C, info = lapack.dpotrf(P, lower=1, clean=1, overwrite_a=1)
    if info:
        raise NotDefinite
    zz, _ = lapack.dpotri(C, lower=1, overwrite_c=1)
    theta = np.sqrt(gone) * memory.theta
    zy = dsymm(1.0, zz, theta.T, lower=1).T
    zz.T.flat[:: D + 1] -= numbers.rho
    left = np.maximum(sums.yy - (memory.theta * sums.zy).sum(axis=1), 0.0)
    yy = gone * left + (theta * zy).sum(axis=1)
    return Sums(sums.rows, gone * sums.weight, zz, zy, yy)
