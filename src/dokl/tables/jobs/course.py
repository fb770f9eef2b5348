"""How a model does along the rows of a run: errors, nodes, targets beside predictions, persistence.

All of it in bounded memory. Persistence is what repeating an earlier value would do, where rows are
in the order of time: a model of a series is worth something if it is better than its last value, or
the value of a day or a week before. Each is compared with the model on the rows for which it is
known when the model predicts.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dokl.base.arrays import Array
from dokl.base.errors import BadInput
from dokl.learning.columns import LagColumns, LagPlan, RecentRows, Span
from dokl.learning.metrics import Bins
from dokl.learning.order import RowOrder, changes_by_chance
from dokl.tables.models import TableModel
from dokl.tables.models.rows import forms
from dokl.tables.models.scores import Score, make_score, whole_label
from dokl.tables.models.series import DAY, typical_step, with_target
from dokl.tables.readers import Chunk

MOST_DRAWN = 4000
BINS = 10


@dataclass
class PredictionPairs:
    """Every n rows: y and predicted (n,), and their numbers; of classes how often each label
    was taken for each.

    calibration: (BINS, 3), for probabilities of 0 to 10 %, 10 to 20 % and so on: how many were
    given, to any class of any row, their sum, and how often that class was right.
    """

    classifying: bool = False
    every: int = 1
    seen: int = 0
    rows: list[int] = field(default_factory=list)
    y: list[float] = field(default_factory=list)
    predicted: list[float] = field(default_factory=list)
    taken_for: Counter[tuple[Any, Any]] = field(default_factory=Counter)
    calibration: Array = field(default_factory=lambda: np.zeros((BINS, 3)))

    def add(self, y: Array, predicted: Array) -> None:
        """Some more rows; both: (n,)."""
        if self.classifying:
            pairs = zip(
                map(whole_label, y.tolist()), map(whole_label, predicted.tolist()), strict=True
            )
            self.taken_for.update(pairs)
            return
        rows = np.arange(self.seen, self.seen + len(y))
        self.seen += len(y)
        some = rows % self.every == 0
        self.rows += rows[some].tolist()
        self.y += np.asarray(y, float)[some].tolist()
        self.predicted += np.asarray(predicted, float)[some].tolist()
        while len(self.rows) > MOST_DRAWN:  # those that stay are the same however rows are cut
            self.every *= 2
            stay = [i for i, row in enumerate(self.rows) if row % self.every == 0]
            self.rows = [self.rows[i] for i in stay]
            self.y, self.predicted = (
                [values[i] for i in stay] for values in (self.y, self.predicted)
            )

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


# -- errors along the rows ------------------------------------------------------------------------
@dataclass
class Course:
    """A run over rows: errors (squared, or 0 and 1) and coverage along it, scores of nodes, and
    targets beside predictions.
    """

    classifying: bool = False
    errors: Bins = field(default_factory=Bins)
    covered: Bins = field(default_factory=Bins)
    nodes: dict[str, Score] = field(default_factory=dict)
    order: RowOrder = field(default_factory=RowOrder)
    pairs: PredictionPairs = field(default_factory=PredictionPairs)

    def __post_init__(self) -> None:
        self.pairs.classifying = self.order.classifying = self.classifying

    def add(self, y: Array, predicted: Array, nodes: Sequence[str | None] | None = None) -> None:
        """Rows, what was predicted for them, and whose they are in a network; None: nobody's."""
        if not len(y) or y.ndim != 1:
            return
        self.order.add(y)
        self.pairs.add(y, predicted)
        if self.classifying:
            self.errors.add(np.asarray(y != predicted, float))
        else:
            self.errors.add((y - predicted) ** 2)
        for node in sorted({name for name in nodes or () if name is not None}):
            mine = np.array([name == node for name in nodes or ()], bool)
            score = self.nodes.setdefault(node, make_score(self.classifying))
            score.add(y[mine], predicted[mine])

    def sorted_by_target(self, score: Score) -> bool:
        """Whether nearly all rows stand in the order of their targets."""
        return self.order.is_sorted(changes_by_chance(list(getattr(score, "seen", {}).values())))


# -- persistence ----------------------------------------------------------------------------------
FEW_STRANGE = 0.01  # of rows that may be out of order
FEWEST = 20  # rows that are compared, for a statement
WORSE = 1.02  # times the error of an earlier value
MOST_ROWS = 50_000  # that are remembered


