"""What is special about the JAX engine; the cases it shares with the others are in test_engines."""

import functools
import math
import os
import subprocess
import sys
from dataclasses import replace

import jax
import numpy as np
import pytest

import engine_cases as shared
from dokl import losses, schedules
from dokl.base.arrays import Block
from dokl.base.errors import BadInput, MissingExtra
from dokl.learning.features import sample
from dokl.learning.kernels import Gaussian
from dokl.learning.losses import Loss
from dokl.network.exchange import Exchange
from dokl.network.graphs import GraphRecipe, metropolis, ring, star
from dokl.paper.problems import example_problem
from dokl.simulation.diffusion import init
from dokl.simulation.engines import (
    choice,
    choose,
    jax_chunks,
    jax_engine,
    jax_fused,
    jax_traced,
    jax_translate,
    numba_engine,
    reference,
)
from dokl.simulation.engines import run as simulate
from dokl.simulation.engines.choice import EngineNotice
from dokl.simulation.streams import Example2, Missing
from engine_cases import CASES, SMOOTH, Case, assert_same, follows, fresh
from variants import first

run = functools.partial(shared.run, jax_engine)
named = {case.name: case for case in CASES}


# --- float32 ----------------------------------------------------------------------------


@pytest.mark.parametrize("case", first(*SMOOTH[::2], always=6), ids=lambda case: case.name)
def test_float32_follows_for_a_while(case):
    short = replace(case, n=min(case.n, 50))
    state, f = run(short, np.float32)
    assert state.theta.dtype == state.bias.dtype == f.dtype == np.float32
    follows(short, state, f, 1e-4)


# --- however it is cut up, the same -----------------------------------------------------


@pytest.mark.parametrize("name", ["structured, blocks", "csr", "sequence, atc"])
def test_small_chunks_change_nothing(monkeypatch, name):
    case = named[name]
    expected, f = run(case)
    monkeypatch.setitem(jax_chunks.SCRATCH, "cpu", 1)  # one step at a time
    cut = replace(case, n=7)
    _, g = run(cut)
    np.testing.assert_allclose(g, cut.truth[0], atol=1e-12)
    monkeypatch.setitem(jax_chunks.SCRATCH, "cpu", 1 << 26)
    monkeypatch.setitem(jax_chunks.LONGEST, "cpu", 64)
    state, g = run(case)
    np.testing.assert_allclose(g, f, atol=1e-13)
    assert_same(state, expected, atol=1e-13)


@pytest.mark.parametrize("name", ["plain", "sequence, atc", "complete graph, outputs"])
def test_along_the_links_as_by_the_full_matrix(monkeypatch, name):
    case = named[name]
    expected, f = run(case)
    monkeypatch.setattr(jax_translate, "mixing_of", lambda graphs: "edges" if graphs else "none")
    state, g = run(case)
    np.testing.assert_allclose(g, f, atol=1e-13)
    assert_same(state, expected, atol=1e-13)


def test_large_sparse_networks_go_along_the_links():
    assert jax_translate.mixing_of([metropolis(ring(65))]) == "edges"
    assert jax_translate.mixing_of([metropolis(star(65))]) == "edges"
    assert jax_translate.mixing_of([metropolis(ring(64))]) == "dense"
    case = Case("large ring", K=70, n=5)
    follows(case, *run(case), 1e-9)


def batch_of(case, seeds=(1, 2, 3)):
    """Realizations with their own features, graphs (of different sizes) and samples."""
    graphs = [metropolis(ring(case.K)), metropolis(star(case.K)), np.eye(case.K) / 2 + 0.5 / case.K]
    cases = []
    for i, seed in enumerate(seeds):
        mine = replace(case, name="x" * seed)
        features = sample(Gaussian(1.5), case.d, case.D, case.variant, seed=seed)
        mine.__dict__["problem"] = replace(case.problem, features=features)
        mine.__dict__["exchange"] = replace(case.exchange, weights=graphs[i % 3])
        cases.append(mine)
    return cases


@pytest.mark.parametrize(
    ("name", "mixing"),
    [("plain", "edges"), ("every third, atc", "dense"), ("structured, blocks", "dense")],
)
def test_many_realizations_at_once_are_each_alone(monkeypatch, name, mixing):
    monkeypatch.setattr(jax_translate, "mixing_of", lambda graphs: mixing)
    cases = batch_of(replace(named[name], n=30))
    plans = [jax_engine.plan(c.problem, c.exchange, np.float64) for c in cases]
    found = jax_engine.advance_many(
        jax_engine.together(plans), [fresh(c) for c in cases], [c.block for c in cases]
    )
    for case, plan, (state, f) in zip(cases, plans, found, strict=True):
        expected, g = jax_engine.advance(plan, fresh(case), case.block)
        np.testing.assert_allclose(f, g, atol=1e-13)
        assert_same(state, expected, atol=1e-13)


