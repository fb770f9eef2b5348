"""Every engine is held to the slow truth of naive.py, on one set of cases."""

import functools
from dataclasses import replace

import numpy as np
import pytest
from scipy.linalg import hadamard
from scipy.sparse import csr_array

from dokl import losses, schedules
from dokl.base.arrays import Block
from dokl.base.errors import BadInput, Diverged
from dokl.learning.features import VARIANTS
from dokl.learning.losses import Loss
from dokl.network.exchange import Exchange
from dokl.network.graphs import metropolis, ring
from dokl.simulation.engines import (
    choose,
    jax_engine,
    numba_engine,
    numba_loops,
    numba_sweeps,
    reference,
)
from dokl.simulation.engines.choice import EngineNotice
from engine_cases import (
    CASES,
    SMOOTH,
    SQRT,
    Case,
    assert_same,
    follows,
    fresh,
    run,
)

ENGINES = {"reference": reference, "numba": numba_engine, "jax": jax_engine}
each_engine = pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def test_the_cases_cover_what_there_is():
    def seen(name):
        return {getattr(case, name) for case in CASES}

    assert seen("variant") == set(VARIANTS)
    assert {case.loss.name for case in CASES} == set(losses.BUILTIN)
    assert {case.schedule.name for case in CASES} == set(schedules.BUILTIN)
    assert seen("order") == {"cta", "atc"}
    assert seen("average") == {"none", "uniform", "weighted"}
    assert seen("every") == {1, 3}
    assert seen("m") == {1, 3}
    assert seen("K") >= {1, 4, 9}
    assert seen("d") >= {1, 2, 5, 8, 9, 17}
    assert seen("inputs") == {"dense", "csr", "zero", "repeats"}
    assert seen("graph") == {"alone", "ring", "complete", "sequence"}


# --- held to the slow truth -------------------------------------------------------------


@each_engine
@each_case
def test_float64_follows_the_truth(engine, case):
    state, f = run(engine, case)
    follows(case, state, f, 1e-9)
    assert state.clock == case.n
    present = ~np.isnan(f[..., 0])
    np.testing.assert_array_equal(state.count, present.sum(axis=0))
    assert state.peak == np.abs(case.block.Y[case.block.index[present]]).max()


@pytest.mark.parametrize("case", SMOOTH, ids=lambda case: case.name)
def test_float32_follows_for_a_while(case):
    short = replace(case, n=min(case.n, 50))
    state, f = run(numba_engine, short, np.float32)
    assert state.theta.dtype == state.bias.dtype == f.dtype == np.float32
    follows(short, state, f, 1e-4)


@pytest.mark.parametrize("name", losses.BUILTIN)
def test_float32_learns_as_well_as_float64_in_the_long_run(name):
    """Kinks flip, so paths part; what must agree is how large the losses are."""
    loss = losses.resolve(name)
    case = Case(name, loss=loss, n=3000, D=60, schedule=SQRT, lam=1e-3, missing=True)
    y = case.block.Y[case.block.index]
    mean = {}
    for dtype in (np.float32, np.float64):
        _, f = run(numba_engine, case, dtype)
        value = loss.value(y, np.nan_to_num(f))[~np.isnan(f)]
        mean[dtype] = value.mean()
    assert mean[np.float32] == pytest.approx(mean[np.float64], rel=2e-3)


@each_engine
@pytest.mark.parametrize("name", ["every third, atc", "sequence", "one node, averaged", "huber"])
def test_pieces_continue_where_the_last_one_stopped(engine, name):
    case = next(case for case in CASES if case.name == name)
    plan = engine.plan(case.problem, case.exchange, np.float64)
    whole, f = engine.advance(plan, fresh(case), case.block)
    state, parts = fresh(case), []
    for start, stop in ((0, 1), (1, 68), (68, 69), (69, 200)):
        state, part = engine.advance(plan, state, case.block.steps(start, stop))
        parts.append(part)
    np.testing.assert_array_equal(np.concatenate(parts), f)
    assert_same(state, whole)


