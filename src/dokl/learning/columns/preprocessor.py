"""`Preprocessor`: how columns become inputs, scaled by means and deviations of all rows so far."""

from __future__ import annotations

import copy
import difflib
import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from dokl.base.arrays import Array
from dokl.base.errors import BadInput, UnknownName, listed
from dokl.learning.columns.times import TimeParts

MODES = ("running", "fixed", "off")
MAX_LEVELS = 50
MOST_NAMED = 5  # new levels of a column, by name
_UNSEEN, _MISSING = -1, -2
# Levels of a group that get numbers, as they come; those beyond count as unknown.
MOST_GROUPS = 100_000
NO_GROUP = 0  # the number of a missing text, a level like others
NO_LEVEL = "\0"  # a text that is no level of any column


class Preprocessor:
    """How columns become inputs; make one with `plan` or `from_spec`.

    columns: those it uses, as the table had them when it was planned; where nobody knows, numbers
    come first. names_out: the d inputs. ignored: columns of the last chunk that the model does not
    know. unseen: how many texts of each column had a level that was not there in the beginning;
    new_levels: the first few of these, by name. times: what is taken of columns of times. forms:
    how cells are written where that is unusual, missing: spellings of missing values, where they
    are others than usual; both for readers of cells. not_kept: how many levels the first
    rows had beyond those that are kept.

    group: a column of texts that becomes one input, the last: the number of the level, from 1 on in
    the order in which `learn_transform` met them (group_levels), 0 where it is missing, and -1
    where it is unknown. What learns gives each number a place.
    """

    def __init__(
        self,
        numeric: Iterable[str],
        levels: Mapping[str, Iterable[str]],
        standardise: str = "running",
        excluded: Iterable[str] = (),
        columns: Iterable[str] | None = None,
        times: Mapping[str, TimeParts] | None = None,
        group: str | None = None,
    ) -> None:
        if standardise not in MODES:
            raise UnknownName("standardisation", standardise, MODES)
        self.numeric = tuple(numeric)
        self.levels = {name: tuple(known) for name, known in levels.items()}
        self.times = dict(times or {})
        self.forms: dict[str, dict[str, str]] = {}
        self.missing: tuple[str, ...] = ()
        self.not_kept: dict[str, int] = {}
        self.group, self.group_levels = group, dict[str, int]()
        used = (*self.numeric, *self.times, *self.levels, *([] if group is None else [group]))
        self.columns = used if columns is None else tuple(columns)
        if sorted(self.columns) != sorted(used):
            raise BadInput(f"columns must be those that are used: {listed(used)}")
        self.standardise = standardise
        self.excluded = tuple(excluded)
        self.frozen = standardise == "fixed"
        self.since = tuple(name for name, parts in self.times.items() if parts.since)
        self.scaled = (*self.numeric, *(f"{name}: days since the start" for name in self.since))
        self.moments = Moments.none(len(self.scaled))
        self.ignored: tuple[str, ...] = ()
        self.unseen = dict.fromkeys(self.levels, 0)
        self.new_levels: dict[str, dict[str, None]] = {name: {} for name in self.levels}
        self._codes = {name: _codes(known) for name, known in self.levels.items()}

    @classmethod
    def plan(
        cls,
        columns: Mapping[str, Array],
        exclude: Iterable[str] = (),
        standardise: str = "running",
        levels: Mapping[str, Iterable[str]] | None = None,
        max_levels: int = MAX_LEVELS,
        times: Iterable[str] = (),
        longer: float = 1.0,
        group: str | None = None,
    ) -> Self:
        """Look at the first rows: names, kinds, levels; with "fixed", also mean and deviation.

        exclude: the target, and whatever else is no input. levels: those of some text columns,
        where the first rows do not show them all. times: columns of numbers that are seconds;
        longer: how many times as long as these rows all rows are, if that is known. group: a column
        of texts whose levels become numbers, if any.
        """
        named, exclude, grouped = dict(levels or {}), tuple(exclude), [group] if group else []
        for name in (*exclude, *named, *grouped):
            require(name, columns, "is not there")
            if name in (*named, *grouped) and not is_text(columns[name]):
                raise BadInput(f"column {name!r} holds numbers, which have no levels")
        used = {name: column for name, column in columns.items() if name not in exclude}
        if not used:
            raise BadInput("no column is left to learn from")
        parts = {name: TimeParts.plan(used[name], longer) for name in times if name in used}
        plain = [name for name, column in used.items() if not is_text(column)]
        numeric = [name for name in plain if name not in parts]
        found = {
            name: list(named[name]) if name in named else _levels(name, used[name], max_levels)
            for name in used
            if name not in (*plain, *grouped)
        }
        plan = cls(numeric, found, standardise, exclude, used, parts, group)
        texts = {
            name: len(set(used[name].tolist()) - {None}) for name in found if name not in named
        }
        plan.not_kept = {k: n - len(found[k]) for k, n in texts.items() if n > len(found[k])}
        if not plan.d:
            raise BadInput(
                f"no column is left to learn from: the times in {listed(parts or found)} cover no "
                "day, week or year twice, so that nothing in them comes back. Give rows of a "
                "longer time, or take earlier values of the target as inputs (--lag)"
            )
        numbers = plan._numbers(used)
        plan.moments.begin(numbers)
        if standardise == "fixed":
            plan.moments.learn(numbers, plan.scaled)
        return plan

    @property
    def names_out(self) -> tuple[str, ...]:
        """Names of the inputs, as they stand in X."""
        hot = (f"{name}={level}" for name, levels in self.levels.items() for level in levels)
        round_ = (each for name, parts in self.times.items() for each in parts.names(name))
        return (*self.scaled, *round_, *hot, *([] if self.group is None else [self.group]))

    @property
    def d(self) -> int:
        """Number of inputs."""
        return len(self.names_out)

    def learn_transform(self, columns: Mapping[str, Array]) -> Array:
        """Go on with the rows of a stream: X (n, d), each row scaled by what came up to it."""
        return self._inputs(columns, learn=not self.frozen, going_on=True)

    def transform(self, columns: Mapping[str, Array]) -> Array:
        """X (n, d), all rows scaled by what was learned; nothing is learned."""
        return self._inputs(columns, learn=False)

    @property
    def numbers_only(self) -> bool:
        """Whether every column is an input as it is: no text, no times."""
        return len(self.numeric) == len(self.columns)

    def fill(self, X: Array, learn: bool = False) -> Array:
        """Inputs X (n, d), in which missing numbers are NaN, with means in their place: what
        `learn_transform` or `transform` gives with "off". Of numbers alone, X is the columns.
        """
        numbers = X[:, : len(self.scaled)]
        gaps = np.isnan(numbers).any()
        if learn and len(X):
            scale = self.moments.learn(numbers.T, self.scaled, means_only=True)
        elif gaps:
            scale = self.moments.now(numbers.T)
        if not gaps:
            return X
        X = X.copy()
        X[:, : len(self.scaled)] = scale.filled(numbers.T).T
        return X

    def with_gaps(self, X: Array, columns: Mapping[str, Array]) -> Array:
        """Inputs X (n, d) of these columns, with NaN where numbers are missing; see `fill`."""
        numbers = self._numbers(columns).T
        return np.hstack([numbers, X[:, numbers.shape[1] :]])

    def copied(self) -> Self:
        """One that learns on without changing this one."""
        other = copy.copy(self)
        other.moments, other.unseen = copy.copy(self.moments), dict(self.unseen)
        other.new_levels = {name: dict(levels) for name, levels in self.new_levels.items()}
        return other

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
        sums = {name: getattr(self.moments, name).tolist() for name in ARRAYS}
        more = {"times": self._packed_times()} if self.times else {}
        return {"standardise": self.standardise, **inputs, **sums, **more}

    def _packed_times(self) -> list[Any]:
        return [[name, parts.spec()] for name, parts in self.times.items()]

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
        # Files of models that have none of it stay as they were.
        meta |= {"times": self._packed_times()} if self.times else {}
        meta |= {"forms": self.forms} if self.forms else {}
        meta |= {"missing": list(self.missing)} if self.missing else {}
        meta |= {"not_kept": self.not_kept} if self.not_kept else {}
        if self.group is not None:
            meta |= {"group": self.group, "group_levels": list(self.group_levels)}
        return meta, {name: getattr(self.moments, name).copy() for name in ARRAYS}

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
                {str(name): TimeParts.from_spec(parts) for name, parts in meta.get("times", ())},
                None if meta.get("group") is None else str(meta["group"]),
            )
            given = _texts(meta.get("group_levels", []))
            made.group_levels = {level: i for i, level in enumerate(given, 1)}
            made.not_kept = {str(k): int(n) for k, n in meta.get("not_kept", {}).items()}
            made.missing = tuple(_texts(meta.get("missing", [])))
            made.forms = {str(name): dict(form) for name, form in meta.get("forms", {}).items()}
            made.frozen = bool(meta["frozen"])
            made.moments = Moments(*(np.array(arrays[name], np.float64) for name in ARRAYS))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise BadInput(f"the saved preprocessing is damaged ({error!r})") from None
        for name in ARRAYS:
            saved = getattr(made.moments, name)
            fits = saved.shape == (len(made.scaled),) and np.isfinite(saved).all()
            if not fits or (name in ("count", "square") and (saved < 0).any()):
                raise BadInput(f"the saved preprocessing is damaged: {name!r} does not fit")
        return made

    # -- columns into X ----------------------------------------------------------------------
    def _inputs(self, columns: Mapping[str, Array], learn: bool, going_on: bool = False) -> Array:
        """Everything is checked before anything is learned. going_on: levels of the group that
        nobody knows yet get numbers, also where the scaling is fixed.
        """
        numbers = self._numbers(columns)
        codes = {name: self._encode(name, columns) for name in self.levels}
        groups = None if self.group is None else _trained(self.group, columns, "text").tolist()
        n = numbers.shape[1]
        learn = learn and n > 0
        moments = self.moments
        scale = moments.learn(numbers, self.scaled) if learn else moments.now(numbers)
        scaled = scale.filled(numbers) if self.standardise == "off" else scale.standardised()
        X = np.zeros((n, self.d))
        X[:, : len(self.scaled)] = scaled.T
        self._fill_circles(X, columns)
        self._fill_levels(X, codes, columns)
        if groups is not None:
            X[:, -1] = self._number_groups(groups, going_on)
        used = {*self.columns, *self.excluded}
        self.ignored = tuple(name for name in columns if name not in used)
        return X

    def _fill_circles(self, X: Array, columns: Mapping[str, Array]) -> None:
        start = len(self.scaled)
        for name, parts in self.times.items():
            places = parts.circles(np.asarray(columns[name], np.float64))
            X[:, start : start + len(places)] = places.T
            start += len(places)

    def _fill_levels(
        self, X: Array, codes: Mapping[str, Array], columns: Mapping[str, Array]
    ) -> None:
        start = X.shape[1] - sum(map(len, self.levels.values())) - (self.group is not None)
        for name, code in codes.items():
            rows = np.flatnonzero(code >= 0)
            X[rows, start + code[rows]] = 1.0
            new = np.flatnonzero(code == _UNSEEN)
            self.unseen[name] += len(new)
            for i in new[: 1000 if len(self.new_levels[name]) < MOST_NAMED else 0]:
                if len(self.new_levels[name]) < MOST_NAMED:
                    self.new_levels[name][str(columns[name][i])] = None
            start += len(self.levels[name])

    def _number_groups(self, texts: list[str | None], learn: bool) -> list[int]:
        """The number of each level of the group."""
        known = self.group_levels
        if learn:
            for text in dict.fromkeys(texts):
                if text not in (None, NO_LEVEL) and len(known) < MOST_GROUPS:
                    known.setdefault(str(text), 1 + len(known))
        return [NO_GROUP if text is None else known.get(text, _UNSEEN) for text in texts]

    def forget_groups(self, n: int) -> None:
        """Keep the first n levels of the group: those before a call that failed."""
        while len(self.group_levels) > n:
            self.group_levels.popitem()

    def _numbers(self, columns: Mapping[str, Array]) -> Array:
        """The numeric columns and the days since the start, (p, n)."""
        numbers = np.empty((len(self.scaled), _length(columns)))
        for i, name in enumerate((*self.numeric, *self.since)):
            numbers[i] = _trained(name, columns, "numbers")
            if name in self.times:
                numbers[i] = self.times[name].days(numbers[i])
            if np.isinf(numbers[i]).any():
                raise BadInput(f"column {name!r} holds infinity")
        for name in self.times:
            _trained(name, columns, "numbers")
        return numbers

    def _encode(self, name: str, columns: Mapping[str, Array]) -> Array:
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
    """Refuse that a column is not there, and name the nearest one."""
    if name not in columns:
        near = difflib.get_close_matches(name, list(columns), n=1, cutoff=0.0)
        hint = f"; the nearest is {near[0]!r}" if near else ""
        raise BadInput(f"column {name!r} {problem}{hint}")


