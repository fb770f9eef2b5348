"""What people ask before they train: how many rows, what more would buy, which columns matter, and
what groups of rows gain from each other. Measured on the sample, each row before it was learned.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from dokl.base.arrays import Array
from dokl.base.random_numbers import generator
from dokl.estimators import AutoClassifier, AutoRegressor

FIRST = 32  # rows after which errors are counted, in windows that double
FEWEST_WINDOWS = 3
POWERS = (0.25, 0.5, 0.75, 1.0)
ENOUGH = 0.05  # twice as many rows buy less than this share of the error
MOST_ROWS = 10**7
SHUFFLES = 3
# Groups that are tried alone, and rows of each.
MOST_GROUPS, GROUP_ROWS, FEWEST_GROUP_ROWS = 6, 200, 40


@dataclass(frozen=True)
class LearningCurve:
    """Errors along the sample and the law through them, E(n) = floor + scale / n^power, where E is
    a mean square, or a rate of wrong labels.

    rows: (w,), the middle of each window; errors: (w,) of E there; last: rows that were learned.
    """

    rows: Array
    errors: Array
    last: int
    floor: float
    scale: float
    power: float
    classifying: bool

    def at(self, n: float) -> float:
        """The error after n rows, as people know it: a root mean square, or a rate."""
        return self.shown(self.floor + self.scale / n**self.power)

    def shown(self, error: float) -> float:
        """A root mean square of a mean square; a rate as it is."""
        return error if self.classifying else math.sqrt(max(error, 0.0))

    @property
    def enough(self) -> int | None:
        """Rows from which on twice as many buy less than ENOUGH; None beyond MOST_ROWS."""
        n = FIRST
        while self.at(2 * n) < (1 - ENOUGH) * self.at(n):
            n = math.ceil(1.2 * n)
            if n > MOST_ROWS:
                return None
        return n

    def rows_for(self, wanted: float) -> int | None:
        """Rows until this error (a mean square or a rate); None where the law never gets there."""
        if self.floor + self.scale / FIRST**self.power <= wanted:
            return FIRST
        if wanted <= self.floor or not self.scale:
            return None
        n = (self.scale / (wanted - self.floor)) ** (1 / self.power)
        return None if n > MOST_ROWS else math.ceil(n)


def learning_curve(y: Array, predicted: Array, classifying: bool) -> LearningCurve | None:
    """By targets and their predictions before learning: (n,) each; None of few rows."""
    each = np.asarray(predicted != y if classifying else (predicted - y) ** 2, float)
    edges = [FIRST]
    while 2 * edges[-1] <= len(each):
        edges.append(2 * edges[-1])
    if len(edges) > FEWEST_WINDOWS and len(each) > 1.5 * edges[-1]:
        edges.append(len(each))
    if len(edges) <= FEWEST_WINDOWS:
        return None
    windows = list(pairwise(edges))
    rows = np.array([math.sqrt(a * b) for a, b in windows])
    errors = np.array([each[a:b].mean() for a, b in windows])
    counts = np.array([b - a for a, b in windows], float)
    return LearningCurve(
        rows, errors, len(each), *_law(rows, errors, counts, classifying), classifying
    )


def _law(
    rows: Array, errors: Array, counts: Array, classifying: bool
) -> tuple[float, float, float]:
    """floor, scale and power: least squares, each error as sure as its rows make it."""
    from scipy.optimize import nnls

    best, found = math.inf, (float(errors[-1]), 0.0, 1.0)
    least = np.maximum(errors, 1e-12 + 1e-3 * errors.max(initial=0.0))
    weight = np.sqrt(counts / least) if classifying else np.sqrt(counts) / least
    for power in POWERS:
        A = np.column_stack([np.ones(len(rows)), (rows / rows[-1]) ** -power]) * weight[:, None]
        (floor, scale), left = nnls(A, errors * weight)
        if left < best:
            best, found = left, (float(floor), float(scale * rows[-1] ** power), power)
    return found


@dataclass(frozen=True)
class ColumnWorth:
    """What the error becomes if a column's values are shuffled; error: with them as they are."""

    name: str
    error: float
    shuffled: float

    @property
    def matters(self) -> bool:
        """Whether shuffling it makes the error more than ENOUGH larger."""
        return self.shuffled > (1 + ENOUGH) * self.error


def column_worth(
    model: Any, X: Array, y: Array, owners: Sequence[str], classifying: bool
) -> list[ColumnWorth]:
    """For every column its worth on rows X: (n, d), the most important first. owners: the column of
    each of the d inputs; those of one column are shuffled together.
    """
    draw, error = generator(0, "plan-columns"), _error(model.predict(X), y, classifying)
    found = []
    for name in dict.fromkeys(owners):
        its = np.array([i for i, owner in enumerate(owners) if owner == name])
        shuffled = []
        for _ in range(SHUFFLES):
            rows = X.copy()
            rows[:, its] = X[np.ix_(draw.permutation(len(X)), its)]
            shuffled.append(_error(model.predict(rows), y, classifying))
        found.append(ColumnWorth(name, error, float(np.mean(shuffled))))
    return sorted(found, key=lambda each: -each.shuffled)


@dataclass(frozen=True)
class GroupGain:
    """Errors of groups that learn alone, and of one model of all rows, on the same rows."""

    column: str
    groups: int
    rows: int
    alone: float
    together: float


def group_gain(
    column: str, labels: Array, X: Array, y: Array, predicted: Array, classifying: bool
) -> GroupGain | None:
    """What the largest groups of rows gain from all others: each learned alone, beside what one
    model of all rows predicted for the second half of theirs. None where groups have few rows.

    labels: (n,), the group of each row; X: (n, d), y, predicted: (n,), in the order of learning.
    """
    names, counts = np.unique(labels, return_counts=True)
    large = [name for name, n in zip(names, counts, strict=True) if n >= FEWEST_GROUP_ROWS]
    large = sorted(large, key=lambda name: -int(counts[names == name][0]))[:MOST_GROUPS]
    alone, together, rows = [], [], 0
    for name in large:
        its = np.flatnonzero(labels == name)[:GROUP_ROWS]
        if classifying and len(np.unique(y[its])) < 2:
            continue
        late = its[len(its) // 2 :]
        model: Any = (AutoClassifier if classifying else AutoRegressor)(random_state=0)
        how = {"classes": np.unique(y)} if classifying else {}
        own = model.prequential(X[its], y[its], **how)[len(its) // 2 :]
        alone.append((own, y[late]))
        together.append((predicted[late], y[late]))
        rows += len(late)
    if len(alone) < 2:
        return None
    errors = []
    for pairs in (alone, together):
        predicted, true = (np.concatenate(part) for part in zip(*pairs, strict=True))
        errors.append(_error(predicted, true, classifying))
    return GroupGain(column, len(alone), rows, *errors)


def group_column(texts: Mapping[str, Array], rows: int) -> str | None:
    """The column that may name stations or customers: of texts (n,) the one with the most levels
    of which two have rows enough; None if there is none.
    """
    found = {}
    for name, values in texts.items():
        counts = np.unique(values[:rows].astype(str), return_counts=True)[1]
        if np.count_nonzero(counts >= FEWEST_GROUP_ROWS) >= 2:
            found[name] = len(counts)
    return max(found, key=lambda name: found[name]) if found else None


def _error(predicted: Array, y: Array, classifying: bool) -> float:
    """Root mean square, or rate."""
    if classifying:
        return float(np.mean(predicted != y))
    return math.sqrt(float(np.mean((predicted - y) ** 2)))
