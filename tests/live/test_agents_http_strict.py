"""Requests that a proxy and the server behind it could read in two ways: 400, whoever serves."""

import asyncio
import json
import socket

import h11
import pytest
import uvicorn

from dokl.live.dashboard import web
from dokl.live.doors import listening
from dokl.live.http import app as http_app
from dokl.live.http.serving import Server
from dokl.live.http.strict import StrictProtocol
from http_agents import ROW, FakeAgent

BODY = json.dumps(ROW).encode()
CHUNKED = b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)


def head(*lines, first=b"POST /samples HTTP/1.1", host=b"127.0.0.1", end=b"\r\n"):
    kind = b"Content-Type: application/json"
    return end.join([first, b"Host: " + host, kind, *lines, b"", b""])


LENGTH, TE = b"Content-Length: %d" % len(BODY), b"Transfer-Encoding: chunked"
GET = b"GET /healthz HTTP/1.1"
AMBIGUOUS = {
    "two lengths": (head(LENGTH, TE) + CHUNKED, "Content-Length together with Transfer-Encoding"),
    "two lengths, the other order": (head(TE, b"content-length: 0") + CHUNKED, "send one of"),
    "chunks in HTTP/1.0": (head(TE, first=b"POST /samples HTTP/1.0") + CHUNKED, "needs HTTP/1.1"),
    "bare LF": (head(LENGTH, end=b"\n") + BODY, "CR LF"),
    "one bare LF": (head(LENGTH).replace(b"127.0.0.1\r\n", b"127.0.0.1\n") + BODY, "CR LF"),
    "a bare LF at the end": (head(LENGTH)[:-2] + b"\n" + BODY, "CR LF"),
    "LF in trailers": (head(TE) + CHUNKED[:-2] + b"X: 1\n\r\n", "CR LF"),
    "user in host": (head(LENGTH, host=b"localhost:80@evil.example") + BODY, "evil.example"),
    "user before host": (head(first=GET, host=b"evil@127.0.0.1"), "HOST:PORT"),
    "no port": (head(first=GET, host=b"localhost:x"), "HOST:PORT"),
    "path in host": (head(first=GET, host=b"localhost:80/"), "HOST:PORT"),
    "half a bracket": (head(first=GET, host=b"[::1"), "HOST:PORT"),
    "no host": (b"GET /healthz HTTP/1.1\r\n\r\n", "Host"),
    "two hosts": (head(b"Host: evil.example", first=GET), "Host"),
    "garbage": (b"what is this\r\n\r\n", "not a valid HTTP/1.1 request"),
}


class Wire(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self):
        super().__init__()
        self.written, self.closed = b"", False

    def write(self, data):
        assert not self.closed
        self.written += data

    def close(self):
        self.closed = True

    def is_closing(self):
        return self.closed

    def pause_reading(self):
        pass

    def resume_reading(self):
        pass


async def spoken(application, request, cut):
    """What is answered to a request that arrives in parts of `cut` bytes."""
    config = uvicorn.Config(application, http=StrictProtocol, lifespan="off", log_config=None)
    config.load()
    wire, protocol = Wire(), StrictProtocol(config, uvicorn.server.ServerState(), {})
    protocol.connection_made(wire)
    for at in range(0, len(request), cut):
        if not wire.closed:
            protocol.data_received(request[at : at + cut])
    for _ in range(100):
        await asyncio.sleep(0)
    return wire


@pytest.mark.parametrize("case", AMBIGUOUS)
@pytest.mark.parametrize("cut", [1_000_000, 7, 1])
def test_an_ambiguous_request_is_refused_with_one_clear_message(case, cut):
    agent = FakeAgent()
    request, words = AMBIGUOUS[case]
    wire = asyncio.run(spoken(http_app.app(agent), request, cut))
    assert wire.written.startswith(b"HTTP/1.1 400 "), wire.written
    assert wire.written.count(b"HTTP/1.1 400") == 1
    assert wire.closed
    assert words in json.loads(h11_body(wire.written))["error"]
    assert not agent.arrivals


def h11_body(found):
    """The body of the one answer in these bytes."""
    reader, body = h11.Connection(h11.CLIENT), b""
    reader.send(h11.Request(method="GET", target="/", headers=[("host", "x")]))
    reader.send(h11.EndOfMessage())
    reader.receive_data(found)
    reader.receive_data(b"")
    while not isinstance(event := reader.next_event(), h11.EndOfMessage):
        body += event.data if isinstance(event, h11.Data) else b""
    return body


def exchanged(server, request):
    """What a server on a real socket answers until it closes."""
    found = b""
    with socket.create_connection(server.address, timeout=10) as connection:
        connection.sendall(request)
        while more := connection.recv(65536):
            found += more
    return found


def test_the_server_of_agents_refuses_so():
    agent = FakeAgent()
    with Server(http_app.app(agent), ("127.0.0.1", 0)) as server:
        for request in (head(LENGTH, TE), head(end=b"\n"), head(host=b"localhost:80@evil.example")):
            assert exchanged(server, request).startswith(b"HTTP/1.1 400 ")
    assert not agent.arrivals


def test_requests_that_say_it_once_are_answered_also_one_behind_the_other():
    agent = FakeAgent()
    lines = b"%s\n\n%s\n" % (BODY, BODY)  # in a body, LF alone is nobody's business
    ask = head(b"Content-Length: %d" % len(lines), first=b"POST /predict HTTP/1.1")
    last = head(b"Connection: close", first=GET, host=b"[::1]:80")
    with Server(http_app.app(agent), ("127.0.0.1", 0)) as server:
        parts = [head(LENGTH), BODY, head(TE), CHUNKED, ask, lines, head(LENGTH), BODY, last]
        found = exchanged(server, b"".join(parts))
    assert found.count(b"HTTP/1.1 200 OK") == 5
    assert len(agent.arrivals) == 3


def test_the_page_of_watch_refuses_the_same(monkeypatch):
    """What `dokl watch --web` gives to uvicorn speaks the strict protocol."""
    given = {}

    def config(app, **settings):
        given.update(settings)
        raise KeyboardInterrupt

    monkeypatch.setattr(uvicorn, "Config", config)
    with listening("127.0.0.1", 0, "HTTP") as sock, pytest.raises(KeyboardInterrupt):
        web.serve(None, sock, 1.0, None)
    assert issubclass(given["http"], StrictProtocol)
