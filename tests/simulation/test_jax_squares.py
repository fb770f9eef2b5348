"""Least squares by JAX: many learners at once compute what each of them would alone."""

import math
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import sparse

import naive
from dokl import Exchange, Features, Gaussian, GraphRecipe, Problem, run, squares
from dokl.base.arrays import Block
from dokl.base.errors import BadInput
from dokl.learning.squares.blocks import NotDefinite
from dokl.network.exchange import Mixing, Sending
from dokl.simulation.diffusion import init
from dokl.simulation.driver import Job
from dokl.simulation.engines import blas, choose, jax_batches, jax_blocks, jax_squares, reference
from dokl.simulation.engines.jax_blocks import BlockNumbers, Known
from dokl.simulation.engines.runs import ByEngine
from dokl.simulation.learner import Learner
from dokl.simulation.recording import check_asked
from dokl.simulation.squares import memory_of
from dokl.simulation.streams import Example2, Missing
from wild_samples import spoil_unused, wild_rows

K, d, D = 4, 5, 24
FEATURES = Features(Gaussian(5.0), d, D)


def samples(n=150, m=1, weighted=True, seed=0):
    """Wild targets, absent rows, rows of weight 0; absent rows may be anything."""
    rng = np.random.default_rng(seed)
    X, Y, index = wild_rows(rng, (n, K), d, m, absent=0.25)
    index[40:60, 1] = -1  # one node has fewer rows than the others
    weight = np.where(rng.random(n * K) < 0.1, 0.0, rng.uniform(0.3, 2.0, n * K))
    spoil_unused(X, index)
    return Block(X, Y, weight if weighted else None, index)


def ran(engine, problem, exchange, block, cuts=(), m=1):
    """The block in pieces: state and predictions."""
    plan = engine.plan(problem, exchange, np.float64)
    state, told = init(problem, exchange, K, m, np.float64), []
    for start, stop in zip((0, *cuts), (*cuts, block.n), strict=True):
        state, f = engine.advance(plan, state, block.steps(start, stop))
        told.append(f)
    return state, np.concatenate(told)


def assert_known(ours, true, atol=1e-9):
    for k in range(ours.K):
        a, b = memory_of(ours, k), memory_of(true, k)
        for name in ("theta", "noise", "den"):
            np.testing.assert_allclose(getattr(a, name), getattr(b, name), atol=atol)
        np.testing.assert_allclose(a.covariance(), b.covariance(), atol=atol)
    np.testing.assert_array_equal(ours.count, true.count)
    assert ours.clock == true.clock
    assert ours.peak == true.peak


@pytest.mark.parametrize(
    ("method", "m"),
    [
        (squares(0.05, 200), 1),
        (squares(0.05, bound=math.inf), 2),
        (squares(0.1, 10, bound=2.0), 2),
        (squares(0.1, 2), 1),
    ],
    ids=["usual", "unbounded", "bounded", "short"],
)
def test_engines_agree_with_weights_and_absent_rows(method, m):
    problem, block = Problem(FEATURES.draw(1), method), samples(m=m)
    true, f = ran(reference, problem, Exchange(), block, m=m)
    for engine, cuts in ((blas, (70,)), (jax_squares, ()), (jax_squares, (1, 70))):
        ours, told = ran(engine, problem, Exchange(), block, cuts, m)
        np.testing.assert_allclose(told, f, atol=1e-9, equal_nan=True)
        assert_known(ours, true)


RULES = {
    "plain, cta": Exchange(GraphRecipe("random", K), "cta", 1),
    "sequence": Exchange([np.eye(K) / 2 + 0.5 / K, np.full((K, K), 1 / K)], "atc", 7),
    "quiet, in parts": Exchange(
        GraphRecipe("ring", K), "atc", 3, sending=Sending("float32", 0.05, 2), mixing=Mixing(0.5)
    ),
}


@pytest.mark.parametrize("exchange", RULES.values(), ids=RULES)
def test_they_exchange_as_the_reference_does(exchange):
    problem, block = Problem(FEATURES, squares(0.05, 300)), Missing(Example2(K=K, n=60), 0.2)
    record = ("predictions", "state")
    true, ours = (
        run(problem, exchange, block, engine=engine, record=record, seed=3, dtype=np.float64)
        for engine in ("reference", "jax")
    )
    assert ours.engine == "jax"
    np.testing.assert_allclose(
        ours.curves["predictions"], true.curves["predictions"], atol=1e-9, equal_nan=True
    )
    assert_known(ours.states[0], true.states[0])
    assert ours.states[0].sent == true.states[0].sent


