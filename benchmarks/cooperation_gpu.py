"""Cooperation on a GPU: `OPENBLAS_NUM_THREADS=1 python -m benchmarks.cooperation_gpu`.

Networks whose nodes have own, shared and corrected experts, 14 each, many realizations at once by
one JAX program. Beside it BLAS on the CPU: one realization in one thread, and as many as there are
cores in threads. All learn the same rows, in calls of so many steps; the first call, with
compilation, is timed apart. Rows a second are those of all nodes and realizations together.
"""

from __future__ import annotations

import argparse
import os
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import Any

import jax
import numpy as np

from dokl.arrays import Array, Block
from dokl.diffusion import Problem, init
from dokl.engines import cooperating, jax_cooperating
from dokl.exchange import Exchange
from dokl.features import Features
from dokl.graphs import GraphRecipe
from dokl.kernels import Gaussian
from dokl.methods import cooperation
from dokl.state import State

INPUTS = 8


def networks(K: int, D: int, every: int, runs: int, n: int) -> tuple[list[Any], list[Any]]:
    """Problems with their exchanges, and blocks of n steps; each has its own map, graph, rows."""
    rng, pairs, blocks = np.random.default_rng(0), [], []
    recipe, graph = Features(Gaussian(3.0), INPUTS, D, "paired"), GraphRecipe("random", K)
    for seed in range(runs):
        problem = Problem(recipe.draw(seed), cooperation(0.01))
        pairs.append((problem, Exchange(graph.draw(seed), every=every)))
        X = rng.standard_normal((n * K, INPUTS))
        Y = np.sin(X[:, :1]) * X[:, 1:2] + 0.1 * rng.standard_normal((n * K, 1))
        blocks.append(Block(X, Y, None, np.arange(n * K).reshape(n, K)))
    return pairs, blocks


def by_jax(pairs: list[Any], blocks: list[Block], calls: int) -> tuple[float, float, Array]:
    """Seconds of the first call and of a later one, and what the first network said first."""
    batch = jax_cooperating.together([jax_cooperating.plan(*pair) for pair in pairs])
    states, taken = [init(*pair, one.index.shape[1]) for pair, one in both(pairs, blocks)], []
    said = list[Array]()
    for _ in range(calls + 1):
        began = time.perf_counter()
        found = jax_cooperating.advance_many(batch, states, blocks)
        taken.append(time.perf_counter() - began)
        said.append(found[0][1])
        states = [state for state, _ in found]
    return taken[0], float(np.median(taken[1:])), said[0]


def by_blas(pairs: list[Any], blocks: list[Block], threads: int) -> tuple[float, Array]:
    """Seconds of a call of each network, and what the first one said."""

    def one(given: Any) -> tuple[State, Array]:
        pair, block = given
        state = init(*pair, block.index.shape[1])
        return cooperating.advance(cooperating.plan(*pair), state, block)

    with ThreadPoolExecutor(threads) as pool:
        began = time.perf_counter()
        found = list(pool.map(one, both(pairs, blocks)))
        return time.perf_counter() - began, found[0][1]


def both(pairs: list[Any], blocks: list[Block]) -> list[tuple[Any, Block]]:
    """Networks with their rows."""
    return list(zip(pairs, blocks, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=[12])
    parser.add_argument("--features", type=int, nargs="+", default=[100, 300])
    parser.add_argument("--every", type=int, nargs="+", default=[1, 10])
    parser.add_argument("--runs", type=int, nargs="+", default=[1, 10, 50])
    parser.add_argument("--steps", type=int, default=512, help="of one call")
    parser.add_argument("--calls", type=int, default=2, help="after the first")
    args = parser.parse_args()
    print(jax.__version__, jax.devices()[0].device_kind, f"{os.cpu_count()} cores")
    print("   K    D every  runs   first s  later s   rows/s x K x runs   apart by")
    for K, D, every in product(args.nodes, args.features, args.every):
        cores = min(os.cpu_count() or 1, max(args.runs))
        for runs in sorted({1, cores}):
            pairs, blocks = networks(K, D, every, runs, args.steps)
            spent, true = by_blas(pairs, blocks, runs)
            speed = runs * K * args.steps / spent
            print(f"{K:4d} {D:4d} {every:5d} {runs:5d} {'BLAS':>9} {spent:8.2f} {speed:19.3g}")
        for runs in args.runs:
            pairs, blocks = networks(K, D, every, runs, args.steps)
            first, spent, said = by_jax(pairs, blocks, args.calls)
            speed, apart = runs * K * args.steps / spent, np.abs(said - true).max()
            print(
                f"{K:4d} {D:4d} {every:5d} {runs:5d} {first:9.1f} {spent:8.2f} {speed:19.3g} "
                f"{apart:10.0e}",
                flush=True,
            )


if __name__ == "__main__":
    main()
