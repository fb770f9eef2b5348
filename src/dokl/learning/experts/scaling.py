"""Inputs and targets brought to unit size, by the rows seen when a map was made."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dokl.base.arrays import LARGEST, Array

CLIP = 5.0  # standard deviations; beyond, an input adds nothing, unless many rows lie there
# How far inputs have come (`follow`): an extent, LEAST or more, that a share OFTEN of recent rows
# exceeds; each row moves it by the share STEP.
LEAST, OFTEN, STEP = 4.0, 0.25, 0.01
WILD = 50.0  # honest targets have been seen at up to 20
ABSURD = 1e3  # times the spread of the middle half: no measurement
ABSURD_INPUT = 1e4  # inputs have longer tails: counts of messages reach 1,400
SMALLEST = 1e-305  # of what varies: less is rounded to 0, and one over it is infinite
# Where the middle half is this many times as narrow as what is left without the lowest and the
# highest eighth, values are of two sizes, as of a sensor that is off most of the time: then what is
# left is usual. Fewer than an eighth may be outliers (`bound`).
TWO_SIZES = 100.0
FAR = 5.0  # where scales are learned: a Gaussian process takes what is far out for noise everywhere


@dataclass(frozen=True)
class Scaling:
    """centre and size: (d,) of inputs, or (m,) of targets."""

    centre: Array
    size: Array

    def inward(self, values: Array) -> Array:
        """Standardised."""
        with np.errstate(over="ignore"):
            return np.asarray((values - self.centre) / self.size)

    def clipped(self, X: Array, most: Array | float = CLIP) -> Array:
        """Standardised, and cut off: one wild input must not decide."""
        return np.clip(self.inward(X), -most, most)

    def outward(self, values: Array) -> Array:
        """In the units they came in."""
        return np.asarray(values * self.size + self.centre)


def limits(extent: Array | None) -> Array | float:
    """Where standardised inputs are cut off, (..., d) for extents of `follow`: CLIP, or as far
    beyond the extent as this is beyond LEAST.
    """
    return CLIP if extent is None else np.maximum(CLIP, 2.0 * extent - LEAST)


def beyond(extent: Array | None) -> bool:
    """Whether an extent has left LEAST: it takes hundreds of rows to come back."""
    return extent is not None and bool((extent > LEAST).any())


def follow(extent: Array | None, rows: Array) -> tuple[Array | None, Array | None]:
    """How far inputs had come before each of standardised rows (n, d), and after all of them:
    extents (n, d) and (d,); None where all of them are LEAST and no row was beyond.

    A series that rises leaves the range of the rows that it was standardised by. The extent follows
    by gradients of the pinball loss on its logarithm, row by row: rows may be split anywhere. A
    rare outlier, however far, moves it by one step, which changes no limit, and three usual rows
    take that back.
    """
    with np.errstate(invalid="ignore"):
        size = np.abs(rows)
    if not (size > LEAST).any() and (extent is None or (extent == LEAST).all()):
        return None, extent
    now = np.full(rows.shape[1], LEAST) if extent is None else extent
    before = np.empty(rows.shape)
    for i, one in enumerate(size):
        before[i] = now
        now = np.clip(now * (1.0 + STEP * ((one > now) - OFTEN)), LEAST, ABSURD_INPUT)
    return before, now


def follow_on(extent: Array | None, steps: Array, rows: int) -> Array | None:
    """How far inputs may have come where rows are not seen, at these distances (n,) beyond n rows:
    extents (n, d); the extent itself, (d,) or None, where no input has left LEAST.

    An input that has left LEAST belongs to a series that rises or falls. It goes on by the pace of
    `follow`, and by no more than a straight line since the first row would.
    """
    if not beyond(extent):
        return extent
    pace = (steps - 1.0) * math.log1p(STEP * (1.0 - OFTEN))
    grown = np.exp(np.minimum(pace, np.log1p(2.0 * (steps - 1.0) / max(1, rows))))
    return np.asarray(np.where(extent > LEAST, grown[:, None] * extent, LEAST))  # type: ignore[operator]


def cut_wild_targets(Y: Array, wild: float = WILD) -> Array:
    """Targets (n, m) with wild ones cut off at `wild` times the usual spread.

    One of 10^5 among hundreds of size 1 would otherwise set the scale that all are measured by.
    """
    middle, spread = _usual(Y)
    with np.errstate(over="ignore"):
        return np.clip(Y, middle - wild * spread, middle + wild * spread)


def sane(Y: Array) -> Array:
    """Which rows of targets (n, m) are within ABSURD times the usual spread: (n,).

    Others are left out where scales are learned: even one that is cut off is taken for noise
    everywhere, or bends the function where it stands.
    """
    middle, spread = _usual(Y)
    return np.asarray((np.abs(Y - middle) <= ABSURD * spread).all(axis=1))


def _usual(Y: Array) -> tuple[Array, Array]:
    """Middle (m,) and spread (m,) of most values (n, m): the middle half's, or that of three
    quarters (`TWO_SIZES`); an infinite one where half of them are the same.
    """
    low, middle, high = np.percentile(Y, (25.0, 50.0, 75.0), axis=0)
    # A tenth of outliers among few rows may be more than an eighth by chance.
    rare = min(12.5 + 80.0 / math.sqrt(len(Y)), 25.0)
    lowest = np.percentile(Y, rare, axis=0, method="higher")
    highest = np.percentile(Y, 100.0 - rare, axis=0, method="lower")
    with np.errstate(over="ignore"):
        half, most = high - low, highest - lowest
        spread = np.where(most > TWO_SIZES * half, most, half)
    return middle, np.where(half > 0.0, spread, np.inf)


def input_scaling(X: Array, weight: Array) -> Scaling:
    """Of inputs X: (n, d), without absurd ones: a single one would make all others alike."""
    middle, spread = _usual(X)
    with np.errstate(over="ignore"):
        absurd = np.abs(X - middle) > ABSURD_INPUT * spread
    return scaling_of(np.where(absurd, middle, X) if absurd.any() else X, weight)


def scaling_of(values: Array, weight: Array | None = None) -> Scaling:
    """Mean and standard deviation of each column of values: (n, k); 1 where nothing varies.

    What is left of a constant column by rounding is no variation.
    """
    most = np.abs(values).max(axis=0, initial=0.0)
    extreme = (most > LARGEST) | ((most < 1.0 / LARGEST) & (most > 0.0))
    if extreme.any():  # squares would overflow, or vanish
        unit = np.where(extreme, most, 1.0)
        found = scaling_of(values / unit, weight)
        size = found.size * unit
        return Scaling(found.centre * unit, np.where(size < SMALLEST, 1.0, size))
    centre = np.average(values, axis=0, weights=weight)
    size = np.sqrt(np.average((values - centre) ** 2, axis=0, weights=weight))
    constant = size <= 1e-12 * np.maximum(np.abs(centre), np.abs(values).max(axis=0, initial=0.0))
    return Scaling(centre, np.where(constant | ~(size > 0), 1.0, size))
