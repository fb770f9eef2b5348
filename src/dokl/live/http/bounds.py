"""What an HTTP interface takes in before it refuses: bytes, requests at a time, and seconds.

Everything here is counted, so that no sender, however slow, large or many, makes an agent grow.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


@dataclass(frozen=True)
class HttpBounds:
    """requests: parsed or waiting for the journal at a time. connections: open at a time, fewer
    where the system allows the process few files; half of them for one address elsewhere, and
    `kept` for this machine alone. When all are taken, the one that has done the least makes room,
    of these the oldest, if it is older than grace_seconds.
    bodies: how many bodies of the greatest size may be held in memory, all requests together.
    head_seconds: for the handshake, and then for the head of the first request. read_seconds: for
    a body to arrive. wait_seconds: for the journal. idle_seconds: for the next request on a
    connection, and for a slow reader of an answer.
    """

    requests: int = 64
    connections: int = 256
    kept: int = 32
    grace_seconds: float = 0.0
    bodies: int = 4
    head_seconds: float = 5.0
    read_seconds: float = 20.0
    wait_seconds: float = 30.0
    idle_seconds: float = 60.0


class Refusal(Exception):
    """An answer that is not what was asked for: a status, and what to do about it."""

    def __init__(
        self,
        status: int,
        text: str,
        retry_after: float | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(text)
        self.status, self.text, self.retry_after = status, text, retry_after
        self.headers = dict(headers or {})
        if retry_after is not None:
            self.headers["retry-after"] = str(max(1, math.ceil(retry_after)))


class Room:
    """Counts what is under way."""

    def __init__(self, bounds: HttpBounds) -> None:
        self.bounds = bounds
        self.requests = 0
        self.bytes = 0

    def check(self) -> None:
        """Refuse where there is no room for another request."""
        if self.requests >= self.bounds.requests:
            raise Refusal(
                429, f"{self.requests} requests are in progress: send again in a second", 1.0
            )

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Room for a request whose body is here."""
        self.check()
        self.requests += 1
        try:
            yield
        finally:
            self.requests -= 1

    @contextmanager
    def body(self, receive: Receive, declared: str | None, limit: int) -> Iterator[Body]:
        """Room for a body; what was read of it is given back at the end."""
        body = Body(self, receive, declared, limit)
        try:
            yield body
        finally:
            self.bytes -= body.size


class Body:
    """A body that is read as far as it may be; declared: its Content-Length."""

    def __init__(self, room: Room, receive: Receive, declared: str | None, limit: int) -> None:
        self._room, self._receive, self._limit = room, receive, limit
        self.size = 0
        if declared is not None and declared.isdecimal() and int(declared[:20]) > limit:
            raise self._too_large()

    async def read(self) -> bytes:
        """All of it; a header that lies about the length changes nothing."""
        seconds = self._room.bounds.read_seconds
        parts, more = [], True
        try:
            async with asyncio.timeout(seconds):
                while more:
                    part, more = await self._next()
                    parts.append(part)
        except TimeoutError:
            text = f"the body did not arrive within {seconds:g} seconds: send smaller batches"
            raise Refusal(408, text, headers={"connection": "close"}) from None
        return b"".join(parts)

    async def _next(self) -> tuple[bytes, bool]:
        message = await self._receive()
        if message["type"] != "http.request":
            raise Refusal(400, "the body ended early")
        part: bytes = message.get("body", b"")
        self.size += len(part)
        self._room.bytes += len(part)
        if self.size > self._limit:
            raise self._too_large()
        if self._room.bytes > self._room.bounds.bodies * self._limit:
            raise Refusal(429, "too many bodies are in transfer: send again in a second", 1.0)
        return part, bool(message.get("more_body", False))

    def _too_large(self) -> Refusal:
        return Refusal(
            413, f"the body has more than {self._limit:,} bytes: send smaller batches "
            "(limits.body_bytes in the description)"
        )  # fmt: skip
