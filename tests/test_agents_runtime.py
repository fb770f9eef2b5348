"""The runtime inside one process: a real store, a network in memory, and a clock."""

import io
import json
import re
import threading
import time
from dataclasses import replace

import numpy as np
import pytest

from dokl.agents import runtime
from dokl.agents.answers import Busy, Stopping
from dokl.agents.clock import Clock, JumpWatch
from dokl.agents.curve import POINTS, LossCurve
from dokl.agents.description import Durability, ExchangePolicy, Limits, Model
from dokl.agents.description.text import text
from dokl.agents.inputs import Arrival
from dokl.agents.logs import KINDS, Log
from dokl.agents.newest import KEPT
from dokl.agents.protocol.effects import Save
from dokl.agents.runtime import Agent
from dokl.agents.store import KeyReused, Store, StoreFailed, TooManyWaiting, Transaction
from dokl.agents.transports.memory import Hub, MemoryTransport
from dokl.errors import BadInput, Diverged
from dokl.jobs.live.agents import identity
from live_networks import small

OFF = ExchangePolicy(mode="off")
WAIT = 20


class Lines(io.StringIO):
    """A log in memory."""

    def events(self):
        return [json.loads(line)["event"] for line in self.getvalue().splitlines()]


def made(folder, network, name="a", hub=None, **options):
    path, lines, agents = folder / f"{name}.db", Lines(), []
    store = Store.open(path, identity(network, name), network.durability.mode, network.limits)
    wake = lambda: agents[0].wake() if agents else None  # noqa: E731
    transport = MemoryTransport(network, name, hub=hub or Hub(), wake=wake)
    agent = Agent(network, name, store, transport, log=Log(name, Clock(), lines), **options)
    agent.lines = lines
    agents.append(agent)
    return agent


@pytest.fixture
def start(tmp_path):
    """Starts agents that end with the test."""
    running = []

    def started(network=None, name="a", **options):
        network = small(exchange=OFF) if network is None else network
        agent = made(tmp_path, network, name, **options)
        running.append(agent)
        agent.start()
        return agent

    yield started
    for agent in running:
        agent.stop()


def rows(n, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, np.sin(X[:, :1])


def arrival(n, seed=0, **more):
    return Arrival(*rows(n, seed), **more)


def nothing():
    return np.zeros((0, 3)), np.zeros((0, 1))


def killed(agent):
    """As kill -9 would leave it: no farewell."""
    agent.transport.close()
    with agent._lock:
        agent.store.close()


def wait(condition):
    limit = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.01)


# -- samples -----------------------------------------------------------------------------------
def test_samples_are_learned_and_acknowledged_in_order(start):
    agent = start()
    first = agent.submit(arrival(5, 1)).result(WAIT)
    second = agent.submit(arrival(7, 2)).result(WAIT)
    assert (first["accepted"], first["samples"]) == (5, 5)
    assert (second["accepted"], second["samples"]) == (7, 12)
    learner = agent.network.learner()
    state = learner.start()
    for n, seed in ((5, 1), (7, 2)):
        state, _ = learner.learn(state, *rows(n, seed))
    assert agent.protocol.state.theta.tobytes() == state.theta.tobytes()
    X, _ = rows(4, 9)
    assert agent.predict(X) == learner.answers(learner.predict(state, X))


def test_the_newest_rows_are_told_measured_and_predicted(start, tmp_path):
    agent = start()
    agent.submit(arrival(KEPT + 20, 1)).result(WAIT)
    told = agent.status()["newest"]
    assert (told["target"], told["coverage"], len(told["rows"])) == ("y", None, KEPT)
    _, Y = rows(KEPT + 20, 1)
    _, f = agent.learner.learn(agent.learner.start(), *rows(KEPT + 20, 1))
    number, measured, said, lower, upper = told["rows"][-1]
    assert (number, lower, upper) == (KEPT + 20, None, None)
    assert (measured, said) == pytest.approx((Y[-1, 0], f[-1, 0]), rel=1e-5)


def test_the_newest_rows_have_the_intervals_that_were_said_before_they_were_learned(start):
    agent = start(small(exchange=OFF, model=Model(D=20, method="squares")))
    agent.submit(arrival(60, 1)).result(WAIT)
    X, Y = rows(61, 1)
    asked = agent.learner.interval(agent.protocol.state, X[60:])
    agent.submit(Arrival(X[60:], Y[60:])).result(WAIT)
    told = agent.status()["newest"]
    assert told["coverage"] == 0.9
    expected = [Y[60, 0], *(float(part[0, 0]) for part in asked)]
    assert told["rows"][-1] == pytest.approx((61, *expected), rel=1e-5)


