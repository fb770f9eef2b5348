"""A backtest: what would have been predicted from several origins in the past.

The rows are in the order of time. Before each origin everything is learned that was known then. The
model predicts the rows of the fold that follows twice: frozen, as it was at the origin, and
following, where it learns every target once it is known. Beside it stand persistence, ridge and
LightGBM, which are fitted at each origin and frozen. Nobody sees what was not known yet.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dokl.base.arrays import Array
from dokl.base.errors import BadInput
from dokl.learning.columns import Span
from dokl.tables.jobs.rolling_peers import peers
from dokl.tables.jobs.rolling_rows import (
    Origins,
    Pairs,
    in_time_order,
    make_pairs,
    time_column,
)
from dokl.tables.jobs.sources import Source
from dokl.tables.jobs.start import Training
from dokl.tables.models.scores import LEVEL
from dokl.tables.readers import Chunk

FOLLOWING, FROZEN = "dokl following", "dokl frozen"
LEVELS = (0.5, 0.8, LEVEL)  # of the intervals in the picture
STEP = 512  # pairs that are learned at a time
PIECE = 32  # rows that are predicted at a time, ahead of which targets are learned
Tell = Callable[[int, str], None]  # pairs more, and what is done


def _untold(pairs: int, doing: str) -> None:
    pass


@dataclass(frozen=True, eq=False)
class Forecasts:
    """What was predicted, for one horizon; m rows of all folds that are done, in their order.

    fold: (m,), from 1; at: (m,), the row that predicts; steps: (m,), rows from the origin to it;
    y: (m,) targets; said: {name: (m,)}; ends: {name: (lower, upper), (m,) each} of 90 % intervals.
    fan: of the last fold, the frozen model's intervals, {level: (lower, upper)}. All are of rows
    for which everybody has a prediction.
    """

    pairs: Pairs
    fold: Array
    at: Array
    due: Array
    steps: Array
    y: Array
    said: dict[str, Array]
    ends: dict[str, tuple[Array, Array]]
    fan: dict[float, tuple[Array, Array]]

    @property
    def horizon(self) -> Span:
        """How far ahead."""
        return self.pairs.horizon

    @property
    def folds(self) -> list[int]:
        """Those that have rows."""
        return [int(k) for k in np.unique(self.fold)]

    def times(self, rows: Array) -> Array | None:
        """The times of these rows of the table; None where there are none."""
        if self.pairs.times is None:
            return None
        return np.asarray(np.round(self.pairs.times[rows] * 1e3)).astype("datetime64[ms]")


@dataclass
class Backtest:
    """Forecasts of each horizon. notices: what one may want to know; skipped: peers that are not
    there, and why; interrupted: folds after it are missing.
    """

    target: str
    forecasts: list[Forecasts] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    interrupted: bool = False


def run_backtest(
    table: Chunk,
    training: Training,
    horizons: Sequence[Any],
    origins: Origins,
    source: Source,
    tell: Tell = _untold,
    say: Callable[[str], None] = lambda line: None,
) -> Backtest:
    """Backtest on the rows of a table, for each horizon. Ctrl-C ends it: folds that are done count,
    and without one it is a KeyboardInterrupt.

    tell: called as pairs are learned; say: told what was guessed, a line at a time.
    """
    made, others = Backtest(str(training.target)), peers()
    made.skipped = others[1]
    table = in_time_order(table, time_column(table, training.lags), made.notices)
    if origins.rows is not None:
        table = table.rows(slice(max(0, table.n - origins.rows), None))
    try:
        for k, horizon in enumerate(horizons):
            asked = replace(training, lags=replace(training.lags, horizon=horizon))
            pairs = make_pairs(asked, table, source, origins)
            for line in pairs.guesses if not k else ():
                say(line)
            _Run(pairs, others[0], tell).run(made.forecasts)
    except KeyboardInterrupt:
        if not made.forecasts:
            raise
        made.interrupted = True
    return made


class _Run:
    """One horizon under way."""

    def __init__(self, pairs: Pairs, others: dict[str, Any], tell: Tell) -> None:
        self.pairs, self.others, self.tell = pairs, others, tell
        self.model = pairs.model.estimator
        self.learned = 0  # pairs, in their order
        self.rows: list[Array] = []  # pairs of each fold that is done
        self.said: list[dict[str, Array]] = []
        self.ends: list[dict[str, tuple[Array, Array]]] = []
        self.fan: dict[float, tuple[Array, Array]] = {}

    def run(self, into: list[Forecasts]) -> None:
        """All folds; what is done when somebody interrupts is added as well."""
        origins = self.pairs.origins
        try:
            for k in range(len(origins) - 1):
                self._fold(k, origins[k], origins[k + 1])
        finally:
            if self.rows:
                into.append(self._forecasts())

    def _fold(self, k: int, first: int, last: int) -> None:
        pairs = self.pairs
        self._learn(first, f"fold {k + 1}: learning")
        rows, known = pairs.between(first, last), pairs.known(first)
        if not len(rows) or not len(known):
            raise BadInput(
                f"fold {k + 1} has {len(rows)} rows with a target, and {len(known)} targets are "
                "known at its origin: take fewer folds, or a shorter horizon",
                options=["--folds", "--horizon"],
            )
        X = pairs.X[pairs.at[rows]]
        said, ends = {FROZEN: self.model.predict(X)}, dict[str, tuple[Array, Array]]()
        fan = {level: self.model.predict_interval(X, coverage=level) for level in LEVELS}
        ends[FROZEN] = fan[LEVEL]
        for name, peer in self.others.items():
            self.tell(0, f"fold {k + 1}: {name}")
            said[name] = peer(pairs, known, rows)
        said |= {name: values[rows] for name, values in pairs.earlier.items()}
        follow = self._follow_now if not pairs.horizon else self._follow
        said[FOLLOWING], ends[FOLLOWING] = follow(rows, first, last, f"fold {k + 1}: following")
        self.rows.append(rows)
        self.said.append(said)
        self.ends.append(ends)
        self.fan = fan

    def _learn(self, before: int, doing: str) -> None:
        """The pairs whose target comes before this row."""
        end = int(np.searchsorted(self.pairs.due, before))
        while self.learned < end:
            stop = min(end, self.learned + STEP)
            some = slice(self.learned, stop)
            self.model.partial_fit(self.pairs.X[self.pairs.at[some]], self.pairs.y[some])
            self.tell(stop - self.learned, doing)
            self.learned = stop

    def _follow_now(
        self, rows: Array, first: int, last: int, doing: str
    ) -> tuple[Array, tuple[Array, Array]]:
        """Targets that are known at once: each row is predicted, then learned."""
        parts = []
        for begin in range(0, len(rows), STEP):
            some = rows[begin : begin + STEP]
            X, y = self.pairs.X[self.pairs.at[some]], self.pairs.y[some]
            parts.append(self.model.prequential(X, y, return_interval=LEVEL))
            self.tell(len(some), doing)
        self.learned += len(rows)
        said, lower, upper = (np.concatenate(part) for part in zip(*parts, strict=True))
        return said, (lower, upper)

    def _follow(
        self, rows: Array, first: int, last: int, doing: str
    ) -> tuple[Array, tuple[Array, Array]]:
        """Targets that come later: pieces of rows are predicted, then targets learned that came
        with them.
        """
        pairs, m = self.pairs, len(rows)
        said, lower, upper = np.empty(m), np.empty(m), np.empty(m)
        at = pairs.at[rows]
        for row in range(first, last, PIECE):
            here = np.flatnonzero((at >= row) & (at < row + PIECE))
            if len(here):
                X = pairs.X[at[here]]
                said[here] = self.model.predict(X)
                lower[here], upper[here] = self.model.predict_interval(X, coverage=LEVEL)
            self._learn(min(row + PIECE, last), doing)
        return said, (lower, upper)

    def _forecasts(self) -> Forecasts:
        """Of the rows for which everybody has a prediction."""
        pairs, n = self.pairs, [len(rows) for rows in self.rows]
        rows, fold = np.concatenate(self.rows), np.repeat(np.arange(len(n)) + 1, n)
        said = {name: np.concatenate([f[name] for f in self.said]) for name in _order(self.said[0])}
        every = np.isfinite(np.column_stack(list(said.values()))).all(axis=1)
        ends = {
            name: tuple(np.concatenate([f[name][i] for f in self.ends])[every] for i in (0, 1))
            for name in (FOLLOWING, FROZEN)
        }
        last = every[len(rows) - n[-1] :]
        origin = np.asarray(pairs.origins)[fold - 1]
        return Forecasts(
            pairs,
            fold[every],
            pairs.at[rows][every],
            pairs.due[rows][every],
            (pairs.at[rows] - origin)[every],
            pairs.y[rows][every],
            {name: values[every] for name, values in said.items()},
            ends,
            {level: (lower[last], upper[last]) for level, (lower, upper) in self.fan.items()},
        )


def _order(said: dict[str, Array]) -> list[str]:
    """The model first."""
    first = [FOLLOWING, FROZEN]
    return [*first, *(name for name in said if name not in first)]
