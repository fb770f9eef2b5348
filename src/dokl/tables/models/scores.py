"""Running scores of predictions: squared error and relatives, or error rate and relatives."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

import numpy as np

from dokl.base.arrays import Array
from dokl.base.errors import BadInput

RECENT = 10_000
LEVEL = 0.9  # of the intervals that are counted


class Score(Protocol):
    """Adds up predictions against truth, a chunk at a time."""

    n: int

    def add(self, y: Array, predicted: Array) -> None:
        """Some more rows; y and predicted: (n,)."""

    def figures(self) -> dict[str, Any]:
        """All figures so far; None where one is not defined."""

    def beats_a_constant(self) -> bool:
        """Whether it erred less than the best constant prediction would have."""

    def line(self) -> str:
        """The one figure for a progress bar, over the recent rows."""

    def sums(self, labels: Sequence[Any] = ()) -> Array:
        """What it takes to go on later, of a fixed size; labels of the classes."""


@dataclass
class _Recent:
    """Mean of a per-row figure over about the last RECENT rows, in some twenty sums."""

    parts: deque[tuple[int, float]] = field(default_factory=deque)
    n: int = 0

    def add(self, values: Array) -> None:
        n, total = len(values), float(values.sum())
        if self.parts and self.parts[-1][0] < RECENT // 20:
            before = self.parts.pop()
            self.n, n, total = self.n - before[0], n + before[0], total + before[1]
        self.parts.append((n, total))
        self.n += n
        while len(self.parts) > 1 and self.n - self.parts[0][0] > RECENT:
            self.n -= self.parts.popleft()[0]

    def mean(self) -> float:
        return sum(s for _, s in self.parts) / self.n if self.n else float("nan")


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
        squares = e * e
        self.squared += float(squares.sum())
        self.absolute += float(np.abs(e).sum())
        # Chan's way to merge means and sums of squares: no large numbers are subtracted.
        n, mean = len(y), float(np.mean(y))
        gap, total = mean - self.mean, self.n + n
        self.spread += float(((y - mean) ** 2).sum()) + gap**2 * self.n * n / total
        self.mean += gap * n / total
        self.n = total
        self.recent.add(squares)

    def figures(self) -> dict[str, Any]:
        """rows, mse, rmse, mae, r2."""
        if not self.n:
            return {"rows": 0}
        mse = self.squared / self.n
        r2 = 1.0 - self.squared / self.spread if self.spread > 0 else None
        out = {"rows": self.n, "mse": mse, "rmse": float(np.sqrt(mse))}
        return {**out, "mae": self.absolute / self.n, "r2": r2}

    def beats_a_constant(self) -> bool:
        """Whether it erred less than the mean of the targets would have."""
        return self.squared < self.spread

    def line(self) -> str:
        """Recent mean squared error."""
        return f"mse {self.recent.mean():.4g}"

    def sums(self, labels: Sequence[Any] = ()) -> Array:
        """The five sums: (5,)."""
        return np.array([self.n, self.squared, self.absolute, self.mean, self.spread], float)

    @classmethod
    def of(cls, sums: Array) -> Self:
        """The score that had these sums."""
        n, squared, absolute, mean, spread = (float(value) for value in sums)
        return cls(int(n), squared, absolute, mean, spread)


@dataclass
class ClassScore:
    """Accuracy and error rate, and recall for each class; labels are whole numbers or texts."""

    n: int = 0
    wrong: int = 0
    seen: dict[Any, int] = field(default_factory=dict)
    hit: dict[Any, int] = field(default_factory=dict)
    recent: _Recent = field(default_factory=_Recent)

    def add(self, y: Array, predicted: Array) -> None:
        """Some more rows."""
        miss = np.asarray(y != predicted)
        self.n += len(y)
        self.wrong += int(np.count_nonzero(miss))
        self.recent.add(miss)
        labels, which = np.unique(y, return_inverse=True)
        seen = np.bincount(which, minlength=len(labels))
        hit = seen - np.bincount(which[miss], minlength=len(labels))
        for i, label in enumerate(map(whole_label, labels.tolist())):
            self.seen[label] = self.seen.get(label, 0) + int(seen[i])
            self.hit[label] = self.hit.get(label, 0) + int(hit[i])

    def figures(self) -> dict[str, Any]:
        """rows, accuracy, error, and recall of each class."""
        if not self.n:
            return {"rows": 0}
        error = self.wrong / self.n
        recall = {f"recall {label}": self.hit[label] / n for label, n in self.seen.items() if n}
        return {"rows": self.n, "accuracy": 1.0 - error, "error": error, **recall}

    def beats_a_constant(self) -> bool:
        """Whether it erred less often than the commonest class would have."""
        return self.wrong < self.n - max(self.seen.values(), default=0)

    def line(self) -> str:
        """Recent error rate."""
        return f"error {100 * self.recent.mean():.2f}%"

    def sums(self, labels: Sequence[Any] = ()) -> Array:
        """How often each class was seen, and hit: (classes, 2)."""
        pairs = [(self.seen.get(label, 0), self.hit.get(label, 0)) for label in labels]
        return np.array(pairs, float).reshape(-1, 2)

    @classmethod
    def of(cls, sums: Array, labels: Sequence[Any]) -> Self:
        """The score that had these sums."""
        counts = dict(zip(labels, sums.astype(int).tolist(), strict=True))
        seen = {label: pair[0] for label, pair in counts.items() if pair[0]}
        hit = {label: pair[1] for label, pair in counts.items() if pair[0]}
        n = sum(seen.values())
        return cls(n, n - sum(hit.values()), seen, hit)


@dataclass
class Coverage:
    """How often intervals held the target, and how wide they were.

    level: the share that they promise; reach: the sum of half their widths.
    """

    level: float = LEVEL
    n: int = 0
    inside: int = 0
    half: float = 0.0

    def add(self, y: Array, lower: Array, upper: Array) -> None:
        """Some more rows; all: (n,)."""
        self.n += len(y)
        self.inside += int(np.count_nonzero((lower <= y) & (y <= upper)))
        self.half += 0.5 * float(np.sum(upper - lower))

    def figures(self) -> dict[str, Any]:
        """level, rows, coverage, and half the width on average."""
        if not self.n:
            return {"level": self.level, "rows": 0}
        share, width = self.inside / self.n, self.half / self.n
        return {"level": self.level, "rows": self.n, "coverage": share, "half_width": width}

    def since(self, before: Coverage) -> Coverage:
        """Of the rows since then."""
        n, inside = self.n - before.n, self.inside - before.inside
        return Coverage(self.level, n, inside, self.half - before.half)

    def line(self) -> str:
        """In words."""
        share, width = 100.0 * self.inside / max(1, self.n), self.half / max(1, self.n)
        return (
            f"{100 * self.level:g} % intervals held {share:.1f} % of the targets "
            f"(plus or minus {width:.3g} on average)"
        )

    def sums(self) -> Array:
        """What it takes to go on later: (4,)."""
        return np.array([self.level, self.n, self.inside, self.half], float)

    @classmethod
    def of(cls, sums: Array) -> Self:
        """The one that had these sums."""
        level, n, inside, half = (float(value) for value in sums)
        return cls(level, int(n), int(inside), half)


def whole_label(label: object) -> Any:
    """Files know one kind of number; a label that is whole is shown as such: 1, and not 1.0."""
    return int(label) if isinstance(label, float) and label.is_integer() else label


def make_score(classifying: bool) -> RegressionScore | ClassScore:
    """The score that suits the task."""
    return ClassScore() if classifying else RegressionScore()


def restored(sums: Array, labels: Sequence[Any] | None) -> RegressionScore | ClassScore:
    """A score from its `sums`, to go on with; labels of the classes, None in a regression."""
    finite(sums)
    return RegressionScore.of(sums) if labels is None else ClassScore.of(sums, labels)


def finite(sums: Array) -> Array:
    """Sums that a file may have spoiled."""
    if not np.isfinite(sums).all():
        raise BadInput("the sums of the score are not finite")
    return sums
