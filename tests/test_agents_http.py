"""The HTTP face of an agent: what it takes, what it refuses and how, and that it stays small."""

import asyncio
import json
import threading

import httpx
import pytest

from dokl.agents.answers import Busy, Stopping
from dokl.agents.http import app as http_app
from dokl.agents.http import openapi
from dokl.agents.http.bounds import HttpBounds, Refusal
from dokl.agents.store import KeyReused, StoreFailed, TooManyWaiting
from dokl.errors import BadInput, Diverged
from http_agents import BODY_BYTES, ROW, FakeAgent, network

JSON = {"content-type": "application/json"}


@pytest.fixture
def agent():
    return FakeAgent()


def fails(error):
    return lambda future: future.set_exception(error)


async def asked(app, method, path, base="http://127.0.0.1:8000", **how):
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url=base) as client:
        return checked(await client.request(method, path, **how))


def checked(answer):
    """Every answer is one that the description lists, and an error says what it is."""
    operations = openapi.document(network())["paths"].get(answer.url.path, {})
    operation = operations.get(answer.request.method.lower())
    if operation is not None:
        assert str(answer.status_code) in operation["responses"], answer.status_code
    if answer.is_error:
        assert isinstance(answer.json()["error"], str)
        assert "Traceback" not in answer.text
    if answer.status_code in (429, 503, 507):
        assert int(answer.headers["retry-after"]) >= 1
        assert answer.json()["retry_after"] > 0
    return answer


def ask(app, method, path, **how):
    return asyncio.run(asked(app, method, path, **how))


def send(agent, content, kind="application/json", path="/samples", headers=None, **how):
    content = content if isinstance(content, bytes | str) else json.dumps(content)
    headers = {"content-type": kind, **(headers or {})}
    return ask(http_app.app(agent, **how), "POST", path, content=content, headers=headers)


# --- samples ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("application/json", [ROW, ROW]),
        ("application/json; charset=UTF-8", {"rows": [ROW, ROW]}),
        ("application/json", {"columns": [*ROW], "data": [[*ROW.values()]] * 2}),
        ("application/x-ndjson", f"{json.dumps(ROW)}\n{json.dumps(ROW)}\n"),
        ("text/csv", "temp,wind,place,y\n" + "20.5,3,roof,1.5\n" * 2),
    ],
)
def test_batches_of_every_kind_arrive(agent, kind, content):
    answer = send(agent, content, kind)
    assert answer.status_code == 200, answer.text
    assert answer.json()["accepted"] == 2
    assert answer.headers["content-type"] == "application/json"
    assert "server" not in answer.headers
    arrival = agent.arrivals[0]
    assert arrival.X.tolist() == [[20.5, 3.0, 0.0, 1.0]] * 2
    assert arrival.Y.tolist() == [[1.5]] * 2
    assert arrival.key is None


def test_a_single_row_and_labels_that_come_later(agent):
    assert send(agent, ROW).json()["accepted"] == 1
    waits = {name: ROW[name] for name in ("temp", "wind", "place")}
    assert send(agent, {"id": 7, **waits}).json()["waiting"] == 1
    assert send(agent, "id,y\n7,2.5\n", "text/csv").json()["labelled"] == 1
    assert agent.arrivals[1].waiting[0][0] == agent.arrivals[2].labels[0][0] == "7"


def test_refused_logins_are_in_the_log(agent):
    made = http_app.app(agent, token="secret")
    assert ask(made, "GET", "/status", headers={"authorization": "Bearer wrong"}).status_code == 401
    ((event, fields),) = [each for each in agent.lines if each[0] == "login refused"]
    assert event == "login refused"
    assert (fields["path"], fields["code"], fields["often"]) == ("/status", 401, True)
    assert fields["reason"] == "127.0.0.1"
    assert "wrong" not in str(fields)
    assert "secret" not in str(fields)


def test_inputs_that_wait_can_be_purged(agent):
    app = http_app.app(agent)
    assert ask(app, "DELETE", "/waiting").json() == {"purged": 3}
    assert ask(app, "DELETE", "/waiting?hours=24").json() == {"purged": 3}
    assert agent.purged == [0.0, 86400.0]
    for wrong in ("hours=-1", "hours=soon", "hours=inf", "days=1"):
        assert ask(app, "DELETE", f"/waiting?{wrong}").status_code == 400