def test_realizations_of_a_shape_share_one_compilation():
    cases = batch_of(replace(named["huber"], n=30))
    jax_traced.compile_sweep.cache_clear()
    for case in cases:
        run(case)
    assert jax_traced.compile_sweep.cache_info().misses == 1


STREAMS = {"all": Example2(K=4, n=60), "some": Missing(Example2(K=4, n=60), p=0.3)}


@pytest.mark.parametrize("stream", STREAMS.values(), ids=STREAMS)
@pytest.mark.parametrize("small", [False, True])
def test_the_driver_runs_them_together(monkeypatch, stream, small):
    from dokl.simulation.engines import jax_batches

    if small:
        monkeypatch.setattr(jax_batches, "BATCH", 1)  # one at a time
        monkeypatch.setattr(jax_batches, "PIECE", 100)
    problem = example_problem(20)
    exchange = Exchange(GraphRecipe("random", 4), "cta")
    record = ("mse", "node_mse", "predictions", "bytes", "disagreement", "state")
    settings = {"runs": 3, "seed": 2, "record": record, "snapshot": 20, "dtype": np.float64}
    ours = simulate(problem, exchange, stream, engine="jax", **settings)
    true = simulate(problem, exchange, stream, engine="reference", **settings)
    assert ours.engine == "jax"
    assert ours.curves.keys() == true.curves.keys()
    for name, curves in true.curves.items():
        np.testing.assert_allclose(ours.curves[name], curves, atol=1e-11, err_msg=name)
    for mine, theirs in zip(ours.states, true.states, strict=True):
        assert_same(mine, theirs, atol=1e-11)


# --- features ---------------------------------------------------------------------------


@pytest.mark.parametrize("variant", ["cos", "paired", "structured"])
def test_projected_features(variant):
    case = Case("projected", variant=variant, D=24, schedule=schedules.normalised(0.5), n=40)
    V = np.linalg.qr(np.random.default_rng(0).standard_normal((24, 5)))[0]
    problem = replace(case.problem, features=case.problem.features.project(V))
    state = init(problem, case.exchange, case.K, case.m)
    plans = [e.plan(problem, case.exchange, np.float64) for e in (jax_engine, reference)]
    ours, f = jax_engine.advance(plans[0], state, case.block)
    true, g = reference.advance(plans[1], state, case.block)
    np.testing.assert_allclose(f, g, atol=1e-12)
    assert_same(ours, true, atol=1e-12)
    scores = [
        e.predict(p, true.theta[0], true.bias[0], case.block.X)
        for e, p in zip((jax_engine, reference), plans, strict=True)
    ]
    np.testing.assert_allclose(*scores, atol=1e-12)


@pytest.mark.parametrize("reach", [0.3, 3.0, 1e3, 1e6])
@pytest.mark.parametrize(("dtype", "tol"), [(np.float32, 3e-7), (np.float64, 1e-14)])
def test_the_cosine_is_accurate_everywhere(dtype, tol, reach):
    u = np.linspace(-reach, reach, 100_001).astype(dtype)
    exact = u.astype(np.float64)
    exact = np.cos(2 * np.pi * (exact - np.rint(exact)))
    with jax_engine.precision(dtype):
        found = np.asarray(jax_traced.wave(jax.numpy.asarray(u)))
    assert found.dtype == dtype
    assert np.abs(found - exact).max() < tol


def test_pixels_are_held_exactly_and_projected_as_well_as_in_float32():
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (300, 100)) * (rng.random((300, 100)) < 0.2)
    X = (pixels / 255).astype(np.float32)
    rows = jax_chunks.Exact.of(jax.numpy.asarray(X))
    assert rows.shape == X.shape
    assert rows.unit == 1 / 255
    assert jax_chunks.Exact.of(jax.numpy.asarray(X + 0.1)) is None
    assert jax_chunks.Exact.of(jax.numpy.asarray(pixels.astype(np.float32))).unit == 1
    case = Case("pixels", d=100, D=64, n=50)
    index = rng.integers(0, 300, (50, 4))
    index[rng.random(index.shape) < 0.1] = -1
    Y = np.tanh(X[:, :1] - X[:, 1:2])
    true, f = reference.advance(
        reference.plan(case.problem, case.exchange), fresh(case), Block(X, Y, None, index)
    )
    plan = jax_engine.plan(case.problem, case.exchange, np.float32)
    for inputs in (X, rows):
        state, g = jax_engine.advance(plan, fresh(case, np.float32), Block(inputs, Y, None, index))
        np.testing.assert_allclose(g, f, atol=2e-5)
        scores = jax_engine.predict(plan, state.theta[0], state.bias[0], inputs)
        expected = reference.predict(
            reference.plan(case.problem, case.exchange), true.theta[0], true.bias[0], X
        )
        np.testing.assert_allclose(scores, expected, atol=2e-5)


