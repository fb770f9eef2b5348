"""Learning curves shortened to a few hundred points: single steps first, then wider bins."""

from __future__ import annotations

import math

import numpy as np

from dokl.base.arrays import Array


def edges(n: int, most: int = 200) -> Array:
    """Where to cut n steps into bins: single steps first, then a tenth of what is past."""
    cuts = [0]
    while cuts[-1] < n:
        cuts.append(min(n, cuts[-1] + max(1, min(math.ceil(n / most), cuts[-1] // 10))))
    return np.array(cuts)


def bin_means(curves: Array) -> Array:
    """Means over the bins of `edges`: (..., n) -> (..., bins)."""
    cuts = edges(curves.shape[-1])
    sums = np.add.reduceat(curves, cuts[:-1], axis=-1)
    return np.asarray(sums / np.diff(cuts))


def middles(n: int) -> list[float]:
    """The middle step of each bin, from 1."""
    cuts = edges(n)
    return [float(m) for m in (cuts[:-1] + 1 + cuts[1:]) / 2]
