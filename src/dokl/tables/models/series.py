"""What a `TableModel` remembers of the rows before: lags, and inputs that wait for their target.

With a horizon the target of a row is the value so much later. A row is predicted as soon as it is
there; its inputs wait, and are learned when the row with their target comes. What was predicted for
them waits beside them: scores are of predictions made when the target was not known yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from dokl.base.arrays import Array
from dokl.base.errors import BadInput
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
        """(n,), the rows whose inputs, of so much earlier, are there."""
        if not self.horizon:
            return np.ones(n, bool)
        every = self.waiting.groups.values()
        width = next((past.values.shape[1] for past in every), 1)
        found, _ = self.join_waiting(columns, np.zeros((n, width)))
        return np.asarray(~np.isnan(found[:, 0]))

    def due(
        self, columns: Mapping[str, Array], X: Array, said: Array
    ) -> tuple[Array, Array, RecentRows]:
        """The inputs whose target comes with these rows, (n, d), what was predicted for them,
        (n, MORE), and what waits after. X: (n, d), said: (n, MORE): of these rows.
        """
        if not self.horizon:
            return X, said, self.waiting
        found, after = self.join_waiting(columns, np.hstack([X, said]))
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
