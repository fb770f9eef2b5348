"""What stands before Zenoh at a node's address: neighbours are let through, strangers are not.

Zenoh's own listener pauses 100 ms after each handshake that fails, gives idle ones ten seconds,
counts nobody, and has no setting for any of it: some hundred connections without a certificate keep
neighbours out for minutes. So it listens on loopback, where only this guard dials it. The guard
counts from the moment of accepting, ends a handshake that takes too long, asks for a certificate of
the network's authority with the name of a neighbour, and only then connects the two and passes
bytes on.

Zenoh's access table goes by the names in certificates, and the guard has no key of a neighbour. So
it vouches: an authority that exists in this process alone, which the inner listener trusts beside
the network's own, makes a certificate for the name that was shown, which ends when that one does.

Without certificates (insecure-loopback) it counts, waits for first bytes, and passes them on.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import tempfile
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dokl.base.errors import BadInput
from dokl.live.certificates import Authority
from dokl.live.description import Network, host_port
from dokl.live.doors import Door, DoorPlaces, Place, Rank, listening, places_for
from dokl.live.doors.accepting import Note

HANDSHAKE = 4.0  # seconds for a handshake, then for Zenoh behind the guard
MOST_HALF_OPEN = 128
PER_NAME = 4  # connections under one name: a new one may come before an old one is known to be dead
TWICE_SECONDS = 5.0  # a connection that is dead ends after Zenoh's lease, which is less
HERE = "127.0.0.1"
_DESCRIPTORS = 3  # of a connection: outside, inside, and Zenoh's end of that
_BUFFER = 32_768  # of each socket, and a quarter of it in between: a queue here is stale vectors


class LinkGuard:
    """Before the links of node `name`; `open` before use, `close` after.

    inner: the port on loopback where Zenoh listens.
    """

    def __init__(self, network: Network, name: str, note: Note | None = None) -> None:
        self._network, self._name = network, name
        self._neighbours = frozenset(network.neighbours(name))
        self._note: Note = note or (lambda event, **fields: None)
        self._voucher = Voucher(network, name) if network.secure else None
        self._outside = _server_context(network, name) if network.secure else None
        self._listener = self._bound()
        self.inner = _free_port()
        self._named: dict[str, tuple[float, ...]] = {}  # since when each connection is open
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._work: asyncio.Task[None] | None = None

    @property
    def authorities(self) -> bytes:
        """Certificates, in PEM, of those whom Zenoh behind this guard believes."""
        assert self._voucher is not None
        return self._voucher.believed

    def twice(self) -> frozenset[str]:
        """Names under which two have been connected for longer than a dead link lasts."""
        limit = time.monotonic() - TWICE_SECONDS
        second = {name: sorted(since)[1:2] for name, since in self._named.copy().items()}
        return frozenset(name for name, since in second.items() if since and since[0] < limit)

    def _bound(self) -> socket.socket:
        at = self._network.node(self._name).binds
        try:
            return listening(*host_port(at), "links")
        except BadInput as error:
            text = str(error).rpartition(": ")[2]
            if "in use" in text:
                text = f"another program listens at {at}. End it, or give this node another address"
            raise BadInput(f"node {self._name!r} cannot open links at {at}: {text}") from None

    # -- a thread of its own -------------------------------------------------------------------
    def open(self) -> None:
        """Begin to accept."""
        ready = threading.Event()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._run(ready)), name=f"guard-{self._name}", daemon=True
        )
        self._thread.start()
        ready.wait(10)

    def close(self) -> None:
        """Accept no more, and end all connections."""
        if self._loop is not None and self._work is not None:
            with suppress(RuntimeError):  # it has ended by itself
                self._loop.call_soon_threadsafe(self._work.cancel)
        if self._thread is not None:
            self._thread.join(2)
        self._listener.close()

    async def _run(self, ready: threading.Event) -> None:
        self._loop, self._work = asyncio.get_running_loop(), asyncio.current_task()
        self._loop.set_exception_handler(
            lambda _, about: self._note("link failed", reason=str(about.get("message")))
        )
        most = places_for(MOST_HALF_OPEN + PER_NAME * len(self._neighbours), 0.3, _DESCRIPTORS)
        places = DoorPlaces(most, max(1, most // 2), most // 4)
        ready.set()
        with suppress(asyncio.CancelledError):
            await Door(self._listener, places, self._serve, self._note).run()

    # -- one connection ------------------------------------------------------------------------
    async def _serve(self, connection: socket.socket, place: Place) -> None:
        outer = _End()
        try:
            async with asyncio.timeout(HANDSHAKE):
                name = await self._greeted(connection, outer)
            if name is None:
                return
            place.rank = lambda: Rank.SERVED
            since = time.monotonic()
            self._named[name] = (*self._named.get(name, ()), since)
            try:
                async with asyncio.timeout(HANDSHAKE):
                    inner = await self._behind(name, outer)
                outer.join(inner)
                await asyncio.wait(
                    [asyncio.ensure_future(end.over.wait()) for end in (outer, inner)],
                    return_when=asyncio.FIRST_COMPLETED,
                )
            finally:
                self._named[name] = tuple(t for t in self._named[name] if t is not since)
        except ssl.SSLError as error:
            why = str(getattr(error, "reason", None) or error).replace("_", " ").lower()
            self._note("link refused", reason=why, address=place.address)
            raise  # the door lets go of what the error holds
        finally:
            outer.abort()

    async def _greeted(self, connection: socket.socket, outer: _End) -> str | None:
        """The name in the certificate that was shown, if it is a neighbour's; without
        certificates, "" once something was sent.
        """
        loop = asyncio.get_running_loop()
        _shrink(connection)
        await loop.connect_accepted_socket(
            lambda: outer, connection, ssl=self._outside,
            ssl_handshake_timeout=HANDSHAKE if self._outside else None,
        )  # fmt: skip
        if self._outside is None:
            await outer.spoke.wait()
            return None if outer.over.is_set() else ""
        name = outer.common_name
        if name not in self._neighbours:
            text = f"{name!r} is no neighbour of this node"
            self._note("link refused", reason=text, address=outer.address)
            return None
        if len(self._named.get(name, ())) >= PER_NAME:
            text = f"{PER_NAME} connections of {name!r} are open already"
            self._note("link refused", reason=text, address=outer.address)
            return None
        return name

    async def _behind(self, name: str, outer: _End) -> _End:
        """Zenoh's end, in the name that was shown."""
        inner = _End()
        dialled = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        dialled.setblocking(False)
        _shrink(dialled)
        try:
            await asyncio.get_running_loop().sock_connect(dialled, (HERE, self.inner))
            voucher = self._voucher
            context = None if voucher is None else voucher.context(name, outer.ends)
            await asyncio.get_running_loop().create_connection(
                lambda: inner, sock=dialled, ssl=context,
                server_hostname="" if context else None,
            )  # fmt: skip
        except BaseException:
            inner.abort()
            dialled.close()
            raise
        if self._voucher is not None and inner.shown != self._voucher.own:
            inner.abort()
            raise OSError("it is not Zenoh of this node that listens behind the guard")
        return inner


