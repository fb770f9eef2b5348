"""The error of an agent as it learns: a recent value, and a curve of bounded length."""

from __future__ import annotations

import math

from dokl.arrays import Array

POINTS = 200
RECENT = 200.0  # samples over which the recent error is averaged


class LossCurve:
    """Mean losses over bins of samples; when there are too many bins, each two become one.

    >>> import numpy as np
    >>> curve = LossCurve()
    >>> curve.add(np.array([4.0, 2.0]), learned=2)
    >>> curve.recent, curve.points
    (3.0, [])
    """

    def __init__(self, bin: int = 50) -> None:
        self.points: list[tuple[int, float]] = []
        self.recent: float | None = None
        self._bin, self._sum, self._n, self._seen = bin, 0.0, 0, 0.0

    def add(self, losses: Array, learned: int) -> None:
        """Losses (n,) of the samples that brought the number learned to `learned`."""
        n, mean = len(losses), float(losses.mean()) if len(losses) else math.nan
        if not n or not math.isfinite(mean):
            return
        self._seen = min(self._seen + n, RECENT)
        share = min(1.0, n / self._seen)
        before = mean if self.recent is None else self.recent
        self.recent = before + share * (mean - before)
        self._sum, self._n = self._sum + mean * n, self._n + n
        if self._n >= self._bin:
            self.points.append((learned, self._sum / self._n))
            self._sum, self._n = 0.0, 0
            if len(self.points) >= POINTS:
                self._halve()

    def _halve(self) -> None:
        pairs = zip(self.points[0::2], self.points[1::2], strict=True)
        self.points = [(end, (a + b) / 2) for (_, a), (end, b) in pairs]
        self._bin *= 2
