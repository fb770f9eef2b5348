"""Mean and spread of inputs that come by name, over the rows in which each of them was there."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from dokl.base.arrays import Array
from dokl.learning.columns import Moments, Scale

_FIELDS = ("shift", "count", "total", "square")


class Running:
    """Moments by name. A name takes 32 bytes and its place in a dict, and stays.

    >>> running, values = Running(), np.array([[20.0, 1.0], [22.0, np.nan]])
    >>> part = running.part(["temp", "wind"])
    >>> print(part.learn(values.T, ["temp", "wind"]).standardised().T)
    [[0. 0.]
     [1. 0.]]
    >>> running.put(["temp", "wind"], part)
    >>> print(running.part(["temp"]).now(np.array([[20.0]])).standardised())
    [[-1.]]
    """

    def __init__(self) -> None:
        self.slot_of: dict[Hashable, int] = {}
        self.sums = np.zeros((len(_FIELDS), 16))

    def part(self, names: Sequence[Hashable]) -> Moments:
        """What is known of these inputs, in arrays of its own; nothing of new ones."""
        out = np.zeros((len(_FIELDS), len(names)))
        for i, name in enumerate(names):
            at = self.slot_of.get(name)
            if at is not None:
                out[:, i] = self.sums[:, at]
        return Moments(*out)

    def put(self, names: Sequence[Hashable], part: Moments) -> None:
        """From now on this is known of them."""
        for name in names:
            self.slot_of.setdefault(name, len(self.slot_of))
        if len(self.slot_of) > self.sums.shape[1]:
            more = np.zeros((len(_FIELDS), 2 * len(self.slot_of)))
            more[:, : self.sums.shape[1]] = self.sums
            self.sums = more
        slots = [self.slot_of[name] for name in names]
        for row, field in zip(self.sums, _FIELDS, strict=True):
            row[slots] = getattr(part, field)


def filled(scale: Scale, X: Array) -> Array:
    """X: (n, d) with the mean of the rows so far where a number is missing.

    Before an input was there for the first time, its first value stands for it.
    """
    mean = scale.shift[:, None] + scale.total / np.maximum(scale.count, 1.0)
    return np.where(np.isnan(X), mean.T, X)
