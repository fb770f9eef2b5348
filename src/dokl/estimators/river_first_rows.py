"""Named inputs as columns for a model that wants the same ones in every row.

Which inputs there are is learned from the first rows: those of the first 30 at once, others up to
row 1,000 at the model's next pilot, by learning the rows so far again with more columns. Later ones
are ignored, counted, and warned of once.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dokl.base.arrays import Array
from dokl.estimators.river_running import filled
from dokl.learning.columns import Moments
from dokl.learning.experts.kinds import PILOTS

# Rows at which inputs that have come up since are taken in; the first of them ends the beginning.
INTAKES = tuple(rows for rows in PILOTS if rows <= 1000)


class IgnoredInput(UserWarning):
    """An input that came up too late to be learned."""


@dataclass(frozen=True)
class Piece:
    """Rows as they came: values (n, names), NaN where missing; y: (n,); w: (n,)."""

    names: list[Hashable]
    values: Array
    y: Array
    w: Array


@dataclass(frozen=True)
class InputColumns:
    """Which column an input has, and the means that stand for missing values unless `zero` does.

    waiting: inputs to be taken in. first: the rows so far, None after the last intake. ignored: how
    many values were.
    """

    zero: bool = False
    at: dict[Hashable, int] = field(default_factory=dict)
    moments: Moments = field(default_factory=lambda: Moments.none(1))
    waiting: tuple[Hashable, ...] = ()
    first: tuple[Piece, ...] | None = ()
    ignored: int = 0

    @property
    def d(self) -> int:
        """Number of columns; a model wants one at least."""
        return max(1, len(self.at))


def placed(columns: InputColumns, names: Sequence[Hashable], values: Array) -> Array:
    """X: (n, d) of the inputs that have a column, NaN where one is missing."""
    X = np.full((len(values), columns.d), np.nan)
    known = [(i, columns.at[name]) for i, name in enumerate(names) if name in columns.at]
    if known:
        given, to = zip(*known, strict=True)
        X[:, to] = values[:, given]
    return X


def inputs(columns: InputColumns, names: Sequence[Hashable], values: Array) -> Array:
    """X: (n, d) of rows to predict."""
    X = placed(columns, names, values)
    if columns.zero:
        return np.nan_to_num(X, copy=False)
    return filled(columns.moments.now(X.T), X)


def learned(columns: InputColumns, X: Array) -> tuple[InputColumns, Array]:
    """X: (n, d) of rows to learn as `placed` gives them, without gaps."""
    if columns.zero:
        return columns, np.nan_to_num(X, copy=False)
    moments = Moments(**vars(columns.moments))
    X = filled(moments.learn(X.T, [str(name) for name in (*columns.at, "")]), X)
    return replace(columns, moments=moments), X


def until_intake(seen: int) -> int:
    """Rows before the next intake."""
    return min((rows - seen for rows in INTAKES if rows > seen), default=1 << 62)


def met(columns: InputColumns, piece: Piece) -> InputColumns:
    """Keep a piece that is to be learned, and take note of new inputs in it."""
    known = {*columns.at, *columns.waiting}
    there = [not np.isnan(column).all() for column in piece.values.T]
    new = [n for n, given in zip(piece.names, there, strict=True) if given and n not in known]
    if columns.first is None:
        return _ignored(columns, piece, new) if new else columns
    first = (*columns.first, piece)
    return replace(columns, waiting=(*columns.waiting, *new), first=first)


def taken(columns: InputColumns) -> InputColumns:
    """With a column for every input that waits."""
    new = sorted(columns.waiting, key=_order)
    at = {**columns.at, **{name: len(columns.at) + i for i, name in enumerate(new)}}
    return replace(columns, at=at, waiting=())


def closed(columns: InputColumns, seen: int) -> InputColumns:
    """Without the rows so far once they are no longer needed."""
    return replace(columns, first=None, waiting=()) if seen >= INTAKES[-1] else columns


def again(columns: InputColumns) -> tuple[InputColumns, Array, Array, Array]:
    """All rows so far as X: (n, d), y and w, for a model that begins again."""
    pieces = columns.first or ()
    columns = replace(columns, moments=Moments.none(columns.d))
    if not pieces:
        return columns, np.empty((0, columns.d)), np.empty(0), np.empty(0)
    rows = [placed(columns, piece.names, piece.values) for piece in pieces]
    columns, X = learned(columns, np.concatenate(rows))
    y, w = (np.concatenate([getattr(piece, of) for piece in pieces]) for of in ("y", "w"))
    return columns, X, y, w


def _order(name: Hashable) -> tuple[str, str]:
    """The same whatever order a dict has."""
    return type(name).__name__, str(name)


def _ignored(columns: InputColumns, piece: Piece, new: list[Any]) -> InputColumns:
    if not columns.ignored:
        warnings.warn(
            f"feature {new[0]!r} came up after {INTAKES[-1]:,} rows and is ignored, as others will "
            "be: the inputs are those of the first rows",
            IgnoredInput,
            stacklevel=6,
        )
    late = [i for i, name in enumerate(piece.names) if name in set(new)]
    return replace(columns, ignored=columns.ignored + int((~np.isnan(piece.values[:, late])).sum()))
