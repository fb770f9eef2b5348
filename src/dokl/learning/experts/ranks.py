"""Inputs by their ranks: each becomes the normal score of its rank among the rows of a pilot.

What is measured in powers of ten, or has long tails, stands in one corner of its scale, and one
length cannot suit all of it. Ranks spread it evenly. They lose what distances mean, so experts on
ranks stand beside those on the inputs themselves, never instead.

A score is a piecewise linear function of the input, which is constant beyond the rows seen. Rows
with the same value share the middle of their ranks; an input of few values stays as it is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dokl.base.arrays import Array
from dokl.learning.experts.scaling import CLIP

KNOTS = 128
FEW_VALUES = 10
NOTHING = 1e-290  # is as good as 0: between closer values, slopes overflow
LEAST = 1e-9  # of a rank: light rows beside heavy ones share the ends


@dataclass(frozen=True)
class Ranks:
    """values: (K, d) of standardised inputs, increasing; scores: (K, d), what these become."""

    values: Array
    scores: Array

    def of(self, rows: Array) -> Array:
        """Standardised rows (n, d) -> scores (n, d)."""
        out = np.empty(rows.shape)
        for j in range(rows.shape[1]):
            out[:, j] = np.interp(rows[:, j], self.values[:, j], self.scores[:, j])
        return out


def checked_ranks(ranks: Ranks, d: int) -> Ranks:
    """Ranks from a file, of d inputs; ValueError where that cannot be."""
    shape = len(ranks.values), d
    for part in (ranks.values, ranks.scores):
        if part.shape != shape or len(part) < 2 or not np.isfinite(part).all():
            raise ValueError(f"ranks are not {shape} finite numbers")
    if not (
        (np.diff(ranks.values, axis=0) > 0).all() and (np.diff(ranks.scores, axis=0) >= 0).all()
    ):
        raise ValueError("ranks do not increase")
    return ranks


def ranks_of(rows: Array, weight: Array) -> Ranks:
    """By standardised rows (n, d) of these weights: (n,)."""
    columns = [_column(column, weight) for column in rows.T]
    K = max(len(values) for values, _ in columns)
    pairs = [_longer(*each, K) for each in columns]
    values, scores = (np.stack(part, axis=1) for part in zip(*pairs, strict=True))
    return Ranks(values, scores)


def _column(x: Array, weight: Array) -> tuple[Array, Array]:
    """Values and scores of one input."""
    from scipy.special import ndtri

    values, which = np.unique(x * (np.abs(x) >= NOTHING), return_inverse=True)
    if len(values) < FEW_VALUES:
        return np.array([-CLIP, CLIP]), np.array([-CLIP, CLIP])
    count = np.bincount(which, weight)
    share = (np.cumsum(count) - 0.5 * count) / count.sum()
    scores = ndtri(np.clip(share, LEAST, 1.0 - LEAST))
    mean = np.average(scores, weights=count)
    scores = (scores - mean) / np.sqrt(np.average((scores - mean) ** 2, weights=count))
    if len(values) > KNOTS:
        at = np.searchsorted(scores, np.linspace(scores[0], scores[-1], KNOTS))
        at = np.unique(np.minimum(at, len(scores) - 1))
        values, scores = values[at], scores[at]
    return values, scores


def _longer(values: Array, scores: Array, K: int) -> tuple[Array, Array]:
    """K of them, the last score also beyond."""
    more = np.arange(1.0, K - len(values) + 1.0)
    longer = np.concatenate([values, max(values[-1], CLIP) + more])
    return longer, np.concatenate([scores, np.full(len(more), scores[-1])])
