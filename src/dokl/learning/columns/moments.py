"""Count, mean and variance of columns over all rows so far, and values scaled by them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from dokl.base.arrays import Array
from dokl.base.errors import BadInput

_SUMS = ("count", "total", "square")
ARRAYS = ("shift", *_SUMS)


@dataclass
class Moments:
    """Count, mean and variance of each of p columns over all rows so far.

    Sums about the first value of each column: that is one of its values, so the variance keeps its
    digits however far from zero the column lies. Sums one row after the other: the same bits
    however the rows come. shift, count, total, square: (p,).
    """

    shift: Array
    count: Array
    total: Array
    square: Array

    @classmethod
    def none(cls, p: int) -> Self:
        """Of no rows."""
        return cls(*np.zeros((4, p)))

    def now(self, values: Array) -> Scale:
        """How values (p, n) lie in what was learned."""
        with np.errstate(over="ignore"):
            off = values - self.shift[:, None]
        return Scale(off, self.shift, *(getattr(self, name)[:, None] for name in _SUMS))

    def learn(self, values: Array, names: Sequence[str], means_only: bool = False) -> Scale:
        """How values (p, n) lie in all rows up to and including their own.

        means_only: squares beyond what a number can hold do not matter.
        """
        seen = ~np.isnan(values)
        shift = self._shifted(values, seen)
        with np.errstate(over="ignore", invalid="ignore"):  # checked just below
            off = values - shift[:, None]
            known = np.where(seen, off, 0.0)
            square = _onward(self.square, known * known)
            count = _onward(self.count, seen.astype(np.float64))
            total = _onward(self.total, known)
        bad = np.flatnonzero(~np.isfinite(square[:, -1]))
        if bad.size and not means_only:
            raise BadInput(f"column {names[bad[0]]!r} holds more than can be squared")
        self.shift = shift
        last = (np.nan_to_num(a[:, -1]) if bad.size else a[:, -1] for a in (count, total, square))
        self.count, self.total, self.square = (a.copy() for a in last)
        return Scale(off, shift, count, total, square)

    def _shifted(self, values: Array, seen: Array) -> Array:
        """The shift, with the first value of columns that had none before."""
        first = values[np.arange(len(values)), seen.argmax(axis=1)]
        fresh = (self.count == 0) & seen.any(axis=1)
        return np.where(fresh, first, self.shift)


def _onward(before: Array, rows: Array) -> Array:
    """Sums (p, n) up to and including each row, added strictly in order, in place of the rows."""
    rows[:, 0] += before
    return np.cumsum(rows, axis=1, out=rows)


@dataclass
class Scale:
    """Values less the shift, off: (p, n), beside the sums that hold for them: (p, n) or (p, 1)."""

    off: Array
    shift: Array
    count: Array
    total: Array
    square: Array

    def standardised(self) -> Array:
        """Less the mean, by the standard deviation; 0 where missing, or without spread."""
        n = np.maximum(self.count, 1.0)
        mean = self.total / n
        spread = np.sqrt(np.maximum(self.square / n - mean * mean, 0.0))
        scaled = (self.off - mean) / np.where(spread > 0, spread, np.inf)
        scaled[np.isnan(self.off)] = 0.0
        return scaled

    def filled(self, values: Array) -> Array:
        """The values themselves, and the mean where one is missing; 0 before there is a mean."""
        mean = self.shift[:, None] + self.total / np.maximum(self.count, 1.0)
        return np.where(np.isnan(values), np.where(self.count > 0, mean, 0.0), values)
