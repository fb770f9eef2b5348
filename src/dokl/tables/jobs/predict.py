"""`dokl predict` and `dokl evaluate`: a saved model on new rows, streaming, or on rows held out.

A network predicts a row by its own node's knowledge, or by all nodes' together. Held out are the
last rows of a file, or some at random: training does not learn them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Self

import numpy as np

from dokl.base.arrays import Array
from dokl.base.errors import BadInput, listed
from dokl.base.progress import stoppable
from dokl.base.random_numbers import uniforms
from dokl.tables.jobs.course import Course, Persistence
from dokl.tables.jobs.sources import (
    OnError,
    Source,
    nodes_or_none,
    rows_in_order,
    usable,
    wanted,
    without_strange_nodes,
)
from dokl.tables.models import TableModel
from dokl.tables.models.rows import answers, nodes_for, remember
from dokl.tables.models.scores import Coverage, Score, make_score
from dokl.tables.readers import Chunk, Reader

# -- by whose knowledge ---------------------------------------------------------------------------
Say = Callable[[str], None]
Nodes = list[str | None] | None
MOST_NAMES = 5


@dataclass
class Whose:
    """What was asked for, and what became of it.

    by_node: None is by each row's own node where rows name it. Then rows of nodes that the network
    does not have, or of none, are predicted together, and counted; where nodes were asked for, they
    are refused as wrong rows are. say: receives what was not given. names: of the first such nodes.
    """

    model: TableModel
    source: Source
    by_node: bool | None
    say: Say | None = None
    strangers: int = 0
    names: dict[str, None] = field(default_factory=dict)
    _own: bool | None = None

    def nodes(self, chunk: Chunk, keep: Array, name: str) -> tuple[Nodes, Array]:
        """The node of each row that is kept, None for those that are predicted together, and which
        are kept, (n,), of those to keep.
        """
        if self._own is None:
            self._own = self._chosen(chunk)
        if not self._own:
            return None, keep
        if self.by_node:
            keep = without_strange_nodes(self.model, chunk, self.source, keep, name)
            return list(nodes_for(self.model, chunk, keep)), keep
        nodes = nodes_or_none(self.model, chunk, keep)
        if None in nodes:
            self._count(nodes, nodes_for(self.model, chunk, keep))
        return nodes, keep

    def _chosen(self, chunk: Chunk) -> bool:
        """Whether each row is predicted by its own node; what was not given is reported."""
        if self.by_node is not None:
            return self.by_node
        model, say = self.model, self.say
        there = model.node is not None and model.node in chunk.columns
        if say is not None and hasattr(model.estimator, "nodes_"):
            if there:
                say(
                    f"each row is predicted by its own node, which column {model.node!r} names; "
                    "--together: by what all nodes have learned"
                )
            else:
                lacking = "the model names no column of nodes, as it was saved in Python"
                if model.node is not None:
                    lacking = f"there is no column {model.node!r} to name each row's node"
                say(f"{lacking}: predicted by what all nodes have learned together (--together)")
        return there

    def _count(self, nodes: list[str | None], named: list[Any]) -> None:
        for known, node in zip(nodes, named, strict=True):
            if known is None:
                self.strangers += 1
                if len(self.names) <= MOST_NAMES:  # one more, which shows that there are more
                    self.names["an empty cell" if node is None else repr(node)] = None

    def close(self) -> None:
        """Report how many rows were predicted together for want of a node, if any."""
        if self.say is None or not self.strangers:
            return
        rows = "row names" if self.strangers == 1 else "rows name"
        more = " and others" if len(self.names) > MOST_NAMES else ""
        names = ", ".join(list(self.names)[:MOST_NAMES]) + more
        self.say(
            f"{self.strangers:,} {rows} no node of the network ({names}): predicted by what all "
            "nodes have learned together; --by-node refuses such rows"
        )


def answers_of(
    model: TableModel, chunk: Chunk, nodes: Nodes, *methods: str, **how: Any
) -> list[Any]:
    """What these methods of the estimator say of the rows of a chunk, each by its node, where that
    is None by all together.
    """
    alone = np.array([node is None for node in nodes or ()], bool)
    if nodes is None or not alone.any():
        return answers(model, chunk, *methods, nodes=nodes, **how)
    known = [node for node in nodes if node is not None]
    found = [answers(model, chunk.rows(alone), *methods, **how)]
    if known:
        found.append(answers(model, chunk.rows(~alone), *methods, nodes=known, **how))
    order = np.argsort(np.concatenate([np.flatnonzero(alone), np.flatnonzero(~alone)]))
    axes = [1 if name == "predict_interval" else 0 for name in methods]  # of rows
    return [
        np.concatenate(parts, axis).take(order, axis)
        for axis, *parts in zip(axes, *found, strict=True)
    ]


# -- prediction and evaluation --------------------------------------------------------------------
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
        """Reject what this model cannot predict."""
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
                "--std needs the matrices that --predict-only left out of this file; --interval "
                "works, with one width for all rows"
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
    informed by whose knowledge a network predicts, if that was not given.
    """
    asked = asked or PredictionRequest()
    asked.check(model)
    rows, row_nodes = 0, Whose(model, source, asked.by_node, say)
    with (
        source.open(wanted(model, *keep, target=False, node=asked.by_node), live=True) as reader,
        closing(row_nodes),
    ):
        for chunk in source.on_error.chunks(reader):
            first = asked.steps_ahead + rows
            rows += chunk.n
            chunk = rows_in_order(model, chunk, source, reader.name, learn=False)
            nodes, fine = row_nodes.nodes(chunk, np.ones(chunk.n, bool), reader.name)
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
    return {name: _copy_column(chunk.columns[name], name in timed) for name in keep}


