"""`dokl predict` and `dokl evaluate`: a saved model on new rows, streaming."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np

from dokl.base.arrays import Array
from dokl.base.errors import BadInput, listed
from dokl.tables.jobs.curves import Course
from dokl.tables.jobs.persistence import Persistence
from dokl.tables.jobs.sources import Source
from dokl.tables.jobs.tables import rows_in_order, usable, wanted
from dokl.tables.jobs.whose import Nodes, Say, Whose, answers_of
from dokl.tables.models import TableModel
from dokl.tables.models.learning import answers, remember
from dokl.tables.models.scores import Coverage, Score, make_score
from dokl.tables.readers import Chunk, Reader

Watch = Callable[[Reader, int], None]
MORE = {"proba": "predict_proba", "scores": "decision_function"}


@dataclass(frozen=True)
class PredictionRequest:
    """What is wanted besides predictions. more: "proba" or "scores" of each class; interval: the
    share of targets, such as 0.9, that it is to hold; std: how sure the model is of each row;
    by_node: by what each row's own node has learned, or a network's nodes together; None is the
    first for rows that name a node of the network; steps_ahead: how many rows beyond the last
    learned one the first row lies.
    """

    more: str | None = None
    interval: float | None = None
    std: bool = False
    by_node: bool | None = None
    steps_ahead: int = 1

    def check(self, model: TableModel) -> None:
        """Refuse what this model cannot say."""
        _check(model, self.by_node)
        if self.more is not None and not model.classifying:
            raise BadInput(f"--{self.more} is for classifiers; this model is a regression")
        if self.more == "proba" and not hasattr(model.estimator, "predict_proba"):
            raise BadInput(
                "--proba needs a model trained with --method bank, or with --loss logistic; "
                "--scores works always"
            )
        asked = "--interval" if self.interval is not None else "--std" if self.std else None
        if asked is not None and not model.has_intervals:
            what = "a classifier" if model.classifying else f"a {type(model.estimator).__name__}"
            raise BadInput(f"{asked} is for regressions by --method bank, and this model is {what}")
        if self.std and hasattr(model.estimator, "nodes_"):
            raise BadInput("--std is for models of one place; of a network, --interval works")
        if self.std and not hasattr(model.estimator, "bank_"):
            raise BadInput(
                "--std takes the matrices that --predict-only left out of this file; --interval "
                "works, at one width for all rows"
            )


def predictions(
    model: TableModel,
    source: Source,
    keep: tuple[str, ...] = (),
    asked: PredictionRequest | None = None,
    watch: Watch | None = None,
    say: Say | None = None,
) -> Iterator[dict[str, Array]]:
    """Result columns chunk by chunk, as rows arrive; `keep` copies columns of the input. `say` is
    told by whose knowledge a network predicts, where that was not asked for.
    """
    asked = asked or PredictionRequest()
    asked.check(model)
    rows, whose = 0, Whose(model, source, asked.by_node, say)
    with (
        source.open(wanted(model, *keep, target=False, node=asked.by_node), live=True) as reader,
        closing(whose),
    ):
        for chunk in source.on_error.chunks(reader):
            first = asked.steps_ahead + rows
            rows += chunk.n
            chunk = rows_in_order(model, chunk, source, reader.name, learn=False)
            nodes, fine = whose.nodes(chunk, np.ones(chunk.n, bool), reader.name)
            some = chunk if fine.all() else chunk.rows(fine)
            if some.n:
                steps = first + np.flatnonzero(fine)
                yield _copies(some, keep) | predicted_columns(model, some, asked, nodes, steps)
                remember(model, some)
            if watch is not None:
                watch(reader, rows)
            source.on_error.check(reader)


def _copies(chunk: Chunk, keep: tuple[str, ...]) -> dict[str, Array]:
    """These columns of the input."""
    missing = [name for name in keep if name not in chunk.columns]
    if missing:
        there = listed(chunk.names) or "none: LIBSVM rows have no names"
        raise BadInput(f"--keep: no column {missing[0]!r}; there are {there}")
    timed = chunk.times
    return {name: _copied(chunk.columns[name], name in timed) for name in keep}


def _copied(values: Array, timed: bool = False) -> Array:
    """A column of the input as texts, numbers with all their digits, times as ISO 8601."""
    if values.dtype.kind != "f":
        return values
    if timed:
        exact = np.where(np.isnan(values), 0, values * 1e3).astype("datetime64[ms]")
        shown = np.datetime_as_string(exact).tolist()
        both = zip(values.tolist(), shown, strict=True)
        return np.array([None if v != v else s.removesuffix(".000") for v, s in both], object)
    texts = (None if v != v else repr(v).removesuffix(".0") for v in values.tolist())
    return np.fromiter(texts, object, len(values))


def _check(model: TableModel, by_node: bool | None) -> None:
    """Whether the model can do what is asked for."""
    if not hasattr(model.estimator, "predict"):
        raise BadInput(f"a {type(model.estimator).__name__} does not predict")
    if by_node and model.node is None:
        raise BadInput("--by-node is for networks trained with --nodes; this model is not one")


def predicted_columns(
    model: TableModel, chunk: Chunk, asked: PredictionRequest, nodes: Nodes, steps: Array
) -> dict[str, Array]:
    """Columns of results for a chunk: `prediction`, then what was asked for besides.

    steps: (n,) how many rows beyond the last learned one each lies.
    """
    if asked.interval is not None or asked.std:
        return _with_spread(model, chunk, asked, nodes, steps)
    methods = ["predict", *([] if asked.more is None else [MORE[asked.more]])]
    predicted, *others = answers_of(model, chunk, nodes, *methods)
    columns = _named("prediction", predicted)
    if asked.more is None:
        return columns
    values = others[0]
    if values.ndim == 1:
        return {**columns, "score": values}
    kind = "probability" if asked.more == "proba" else "score"
    return columns | {f"{kind} {label}": values[:, i] for i, label in enumerate(model.labels or ())}


def _with_spread(
    model: TableModel, chunk: Chunk, asked: PredictionRequest, nodes: Nodes, steps: Array
) -> dict[str, Array]:
    """Predictions beside the ends of intervals, and standard deviations, as far as asked for."""
    found: dict[str, Array] = {}
    if asked.std:
        ((predicted, found["std"]),) = answers(model, chunk, "predict", return_std=True)
    else:
        (predicted,) = answers_of(model, chunk, nodes, "predict")
    if asked.interval is not None:
        how = {"coverage": asked.interval, **_distances(model, steps)}
        ((lower, upper),) = answers_of(model, chunk, nodes, "predict_interval", **how)
        found = {"lower": lower, "upper": upper} | found
    columns = _named("prediction", predicted)
    for name, values in found.items():
        columns |= _named(name, values)
    return columns


def _distances(model: TableModel, steps: Array) -> dict[str, Any]:
    """What intervals are told of how far rows lie beyond the last learned one."""
    return {"steps_ahead": steps} if model.knows_distances else {}


def _named(name: str, values: Array) -> dict[str, Array]:
    """One column, or one for each output, numbered from 1."""
    if values.ndim == 1:
        return {name: values}
    return {f"{name} {i + 1}": output for i, output in enumerate(values.T)}


def digits(model: TableModel) -> int:
    """Digits of a prediction that mean something; of experts, who add up many, twelve."""
    dtype = getattr(model.estimator, "dtype_", None)
    return 12 if dtype is None else 9 if np.dtype(dtype) == np.float32 else 17


@dataclass
class Evaluation:
    """How a model did on rows. coverage: of its 90 % intervals, None where it has none; course: how
    it went along the rows, and by node; persistence: what repeating earlier values would have done;
    fault: the row where it stopped, if it was to stop there.
    """

    score: Score
    coverage: Coverage | None
    course: Course
    persistence: Persistence
    fault: BadInput | None = None


def evaluate(
    model: TableModel,
    source: Source,
    by_node: bool | None = None,
    watch: Watch | None = None,
    say: Say | None = None,
    steps_ahead: int | None = 1,
) -> Evaluation:
    """Score a model on rows with targets, and its 90 % intervals if any; nothing is learned.

    by_node, say: as for `predictions`; steps_ahead: how many rows beyond the last learned one the
    first row lies; None where rows lie among those that were learned.
    """
    _check(model, by_node)
    coverage = Coverage() if model.has_intervals else None
    task = model.classifying
    made = Evaluation(make_score(task), coverage, Course(task), Persistence(task))
    rows, whose = 0, Whose(model, source, by_node, say)
    try:
        with source.open(wanted(model, target=True, node=by_node)) as reader, closing(whose):
            for chunk in source.on_error.chunks(reader):
                first = None if steps_ahead is None else steps_ahead + rows
                _add(made, model, chunk, whose, source, reader.name, first)
                rows += chunk.n
                if watch is not None:
                    watch(reader, rows)
                source.on_error.check(reader)
    except BadInput as error:
        if source.on_error.fault is None or not made.score.n:
            raise
        made.fault = error
    if not made.score.n:
        raise BadInput(f"{source.path}: no row has a target to compare with")
    return made


def _add(
    made: Evaluation,
    model: TableModel,
    chunk: Chunk,
    whose: Whose,
    source: Source,
    name: str,
    first: int | None,
) -> None:
    chunk = rows_in_order(model, chunk, source, name, learn=False)
    y, keep, _ = usable(model, chunk, source, name, False)
    nodes, fine = whose.nodes(chunk, keep, name)
    y = y[fine[keep]]
    if len(y):
        at = np.flatnonzero(fine)
        steps = np.ones_like(at) if first is None else first + at
        _add_rows(made, model, chunk, y, fine, nodes, steps)
    remember(model, chunk)


def _add_rows(
    made: Evaluation,
    model: TableModel,
    chunk: Chunk,
    y: Array,
    fine: Array,
    nodes: Nodes,
    steps: Array,
) -> None:
    """Rows whose targets are y; fine: (n,), which rows of the chunk these are; steps: how far each
    lies beyond the last learned one.
    """
    given: dict[str, Any] = {}
    every = chunk
    if model.series is not None:
        given = {"keep": fine, "due": True}  # the others are looked back at
    else:
        chunk = chunk if fine.all() else chunk.rows(fine)
    sure = model.classifying and hasattr(model.estimator, "predict_proba")
    methods = ("predict", "predict_proba") if sure else ("predict",)
    predicted, *shares = answers_of(model, chunk, nodes, *methods, **given)
    for share in shares:
        made.course.pairs.add_probabilities(y, share, model.classes_)
    made.score.add(y, predicted)
    made.persistence.add(model, every, y, fine, predicted)
    made.course.add(y, predicted, nodes)
    if made.coverage is not None:
        how = {"coverage": made.coverage.level, **_distances(model, steps), **given}
        (ends,) = answers_of(model, chunk, nodes, "predict_interval", **how)
        made.coverage.add(y, *ends)
        if y.ndim == 1:
            made.course.covered.add(np.asarray((ends[0] <= y) & (y <= ends[1]), float))
