"""How errors went along the rows, in bins of bounded number; and scores of each node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dokl.arrays import Array
from dokl.models.scores import Score, make_score

MOST_BINS, FIRST_BIN, MOST_DRAWN = 200, 10, 40


@dataclass
class Bins:
    """Sums over bins of rows; when there are too many, each two become one.

    >>> bins = Bins()
    >>> bins.add(np.arange(20.0))
    >>> bins.means()
    (array([10., 20.]), array([ 4.5, 14.5]))
    """

    size: int = FIRST_BIN
    done: list[tuple[int, float]] = field(default_factory=list)
    n: int = 0
    total: float = 0.0

    def add(self, values: Array) -> None:
        """A value for each of some more rows."""
        at = 0
        while at < len(values):
            piece = values[at : at + self.size - self.n]
            self._add(len(piece), float(piece.sum()))
            at += len(piece)

    def _add(self, n: int, total: float) -> None:
        self.n, self.total = self.n + n, self.total + total
        if self.n >= self.size:
            self.done.append((self.n, self.total))
            self.n, self.total = 0, 0.0
        if len(self.done) >= MOST_BINS:
            pairs = zip(self.done[0::2], self.done[1::2], strict=True)
            self.done = [(m + k, a + b) for (m, a), (k, b) in pairs]
            self.size *= 2

    def means(self) -> tuple[Array, Array]:
        """The last row of each bin, and the mean in it; a short rest joins the bin before."""
        bins = list(self.done)
        if self.n and (not bins or 2 * self.n >= self.size):
            bins.append((self.n, self.total))
        elif self.n:
            n, total = bins.pop()
            bins.append((n + self.n, total + self.total))
        while len(bins) > MOST_DRAWN:  # what is left is less noisy
            if len(bins) % 2:
                (m, a), (k, b) = bins[-2:]
                bins[-2:] = [(m + k, a + b)]
            pairs = zip(bins[0::2], bins[1::2], strict=True)
            bins = [(m + k, a + b) for (m, a), (k, b) in pairs]
        counts, totals = np.array(bins, float).reshape(-1, 2).T
        return np.cumsum(counts), totals / counts


@dataclass
class Course:
    """A run over rows: errors (squared, or 0 and 1) and coverage along it, and nodes' scores."""

    classifying: bool = False
    errors: Bins = field(default_factory=Bins)
    covered: Bins = field(default_factory=Bins)
    nodes: dict[str, Score] = field(default_factory=dict)
    repeats: int = 0  # rows whose label is that of the row before
    rises: int = 0  # rows whose target is not below that of the row before
    falls: int = 0
    _last: Any = None

    def add(self, y: Array, predicted: Array, nodes: Sequence[str | None] | None = None) -> None:
        """Rows, what was predicted for them, and whose they are in a network; None: nobody's."""
        if not len(y) or y.ndim != 1:
            return
        self._order(y)
        if self.classifying:
            self.errors.add(np.asarray(y != predicted, float))
        else:
            self.errors.add((y - predicted) ** 2)
        for node in sorted({name for name in nodes or () if name is not None}):
            mine = np.array([name == node for name in nodes or ()], bool)
            score = self.nodes.setdefault(node, make_score(self.classifying))
            score.add(y[mine], predicted[mine])

    def _order(self, y: Array) -> None:
        """Whether the rows look sorted by their target."""
        before = y[:-1] if self._last is None else np.concatenate([[self._last], y[:-1]])
        after = y if self._last is not None else y[1:]
        self.repeats += int(np.count_nonzero(before == after))
        if not self.classifying:
            self.rises += int(np.count_nonzero(after >= before))
            self.falls += int(np.count_nonzero(after <= before))
        self._last = y[-1]

    def sorted_by_target(self, score: Score) -> bool:
        """Whether nearly all rows stand in the order of their targets.

        Of classes: labels change more than ten times more seldom than if rows were shuffled.
        """
        if score.n < 50:
            return False
        if not self.classifying:
            return max(self.rises, self.falls) > 0.95 * (score.n - 1) and self.repeats < score.n / 2
        shares = np.array([n / score.n for n in getattr(score, "seen", {}).values()])
        changes, by_chance = score.n - 1 - self.repeats, score.n * (1.0 - float(np.sum(shares**2)))
        return by_chance > 20 and 10 * changes < by_chance
