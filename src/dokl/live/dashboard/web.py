"""One page that shows a live network. It only reads: GET and HEAD are all there is.

On loopback it is open to all users of this machine, and answers to loopback names alone, so that
no web page elsewhere can read it through a name of its own. On any other address it needs a token,
once in the address (`/?token=...`), from then on in a cookie that scripts cannot see; programs may
send `Authorization: Bearer`. It speaks plain HTTP: over a network that is not yours put it behind
a proxy that speaks HTTPS, or reach it through `ssh -L`.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import math
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import asdict
from importlib.resources import files
from typing import TYPE_CHECKING
from urllib.parse import quote

from dokl.base.errors import BadInput, MissingExtra
from dokl.live.dashboard.collect import Collector
from dokl.live.dashboard.feed import MOST_PAGES, Feed
from dokl.live.description import is_loopback
from dokl.live.doors import listening
from dokl.live.http.attempts import TokenAttempts

if TYPE_CHECKING:
    from types import FrameType

    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp, Lifespan, Message, Receive, Scope, Send

ASSETS = {
    "index.html": "text/html; charset=utf-8",
    "style.css": "text/css; charset=utf-8",
    "icon.svg": "image/svg+xml",
    "script.js": "text/javascript; charset=utf-8",
    "graph.js": "text/javascript; charset=utf-8",
    "charts.js": "text/javascript; charset=utf-8",
    "table.js": "text/javascript; charset=utf-8",
    "rows.js": "text/javascript; charset=utf-8",
    "words.js": "text/javascript; charset=utf-8",
}
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "object-src 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def app(collector: Collector, every: float = 1.0, token: str | None = None) -> Starlette:
    """The ASGI application; without a token it answers to loopback names only."""
    try:
        from starlette.applications import Starlette
        from starlette.middleware import Middleware
        from starlette.responses import JSONResponse
        from starlette.routing import Route
    except ImportError:
        raise MissingExtra("the web page of a live network", "live") from None

    feed = Feed(collector, every)

    async def events(request: Request) -> Response:
        return _stream(feed, request)

    async def newest(request: Request) -> Response:
        return JSONResponse(asdict(collector.newest(request.query_params.get("node", ""))))

    routes = [Route("/", _asset("index.html")), Route("/events", events), Route("/newest", newest)]
    routes += [Route(f"/{name}", _asset(name)) for name in ASSETS if name != "index.html"]
    guard = Middleware(Guard, token or None)  # an empty token would be everyone's
    made = Starlette(routes=routes, lifespan=_running(feed), middleware=[guard])
    made.state.feed = feed
    return made


def _running(feed: Feed) -> Lifespan[Starlette]:
    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        task = asyncio.create_task(feed.run())
        try:
            yield
        finally:
            feed.stop()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    return lifespan


def _asset(name: str) -> Callable[[Request], Awaitable[Response]]:
    from starlette.responses import Response

    body = (files("dokl.live.dashboard") / "assets" / name).read_bytes()

    async def answer(request: Request) -> Response:
        return Response(body, media_type=ASSETS[name])

    return answer


def _stream(feed: Feed, request: Request) -> Response:
    from starlette.responses import PlainTextResponse, Response, StreamingResponse

    if request.method == "HEAD":
        return Response(media_type="text/event-stream")
    if feed.pages >= MOST_PAGES:
        return PlainTextResponse("too many pages are open\n", 503, {"Retry-After": "10"})
    return StreamingResponse(feed.events(), media_type="text/event-stream")


class Guard:
    """Decides who may read, and gives every answer the headers that keep browsers strict."""

    def __init__(self, app: ASGIApp, token: str | None) -> None:
        self.app, self.token = app, token
        # Cookies know no ports: two pages on one host must not share a name.
        mark = hashlib.sha256((token or "").encode()).hexdigest()
        self.attempts = TokenAttempts()
        # Not the token itself: a cookie cannot hold every letter that a token may have.
        self.cookie, self.kept = f"dokl_watch_{mark[:8]}", mark[8:]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on what may pass."""
        from starlette.requests import Request

        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        refusal = self._refusal(Request(scope))
        await (refusal or self.app)(scope, receive, _with_headers(send))

    def _refusal(self, request: Request) -> Response | None:
        from starlette.responses import PlainTextResponse, RedirectResponse

        if self.token is None:
            if _loopback_name(request.headers.get("host", "")):
                return None
            return PlainTextResponse("this page answers to loopback names only\n", 421)
        asked = request.query_params.get("token", "")
        scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
        shown = (asked, bearer if scheme.lower() == "bearer" else "")
        cookie = request.cookies.get(self.cookie, "")
        wait: float | None = 0.0
        if any((*shown, cookie)):
            host = request.client.host if request.client else ""
            wait = self.attempts.wait(host, lambda: self._right(shown, cookie))
        if wait:
            later = {"Retry-After": str(math.ceil(wait))}
            return PlainTextResponse("too many wrong tokens: try again later\n", 429, later)
        if wait is not None:
            wants = "this page needs its token: open the address that dokl watch printed\n"
            return PlainTextResponse(wants, 401, {"WWW-Authenticate": "Bearer"})
        if not _same(asked, self.token):
            return None
        answer = RedirectResponse(request.url.path, 303)  # out of sight and of the history
        # Not strict: a link clicked on another site would lose it on this redirection.
        answer.set_cookie(self.cookie, self.kept, httponly=True, samesite="lax")
        return answer

    def _right(self, shown: Iterable[str], cookie: str) -> bool:
        assert self.token is not None
        right = [_same(each, self.token) for each in shown]
        return any(right) or _same(cookie, self.kept)


def _same(given: str, expected: str) -> bool:
    """In a time that does not depend on where they differ."""
    return hmac.compare_digest(given.encode(), expected.encode())


def _with_headers(send: Send) -> Send:
    extra = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", ()), *extra]
        await send(message)

    return sending


def _loopback_name(host: str) -> bool:
    """Whether a Host header, with or without a port, names this machine only."""
    try:
        return is_loopback(host if host.rpartition("]")[2].count(":") else f"{host}:80")
    except BadInput:
        return False


# -- serving -----------------------------------------------------------------------------------
def listen(host: str, port: int) -> socket.socket:
    """A socket that listens; BadInput says why there is none."""
    try:
        return listening(host, port, "HTTP")
    except BadInput as error:
        raise BadInput(f"{error} (--port 0 takes any free port)") from None


def address(host: str, sock: socket.socket, token: str | None) -> str:
    """What to open in a browser."""
    port = sock.getsockname()[1]
    name = socket.gethostname() if host in ("", "0.0.0.0", "::") else host
    shown = f"[{name}]" if ":" in name else name
    return f"http://{shown}:{port}/" + (f"?token={quote(token, safe='')}" if token else "")


def serve(collector: Collector, sock: socket.socket, every: float, token: str | None) -> None:
    """Serve the page until Ctrl-C or SIGTERM."""
    try:
        import uvicorn
    except ImportError:
        raise MissingExtra("the web page of a live network", "live") from None
    from dokl.live.http.strict import StrictProtocol

    made = app(collector, every, token)

    class Server(uvicorn.Server):
        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            made.state.feed.stop()  # else it would wait for every open page
            super().handle_exit(sig, frame)

    config = uvicorn.Config(
        made, http=StrictProtocol, log_level="warning", access_log=False, server_header=False,
        timeout_graceful_shutdown=3, lifespan="on", limit_concurrency=4 * MOST_PAGES,
    )  # fmt: skip
    try:
        Server(config).run(sockets=[sock])
    except KeyboardInterrupt:
        return
