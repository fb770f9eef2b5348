"""Named columns into inputs X: standardisation, categories, missing values.

A `Preprocessor` is planned on the first rows, goes along with the stream, and is saved with the
model. Its size never grows.

- A column of **numbers** is standardised: minus its mean, divided by its standard deviation.
  "running": row t is scaled by the rows up to and including t, so the first row gives zeros, and
  the result does not depend on how the stream was cut into chunks, to the last bit. "fixed": the
  mean and deviation of a sample, agreed once; what a network needs. "off": numbers as they are.
  A column without spread gives 0.
- A **missing** number stands at the mean of its column: 0, or the mean itself with "off". Nothing
  else marks that it was missing.
- A column of **text** becomes one input of 0 or 1 for each level, "place=roof". The levels are
  those of the first rows, at most `max_levels`, the most frequent ones. A missing text, and a level
  that came up later, give zeros; the latter are counted in `unseen`.

>>> first = {"temp": np.array([20.0, 22.0]), "place": np.array(["roof", "cellar"], object)}
>>> prepared = Preprocessor.plan(first)
>>> prepared.names_out
('temp', 'place=cellar', 'place=roof')
>>> print(prepared.learn_transform(first))
[[0. 0. 1.]
 [1. 1. 0.]]
"""

from __future__ import annotations

import difflib
import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from dokl.arrays import Array
from dokl.errors import BadInput, UnknownName, listed

MODES = ("running", "fixed", "off")
MAX_LEVELS = 50
# Whole numbers of more kinds, or repeated less often, are taken for quantities.
MOST_CLASSES, FEWEST_OF_A_CLASS = 10, 5
_UNSEEN, _MISSING = -1, -2
_SUMS = ("count", "total", "square")
_ARRAYS = ("shift", *_SUMS)


@dataclass
class Moments:
    """Count, mean and variance of each of p columns over all rows so far.

    Sums about the first value of each column: that is one of its values, so the variance keeps its
    digits however far from zero the column lies. Sums one row after the other: the same bits
    however the rows come. shift, count, total, square: (p,).
    """

    shift: Array
    count: Array
    total: Array
    square: Array

    @classmethod
    def none(cls, p: int) -> Self:
        """Of no rows."""
        return cls(*np.zeros((4, p)))

    def now(self, values: Array) -> Scale:
        """How values (p, n) lie in what was learned."""
        with np.errstate(over="ignore"):
            off = values - self.shift[:, None]
        return Scale(off, self.shift, *(getattr(self, name)[:, None] for name in _SUMS))

    def learn(self, values: Array, names: Sequence[str]) -> Scale:
        """How values (p, n) lie in all rows up to and including their own."""
        seen = ~np.isnan(values)
        shift = self._shifted(values, seen)
        with np.errstate(over="ignore", invalid="ignore"):  # checked just below
            off = values - shift[:, None]
            known = np.where(seen, off, 0.0)
            square = _onward(self.square, known * known)
            count = _onward(self.count, seen.astype(np.float64))
            total = _onward(self.total, known)
        bad = np.flatnonzero(~np.isfinite(square[:, -1]))
        if bad.size:
            raise BadInput(f"column {names[bad[0]]!r} holds more than can be squared")
        self.shift = shift
        self.count, self.total, self.square = (a[:, -1].copy() for a in (count, total, square))
        return Scale(off, shift, count, total, square)

    def _shifted(self, values: Array, seen: Array) -> Array:
        """The shift, with the first value of columns that had none before."""
        first = values[np.arange(len(values)), seen.argmax(axis=1)]
        fresh = (self.count == 0) & seen.any(axis=1)
        return np.where(fresh, first, self.shift)


def _onward(before: Array, rows: Array) -> Array:
    """Sums (p, n) up to and including each row, added strictly in order, in place of the rows."""
    rows[:, 0] += before
    return np.cumsum(rows, axis=1, out=rows)


