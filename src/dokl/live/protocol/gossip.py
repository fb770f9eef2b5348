"""Exchange without a common beat, by pushing or pulling: each node combines what it has got.

An exchange is due by time or by samples. A node then combines with the neighbours that sent
something new since, each theta being used once, and sends its own (push) or asks for theirs (pull).
What has not changed noticeably is not sent, so an idle network falls silent.
"""

from __future__ import annotations

from typing import Any

from dokl.base.arrays import Array
from dokl.base.errors import Diverged
from dokl.live.protocol.effects import Ask, Effect, Notice, Save, SendTheta
from dokl.live.protocol.messages import Message
from dokl.live.protocol.neighbours import Neighbour
from dokl.live.protocol.node import PAUSE, LiveNode
from dokl.live.protocol.states import Event, Life, Outgoing, after
from dokl.network.exchange import Sending

# A relative change of theta that is worth a message. float16 rounds by 5e-4: below that two nodes
# could swap roundings for ever.
SENDING = {"float32": Sending("float32", 1e-6), "float16": Sending("float16", 1e-3)}
QUICK = 0.2  # seconds between exchanges with a new neighbour, where samples set the pace
MEETINGS = 60  # times that an unchanged theta is sent to one that was left out and differs
AGAIN = 2  # times that a last theta is repeated, in case it was lost