@each_engine
@pytest.mark.parametrize("name", ["plain", "sequence, atc", "normalised"])
def test_a_step_is_a_block_of_one(engine, name):
    case = replace(next(case for case in CASES if case.name == name), n=10)
    plan = engine.plan(case.problem, case.exchange, np.float64)
    whole, f = engine.advance(plan, fresh(case), case.block)
    state = fresh(case)
    for t, rows in enumerate(case.block.index):
        state, prediction = engine.step(plan, state, case.block.X[rows], case.block.Y[rows])
        np.testing.assert_array_equal(prediction, f[t])
    assert_same(state, whole)


@each_engine
def test_a_step_takes_weights(engine):
    case = Case("step with weights", n=1)
    plan = engine.plan(case.problem, case.exchange, np.float64)
    w = np.array([1.0, 0.0, 0.5, 2.0])
    state, f = engine.step(plan, fresh(case), case.block.X, case.block.Y, w)
    block = Block(case.block.X, case.block.Y, w, np.arange(4).reshape(1, 4))
    same, g = engine.advance(plan, fresh(case), block)
    np.testing.assert_array_equal(f, g[0])
    assert_same(state, same)
    assert list(state.count) == [1, 0, 1, 1]


@each_engine
def test_no_steps_change_nothing(engine):
    case = Case("nothing")
    state, _ = run(engine, case)
    plan = engine.plan(case.problem, case.exchange, np.float64)
    same, f = engine.advance(plan, state, case.block.steps(0, 0))
    assert f.shape == (0, 4, 1)
    assert_same(same, state)


@each_engine
@pytest.mark.parametrize("order", ["cta", "atc"])
def test_weight_zero_is_the_same_as_no_sample(engine, order):
    case = Case("weight zero", order=order, missing=True, average="weighted", intercept=1.0)
    absent = case.block.index < 0
    weight, index = np.ones(len(case.block.Y)), case.block.index.copy()
    unused = np.setdiff1d(np.arange(len(weight)), index)
    index[absent] = unused[: absent.sum()]
    weight[unused] = 0
    Y = case.block.Y.copy()
    Y[unused] = np.nan  # nobody looks there
    plan = engine.plan(case.problem, case.exchange, np.float64)
    state, f = engine.advance(plan, fresh(case), Block(case.block.X, Y, weight, index))
    expected, g = engine.advance(plan, fresh(case), case.block)
    np.testing.assert_array_equal(f, g)
    assert_same(state, expected)
    assert state.peak == expected.peak


# --- predicting -------------------------------------------------------------------------


@each_engine
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("inputs", ["dense", "csr", "repeats"])
def test_predict_is_features_times_theta(engine, variant, inputs):
    case = Case("predict", variant=variant, d=9, D=24, m=3, n=20, intercept=0.5, inputs=inputs)
    plan = engine.plan(case.problem, case.exchange, np.float64)
    rng = np.random.default_rng(1)
    theta, bias = rng.standard_normal((3, 24)), rng.standard_normal(3)
    X = case.block.X
    expected = case.problem.features.transform(X) @ theta.T + 0.5 * bias
    np.testing.assert_allclose(engine.predict(plan, theta, bias, X), expected, atol=1e-12)
    assert engine.predict(plan, theta, bias, X[:0]).shape == (0, 3)


def test_predict_shares_rows_among_threads():
    case = Case("many rows", d=5, D=512, K=1, graph="alone", n=9001)
    plan = numba_engine.plan(case.problem, case.exchange, np.float64)
    theta = np.random.default_rng(1).standard_normal((1, 512))
    one, three = (
        numba_engine.predict(plan, theta, np.zeros(1), case.block.X, workers=w) for w in (1, 3)
    )
    np.testing.assert_array_equal(one, three)
    np.testing.assert_allclose(one, case.problem.features.transform(case.block.X) @ theta.T)


# --- a large network, shared among threads ----------------------------------------------


