"""A user's own file, learned by everybody in the same order, one after the other.

Each row is predicted before it is learned (or before its batch, or its fifth of the file, is), so
no row has to be held back, and what counts is what a user of the stream would have seen.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from dokl.base.arrays import Array
from dokl.base.errors import UnknownName
from dokl.paper.bench.entrants import ENTRANTS, FEWEST, NAMES, Entrant, OwnTable
from dokl.paper.bench.memory import peak_growth
from dokl.paper.bench.peers import NOT_INSTALLED

Tell = Callable[[int, str], None]  # rows more, and what is done


@dataclass(frozen=True)
class Outcome:
    """What one entrant did. rows: fewer than there are if it was interrupted; error: as the table
    judges, None where too few rows were learned; peak_growth: bytes, None if unknown;
    errors: the same in each fifth but the first.
    """

    name: str
    title: str
    version: str
    settings: str
    rows: int
    error: float | None
    seconds: float
    peak_growth: int | None
    errors: tuple[float | None, ...] = ()

    @property
    def rows_per_second(self) -> float:
        """Predicted and learned."""
        return self.rows / max(self.seconds, 1e-9)


@dataclass
class OwnComparison:
    """All of them on one table; skipped: who is not there or failed, and why."""

    table: OwnTable
    outcomes: list[Outcome] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    interrupted: bool = False


def chosen(only: Sequence[str] = ()) -> tuple[list[Entrant], dict[str, str]]:
    """The entrants of these names, or all, that are installed; a reason for each that is not."""
    for name in only:
        if name not in NAMES:
            raise UnknownName("entrant", name, NAMES)
    wanted = [entrant for entrant in ENTRANTS if not only or entrant.name in only]
    missing = {each.title: NOT_INSTALLED for each in wanted if not each.installed}
    return [each for each in wanted if each.installed], missing


def compare_on(
    table: OwnTable, entrants: Sequence[Entrant], report: Tell = lambda rows, word: None
) -> OwnComparison:
    """Let them learn the table; Ctrl-C ends it, and what there is by then counts."""
    own = OwnComparison(table)
    for entrant in entrants:
        try:
            report(0, f"{entrant.title}: warming up")
            _warm_up(entrant, table)
            outcome, own.interrupted = _run(entrant, table, report)
        except KeyboardInterrupt:
            own.interrupted = True
        except Exception as error:  # it must not take the others' results along
            own.skipped[entrant.title] = f"failed: {type(error).__name__}: {error}"
        else:
            own.outcomes += [outcome] if outcome.rows else []
        if own.interrupted:
            break
    return own


def _warm_up(entrant: Entrant, table: OwnTable) -> None:
    """Imports and compiled code are nobody's learning."""
    few = table.first(FEWEST)
    feed, close = entrant.start(few)
    for i, j in few.pieces():
        feed(i, j)
    close()


def _run(entrant: Entrant, table: OwnTable, report: Tell) -> tuple[Outcome, bool]:
    """What came of it, and whether it was interrupted."""
    feed, close = entrant.start(table)
    predicted: list[Array] = []
    seconds, interrupted = 0.0, False

    def learn() -> None:
        nonlocal seconds, interrupted
        try:
            for i, j in table.pieces():
                began = time.perf_counter()
                predicted.append(feed(i, j))
                seconds += time.perf_counter() - began
                report(j - i, f"{entrant.title}: {j:,} of {table.n:,} rows")
        except KeyboardInterrupt:
            interrupted = True

    growth = peak_growth(learn)
    close()
    found = np.concatenate(predicted) if predicted else np.empty(0)
    about = entrant.name, entrant.title, entrant.version, entrant.settings
    judged = table.errors(found)
    return Outcome(*about, len(found), table.error(found), seconds, growth, judged), interrupted
