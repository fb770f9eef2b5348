"""How errors went along the rows of a run; and scores of each node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dokl.base.arrays import Array
from dokl.learning.metrics import Bins
from dokl.tables.jobs.pairs import PredictionPairs
from dokl.tables.models.scores import Score, make_score


@dataclass
class Course:
    """A run over rows: errors (squared, or 0 and 1) and coverage along it, scores of nodes, and
    targets beside predictions.
    """

    classifying: bool = False
    errors: Bins = field(default_factory=Bins)
    covered: Bins = field(default_factory=Bins)
    nodes: dict[str, Score] = field(default_factory=dict)
    repeats: int = 0  # rows whose label is that of the row before
    rises: int = 0  # rows whose target is not below that of the row before
    falls: int = 0
    pairs: PredictionPairs = field(default_factory=PredictionPairs)
    _last: Any = None

    def __post_init__(self) -> None:
        self.pairs.classifying = self.classifying

    def add(self, y: Array, predicted: Array, nodes: Sequence[str | None] | None = None) -> None:
        """Rows, what was predicted for them, and whose they are in a network; None: nobody's."""
        if not len(y) or y.ndim != 1:
            return
        self._order(y)
        self.pairs.add(y, predicted)
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
