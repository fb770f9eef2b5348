"""Running scores of predictions: squared error and relatives, or error rate and relatives."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from dokl.arrays import Array

RECENT = 10_000


class Score(Protocol):
    """Adds up predictions against truth, a chunk at a time."""

    n: int

    def add(self, y: Array, predicted: Array) -> None:
        """Some more rows; y and predicted: (n,)."""

    def figures(self) -> dict[str, float]:
        """All figures so far."""

    def line(self) -> str:
        """The one figure for a progress bar, over the recent rows."""


@dataclass
class _Recent:
    """Mean of a per-row figure over about the last RECENT rows."""

    parts: deque[tuple[int, float]] = field(default_factory=deque)

    def add(self, values: Array) -> None:
        self.parts.append((len(values), float(values.sum())))
        while len(self.parts) > 1 and sum(n for n, _ in self.parts) - self.parts[0][0] > RECENT:
            self.parts.popleft()

    def mean(self) -> float:
        n = sum(n for n, _ in self.parts)
        return sum(s for _, s in self.parts) / n if n else float("nan")


@dataclass
class RegressionScore:
    """Mean squared and absolute error, and R^2 against the mean of the targets."""

    n: int = 0
    squared: float = 0.0
    absolute: float = 0.0
    mean: float = 0.0
    spread: float = 0.0
    recent: _Recent = field(default_factory=_Recent)

    def add(self, y: Array, predicted: Array) -> None:
        """Some more rows."""
        e = np.asarray(y, float) - predicted
        self.squared += float((e**2).sum())
        self.absolute += float(np.abs(e).sum())
        # Chan's way to merge means and sums of squares: no large numbers are subtracted.
        n, mean = len(y), float(np.mean(y))
        gap, total = mean - self.mean, self.n + n
        self.spread += float(((y - mean) ** 2).sum()) + gap**2 * self.n * n / total
        self.mean += gap * n / total
        self.n = total
        self.recent.add(e**2)

    def figures(self) -> dict[str, float]:
        """rows, mse, rmse, mae, r2."""
        if not self.n:
            return {"rows": 0}
        mse = self.squared / self.n
        r2 = 1.0 - self.squared / self.spread if self.spread > 0 else float("nan")
        out = {"rows": self.n, "mse": mse, "rmse": float(np.sqrt(mse))}
        return {**out, "mae": self.absolute / self.n, "r2": r2}

    def line(self) -> str:
        """Recent mean squared error."""
        return f"mse {self.recent.mean():.4g}"


@dataclass
class ClassScore:
    """Accuracy and error rate, and recall for each class."""

    n: int = 0
    wrong: int = 0
    seen: dict[object, int] = field(default_factory=dict)
    hit: dict[object, int] = field(default_factory=dict)
    recent: _Recent = field(default_factory=_Recent)

    def add(self, y: Array, predicted: Array) -> None:
        """Some more rows."""
        miss = np.asarray(y != predicted)
        self.n += len(y)
        self.wrong += int(miss.sum())
        self.recent.add(miss.astype(float))
        for label in np.unique(y).tolist():
            mine = y == label
            self.seen[label] = self.seen.get(label, 0) + int(mine.sum())
            self.hit[label] = self.hit.get(label, 0) + int((mine & ~miss).sum())

    def figures(self) -> dict[str, float]:
        """rows, accuracy, error, and recall of each class."""
        if not self.n:
            return {"rows": 0}
        error = self.wrong / self.n
        recall = {f"recall {label}": self.hit[label] / n for label, n in self.seen.items()}
        return {"rows": self.n, "accuracy": 1.0 - error, "error": error, **recall}

    def line(self) -> str:
        """Recent error rate."""
        return f"error {100 * self.recent.mean():.2f}%"


def make_score(classifying: bool) -> RegressionScore | ClassScore:
    """The score that suits the task."""
    return ClassScore() if classifying else RegressionScore()
