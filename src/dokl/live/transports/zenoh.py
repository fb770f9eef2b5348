"""The transport between processes and machines: Eclipse Zenoh in peer mode, without a broker.

With certificates (security = "mtls") every link is encrypted, both sides prove who they are, and
each neighbour may speak only as itself. Without (security = "insecure-loopback") there is none
of this: any process of the machine can send anything, in any name.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from dokl.base.errors import BadInput
from dokl.live.description import Network
from dokl.live.doors.accepting import Note
from dokl.live.process import give_back_memory
from dokl.live.protocol import pieces
from dokl.live.protocol.batches import Context
from dokl.live.transports.boxes import ReceiveBox, SendBox
from dokl.live.transports.zenoh_session import Version, ZenohSession, zenoh_module
from dokl.live.transports.zenoh_settings import check
from dokl.network.sums.origins import most_bytes

log = logging.getLogger("dokl.live")

_HEADER = 1024  # generous: what stands before theta in a message
_RETRY_SECONDS = 0.2  # until a port of a session that closes is free again


class ZenohTransport:
    """Node `name` of a network; see `Transport`.

    wake is called from other threads whenever there is something that should not wait for the
    next look: who came or went, an answer, and with lossless every message. It must not block.
    max_bytes: larger messages are refused; by default, what this network's theta can need. note:
    receives strangers and floods at the address, an event and its fields.
    """

    def __init__(
        self,
        network: Network,
        name: str,
        lossless: bool = False,
        wake: Callable[[], None] = lambda: None,
        *,
        max_bytes: int | None = None,
        note: Note | None = None,
    ) -> None:
        network.node(name)
        self.name = name
        self._network, self._lossless, self._note = network, lossless, note
        largest, depth = 4 * network.m * network.model.D, 1
        if network.model.rows:
            largest = Context.of(network.rows_learner(name)).most_message
        elif network.model.squares:
            whole = most_bytes(network.m, network.model.D)
            largest, depth = pieces.largest(whole), pieces.number(whole)
        self._max_bytes = max_bytes or largest + _HEADER
        self._inbox = ReceiveBox(lossless, self._max_bytes, wake, depth)
        self._outbox = SendBox(lossless, depth)
        self.bytes_in, self.refused = self._inbox.bytes_in, self._inbox.refused
        self.bytes_out: dict[str, int] = {}
        self._counting = threading.Lock()  # bytes_out has two writers or more
        self._offered: tuple[bytes, Version, bytes] | None = None
        self.problem: str | None = None  # why there is no session after a reopen
        self._changing = threading.Lock()  # one open, switch or close at a time
        self._wanted = self._had = 0  # reopens asked for and begun
        self._closing = threading.Event()
        self._wire: ZenohSession | None = None
        self._sender: threading.Thread | None = None

    # -- opening and closing ------------------------------------------------------------------
    def open(self) -> None:
        """Begin to listen and to dial; BadInput where the port is taken or a file is missing."""
        with self._changing:
            if self._closing.is_set() or self._sender is not None:
                raise BadInput(f"the transport of node {self.name!r} was opened before")
            self._know(self._network)
            self._connect()
            sender = threading.Thread(target=self._send_all, name=f"send-{self.name}", daemon=True)
            sender.start()
            self._sender = sender

    def reopen(self, network: Network) -> None:
        """Take a changed description; BadInput, and all stays as it was, where that cannot be.

        It returns at once: the old session closes and a new one opens behind it, in a moment
        (longer where a link is stuck). Meanwhile neighbours are down and messages wait. Those who
        are no neighbours any more are ignored from now on.
        """
        check(network, self.name, self._max_bytes)
        self._know(network)
        self._network = network
        self._wanted += 1
        if not self._closing.is_set() and self._sender is not None:
            threading.Thread(target=self._switch, name=f"open-{self.name}", daemon=True).start()

    def close(self) -> None:
        """End it, within bounded time."""
        self._closing.set()
        self._outbox.close()
        with self._changing:
            self._disconnect()
        if self._sender is not None:
            self._sender.join(1)

    def _know(self, network: Network) -> None:
        peers = network.neighbours(self.name)
        self._inbox.know(peers)
        with self._counting:
            for peer in peers:
                self.bytes_out.setdefault(peer, 0)

    def _connect(self) -> None:
        self._wire = ZenohSession(
            self._network, self.name, self._inbox, self._answer, self._lossless, self._max_bytes,
            self._note,
        )  # fmt: skip
        self._outbox.hold(False)

    def _disconnect(self) -> None:
        self._outbox.hold(True)
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.close()
        for peer in self._inbox.up.copy():
            self._inbox.saw(peer, False)

    def _switch(self) -> None:
        """Leave the old session and open the new one, as soon as the port is free again."""
        with self._changing:
            if self._had == self._wanted:  # an earlier switch has seen to it
                return
            self._had = self._wanted
            self._disconnect()
            while not self._closing.is_set():
                try:
                    self._connect()
                    self.problem = None
                    give_back_memory()
                    return
                except BadInput as error:
                    if self.problem != str(error):
                        log.warning("%s", error)
                    self.problem = str(error)
                self._closing.wait(_RETRY_SECONDS)

    # -- sending ------------------------------------------------------------------------------
    def send(self, kind: str, data: bytes) -> None:
        """Give a "hello" or "theta" on its way to all neighbours; never waits."""
        self._outbox.put(kind, data)

    def _send_all(self) -> None:
        failure = zenoh_module().ZError
        while (message := self._outbox.take()) is not None:
            wire, (kind, data) = self._wire, message
            if wire is None:  # it is being reopened; the next message goes by the new session
                continue
            try:
                wire.publish(kind, data)
            except failure as error:
                log.debug("node %s could not send a %s: %s", self.name, kind, error)
                continue
            self._count(self._inbox.up.copy(), len(data))

    def _count(self, peers: set[str], size: int) -> None:
        with self._counting:
            for peer in peers:
                self.bytes_out[peer] = self.bytes_out.get(peer, 0) + size

    # -- pulling ------------------------------------------------------------------------------
    def offer(self, data: bytes, version: Version, hello: bytes) -> None:
        """What to answer to a neighbour that asks: data, or the short hello if it knows that."""
        self._offered = data, version, hello

    def ask(self, peer: str, known: Version) -> None:
        """Ask a neighbour for its theta if newer than known; never waits."""
        wire = self._wire
        if wire is not None:
            wire.ask(peer, known)

    def _answer(self, peer: str, known: Version) -> tuple[bytes, bool] | None:
        offered = self._offered
        if offered is None:
            return None
        data, version, hello = offered
        short = version <= known
        found = hello if short else data
        self._count({peer}, len(found))
        return found, short

    # -- receiving ----------------------------------------------------------------------------
    def receive(self) -> list[tuple[str, str, bytes]]:
        """(peer, kind, data) that came since the last call."""
        wire = self._wire
        if wire is not None:
            wire.poll()
        return self._inbox.taken()

    def twice(self) -> frozenset[str]:
        """Neighbours under whose name two have been connected for some time."""
        wire = self._wire
        return frozenset() if wire is None else wire.twice()

    def events(self) -> list[tuple[str, bool]]:
        """(peer, up) since the last call."""
        return self._inbox.events()
