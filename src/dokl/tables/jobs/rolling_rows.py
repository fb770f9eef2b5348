"""The rows of a backtest: in the order of time, each with its inputs and its target.

Everything here looks backwards only: lags, means that stand for missing numbers, and persistence
know what was there when a row was predicted. What is chosen by looking at rows (circles of time,
levels of texts, lags) is chosen by the rows before the first origin.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from dokl.base.arrays import Array
from dokl.base.errors import BadInput, UnknownName
from dokl.learning.columns import LagPlan, RecentRows, Span, is_text
from dokl.tables.jobs.lagged import LagRequest, planned_series, times_with_dates
from dokl.tables.jobs.persistence import earlier_values
from dokl.tables.jobs.sources import Source
from dokl.tables.jobs.start import Training, guesses, start
from dokl.tables.jobs.tables import rows_in_order
from dokl.tables.models import TableModel
from dokl.tables.models.series import Series
from dokl.tables.readers import Chunk, Reader

FEWEST_LEARNED, FEWEST_SCORED = 60, 10  # rows before the first origin, and in each fold
MOST_UNKNOWN = 0.1  # of rows for which an earlier value may be missing


@dataclass(frozen=True)
class Origins:
    """Where the rows are cut. folds: how many; held_out: the share of the rows in them, at the end;
    rows: only the newest ones, None for all.
    """

    folds: int = 4
    held_out: float = 0.4
    rows: int | None = None

    def __post_init__(self) -> None:
        if self.folds < 1:
            raise BadInput(f"a backtest needs at least one fold, got {self.folds}")
        if not 0.0 < self.held_out < 1.0:
            raise BadInput(
                f"the share of rows held out must lie between 0 and 1, got {self.held_out:g}"
            )

    def cut(self, n: int, times: Array | None) -> list[int]:
        """The first row of each fold, and n; rows of one time stay together."""
        first = n * (1.0 - self.held_out)
        cuts = [round(first + (n - first) * k / self.folds) for k in range(self.folds)]
        if times is not None:
            cuts = [int(np.searchsorted(times, times[min(cut, n - 1)])) for cut in cuts]
        return [*cuts, n]


@dataclass(frozen=True, eq=False)
class Pairs:
    """Inputs, and the targets that they are to predict.

    X: (n, d), inputs of every row as the model gets them; gaps: the same with NaN for missing
    numbers. at: (m,), the row when something is predicted; due: (m,), the row that brings its
    target, not before `at`; y: (m,). earlier: persistence, {name: (m,)}. times: (n,) seconds, None
    where there are none; groups: (n,), None where there are none. origins: first row of each fold,
    and n.
    """

    model: TableModel
    X: Array
    gaps: Array
    at: Array
    due: Array
    y: Array
    earlier: dict[str, Array]
    times: Array | None
    groups: Array | None
    origins: list[int]
    horizon: Span
    guesses: tuple[str, ...] = ()

    def known(self, row: int) -> Array:
        """The pairs whose target is there before this row, in the order in which they came."""
        return np.flatnonzero(self.due < row)

    def between(self, first: int, last: int) -> Array:
        """The pairs that are predicted from row `first` up to `last`, which is not among them."""
        return np.flatnonzero((self.at >= first) & (self.at < last))


# -- reading -------------------------------------------------------------------------------------
def read_table(
    source: Source,
    target: str | None,
    by: str | None,
    watch: Callable[[Reader, int], None] = lambda reader, rows: None,
) -> Chunk:
    """All rows of a file at once; those before a row that is wrong, if it is to stop there. watch:
    told after every chunk how many rows were read.
    """
    text = source.options.text if by is None else (*source.options.text, by)
    told = replace(source, options=replace(source.options, text=text))
    chunks: list[Chunk] = []
    with told.open(target=target) as reader:
        try:
            for chunk in source.on_error.chunks(reader):
                chunks.append(chunk)
                watch(reader, sum(each.n for each in chunks))
        except BadInput:
            if source.on_error.fault is None or not chunks:
                raise
    first = chunks[0]
    if first.X is not None:
        raise BadInput(f"{source.path}: a LIBSVM file has no named columns, and no times")
    columns = {name: np.concatenate([c.columns[name] for c in chunks]) for name in first.columns}
    lines = [line for chunk in chunks for line in chunk.lines]
    return replace(first, columns=columns, lines=lines)


def in_time_order(chunk: Chunk, time: str | None, notices: list[str]) -> Chunk:
    """The rows sorted by time, those of one time as they stand; without times as they come."""
    if time is None:
        return chunk
    times = np.asarray(chunk.columns[time], np.float64)
    lost = int(np.isnan(times).sum())
    order = np.argsort(times, kind="stable")[: chunk.n - lost]
    if lost:
        notices.append(f"{lost:,} rows without a time in column {time!r} were left out")
    if np.array_equal(order, np.arange(chunk.n)):
        return chunk
    if (np.diff(order) < 0).any():
        notices.append(f"the rows were sorted by column {time!r}")
    columns = {name: values[order] for name, values in chunk.columns.items()}
    return replace(chunk, columns=columns, lines=[chunk.lines[i] for i in order.tolist()])


def time_column(chunk: Chunk, asked: LagRequest) -> str | None:
    """The column that orders the rows: the one that was named, else the first of dates."""
    if asked.time is None:
        return next(iter(times_with_dates(chunk)), None)
    if asked.time not in chunk.times:
        there = asked.time in chunk.columns
        raise BadInput(
            f"column {asked.time!r} holds no times" if there else f"no column {asked.time!r}"
        )
    return asked.time


# -- inputs and targets --------------------------------------------------------------------------
def make_pairs(training: Training, chunk: Chunk, source: Source, origins: Origins) -> Pairs:
    """Inputs and targets of rows in the order of time. Nothing is learned yet."""
    target, asked = _target(training, chunk), training.lags
    plan = LagPlan(by=asked.by, time=time_column(chunk, asked))
    cuts = origins.cut(chunk.n, _times(chunk, plan))
    first = chunk.rows(slice(0, cuts[0]))
    if first.n < FEWEST_LEARNED or min(np.diff(cuts)) < FEWEST_SCORED:
        raise BadInput(
            f"{source.path}: {chunk.n:,} rows are too few: {first.n:,} come before the first "
            f"origin ({FEWEST_LEARNED} are needed), and the shortest fold has {min(np.diff(cuts))} "
            f"({FEWEST_SCORED} are needed). Take fewer folds, or hold out another share",
            options=["--folds", "--held-out"],
        )
    model = start(training if asked else replace(training, lags=LagRequest()), first)
    if model.series is None:  # whose rows are in the order of time all the same
        planned = planned_series(asked, first, target)
        ordered = replace(model, series=planned)
        chunk = rows_in_order(ordered, chunk, source, source.path)
    else:
        planned = model.series
        chunk = rows_in_order(model, chunk, source, source.path)
    cuts = origins.cut(chunk.n, _times(chunk, plan))  # some rows may have been passed over
    made = planned.lags.extend(chunk.columns)[0] if model.series is not None else {}
    assert model.preprocessor is not None
    columns = {**chunk.columns, **made}
    X = model.preprocessor.learn_transform(columns)
    at, due = _joined(planned, chunk)
    y = np.asarray(chunk.columns[target], np.float64)[due]
    there = np.isfinite(y)
    at, due, y = at[there], due[there], y[there]
    held_out = int(np.searchsorted(due, cuts[0]))
    earlier = _persistence(planned, chunk, target, due, held_out)
    return Pairs(
        model,
        X,
        model.preprocessor.with_gaps(X, columns),
        at,
        due,
        y,
        earlier,
        _times(chunk, plan),
        None if plan.by is None else chunk.columns[plan.by].astype(str),
        cuts,
        planned.horizon,
        guesses(training, first, model),
    )


def _target(training: Training, chunk: Chunk) -> str:
    target = training.target
    if target is None or target not in chunk.columns:
        raise UnknownName("target column", str(target), chunk.names)
    if is_text(chunk.columns[target]) or target in chunk.times:
        raise BadInput(f"the target {target!r} holds no numbers, and a backtest is of numbers")
    return target


def _times(chunk: Chunk, plan: LagPlan) -> Array | None:
    return None if plan.time is None else np.asarray(chunk.columns[plan.time], np.float64)


def _joined(series: Series, chunk: Chunk) -> tuple[Array, Array]:
    """Rows that predict, and those that bring their target: (m,) each, by the latter."""
    rows = np.arange(chunk.n)
    if not series.horizon:
        return rows, rows
    number, _ = series.join_waiting(chunk.columns, rows[:, None].astype(float))
    due = np.flatnonzero(~np.isnan(number[:, 0]))
    return number[due, 0].astype(int), due


def _persistence(
    series: Series, chunk: Chunk, target: str, due: Array, held_out: int
) -> dict[str, Array]:
    """Earlier values that are known when the target of `due` is predicted, {name: (m,)}. Those that
    are often missing in the rows held out are left out.
    """
    plan = series.plan
    spans = earlier_values(plan, series.horizon, chunk)
    by = None if plan.by is None else [str(name) for name in chunk.columns[plan.by].tolist()]
    times = None if plan.time is None else np.asarray(chunk.columns[plan.time], np.float64)
    values = _last_known(np.asarray(chunk.columns[target], np.float64), by)
    groups, _ = RecentRows.none(spans.values(), plan.most_groups).join(by, times, values[:, None])
    found = {}
    for name, span in spans.items():
        before = np.full(chunk.n, np.nan)
        for group in groups:
            before[group.rows] = group.take(group.find(span))[:, 0]
        if np.isnan(before[due[held_out:]]).mean() <= MOST_UNKNOWN:
            found[name] = before[due]
    return found


def _last_known(values: Array, by: list[str] | None) -> Array:
    """(n,), the newest value of the group that is not missing."""
    names = np.zeros(len(values), int) if by is None else np.unique(by, return_inverse=True)[1]
    order = np.argsort(names, kind="stable")
    known = np.where(np.isnan(values[order]), -1, np.arange(len(values)))
    starts = np.flatnonzero(np.diff(names[order], prepend=-1))
    known[starts] = np.where(known[starts] < 0, starts, known[starts])  # of nobody else
    out = np.empty_like(values)
    out[order] = values[order][np.maximum.accumulate(known)]
    return out
