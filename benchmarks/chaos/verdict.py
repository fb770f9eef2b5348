"""What came of it: rows lost and doubled, refusals, times to recover, and the error."""

from __future__ import annotations

import resource
import sqlite3
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.chaos.arena import TRIAL, Arena
from benchmarks.chaos.faults import Outcome
from benchmarks.chaos.feeding import BATCH
from benchmarks.chaos.schedule import KINDS
from dokl import AutoRegressor
from dokl.live.store.examine import read_own_mark
from dokl.network.sharing import least_new_rows

PHASES = ("before", "during", "after")
LONE = 5000  # more take longer, and change little


class Watch(threading.Thread):
    """Asks all nodes for predictions every few seconds; `phase` says what for."""

    def __init__(self, arena: Arena, every: float) -> None:
        super().__init__(daemon=True, name="watch")
        self.arena, self.every, self.phase = arena, every, "before"
        self.errors: dict[str, list[float]] = {phase: [] for phase in PHASES}
        self.asked = self.unanswered = 0
        self.named: Counter[tuple[str, str]] = Counter()  # honest ones, by a node, in a problem
        self._ending = threading.Event()

    def run(self) -> None:
        """Until `finish`."""
        faces = self.arena.faces()
        while not self._ending.wait(self.every):
            self.look(faces)
        for face in faces.values():
            face.close()

    def look(self, faces: Any) -> dict[str, float]:
        """One look at all nodes."""
        phase, found = self.phase, self.arena.errors(faces, self.arena.names)
        for name, face in faces.items():
            self.named.update(accused(name, face.status() or {}, self.arena.names))
        self.errors[phase] += found.values()
        self.asked += len(self.arena.names)
        self.unanswered += len(self.arena.names) - len(found)
        return found

    def accused(self) -> list[str]:
        """Honest nodes that were named as harmful at any look, in words."""
        return [
            f"{name} named {other}, which is honest, at {looks} looks: {text}"
            for (name, text), looks in sorted(self.named.items())
            for other in self.arena.names
            if repr(other) in text
        ]

    def finish(self) -> None:
        """Enough."""
        self._ending.set()
        self.join(10)


HARM = ("make predictions worse", "far from all others", "predicts this node's rows")


def accused(name: str, status: dict[str, Any], honest: list[str]) -> list[tuple[str, str]]:
    """What a node says of honest ones, that they do harm; that one is down or refused is a fault's
    business.
    """
    texts = [text for text in status.get("problems", ()) if any(words in text for words in HARM)]
    return [(name, text) for text in texts if any(repr(other) in text for other in honest)]


@dataclass
class Books:
    """One node's account: rows that were acknowledged to clients, that it stored, and those whose
    keys its journal does not have. error, alone: at the end, its own and that of one who has its
    rows alone.
    """

    node: str
    acknowledged: int
    stored: int
    gone: int
    error: float
    alone: float
    reported: int = 0  # rows that it reported lost by damage, all sent again

    @property
    def lost(self) -> int:
        """Acknowledged rows that are not there."""
        return max(self.acknowledged - self.stored, self.gone)

    @property
    def doubled(self) -> int:
        """Rows there are too many."""
        return max(0, self.stored - self.acknowledged)


@dataclass
class Verdict:
    """Everything that is printed at the end; wrong: what should not be."""

    books: list[Books]
    outcomes: list[Outcome]
    errors: dict[str, list[float]]
    refused: Counter[str]
    silent: int
    repeated: int
    again: int
    waits: list[float]
    totals: dict[str, str] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        """Whether nothing was lost or doubled, everybody recovered, and nothing was wrong."""
        exact = all(not each.lost and not each.doubled for each in self.books)
        return exact and not self.wrong and all(o.recovered is not None for o in self.outcomes)


def books(
    arena: Arena, statuses: dict[str, dict[str, Any]], errors: dict[str, float]
) -> list[Books]:
    """The accounts of all nodes; the agents have ended."""
    found = []
    for name in arena.names:
        stored, known = _in_journal(arena, name)
        keys = set(arena.feeders[name].account.acknowledged)
        rows, gone = BATCH * len(keys), BATCH * len(keys - known)
        if name == arena.sensing:
            readings = arena.sensor.keys(arena.sensor.confirmed)
            gone += len(readings - known)
            rows += len(readings | (arena.sensor.keys(arena.sensor.published) & known))
        status = statuses[name]
        found.append(
            Books(
                name, rows, stored, gone,
                errors.get(name, float("nan")), alone(arena, name),
                int(status["journal"]["lost_rows"]),
            )
        )  # fmt: skip
    return found


def _in_journal(arena: Arena, name: str) -> tuple[int, set[str]]:
    """Rows ever stored in the journal of a node that has ended, and its idempotency keys.

    Both of one moment: a broker may deliver readings until the very end.
    """
    path = arena.folder / "lab.state" / f"{name}.db"
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as db:
        known = {key for (key,) in db.execute("SELECT key FROM keys")}
        stored = read_own_mark(db, path).rows
    db.close()
    return stored, known


