"""A network inside one process, for tests and for play: `Hub`, and a transport that plugs in.

Nothing here takes time by itself: messages that are delayed arrive when `Hub.advance` passes
their time (or when the given clock has). With the same seed and the same calls, the same
messages are lost and the same ones overtake each other.

>>> from dokl.live.description import About, AgreedInputs, Model, Network, Node
>>> nodes = {name: Node(f"127.0.0.1:{7000 + i}") for i, name in enumerate("ab")}
>>> lab = Network(About("lab", (("a", "b"),)), Model(), AgreedInputs.plain(1), nodes=nodes)
>>> hub = Hub(delay=(0.1, 0.2))
>>> a, b = (MemoryTransport(lab, name, hub=hub) for name in "ab")
>>> a.open(), b.open(), b.events()
(None, None, [('a', True)])
>>> a.send("theta", b"numbers")
>>> b.receive()
[]
>>> hub.advance(0.2)
>>> b.receive()
[('a', 'theta', b'numbers')]
"""

from __future__ import annotations

import heapq
import random
import threading
from collections.abc import Callable, Iterable
from itertools import count

from dokl.base.errors import BadInput, UnknownName
from dokl.live.description import Network
from dokl.live.transports import KINDS
from dokl.live.transports.boxes import ReceiveBox

ANSWER_SECONDS = 5.0  # how long a question may be under way

Version = tuple[int, int]


