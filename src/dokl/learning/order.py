"""Rows that are sorted by their targets. A model that learns them in that order sees one part at a
time, and forgets the first. A series that rises looks the same but for its inputs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dokl.base.arrays import Array
from dokl.base.random_numbers import uniforms
from dokl.learning import classification

FEWEST = 50  # rows
ONE_WAY = 0.95  # of the steps of a sorted target
CLEAR = 20  # steps, or changes by chance, that are enough to decide
RARER = 10  # times, than by chance
# An input of a series moves up about as often as down, and farther in eight rows than in one.
# Medians of second differences, which know no trend, over one row to those over eight: 0.55 to 1 in
# sorted tables, even if inputs are nearly proportional; 0.35 in random walks, 0.1 of weather.
FAR, GRADUAL, EITHER_WAY, MOVES = 8, 0.45, (0.35, 0.65), 0.5


@dataclass
class RowOrder:
    """Whether rows look sorted by their target. n: rows that were compared with the one before;
    changes: those with another target; ups, downs: those with a larger or a smaller one.
    """

    classifying: bool = False
    n: int = 0
    changes: int = 0
    ups: int = 0
    downs: int = 0
    _last: Any = None

    def add(self, y: Array, starts: Array | None = None) -> None:
        """More rows. starts: (n,) those that are not compared with the row before."""
        before, after = y[:-1], y[1:]
        if self._last is not None:
            before, after = np.concatenate([[self._last], before]), y
        if starts is not None:
            within = ~starts[len(y) - len(after) :]
            before, after = before[within], after[within]
        self.n += len(after)
        self.changes += int(np.count_nonzero(before != after))
        if not self.classifying:
            self.ups += int(np.count_nonzero(after > before))
            self.downs += int(np.count_nonzero(after < before))
        self._last = y[-1]

    def is_sorted(self, by_chance: float) -> bool:
        """Whether nearly all rows stand in the order of their targets. by_chance: how many would
        have another target than the row before in random order (`changes_by_chance`).

        Numbers: if they change, then in one direction. Classes: they change more than ten times
        more seldom than by chance.
        """
        seldom = by_chance > CLEAR and RARER * self.changes < by_chance
        if self.n < FEWEST - 1 or self.classifying:
            return self.classifying and self.n >= FEWEST - 1 and seldom
        steps = self.ups + self.downs
        return max(self.ups, self.downs) > ONE_WAY * steps and (steps >= CLEAR or seldom)


def changes_by_chance(counts: Any) -> float:
    """How many rows differ from the one before in random order. counts: rows of each target."""
    counts = np.asarray(counts, np.float64)
    n = float(counts.sum())
    return n - float(np.sum(counts**2)) / n if n else 0.0


def sorted_by_target(y: Array, classifying: bool, X: Array, nodes: Array | None = None) -> bool:
    """Whether rows with targets y: (n,) are sorted by them, and their inputs X: (n, d), NaN where
    missing, are not those of a series. nodes: (n,) whose rows they are: each in its own order.

    Sorted are also rows in blocks: by an input first, and within its values by the target.
    """
    if len(y) < FEWEST:
        return False
    nodes = np.zeros(len(y), int) if nodes is None else nodes
    parts = [np.flatnonzero(nodes == node) for node in np.unique(nodes)]
    order, by_chance = RowOrder(classifying), 0.0
    for rows in parts:
        starts = np.zeros(len(rows), bool) if classifying else _blocks(X[rows])
        starts[0] = True
        order.add(y[rows], starts)
        by_chance += changes_by_chance(np.unique(y[rows], return_counts=True)[1])
    if not order.is_sorted(by_chance) or any(_repeats(X[rows], y[rows]) for rows in parts):
        return False
    if len(parts) == 1:
        return not moves_gradually(X)
    # Nodes differ, whatever their order.
    return not moves_gradually(np.vstack([X[rows] - X[rows].mean(axis=0) for rows in parts]))


def _repeats(X: Array, y: Array) -> bool:
    """Whether an input is the target of an earlier row, the same number of rows before each."""
    if y.dtype.kind not in "biuf":
        return False
    n = len(y)
    for x in X.T:
        back = n - 1 - np.flatnonzero(y == x[-1])
        back = back[(back > 0) & (back < n // 2)]
        if len(back) and np.array_equal(x[back[-1] :], y[: n - back[-1]]):
            return True
    return False


def _blocks(X: Array) -> Array:
    """Rows that begin a value of an input by which all rows are sorted, of few values: (n,)."""
    starts = np.zeros(len(X), bool)
    for x in X.T:
        steps = np.diff(x)
        changed = steps != 0
        if RARER * np.count_nonzero(changed) < len(x) and (
            (steps >= 0).all() or (steps <= 0).all()
        ):
            starts[1:] |= changed
    return starts


def moves_gradually(X: Array) -> bool:
    """Whether an input changes little from row to row, more after several, and comes back: that of
    a series. X: (n, d), NaN where missing.

    >>> t = np.arange(100.0)
    >>> moves_gradually(np.sin(t / 5)[:, None]), moves_gradually(np.sin(t**2)[:, None])
    (True, False)
    >>> moves_gradually(t[:, None])  # by which rows may have been sorted
    False
    """
    return any(_gradual(x[np.isfinite(x)]) for x in X.T)


def _gradual(x: Array) -> bool:
    steps = np.diff(x)
    moved = np.count_nonzero(steps)
    if len(x) < FEWEST or moved < MOVES * len(x):
        return False
    if not EITHER_WAY[0] < np.count_nonzero(steps > 0) / moved < EITHER_WAY[1]:
        return False
    near, far = (np.median(np.abs(x[2 * k :] - 2.0 * x[k:-k] + x[: -2 * k])) for k in (1, FAR))
    return bool(near < GRADUAL * far)


def order_to_learn(
    X: Array, Y: Array, classifying: bool, seed: int, nodes: Array | None = None
) -> Array | slice:
    """Which of rows X: (n, d), Y: (n, m) to learn one after the other where all are there: as they
    stand, or in an order drawn from the seed where they are sorted by a target, or by their class.
    """
    targets = classification.class_numbers(Y)[:, None] if classifying else Y
    if not any(sorted_by_target(y, classifying, X, nodes) for y in targets.T):
        return slice(None)
    return np.asarray(np.argsort(uniforms(seed, ("order", len(X)), len(X))))