def _copy_column(values: Array, timed: bool = False) -> Array:
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
    predicted, *others = answers_of(model, chunk, nodes, *methods, **_distances(model, steps))
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
        how = {"return_std": True, **_distances(model, steps)}
        ((predicted, found["std"]),) = answers(model, chunk, "predict", **how)
    else:
        (predicted,) = answers_of(model, chunk, nodes, "predict", **_distances(model, steps))
    if asked.interval is not None:
        how = {"coverage": asked.interval, **_distances(model, steps)}
        ((lower, upper),) = answers_of(model, chunk, nodes, "predict_interval", **how)
        found = {"lower": lower, "upper": upper} | found
    columns = _named("prediction", predicted)
    for name, values in found.items():
        columns |= _named(name, values)
    return columns


def _distances(model: TableModel, steps: Array) -> dict[str, Any]:
    """Arguments of predictions: how far rows lie beyond the last learned one."""
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
    rows, row_nodes = 0, Whose(model, source, by_node, say)
    try:
        with source.open(wanted(model, target=True, node=by_node)) as reader, closing(row_nodes):
            for chunk in source.on_error.chunks(reader):
                first = None if steps_ahead is None else steps_ahead + rows
                _add(made, model, chunk, row_nodes, source, reader.name, first)
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
    row_nodes: Whose,
    source: Source,
    name: str,
    first: int | None,
) -> None:
    chunk = rows_in_order(model, chunk, source, name, learn=False)
    y, keep, _ = usable(model, chunk, source, name, False)
    nodes, fine = row_nodes.nodes(chunk, keep, name)
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
    ahead = _distances(model, steps)
    sure = model.classifying and hasattr(model.estimator, "predict_proba")
    methods = ("predict", "predict_proba") if sure else ("predict",)
    predicted, *shares = answers_of(model, chunk, nodes, *methods, **given, **ahead)
    for share in shares:
        made.course.pairs.add_probabilities(y, share, model.classes_)
    made.score.add(y, predicted)
    made.persistence.add(model, every, y, fine, predicted)
    made.course.add(y, predicted, nodes)
    if made.coverage is not None:
        how = {"coverage": made.coverage.level, **ahead, **given}
        (ends,) = answers_of(model, chunk, nodes, "predict_interval", **how)
        made.coverage.add(y, *ends)
        if y.ndim == 1:
            made.course.covered.add(np.asarray((ends[0] <= y) & (y <= ends[1]), float))


