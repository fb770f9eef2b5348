"""The logs of a node that shares rows: what it keeps of every origin, its own among them.

Own rows are sealed in batches and appended; a batch of another origin is added where nothing speaks
against it. The network's bank learns batch by batch (`learning_line`); how far it has come is part
of the node's state. Who sends to whom is not decided here: see `row_sharing`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dokl.base.arrays import Array
from dokl.base.errors import BadInput
from dokl.live.protocol import learning_line as lines
from dokl.live.protocol import logs
from dokl.live.protocol.batches import (
    MOST_ROWS,
    Context,
    SealedBatch,
    certificate_mark,
    pack_entry,
    read_batch,
    read_rows,
)
from dokl.live.protocol.effects import Effect, Notice, Save, SaveLog
from dokl.live.protocol.learning_line import LearningLine
from dokl.live.protocol.logs import OriginLog
from dokl.live.protocol.messages import mark_of
from dokl.live.protocol.node import LiveNode
from dokl.live.protocol.roll import Roll
from dokl.live.rows import RowsLearner

SEAL_ROWS = 32  # own rows that are sealed without waiting for `seal_seconds`
SAVE_ROWS = 5000  # received rows after which the state is written
MOST_CERTIFICATES = 1024
ASIDE_SECONDS = 10.0  # until an origin that was put aside has its turn again
PASSED_SECONDS = 10.0  # between two writes of the state because rows were passed over


class RowLogs:
    """Logs by origin; dictionaries and tuples in it are replaced, never written to.

    logs: of every origin. line: batches that wait to be learned. flood: batches that are to be sent
    on. certificates: those that are known, by their marks. quota: rows and batches that may still
    come of each origin, and since when. saved: up to where the stored state has learned each
    origin. passed: whether it does not show yet that rows were passed over, and passed_at: when it
    last did. readmit_at: when those that were put aside are in line again.
    """

    def __init__(self, node: LiveNode, roll: Roll, stored: Sequence[bytes] = ()) -> None:
        self.node, self.roll, self.marks = node, roll, _marks(roll)
        self.logs: Mapping[str, OriginLog] = {}
        self.line = LearningLine()
        self.flood: tuple[SealedBatch, ...] = ()
        self.certificates: Mapping[bytes, bytes] = {}
        self.quota: Mapping[str, tuple[float, float, float]] = {}
        self.begun: float | None = None
        self.sealed_at = float("-inf")
        self.learned = self.unsaved = 0
        self.passed, self.passed_at = False, float("-inf")
        self.readmit_at = float("inf")
        self.later_than = 0  # the largest known incarnation of an earlier life
        self.later: tuple[Effect, ...] = ()  # what a change of the description wants stored
        self.context = Context.of(self.learner)
        self.saved: Mapping[str, int] = self.learner.next_rows(node.state)
        self._restore(stored)

    @property
    def active(self) -> bool:
        """Whether there is any exchange."""
        return self.node.exchange.mode != "off"

    @property
    def learner(self) -> RowsLearner:
        """The node's, which knows what rows are."""
        assert isinstance(self.node.learner, RowsLearner)
        return self.node.learner

    @property
    def own(self) -> OriginLog:
        """The log of this node's rows."""
        return self.logs.get(self.node.name, OriginLog())

    def _restore(self, stored: Sequence[bytes]) -> None:
        """The logs from before the end. What is new in them since the state was written is learned
        again, the oldest first; own rows that were sealed since are not sealed again.
        """
        found: dict[str, list[SealedBatch]] = {}
        for sealed in stored:
            batch = read_batch(self.context, sealed)
            found.setdefault(batch.origin, []).append(batch)
        self.logs = {name: logs.restored(every) for name, every in found.items()}
        own = self.learner.next_rows(self.node.state).get(self.node.name, 0)
        self.renumbered = own > self.own.end  # some were lost, and others get their numbers
        if self.renumbered:
            state = self.learner.receive_from(self.node.state, self.node.name, self.own.end)
            self.node.state = state
        for every in found.values():
            for certificate in {batch.certificate for batch in every}:
                self._know_certificate(certificate)
        self._line_up_all()
        self._take_out()
        self.replayed()

    def replayed(self) -> None:
        """Own rows of the journal were learned again: those that are in the log are sealed."""
        learner, state = self.learner, self.node.state
        done = self.own.end - learner.sealed(state)
        here = len(learner.unsealed(state)[0])
        if done > 0 and here:
            self.node.state = learner.sealing(state, min(done, here))
        self.forget_oldest()

    def renumber(self) -> bool:
        """All of the journal was learned again. Whether own rows that are not sealed have other
        numbers than in the stored state, after a loss or a rollback: it must be stored before any
        more come, or the next start takes new rows for sealed ones.
        """
        done, self.renumbered = self.renumbered, False
        done = done or self.learner.sealed(self.node.state) != self.own.end
        if done:
            self.node.state = self.learner.following(self.node.state, self.own.end)
            self.saved = self.learner.next_rows(self.node.state)
        return done

    def forget_oldest(self) -> None:
        """Where there is no exchange, only the newest own rows wait to be sealed."""
        learner, state = self.learner, self.node.state
        over = len(learner.unsealed(state)[0]) - self._most
        if over > 0 and not self.active:
            self.node.state = learner.following(learner.sealing(state, over), self.own.end)

    @property
    def _most(self) -> int:
        return self.node.exchange.kept_rows

    def _began(self, now: float) -> None:
        if self.begun is None:  # whatever was to be learned again is
            self.begun = now
            self.node.state = self.learner.following(self.node.state, self.own.end)

    # -- batches of others ----------------------------------------------------------------------
    def _check_seal(self, batch: SealedBatch) -> None:
        by, _ = self.roll.seals.opened(batch.sealed)
        if by not in (None, batch.origin):
            raise BadInput(f"rows of {batch.origin!r}, sealed by {by!r}")

    def _faults(self, batch: SealedBatch, now: float) -> str:
        """Why a batch that would be new is not taken; "" where it is."""
        try:
            _, Y = read_rows(self.context, batch)
        except BadInput as error:
            return str(error)
        largest = float(np.abs(Y).max(initial=0.0))
        if largest > self.roll.target:
            return f"a target of {largest:.3g}, and at most {self.roll.target:.3g} is believed"
        most = float(self._most)
        rows, seals, since = self.quota.get(batch.origin, (most, most, now))
        passed = max(0.0, now - since)
        rows = min(most, rows + self.roll.rate * passed)
        seals = min(most, seals + self._seals_a_second * passed)
        if batch.n > rows and rows < most:  # one batch may be larger than all that is kept
            return f"more than {self.roll.rate:g} rows a second"
        if seals < 1:
            return f"more than {self._seals_a_second:g} batches a second"
        self.quota = {**self.quota, batch.origin: (rows - batch.n, seals - 1, now)}
        return ""

    @property
    def _seals_a_second(self) -> float:
        """How many batches of an origin are believed, each of which takes a check of its seal:
        twice what a node seals that has as many rows as it may.
        """
        return 2.0 * (self.roll.rate / SEAL_ROWS + 1.0 / max(0.1, self.node.exchange.seal_seconds))

    def _grown(self, name: str, before: OriginLog, log: OriginLog) -> list[Effect]:
        """A log has another batch at its end, or is known to be forked."""
        self.logs = {**self.logs, name: log}
        effects = self._forked(name, before, log)
        if log.batches == before.batches:
            return effects
        batch = log.batches[-1]
        if log.end - batch.n < before.end:  # it took the place of others
            same = self._same_rows(before, batch)
            effects += self._cut(name, batch.end if same else batch.first)
        self._line_up(name)
        saved = ((batch.first, batch.sealed),)
        return [*effects, SaveLog(name, log.base, batch.first, saved), *self._let_go(name)]

    def _let_go(self, name: str) -> list[Effect]:
        """Rows that are no longer kept must be in the stored state, as far as they are learned: a
        crash could not learn them again.
        """
        stored, next_rows = self.saved.get(name, 0), self.learner.next_rows(self.node.state)
        gone = min(self.logs[name].base, next_rows.get(name, 0))
        return self._save() if gone > stored else []

    def _save(self) -> list[Effect]:
        self.unsaved, self.passed = 0, False
        self.saved = self.learner.next_rows(self.node.state)
        return [Save()]

    def _same_rows(self, before: OriginLog, batch: SealedBatch) -> bool:
        """Whether a batch only has another seal than the one that was in its place."""
        i = before.at(batch.first)
        if i == len(before.batches) or before.batches[i].first != batch.first:
            return False
        pairs = zip(
            read_rows(self.context, before.batches[i]),
            read_rows(self.context, batch),
            strict=True,
        )
        return all(np.array_equal(old, new) for old, new in pairs)

    def _forked(self, name: str, before: OriginLog, log: OriginLog) -> list[Effect]:
        if log.forks == before.forks or log.fork is None:
            return []
        return [Notice("forked", _fork_text(name, log))]

    def _cut(self, name: str, number: int) -> list[Effect]:
        """Rows of an origin from a number on are others now: these are still to be learned."""
        self.line = lines.cut(self.line, name, number)
        if self.learner.next_rows(self.node.state).get(name, 0) <= number:
            return []
        self.node.state = self.learner.receive_from(self.node.state, name, number)
        return self._save()

    # -- other names ----------------------------------------------------------------------------
    def check_change(self, roll: Roll) -> None:
        """Refuse seals by which kept rows could not be proved to nodes that start later."""
        by_certificate = {
            batch.certificate: batch
            for name, log in self.logs.items()
            if name in roll.names
            for batch in log.batches
        }
        unproven = set[str]()
        for batch in by_certificate.values():
            try:
                roll.seals.opened(batch.sealed)
            except BadInput:
                unproven.add(batch.origin)
        if unproven:
            raise BadInput(
                f"ca.pem lacks the authority under which kept rows of "
                f"{', '.join(sorted(unproven))} are sealed: leave it in ca.pem until these rows "
                "are no longer kept"
            )

    def change(self, roll: Roll) -> None:
        """Other names."""
        self.roll, self.marks = roll, _marks(roll)
        self.node.forget_refused_sums(float("inf"))
        self._take_out()

    def _take_out(self) -> None:
        """Who is no longer of the network, since a reload or a restart, takes its rows away: the
        network's bank begins again with those of the others, as far as they are kept. A state from
        before a rollback may have learned rows of which there is no log any more.
        """
        next_rows = self.learner.next_rows(self.node.state)
        known = {*self.logs, *(name for name, number in next_rows.items() if number)}
        gone = sorted(known - self.roll.names)
        if not gone:
            return
        self.logs = {name: log for name, log in self.logs.items() if name not in gone}
        self.flood = tuple(batch for batch in self.flood if batch.origin not in gone)
        self.node.state = self.learner.forget_others(self.node.state)
        self._line_up_all()
        kept = sum(log.end - log.base for log in self.logs.values())
        text = f"without {', '.join(gone)}: learned again from the {kept:,} rows kept"
        removed = (SaveLog(name, 1 << 62, 0) for name in gone)
        self.later = (*self.later, Notice("rebuilt", text), *removed, *self._save())

    # -- own rows ----------------------------------------------------------------------------
    def _seal_due(self) -> float | None:
        """When enough rows are there, or they have waited long enough."""
        rows = len(self.learner.unsealed(self.node.state)[0])
        if not rows or self.begun is None:
            return None
        full = rows >= SEAL_ROWS
        pace = 0.0 if full else self.node.exchange.seal_seconds
        return max(self.sealed_at, self.begun) + pace

    def _seal(self, now: float) -> list[Effect]:
        learner, name, effects = self.learner, self.node.name, list[Effect]()
        wall = self.node.wall()
        while True:
            X, Y, at = (part[:MOST_ROWS] for part in learner.unsealed(self.node.state))
            if not len(X):
                break
            since = min(wall, float(at[0])) if at[0] > 0 else wall  # 0: of the journal
            effects.append(self._append(X, Y, since, wall))
            self.node.state = learner.sealing(self.node.state, len(X))
            self._line_up(name)
        self.sealed_at = now
        return [*effects, *(self._let_go(name) if effects else [])]

    def _append(self, X: Array, Y: Array, since: float, until: float) -> SaveLog:
        """Own rows as the next batch of the log, which is to be stored and sent."""
        name, own = self.node.name, self.own
        last = own.batches[-1].incarnation if own.batches else 0
        start = max(self.node.incarnation, self.later_than + 1, last)
        entry = pack_entry(self.context, name, start, own.end, X, Y, since, until, own.tip)
        sealed = self.roll.seals.seal(entry)
        log, what = logs.add(own, read_batch(self.context, sealed), self._most)
        assert what == logs.NEW
        self.logs = {**self.logs, name: log}
        batch = log.batches[-1]
        self._know_certificate(batch.certificate)
        self.flood = (*self.flood, batch)
        return SaveLog(name, log.base, batch.first, ((batch.first, sealed),))

    def _of_myself(self, batch: SealedBatch) -> list[Effect]:
        """A batch that this node sealed and does not have: its journal is lost, or older, and what
        counts is what it has. So its rows from there on, or the last ones, get a new seal of a
        later start. Lists of versions never get here: only the seal proves that there is a batch.
        """
        name, own = self.node.name, self.own
        if batch.end <= own.base and batch.incarnation <= own.batches[-1].incarnation:
            return []  # no longer kept
        i = min(own.at(batch.first), max(0, len(own.batches) - 1))
        counts = own.batches[i].incarnation if own.batches else self.later_than + 1
        if counts > batch.incarnation:  # what is here counts already
            log, what = logs.add(own, batch, self._most)
            if what != logs.BEATEN or log is own:
                return []
            self.logs = {**self.logs, name: log}
            return self._forked(name, own, log)
        self.later_than = max(self.later_than, batch.incarnation)
        fork = logs.Fork(batch.first, (batch.incarnation, self.later_than + 1))
        own = replace(own, forks=own.forks + 1, fork=fork)
        again = own.batches[i:]
        self.logs = {**self.logs, name: replace(own, batches=own.batches[:i])}
        effects: list[Effect] = [Notice("forked", _fork_text(name, own))]
        for each in again:
            if not i and each is again[0]:  # follows on nothing that is kept
                effects.append(self._begin_again(each))
                continue
            X, Y = read_rows(self.context, each)
            effects.append(self._append(X, Y, each.since, each.until))
        return effects

    def _begin_again(self, batch: SealedBatch) -> SaveLog:
        """The first batch that is kept under a new seal."""
        X, Y = read_rows(self.context, batch)
        given = X, Y, batch.since, batch.until, batch.before
        name, start = self.node.name, max(self.node.incarnation, self.later_than + 1)
        entry = pack_entry(self.context, name, start, batch.first, *given)
        sealed = self.roll.seals.seal(entry)
        new = read_batch(self.context, sealed)
        self.logs = {**self.logs, name: replace(self.own, batches=(new,))}
        self.flood = (*self.flood, new)
        return SaveLog(name, batch.first, batch.first, ((batch.first, sealed),))

    def _know_certificate(self, certificate: bytes) -> None:
        mark = certificate_mark(certificate)
        if certificate and mark not in self.certificates:
            full = len(self.certificates) >= MOST_CERTIFICATES
            self.certificates = {**({} if full else self.certificates), mark: certificate}

    # -- learning ----------------------------------------------------------------------------
    def _line_up(self, name: str) -> None:
        next_rows = self.learner.next_rows(self.node.state)
        self.line = lines.line_up(self.line, name, self.logs[name], next_rows, self.node.wall())

    def _line_up_all(self) -> None:
        next_rows = self.learner.next_rows(self.node.state)
        self.line = lines.line_up_all(self.logs, next_rows, self.node.wall())

    def _learn(self, now: float) -> list[Effect]:
        """The next batches that wait, at most about `at_once` rows."""
        left, before, wall = self.node.at_once, self.learned, self.node.wall()
        effects = list[Effect]()
        self._readmit(now)
        while left > 0 and self.line.waiting:
            name = self.line.waiting[0][0]
            given = self.logs, self.learner, self.node.state, self.context, wall
            self.line, self.node.state, rows, why = lines.learn_next(self.line, *given, left)
            if name in self.line.aside:  # the next one after messages have had their turn
                self.readmit_at = min(self.readmit_at, now + ASIDE_SECONDS)
                effects.append(Notice("not learned", _aside_text(name, why)))
                break
            if why:
                text = f"{rows:,} rows of {name!r} cannot be learned and are passed over: {why}"
                effects.append(Notice("not learned", text))
                self.passed = True
            left, self.learned = left - rows, self.learned + rows
            self.unsaved += rows
        if self.learned > before:
            self.node.step += 1
            self.node.combines += 1
        if self.passed and now >= self.passed_at + PASSED_SECONDS:
            self.passed_at = now
            return [*effects, *self._save()]
        return [*effects, *(self._save() if self.unsaved >= SAVE_ROWS else [])]

    def _readmit(self, now: float) -> None:
        if now >= self.readmit_at:
            self.readmit_at = float("inf")
            given = self.logs, self.learner, self.node.state, self.node.wall()
            self.line, self.node.state = lines.readmit(self.line, *given)

    # -- facts -------------------------------------------------------------------------------
    def disputes(self, now: float) -> list[str]:
        """Who has sealed different rows under one number, in words."""
        found = [_fork_text(name, log) for name, log in sorted(self.logs.items()) if log.forks]
        for name, rows in sorted(self.line.skipped.items()):
            if rows:
                found.append(f"{rows:,} rows of {name!r} came faster than this node can learn")
        for name, rows in sorted(self.line.failed.items()):
            found.append(f"{rows:,} rows of {name!r} could not be learned, and were passed over")
        found += [_aside_text(name, why) for name, (_, why) in sorted(self.line.aside.items())]
        return found

    def remarks(self, now: float) -> list[str]:
        """Rows of others that nobody has any more."""
        return [
            f"{'up to ' * bool(log.forks)}{log.missing:,} rows of {name!r} are no longer kept"
            for name, log in sorted(self.logs.items())
            if log.missing
        ]

    @property
    def rows(self) -> int:
        """Rows known: own ones, and those of others that came."""
        return sum(self._counts().values())

    def _counts(self) -> dict[str, int]:
        counts = {name: self.logs.get(name, OriginLog()).end for name in sorted(self.roll.names)}
        return {**counts, self.node.name: self._own_rows}

    @property
    def _own_rows(self) -> int:
        return self.own.end + len(self.learner.unsealed(self.node.state)[0])

    def facts(self) -> dict[str, Any]:
        """For `/status`: rows by origin, and what is kept, waits, was missed or forked."""
        next_rows = self.learner.next_rows(self.node.state)
        waiting = {n: log.end - max(log.base, next_rows.get(n, 0)) for n, log in self.logs.items()}
        return {
            "rows": self.rows,
            "left_out": False,
            "hurting": [],
            "origins": self._counts(),
            "kept": {name: log.end - log.base for name, log in sorted(self.logs.items())},
            "missing": {n: log.missing for n, log in sorted(self.logs.items()) if log.missing},
            "skipped": {name: rows for name, rows in sorted(self.line.skipped.items()) if rows},
            "forked": sum(log.forks for log in self.logs.values()),
            "skipped_rows": sum(self.line.skipped.values()),
            "failed": dict(sorted(self.line.failed.items())),
            "failed_rows": sum(self.line.failed.values()),
            "forks": {name: log.forks for name, log in sorted(self.logs.items()) if log.forks},
            "behind": sum(max(0, rows) for rows in waiting.values()),
            "unsealed": len(self.learner.unsealed(self.node.state)[0]),
        }


def _marks(roll: Roll) -> dict[bytes, str]:
    return {mark_of(name): name for name in roll.names}


def _aside_text(name: str, why: str) -> str:
    return f"rows of {name!r} cannot be learned now, and are tried again: {why}"


def _fork_text(name: str, log: OriginLog) -> str:
    assert log.fork is not None
    which = (
        "the later start counts" if len(set(log.fork.incarnations)) > 1 else "one of them counts"
    )
    times = f", {log.forks} times" if log.forks > 1 else ""
    return (
        f"{name!r} has sealed different rows under number {log.fork.number:,}{times}: {which}. "
        "It came back from an old backup, or two agents have its key"
    )
