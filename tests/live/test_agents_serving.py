"""The HTTP interface on a real socket: it starts, stops, and gets rid of connections that are
stuck.
"""

import socket
import ssl
import threading
import time
from contextlib import ExitStack, suppress

import httpx
import pytest

from dokl.base.errors import BadInput
from dokl.live import certificates
from dokl.live.http import app as http_app
from dokl.live.http.bounds import HttpBounds
from dokl.live.http.serving import Server
from http_agents import BODY_BYTES, ROW, FakeAgent

JSON = {"content-type": "application/json"}


@pytest.fixture
def agent():
    return FakeAgent()


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


def connected(server, text=b""):
    connection = socket.create_connection(server.address, timeout=10)
    connection.sendall(text)
    return connection


def wait_until(condition, seconds=10.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


def test_a_server_serves_and_stops(agent):
    server = http_app.serve(agent, f"127.0.0.1:{free_port()}")
    server.start()
    with httpx.Client(base_url=server.url, trust_env=False) as client:
        for _ in range(3):
            answer = client.post("/samples", json=[ROW] * 50)
            assert answer.status_code == 200
            assert answer.json()["accepted"] == 50
        assert "server" not in answer.headers
        assert "date" in answer.headers
        assert client.get("/status").json()["samples"] == 7
    with pytest.raises(BadInput, match="in use"):
        http_app.serve(agent, "{}:{}".format(*server.address))
    server.stop()
    server.stop()
    with pytest.raises(OSError):
        connected(server)


def test_answers_are_sent_at_once(agent):
    with Server(http_app.app(agent), ("127.0.0.1", 0)) as server:
        assert server._socket.proto == socket.IPPROTO_TCP


def test_a_request_under_way_is_answered_before_the_end():
    waiting = []
    with Server(http_app.app(FakeAgent(waiting.append)), ("127.0.0.1", 0)) as server:
        answers = []
        target = lambda: answers.append(httpx.post(f"{server.url}/samples", json=ROW))  # noqa: E731
        sender = threading.Thread(target=target)
        sender.start()
        wait_until(lambda: waiting)
        threading.Timer(0.2, waiting[0].set_result, [{"accepted": 1}]).start()
        server.stop()
        sender.join(10)
    assert answers[0].json() == {"accepted": 1}


def send_for_ever(connection, chunk):
    for _ in range(100_000):
        connection.sendall(chunk)
        time.sleep(0.001)


def test_a_body_of_chunks_without_end_is_refused(agent):
    head = b"POST /samples HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    chunk = b"2710\r\n" + b" " * 10_000 + b"\r\n"
    with (
        Server(http_app.app(agent), ("127.0.0.1", 0), HttpBounds(idle_seconds=0.2)) as server,
        connected(server, head + b"Transfer-Encoding: chunked\r\n\r\n") as connection,
        pytest.raises(OSError),  # it goes on sending, and is cut off
    ):
        send_for_ever(connection, chunk)
    assert not agent.arrivals


def test_a_refused_connection_can_be_used_again(agent):
    large = b" " * (BODY_BYTES + 1)
    with (
        Server(http_app.app(agent), ("127.0.0.1", 0)) as server,
        httpx.Client(base_url=server.url, trust_env=False) as client,
    ):
        assert client.post("/samples", content=large, headers=JSON).status_code == 413
        assert client.post("/samples", json=ROW).status_code == 200


@pytest.mark.parametrize(
    "text", [b"", b"GET /status HTTP/1.1\r\nHost: 127", b"\x16\x03\x01garbage"]
)
def test_connections_that_ask_nothing_are_closed(agent, text):
    bounds = HttpBounds(idle_seconds=0.2)
    with (
        Server(http_app.app(agent, bounds=bounds), ("127.0.0.1", 0), bounds) as server,
        connected(server, text) as connection,
    ):
        with suppress(ConnectionError):
            while connection.recv(4096):
                pass
        assert httpx.get(f"{server.url}/healthz").status_code == 200


def test_an_answer_that_nobody_reads_does_not_stay(agent):
    agent.status = lambda: {"much": "x" * 20_000_000}
    ask_for = b"GET /status HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    with Server(http_app.app(agent), ("127.0.0.1", 0), HttpBounds(idle_seconds=0.2)) as server:
        connection = connected(server, ask_for)
        wait_until(lambda: server._server.server_state.connections)
        wait_until(lambda: not server._server.server_state.connections)
        connection.close()


def test_there_are_only_so_many_connections(agent):
    with ExitStack() as stack:
        server = stack.enter_context(
            Server(
                http_app.app(agent), ("127.0.0.1", 0), HttpBounds(connections=2, grace_seconds=60)
            )
        )
        kept = [stack.enter_context(connected(server)) for _ in range(2)]
        wait_until(lambda: len(server._server.server_state.connections) == 2)
        with connected(server) as third, suppress(ConnectionResetError):
            assert third.recv(1) == b""
        kept.pop().close()
        wait_until(lambda: len(server._server.server_state.connections) == 1)
        assert httpx.get(f"{server.url}/healthz").status_code == 200


# --- where others can reach it ------------------------------------------------------------------


@pytest.fixture
def secure_agent(tmp_path):
    agent = FakeAgent(path=tmp_path / "lab.toml", security="mtls")
    authority = certificates.Authority.new("lab")
    content = certificates.node_files(agent.network, "a", authority, 10)
    agent.network.folder.mkdir()
    for name, data in {**authority.files(), **content}.items():
        (agent.network.folder / name).write_bytes(data)
    return agent


def test_afar_it_speaks_https_and_wants_the_token(secure_agent):
    network = secure_agent.network
    server = http_app.serve(secure_agent, f"0.0.0.0:{free_port()}")
    trusts = ssl.create_default_context(cafile=str(network.certificate_files("a")[0]))
    there = f"https://127.0.0.1:{server.address[1]}"
    with server, httpx.Client(base_url=there, verify=trusts, trust_env=False) as client:
        assert client.get("/healthz").status_code == 200
        assert client.get("/status").status_code == 401
        told = {"authorization": f"Bearer {network.token('a')}"}
        assert client.get("/status", headers=told).status_code == 200
        with pytest.raises(httpx.HTTPError):
            httpx.get(there.replace("https", "http") + "/healthz")
        server.renew()
        assert httpx.get(f"{there}/healthz", verify=trusts).status_code == 200


def test_afar_it_does_not_serve_without_token_or_certificate(secure_agent, agent):
    with pytest.raises(BadInput, match=r"others can reach 0\.0\.0\.0:1"):
        http_app.serve(agent, "0.0.0.0:1")
    (secure_agent.network.folder / "a.key").write_text("nothing")
    with pytest.raises(BadInput, match="no certificate with its key"):
        http_app.serve(secure_agent, f"0.0.0.0:{free_port()}")
    (secure_agent.network.folder / "a.token").unlink()
    with pytest.raises(BadInput, match=r"a\.token"):
        http_app.serve(secure_agent, f"0.0.0.0:{free_port()}")
