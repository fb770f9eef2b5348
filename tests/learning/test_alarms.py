"""Alarms: how seldom they are false, where errors depend on each other, and how soon they come."""

import numpy as np
import pytest

from dokl.learning import alarms
from dokl.learning.squares import sums
from dokl.live.protocol import standing
from dokl.live.protocol.standing import Standing
from dokl.network.sums.origins import Entry

D, RHO, SECONDS = 16, 0.05, 1.0
OMEGA = np.random.default_rng(8).normal(size=(3, D // 2))


def run_length(draw, level, rng, most=10**6):
    """Tests until the first alarm."""
    evidence = 0.0
    for n in range(1, most):
        evidence = alarms.update(evidence, draw(rng))
        if evidence >= level:
            return n
    return most


@pytest.mark.parametrize(
    "draw",
    [lambda rng: rng.choice((-1.0, 1.0)), lambda rng: rng.uniform(-1, 1)],
    ids=["coin", "uniform"],
)
def test_tests_that_are_fair_give_alarms_as_seldom_as_is_said(draw):
    rng, level = np.random.default_rng(1), np.log(100.0)
    assert np.mean([run_length(draw, level, rng) for _ in range(100)]) > 100


def test_the_level_is_one_false_alarm_in_a_thousand_hours():
    assert alarms.threshold(7200) == pytest.approx(np.log(7_200_000))
    assert alarms.worse(float("inf"), 1.0) == 1.0
    assert alarms.worse(1.0, float("inf")) == -1.0


# --- origins of sums --------------------------------------------------------------------------
def likewise(rng, n, origin):
    """Features (n, D) and targets (n, 1) of one hour after the other at a station: weather changes
    slowly, each station has an offset that comes and goes, and errors depend on those before.
    """
    path = np.empty((n, 5))
    state = rng.normal(size=5)
    for t in range(n):
        state = 0.97 * state + 0.24 * rng.normal(size=5)
        path[t] = state
    X, error, offset = path[:, :3], path[:, 3], path[:, 4]
    Z = np.hstack([np.cos(X @ OMEGA), np.sin(X @ OMEGA)]) / np.sqrt(D / 2)
    y = np.sin(X[:, :1]) + 0.5 * X[:, 1:2] + 0.4 * error[:, None] + 0.3 * offset[:, None]
    return Z, y + 0.2 * np.sin(origin + X[:, 2:])


def watched(judgements, seed, flipped=(), others=4, rows=20):
    """Who was left out at any time by a node that hears of so many others, and when first."""
    rng, found = np.random.default_rng(seed), {}
    n = judgements * rows
    streams = [likewise(rng, n, k) for k in range(others + 1)]
    totals = [sums.no_rows(D, 1) for _ in streams]
    held = Standing()
    for turn in range(judgements):
        part = slice(turn * rows, (turn + 1) * rows)
        for k, (Z, y) in enumerate(streams):
            sign = -1.0 if k in flipped else 1.0
            totals[k] = sums.add(totals[k], Z[part], sign * y[part])
        if turn % 5 == 0:  # what others have heard of
            told = {f"n{k}": Entry(f"n{k}", 0, each) for k, each in enumerate(totals) if k}
        held = standing.judge(held, told, "n0", totals[0], RHO, SECONDS * turn)
        for name in held.trial.out:
            found.setdefault(name, turn)
    return found


@pytest.mark.parametrize("seed", range(4))
def test_no_honest_origin_is_left_out_where_errors_depend_on_each_other(seed):
    assert watched(600, seed) == {}


def test_flipped_targets_are_left_out_within_a_hundred_judgements_and_nobody_else():
    for seed in range(4):
        found = watched(250, seed, flipped=(2,))
        assert set(found) == {"n2"}
        assert found["n2"] < 100
