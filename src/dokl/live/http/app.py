"""The HTTP interface of a service: samples in, predictions and figures out.

On a loopback address anyone on the machine may use it; what a web page could send (a foreign
Origin or Host, a form) is refused. At any other address it speaks https and needs a token.

An answer to `POST /samples` means that the samples are in the journal. Errors are
{"error": "..."}; those worth a second try carry Retry-After.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import math
import time
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qsl

import numpy as np

from dokl.base.errors import BadInput, Diverged, DoklError, MissingExtra, UnknownName
from dokl.live.agent.replies import Busy, Stopping
from dokl.live.description import host_port
from dokl.live.http import gauges, openapi
from dokl.live.http.attempts import TokenAttempts
from dokl.live.http.bounds import HttpBounds, Refusal, Room
from dokl.live.http.responses import FURTHER, as_csv, as_json, as_refusal, predictions
from dokl.live.http.serving import Server
from dokl.live.http.starting import Entrance, unready
from dokl.live.http.strict import named_host
from dokl.live.process import Latency
from dokl.live.store import KeyReused, StoreFailed, TooManyWaiting
from dokl.tables.readers.text import NotJson

try:
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route
except ImportError:
    raise MissingExtra("a live network", "live") from None

if TYPE_CHECKING:
    from dokl.base.arrays import Array
    from dokl.live.agent.service import Service
    from dokl.live.description import ServiceDescription
    from dokl.live.inputs import Arrival

KINDS = {"application/json": "json", "application/x-ndjson": "json", "text/csv": "csv"}
LONGEST_KEY = 255
REMEMBER = "remember"  # a switch of /predict
LATER = 5.0  # seconds until a second try, where nothing better is known
AT_ONCE = 0.3  # seconds after which questions about the service are answered from what was known
ASKERS = 8  # such questions that may wait for that at a time
_SMALL = 1 << 16  # bytes that are parsed at once; more goes to a thread, one body at a time

T = TypeVar("T")
Endpoint = Callable[[Request], Awaitable[Response]]


def app(
    service: Service,
    *,
    token: str | None = None,
    reading: str | None = None,
    bounds: HttpBounds | None = None,
) -> Starlette:
    """The application; with a token it wants that, without one it expects to be on loopback.

    reading: a second token, which is good for everything but samples.
    """
    return Endpoints(service, token, bounds or HttpBounds(), reading).app


def serve(service: Service, address: str, bounds: HttpBounds | None = None) -> Server:
    """A server at HOST:PORT; `start` or `run` it, and `stop` it.

    At an address that others can reach it speaks https with the node's certificate and wants the
    node's token.
    """
    face = HttpFace(service.description, service.name, address, service.log, bounds)
    face.open(service)
    return face.server


class HttpFace:
    """A server whose service is still to come: until `open` it says that it is not ready.

    entrance: its application.
    """

    def __init__(
        self,
        description: ServiceDescription,
        name: str,
        address: str,
        log: Callable[..., None],
        bounds: HttpBounds | None = None,
    ) -> None:
        self._bounds, self._access = bounds or HttpBounds(), description.access(name, address)
        self.entrance = Entrance()
        note = partial(log, often=True)  # about floods, one line a second of each kind
        where = host_port(address)
        self.server = Server(self.entrance, where, self._bounds, self._access.certificate, note)

    def open(self, service: Service) -> None:
        """The service is ready."""
        token, reading = self._access.token, self._access.reading
        self.entrance.open(app(service, token=token, reading=reading, bounds=self._bounds))


class Endpoints:
    """What the endpoints share: the service, who may ask, and how much is under way."""

    def __init__(
        self, service: Service, token: str | None, bounds: HttpBounds, reading: str | None = None
    ) -> None:
        self.service, self.bounds = service, bounds
        self.room, self.questions = Room(bounds), Room(bounds)
        self._askers = ThreadPoolExecutor(ASKERS, "status")
        self.answers: Counter[int] = Counter()
        self.latencies = {"/samples": Latency(), "/predict": Latency()}
        self._token = None if token is None else f"Bearer {token}".encode()
        self._reading = None if reading is None else f"Bearer {reading}".encode()
        self.attempts = TokenAttempts()
        self._large = asyncio.Semaphore(1)
        self.app = Starlette(
            routes=[
                Route("/samples", self._endpoint(self.samples, writes=True), methods=["POST"]),
                Route("/learn", self._endpoint(self.learn, writes=True), methods=["POST"]),
                Route("/waiting", self._endpoint(self.purge, writes=True), methods=["DELETE"]),
                Route("/predict", self._endpoint(self.predict), methods=["POST"]),
                Route("/status", self._endpoint(self.status)),
                Route("/metrics", self._endpoint(self.metrics)),
                Route("/openapi.json", self._endpoint(self.description)),
                Route("/healthz", self._health),
                Route("/readyz", self._ready),
            ],
            exception_handlers={HTTPException: self._not_here},
        )

    # -- endpoints ---------------------------------------------------------------------------
    async def samples(self, request: Request) -> Response:
        """Learn rows, and answer when they are stored."""
        inputs = self.service.inputs
        return await self._taken(request, {"json": inputs.from_json, "csv": inputs.from_csv})

    async def learn(self, request: Request) -> Response:
        """Learn inputs that were predicted before, now that their targets are known."""
        inputs = self.service.inputs
        return await self._taken(request, {"json": inputs.labels_json, "csv": inputs.labels_csv})

    async def _taken(
        self, request: Request, ways: dict[str, Callable[[bytes], Arrival]]
    ) -> Response:
        """Store and learn what the body has; ways: how it is read."""
        _options(request)
        key = _key(request)
        with self._body(request) as incoming:
            kind, body = _content(request), await incoming.read()
            with self.room.turn():
                try:
                    arrival = await self._parsed(ways[KINDS[kind]], body)
                except DoklError:
                    self.service.counts["refused"] += 1
                    raise
                if key is not None:
                    digest = sha256(kind.encode() + b"\n" + body).hexdigest()
                    arrival = replace(arrival, key=key, digest=digest)
                return as_json(await self._stored(self.service.submit(arrival)))

    async def purge(self, request: Request) -> Response:
        """Let inputs go that wait for labels; ?hours=24 only those that have waited so long."""
        given = request.query_params.get("hours", "0")
        try:
            hours = float(given)
        except ValueError:
            hours = -1.0
        if set(request.query_params) - {"hours"} or not 0 <= hours < math.inf:
            raise Refusal(400, "use ?hours=24, or no parameter for all inputs that wait")
        purged = await asyncio.wrap_future(self.service.purge(3600 * hours))
        return as_json({"purged": purged})

    async def predict(self, request: Request) -> Response:
        """Answers for rows; as CSV where that is what the sender accepts. ?remember=true: the rows
        wait under their ids for their targets.
        """
        wanted = [name for name, asked in _options(request, *FURTHER, REMEMBER).items() if asked]
        inputs, remember = self.service.inputs, REMEMBER in wanted
        if remember:
            wanted.remove(REMEMBER)
            self._admit(request, writes=True)
        ways: dict[str, Callable[[bytes], Any]]
        ways = {"json": inputs.rows_json, "csv": inputs.rows_csv}
        ways = {"json": inputs.waiting_json, "csv": inputs.waiting_csv} if remember else ways
        with self._body(request) as incoming:
            kind, body = _content(request), await incoming.read()
            with self.room.turn():
                parsed = await self._parsed(ways[KINDS[kind]], body)
                X: Array = np.stack([x for _, x in parsed.waiting]) if remember else parsed
                found = await asyncio.to_thread(predictions, self.service, X, wanted)
                if remember:
                    await self._stored(self.service.submit(parsed))
        return as_csv(found) if _accepts_csv(request) else as_json(found)

    async def status(self, request: Request) -> Response:
        """What the service reports of itself."""
        return as_json(await self._status())

    async def metrics(self, request: Request) -> Response:
        """The same for Prometheus."""
        text = gauges.text(await self._status(), self.answers, self.latencies)
        return Response(text, headers={"content-type": gauges.CONTENT_TYPE})

    async def _status(self) -> dict[str, Any]:
        """Room and threads of its own: senders and large predictions keep nobody from asking."""
        with self.questions.turn():
            ask = partial(self.service.status, AT_ONCE)
            return await asyncio.get_running_loop().run_in_executor(self._askers, ask)

    async def description(self, request: Request) -> Response:
        """The OpenAPI description of all this."""
        return as_json(openapi.document(self.service.description, secure=self._token is not None))

    async def _health(self, request: Request) -> Response:
        """Open to all: it reports only that this answers."""
        return as_json({"ok": True})

    async def _ready(self, request: Request) -> Response:
        """Open to all: it takes samples and predicts. Before there is a service, `Entrance`
        answers.
        """
        why = self.service.not_ready()
        return as_refusal(unready(why)) if why else as_json({"ready": True})

    # -- around them -------------------------------------------------------------------------
    def _endpoint(self, answer: Endpoint, writes: bool = False) -> Endpoint:
        """Check who asks, and make an answer of whatever goes wrong."""

        async def endpoint(request: Request) -> Response:
            began = time.monotonic()
            try:
                self._admit(request, writes)
                response = await answer(request)
            except Refusal as refused:
                response = as_refusal(refused)
            except DoklError as error:
                response = as_refusal(_refusal(error))
            except Exception as error:
                self._log(error)
                response = as_refusal(Refusal(500, "internal error"))
            self.answers[response.status_code] += 1
            self._note(request, response.status_code, began)
            return response

        return endpoint

    def _note(self, request: Request, code: int, began: float) -> None:
        """How long it took; and who was not let in, for the log."""
        path = request.url.path
        if code in (401, 403):
            who = request.client.host if request.client else "somebody"
            self.service.log("login refused", often=True, reason=who, path=path[:100], code=code)
        elif path in ("/samples", "/predict"):
            self.latencies[path].since(began)

    def _admit(self, request: Request, writes: bool) -> None:
        headers = request.headers
        host, origin = headers.get("host", ""), headers.get("origin")
        if origin is not None and origin.partition("://")[2] != host:
            raise Refusal(403, f"requests from web pages of {origin[:100]!r} are refused")
        if self._token is None:
            if not _is_local(host):
                raise Refusal(403, f"host {host[:100]!r} is not this machine: use 127.0.0.1")
            return
        given = headers.get("authorization", "").encode("utf-8", "replace")
        if not given:
            raise _unauthorised("a token is needed")
        host = request.client.host if request.client else ""
        wait = self.attempts.wait(host, lambda: self._reads(given) or self._is_token(given))
        if wait == 0:
            raise _unauthorised("this is not the node's token")
        if wait is not None:
            text = f"too many wrong tokens from {host}: try again in {math.ceil(wait)} s"
            raise Refusal(429, text, wait)
        if writes and self._reads(given):
            text = "this token only reads: samples need the node's other one (NAME.token)"
            raise Refusal(403, text)

    def _reads(self, given: bytes) -> bool:
        return self._reading is not None and hmac.compare_digest(given, self._reading)

    def _is_token(self, given: bytes) -> bool:
        return self._token is not None and hmac.compare_digest(given, self._token)

    def _body(self, request: Request) -> Any:
        self.room.check()
        declared = request.headers.get("content-length")
        return self.room.body(request.receive, declared, self.service.description.limits.body_bytes)

    async def _parsed(self, parse: Callable[[bytes], T], body: bytes) -> T:
        """Small bodies at once; large ones beside, so that others need not wait for them."""
        if len(body) <= _SMALL:
            return parse(body)
        async with self._large:
            return await asyncio.to_thread(parse, body)

    async def _stored(self, future: Future[dict[str, Any]]) -> dict[str, Any]:
        """What the agent answers; it goes on with the samples even if nobody waits any more."""
        waiting = asyncio.shield(asyncio.wrap_future(future))
        try:
            async with asyncio.timeout(self.bounds.wait_seconds):
                return await waiting
        except TimeoutError:
            text = "not stored yet, but may still be: send again with the same Idempotency-Key"
            raise Refusal(503, text, LATER) from None

    def _log(self, error: Exception) -> None:
        trace = "".join(traceback.format_exception(error)[-3:])
        self.service.log("http error", often=True, reason=repr(error), trace=trace)

    async def _not_here(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        text = {404: "no such page: see /openapi.json", 405: "not with this method"}
        detail = text.get(error.status_code, error.detail)
        return as_refusal(Refusal(error.status_code, detail, headers=error.headers))


# -- what a request contains-------------------------------------------------------------------
def _content(request: Request) -> str:
    """The media type of a body; web pages cannot send these without asking first."""
    media, _, parameters = request.headers.get("content-type", "").partition(";")
    media = media.strip().lower()
    if media not in KINDS:
        raise Refusal(415, f"Content-Type {media[:100]!r}: send one of {', '.join(KINDS)}")
    charset = parameters.strip().lower().removeprefix("charset=").strip('"')
    if "charset=" in parameters.lower() and charset not in ("utf-8", "us-ascii", "utf8"):
        raise Refusal(415, f"charset {charset[:50]!r}: send UTF-8")
    coding = request.headers.get("content-encoding", "identity")
    if coding.strip().lower() != "identity":
        raise Refusal(415, f"Content-Encoding {coding[:50]!r}: send bodies as they are")
    return media


def _key(request: Request) -> str | None:
    key = request.headers.get("idempotency-key")
    if key is None:
        return None
    if not (0 < len(key) <= LONGEST_KEY and key.isascii() and key.isprintable()):
        raise Refusal(400, f"Idempotency-Key: use 1 to {LONGEST_KEY} plain characters")
    return key


def _options(request: Request, *known: str) -> dict[str, bool]:
    """Switches behind the question mark."""
    query = request.scope["query_string"]
    found = {}
    for name, value in parse_qsl(query.decode("latin-1"), True) if query else ():
        if name not in known:
            raise Refusal(400, str(UnknownName("parameter", name, known)))
        if value not in ("true", "false"):
            raise Refusal(400, f"{name} must be true or false, got {value[:50]!r}")
        found[name] = value == "true"
    return found


def _accepts_csv(request: Request) -> bool:
    """Whether CSV is named before JSON."""
    for choice in request.headers.get("accept", "").lower().split(","):
        media = choice.partition(";")[0].strip()
        if media in KINDS:
            return media == "text/csv"
    return False


def _is_local(host: str) -> bool:
    """Whether a Host header names this machine by an address of its own, or as localhost."""
    name = named_host(host)
    if name in ("127.0.0.1", "localhost"):
        return True
    try:
        return name is not None and ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


# -- what goes wrong ---------------------------------------------------------------------------
def _refusal(error: DoklError) -> Refusal:
    """The status for an error raised on purpose."""
    text = _without_folders(str(error))
    if isinstance(error, BadInput | Diverged):
        return Refusal(400 if _unreadable(error) else 422, text)
    if isinstance(error, KeyReused):
        return Refusal(409, text)
    if isinstance(error, Busy | TooManyWaiting):
        return Refusal(429, text, getattr(error, "retry_after", LATER))
    if isinstance(error, StoreFailed) and error.full:
        return Refusal(507, text, LATER)
    if isinstance(error, StoreFailed | Stopping):
        return Refusal(503, text, LATER)
    return Refusal(500, text)


def _without_folders(text: str) -> str:
    """A message that begins with a path, with the name of the file alone: where things lie on the
    agent's machine is not for those who send to it.
    """
    path, colon, rest = text.partition(": ")
    return path.rpartition("/")[2] + colon + rest if colon and " " not in path else text


def _unreadable(error: BaseException) -> bool:
    """Whether the body was no JSON, or no text, at all."""
    behind: BaseException | None = error
    while isinstance(behind, BadInput) and not isinstance(behind, NotJson):
        behind = behind.__context__
    return isinstance(behind, NotJson | UnicodeDecodeError)


def _unauthorised(wrong: str) -> Refusal:
    text = f"{wrong}: send the header 'Authorization: Bearer TOKEN' (NAME.token)"
    return Refusal(401, text, headers={"www-authenticate": "Bearer"})