def alone(arena: Arena, name: str) -> float:
    """The error of one who has this node's rows and nobody else's: by squares a single learner of
    the last LONE of them, otherwise the same method.
    """
    feeder = arena.feeders[name]
    numbers = [int(key.rpartition("-")[2]) for key in feeder.account.acknowledged]
    parts = [feeder.rows(number) for number in numbers]
    if not parts:
        return float("nan")
    X, y = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
    if arena.method in ("squares", "rows"):
        most = arena.network.model.own_components
        lone = AutoRegressor(most, random_state=0).partial_fit(X[-LONE:], y[-LONE:])
        predicted = lone.predict(TRIAL[0])
    else:
        learner = arena.network.learner()
        state, _ = learner.learn(learner.start(), X, y[:, None])
        predicted = learner.predict(state, TRIAL[0])[:, 0]
    return float(np.mean((predicted - TRIAL[1]) ** 2))


def settled_totals(arena: Arena, seconds: float) -> tuple[dict[str, str], list[str]]:
    """By method "squares": whether every node's total has every row of every other once.

    Rows that are too few to be sent (5 % of those sent before) are not expected; where rows travel,
    all are.
    """
    if arena.method not in ("squares", "rows"):
        return {}, []
    limit = time.monotonic() + seconds
    faces = arena.faces()
    try:
        while True:
            found = {name: face.status() for name, face in faces.items()}
            totals, wrong = _totals(arena, found)
            if not wrong or time.monotonic() > limit:
                return totals, wrong
            time.sleep(0.5)
    finally:
        for face in faces.values():
            face.close()


def _totals(
    arena: Arena, found: dict[str, dict[str, Any] | None]
) -> tuple[dict[str, str], list[str]]:
    fewest, by_rows = arena.network.exchange.fewest_rows, arena.method == "rows"
    stored = {name: int(s["samples"]) for name, s in found.items() if s is not None}
    totals, wrong = {}, []
    for name, status in found.items():
        if status is None:
            wrong.append(f"{name} does not answer")
            continue
        known = status["sharing"]["origins"]
        off = {o: known.get(o, 0) - n for o, n in stored.items()}
        held = {  # back by its origin
            o: 1 if by_rows else least_new_rows(known.get(o, 0), fewest) for o in stored
        }
        bad = {o: n for o, n in off.items() if n > 0 or n <= -held[o]}
        totals[name] = f"{sum(known.get(o, 0) for o in stored):,}"
        if bad:
            wrong.append(f"the total of {name} is off by {bad} rows")
    return totals, wrong


# -- as text ----------------------------------------------------------------------------------
def report(verdict: Verdict) -> str:
    """The tables."""
    lines = ["", "rows       acknowledged     stored   lost  doubled   reported    in its total"
             "      error   alone   ratio"]  # fmt: skip
    for each in verdict.books:
        lines.append(
            f"  {each.node:8} {each.acknowledged:12,} {each.stored:10,} {each.lost:6,} "
            f"{each.doubled:8,} {each.reported:11,} {verdict.totals.get(each.node, '-'):>14} "
            f"{each.error:10.4f} {each.alone:7.4f} {each.error / each.alone:7.2f}"
        )
    whole = verdict.books
    lines.append(
        f"  {'all':8} {sum(b.acknowledged for b in whole):12,} {sum(b.stored for b in whole):10,} "
        f"{sum(b.lost for b in whole):6,} {sum(b.doubled for b in whole):8,} "
        f"{sum(b.reported for b in whole):11,}"
    )
    lines += ["", *_recoveries(verdict.outcomes), "", *_errors(verdict.errors), ""]
    lines += _requests(verdict)
    lines += ["", *(f"WRONG: {text}" for text in verdict.wrong)]
    exact = "no row lost, none doubled" if not any(b.lost or b.doubled for b in whole) else "NOT so"
    lines.append(f"verdict: {'good' if verdict.good else 'BAD'}; {exact}")
    return "\n".join(lines)


def _recoveries(outcomes: list[Outcome]) -> list[str]:
    lines = ["fault      times   recovered   median     worst"]
    for kind in KINDS:
        mine = [o for o in outcomes if o.fault.kind == kind]
        took = [o.recovered for o in mine if o.recovered is not None]
        if mine:
            times = f"{np.median(took):7.1f} s {max(took):7.1f} s" if took else ""
            lines.append(f"  {kind:8} {len(mine):5} {len(took):11} {times}")
    return lines


def _errors(errors: dict[str, list[float]]) -> list[str]:
    lines = ["error      looks      median     worst   (mean square, of targets of variance 0.5)"]
    for phase in PHASES:
        found = errors[phase]
        if found:
            lines.append(
                f"  {phase:8} {len(found):5} {np.median(found):11.4f} {max(found):9.4f}"
            )  # fmt: skip
    return lines


def _requests(verdict: Verdict) -> list[str]:
    waits = verdict.waits or [float("nan")]
    lines = [
        f"requests   {len(verdict.waits):,} acknowledged, median {1e3 * np.median(waits):.0f} ms, "
        f"99 % {1e3 * np.quantile(waits, 0.99):.0f} ms, worst {max(waits):.1f} s",
        f"           {verdict.silent:,} without an answer, {verdict.repeated:,} known again by "
        f"their keys, {verdict.again:,} sent again after damage",
    ]
    lines += [f"           {n:,} refused: {why}" for why, n in verdict.refused.most_common(12)]
    return [*lines, _processor(sum(each.acknowledged for each in verdict.books))]


def _processor(rows: int) -> str:
    """What all processes that have ended took: agents, above all."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = used.ru_utime + used.ru_stime
    return (
        f"processor  {seconds:,.0f} s by agents, floods and the broker: "
        f"{1e3 * seconds / max(1, rows):.2f} ms an acknowledged row"
    )