class Gossip:
    """Push and pull.

    outgoing: what there is to send.
    """

    def __init__(self, node: LiveNode) -> None:
        self.node = node
        self.sent_theta: Array | None = None
        self.sent_at, self.sent_step, self.again = float("-inf"), 0, 0
        self.unmet, self.meetings = False, MEETINGS
        self.exchanged = float("-inf")
        self.since = 0  # samples since the last exchange
        self.outgoing = Outgoing.CHANGED if node.step else Outgoing.QUIET
        self.deadline: float | None = None

    @property
    def active(self) -> bool:
        """Whether there is any exchange."""
        return self.node.exchange.mode != "off"

    @property
    def joining(self) -> bool:
        """Whether a newcomer waits for neighbours to start from."""
        return self.node.life is Life.JOINING

    # -- events ------------------------------------------------------------------------------
    def samples(self, X: Array, Y: Array, now: float) -> list[Effect]:
        """Learn at once, or keep the rows until it is clear where to start from."""
        if self.joining:
            self.node.queue.add(X, Y)
            return self._join(now)
        effects = self._learn(X, Y)
        every = self.node.exchange.every_samples
        return effects + (self._exchange(now) if self.active and 0 < every <= self.since else [])

    def _learn(self, X: Array, Y: Array) -> list[Effect]:
        """Learn; what a newcomer learns first is saved, which says that it is none any more."""
        first = self.node.life is Life.FROM_ZERO
        try:
            effects = self.node.learn(X, Y)
        except Diverged:
            if self.node.state.peak > 0 or not self.node.step:
                raise
            effects = self._learn_from_zero(X, Y)
        self.since, self.outgoing = self.since + len(X), after(self.outgoing, Event.LEARNED)
        return [*effects, Save()] if first else effects

    def _learn_from_zero(self, X: Array, Y: Array) -> list[Effect]:
        """No own sample is lost: theta came from neighbours, and the first samples refute it."""
        node, kept = self.node, self.node.state
        node.state = node.learner.start()
        try:
            effects = node.learn(X, Y)
        except Diverged:
            node.state = kept
            raise
        text = "the vector taken over from neighbours made the first samples diverge: from zero"
        return [Notice("restarted", text), *effects, Save()]

    def theta(self, peer: Neighbour, message: Message, now: float) -> list[Effect]:
        """Keep the newest of each neighbour until the next exchange."""
        reason = peer.stale(message)
        if reason is not None:
            newest = f"its newest is (incarnation, step) {peer.known}"
            return self.node.refuse(peer.name, reason, f"got {message.version}, {newest}")
        peer.accepts(message, now)
        peer.fresh = peer.last = message.theta
        peer.interest = after(peer.interest, Event.THETA)
        return self._join(now)

    def hello(self, peer: Neighbour, message: Message, now: float) -> list[Effect]:
        """A neighbour that has something new is worth asking, and so is any while we change
        ourselves: it will change with us.
        """
        if message.version != peer.known and message.step > 0:
            peer.interest = after(peer.interest, Event.NEWS)
        elif now >= self.sent_at + PAUSE:
            peer.interest = after(peer.interest, Event.NO_NEWS)
        return self._join(now)

    def peer_up(self, peer: Neighbour, now: float) -> list[Effect]:
        """It may have missed everything, and so may we."""
        self.outgoing = after(self.outgoing, Event.PEER_UP)
        peer.interest = after(peer.interest, Event.PEER_UP)
        return [*self.node.greet(now), *self._join(now)]

    def peer_lost(self, peer: Neighbour, now: float) -> list[Effect]:
        """Its weight returns to self."""
        peer.fresh, peer.last, peer.left_out = None, None, False
        peer.interest = after(peer.interest, Event.PEER_LOST)
        return self._join(now)

    def finish(self, now: float) -> list[Effect]:
        """Nobody waits here."""
        self.node.announce()
        return []

    def tick(self, now: float) -> list[Effect]:
        """Exchange, or repeat what may have been lost, when it is time."""
        effects = self._join(now)
        due = self._exchange_due()
        if due is not None and now >= due:
            effects += self._exchange(now)
        elif self.again and now >= self.sent_at + PAUSE:
            self.again -= 1
            effects += self._send(now)
        return effects

    def next_due(self) -> float | None:
        """When `tick` is wanted."""
        times = [self.deadline if self.joining else None, self._exchange_due()]
        times += [self.sent_at + PAUSE] if self.again else []
        return min((time for time in times if time is not None), default=None)

    # -- exchange ----------------------------------------------------------------------------
    def _exchange_due(self) -> float | None:
        """By time; where only samples count, for a new neighbour: it cannot wait for them."""
        quick = self.outgoing is Outgoing.CALLED or self.joining
        every = self.node.exchange.every_seconds or (QUICK if quick else 0.0)
        return self.exchanged + every if every > 0 and self.active and self._wanted() else None

    def _wanted(self) -> bool:
        node, pull = self.node, self.node.exchange.mode == "pull"
        usable = [peer for peer in node.peers.values() if peer.usable]
        if pull and any(peer.curious for peer in usable):
            return True
        if self.joining or not usable:
            return False
        fresh = any(peer.fresh is not None for peer in usable)
        return fresh or self.outgoing is not Outgoing.QUIET

    def _exchange(self, now: float) -> list[Effect]:
        effects: list[Effect] = [] if self.joining else self._combine()
        self.exchanged, self.since = now, 0
        usable = [peer for peer in self.node.peers.values() if peer.usable]
        if not usable:
            self.outgoing = after(self.outgoing, Event.ALONE)
            return effects
        called = self.outgoing is Outgoing.CALLED
        if self.node.step and not self.joining and (called or self._noticeable() or self._met()):
            effects += self._announce(now)
        # A newcomer has nothing to send, and will when it changes.
        self.outgoing = after(self.outgoing, Event.EXCHANGED)
        if self.node.exchange.mode == "pull":
            effects += [Ask(peer.name, peer.has) for peer in usable if peer.curious]
        return effects

    def _combine(self) -> list[Effect]:
        for peer in self.node.peers.values():
            peer.fresh = peer.fresh if peer.believed else None
        peers = [peer for peer in self.node.peers.values() if peer.usable]
        parts = [(peer, peer.fresh) for peer in peers if peer.fresh is not None]
        received = [(p, p.last) for p in peers if p.believed and p.last is not None]
        effects = self.node.combine(parts, received)
        sending, own = SENDING[self.node.exchange.dtype], self.node.state.theta[0]
        for peer, theta in parts:
            peer.fresh = None
            self.unmet |= peer.left_out and sending.noticeable(own, theta)
        self.node.step += bool(effects)
        return effects

    def _noticeable(self) -> bool:
        if self.sent_theta is None:
            return True
        sending = SENDING[self.node.exchange.dtype]
        changed = sending.noticeable(self.node.state.theta[0], self.sent_theta)
        self.meetings = MEETINGS if changed else self.meetings
        return changed

    def _met(self) -> bool:
        """Whether to send a theta again because of one that was left out: this node has not
        moved towards it, and so it has to come here; not for ever, in case it never does.
        """
        wanted, self.unmet = self.unmet and self.meetings > 0, False
        self.meetings -= wanted
        return wanted

    def _announce(self, now: float) -> list[Effect]:
        """Send theta (push), or let neighbours know that there is something to ask for (pull)."""
        if self.node.exchange.mode == "pull":
            self.sent_theta, self.sent_at = self.node.state.theta[0], now
            for peer in self.node.peers.values():
                event = Event.SENT if peer.usable else Event.NOT_SENT
                peer.interest = after(peer.interest, event)
            self.node.announce()
            return []
        self.again = AGAIN
        return self._send(now)

    def _send(self, now: float) -> list[Effect]:
        """A theta that is sent again counts as a new one: who has it already combines again."""
        node = self.node
        node.step += node.step == self.sent_step
        self.sent_theta, self.sent_at, self.sent_step = node.state.theta[0], now, node.step
        return [*node.too_large(self.sent_theta), SendTheta(node.packed(now))]

    # -- joining -----------------------------------------------------------------------------
    def _join(self, now: float) -> list[Effect]:
        """Start from neighbours' vectors once all that have one sent it, or when time is up."""
        if not self.joining:
            return []
        node = self.node
        if self.deadline is None:
            self.deadline = now + node.exchange.join_seconds
        there = [peer for peer in node.peers.values() if peer.usable and peer.believed]
        usable = [peer for peer in there if peer.count > 0]
        all_sent = all((p.up and p.has_sent) or not p.believed for p in node.peers.values())
        complete = all_sent and all(peer.fresh is not None for peer in usable)
        if now < self.deadline and not complete:
            return []
        parts = [(peer, peer.fresh) for peer in usable if peer.fresh is not None]
        return self._start(parts)

    def _start(self, parts: list[tuple[Neighbour, Array]]) -> list[Effect]:
        node = self.node
        if not parts:
            node.life = after(node.life, Event.NOBODY)
            return self._drain()
        effects = node.adopt(parts)
        node.step, self.outgoing = node.step + 1, after(self.outgoing, Event.ADOPTED)
        for peer, _ in parts:
            peer.fresh = None
        return [*effects, *self._drain()]

    def _drain(self) -> list[Effect]:
        """Learn the first of the rows that waited; `Protocol.learn_queued` learns the others."""
        return self.node.drain(self._learn)

    # -- going back --------------------------------------------------------------------------
    def mark(self) -> dict[str, Any]:
        """All that changes."""
        return dict(vars(self))

    def back(self, mark: dict[str, Any]) -> None:
        """As it was at the mark."""
        vars(self).update(mark)