def test_a_key_travels_with_the_digest_of_its_body(agent):
    key = {"idempotency-key": "batch 1"}
    assert send(agent, ROW, headers=key).json()["repeated"] is False
    assert send(agent, ROW, headers=key).json()["repeated"] is True
    send(agent, [ROW, ROW], headers=key)
    send(agent, ROW, "application/x-ndjson", headers=key)
    assert {arrival.key for arrival in agent.arrivals} == {"batch 1"}
    first, second, other_body, other_kind = (arrival.digest for arrival in agent.arrivals)
    assert first == second
    assert len({first, other_body, other_kind}) == 3


@pytest.mark.parametrize("key", ["", "x" * 256, "caf\u00e9".encode()])
def test_a_key_that_cannot_be_one_is_refused(agent, key):
    assert send(agent, ROW, headers={"idempotency-key": key}).status_code == 400
    assert not agent.arrivals


@pytest.mark.parametrize(
    ("error", "status", "retry"),
    [
        (KeyReused("the key was used"), 409, None),
        (Busy(1.2), 429, "2"),
        (TooManyWaiting("too many wait"), 429, "5"),
        (StoreFailed("the disk is full", full=True), 507, "5"),
        (StoreFailed("the disk is broken"), 503, "5"),
        (Stopping("about to end"), 503, "5"),
        (BadInput("row 1 is bad"), 422, None),
        (Diverged("too far"), 422, None),
    ],
)
@pytest.mark.parametrize("at_once", [True, False])
def test_what_goes_wrong_in_the_agent_has_its_status(error, status, retry, at_once):
    def raises(future):
        raise error

    answer = send(FakeAgent(raises if at_once else fails(error)), ROW)
    assert answer.status_code == status
    assert answer.json()["error"] == str(error)
    assert answer.headers.get("retry-after") == retry


@pytest.mark.parametrize("path", ["/samples", "/predict", "/status", "/metrics"])
def test_an_unexpected_error_tells_nothing_and_is_logged(path):
    broken = FakeAgent(fails(RuntimeError("secret")))
    broken.predict = broken.status = lambda *_: 1 / 0
    method = "GET" if path in ("/status", "/metrics") else "POST"
    answer = ask(http_app.app(broken), method, path, content=json.dumps(ROW), headers=JSON)
    assert answer.status_code == 500
    assert answer.json() == {"error": "internal error"}
    ((event, fields),) = broken.lines
    assert event == "http error"
    assert "secret" in fields["trace"] or "division" in fields["trace"]


@pytest.mark.parametrize(
    ("kind", "content", "status", "words"),
    [
        ("application/json", "{", 400, "not JSON"),
        ("application/x-ndjson", '{"temp": 1}\n{"temp', 400, "row 2"),
        ("application/json", b"\xff\xfe", 400, "not UTF-8"),
        ("application/json", "", 422, "empty"),
        ("application/json", {**ROW, "temp": "warm"}, 422, "row 1, column 'temp'"),
        ("application/json", {**ROW, "tmep": 1}, 422, "'temp'"),
        ("text/csv", "temp,wind,place,y\n1,2\n", 422, "row 1"),
        ("application/json", "[" * 100_000, 422, "deeply nested"),
    ],
)
def test_bad_rows_are_named_and_not_learned(agent, kind, content, status, words):
    answer = send(agent, content, kind)
    assert answer.status_code == status
    assert words in answer.json()["error"]
    assert not agent.arrivals


def test_an_agent_that_does_not_answer_is_not_waited_for_for_ever():
    futures = []
    answer = send(FakeAgent(futures.append), ROW, bounds=HttpBounds(wait_seconds=0.05))
    assert answer.status_code == 503
    assert "same Idempotency-Key" in answer.json()["error"]
    assert futures[0].set_running_or_notify_cancel(), "the samples must not be called back"


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
        health = await asked(made.app, "GET", "/healthz")
        for future in waiting:
            future.set_result({"accepted": 1})
        return refused, health, await asyncio.gather(*first)

    refused, health, first = asyncio.run(play())
    assert refused.status_code == 429
    assert health.status_code == 200
    assert [answer.status_code for answer in first] == [200] * 3
    assert made.room.requests == made.room.bytes == 0
    assert made.answers == {200: 3, 429: 1}


def test_bodies_held_at_a_time_are_bounded(agent):
    made = http_app.Endpoints(agent, None, HttpBounds(bodies=1, read_seconds=0.3))
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
        ({"host": "[::1"}, 200),
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


# --- predictions and figures --------------------------------------------------------------------


