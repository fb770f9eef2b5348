"""One open Zenoh session of a node: what it declares, sends, receives and answers.

The access table is read when a session opens, so a changed network means a new `ZenohSession`.

Callbacks run on Zenoh's own threads and only put things aside. What may have to wait for a slow
link has a thread of its own: one per neighbour (`Edge`), so that none waits for another's link.
"""

from __future__ import annotations

import importlib
import json
import logging
import re
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from dokl.base.errors import BadInput, MissingExtra
from dokl.live.description import Network
from dokl.live.doors.accepting import Note
from dokl.live.transports import KINDS
from dokl.live.transports.boxes import ReceiveBox
from dokl.live.transports.guard import LinkGuard
from dokl.live.transports.zenoh_settings import check, configuration, key, pull_key

if TYPE_CHECKING:
    from zenoh import Parameters, Reply, Sample

log = logging.getLogger("dokl.live")

ANSWER_SECONDS = 5.0  # how long a question may be under way
CLOSE_SECONDS = 2.0  # a session with a stuck link takes up to 20: it is left to end by itself
_SHORT = b"hello"  # marks an answer that says: nothing newer

Version = tuple[int, int]
# Who asks, what it knows -> data, and whether it is the short form.
Answer = Callable[[str, Version], tuple[bytes, bool] | None]


def zenoh_module() -> Any:
    """The package, untyped: its stubs leave half of it so."""
    try:
        return importlib.import_module("zenoh")
    except ImportError:
        raise MissingExtra("a live network", "live") from None


class ZenohSession:
    """The session of node `name`; lossless: everything in order, by callback."""

    def __init__(
        self, network: Network, name: str, inbox: ReceiveBox, answer: Answer, lossless: bool,
        max_bytes: int, note: Note | None = None,
    ) -> None:  # fmt: skip
        self._zenoh = zenoh_module()
        self._network, self._name, self._inbox = network, name, inbox
        self._live = True
        check(network, name, max_bytes)
        self._guard = LinkGuard(network, name, note)
        try:
            self._session = self._opened(max_bytes)
        except BaseException:
            self._guard.close()
            raise
        self._rings: list[tuple[str, str, Any]] = []
        self._declared: list[object] = []
        self._edges: dict[str, Edge] = {}
        self._publishers: dict[str, Any] = {}
        try:
            self._publishers = {kind: self._publisher(kind, lossless) for kind in KINDS}
            for peer in network.neighbours(name):
                self._watch(peer)
                for kind in KINDS:
                    self._subscribe(peer, kind, lossless)
                self._edges[peer] = self._edge(peer, answer)
            token = self._session.liveliness().declare_token(key(network, "alive", name))
            self._declared.append(token)
            self._guard.open()
        except BaseException:
            self.close()
            raise

    def _opened(self, max_bytes: int) -> Any:
        config = self._zenoh.Config()
        settings = configuration(self._network, self._name, max_bytes, self._guard)
        for path, value in settings.items():
            config.insert_json5(path, json.dumps(value))
        try:
            return self._zenoh.open(config)
        except self._zenoh.ZError as error:
            why = re.sub(r" at /\S+\.rs:\d+\.?", "", str(error))
            raise BadInput(f"node {self._name!r} cannot open links: {why}") from None

    # -- what is declared ---------------------------------------------------------------------
    def _publisher(self, kind: str, lossless: bool) -> Any:
        """BLOCK_FIRST: one message per slow neighbour waits, later ones pass it by, others go on.

        Hellos go before thetas, but not where the order counts.
        """
        control, priority = self._zenoh.CongestionControl, self._zenoh.Priority
        return self._session.declare_publisher(
            key(self._network, kind, self._name),
            congestion_control=control.BLOCK if lossless else control.BLOCK_FIRST,
            priority=priority.DATA_HIGH if kind == "hello" and not lossless else priority.DATA,
        )

    def _watch(self, peer: str) -> None:
        alive = self._zenoh.SampleKind.PUT

        def changed(sample: Sample) -> None:
            if self._live:
                self._inbox.saw(peer, sample.kind == alive)

        watched = self._session.liveliness().declare_subscriber(
            key(self._network, "alive", peer), self._direct(changed), history=True
        )
        self._declared.append(watched)

    def _subscribe(self, peer: str, kind: str, lossless: bool) -> None:
        where = key(self._network, kind, peer)
        if not lossless:
            ring = self._zenoh.handlers.RingChannel(self._inbox.depth)
            self._rings.append((peer, kind, self._session.declare_subscriber(where, ring)))
            return

        def arrived(sample: Sample) -> None:
            if self._live:
                self._inbox.arrived(peer, kind, sample.payload)

        self._declared.append(self._session.declare_subscriber(where, self._direct(arrived)))

    def _edge(self, peer: str, answer: Answer) -> Edge:
        edge = Edge(peer, partial(self._get, peer), partial(self._reply, peer, answer))
        here = pull_key(self._network, self._name, peer)
        queryable = self._session.declare_queryable(here, self._direct(edge.asked))
        self._declared.append(queryable)
        return edge

    def _direct(
        self, callback: Callable[[Any], None], drop: Callable[[], None] | None = None
    ) -> Any:
        """Called on the network's thread: with a thread between, hundreds of messages queue up."""
        return self._zenoh.handlers.Callback(callback, drop, indirect=False)

    # -- what the transport does --------------------------------------------------------------
    def publish(self, kind: str, data: bytes) -> None:
        """To all neighbours; lossless, it waits for the slowest."""
        self._publishers[kind].put(data)

    def ask(self, peer: str, known: Version) -> None:
        """Pass a question on to the neighbour's own thread."""
        if peer in self._edges:
            self._edges[peer].ask(known)

    def twice(self) -> frozenset[str]:
        """Neighbours under whose name more than one is connected."""
        return self._guard.twice()

    def poll(self) -> None:
        """Move what the rings hold into the inbox."""
        for peer, kind, ring in self._rings:
            for _ in range(self._inbox.depth):
                try:
                    sample = ring.try_recv()
                except self._zenoh.ZError:  # closed meanwhile
                    return
                if sample is None:
                    break
                self._inbox.arrived(peer, kind, sample.payload, wake=False)

    def close(self) -> None:
        """Close, within bounded time: a stuck link must not keep a program from ending."""
        self._live = False
        self._guard.close()
        for edge in self._edges.values():
            edge.close()
        closer = threading.Thread(target=self._close_session, name="zenoh-close", daemon=True)
        closer.start()
        closer.join(CLOSE_SECONDS)
        if closer.is_alive():
            log.warning("the session of node %s did not close in time", self._name)

    def _close_session(self) -> None:
        try:
            # Zenoh keeps some 40 kB for each publisher that is still there when a session closes.
            for publisher in self._publishers.values():
                with suppress(RuntimeError):  # a stuck link holds it: then it stays
                    publisher.undeclare()
            self._session.close()
        except self._zenoh.ZError as error:
            log.warning("closing the session of node %s: %s", self._name, error)

    # -- pulling, on the neighbour's thread ---------------------------------------------------
    def _get(self, peer: str, known: Version, done: Callable[[], None]) -> None:
        """BLOCK, which the answer inherits: otherwise it would be lost to our own traffic."""
        try:
            self._session.get(
                f"{pull_key(self._network, peer, self._name)}?i={known[0]};s={known[1]}",
                self._direct(partial(self._answered, peer), done),
                timeout=ANSWER_SECONDS,
                congestion_control=self._zenoh.CongestionControl.BLOCK,
            )
        except self._zenoh.ZError as error:
            done()
            log.debug("asking %s: %s", peer, error)

    def _answered(self, peer: str, reply: Reply) -> None:
        sample = reply.ok
        if self._live and sample is not None:
            mark = sample.attachment
            short = mark is not None and len(mark) == len(_SHORT)
            self._inbox.arrived(peer, "hello" if short else "theta", sample.payload)

    def _reply(self, peer: str, answer: Answer, query: Any) -> None:
        try:
            found = answer(peer, _version(query.parameters))
            if found is not None:
                data, short = found
                where = pull_key(self._network, self._name, peer)
                query.reply(where, data, attachment=_SHORT if short else None)
        except self._zenoh.ZError as error:
            log.debug("answering %s: %s", peer, error)
        finally:
            query.drop()