@pytest.mark.parametrize("one_map", [True, False])
@pytest.mark.parametrize(
    "units", [(255, 1, 255), (1, 255, 1), (255, None, 1), (None, 255, 1), (1, 1, 1)]
)
def test_realizations_with_rows_of_different_units(units, one_map):
    """Pixels as 0 to 255, as 0 to 1, and rows that are no pixels, side by side."""
    case, rng = Case("pixels", d=20, D=64, n=30), np.random.default_rng(0)
    drawn = [sample(Gaussian(1.5), 20, 64, "cos", 0 if one_map else i) for i in range(3)]
    problems = [replace(case.problem, features=drawn[0 if one_map else i]) for i in range(3)]
    plans = [jax_engine.plan(problem, case.exchange, np.float32) for problem in problems]
    blocks, plain = [], []
    for unit in units:
        X = rng.integers(0, 4, (80, 20)).astype(np.float32) / (unit or 7)
        Y, index = np.tanh(X[:, :1] - X[:, 1:2]), rng.integers(0, 80, (30, 4))
        rows = jax_chunks.Exact.of(jax.numpy.asarray(X))
        assert (rows is None) == (unit is None)
        blocks.append(Block(jax.numpy.asarray(X) if rows is None else rows, Y, None, index))
        plain.append(Block(X, Y, None, index))
    states = [fresh(case, np.float32) for _ in units]
    found = jax_engine.advance_many(jax_engine.together(plans), states, blocks)
    for problem, block, (state, f) in zip(problems, plain, found, strict=True):
        true, g = reference.advance(reference.plan(problem, case.exchange), fresh(case), block)
        np.testing.assert_allclose(f, g, atol=2e-5)
        np.testing.assert_allclose(state.theta, true.theta, atol=2e-5)


def test_rows_used_again_are_loaded_once():
    case = Case("again", n=50, d=2)
    plan = jax_engine.plan(case.problem, case.exchange, np.float64)
    block = replace(case.block, index=np.concatenate([case.block.index] * 2))
    loaded = jax_engine.load(plan, block)
    assert isinstance(loaded.X, jax.Array)
    _, f = jax_engine.advance(plan, fresh(case), loaded)
    _, g = jax_engine.advance(plan, fresh(case), block)
    np.testing.assert_array_equal(f, g)
    assert isinstance(jax_engine.load(plan, case.block).X, np.ndarray)


# --- a user's own loss and schedule -----------------------------------------------------


def own_rate(n, q):
    return 0.5 / (0.01 + q) / np.sqrt(1 + 0 * n)


def plain_slope(y, f):
    return f - y


def numpy_slope(y, f):
    return np.where(np.abs(f - y) > 0.5, 0.5 * np.sign(f - y), f - y)


def untraceable(y, f):
    return max(f - y, f - y)


def value(y, f):
    return 0.5 * (f - y) ** 2


OWN = {
    "slope": (Loss("own", value, plain_slope), losses.squared()),
    "slope with NumPy": (Loss("own", None, numpy_slope), losses.huber(0.5)),
    "derivative of the value": (Loss("own", value, untraceable), losses.squared()),
    "value alone": (Loss("own", value, None), losses.squared()),
}


@pytest.mark.parametrize("own", OWN)
def test_own_losses_equal_the_built_in_ones(own):
    mine, theirs = OWN[own]
    case = Case("own", loss=theirs, m=3, order="atc", intercept=0.5, n=30)
    expected, f = run(case)
    state, g = run(replace(case, loss=mine))
    np.testing.assert_allclose(g, f, atol=1e-13)
    assert_same(state, expected, atol=1e-13)


def test_own_schedule_sees_counts_and_norms():
    case = Case("own", schedule=schedules.normalised(0.5, eps=0.01), missing=True, n=30)
    expected, f = run(case)
    state, g = run(replace(case, schedule=schedules.custom(own_rate)))
    np.testing.assert_allclose(g, f, atol=1e-13)
    assert_same(state, expected, atol=1e-13)


