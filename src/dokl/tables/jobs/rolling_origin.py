"""A backtest: what would have been predicted from several origins in the past.

The rows are in the order of time. Before each origin everything is learned that was known then. The
model predicts the rows of the fold that follows twice: frozen, as it was at the origin, and
following, where it learns every target once it is known. Beside it stand persistence, ridge and
LightGBM, which get the same inputs (lags, circles of time, texts as 0 and 1), are fitted at each
origin and frozen. Trees cannot see that midnight follows 23 o'clock, but cut whole hours well:
LightGBM also gets the hour, the day of the week and the day of the year as numbers.

Everything here looks backwards only: lags, means that stand for missing numbers, and persistence
know what was there when a row was predicted. What is chosen by looking at rows (circles of time,
levels of texts, lags) is chosen by the rows before the first origin.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import Any

import numpy as np

from dokl.base.arrays import Array
from dokl.base.errors import BadInput, UnknownName
from dokl.learning.columns import LagPlan, RecentRows, Span, is_text
from dokl.tables.jobs.course import earlier_values
from dokl.tables.jobs.sources import Source, rows_in_order
from dokl.tables.jobs.start import Training, guesses, start
from dokl.tables.models import TableModel
from dokl.tables.models.scores import LEVEL
from dokl.tables.models.series import LagRequest, Series, planned_series, times_with_dates
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
    called after every chunk with the number of rows read.
    """
    text = source.options.text if by is None else (*source.options.text, by)
    as_text = replace(source, options=replace(source.options, text=text))
    chunks: list[Chunk] = []
    with as_text.open(target=target) as reader:
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
    return Chunk.joined(chunks)


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
    at, due = _join(planned, chunk)
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


def _join(series: Series, chunk: Chunk) -> tuple[Array, Array]:
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


# -- what else would predict the same rows --------------------------------------------------------
DAY = 86_400.0
PEERS = ("ridge", "LightGBM")
Peer = Callable[[Pairs, Array, Array], Array]  # (pairs, those to learn, those to predict)


def peers() -> tuple[dict[str, Peer], dict[str, str]]:
    """Those that are installed, {name: what fits and predicts}; and why others are not there."""
    if find_spec("lightgbm") is None:
        return {"ridge": ridge}, {"LightGBM": "not installed (pip install lightgbm)"}
    return {"ridge": ridge, "LightGBM": lightgbm}, {}


def ridge(pairs: Pairs, learn: Array, predict: Array) -> Array:
    """Linear least squares with a penalty chosen by cross-validation; gaps at the mean."""
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    fill = SimpleImputer(keep_empty_features=True)
    model = make_pipeline(fill, StandardScaler(), RidgeCV(np.logspace(-3, 4, 15)))
    model.fit(pairs.gaps[pairs.at[learn]], pairs.y[learn])
    return np.asarray(model.predict(pairs.gaps[pairs.at[predict]]), np.float64)


def lightgbm(pairs: Pairs, learn: Array, predict: Array) -> Array:
    """Boosted trees at their defaults, with the calendar as numbers."""
    from lightgbm import LGBMRegressor

    X = pairs.gaps if pairs.times is None else np.hstack([pairs.gaps, calendar(pairs.times)])
    model: Any = LGBMRegressor(random_state=0, verbose=-1)
    model.fit(X[pairs.at[learn]], pairs.y[learn])
    with warnings.catch_warnings():  # it gives arrays names and then misses them
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        return np.asarray(model.predict(X[pairs.at[predict]]), np.float64)


def calendar(times: Array) -> Array:
    """The hour, the day of the week and the day of the year of times in seconds: (n, 3).

    >>> calendar(np.array([0.0, 86400.0 * 40 + 7200]))
    array([[ 0.,  3.,  0.],
           [ 2.,  1., 40.]])
    """
    days = (np.floor(times / DAY)).astype("datetime64[D]")
    since = (days - days.astype("datetime64[Y]")).astype(float)
    weekday = (days.astype(int) + 3) % 7  # 1970 began on a Thursday
    return np.column_stack([(times % DAY) / 3600.0, weekday, since])


