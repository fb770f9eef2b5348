"""Cooperation by JAX: one program for all nodes of all realizations computes what each would."""

import numpy as np
import pytest

from dokl import Exchange, Features, Gaussian, GraphRecipe, Problem, graphs, run
from dokl.arrays import Block
from dokl.diffusion import init
from dokl.engines import cooperating, jax_cooperating, reference
from dokl.errors import BadInput
from dokl.exchange import Sending
from dokl.learner import Learner
from dokl.methods import cooperation
from dokl.methods.cooperation import node
from dokl.methods.cooperation.members import Member
from dokl.streams import Example2, Missing
from wild_samples import spoil_unused, wild_rows

K, d, D = 4, 5, 12
FEATURES = Features(Gaussian(3.0), d, D, "paired")
# As the usual ones: of several widths and memories, two of which are of constants.
MEMBERS = (
    Member("own"),
    Member("own", 10, 6, 0.2),
    Member("shared"),
    Member("shared", 30, 6, 0.3),
    Member("corrected", 2, 0, of=1),
    Member("corrected", np.inf, 6, 8.0, of=0),
)
METHOD = cooperation(0.01, members=MEMBERS)
RING = graphs.metropolis(graphs.build("ring", K, seed=0))


def samples(n=40, m=1, seed=0):
    """Wild targets, absent rows, rows of weight 0, and rows that are predicted and not learned."""
    rng = np.random.default_rng(seed)
    X, Y, index = wild_rows(rng, (n, K), d, m)
    weight = rng.uniform(0.3, 2.0, n * K)
    weight[rng.random(n * K) < 0.1] = 0.0
    weight[rng.random(n * K) < 0.2] = 1e-30
    spoil_unused(X, index)
    return Block(X, Y, weight, index)


def ran(engine, problem, exchange, block, cuts=(), m=1):
    """The block in pieces: state and predictions."""
    plan, told = engine.plan(problem, exchange, np.float64), []
    state = init(problem, exchange, K, m)
    for start, stop in zip((0, *cuts), (*cuts, block.n), strict=True):
        state, f = engine.advance(plan, state, block.steps(start, stop))
        told.append(f)
    return state, np.concatenate(told)


def assert_known(ours, true, crew, atol=1e-8):
    """The same by name, but for lists of rows that others have folded into the matrix."""
    assert list(ours.nodes) == list(true.nodes)
    assert (ours.clock, ours.sent) == (true.clock, true.sent)
    assert ours.peak == true.peak
    for name, array in ours.nodes.items():
        if not name.endswith((".P", ".W", ".c", ".a", ".b", ".n")):
            np.testing.assert_allclose(array, true.nodes[name], atol=atol, err_msg=name)
    for name in crew.names:
        for k in range(K):
            a, b = (node.memory_of(state, k, name).covariance() for state in (ours, true))
            np.testing.assert_allclose(a, b, atol=atol, err_msg=name)


@pytest.mark.parametrize(
    "exchange",
    [
        Exchange([RING, np.full((K, K), 1 / K)], "cta", 3),
        Exchange(RING, every=8, sending=Sending("float32", 0.05, 2)),
    ],
    ids=["in turn, cta", "quiet, in parts"],
)
def test_it_agrees_with_the_reference(exchange, monkeypatch):
    monkeypatch.setattr(jax_cooperating, "LONGEST", 16)
    monkeypatch.setattr(jax_cooperating, "BLOCK", 8)
    problem, block = Problem(FEATURES.draw(1), METHOD), samples(m=2)
    true, f = ran(reference, problem, exchange, block, m=2)
    ours, told = ran(jax_cooperating, problem, exchange, block, (24,), 2)
    np.testing.assert_allclose(told, f, atol=1e-9, equal_nan=True)
    assert_known(ours, true, METHOD.crew(exchange))


def test_realizations_in_step_are_each_alone(monkeypatch):
    monkeypatch.setattr(jax_cooperating, "BLOCK", 8)  # so that some lie between two exchanges
    exchange, stream = Exchange(GraphRecipe("random", K), every=20), Missing(Example2(K, 60), 0.3)
    settings = {"record": ("predictions", "state"), "seed": 5, "runs": 3, "show_progress": False}
    true, ours = (
        run(Problem(FEATURES, METHOD), exchange, stream, engine=engine, **settings)
        for engine in ("numba", "jax")
    )
    assert ours.engine == "jax"
    np.testing.assert_allclose(
        ours.curves["predictions"], true.curves["predictions"], atol=1e-9, equal_nan=True
    )
    for a, b in zip(ours.states, true.states, strict=True):
        assert_known(a, b, METHOD.crew(Exchange(RING)))


def test_alone_with_memories_that_fade_and_a_matrix_that_is_spoiled():
    members = Member("own"), Member("own", 2, 0), Member("own", 2)
    problem, exchange = Problem(FEATURES.draw(0), cooperation(members=members)), Exchange()
    block, learner = samples(300), Learner(problem, exchange, K=K, engine="jax")
    true, f = ran(cooperating, problem, exchange, block)
    before = learner.start()
    ours, told = learner.advance(before, block)
    np.testing.assert_allclose(told, f, atol=1e-9, equal_nan=True)
    assert_known(ours, true, problem.method.crew(exchange))
    np.testing.assert_array_equal(before.theta, 0.0)
    again = learner.unpack(learner.pack(ours))
    same, none = learner.advance(again, block.steps(0, 0))
    assert none.shape == (0, K, 1)
    np.testing.assert_array_equal(same.theta, ours.theta)
    spoiled = before.having(**{"own0.P": -before.nodes["own0.P"]})
    mended = learner.advance(spoiled, block)[0]
    by_blas = cooperating.advance(cooperating.plan(problem, exchange), spoiled, block)[0]
    assert_known(mended, by_blas, problem.method.crew(exchange))


def test_bad_input_is_named():
    learner = Learner(Problem(FEATURES.draw(0), METHOD), Exchange(RING), K=K, engine="jax")
    block = Example2(K=K, n=2).draw(0).block()
    block.Y[3] = np.nan
    with pytest.raises(BadInput, match="target of row 3 is NaN"):
        learner.advance(learner.start(), block)