@pytest.mark.parametrize("order", ["cta", "atc"])
@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize("graph", ["ring", "sequence", "alone"])
@pytest.mark.parametrize("average", ["none", "weighted"])
def test_threads_change_no_bit(monkeypatch, order, every, graph, average):
    case = Case(
        "large", K=7, n=31, m=3, order=order, every=every, graph=graph, average=average,
        missing=True, intercept=0.5,
    )  # fmt: skip
    plan = numba_engine.plan(case.problem, case.exchange, np.float64)
    serial, f = numba_engine.advance(plan, fresh(case), case.block, workers=1)
    monkeypatch.setattr(numba_engine, "LARGE", 0)
    shared = []
    sweep_threads = numba_engine._sweep_threads
    monkeypatch.setattr(
        numba_engine, "_sweep_threads", lambda *args: shared.append(1) or sweep_threads(*args)
    )
    state, g = numba_engine.advance(plan, fresh(case), case.block, workers=3)
    assert shared
    np.testing.assert_array_equal(f, g)
    assert_same(state, serial)
    assert state.peak == serial.peak


def test_threads_refuse_an_index_beyond_the_last_row(monkeypatch):
    monkeypatch.setattr(numba_engine, "LARGE", 0)
    case = Case("large", K=7, n=31)
    plan, index = numba_engine.plan(case.problem, case.exchange), case.block.index.copy()
    index[20, 3] = case.block.X.shape[0]
    with pytest.raises(BadInput, match="the index asks for row 217, and there are 217 rows"):
        numba_engine.advance(
            plan, fresh(case, np.float32), replace(case.block, index=index), workers=3
        )


# --- a user's own loss and schedule -----------------------------------------------------


def my_slope(y, f):
    return f - y


def my_rate(n, q):
    return 0.5 / (0.01 + q)


MINE = Loss("mine", lambda y, f: 0.5 * (f - y) ** 2, my_slope)


@pytest.mark.slow
def test_own_functions_compile_and_equal_the_built_in_ones():
    case = Case("own", schedule=schedules.normalised(0.5, eps=0.01), order="atc", intercept=0.5)
    mine = replace(case, loss=MINE, schedule=schedules.custom(my_rate))
    name, engine, plan = choose("numba", mine.problem, mine.exchange, np.float64)
    assert name == "numba"
    state, f = engine.advance(plan, fresh(mine), mine.block)
    expected, g = run(numba_engine, case)
    np.testing.assert_allclose(f, g, atol=1e-12)
    assert_same(state, expected, atol=1e-12)
    again, h = run(reference, mine)
    np.testing.assert_allclose(f, h, atol=1e-9)
    assert_same(state, again, atol=1e-9)


class Tanh:
    """A callable that Numba cannot compile."""

    def __call__(self, y, f):
        return np.tanh(f - y)


def table_slope(y, f):
    return {"inside": f - y}.get("inside", object())


@pytest.mark.parametrize("slope", [Tanh(), functools.partial(my_slope), table_slope])
def test_own_loss_that_does_not_compile(slope):
    case = Case("uncompilable", loss=Loss("odd", lambda y, f: abs(f - y), slope))
    with pytest.warns(EngineNotice, match=r"does not compile .*: using the slower reference"):
        name, _, plan = choose("auto", case.problem, case.exchange, None)
    assert name == "reference"
    assert plan.dtype == np.float64
    with pytest.raises(BadInput, match=r"engine 'numba' cannot run this .*use engine='reference'"):
        choose("numba", case.problem, case.exchange, None)


def test_own_schedule_that_does_not_compile():
    case = Case("uncompilable", schedule=schedules.custom(functools.partial(max, 0.1)))
    with pytest.warns(EngineNotice):
        assert choose("auto", case.problem, case.exchange, None)[0] == "reference"


# --- when it goes wrong -----------------------------------------------------------------


