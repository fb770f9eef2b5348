"""[inputs]: how columns become numbers, agreed once and the same on every node."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from dokl.base.errors import BadInput
from dokl.learning.columns import LagPlan, Span
from dokl.live.description.cells import check_cells, times_of
from dokl.live.description.checks import one_of

TASKS = ("regression", "classification")
STANDARDISE = ("fixed", "off")
OUTSIDE = ("refuse", "clip")


@dataclass(frozen=True)
class AgreedInputs:
    """[inputs]: how columns become X and y, the same on every node: `Preprocessor.agreed()`.

    levels: pairs (column, its levels). shift, count, total, square: the sums behind mean and
    deviation, one number per numeric column. drop: columns that may be there and are not used.
    target_range: the least and the largest target that is believed; empty: any. A broken sensor's
    -9999 would go through the whole network. ranges: the same of each numeric input, [low, high].
    outside: what becomes of a number beyond, "refuse" or "clip" to the range. times, forms: see
    `cells`; missing: spellings of missing values, where they are others than usual. lags: columns
    of earlier values that a node makes of its own rows, (kind, column, how far back); they are
    among `numeric`, and no row brings them. ordered_by: the column of times that rows follow.
    horizon: how much later the target of a row lies, in rows or as a time (6h); then the row's own
    value of the target is an input, among `numeric`. fingerprint: what all this, the features and
    the labels should come to.
    """

    target: str = "y"
    task: str = "regression"
    labels: tuple[Any, ...] = ()
    numeric: tuple[str, ...] = ()
    levels: tuple[Any, ...] = ()
    standardise: str = "off"
    shift: tuple[float, ...] = ()
    count: tuple[float, ...] = ()
    total: tuple[float, ...] = ()
    square: tuple[float, ...] = ()
    drop: tuple[str, ...] = ()
    target_range: tuple[float, ...] = ()
    ranges: tuple[tuple[float, float], ...] = ()
    outside: str = "refuse"
    fingerprint: str | None = None
    times: tuple[Any, ...] = ()
    forms: tuple[Any, ...] = ()
    missing: tuple[str, ...] = ()
    lags: tuple[Any, ...] = ()
    ordered_by: str = ""
    horizon: str = "0"

    def __post_init__(self) -> None:
        check_cells(self)
        one_of("inputs", "task", self.task, TASKS)
        one_of("inputs", "outside", self.outside, OUTSIDE)
        self._check_range()
        self._check_ranges()
        one_of("inputs", "standardise", self.standardise, STANDARDISE)
        self._check_horizon()
        self._check_labels()
        self._check_levels()
        self._check_columns()
        self._check_sums()
        self._check_lags()

    @classmethod
    def plain(cls, d: int, target: str = "y", labels: tuple[Any, ...] = ()) -> AgreedInputs:
        """Columns x1 ... xd, taken as they are."""
        names, zeros = tuple(f"x{i + 1}" for i in range(d)), (0.0,) * d
        task = "classification" if labels else "regression"
        return cls(target, task, labels, names, (), "off", zeros, zeros, zeros, zeros)

    @property
    def says_range(self) -> str:
        """The limits of valid targets."""
        return "target_range in the description"

    @property
    def says_drop(self) -> str:
        """The columns that may be there unused."""
        return "; drop in [inputs] lists columns to ignore"

    @property
    def classifying(self) -> bool:
        """Whether targets are labels."""
        return self.task == "classification"

    @property
    def m(self) -> int:
        """Outputs: one, or one per class where there are more than two."""
        return len(self.labels) if len(self.labels) > 2 else 1

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the input columns, numbers first."""
        return (*self.numeric, *times_of(self.times), *(name for name, _ in self.levels))

    @property
    def lag_plan(self) -> LagPlan:
        """Which earlier values are inputs; the target is not known in its own row."""
        made = [list(entry) for entry in self.lags]
        lagged = not self.ahead and any(name == self.target for _, name, _ in made)
        about = {"by": None, "time": self.ordered_by or None, "hidden": [self.target] * lagged}
        return LagPlan.from_spec({"made": made, **about})

    @property
    def ahead(self) -> Span:
        """The horizon: false where the target of a row is of its own time."""
        return Span.of(self.horizon, least=0)

    @property
    def in_order(self) -> bool:
        """Whether rows are remembered: for earlier values, or until their target comes."""
        return bool(self.lags or self.ahead)

    @property
    def brought(self) -> tuple[str, ...]:
        """The numbers and times that a row brings along: all but earlier values."""
        made = self.lag_plan.names
        found = (name for name in (*self.numeric, *times_of(self.times)) if name not in made)
        return tuple(dict.fromkeys((*found, *([self.ordered_by] if self.ordered_by else []))))

    def _check_range(self) -> None:
        if not self.target_range:
            return
        low, high = self.target_range[0], self.target_range[-1]
        if len(self.target_range) != 2 or not low < high or self.classifying:
            shown = list(self.target_range)
            raise BadInput(
                f"[inputs] target_range is [low, high] of a regression's target, got {shown}"
            )

    def _check_ranges(self) -> None:
        if self.ranges and len(self.ranges) != len(self.numeric):
            raise BadInput(
                f"[inputs] ranges has {len(self.ranges)} entries for {len(self.numeric)} numeric "
                "columns: one [low, high] for each, or none at all"
            )
        for name, bounds in zip(self.numeric, self.ranges, strict=False):
            pair = isinstance(bounds, tuple) and len(bounds) == 2
            if not (pair and all(isinstance(v, int | float) for v in bounds)) or not (
                bounds[0] < bounds[1]
            ):
                raise BadInput(
                    f"[inputs] ranges: column {name!r} needs [low, high], got {_as_list(bounds)!r}"
                )

    def _check_labels(self) -> None:
        labels = self.labels
        if not self.classifying:
            if labels:
                raise BadInput("[inputs] labels are for task = 'classification'")
            return
        numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in labels)
        if not (numbers or all(isinstance(v, str) for v in labels)):
            raise BadInput("[inputs] labels must be all texts or all numbers")
        if len(set(labels)) < 2 or sorted(set(labels)) != list(labels):
            raise BadInput(
                f"[inputs] labels must be two or more, sorted, each once, got {list(labels)!r}"
            )

    def _check_levels(self) -> None:
        for entry in self.levels:
            named = isinstance(entry, tuple) and len(entry) == 2 and isinstance(entry[0], str)
            listed = named and isinstance(entry[1], tuple)
            if not (listed and all(isinstance(level, str) for level in entry[1])):
                raise BadInput(
                    '[inputs] levels: each entry is ["column", ["level", ...]], '
                    f"got {_as_list(entry)!r}"
                )

    def _check_columns(self) -> None:
        own = self.target in self.numeric and bool(self.ahead)
        every = [*self.columns, *self.drop, *([] if own else [self.target])]
        twice = [name for name in every if every.count(name) > 1]
        if twice:
            raise BadInput(f"[inputs] column {twice[0]!r} is named twice (target, inputs, drop)")
        if not self.columns:
            raise BadInput("[inputs] numeric, times and levels name no column to learn from")
        if "id" in (self.target, *self.columns):
            raise BadInput(
                "[inputs] a column 'id' identifies the row of a later label, and can be "
                "neither input nor target: rename it, or drop it"
            )

    def _check_sums(self) -> None:
        p = len(self.numeric) + sum(each.since for each in times_of(self.times).values())
        for name in ("shift", "count", "total", "square"):
            numbers = getattr(self, name)
            if len(numbers) != p:
                raise BadInput(
                    f"[inputs] {name} has {len(numbers)} numbers for {p} numeric columns and times"
                )
            if not all(map(math.isfinite, numbers)):
                raise BadInput(f"[inputs] {name} holds a number that is not finite")
            object.__setattr__(self, name, tuple(map(float, numbers)))

    def _check_horizon(self) -> None:
        try:
            ahead = self.ahead
        except (TypeError, ValueError) as error:  # BadInput is one of these
            raise BadInput(f"[inputs] horizon: {error}") from None
        if ahead and self.classifying:
            raise BadInput("[inputs] horizon is for numbers: it is not for classes")
        if ahead and self.target not in self.numeric:
            raise BadInput(
                f"[inputs] horizon: the target {self.target!r} must be among numeric, since a "
                "row's own value is an input"
            )
        if ahead.timed and not self.ordered_by:
            raise BadInput("[inputs] horizon is a time: name the column of times in ordered_by")

    def _check_lags(self) -> None:
        try:
            plan = self.lag_plan
        except (TypeError, ValueError) as error:  # BadInput is one of these
            raise BadInput(
                '[inputs] lags: each entry is ["lag", "column", "24"], or "mean" or "difference" '
                f"of it, in rows or as a time (24h): {error}"
            ) from None
        if self.ordered_by and not self.in_order:
            raise BadInput("[inputs] ordered_by is the column of times that rows with lags follow")
        if self.in_order and self.ordered_by in (*self.numeric, self.target, *dict(self.levels)):
            raise BadInput(f"[inputs] ordered_by: column {self.ordered_by!r} is not one of times")
        for name in plan.names:
            if name not in self.numeric:
                raise BadInput(f"[inputs] lags: {name!r} is not among numeric")
        known = {*self.numeric} - {*plan.names} | {self.target}
        for name in plan.columns:
            if name not in known or (name == self.target and self.classifying):
                raise BadInput(f"[inputs] lags: column {name!r} holds no numbers")


def _as_list(value: object) -> object:
    return [_as_list(each) for each in value] if isinstance(value, tuple) else value
