"""The server of the page of `dokl watch --web`: what it gives, to whom, and how little it keeps."""

import asyncio
import json
import re
import signal
import subprocess
from importlib.resources import files
from urllib.parse import quote
from urllib.request import Request, urlopen

import httpx
import pytest

from commands import dokl
from dokl.live.dashboard import web
from dokl.live.dashboard.feed import Feed
from fake_agents import HOSTILE, start_watch


class Client:
    """Asks the application directly, one question at a time; it keeps cookies."""

    def __init__(self, app, base_url):
        self.app, self.base_url, self.cookies = app, base_url, httpx.Cookies()

    def request(self, method, path, **how):
        return asyncio.run(self._request(method, path, how))

    async def _request(self, method, path, how):
        way = httpx.ASGITransport(self.app)
        async with httpx.AsyncClient(
            transport=way, base_url=self.base_url, cookies=self.cookies
        ) as there:
            answer = await there.request(method, path, **how)
            self.cookies.update(there.cookies)
            return answer

    def get(self, path, **how):
        return self.request("GET", path, **how)


@pytest.fixture
def client(collector):
    return Client(web.app(collector, 0.1), "http://127.0.0.1:8800")


def test_everything_of_the_page_is_served_with_strict_headers(client):
    assets = {path.name for path in (files("dokl.live.dashboard") / "assets").iterdir()}
    assert assets == set(web.ASSETS)
    for path in ["/", *(f"/{name}" for name in assets - {"index.html"}), "/nothing"]:
        answer = client.get(path)
        assert answer.status_code == (404 if path == "/nothing" else 200)
        assert answer.headers["content-security-policy"].startswith("default-src 'self';")
        assert "unsafe" not in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_it_only_reads(client):
    for path in ("/", "/events", "/newest", "/script.js"):
        assert client.request("HEAD", path).status_code == 200
        for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
            assert client.request(method, path).status_code == 405


def test_the_newest_rows_of_a_node_are_told_to_whoever_may_read(client, collector, lab):
    lab.learned = 5000
    collector.poll()
    told = client.get("/newest?node=a").json()
    assert (told["target"], told["coverage"], len(told["rows"])) == ("power", 0.9, 100)
    nobody = {"target": "", "coverage": None, "rows": []}
    assert client.get("/newest?node=<b>").json() == client.get("/newest").json() == nobody
    guarded = Client(web.app(collector, 0.1, "sesame"), "http://10.0.0.1:8800")
    assert guarded.get("/newest?node=a").status_code == 401


def test_the_page_needs_nothing_from_elsewhere_and_makes_no_markup_of_text():
    for path in (files("dokl.live.dashboard") / "assets").iterdir():
        text = path.read_text("utf-8").replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?:|//\w+\.|@import|url\((?!#)", text), path.name
        assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(", text)
        assert not re.search(r"\son\w+=|style=|<script>", text), path.name


@pytest.mark.parametrize(
    ("host", "code"),
    [("localhost", 200), ("localhost:8800", 200), ("[::1]:80", 200), ("evil.example", 421),
     ("127.0.0.1.evil.example:80", 421), ("", 421), ("x]:1:2", 421)],
)  # fmt: skip
def test_on_loopback_only_loopback_names_are_answered(client, host, code):
    assert client.get("/", headers={"host": host}).status_code == code


@pytest.mark.parametrize("token", ["sesame", "s\u00e9same; \u20ac"])
def test_a_token_of_any_letters_opens_the_page(collector, token):
    client = Client(web.app(collector, 0.1, token), "http://lab.example")
    assert client.get(f"/?token={quote(token)}").status_code == 303
    assert client.get("/").status_code == 200


def test_elsewhere_a_token_is_wanted_once_and_kept_in_a_cookie(collector):
    client = Client(web.app(collector, 0.1, "sesame"), "http://lab.example")
    for path in ("/", "/events", "/?token=wrong", "/script.js", "/nothing"):
        assert client.get(path).status_code == 401
    assert client.get("/", headers={"authorization": "Bearer sesame"}).status_code == 200
    first = client.get("/?token=sesame")
    assert first.status_code == 303
    assert first.headers["location"] == "/"
    assert re.search("HttpOnly.*SameSite=lax", first.headers["set-cookie"])
    assert "sesame" not in first.headers["set-cookie"]
    assert client.get("/").status_code == 200


def test_an_empty_token_is_none(collector, lab, monkeypatch):
    client = Client(web.app(collector, 0.1, ""), "http://lab.example")
    assert client.get("/?token=").status_code == 421
    assert client.get("/", headers={"authorization": "Bearer "}).status_code == 421
    used = []
    monkeypatch.setattr(web, "serve", lambda collector, sock, every, token: used.append(token))
    dokl("watch", lab.path, "--web", "--host", "0.0.0.0", "--port", 0, "--token", "")
    assert len(used[0]) > 20


def test_pages_beyond_the_limit_are_turned_away(client):
    client.app.state.feed.pages = web.MOST_PAGES
    answer = client.get("/events")
    assert answer.status_code == 503
    assert answer.headers["retry-after"]


def events_of(chunk):
    """[(kind, data)] of a piece of the stream."""
    found = re.findall(r"event: (\w+)\ndata: (.*)\n\n", chunk.decode())
    return [(kind, json.loads(data)) for kind, data in found]


def test_a_slow_page_skips_looks_and_nothing_is_queued(collector):
    async def play():
        feed = Feed(collector, 0.1)
        collector.poll()
        feed._publish()
        stream = feed.events()
        got = [await anext(stream) for _ in range(3)]
        for _ in range(20):  # it does not read meanwhile
            collector.poll()
            feed._publish()
        got += [await anext(stream)]
        feed.stop()
        got += [chunk async for chunk in stream]
        return feed, [events_of(chunk) for chunk in got]

    feed, (retry, first, news, later, *rest) = asyncio.run(play())
    assert retry == []
    assert rest == []
    assert [kind for kind, _ in first] == ["network", "past"]
    assert [kind for kind, _ in news] == ["curves", "view"]
    ((kind, view),) = later
    assert kind == "view"
    assert view["at"] == collector.view.at
    assert feed.pages == 0


def test_a_page_that_comes_first_is_told_the_network_too(collector):
    async def play():
        feed = Feed(collector, 0.1)
        stream = feed.events()
        await anext(stream)
        assert await anext(stream) == b": still here\n\n"
        collector.poll()
        feed._publish()
        return events_of(await anext(stream))

    assert [kind for kind, _ in asyncio.run(play())] == ["network", "curves", "view"]


def test_it_serves_events_and_ctrl_c_ends_it_with_a_page_open(lab):
    lab.agents["a"].changes = {"problems": [HOSTILE + "\n\nevent: view\ndata: {}\n\n"]}
    words = (lab.path, "--web", "--port", "0", "--every", "0.1")
    process = start_watch(*words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        address = re.search(r"http://127.0.0.1:\d+/", process.stdout.readline()).group()
        with urlopen(Request(address + "events"), timeout=20) as stream:
            assert stream.headers["content-type"].startswith("text/event-stream")
            lines = [stream.readline() for _ in range(40)]
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == 0
        assert process.stderr.read() == ""
    finally:
        process.kill()
        process.communicate()
    data = [line for line in lines if line.startswith(b"data: ")]
    assert all(json.loads(line[6:]) for line in data)
    assert len(data) > 5