class Hub:
    """Where the transports of one process meet.

    drop: the share of messages that are lost. delay: each takes this long, drawn between two
    numbers of seconds. reorder: later ones may overtake. clock: seconds, instead of `advance`.
    """

    def __init__(
        self,
        seed: int = 0,
        *,
        drop: float = 0.0,
        delay: tuple[float, float] = (0.0, 0.0),
        reorder: bool = False,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.drop, self.delay, self.reorder = drop, delay, reorder
        self._random = random.Random(seed)
        self._passed, self._clock = 0.0, clock
        self._nodes: dict[str, MemoryTransport] = {}
        self._cut: set[frozenset[str]] = set()
        self._flying: list[tuple[float, int, str, str, Callable[[], None]]] = []
        self._numbers = count()
        self._latest: dict[tuple[str, str], float] = {}
        self._lock = threading.RLock()

    @property
    def now(self) -> float:
        """Seconds since the beginning, or what the clock says."""
        return self._passed if self._clock is None else self._clock()

    # -- what a test does to the network ------------------------------------------------------
    def advance(self, seconds: float) -> None:
        """Let time pass, and everything arrive that is due."""
        with self._lock:
            until = self._passed + seconds
            while self._flying and self._flying[0][0] <= until:
                self._passed = max(self._passed, self._flying[0][0])
                self.deliver()
            self._passed = until

    def cut(self, a: str, b: str) -> None:
        """Part two nodes; what is under way between them is lost."""
        with self._lock:
            self._cut.add(frozenset((a, b)))
            self.settle()

    def partition(self, *groups: Iterable[str]) -> None:
        """Part every two nodes of different groups."""
        sides = [list(group) for group in groups]
        for i, side in enumerate(sides):
            for other in sides[:i]:
                for a in side:
                    for b in other:
                        self.cut(a, b)

    def heal(self) -> None:
        """Join everything that was separated."""
        with self._lock:
            self._cut.clear()
            self.settle()

    # -- for the transports -------------------------------------------------------------------
    def plug(self, node: MemoryTransport) -> None:
        """A node is there."""
        with self._lock:
            if node.name in self._nodes:
                raise BadInput(f"there is a node {node.name!r} on this hub already")
            self._nodes[node.name] = node
            self.settle()

    def unplug(self, node: MemoryTransport) -> None:
        """A node is gone."""
        with self._lock:
            if self._nodes.get(node.name) is node:
                del self._nodes[node.name]
                node.inbox.know(())
                self.settle()

    def settle(self) -> None:
        """Inform all of who is up and who is not, after any change."""
        with self._lock:
            for node in self._nodes.values():
                for peer in node.peers:
                    node.inbox.saw(peer, self._joined(node.name, peer))

    def _joined(self, a: str, b: str) -> bool:
        here, there = self._nodes.get(a), self._nodes.get(b)
        if here is None or there is None or frozenset((a, b)) in self._cut:
            return False
        return b in here.peers and a in there.peers

    def carry(self, sender: str, to: str, arrive: Callable[[MemoryTransport], None]) -> None:
        """Have something arrive at a node, if luck and the links allow it."""
        with self._lock:
            if not self._joined(sender, to) or self._random.random() < self.drop:
                return
            due = self.now + self._random.uniform(*self.delay)
            if not self.reorder:
                due = self._latest[sender, to] = max(due, self._latest.get((sender, to), due))
            landing = (due, next(self._numbers), sender, to, lambda: arrive(self._nodes[to]))
            heapq.heappush(self._flying, landing)
            self.deliver()

    def deliver(self) -> None:
        """Let everything arrive that is due now."""
        with self._lock:
            while self._flying and self._flying[0][0] <= self.now:
                _, _, sender, to, land = heapq.heappop(self._flying)
                if self._joined(sender, to):
                    land()


class MemoryTransport:
    """Node `name` of a network on a hub; see `Transport`."""

    def __init__(
        self,
        network: Network,
        name: str,
        lossless: bool = False,
        wake: Callable[[], None] = lambda: None,
        *,
        hub: Hub,
        max_bytes: int = 100_000_000,
    ) -> None:
        self.name, self.hub = name, hub
        self.inbox = ReceiveBox(lossless, max_bytes, wake)
        self.bytes_in, self.refused = self.inbox.bytes_in, self.inbox.refused
        self.bytes_out: dict[str, int] = {}
        self.problem: str | None = None
        self._offered: tuple[bytes, Version, bytes] | None = None
        self._asked: dict[str, float] = {}
        self._take(network)

    def _take(self, network: Network) -> None:
        self.peers = network.neighbours(self.name)
        self.inbox.know(self.peers)
        self.bytes_out.update({peer: self.bytes_out.get(peer, 0) for peer in self.peers})

    def open(self) -> None:
        """Be there."""
        self.hub.plug(self)

    def reopen(self, network: Network) -> None:
        """Take other neighbours."""
        self._take(network)
        self.hub.settle()

    def close(self) -> None:
        """Be gone."""
        self.hub.unplug(self)

    def send(self, kind: str, data: bytes) -> None:
        """Give a "hello" or "theta" on its way to all neighbours."""
        if kind not in KINDS:
            raise UnknownName("kind of message", kind, KINDS)
        for peer in sorted(self.inbox.up):
            self._give(peer, kind, data)

    def _give(self, peer: str, kind: str, data: bytes) -> None:
        self.bytes_out[peer] += len(data)
        self.hub.carry(self.name, peer, lambda node: node.inbox.arrived(self.name, kind, data))

    def offer(self, data: bytes, version: Version, hello: bytes) -> None:
        """What to answer to a neighbour that asks: data, or the short hello if it knows that."""
        self._offered = data, version, hello

    def ask(self, peer: str, known: Version) -> None:
        """Ask a neighbour for its theta if newer than known, unless a question is under way."""
        now = self.hub.now
        if peer in self.peers and now >= self._asked.get(peer, now):
            self._asked[peer] = now + ANSWER_SECONDS
            self.hub.carry(self.name, peer, lambda node: node.answer(self.name, known))

    def answer(self, peer: str, known: Version) -> None:
        """Answer a neighbour's question; called by the hub."""
        if self._offered is not None and peer in self.bytes_out:
            data, version, hello = self._offered
            found, kind = (hello, "hello") if version <= known else (data, "theta")
            self.bytes_out[peer] += len(found)
            self.hub.carry(self.name, peer, lambda node: node.answered(self.name, kind, found))

    def answered(self, peer: str, kind: str, data: bytes) -> None:
        """Take a neighbour's answer; called by the hub."""
        self._asked.pop(peer, None)
        self.inbox.arrived(peer, kind, data)

    def receive(self) -> list[tuple[str, str, bytes]]:
        """(peer, kind, data) that came since the last call."""
        self.hub.deliver()
        return self.inbox.taken()

    def twice(self) -> frozenset[str]:
        """Nobody: a hub has one for each name."""
        return frozenset()

    def events(self) -> list[tuple[str, bool]]:
        """(peer, up) since the last call."""
        return self.inbox.events()