class _End(asyncio.Protocol):
    """One end of a connection, which forwards what it receives to the other."""

    def __init__(self) -> None:
        self.over, self.spoke = asyncio.Event(), asyncio.Event()
        self._transport: Any = None
        self._other: _End | None = None
        self._early = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._transport.set_write_buffer_limits(high=_BUFFER // 4)

    def data_received(self, data: bytes) -> None:
        self.spoke.set()
        if self._other is not None:
            self._other._transport.write(data)
        else:
            self._early += data
            self._transport.pause_reading()

    def join(self, other: _End) -> None:
        """From now on both forward what they receive."""
        self._other, other._other = other, self
        for here, there in ((self, other), (other, self)):
            if here._early:
                there._transport.write(bytes(here._early))
                here._early.clear()
            here._read(True)

    def pause_writing(self) -> None:
        if self._other is not None:
            self._other._read(False)

    def resume_writing(self) -> None:
        if self._other is not None:
            self._other._read(True)

    def _read(self, on: bool) -> None:
        if not self._transport.is_closing():
            (self._transport.resume_reading if on else self._transport.pause_reading)()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.over.set()
        self.spoke.set()
        if self._other is not None:
            self._other._transport.close()

    def abort(self) -> None:
        """End it now, and the other with it."""
        for end in (self, self._other):
            if end is not None and end._transport is not None:
                end._transport.abort()

    # -- what was shown ------------------------------------------------------------------------
    @property
    def address(self) -> str:
        """Whom it is with."""
        return str((self._transport.get_extra_info("peername") or ["?"])[0])

    @property
    def shown(self) -> bytes:
        """The other's certificate."""
        found = self._transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
        return bytes(found or b"")

    @property
    def common_name(self) -> str:
        """The name in it."""
        about = self._transport.get_extra_info("ssl_object").getpeercert() or {}
        names = [value for part in about.get("subject", ()) for key, value in part
                 if key == "commonName"]  # fmt: skip
        return names[0] if len(names) == 1 else ""

    @property
    def ends(self) -> datetime:
        """When it runs out."""
        about = self._transport.get_extra_info("ssl_object").getpeercert()
        return datetime.fromtimestamp(ssl.cert_time_to_seconds(about["notAfter"]), UTC)


class Voucher:
    """Makes certificates in neighbours' names that hold within this process."""

    def __init__(self, network: Network, name: str) -> None:
        ca, certificate, _ = network.certificate_files(name)
        self._authority = Authority.new(f"guard of {name}")
        self._ca = ca
        self.own = ssl.PEM_cert_to_DER_cert(_first_pem(certificate))
        self.believed = ca.read_bytes() + b"\n" + self._authority.files()["ca.pem"]
        self._made: dict[tuple[str, datetime], ssl.SSLContext] = {}

    def context(self, name: str, ends: datetime) -> ssl.SSLContext:
        """For dialling Zenoh as this neighbour, until `ends`."""
        if (name, ends) not in self._made:
            issued = self._authority.issue(name, ["localhost"], until=ends)
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname = False  # its certificate is compared, to the last byte
            context.load_verify_locations(self._ca)
            with tempfile.TemporaryDirectory(prefix="dokl-") as folder:  # ssl reads only files
                path = Path(folder, "pair.pem")
                path.write_bytes(issued["pem"] + issued["key"])
                context.load_cert_chain(path)
            self._made = {key: made for key, made in self._made.items() if key[0] != name}
            self._made[name, ends] = context
        return self._made[name, ends]


def _server_context(network: Network, name: str) -> ssl.SSLContext:
    ca, certificate, key = network.certificate_files(name)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    context.num_tickets = 0  # Zenoh resumes nothing
    try:
        context.load_verify_locations(ca)
        context.load_cert_chain(certificate, key)
    except (OSError, ValueError) as error:
        raise BadInput(f"{certificate}: no certificate with its key ({error})") from None
    return context


def _first_pem(path: Path) -> str:
    text = path.read_text(encoding="ascii")
    return text[: text.index("-----END CERTIFICATE-----") + 25]


def _shrink(connection: socket.socket) -> None:
    for buffer in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        connection.setsockopt(socket.SOL_SOCKET, buffer, _BUFFER)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((HERE, 0))
        return int(probe.getsockname()[1])
