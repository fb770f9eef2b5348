"""Intervals over a network: a width that nodes share, and a private part.

Half the width of an interval is q = shared + private standard deviations. Both follow how often it
was missed, as in `dokl.learning.intervals`, half of the step each; the shared part is averaged with
the neighbours'. Averaging alone would only keep the network's mean coverage; the private part keeps
that of every node, and a node with few rows profits from the others'.
"""

from __future__ import annotations

import numpy as np

from dokl.base.arrays import Array
from dokl.learning.intervals import PACE, REMEMBERED


def follow(
    levels: Array, shared: Array, private: Array, energy: Array, scores: Array
) -> tuple[Array, Array, Array, Array]:
    """Follow scores (n, m), row by row; parts and energy: (m, L). Returns them, and the widths
    (n, m, L) that stood before each row. A score that is NaN changes nothing.
    """
    a, keep = 1.0 - levels, 1.0 - 1.0 / REMEMBERED
    used = np.empty((len(scores), *shared.shape))
    for t, score in enumerate(scores[:, :, None]):
        q = np.maximum(0.0, shared + private)
        used[t] = np.maximum.accumulate(q, axis=-1)
        g = np.where(np.isnan(score), 0.0, a - (score > q))
        energy = np.where(g == 0.0, energy, keep * energy + g * g)
        # No further below 0 than the step from it: q stays at 0 and must get away again.
        down = np.minimum(PACE * g / np.sqrt(3.0 * energy), q)
        shared, private = shared - 0.5 * down, private - 0.5 * down
    return shared, private, energy, used


def widths(shared: Array, private: Array) -> Array:
    """q: (..., L) of both parts; more coverage is never narrower."""
    return np.maximum.accumulate(np.maximum(0.0, shared + private), axis=-1)
