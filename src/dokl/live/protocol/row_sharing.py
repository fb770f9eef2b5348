"""Exchange of rows: every node keeps the log of every origin, floods what is new, and learns it.

A node seals its own rows in batches, adds them to its log (`logs`), and sends each batch that is
new here to all neighbours, once. Neighbours tell each other what they have (`HAVE`) after changes
and while they differ; one that lacks something asks one neighbour for it (`WANT`), which answers
with a stretch of its log. So whatever is lost, repeated, late or forgotten in a crash, logs agree
in the end, and then there is silence.

Logs are stored before anything of them is sent or learned. The network's bank learns batch by
batch (`learning_line`); how far it has come is part of the node's state.

Everything that a batch says is said by its origin alone: its seal is checked before anything else
is made of it, and it changes the log of that origin and no other. What neighbours say they have
decides only what they are asked for.
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
    MESSAGE,
    MOST_ROWS,
    Context,
    SealedBatch,
    certificate_mark,
    pack_batches,
    pack_entry,
    read_batch,
    read_rows,
    unpack_batches,
)
from dokl.live.protocol.effects import Effect, Notice, Save, SaveLog, SendHello, SendTheta
from dokl.live.protocol.learning_line import LearningLine
from dokl.live.protocol.logs import OriginLog, Version
from dokl.live.protocol.messages import HAVE, ROWS, STRETCH, WANT, Message, mark_of
from dokl.live.protocol.neighbours import Neighbour
from dokl.live.protocol.node import LiveNode
from dokl.live.protocol.roll import Roll
from dokl.live.rows import RowsLearner

SEAL_ROWS = 32  # own rows that are sealed without waiting for `seal_seconds`
HAVE_SECONDS = 5.0  # between two lists of what is here
SOON = 0.5  # the same after a neighbour came, or asked
ASK_SECONDS = 1.0  # until a question is asked again, of another neighbour if there is one
SHY_SECONDS = 10.0  # in which a neighbour that did not help is asked only if nobody else can be
LATER = 0.3  # seconds before a question: what is lacking may be on its way
ANSWERS = 16  # questions of neighbours that wait for their answer, at most
SAVE_ROWS = 5000  # rows heard after which the state is written
MOST_CERTIFICATES = 1024


class RowSharing:
    """Logs by origin; dictionaries and tuples in it are replaced, never written to.

    logs: of every origin. line: batches that wait to be learned. theirs: what neighbours have.
    asked: of whom each origin's rows were asked, and when. shy: who did not help with which origin,
    and when. useless: the last hash of what a neighbour has of an origin and does not belong here.
    wanted: questions to answer. flood: batches that are to be sent on. told: certificates that the
    neighbours were sent. quota: rows that may still come of each origin, and since when.
    """

    joining = False

    def __init__(self, node: LiveNode, roll: Roll, stored: Sequence[bytes] = ()) -> None:
        self.node, self.roll, self.marks = node, roll, _marks(roll)
        self.logs: Mapping[str, OriginLog] = {}
        self.line = LearningLine()
        self.theirs: Mapping[str, Mapping[bytes, Version]] = {}
        self.asked: Mapping[bytes, tuple[str, float]] = {}
        self.shy: Mapping[tuple[str, bytes], float] = {}
        self.useless: Mapping[tuple[str, bytes], bytes] = {}
        self.wanted: Mapping[tuple[str, bytes], tuple[tuple[int, bytes], ...]] = {}
        self.flood: tuple[SealedBatch, ...] = ()
        self.told: frozenset[bytes] = frozenset()
        self.certificates: Mapping[bytes, bytes] = {}
        self.quota: Mapping[str, tuple[float, float]] = {}
        self.begun: float | None = None
        self.have_at = self.sealed_at = float("-inf")
        self.have_due: float | None = None
        self.learned = self.unsaved = 0
        self.later_than = 0  # the largest incarnation of an earlier life that was heard of
        self.later: tuple[Effect, ...] = ()  # what a change of the description wants stored
        learner = self.learner
        columns = bytes.fromhex(learner.fingerprint)
        self.context = Context(learner.network_mark, columns, learner.d, learner.m)
        self._restore(stored)

    @property
    def learner(self) -> RowsLearner:
        """The node's, which knows what rows are."""
        assert isinstance(self.node.learner, RowsLearner)
        return self.node.learner

    @property
    def active(self) -> bool:
        """Whether there is any exchange."""
        return self.node.exchange.mode != "off"

    @property
    def own(self) -> OriginLog:
        """The log of this node's rows."""
        return self.logs.get(self.node.name, OriginLog())

    def _restore(self, stored: Sequence[bytes]) -> None:
        """The logs of before the end. What is new in them since the state was written is learned
        again, the oldest first; own rows that were sealed since are not sealed again.
        """
        found: dict[str, list[SealedBatch]] = {}
        for sealed in stored:
            batch = read_batch(self.context, sealed)
            found.setdefault(batch.origin, []).append(batch)
        self.logs = {name: logs.restored(every) for name, every in found.items()}
        for every in found.values():
            for certificate in {batch.certificate for batch in every}:
                self._know_certificate(certificate)
        self._line_up_all()
        self.replayed()

    def replayed(self) -> None:
        """Own rows of the journal were learned again: those that are in the log are sealed."""
        learner, state = self.learner, self.node.state
        done = self.own.end - learner.sealed(state)
        here = len(learner.unsealed(state)[0])
        if done > 0 and here:
            self.node.state = learner.sealing(state, min(done, here))

    # -- events ------------------------------------------------------------------------------
    def samples(self, X: Any, Y: Any, now: float) -> list[Effect]:
        """Learn at once; they are sealed when it is time."""
        self._began(now)
        self.learner.clock = self.node.wall()
        return self.node.learn(X, Y)

    def theta(self, peer: Neighbour, message: Message, now: float) -> list[Effect]:
        """Batches, what a neighbour has, or what it wants."""
        self._began(now)
        if message.kind == HAVE:
            return self._have(peer, message, now)
        if message.kind == WANT:
            return self._want(peer, message, now)
        try:
            if message.kind == STRETCH:
                return self._stretch(peer, message.body, now)
            found = unpack_batches(message.body, self.certificates)
        except BadInput as error:
            return self.node.refuse(peer.name, "signature", f"neighbour {peer.name!r}: {error}")
        return [e for sealed in found for e in self._sealed(peer, sealed, now)[0]]

    def _stretch(self, peer: Neighbour, body: bytes, now: float) -> list[Effect]:
        """The answer to a question, of this node or of another neighbour of the one that sends."""
        whom, origin, tip, rest = body[:8], body[8:16], body[16:24], body[24:]
        effects, said = list[Effect](), set[str]()
        wanted = self.asked.get(origin, ("", 0.0))[0] == peer.name  # nobody answers unasked
        mine = wanted and whom == mark_of(self.node.name)
        for sealed in unpack_batches(rest, self.certificates):
            more, what = self._sealed(peer, sealed, now, asked=mine)
            effects += more
            said.add(what)
        if not mine:
            return effects
        self.asked = {mark: each for mark, each in self.asked.items() if mark != origin}
        if said <= {logs.KNOWN, logs.BEATEN}:  # it has nothing that belongs here
            self.useless = {**self.useless, (peer.name, origin): tip}
        elif logs.NEW not in said:
            self.shy = {**self.shy, (peer.name, origin): now}
        return effects

    def _sealed(
        self, peer: Neighbour, sealed: bytes | None, now: float, asked: bool = False
    ) -> tuple[list[Effect], str]:
        """One batch, hostile until its seal is found to be good; and what became of it."""
        if sealed is None:  # of a certificate that is not known here; an answer will have it
            self._soon(now)
            return [], logs.GAP
        try:
            batch = read_batch(self.context, sealed)
            name = batch.origin if batch.origin in self.roll.names else ""
        except BadInput as error:
            return self.node.refuse(peer.name, "rows", f"neighbour {peer.name!r}: {error}"), ""
        here = self.logs.get(name, OriginLog())
        if here.has(batch.end, batch.hash):
            peer.repeated += 1
            return [], logs.KNOWN
        try:
            self._check_seal(batch)
        except BadInput as error:
            of = f" sends rows of {name!r}" if name else ""
            text = f"neighbour {peer.name!r}{of}: {error}"
            return self.node.refuse(peer.name, "signature", text, name), ""
        return self._batch(peer, batch, now, asked)

    def _check_seal(self, batch: SealedBatch) -> None:
        by, _ = self.roll.seals.opened(batch.sealed)
        if by not in (None, batch.origin):
            raise BadInput(f"rows of {batch.origin!r}, sealed by {by!r}")
        if batch.origin not in self.roll.names:
            raise BadInput(f"rows of {batch.origin!r}, who is not of this network")

    def _batch(
        self, peer: Neighbour, batch: SealedBatch, now: float, asked: bool
    ) -> tuple[list[Effect], str]:
        """A batch that its origin has sealed."""
        name = batch.origin
        ahead = self.node.hours_ahead(batch.incarnation)
        if ahead > 0:
            text = f"neighbour {peer.name!r} sends rows of {name!r} from a start {ahead:.3g} hours"
            text += " later than can be: is its clock wrong?"
            return self.node.refuse(peer.name, "ahead", text, name), ""
        if name == self.node.name:
            return self._of_myself(batch, now), logs.BEATEN
        before = self.logs.get(name, OriginLog())
        log, what = logs.add(before, batch, self._most, asked and self._nobody_has(name))
        if what in (logs.GAP, logs.UNLIKE):
            self._soon(now)
        if what == logs.NEW:
            wrong = self._faults(batch, now)
            if wrong:
                text = f"neighbour {peer.name!r} sends rows of {name!r} that cannot be: {wrong}"
                return self.node.refuse(peer.name, "rows", text, name), ""
            peer.received, peer.last_received = peer.received + 1, now
        peer.welcome(hello=False, about=name)
        self._know_certificate(batch.certificate)
        effects = self._grown(name, before, log, now, peer.name) if log is not before else []
        return effects, what

    def _faults(self, batch: SealedBatch, now: float) -> str:
        """Why a batch that would be new is not taken; "" where it is."""
        try:
            _, Y = read_rows(self.context, batch)
        except BadInput as error:
            return str(error)
        largest = float(np.abs(Y).max(initial=0.0))
        if largest > self.roll.target:
            return f"a target of {largest:.3g}, and at most {self.roll.target:.3g} is believed"
        left, since = self.quota.get(batch.origin, (float(self._most), now))
        left = min(float(self._most), left + self.roll.rate * max(0.0, now - since))
        if batch.n > left:
            return f"more than {self.roll.rate:g} rows a second"
        self.quota = {**self.quota, batch.origin: (left - batch.n, now)}
        return ""

    def _grown(
        self, name: str, before: OriginLog, log: OriginLog, now: float, sender: str
    ) -> list[Effect]:
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
        if self._lacked(batch, sender):
            self.flood = (*self.flood, batch)
        self._changed(now)
        kept = tuple(b for b in log.batches if b.first >= batch.first)
        saved = tuple((b.first, b.sealed) for b in kept)
        return [*effects, SaveLog(name, log.base, batch.first, saved)]

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

    def _lacked(self, batch: SealedBatch, sender: str) -> bool:
        """Whether a neighbour, but for the one that sent a batch, is not known to have it."""
        mark = mark_of(batch.origin)
        others = (peer.name for peer in self._there if peer.name != sender)
        told = (self.theirs.get(name, {}).get(mark) for name in others)
        return any(each is None or each.end < batch.end for each in told)

    def _forked(self, name: str, before: OriginLog, log: OriginLog) -> list[Effect]:
        if log.forks == before.forks or log.fork is None:
            return []
        return [Notice("forked", _fork_text(name, log))]

    def _cut(self, name: str, number: int) -> list[Effect]:
        """Rows of an origin from a number on are others now: these are still to be learned."""
        self.line = lines.cut(self.line, name, number)
        if self.learner.heard(self.node.state).get(name, 0) <= number:
            return []
        self.node.state = self.learner.hear_from(self.node.state, name, number)
        return [Save()]

    def _have(self, peer: Neighbour, message: Message, now: float) -> list[Effect]:
        peer.welcome(hello=True)
        self.theirs = {**self.theirs, peer.name: logs.unpack_versions(message.body)}
        if message.waiting:
            self._soon(now)
        return []

    def _want(self, peer: Neighbour, message: Message, now: float) -> list[Effect]:
        question = logs.unpack_want(message.body)
        if question is None or question[0] != mark_of(self.node.name):
            return []
        _, origin, known = question
        if len(self.wanted) < ANSWERS or (peer.name, origin) in self.wanted:
            self.wanted = {**self.wanted, (peer.name, origin): tuple(known)}
        return []

    def hello(self, peer: Neighbour, message: Message, now: float) -> list[Effect]:
        """Nothing to do with rows."""
        self._began(now)
        return []

    def peer_up(self, peer: Neighbour, now: float) -> list[Effect]:
        """It may have missed everything, and so may we."""
        self._began(now)
        self.told = frozenset()
        self._soon(now)
        return self.node.greet(now)

    def peer_lost(self, peer: Neighbour, now: float) -> list[Effect]:
        """What it has is not known any more, and nothing is expected of it."""
        self.theirs = {name: told for name, told in self.theirs.items() if name != peer.name}
        self.wanted = {key: known for key, known in self.wanted.items() if key[0] != peer.name}
        self.asked = {mark: each for mark, each in self.asked.items() if each[0] != peer.name}
        self.shy = {key: at for key, at in self.shy.items() if key[0] != peer.name}
        self.useless = {key: tip for key, tip in self.useless.items() if key[0] != peer.name}
        return []

    def finish(self, now: float) -> list[Effect]:
        """Nobody waits here."""
        self.node.announce()
        return []

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
        """Other names: who is no longer of the network takes its rows away, as far as they are
        kept: the network's bank begins again with those of the others.
        """
        self.roll, self.marks = roll, _marks(roll)
        gone = [name for name in self.logs if name not in roll.names]
        self.node.forget_refused_sums(float("inf"))
        if not gone:
            return
        self.logs = {name: log for name, log in self.logs.items() if name not in gone}
        self.flood = tuple(batch for batch in self.flood if batch.origin not in gone)
        self.node.state = self.learner.forget_others(self.node.state)
        self._line_up_all()
        kept = sum(log.end - log.base for log in self.logs.values())
        text = f"without {', '.join(sorted(gone))}: learned again from the {kept:,} rows kept"
        removed = (SaveLog(name, 1 << 62, 0) for name in gone)
        self.later = (*self.later, Notice("rebuilt", text), *removed, Save())

    # -- when it is time ---------------------------------------------------------------------
    def tick(self, now: float) -> list[Effect]:
        """Seal, send on, tell, ask, answer, learn: whatever is due."""
        self._began(now)
        effects, self.later = list(self.later), ()
        if not self.active:
            return effects
        due = self._seal_due()
        if due is not None and now >= due:
            effects += self._seal(now)
        if self._there:
            effects += self._send(now)
            effects += self._ask(now)
            if self.have_due is not None and now >= self.have_due:
                effects += self._tell(now)
        else:
            self.flood = ()
        return effects + self._learn()

    def next_due(self) -> float | None:
        """When `tick` is wanted."""
        if not self.active or self.begun is None:
            return None
        times = [self._seal_due()]
        if self.line.waiting:
            times.append(self.node.now)
        if self._there:
            times.append(self.have_due)
            times.append(self.node.now if self.flood or self.wanted else None)
            times += [self._ask_due(origin) for _, origin in self._lacking()]
        return min((time for time in times if time is not None), default=None)

    @property
    def _there(self) -> list[Neighbour]:
        """Who is sent to, refused ones included: what is in order again must be able to arrive."""
        return [peer for peer in self.node.peers.values() if peer.usable]

    @property
    def _most(self) -> int:
        return self.node.exchange.kept_rows

    def _began(self, now: float) -> None:
        if self.begun is None:  # whatever was to be learned again is
            self.begun = now
            self.node.state = self.learner.following(self.node.state, self.own.end)

    def _changed(self, now: float) -> None:
        due = max(now + SOON, self.have_at + HAVE_SECONDS)
        self.have_due = due if self.have_due is None else min(self.have_due, due)

    def _soon(self, now: float) -> None:
        due = max(now, self.have_at + SOON)
        self.have_due = due if self.have_due is None else min(self.have_due, due)

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
            self.node.state = learner.sealing(self.node.state, len(X))
            effects.append(self._append(X, Y, since, wall))
            self._line_up(name)
        self.sealed_at = now
        self._changed(now)
        return effects

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

    def _of_myself(self, batch: SealedBatch, now: float) -> list[Effect]:
        """A batch that this node sealed and does not have: its journal is lost, or older, and what
        counts is what it has. So its rows from there on, or the last ones, get a new seal of a
        later start. Lists of versions never get here: only the seal proves that there is a batch.
        """
        name, own = self.node.name, self.own
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
        self._changed(now)
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

    # -- sending -----------------------------------------------------------------------------
    def _send(self, now: float) -> list[Effect]:
        """New batches to everybody, each once; and the answer to one question."""
        effects: list[Effect] = []
        known = set(self.told)
        if self.flood:
            some, size = list[SealedBatch](), 0
            for batch in self.flood:
                if size > MESSAGE:
                    break
                some.append(batch)
                size += batch.size
            self.flood = self.flood[len(some) :]
            body = pack_batches(some, known)
            effects.append(SendTheta(self.node.pack_body(ROWS, body, now)))
        elif self.wanted:
            (peer, origin), places = next(iter(self.wanted.items()))
            self.wanted = {key: each for key, each in self.wanted.items() if key != (peer, origin)}
            log = self.logs.get(self.marks.get(origin, ""), OriginLog())
            if log.batches:
                known = set()
                body = pack_batches(logs.stretch(log, list(places), MESSAGE), known)
                head = mark_of(peer) + origin + log.tip[:8]
                effects.append(SendTheta(self.node.pack_body(STRETCH, head + body, now)))
        self.told = frozenset(known) | self.told
        return effects

    def _tell(self, now: float) -> list[Effect]:
        """What is here; again in a while as long as a neighbour says that it has something else."""
        self.have_at, self.have_due = now, None
        mine = {mark_of(name): log.version for name, log in self.logs.items() if log.batches}
        apart = [p for p in self._there if _ends(self.theirs.get(p.name, {})) != _ends(mine)]
        if apart:
            self.have_due = now + HAVE_SECONDS
        waiting = any(peer.name not in self.theirs for peer in self._there)
        told = logs.pack_versions(self.logs)
        return [SendHello(self.node.pack_body(HAVE, told, now, waiting))]

    # -- asking ------------------------------------------------------------------------------
    def _lacking(self) -> list[tuple[str, bytes]]:
        """(neighbour, mark of an origin): who is to be asked for what, one for each origin: rather
        one that did not fail to help, then the one that begins earliest, and has most.
        """
        best: dict[bytes, tuple[tuple[bool, int, int], str]] = {}
        for peer in self._there:
            for mark, theirs in self.theirs.get(peer.name, {}).items():
                name = self.marks.get(mark)
                if name is None or not logs.lacks(self.logs.get(name, OriginLog()), theirs):
                    continue
                if self.useless.get((peer.name, mark)) == theirs.tip:
                    continue
                rank = (not self._is_shy(peer.name, mark), -theirs.base, theirs.end)
                if mark not in best or rank > best[mark][0]:
                    best[mark] = rank, peer.name
        return [(peer, mark) for mark, (_, peer) in best.items()]

    def _is_shy(self, peer: str, origin: bytes) -> bool:
        """Whether it did not help with the rows of an origin lately."""
        at = self.shy.get((peer, origin))
        return at is not None and (self.node.now or 0.0) < at + SHY_SECONDS

    def _ask_due(self, origin: bytes) -> float:
        return self.asked.get(origin, ("", float("-inf")))[1] + ASK_SECONDS

    def _ask(self, now: float) -> list[Effect]:
        effects: list[Effect] = []
        for peer, origin in self._lacking():
            if origin not in self.asked:  # it may be on its way
                self.asked = {**self.asked, origin: ("", now - ASK_SECONDS + LATER)}
            elif now >= self._ask_due(origin):
                before = self.asked[origin][0]
                if before:  # it did not answer
                    self.shy = {**self.shy, (before, origin): now}
                self.asked = {**self.asked, origin: (peer, now)}
                places = logs.points(self.logs.get(self.marks[origin], OriginLog()))
                body = logs.pack_want(peer, origin, places)
                effects.append(SendHello(self.node.pack_body(WANT, body, now)))
        return effects

    def _nobody_has(self, name: str) -> bool:
        """Whether no neighbour says that it has the next row of an origin, but for those that said
        so and did not help.
        """
        end, mark = self.logs.get(name, OriginLog()).end, mark_of(name)
        there = [peer.name for peer in self._there if not self._is_shy(peer.name, mark)]
        told = [self.theirs.get(peer, {}).get(mark) for peer in there]
        return not any(each is not None and each.base <= end < each.end for each in told)

    # -- learning ----------------------------------------------------------------------------
    def _line_up(self, name: str) -> None:
        heard = self.learner.heard(self.node.state)
        self.line = lines.line_up(self.line, name, self.logs[name], heard, self.node.wall())

    def _line_up_all(self) -> None:
        heard = self.learner.heard(self.node.state)
        self.line = lines.line_up_all(self.logs, heard, self.node.wall())

    def _learn(self) -> list[Effect]:
        """The next batches that wait, at most about `at_once` rows."""
        left, before, wall = self.node.at_once, self.learned, self.node.wall()
        while left > 0 and self.line.waiting:
            given = self.logs, self.learner, self.node.state, self.context, wall
            self.line, self.node.state, rows = lines.learn_next(self.line, *given)
            left, self.learned = left - rows, self.learned + rows
            self.unsaved += rows
        if self.learned > before:
            self.node.step += 1
            self.node.combines += 1
        if self.unsaved < SAVE_ROWS:
            return []
        self.unsaved = 0
        return [Save()]

    # -- facts -------------------------------------------------------------------------------
    def disputes(self, now: float) -> list[str]:
        """Who has sealed different rows under one number, in words."""
        found = [_fork_text(name, log) for name, log in sorted(self.logs.items()) if log.forks]
        for name, rows in sorted(self.line.skipped.items()):
            if rows:
                found.append(f"{rows:,} rows of {name!r} came faster than this node can learn")
        return found

    def remarks(self, now: float) -> list[str]:
        """Rows of others that nobody has any more."""
        gaps = {name: log.missing for name, log in sorted(self.logs.items()) if log.missing}
        return [f"{rows:,} rows of {name!r} are no longer kept" for name, rows in gaps.items()]

    @property
    def disagreement(self) -> float | None:
        """The share of rows that this node and a neighbour do not have in common, the mean over
        neighbours, by what they say they have; None while none has said it.
        """
        told = [self.theirs[peer.name] for peer in self._there if peer.name in self.theirs]
        mine = {mark_of(name): log.end for name, log in self.logs.items()}
        return sum(_apart(mine, each) for each in told) / len(told) if told else None

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
        heard = self.learner.heard(self.node.state)
        behind = sum(max(0, log.end - heard.get(name, 0)) for name, log in self.logs.items())
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
            "forks": {name: log.forks for name, log in sorted(self.logs.items()) if log.forks},
            "behind": behind,
            "unsealed": len(self.learner.unsealed(self.node.state)[0]),
        }

    # -- going back --------------------------------------------------------------------------
    def mark(self) -> dict[str, Any]:
        """All that changes."""
        return dict(vars(self))

    def back(self, mark: dict[str, Any]) -> None:
        """As it was at the mark."""
        vars(self).update(mark)


def _ends(versions: Mapping[bytes, Version]) -> dict[bytes, tuple[int, bytes]]:
    return {mark: (each.end, each.tip) for mark, each in versions.items()}


def _marks(roll: Roll) -> dict[bytes, str]:
    return {mark_of(name): name for name in roll.names}


def _apart(mine: Mapping[bytes, int], theirs: Mapping[bytes, Version]) -> float:
    ends = [
        (mine.get(mark, 0), theirs[mark].end if mark in theirs else 0) for mark in {*mine, *theirs}
    ]
    whole = sum(max(pair) for pair in ends)
    return sum(abs(a - b) for a, b in ends) / whole if whole else 0.0


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
