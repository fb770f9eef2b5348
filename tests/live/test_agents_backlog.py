"""Rows that wait: bounded by seconds of learning, large batches in slices, and none lost for it.

Learning takes as long as the clock says here: 1 ms a row, on a clock that nothing else moves.
"""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from dokl.base.errors import Diverged
from dokl.live.agent.backlog import SLICE, Backlog, Pace
from dokl.live.agent.clock import Clock
from dokl.live.agent.replies import Busy
from dokl.live.description import Limits, Model
from http_agents import send
from live_networks import small
from memory_agents import OFF, arrival, killed, made, rows

COST = 1e-3


class Costly(Clock):
    """Stands still, but for what is learned."""

    seconds = 0.0

    def now(self):
        return self.seconds


def costly(folder, **parts):
    """An agent that is not started, whose turns are taken by hand."""
    clock = Costly()
    agent = made(folder, small(exchange=OFF, **parts), clock=clock)
    learn = agent.learner.learn

    def slow(state, X, Y, weight=None):
        clock.seconds += COST * len(X)
        return learn(state, X, Y, weight)

    agent.learner.learn = slow
    agent._backlog.pace.measure(agent.learner, clock.now)
    return agent


def turns(agent, future):
    """Turns until it is answered, at most a hundred."""
    for n in range(1, 101):
        agent._turn()
        if future.done():
            return n
    raise AssertionError("not answered")


def taught(agent, *batches):
    """The state after these rows, learned one batch after the other."""
    learner = agent.network.learner()
    state = learner.start()
    for X, Y in batches:
        state, _ = learner.learn(state, X, Y)
    return state.theta.tobytes()


# -- what rows take ----------------------------------------------------------------------------
def test_the_pace_is_measured_before_rows_come_and_follows_them():
    pace = Pace()
    clock = Costly()

    def prepare(n):
        clock.seconds += 0.25 + COST * n

    pace.measure(SimpleNamespace(prepare=prepare), clock.now)
    assert pace.seconds(1000) == pytest.approx(1000 * COST)  # without what a call takes by itself
    for _ in range(20):
        pace.add(1, 5.0)  # a single row says nothing of rows in a batch
    assert pace.seconds(1000) == pytest.approx(1000 * COST)
    for _ in range(10):
        pace.add(2000, 2000 * 3 * COST)
    assert pace.seconds(1000) == pytest.approx(3000 * COST, rel=0.05)


def test_steps_that_are_too_long_for_the_rows_that_measure_stop_no_agent():
    def prepare(n):
        raise Diverged("too long")

    pace = Pace()
    pace.measure(SimpleNamespace(prepare=prepare), Costly().now)
    assert pace.rows(SLICE) > 10_000


@pytest.mark.parametrize("share", ["sums", "rows"])
def test_a_lone_learner_is_measured_by_rows_that_experts_learn(share):
    """Its first rows take a fraction of all others."""
    learner = small(model=Model(method="squares", D=20, share=share)).learner("a")
    clock, learn = Costly(), learner.learn_inputs

    def slow(state, X, Y):
        expert = learner.own_node(state).own.now is not None
        clock.seconds += (10 * COST if expert else COST) * len(X)
        return learn(state, X, Y)

    learner.learn_inputs = slow
    pace = Pace()
    pace.measure(learner, clock.now)
    assert pace.seconds(1000) == pytest.approx(10_000 * COST, rel=0.1)


def backlog(rows=0, behind=0, large=0):
    made = Backlog(behind)
    made.rows, made.large = rows, large
    made.pace.add(1000, 1000 * COST)
    return made


@pytest.mark.parametrize(
    ("there", "rows", "wait"),
    [
        (backlog(), 20_000, 0.0),  # alone, however long it takes
        (backlog(behind=50), 20_000, 0.1),  # more rows than may wait at all
        (backlog(behind=50), 5000, 0.0),  # hardly anything waits
        (backlog(500), 1500, 0.0),
        (backlog(500), 1600, 0.1),
        (backlog(500, 1000), 1500, 1.0),  # stored and unlearned rows count, too
        (backlog(500, 1000), 9000, 1.5),  # longer than the limit: when nothing else waits
        (backlog(500, 1000, 1500), 1, 0.0),  # but not for a single one
        (backlog(500, 1999, 500), 1, 0.0),
        (backlog(500, 2500, 500), 1, 0.5),
    ],
)
def test_who_finds_no_room_is_told_when_there_will_be(there, rows, wait):
    assert there.wait(rows, Limits(queue_seconds=2.0)) == pytest.approx(wait)