def test_what_cannot_be_traced_is_named():
    case = Case("untraceable", loss=Loss("odd", lambda y, f: float(f), untraceable))
    with pytest.raises(BadInput, match=r"engine 'jax' cannot run this .*use engine='reference'"):
        choose("jax", case.problem, case.exchange, None)
    vector = Loss("odd", lambda y, f: float(f), lambda y, f: np.ones(2) * f)
    with pytest.raises(choice.NotCompilable):
        jax_translate.traced_slope(vector)


# --- precision --------------------------------------------------------------------------


def test_float64_is_switched_on_for_the_call_alone():
    state, f = run(Case("wide", n=5))
    assert f.dtype == state.theta.dtype == np.float64
    assert jax.numpy.zeros(1).dtype == np.float32


def test_states_are_ours_to_change():
    state, _ = run(Case("own arrays", n=5, average="uniform"))
    for array in (state.theta, state.bias, state.mean_theta, state.mean_bias, state.count):
        array += 1


# --- choosing ---------------------------------------------------------------------------


def test_an_absent_package_is_named(monkeypatch):
    found = choice.importlib.util.find_spec
    monkeypatch.setattr(
        choice.importlib.util, "find_spec", lambda name: None if name == "jax" else found(name)
    )
    with pytest.raises(MissingExtra, match=r"engine 'jax' needs .*: pip install 'dokl\[jax\]'"):
        choose("jax", None, None, None)
    choice.gpu.cache_clear()
    assert choice.gpu() is None
    choice.gpu.cache_clear()


def test_auto_takes_a_gpu_for_much_work_and_says_so(monkeypatch):
    case = Case("auto", n=5)
    monkeypatch.setattr(choice, "gpu", lambda: None)
    assert choose("auto", case.problem, case.exchange, None, work=1e15)[0] == "numba"
    monkeypatch.setattr(choice, "gpu", lambda: "Thinking Machine")
    assert choose("auto", case.problem, case.exchange, None, work=1e5)[0] == "numba"
    with pytest.warns(EngineNotice, match="takes 'jax' on Thinking Machine"):
        name, module, plan = choose("auto", case.problem, case.exchange, None, work=1e15)
    assert (name, module, plan.dtype) == ("jax", jax_engine, np.float32)
    odd = replace(case, loss=Loss("odd", lambda y, f: float(f), untraceable))
    assert choose("auto", odd.problem, odd.exchange, None, work=1e15)[:2] == ("numba", numba_engine)


# --- several devices --------------------------------------------------------------------

ON_FOUR = """
import numpy as np
from dokl import losses, schedules
from dokl.base.arrays import Block
from dokl.paper.problems import example_problem
from dokl.simulation.diffusion import Problem, init
from dokl.network.exchange import Exchange
from dokl.simulation.engines import jax_engine as jaxed, reference
from dokl.learning.features import sample
from dokl.network.graphs import metropolis, ring
from dokl.learning.kernels import Gaussian
from dokl.simulation.methods import gradient
import jax

assert len(jax.local_devices()) == 4
rng = np.random.default_rng(0)
X, Y = rng.standard_normal((90, 3)), rng.standard_normal((90, 2))
jaxed.LARGE = 0
for variant, sizes in {"cos": (1, 3), "sobol": (1,), "structured": (1, 5)}.items():
    for runs in sizes:
        plans, truth = [], []
        for seed in range(runs):
            z = sample(Gaussian(1.5), 3, 22, variant, seed=seed)
            step = gradient(losses.squared(), schedules.normalised(0.5), 0.01)
            problem = Problem(z, step)
            exchange = Exchange(metropolis(ring(3)), "atc", 2, 0.5, "weighted")
            plans.append(jaxed.plan(problem, exchange, np.float64))
            index = rng.permutation(90).reshape(30, 3)
            index[rng.random(index.shape) < 0.2] = -1
            block, state = Block(X, Y, None, index), init(problem, exchange, 3, 2)
            truth.append((state, block, *reference.advance(
                reference.plan(problem, exchange), state, block)))
        batch = jaxed.together(plans)
        assert batch.mesh.axis_names == (("features",) if runs == 1 else ("runs",)), batch.mesh
        found = jaxed.advance_many(batch, [t[0] for t in truth], [t[1] for t in truth])
        for (state, f), (_, _, true, g) in zip(found, truth):
            np.testing.assert_allclose(f, g, atol=1e-12)
            for name in ("theta", "bias", "mean_theta", "mean_bias"):
                np.testing.assert_allclose(getattr(state, name), getattr(true, name), atol=1e-12)
        scores = jaxed.predict(plans[0], true.theta[0], true.bias[0], X)
        assert scores.shape == (90, 2)
print("same")
"""


