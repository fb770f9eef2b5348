"""The HTTP interface of an agent stays small, and answers only those who may ask."""

import asyncio
import json
import threading

import pytest

from dokl.live.http import app as http_app
from dokl.live.http.bounds import HttpBounds, Refusal
from http_agents import BODY_BYTES, ROW, FakeAgent, ask, asked, send


@pytest.fixture
def agent():
    return FakeAgent()


# --- bounds -------------------------------------------------------------------------------------


async def call(app, headers, receive, path="/samples"):
    """One request by hand: what a client library would not send."""
    sent = []

    async def send(message):
        sent.append(message)

    headers = {"host": "127.0.0.1", "content-type": "application/json", **headers}
    scope = {
        "type": "http", "method": "POST", "path": path, "root_path": "", "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }  # fmt: skip
    await app(scope, receive, send)
    return sent[0]["status"]


class Endless:
    """A body without end."""

    def __init__(self, pause=0.0, part=10_000):
        self.parts, self.pause, self.part = 0, pause, b" " * part

    async def __call__(self):
        self.parts += 1
        await asyncio.sleep(self.pause)
        return {"type": "http.request", "body": self.part, "more_body": True}


@pytest.mark.parametrize("length", [str(BODY_BYTES + 1), "9" * 30])
def test_a_body_that_says_it_is_too_large_is_not_read(agent, length):
    body = Endless()
    assert asyncio.run(call(http_app.app(agent), {"content-length": length}, body)) == 413
    assert body.parts == 0


@pytest.mark.parametrize("headers", [{}, {"content-length": "10"}, {"content-length": "-5"}])
@pytest.mark.parametrize("path", ["/samples", "/predict"])
def test_a_body_that_does_not_end_is_left(agent, headers, path):
    body = Endless()
    made = http_app.Endpoints(agent, None, HttpBounds())
    assert asyncio.run(call(made.app, headers, body, path)) == 413
    assert body.parts == BODY_BYTES // 10_000 + 1
    assert made.room.bytes == made.room.requests == 0


def test_a_body_as_large_as_may_be_is_taken(agent):
    text = json.dumps([ROW])
    assert send(agent, text + " " * (BODY_BYTES - len(text))).status_code == 200
    assert send(agent, text + " " * (BODY_BYTES - len(text) + 1)).status_code == 413


def test_large_bodies_are_parsed_beside(agent):
    threads = []
    parse = agent.inputs.from_json

    def noting(body):
        threads.append(threading.current_thread() is threading.main_thread())
        return parse(body)

    agent.inputs.from_json = noting
    send(agent, [ROW])
    send(agent, json.dumps([ROW]) + " " * 100_000)
    assert threads == [True, False]


def test_a_slow_body_is_not_waited_for(agent):
    made = http_app.Endpoints(agent, None, HttpBounds(read_seconds=0.1))
    assert asyncio.run(call(made.app, {}, Endless(pause=0.02, part=1))) == 408
    assert made.room.bytes == 0


def test_a_sender_that_leaves_is_forgotten(agent):
    async def gone():
        return {"type": "http.disconnect"}

    made = http_app.Endpoints(agent, None, HttpBounds())
    assert asyncio.run(call(made.app, {}, gone)) == 400
    assert made.room.bytes == made.room.requests == 0


def test_more_requests_than_may_be_at_a_time_are_told_to_come_back():
    waiting = []
    made = http_app.Endpoints(FakeAgent(waiting.append), None, HttpBounds(requests=3))

    async def play():
        def one():
            return asked(made.app, "POST", "/samples", json=ROW)

        first = [asyncio.create_task(one()) for _ in range(3)]
        while len(waiting) < 3:
            await asyncio.sleep(0)
        refused = await one()
        paths = ("/healthz", "/readyz", "/status", "/metrics")
        answered = [await asked(made.app, "GET", path) for path in paths]
        for future in waiting:
            future.set_result({"accepted": 1})
        return refused, answered, await asyncio.gather(*first)

    refused, answered, first = asyncio.run(play())
    assert refused.status_code == 429
    assert [answer.status_code for answer in answered] == [200] * 4
    assert [answer.status_code for answer in first] == [200] * 3
    assert made.room.requests == made.room.bytes == 0
    assert made.answers == {200: 5, 429: 1}


def test_bodies_held_at_a_time_are_bounded(agent):
    made = http_app.Endpoints(agent, None, HttpBounds(bodies=1, read_seconds=60.0))
    held = []

    class Stalls(Endless):
        async def __call__(self):
            held.append(made.room.bytes)
            return await super().__call__()

    async def play():
        slow = [call(made.app, {}, Stalls(pause=0.02, part=30_000)) for _ in range(20)]
        return await asyncio.gather(*slow)

    assert set(asyncio.run(play())) <= {429, 413}
    assert max(held) <= BODY_BYTES
    assert made.room.bytes == 0


def test_a_refusal_rounds_seconds_up():
    assert Refusal(429, "later", 0.1).headers["retry-after"] == "1"
    assert Refusal(429, "later", 2.1).headers["retry-after"] == "3"


# --- who may ask --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "headers"),
    [
        ("application/x-www-form-urlencoded", {}),
        ("text/plain", {}),
        ("", {}),
        ("application/jsonx", {}),
        ("application/json; charset=latin-1", {}),
        ("application/json", {"content-encoding": "gzip"}),
    ],
)
@pytest.mark.parametrize("path", ["/samples", "/predict"])
def test_other_content_is_refused(agent, kind, headers, path):
    assert send(agent, ROW, kind, path, headers).status_code == 415
    assert not agent.arrivals


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "localhost:9"}, 200),
        ({"host": "[::1]:9"}, 200),
        ({"host": "127.5.0.1"}, 200),
        ({"host": "127.0.0.1:9", "origin": "http://127.0.0.1:9"}, 200),
        ({"host": "evil.example"}, 403),
        ({"host": "127.0.0.1.evil.example:8000"}, 403),
        ({"host": "10.0.0.7"}, 403),
        ({"host": ""}, 403),
        ({"host": "[::1"}, 403),
        ({"host": "[::1]x"}, 403),
        ({"host": "localhost:80@evil.example"}, 403),
        ({"host": "localhost:9/"}, 403),
        ({"host": "localhost@127.0.0.1"}, 403),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "http://127.0.0.1:9999"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": ""}, 403),
    ],
)
@pytest.mark.parametrize("path", ["/status", "/metrics", "/openapi.json"])
def test_web_pages_and_other_names_are_refused(agent, headers, status, path):
    assert ask(http_app.app(agent), "GET", path, headers=headers).status_code == status


@pytest.mark.parametrize("path", ["/samples", "/predict"])
def test_a_web_page_cannot_post(agent, path):
    answer = send(agent, ROW, path=path, headers={"origin": "http://evil.example"})
    assert answer.status_code == 403
    assert not agent.arrivals


@pytest.mark.parametrize(
    ("given", "status"),
    [
        ("Bearer s3cret", 200),
        (None, 401),
        ("", 401),
        ("Bearer ", 401),
        ("Bearer s3cre", 401),
        ("Basic s3cret", 401),
        (b"Bearer s3cr\xe9t", 401),
    ],
)
def test_the_token_is_wanted(agent, given, status):
    app = http_app.app(agent, token="s3cret")
    headers = {} if given is None else {"authorization": given}
    for path in ("/status", "/metrics", "/openapi.json"):
        answer = ask(app, "GET", path, headers=headers, base="https://node.example")
        assert answer.status_code == status
    assert ask(app, "GET", "/healthz", headers=headers).status_code == 200
    sent = ask(app, "POST", "/samples", json=ROW, headers=headers)
    assert sent.status_code == status
    if status == 401:
        assert answer.headers["www-authenticate"] == "Bearer"
        assert not agent.arrivals
