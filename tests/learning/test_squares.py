"""Least squares: held to plain loops, exact in any cut, bounded against wild targets, mended."""

import math

import numpy as np
import pytest

import naive
from dokl import Exchange, Features, Gaussian, GraphRecipe, Problem, run, squares
from dokl.base.errors import BadInput
from dokl.learning.squares import blocks, rows, sums
from dokl.learning.squares.blocks import NotDefinite
from dokl.learning.squares.memory import LIST, Numbers, start
from dokl.network.state import pack
from dokl.simulation.learner import Learner
from dokl.simulation.methods import from_spec
from dokl.simulation.streams import Example2, Missing

D = 12


def stream(n=200, m=1, seed=0, wild=False):
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(n, D)) / math.sqrt(D)
    Y = Z @ rng.normal(size=(D, m)) + 0.1 * rng.normal(size=(n, m))
    if wild:
        Y[n // 3] += 30.0
        Y[n // 2 : n // 2 + 3] -= 20.0
    return Z, Y, rng.uniform(0.2, 2.0, n)


CASES = [(lam, bound, m) for lam in (1.0, 0.99, 0.9) for bound in (math.inf, 3.0) for m in (1, 3)]


@pytest.mark.parametrize(("lam", "bound", "m"), CASES)
def test_rows_and_blocks_are_what_loops_by_hand_compute(lam, bound, m):
    Z, Y, w = stream(m=m, wild=True)
    f, theta, P, noise = naive.squares(Z.tolist(), Y.tolist(), w.tolist(), 0.1, lam, bound)
    numbers, memory, told = Numbers(0.1, lam, bound), start(D, m, 0.1), []
    for z, y, weight in zip(Z, Y, w, strict=True):
        memory, one = rows.learn(numbers, memory, z, y, weight)
        told.append(one)
    ends = [(memory, np.array(told))]
    for cut in (1, 7, LIST, 200):
        memory, told = start(D, m, 0.1), []
        for i in range(0, len(Z), cut):
            some = slice(i, i + cut)
            memory, found = blocks.learn(numbers, memory, Z[some], Y[some], w[some])
            told.append(found.f)
        ends.append((memory, np.concatenate(told)))
    for memory, told in ends:
        np.testing.assert_allclose(told, f, atol=1e-11)
        np.testing.assert_allclose(memory.theta, theta, atol=1e-11)
        np.testing.assert_allclose(memory.covariance(), P, atol=1e-11)
        np.testing.assert_allclose(memory.noise, noise, rtol=1e-10)


def test_what_was_before_stays_as_it_was():
    Z, Y, _ = stream(200)
    numbers = Numbers(0.1, 0.995)
    before, _ = blocks.learn(numbers, start(D, 1, 0.1), Z[:100], Y[:100])
    copied = before.theta.copy(), before.covariance()
    after, _ = blocks.learn(numbers, before, Z[100:], Y[100:])
    np.testing.assert_array_equal(before.theta, copied[0])
    np.testing.assert_array_equal(before.covariance(), copied[1])
    again, _ = blocks.learn(numbers, before, Z[100:], Y[100:])
    np.testing.assert_array_equal(again.theta, after.theta)


def test_an_infinite_memory_is_ridge_regression():
    Z, Y, w = stream(500, m=2)
    memory, found = blocks.learn(Numbers(0.3), start(D, 2, 0.3), Z, Y, w)
    A = Z.T @ (w[:, None] * Z) + 0.3 * np.eye(D)
    np.testing.assert_allclose(
        memory.theta, np.linalg.solve(A, Z.T @ (w[:, None] * Y)).T, atol=1e-11
    )
    np.testing.assert_allclose(memory.covariance(), np.linalg.inv(A), atol=1e-11)
    kept = sums.add(sums.no_rows(D, 2), Z, Y, w)
    direct = sums.solve(kept, 0.3)
    np.testing.assert_allclose(direct.theta, memory.theta, atol=1e-11)
    np.testing.assert_allclose(direct.covariance(), memory.covariance(), atol=1e-12)
    np.testing.assert_allclose(direct.noise, memory.noise, rtol=1e-9)
    assert found.q.shape == (500,)


def test_sums_add_up_and_subtract():
    Z, Y, w = stream(300)
    one = sums.add(sums.no_rows(D, 1), Z[:100], Y[:100], w[:100])
    both = sums.add(one, Z[100:], Y[100:], w[100:])
    other = both - one
    alone = sums.add(sums.no_rows(D, 1), Z[100:], Y[100:], w[100:])
    np.testing.assert_allclose(
        sums.solve(other, 0.1).theta, sums.solve(alone, 0.1).theta, atol=1e-10
    )
    assert (one + other).rows == 300
    with pytest.raises(NotDefinite):
        sums.solve(one - both, 0.1)
    memory, _ = blocks.learn(Numbers(0.1), start(D, 1, 0.1), Z, Y, w)
    solved = sums.solve(both, 0.1)
    np.testing.assert_allclose(solved.theta, memory.theta, atol=1e-9)
    np.testing.assert_allclose(solved.covariance(), memory.covariance(), atol=1e-9)
    np.testing.assert_allclose(solved.num, memory.num, rtol=1e-9)


@pytest.mark.parametrize("cut", [1, LIST])
def test_a_wild_target_pulls_like_one_at_the_bound_where_little_is_known(cut):
    Z, Y, _ = stream(LIST)
    numbers, ends = Numbers(0.001, 0.8, 5.0), []
    for much in (1e3, 1e9):
        Y[-1] = much
        memory = start(D, 1, 0.001)
        for i in range(0, LIST, cut):
            memory, found = blocks.learn(numbers, memory, Z[i : i + cut], Y[i : i + cut])
        pulled = memory.theta @ Z[-1] / math.sqrt(0.8) - found.f[-1]
        ends.append((memory.theta, pulled / np.sqrt(found.noise[-1] * (1.0 + found.q[-1]))))
    assert found.q[-1] > 10.0
    np.testing.assert_allclose(*(theta for theta, _ in ends), rtol=1e-6)
    for _, pulled in ends:
        assert 0.9 * 5.0 < pulled < 5.0


def test_one_wild_target_does_not_stay():
    Z, Y, _ = stream(2000)
    truth, _ = blocks.learn(Numbers(0.1), start(D, 1, 0.1), Z, Y)
    spoiled = Y.copy()
    spoiled[700] = 1e6
    free, _ = blocks.learn(Numbers(0.1), start(D, 1, 0.1), Z, spoiled)
    held, found = blocks.learn(Numbers(0.1, 1.0, 6.0), start(D, 1, 0.1), Z, spoiled)
    assert np.linalg.norm(free.theta - truth.theta) > 100
    assert np.linalg.norm(held.theta - truth.theta) < 0.1
    assert found.weight[700] < 1e-4
    assert (found.weight[1000:] == 1).mean() > 0.99


def test_a_target_whose_scale_jumps_is_followed():
    Z, Y, _ = stream(4000)
    Y[2000:] *= 1000.0
    held, _ = blocks.learn(Numbers(0.1, 0.99, 6.0), start(D, 1, 0.1), Z, Y)
    error = Y[3000:] - Z[3000:] @ held.theta.T
    assert error.std() < 0.3 * Y[3000:].std()


def test_a_constant_target_never_turns_to_nan():
    Z, _, _ = stream(9000)
    memory, found = blocks.learn(Numbers(0.1, 0.9, 6.0), start(D, 1, 0.1), Z, np.zeros((9000, 1)))
    assert np.isfinite(found.f).all()
    assert (memory.noise > 0).all()
    after, _ = blocks.learn(Numbers(0.1, 0.9, 6.0), memory, Z[:64], np.ones((64, 1)))
    assert np.isfinite(after.theta).all()


def test_forgetting_follows_what_moves():
    Z, Y, _ = stream(4000)
    Y[2000:] *= -1.0
    errors = []
    for lam in (1.0, 0.995):
        _, found = blocks.learn(Numbers(0.1, lam), start(D, 1, 0.1), Z, Y)
        errors.append(float(np.mean((found.f - Y)[3000:] ** 2)))
    assert errors[1] < 0.1 * errors[0]


# --- in the house -------------------------------------------------------------------------------

FEATURES = Features(Gaussian(5.0), 5, 24)
STREAM = Missing(Example2(K=5, n=180), 0.2)


@pytest.mark.parametrize("weights", [None, GraphRecipe("random", 5)], ids=["alone", "together"])
@pytest.mark.parametrize("order", ["cta", "atc"])
def test_engines_agree(weights, order):
    problem, exchange = Problem(FEATURES, squares(0.05, 200)), Exchange(weights, order, 4)
    record = ("predictions", "state")
    true, *others = (
        run(problem, exchange, STREAM, engine=engine, record=record, seed=3)
        for engine in ("reference", "numba", "jax")
    )
    for ours in others:
        np.testing.assert_allclose(
            ours.curves["predictions"], true.curves["predictions"], atol=1e-9, equal_nan=True
        )
        np.testing.assert_allclose(ours.states[0].theta, true.states[0].theta, atol=1e-9)
        np.testing.assert_array_equal(ours.states[0].count, true.states[0].count)


def test_squares_learns_faster_than_a_gradient():
    from dokl import gradient, losses, schedules

    step = gradient(losses.squared(), schedules.constant(1.0))
    tails = [
        run(Problem(FEATURES, method), Exchange(), Example2(K=5, n=600), seed=1).tail().mean()
        for method in (squares(0.01), step)
    ]
    assert tails[0] < 0.5 * tails[1]


def test_one_learner_row_by_row_and_at_once():
    problem = Problem(FEATURES.draw(0), squares(0.05, 300))
    learner = Learner(problem)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 5))
    y = np.sin(X[:, :1])
    whole, f = learner.learn(learner.start(), X, y)
    state, told = learner.start(), []
    for i in range(150):
        state, one = learner.learn(state, X[i : i + 1], y[i : i + 1])
        told.append(one)
    np.testing.assert_allclose(np.concatenate(told), f, atol=1e-9)
    np.testing.assert_allclose(state.theta, whole.theta, atol=1e-9)
    again = learner.unpack(learner.pack(state))
    assert learner.pack(again) == learner.pack(state)
    after = [learner.learn(s, X[:3], y[:3])[0] for s in (state, again)]
    assert pack(after[0], learner.slots) == pack(after[1], learner.slots)
    np.testing.assert_array_equal(learner.predict(state, X), learner.predict(again, X))


def test_a_bad_target_is_named_and_nothing_changes():
    learner = Learner(Problem(FEATURES.draw(0), squares()))
    state, _ = learner.learn(learner.start(), np.zeros((2, 5)), np.ones((2, 1)))
    before = learner.pack(state)
    with pytest.raises(BadInput, match="Y: row 1"):
        learner.learn(state, np.zeros((2, 5)), [[1.0], [math.nan]])
    assert learner.pack(state) == before


def test_specs_come_back_and_bad_numbers_are_refused():
    for method in (squares(), squares(0.1, 50, math.inf)):
        assert from_spec(method.spec()) == method
    for bad in ({"ridge": 0.0}, {"memory": 1.0}, {"bound": -1.0}, {"ridge": math.nan}):
        with pytest.raises(BadInput, match=r"must be above 0|at least 2 rows"):
            squares(**bad)