@each_engine
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("mu", [5.0, 1e3])
def test_divergence_is_named_and_changes_nothing(engine, dtype, mu):
    calm = Case("calm", n=20, intercept=0.5, average="uniform")
    wild = replace(calm, schedule=schedules.constant(mu), n=300)
    state, _ = engine.advance(
        engine.plan(calm.problem, calm.exchange, dtype), fresh(calm, dtype), calm.block
    )
    kept = state.copy()
    plan = engine.plan(wild.problem, wild.exchange, dtype)
    with pytest.raises(Diverged) as error:
        engine.advance(plan, state, wild.block)
    # cos features: |z|^2 is at most 2, and the intercept adds 0.25: safe below 2/2.25.
    message = str(error.value)
    assert f"schedule 'constant' is {mu:.4g} at n = 1" in message
    assert "stay finite below 0.8889 = 2/(curvature * sup|z|^2 + lam)" in message
    assert "Use a step of at most 0.4444" in message
    at = int(message.split("diverged at step ")[1].split(":")[0])
    assert 20 < at <= 20 + 300  # counted from the very first step
    assert_same(state, kept)


@each_engine
def test_the_step_named_is_the_first_wild_one(engine):
    wild = Case("wild", schedule=schedules.constant(50.0), n=300)
    plan = engine.plan(wild.problem, wild.exchange, np.float64)
    with pytest.raises(Diverged) as error:
        engine.advance(plan, fresh(wild), wild.block)
    at = int(str(error.value).split("diverged at step ")[1].split(":")[0])
    _, f = engine.advance(plan, fresh(wild), wild.block.steps(0, at - 1))  # until then all is well
    assert np.isfinite(f).all()
    with pytest.raises(Diverged, match=f"at step {at}:"):
        engine.advance(plan, fresh(wild), wild.block.steps(0, at))


@each_engine
def test_shrinking_too_fast_diverges_even_with_a_bounded_loss(engine):
    case = Case("shrink", loss=losses.hinge(), lam=10.0, n=1500)
    plan = engine.plan(case.problem, case.exchange, np.float64)
    with pytest.raises(Diverged, match=r"sup\|z\|\^2 \+ lam"):
        engine.advance(plan, fresh(case), case.block)


@each_engine
def test_a_bounded_loss_may_predict_far_beyond_its_targets(engine):
    lam = 1e-9
    case = Case("far", loss=losses.hinge(), schedule=schedules.pegasos(lam), lam=lam, n=20)
    _, f = run(engine, case)
    assert np.abs(f).max() > 1e7


@each_engine
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_bad_target_is_named_by_its_row(engine, bad):
    case = Case("bad target", n=20, missing=True)
    unused = np.setdiff1d(np.arange(80), case.block.index)[0]
    Y = case.block.Y.copy()
    row = case.block.index[10].max()
    Y[[row, unused]] = bad
    plan = engine.plan(case.problem, case.exchange, np.float64)
    state = fresh(case)
    with pytest.raises(BadInput, match=f"target of row {row} is NaN or infinite"):
        engine.advance(plan, state, replace(case.block, Y=Y))
    assert not state.theta.any()


