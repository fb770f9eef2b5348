"""Exchange in lockstep: a step waits for all live neighbours' same step, as in the theory.

Order "cta", round n: combine own theta(n-1) with the neighbours' theta(n-1), adapt to the next
row, send theta(n). Order "atc": adapt, send, wait for the neighbours' adapted vectors of the same
round, combine. Either way a node at round n needs its neighbours' vectors of round n to go on, and
a neighbour is at most one round ahead. A node that waits repeats its last two rounds and asks for
a repetition. A node that is silent for `patience_seconds` is given up until it sends again. A node
that was left behind, by a restart or a partition, jumps to its neighbours' round.
"""

from __future__ import annotations

from typing import Any

from dokl.base.arrays import Array
from dokl.base.errors import Diverged
from dokl.live.protocol.effects import Effect, Notice, SendTheta
from dokl.live.protocol.messages import Message
from dokl.live.protocol.neighbours import Neighbour
from dokl.live.protocol.node import LiveNode
from dokl.live.protocol.states import Event, Life, Round, after

RESEND = 0.25  # seconds
# No honest neighbour is further ahead; following a faulty node there would use up the numbers.
FARTHEST = 1 << 40
_ADAPTED, _GATHERING = (Round.ADAPTED, Round.AHEAD), (Round.GATHERING, Round.AHEAD)