# -- rows that are not learned --------------------------------------------------------------------
_WRITTEN = re.compile(r"(last|random):\s*(\d+(?:\.\d+)?)\s*%")
_BLOCK = 4096


@dataclass(frozen=True)
class HoldOut:
    """Which share of a file's rows is held out: the "last" ones, or "random" ones.

    Random ones are drawn by the number of their line: the same every time.

    >>> HoldOut.of("last:20%").words
    'the last 20 % of the rows'
    """

    kind: str
    share: float

    @classmethod
    def of(cls, text: str) -> Self:
        """Read "last:20%" or "random:20%"."""
        found = _WRITTEN.fullmatch(text.strip())
        share = float(found[2]) / 100 if found else 0.0
        if found is None or not 0 < share < 1:
            raise BadInput(
                f"{text!r} does not select rows to hold out: write last:20% or random:20%"
            )
        return cls(found[1], share)

    @property
    def in_order(self) -> bool:
        """Whether the rows follow each other without gaps."""
        return self.kind == "last"

    @property
    def words(self) -> str:
        """Which rows these are."""
        percent = f"{100 * self.share:g} %"
        if self.kind == "last":
            return f"the last {percent} of the rows"
        return f"{percent} of the rows, drawn at random"

    def split(self, source: Source, watch: Watch | None = None) -> tuple[Source, Source]:
        """The rows to learn, and those that are held out. watch: called while rows are counted."""
        if self.kind == "random":
            held = self._draw_held_out
        else:
            first = _first_line(source, self.share, watch)
            held = lambda lines: lines >= first  # noqa: E731
        options = source.options
        return (
            replace(source, options=replace(options, take=lambda lines: ~held(lines))),
            replace(source, options=replace(options, take=held)),
        )

    def _draw_held_out(self, lines: Array) -> Array:
        """Whether each of these lines is held out: (n,)."""
        found = np.zeros(len(lines), bool)
        blocks = lines // _BLOCK
        for block in np.unique(blocks).tolist():
            here = blocks == block
            found[here] = _chances(block)[lines[here] % _BLOCK] < self.share
        return found


@lru_cache(maxsize=8)
def _chances(block: int) -> Array:
    return uniforms(0, ("held out", block), _BLOCK)


def check_file(source: Source) -> None:
    """Refuse to hold out rows of what can be read only once."""
    if source.path == "-":
        raise BadInput("--test reads DATA more than once, and stdin can be read only once: save it")


def _first_line(source: Source, share: float, watch: Watch | None) -> int:
    """The line of the first of the last rows."""
    count, seen = 0, list[Sequence[int]]()
    options = replace(source.options, columns=(), drop=(), text=(), numeric=(), compiled=False)
    passing = OnError(None if source.on_error.mode is None else "skip")
    with replace(source, options=options, on_error=passing).open() as reader:
        for chunk in reader:
            first, last = chunk.lines[0], chunk.lines[-1]
            whole = last - first + 1 == chunk.n
            seen.append(range(first, last + 1) if whole else [*chunk.lines])
            count += chunk.n
            if watch is not None:
                watch(reader, count)
    held = round(share * count)
    if not 0 < held < count:
        raise BadInput(f"{source.path}: {100 * share:g} % of its {count:,} rows are {held:,}")
    left = count - held
    for lines in seen:
        if left < len(lines):
            return int(lines[left])
        left -= len(lines)
    raise AssertionError("more rows are held out than there are")


def score_held_out(
    model: TableModel, source: Source, which: HoldOut, watch: Watch | None = None
) -> Evaluation:
    """Score a model that has just learned the other rows; it stays as it is.

    A label that only held-out rows have is an error like any other wrong row. Ctrl-C and SIGTERM
    raise `Stopped`.
    """
    prepared = None if model.preprocessor is None else model.preprocessor.copied()
    source.on_error.again = True  # invalid rows were reported while it learned
    with stoppable():
        still, ahead = replace(model, preprocessor=prepared), 1 if which.in_order else None
        found = evaluate(still, source, watch=watch, steps_ahead=ahead)
    found.persistence.on &= which.in_order
    return found