def test_a_repeated_key_is_learned_once(start):
    agent = start()
    given = arrival(5, 1, key="k", digest="d")
    first = agent.submit(given).result(WAIT)
    again = agent.submit(given).result(WAIT)
    assert again == {**first, "repeated": True}
    assert agent.store.samples == 5
    with pytest.raises(KeyReused, match="'k' was used for another body"):
        agent.submit(replace(given, digest="other")).result(WAIT)
    assert agent.status()["requests"] == {"accepted": 1, "refused": 1, "busy": 0, "repeated": 1}


def test_a_key_twice_in_one_group_is_learned_once(tmp_path):
    agent = made(tmp_path, small(exchange=OFF))
    given = arrival(5, 1, key="k", digest="d")
    futures = [agent.submit(given) for _ in range(3)]  # before the thread runs: one group
    agent.start()
    assert [future.result(WAIT)["repeated"] for future in futures] == [False, True, True]
    assert agent.store.samples == 5
    agent.stop()


def test_labels_that_come_later(start):
    agent = start()
    X, Y = rows(3, 4)
    told = agent.submit(Arrival(*nothing(), waiting=(("p", X[0]), ("q", X[1]))))
    assert told.result(WAIT) == {
        "accepted": 0, "waiting": 2, "labelled": 0, "unknown_ids": [], "repeated": False,
        "samples": 0,
    }  # fmt: skip
    assert agent.status()["waiting_labels"] == 2
    told = agent.submit(Arrival(*nothing(), labels=(("p", Y[0]), ("x", Y[1])))).result(WAIT)
    assert (told["labelled"], told["unknown_ids"], told["samples"]) == (1, ["x"], 1)
    assert agent.status()["waiting_labels"] == 1
    # Label and input in one go, in a group of its own.
    both = Arrival(*nothing(), waiting=(("r", X[2]),), labels=(("r", Y[2]), ("q", Y[1])))
    assert agent.submit(both).result(WAIT)["labelled"] == 2
    assert agent.status()["waiting_labels"] == 0
    learner = agent.network.learner()
    state, _ = learner.learn(learner.start(), X[[0, 2, 1]], Y[[0, 2, 1]])
    assert agent.protocol.state.theta.tobytes() == state.theta.tobytes()


def test_a_label_sent_twice_counts_once(tmp_path):
    agent = made(tmp_path, small(exchange=OFF))
    X, Y = rows(1)
    agent.submit(Arrival(*nothing(), waiting=(("p", X[0]),)))
    label = Arrival(*nothing(), labels=(("p", Y[0]), ("p", Y[0])))
    futures = [agent.submit(label), agent.submit(label)]
    agent.start()
    assert [f.result(WAIT)["labelled"] for f in futures] == [1, 0]
    assert agent.status()["unknown_labels"] == 3
    agent.stop()


class Later(Clock):
    """A clock whose wall time can be put forward."""

    ahead = 0.0

    def wall(self):
        return super().wall() + self.ahead


def test_waiting_inputs_expire_make_room_and_can_be_purged(start, monkeypatch):
    monkeypatch.setattr("dokl.agents.waiting.EVERY", 0.0)
    clock = Later()
    agent = start(small(exchange=OFF, limits=Limits(waiting_labels=2)), clock=clock)
    X, Y = rows(5)
    agent.submit(Arrival(*nothing(), waiting=(("p", X[0]), ("q", X[1])))).result(WAIT)
    clock.ahead = 2 * 3600.0
    agent.submit(Arrival(*nothing(), waiting=(("r", X[2]),))).result(WAIT)  # p makes room
    assert (agent.status()["waiting_labels"], agent.status()["waiting_expired"]) == (2, 1)
    label = agent.submit(Arrival(*nothing(), labels=(("p", Y[0]), ("q", Y[1])))).result(WAIT)
    assert (label["labelled"], label["unknown_ids"]) == (1, ["p"])
    clock.ahead = (168 + 3) * 3600.0
    agent.submit(Arrival(*nothing(), waiting=(("s", X[3]),))).result(WAIT)
    assert (agent.status()["waiting_labels"], agent.status()["waiting_expired"]) == (1, 2)
    assert agent.purge(3600.0).result(WAIT) == 0
    assert agent.purge().result(WAIT) == 1
    assert (agent.status()["waiting_labels"], agent.status()["waiting_expired"]) == (0, 3)
    assert "inputs expired" in agent.lines.events()


