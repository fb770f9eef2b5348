"""Lags of a training: what was asked for, what the first rows propose, and what is said of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dokl.base.arrays import Array
from dokl.base.errors import BadInput, listed
from dokl.learning.columns import LagColumns, LagPlan, Span, is_text
from dokl.tables.models.series import Series
from dokl.tables.readers import Chunk

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
    while it lowers the error by more than chance would (BIC) and by half a percent.
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
    pool = {each: _filled(found[name][rows]) for each, name in zip(made, found, strict=True)}
    return tuple(_selected(y[rows], [_filled(each[rows]) for each in base], pool))


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


def _filled(values: Array) -> Array:
    """Standardised, 0 where missing."""
    seen = ~np.isnan(values)
    if not seen.any():
        return np.zeros(len(values))
    spread = float(values[seen].std()) or 1.0
    return np.where(seen, (values - values[seen].mean()) / spread, 0.0)


def _selected(
    y: Array, base: list[Array], pool: Mapping[tuple[str, str, Span], Array]
) -> list[tuple[str, str, Span]]:
    """Of the pool, those that lower the squared error of least squares, the best first."""
    n, chosen = len(y), list[tuple[str, str, Span]]()
    if n < 30:
        return chosen
    rest, left = _filled(y), dict(pool)
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


# -- what is said --------------------------------------------------------------------------------
def said_of(series: Series, asked: LagRequest, chunk: Chunk, target: str) -> list[str]:
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
                f"{gaps:,} gaps in column {plan.time!r} among the first rows: lags count rows, and "
                "pass over gaps; --lag COLUMN=24h counts time"
            )
    return found
