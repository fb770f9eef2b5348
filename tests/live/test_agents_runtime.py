"""The runtime inside one process: samples, labels that wait, and neighbours."""

import json
import re
import threading
import time
from concurrent.futures import Future
from dataclasses import replace

import numpy as np
import pytest

from dokl.base.errors import BadInput, Diverged
from dokl.live.agent import backlog, runtime
from dokl.live.agent.clock import Clock
from dokl.live.agent.newest_rows import KEPT
from dokl.live.agent.replies import Busy, Stopping
from dokl.live.description import AgreedInputs, Durability, ExchangePolicy, Limits, Model
from dokl.live.description.text import text
from dokl.live.inputs import Arrival
from dokl.live.store import KeyReused, StoreFailed, TooManyWaiting
from dokl.live.transports.memory import Hub
from live_networks import small
from memory_agents import OFF, WAIT, arrival, made, nothing, rows, wait


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
    state = agent.protocol.state
    ends = agent.learner.interval_answers(state, X[60:])
    asked = float(agent.learner.predict(state, X[60:])[0, 0]), ends["lower"][0], ends["upper"][0]
    agent.submit(Arrival(X[60:], Y[60:])).result(WAIT)
    told = agent.status()["newest"]
    assert told["coverage"] == 0.9
    assert told["rows"][-1] == pytest.approx((61, Y[60, 0], *asked), rel=1e-5)


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
    monkeypatch.setattr("dokl.live.agent.waiting.EVERY", 0.0)
    clock = Later()
    agent = start(small(exchange=OFF, limits=Limits(waiting_labels=2)), clock=clock)
    X, Y = rows(5)
    agent.submit(Arrival(*nothing(), waiting=(("p", X[0]), ("q", X[1])))).result(WAIT)
    clock.ahead = 2 * 3600.0
    agent.submit(Arrival(*nothing(), waiting=(("r", X[2]),))).result(WAIT)  # p makes room
    assert (agent.status()["waiting_labels"], agent.status()["waiting_expired"]) == (2, 1)
    label = agent.submit(Arrival(*nothing(), labels=(("p", Y[0]), ("q", Y[1])))).result(WAIT)
    assert (label["labelled"], label["unknown_ids"], label["expired_ids"]) == (1, [], ["p"])
    agent.submit(Arrival(*nothing(), waiting=(("p", X[4]),))).result(WAIT)  # once more
    again = agent.submit(Arrival(*nothing(), labels=(("p", Y[4]), ("p", Y[4])))).result(WAIT)
    assert (again["labelled"], again["unknown_ids"]) == (1, ["p"])
    assert "expired_ids" not in again
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
    wait(lambda: agent.status()["waiting_labels"] == 2)
    with agent._lock:  # the next three come as one group
        clock.ahead = 7200.0
        told = [agent.submit(Arrival(*nothing(), waiting=((name, X[2]),))) for name in "rst"]
    assert [told[0].result(WAIT)["waiting"], told[1].result(WAIT)["waiting"]] == [1, 1]
    with pytest.raises(TooManyWaiting):
        told[2].result(WAIT)
    assert agent.status()["waiting_labels"] == 2
    agent.stop()


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


def test_what_neighbours_sent_outlives_turns_that_do_not_look_at_it(tmp_path, monkeypatch):
    """The disk is full, then well again for a turn of rows alone; turns are taken by hand."""

    def full(*_):
        raise StoreFailed("the disk is full", full=True)

    hub, network = Hub(), small()
    agent, other = (made(tmp_path, network, name, hub=hub) for name in "ab")
    agent.transport.open()
    other.transport.open()
    agent._put_off = agent.clock.now() - 1.0  # rows have not ceased for a while
    with monkeypatch.context() as patch:
        patch.setattr("dokl.live.store.Transaction.samples", full)
        agent._serve([(arrival(5), Future())], agent.protocol.mark())
    agent._serve([(arrival(5), Future())], agent.protocol.mark())
    agent._serve([], agent.protocol.mark())
    assert agent.status()["neighbours"]["b"]["up"]
    for each in (agent, other):
        each.transport.close()
        each.store.close()


def test_rows_that_never_cease_do_not_put_off_what_is_due(tmp_path, monkeypatch):
    """With nobody to wait for, ten groups of rows are ten turns in which all is done."""
    monkeypatch.setattr(backlog, "GROUP", 5)
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


@pytest.mark.slow
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
    limits = {"limit": 20_000, "limit_seconds": 2.0}
    assert found["queue"] == {"rows": 0, "seconds": 0.0, **limits}
    assert found["certificate_expires"] is None


def test_rows_that_wait_for_their_round_count_as_queued(start):
    policy = ExchangePolicy(mode="lockstep", patience_seconds=60.0)
    network = small(links=(("a", "b"),), exchange=policy, limits=Limits(queue_rows=10))
    agent = start(network)  # b never comes
    assert agent.submit(arrival(8)).result(WAIT)["samples"] == 8
    wait(lambda: agent.protocol.queued == 8)
    with pytest.raises(Busy):
        agent.submit(arrival(3))
    queue = agent.status()["queue"]
    assert (queue["rows"], queue["limit"]) == (8, 10)
    assert (agent.status()["samples"], agent.status()["learned"]) == (8, 0)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"model": Model(D=20, loss="huber")}, "[model] loss"),
        ({"durability": Durability("full")}, "[durability] mode"),
        ({"exchange": ExchangePolicy(mode="lockstep")}, "lockstep"),
        ({"inputs": replace(AgreedInputs.plain(3), target_range=(-1.0, 1.0))}, "[inputs]"),
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


def test_a_reload_lets_larger_batches_come(start, tmp_path):
    network = small(tmp_path / "lab.toml", exchange=OFF, limits=Limits(queue_rows=5))
    agent, body = start(network), b"x1,x2,x3,y\n" + b"1,2,3,4\n" * 8
    with pytest.raises(BadInput, match="5 is the most"):
        agent.inputs.from_csv(body)
    network.path.write_text(text(replace(network, limits=Limits(queue_rows=10))))
    agent.reload(network.path).result(WAIT)
    assert agent.submit(agent.inputs.from_csv(body)).result(WAIT)["accepted"] == 8


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
