"""What waits to be sent and what waits to be read: bounded, and known to no network."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from dokl.base.errors import UnknownName
from dokl.live.transports import KINDS, QUEUE


class SendBox:
    """Messages for the sender's thread: the newest of each kind, or all in order (lossless).

    depth: how many of a kind are the newest; more than one where they are pieces. Full, the
    lossless one lets its oldest go (counted in `dropped`): the caller never waits.
    """

    def __init__(self, lossless: bool, depth: int = 1) -> None:
        self.dropped = 0
        self._lossless, self._depth = lossless, depth
        self._waiting: deque[tuple[str, bytes]] = deque()
        self._changed = threading.Condition()
        self._held, self._closed = True, False

    def put(self, kind: str, data: bytes) -> None:
        """Add a message."""
        if kind not in KINDS:
            raise UnknownName("kind of message", kind, KINDS)
        with self._changed:
            if self._closed:
                return
            if not self._lossless:
                self._waiting = _newest(self._waiting, kind, self._depth - 1)
            elif len(self._waiting) >= QUEUE:
                self._waiting.popleft()
                self.dropped += 1
            self._waiting.append((kind, data))
            self._changed.notify_all()

    def take(self) -> tuple[str, bytes] | None:
        """The next message, when there is one and it may go; None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or (self._waiting and not self._held))
            return None if self._closed else self._waiting.popleft()

    def hold(self, held: bool) -> None:
        """Keep messages back, as long as there is no session to send them by."""
        with self._changed:
            self._held = held
            self._changed.notify_all()

    def close(self) -> None:
        """Let the sender go."""
        with self._changed:
            self._closed = True
            self._waiting.clear()
            self._changed.notify_all()


class ReceiveBox:
    """Messages and events for the runtime, put here by threads of the network.

    A payload is measured before it is copied: one larger than max_bytes is only counted. depth: as
    of a `SendBox`, for each neighbour.
    """

    def __init__(
        self, lossless: bool, max_bytes: int, wake: Callable[[], None], depth: int = 1
    ) -> None:
        self.up: set[str] = set()
        self.bytes_in: dict[str, int] = {}
        self.refused: dict[str, int] = {}
        self._lossless, self._max_bytes, self._wake = lossless, max_bytes, wake
        self.depth = depth
        self._lock = threading.Lock()
        self._waiting: dict[str, deque[tuple[str, bytes]]] = {}
        self._events: list[tuple[str, bool]] = []

    def know(self, peers: Iterable[str]) -> None:
        """Begin to count for these neighbours; what others have sent is dropped."""
        with self._lock:
            peers = list(peers)
            self._waiting = {peer: self._waiting.get(peer, deque()) for peer in peers}
            self._events = [event for event in self._events if event[0] in peers]
            self.up.intersection_update(peers)
            for peer in peers:
                self.bytes_in.setdefault(peer, 0)
                self.refused.setdefault(peer, 0)

    def arrived(self, peer: str, kind: str, payload: Any, wake: bool = True) -> None:
        """A message from a neighbour; payload: what `len` and `bytes` understand."""
        size = len(payload)
        data = bytes(payload) if size <= self._max_bytes else None
        with self._lock:
            if peer not in self._waiting:
                return
            if data is None:
                self.refused[peer] += 1
                return
            self.bytes_in[peer] += size
            self._keep(peer, kind, data)
        if wake:
            self._wake()

    def _keep(self, peer: str, kind: str, data: bytes) -> None:
        waiting = self._waiting[peer]
        if not self._lossless:
            waiting = self._waiting[peer] = _newest(waiting, kind, self.depth - 1)
        elif len(waiting) >= QUEUE:
            waiting.popleft()
        waiting.append((kind, data))

    def taken(self) -> list[tuple[str, str, bytes]]:
        """Everything that waits, neighbour by neighbour, in order of arrival."""
        with self._lock:
            found = [
                (p, kind, data) for p, waiting in self._waiting.items() for kind, data in waiting
            ]
            for waiting in self._waiting.values():
                waiting.clear()
        return found

    def saw(self, peer: str, up: bool) -> None:
        """A neighbour came or went."""
        with self._lock:
            if (peer in self.up) == up or peer not in self._waiting:
                return
            (self.up.add if up else self.up.discard)(peer)
            if len([who for who, _ in self._events if who == peer]) >= 2:  # it came and went
                self._events = [event for event in self._events if event[0] != peer]
            self._events.append((peer, up))
        self._wake()

    def events(self) -> list[tuple[str, bool]]:
        """Who came and went since the last call."""
        with self._lock:
            found, self._events = self._events, []
        return found


def _newest(waiting: Iterable[tuple[str, bytes]], kind: str, most: int) -> deque[tuple[str, bytes]]:
    """What waits, in order, with at most n of this kind, the newest ones."""
    found, left = deque[tuple[str, bytes]](), most
    for each in reversed(list(waiting)):
        if each[0] == kind:
            left -= 1
        if each[0] != kind or left >= 0:
            found.appendleft(each)
    return found
