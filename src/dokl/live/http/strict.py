"""Requests that two servers could read in two ways are refused with 400.

A proxy and the server behind it must agree where a request ends and whom it is for; h11 is more
lenient than the standards (RFC 9112, sections 2.2, 3.2 and 6.1) so that old clients keep working.
"""

from __future__ import annotations

import json
import re
from typing import Any

from dokl.base.errors import MissingExtra

try:
    import h11
    from h11._receivebuffer import ReceiveBuffer
    from uvicorn.protocols.http.h11_impl import H11Protocol
except ImportError:
    raise MissingExtra("a live network", "live") from None

_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+))(?::[0-9]{1,5})?", re.ASCII)
_BARE_LF = re.compile(rb"(?<!\r)\n")
_END = b"\r\n\r\n"


def named_host(host: str) -> str | None:
    """The name or address of a Host header, without its port; None if it is malformed.

    >>> named_host("localhost:80"), named_host("[::1]"), named_host("localhost:80@evil.example")
    ('localhost', '::1', None)
    """
    found = _HOST.fullmatch(host)
    return None if found is None else found[1] or found[2]


class StrictProtocol(H11Protocol):
    """uvicorn's HTTP/1.1, which rejects ambiguous requests with the reason."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.conn: _StrictConnection = _StrictConnection(self.conn)

    def send_400_response(self, msg: str) -> None:
        """As the application writes errors; the connection ends, for its rest has no meaning."""
        body = json.dumps({"error": f"not a valid HTTP/1.1 request: {self.conn.refused or msg}"})
        headers = [("content-type", "application/json"), ("connection", "close")]
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):  # else an answer has begun
            for event in (
                h11.Response(status_code=400, headers=headers, reason=b"Bad Request"),
                h11.Data(data=body.encode()),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


class _StrictConnection(h11.Connection):
    """refused: why the last event was an error."""

    def __init__(self, plain: h11.Connection) -> None:
        super().__init__(h11.SERVER, plain._max_incomplete_event_size)
        self._receive_buffer = _StrictBuffer()
        self.refused = ""

    def next_event(self) -> Any:
        """The next event; an ambiguous request is an error."""
        try:
            event = super().next_event()
            if isinstance(event, h11.Request):
                _check(event)
        except h11.RemoteProtocolError as error:
            self.refused = str(error)
            raise
        return event


class _StrictBuffer(ReceiveBuffer):
    """Lines of heads and trailers end with CR LF; h11 takes a bare LF, and proxies may not."""

    def maybe_extract_lines(self) -> Any:
        """The lines up to the first empty one, or None if that is not here yet."""
        if not self._data.startswith(b"\r\n"):
            seen = self._multiple_lines_search
            bare, end = _BARE_LF.search(self._data, seen), self._data.find(_END, max(0, seen - 2))
            if bare is not None and not 0 <= end < bare.start():
                raise h11.LocalProtocolError("a line ends with LF alone: end lines with CR LF")
        return super().maybe_extract_lines()


def _check(request: h11.Request) -> None:
    """Refuse a body of two lengths, and a Host header that is no HOST or HOST:PORT."""
    headers = dict(request.headers)
    if b"transfer-encoding" in headers:
        if b"content-length" in headers:
            text = "Content-Length together with Transfer-Encoding: send one of the two"
            raise h11.RemoteProtocolError(text)
        if request.http_version < b"1.1":
            raise h11.RemoteProtocolError("Transfer-Encoding needs HTTP/1.1")
    host = headers.get(b"host")
    if host is not None and named_host(host.decode("latin-1")) is None:
        shown = host.decode("latin-1")[:100]
        raise h11.RemoteProtocolError(f"Host {shown!r} is not HOST or HOST:PORT")
