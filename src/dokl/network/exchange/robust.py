"""Mixing that a few faulty nodes cannot steer: which of the neighbours' vectors are used, and how.

apart: (n, P) differences of what n neighbours sent from one's own; weights: (n,) theirs. One's own
has what is left, 1 - sum(weights), and is never dropped. The weights of those that remain are
divided by their sum, own weight included.
"""

from __future__ import annotations

import numpy as np

from dokl.base.arrays import Array


def iterative_outliers(weights: Array, apart: Array, faulty: int, far: float = 0.0) -> Array:
    """Iterative outlier scissors (Wu, Chen, Ling 2023): which neighbours remain, (n,) of bool.

    `faulty` times the farthest neighbour of those that remain is dropped. With far = 0, as
    published, it is always dropped, and the one farthest from their weighted mean. Otherwise what
    counts is the median distance to the others, one's own included, and only one more than `far`
    times as far as usual is dropped: faulty nodes cannot draw a median towards themselves as they
    draw a mean, and two honest ones differ by what both have seen.
    """
    left = np.ones(len(weights), bool)
    with np.errstate(over="ignore", invalid="ignore"):
        between = _distances(apart) if far and faulty else np.empty((0, 0))
        for _ in range(min(faulty, len(weights))):
            off = _to_others(between, left) if far else _to_mean(weights, apart, left)
            last = int(np.argmax(np.where(left, off[1:], -1.0)))
            if far and not off[1 + last] > far * np.median(off[np.r_[True, left]]):
                break
            left[last] = False
    return left


def _to_mean(weights: Array, apart: Array, left: Array) -> Array:
    """Distances from the weighted mean of what is left: (1 + n,), one's own first."""
    share = np.where(left, weights, 0.0)
    total = 1.0 - weights.sum() + share.sum()
    mean = share @ apart / (total if total > 0 else 1.0)
    off = np.vstack([-mean, apart - mean])
    return np.asarray(np.nan_to_num(np.sqrt(np.einsum("np,np->n", off, off)), nan=np.inf))


def _distances(apart: Array) -> Array:
    """Between all, one's own first: (1 + n, 1 + n); nan from each to itself."""
    every = np.vstack([np.zeros_like(apart[:1]), apart])
    products = every @ every.T
    both = products.diagonal()[:, None] + products.diagonal()
    squares = both - 2 * products
    squares[squares < 1e-12 * both] = 0.0  # what rounding leaves of two that are the same
    between = np.sqrt(np.nan_to_num(squares, nan=np.inf))
    np.fill_diagonal(between, np.nan)
    return np.asarray(between)


def _to_others(between: Array, left: Array) -> Array:
    """The median distance of each to the others that are left: (1 + n,)."""
    return np.asarray(np.nanmedian(between[:, np.r_[True, left]], axis=1))


def trimmed(weights: Array, apart: Array, faulty: int) -> Array:
    """Coordinate-wise trimmed mean, weighted: how far to move, (P,).

    Of every number the `faulty` largest and the `faulty` smallest of the neighbours are dropped.
    """
    order = np.argsort(apart, axis=0, kind="stable")[faulty : len(weights) - faulty]
    if not len(order):
        return np.zeros(apart.shape[1])
    share = weights[order]
    total = 1.0 - weights.sum() + share.sum(axis=0)
    moved = (share * np.take_along_axis(apart, order, axis=0)).sum(axis=0)
    return np.asarray(moved / np.where(total > 0, total, 1.0))