@dataclass
class Scale:
    """Values less the shift, off: (p, n), beside the sums that hold for them: (p, n) or (p, 1)."""

    off: Array
    shift: Array
    count: Array
    total: Array
    square: Array

    def standardised(self) -> Array:
        """Less the mean, by the standard deviation; 0 where missing, or without spread."""
        n = np.maximum(self.count, 1.0)
        mean = self.total / n
        spread = np.sqrt(np.maximum(self.square / n - mean * mean, 0.0))
        scaled = (self.off - mean) / np.where(spread > 0, spread, np.inf)
        scaled[np.isnan(self.off)] = 0.0
        return scaled

    def filled(self, values: Array) -> Array:
        """The values themselves, and the mean where one is missing; 0 before there is a mean."""
        mean = self.shift[:, None] + self.total / np.maximum(self.count, 1.0)
        return np.where(np.isnan(values), np.where(self.count > 0, mean, 0.0), values)


class Preprocessor:
    """How columns become inputs; make one with `plan` or `from_spec`.

    columns: those it uses, as the table had them when it was planned; where nobody knows, numbers
    come first. names_out: the d inputs. ignored: columns of the last chunk that the model does not
    know. unseen: how many texts of each column had a level that was not there in the beginning.
    """

    def __init__(
        self,
        numeric: Iterable[str],
        levels: Mapping[str, Iterable[str]],
        standardise: str = "running",
        excluded: Iterable[str] = (),
        columns: Iterable[str] | None = None,
    ) -> None:
        if standardise not in MODES:
            raise UnknownName("standardisation", standardise, MODES)
        self.numeric = tuple(numeric)
        self.levels = {name: tuple(known) for name, known in levels.items()}
        used = (*self.numeric, *self.levels)
        self.columns = used if columns is None else tuple(columns)
        if sorted(self.columns) != sorted(used):
            raise BadInput(f"columns must be those that are used: {listed(used)}")
        self.standardise = standardise
        self.excluded = tuple(excluded)
        self.frozen = standardise == "fixed"
        self.moments = Moments.none(len(self.numeric))
        self.ignored: tuple[str, ...] = ()
        self.unseen = dict.fromkeys(self.levels, 0)
        self._codes = {name: _codes(known) for name, known in self.levels.items()}

    @classmethod
    def plan(
        cls,
        columns: Mapping[str, Array],
        exclude: Iterable[str] = (),
        standardise: str = "running",
        levels: Mapping[str, Iterable[str]] | None = None,
        max_levels: int = MAX_LEVELS,
    ) -> Self:
        """Look at the first rows: names, kinds, levels; with "fixed", also mean and deviation.

        exclude: the target, and whatever else is no input. levels: those of some text columns,
        where the first rows do not show them all.
        """
        told, exclude = dict(levels or {}), tuple(exclude)
        for name in (*exclude, *told):
            require(name, columns, "is not there")
            if name in told and not is_text(columns[name]):
                raise BadInput(f"column {name!r} holds numbers, which have no levels")
        used = {name: column for name, column in columns.items() if name not in exclude}
        if not used:
            raise BadInput("no column is left to learn from")
        numeric = [name for name, column in used.items() if not is_text(column)]
        found = {
            name: told[name] if name in told else _levels(name, used[name], max_levels)
            for name in used
            if name not in numeric
        }
        plan = cls(numeric, found, standardise, exclude, used)
        if standardise == "fixed":
            plan.moments.learn(plan._numbers(used), plan.numeric)
        return plan

    @property
    def names_out(self) -> tuple[str, ...]:
        """Names of the inputs, as they stand in X."""
        hot = (f"{name}={level}" for name, levels in self.levels.items() for level in levels)
        return (*self.numeric, *hot)

    @property
    def d(self) -> int:
        """Number of inputs."""
        return len(self.numeric) + sum(map(len, self.levels.values()))

    def learn_transform(self, columns: Mapping[str, Array]) -> Array:
        """Go on with the rows of a stream: X (n, d), each row scaled by what came up to it."""
        return self._inputs(columns, learn=not self.frozen)

    def transform(self, columns: Mapping[str, Array]) -> Array:
        """X (n, d), all rows scaled by what was learned; nothing is learned."""
        return self._inputs(columns, learn=False)

    def freeze(self) -> None:
        """Learn no more: "running" becomes "fixed"."""
        self.frozen = True
        self.standardise = "fixed" if self.standardise == "running" else self.standardise

    def agreed(self) -> dict[str, Any]:
        """What every node of a network must have in common, for the fingerprint."""
        if not self.frozen:
            raise BadInput(
                f"standardise={self.standardise!r} goes along with the stream and differs from "
                "node to node: freeze() it on a sample, and give that to all nodes"
            )
        inputs = {"numeric": list(self.numeric), "levels": [[*x] for x in self.levels.items()]}
        sums = {name: getattr(self.moments, name).tolist() for name in _ARRAYS}
        return {"standardise": self.standardise, **inputs, **sums}

    def spec(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """All there is to save: a part for JSON, and arrays."""
        meta = {
            "standardise": self.standardise,
            "frozen": self.frozen,
            "numeric": list(self.numeric),
            "levels": [[name, list(levels)] for name, levels in self.levels.items()],
            "excluded": list(self.excluded),
            "columns": list(self.columns),
        }
        return meta, {name: getattr(self.moments, name).copy() for name in _ARRAYS}

    @classmethod
    def from_spec(cls, meta: Mapping[str, Any], arrays: Mapping[str, Array]) -> Self:
        """The same again: it transforms alike to the last bit."""
        try:
            order = meta.get("columns")  # which the first files did not have
            made = cls(
                _texts(meta["numeric"]),
                {str(name): _texts(levels) for name, levels in meta["levels"]},
                meta["standardise"],
                _texts(meta["excluded"]),
                None if order is None else _texts(order),
            )
            made.frozen = bool(meta["frozen"])
            made.moments = Moments(*(np.array(arrays[name], np.float64) for name in _ARRAYS))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise BadInput(f"the saved preprocessing is damaged ({error!r})") from None
        for name in _ARRAYS:
            saved = getattr(made.moments, name)
            if saved.shape != (len(made.numeric),) or not np.isfinite(saved).all():
                raise BadInput(f"the saved preprocessing is damaged: {name!r} does not fit")
        return made

    # -- columns into X ----------------------------------------------------------------------
    def _inputs(self, columns: Mapping[str, Array], learn: bool) -> Array:
        """Everything is checked before anything is learned."""
        numbers = self._numbers(columns)
        codes = {name: self._coded(name, columns) for name in self.levels}
        n = numbers.shape[1]
        learn = learn and n > 0
        moments = self.moments
        scale = moments.learn(numbers, self.numeric) if learn else moments.now(numbers)
        scaled = scale.filled(numbers) if self.standardise == "off" else scale.standardised()
        X = np.zeros((n, self.d))
        X[:, : len(self.numeric)] = scaled.T
        self._fill_levels(X, codes)
        used = {*self.numeric, *self.levels, *self.excluded}
        self.ignored = tuple(name for name in columns if name not in used)
        return X

    def _fill_levels(self, X: Array, codes: Mapping[str, Array]) -> None:
        start = len(self.numeric)
        for name, code in codes.items():
            rows = np.flatnonzero(code >= 0)
            X[rows, start + code[rows]] = 1.0
            self.unseen[name] += int(np.count_nonzero(code == _UNSEEN))
            start += len(self.levels[name])

    def _numbers(self, columns: Mapping[str, Array]) -> Array:
        """The numeric columns, (p, n)."""
        numbers = np.empty((len(self.numeric), _length(columns)))
        for i, name in enumerate(self.numeric):
            numbers[i] = _trained(name, columns, "numbers")
            if np.isinf(numbers[i]).any():
                raise BadInput(f"column {name!r} holds infinity")
        return numbers

    def _coded(self, name: str, columns: Mapping[str, Array]) -> Array:
        """Number of the level in each row; negative where missing or unseen."""
        texts = _trained(name, columns, "text").tolist()
        codes = map(self._codes[name].get, texts, itertools.repeat(_UNSEEN))
        return np.fromiter(codes, np.int64, len(texts))


def _trained(name: str, columns: Mapping[str, Array], kind: str) -> Array:
    """The column that the model knows under this name, if it is what it was."""
    require(name, columns, "was there in training and is missing now")
    column = np.asarray(columns[name])
    now = "text" if is_text(column) else "numbers"
    if now != kind:
        raise BadInput(f"column {name!r} held {kind} in training and holds {now} now")
    if column.shape != (_length(columns),):
        raise BadInput(f"column {name!r} is not as long as the others")
    return column


def _length(columns: Mapping[str, Array]) -> int:
    return len(next(iter(columns.values()), ()))


def is_text(column: Array) -> bool:
    """Whether a column holds text, not numbers."""
    return np.asarray(column).dtype.kind not in "biuf"


def require(name: str, columns: Collection[str], problem: str) -> None:
    """Refuse that a column is not there, and say which one is nearest to it."""
    if name not in columns:
        near = difflib.get_close_matches(name, list(columns), n=1, cutoff=0.0)
        hint = f"; the nearest that is there is {near[0]!r}" if near else ""
        raise BadInput(f"column {name!r} {problem}{hint}")


def _codes(levels: Sequence[str]) -> dict[str | None, int]:
    return {**{level: i for i, level in enumerate(levels)}, None: _MISSING}


def _levels(name: str, column: Array, most: int) -> list[str]:
    """The most frequent texts, in alphabetical order."""
    counts = Counter(value for value in column.tolist() if value is not None)
    if len(counts) > most and 2 * len(counts) > counts.total():
        raise BadInput(
            f"column {name!r} holds {len(counts)} different texts in {counts.total()} rows: these "
            "are no categories (but names, times, or numbers with a decimal comma?). Exclude it"
        )
    return sorted(sorted(counts, key=lambda level: (-counts[level], level))[:most])


def _texts(values: Any) -> list[str]:
    if not (isinstance(values, list) and all(isinstance(value, str) for value in values)):
        raise TypeError("a list of texts is expected")
    return values


def are_classes(y: Array) -> bool:
    """Whether targets (n,) are classes, where nobody has said so; missing ones are passed over.

    Text and truth values are classes. So are whole numbers, if they are 0 and 1 or -1 and 1, or of
    2 to 10 kinds that come five times each on average: many kinds, or hardly any repeats, are
    quantities.

    >>> are_classes(np.arange(100) % 3), are_classes(np.arange(100.0)), are_classes([0.5, 1.5] * 9)
    (True, False, False)
    """
    y = np.asarray(y)
    if is_text(y) or y.dtype.kind == "b":
        return True
    present = y[~np.isnan(y)]
    kinds = np.unique(present)
    if not 2 <= len(kinds) <= MOST_CLASSES or (kinds != np.rint(kinds)).any():
        return False
    plain = kinds.tolist() in ([0, 1], [-1, 1])
    return plain or len(present) >= FEWEST_OF_A_CLASS * len(kinds)


def numeric_target(column: Array, name: str = "y") -> tuple[Array, Array]:
    """y (n,) and the rows to keep, (n,) of bool: those where the target is not missing.

    >>> y, keep = numeric_target(np.array([1.0, np.nan, 3.0]))
    >>> print(y[keep], "skipped:", np.count_nonzero(~keep))
    [1. 3.] skipped: 1
    """
    if is_text(column):
        raise BadInput(f"the target {name!r} holds text, and regression needs numbers")
    y = np.asarray(column, np.float64)
    if np.isinf(y).any():
        raise BadInput(f"the target {name!r} holds infinity")
    return y, ~np.isnan(y)


def class_target(column: Array, name: str = "y") -> tuple[Array, Array]:
    """Labels (n,), numbers or texts, and the rows to keep.

    >>> y, keep = class_target(np.array(["ham", None, "spam"], object))
    >>> print(y[keep])
    ['ham' 'spam']
    """
    if not is_text(column):
        return numeric_target(column, name)
    y = np.asarray(column, object)
    return y, np.array([label is not None for label in y], dtype=bool)