def test_many_newcomers_of_one_group_share_the_room_of_the_oldest(tmp_path):
    clock = Later()
    agent = made(tmp_path, small(exchange=OFF, limits=Limits(waiting_labels=2)), clock=clock)
    X, _ = rows(5)
    agent.submit(Arrival(*nothing(), waiting=(("p", X[0]), ("q", X[1]))))
    agent.start()
    wait_until(lambda: agent.status()["waiting_labels"] == 2)
    with agent._lock:  # the next three come as one group
        clock.ahead = 7200.0
        told = [agent.submit(Arrival(*nothing(), waiting=((name, X[2]),))) for name in "rst"]
    assert [told[0].result(WAIT)["waiting"], told[1].result(WAIT)["waiting"]] == [1, 1]
    with pytest.raises(TooManyWaiting):
        told[2].result(WAIT)
    assert agent.status()["waiting_labels"] == 2
    agent.stop()


def wait_until(condition):
    until = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_too_many_waiting_inputs_are_refused(start):
    agent = start(small(exchange=OFF, limits=Limits(waiting_labels=2)))
    X, _ = rows(4)
    agent.submit(Arrival(*nothing(), waiting=(("p", X[0]), ("q", X[1])))).result(WAIT)
    with pytest.raises(TooManyWaiting, match="send labels first"):
        agent.submit(Arrival(*nothing(), waiting=(("r", X[2]),))).result(WAIT)
    # One that takes another's place is no more than before.
    assert agent.submit(Arrival(*nothing(), waiting=(("p", X[3]),))).result(WAIT)["waiting"] == 1
    assert agent.status()["waiting_labels"] == 2


def test_a_full_queue_is_busy_and_says_when_to_come_back(tmp_path):
    agent = made(tmp_path, small(exchange=OFF, limits=Limits(queue_rows=10)))
    agent.submit(arrival(8))
    with pytest.raises(Busy) as caught:
        agent.submit(arrival(3))
    assert caught.value.retry_after > 0
    with pytest.raises(BadInput, match="11 rows at once"):
        agent.submit(arrival(11))
    agent.start()
    wait(lambda: agent.queued == 0)
    assert agent.submit(arrival(3)).result(WAIT)["samples"] == 11
    agent.stop()
    with pytest.raises(Stopping):
        agent.submit(arrival(1))


def test_what_diverges_is_refused_alone(tmp_path):
    network = small(exchange=OFF, model=Model(D=20, schedule="constant", mu=2.5, variant="cos"))
    agent = made(tmp_path, network)
    good = agent.submit(arrival(2, 1))
    bad = agent.submit(arrival(4000, 2))
    after = agent.submit(arrival(2, 3))
    agent.start()
    assert good.result(WAIT)["samples"] == 2
    with pytest.raises(Diverged):
        bad.result(WAIT)
    assert after.result(WAIT)["samples"] == 4
    agent.stop()


def test_many_labels_at_once_are_quickly_put_to_their_inputs(start):
    agent, n = start(), 20_000
    X, Y = rows(n, 4)
    waiting = tuple((str(i), x) for i, x in enumerate(X))
    agent.submit(Arrival(*nothing(), waiting=waiting)).result(WAIT)
    began = time.process_time()
    labels = tuple((str(i), y) for i, y in enumerate(Y))
    assert agent.submit(Arrival(*nothing(), labels=labels)).result(WAIT)["labelled"] == n
    assert time.process_time() - began < 1.5


# -- the store ---------------------------------------------------------------------------------
def test_what_cannot_be_stored_has_not_happened(start, monkeypatch):
    agent = start()
    agent.submit(arrival(5, 1)).result(WAIT)
    before = agent.protocol.state.theta.tobytes()

    def fails(*_):
        raise StoreFailed("the disk is full", full=True)

    with monkeypatch.context() as patch:
        patch.setattr("dokl.agents.store.Transaction.samples", fails)
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


def test_rows_are_acknowledged_before_what_is_due(start, monkeypatch):
    agent = start()
    learn, free = agent.protocol.samples, threading.Event()
    free.set()

    def samples(*given):
        free.clear()  # from now on, what is due takes very long
        return learn(*given)

    monkeypatch.setattr(agent.protocol, "samples", samples)
    monkeypatch.setattr(agent.protocol, "tick", lambda now: [free.wait(WAIT)][:0])
    assert agent.submit(arrival(5)).result(WAIT / 2)["samples"] == 5
    free.set()


