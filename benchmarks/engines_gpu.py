"""The JAX engine on a GPU: `python -m benchmarks.engines_gpu [section ...] [--data FOLDER]`.

Sections: limits (the card's own), examples (the paper's sizes, scan and fused kernel), products
(what rounding the projection's factors costs), mnist (time of an epoch at D = 100,000), column
(the paper's MNIST column). The last two read the four MNIST files from FOLDER.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dokl import losses, schedules
from dokl.base.arrays import Block
from dokl.learning.features import Features
from dokl.learning.kernels import Gaussian
from dokl.network.exchange import Exchange
from dokl.network.graphs import GraphRecipe
from dokl.paper.datasets import load
from dokl.paper.reproduce.mnist import draw
from dokl.paper.reproduce.mnist import work as mnist_work
from dokl.paper.reproduce.settings import ReproduceOptions, classification
from dokl.simulation.diffusion import Problem, init
from dokl.simulation.engines import jax_chunks, jax_engine, jax_fused, jax_traced
from dokl.simulation.methods import gradient

# name: nodes, D, realizations, floor of a plain scan and of a fused prototype in ns
SIZES = {
    "Example 2": (20, 300, 1000, 5.2, 1.0),
    "Example 1": (20, 2500, 100, 44.0, None),
    "single node": (1, 2500, 500, 36.0, 4.8),
}
LANES = 132 * 128  # fused multiply-adds an H200 starts per clock
CLOCK = 1.98e9


def seconds(job: Callable[[], Any], repeats: int = 5) -> float:
    """Median time of a job that returns JAX arrays, after one that does not count."""
    jax.block_until_ready(job())
    taken = []
    for _ in range(repeats):
        began = time.perf_counter()
        jax.block_until_ready(job())
        taken.append(time.perf_counter() - began)
    return float(np.median(taken))


def limits() -> dict[str, Any]:
    """Bytes a second of a copy, multiply-adds a second of a float32 product."""
    a = jnp.arange(1 << 28, dtype=jnp.float32)
    copy = jax.jit(lambda a: a + 1)
    x = jax.random.normal(jax.random.key(0), (8192, 8192))
    found = {"copy TB/s": 2 * a.nbytes / seconds(lambda: copy(a)) / 1e12}
    for name, precision in {"float32": "highest", "tf32": "high", "default": "default"}.items():
        product = jax.jit(lambda x, p=precision: jnp.matmul(x, x, precision=p))
        found[f"product {name} TFLOP/s"] = 2 * 8192**3 / seconds(lambda f=product: f(x)) / 1e12
    return found


def work_of(K: int, D: int, runs: int, n: int, order: str = "cta") -> jax_chunks.ChunkedCall:
    """`runs` realizations of a network on random samples, each with its own features and graph."""
    rng = np.random.default_rng(0)
    loss, schedule = losses.squared(), schedules.constant(0.5)
    recipe, graph = Features(Gaussian(5.0), 5, D), GraphRecipe("random", K)
    plans, states, blocks = [], [], []
    for seed in range(runs):
        problem = Problem(recipe.draw(seed), gradient(loss, schedule))
        exchange = Exchange(graph.draw(seed) if K > 1 else None, order)
        plans.append(jax_engine.plan(problem, exchange, np.float32))
        X = rng.standard_normal((n * K, 5), np.float32)
        Y = np.tanh(X[:, :1]) + 0.1 * rng.standard_normal((n * K, 1), np.float32)
        blocks.append(Block(X, Y, None, np.arange(n * K).reshape(n, K)))
        states.append(init(problem, exchange, K, 1, np.float32))
    return jax_chunks.ChunkedCall(jax_engine.together(plans), states, blocks)


def per_step(work: jax_chunks.ChunkedCall, steps: int) -> tuple[float, Any, Any]:
    """Seconds per node and step on the device, and what came out."""
    function, arrays = work.chunk(work.memory(), 0, steps, steps)
    arrays = jax.device_put(arrays)
    taken = seconds(lambda: function(arrays))
    memory, f = function(arrays)
    theta, f = np.asarray(memory["memory.theta"]), np.asarray(f)
    return taken / (len(work.blocks) * work.K * steps), theta, f


def operations(K: int, D: int, links: float) -> float:
    """Multiply-adds (or other float32 instructions) a node and step needs, at least."""
    projection, cosine, dot, update = 5, 10, 1, 1
    return D * (projection + cosine + dot + update + (links / K if K > 1 else 0))


def examples(tiles: bool = False) -> list[dict[str, Any]]:
    rows = []
    for name, (K, D, runs, scan_floor, fused_floor) in SIZES.items():
        steps = 256
        work = work_of(K, D, runs, steps)
        links = float(np.mean([p.graphs[0].nnz for p in work.batch.plans])) if K > 1 else 0.0
        limit = operations(K, D, links) / (LANES * CLOCK)
        work.__dict__["fused"] = None
        scan, theta, f = per_step(work, steps)
        row = {"what": name, "scan ns": scan * 1e9, "scan floor ns": scan_floor}
        if tiles:
            for unroll in (1, 8):
                jax_chunks.UNROLL = unroll
                work.__dict__.pop("rule")
                row[f"unroll {unroll}"] = per_step(work, steps)[0] * 1e9
            jax_chunks.UNROLL = 4
        work.__dict__.pop("rule")
        row["limit ns"] = limit * 1e9
        rows.append(row)
        del work.__dict__["fused"]
        jax_chunks.FUSED_FROM = 0
        if work.fused is None:
            continue
        sizes, best = work.fused
        for tile in _variants(sizes, D, best) if tiles else [best]:
            work.__dict__["fused"] = (sizes, tile)
            one = {} if tile == best else {"what": name}
            try:
                found, theta2, f2 = per_step(work, steps)
            except Exception as error:
                rows.append({"what": name, "tile": str(tuple(tile)), "error": str(error)[:200]})
                continue
            one |= {"fused ns": found * 1e9, "fused floor ns": fused_floor}
            one |= {"tile": str(tuple(tile)), "of the limit": limit / found}
            one |= {"largest difference in f": float(np.abs(f - f2).max())}
            one |= {"in theta": float(np.abs(theta - theta2).max())}
            if tile == best:
                row |= one
            else:
                rows.append(one)
    return rows


def _variants(sizes: Any, F: int, best: Any) -> list[Any]:
    """Other tiles than the one chosen, compiled."""
    found = [best]
    for tile in [*jax_fused._whole(sizes, F), *jax_fused._in_groups(sizes, F)]:
        if (
            jax_fused._shared_bytes(sizes, tile, 200) > jax_fused.SHARED
            or tile.threads * tile.R > 1.2 * F
        ):
            continue
        if tile.R == tile.G:
            found += [tile, tile._replace(blocks=tile.blocks + 1)]
        elif tile.threads > 300:
            found += [tile, tile._replace(G=1)]
    with ThreadPoolExecutor(14) as pool:  # nvcc is the slow part
        list(pool.map(lambda tile: jax_fused.build(sizes, tile), dict.fromkeys(found)))
    return list(dict.fromkeys(found))


PRESETS = ("F32_F32_F32", "TF32_TF32_F32_X3", "BF16_BF16_F32_X6", "BF16_BF16_F32_X3",
           "TF32_TF32_F32", "BF16_BF16_F32")  # fmt: skip


def products(rows: int = 4096, d: int = 784, F: int = 100_000) -> list[dict[str, Any]]:
    """Projection of MNIST-like rows: time, and error of features against float64."""
    rng = np.random.default_rng(0)
    x = (rng.integers(0, 256, (rows, d)) * (rng.random((rows, d)) < 0.19) / 255).astype(np.float32)
    omega = (rng.standard_normal((d, F), np.float32) / 4 / (2 * np.pi)).astype(np.float32)
    exact = x[:64].astype(np.float64) @ omega[:, :4096].astype(np.float64)
    exact = np.cos(2 * np.pi * exact)
    x_d, omega_d, found = jnp.asarray(x), jnp.asarray(omega), []
    for name in PRESETS:
        preset = getattr(jax.lax.DotAlgorithmPreset, name)
        function = jax.jit(lambda x, w, p=preset: jnp.matmul(x, w, precision=p))
        try:
            taken = seconds(lambda f=function: f(x_d, omega_d))
            u = np.asarray(function(x_d, omega_d)[:64, :4096], np.float64)
        except Exception as error:
            found.append({"what": name, "error": str(error)[:200]})
            continue
        row = {"what": name, "TFLOP/s": 2 * rows * d * F / taken / 1e12}
        row["largest error of cos"] = float(np.abs(np.cos(2 * np.pi * u) - exact).max())
        row["s an epoch"] = taken * 60000 / rows
        found.append(row)
    return found


def mnist(folder: Path) -> list[dict[str, Any]]:
    """Seconds of an epoch for one realization."""
    data = load("mnist", folder)
    drawn, rows = draw(data, classification("mnist"), len(data.y), 0), []
    floors, X = {5: 0.19, 20: 0.10}, None
    for name, network in drawn.networks.items():
        K, exchange = network.nodes, network.exchange
        plan = jax_engine.plan(drawn.problem, exchange, np.float32)
        X = jax_engine.on_device(plan, drawn.rows.X_train) if X is None else X
        state = init(drawn.problem, exchange, K, 1, np.float32)
        y = drawn.rows.y_train[:, None]
        block = Block(X, y, None, np.arange(len(y)).reshape(-1, K))
        jax_engine.advance(plan, state, block)
        began = time.perf_counter()
        jax_engine.advance(plan, state, block)
        taken = time.perf_counter() - began
        row = {"what": name, "s an epoch": taken, "floor": floors[K]}
        row["of it features"] = _features_alone(plan, state, block)
        row["steps"] = block.n
        rows.append(row)
        print(row, flush=True)
    return rows


def _features_alone(plan: Any, state: Any, block: Block) -> float:
    """Seconds an epoch takes to compute features, and nothing else."""
    work = jax_chunks.ChunkedCall(jax_engine.alone(plan), [state], [block])
    steps = work.longest()
    _, arrays = work.chunk(work.memory(), 0, steps, steps)
    map = {name[4:]: a for name, a in arrays.items() if name.startswith("map.")}
    function = jax.jit(lambda map, x: jax_traced.features(work.rule, map, x))
    return seconds(lambda: function(map, arrays["step.x"][0])) * block.n / steps


def column(folder: Path) -> list[dict[str, Any]]:
    """The paper's MNIST column: test error in % after passes 1, 2 and 5, and the time of it all."""
    began = time.perf_counter()
    with TemporaryDirectory() as out:
        options = ReproduceOptions(Path(out), engine="jax", data_dir=folder, show_progress=True)
        work = {"mnist": mnist_work(options.dataset("mnist"), options)}
        errors = options.gather("mnist", work)["mnist"].arrays
    rows: list[dict[str, Any]] = []
    for name, each in errors.items():
        mean, spread = each.mean(axis=0), each.std(axis=0, ddof=1) / np.sqrt(len(each))
        rows.append(
            {"what": name, "error %": mean.round(2).tolist(), "se": spread.round(2).tolist()}
        )
    rows.append({"what": "whole column", "s": time.perf_counter() - began})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("section", nargs="*", default=["limits", "examples", "products"])
    parser.add_argument("--data", type=Path, help="folder of the MNIST files")
    parser.add_argument("--tiles", action="store_true", help="also try other tiles of the kernel")
    parser.add_argument("--json", type=Path, help="write the figures there, too")
    args = parser.parse_args()
    print(jax.__version__, jax.devices(), "fused:", jax_fused.available())
    done = {}
    for name in args.section:
        began = time.perf_counter()
        if name in ("mnist", "column"):
            done[name] = globals()[name](args.data)
        elif name == "examples":
            done[name] = examples(args.tiles)
        else:
            done[name] = globals()[name]()
        print(f"== {name} ({time.perf_counter() - began:.0f} s)")
        for row in done[name] if isinstance(done[name], list) else [done[name]]:
            shown = {k: float(f"{v:.4g}") if isinstance(v, float) else v for k, v in row.items()}
            print(shown, flush=True)
        if args.json:
            args.json.write_text(json.dumps(done, indent=1))


if __name__ == "__main__":
    main()
