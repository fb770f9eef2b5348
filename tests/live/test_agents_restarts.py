"""The runtime and its store: what is not stored has not happened, what is stored comes back."""

import time

import pytest

from dokl.base.errors import BadInput
from dokl.live.agent.clock import Clock
from dokl.live.description import Durability, ExchangePolicy, Limits, Model
from dokl.live.protocol.effects import Save
from dokl.live.store import StoreFailed, Transaction
from dokl.live.transports.memory import Hub
from live_networks import small
from memory_agents import OFF, WAIT, arrival, killed, made, rows, wait


def test_what_cannot_be_stored_has_not_happened(start, monkeypatch):
    agent = start()
    agent.submit(arrival(5, 1)).result(WAIT)
    before = agent.protocol.state.theta.tobytes()

    def fails(*_):
        raise StoreFailed("the disk is full", full=True)

    with monkeypatch.context() as patch:
        patch.setattr("dokl.live.store.Transaction.samples", fails)
        with pytest.raises(StoreFailed, match="disk is full"):
            agent.submit(arrival(5, 2, key="k", digest="d")).result(WAIT)
        assert agent.status()["problems"] == ["the disk is full"]
        assert agent.status()["journal"]["failures"] == 1
    assert agent.protocol.state.theta.tobytes() == before
    assert agent.status()["samples"] == agent.status()["learned"] == 5
    # The same key again: it was not used up.
    told = agent.submit(arrival(5, 2, key="k", digest="d")).result(WAIT)
    assert (told["repeated"], told["samples"]) == (False, 10)
    assert agent.status()["problems"] == []