def _codes(levels: Sequence[str]) -> dict[str | None, int]:
    return {**{level: i for i, level in enumerate(levels)}, None: _MISSING}


def _levels(name: str, column: Array, most: int) -> list[str]:
    """The most frequent texts, in alphabetical order."""
    counts = Counter(value for value in column.tolist() if value is not None)
    if len(counts) > most and 2 * len(counts) > counts.total():
        raise BadInput(
            f"column {name!r} holds {len(counts)} different texts in {counts.total()} rows: these "
            "are no categories (but names, times, or numbers with a decimal comma?). Exclude it",
            options=["--drop COLUMN"],
        )
    return sorted(sorted(counts, key=lambda level: (-counts[level], level))[:most])


def _texts(values: Any) -> list[str]:
    if not (isinstance(values, list) and all(isinstance(value, str) for value in values)):
        raise TypeError("a list of texts is expected")
    return values


# -- means and deviations of columns over all rows so far -----------------------------------------
_SUMS = ("count", "total", "square")
ARRAYS = ("shift", *_SUMS)


@dataclass
class Moments:
    """Count, mean and variance of each of p columns over all rows so far.

    Sums about the first value of each column: that is one of its values, so the variance keeps its
    digits however far from zero the column lies. Sums one row after the other: the same bits
    however the rows come. shift, count, total, square: (p,). Before a value is learned, shift is
    what stands for missing ones: the first value among the rows that a plan was made from.
    """

    shift: Array
    count: Array
    total: Array
    square: Array

    @classmethod
    def none(cls, p: int) -> Self:
        """Of no rows."""
        return cls(*np.zeros((4, p)))

    def begin(self, values: Array) -> None:
        """Values (p, n) of the first rows, which are not learned yet."""
        if values.shape[1]:
            self.shift = self._shift(values, ~np.isnan(values))

    def now(self, values: Array) -> Scale:
        """How values (p, n) lie in what was learned."""
        with np.errstate(over="ignore"):
            off = values - self.shift[:, None]
        sums = (getattr(self, name)[:, None] for name in _SUMS)
        return Scale(off, self.shift, self.shift, *sums)

    def learn(self, values: Array, names: Sequence[str], means_only: bool = False) -> Scale:
        """How values (p, n) lie in all rows up to and including their own.

        means_only: squares beyond what a number can hold do not matter.
        """
        seen = ~np.isnan(values)
        shift = self._shift(values, seen)
        with np.errstate(over="ignore", invalid="ignore"):  # checked just below
            off = values - shift[:, None]
            known = np.where(seen, off, 0.0)
            square = _onward(self.square, known * known)
            count = _onward(self.count, seen.astype(np.float64))
            total = _onward(self.total, known)
        bad = np.flatnonzero(~np.isfinite(square[:, -1]))
        if bad.size and not means_only:
            raise BadInput(f"column {names[bad[0]]!r} holds more than can be squared")
        start, self.shift = self.shift, shift
        last = (np.nan_to_num(a[:, -1]) if bad.size else a[:, -1] for a in (count, total, square))
        self.count, self.total, self.square = (a.copy() for a in last)
        return Scale(off, start, shift, count, total, square)

    def _shift(self, values: Array, seen: Array) -> Array:
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
    """Values less the shift, off: (p, n), beside the sums that hold for them: (p, n) or (p, 1).
    start: (p,), what stands for missing values before there is a mean.
    """

    off: Array
    start: Array
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
        """The values themselves, and the mean where one is missing; `start` before there is one."""
        mean = self.shift[:, None] + self.total / np.maximum(self.count, 1.0)
        mean = np.where(self.count > 0, mean, self.start[:, None])
        return np.where(np.isnan(values), mean, values)