@each_engine
@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"X": np.zeros((80, 3))}, "samples have 3 inputs, the features expect 2"),
        ({"Y": np.zeros((80, 2))}, "has 4 nodes and 2 outputs, the state 4 and 1"),
        ({"index": np.zeros((20, 5), int)}, "has 5 nodes and 1 outputs, the state 4 and 1"),
        ({"Y": np.zeros((79, 1))}, "X has 80 rows; targets, and weights if any, must have as many"),
        ({"weight": np.ones(81)}, "X has 80 rows"),
        ({"index": np.full((20, 4), 80)}, "the index asks for row 80, and there are 80 rows"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_changes(engine, changes, complaint):
    case = Case("misfit", n=20)
    plan = engine.plan(case.problem, case.exchange, np.float64)
    with pytest.raises(BadInput, match=complaint):
        engine.advance(plan, fresh(case), replace(case.block, **changes))


@each_engine
def test_weights_for_another_number_of_nodes(engine):
    case = Case("other network", K=5, n=4)
    plan = engine.plan(case.problem, Exchange(metropolis(ring(3))), np.float64)
    with pytest.raises(BadInput, match="weights are for 3 nodes, the stream has 5"):
        engine.advance(plan, fresh(case), case.block)


# --- the compiled loops -----------------------------------------------------------------


def cosine(u, P):
    """cos(2 pi u) by the compiled polynomial with coefficients P, in the precision of u."""
    z, j, v = np.empty_like(u), np.zeros(8, np.int64), np.zeros(8, u.dtype)
    numba_loops.cosine8(z, u, np.zeros((1, u.size), u.dtype), j, v, z.reshape(1, -1).copy(), 0, P)
    return z


@pytest.mark.parametrize(
    ("dtype", "coefficients", "tol"),
    [
        (np.float32, numba_loops.POLY32, 1e-8 + 2 * 2.0**-23),
        (np.float64, numba_loops.POLY64, 1e-15),
    ],
)
@pytest.mark.parametrize("reach", [0.3, 3.0, 1e3, 1e6])
def test_the_cosine_is_accurate_everywhere(dtype, coefficients, tol, reach):
    u = np.linspace(-reach, reach, 100_001).astype(dtype)
    exact = u.astype(np.float64)
    exact = np.cos(2 * np.pi * (exact - np.rint(exact)))  # whole turns are taken off exactly
    P = tuple(dtype(a) for a in coefficients)
    assert np.abs(cosine(u, P) - exact).max() < tol


def test_the_short_polynomial_alone_is_right_to_1e_8():
    s = np.linspace(-0.25, 0.25, 20_001)
    approximate = s * np.polynomial.polynomial.polyval(s**2, numba_loops.POLY32)
    assert np.abs(approximate - np.sin(2 * np.pi * s)).max() < 1e-8


@pytest.mark.parametrize("p", [1, 2, 4, 32, 64])
def test_the_stages_are_a_hadamard_transform(p):
    x = np.random.default_rng(p).integers(-9, 10, p).astype(float)
    expected = hadamard(p) @ x
    np.testing.assert_array_equal(numba_loops.hadamard_stages(x, np.empty(p)), expected)


def test_any_kind_of_array_works_and_none_is_compiled_anew():
    case = Case("kinds", n=20)
    plan = numba_engine.plan(case.problem, case.exchange, np.float32)
    X, Y = np.round(3 * case.block.X), np.round(case.block.Y)
    weight, index = np.ones(len(Y)), case.block.index
    plain = Block(X.astype(np.float32), Y.astype(np.float32), weight.astype(np.float32), index)
    expected, f = numba_engine.advance(plan, fresh(case, np.float32), plain)
    scores = numba_engine.predict(plan, expected.theta[0], expected.bias[0], plain.X)
    before = len(numba_sweeps.sweep.signatures), len(numba_sweeps.scores.signatures)

    def read_only(a):
        a = a.copy()
        a.setflags(write=False)
        return a

    def strided(a):
        return np.repeat(a, 2, axis=0)[::2]

    kinds = [np.asfortranarray, read_only, strided, np.int64, np.int8, np.float64, np.float16]
    for kind in kinds:
        block = Block(kind(X), kind(Y), kind(weight), index.astype(np.int32))
        state, g = numba_engine.advance(plan, fresh(case, np.float32), block)
        np.testing.assert_array_equal(g, f)
        assert_same(state, expected)
        theta = (
            kind(expected.theta[0]) if kind in (np.asfortranarray, read_only) else state.theta[0]
        )
        np.testing.assert_array_equal(
            numba_engine.predict(plan, theta, state.bias[0], block.X), scores
        )
    for sparse in (csr_array(X), csr_array(X.astype(np.int16)), read_only_csr(X)):
        state, g = numba_engine.advance(
            plan, fresh(case, np.float32), Block(sparse, Y, weight, read_only(index))
        )
        np.testing.assert_allclose(g, f, atol=1e-5)
    assert (len(numba_sweeps.sweep.signatures), len(numba_sweeps.scores.signatures)) == before
    assert max(before) <= 2  # float32 and float64


def read_only_csr(X):
    X = csr_array(X)
    for part in (X.data, X.indices, X.indptr):
        part.setflags(write=False)
    return X


def test_a_float64_state_can_go_on_in_float32():
    case = Case("mixed", n=20)
    state, _ = run(numba_engine, case)
    plan = numba_engine.plan(case.problem, case.exchange, np.float32)
    later, _ = numba_engine.advance(plan, state, case.block)
    assert later.theta.dtype == np.float32
    assert state.theta.dtype == np.float64
