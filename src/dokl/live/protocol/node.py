"""What a node is, whichever way it exchanges: its state, its neighbours, and its own messages."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dokl import __version__
from dokl.base.arrays import Array
from dokl.live.protocol import messages, outliers, own_rows
from dokl.live.protocol.effects import (
    Combined,
    Effect,
    Notice,
    Refuse,
    Save,
    SendHello,
)
from dokl.live.protocol.local import RowLearning
from dokl.live.protocol.messages import HELLO, THETA, TWICE, Message, mark_of
from dokl.live.protocol.neighbours import Neighbour
from dokl.live.protocol.own_rows import OwnRows
from dokl.live.protocol.states import Event, Life, Supply, after
from dokl.network.exchange import Mixing
from dokl.network.exchange.rules import LARGEST16, sum_of_squares
from dokl.network.graphs import most_faulty
from dokl.network.state import State
from dokl.simulation.learner import Learner

if TYPE_CHECKING:
    from dokl.live.description import ExchangePolicy

# Seconds after which a hello is repeated, in case the first was lost; then there is silence.
REPEATS = (0.5, 1.0, 2.0)
PAUSE = 2.0  # seconds between hellos that nobody asked for
SOON = 0.2  # seconds after the last hello, when a neighbour is informed that it is not believed
DISPUTE = 5.0  # seconds between hellos while somebody is not believed, here or there
AUTO = "auto"  # clip: as own rows say, where nobody can be left out


Part = tuple[Neighbour, Array]  # and a theta of it


class LiveNode(RowLearning):
    """State, neighbours and counters of a node. `step` counts changes of theta, or rounds."""

    def __init__(
        self,
        learner: Learner,
        name: str,
        neighbours: Iterable[str],
        exchange: ExchangePolicy,
        incarnation: int,
        state: State | None,
        learned: int,
    ) -> None:
        super().__init__(learner, state, learned)
        self.name, self.exchange, self.incarnation = name, exchange, incarnation
        self.life = Life.NEW if state is None and learned == 0 else Life.LEARNING
        self.peers = {peer: Neighbour(peer) for peer in sorted(neighbours)}
        self.supply = Supply.OPEN
        self.refused: dict[str, int] = {}
        self.combines = self.silences = 0
        self.disagreement: float | None = None
        self.rows: OwnRows | None = None
        self.cut_short = False  # whether float16 could not hold theta the last time
        self.now: float | None = None
        self.offset = 0.0  # seconds since 1970 when `now` was 0
        self.latest: int | None = None  # the largest incarnation that is believed; None: any
        self._hellos: tuple[float, ...] = ()  # pauses before the repetitions still to come
        self._greeted = float("-inf")
        self._packed: tuple[Any, State, bytes] | None = None

    # -- neighbours --------------------------------------------------------------------------
    def weight(self, peer: Neighbour) -> float:
        """Metropolis, from local knowledge: own degree and the neighbour's."""
        return 1.0 / (1 + max(len(self.peers), peer.degree))

    def set_neighbours(self, names: Iterable[str]) -> None:
        """Those of a new description; what is known of the old ones stays."""
        self.peers = {name: self.peers.get(name) or Neighbour(name) for name in sorted(names)}
        self.announce()

    def wall(self) -> float:
        """Seconds since 1970, at the last event."""
        return self.offset + (self.now or 0.0)

    def hours_ahead(self, incarnation: int) -> float:
        """By how many hours a start is later than the clock allows; 0 where it may be."""
        late = 0 if self.latest is None else incarnation - self.latest
        return max(late, 0) / 3.6e12

    def refuse(self, name: str, reason: str, text: str, about: str = "") -> list[Effect]:
        """Count a message that is not used; about: whose sums are in it."""
        self.refused = {**self.refused, reason: self.refused.get(reason, 0) + 1}
        if name in self.peers:
            self.peers[name].counts(reason)
            self.spurn(name, reason, text, about)
        return [Refuse(name, reason, text)]

    def spurn(self, name: str, reason: str, text: str, about: str = "") -> None:
        """A neighbour sent something that is not used; if that lasts, a hello says so."""
        peer = self.peers[name]
        before = peer.trust
        peer.spurned(reason, text, 0.0 if self.now is None else self.now, about)
        if peer.trust is not before:
            self.announce(SOON)

    def forget_refused_sums(self, before: float) -> None:
        """Drop what was held against neighbours and has not come again since a time."""
        for peer in self.peers.values():
            trust = peer.trust
            peer.forget_sums(before)
            if peer.trust is not trust:
                self.announce(SOON)

    def receive(self, peer: Neighbour, message: Message, now: float) -> None:
        """What a message says of its sender, and of us."""
        before = peer.trust, peer.told
        if message.kind == HELLO:
            peer.trust = after(peer.trust, Event.HELLO)
        if peer.receive(message, now) and message.kind == HELLO:
            peer.welcome(hello=True)
            peer.release = message.release
            peer.refuses = frozenset(each.whom for each in message.refusals)
            ours = [each for each in message.refusals if each.whom == mark_of(self.name)]
            mine = [each.reason for each in ours if each.incarnation in (0, self.incarnation)]
            peer.told = TWICE if any(e.reason == TWICE for e in ours) else "".join(mine[:1])
        if (peer.trust, peer.told) != before:
            self.announce(SOON)

    # -- theta -------------------------------------------------------------------------------
    def learn(self, X: Array, Y: Array) -> list[Effect]:
        """Learn rows; raises and changes nothing where that cannot be."""
        life = after(self.life, Event.LEARNED)
        effects = super().learn(X, Y)
        self.life = life
        return effects

    def _predicted(self, X: Array, Y: Array, f: Array) -> None:
        if self.clips_by_rows:
            self._test(X, Y, f)
            self.rows = own_rows.append(self.rows, self.learner, X, Y, f)

    @property
    def clips_by_rows(self) -> bool:
        """Whether own rows say how far a neighbour may pull: where nobody can be left out. Not in
        lockstep, which is the simulated algorithm to the bit, and not of sums, which are not mixed.
        """
        free = self.exchange.mode in ("push", "pull") and self.exchange.clip == AUTO
        return free and self._exposed and self.learner.averages

    @property
    def unguarded(self) -> bool:
        """Whether a faulty neighbour can do anything here, although a rule should prevent it."""
        return self._exposed and self.exchange.clip == 0.0

    @property
    def _exposed(self) -> bool:
        """Whether a rule is wanted that leaves neighbours out, and there are too few for it."""
        described = [self.weight(peer) for peer in self.peers.values()]
        return self.exchange.mixing == "ios" and bool(described) and not most_faulty(described)

    def _test(self, X: Array, Y: Array, f: Array) -> None:
        """Hold neighbours' last vectors to new rows, which nobody has learned yet."""
        X, Y, f = X[-own_rows.MOST :], Y[-own_rows.MOST :], f[-own_rows.MOST :]
        own = float(own_rows.losses_of(self.learner, Y, f).sum())
        for peer in self.peers.values():
            if peer.up and peer.last is not None and self.now is not None:
                predicted = self.learner.predict_by(self.state, peer.last, X)
                loss = float(own_rows.losses_of(self.learner, Y, predicted).sum())
                found = peer.record, loss, own, len(X), self._limit
                peer.record = own_rows.tested(*found, self.now)

    @property
    def _limit(self) -> float:
        """The evidence at which a neighbour is named."""
        return own_rows.threshold(len(self.peers))

    def combine(
        self, parts: Sequence[Part], received: Sequence[Part] | None = None
    ) -> list[Effect]:
        """Move towards neighbours' thetas, in the order of their names; the rest stays at self.

        received: what they are judged by, where that is more than what is mixed now. Some are left
        out, the farthest, and what they weigh is dealt out among the others and self.
        """
        if not parts:
            return []
        clip = 0.0 if isinstance(self.exchange.clip, str) else self.exchange.clip
        for peer, theta in parts:
            peer.distance2 = sum_of_squares(theta.astype(np.float64) - self.state.theta[0])
            peer.clipped = bool(clip) and peer.distance2 > clip * clip
        news = {peer.name for peer, _ in parts}
        left = self._judge(parts if received is None else received, news)
        parts = self._clipped([(peer, theta) for peer, theta in parts if not peer.left_out])
        if not parts:
            return []
        self.life = after(self.life, Event.COMBINED)
        weighted = [(self.weight(peer) / left, theta) for peer, theta in parts]
        self.state = self.learner.combine(self.state, weighted, Mixing(clip))
        self.combines += 1
        mean = sum(peer.distance2 or 0.0 for peer, _ in parts) / len(parts)
        size = sum_of_squares(self.state.theta)
        self.disagreement = mean / size if size else None
        return [Combined(tuple(peer.name for peer, _ in parts), mean), Save()]

    def _clipped(self, parts: Sequence[Part]) -> list[Part]:
        """The parts as far as own rows allow; who may not pull at all is left out."""
        if self.rows is None or not self.clips_by_rows:
            return list(parts)
        own, found = self.state.theta[0], list[Part]()
        vectors = [theta for _, theta in parts]
        shares = own_rows.shares(self.rows, self.learner, self.state, vectors)
        for (peer, theta), share in zip(parts, shares, strict=True):
            peer.clipped, peer.left_out = share < 1.0, not share
            if share:
                found.append((peer, own + share * (theta.astype(np.float64) - own)))
        return found

    def _judge(self, received: Sequence[Part], news: Collection[str]) -> float:
        """Who is left out, and who is far from all others; what the rest weighs with self."""
        own = self.state.theta[0].ravel()
        vectors = [(self.weight(peer), theta.ravel()) for peer, theta in received]
        speakers = [self.weight(peer) for peer in self.peers.values() if peer.speaks]
        every = [self.weight(peer) for peer in self.peers.values() if peer.believed]
        out = outliers.left_out(self.exchange.mixing, own, vectors, speakers, every)
        far = outliers.far(own, [theta for _, theta in vectors])
        for (peer, _), drop, off in zip(received, out, far, strict=True):
            peer.left_out = drop
            if peer.name in news:
                peer.tested_far(off, self._limit, self.now or 0.0)
        gone = sum(weight for (weight, _), drop in zip(vectors, out, strict=True) if drop)
        return 1.0 - gone if gone else 1.0

    def adopt(self, parts: Sequence[tuple[Neighbour, Array]]) -> list[Effect]:
        """A newcomer starts where its neighbours are."""
        self.life = after(self.life, Event.ADOPTED)
        counts = [peer.count for peer, _ in parts]
        self.state = self.learner.adopt(self.state, [theta for _, theta in parts], counts)
        names = ", ".join(peer.name for peer, _ in parts)
        return [Notice("joined", f"started from the vectors of {names}"), Save()]

    # -- own messages ------------------------------------------------------------------------
    def packed(self, now: float) -> bytes:
        """The message that carries theta; made once for each theta."""
        key = self.step, self.says_finished, len(self.peers), self.learned, self.exchange.dtype
        made = self._packed
        if made is None or made[0] != key or made[1] is not self.state:
            made = self._packed = key, self.state, self.pack(self.state.theta[0], self.step, now)
        return made[2]

    def pack(self, theta: Array | None, step: int, now: float, waiting: bool = False) -> bytes:
        """A message of this node, with theta or without."""
        m, D, degree = self.learner.m, self.learner.D, min(len(self.peers), 0xFFFF)
        kind, count = HELLO if theta is None else THETA, int(self.state.count[0])
        about = kind, self.learner.fingerprint, m, D, degree, self.incarnation, step
        # Of an earlier round, repeated, it would say that this was the last.
        finished = self.says_finished and step == self.step
        numbers = count, self.learned, now, finished
        refusals = (
            [] if theta is not None else [r for p in self.peers.values() for r in p.refusals()]
        )
        release = "" if theta is not None else __version__
        made = Message(*about, *numbers, theta, waiting, tuple(refusals), release=release)
        return messages.pack(made, self.exchange.dtype)

    def pack_body(self, kind: int, body: bytes, now: float, waiting: bool = False) -> bytes:
        """A message of this node that carries sums, or which of them it has."""
        m, D, degree = self.learner.m, self.learner.D, min(len(self.peers), 0xFFFF)
        about = kind, self.learner.fingerprint, m, D, degree, self.incarnation, self.step
        numbers = int(self.state.count[0]), self.learned, now, self.says_finished
        return messages.pack(Message(*about, *numbers, waiting=waiting, body=body))

    def too_large(self, theta: Array) -> list[Effect]:
        """Say once when float16 cannot hold what is sent."""
        before, self.cut_short = self.cut_short, not messages.fits(theta, self.exchange.dtype)
        if before or not self.cut_short:
            return []
        text = f"theta has numbers beyond {LARGEST16:g}, the end of float16: neighbours "
        return [Notice("clipped", text + "get them cut there. Send float32, or scale the targets")]

    @property
    def says_finished(self) -> bool:
        """Finished, and nothing is left to learn."""
        return self.supply is Supply.ENDED and not self.queue.rows

    def hello(self, now: float) -> bytes:
        """Who we are, without theta."""
        return self.pack(None, self.step, now)

    def greet(self, now: float) -> list[Effect]:
        """Say hello now, and again a few times."""
        self._hellos, self._greeted = REPEATS, now
        return [SendHello(self.hello(now))]

    def announce(self, pause: float = PAUSE) -> None:
        """Something changed that neighbours should receive, this long after the last hello at the
        earliest, and a few times.
        """
        self._hellos = (pause, *REPEATS)

    def hello_due(self) -> float | None:
        """When the next hello goes out, if any."""
        there = [peer for peer in self.peers.values() if peer.up]
        if self._hellos and there:
            return self._greeted + self._hellos[0]
        disputed = any(not peer.believed for peer in there)
        return max(self._greeted, 0.0) + DISPUTE if disputed else None

    def tick(self, now: float) -> list[Effect]:
        """Repeat hellos that are due, and see who is believed again."""
        for peer in self.peers.values():
            before = peer.trust
            peer.tick(now)
            if peer.trust is not before:
                self.announce(SOON)
        due = self.hello_due()
        if due is None or now < due:
            return []
        self._hellos, self._greeted = self._hellos[1:], now
        return [SendHello(self.hello(now))]

    # -- going back --------------------------------------------------------------------------
    def mark(self) -> dict[str, Any]:
        """All that changes; arrays and dictionaries in it are replaced, never written to."""
        peers = {name: peer.copy() for name, peer in self.peers.items()}
        return {**super().mark(), "peers": peers}

    def back(self, mark: dict[str, Any]) -> None:
        """As it was at the mark."""
        super().back(mark)
        self.peers = {name: peer.copy() for name, peer in mark["peers"].items()}
