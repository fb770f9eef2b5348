"""Inputs that come by name, as in River: frequencies that belong to the name, moments, columns.

The frequency of input i in z_j is row i of omega. Here that row is drawn from a stream of words
keyed by the input's *name*: it is the same whenever the input appears, in whatever order, on
whatever machine, and need not be kept. So the table below is a cache: what is used least
recently makes room, and is drawn again, equal, when it comes back.

This wants a kernel whose frequencies can be drawn input by input. Gaussian scale mixtures can,
given the mixing variable, one per frequency and shared by all inputs; so can the Laplacian
kernel, whose Cauchy frequencies are independent.

A model without settings wants the same columns in every row. Which inputs there are is learned from
the first rows: those of the first 30 at once, others up to row 1,000 at the model's next pilot, by
learning the rows so far again with more columns. Later ones are ignored, counted, and warned of
once.
"""

from __future__ import annotations

import json
import math
import warnings
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dokl.base import random_numbers
from dokl.base.arrays import Array
from dokl.base.errors import BadInput
from dokl.learning.columns import Moments, Scale
from dokl.learning.experts.kinds import PILOTS
from dokl.learning.kernels import Kernel, Laplacian

_LEAST = 16  # rows of a new table


def label_of(name: Hashable) -> random_numbers.Label:
    """The label under which the words of a named input are drawn.

    Names that are equal as keys of a dict have equal labels.

    >>> label_of("age"), label_of(3) == label_of(3.0)
    (('feature', 'age'), True)
    """
    plain = _plain(name)
    if isinstance(plain, str | int):
        return ("feature", plain)
    return ("feature", "json", json.dumps(plain))


def _plain(name: object) -> Any:
    if isinstance(name, str) or name is None:
        return name
    if isinstance(name, bool | np.bool_ | int | np.integer):
        return int(name)
    if isinstance(name, float | np.floating) and math.isfinite(name):
        return int(name) if float(name).is_integer() else float(name)
    if isinstance(name, tuple):
        return [_plain(part) for part in name]
    raise BadInput(
        f"a feature's name must be text, a number or a tuple of these, got {name!r}: its "
        "frequencies are drawn from its name"
    )


class NamedFrequencies:
    """omega's rows by name, for F frequencies.

    >>> from dokl.learning.kernels import Gaussian
    >>> rows = NamedFrequencies(Gaussian(1.0), F=3, seed=7)
    >>> bool((rows.row("age") == NamedFrequencies(Gaussian(1.0), 3, seed=7).row("age")).all())
    True
    """

    def __init__(self, kernel: Kernel, F: int, seed: int) -> None:
        self.kernel, self.F, self.seed = kernel, F, random_numbers.check_seed(seed)
        mixing = getattr(kernel, "mixing_scale", None)
        if mixing is None and not isinstance(kernel, Laplacian):
            raise BadInput(
                f"kernel {kernel.name!r} cannot be drawn input by input: use gaussian, matern, "
                "cauchy, rational_quadratic or laplacian"
            )
        self.scale = None if mixing is None else mixing(random_numbers.uniforms(seed, "mixing", F))

    def row(self, name: Hashable) -> Array:
        """The frequencies of one input: (F,)."""
        u = random_numbers.uniforms(self.seed, label_of(name), self.F)
        with np.errstate(over="ignore"):  # checked just below
            if self.scale is None:
                row = self.kernel.frequencies(u)
            else:
                row = np.asarray(self.scale * random_numbers.normal_quantile(u))
        if not np.isfinite(row).all():
            raise BadInput(f"{self.kernel!r} gives infinite frequencies: sigma is too small")
        return row


class Table:
    """The rows in use, in turns: (capacity, F or a little more), at most `limit` of them.

    One call that needs more than `limit` at once makes the table as large as that call.
    """

    def __init__(self, frequencies: NamedFrequencies, limit: int) -> None:
        self.frequencies, self.limit = frequencies, limit
        self.turns = np.zeros((min(_LEAST, limit), frequencies.F))
        self.slot_of: OrderedDict[Hashable, int] = OrderedDict()  # least recently used first

    def slots(self, names: Iterable[Hashable]) -> list[int]:
        """Where the rows of these inputs are, drawing those that are not there."""
        names = list(names)
        known, missing = self.slot_of, []
        for name in names:
            if name in known:
                known.move_to_end(name)
            else:
                missing.append(name)
        if missing:
            self._reserve(len(known) + len(missing), len(names))
            for name in missing:
                self._admit(name)
        return [known[name] for name in names]

    def _reserve(self, wanted: int, at_once: int) -> None:
        """Room for `wanted` rows, though not beyond the limit; by doubling."""
        rows = len(self.turns)
        most = max(self.limit, at_once)
        if rows < min(wanted, most):
            grown = np.zeros((min(most, max(2 * rows, wanted)), self.turns.shape[1]))
            grown[:rows] = self.turns
            self.turns = grown

    def _admit(self, name: Hashable) -> None:
        row = self.frequencies.row(name) / (2 * np.pi)
        used = len(self.slot_of)
        # The rows of the present call were moved to the end, so the first is none of them.
        slot = used if used < len(self.turns) else self.slot_of.popitem(last=False)[1]
        self.turns[slot, : len(row)] = row
        self.slot_of[name] = slot


