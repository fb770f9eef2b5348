"""One model as what a service serves: how `dokl serve` describes its rows, and learns them.

A service learns through a `Learner`, keeps samples X and Y in its journal, and packs a state. Here
the learner is a `TableModel` of any kind, the state is the model itself, replaced and never
written to, and X are raw rows as numbers: a restart replays them through scaling and all.
"""

from __future__ import annotations

import copy
import math
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from dokl.base.arrays import Array
from dokl.base.errors import BadInput
from dokl.learning import classification
from dokl.learning.columns import NO_LEVEL, RawRows
from dokl.learning.columns.raw_rows import MISSING
from dokl.live.description import Access, AgreedInputs, Durability, Limits, is_loopback
from dokl.live.description.cells import form_entries, time_entries, times_of
from dokl.network.state import State
from dokl.simulation.learner import Learner
from dokl.tables.models import TableModel, save
from dokl.tables.models import rows as table_rows
from dokl.tables.models.rows import forms
from dokl.tables.models.scores import RegressionScore
from dokl.tables.readers import Chunk

NAME = "model"
BELIEVED = 100.0  # standard deviations: -9999 of a broken sensor is farther away, outliers are not
FEWEST = 50  # targets that determine a range


class ModelState(State):
    """A model, and what agents report of a state: a vector, and rows learned."""

    model: TableModel

    def __init__(self, model: TableModel) -> None:
        theta = np.atleast_1d(_vector(model.estimator)).reshape(1, 1, -1)
        super().__init__({"theta": theta, "count": np.array([model.rows_read])}, peak=1.0)
        object.__setattr__(self, "model", model)


def _vector(estimator: object) -> Array:
    """Something whose length is what was learned."""
    if hasattr(estimator, "coef_"):
        return np.ravel(estimator.coef_)
    if hasattr(estimator, "network_"):
        return np.ravel(estimator.network_.seen.astype(float))
    bank = getattr(estimator, "bank_", None)
    if bank is None or not bank.memories:
        return np.zeros(1)
    return np.concatenate([np.ravel(memory.theta) for memory in bank.memories])