def test_rows_that_never_cease_do_not_put_off_what_is_due(tmp_path, monkeypatch):
    """With nobody to wait for, ten groups of rows are ten turns in which all is done."""
    monkeypatch.setattr(runtime, "GROUP", 5)
    monkeypatch.setattr(runtime, "PATIENCE", 0.0)
    agent, ticks = made(tmp_path, small(exchange=OFF)), []
    monkeypatch.setattr(agent.protocol, "tick", lambda now: ticks.append(now) or [])
    told = [agent.submit(arrival(5, i)) for i in range(20)]
    agent.start()
    try:
        told[-1].result(WAIT)
        assert len(ticks) >= 10
    finally:
        agent.stop()


def test_an_internal_error_ends_neither_the_agent_nor_its_callers_wait(start, monkeypatch):
    agent = start()
    with monkeypatch.context() as patch:
        patch.setattr(agent.protocol, "samples", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            agent.submit(arrival(5)).result(WAIT)
    assert "internal error" in agent.status()["problems"][0]
    assert agent.submit(arrival(5)).result(WAIT)["samples"] == 5


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
        patch.setattr("dokl.agents.store.Transaction.samples", fails)
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
        wait(lambda: tries)
        time.sleep(1.0)
        assert 1 < len(tries) < 20
    wait(lambda: agent.status()["neighbours"]["b"]["up"])


# -- neighbours --------------------------------------------------------------------------------
def test_two_agents_agree(start):
    hub, network = Hub(), small(links=(("a", "b"),), exchange=ExchangePolicy(every_seconds=0.02))
    a, b = (start(network, name, hub=hub) for name in "ab")
    wait(lambda: a.status()["neighbours"]["b"]["up"])
    for seed in range(20):
        a.submit(arrival(10, seed)).result(WAIT)
    X, _ = rows(50, 99)
    wait(lambda: np.abs(a.scores(X) - b.scores(X)).max() < 1e-3)
    assert a.status()["exchange"]["combines"] > 0
    assert a.status()["disagreement"] is not None
    assert b.status()["samples"] == 0
    assert a.status()["neighbours"]["b"]["bytes_in"] > 0
    b.stop()
    wait(lambda: not a.status()["neighbours"]["b"]["up"])
    assert "is down" in a.status()["assumptions"][0]


def test_pulling_agents_agree_too(start):
    policy = ExchangePolicy(mode="pull", every_seconds=0.02)
    hub, network = Hub(clock=time.monotonic), small(links=(("a", "b"),), exchange=policy)
    a, b = (start(network, name, hub=hub) for name in "ab")
    wait(lambda: b.status()["neighbours"]["a"]["up"])
    for seed in range(20):
        a.submit(arrival(10, seed)).result(WAIT)
    X, _ = rows(50, 99)
    wait(lambda: np.abs(a.scores(X) - b.scores(X)).max() < 0.05)


def test_status_is_json_and_complete_before_anything_happened(start):
    found = json.loads(json.dumps(start().status(), allow_nan=False))
    assert found["error"] == {"kind": "mse", "recent": None, "curve": []}
    assert found["disagreement"] is None
    assert found["queue"] == {"rows": 0, "limit": 20_000}
    assert found["certificate_expires"] is None


def test_rows_that_wait_for_their_round_count_as_queued(start):
    policy = ExchangePolicy(mode="lockstep", patience_seconds=60.0)
    network = small(links=(("a", "b"),), exchange=policy, limits=Limits(queue_rows=10))
    agent = start(network)  # b never comes
    assert agent.submit(arrival(8)).result(WAIT)["samples"] == 8
    wait(lambda: agent.protocol.queued == 8)
    with pytest.raises(Busy):
        agent.submit(arrival(3))
    assert agent.status()["queue"] == {"rows": 8, "limit": 10}
    assert (agent.status()["samples"], agent.status()["learned"]) == (8, 0)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"model": Model(D=20, loss="huber")}, "[model] loss"),
        ({"durability": Durability("full")}, "[durability] mode"),
        ({"exchange": ExchangePolicy(mode="lockstep")}, "lockstep"),
    ],
)
def test_a_reload_refuses_what_it_cannot_take_over(start, tmp_path, change, named):
    network = small(exchange=ExchangePolicy())
    agent, path = start(network), tmp_path / "lab.toml"
    path.write_text(text(replace(network, **change)))
    with pytest.raises(BadInput, match=re.escape(named)):
        agent.reload(path).result(WAIT)
    assert "restart this agent" in agent.status()["problems"][0]
    assert agent.network is network
    path.write_text(text(replace(network, exchange=ExchangePolicy(every_seconds=5.0))))
    agent.reload(path).result(WAIT)
    assert agent.status()["exchange"]["every_seconds"] == 5.0
    assert agent.status()["problems"] == []