# -- the backtest ---------------------------------------------------------------------------------
FOLLOWING, FROZEN = "dokl following", "dokl frozen"
LEVELS = (0.5, 0.8, LEVEL)  # of the intervals in the picture
STEP = 512  # pairs that are learned at a time
PIECE = 32  # rows that are predicted at a time, ahead of which targets are learned
Tell = Callable[[int, str], None]  # pairs more, and what is done


def _no_progress(pairs: int, doing: str) -> None:
    pass


@dataclass(frozen=True, eq=False)
class Forecasts:
    """What was predicted, for one horizon; m rows of all folds that are done, in their order.

    fold: (m,), from 1; at: (m,), the row that predicts; steps: (m,), rows from the origin to it;
    y: (m,) targets; predicted: {name: (m,)}; ends: {name: (lower, upper), (m,) each} of 90 %
    intervals.
    fan: of the last fold, the frozen model's intervals, {level: (lower, upper)}. All are of rows
    for which everybody has a prediction.
    """

    pairs: Pairs
    fold: Array
    at: Array
    due: Array
    steps: Array
    y: Array
    predicted: dict[str, Array]
    ends: dict[str, tuple[Array, Array]]
    fan: dict[float, tuple[Array, Array]]

    @property
    def horizon(self) -> Span:
        """How far ahead."""
        return self.pairs.horizon

    @property
    def folds(self) -> list[int]:
        """Those that have rows."""
        return [int(k) for k in np.unique(self.fold)]

    def times(self, rows: Array) -> Array | None:
        """The times of these rows of the table; None where there are none."""
        if self.pairs.times is None:
            return None
        return np.asarray(np.round(self.pairs.times[rows] * 1e3)).astype("datetime64[ms]")


@dataclass
class Backtest:
    """Forecasts of each horizon. notices: what one may want to know; skipped: peers that are not
    there, and why; interrupted: folds after it are missing.
    """

    target: str
    forecasts: list[Forecasts] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    interrupted: bool = False


def run_backtest(
    table: Chunk,
    training: Training,
    horizons: Sequence[Any],
    origins: Origins,
    source: Source,
    on_progress: Tell = _no_progress,
    say: Callable[[str], None] = lambda line: None,
) -> Backtest:
    """Backtest on the rows of a table, for each horizon. Ctrl-C ends it: folds that are done count,
    and without one it is a KeyboardInterrupt.

    on_progress: called as pairs are learned; say: receives the guesses, a line at a time.
    """
    made, others = Backtest(str(training.target)), peers()
    made.skipped = others[1]
    table = in_time_order(table, time_column(table, training.lags), made.notices)
    if origins.rows is not None:
        table = table.rows(slice(max(0, table.n - origins.rows), None))
    try:
        for k, horizon in enumerate(horizons):
            asked = replace(training, lags=replace(training.lags, horizon=horizon))
            pairs = make_pairs(asked, table, source, origins)
            for line in pairs.guesses if not k else ():
                say(line)
            _Run(pairs, others[0], on_progress).run(made.forecasts)
    except KeyboardInterrupt:
        if not made.forecasts:
            raise
        made.interrupted = True
    return made


