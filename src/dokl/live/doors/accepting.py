"""A loop that accepts connections into places, and does not fall over when there are too many.

asyncio's own accepts everything before anyone is asked, counts nothing, and where descriptors run
out writes a traceback for each try.
"""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import socket
import traceback
from collections.abc import Awaitable, Callable
from contextlib import suppress

from dokl.base.errors import BadInput
from dokl.live.doors.places import LOCAL, DoorPlaces, Place
from dokl.live.process import trim_memory

RESERVE = 64  # descriptors that no connection gets: journal, logs, certificates, Zenoh's own
BACKLOG = 512
_BURST = 64  # connections that are accepted before others get their turn
_PAUSE = 0.02  # seconds after a burst
_TRIM = 5.0  # seconds after a connection has failed until its memory goes back to the system
_NO_MORE = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

Serve = Callable[[socket.socket, Place], Awaitable[None]]
Note = Callable[..., None]  # an event, and fields: as `Log`, thinned out


def places_for(wanted: int, share: float, each: int = 1) -> int:
    """How many connections of `each` descriptors may be open, if they get this share of what the
    process is allowed (ulimit -n); as wanted, where that suffices.
    """
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed == resource.RLIM_INFINITY:
        return wanted
    return min(wanted, max(4, int((allowed - RESERVE) * share) // each))


def listening(host: str, port: int, what: str) -> socket.socket:
    """A socket that listens; BadInput says why there is none.

    asyncio sends small answers at once (TCP_NODELAY) only where the socket says that it is of TCP;
    those of `socket.create_server` do not, and each answer waits 40 ms.
    """
    made: socket.socket | None = None
    try:
        flags = socket.AI_PASSIVE
        family, *_, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)[0]
        made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(place)
        made.listen(BACKLOG)
        made.setblocking(False)
    except OSError as error:
        if made is not None:
            made.close()
        why = error.strerror or error
        raise BadInput(f"cannot listen for {what} at {host} port {port}: {why}") from None
    return made


def _nothing() -> None:
    pass


def release_frames(error: BaseException | None) -> None:
    """Let go of what the frames that an error passed through refer to.

    asyncio keeps the error of a failed handshake in a future that one of these frames refers to: a
    cycle, which holds 300 kB of buffers for each connection until the garbage collector comes by.
    """
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__context__


class Door:
    """`run` accepts at a listener, and has each connection served by a task of its own.

    A connection is over when its task is; who must make room has its task cancelled.
    """

    def __init__(
        self, listener: socket.socket, places: DoorPlaces, serve: Serve, note: Note | None = None
    ) -> None:
        self._listener, self.places, self._serve = listener, places, serve
        self._note: Note = note or (lambda event, **fields: None)
        self._tasks: set[asyncio.Task[None]] = set()
        self._spare: list[int] = []
        self._trim: asyncio.TimerHandle | None = None

    async def run(self) -> None:
        """Until cancelled; then all connections end."""
        loop = asyncio.get_running_loop()
        self._keep_spare()
        accepted = 0
        try:
            while True:
                try:
                    connection, address = await loop.sock_accept(self._listener)
                except OSError as error:
                    await self._not_accepted(error)
                    continue
                self._admit(connection, str(address[0]), loop.time())
                accepted += 1
                if accepted % _BURST == 0:
                    await asyncio.sleep(_PAUSE)
        finally:
            for task in self._tasks:
                task.cancel()
            if self._trim is not None:
                self._trim.cancel()
            self._free_spare()

    def _admit(self, connection: socket.socket, host: str, now: float) -> None:
        dropped = self.places.dropped
        place = self.places.enter(host, now)
        if place is None or self.places.dropped > dropped:
            where = "this machine" if place is not None and place.address == LOCAL else host
            how = "a new one was refused" if place is None else "one that waited was dropped"
            self._note("connections full", reason=how, address=where, open=len(self.places))
        if place is None:
            connection.close()
            return
        task = asyncio.get_running_loop().create_task(self._served(connection, place))
        self._tasks.add(task)

        def drop() -> None:
            task.cancel()

        def over(_: object) -> None:  # also of a task that was cancelled before it began
            self._tasks.discard(task)
            self.places.leave(place)
            place.drop = _nothing  # which refers to the task, as the task does to the place
            connection.close()

        place.drop = drop
        task.add_done_callback(over)

    async def _served(self, connection: socket.socket, place: Place) -> None:
        try:
            await self._serve(connection, place)
        except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
            self._failed(error)  # it went, or never spoke: no news
        except asyncio.CancelledError as error:
            self._failed(error)
            raise
        except Exception as error:
            self._note("connection failed", reason=repr(error))
            self._failed(error)

    def _failed(self, error: BaseException) -> None:
        """Free what a connection held: at once in this process, soon for the system."""
        release_frames(error)
        if self._trim is None:
            self._trim = asyncio.get_running_loop().call_later(_TRIM, self._trim_now)

    def _trim_now(self) -> None:
        self._trim = None
        trim_memory()

    # -- no descriptors left -------------------------------------------------------------------
    async def _not_accepted(self, error: OSError) -> None:
        """Without a descriptor, the one that waits is taken by a spare one and sent away: it would
        wait for ever, and be tried again and again.
        """
        if error.errno in _NO_MORE:
            self._note("no descriptors", reason=os.strerror(error.errno or 0))
            self._free_spare()
            with suppress(OSError):
                while True:
                    self._listener.accept()[0].close()
            self._keep_spare()
        await asyncio.sleep(_PAUSE)

    def _keep_spare(self) -> None:
        with suppress(OSError):
            self._spare.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))

    def _free_spare(self) -> None:
        while self._spare:
            os.close(self._spare.pop())
