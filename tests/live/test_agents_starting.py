"""The first start: it is said in the log and over HTTP that an agent is not ready yet."""

import asyncio
import socket
import subprocess
import sys
from types import SimpleNamespace

import httpx
import numba
import pytest

from dokl.base.errors import BadInput
from dokl.live.agent.clock import Clock
from dokl.live.agent.compiling import prepare
from dokl.live.agent.logs import Log
from dokl.live.http import app as http_app
from dokl.live.http.starting import Entrance
from dokl.live.jobs import agents
from dokl.live.jobs.agents import Settings, run_agent
from http_agents import ROW, FakeAgent, asked
from live_networks import small
from memory_agents import Lines, made


def compile_something():
    numba.njit(lambda x: x + 1)(1)


# -- over HTTP ---------------------------------------------------------------------------------
def test_before_it_is_ready_it_lives_and_says_why_it_is_not():
    entrance = Entrance()

    async def ask(method, path, **how):
        answer = await asked(entrance, method, path, **how)
        return answer.status_code, answer.json()

    async def play():
        assert await ask("GET", "/healthz") == (200, {"ok": True})
        code, said = await ask("GET", "/readyz")
        assert (code, "(starting)" in said["error"]) == (503, True)
        entrance.enters("compiling")
        for method, path in (("GET", "/readyz"), ("GET", "/status"), ("POST", "/samples")):
            code, said = await ask(method, path)
            assert (code, "(compiling)" in said["error"]) == (503, True)
        entrance.open(http_app.app(FakeAgent()))
        assert await ask("GET", "/healthz") == (200, {"ok": True})
        assert await ask("GET", "/readyz") == (200, {"ready": True})
        assert (await ask("POST", "/samples", json=ROW))[0] == 200

    asyncio.run(play())


def test_an_agent_is_served_before_it_is_made(tmp_path, monkeypatch):
    network, seen = small(tmp_path / "lab.toml"), []

    def not_made(network, settings, log):
        compile_something()
        for path in ("/healthz", "/readyz"):
            answer = httpx.get(f"http://{settings.http}{path}", timeout=20)
            seen.append((answer.status_code, answer.text))
        raise BadInput("enough")

    monkeypatch.setattr(agents, "_made", not_made)
    monkeypatch.setattr(agents, "_checked", lambda settings: network)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    settings = Settings(network.path, "a", http=f"127.0.0.1:{port}", log=tmp_path / "a.log")
    with pytest.raises(BadInput, match="enough"):
        run_agent(settings)
    assert [code for code, _ in seen] == [200, 503]
    assert "(compiling)" in seen[1][1]
    with pytest.raises(httpx.TransportError):  # nothing is left over
        httpx.get(f"http://{settings.http}/healthz", timeout=5)


# -- in the log --------------------------------------------------------------------------------
def test_compiling_is_logged_before_and_after():
    lines, events = Lines(), []

    def compiles():
        compile_something()
        events.extend(lines.events())

    prepare(SimpleNamespace(prepare=compiles), Log("a", Clock(), lines), Clock())
    assert events == ["compiling"]
    assert lines.events() == ["compiling", "compiled"]


def test_where_all_is_compiled_there_is_nothing_to_say():
    lines = Lines()
    prepare(SimpleNamespace(prepare=lambda: None), Log("a", Clock(), lines), Clock())
    assert lines.events() == []


def test_an_agent_compiles_before_it_learns_its_journal_again(tmp_path, monkeypatch):
    order = []
    monkeypatch.setattr("dokl.live.agent.service.prepare", lambda *_: order.append("compiled"))
    replay = "dokl.live.agent.runtime.restored_protocol"
    monkeypatch.setattr(replay, lambda *_: order.append("replayed") or SimpleNamespace(
        state=None, queued=0))  # fmt: skip
    made(tmp_path, small()).store.close()
    assert order == ["compiled", "replayed"]


# -- what is loaded ------------------------------------------------------------------------------
LIGHT = """
import sys
import dokl.live.agent.runtime, dokl.live.http.app, dokl.live.jobs.agents
import dokl.live.rows, dokl.live.sums
heavy = {"sklearn", "pandas", "scipy.stats", "rich"} & set(sys.modules)
assert not heavy, heavy
"""


def test_an_agent_loads_no_library_that_it_does_not_need():
    """scikit-learn alone took a third of an agent's memory and of the time of its start."""
    done = subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
