"""Numbers outside the range of their column: refused, or clipped to it, and counted."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from dokl.base.arrays import Array
from dokl.base.errors import BadInput


class Outside:
    """The rule of [inputs] outside, and how often it was needed, by column; for any thread.

    columns: those that have a range. They count from 0 on, since one who watches how a count rises
    (Prometheus' `increase`) does not see a first number that was not there before.

    >>> outside = Outside("clip", ["wind", "sun"])
    >>> outside.within("wind", np.array([3.0, -9999.0, np.nan]), (-100.0, 100.0))
    array([   3., -100.,   nan])
    >>> outside.counts
    {'wind': 1, 'sun': 0}
    """

    def __init__(self, rule: str = "refuse", columns: Iterable[str] = ()) -> None:
        self.rule, self.clip = rule, rule == "clip"
        self._counts, self._lock = Counter(dict.fromkeys(columns, 0)), threading.Lock()

    @property
    def counts(self) -> dict[str, int]:
        """Numbers that were outside, by column."""
        with self._lock:
            return dict(self._counts)

    def count(self, column: str, n: int) -> None:
        """N more were outside."""
        with self._lock:
            self._counts[column] += n

    def within(self, column: str, values: Array, believed: Sequence[float]) -> Array:
        """Values (n,) within their range, NaN where they are missing; or the first that is not."""
        low, high = believed
        beyond = (values < low) | (values > high)
        if not beyond.any():
            return values
        self.count(column, int(beyond.sum()))
        if self.clip:
            return np.clip(values, low, high)
        row = int(np.flatnonzero(beyond)[0])
        raise BadInput(
            f"row {row + 1}, column {column!r}: {values[row]:g} is outside {low:g} to {high:g}, "
            "ranges in the description"
        )
