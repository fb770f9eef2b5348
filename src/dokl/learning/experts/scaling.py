"""Inputs and targets brought to unit size, by the rows seen when a map was made."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dokl.base.arrays import Array

CLIP = 5.0  # standard deviations; beyond, an input says no more
WILD = 50.0  # honest targets have been seen at up to 20
ABSURD = 1e3  # times the spread of the middle half: no measurement
FAR = 5.0  # where scales are learned: a Gaussian process takes what is far out for noise everywhere


@dataclass(frozen=True)
class Scaling:
    """centre and size: (d,) of inputs, or (m,) of targets."""

    centre: Array
    size: Array

    def inward(self, values: Array) -> Array:
        """Standardised."""
        return np.asarray((values - self.centre) / self.size)

    def clipped(self, X: Array) -> Array:
        """Standardised, and cut off at CLIP: one wild input must not decide."""
        return np.clip(self.inward(X), -CLIP, CLIP)

    def outward(self, values: Array) -> Array:
        """In the units they came in."""
        return np.asarray(values * self.size + self.centre)


def tamed(Y: Array, wild: float = WILD) -> Array:
    """Targets (n, m) with wild ones cut off at so many times the spread of the middle half.

    One of 10^5 among hundreds of size 1 would otherwise set the scale that all are measured by.
    """
    middle, spread = _middle_half(Y)
    return np.clip(Y, middle - wild * spread, middle + wild * spread)


def sane(Y: Array) -> Array:
    """Which rows of targets (n, m) are within ABSURD times the spread of the middle half: (n,).

    Others are left out where scales are learned: even one that is cut off is taken for noise
    everywhere, or bends the function where it stands.
    """
    middle, spread = _middle_half(Y)
    return np.asarray((np.abs(Y - middle) <= ABSURD * spread).all(axis=1))


def _middle_half(Y: Array) -> tuple[Array, Array]:
    """Middle (m,) and spread (m,) of targets; an infinite one where half of them are the same."""
    low, middle, high = np.percentile(Y, (25.0, 50.0, 75.0), axis=0)
    return middle, np.where(high > low, high - low, np.inf)


def scaling_of(values: Array, weight: Array | None = None) -> Scaling:
    """Mean and standard deviation of each column of values: (n, k); 1 where nothing varies.

    What is left of a constant column by rounding is no variation.
    """
    centre = np.average(values, axis=0, weights=weight)
    size = np.sqrt(np.average((values - centre) ** 2, axis=0, weights=weight))
    constant = size <= 1e-12 * np.maximum(np.abs(centre), np.abs(values).max(axis=0, initial=0.0))
    return Scaling(centre, np.where(constant | ~(size > 0), 1.0, size))
