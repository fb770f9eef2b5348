"""Earlier values of a live node's own rows as inputs, and targets that lie a horizon later.

The journal keeps rows as they came. The state has the newest of them, and the inputs of a row
follow from the state before it: a restart, which replays rows, makes the same lags to the last bit,
and nothing else has to be stored. With a horizon the inputs of a row wait in the state for the row
that has their target.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dokl.base.arrays import FLOAT32, Array
from dokl.base.errors import BadInput
from dokl.learning.columns import LagColumns, LagPlan, Preprocessor, RawRows, Span
from dokl.learning.columns.raw_rows import MISSING
from dokl.tables.models.series import Series

PREFIXES = ("lags.", "waiting.")


@dataclass(frozen=True)
class LaggedInputs:
    """How rows become inputs.

    rows      how columns are kept as numbers
    prepared  how columns, with earlier values among them, become inputs
    plan      which earlier values; target: the column of targets, which may be among them
    horizon   how much later the target of a row lies; the row's own target is an input then
    """

    rows: RawRows
    prepared: Preprocessor
    plan: LagPlan
    target: str
    horizon: Span = field(default_factory=Span)

    def start(self) -> Series:
        """A memory of no rows."""
        return Series(LagColumns(self.plan), self.horizon)

    def enter(
        self, series: Series, X: Array, Y: Array | None = None
    ) -> tuple[Array, dict[str, Array], Series]:
        """Inputs (n, d) of rows X as they came, which follow those remembered, their columns, and
        the memory after them, but for inputs that wait; Y: (n, m) their targets, where they are
        known. BadInput where rows do not follow.
        """
        columns = self.rows.columns(X)
        if Y is not None and (self.horizon or self.target in self.plan.hidden):
            columns[self.target] = Y[:, 0]
        series.lags.check(columns)
        made, after = series.lags.extend(columns)
        inputs = self.prepared.transform({**columns, **made})
        # Earlier values of columns are bounded as they come, not in the units of inputs.
        inputs = np.clip(inputs, -FLOAT32, FLOAT32)
        return inputs, columns, replace(series, lags=after)

    def empty_row(self) -> Array:
        """A row (1, d), as they come, in which every number is there."""
        X, p = np.zeros((1, self.rows.d)), len(self.rows.numeric)
        X[:, p : 2 * p], X[:, 2 * p :] = 1.0, MISSING
        return X

    def unpack(self, meta: Mapping[str, Any], arrays: Mapping[str, Array]) -> Series:
        """The memory in the parts of a stored state; BadInput where there is none."""
        past = {name: array for name, array in arrays.items() if is_past(name)}
        try:
            # Earlier versions had no horizon.
            about = {"horizon": "0", "waiting": [], **meta["lags"]}
            found = Series.from_spec(about, past, self.prepared.d)
        except (KeyError, TypeError, ValueError) as error:
            raise BadInput(f"the stored state is damaged, or has no lags ({error})") from None
        if (found.plan, found.horizon) != (self.plan, self.horizon):
            raise BadInput("the stored state is not this model's: it has other lags")
        return found


def pack(series: Series | None) -> tuple[dict[str, Any], dict[str, Array]]:
    """What a stored state says of the rows remembered: JSON values, and arrays."""
    if series is None:
        return {}, {}
    meta, past = series.spec()
    return {"lags": meta}, past


def is_past(name: str) -> bool:
    """Whether this array of a stored state is of the rows remembered."""
    return name.startswith(PREFIXES)
