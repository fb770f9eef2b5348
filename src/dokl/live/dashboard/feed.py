"""The looks at a network as server-sent events: written once, read by any number of pages.

There are no queues. A page that is slow skips looks and gets the newest one next; what is kept is
the newest event of each kind.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from dataclasses import asdict

from dokl.live.dashboard.collect import Collector
from dokl.live.dashboard.layout import given_places, learned_places

CURVE_POINTS = 60
CURVES_EVERY = 5.0  # seconds: they are long and change slowly
HISTORY_POINTS = 240
MOST_PAGES = 64
HEARTBEAT = 10.0
RETRY_MS = 1500


class Feed:
    """Polls the network, and informs all listeners; used from one event loop."""

    def __init__(self, collector: Collector, every: float) -> None:
        self.collector, self.every = collector, every
        self.pages = 0
        self.stopped = False
        self._numbers = {"network": 0, "curves": 0, "view": 0}
        self._events: dict[str, bytes] = {}
        self._next = asyncio.Event()
        self._curves_at = -CURVES_EVERY

    async def run(self) -> None:
        """Poll, inform, sleep, until `stop`."""
        while not self.stopped:
            began = time.monotonic()
            await asyncio.to_thread(self.collector.poll)
            self._publish()
            await asyncio.sleep(max(0.05, self.every - (time.monotonic() - began)))

    def stop(self) -> None:
        """End every stream, so that the server need not wait for pages to be closed."""
        self.stopped = True
        self._wake()

    async def events(self) -> AsyncIterator[bytes]:
        """What one page reads: first everything, then what is new."""
        self.pages += 1
        seen = dict.fromkeys(self._numbers, 0)
        try:
            yield f"retry: {RETRY_MS}\n\n".encode()
            if self._events:
                yield self._event("network", self._network()) + self._event("past", self._past())
                seen["network"] = self._numbers["network"]
            while not self.stopped:
                news = self._next
                text = self._unseen(seen)
                yield text or b": still here\n\n"
                await _wait(news, HEARTBEAT)
        finally:
            self.pages -= 1

    def _unseen(self, seen: dict[str, int]) -> bytes:
        """The newest event of each kind that this page has not had."""
        new = [kind for kind, number in self._numbers.items() if number > seen[kind]]
        seen.update(self._numbers)
        return b"".join(self._events[kind] for kind in new)

    def _publish(self) -> None:
        collector, now = self.collector, time.monotonic()
        if self._numbers["network"] != collector.version:
            self._numbers["network"] = collector.version
            self._events["network"] = self._event("network", self._network())
            self._curves_at = now - CURVES_EVERY
        if now - self._curves_at >= CURVES_EVERY:
            self._curves_at = now
            self._set("curves", collector.curves(CURVE_POINTS))
        self._set("view", asdict(collector.view) | {"totals": collector.view.totals})
        self._wake()

    def _set(self, kind: str, value: object) -> None:
        self._numbers[kind] += 1
        self._events[kind] = self._event(kind, value)

    def _wake(self) -> None:
        waiting, self._next = self._next, asyncio.Event()
        waiting.set()

    def _network(self) -> dict[str, object]:
        """What changes only with the description."""
        network = self.collector.network
        return {
            "name": network.about.name,
            "every": self.every,
            "places": self.collector.places,
            "links": network.links,
            "mapped": given_places(network) is not None,
            "alike": learned_places(network),
            "exchange": asdict(network.exchange),
        }

    def _past(self) -> dict[str, list[list[float | None]]]:
        """Per node: [at, error, disagreement] of the last looks."""
        return {
            name: [[p.at, p.error, p.disagreement] for p in list(past.points)[-HISTORY_POINTS:]]
            for name, past in self.collector.pasts.items()
        }

    @staticmethod
    def _event(kind: str, value: object) -> bytes:
        # JSON has no line breaks outside of strings, and escapes them inside: one data line.
        return f"event: {kind}\ndata: {json.dumps(value, allow_nan=False)}\n\n".encode()


async def _wait(event: asyncio.Event, seconds: float) -> None:
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except TimeoutError:
        return