def _version(parameters: Parameters) -> Version:
    """What the asker knows; nothing, where that is nonsense."""
    words = [parameters.get(word) or "" for word in ("i", "s")]
    if not all(word.isascii() and word.isdigit() and len(word) <= 20 for word in words):
        return -1, -1
    return int(words[0]), int(words[1])


class Edge:
    """Questions to and from one neighbour, on a thread that exists from the first of them on."""

    def __init__(
        self, peer: str, get: Callable[[Version, Callable[[], None]], None],
        reply: Callable[[Any], None],
    ) -> None:  # fmt: skip
        self._peer, self._get, self._reply = peer, get, reply
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._under_way = self._closed = False
        self._wanted: Version | None = None
        self._query: Any = None

    def ask(self, known: Version) -> None:
        """Ask, unless a question is under way."""
        with self._changed:
            if not self._under_way and not self._closed:
                self._under_way, self._wanted = True, known
                self._work()

    def asked(self, query: object) -> None:
        """Answer, when the link allows it; a newer question takes the place of one that waits."""
        with self._changed:
            older, self._query = self._query, query
            if self._closed:
                older, self._query = query, None
            else:
                self._work()
        if older is not None:
            older.drop()

    def close(self) -> None:
        """Let the thread go; it may still be held up by the link, which is being closed."""
        with self._changed:
            self._closed = True
            query, self._query = self._query, None
            self._changed.notify_all()
        if query is not None:
            query.drop()

    def _done(self) -> None:
        with self._changed:
            self._under_way = False

    def _work(self) -> None:
        if self._thread is None:
            name = f"edge-{self._peer}"
            self._thread = threading.Thread(target=self._run, name=name, daemon=True)
            self._thread.start()
        self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._closed or self._query is not None or self._wanted is not None
                )
                if self._closed:
                    return
                query, self._query = self._query, None
                wanted, self._wanted = self._wanted, None
            if wanted is not None:
                self._get(wanted, self._done)
            if query is not None:
                self._reply(query)
