"""Columns of earlier values: lags, rolling means and differences, by group, at fixed memory.

- "temp lag 24": the value 24 rows before; "temp lag 24h": that of the newest row at least 24 h
  before, and none if that row is more than half as much older.
- "temp mean 24": the mean of the newest 24 values that are known; "temp mean 24h": of those in the
  last 24 hours.
- "temp difference 1": the newest value that is known, less the one a row before that.

A row's own value is known, unless the column is `hidden`, as a target is that is to be predicted.
What is not there is NaN. Each row is made from the rows before it alone, so that the result is the
same, to the last bit, however rows are cut into chunks.

>>> table = {"temp": np.array([1.0, 2.0, 4.0])}
>>> plan = LagPlan.of(lags=[("temp", 1)], differences=[("temp", 1)])
>>> made, after = LagColumns(plan).extend(table)
>>> made["temp lag 1"], after.extend({"temp": np.array([8.0])})[0]["temp difference 1"]
(array([nan,  1.,  2.]), array([4.]))
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from dokl.base.arrays import Array
from dokl.base.errors import BadInput, UnknownName
from dokl.learning.columns.past import MOST_GROUPS, GroupRows, RecentRows
from dokl.learning.columns.preprocessor import is_text, require
from dokl.learning.columns.spans import Span

Wanted = Iterable[tuple[str, Any]]
KINDS = ("lag", "mean", "difference")


@dataclass(frozen=True)
class LagPlan:
    """Which columns of earlier values to make: (kind, column, how far back) each.

    by: the column that names the group, each with a past of its own. time: the column of times,
    in seconds, which must rise in every group. hidden: columns whose own value is not known in a
    row.
    """

    made: tuple[tuple[str, str, Span], ...] = ()
    by: str | None = None
    time: str | None = None
    hidden: tuple[str, ...] = ()
    most_groups: int = MOST_GROUPS

    def __post_init__(self) -> None:
        timed = [span for _, _, span in self.made if span.timed]
        if timed and self.time is None:
            raise BadInput(f"{timed[0]} is a time, and no column of times is known: count in rows")

    @classmethod
    def of(
        cls, lags: Wanted = (), rolling: Wanted = (), differences: Wanted = (), **how: Any
    ) -> Self:
        """By kind: (column, how far back) of each, as `Span.of` takes it."""
        given = zip(KINDS, (lags, rolling, differences), strict=True)
        made = [(kind, name, Span.of(back)) for kind, pairs in given for name, back in pairs]
        return cls(tuple(dict.fromkeys(made)), **how)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns whose past is looked at."""
        return tuple(dict.fromkeys(name for _, name, _ in self.made))

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that are made."""
        return tuple(f"{name} {kind} {span}" for kind, name, span in self.made)

    @property
    def needed(self) -> tuple[str, ...]:
        """All columns that are looked at."""
        more = [name for name in (self.by, self.time) if name is not None]
        return tuple(dict.fromkeys((*self.columns, *more)))

    def spec(self) -> dict[str, Any]:
        """For files."""
        made = [[kind, name, str(span)] for kind, name, span in self.made]
        hidden = list(self.hidden)
        return {"made": made, "by": self.by, "time": self.time, "hidden": hidden}

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> Self:
        """The same again."""
        made = [(kind, name, Span.of(str(back))) for kind, name, back in spec["made"]]
        by, time, hidden = spec["by"], spec["time"], tuple(spec["hidden"])
        names = (by, time, *hidden, *(name for _, name, _ in made))
        if not all(isinstance(name, str | None) for name in names):
            raise BadInput("a column has no name")
        for kind, _, _ in made:
            if kind not in KINDS:
                raise UnknownName("column of earlier values", kind, KINDS)
        return cls(tuple(made), by, time, hidden)


@dataclass(frozen=True)
class LagColumns:
    """A plan, and the rows that it remembers. It is never changed: `extend` makes another."""

    plan: LagPlan
    past: RecentRows = field(default_factory=RecentRows)

    def __post_init__(self) -> None:
        if not self.past.rows and not self.past.seconds:
            spans = [Span.of(1), *(span for _, _, span in self.plan.made)]
            past = RecentRows.none(spans, self.plan.most_groups)
            object.__setattr__(self, "past", past)

    def extend(self, columns: Mapping[str, Array]) -> tuple[dict[str, Array], LagColumns]:
        """The columns made, (n,) each, of rows that follow those before; and the memory after them.

        Rows must be in order: see `strange`. A hidden column may be absent: nothing is known of it.
        """
        plan = self.plan
        values = self._values(columns)
        times = None if plan.time is None else np.asarray(columns[plan.time], np.float64)
        by = None if plan.by is None else _names(columns[plan.by])
        groups, past = self.past.join(by, times, values)
        out = {name: np.full(len(values), np.nan) for name in plan.names}
        for group in groups:
            for name, (kind, column, span) in zip(plan.names, plan.made, strict=True):
                at = plan.columns.index(column)
                known = column not in plan.hidden
                out[name][group.rows] = _MADE[kind](group, at, span, known)
        return out, replace(self, past=past)

    def _values(self, columns: Mapping[str, Array]) -> Array:
        """(n, p), the columns whose past is looked at."""
        plan, n = self.plan, len(next(iter(columns.values()), ()))
        values = np.full((n, len(plan.columns)), np.nan)
        for name in plan.needed:
            if name in columns or name not in plan.hidden:
                require(name, columns, "is needed for lags, and is not there")
        for i, name in enumerate(plan.columns):
            if name in columns:
                values[:, i] = _numbers(name, columns[name])
        return values

    def strange(self, columns: Mapping[str, Array]) -> dict[int, BadInput]:
        """Rows that cannot follow those before, {row: why}: their time does not rise, or is
        missing, or their group is unknown. A message continues after "row 3".
        """
        plan, found = self.plan, dict[int, BadInput]()
        by = None if plan.by is None else _names(columns[plan.by])
        for row, name in enumerate(by or ()):
            if name is None:
                found[row] = BadInput(
                    f", column {plan.by!r}: the cell is empty, and lags are taken by group"
                )
        if plan.time is None:
            return found
        timed, latest = self.past.seconds > 0, self.past.last_times()
        for row, time in enumerate(np.asarray(columns[plan.time], np.float64).tolist()):
            group = "" if by is None else by[row]
            before = latest.get(group, -np.inf)
            if time != time and timed:
                found[row] = BadInput(
                    f", column {plan.time!r}: the time is missing, and lags count in time"
                )
            elif time <= before:
                found[row] = self._unordered(time, before, group)
            elif row not in found and time == time:
                latest[group] = time
        return found

    def _unordered(self, time: float, before: float, group: str) -> BadInput:
        plan = self.plan
        of_group = f" of {plan.by} {group!r}" if plan.by else ""
        what = "repeats the time" if time == before else f"is before {moment(before)}, the time"
        hint = "" if plan.by else ". Rows of several places? Then name the column of places"
        hint += "" if time == before else ". Lags need rows in the order of time: sort them"
        text = f", column {plan.time!r}: {moment(time)} {what} of the row before{of_group}{hint}"
        options = [] if plan.by else ["--by COLUMN"]
        return BadInput(text, options=[*options, "--on-error skip"])

    def check(self, columns: Mapping[str, Array]) -> None:
        """Refuse rows that cannot follow those before, by the number of the first."""
        strange = self.strange(columns)
        if strange:
            first = min(strange)
            raise BadInput(f"row {first + 1}{strange[first]}", options=strange[first].options)

    # -- files -----------------------------------------------------------------------------------
    def spec(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """All there is to save: a part for JSON, and arrays."""
        return {**self.plan.spec(), "groups": list(self.past.groups)}, self.past.arrays()

    @classmethod
    def from_spec(cls, meta: Mapping[str, Any], arrays: Mapping[str, Any]) -> Self:
        """The same again."""
        made = cls(LagPlan.from_spec(meta))
        past = made.past.with_arrays([str(name) for name in meta["groups"]], arrays)
        if any(each.values.shape[1] != len(made.plan.columns) for each in past.groups.values()):
            raise BadInput("the remembered rows have other columns than the lags")
        return replace(made, past=past)


def moment(seconds: float) -> str:
    """A time for messages: 2013-03-01T14:30:00."""
    if not abs(seconds) < 1e11:
        return f"{seconds:g}"
    shown = np.datetime_as_string(np.datetime64(round(seconds * 1e3), "ms"))
    return str(shown).removesuffix(".000")


def _names(column: Array) -> list[Any]:
    """Groups by name; whole numbers as such, None where missing."""
    cells = np.asarray(column).tolist()
    return [_name(cell) for cell in cells]


def _name(cell: object) -> str | None:
    if cell is None or cell != cell:
        return None
    return str(int(cell)) if isinstance(cell, float) and cell.is_integer() else str(cell)


def _numbers(name: str, column: Array) -> Array:
    if is_text(column):
        raise BadInput(f"column {name!r} holds text, and lags are of numbers")
    values = np.asarray(column, np.float64)
    if np.isinf(values).any():
        row = int(np.flatnonzero(np.isinf(values))[0])
        raise BadInput(f"row {row + 1}, column {name!r} holds infinity")
    return values


# -- what is made of the rows of a group: (k,) each ----------------------------------------------
def _lag(group: GroupRows, column: int, span: Span, known: bool) -> Array:
    at = group.find(span)
    return np.where(at >= 0, group.values[at, column], np.nan)


def _mean(group: GroupRows, column: int, span: Span, known: bool) -> Array:
    """Each mean is one sum over its own rows, so that no rounding is carried along."""
    own = group.m + np.arange(len(group.rows))
    stop = own + 1 if known else own
    if span.timed:
        first = group.times[own] - span.seconds * (1 - 1e-6)
        start = np.searchsorted(group.times, first, side="right")
    else:
        start = np.maximum(stop - span.rows, 0)
    seen = ~np.isnan(group.values[:, column])
    filled = np.where(seen, group.values[:, column], 0.0)
    count = np.concatenate([[0], np.cumsum(seen)])
    n = count[stop] - count[np.minimum(start, stop)]
    pairs = zip(start.tolist(), stop.tolist(), strict=True)
    total = np.fromiter((filled[a:b].sum() for a, b in pairs), np.float64, len(own))
    return np.where(n > 0, total / np.maximum(n, 1), np.nan)


def _difference(group: GroupRows, column: int, span: Span, known: bool) -> Array:
    own = group.m + np.arange(len(group.rows))
    newest = own if known else own - 1
    if span.timed:
        before = group.find(span)
        newest = np.where(newest > before, newest, -1)
    else:
        before = newest - span.rows
    values = group.values[:, column]
    both = (newest >= 0) & (before >= 0)
    return np.where(both, values[newest] - values[np.maximum(before, -1)], np.nan)


_MADE = {"lag": _lag, "mean": _mean, "difference": _difference}