@pytest.mark.parametrize(
    ("weights", "share"),
    [(None, "theta"), (GraphRecipe("random", K), "theta"), (GraphRecipe("random", K), "sums")],
    ids=["alone", "together", "together with sums"],
)
def test_realizations_in_step_are_each_alone(weights, share):
    method, exchange = squares(0.05, 100, share=share), Exchange(weights, "cta", 20)
    problem = Problem(FEATURES, method)
    record = ("predictions", "state", "disagreement")
    settings = {"record": record, "seed": 5, "runs": 3, "snapshot": 30, "dtype": np.float64}
    stream = Missing(Example2(K=K, n=60), 0.3)
    true, ours = (
        run(problem, exchange, stream, engine=engine, **settings) for engine in ("numba", "jax")
    )
    for name in ("predictions", "disagreement"):
        np.testing.assert_allclose(ours.curves[name], true.curves[name], atol=1e-9, equal_nan=True)
    for a, b in zip(ours.states, true.states, strict=True):
        assert_known(a, b)


def test_sums_that_are_none_of_any_rows_are_mended_as_elsewhere():
    block, ends = samples(12), []
    problem = Problem(FEATURES.draw(0), squares(0.05, share="sums"))
    exchange = Exchange(GraphRecipe("ring", K).draw(), every=5)
    for engine in (blas, jax_squares):
        state = init(problem, exchange, K)
        state.nodes["sums"][1, 2] = -9.0  # the first entry of Z'Z
        ends.append(engine.advance(engine.plan(problem, exchange), state, block)[0])
    assert_known(*ends)


def test_matrices_count_when_realizations_are_put_together():
    job = Job(
        Problem(FEATURES, squares()), Exchange(), Example2(K=K, n=10),
        check_asked(("mse",), None, 2, 0), "jax", None, 1, 0.0,
    )  # fmt: skip
    assert jax_batches._bytes(ByEngine(job, 0)) >= 8 * K * D * D


@pytest.mark.parametrize("variant", ["paired", "structured", "projected"])
def test_every_kind_of_map(variant):
    recipe = Features(Gaussian(3.0), d, 36, "cos" if variant == "projected" else variant)
    features = recipe.draw(2)
    if variant == "projected":
        features = features.project(np.linalg.qr(np.random.default_rng(0).normal(size=(36, 9)))[0])
    problem, block = Problem(features, squares(0.05, 500)), samples(40)
    true, f = ran(blas, problem, Exchange(), block)
    ours, told = ran(jax_squares, problem, Exchange(), block)
    np.testing.assert_allclose(told, f, atol=1e-9, equal_nan=True)
    assert_known(ours, true)
    plan = jax_squares.plan(problem, Exchange())
    X = np.random.default_rng(1).normal(size=(70, d))
    scores = [
        jax_squares.predict(plan, ours.theta[0], np.zeros(1), rows)
        for rows in (X, sparse.csr_array(X))
    ]
    np.testing.assert_allclose(scores[0], features.transform(X) @ ours.theta[0].T, atol=1e-12)
    np.testing.assert_array_equal(*scores)
    assert jax_squares.predict(plan, ours.theta[0], np.zeros(1), X[:0]).shape == (0, 1)


def test_states_go_from_engine_to_engine():
    problem, block = Problem(FEATURES.draw(1), squares(0.05, 150)), samples(150)
    true, _ = ran(reference, problem, Exchange(), block)
    state, engines = init(problem, Exchange(), K), (blas, jax_squares, blas, jax_squares)
    for i, engine in enumerate(engines):  # the list of `blas` is never full where it changes
        plan = engine.plan(problem, Exchange())
        before = {name: array.copy() for name, array in state.nodes.items()}
        new, _ = engine.advance(plan, state, block.steps(40 * i, min(150, 40 * i + 40)))
        if engine is jax_squares:
            for name, array in before.items():
                np.testing.assert_array_equal(state.nodes[name], array)
        state = new
    assert_known(state, true)
    same, f = jax_squares.advance(plan, state, block.steps(0, 0))
    assert f.shape == (0, K, 1)
    assert_known(same, true)


