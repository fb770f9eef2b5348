"""What a live node does, without sockets, clocks, threads or files: events in, effects out.

The same events give the same effects, to the last bit; `now` is monotonic seconds and comes with
each event. So a lossy, reordering, partitioned network is a unit test. What travels is described in
`messages`, what state a node and its neighbours can be in, and what changes it, in `states`, the
two ways of exchanging in `gossip` (push and pull) and `lockstep`.

Metropolis weights need local knowledge only: a_kl = 1 / (1 + max(deg_k, deg_l)), where deg_l comes
with l's messages. The weight of a neighbour that is down, silent or refused returns to self, and
`facts` says which assumption of the theory does not hold while that lasts.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from dokl.base.arrays import Array
from dokl.base.errors import BadInput
from dokl.live.protocol import messages, pieces
from dokl.live.protocol.effects import Effect
from dokl.live.protocol.gossip import Gossip
from dokl.live.protocol.local import LocalNode
from dokl.live.protocol.lockstep import Lockstep
from dokl.live.protocol.messages import HELLO, TWICE, Message, Refused
from dokl.live.protocol.neighbours import Neighbour
from dokl.live.protocol.node import SOON, LiveNode
from dokl.live.protocol.own_rows import WORSE
from dokl.live.protocol.roll import Roll, unproven
from dokl.live.protocol.row_sharing import RowSharing
from dokl.live.protocol.sealing import UNKNOWN, Sealed
from dokl.live.protocol.states import Event, Life, Supply, Trust, after
from dokl.live.protocol.sum_sharing import SumSharing
from dokl.live.rows import RowsLearner
from dokl.network.state import State
from dokl.network.sums.origins import most_bytes
from dokl.simulation.learner import Learner

if TYPE_CHECKING:
    from dokl.live.description import ExchangePolicy

Way = Gossip | Lockstep | SumSharing | RowSharing
UNGUARDED = (
    "no neighbour can be left out here, and none is clipped: a faulty one can lead this node "
    'anywhere (mixing = "ios" and clip = "auto" prevent that)'
)


class Protocol(LocalNode):
    """One node. state, learned, sealed (sums) and stored (batches of rows): what a store gave
    back, if it had something. offset: seconds since 1970 when `now` was 0.

    learned counts the rows of the store that are in the state: in lockstep, and while a newcomer
    waits for its neighbours, `queued` further rows are accepted and not learned yet.
    """

    def __init__(
        self,
        learner: Learner,
        name: str,
        neighbours: Sequence[str],
        exchange: ExchangePolicy,
        incarnation: int,
        state: State | None = None,
        learned: int = 0,
        roll: Roll | None = None,
        sealed: Sealed = UNKNOWN,
        stored: Sequence[bytes] = (),
        offset: float = 0.0,
    ) -> None:
        self._roll, self._sealed = roll, sealed
        self._node = LiveNode(learner, name, neighbours, exchange, incarnation, state, learned)
        if exchange.mode == "lockstep":
            self._node.step = learned
        super().__init__(self._node)
        self._node.offset = offset
        self._way: Way = _way(self._node, roll, sealed, stored)

    @property
    def latest(self) -> int | None:
        """The largest incarnation that is believed, of messages and of sums; None: any."""
        return self._node.latest

    @latest.setter
    def latest(self, incarnation: int | None) -> None:
        self._node.latest = incarnation

    @property
    def offset(self) -> float:
        """Seconds since 1970 when `now` was 0."""
        return self._node.offset

    @offset.setter
    def offset(self, seconds: float) -> None:
        self._node.offset = seconds

    @property
    def learns(self) -> bool:
        """Whether rows that were taken are learned without waiting for neighbours."""
        return not isinstance(self._way, Lockstep) and self._node.life is not Life.JOINING

    @property
    def joining(self) -> bool:
        """Whether it still looks for neighbours to start from."""
        return self._node.life is Life.JOINING

    # -- events ------------------------------------------------------------------------------
    def _accept(self, now: float) -> None:
        node = self._at(now)
        if node.supply is Supply.ENDED:
            node.announce()
        node.supply = after(node.supply, Event.SAMPLES)

    def _learn(self, X: Array, Y: Array, now: float) -> list[Effect]:
        return self._way.samples(X, Y, now)

    def learn_queued(self, now: float) -> list[Effect]:
        """Learn the next rows that were taken, at most `at_once` of them."""
        self._at(now)
        return super().learn_queued(now)

    def replay(self, X: Array, Y: Array) -> list[Effect]:
        """Rows of the journal after a restart: learned without exchange.

        In lockstep they are queued, and by a newcomer: it had not begun when it ended, or there
        would be a snapshot.
        """
        if isinstance(self._way, Lockstep) or self._node.life is Life.JOINING:
            self._node.queue.add(*self._node.learner.rows(X, Y))
            return []
        effects = super().replay(X, Y)
        if isinstance(self._way, RowSharing):
            self._way.replayed()
        else:
            self._way = _way(self._node, self._roll, self._sealed)
        return effects

    def renumber(self) -> bool:
        """All of the journal was learned again; whether the state is to be stored before more rows
        come, as own ones were lost or taken back that others have.
        """
        return isinstance(self._way, RowSharing) and self._way.renumber()

    def message(self, peer: str, data: bytes, now: float) -> list[Effect]:
        """Bytes of a neighbour, hostile until checked."""
        node = self._at(now)
        if peer not in node.peers:
            return node.refuse(peer, "stranger", f"{peer!r} is no neighbour of this node")
        if node.exchange.mode == "off":
            return node.refuse(peer, "off", "exchange is off")
        learner, known = node.learner, node.peers[peer]
        try:
            fingerprint, m, D = learner.fingerprint, learner.m, learner.D
            most, bodies = self._bodies
            earlier = learner.earlier if isinstance(learner, RowsLearner) else ()
            message = messages.unpack(
                data, fingerprint=fingerprint, m=m, D=D, most=most, bodies=bodies, earlier=earlier
            )
        except Refused as error:
            if error.reason in ("fingerprint", "shape"):
                before = known.trust
                known.bar(error.reason, error.text)
                if known.trust is not before:
                    node.announce(SOON)
            return node.refuse(peer, error.reason, f"neighbour {peer!r}: {error.text}")
        hours = node.hours_ahead(message.incarnation)
        if hours > 0:
            text = f"neighbour {peer!r} says that it started {hours:.3g} hours later than can be"
            return node.refuse(peer, "ahead", f"{text}: a wrong clock, or a thief of its key")
        return self._understood(known, message, now)

    @property
    def _bodies(self) -> tuple[int, tuple[int, ...]]:
        """The most bytes of a message of sums or rows, 0 without any, and its kinds."""
        if isinstance(self._way, RowSharing):
            return self._way.context.most_message, messages.ROW_BODIES
        m, D = self._node.learner.m, self._node.learner.D
        most = 0 if self._roll is None else pieces.largest(most_bytes(m, D))
        return most, messages.BODIES

    def too_large(self, peer: str, now: float) -> None:
        """The transport threw a message away for its size: one more that could not be used."""
        node = self._at(now)
        if peer in node.peers:
            node.spurn(peer, "size", "its messages are larger than any of this network")

    def seen_twice(self, peers: Collection[str], now: float) -> None:
        """Under whose names the transport sees two."""
        node = self._at(now)
        for name, peer in node.peers.items():
            if peer.twice != (name in peers):
                peer.sees_two(name in peers)
                node.announce(SOON)

    def _understood(self, peer: Neighbour, message: Message, now: float) -> list[Effect]:
        node = self._node
        if message.kind == HELLO:
            node.receive(peer, message, now)
            return self._way.hello(peer, message, now)
        if peer.barred:
            return node.refuse(peer.name, "fingerprint", f"not used since its hello: {peer.unlike}")
        if message.theta is not None and node.learner.wild(node.state, message.theta):
            text = f"neighbour {peer.name!r}: predictions a million times our largest target"
            return node.refuse(peer.name, "large", text)
        node.receive(peer, message, now)
        before = peer.trust
        effects = self._way.theta(peer, message, now)
        if peer.trust is not before:  # it must learn that it is believed again
            node.announce(SOON)
        return effects

    def tick(self, now: float) -> list[Effect]:
        """Time has passed: exchange, repeat, give up, whatever is due."""
        node = self._at(now)
        effects = self._way.tick(now)
        return effects if node.exchange.mode == "off" else [*effects, *node.tick(now)]

    def peer_up(self, peer: str, now: float) -> list[Effect]:
        """A neighbour can be reached."""
        node = self._at(now)
        if peer not in node.peers:
            return []
        known = node.peers[peer]
        known.contact, known.told = after(known.contact, Event.PEER_UP), ""
        known.refuses = frozenset()
        return [] if node.exchange.mode == "off" else self._way.peer_up(known, now)

    def peer_lost(self, peer: str, now: float) -> list[Effect]:
        """A neighbour cannot be reached any more; its weight returns to self."""
        node = self._at(now)
        if peer not in node.peers:
            return []
        known = node.peers[peer]
        known.contact = after(known.contact, Event.PEER_LOST)
        return [] if node.exchange.mode == "off" else self._way.peer_lost(known, now)

    def finish(self, now: float) -> list[Effect]:
        """The own source is at its end: neighbours in lockstep need not wait for more."""
        node = self._at(now)
        node.supply = after(node.supply, Event.FINISH)
        return [] if node.exchange.mode == "off" else self._way.finish(now)

    def next_due(self, now: float) -> float | None:
        """When `tick` is wanted at the latest; None: not before something else happens."""
        off = self._node.exchange.mode == "off"
        times = [self._way.next_due(), None if off else self._node.hello_due()]
        times.append(super().next_due(now))
        times += [] if off else [peer.rivals_end() for peer in self._node.peers.values()]
        return min((time for time in times if time is not None), default=None)

    def check_change(self, roll: Roll | None) -> None:
        """Refuse seals by which rows would be lost: nodes that start later could not check them."""
        if isinstance(self._way, RowSharing) and roll is not None:
            self._way.check_change(roll)
        held = self._way.sealed if isinstance(self._way, SumSharing) else {}
        names = [] if roll is None else unproven(roll, held)
        names = [name for name in names if name != self._node.name]  # which seals again
        if names:
            raise BadInput(
                f"ca.pem lacks the authority under which the sums of {', '.join(names)} are "
                "sealed: give these nodes their new certificates, and reload or start them (or "
                "take them out of the network); then reload this agent again"
            )

    def change(
        self,
        neighbours: Sequence[str],
        exchange: ExchangePolicy | None = None,
        roll: Roll | None = None,
    ) -> None:
        """Take a new description: other neighbours, another policy, other origins of sums."""
        node, before = self._node, self._node.exchange
        node.set_neighbours(neighbours)
        node.exchange, self._roll = exchange or before, roll or self._roll
        if isinstance(self._way, SumSharing | RowSharing):
            if self._roll is not None:
                self._way.change(self._roll)
        elif node.exchange.mode != before.mode:
            self._way = _way(node, self._roll, self._sealed)

    def put_off_sealing(self, now: float) -> None:
        """What was sealed could not be stored: messages come first, then it is tried again."""
        if isinstance(self._way, SumSharing):
            self._way.said_at = now

    # -- own messages ------------------------------------------------------------------------
    def hello(self, now: float) -> bytes:
        """Who we are, without theta."""
        return self._node.hello(now)

    def packed(self, now: float) -> bytes:
        """The message that carries theta, as it is now."""
        return self._node.packed(now)

    # -- going back --------------------------------------------------------------------------
    def mark(self) -> Any:
        """All that events change, for `back`."""
        return self._node.mark(), self._way, self._way.mark()

    def back(self, mark: Any) -> None:
        """As if the events since the mark had not come; what they wanted must not be done."""
        node, self._way, way = mark
        self._node.back(node)
        self._way.back(way)

    # -- facts -------------------------------------------------------------------------------
    def facts(self, now: float | None = None) -> dict[str, Any]:
        """What there is to know, for `/status` and `/metrics`; now: not only since the last event,
        so that what was shown for long enough ends even if nothing happens.
        """
        node = self._node
        sums = self._way if isinstance(self._way, SumSharing | RowSharing) else None
        return {
            "neighbours": {
                name: peer.facts(node.weight(peer) if _takes_part(peer) else 0.0)
                for name, peer in node.peers.items()
            },
            "refused": dict(node.refused),
            "combines": node.combines,
            "disagreement": node.disagreement if sums is None else sums.disagreement,
            "silences": node.silences,
            "diverged": node.diverged,
            "queued": node.queue.rows,
            "sums": None if sums is None else sums.facts(),
            "assumptions": self._assumptions(self._time(now)),
            "problems": self.disputes(now),
        }

    def disputes(self, now: float | None = None) -> list[str]:
        """Who is not believed, here or there, until somebody does something about it."""
        at, peers = self._time(now), self._node.peers.values()
        found = [text for peer in peers for text in _disputes(peer, at)]
        return found + (
            self._way.disputes(at) if isinstance(self._way, SumSharing | RowSharing) else []
        )

    def _time(self, now: float | None) -> float:
        return max(now or 0.0, self._node.now or 0.0)

    def _assumptions(self, now: float) -> list[str]:
        """Which assumptions of the theory do not hold now, and why."""
        node = self._node
        if node.exchange.mode == "off":
            return []
        found = [text for peer in node.peers.values() for text in _doubts(node, peer)]
        if isinstance(self._way, SumSharing | RowSharing):
            return found + self._way.remarks(now)
        return found + ([UNGUARDED] if node.unguarded else [])

    def _at(self, now: float) -> LiveNode:
        self._node.now = now
        return self._node


def _way(node: LiveNode, roll: Roll | None, sealed: Sealed, stored: Sequence[bytes] = ()) -> Way:
    if roll is not None:
        node.life = after(node.life, Event.NO_JOIN)
        if isinstance(node.learner, RowsLearner):
            return RowSharing(node, roll, stored)
        return SumSharing(node, roll, sealed)
    mode = node.exchange.mode
    joins = mode in ("push", "pull") and node.peers
    node.life = after(node.life, Event.JOIN if joins else Event.NO_JOIN)
    return Lockstep(node) if mode == "lockstep" else Gossip(node)


def _takes_part(peer: Neighbour) -> bool:
    shut_out = (peer.outside or peer.harms) and peer.left_out
    return peer.usable and peer.believed and not peer.given_up and not shut_out


def _disputes(peer: Neighbour, now: float) -> list[str]:
    """What lasts until somebody does something about it, at this end of a link or at the other."""
    found, name = [], repr(peer.name)
    if peer.trust is Trust.CONTESTED:
        found.append(f"two agents speak as {name}, and neither is used: end one of them")
    elif peer.trust is not Trust.ALIKE:
        found.append(f"what {name} sends is refused ({peer.reason}): {peer.unlike}")
    elif peer.record.alarm.is_reported(now):
        when = "predicts" if peer.harms else "predicted"
        what = f"this node's rows more than {WORSE:g} times as badly as its own"
        then = ", and is clipped or not used" if peer.harms else ""
        found.append(f"the vector of {name} {when} {what}{then}")
    elif peer.far.is_reported(now):
        instead = "used all the same: this node tolerates no faulty neighbour"
        used = "not used" if peer.left_out else instead
        used = "clipped" if peer.clipped and not peer.left_out else used
        when = f"is far from all others, and {used}" if peer.outside else "was far from all others"
        found.append(f"the vector of {name} {when}")
    if peer.told == TWICE:
        found.append(f"{name} receives messages of two agents with this node's name: end one")
    elif peer.told:
        found.append(f"{name} refuses what this node sends ({peer.told}): see its log")
    return found


def _doubts(node: LiveNode, peer: Neighbour) -> list[str]:
    share = f"its weight {node.weight(peer):.3g} is back at self"
    if peer.barred or (peer.up and peer.trust is not Trust.ALIKE):
        return [f"neighbour {peer.name!r} is refused: {share}"]
    if peer.up and peer.told:
        return [f"neighbour {peer.name!r} refuses this node: {share}"]
    if not peer.up:
        return [f"neighbour {peer.name!r} is down: {share}, the graph is not the described one"]
    if peer.given_up:
        return [f"neighbour {peer.name!r} is silent: {share}, the graph is not the described one"]
    if peer.clipped and not node.clips_by_rows:  # a matter of course there, now and then
        return [f"neighbour {peer.name!r} is clipped: what is combined is no average"]
    return []
