"""Inputs with long tails, drawn in: each by the power that makes its rows most like a Gaussian.

    x >= 0: ((1 + x)^p - 1)/p,   x < 0: -((1 - x)^(2 - p) - 1)/(2 - p),   logarithms where 0/0

of standardised inputs (Yeo and Johnson 2000); p = 1 leaves them as they are. What is measured in
powers of ten, as much of the air is, would otherwise stand in two corners of its scale, and one
length cannot suit both.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dokl.base.arrays import Array
from dokl.learning.experts.scaling import CLIP, WILD, Scaling, scaling_of

POWERS = np.arange(-1.0, 3.01, 0.25)
# Fewer rows, or fewer values than this among them, tell nothing about tails.
FEW_ROWS, FEW_VALUES = 30, 10


@dataclass(frozen=True)
class Bending:
    """centre and size: (d,) of inputs; power: (d,); middle and spread: (d,) of what is bent."""

    centre: Array
    size: Array
    power: Array
    middle: Array
    spread: Array

    def clipped(self, X: Array) -> Array:
        """Standardised, bent and standardised again, and cut off at CLIP."""
        rows = Scaling(self.centre, self.size).inward(X)
        return Scaling(self.middle, self.spread).clipped(_all_bent(rows, self.power))


def bending_of(X: Array, weight: Array) -> Bending:
    """The bending of inputs by rows X: (n, d) of these weights: (n,)."""
    first = scaling_of(X, weight)
    rows = first.inward(X)
    power = np.array([_power(column, weight) for column in rows.T])
    then = scaling_of(_all_bent(rows, power), weight)
    return Bending(first.centre, first.size, power, then.centre, then.size)


def bent(x: Array, p: float) -> Array:
    """Standardised values with power p."""
    size, q = np.log1p(np.abs(x)), np.where(x >= 0, p, 2.0 - p)
    with np.errstate(invalid="ignore", divide="ignore"):
        far = np.where(q == 0.0, size, np.expm1(q * size) / q)
    return np.asarray(np.copysign(far, x))


def _all_bent(rows: Array, power: Array) -> Array:
    """Rows (n, d); what is not bent stays to the last bit, and wild ones must not overflow."""
    out = np.clip(rows, -WILD, WILD) if (power != 1.0).any() else rows
    for j in np.flatnonzero(power != 1.0).tolist():
        out[:, j] = bent(out[:, j], float(power[j]))
    return out


def _power(x: Array, weight: Array) -> float:
    """The power of one standardised input that makes a Gaussian of its rows most likely."""
    if len(x) < FEW_ROWS or len(np.unique(x)) < FEW_VALUES:
        return 1.0
    x = np.clip(x, -CLIP, CLIP)  # one wild row must not decide
    stretch = np.average(np.copysign(np.log1p(np.abs(x)), x), weights=weight)
    loss = [
        0.5 * np.log(_variance(bent(x, float(p)), weight)) - (p - 1.0) * stretch for p in POWERS
    ]
    return float(POWERS[int(np.argmin(loss))])


def _variance(x: Array, weight: Array) -> float:
    return max(float(scaling_of(x[:, None], weight).size[0]) ** 2, 1e-300)
