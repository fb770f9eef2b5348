"""The HTTP interface of an agent: what it takes, what it says, and how it says what is wrong."""

import json

import pytest

from dokl.base.errors import BadInput, Diverged
from dokl.live.agent.replies import Busy, Stopping
from dokl.live.http import app as http_app
from dokl.live.http import openapi
from dokl.live.http.bounds import HttpBounds
from dokl.live.store import KeyReused, StoreFailed, TooManyWaiting
from http_agents import JSON, ROW, FakeAgent, ask, fails, network, send


@pytest.fixture
def agent():
    return FakeAgent()


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
        ("application/json", '{"temp": NaN, "y": 1}', 400, "NaN is not JSON"),
        ("application/x-ndjson", '{"temp": 1}\n{"y": -Infinity}', 400, "row 2: -Infinity"),
        ("application/json", {**ROW, "wind": True}, 422, "column 'wind': true is not a number"),
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