@pytest.mark.slow
def test_four_devices_share_realizations_and_features():
    flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count=4"
    env = os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", ON_FOUR], env=env, capture_output=True, text=True
    )
    assert done.stdout == "same\n", done.stderr[-3000:]


# --- the fused kernel: what can be said without a GPU -----------------------------------


def test_links_come_in_pairs():
    graphs = [A.tocsr() for A in Exchange([metropolis(star(4)), np.full((4, 4), 0.25)]).graphs]
    pairs, starts = jax_fused.pair_links(graphs)
    assert starts.shape == (2, 5)
    assert not pairs[-2:].any()  # spare ones, for the kernel loads ahead
    for g, A in enumerate(graphs):
        for k in range(4):
            row = np.zeros(4)
            for i, a, j, b in pairs[starts[g, k] : starts[g, k + 1]]:
                row[i] += np.int32(a).view(np.float32)
                row[j] += np.int32(b).view(np.float32)
            np.testing.assert_allclose(row, A.toarray()[k], atol=1e-7)


@pytest.mark.parametrize("K", [1, 5, 20, 32])
@pytest.mark.parametrize("F", [1, 100, 300, 2500, 100_000])
@pytest.mark.parametrize("learners", [1, 100, 10_000])
def test_tiles_cover_all_frequencies_and_fit(monkeypatch, K, F, learners):
    monkeypatch.setattr(jax_fused, "multiprocessors", lambda: 132)
    sizes = jax_fused.Sizes(K, 1, 5, 1, int(K > 1), 0, 0, 0, 0, 0, 0, 0)
    tile = jax_fused.tile_for(sizes, F, learners, links=400)
    if tile is None:
        assert learners * K * F > 2e6  # too large for what each may have
        return
    assert tile.R % tile.G == 0
    assert tile.threads % 32 == 0
    blocks = -(-F // (tile.threads * tile.R))
    assert blocks == 1 or (tile.wide and blocks * learners <= 132)
    assert tile.threads * tile.blocks * 24 <= jax_fused.REGISTERS


def test_only_simple_problems_are_fused():
    rule = jax_translate.rule_of(Case("simple").problem, Case("simple").exchange)
    assert jax_fused.sizes_for(rule, 4, 1, 2, False).K == 4
    assert jax_fused.sizes_for(replace(rule, mixing="none"), 4, 1, 2, False).K == 1
    for other in ({"loss": plain_slope}, {"rate": "normalised"}, {"mixing": "edges"}):
        assert jax_fused.sizes_for(replace(rule, **other), 4, 1, 2, False) is None
    sizes = jax_fused.Sizes(33, 1, 5, 1, 1, 0, 0, 0, 0, 0, 0, 0)
    assert jax_fused.tile_for(sizes, 100, 1) is None


@pytest.mark.skipif(not jax_fused.available(), reason="needs an NVIDIA GPU and nvcc")
@pytest.mark.parametrize("share", [4000, 8])
@pytest.mark.parametrize("name", ["plain", "alone", "logistic", "huber", "every third, atc"])
def test_the_kernel_follows_the_truth(monkeypatch, name, share):
    monkeypatch.setattr(jax_chunks, "FUSED_FROM", 0)
    monkeypatch.setattr(jax_fused, "SHARE", share)
    case = replace(named[name], n=50)
    assert math.isfinite(case.loss.curvature)
    follows(case, *run(case, np.float32), 1e-4)


def test_where_the_kernel_does_not_compile_the_scan_takes_over(monkeypatch, tmp_path):
    monkeypatch.setattr(jax_fused, "available", lambda: True)
    monkeypatch.setattr(jax_fused, "multiprocessors", lambda: 132)
    monkeypatch.setattr(jax_fused, "_architecture", lambda: "sm_90")
    monkeypatch.setattr(jax_fused, "nvcc", lambda: sys.executable)  # no compiler at all
    monkeypatch.setattr(jax_fused, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(jax_chunks, "FUSED_FROM", 0)
    case = replace(named["plain"], n=50)
    with pytest.warns(EngineNotice, match="kernel does not compile here .*: using the slower scan"):
        state, f = run(case, np.float32)
    follows(case, state, f, 1e-4)


def test_the_kernel_travels_with_the_package():
    assert jax_fused.SOURCE.is_file()
    assert jax_fused.SOURCE.with_suffix(".cuh").is_file()
