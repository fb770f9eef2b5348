"""A TCP proxy on loopback that plays a bad network: partitions, slow links, latency.

    with Proxy("127.0.0.1:7447", rate=250_000) as proxy:
        ...  # dial proxy.address
        proxy.pause()  # nothing passes, and nobody is told: what TCP makes of a dead cable
        proxy.cut()    # connections are reset and new ones too: what a firewall does
        proxy.heal()

A pause holds the bytes back instead of dropping them: TCP would send lost ones again.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress

_BUFFER = 32_768  # of each socket: the proxy must not be the queue that makes a link look slow
_IN_FLIGHT = 64  # pieces that wait for their latency to pass
_SAVED = 0.2  # seconds
_RESET = struct.pack("ii", 1, 0)


class Proxy:
    """Connections to `address` end at `target`; rate in bytes a second and direction, or None."""

    def __init__(self, target: str, *, rate: float | None = None, latency: float = 0.0) -> None:
        host, _, port = target.rpartition(":")
        self.target = host, int(port)
        self.latency = latency
        self.passed = {"out": 0, "back": 0}  # bytes, dialler to target and target to dialler
        self._bucket = {"out": _Bucket(rate), "back": _Bucket(rate)}
        self._refusing = False
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._listener = _small_buffers(socket.create_server(("127.0.0.1", 0)))
        self._listener.setblocking(False)
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._loop = asyncio.new_event_loop()
        self._open = asyncio.Event()
        self._open.set()
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)
        self._thread.start()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- what a test does to the network ------------------------------------------------------
    def pause(self) -> None:
        """Nothing passes any more; connections stay open and say nothing."""
        self._call(self._open.clear)

    def cut(self) -> None:
        """Reset all connections, and every new one, until heal()."""
        self._refusing = True
        self._call(self._reset_all)

    def heal(self) -> None:
        """Let everything pass again."""
        self._refusing = False
        self._call(self._open.set)

    def throttle(self, rate: float | None) -> None:
        """Bytes a second in each direction from now on; None: as fast as it goes."""
        for bucket in self._bucket.values():
            bucket.rate = rate

    def close(self) -> None:
        """End everything."""
        if not self._thread.is_alive():
            return
        self._call(self._loop.stop)
        self._thread.join(5)
        for pair in list(self._pairs):
            for end in pair:
                end.close()
        self._listener.close()

    # -- inside the loop ----------------------------------------------------------------------
    def _call(self, action: Callable[[], object]) -> None:
        self._loop.call_soon_threadsafe(action)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._spawn(self._accept())
        self._loop.run_forever()
        while self._tasks:
            for task in self._tasks:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*self._tasks, return_exceptions=True))
        self._loop.close()

    def _spawn(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _accept(self) -> None:
        while True:
            near, _ = await self._loop.sock_accept(self._listener)
            if self._refusing:
                _reset(near)
            else:
                self._spawn(self._serve(near))

    async def _serve(self, near: socket.socket) -> None:
        far = _small_buffers(socket.socket())
        pair = near, far
        for end in pair:
            end.setblocking(False)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._pairs.add(pair)
        try:
            await self._open.wait()
            await self._loop.sock_connect(far, self.target)
            await self._pass(near, far)
        except OSError:
            pass
        finally:
            self._pairs.discard(pair)
            _reset(near)
            far.close()

    async def _pass(self, near: socket.socket, far: socket.socket) -> None:
        """Until one direction meets an end: that is enough for what is tested.

        Returns when nothing waits at either socket any more: a socket that is closed while a task
        waits for it leaves its number in the loop, and the next connection that gets this number
        is never woken.
        """
        work = []
        for source, sink, way in ((near, far, "out"), (far, near, "back")):
            pieces: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_IN_FLIGHT)
            work += [self._spawn(self._read(pieces, source, way)),
                     self._spawn(self._write(pieces, sink, way))]  # fmt: skip
        try:
            await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in work:
                task.cancel()
            await asyncio.gather(*work, return_exceptions=True)

    async def _read(
        self, pieces: asyncio.Queue[tuple[float, bytes]], source: socket.socket, way: str
    ) -> None:
        with suppress(OSError):
            while data := await self._loop.sock_recv(source, self._bucket[way].piece):
                await self._open.wait()
                await self._bucket[way].pay(len(data))
                await pieces.put((self._loop.time() + self.latency, data))

    async def _write(
        self, pieces: asyncio.Queue[tuple[float, bytes]], sink: socket.socket, way: str
    ) -> None:
        with suppress(OSError):
            while True:
                due, data = await pieces.get()
                await asyncio.sleep(max(0.0, due - self._loop.time()))
                await self._open.wait()
                await self._loop.sock_sendall(sink, data)
                self.passed[way] += len(data)

    def _reset_all(self) -> None:
        for pair in list(self._pairs):
            for end in pair:
                with suppress(OSError):
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                    end.shutdown(socket.SHUT_RDWR)


class _Bucket:
    """Bytes may pass at this rate; of unused time only a little is saved up, for a busy machine."""

    def __init__(self, rate: float | None) -> None:
        self.rate = rate
        self._free = 0.0  # when the line is free again

    @property
    def piece(self) -> int:
        return 65_536 if self.rate is None else int(min(65_536, max(512, self.rate / 100)))

    async def pay(self, size: int) -> None:
        if self.rate is None:
            return
        now = asyncio.get_running_loop().time()
        self._free = max(now - _SAVED, self._free) + size / self.rate
        await asyncio.sleep(max(0.0, self._free - now))


def _small_buffers(end: socket.socket) -> socket.socket:
    for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
        end.setsockopt(socket.SOL_SOCKET, option, _BUFFER)
    return end


def _reset(end: socket.socket) -> None:
    with suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    end.close()
