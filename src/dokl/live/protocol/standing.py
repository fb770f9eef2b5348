"""Whose rows hurt: every origin is on trial, and left out of the total while that is the better.

Flipped labels pass every check, since such rows could be. They show in what they do to this node's
own newest rows: these are predicted with and without each origin, and by its rows alone, which must
not say the opposite (`network.sums.checks.judged`). An origin that is left out for that is a
problem, and by chance it happens once in 1,000 hours of a node or less (`dokl.learning.alarms`). It
takes about 30 judgements: 15 s, or 600 own rows where these come more slowly than 40 a second.

Targets much larger than this node's own are left out at once, before they have done harm
(`checks.loud`), and so are all others' rows while these predict much worse than own ones. Both can
be chance where own rows are few: they are remarks.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dokl.base.arrays import Array
from dokl.learning import alarms
from dokl.learning.alarms import SECONDS, SHOWN_SECONDS
from dokl.learning.squares.sums import Sums
from dokl.network.sums import checks
from dokl.network.sums.checks import Trial
from dokl.network.sums.origins import Account, Entry

ROWS = 20  # own new rows by which the others are judged, at least
TESTS = 2  # of each origin at most: with and without it, and by its rows alone
AT_ONCE = 2  # origins judged at a time: each takes a solution, and senders of rows wait meanwhile
MOST = 0.5  # of its rows: with fewer left an origin has taken most of them back
PROBATION = checks.BACK - 0.01  # evidence: one judgement in its favour is enough


@dataclass(frozen=True)
class Standing:
    """trial: what is held against whom. own: this node's sums when it judged last, at, and rows:
    how many each other one had. turn: how often it has judged. loud: whose targets are too large.
    solos: what each one's rows alone predict by, as of its last turn. seen: when it was confirmed
    last that someone is to be left out.
    """

    trial: Trial = field(default_factory=Trial)
    own: Sums | None = None
    at: float = float("-inf")
    rows: Mapping[str, int] = field(default_factory=dict)
    turn: int = 0
    loud: frozenset[str] = frozenset()
    solos: Mapping[str, Array] = field(default_factory=dict)
    seen: Mapping[str, float] = field(default_factory=dict)

    @property
    def out(self) -> set[str]:
        """Whose rows are left out."""
        return self.trial.out | self.loud


def due(standing: Standing, rows: int, others: int) -> float | None:
    """When some of n others are to be judged; None while own rows are too few for it."""
    before = 0 if standing.own is None else standing.own.rows
    if not others or before <= rows < before + ROWS:
        return None
    return standing.at + SECONDS


def judge(
    standing: Standing, others: Account, name: str, own: Sums, rho: float, now: float
) -> Standing:
    """The standing of others after this node's new rows, a few of them by turns; `own` are the sums
    of all its rows.
    """
    before, rows = standing.own, {each: entry.sums.rows for each, entry in others.items()}
    trial = _still(standing, rows)
    solos = {each: theta for each, theta in standing.solos.items() if each in others}
    if before is not None and own.rows >= before.rows and others:
        account = {**others, name: Entry(name, 0, before)}
        first = AT_ONCE * standing.turn % len(others)
        names = (2 * sorted(others))[first : first + min(AT_ONCE, len(others))]
        solos |= {each: checks.solo(others[each], rho) for each in names}
        limit = alarms.threshold(TESTS * len(others) * alarms.PER_HOUR)
        trial = checks.judge(trial, account, name, own - before, rho, limit, names, solos)
    seen = {each: _confirmed(standing, trial, each, now) for each in trial.out}
    found = Standing(trial, own, now, rows, standing.turn + 1, solos=solos, seen=seen)
    return check_sizes(found, others, own)


def _confirmed(standing: Standing, trial: Trial, name: str, now: float) -> float:
    """When it was last confirmed that someone is to be left out."""
    before = standing.trial.back.get(name)
    against = before is None or trial.back[name] <= max(before, 0.0)
    return now if against else standing.seen.get(name, now)


def check_sizes(standing: Standing, others: Account, own: Sums) -> Standing:
    """The standing of others by the size of their targets, which takes no judgement."""
    loud = (name for name, entry in others.items() if checks.loud(entry.sums, own))
    return replace(standing, loud=frozenset(loud))


def without(standing: Standing, gone: Collection[str]) -> Standing:
    """The standing of those who are left, without those gone."""

    def left(part: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in part.items() if name not in gone}

    was = standing.trial
    trial = Trial(left(was.hurts), left(was.opposed), left(was.back))
    rows, solos, seen = left(standing.rows), left(standing.solos), left(standing.seen)
    loud = standing.loud - set(gone)
    return replace(standing, trial=trial, loud=loud, rows=rows, solos=solos, seen=seen)


def problems(standing: Standing, now: float) -> list[str]:
    """Whose rows are left out because they hurt, in words, while that is no older than
    SHOWN_SECONDS.
    """
    return [
        f"the rows of {name!r} make predictions worse here, and are left out"
        for name in sorted(standing.trial.out)
        if now < standing.seen.get(name, now) + SHOWN_SECONDS
    ]


def remarks(standing: Standing, hurt: bool, now: float) -> list[str]:
    """Who else is left out. hurt: all others."""
    old = sorted(
        name for name in standing.trial.out if now >= standing.seen.get(name, now) + SHOWN_SECONDS
    )
    found = [f"the rows of {name!r} made predictions worse here, and are left out" for name in old]
    found += [
        f"the targets of {name!r} are more than {checks.LOUD:g} times as large as here, and its "
        "rows are left out"
        for name in sorted(standing.loud - standing.trial.out)
    ]
    if hurt:
        found.append("others' rows predict much worse here than own ones, and are left out")
    return found


def _still(standing: Standing, rows: Mapping[str, int]) -> Trial:
    """What is held against those who are still there. It cannot be wiped off by taking rows back.
    Who is out and has taken most of them back, having repaired a sensor, stays out until the first
    judgement that speaks for the new ones.
    """
    trial, before = standing.trial, standing.rows
    hurts, opposed, back = (
        {name: evidence for name, evidence in part.items() if name in rows}
        for part in (trial.hurts, trial.opposed, trial.back)
    )
    for name in back:
        if rows[name] < MOST * before.get(name, 0):
            back[name] = PROBATION
    return Trial(hurts, opposed, back)
