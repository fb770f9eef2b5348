"""Mixing that a few liars cannot steer: which of the neighbours' vectors are used, and how.

apart: (n, P) differences of what n neighbours sent from one's own; weights: (n,) theirs. One's own
has what is left, 1 - sum(weights), and is never dropped. The weights of those that remain are
divided by their sum, own weight included.
"""

from __future__ import annotations

import numpy as np

from dokl.arrays import Array


def scissors(weights: Array, apart: Array, liars: int, far: float = 0.0) -> Array:
    """Iterative outlier scissors (Wu, Chen, Ling 2023): which neighbours remain, (n,) of bool.

    As often as there may be liars, the neighbour farthest from the weighted mean of what remains is
    dropped, if it is more than `far` times as far from it as the median, one's own included. Liars
    of less than a third of the weight who say the same move the mean by less than a third of their
    distance, so they are more than twice as far from it as those they lie to: with far below 2 they
    are still dropped, and honest neighbours that differ are mostly kept.
    """
    left, own = np.ones(len(weights), bool), 1.0 - weights.sum()
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(min(liars, len(weights))):
            share = np.where(left, weights, 0.0)
            total = own + share.sum()
            mean = share @ apart / (total if total > 0 else 1.0)
            off = np.sqrt(np.einsum("np,np->n", apart - mean, apart - mean))
            off = np.nan_to_num(off, nan=np.inf)
            last = int(np.argmax(np.where(left, off, -1.0)))
            middle = np.median([np.sqrt(mean @ mean), *off[left]])
            if not off[last] > far * middle:
                break
            left[last] = False
    return left


def trimmed(weights: Array, apart: Array, liars: int) -> Array:
    """Coordinate-wise trimmed mean, weighted: how far to move, (P,).

    Of every number the `liars` largest and the `liars` smallest that neighbours sent are dropped.
    """
    order = np.argsort(apart, axis=0, kind="stable")[liars : len(weights) - liars]
    if not len(order):
        return np.zeros(apart.shape[1])
    share = weights[order]
    total = 1.0 - weights.sum() + share.sum(axis=0)
    moved = (share * np.take_along_axis(apart, order, axis=0)).sum(axis=0)
    return np.asarray(moved / np.where(total > 0, total, 1.0))