class _Run:
    """One horizon under way."""

    def __init__(self, pairs: Pairs, others: dict[str, Any], on_progress: Tell) -> None:
        self.pairs, self.others, self.on_progress = pairs, others, on_progress
        self.model = pairs.model.estimator
        self.learned = 0  # pairs, in their order
        self.rows: list[Array] = []  # pairs of each fold that is done
        self.predicted: list[dict[str, Array]] = []
        self.ends: list[dict[str, tuple[Array, Array]]] = []
        self.fan: dict[float, tuple[Array, Array]] = {}

    def run(self, into: list[Forecasts]) -> None:
        """All folds; what is done when somebody interrupts is added as well."""
        origins = self.pairs.origins
        try:
            for k in range(len(origins) - 1):
                self._fold(k, origins[k], origins[k + 1])
        finally:
            if self.rows:
                into.append(self._forecasts())

    def _fold(self, k: int, first: int, last: int) -> None:
        pairs = self.pairs
        self._learn(first, f"fold {k + 1}: learning")
        rows, known = pairs.between(first, last), pairs.known(first)
        if not len(rows) or not len(known):
            raise BadInput(
                f"fold {k + 1} has {len(rows)} rows with a target, and {len(known)} targets are "
                "known at its origin: take fewer folds, or a shorter horizon",
                options=["--folds", "--horizon"],
            )
        X = pairs.X[pairs.at[rows]]
        ahead = {"steps_ahead": pairs.at[rows] + 1 - first}
        predicted, ends = {FROZEN: self.model.predict(X, **ahead)}, dict[str, tuple[Array, Array]]()
        fan = {c: self.model.predict_interval(X, coverage=c, **ahead) for c in LEVELS}
        ends[FROZEN] = fan[LEVEL]
        for name, peer in self.others.items():
            self.on_progress(0, f"fold {k + 1}: {name}")
            predicted[name] = peer(pairs, known, rows)
        predicted |= {name: values[rows] for name, values in pairs.earlier.items()}
        follow = self._follow_now if not pairs.horizon else self._follow
        predicted[FOLLOWING], ends[FOLLOWING] = follow(
            rows, first, last, f"fold {k + 1}: following"
        )
        self.rows.append(rows)
        self.predicted.append(predicted)
        self.ends.append(ends)
        self.fan = fan

    def _learn(self, before: int, doing: str) -> None:
        """The pairs whose target comes before this row."""
        end = int(np.searchsorted(self.pairs.due, before))
        while self.learned < end:
            stop = min(end, self.learned + STEP)
            some = slice(self.learned, stop)
            self.model.partial_fit(self.pairs.X[self.pairs.at[some]], self.pairs.y[some])
            self.on_progress(stop - self.learned, doing)
            self.learned = stop

    def _follow_now(
        self, rows: Array, first: int, last: int, doing: str
    ) -> tuple[Array, tuple[Array, Array]]:
        """Targets that are known at once: each row is predicted, then learned."""
        parts = []
        for begin in range(0, len(rows), STEP):
            some = rows[begin : begin + STEP]
            X, y = self.pairs.X[self.pairs.at[some]], self.pairs.y[some]
            parts.append(self.model.prequential(X, y, return_interval=LEVEL))
            self.on_progress(len(some), doing)
        self.learned += len(rows)
        predicted, lower, upper = (np.concatenate(part) for part in zip(*parts, strict=True))
        return predicted, (lower, upper)

    def _follow(
        self, rows: Array, first: int, last: int, doing: str
    ) -> tuple[Array, tuple[Array, Array]]:
        """Targets that come later: pieces of rows are predicted, then targets learned that came
        with them.
        """
        pairs, m = self.pairs, len(rows)
        predicted, lower, upper = np.empty(m), np.empty(m), np.empty(m)
        at = pairs.at[rows]
        for row in range(first, last, PIECE):
            here = np.flatnonzero((at >= row) & (at < row + PIECE))
            if len(here):
                X = pairs.X[at[here]]
                predicted[here] = self.model.predict(X)
                lower[here], upper[here] = self.model.predict_interval(X, coverage=LEVEL)
            self._learn(min(row + PIECE, last), doing)
        return predicted, (lower, upper)

    def _forecasts(self) -> Forecasts:
        """Of the rows for which everybody has a prediction."""
        pairs, n = self.pairs, [len(rows) for rows in self.rows]
        rows, fold = np.concatenate(self.rows), np.repeat(np.arange(len(n)) + 1, n)
        predicted = {
            name: np.concatenate([f[name] for f in self.predicted])
            for name in _order(self.predicted[0])
        }
        every = np.isfinite(np.column_stack(list(predicted.values()))).all(axis=1)
        ends = {
            name: tuple(np.concatenate([f[name][i] for f in self.ends])[every] for i in (0, 1))
            for name in (FOLLOWING, FROZEN)
        }
        last = every[len(rows) - n[-1] :]
        origin = np.asarray(pairs.origins)[fold - 1]
        return Forecasts(
            pairs,
            fold[every],
            pairs.at[rows][every],
            pairs.due[rows][every],
            (pairs.at[rows] - origin)[every],
            pairs.y[rows][every],
            {name: values[every] for name, values in predicted.items()},
            ends,
            {level: (lower[last], upper[last]) for level, (lower, upper) in self.fan.items()},
        )


def _order(predicted: dict[str, Array]) -> list[str]:
    """The model first."""
    first = [FOLLOWING, FROZEN]
    return [*first, *(name for name in predicted if name not in first)]
