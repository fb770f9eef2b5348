"""The error of an agent as it learns: a recent value, and a curve of bounded length."""

from __future__ import annotations

import math

from dokl.base.arrays import Array
from dokl.learning import alarms
from dokl.learning.alarms import Alarm
from dokl.learning.metrics import Bins

RECENT = 200.0  # samples over which the recent error is averaged
FAR_OFF = 100.0  # times the usual error: a broken sensor, a faulty neighbour, another function


class LossCurve:
    """Mean losses over bins of samples, and over the most recent ones.

    usual: the median of the curve. alarm: that new losses are on average more than FAR_OFF times
    as large. A test pays
    `alarms.worse` of both, which is concave in the loss: its mean is at most 0 otherwise, whatever
    the law of the losses, and single outliers raise nothing.

    >>> import numpy as np
    >>> curve = LossCurve()
    >>> curve.add(np.array([4.0, 2.0]), learned=2)
    >>> curve.recent, curve.points
    (3.0, [])
    """

    def __init__(self, bin: int = 50) -> None:
        self.recent: float | None = None
        self.alarm = Alarm()
        self.usual: float | None = None
        self._bins, self._seen = Bins(bin), 0.0
        self._new, self._new_n = 0.0, 0  # since the last test

    @property
    def points(self) -> list[tuple[int, float]]:
        """(samples learned, mean loss) at the end of each bin."""
        return [(end, total / n) for end, n, total in self._bins.done]

    def add(self, losses: Array, learned: int, now: float = 0.0) -> None:
        """Losses (n,) of the samples that brought the number learned to `learned`."""
        n, mean = len(losses), float(losses.mean()) if len(losses) else math.nan
        if not n or not math.isfinite(mean):
            return
        self._seen = min(self._seen + n, RECENT)
        share = min(1.0, n / self._seen)
        before = mean if self.recent is None else self.recent
        self.recent = before + share * (mean - before)
        self._test(mean, n, now)
        self._bins.add(losses, learned)

    def _test(self, mean: float, n: int, now: float) -> None:
        self._new, self._new_n = self._new + mean * n, self._new_n + n
        if not (self._bins.done and self.alarm.due(now)):
            return
        if self.usual is None or self.alarm.evidence <= 0.0 or self.alarm.raised:
            # Not while it is in doubt: of a short curve the losses in doubt soon are the usual.
            points = self.points
            self.usual = sorted(value for _, value in points)[len(points) // 2]
        payoff = alarms.worse(self._new / self._new_n, FAR_OFF * max(self.usual, 1e-12))
        self.alarm = self.alarm.tested(payoff, alarms.threshold(alarms.PER_HOUR), now)
        self._new, self._new_n = 0.0, 0