@dataclass(frozen=True)
class SparseRows:
    """Samples as the engines take sparse ones; scipy's class would cost more than the learning."""

    data: Array
    indices: Array
    indptr: Array
    shape: tuple[int, int]

    @property
    def nnz(self) -> int:
        """Number of stored entries."""
        return len(self.data)

    def tocsr(self) -> SparseRows:
        """Itself."""
        return self


def numbers_of(x: Mapping[Hashable, Any], zeros: bool = False) -> tuple[list[Hashable], Array]:
    """Names and values of the inputs that are there; None and NaN are absent inputs, and so is 0
    unless zeros are asked for.
    """
    present = {name: value for name, value in x.items() if (value is not None if zeros else value)}
    names, given = list(present), list(present.values())
    try:
        total, values = sum(given), np.array(given, np.float64)
    except (TypeError, ValueError):
        raise BadInput(_not_a_number(present)) from None
    if values.ndim != 1:
        raise BadInput(_not_a_number(present))
    if not math.isfinite(total):
        missing = np.isnan(values)
        names = [name for name, gone in zip(names, missing, strict=True) if not gone]
        values = values[~missing]
        _check_finite(names, values)
    return names, values


def _not_a_number(present: Mapping[Hashable, Any]) -> str:
    name, value = next((n, v) for n, v in present.items() if not _is_number(v))
    return (
        f"feature {name!r} is {value!r}, not a number: put a OneHotEncoder (text) or another "
        "transformer before the model"
    )


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return np.ndim(value) == 0 and not isinstance(value, str)


def _check_finite(names: Sequence[Hashable], values: Array) -> None:
    wild = np.flatnonzero(np.isinf(values))
    if wild.size:
        raise BadInput(f"feature {names[wild[0]]!r} is infinite")


def numbers_of_frame(X: Any, zeros: bool = False) -> tuple[list[Hashable], Array]:
    """Column names and values (n, columns) of a data frame; absent inputs are 0, or NaN where zeros
    are asked for.
    """
    names = list(X.columns)
    try:
        values = np.array(X.to_numpy(), np.float64)
    except (TypeError, ValueError) as error:
        raise BadInput(f"the data frame must hold numbers: {error}") from None
    wild = np.isinf(values).any(axis=0)
    _check_finite(names, np.where(wild, np.inf, 0.0))
    return names, values if zeros else np.where(np.isnan(values), 0.0, values)


# -- mean and spread by name ----------------------------------------------------------------------
_FIELDS = ("shift", "count", "total", "square")


class Running:
    """Moments by name. A name takes 32 bytes and its place in a dict, and stays.

    >>> running, values = Running(), np.array([[20.0, 1.0], [22.0, np.nan]])
    >>> part = running.part(["temp", "wind"])
    >>> print(part.learn(values.T, ["temp", "wind"]).standardised().T)
    [[0. 0.]
     [1. 0.]]
    >>> running.put(["temp", "wind"], part)
    >>> print(running.part(["temp"]).now(np.array([[20.0]])).standardised())
    [[-1.]]
    """

    def __init__(self) -> None:
        self.slot_of: dict[Hashable, int] = {}
        self.sums = np.zeros((len(_FIELDS), 16))

    def part(self, names: Sequence[Hashable]) -> Moments:
        """What is known of these inputs, in arrays of its own; nothing of new ones."""
        out = np.zeros((len(_FIELDS), len(names)))
        for i, name in enumerate(names):
            at = self.slot_of.get(name)
            if at is not None:
                out[:, i] = self.sums[:, at]
        return Moments(*out)

    def put(self, names: Sequence[Hashable], part: Moments) -> None:
        """From now on this is known of them."""
        for name in names:
            self.slot_of.setdefault(name, len(self.slot_of))
        if len(self.slot_of) > self.sums.shape[1]:
            more = np.zeros((len(_FIELDS), 2 * len(self.slot_of)))
            more[:, : self.sums.shape[1]] = self.sums
            self.sums = more
        slots = [self.slot_of[name] for name in names]
        for row, name in zip(self.sums, _FIELDS, strict=True):
            row[slots] = getattr(part, name)


def filled(scale: Scale, X: Array) -> Array:
    """X: (n, d) with the mean of the rows so far where a number is missing.

    Before an input was there for the first time, its first value stands for it.
    """
    mean = scale.shift[:, None] + scale.total / np.maximum(scale.count, 1.0)
    return np.where(np.isnan(X), mean.T, X)


# -- the same columns in every row ----------------------------------------------------------------
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
