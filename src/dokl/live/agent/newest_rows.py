"""The newest rows of an agent: measurements, and predictions before learning."""

from __future__ import annotations

import math
from collections import deque

import numpy as np

from dokl.live.protocol.effects import LearnedRows

KEPT = 100
Row = tuple[int, float, float, float | None, float | None]


class NewestRows:
    """(number, measured, predicted, lower, upper) of the last rows, the newest last; by the first
    output where there are several, and without ends if there was no interval.

    >>> newest = NewestRows()
    >>> f, Y, half = np.array([[1.0], [2.0]]), np.array([[1.5], [2.0]]), np.array([[0.5], [0.25]])
    >>> newest.add(LearnedRows(2, f, np.zeros(2), learned=7, Y=Y, half=half))
    >>> newest.rows()
    [(6, 1.5, 1.0, 0.5, 1.5), (7, 2.0, 2.0, 1.75, 2.25)]
    """

    def __init__(self, kept: int = KEPT) -> None:
        self._rows: deque[Row] = deque(maxlen=kept)

    def add(self, effect: LearnedRows) -> None:
        """Rows that were learned; only what is kept of them is looked at."""
        n = min(effect.rows, self._rows.maxlen or 0)
        half = np.full(effect.f.shape, np.nan) if effect.half is None else effect.half
        f, y, width = (np.asarray(a)[effect.rows - n :, 0] for a in (effect.f, effect.Y, half))
        table = np.column_stack([y, f, f - width, f + width]).tolist()
        for number, (measured, predicted, *ends) in enumerate(table, effect.learned - n + 1):
            lower, upper = (_short(end) if math.isfinite(end) else None for end in ends)
            self._rows.append((number, _short(measured), _short(predicted), lower, upper))

    def rows(self) -> list[Row]:
        """All that is kept."""
        return list(self._rows)


def _short(value: float) -> float:
    """With as many digits as a picture needs; it travels with every look."""
    return float(f"{value:.6g}")
