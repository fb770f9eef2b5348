"""Passes over many rows on a GPU, by JAX: what `squares.passes` does, to rounding.

Features, what they predict, and sums of a chunk of rows are matrix products; the device keeps the
sums, and the last solution is made here. Used by itself where JAX sees a GPU and rows are many.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np

from dokl.base.arrays import Array
from dokl.learning.experts.maps import NestedMap
from dokl.learning.squares import passes
from dokl.learning.squares.memory import FIRST_NOISE, FIRST_ROWS, LEAST_NOISE
from dokl.learning.squares.passes import Pass
from dokl.learning.squares.sums import Sums

# Below, to start JAX takes longer than the pass; and rows that are on the device at once.
MANY_ROWS, CHUNK = 50_000, 8192


@cache
def present() -> bool:
    """Whether there is a GPU that JAX can use."""
    if importlib.util.find_spec("jax") is None:
        return False
    import jax

    return bool(jax.default_backend() == "gpu")


def pays(rows: int) -> bool:
    """Whether to pass over n rows on a GPU."""
    return rows >= MANY_ROWS and present()


def learn(known: Pass, made: NestedMap, width: int, X: Array, Y: Array, w: Array) -> Pass:
    """The pass after standardised rows X: (n, d), targets Y: (n, m) in units of the map, of
    positive weight: (n,), by the first `width` numbers of its features. Raises NotDefinite.
    """
    import jax

    at = min(len(X), max(0, passes.FIRST - known.sums.rows))
    if at:
        known = passes.learn(known, made.transform(X[:at], width), Y[:at], w[:at])
    if at == len(X):
        return known
    given = X[at:] if made.ranks is None else made.ranks.of(X[at:])
    with jax.enable_x64(True):
        return _pass_rows(known, _step(made, width, known), given, Y[at:], w[at:])


def _pass_rows(known: Pass, step: Callable[..., Any], X: Array, Y: Array, w: Array) -> Pass:
    """The pass after further rows, with its newest solution not made yet."""
    import jax.numpy as jnp

    memory, sums = passes.solve(known), known.sums
    judge = jnp.asarray(memory.theta), jnp.asarray(memory.covariance()), jnp.asarray(memory.noise)
    full = np.tril(sums.zz) + np.tril(sums.zz, -1).T
    counts = jnp.asarray([0.0, *known.squares])
    held = jnp.asarray(full), jnp.asarray(sums.zy), jnp.asarray(sums.yy), counts
    rows, weight, due = sums.rows, sums.weight, 2 * known.solved
    for at in range(0, len(X), CHUNK):
        if rows >= due:
            judge, due = _solution()(known.numbers.rho, weight, *held), 2 * rows
        some = X[at : at + CHUNK], Y[at : at + CHUNK], w[at : at + CHUNK]
        held = step(held, judge, *(jnp.asarray(_pad(part)) for part in some))
        rows, weight = rows + len(some[0]), weight + float(some[2].sum())
    zz, zy, yy, (moved, raw, calm) = (np.array(part) for part in held)
    total = Sums(rows, weight, np.asfortranarray(np.tril(zz)), zy, yy)
    return replace(known, sums=total, moved=known.moved + int(moved), squares=(raw, calm))


@cache
def _solution() -> Callable[..., Any]:
    """A compiled function: theta, P and the noise by sums, to judge further rows by."""
    import jax
    import jax.numpy as jnp
    from jax.scipy.linalg import cho_factor, cho_solve

    def solve(rho: Any, weight: Any, zz: Any, zy: Any, yy: Any, counts: Any) -> Any:
        factor = cho_factor(zz + rho * jnp.eye(len(zz)), lower=True)
        P = cho_solve(factor, jnp.eye(len(zz)))
        theta, share = zy @ P, counts[2] / jnp.maximum(counts[1], 1e-300)
        left = jnp.maximum(yy - (theta * zy).sum(1), 0.0) * share
        noise = (FIRST_NOISE * FIRST_ROWS + left) / (FIRST_ROWS + weight)
        return theta, P, jnp.maximum(noise, LEAST_NOISE)

    return jax.jit(solve)


def _pad(rows: Array) -> Array:
    """Chunks of one size are compiled once; rows of weight 0 add nothing."""
    short = CHUNK - len(rows)
    return np.concatenate([rows, np.zeros((short, *rows.shape[1:]))]) if short else rows


def _step(made: NestedMap, width: int, known: Pass) -> Callable[..., Any]:
    """A compiled function: sums with a chunk of rows, judged by a solution."""
    import jax.numpy as jnp
    from scipy.linalg import solve_triangular

    d, s, M = made.centres.shape[1], made.scales, width - 1 - made.centres.shape[1]
    # Products take a hundredth of the time of triangular solutions there.
    inverse = solve_triangular(made.lower[:M, :M], np.eye(M), lower=True)
    back, line = s.amplitude * inverse.T, np.broadcast_to(s.linear / math.sqrt(d), d)
    arrays = tuple(map(jnp.asarray, (made.centres[:M], back, s.lengths, line)))
    return partial(_compile(made.kernel, known.numbers.bound, known.numbers.calm), arrays)


@cache
def _compile(kernel: str, bound: float, calm: float) -> Callable[..., Any]:
    """For all maps of a kernel: what differs between them are arguments, as large constants would
    take seconds to compile.
    """
    import jax
    import jax.numpy as jnp

    def features(arrays: Any, X: Any) -> Any:
        U, back, lengths, line = arrays
        V = X / lengths
        apart = (V * V).sum(1)[:, None] + (U * U).sum(1) - 2.0 * V @ U.T
        apart = jnp.maximum(apart, 0.0)
        if kernel == "gaussian":
            K = jnp.exp(-0.5 * apart)
        else:
            r = jnp.sqrt(3.0 * apart)
            K = (1.0 + r) * jnp.exp(-r)
        return jnp.concatenate([jnp.ones((len(X), 1)), X * line, K @ back], axis=1)

    def step(arrays: Any, held: Any, judge: Any, X: Any, Y: Any, w: Any) -> Any:
        (zz, zy, yy, counts), (theta, P, noise) = held, judge
        Z, there = features(arrays, X), w > 0.0
        f = Z @ theta.T
        variance = (1.0 / jnp.where(there, w, 1.0) + ((Z @ P) * Z).sum(1))[:, None] * noise
        error = Y - f
        size = jnp.where(there, jnp.mean(error**2 / variance, axis=1), 0.0)
        moved = size > bound**2 * jnp.maximum(w, 1.0)
        short = jnp.where(moved, bound / jnp.sqrt(jnp.maximum(size, 1e-300)), 1.0)
        Y, size, n = f + short[:, None] * error, jnp.where(moved, bound**2, size), there.sum()
        most, level = calm**2 * jnp.maximum(w, 1.0), size.sum() / n
        for _ in range(5 if calm < math.inf else 0):
            level = jnp.minimum(size, most * level).sum() / n
        root = jnp.sqrt(w)[:, None]
        A, B = Z * root, Y * root
        counts = counts + jnp.stack([moved.sum(), size.sum(), level * n])
        return zz + A.T @ A, zy + B.T @ A, yy + (B * B).sum(0), counts

    return jax.jit(step)