# -- turns -------------------------------------------------------------------------------------
def test_the_queue_is_bounded_by_seconds(tmp_path):
    agent = costly(tmp_path)
    agent.submit(arrival(1500, 1))
    with pytest.raises(Busy) as caught:
        agent.submit(arrival(1500, 2))
    assert caught.value.retry_after == pytest.approx(1.0)
    single = agent.submit(arrival(1, 3))
    assert agent.status()["queue"]["seconds"] == pytest.approx(1.501)
    turns(agent, single)
    with pytest.raises(Busy):
        agent.submit(arrival(1500, 2))
    killed(agent)


def test_its_bound_is_in_the_description(tmp_path):
    agent = costly(tmp_path, limits=Limits(queue_seconds=4.0))
    agent.submit(arrival(1500, 1))
    agent.submit(arrival(1500, 2))
    with pytest.raises(Busy):
        agent.submit(arrival(1500, 3))
    killed(agent)


def test_who_is_answered_finds_room_for_as_much(tmp_path):
    agent, again = costly(tmp_path, limits=Limits(queue_rows=20)), []
    future = agent.submit(arrival(20))
    future.add_done_callback(lambda _: again.append(agent.submit(arrival(20, 1))))
    turns(agent, future)
    assert len(again) == 1
    turns(agent, again[0])
    assert agent.store.samples == 40
    killed(agent)


def test_single_rows_do_not_wait_for_a_large_batch(tmp_path):
    agent = costly(tmp_path)
    large, first = agent.submit(arrival(1500, 1)), agent.submit(arrival(1, 2))
    assert turns(agent, first) == 1
    assert not large.done()
    assert agent.clock.seconds <= 17 * 2 * 3 * COST + SLICE + COST  # measured, and one slice
    later = agent.submit(arrival(1, 3))
    assert turns(agent, later) == 1
    assert (agent.store.samples, large.done()) == (1502, False)
    assert turns(agent, large) > 25  # slices, one a turn
    agent._turn()
    assert agent.protocol.learned == 1502
    assert large.result()["samples"] == 1500
    assert later.result()["samples"] == 1502
    expected = taught(agent, rows(1500, 1), rows(1, 2), rows(1, 3))
    assert agent.protocol.state.theta.tobytes() == expected
    killed(agent)


def test_a_crash_between_two_slices_loses_and_doubles_nothing(tmp_path):
    agent = costly(tmp_path)
    given = arrival(1500, 1, key="k", digest="d")
    large, single = agent.submit(given), agent.submit(arrival(1, 2))
    turns(agent, single)
    assert 0 < agent.protocol.learned < 1500
    killed(agent)
    assert not large.done()
    again = costly(tmp_path)
    assert (again.store.samples, again.protocol.learned) == (1501, 1501)
    assert again.protocol.state.theta.tobytes() == taught(again, rows(1500, 1), rows(1, 2))
    answer = again.submit(given)
    turns(again, answer)
    assert (answer.result()["repeated"], again.store.samples) == (True, 1501)
    killed(again)


def test_a_snapshot_between_two_slices_holds_what_is_learned_alone(tmp_path):
    agent = costly(tmp_path)
    agent.submit(arrival(1500, 1))
    agent._turn()
    learned = agent.protocol.learned
    assert 0 < learned < 1500
    agent._farewell()
    killed(agent)
    again = costly(tmp_path)
    assert again.store.rows_since_snapshot == 1500 - learned
    assert again.protocol.state.theta.tobytes() == taught(again, rows(1500, 1))
    killed(again)


def test_stopping_learns_what_waits_and_answers(tmp_path):
    agent = costly(tmp_path)
    large = agent.submit(arrival(1500, 1))
    agent.start()
    agent.stop()
    assert large.result(0)["samples"] == 1500
    assert agent.protocol.learned == 1500


def test_rows_of_a_large_batch_that_cannot_be_learned_are_passed_over_alone(tmp_path):
    agent = costly(tmp_path)
    learn = agent.learner.learn

    def fussy(state, X, Y, weight=None):
        if np.any(Y == 7.0):
            raise Diverged("a seven")
        return learn(state, X, Y, weight)

    agent.learner.learn = fussy
    given = arrival(200, 1)
    given.Y[70] = 7.0
    large = agent.submit(given)
    turns(agent, large)
    assert (agent.protocol.learned, agent.protocol.facts()["diverged"]) == (200, 1)
    X, Y = rows(200, 1)
    others = [i for i in range(200) if i != 70]
    assert agent.protocol.state.theta.tobytes() == taught(agent, (X[others], Y[others]))
    killed(agent)


def test_over_http_a_full_queue_is_429_with_the_seconds_to_wait(tmp_path):
    agent = costly(tmp_path)
    agent.submit(arrival(1900, 1))
    body = json.dumps([{"x1": 1.0, "x2": 2.0, "x3": 3.0, "y": 0.5}] * 1500)
    answer = send(agent, body)
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "2")
    assert answer.json()["retry_after"] == pytest.approx(1.4)
    assert agent.status()["requests"]["busy"] == 1
    killed(agent)
