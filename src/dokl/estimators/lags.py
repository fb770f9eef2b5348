"""Earlier values of columns as inputs, as a scikit-learn transformer with a memory of its own."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import _check_feature_names, check_array, check_is_fitted

from dokl.base.arrays import Array
from dokl.base.errors import BadInput
from dokl.estimators.inputs import all_or_nothing
from dokl.learning.cells.cells import MISSING, quote_cell
from dokl.learning.cells.frames import column_names, plain_cells
from dokl.learning.cells.times import seconds
from dokl.learning.columns import LagColumns, LagPlan, RecentRows, Span, is_text, require

Back = Any  # how far back: 24, "24h", a list of these, or {column: such a list}


class Lags(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Lags, rolling means and differences of columns, row after row.

    `transform` takes rows as a stream: each row is transformed with what came before it, then
    remembered. So the same rows give the same result in one call, row by row, and after pickling
    in between; and the same call twice does not, since the rows of the second follow those of the
    first. `preview` remembers nothing. `fit` forgets all rows before, and remembers those of X.

    Parameters
    ----------
    lags, rolling, differences : how far back, in rows (24) or in time ("24h", which needs `time`):
        one, a list, or {column: list}. A lag is the value so far before; a rolling mean is that of
        the newest values; a difference is the newest value less the one so far before it.
    columns : those that a list is for; None: all columns of numbers.
    by : the column of groups (stations, customers). Each has a past of its own.
    time : the column of times: datetimes, texts such as 2024-12-31 14:30, or seconds. Times must
        rise in each group; a repeated or earlier time is an error that names the row. Without it
        rows count as they come.
    horizon : how far after a row its target lies; `targets` finds it.
    drop : columns that are remembered and not passed on: a target that is not known yet when its
        row is predicted. Its rolling means and differences are those of the rows before.
    max_groups : more groups than this are an error, since memory is bounded.

    What is not known, in the first rows or across a gap, is NaN; put a SimpleImputer behind.
    `by` and `time` are not passed on.

    Examples
    --------
    >>> import numpy as np
    >>> lags = Lags([1, 2], columns=[0])
    >>> lags.fit_transform([[1.0], [2.0], [4.0]])
    array([[ 1., nan, nan],
           [ 2.,  1., nan],
           [ 4.,  2.,  1.]])
    >>> lags.transform([[8.0]]), lags.get_feature_names_out().tolist()
    (array([[8., 4., 2.]]), ['x0', 'x0 lag 1', 'x0 lag 2'])
    """

    def __init__(
        self,
        lags: Back = 1,
        rolling: Back = (),
        differences: Back = (),
        *,
        columns: Iterable[Any] | None = None,
        by: object = None,
        time: object = None,
        horizon: object = 0,
        drop: Iterable[Any] = (),
        max_groups: int = 1000,
    ) -> None:
        self.lags = lags
        self.rolling = rolling
        self.differences = differences
        self.columns = columns
        self.by = by
        self.time = time
        self.horizon = horizon
        self.drop = drop
        self.max_groups = max_groups

    # -- learning --------------------------------------------------------------------------------
    def fit(self, X: object, y: object = None) -> Self:
        """Forget all rows before, and remember those of X: (n, d), a data frame or an array."""
        self.fit_transform(X)
        return self

    def fit_transform(self, X: object, y: object = None) -> Any:
        """Transform the rows of X, the first of which has nothing before it; remember them."""
        with all_or_nothing(self):
            table = self._table(X, reset=True)
            self.memory_ = LagColumns(self._plan(table))
            self.names_ = [n for n in table if n not in (*self._left_out, self._name(self.by))]
            return self._transformed(table)

    def partial_fit(self, X: object, y: object = None) -> Self:
        """Remember these rows, which follow those before."""
        if not hasattr(self, "memory_"):
            return self.fit(X)
        self._transformed(self._table(X))
        return self

    def transform(self, X: object) -> Any:
        """(n, columns), each row with what came before it; the rows are remembered."""
        check_is_fitted(self, "memory_")
        with all_or_nothing(self):
            return self._transformed(self._table(X))

    def preview(self, X: object) -> Array:
        """As `transform`; nothing is remembered."""
        check_is_fitted(self, "memory_")
        table = self._table(X)
        self.memory_.check(table)
        return self._join(table, self.memory_.extend(table)[0])

    def targets(self, X: object, y: Any) -> Array:
        """The target of each row: y (n,) `horizon` later, in the same group; NaN where X ends
        before. X, y: all rows, in order.
        """
        span, table = Span.of(self.horizon, least=0), self._table(X)
        y = np.asarray(y, np.float64).reshape(len(y), 1)
        if not span:
            return np.asarray(y[:, 0])
        plan = LagPlan(by=self._name(self.by), time=self._name(self.time))
        LagColumns(plan).check(table)
        by = None if plan.by is None else table[plan.by].tolist()
        times = None if plan.time is None else table[plan.time]
        out = np.full(len(y), np.nan)
        for group in RecentRows.none([span], self.max_groups).join(by, times, y)[0]:
            at = group.find(span)
            later = np.flatnonzero(at >= 0)[::-1]  # of several, the first row at that time
            out[group.rows[at[later]]] = y[group.rows[later], 0]
        return out

    def get_feature_names_out(self, input_features: object = None) -> Array:
        """Names of the columns that come out."""
        check_is_fitted(self, "memory_")
        return np.array([*self.names_, *self.memory_.plan.names], object)

    # -- tables ----------------------------------------------------------------------------------
    def _table(self, X: Any, reset: bool = False) -> dict[str, Array]:
        """X by name, times in seconds; an array's columns are x0, x1, ..."""
        _check_feature_names(self, X, reset=reset)
        if column_names(X) or hasattr(X, "iloc"):
            table = {str(name): np.asarray(X[name]) for name in X.columns}
        else:
            plain = self.by is None and self.time is None
            X = check_array(X, dtype="numeric" if plain else None, ensure_all_finite=False)
            table = {f"x{i}": X[:, i] for i in range(X.shape[1])}
        if reset:
            self.n_features_in_ = len(table)
        elif len(table) != self.n_features_in_:
            raise BadInput(
                f"X has {len(table)} features, but {type(self).__name__} is expecting "
                f"{self.n_features_in_} features as input"
            )
        time = self._name(self.time)
        for name in (time, self._name(self.by), *map(self._name, self.drop)):
            if name is not None:
                require(name, table, "is not there")
        if time is not None:
            table[time] = seconds_column(time, table[time])
        return {k: v if k == self._name(self.by) else _plain(v) for k, v in table.items()}

    def _name(self, column: object) -> str | None:
        if column is None:
            return None
        return f"x{column}" if isinstance(column, int | np.integer) else str(column)

    @property
    def _left_out(self) -> tuple[str | None, ...]:
        return (self._name(self.time), *map(self._name, self.drop))

    def _plan(self, table: Mapping[str, Array]) -> LagPlan:
        by, time = self._name(self.by), self._name(self.time)
        if self.columns is None:
            usual = [n for n in table if n not in (by, time) and not is_text(table[n])]
        else:
            usual = [str(self._name(name)) for name in self.columns]
        given = [
            [(name, v) for name, values in self._by_column(back, usual) for v in as_list(values)]
            for back in (self.lags, self.rolling, self.differences)
        ]
        Span.of(self.horizon, least=0)
        hidden = tuple(str(self._name(name)) for name in self.drop)
        how: dict[str, Any] = {
            "by": by,
            "time": time,
            "hidden": hidden,
            "most_groups": self.max_groups,
        }
        return LagPlan.of(*given, **how)

    def _by_column(self, back: Back, usual: list[str]) -> list[tuple[str, Any]]:
        if isinstance(back, Mapping):
            return [(str(self._name(name)), values) for name, values in back.items()]
        return [(name, back) for name in usual]

    def _transformed(self, table: Mapping[str, Array]) -> Array:
        self.memory_.check(table)
        made, memory = self.memory_.extend(table)
        out = self._join(table, made)
        self.memory_ = memory
        return out

    def _join(self, table: Mapping[str, Array], made: Mapping[str, Array]) -> Array:
        for name in self.names_:
            if is_text(table[name]):
                raise BadInput(
                    f"column {name!r} holds text: encode it before (OneHotEncoder), or name it in "
                    "drop"
                )
        return np.column_stack([*(table[name] for name in self.names_), *made.values()]).astype(
            np.float64
        )

    def __sklearn_tags__(self) -> Any:
        """Missing values are welcome; what comes out depends on the rows before."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.non_deterministic = True
        return tags


def as_list(values: Any) -> list[Any]:
    """One distance, or several."""
    one = isinstance(values, str | int | np.integer | Span) or not isinstance(values, Iterable)
    return [values] if one else list(values)


def _plain(column: Array) -> Array:
    """Numbers where all cells are: arrays that also hold texts have them as objects."""
    if column.dtype.kind == "O":
        try:
            return column.astype(np.float64)
        except (TypeError, ValueError):
            return column
    return column


def seconds_column(name: str, column: Array) -> Array:
    """Times as seconds since 1970; numbers are seconds already."""
    if column.dtype.kind in "biuf":
        return column.astype(np.float64)
    cells = plain_cells(column) if column.dtype.kind in "OU" else []
    if any(isinstance(cell, str) for cell in cells):
        return _written(name, cells)
    try:
        if column.dtype.kind == "O":
            numbers = _plain(column)
            if numbers.dtype.kind == "f":
                return numbers
            column = np.array([None if c is None or c != c else _clock(c) for c in cells])
        moments = column.astype("datetime64[us]")
    except (TypeError, ValueError) as error:
        raise BadInput(f"column {name!r} holds no times: {error}") from None
    return np.where(np.isnat(moments), np.nan, moments.astype(np.int64) / 1e6)


def _written(name: str, cells: list[Any]) -> Array:
    """Times that are texts: as in files, except for dates whose order is ambiguous, since
    single rows do not show it.
    """
    known: dict[Any, float | None] = dict.fromkeys((*MISSING, "NaT"), np.nan)
    for cell in set(cells) - set(known):
        gone = cell is None or cell != cell
        given = cell.strip() if isinstance(cell, str) else cell
        found = np.nan if gone else seconds(given, "ymd")
        if found is None and isinstance(given, str):
            if re.fullmatch(r"\d{4}", given):
                found = seconds(f"{given}-01-01", "ymd")
            elif "." in given:
                found = seconds(given, "dmy")
        if found is None:
            raise BadInput(
                f"column {name!r} holds no times: {quote_cell(cell)}. Texts are read as "
                "2024-12-31 14:30, 31.12.2024, 31 Dec 2024, 2024-12 or 2024; convert others "
                "before (pandas.to_datetime)"
            )
        known[cell] = found
    return np.array([known[cell] for cell in cells], np.float64)


def _clock(cell: Any) -> np.datetime64:
    """A datetime in UTC, without its zone."""
    ahead = cell.utcoffset() if hasattr(cell, "utcoffset") else None
    return np.datetime64(cell.replace(tzinfo=None) - ahead if ahead is not None else cell, "us")