@dataclass
class Persistence:
    """Scores of earlier values and of the model, {name: (earlier, model)}, chunk by chunk.

    on: whether rows are in the order of time, as far as is known. proposed: whether lags were
    looked for, with or without a result.
    """

    classifying: bool = False
    on: bool = True
    proposed: bool = False
    scores: dict[str, tuple[Score, Score]] = field(default_factory=dict)
    _spans: dict[str, Span] = field(default_factory=dict)
    _plan: LagPlan | None = None
    _order: LagColumns | None = None
    _past: RecentRows = field(default_factory=RecentRows)
    _labels: dict[Any, int] = field(default_factory=dict)
    _lagged: bool = False
    _rows: int = 0
    _strange: int = 0

    def add(
        self, model: TableModel, chunk: Chunk, y: Array, keep: Array, predicted: Array,
        untaught: bool = False,
    ) -> None:  # fmt: skip
        """Rows of a chunk; y, predicted: targets and predictions of those to keep, keep: (n,).

        untaught: the first of them was predicted before anything was learned, and is not compared:
        the 0 predicted for a target of 300 would decide about thousands of rows.
        """
        if not self.on or y.ndim != 1 or not chunk.n:
            return
        try:
            chunk = with_target(model, chunk, y, keep)
            self._add(model, chunk, y, keep, predicted, untaught)
        except BadInput:  # too many groups, or too many rows in a week
            self.on = False

    def _add(
        self, model: TableModel, chunk: Chunk, y: Array, keep: Array, predicted: Array,
        untaught: bool,
    ) -> None:  # fmt: skip
        if self._plan is None:
            self._begin(model, chunk)
        if not self.on or self._plan is None or self._order is None:
            return
        fine = np.ones(chunk.n, bool)
        fine[list(self._order.strange(chunk.columns))] = False
        self._rows, self._strange = self._rows + chunk.n, self._strange + int((~fine).sum())
        if self._strange > FEW_STRANGE * self._rows:
            self.on = False
            return
        chunk, kept, inside = chunk.rows(fine), keep[fine], fine[keep]
        _, self._order = self._order.extend(chunk.columns)
        values = np.full((chunk.n, 1), np.nan)
        values[kept, 0] = self._numbers(y[inside])
        if not self.classifying and model.target in chunk.columns:  # also those not learned
            values[:, 0] = chunk.columns[model.target]
        times, by = self._plan.time, self._plan.by
        groups, self._past = self._past.join(
            None if by is None else [str(name) for name in chunk.columns[by].tolist()],
            None if times is None else np.asarray(chunk.columns[times], np.float64),
            values,
        )
        truth, model_said = values[kept, 0], self._numbers(predicted[inside])
        if untaught and inside[:1].all():
            truth[:1] = np.nan
        for name, span in self._spans.items():
            before = np.full(chunk.n, np.nan)
            for group in groups:
                before[group.rows] = group.take(group.find(span))[:, 0]
            known = ~np.isnan(before[kept]) & ~np.isnan(truth)
            if known.any():
                earlier, own = self.scores[name]
                earlier.add(truth[known], before[kept][known])
                own.add(truth[known], model_said[known])

    def _begin(self, model: TableModel, chunk: Chunk) -> None:
        """Which values are repeated, by the first rows."""
        series, prepared = model.series, model.preprocessor
        if prepared is None:
            self.on = False
            return
        dated = [
            k for k, form in forms(model).items() if k in prepared.times and form.order != "clock"
        ]
        if series is None and not dated:
            self.on = False
            return
        time = series.plan.time if series is not None else dated[0]
        by = series.plan.by if series is not None else model.node
        self._lagged = series is not None and bool(series.plan.made)
        self._plan = LagPlan(by=by, time=time)
        self._order = LagColumns(self._plan)
        horizon = Span() if series is None else series.horizon
        self._spans = earlier_values(self._plan, horizon, chunk)
        self._past = RecentRows.none(self._spans.values())
        self.scores = {
            name: (make_score(self.classifying), make_score(self.classifying))
            for name in self._spans
        }

    def _numbers(self, values: Array) -> Array:
        """Targets as numbers: labels are numbered as they come."""
        if not self.classifying:
            return np.asarray(values, np.float64)
        known = self._labels
        return np.array([known.setdefault(v, len(known)) for v in values.tolist()], np.float64)

    # -- what came of it -------------------------------------------------------------------------
    def figures(self) -> dict[str, Any] | None:
        """Of each earlier value its error, and the model's on the same rows; None without any."""
        if not self.on:
            return None
        error = self.error
        return {
            name: {"rows": one.n, error: one.figures()[error], "model": own.figures()[error]}
            for name, (one, own) in self.scores.items()
            if one.n >= FEWEST
        } or None

    @property
    def error(self) -> str:
        """The figure that is compared."""
        return "error" if self.classifying else "rmse"

    @property
    def hint(self) -> str:
        """What may make the model better."""
        if self.proposed or self._lagged:
            return ""
        return ". Earlier values as inputs may help (--lags auto)"

    @property
    def worse_than(self) -> list[str]:
        """Earlier values that do better than the model."""
        found = self.figures() or {}
        return [name for name, each in found.items() if each["model"] > WORSE * each[self.error]]


def earlier_values(plan: LagPlan, horizon: Span, chunk: Chunk) -> dict[str, Span]:
    """The earlier values that are known when a row is predicted."""
    found = {"the last value": horizon if horizon else Span.of(1)}
    if plan.time is None:
        return found
    times = np.asarray(chunk.columns[plan.time], np.float64)
    step = typical_step(times, None if plan.by is None else chunk.columns[plan.by].astype(str))
    ahead = horizon.seconds or horizon.rows * step
    for name, length, most in (("day", DAY, DAY / 2), ("week", 7 * DAY, DAY)):
        turns = max(1, math.ceil(ahead / length - 1e-9)) if step == step else 1
        if step <= most and 1.5 * turns * length / step < MOST_ROWS:
            text = f"a {name} before" if turns == 1 else f"{turns} {name}s before"
            found[text] = replace(Span.of(f"{round(turns * length)}s"), text=text)
    return found


def persistence_words(found: Persistence) -> list[str]:
    """The report, for people."""
    figures = found.figures()
    if figures is None:
        return []
    unit, form = (100.0, "{:.2f}%") if found.classifying else (1.0, "{:.4g}")
    shown = {
        name: [form.format(unit * v[key]) for key in (found.error, "model")]
        for name, v in figures.items()
    }
    each = ", ".join(f"{name} {one} (model {own})" for name, (one, own) in shown.items())
    lines = [f"persistence, {found.error} on the same rows: {each}"]
    if found.worse_than:
        lines.append(
            f"the model is worse than repeating {' and '.join(found.worse_than)}: do not use it "
            f"yet{found.hint}"
        )
    return lines