def test_a_reload_that_fails_for_another_reason_harms_no_sample(start, tmp_path):
    network = small(tmp_path / "lab.toml", exchange=OFF)
    network.path.write_text(text(network))
    agent = start(network)
    agent.when_reloaded = (tmp_path / "absent.pem").read_bytes
    reloaded, taken = agent.reload(network.path), agent.submit(arrival(5))
    with pytest.raises(FileNotFoundError):
        reloaded.result(WAIT)
    assert taken.result(WAIT)["samples"] == 5
    assert "absent.pem" in agent.status()["problems"][0]


def test_more_waiting_inputs_are_allowed_by_a_restart_only(start, tmp_path):
    network = small(tmp_path / "lab.toml", exchange=OFF, limits=Limits(waiting_labels=1))
    agent = start(network)
    network.path.write_text(text(replace(network, limits=Limits(waiting_labels=9))))
    agent.reload(network.path).result(WAIT)
    X, _ = rows(2)
    with pytest.raises(TooManyWaiting, match="1 may"):
        agent.submit(Arrival(*nothing(), waiting=(("p", X[0]), ("q", X[1])))).result(WAIT)
    assert agent.status()["problems"] == []


def test_what_the_transport_threw_away_is_counted_by_reason(start):
    agent = start(small(exchange=ExchangePolicy()))
    agent.transport.refused["b"] = 3
    agent.transport.problem = "the port is taken"
    assert agent.status()["refused"]["size"] == 3
    assert sum(agent.status()["refused"].values()) == 3  # other reasons are told, at 0
    assert agent.status()["neighbours"]["b"]["refused"] == 3
    assert agent.status()["problems"] == ["the port is taken"]


def test_a_certificate_that_runs_out_is_a_problem_in_time(start):
    agent = start()
    agent.certificate_expires = agent.clock.wall() + 3 * 86400
    assert "runs out in 3.0 days" in agent.status()["problems"][0]


# -- small parts -------------------------------------------------------------------------------
def test_the_curve_is_bounded_and_keeps_the_mean():
    curve, rng = LossCurve(), np.random.default_rng(0)
    losses = rng.uniform(size=200_000)
    for start_ in range(0, len(losses), 70):
        piece = losses[start_ : start_ + 70]
        curve.add(piece, start_ + len(piece))
    assert POINTS / 2 - 1 <= len(curve.points) < POINTS
    learned, values = zip(*curve.points, strict=True)
    assert list(learned) == sorted(learned)
    assert abs(np.mean(values) - losses.mean()) < 0.01
    assert abs(curve.recent - 0.5) < 0.1


def test_a_curve_forgets_old_errors():
    curve = LossCurve()
    curve.add(np.full(1000, 100.0), 1000)
    curve.add(np.full(400, 1.0), 1400)
    assert curve.recent == 1.0
    curve.add(np.zeros(0), 1400)
    curve.add(np.array([np.inf]), 1401)
    assert curve.recent == 1.0


def test_floods_of_log_lines_are_thinned_out():
    class Still(Clock):
        seconds = 0.0

        def now(self):
            return self.seconds

    clock, lines = Still(), Lines()
    log = Log("a", clock, lines)
    for _ in range(100):
        log("refused", often=True, reason="size")
    log("refused", often=True, reason="magic")
    assert lines.events() == ["refused", "refused"]
    clock.seconds = 2.0
    log("refused", often=True, reason="size")
    assert json.loads(lines.getvalue().splitlines()[-1])["left_out"] == 99


def test_reasons_that_quote_what_others_sent_are_thinned_out_together():
    lines = Lines()
    log = Log("a", Clock(), lines)
    for i in range(5000):
        log("refused", often=True, reason=f"{i} is no number")
    assert len(log._last) <= 2 * KINDS
    assert len(lines.events()) <= 10 * KINDS  # 2 seconds at most


def test_a_log_that_cannot_be_written_stops_nobody():
    class Full(io.StringIO):
        def write(self, _):
            raise OSError(28, "No space left on device")

    Log("a", Clock(), Full())("event")


def test_a_clock_shift_is_read_from_its_file(tmp_path, monkeypatch):
    shift = tmp_path / "shift"
    monkeypatch.setenv("DOKL_CLOCK_SHIFT", str(shift))
    clock = Clock()
    watch = JumpWatch(clock)
    assert watch.jumped() is None
    shift.write_text("-3600")
    assert watch.jumped() == pytest.approx(-3600, abs=1)
    assert watch.jumped() is None
