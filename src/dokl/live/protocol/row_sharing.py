"""Exchange of rows: every node keeps the log of every origin, floods what is new, and learns it.

A node seals its own rows in batches, adds them to its log (`logs`), and sends each batch that is
new here to all neighbours, once. Neighbours report what they have (`HAVE`) after changes
and while they differ; one that lacks something asks one neighbour for it (`WANT`), which answers
with a stretch of its log. So whatever is lost, repeated, late or forgotten in a crash, logs agree
in the end, and then there is silence.

Logs (`row_logs`) are stored before anything of them is sent or learned; `asking` says who is asked
for what is lacking.

All content of a batch is its origin's alone: its seal is checked before anything else
is made of it, and it changes the log of that origin and no other. What neighbours say they have
decides only what they are asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dokl.base.errors import BadInput
from dokl.live.protocol import logs
from dokl.live.protocol.asking import Asking
from dokl.live.protocol.batches import (
    MESSAGE,
    NOTHING,
    SealedBatch,
    hash_of,
    pack_batches,
    read_batch,
    unpack_batches,
)
from dokl.live.protocol.effects import Effect, SendHello, SendTheta
from dokl.live.protocol.logs import OriginLog, Version
from dokl.live.protocol.messages import HAVE, ROWS, STRETCH, WANT, Message, mark_of
from dokl.live.protocol.neighbours import Neighbour
from dokl.live.protocol.node import LiveNode
from dokl.live.protocol.roll import Roll
from dokl.live.protocol.row_logs import RowLogs

HAVE_SECONDS = 5.0  # between two lists of what is here
SOON = 0.5  # the same after a neighbour came, or asked
ANSWERS = 16  # questions of one neighbour that wait for their answer, at most
ANSWER_SECONDS = 0.05  # between two answers, which all neighbours get, at least
ANSWER_BYTES = 1e6  # of answers in a second, at most, or who asks without end fills all links
MOST_FLOOD = 1024  # batches that wait to be sent; neighbours ask for what went before its turn
BROKEN, MOST_BROKEN = "broken", 4  # a batch with a broken seal; how many of a message are checked
REFUSED, MOST_REFUSED = "refused", 16  # one that is refused for what is in it; the same
UNKNOWN = "unknown"  # one of a certificate that is not known here
STRANGE = "strange"  # one of an origin that is not of the network: not, or no longer


class RowSharing(RowLogs):
    """The logs of a node, and what it exchanges with its neighbours.

    asking: what they have, and are asked. wanted: questions to answer.
    """

    joining = False

    def __init__(self, node: LiveNode, roll: Roll, stored: Sequence[bytes] = ()) -> None:
        self.asking = Asking()
        self.wanted: Mapping[tuple[str, bytes], tuple[tuple[int, bytes], ...]] = {}
        self.sent_certificates: frozenset[bytes] = frozenset()
        self.have_at = self.answer_due = float("-inf")
        self.have_due: float | None = None
        super().__init__(node, roll, stored)

    # -- events ------------------------------------------------------------------------------
    def samples(self, X: Any, Y: Any, now: float) -> list[Effect]:
        """Learn at once; they are sealed when it is time."""
        self._began(now)
        self.learner.clock = self.node.wall()
        effects = self.node.learn(X, Y)
        self.forget_oldest()
        return effects

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
        return self._every(peer, found, now)[0]

    def _every(
        self,
        peer: Neighbour,
        found: Sequence[bytes | None],
        now: float,
        asked: bytes = b"",
        after: bytes = NOTHING,
    ) -> tuple[list[Effect], list[str]]:
        """The batches of a message in order, and what became of each; asked: the mark of the
        origin that they are to be of, as an answer; after: the hash up to where the answer before
        showed what is known. Nobody honest passes broken seals on, and each takes a while to check:
        after a few the rest is not looked at. What is refused for something else is bounded, too;
        whatever belongs here is asked for.
        """
        effects, became = list[Effect](), list[str]()
        for sealed in found:
            more, what = self._sealed(peer, sealed, now, asked, not became, after)
            after = hash_of(sealed) if sealed and asked and what == logs.KNOWN else NOTHING
            effects += more
            became.append(what)
            if asked and what == logs.GAP:  # and so are those that follow on it
                break
            if became.count(BROKEN) >= MOST_BROKEN or became.count(REFUSED) >= MOST_REFUSED:
                break
        return effects, became

    def _stretch(self, peer: Neighbour, body: bytes, now: float) -> list[Effect]:
        """The answer to a question, of this node or of another neighbour of the one that sends."""
        whom, origin, tip, rest = body[:8], body[8:16], body[16:24], body[24:]
        wanted = self.asking.expects(peer.name, origin)  # nobody answers unasked
        mine = wanted and whom == mark_of(self.node.name)
        here = self.logs.get(self.marks.get(origin, ""), OriginLog())
        if not mine and here.tip[:8] == tip:
            return []  # to somebody who has less
        found = unpack_batches(rest, self.certificates)
        _, after = self.asking.shown.get((peer.name, origin), (0, NOTHING))
        effects, became = self._every(peer, found, now, origin if mine else b"", after)
        if mine:
            whole = not found or (found[-1] is not None and hash_of(found[-1])[:8] == tip)
            log = self.logs.get(self.marks.get(origin, ""), OriginLog())
            shown = self._shown(log, found, became)
            answer = peer.name, origin, tip, became, whole, log.end, now, shown
            self.asking = self.asking.answered(*answer)
        return effects

    def _shown(
        self, log: OriginLog, found: Sequence[bytes | None], became: Sequence[str]
    ) -> tuple[int, bytes] | None:
        """Where an answer ends all of which is known and no longer kept: what follows on that may
        be another log, which is then asked for.
        """
        last = found[-1] if found else None
        if last is None or set(became) != {logs.KNOWN}:
            return None
        batch = read_batch(self.context, last)
        return (batch.end, batch.hash) if batch.end <= log.base else None

    def _sealed(
        self,
        peer: Neighbour,
        sealed: bytes | None,
        now: float,
        asked: bytes,
        first: bool,
        after: bytes,
    ) -> tuple[list[Effect], str]:
        """One batch, hostile until its seal is found to be good; and what became of it. asked: of
        whose log it is an answer; first: whether it is the first one of the message; after: the
        hash of the known one before it.
        """
        if sealed is None:  # an answer will have its certificate
            self._soon(now)
            return [], UNKNOWN
        try:
            batch = read_batch(self.context, sealed)
        except BadInput as error:
            text = f"neighbour {peer.name!r}: {error}"
            return self.node.refuse(peer.name, "rows", text), REFUSED
        if asked and mark_of(batch.origin) != asked:
            text = f"neighbour {peer.name!r} answers with rows of another origin"
            return self.node.refuse(peer.name, "rows", text), REFUSED
        if batch.origin not in self.roll.names:  # who sends it may not know that it was taken out
            text = f"neighbour {peer.name!r} sends rows of {batch.origin!r}, not of this network"
            return self.node.refuse(peer.name, "stranger", text), STRANGE
        return self._read(peer, batch, now, asked, first, after)

    def _read(
        self,
        peer: Neighbour,
        batch: SealedBatch,
        now: float,
        asked: bytes,
        first: bool,
        after: bytes,
    ) -> tuple[list[Effect], str]:
        """The same, once it can be read; its seal is checked where anything follows from it."""
        name = batch.origin
        before = self.logs.get(name, OriginLog())
        if before.has(batch.end, batch.hash):
            peer.repeated += 1
            return [], logs.KNOWN
        over_gap = bool(asked) and self._nobody_has(name, batch.first)
        is_first = bool(asked) and first
        log, what = logs.add(before, batch, self._most, over_gap, is_first, after)
        if what in (logs.GAP, logs.UNLIKE):
            self._soon(now)
        unused = log is before and name != self.node.name
        if unused and not (asked and what == logs.GAP):
            return [], what  # nothing follows from it, whatever its seal
        try:
            self._check_seal(batch)
        except BadInput as error:
            text = f"neighbour {peer.name!r} sends rows of {name!r}: {error}"
            return self.node.refuse(peer.name, "signature", text, name), BROKEN
        return ([], what) if unused else self._batch(peer, batch, now, log, what)

    def _batch(
        self, peer: Neighbour, batch: SealedBatch, now: float, log: OriginLog, what: str
    ) -> tuple[list[Effect], str]:
        """A batch that its origin has sealed, and the log with it."""
        name = batch.origin
        ahead = self.node.hours_ahead(batch.incarnation)
        if ahead > 0:
            text = f"neighbour {peer.name!r} sends rows of {name!r} from a start {ahead:.3g} hours"
            text += " later than can be: is its clock wrong?"
            return self.node.refuse(peer.name, "ahead", text, name), REFUSED
        if name == self.node.name:
            effects = self._of_myself(batch)
            if effects:
                self._changed(now)
            return effects, logs.BEATEN
        before = self.logs.get(name, OriginLog())
        if what == logs.NEW:
            wrong = self._faults(batch, now)
            if wrong:
                text = f"neighbour {peer.name!r} sends rows of {name!r} that cannot be: {wrong}"
                return self.node.refuse(peer.name, "rows", text, name), REFUSED
            peer.received, peer.last_received = peer.received + 1, now
        peer.welcome(hello=False, about=name)
        self._know_certificate(batch.certificate)
        effects = self._grown(name, before, log)
        if log.batches != before.batches:
            self._pass_on(log.batches[-1], peer.name, now)
        return effects, what

    def _pass_on(self, batch: SealedBatch, sender: str, now: float) -> None:
        """A batch that is new here, to those that are not known to have it."""
        others = (peer.name for peer in self._there if peer.name != sender)
        if self.asking.lacked(others, batch.origin, batch.end):
            self.flood = (*self.flood, batch)[-MOST_FLOOD:]
        self._changed(now)

    def _have(self, peer: Neighbour, message: Message, now: float) -> list[Effect]:
        peer.welcome(hello=True)
        listed = logs.unpack_versions(message.body)
        versions = {mark: each for mark, each in listed.items() if mark in self.marks}
        self.asking = self.asking.receive(peer.name, versions)
        if message.waiting:
            self._soon(now)
        return []

    def _want(self, peer: Neighbour, message: Message, now: float) -> list[Effect]:
        question = logs.unpack_want(message.body)
        if question is None or question[0] != mark_of(self.node.name):
            return []
        _, origin, known = question
        waiting = sum(name == peer.name for name, _ in self.wanted)
        if waiting < ANSWERS or (peer.name, origin) in self.wanted:
            self.wanted = {**self.wanted, (peer.name, origin): tuple(known)}
        return []

    def hello(self, peer: Neighbour, message: Message, now: float) -> list[Effect]:
        """Nothing to do with rows."""
        self._began(now)
        return []

    def peer_up(self, peer: Neighbour, now: float) -> list[Effect]:
        """It may have missed everything, and so may we."""
        self._began(now)
        self.asking = self.asking.meets(peer.name, now)
        self.sent_certificates = frozenset()
        self._soon(now)
        return self.node.greet(now)

    def peer_lost(self, peer: Neighbour, now: float) -> list[Effect]:
        """What it has is not known any more, and nothing is expected of it."""
        self.asking = self.asking.loses(peer.name)
        self.wanted = {key: known for key, known in self.wanted.items() if key[0] != peer.name}
        return []

    def finish(self, now: float) -> list[Effect]:
        """Nobody waits here."""
        self.node.announce()
        return []

    # -- when it is time ---------------------------------------------------------------------
    def tick(self, now: float) -> list[Effect]:
        """Seal, forward, report, ask, answer, learn: whatever is due."""
        self._began(now)
        effects, self.later = list(self.later), ()
        if not self.active:
            return effects
        due = self._seal_due()
        if due is not None and now >= due:
            effects += self._seal(now)
            self._changed(now)
        if self._there:
            effects += self._send(now)
            effects += self._ask(now)
            if self.have_due is not None and now >= self.have_due:
                effects += self._announce(now)
        else:
            self.flood = ()
        return effects + self._learn(now)

    def next_due(self) -> float | None:
        """When `tick` is wanted."""
        if not self.active or self.begun is None:
            return None
        times = [self._seal_due()]
        times.append(self.node.now if self.line.waiting else None)
        times.append(self.readmit_at if self.line.aside else None)
        if self._there:
            times.append(self.have_due)
            times.append(self.node.now if self.flood else None)
            times.append(self.answer_due if self.wanted else None)
            soon = self.node.now or 0.0
            times += [self.asking.due.get(origin, soon) for _, origin in self._lacking()]
        return min((time for time in times if time is not None), default=None)

    @property
    def _there(self) -> list[Neighbour]:
        """Who is sent to, refused ones included: what is in order again must be able to arrive, and
        who has later columns already can read rows of earlier ones.
        """
        return [peer for peer in self.node.peers.values() if peer.up]

    def _changed(self, now: float) -> None:
        due = max(now + SOON, self.have_at + HAVE_SECONDS)
        self.have_due = due if self.have_due is None else min(self.have_due, due)

    def _soon(self, now: float) -> None:
        due = max(now, self.have_at + SOON)
        self.have_due = due if self.have_due is None else min(self.have_due, due)

    # -- sending -----------------------------------------------------------------------------
    def _send(self, now: float) -> list[Effect]:
        """New batches to everybody, each once; and the answer to one question."""
        effects: list[Effect] = []
        known = set(self.sent_certificates)
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
        elif self.wanted and now >= self.answer_due:
            self.answer_due = now + ANSWER_SECONDS
            rest = dict(self.wanted)
            (peer, origin), places = next(iter(rest.items()))
            del rest[peer, origin]
            # In turns: the next answer is to another neighbour, if one waits.
            self.wanted = dict(sorted(rest.items(), key=lambda each: each[0][0] == peer))
            log = self.logs.get(self.marks.get(origin, ""), OriginLog())
            if log.batches:
                known = set()
                body = pack_batches(logs.stretch(log, list(places), MESSAGE), known)
                self.answer_due = now + max(ANSWER_SECONDS, len(body) / ANSWER_BYTES)
                head = mark_of(peer) + origin + log.tip[:8]
                effects.append(SendTheta(self.node.pack_body(STRETCH, head + body, now)))
        self.sent_certificates = frozenset(known) | self.sent_certificates
        return effects

    def _announce(self, now: float) -> list[Effect]:
        """What is here; again in a while as long as a neighbour says that it has something else."""
        self.have_at, self.have_due, theirs = now, None, self.asking.theirs
        mine = {mark_of(name): log.version for name, log in self.logs.items() if log.batches}
        apart = [p for p in self._there if _ends(theirs.get(p.name, {})) != _ends(mine)]
        if apart:
            self.have_due = now + HAVE_SECONDS
        waiting = any(self.asking.is_new(peer.name, now) for peer in self._there)
        body = logs.pack_versions(self.logs)
        return [SendHello(self.node.pack_body(HAVE, body, now, waiting))]

    # -- asking ------------------------------------------------------------------------------
    def _lacking(self) -> list[tuple[str, bytes]]:
        """(neighbour, mark of an origin): who is to be asked for what."""
        # One whose columns are earlier ones reads no question.
        there = [peer.name for peer in self._there if peer.told != "fingerprint"]
        kept = {mark: self.logs.get(name, OriginLog()) for mark, name in self.marks.items()}
        return self.asking.lacking(there, kept, self.node.now or 0.0)

    def _ask(self, now: float) -> list[Effect]:
        effects: list[Effect] = []
        self.asking, questions = self.asking.ask(self._lacking(), now)
        for peer, origin in questions:
            places = logs.points(self.logs.get(self.marks[origin], OriginLog()))
            if (peer, origin) in self.asking.shown:
                number, tip = self.asking.shown[peer, origin]
                places.append((number, tip[:8]))
            body = logs.pack_want(peer, origin, places)
            effects.append(SendHello(self.node.pack_body(WANT, body, now)))
        return effects

    def _nobody_has(self, name: str, number: int) -> bool:
        """Whether no neighbour that helps has rows of an origin that go before this one."""
        there = [peer.name for peer in self._there]
        log = self.logs.get(name, OriginLog())
        return self.asking.nobody_has(there, name, log, number, self.node.now or 0.0)

    # -- facts -------------------------------------------------------------------------------
    @property
    def disagreement(self) -> float | None:
        """The share of rows that this node and a neighbour do not have in common, the mean over
        neighbours, by what they report to have; None while none has.
        """
        theirs = self.asking.theirs
        versions = [theirs[peer.name] for peer in self._there if peer.name in theirs]
        mine = {mark_of(name): log.end for name, log in self.logs.items()}
        return sum(_apart(mine, each) for each in versions) / len(versions) if versions else None

    # -- going back --------------------------------------------------------------------------
    def mark(self) -> dict[str, Any]:
        """All that changes."""
        return dict(vars(self))

    def back(self, mark: dict[str, Any]) -> None:
        """As it was at the mark."""
        vars(self).update(mark)


def _ends(versions: Mapping[bytes, Version]) -> dict[bytes, tuple[int, bytes]]:
    return {mark: (each.end, each.tip) for mark, each in versions.items()}


def _apart(mine: Mapping[bytes, int], theirs: Mapping[bytes, Version]) -> float:
    ends = [
        (mine.get(mark, 0), theirs[mark].end if mark in theirs else 0) for mark in {*mine, *theirs}
    ]
    whole = sum(max(pair) for pair in ends)
    return sum(abs(a - b) for a, b in ends) / whole if whole else 0.0
