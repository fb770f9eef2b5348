"""Targets in units of their own, for losses whose slope is bounded.

Such a loss pulls with the same force however far off a target is: an offset of 10^4 would take 10^4
steps, and a spread of 10^-6 would drown in a single one. So targets are learned as
(y - centre)/size, by median and quartiles (these losses are there for what is far out), and answers
are given in the units that targets came in.
"""

from __future__ import annotations

import numpy as np

from dokl.base.arrays import Array
from dokl.learning.experts.scaling import Scaling
from dokl.learning.losses import Loss

# Quartiles of a normal law are so many standard deviations apart.
QUARTILES = 1.349
# Another guess that is less far off is not worth a new start.
APART = 1.1


def near(unit: Scaling, other: Scaling) -> bool:
    """Whether the two are about the same."""
    ratio, off = unit.size / other.size, np.abs(unit.centre - other.centre) / other.size
    return bool(((ratio >= 1 / APART) & (ratio <= APART) & (off <= APART - 1.0)).all())


def agreed(unit: Scaling) -> dict[str, list[float]]:
    """What nodes must agree on, for a fingerprint."""
    return {"centre": unit.centre.tolist(), "size": unit.size.tolist()}


def wanted_by(loss: Loss) -> bool:
    """Whether targets need a unit for this loss."""
    return loss.bounded and not loss.margin


def unit_of(Y: Array) -> Scaling:
    """By targets Y: (n, m); size 1 where nothing varies."""
    Y = np.asarray(Y, np.float64)
    low, centre, high = np.percentile(Y, (25.0, 50.0, 75.0), axis=0)
    quartiles, spread = (high - low) / QUARTILES, Y.std(axis=0)
    least = 1e-12 * np.maximum(np.abs(Y).max(axis=0), 1e-290)
    size = np.where(quartiles > least, quartiles, np.where(spread > least, spread, 1.0))
    return Scaling(centre, size)
