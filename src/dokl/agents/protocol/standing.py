"""Whose rows hurt: every origin is on trial, and left out of the total while that is the better.

Flipped labels pass every check, since such rows could be. They show in what they do to this node's
own newest rows, predicted with and without each origin (`methods.squares.checks.judged`). Targets
much larger than this node's own are left out at once, before they have done harm (`checks.loud`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from dokl.methods.squares import checks
from dokl.methods.squares.checks import Trial
from dokl.methods.squares.origins import Account, Entry
from dokl.methods.squares.sums import Sums

ROWS = 20  # own new rows by which the others are judged, at least
SECONDS = 0.5  # between two judgements
AT_ONCE = 2  # origins judged at a time: each takes a solution, and senders of rows wait meanwhile
MOST = 0.5  # of its rows: with fewer left an origin has taken most of them back
PROBATION = 2.1, 1.0  # gain and square of who is just out: one judgement in its favour is enough


@dataclass(frozen=True)
class Standing:
    """trial: what is held against whom. own: this node's sums when it judged last, at, and rows:
    how many each other one had. turn: how often it has judged. loud: whose targets are too large.
    """

    trial: Trial = field(default_factory=Trial)
    own: Sums | None = None
    at: float = float("-inf")
    rows: Mapping[str, int] = field(default_factory=dict)
    turn: int = 0
    loud: frozenset[str] = frozenset()

    @property
    def out(self) -> set[str]:
        """Whose rows are left out."""
        return self.trial.out | self.loud


def due(standing: Standing, rows: int, others: int) -> float | None:
    """When some of so many others are to be judged; None while own rows are too few for it."""
    before = 0 if standing.own is None else standing.own.rows
    if not others or before <= rows < before + ROWS:
        return None
    return standing.at + SECONDS


def judged(
    standing: Standing, others: Account, name: str, own: Sums, rho: float, now: float
) -> Standing:
    """The standing of others after this node's new rows, a few of them by turns; `own` are the sums
    of all its rows.
    """
    before, rows = standing.own, {each: entry.sums.rows for each, entry in others.items()}
    trial = _still(standing, rows)
    if before is not None and own.rows >= before.rows and others:
        account = {**others, name: Entry(name, 0, before)}
        first = AT_ONCE * standing.turn % len(others)
        names = (2 * sorted(others))[first : first + min(AT_ONCE, len(others))]
        trial = checks.judged(trial, account, name, own - before, rho, names)
    return heard(Standing(trial, own, now, rows, standing.turn + 1), others, own)


def heard(standing: Standing, others: Account, own: Sums) -> Standing:
    """The standing of others by the size of their targets, which takes no judgement."""
    loud = (name for name, entry in others.items() if checks.loud(entry.sums, own))
    return replace(standing, loud=frozenset(loud))


def without(standing: Standing, gone: Collection[str]) -> Standing:
    """The standing of those who are left, with nothing said of those gone."""
    rows = {name: n for name, n in standing.rows.items() if name not in gone}
    gain, square = (
        {name: value for name, value in part.items() if name not in gone}
        for part in (standing.trial.gain, standing.trial.square)
    )
    return replace(standing, trial=Trial(gain, square), rows=rows, loud=standing.loud - set(gone))


def words(standing: Standing, hurt: bool) -> list[str]:
    """Whose rows are left out, in words. hurt: those of all others."""
    who = [f"the rows of {name!r}" for name in sorted(standing.trial.out)]
    who += ["others' rows"] if hurt else []
    return [f"{each} make predictions worse here, and are left out" for each in who] + [
        f"the targets of {name!r} are more than {checks.LOUD:g} times as large as here, and its "
        "rows are left out"
        for name in sorted(standing.loud - standing.trial.out)
    ]


def _still(standing: Standing, rows: Mapping[str, int]) -> Trial:
    """What is held against those who are still there. It cannot be wiped off by taking rows back;
    what speaks for an origin goes with its rows, though. Who is out and has taken most of them
    back, having mended a sensor, stays out until the first judgement that speaks for the new ones.
    """
    trial, before = standing.trial, standing.rows
    fewer = {name for name, n in rows.items() if n < before.get(name, 0)}
    kept = [n for n in trial.gain if n in rows and (n not in fewer or trial.gain[n] > 0.0)]
    gain, square = ({n: part[n] for n in kept} for part in (trial.gain, trial.square))
    for name in trial.out & fewer:
        if rows[name] < MOST * before[name]:
            gain[name], square[name] = PROBATION
    return Trial(gain, square)
