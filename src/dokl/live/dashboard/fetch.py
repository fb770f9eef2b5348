"""Ask one agent's HTTP interface for its status: bounded in time and size, and one at a time.

A face on loopback speaks plain HTTP; on any other address it speaks HTTPS with a certificate of
the network's own CA, and wants the node's token. Redirects and proxies are not followed.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import threading
import time

from dokl.base.errors import BadInput, DoklError
from dokl.live.dashboard.status import MOST_BYTES, Status, parse
from dokl.live.description import Network, host_port, is_loopback

# What a server does that had enough of an idle connection.
HUNG_UP = (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError)


class Face:
    """The HTTP interface of one node; the connection is kept open between two questions."""

    def __init__(self, network: Network, name: str, timeout: float) -> None:
        self.network, self.name, self.timeout = network, name, timeout
        self.address = network.nodes[name].http
        self.answer: Status | str | None = None  # a text: why there is none
        self.answered = 0.0  # monotonic seconds: when it came, not when someone looked
        self._thread: threading.Thread | None = None
        self._connection: http.client.HTTPConnection | None = None
        self._late = self._closed = False

    def ask(self) -> None:
        """Begin to ask, unless an earlier question is still under way."""
        if self.address is None or (self._thread is not None and self._thread.is_alive()):
            return
        self.answer, self._late = None, False
        # A daemon: a face that never answers does not keep the process alive.
        self._thread = threading.Thread(target=self._fetch, daemon=True)
        self._thread.start()

    def wait(self, deadline: float) -> Status | str:
        """The answer, or why there is none; deadline: monotonic seconds."""
        if self._thread is None:
            return "it has no HTTP interface"
        self._thread.join(max(0.0, deadline - time.monotonic()))
        answer = self.answer
        if answer is None:
            self._late = True
            self._abort()
        return answer if answer is not None else no_answer(self.timeout)

    def close(self) -> None:
        """Hang up; a question that is under way ends without an answer."""
        self._closed = True
        if self._thread is None or not self._thread.is_alive():
            self._forget()
        self._abort()

    def _abort(self) -> None:
        """Wake a thread that waits for bytes; it cleans up by itself."""
        sock = getattr(self._connection, "sock", None)
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def _fetch(self) -> None:
        kept = self._connection is not None
        try:
            try:
                self._take(self._get())
            except HUNG_UP:
                self._forget()
                if self._late or not kept:
                    raise
                self._take(self._get())
        except (OSError, http.client.HTTPException, DoklError, ValueError) as error:
            self._forget()
            self.answer = no_answer(self.timeout) if self._late else why(error, self.timeout)
        if self._closed:
            self._forget()

    def _take(self, body: bytes) -> None:
        self.answered = time.monotonic()
        self.answer = parse(body)

    def _get(self) -> bytes:
        connection = self._connection = self._connection or self._connect()
        connection.request("GET", "/status", headers=self._headers())
        response = connection.getresponse()
        body = response.read(MOST_BYTES + 1)
        if response.status != 200:
            raise BadInput(_refusal(response.status, self.name))
        if response.will_close or not response.isclosed():  # the last answer, or more than wanted
            self._forget()
        return body

    def _headers(self) -> dict[str, str]:
        known, name = self.network, self.name
        token = None if self._local else known.token(name, reading=True) or known.token(name)
        accept = {"Accept": "application/json"}
        return accept | ({"Authorization": f"Bearer {token}"} if token else {})

    @property
    def _local(self) -> bool:
        return is_loopback(self.address or "")

    def _connect(self) -> http.client.HTTPConnection:
        host, port = host_port(self.address or "")
        if self._local:
            return http.client.HTTPConnection(host, port, timeout=self.timeout)
        if host in ("0.0.0.0", "::"):  # where it listens, and no place to go to
            host, _ = host_port(self.network.nodes[self.name].address)
        trust = self._trust()
        return http.client.HTTPSConnection(host, port, timeout=self.timeout, context=trust)

    def _trust(self) -> ssl.SSLContext:
        authority, *_ = self.network.certificate_files(self.name)
        try:
            return ssl.create_default_context(cafile=str(authority))
        except OSError as error:
            raise BadInput(f"{authority} is needed and cannot be read ({error.strerror})") from None

    def _forget(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def no_answer(timeout: float) -> str:
    """Why there was no status of one that hangs."""
    return f"no answer within {timeout:g} s"


def why(error: Exception, timeout: float) -> str:
    """Why there was no status, in a few words."""
    if isinstance(error, ConnectionRefusedError):
        return "nothing listens at its address"
    if isinstance(error, TimeoutError):
        return no_answer(timeout)
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not of this network: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"it does not speak TLS ({error.reason})"
    if isinstance(error, DoklError):
        return str(error)
    if isinstance(error, socket.gaierror):
        return "its host name is unknown"
    if isinstance(error, HUNG_UP):
        return "it hung up without an answer"
    words = error.strerror if isinstance(error, OSError) else None
    return words or f"its answer is not HTTP ({type(error).__name__})"


def _refusal(status: int, name: str) -> str:
    if status == 401:
        return f"it needs the token in {name}.read.token beside the certificates (401)"
    if status == 503:
        return "it is not ready: it starts, compiles, or is about to end (503)"
    return f"its /status answers {status}"