class Lockstep:
    """Rounds. phase: where we are in one. own: the last two that were sent, oldest first.

    waiting_since: since when the round waits for neighbours; None while it does not.
    """

    def __init__(self, node: LiveNode) -> None:
        self.node = node
        self.own: tuple[tuple[int, Array], ...] = ()
        self._stand_at(node.step)
        self.phase = Round.GATHERING if node.peers else Round.READY
        self.waiting_since: float | None = None
        self.resent = float("-inf")
        self.asked = False  # a neighbour asked for a repetition

    # -- events ------------------------------------------------------------------------------
    def samples(self, X: Array, Y: Array, now: float) -> list[Effect]:
        """Queue rows, and take as many rounds as possible."""
        self.node.queue.add(X, Y)
        return self._rounds(now)

    def theta(self, peer: Neighbour, message: Message, now: float) -> list[Effect]:
        """Keep a neighbour's round; a repeated one is no news, but may be a question."""
        self.asked = self.asked or message.waiting
        same, reason = message.incarnation == peer.known[0], peer.stale(message)
        if reason is not None and not same:
            text = f"got {message.version} after (incarnation, step) {peer.known}"
            return self.node.refuse(peer.name, reason, text)
        if message.step > self.node.step + FARTHEST:
            return self.node.refuse(peer.name, "numbers", f"round {message.step} cannot be")
        if reason is not None and not self._missing(peer, message):
            peer.repeated += 1
            return self._rounds(now)
        if reason is None:
            peer.accepts(message, now)
        assert message.theta is not None
        rounds = {**(peer.rounds if same else {}), message.step: message.theta}
        peer.rounds = {n: rounds[n] for n in sorted(rounds)[-3:]}
        peer.patience = after(peer.patience, Event.ROUND)
        return self._rounds(now)

    def _missing(self, peer: Neighbour, message: Message) -> bool:
        """Whether an overtaken round is still wanted."""
        return message.step >= self.node.step and message.step not in peer.rounds

    def hello(self, peer: Neighbour, message: Message, now: float) -> list[Effect]:
        """It may say that the neighbour has finished."""
        return self._rounds(now)

    def peer_up(self, peer: Neighbour, now: float) -> list[Effect]:
        """Send it our round; it is waited for from now on."""
        peer.patience = after(peer.patience, Event.PEER_UP)
        return [*self.node.greet(now), *self._resend(now), *self._rounds(now)]

    def peer_lost(self, peer: Neighbour, now: float) -> list[Effect]:
        """Nobody waits for it; what it sent before still counts for its round."""
        return self._rounds(now)

    def finish(self, now: float) -> list[Effect]:
        """Neighbours need not wait for rounds that will not come."""
        return self.node.greet(now)

    def tick(self, now: float) -> list[Effect]:
        """Give up the silent ones, and repeat what may have been lost."""
        effects: list[Effect] = []
        if self.waiting_since is not None and now >= self._patience_ends():
            effects += self._give_up()
        effects += self._rounds(now)
        if (self.asked or self.waiting_since is not None) and now >= self.resent + RESEND:
            effects += self._resend(now)
        return effects

    def next_due(self) -> float | None:
        """When `tick` is wanted."""
        times = [self.resent + RESEND] if self.asked or self.waiting_since is not None else []
        times += [] if self.waiting_since is None else [self._patience_ends()]
        return min(times, default=None)

    # -- rounds ------------------------------------------------------------------------------
    def _rounds(self, now: float) -> list[Effect]:
        """As many rounds as rows and neighbours allow."""
        effects = self._jump(now)
        while self._something_to_do():
            if self._awaited():
                if self.waiting_since is None:
                    self.waiting_since = self.resent = now
                return effects
            self.phase, self.waiting_since = after(self.phase, Event.FREE), None
            effects += self._round(now)
        self.waiting_since = None
        return effects

    @property
    def _adapted(self) -> bool:
        """Whether the own row of this round is learned, and the round is to be combined."""
        return self.phase in _ADAPTED

    def _something_to_do(self) -> bool:
        return self._adapted or self.node.queue.rows > 0

    def _awaited(self) -> list[Neighbour]:
        """The neighbours without whom this round does not go on."""
        peers = list(self.node.peers.values())
        gathering = self.phase in _GATHERING
        absent = [p for p in peers if gathering and not (p.up or p.given_up) and p.believed]
        if absent or not (self._adapted or self.node.exchange.order == "cta"):
            return absent
        return [peer for peer in peers if self._waits_for(peer)]

    def _waits_for(self, peer: Neighbour) -> bool:
        n = self.node.step
        if not (peer.usable and peer.believed) or peer.given_up or n in peer.rounds:
            return False
        newest = max(peer.rounds, default=-1)
        over = peer.finished and max(peer.newest[1], newest) < n
        return not over and newest < n + 2

    def _round(self, now: float) -> list[Effect]:
        """One combination, one row, or both."""
        if self.node.exchange.order == "cta":
            return self._combine() + (self._adapt(now) if self.node.queue.rows else [])
        return self._combine() if self._adapted else self._adapt(now)

    def _combine(self) -> list[Effect]:
        node, self.phase = self.node, after(self.phase, Event.MIXED)
        peers = [p for p in node.peers.values() if p.believed and node.step in p.rounds]
        return node.combine([(peer, peer.rounds[node.step]) for peer in peers])

    def _adapt(self, now: float) -> list[Effect]:
        node, before, cta = self.node, self.node.step, self.node.exchange.order == "cta"
        self.phase = after(self.phase, Event.ROW_CTA if cta else Event.ROW_ATC)
        X, Y = node.queue.take(1)
        try:
            effects = node.learn(X, Y)
        except Diverged as error:
            effects = node.pass_over(1, error)
        node.step = before + 1
        self.own = (*self.own[-1:], (node.step, node.state.theta[0]))
        for peer in node.peers.values():
            peer.rounds = {n: theta for n, theta in peer.rounds.items() if n >= node.step}
        return [*effects, *node.too_large(node.state.theta[0]), SendTheta(node.packed(now))]

    # -- the lost and the late ---------------------------------------------------------------
    def _resend(self, now: float) -> list[Effect]:
        """The last two rounds once more."""
        self.resent, self.asked = now, False
        waiting = self.waiting_since is not None
        return [SendTheta(self.node.pack(theta, n, now, waiting)) for n, theta in self.own]

    def _patience_ends(self) -> float:
        assert self.waiting_since is not None
        return self.waiting_since + self.node.exchange.patience_seconds

    def _give_up(self) -> list[Effect]:
        effects: list[Effect] = []
        self.waiting_since = None
        for peer in self._awaited():
            peer.patience = after(peer.patience, Event.SILENCE)
            self.node.silences += 1
            text = f"neighbour {peer.name!r} is silent at round {self.node.step}: on without it"
            effects.append(Notice("silent", text))
        return effects

    def _stand_at(self, step: int) -> None:
        """Begin at a round; who is one behind gets the same vector for that."""
        theta = self.node.state.theta[0]
        self.node.step = step
        self.own = tuple((n, theta) for n in (step - 1, step) if n >= 0)

    def _jump(self, now: float) -> list[Effect]:
        """To the round of the neighbours, where they are too far ahead to be caught up with."""
        node = self.node
        usable = [p for p in node.peers.values() if p.usable and p.believed]
        newest = [(p, max(p.rounds)) for p in usable if p.rounds]
        ahead = [n for p, n in newest if n >= node.step + 2 and not p.finished]
        if not ahead or not self._something_to_do():
            return []
        effects: list[Effect] = []
        if node.life is Life.NEW:
            parts = [(p, p.rounds[n]) for p, n in newest if p.count > 0]
            effects += node.adopt(parts) if parts else []
        text = f"from round {node.step} to {min(ahead)}, where the neighbours are"
        self._stand_at(min(ahead))
        cta = node.exchange.order == "cta"
        self.phase = after(self.phase, Event.JUMP_CTA if cta else Event.JUMP_ATC)
        self.waiting_since = None
        return [*effects, Notice("jumped", text), *self._resend(now)]

    # -- going back --------------------------------------------------------------------------
    def mark(self) -> dict[str, Any]:
        """All that changes."""
        return dict(vars(self))

    def back(self, mark: dict[str, Any]) -> None:
        """As it was at the mark."""
        vars(self).update(mark)
