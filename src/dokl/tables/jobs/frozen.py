"""How a model does that stands still: a snapshot, on the rows since, beside the one that learns.

A model that is trained on a file and then used without learning on is such a snapshot; where the
target moves it does worse than the error of a model that follows.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dokl.base.arrays import Array
from dokl.tables.jobs.parts import ChunkPart, is_snapshot, rows_seen
from dokl.tables.models import TableModel
from dokl.tables.models.learning import answers
from dokl.tables.models.scores import LEVEL, Coverage, Score, make_score

FEW = 30


@dataclass
class Frozen:
    """A snapshot after `at` rows. score: its own, tracking: of the model that goes on, both on the
    rows since; coverage: of its intervals, None where it has none.
    """

    at: int
    model: TableModel
    score: Score
    tracking: Score
    coverage: Coverage | None = None

    def figures(self) -> dict[str, Any]:
        """The row, what the snapshot did, and what the model that goes on did meanwhile."""
        more = {} if self.coverage is None else {"intervals": self.coverage.figures()}
        return {"row": self.at, **self.score.figures(), "tracking": self.tracking.figures(), **more}


@dataclass
class FrozenComparison:
    """The newest snapshot, and the one before; none where there are none."""

    now: Frozen | None = None
    before: Frozen | None = None

    def guess(self, model: TableModel, part: ChunkPart) -> Array | None:
        """What the snapshot says of the rows to keep, before the model learns them: (n,), or with
        the ends of intervals (2, n).
        """
        if self.now is None or not len(part.y):
            return None
        still = replace(self.now.model, series=model.series)  # which remembers the rows before
        how: dict[str, Any] = {"nodes": part.nodes, "keep": part.keep, "due": True}
        if self.now.coverage is None or part.y.ndim > 1:
            return answers(still, part.chunk, "predict", **how)[0]
        steps = 1 + self.now.score.n + np.arange(len(part.y))
        how |= {"coverage": LEVEL, "steps_ahead": steps}
        return answers(still, part.chunk, "predict_interval", **how)[0]

    def add(
        self, model: TableModel, part: ChunkPart, guess: Array | None, predicted: Array
    ) -> None:
        """Rows that the model has learned by now; a new snapshot if it is time."""
        if self.now is not None and guess is not None:
            if self.now.coverage is not None and part.y.ndim == 1:
                self.now.coverage.add(part.y, *guess)
                guess = guess.mean(axis=0)
            self.now.score.add(part.y, guess)
            self.now.tracking.add(part.y, predicted)
        seen = rows_seen(model)
        if any(is_snapshot(row) for row in range(seen - len(part.y) + 1, seen + 1)):
            self.take(model)

    def take(self, model: TableModel) -> None:
        """A snapshot."""
        scores = make_score(model.classifying), make_score(model.classifying)
        self.before = self.now
        coverage = Coverage() if model.knows_distances else None
        self.now = Frozen(rows_seen(model), _still(model), *scores, coverage)

    def told(self) -> Frozen | None:
        """The one to tell of: the newest, unless hardly any rows came since."""
        found = [one for one in (self.now, self.before) if one is not None and one.score.n]
        many = [one for one in found if one.score.n >= FEW]
        return next(iter(many or found), None)


def _still(model: TableModel) -> TableModel:
    """What predicts as the model does now, without the matrices that it learns by."""
    grouped = model.preprocessor is not None and model.preprocessor.group is not None
    if not hasattr(model.estimator, "network_") and not grouped:
        return model.predict_only()
    still = copy.deepcopy(replace(model, estimator=None))
    still.estimator = copy.copy(model.estimator)  # learning replaces what it knows
    return still
