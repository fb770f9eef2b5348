"""Wrong tokens are limited by address, and lock nobody else out."""

import asyncio

import httpx
import pytest

from dokl.live.dashboard import web
from dokl.live.http import app as http_app
from dokl.live.http.attempts import TokenAttempts
from http_agents import ROW, FakeAgent, checked

OWNER, THIEF = "192.0.2.7", "198.51.100.9"


class FakeClock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return FakeClock()


def wrong(attempts, host=THIEF, n=1):
    return [attempts.wait(host, lambda: False) for _ in range(n)]


def compared(attempts, host=THIEF):
    """Whether a right token of this host is looked at."""
    return attempts.wait(host, lambda: True) is None


# -- who must wait -------------------------------------------------------------------------------
def test_after_some_wrong_tokens_none_is_compared_until_time_has_passed(clock):
    attempts = TokenAttempts(burst=3, every=6.0, clock=clock)
    assert wrong(attempts, n=5) == [0.0, 0.0, 0.0, 6.0, 6.0]
    assert not compared(attempts)
    clock.now = 4.0
    assert wrong(attempts) == [pytest.approx(2.0)]
    clock.now = 6.0
    assert wrong(attempts, n=2) == [0.0, 6.0]
    clock.now = 1000.0
    assert wrong(attempts, n=4) == [0.0, 0.0, 0.0, 6.0]


def test_attempts_while_waiting_do_not_lengthen_the_wait(clock):
    attempts = TokenAttempts(burst=1, every=6.0, clock=clock)
    wrong(attempts, n=1000)
    clock.now = 6.0
    assert compared(attempts)


@pytest.mark.parametrize(
    ("owner", "thief"),
    [(OWNER, THIEF), ("2001:db8:1::7", "2001:db8:2::7"), (OWNER, "127.0.0.1"), ("::1", THIEF)],
)
def test_an_address_does_not_lock_out_another(clock, owner, thief):
    attempts = TokenAttempts(clock=clock)
    wrong(attempts, thief, 1000)
    assert compared(attempts, owner)
    assert not compared(attempts, thief)


def test_all_hosts_of_one_network_of_64_bits_are_one(clock):
    attempts = TokenAttempts(burst=4, clock=clock)
    waits = [wrong(attempts, f"2001:db8::{n:x}")[0] for n in range(5)]
    assert waits == [0.0, 0.0, 0.0, 0.0, 6.0]


def test_strangers_behind_one_proxy_do_not_lock_out_those_who_have_the_token(clock):
    attempts = TokenAttempts(known_seconds=100.0, clock=clock)
    assert compared(attempts, OWNER)
    assert wrong(attempts, OWNER, 1000)[-1] > 0  # told to wait all the same
    clock.now = 1.0
    assert compared(attempts, OWNER)
    clock.now = 102.0  # long enough to have forgotten the owner
    wrong(attempts, OWNER, 1000)
    assert not compared(attempts, OWNER)


def test_memory_is_bounded_and_strangers_make_nobody_forgotten(clock):
    attempts = TokenAttempts(most=50, clock=clock)
    assert compared(attempts, OWNER)
    for n in range(5000):
        wrong(attempts, f"10.{n // 65536}.{n // 256 % 256}.{n % 256}")
    assert len(attempts) == 51
    wrong(attempts, OWNER, 100)
    assert compared(attempts, OWNER)


# -- the two faces -------------------------------------------------------------------------------
async def asked(app, host, path, method="GET", **how):
    way = httpx.ASGITransport(app, client=(host, 1234))
    async with httpx.AsyncClient(transport=way, base_url="https://node.example") as client:
        return await client.request(method, path, **how)


def ask(app, host, path, token=None, **how):
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    return asyncio.run(asked(app, host, path, headers=headers, **how))


@pytest.mark.parametrize("path", ["/status", "/metrics", "/openapi.json", "/samples", "/predict"])
def test_an_agent_limits_wrong_tokens(path, clock):
    agent, method = FakeAgent(), "POST" if path in ("/samples", "/predict") else "GET"
    made = http_app.Endpoints(agent, "right", http_app.HttpBounds(), "reading")
    made.attempts = TokenAttempts(clock=clock)
    how = {"method": method, "json": ROW if method == "POST" else None}
    found = [checked(ask(made.app, THIEF, path, "guess", **how)) for _ in range(12)]
    assert [answer.status_code for answer in found] == [401] * 10 + [429] * 2
    assert found[-1].headers["retry-after"] == "6"
    assert THIEF in found[-1].json()["error"]
    assert ask(made.app, THIEF, path, "right", **how).status_code == 429
    assert ask(made.app, OWNER, path, "right", **how).status_code == 200
    clock.now = 6.0
    assert ask(made.app, THIEF, path, "right", **how).status_code == 200
    assert ask(made.app, THIEF, "/healthz").status_code == 200


def test_requests_without_a_token_are_no_guesses():
    made = http_app.app(FakeAgent(), token="right")
    assert {ask(made, THIEF, "/status").status_code for _ in range(50)} == {401}
    assert ask(made, THIEF, "/status", "right").status_code == 200


def test_the_token_that_reads_is_right_and_may_not_write():
    made = http_app.app(FakeAgent(), token="right", reading="reading")
    for _ in range(50):
        assert ask(made, OWNER, "/samples", "reading", method="POST", json=ROW).status_code == 403
    assert ask(made, OWNER, "/status", "reading").status_code == 200


@pytest.mark.parametrize("way", ["bearer", "address", "cookie"])
def test_the_page_of_watch_limits_wrong_tokens(way):
    guard = web.Guard(page, "right")

    def look(host, token):
        how = {
            "bearer": {"headers": {"authorization": f"Bearer {token}"}},
            "address": {"params": {"token": token}},
            "cookie": {"headers": {"cookie": f"{guard.cookie}={token}"}},
        }[way]
        return asyncio.run(asked(guard, host, "/", **how))

    right = guard.kept if way == "cookie" else "right"
    found = [look(THIEF, "guess") for _ in range(11)]
    assert [answer.status_code for answer in found] == [401] * 10 + [429]
    assert 1 <= int(found[-1].headers["retry-after"]) <= 6
    assert look(THIEF, right).status_code == 429
    assert look(OWNER, right).status_code == (303 if way == "address" else 200)


async def page(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"the page"})
