"""A web server around an application: uvicorn, asked for little and held to bounds.

Connections are accepted by a `Door`, so that they count before their handshake and make room for
each other. uvicorn by itself lets connections stand open for ever that send half a request, or
never read their answer; once a second they are looked through here.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from dokl.base.errors import BadInput, MissingExtra
from dokl.live.doors import Door, DoorPlaces, Place, Rank, listening, places_for
from dokl.live.doors.accepting import Note
from dokl.live.http.bounds import HttpBounds
from dokl.live.http.strict import StrictProtocol

if TYPE_CHECKING:
    from starlette.types import ASGIApp

try:
    import uvicorn
except ImportError:
    raise MissingExtra("a live network", "live") from None

TICK = 1.0  # seconds between two looks at the connections, at most
LEAVE = 5.0  # seconds that requests under way have to end when the server is to stop


class Server:
    """Listens from the moment it is made; `start` serves in a thread, `run` in this one.

    certificate: files of a certificate and its key; with them it speaks https. address: host and
    port, the real one where 0 was asked for. note: receives floods, an event and its fields.
    """

    def __init__(
        self,
        application: ASGIApp,
        address: tuple[str, int],
        bounds: HttpBounds | None = None,
        certificate: tuple[Path, Path] | None = None,
        note: Note | None = None,
    ) -> None:
        bounds = bounds or HttpBounds()
        self._certificate = certificate
        self._config = uvicorn.Config(
            application,
            http=_Connection,
            timeout_keep_alive=max(1, round(bounds.idle_seconds)),
            ssl_certfile=certificate and certificate[0],
            ssl_keyfile=certificate and str(certificate[1]),
            **_PLAIN,
        )
        try:
            self._config.load()
        except OSError as error:  # SSLError is one, too
            raise BadInput(f"{certificate}: no certificate with its key ({error})") from None
        self._server = _Watched(self._config, bounds, note)
        self._socket = listening(*address, "HTTP")
        self.address: tuple[str, int] = self._socket.getsockname()[:2]
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """Where it is found, without a slash at the end."""
        host, port = self.address
        shown = f"[{host}]" if ":" in host else host
        return f"http{'s' if self._certificate else ''}://{shown}:{port}"

    def start(self) -> None:
        """Serve in a thread of its own."""
        self._thread = threading.Thread(target=self.run, name="http", daemon=True)
        self._thread.start()

    def run(self) -> None:
        """Serve until `stop` is called from another thread, or from a signal handler."""
        try:
            self._server.run(sockets=[self._socket])
        finally:
            self._socket.close()

    def stop(self) -> None:
        """Take no more, let requests under way end, and close."""
        self._server.ask_to_leave()
        if self._thread is not None:
            self._thread.join(2 * LEAVE)
        elif not self._server.started:
            self._socket.close()

    def renew(self) -> None:
        """Take the certificate from its files again: new connections get the new one."""
        if self._certificate is not None and self._config.ssl is not None:
            self._config.ssl.load_cert_chain(*self._certificate)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()


_PLAIN: dict[str, Any] = {
    "interface": "asgi3",
    "loop": "asyncio",
    "ws": "none",
    "lifespan": "off",
    "log_config": None,
    "log_level": "critical",  # the application logs by itself; hostile requests are no news
    "access_log": False,
    "server_header": False,
    "proxy_headers": False,
    "timeout_graceful_shutdown": int(LEAVE),
}


class _Connection(StrictProtocol):
    """One that reports its progress and its end."""

    def __init__(self, *args: object, **more: object) -> None:
        super().__init__(*args, **more)
        self.over = asyncio.Event()

    def connection_lost(self, exc: Exception | None) -> None:
        """Closed, by whichever side."""
        super().connection_lost(exc)
        self.over.set()

    def rank(self) -> Rank:
        """What it does; the cycle is that of the newest request whose head has arrived."""
        cycle: Any = self.cycle  # declared as one, and None before the first
        if cycle is None:
            return Rank.SILENT
        if cycle.response_complete:
            return Rank.IDLE
        slow = cycle.more_body or self.flow.write_paused
        return Rank.SLOW if slow else Rank.SERVED


class _Watched(uvicorn.Server):
    """Leaves signals to others, wakes once a second, and closes connections that are stuck."""

    def __init__(self, config: uvicorn.Config, bounds: HttpBounds, note: Note | None) -> None:
        super().__init__(config)
        self._idle = bounds.idle_seconds
        self._head = min(bounds.head_seconds, self._idle)
        most = places_for(bounds.connections, 0.5)
        each = max(1, most // 2)  # for an address elsewhere
        self._places = DoorPlaces(most, each, min(bounds.kept, most // 4), bounds.grace_seconds)
        self._note = note
        self._door: asyncio.Task[None] | None = None
        self._stuck: dict[_Connection, tuple[object, float]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake = asyncio.Event()

    def ask_to_leave(self) -> None:
        """From any thread."""
        self.should_exit = True
        if self._loop is not None:
            with suppress(RuntimeError):  # it has left already
                self._loop.call_soon_threadsafe(self._wake.set)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are the business of the process."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept by a door, and not by asyncio."""
        await super().startup(sockets=[])
        for listener in sockets or []:
            door = Door(listener, self._places, self._connected, self._note)
            self._door = asyncio.create_task(door.run())

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close the door; who is being answered is waited for, others end with the loop."""
        for listener in sockets or []:
            asyncio.get_running_loop().remove_reader(listener)
            listener.close()
        await super().shutdown(sockets=[])

    async def _connected(self, connection: socket.socket, place: Place) -> None:
        """One connection, from its handshake to its end."""
        made = _Connection(
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        place.rank = made.rank
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: made, connection, ssl=self.config.ssl,
                ssl_handshake_timeout=self._head if self.config.ssl else None,
            )  # fmt: skip
            await made.over.wait()
        finally:
            if made.transport is not None:
                made.transport.abort()

    async def main_loop(self) -> None:
        """Tick until asked to leave."""
        self._loop = asyncio.get_running_loop()
        pause = min(TICK, self._head / 2)
        while not await self.on_tick(0):
            self._look_through(self._loop.time())
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), pause)

    def _look_through(self, now: float) -> None:
        """A connection is stuck while it waits for the same request, or to be read from."""
        before, self._stuck = self._stuck, {}
        for connection in list(self.server_state.connections):
            if not isinstance(connection, _Connection):
                continue
            cycle = connection.cycle
            idle = cycle is None or cycle.response_complete
            if not (idle or connection.flow.write_paused):
                continue
            known, since = before.get(connection, (cycle, now))
            since = since if known is cycle else now
            if now - since > (self._head if cycle is None else self._idle):
                connection.transport.abort()
            else:
                self._stuck[connection] = (cycle, since)