def test_an_internal_error_ends_neither_the_agent_nor_its_callers_wait(start, monkeypatch):
    agent = start()
    with monkeypatch.context() as patch:
        patch.setattr(agent.protocol, "samples", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            agent.submit(arrival(5)).result(WAIT)
    assert "internal error" in agent.status()["problems"][0]
    assert agent.submit(arrival(5)).result(WAIT)["samples"] == 5


def test_a_message_that_fails_keeps_none_of_others_away(tmp_path, monkeypatch):
    agent, heard = made(tmp_path, small()), []

    def message(peer, data, now):
        agent.protocol._node.refused = {peer: 1}
        if peer == "b":
            raise KeyError("a bug")
        heard.append(peer)
        return []

    monkeypatch.setattr(agent.protocol, "message", message)
    agent._inbox.messages = [("c", "theta", b""), ("b", "theta", b""), ("c", "hello", b"")]
    agent._turn()
    assert heard == ["c", "c"]
    assert agent._inbox.messages == []
    found = agent.status()
    assert found["problems"] == ["internal error: KeyError('a bug')"]
    assert found["refused"]["c"] == 1
    assert "b" not in found["refused"]  # as if it had not come
    killed(agent)


def test_what_is_due_and_fails_is_tried_twice_a_second_and_holds_nothing_up(tmp_path, monkeypatch):
    class Standing(Clock):
        seconds = 100.0

        def now(self):
            return self.seconds

    clock, tried = Standing(), []
    agent = made(tmp_path, small(), clock=clock)
    monkeypatch.setattr(agent.protocol, "next_due", lambda now: now)
    monkeypatch.setattr(agent.protocol, "tick", lambda now: tried.append(now) or 1 / 0)
    stored = agent.submit(arrival(5))
    pauses = []
    for _ in range(6):
        agent._turn()
        pauses.append(agent._pause(clock.seconds))
        clock.seconds += 0.25
    assert stored.result(WAIT)["samples"] == 5
    assert tried == [100.25, 100.75, 101.25]
    assert pauses == [0, 0.5, 0.25, 0.5, 0.25, 0.5]
    killed(agent)


def test_a_restart_goes_on_with_the_same_bits(tmp_path):
    network = small(exchange=OFF, durability=Durability(snapshot_rows=12))
    agent = made(tmp_path, network)
    agent.start()
    for seed in range(4):
        agent.submit(arrival(5, seed)).result(WAIT)
    theta = agent.protocol.state.theta.tobytes()
    agent.transport.close()
    with agent._lock:  # as kill -9 would leave it: no farewell
        agent.store.close()
    again = made(tmp_path, network)
    assert again.protocol.state.theta.tobytes() == theta
    assert again.store.samples == again.protocol.learned == 20
    assert "restored" in again.lines.events()
    again.start()
    again.stop()
    last = made(tmp_path, network)
    assert last.store.rows_since_snapshot == 0
    last.store.close()


def test_a_reader_s_position_is_stored_with_its_samples(start, monkeypatch):
    agent = start()
    agent.submit(arrival(5, 1, source="file", position={"bytes": 100})).result(WAIT)
    assert agent.position("file") == {"bytes": 100}

    def fails(*_):
        raise StoreFailed("the disk is full", full=True)

    with monkeypatch.context() as patch:
        patch.setattr("dokl.live.store.Transaction.samples", fails)
        with pytest.raises(StoreFailed):
            agent.submit(arrival(5, 2, source="file", position={"bytes": 200})).result(WAIT)
    assert agent.position("file") == {"bytes": 100}


def test_rows_of_a_file_that_diverge_are_passed_over_with_its_position(tmp_path):
    network = small(exchange=OFF, model=Model(D=20, schedule="constant", mu=2.5, variant="cos"))
    agent = made(tmp_path, network)
    agent.start()
    agent.submit(arrival(2, 1)).result(WAIT)
    position = {"bytes": 100}
    told = agent.submit(arrival(4000, 2, source="file", position=position)).result(WAIT)
    assert 0 < len(told["skipped"]) < 4000
    assert "diverged" in told["skipped"][0]
    learned = 4002 - len(told["skipped"])
    assert told["samples"] == agent.store.samples == agent.protocol.learned == learned
    assert agent.position("file") == position
    theta = agent.protocol.state.theta.tobytes()
    killed(agent)
    again = made(tmp_path, network)
    assert again.protocol.state.theta.tobytes() == theta
    again.store.close()


def test_rows_of_a_file_are_taken_though_the_queue_became_smaller_than_a_batch(start):
    agent = start(small(exchange=OFF, limits=Limits(queue_rows=3)))
    with pytest.raises(BadInput, match="smaller batches"):
        agent.submit(arrival(5))
    told = agent.submit(arrival(5, source="file", position={"bytes": 1})).result(WAIT)
    assert told["samples"] == 5


def test_who_has_learned_nothing_is_a_newcomer_the_next_time_too(tmp_path):
    network, hub = small(exchange=ExchangePolicy(join_seconds=0.1, every_seconds=0.02)), Hub()
    early = made(tmp_path, network, "a", hub=hub)
    early.start()
    early.stop()
    b, c = (made(tmp_path, network, name, hub=hub) for name in "bc")
    b.start()
    c.start()
    b.submit(arrival(50)).result(WAIT)
    wait(lambda: b.protocol.learned == 50)
    a = made(tmp_path, network, "a", hub=hub)
    a.start()
    wait(lambda: "joined" in a.lines.events())
    for agent in (a, b, c):
        agent.stop()


def test_a_warm_start_survives_a_crash(tmp_path):
    network = small(exchange=OFF)
    learner = network.learner()
    warm, _ = learner.learn(learner.start(), *rows(50, 3))
    agent = made(tmp_path, network, warm=warm)
    agent.start()
    agent.submit(arrival(5, 1)).result(WAIT)
    theta = agent.protocol.state.theta.tobytes()
    killed(agent)
    again = made(tmp_path, network)
    assert again.protocol.state.theta.tobytes() == theta
    again.store.close()


def test_what_is_stored_is_not_taken_back_when_it_cannot_be_told(start, monkeypatch):
    agent = start()
    with monkeypatch.context() as patch:
        patch.setattr(agent, "_carry_out", lambda *_: 1 / 0)
        assert agent.submit(arrival(5, 1)).result(WAIT)["samples"] == 5
    assert agent.protocol.learned == agent.store.samples == 5
    assert "ZeroDivisionError" in agent.status()["problems"][0]
    assert agent.submit(arrival(5, 2)).result(WAIT)["samples"] == 10


def test_predictions_are_of_what_is_stored(start, monkeypatch):
    agent = start()
    X, _ = rows(3, 9)
    before, seen = agent.predict(X), []
    write = Transaction.samples

    def looks(transaction, *samples):
        seen.append(agent.predict(X))
        return write(transaction, *samples)

    monkeypatch.setattr(Transaction, "samples", looks)
    agent.submit(arrival(20, 1)).result(WAIT)
    assert seen == [before]
    assert agent.predict(X) != before


def test_what_cannot_be_stored_is_tried_again_but_not_without_pause(start, monkeypatch):
    agent, tries = start(small()), []

    def fails():
        tries.append(1)
        raise StoreFailed("the disk is full", full=True)

    with monkeypatch.context() as patch:
        patch.setattr(agent.store, "transaction", fails)
        patch.setattr(agent.protocol, "tick", lambda now: [Save()])
        patch.setattr(agent.protocol, "next_due", lambda now: now)
        # A neighbour says only once that it is there.
        patch.setattr(agent.transport, "events", lambda: [] if tries else [("b", True)])
        agent.wake()
        began = time.monotonic()
        wait(lambda: len(tries) > 1)
        assert len(tries) < 20 * max(1.0, time.monotonic() - began)
    wait(lambda: agent.status()["neighbours"]["b"]["up"])