def test_predictions(agent):
    rows = [{"temp": 1, "wind": 2, "place": "roof"}, {"temp": 5, "wind": 2, "place": "hill"}]
    assert send(agent, rows, path="/predict").json() == {"predictions": [1.0, 5.0]}
    assert send(agent, rows[0], path="/predict").json() == {"predictions": [1.0]}
    table = "temp,wind,place\n1,2,roof\n"
    assert send(agent, table, "text/csv", "/predict").json() == {"predictions": [1.0]}
    answer = send(agent, rows, path="/predict", headers={"accept": "text/csv"})
    assert answer.text == "prediction\n1.0\n5.0\n"
    assert answer.headers["content-type"].startswith("text/csv")
    answer = send(agent, rows, path="/predict", headers={"accept": "application/json, text/csv"})
    assert answer.headers["content-type"] == "application/json"
    assert not agent.arrivals


def test_predicted_labels_and_their_scores():
    agent = FakeAgent(labels=["high", "low", "middle"])
    row = {"temp": 1, "wind": 2, "place": "roof"}
    assert send(agent, row, path="/predict").json() == {"predictions": ["middle"]}
    assert send(agent, row, path="/predict?scores=true").json() == {
        "predictions": ["middle"],
        "labels": ["high", "low", "middle"],
        "scores": [[1.0, 2.0, 3.0]],
    }
    answer = send(agent, row, path="/predict?scores=true", headers={"accept": "text/csv"})
    assert answer.text == "prediction,score high,score low,score middle\nmiddle,1.0,2.0,3.0\n"
    pair = FakeAgent(labels=["no", "yes"])
    answer = send(pair, row, path="/predict?scores=true", headers={"accept": "text/csv"})
    assert answer.text == "prediction,score\nyes,1.0\n"


@pytest.mark.parametrize(
    ("query", "status", "words"),
    [
        ("?scores=true", 422, "for classification"),
        ("?scores=yes", 400, "true or false"),
        ("?score=true", 400, "did you mean 'scores'"),
        ("?scores=false", 200, "predictions"),
    ],
)
def test_wrong_wishes_are_said(agent, query, status, words):
    answer = send(agent, {"temp": 1}, path=f"/predict{query}")
    assert answer.status_code == status
    assert words in answer.text


def test_status_is_json_whatever_is_in_it(agent):
    found = ask(http_app.app(agent), "GET", "/status").json()
    assert found == {"name": "a", "samples": 7, "error": {"recent": None}}


def test_metrics_count_the_answers(agent):
    app = http_app.app(agent)
    ask(app, "POST", "/samples", content="x", headers=JSON)
    answer = ask(app, "GET", "/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert 'dokl_http_answers_total{code="400"} 1.0' in answer.text
    assert "dokl_samples_total 7.0" in answer.text


def test_what_is_not_there_is_said(agent):
    assert ask(http_app.app(agent), "GET", "/nothing").status_code == 404
    answer = ask(http_app.app(agent), "GET", "/samples")
    assert answer.status_code == 405
    assert answer.headers["allow"] == "POST"


# --- the description ----------------------------------------------------------------------------


def references(part):
    if isinstance(part, dict):
        yield from [part["$ref"]] if "$ref" in part else []
        part = part.values()
    if isinstance(part, list | type({}.values())):
        for inner in part:
            yield from references(inner)


@pytest.mark.parametrize("secure", [False, True])
def test_the_description_is_sound(agent, secure):
    app = http_app.app(agent, token="t" if secure else None)
    headers = {"authorization": "Bearer t"}
    found = ask(app, "GET", "/openapi.json", headers=headers).json()
    assert found["openapi"] == "3.1.0"
    assert {"title", "version"} <= found["info"].keys()
    assert ("security" in found) == secure
    for reference in set(references(found)):
        part = found
        for name in reference.removeprefix("#/").split("/"):
            part = part[name]
    routes = {route.path: route.methods - {"HEAD"} for route in app.routes}
    assert {path: {m.upper() for m in ways} for path, ways in found["paths"].items()} == routes
    names = [way["operationId"] for ways in found["paths"].values() for way in ways.values()]
    assert len(set(names)) == len(names)
    for code, response in found["components"]["responses"].items():
        assert response["description"]
        assert "schema" in response["content"]["application/json"], code


def test_the_description_knows_the_columns():
    row = openapi.document(network())["components"]["schemas"]["Sample"]["properties"]
    assert set(row) == {"temp", "wind", "place", "y", "id", "note"}
    assert row["temp"]["type"] == ["number", "null"]
    assert row["place"] == {"type": ["string", "null"], "examples": ["cellar", "roof"]}
    assert row["y"] == {"type": "number"}
    labels = network(labels=["no", "yes"])
    row = openapi.document(labels)["components"]["schemas"]["Sample"]["properties"]
    assert row["y"] == {"enum": ["no", "yes"]}
