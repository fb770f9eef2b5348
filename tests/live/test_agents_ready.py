"""Ready is more than alive: the journal takes rows, neighbours were asked, old rows are learned."""

import asyncio
from contextlib import contextmanager
from threading import Event

import pytest

from dokl.live.description import ExchangePolicy
from dokl.live.http import app as http_app
from dokl.live.store import StoreFailed
from dokl.live.transports.memory import Hub
from http_agents import asked
from live_networks import small
from memory_agents import OFF, WAIT, arrival, killed, made, starting, wait


def ask(agent, path="/readyz"):
    answer = asyncio.run(asked(http_app.app(agent), "GET", path))
    return answer.status_code, answer.json().get("error", "")


def is_ready(agent):
    return ask(agent)[0] == 200


def test_a_newcomer_is_ready_once_it_has_looked_for_neighbours(tmp_path):
    network = small(exchange=ExchangePolicy(every_seconds=0.02, join_seconds=3600.0))
    with starting(tmp_path) as start:
        hub = Hub()
        agent = start(network, "a", hub=hub)
        code, said = ask(agent)
        assert (code, "(joining" in said) == (503, True)
        assert ask(agent, "/healthz")[0] == 200, "it lives, and must not be restarted"
        start(network, "b", hub=hub)
        wait(lambda: is_ready(agent))


def test_a_journal_that_cannot_be_written_is_told_until_it_can_though_nobody_sends(tmp_path):
    with starting(tmp_path) as start:
        agent = start(small(exchange=OFF))
        wait(lambda: is_ready(agent))
        whole = agent.store.transaction

        @contextmanager
        def full():
            raise StoreFailed("/somewhere/a.db: the disk is full", full=True)
            yield

        agent.store.transaction = full
        with pytest.raises(StoreFailed):
            agent.submit(arrival(5)).result(WAIT)
        before = agent.counts["store failures"]
        wait(lambda: agent.counts["store failures"] > before + 1)  # it was tried again
        code, said = ask(agent)
        assert (code, "the journal cannot be written" in said) == (503, True)
        assert "/somewhere" not in said
        assert any("disk is full" in text for text in agent.status()["problems"])
        assert ask(agent, "/healthz")[0] == 200
        agent.store.transaction = whole
        wait(lambda: is_ready(agent))
        assert agent.status()["problems"] == []
        assert agent.submit(arrival(5)).result(WAIT)["accepted"] == 5


def test_rows_of_the_journal_are_learned_before_it_is_ready(tmp_path):
    """In lockstep they are learned round by round, and not while it starts."""
    network = small(exchange=ExchangePolicy(mode="lockstep"))
    agent = made(tmp_path, network)
    agent.start()
    agent.submit(arrival(30)).result(WAIT)
    killed(agent)
    again = made(tmp_path, network)
    left = again.store.samples - again.node.learned
    assert left > 0
    code, said = ask(again)
    assert (code, f"catching up: {left} rows" in said) == (503, True)
    again.start()
    wait(lambda: is_ready(again))
    assert again.node.learned == 30
    again.stop()
    assert "(stopping)" in ask(again)[1]


def test_questions_are_answered_while_a_long_computation_goes_on(tmp_path, monkeypatch):
    began, ends = Event(), Event()
    with starting(tmp_path) as start:
        agent = start(small(exchange=OFF))
        agent.submit(arrival(5)).result(WAIT)
        wait(lambda: agent.status()["learned"] == 5)
        assert agent.status()["age_s"] == 0
        learn = agent.learner.learn_saying

        def long(*given):
            began.set()
            assert ends.wait(WAIT)
            return learn(*given)

        monkeypatch.setattr(agent.learner, "learn_saying", long)
        stored = agent.submit(arrival(5, seed=1))
        assert began.wait(WAIT)
        paths = ("/status", "/metrics", "/readyz", "/healthz")
        try:
            answers = {path: asyncio.run(asked(http_app.app(agent), "GET", path)) for path in paths}
        finally:
            ends.set()
        assert not any(answer.is_error for answer in answers.values())
        found = answers["/status"].json()
        assert found["learned"] == 5
        assert found["samples"] in (5, 10)  # on a slow machine rows are stored first
        assert found["age_s"] > 0
        assert "dokl_learned_total 5.0" in answers["/metrics"].text
        assert stored.result(WAIT)["samples"] == 10
        wait(lambda: agent.status()["learned"] == 10)
        assert agent.status()["age_s"] == 0
