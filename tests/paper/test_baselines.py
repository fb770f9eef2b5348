import math
import re

import numpy as np
import pytest
from scipy.sparse import csr_array

from dokl import baselines, graphs
from dokl.base.errors import BadInput, Diverged, UnknownName
from dokl.base.random_numbers import spawn
from dokl.learning.kernels import Gaussian, Laplacian
from dokl.learning.metrics import decibels
from dokl.network.exchange import Exchange
from dokl.network.graphs import GraphRecipe
from dokl.paper.baselines import KLMS, QKLMS, DiffusionKLMS, KernelPegasos, KernelSum, LinearLMS
from dokl.paper.baselines.growing import BLOCK, POWERS, evaluate_rows, inner, power, shape_of
from dokl.paper.baselines.runs import BaselineLearner, samples_of
from dokl.paper.problems import example_problem
from dokl.simulation.engines import run as run_engine
from dokl.simulation.streams import Example1, Example2, Example3, Example4, Missing, Shards, Stream
from naive_baselines import (
    naive_diffusion,
    naive_klms,
    naive_linear,
    naive_pegasos,
    naive_qklms,
    value,
)

QUIET = {"show_progress": False}
ALL = ("predictions", "size", "state")

# --- held to the truth ---------------------------------------------------------------------


def small_stream(n, K, d, seed=0, labels=False):
    """Samples with weights, some of them missing."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, K, d))
    y = np.sin(2 * X[..., 0]) + 0.1 * rng.normal(size=(n, K))
    weight = rng.choice([0.0, 0.5, 1.0], p=[0.2, 0.3, 0.5], size=(n, K))
    return Stream(X, np.sign(y) if labels else y, weight)


def lists(stream):
    return stream.X.tolist(), stream.y.tolist(), stream.weight.tolist()


def column(rows, k):
    return [row[k] for row in rows]


METHODS = {
    "klms": (KLMS(Gaussian(1.5), 0.7), lambda *s: naive_klms(*s, 1.5, 0.7)),
    "qklms": (QKLMS(Gaussian(1.5), 0.7, 0.4), lambda *s: naive_qklms(*s, 1.5, 0.7, 0.4)),
    "pegasos": (KernelPegasos(Gaussian(1.5), 0.01), lambda *s: naive_pegasos(*s, 1.5, 0.01)),
}
CASES = [
    *((name, np.float64, 2, 1e-11) for name in METHODS),
    *((name, np.float32, 2, 2e-5) for name in METHODS),
    ("klms", np.float64, 11, 1e-11),
    ("qklms", np.float64, 11, 1e-11),
]


@pytest.mark.parametrize(("name", "dtype", "d", "tol"), CASES)
def test_nodes_alone_follow_the_naive_version(name, dtype, d, tol):
    method, naive = METHODS[name]
    n = 330 if d == 2 and dtype == np.float64 else 120  # beyond one block of centres
    stream = small_stream(n, 2, d, labels=name == "pegasos")
    result = baselines.run(method, stream, record=ALL, dtype=dtype, **QUIET)
    sizes = []
    for k, model in enumerate(result.models[0]):
        f, size, centres = naive(*(column(part, k) for part in lists(stream)))
        np.testing.assert_allclose(result.curves["predictions"][0, :, k, 0], f, rtol=tol, atol=tol)
        sizes.append(size)
        assert model.centres.shape == (size[-1], d)
        np.testing.assert_allclose(model.centres, [c for c, _ in centres], rtol=tol, atol=tol)
        # Pegasos' coefficients are of the size of 1/(lam n)
        np.testing.assert_allclose(model.alpha, [a for _, a in centres], rtol=tol, atol=tol)
        x = stream.X[:7, 0]
        expected = [value(centres, row, 1.5) for row in x.tolist()]
        np.testing.assert_allclose(model.predict(x), expected, rtol=tol, atol=10 * tol)
    np.testing.assert_array_equal(result.curves["size"][0], np.mean(sizes, axis=0))


@pytest.mark.parametrize(("dtype", "tol"), [(np.float64, 1e-11), (np.float32, 2e-5)])
def test_diffusion_follows_the_naive_version(dtype, tol):
    A = graphs.metropolis(graphs.build("ring", 5))
    stream = small_stream(41, 5, 2)
    method, record = DiffusionKLMS(Gaussian(1.5), 0.7, A), (*ALL, "message", "bytes")
    result = baselines.run(method, stream, record=record, dtype=dtype, snapshot=7, **QUIET)
    f, sizes, numbers, held = naive_diffusion(*lists(stream), 1.5, 0.7, A.toarray().tolist())
    np.testing.assert_allclose(result.curves["predictions"][0, ..., 0], f, rtol=tol, atol=tol)
    np.testing.assert_array_equal(result.curves["size"][0], np.mean(sizes, axis=1))
    sent = np.array(numbers) * np.dtype(dtype).itemsize
    np.testing.assert_allclose(result.curves["message"][0], sent.mean(axis=1))
    np.testing.assert_array_equal(result.curves["bytes"][0], np.cumsum(2 * sent.sum(axis=1)))
    x = stream.X[:5, 0]
    for k, model in enumerate(result.models[0]):
        centres = [(stream.X[s, j].tolist(), a) for (s, j), a in held[k].items()]
        expected = [value(centres, row, 1.5) for row in x.tolist()]
        np.testing.assert_allclose(model.predict(x), expected, rtol=tol, atol=10 * tol)


@pytest.mark.parametrize(("dtype", "tol"), [(np.float64, 1e-12), (np.float32, 1e-5)])
@pytest.mark.parametrize("constant", [0.0, 0.5])
def test_linear_follows_the_naive_version(dtype, tol, constant):
    A = graphs.metropolis(graphs.build("star", 4))
    stream = small_stream(31, 4, 3)
    method = LinearLMS(0.1, constant, A)
    record = (*ALL, "message", "bytes")
    result = baselines.run(method, stream, record=record, dtype=dtype, **QUIET)
    f, theta = naive_linear(*lists(stream), 0.1, constant, A.toarray().tolist())
    np.testing.assert_allclose(result.curves["predictions"][0, ..., 0], f, rtol=tol, atol=tol)
    numbers = 3 + bool(constant)
    assert (result["message"] == numbers * np.dtype(dtype).itemsize).all()
    assert result["bytes"][-1] == 31 * 6 * numbers * np.dtype(dtype).itemsize
    for model, expected in zip(result.models[0], theta, strict=True):
        np.testing.assert_allclose(model.theta, expected, rtol=tol, atol=tol)
        x = stream.X[:4, 0]
        level = constant * np.sum(expected[3:])
        np.testing.assert_allclose(model.predict(x), x @ expected[:3] + level, rtol=tol, atol=tol)


# --- the parts -----------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "error"), [(np.float32, 1.2e-7), (np.float64, 4.5e-16)])
def test_powers_of_two(dtype, error):
    t = -np.linspace(0, 120, 4001).astype(dtype)
    got = np.array([power(v, POWERS[dtype]) for v in t])
    assert np.max(np.abs(got / np.exp2(t.astype(np.float64)) - 1)) < error
    assert 0 <= power(dtype(-1e30), POWERS[dtype]) < 1e-37


@pytest.mark.parametrize("d", [8, 9])
def test_kernel_sums_of_every_shape(d):
    rng = np.random.default_rng(d)
    M = BLOCK + 33
    centres, alpha, X = rng.normal(size=(M, d)), rng.normal(size=M), rng.normal(size=(20, d))
    squares = ((X[:, None] - centres) ** 2).sum(axis=-1)
    expected = np.exp(-squares / (2 * 1.3**2)) @ alpha
    got = KernelSum(Gaussian(1.3), centres, alpha).predict(X)
    np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12)
    sparse = KernelSum(Gaussian(1.3), centres, alpha).predict(csr_array(X))
    np.testing.assert_array_equal(sparse, got)


def test_the_inner_loop_is_vectorised():
    """A scalar loop would be ten times slower; its instructions give it away."""
    afresh = inner(evaluate_rows.py_func)  # what comes from the cache cannot be inspected
    tools = np.zeros(BLOCK, np.float32), shape_of(2), POWERS[np.float32]
    centres, X = np.zeros((1, 2, BLOCK), np.float32), np.zeros((1, 2), np.float32)
    afresh(centres, centres.copy(), 0, 0, X, *tools, np.zeros(1, np.float32))
    assert re.search(r"fmadd\d+ps|mulps|fmla[.\s]", "".join(afresh.inspect_asm().values()))


def test_the_nearest_centre_takes_the_update():
    """Centres of several blocks; each repeated input must find its own, at distance 0."""
    rng = np.random.default_rng(3)
    X = rng.uniform(0, 1000, size=(2 * BLOCK + 40, 1, 2))
    twice = np.concatenate([X, X[rng.permutation(len(X))]])
    stream = Stream(twice, np.ones(twice.shape[:2]))
    result = baselines.run(QKLMS(Gaussian(0.01), 0.5, 0.0), stream, record=ALL, **QUIET)
    assert result["size"][-1] == len(X)  # no repetition became a centre
    np.testing.assert_allclose(result.models[0][0].alpha, 0.75)  # 0.5, then 0.5 of what is left
    np.testing.assert_allclose(result.curves["predictions"][0, len(X) :, 0, 0], 0.5, rtol=1e-6)


def test_quantization_radius_is_squared():
    X = np.array([0.0, 0.3, 0.32]).reshape(3, 1, 1)
    stream = Stream(X, np.ones((3, 1)))
    method = QKLMS(Gaussian(1.0), 1.0, 0.0961)  # 0.31^2
    sizes = baselines.run(method, stream, **QUIET)["size"]
    np.testing.assert_array_equal(sizes, [1, 1, 2])


def test_pegasos_separates_two_moons_of_points():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(600, 2))
    y = np.where((X**2).sum(axis=1) > 1.4, 1.0, -1.0)  # a ring around a disc
    stream = Shards(X[:400], y[:400], K=1, passes=3)
    result = baselines.run(KernelPegasos(Gaussian(0.7), 1e-3), stream, seed=2, **QUIET)
    wrong = np.mean(np.sign(result.models[0][0].predict(X[400:])) != y[400:])
    assert wrong < 0.06
    assert result["size"][-1] < 700  # violations only, of 1200 samples


def test_pegasos_may_begin_wildly():
    """Its first prediction is of the size of 1/lam: 1e8, and no divergence."""
    stream = Stream(np.zeros((9, 1, 2)), np.where(np.arange(9) % 2, 1.0, -1.0)[:, None])
    f = baselines.run(KernelPegasos(Gaussian(1.0), 1e-8), stream, record="predictions", **QUIET)
    assert f["predictions"][1, 0, 0] == pytest.approx(-1e8)


def test_sparse_rows_are_as_dense_ones():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2)) * (rng.random((40, 2)) < 0.5)
    y = rng.normal(size=(20, 2))
    dense, sparse = Stream(X.reshape(20, 2, 2), y), Stream(csr_array(X), y)
    for method in (KLMS(Gaussian(1.0)), LinearLMS(0.1)):
        curves = [baselines.run(method, s, **QUIET)["mse"] for s in (dense, sparse)]
        np.testing.assert_array_equal(*curves)


# --- the driver ----------------------------------------------------------------------------


class Probe:
    """A method that learns nothing and shows what it was given."""

    name = "probe"

    def __init__(self):
        self.seen = []

    def learner(self, samples, dtype):
        self.seen.append(samples)
        learner = BaselineLearner(samples, dtype)
        learner.f[:] = 0
        learner.advance, learner.models = lambda start, stop: None, list
        return learner


def test_same_seed_same_data_and_networks_as_the_engines():
    probe, stream = Probe(), Missing(Example2(K=4, n=6), p=0.3)
    result = baselines.run(probe, stream, runs=3, seed=5, workers=1, **QUIET)
    for samples, seed in zip(probe.seen, spawn(5, 3), strict=True):
        expected = stream.draw(spawn(seed, 3)[2])
        np.testing.assert_array_equal(samples.y.reshape(6, 4), expected.y)
        np.testing.assert_array_equal(samples.present, expected.weight > 0)
    problem = example_problem(8)
    ours = run_engine(problem, Exchange(), stream, runs=3, seed=5, engine="reference", **QUIET)
    np.testing.assert_allclose(result.curves["mse"][:, 0], ours.curves["mse"][:, 0])  # f = 0 yet
    recipe = GraphRecipe("random", 4)
    drawn = DiffusionKLMS(Gaussian(1.0), 1.0, recipe).draw(3).weights
    np.testing.assert_array_equal(drawn.toarray(), recipe.draw(3).toarray())


def test_results_do_not_depend_on_threads_or_pieces():
    method, stream = QKLMS(Gaussian(0.05), 1.0, 0.01), Example4(K=3, n=50)
    one = baselines.run(method, stream, runs=4, seed=1, workers=1, **QUIET)
    two = baselines.run(method, stream, runs=4, seed=1, workers=3, snapshot=7, **QUIET)
    for name in one.curves:
        np.testing.assert_array_equal(one.curves[name], two.curves[name])
    assert (one.runs, one.steps, one.engine, one.dtype) == (4, 50, "qklms", "float32")


def test_recorded_quantities():
    record = baselines.RECORDABLE
    stream = Missing(Example4(K=3, n=50), p=0.2)
    result = baselines.run(
        KLMS(Gaussian(0.05)), stream, runs=2, record=record, snapshot=20, **QUIET
    )
    shapes = {name: curve.shape[1:] for name, curve in result.curves.items()}
    assert shapes == {
        "mse": (50,), "node_mse": (50, 3), "mistakes": (50,), "predictions": (50, 3, 1),
        "errors": (50, 3), "size": (50,), "message": (50,), "bytes": (50,), "seconds": (3,),
    }  # fmt: skip
    assert result.at["seconds"].tolist() == [20, 40, 50]
    assert [len(models) for models in result.models] == [3, 3]
    errors = result.curves["errors"]
    np.testing.assert_allclose(np.nanmean(errors**2, axis=2), result.curves["mse"])
    assert result["bytes"][-1] == 0  # nobody to talk to


def test_index_and_absent_rows_of_a_block():
    class Repeated:
        def block(self):
            from dokl.base.arrays import Block

            index = np.array([[0, 1], [-1, 0]])
            return Block(np.array([[1.0], [2.0]]), np.array([[3.0], [4.0]]), None, index)

    samples = samples_of(Repeated(), 0)
    assert (samples.n, samples.K, samples.d) == (2, 2, 1)
    np.testing.assert_array_equal(samples.y[[0, 1, 3]], [3, 4, 3])
    np.testing.assert_array_equal(samples.present, [[True, True], [False, True]])


def test_refusals():
    stream, wide = Example2(K=2, n=30), Stream(np.zeros((4, 1, 2)), np.zeros((4, 1, 2)))
    with pytest.raises(BadInput, match=r"Gaussian kernel only, got laplacian: use"):
        KLMS(Laplacian(1.0))
    with pytest.raises(BadInput, match=r"mu must be a finite number above 0, got -1"):
        QKLMS(Gaussian(1.0), mu=-1)
    with pytest.raises(BadInput, match=r"q, the squared radius"):
        QKLMS(Gaussian(1.0), q=math.nan)
    with pytest.raises(BadInput, match=r"lam must be"):
        KernelPegasos(Gaussian(1.0), 0.0)
    with pytest.raises(BadInput, match=r"targets -1 and 1"):
        baselines.run(KernelPegasos(Gaussian(1.0), 0.1), stream, **QUIET)
    with pytest.raises(BadInput, match=r"one output, the stream has 2"):
        baselines.run(KLMS(Gaussian(1.0)), wide, **QUIET)
    with pytest.raises(BadInput, match=r"a Stream or a recipe"):
        baselines.run(KLMS(Gaussian(1.0)), 3, **QUIET)
    with pytest.raises(UnknownName, match=r"did you mean 'mse'"):
        baselines.run(KLMS(Gaussian(1.0)), stream, record=["mes"], **QUIET)
    for wrong in ({"runs": 0}, {"snapshot": 0}):
        with pytest.raises(BadInput, match=r"whole number"):
            baselines.run(KLMS(Gaussian(1.0)), stream, **wrong, **QUIET)
    with pytest.raises(BadInput, match=r"weights are for 3 nodes, the stream has 2"):
        baselines.run(LinearLMS(0.1, weights=graphs.metropolis(graphs.ring(3))), stream, **QUIET)
    pair = graphs.metropolis(graphs.build("complete", 2))
    with pytest.raises(BadInput, match=r"one network only"):
        baselines.run(LinearLMS(0.1, weights=[pair, pair]), stream, **QUIET)


def test_divergence_is_an_error():
    with pytest.raises(Diverged, match=r"linear-lms diverged at step \d+: .* smaller step mu"):
        baselines.run(LinearLMS(3.0), Example2(K=1, n=400), **QUIET)
    with pytest.raises(Diverged, match=r"klms diverged"):
        baselines.run(KLMS(Gaussian(5.0), mu=9.0), Example4(K=1, n=400), **QUIET)


# --- what the paper's examples must give ---------------------------------------------------


def final(method, stream, runs, seed=1):
    """Mean dictionary size at the end, and the steady state in dB."""
    result = baselines.run(method, stream, runs=runs, seed=seed, **QUIET)
    return result["size"][-1], decibels(result.tail().mean())


def test_example_7():
    size, level = final(QKLMS(Gaussian(0.05), 1.0, 0.01), Example3(K=1), 300)
    assert size == pytest.approx(7.35, abs=0.2)
    assert level == pytest.approx(-28.46, abs=0.6)


def test_example_8():
    size, level = final(QKLMS(Gaussian(0.05), 1.0, 0.01), Example4(K=1), 300)
    assert size == pytest.approx(32.0, abs=0.5)
    assert level == pytest.approx(-23.53, abs=0.3)
    assert final(KLMS(Gaussian(0.05)), Example4(K=1), 100)[1] == pytest.approx(-23.50, abs=0.4)


def test_example_5_needs_q_1():
    stream = Example1(K=1, n=8000)
    size, level = final(QKLMS(Gaussian(5.0), 1.0, 1.0), stream, 16)
    assert size == pytest.approx(1088.5, abs=20)
    assert level == pytest.approx(-16.92, abs=0.3)
    assert final(QKLMS(Gaussian(5.0), 1.0, 5.0), stream, 16)[0] == pytest.approx(87.5, abs=4)


def test_example_6():
    size, _ = final(QKLMS(Gaussian(5.0), 1.0, 5.0), Example2(K=1), 16)
    assert size == pytest.approx(103.6, abs=4)


def test_growing_sums_send_ever_more():
    """The point of the paper: without random features, messages grow by K numbers a step."""
    K, n, d = 5, 300, 2
    method = DiffusionKLMS(Gaussian(0.05), 1.0, GraphRecipe("random", K))
    record = ("mse", "size", "message", "seconds")
    result = baselines.run(method, Example4(K=K, n=n), runs=9, record=record, snapshot=50, **QUIET)
    growth = np.diff(result["message"][20:])
    np.testing.assert_allclose(growth, 4 * K)  # one float32 for each sample of each node
    assert result["message"][0] == 0
    # links weigh here, nodes there
    assert result["message"][-1] == pytest.approx(4 * (result["size"][-2] + d * K), rel=0.01)
    alone = baselines.run(KLMS(Gaussian(0.05)), Example4(K=K, n=n), runs=9, **QUIET)
    assert result.tail().mean() < alone.tail().mean()  # cooperation helps
