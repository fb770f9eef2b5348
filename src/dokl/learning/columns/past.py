"""The newest rows of each group of a stream, as many as are looked back at.

>>> before = RecentRows.none([Span.of(2)])
>>> (group,), after = before.join(None, None, np.array([[1.0], [2.0], [3.0]]))
>>> group.find(Span.of(1)).tolist(), after.groups[""].values.ravel().tolist()
([-1, 0, 1], [1.0, 2.0, 3.0])
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from dokl.base.arrays import Array
from dokl.base.errors import BadInput
from dokl.learning.columns.spans import MOST_ROWS, Span

ALL = ""  # the one group if there is no column of groups
MOST_GROUPS = 1000
# A row that lies a time ago is the newest at least that old; one older than this does not count.
OLDEST = 1.5


@dataclass(frozen=True, eq=False)
class GroupPast:
    """The newest rows of one group, oldest first: times (m,), NaN if unknown; values (m, p)."""

    times: Array
    values: Array


@dataclass(frozen=True, eq=False)
class GroupRows:
    """Rows of one group in a chunk, behind those that are remembered.

    rows: (k,), where they are in the chunk. times (m + k,), values (m + k, p): the m remembered
    rows first.
    """

    rows: Array
    times: Array
    values: Array

    @property
    def m(self) -> int:
        """How many are remembered."""
        return len(self.times) - len(self.rows)

    def find(self, span: Span) -> Array:
        """(k,), which of all rows lies this far before each new row; -1 where none does."""
        own = self.m + np.arange(len(self.rows))
        if not span.timed:
            return np.maximum(own - span.rows, -1)
        due = self.times[own] - span.seconds
        at = np.searchsorted(self.times, due + 1e-6 * span.seconds, side="right") - 1
        oldest = self.times[own] - OLDEST * span.seconds
        return np.where((at >= 0) & (self.times[at] >= oldest), at, -1)

    def take(self, at: Array) -> Array:
        """(k, p), the values of these rows; NaN for -1."""
        return np.where(at[:, None] >= 0, self.values[at], np.nan)


@dataclass(frozen=True)
class RecentRows:
    """Rows that are remembered, by group. It is never changed: `join` makes another.

    rows, seconds: how far back is looked.
    """

    rows: int = 0
    seconds: float = 0.0
    groups: Mapping[str, GroupPast] = field(default_factory=dict)
    most_groups: int = MOST_GROUPS

    @classmethod
    def none(cls, spans: Iterable[Span], most_groups: int = MOST_GROUPS) -> Self:
        """No rows yet, to look this far back."""
        spans = list(spans)
        rows = max((span.rows + 1 for span in spans), default=0)
        return cls(rows, max((s.seconds for s in spans), default=0.0), {}, most_groups)

    def join(
        self, by: Sequence[str] | None, times: Array | None, values: Array
    ) -> tuple[list[GroupRows], RecentRows]:
        """New rows, values (n, p), group by group behind those before; and the memory after them.

        by: the group of each row; times: (n,) seconds, rising in each group.
        """
        n = len(values)
        when = np.full(n, np.nan) if times is None else np.asarray(times, np.float64)
        found, groups = [], dict(self.groups)
        for name, rows in _places(by, n).items():
            past = groups.get(name)
            mine = when[rows], values[rows]
            if past is not None:
                mine = tuple(map(np.concatenate, zip(_pair(past), mine, strict=True)))  # type: ignore[assignment]
            found.append(GroupRows(rows, *mine))
            groups[name] = self._newest(*mine)
        if len(groups) > self.most_groups:
            raise BadInput(
                f"there are more than {self.most_groups:,} groups, and the last rows of each are "
                "remembered: is the column a name of places, or different in every row?"
            )
        return found, replace(self, groups=groups)

    def _newest(self, times: Array, values: Array) -> GroupPast:
        keep = self.rows
        if self.seconds:
            recent = times >= times[-1] - OLDEST * self.seconds
            keep = max(keep, int(np.count_nonzero(recent)))
            if keep > MOST_ROWS:
                raise BadInput(
                    f"more than {MOST_ROWS:,} rows lie within {OLDEST * self.seconds:,.0f} "
                    "seconds, as far as lags look back: count lags in rows, or shorten them"
                )
        start = max(0, len(times) - keep)
        return GroupPast(times[start:].copy(), values[start:].copy())

    def last_times(self) -> dict[str, float]:
        """The time of the newest row of each group."""
        return {
            name: float(past.times[-1]) for name, past in self.groups.items() if past.times.size
        }

    # -- files -----------------------------------------------------------------------------------
    def arrays(self) -> dict[str, Array]:
        """Numbers for files: how many rows each group has, and the rows of all of them."""
        every = list(self.groups.values())
        width = every[0].values.shape[1] if every else 0
        return {
            "counts": np.array([len(past.times) for past in every], np.int64),
            "times": np.concatenate([np.zeros(0), *(past.times for past in every)]),
            "values": np.concatenate([np.zeros((0, width)), *(past.values for past in every)]),
        }

    def with_arrays(self, names: Sequence[str], arrays: Mapping[str, Any]) -> RecentRows:
        """The memory that had these groups and arrays."""
        counts = np.asarray(arrays["counts"])
        times, values = (np.asarray(arrays[k], np.float64) for k in ("times", "values"))
        fits = counts.shape == (len(names),) and (counts >= 0).all() and times.ndim == 1
        if not fits or values.ndim != 2 or not len(times) == len(values) == counts.sum():
            raise BadInput("the remembered rows do not fit each other")
        if len(set(names)) < len(names) or np.isinf(values).any() or np.isinf(times).any():
            raise BadInput("the remembered rows are damaged")
        ends = np.cumsum(counts)
        parts = [slice(end - n, end) for end, n in zip(ends, counts, strict=True)]
        made = {k: GroupPast(times[s], values[s]) for k, s in zip(names, parts, strict=True)}
        return replace(self, groups=made)


def _pair(past: GroupPast) -> tuple[Array, Array]:
    return past.times, past.values


def _places(by: Sequence[str] | None, n: int) -> dict[str, Array]:
    """The rows of each group."""
    if by is None:
        return {ALL: np.arange(n)} if n else {}
    places: dict[str, list[int]] = {}
    for row, name in enumerate(by):
        places.setdefault(name, []).append(row)
    return {name: np.array(rows) for name, rows in places.items()}
