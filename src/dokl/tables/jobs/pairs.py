"""Targets beside what was predicted for them, as far as they can be drawn; in bounded memory."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dokl.base.arrays import Array
from dokl.tables.models.scores import whole_label

MOST_DRAWN = 4000
BINS = 10


@dataclass
class PredictionPairs:
    """Every so many rows: y and said (n,), and their numbers; of classes how often each label was
    taken for each.

    calibration: (BINS, 3), for probabilities of 0 to 10 %, 10 to 20 % and so on: how many were
    given, to any class of any row, their sum, and how often that class was right.
    """

    classifying: bool = False
    every: int = 1
    seen: int = 0
    rows: list[int] = field(default_factory=list)
    y: list[float] = field(default_factory=list)
    said: list[float] = field(default_factory=list)
    taken_for: Counter[tuple[Any, Any]] = field(default_factory=Counter)
    calibration: Array = field(default_factory=lambda: np.zeros((BINS, 3)))

    def add(self, y: Array, said: Array) -> None:
        """Some more rows; both: (n,)."""
        if self.classifying:
            pairs = zip(map(whole_label, y.tolist()), map(whole_label, said.tolist()), strict=True)
            self.taken_for.update(pairs)
            return
        rows = np.arange(self.seen, self.seen + len(y))
        self.seen += len(y)
        some = rows % self.every == 0
        self.rows += rows[some].tolist()
        self.y += np.asarray(y, float)[some].tolist()
        self.said += np.asarray(said, float)[some].tolist()
        while len(self.rows) > MOST_DRAWN:  # those that stay are the same however rows are cut
            self.every *= 2
            stay = [i for i, row in enumerate(self.rows) if row % self.every == 0]
            self.rows = [self.rows[i] for i in stay]
            self.y, self.said = ([values[i] for i in stay] for values in (self.y, self.said))

    def add_probabilities(self, y: Array, given: Array, classes: Array) -> None:
        """What was given to each class: (n, classes)."""
        right = np.asarray(y)[:, None] == classes[None, :]
        bins = np.clip((BINS * given).astype(int), 0, BINS - 1).ravel()
        for column, weights in enumerate((np.ones(bins.shape), given.ravel(), right.ravel())):
            self.calibration[:, column] += np.bincount(bins, weights, minlength=BINS)

    @property
    def labels(self) -> list[Any]:
        """All labels, sorted."""
        return sorted({label for pair in self.taken_for for label in pair}, key=_order)


def _order(label: Any) -> tuple[bool, Any]:
    return isinstance(label, str), label
