"""Experts side by side on a GPU: `OPENBLAS_NUM_THREADS=1 python -m benchmarks.experts_gpu`.

E experts of exact least squares, each with features and a matrix P of its own, learn in blocks of B
rows by `engines.jax_blocks`; beside them sixteen on all cores of the CPU, by BLAS. Of the traffic
to memory only what is needed is counted: P read for P Z', and read and written for P - W'W.

With --fit ROWS instead: `AutoRegressor().fit` of n rows of 10 inputs, all experts, with the
GPU and (unless --no-cpu) without.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dokl import AutoRegressor
from dokl.learning.experts import device
from dokl.learning.squares import blocks
from dokl.learning.squares.memory import Memory, Numbers, start
from dokl.simulation.engines import jax_blocks
from dokl.simulation.engines.jax_blocks import BlockNumbers, Known

PEAK = 4.8  # TB/s of an H200's memory, by its data sheet
RHO, BOUND = 0.01, 10.0
LAMS = (1.0, 0.9999, 0.999, 0.99)  # experts take turns


def median_seconds(job: Callable[[], Any], repeats: int = 5) -> float:
    """Of a job that returns JAX arrays, after one that does not count."""
    taken = []
    for _ in range(repeats + 1):
        began = time.perf_counter()
        jax.block_until_ready(job())
        taken.append(time.perf_counter() - began)
    return float(np.median(taken[1:]))


def rows_of(key: int, shape: tuple[int, ...]) -> tuple[Any, Any]:
    """Features (..., B, D) of length one, and noisy targets (..., B, 1)."""
    Z = jax.random.normal(jax.random.key(key), shape)
    Z = Z / jnp.sqrt((Z * Z).sum(axis=-1, keepdims=True))
    return Z, Z.sum(axis=-1, keepdims=True) + 0.1 * jax.random.normal(
        jax.random.key(key + 1), (*shape[:-1], 1)
    )


def nothing(E: int, D: int) -> tuple[BlockNumbers, Known]:
    """E experts that know nothing."""
    one = jnp.ones(E)
    settings = BlockNumbers(RHO * one, jnp.asarray(np.resize(LAMS, E)), BOUND * one)
    P = jnp.zeros((E, D, D)) + jnp.eye(D) / RHO
    theta, num, den = jnp.zeros((E, 1, D)), 0.1 * jnp.ones((E, 1)), 10.0 * one
    return settings, Known(theta, P, one, 0.0 * one, num, den)


@partial(jax.jit, donate_argnums=1)
def learned(settings: BlockNumbers, known: Known, Z: Any, Y: Any, w: Any) -> tuple[Known, Any]:
    """Z: (blocks, E, B, D), Y: (blocks, E, B, 1), w: (E, B); what is known, and f as Y."""

    def one(known: Known, step: Any) -> Any:
        return jax_blocks.block(settings, known, *step, w)[:2]

    return lax.scan(one, known, (Z, Y))  # type: ignore[no-any-return]


def on_device(E: int, D: int, B: int, n: int) -> tuple[float, float]:
    """Seconds of a block of all experts, and how far the last of them is from BLAS on the CPU."""
    Z, Y = rows_of(0, (n, E, B, D))
    (settings, known), w = nothing(E, D), jnp.ones((E, B))
    box = list(learned(settings, known, Z, Y, w))
    numbers = Numbers(RHO, LAMS[(E - 1) % len(LAMS)], BOUND)
    flat = np.asarray(Z[:, -1]).reshape(-1, D), np.asarray(Y[:, -1]).reshape(-1, 1)
    _, found = blocks.learn(numbers, start(D, 1, RHO), *flat)
    apart = float(np.abs(np.asarray(box[1][:, -1]).reshape(-1, 1) - found.f).max())

    def job() -> Any:
        box[:] = learned(settings, box[0], Z, Y, w)
        return box[0].P

    return median_seconds(job) / n, apart


def on_cpu(D: int, experts: int, rows: int = 512) -> float:
    """Rows a second times experts, by BLAS, on as many cores as there are."""
    Z, Y = (np.asarray(each) for each in rows_of(7, (rows, D)))
    known = [start(D, 1, RHO) for _ in range(experts)]

    def one(i: int) -> Memory:
        return blocks.learn(Numbers(RHO, LAMS[i % len(LAMS)], BOUND), known[i], Z, Y)[0]

    with ThreadPoolExecutor(os.cpu_count()) as pool:

        def job() -> None:
            known[:] = pool.map(one, range(experts))

        return experts * rows / median_seconds(job, 3)


def ceilings(n: int) -> None:
    """What the device itself reaches: a copy, and a product of matrices."""
    x = jnp.ones((4 * n, n))
    copy = 2 * x.nbytes / median_seconds(partial(jax.jit(lambda x: x + 1), x)) / 1e12
    a = jax.random.normal(jax.random.key(0), (n, n))
    flops = 2 * n**3 / median_seconds(partial(jax.jit(jnp.matmul), a, a)) / 1e12
    print(f"{jax.devices()[0].device_kind}: copy {copy:.2f} TB/s, float64 {flops:.1f} TFLOP/s")


def fit(rows: int, cpu: bool) -> None:
    """Seconds of `AutoRegressor().fit`, and its error on rows that it has not seen."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows + 5000, 10))
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.5 * X[:, 3] + 0.1 * rng.normal(size=len(X))
    AutoRegressor(random_state=0).fit(X[:500], y[:500])  # whatever is loaded at first use
    runs = [("GPU, with compiling", True), ("GPU", True), *([("CPU", False)] * cpu)]
    for name, there in runs:
        device.present = lambda there=there: there  # type: ignore[misc,assignment]
        began = time.perf_counter()
        model = AutoRegressor(random_state=0).fit(X[:rows], y[:rows])
        seconds = time.perf_counter() - began
        error = float(np.mean((model.predict(X[rows:]) - y[rows:]) ** 2))
        print(
            f"fit of {rows:,} rows, {name}: {seconds:.1f} s, squared error {error:.5f}", flush=True
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--experts", type=int, nargs="+", default=[16, 128, 1024])
    parser.add_argument("--features", type=int, nargs="+", default=[500, 1000])
    parser.add_argument("--rows", type=int, nargs="+", default=[64, 128], help="of a block")
    parser.add_argument("--blocks", type=int, default=4, help="of one call")
    parser.add_argument("--fit", type=int, metavar="ROWS", help="fit a model of n rows")
    parser.add_argument("--no-cpu", action="store_true", help="with --fit: only with the GPU")
    args = parser.parse_args()
    if args.fit:
        fit(args.fit, not args.no_cpu)
        return
    jax.config.update("jax_enable_x64", True)
    ceilings(8192 if jax.default_backend() != "cpu" else 512)
    print("   D    E    B   ms/block    rows/s x E   TB/s share  TFLOP/s  apart by")
    for D in args.features:
        one, many = on_cpu(D, 1), on_cpu(D, 16)
        print(f"{D:4d} on the CPU: {one:.3g} rows/s by one expert, {many:.3g} x E by 16 in threads")
        for E, B in product(args.experts, args.rows):
            seconds, apart = on_device(E, D, B, args.blocks)
            moved, flops = 24 * E * D * D / seconds / 1e12, 4 * E * B * D * D / seconds / 1e12
            print(
                f"{D:4d} {E:4d} {B:4d} {1e3 * seconds:10.3f} {E * B / seconds:13.3g} {moved:6.2f} "
                f"{moved / PEAK:5.0%} {flops:8.1f} {apart:9.0e}",
                flush=True,
            )


if __name__ == "__main__":
    main()
