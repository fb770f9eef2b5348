"""The error of an agent as it learns: a recent value, and a curve of bounded length."""

from __future__ import annotations

import math

from dokl.arrays import Array
from dokl.metrics import Bins

RECENT = 200.0  # samples over which the recent error is averaged


class LossCurve:
    """Mean losses over bins of samples, and over the most recent ones.

    >>> import numpy as np
    >>> curve = LossCurve()
    >>> curve.add(np.array([4.0, 2.0]), learned=2)
    >>> curve.recent, curve.points
    (3.0, [])
    """

    def __init__(self, bin: int = 50) -> None:
        self.recent: float | None = None
        self._bins, self._seen = Bins(bin), 0.0

    @property
    def points(self) -> list[tuple[int, float]]:
        """(samples learned, mean loss) at the end of each bin."""
        return [(end, total / n) for end, n, total in self._bins.done]

    def add(self, losses: Array, learned: int) -> None:
        """Losses (n,) of the samples that brought the number learned to `learned`."""
        n, mean = len(losses), float(losses.mean()) if len(losses) else math.nan
        if not n or not math.isfinite(mean):
            return
        self._seen = min(self._seen + n, RECENT)
        share = min(1.0, n / self._seen)
        before = mean if self.recent is None else self.recent
        self.recent = before + share * (mean - before)
        self._bins.add(losses, learned)
