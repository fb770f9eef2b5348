"""Lags and horizons of a `TableModel`: asked for, proposed by the first rows, and remembered.

With a horizon the target of a row is the value that much later. A row is predicted as soon as it is
there; its inputs wait, and are learned when the row with their target comes. What was predicted for
them waits beside them: scores are of predictions made when the target was not known yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from dokl.base.arrays import Array
from dokl.base.errors import BadInput, counted, listed
from dokl.learning.columns import LagColumns, LagPlan, RecentRows, Span, is_text
from dokl.tables.readers import Chunk

if TYPE_CHECKING:
    from dokl.tables.models.table import TableModel

MORE = 3  # beside the inputs: what was predicted, and both ends of its interval


@dataclass(frozen=True)
class Series:
    """Lags of columns, and the horizon. It is never changed: `after` makes another.

    waiting: inputs (d,) of the newest rows, and what was predicted for them.
    """

    lags: LagColumns
    horizon: Span = field(default_factory=Span)
    waiting: RecentRows = field(default_factory=RecentRows)

    def __post_init__(self) -> None:
        if self.horizon.timed and self.plan.time is None:
            raise BadInput(f"the horizon {self.horizon} is a time, and there is no column of times")
        if not (self.waiting.rows or self.waiting.seconds):
            waiting = RecentRows.none([self.horizon], self.plan.most_groups)
            object.__setattr__(self, "waiting", waiting)

    @property
    def plan(self) -> LagPlan:
        """Which columns are made."""
        return self.lags.plan

    def empty(self) -> Series:
        """The same with no row remembered."""
        return Series(LagColumns(self.plan), self.horizon)

    def before(self, columns: Mapping[str, Array]) -> Series:
        """Itself; or with no row remembered, if the first row is not later than those before."""
        first = {name: values[:1] for name, values in columns.items()}
        return self.empty() if self.plan.time and self.lags.strange(first) else self

    # -- inputs that wait for their target ---------------------------------------------------------
    def join_waiting(self, columns: Mapping[str, Array], values: Array) -> tuple[Array, RecentRows]:
        """(n, p), the values that waited for each of these rows, NaN where none did; and after."""
        plan = self.plan
        times = None if plan.time is None else np.asarray(columns[plan.time], np.float64)
        by = None if plan.by is None else [str(name) for name in columns[plan.by].tolist()]
        groups, after = self.waiting.join(by, times, values)
        found = np.full(values.shape, np.nan)
        for group in groups:
            found[group.rows] = group.take(group.find(self.horizon))
        return found, after

    def learnable(self, columns: Mapping[str, Array], n: int) -> Array:
        """(n,), the rows whose inputs, that much earlier, are there."""
        if not self.horizon:
            return np.ones(n, bool)
        every = self.waiting.groups.values()
        width = next((past.values.shape[1] for past in every), 1)
        found, _ = self.join_waiting(columns, np.zeros((n, width)))
        return np.asarray(~np.isnan(found[:, 0]))

    def due(
        self, columns: Mapping[str, Array], X: Array, predicted: Array
    ) -> tuple[Array, Array, RecentRows]:
        """The inputs whose target comes with these rows, (n, d), what was predicted for them,
        (n, MORE), and what waits after. X: (n, d), predicted: (n, MORE): of these rows.
        """
        if not self.horizon:
            return X, predicted, self.waiting
        found, after = self.join_waiting(columns, np.hstack([X, predicted]))
        return found[:, : X.shape[1]], found[:, X.shape[1] :], after

    # -- files -------------------------------------------------------------------------------------
    def spec(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """All there is to save: a part for JSON, and arrays."""
        meta, arrays = self.lags.spec()
        meta |= {"horizon": str(self.horizon), "waiting": list(self.waiting.groups)}
        kept = {f"lags.{name}": array for name, array in arrays.items()}
        return meta, kept | {f"waiting.{k}": array for k, array in self.waiting.arrays().items()}

    @classmethod
    def from_spec(cls, meta: Mapping[str, Any], arrays: Mapping[str, Array], d: int) -> Self:
        """The same again; d: inputs of the model."""
        lags = LagColumns.from_spec(meta, _part("lags.", arrays))
        made = cls(lags, Span.of(str(meta["horizon"]), least=0))
        names = [str(name) for name in meta["waiting"]]
        waiting = made.waiting.with_arrays(names, _part("waiting.", arrays))
        if any(past.values.shape[1] != d + MORE for past in waiting.groups.values()):
            raise BadInput("the rows that wait for their target have other inputs than the model")
        return replace(made, waiting=waiting)


def _part(prefix: str, arrays: Mapping[str, Array]) -> dict[str, Array]:
    return {k.removeprefix(prefix): a for k, a in arrays.items() if k.startswith(prefix)}


def raw_columns(model: TableModel) -> tuple[str, ...]:
    """The columns that rows must have: inputs that are not made here, and what lags look at."""
    assert model.preprocessor is not None
    if model.series is None:
        return model.preprocessor.columns
    plan = model.series.plan
    own = [name for name in model.preprocessor.columns if name not in plan.names]
    more = [name for name in plan.needed if name not in plan.hidden]
    return tuple(dict.fromkeys((*own, *more)))


def optional_columns(model: TableModel) -> tuple[str, ...]:
    """Columns that are looked at where they are there: a target that is remembered."""
    return () if model.series is None else model.series.plan.hidden


def with_target(model: TableModel, chunk: Chunk, y: Array, keep: Array) -> Chunk:
    """The chunk with its targets among the columns, where they came apart from the rows."""
    series, target = model.series, model.target
    if series is None or target is None or target in chunk.columns or is_text(y):
        return chunk
    cells = np.full(chunk.n, np.nan)
    cells[keep] = y
    return replace(chunk, columns={**chunk.columns, target: cells})


# -- what was asked for ---------------------------------------------------------------------------
DAY = 86_400.0
# Seconds of a season, and between which typical steps of rows it is looked for.
SEASONS = {
    "day": (DAY, 0.0, DAY / 2),
    "week": (7 * DAY, 60.0, DAY),
    "year": (365.25 * DAY, DAY, 100 * DAY),
}
MOST_CHOSEN, MOST_ROWS = 8, 5000  # columns that are proposed, rows that are looked at
MOST_INPUTS = 10
LEAST_GAIN = 0.005  # of the squared error that is left


@dataclass(frozen=True)
class LagRequest:
    """What was asked for. lags, rolling, differences: (column, how far back); by, time: columns;
    horizon: how far ahead; auto: whether the first rows propose lags.
    """

    lags: tuple[tuple[str, Any], ...] = ()
    rolling: tuple[tuple[str, Any], ...] = ()
    differences: tuple[tuple[str, Any], ...] = ()
    by: str | None = None
    time: str | None = None
    horizon: Any = 0
    auto: bool = False

    def __bool__(self) -> bool:
        made = self.lags or self.rolling or self.differences
        return bool(made or self.auto or Span.of(self.horizon, least=0))


def planned_series(asked: LagRequest, chunk: Chunk, target: str) -> Series:
    """Lags and horizon, by the first rows; nothing is remembered yet."""
    horizon = Span.of(asked.horizon, least=0)
    time = asked.time or next(iter(times_with_dates(chunk)), None)
    for name in (asked.by, asked.time):
        if name is not None and name not in chunk.columns:
            raise BadInput(f"no column {name!r} for lags; there are {listed(chunk.names)}")
    if asked.time is not None and asked.time not in chunk.times:
        raise BadInput(f"column {asked.time!r} holds no times")
    how: dict[str, Any] = {"by": asked.by, "time": time, "hidden": () if horizon else (target,)}
    plan = LagPlan.of(asked.lags, asked.rolling, asked.differences, **how)
    for name in plan.columns:
        if name not in chunk.columns:
            raise BadInput(f"no column {name!r} for lags; there are {listed(chunk.names)}")
        if is_text(chunk.columns[name]) or name in chunk.times:
            raise BadInput(f"column {name!r} holds no numbers, and lags are of numbers")
    taken = [name for name in plan.names if name in chunk.columns]
    if taken:
        raise BadInput(f"there is a column {taken[0]!r} already: rename it, or drop it")
    if asked.auto:
        chosen = proposed(replace(plan, made=()), horizon, in_order(plan, chunk), target)
        plan = replace(plan, made=tuple(dict.fromkeys((*plan.made, *chosen))))
    hidden = tuple(name for name in plan.hidden if name in plan.columns)
    return Series(LagColumns(replace(plan, hidden=hidden)), horizon)


def times_with_dates(chunk: Chunk) -> list[str]:
    """Columns of times that have a date."""
    return [name for name in chunk.times if chunk.forms[name].order != "clock"]


def in_order(plan: LagPlan, chunk: Chunk) -> Chunk:
    """The chunk without rows that cannot follow those before."""
    keep = np.ones(chunk.n, bool)
    keep[list(LagColumns(replace(plan, made=())).strange(chunk.columns))] = False
    return chunk if keep.all() else chunk.rows(keep)


def typical_step(times: Array, by: Any = None) -> float:
    """Seconds between a row and the next of its group, in the middle of all; NaN if unknown.

    times: (n,); by: (n,) or None.
    """
    order = np.arange(len(times)) if by is None else np.argsort(by, kind="stable")
    steps = np.diff(times[order])
    if by is not None:
        named = np.asarray(by)[order]
        steps = steps[named[1:] == named[:-1]]
    steps = steps[steps > 0]
    return float(np.median(steps)) if steps.size else float("nan")


# -- what the first rows propose -----------------------------------------------------------------
def proposed(
    plan: LagPlan, horizon: Span, chunk: Chunk, target: str
) -> tuple[tuple[str, str, Span], ...]:
    """Lags that explain the target of the first rows: forward selection by least squares.

    Candidates are the newest values, a season before the target (a day or a week of hourly rows, a
    week or a year of daily ones), means of as much, and the newest values of inputs. One is taken
    while it lowers the error by more than chance would (BIC) and by half a percent. Where one is of
    the target, its last value is taken, too: the model can then repeat it.
    """
    columns = {k: v for k, v in chunk.columns.items() if not is_text(v)}
    if target not in columns:
        raise BadInput(f"the target {target!r} holds text: name lags of other columns by --lag")
    made = _candidates(plan, horizon, chunk, target)
    found, _ = LagColumns(replace(plan, made=tuple(made))).extend(chunk.columns)
    y = _target(plan, horizon, chunk, target)
    inputs = [n for n in columns if n not in (target, plan.time) and n not in chunk.times]
    base = [columns[name] for name in (*inputs, *([target] if horizon else []))]
    rows = ~np.isnan(y)
    rows[np.flatnonzero(rows)[MOST_ROWS:]] = False
    pool = {each: _fill(found[name][rows]) for each, name in zip(made, found, strict=True)}
    chosen = _select(y[rows], [_fill(each[rows]) for each in base], pool)
    last = "lag", target, Span.of(1)
    if not horizon and last not in chosen and any(name == target for _, name, _ in chosen):
        chosen.append(last)
    return tuple(chosen)


def _candidates(
    plan: LagPlan, horizon: Span, chunk: Chunk, target: str
) -> list[tuple[str, str, Span]]:
    groups = None if plan.by is None else chunk.columns[plan.by].astype(str)
    n = chunk.n if groups is None else int(np.unique(groups, return_counts=True)[1].max())
    step = float("nan")
    if plan.time is not None:
        step = typical_step(np.asarray(chunk.columns[plan.time], np.float64), groups)
    ahead = horizon.seconds / step if horizon.timed else horizon.rows
    backs = {1, 2, 3}
    means = {3}
    for length, least, most in SEASONS.values():
        rows = round(length / step) if least <= step <= most else 0
        while 0 < rows < ahead:  # what is known when the target is predicted
            rows *= 2
        if rows and 2 * rows <= n:
            backs |= {rows, rows - round(ahead)} - {0}
            means.add(rows)
    found = [("lag", target, back) for back in sorted(backs)]
    found += [("mean", target, back) for back in sorted(means)]
    found += [("difference", target, 1)] if horizon else []
    others = [k for k, v in chunk.columns.items() if not is_text(v) and k not in chunk.times]
    for name in [name for name in others if name != target][:MOST_INPUTS]:
        found += [("lag", name, 1), ("mean", name, max(means))]
    return [(kind, name, Span.of(back)) for kind, name, back in found if 3 * back <= n]


def _target(plan: LagPlan, horizon: Span, chunk: Chunk, target: str) -> Array:
    """What the row is to predict: (n,), NaN where it is not known."""
    y = np.asarray(chunk.columns[target], np.float64)
    if not horizon:
        return y
    series = Series(LagColumns(replace(plan, made=())), horizon)
    number, _ = series.join_waiting(chunk.columns, np.arange(chunk.n, dtype=float)[:, None])
    out, known = np.full(chunk.n, np.nan), ~np.isnan(number[:, 0])
    out[number[known, 0].astype(int)] = y[known]
    return out


def _fill(values: Array) -> Array:
    """Standardised, 0 where missing."""
    seen = ~np.isnan(values)
    if not seen.any():
        return np.zeros(len(values))
    spread = float(values[seen].std()) or 1.0
    return np.where(seen, (values - values[seen].mean()) / spread, 0.0)


def _select(
    y: Array, base: list[Array], pool: Mapping[tuple[str, str, Span], Array]
) -> list[tuple[str, str, Span]]:
    """Of the pool, those that lower the squared error of least squares, the best first."""
    n, chosen = len(y), list[tuple[str, str, Span]]()
    if n < 30:
        return chosen
    rest, left = _fill(y), dict(pool)
    basis = np.zeros((n, 0))
    for column in base:
        basis, rest = _taken_out(basis, rest, column)
    while left and len(chosen) < MOST_CHOSEN:
        clean = {k: v - basis @ (basis.T @ v) for k, v in left.items()}
        gains = {
            k: (v @ rest) ** 2 / (v @ v) if v @ v > 1e-8 * n else 0.0 for k, v in clean.items()
        }
        best = max(gains, key=lambda each: gains[each])
        error = float(rest @ rest)
        worth = -n * np.log(max(1.0 - gains[best] / max(error, 1e-300), 1e-12))
        if worth < 2 * np.log(n) or gains[best] < LEAST_GAIN * error:
            break
        basis, rest = _taken_out(basis, rest, left.pop(best))
        chosen.append(best)
    return chosen


def _taken_out(basis: Array, rest: Array, column: Array) -> tuple[Array, Array]:
    """An orthonormal basis with one column more, and what it leaves of the rest."""
    clean = column - basis @ (basis.T @ column)
    size = float(np.linalg.norm(clean))
    if size < 1e-6 * np.sqrt(len(rest)):
        return basis, rest
    unit = clean / size
    return np.column_stack([basis, unit]), rest - unit * (unit @ rest)


# -- messages ----------------------------------------------------------------------------------
def lines_of(series: Series, asked: LagRequest, chunk: Chunk, target: str) -> list[str]:
    """What was made of the request, a line each."""
    plan, found = series.plan, list[str]()
    by = f" by {plan.by!r}" if plan.by else ""
    if asked.auto:
        what = ", ".join(plan.names) or "none, for none explains the target"
        found.append(f"lags that the first {chunk.n:,} rows propose{by}: {what}; --lag COLUMN=1,2")
    order = f"in the order of column {plan.time!r}" if plan.time else "as they come"
    found.append(f"lags count rows {order}{by}" + ("; --time" if plan.time else ""))
    if series.horizon:
        ahead = series.horizon.words
        found.append(
            f"the target of a row is {target!r} {ahead} later; {target!r} itself is an input. "
            "Experts that remember all rows: those that forget would follow targets that are "
            "not known yet when a row is predicted; -p experts=all"
        )
    if plan.time is not None and not any(span.timed for _, _, span in plan.made):
        times = np.asarray(chunk.columns[plan.time], np.float64)
        groups = None if plan.by is None else chunk.columns[plan.by].astype(str)
        step = typical_step(times, groups)
        along = np.arange(chunk.n) if groups is None else np.argsort(groups, kind="stable")
        gaps = int(np.count_nonzero(np.diff(times[along]) > 1.5 * step))
        if gaps:
            found.append(
                f"{counted(gaps, 'gap')} in column {plan.time!r} among the first rows: lags count "
                "rows, and pass over gaps; --lag COLUMN=24h counts time"
            )
    return found
