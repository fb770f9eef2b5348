"""Sums that travel: held to plain loops, conserved to rounding, as good as one place."""

import math
from dataclasses import replace

import numpy as np
import pytest

import naive
from dokl import Exchange, Features, Gaussian, GraphRecipe, Mixing, Problem, Sending, run, squares
from dokl.base.arrays import Block
from dokl.base.errors import BadInput, UnknownName
from dokl.learning.squares import sums
from dokl.network.graphs import weights
from dokl.network.sums import shared
from dokl.simulation.diffusion import init
from dokl.simulation.engines import blas, jax_squares, reference
from dokl.simulation.methods import from_spec
from dokl.simulation.squares import memory_of
from dokl.simulation.streams import Example2, Missing
from wild_samples import wild_rows

K, d, D = 5, 3, 8
FEATURES = Features(Gaussian(2.0), d, D).draw(0)
# Over a star everybody's mean of the neighbourhood is not doubly stochastic; nor is a directed
# ring with a shortcut.
STAR = GraphRecipe("star", K, "uniform").draw()
RING = weights(GraphRecipe("ring", K).graph())
ONE_WAY = np.eye(K) / 2 + np.roll(np.eye(K), 1, axis=1) / 2
ONE_WAY[0] = [0.4, 0.3, 0.3, 0.0, 0.0]


def samples(n=30, m=1, seed=0, absent=0.2):
    """Rows of which some are absent, some weigh nothing, some targets are wild."""
    rng = np.random.default_rng(seed)
    X, Y, index = wild_rows(rng, (n, K), d, m, absent)
    weight = np.where(rng.random(n * K) < 0.1, 0.0, rng.uniform(0.3, 2.0, n * K))
    return Block(X, Y, weight, index)


def as_lists(block):
    """Z[t][k], Y[t][k], weight[t][k]."""
    at = np.maximum(block.index, 0)
    w = np.where(block.index >= 0, block.weight[at], 0.0)
    Z = FEATURES.transform(block.X)[at]
    return Z.tolist(), block.Y[at].tolist(), w.tolist()


def ran(engine, method, exchange, block, m=1, cuts=()):
    problem = Problem(FEATURES, method)
    plan, state, told = engine.plan(problem, exchange), init(problem, exchange, K, m), []
    for start, stop in zip((0, *cuts), (*cuts, block.n), strict=True):
        state, f = engine.advance(plan, state, block.steps(start, stop))
        told.append(f)
    return state, np.concatenate(told)


def total(state):
    """What all nodes hold together, told or not: (S,)."""
    return sum(state.nodes[name].sum(axis=0) for name in ("sums", "pending") if name in state)


def whole(block, weight=None):
    """The sums of all rows in one place."""
    used = block.index[block.index >= 0]
    w = block.weight[used] if weight is None else weight
    return shared.of_rows(FEATURES.transform(block.X[used]), block.Y[used], w)


CASES = {
    "plain": ({}, RING, "atc", 1),
    "every 7, cta": ({}, RING, "cta", 7),
    "memory": ({"memory": 40.0}, RING, "atc", 3),
    "few rows wait": ({"fewest": 4}, RING, "atc", 3),
    "star, memory, few": ({"memory": 60.0, "fewest": 3}, STAR, "cta", 2),
    "one way": ({"bound": 3.0}, ONE_WAY, "atc", 4),
}