def test_a_learner_row_by_row_sparse_and_saved():
    learner = Learner(Problem(FEATURES.draw(0), squares(0.05, 300)), engine="jax")
    X = np.random.default_rng(0).normal(size=(20, d))
    y = np.sin(X[:, :1])
    whole, f = learner.learn(learner.start(), X, y)
    state, told = learner.start(), []
    for i in range(20):
        state, one = learner.learn(state, X[i : i + 1], y[i : i + 1])
        told.append(one)
    np.testing.assert_allclose(np.concatenate(told), f, atol=1e-12)
    assert_known(state, whole, 1e-11)
    assert learner.pack(learner.unpack(learner.pack(state))) == learner.pack(state)
    rows = Block(sparse.csr_array(X), y, None, np.arange(20).reshape(-1, 1))
    np.testing.assert_allclose(learner.advance(learner.start(), rows)[1][:, 0], f, atol=1e-12)
    plan = jax_squares.plan(learner.problem, learner.exchange)
    _, one = jax_squares.step(plan, learner.start(), X[:1], y[:1])
    np.testing.assert_array_equal(one, f[:1])


@pytest.mark.parametrize("lam", [1.0, 0.9])
def test_a_long_block_is_halved_and_a_row_of_weight_0_is_none(lam):
    rng, B, m, bound = np.random.default_rng(0), jax_blocks.BLOCK, 2, 3.0
    Z = rng.normal(size=(B, 6)) / 2.0
    Y, w = Z[:, :m] + 0.1 * rng.normal(size=(B, m)), rng.uniform(0.2, 2.0, B)
    Y[::9] += 20.0
    w[rng.random(B) < 0.2] = 0.0
    f, theta, P, noise = naive.squares(Z.tolist(), Y.tolist(), w.tolist(), 0.1, lam, bound)
    with jax.enable_x64(True):
        one = jnp.ones(1)
        known = Known(
            jnp.zeros((1, m, 6)),
            jnp.eye(6)[None] / 0.1,
            one,
            0 * one,
            jnp.full((1, m), 0.1),
            10 * one,
        )
        settings = BlockNumbers(0.1 * one, lam * one, bound * one)
        known, told, _ = jax.jit(jax_blocks.block)(settings, known, Z[None], Y[None], w[None])
        known = jax_blocks.fold(known)
    np.testing.assert_allclose(told[0][w > 0], np.array(f)[w > 0], atol=1e-11)
    np.testing.assert_allclose(known.theta[0], theta, atol=1e-11)
    np.testing.assert_allclose(known.P[0], P, atol=1e-11)
    np.testing.assert_allclose(known.num[0] / known.den[0], noise, rtol=1e-10)


def test_bad_input_is_named_and_what_cannot_run_is_refused():
    problem = Problem(FEATURES.draw(0), squares())
    plan, state = jax_squares.plan(problem, Exchange()), init(problem, Exchange(), 1)
    X, y, index = np.zeros((2, d)), np.ones((2, 1)), np.arange(2).reshape(-1, 1)
    with pytest.raises(BadInput, match="target of row 1 is NaN"):
        jax_squares.advance(plan, state, Block(X, y * [[1.0], [math.nan]], None, index))
    with pytest.raises(BadInput, match="X contains NaN or infinity"):
        jax_squares.advance(plan, state, Block(np.full((2, d), math.inf), y, None, index))
    with pytest.raises(BadInput, match="asks for row 2"):
        jax_squares.advance(plan, state, Block(X, y, None, index + 1))
    with pytest.raises(NotDefinite, match="definiteness"):
        jax_squares.advance(plan, state.having(P=-state.P), Block(X, y, None, index))
    other = SimpleNamespace(d=d, D=3, transform=lambda X: X[:, :3])
    ring = Exchange(GraphRecipe("ring", K).draw())
    with pytest.raises(
        BadInput, match=r"engine 'jax' cannot run .*sums per origin.*use engine='numba'"
    ):
        choose("jax", Problem(FEATURES.draw(0), squares(share="origins")), ring, None)
    with pytest.raises(BadInput, match=r"engine 'jax' cannot run .*expected a FeatureMap"):
        choose("jax", Problem(other, squares()), Exchange(), None)