class ModelLearner(Learner):
    """A `TableModel` as a learner; `start` is the model as it was read."""

    averages = False

    def __init__(self, model: TableModel, rows: RawRows, fingerprint: str) -> None:
        self._model, self._rows = model, rows
        self.classes = model.labels
        self.m = 1 if self.classes is None else classification.outputs(len(self.classes))
        self.d, self.D, self.K = rows.d, 1, 1
        self.dtype, self.fingerprint = np.float64, fingerprint

    def start(self) -> ModelState:
        """The model as it was read."""
        return ModelState(self._model)

    def prepare(self, rows: int = 1) -> None:
        """Have everything compiled that predicting needs; nothing is learned for it."""
        row = np.zeros((1, self.d))
        row[:, len(self._rows.numeric) :] = 1.0  # numbers that are there
        row[:, 2 * len(self._rows.numeric) :] = MISSING
        if self._model.series is not None and self._model.series.plan.by is not None:
            at = self._rows.names_out.index(self._model.series.plan.by)
            row[:, at] = 0.0  # some group
        method = "predict" if self.classes is None else "decision_function"
        table_rows.answers(self._model, self.chunk(row), method)

    def rows(self, X: object, Y: object) -> tuple[Array, Array]:
        """As they are: `Inputs` has checked them, and the model's table takes them."""
        X, Y = np.asarray(X, np.float64), np.asarray(Y, np.float64)
        self.chunk(X)
        return X, Y

    def chunk(self, X: Array) -> Chunk:
        """Rows of a journal as a table."""
        columns = self._rows.columns(X)
        if self._model.preprocessor is not None:
            return Chunk(tuple(columns), columns, range(1, 1 + len(X)))
        gone = [name for name, values in columns.items() if np.isnan(values).any()]
        if gone:
            raise BadInput(
                f"column {gone[0]!r} is missing in a row, and this model has no preprocessing to "
                "fill it: it was saved in Python"
            )
        return Chunk((), {}, range(1, 1 + len(X)), np.column_stack([*columns.values()]))

    def following(self, model: TableModel, X: Array) -> Chunk:
        """Rows as a table, which must follow those that the model remembers, if it does."""
        chunk = self.chunk(X)
        if model.series is not None:
            by = model.series.plan.by
            if by is not None and NO_LEVEL in chunk.columns[by].tolist():
                row = chunk.columns[by].tolist().index(NO_LEVEL)
                raise BadInput(
                    f"row {row + 1}, column {by!r}: the model has lags by group, and was not "
                    "trained with this one"
                )
            model.series.lags.check(chunk.columns)
        return chunk

    def learn(
        self, state: State, X: Any, Y: Any, weight: Array | None = None
    ) -> tuple[ModelState, Array]:
        """A copy of the model that has learned these rows; what it predicted before, (n, 1)."""
        assert isinstance(state, ModelState)
        model = fresh_copy(state.model)
        chunk, keep = self.following(model, X), np.ones(len(X), bool)
        y = Y[:, 0] if self.classes is None else model.classes_[classification.class_numbers(Y)]
        if model.series is not None:
            keep = model.series.learnable(chunk.columns, chunk.n)
        # Rows whose inputs of a horizon before are not there are remembered, and not learned.
        before = None if keep.all() else table_rows.answers(model, chunk, "predict")[0]
        predicted = table_rows.learn(model, chunk, y[keep], keep)
        if before is not None:
            before[keep] = predicted
            predicted = before
        return ModelState(model), np.asarray(predicted).reshape(len(y), -1)

    def predict(
        self, state: State, X: Any, node: int | None = None, workers: int | None = None
    ) -> Array:
        """Numbers, or scores of classes: (n, m)."""
        assert isinstance(state, ModelState)
        method = "predict" if self.classes is None else "decision_function"
        (found,) = table_rows.answers(state.model, self.following(state.model, X), method)
        return np.asarray(found, np.float64).reshape(len(X), -1)

    def answers(self, scores: Array) -> list[Any]:
        """Scores (n, m) as people want them: numbers, or labels."""
        if self.classes is not None:
            return super().answers(scores)
        rows: list[Any] = scores.tolist()
        return [row[0] for row in rows] if scores.shape[1] == 1 else rows

    def losses(self, Y: Array, f: Array) -> Array:
        """Squared errors (n,), or 1 for each mistaken class; f as `learn` gives it."""
        if self.classes is None:
            return np.asarray(np.mean((np.asarray(Y, np.float64) - f) ** 2, axis=1))
        labels = self._model.classes_[classification.class_numbers(Y)]
        return np.asarray(labels != f[:, 0]).astype(np.float64)

    def pack(self, state: State) -> bytes:
        """The model file, from which a restart continues with the same bits."""
        assert isinstance(state, ModelState)
        with tempfile.TemporaryDirectory() as folder:
            return save(state.model, Path(folder) / "model.dokl", exact=True).read_bytes()

    def unpack(self, data: bytes) -> ModelState:
        """The model of a file that was packed."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.dokl"
            path.write_bytes(data)
            return ModelState(TableModel.load(path))


def fresh_copy(model: TableModel) -> TableModel:
    """A model that can learn while the other one goes on predicting; what was learned is shared,
    for learning replaces it.
    """
    estimator = object.__new__(type(model.estimator))
    vars(estimator).update(vars(model.estimator))
    prepared = copy.copy(model.preprocessor)
    if prepared is not None:
        prepared.moments, prepared.unseen = copy.copy(prepared.moments), dict(prepared.unseen)
    counts = copy.deepcopy((model.tally, model.coverage))
    return replace(
        model, estimator=estimator, preprocessor=prepared, tally=counts[0], coverage=counts[1]
    )


@dataclass(frozen=True)
class ServedInputs(AgreedInputs):
    """Of a model file, which has no sections."""

    @property
    def says_range(self) -> str:
        """An option of the command."""
        return "the targets that are believed (--target-range)"

    @property
    def says_drop(self) -> str:
        """Nothing does."""
        return ""


@dataclass(frozen=True)
class SeriesInputs(ServedInputs):
    """Of a model with a horizon, where the target of a row is also an input."""

    def _check_columns(self) -> None:
        """Names are those of a model file."""


def _raw_inputs(model: TableModel) -> tuple[tuple[str, ...], dict[str, tuple[str, ...]]]:
    """Columns of numbers, and texts with their levels, as rows have them: lags are made of them."""
    assert model.preprocessor is not None
    levels, group = dict(model.preprocessor.levels), model.preprocessor.group
    if group is not None:
        levels[group] = tuple(model.preprocessor.group_levels)
    if model.series is None:
        return model.preprocessor.numeric, levels
    plan = model.series.plan
    numeric = tuple(name for name in model.preprocessor.numeric if name not in plan.names)
    if plan.by is not None:
        known = (*levels.get(plan.by, ()), *model.series.lags.past.groups)
        levels[plan.by] = tuple(dict.fromkeys(known))
    return numeric, levels


@dataclass(frozen=True)
class ModelDescription:
    """What a service knows of a model file; made by `described`.

    mark: 16 digits by which its journal knows it.
    """

    model: TableModel = field(repr=False)
    inputs: AgreedInputs
    durability: Durability
    path: Path
    mark: str
    limits: Limits = field(default_factory=Limits)

    @property
    def title(self) -> str:
        """The name of the file."""
        return self.path.name

    @cached_property
    def raw(self) -> RawRows:
        """How columns go into the journal."""
        times = times_of(self.inputs.times)
        return RawRows((*self.inputs.numeric, *times), dict(self.inputs.levels))

    def preprocessor(self) -> RawRows:
        """Raw columns as numbers; the model scales them itself."""
        return self.raw

    def learner(self) -> ModelLearner:
        """The model, as it was read."""
        return ModelLearner(self.model, self.raw, self.mark)

    def access(self, name: str, address: str) -> Access:
        """Anyone on this machine, and nobody else: there are no certificates."""
        if not is_loopback(address):
            raise BadInput(
                f"others can reach {address}, and a model is served without certificates: give it "
                "a loopback address, and put a reverse proxy before it"
            )
        return Access()


def described(
    model: TableModel,
    path: Path,
    mark: str,
    durability: str = "process",
    target_range: Sequence[float] | None = None,
    outside: str = "refuse",
) -> ModelDescription:
    """What a service must know of a model.

    target_range: the least and the largest target that is believed; None: by the targets that the
    model was trained with; empty: any. outside: what becomes of others, "refuse" or "clip".
    """
    prepared = model.preprocessor
    if prepared is None:
        d = int(model.estimator.n_features_in_)
        numeric = model.columns or tuple(f"x{i + 1}" for i in range(d))
        levels: dict[str, tuple[str, ...]] = {}
    else:
        numeric, levels = _raw_inputs(model)
    target = model.target or "y"
    drop = () if prepared is None else tuple(set(prepared.excluded) - {target})
    labels = tuple(model.labels or ())
    if any(isinstance(label, bool) for label in labels):
        labels = tuple(str(label).lower() for label in labels)  # as JSON has them
    zeros = (0.0,) * (len(numeric) + (0 if prepared is None else len(prepared.since)))
    known = {target, *numeric, *({} if prepared is None else prepared.times)}
    odd = {name: form for name, form in forms(model).items() if name in known and not form.plain}
    kind = ServedInputs if model.series is None else SeriesInputs
    believed = believed_targets(model) if target_range is None else tuple(target_range)
    inputs = kind(
        target, "classification" if model.classifying else "regression", labels, tuple(numeric),
        tuple(levels.items()), "off", zeros, zeros, zeros, zeros, drop, believed, outside=outside,
        times=time_entries({} if prepared is None else prepared.times),
        forms=form_entries(odd), missing=() if prepared is None else prepared.missing,
    )  # fmt: skip
    return ModelDescription(model, inputs, Durability(durability, keep_minutes=0.0), path, mark)


def believed_targets(model: TableModel) -> tuple[float, ...]:
    """The range of targets that is believed, by those that the model has learned: BELIEVED standard
    deviations on either side of their mean; empty if the file has none.
    """
    score = model.tally
    if not isinstance(score, RegressionScore) or score.n < FEWEST or score.spread <= 0:
        return ()
    room = BELIEVED * math.sqrt(score.spread / score.n)
    return float(f"{score.mean - room:.3g}"), float(f"{score.mean + room:.3g}")