@pytest.mark.parametrize("engine", [reference, blas, jax_squares], ids=["reference", "blas", "jax"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.parametrize("m", [1, 2])
def test_engines_are_what_loops_by_hand_compute(engine, case, m):
    settings, A, order, every = case
    method = squares(0.1, share="sums", **settings)
    block = samples(m=m)
    dense = A if isinstance(A, np.ndarray) else A.toarray()
    numbers = method.numbers.rho, method.numbers.lam, method.numbers.bound
    f, theta, P, kept = naive.shared_squares(
        *as_lists(block), dense.tolist(), order, every, *numbers, method.fewest
    )
    state, told = ran(engine, method, Exchange(A, order, every), block, m, (11,))
    np.testing.assert_allclose(told, f, atol=1e-9, equal_nan=True)
    np.testing.assert_allclose(state.theta, theta, atol=1e-9)
    held = state.sums + state.pending if "pending" in state else state.sums
    for k in range(K):
        np.testing.assert_allclose(memory_of(state, k).covariance(), P[k], atol=1e-8)
        ours, true = shared.unpack(held[k], D, m), kept[k]
        assert ours.weight == pytest.approx(true[1], rel=1e-9)
        zz = np.reshape(true[2 : 2 + D * D], (D, D))
        np.testing.assert_allclose(np.tril(ours.zz), np.tril(zz), atol=1e-9)
        np.testing.assert_allclose(ours.zy.ravel(), true[2 + D * D : -m], atol=1e-9)
        np.testing.assert_allclose(ours.yy, true[-m:], atol=1e-9)


SENDING = {
    "all": Sending(),
    "float32": Sending("float32"),
    "quiet": Sending(least=0.3),
    "in parts": Sending(parts=3),
    "rounded and quiet": Sending("float32", 0.1),
}


GRAPHS = {"ring": RING, "star": STAR, "one way": ONE_WAY}
# Silence needs links that go both ways alike.
SENT = [(A, how) for A in GRAPHS for how in SENDING if A == "ring" or not SENDING[how].least]


@pytest.mark.parametrize(("A", "sending"), SENT)
@pytest.mark.parametrize("fewest", [1, 6])
def test_the_total_is_conserved(A, sending, fewest):
    A, sending = GRAPHS[A], SENDING[sending]
    block = samples(200)
    method = squares(0.1, bound=math.inf, share="sums", fewest=fewest)
    state, _ = ran(blas, method, Exchange(A, every=3, sending=sending), block)
    used = block.index[block.index >= 0]
    true = whole(block, block.weight[used])
    true[0] = (block.weight[used] > 0).sum()
    found = total(state)
    np.testing.assert_allclose(found, true, atol=1e-12 * np.abs(true).max())
    if "share" in state:
        assert state.share.sum() == pytest.approx(K, rel=1e-13)


@pytest.mark.parametrize("A", GRAPHS.values(), ids=GRAPHS)
def test_every_node_comes_to_know_what_one_place_would(A):
    block = samples(60, absent=0.4)
    rest = Block(block.X, block.Y, block.weight, np.full((150, K), -1))
    method = squares(0.1, bound=math.inf, share="sums")
    problem, exchange = Problem(FEATURES, method), Exchange(A, every=5)
    plan, state = blas.plan(problem, exchange), init(problem, exchange, K)
    state, _ = blas.advance(plan, state, block)
    for _ in range(2):  # nothing but exchanges
        state, _ = blas.advance(plan, state, rest)
    one = sums.solve(shared.unpack(whole(block), D, 1), 0.1)
    for k in range(K):
        np.testing.assert_allclose(state.theta[k], one.theta, atol=1e-6)
        np.testing.assert_allclose(memory_of(state, k).covariance(), one.covariance(), atol=1e-5)
        np.testing.assert_allclose(memory_of(state, k).noise, one.noise, rtol=1e-4)


def test_rounded_quiet_and_partial_sums_are_nearly_as_good():
    stream, features = Missing(Example2(K=6, n=300), 0.1), Features(Gaussian(5.0), 5, 24)
    problem, ring = Problem(features, squares(0.05, share="sums")), GraphRecipe("ring", 6)
    tails = {}
    for name, sending in SENDING.items():
        exchange = Exchange(ring, every=5, sending=sending)
        trace = run(problem, exchange, stream, record=("mse", "bytes", "state"), seed=1, runs=2)
        tails[name] = trace.tail().mean(), trace["bytes"][-1]
    theta = run(Problem(features, squares(0.05)), Exchange(ring, every=5), stream, seed=1, runs=2)
    for name, (error, sent) in tails.items():
        assert error < 1.1 * tails["all"][0], name
        assert error < theta.tail().mean()
        assert sent <= tails["all"][1]


def test_who_changes_the_graph_conserves_the_total():
    block = samples(40)
    state, _ = ran(blas, squares(0.1, share="sums"), Exchange([RING, STAR, RING]), block)
    assert "share" in state
    assert state.share.sum() == pytest.approx(K, rel=1e-13)
    assert total(state)[0] == pytest.approx(state.count.sum(), rel=1e-13)


def test_what_was_before_stays_as_it_was():
    block, method = samples(40), squares(0.1, 50.0, share="sums", fewest=2)
    problem, exchange = (
        Problem(FEATURES, method),
        Exchange(RING, every=4, sending=Sending(least=0.1)),
    )
    for engine in (blas, reference):
        plan = engine.plan(problem, exchange)
        state, _ = engine.advance(plan, init(problem, exchange, K), block.steps(0, 10))
        before = {name: array.copy() for name, array in state.nodes.items()}
        ends = [engine.advance(plan, state, block.steps(10, 40))[0] for _ in range(2)]
        for name, array in before.items():
            if name == "W":  # a list is written to beyond its own end
                continue
            np.testing.assert_array_equal(state.nodes[name], array)
            np.testing.assert_array_equal(ends[0].nodes[name], ends[1].nodes[name])


def test_memory_follows_what_moves():
    rng, n = np.random.default_rng(0), 400
    X = rng.normal(size=(n * K, d))
    Y = FEATURES.transform(X)[:, :1] * np.where(np.arange(n * K) < n * K // 2, 3.0, -3.0)[:, None]
    block = Block(X, Y, None, np.arange(n * K).reshape(n, K))
    errors = {}
    for memory in (math.inf, 200.0):
        method = squares(0.1, memory, share="sums")
        _, f = ran(blas, method, Exchange(RING, every=4), block)
        errors[memory] = float(np.mean((f - Y.reshape(n, K, 1))[-100:] ** 2))
    assert errors[200.0] < 0.2 * errors[math.inf]


def test_alone_sums_do_not_matter():
    block = samples(40)
    ours, theirs = (
        ran(blas, squares(0.1, share=share), Exchange(), block) for share in ("sums", "theta")
    )
    np.testing.assert_array_equal(ours[1], theirs[1])
    assert "sums" not in ours[0]


def test_packing_and_specs_come_back():
    rng = np.random.default_rng(0)
    Z, Y, w = rng.normal(size=(9, D)), rng.normal(size=(9, 2)), rng.uniform(0.5, 2.0, 9)
    one = sums.add(sums.no_rows(D, 2), Z, Y, w)
    vector = shared.of_rows(Z, Y, w)
    assert len(vector) == shared.size(D, 2)
    again = shared.unpack(vector, D, 2)
    assert again.rows == 9
    np.testing.assert_array_equal(np.tril(again.zz), np.tril(one.zz))
    np.testing.assert_array_equal(again.zy, one.zy)
    np.testing.assert_array_equal(shared.pack(again), vector)
    for method in (squares(), squares(0.1, 50, share="sums", fewest=3)):
        assert from_spec(method.spec()) == method


def test_sums_of_no_rows_are_mended():
    crooked = shared.of_rows(np.eye(D), np.ones((D, 1)), None)
    negative = replace(shared.unpack(crooked, D, 1), zz=np.diag(np.r_[-3.0, np.ones(D - 1)]))
    found = shared.to_memory(negative, 0.1)
    assert np.linalg.eigvalsh(found.covariance()).min() > 0
    assert np.abs(found.theta).max() < 1.0


def test_bad_input_is_named():
    with pytest.raises(UnknownName, match=r"thing to share 'sum'.*did you mean 'sums'"):
        squares(share="sum")
    with pytest.raises(BadInput, match="ridge must be above 0: with fewer rows than features"):
        squares(0.0, share="sums")
    with pytest.raises(BadInput, match="needs share='sums'"):
        squares(fewest=3)
    with pytest.raises(BadInput, match="fewest must be a number of rows"):
        squares(share="sums", fewest=0)
    problem, stream = Problem(FEATURES, squares(share="sums")), Example2(K=K, n=5)
    with pytest.raises(BadInput, match="mixed by the weighted mean alone"):
        run(problem, Exchange(RING, mixing=Mixing(1.0)), stream)
    for sending, wrong in (
        (Sending("float16"), "do not fit into float16"),
        (Sending(bits=8), "sums need full precision"),
        (Sending(least=0.1), "links that go both ways"),
        (Sending(least=0.1, parts=2), "not both"),
    ):
        A = STAR if sending.parts == 1 else RING
        with pytest.raises(BadInput, match=wrong):
            run(problem, Exchange(A, sending=sending), stream)
    features = Features(Gaussian(5.0), 5, 24)
    with pytest.raises(BadInput, match="weights are for 5 nodes, the stream has 4"):
        run(replace(problem, features=features), Exchange(RING), Example2(K=4, n=5))
