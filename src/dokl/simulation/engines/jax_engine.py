"""The JAX engine: many realizations at once, on a GPU, on several devices, or on the CPU.

`plan` turns a problem into arrays; `together` puts the plans of many realizations on the device;
`advance` runs a block of one, `advance_many` a block of each. Two ways to compute the same:

- `traced`: a scan over steps. Any loss JAX can trace, any size, float32 or float64.
- `fused`: a CUDA kernel, one thread block per realization with theta on the chip, for small
  networks in float32 with built-in losses, where an NVIDIA GPU and nvcc are there.

Products of float32 numbers are computed in full (`Precision.HIGHEST`). Rounding the factors of the
projection to tf32 or bfloat16, as GPUs do by default, moves x'omega by up to 2^-11 or 2^-9 of its
size, and the features with it; `docs/engines.md` says what that costs. float64 is switched on
for the calls that ask for it, and left as it was found.

Several devices share the realizations; a single large network is shared column by column: the
combination needs no other columns, and only the K m predictions are summed over devices.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from dokl.base.arrays import Array, Block, is_sparse
from dokl.network.exchange import Exchange
from dokl.network.state import State
from dokl.simulation.diffusion import Problem, check_block, check_index, check_progress
from dokl.simulation.engines import jax_fused, jax_traced, jax_translate, rounds
from dokl.simulation.engines.jax_chunks import (
    Batch,
    ChunkedCall,
    Exact,
    JaxPlan,
    fill_up,
    rows_of,
    scratch_bytes,
)

__all__ = ["JaxPlan", "advance", "advance_many", "plan", "predict", "step"]

# From this many numbers in theta on, one network is worth dividing over devices.
LARGE = 2_000_000


def plan(problem: Problem, exchange: Exchange, dtype: Any = np.float32) -> JaxPlan:
    """Prepare a problem (its features drawn) for `advance`; raises NotCompilable.

    Where the exchange has rules of its own, the device runs nodes alone, from round to round.
    """
    dtype = np.dtype(dtype).type
    graphs = exchange.graphs if exchange.plain else []
    rule = jax_translate.rule_of(problem, exchange)
    numbers = jax_translate.map_numbers(problem.map, dtype)
    graph = jax_translate.graph_numbers(graphs, rule.mixing, dtype)
    if rule.mixing == "dense" and dtype == np.float32 and jax_fused.available():
        graph["pairs"], graph["starts"] = jax_fused.pair_links(graphs)
    return JaxPlan(problem, exchange, dtype, rule, numbers, graph, graphs)


def precision(dtype: Any) -> AbstractContextManager[Any]:
    """float64 for the time of a call that asks for it."""
    return jax.enable_x64(True) if dtype == np.float64 else nullcontext()


def together(plans: Sequence[JaxPlan]) -> Batch:
    """The plans of many realizations, on the device; they must be of one kind and size."""
    first = plans[0]
    mesh, width = _devices(first, len(plans))
    one_map = all(p.problem.map is first.problem.map for p in plans)
    one_graph = all(p.exchange.weights is first.exchange.weights for p in plans)
    exchange, problem = first.exchange, first.problem
    numbers = {
        "lam": problem.gradient.lam,
        "c": exchange.intercept,
        "eps": problem.gradient.schedule.eps,
    }
    numbers["p"] = 0.0 if problem.gradient.loss.p is None else problem.gradient.loss.p
    with precision(first.dtype):
        arrays = {f"number.{name}": first.dtype(value) for name, value in numbers.items()}
        own = set()
        for group, same in (("map", one_map), ("graph", one_graph)):
            for name in getattr(first, group):
                each = [getattr(p, group)[name] for p in plans]
                values = each[0] if same else np.stack(_same_length(name, each))
                if group == "map":
                    values = filled(values, name, width, mesh)
                arrays[f"{group}.{name}"] = jnp.asarray(values)
                if not same:
                    own.add(f"{group}.{name}")
    return Batch(plans, mesh, arrays, frozenset(own), width)


def _same_length(name: str, each: list[Array]) -> list[Array]:
    """Lists of links filled up to the longest with links of weight 0."""
    if name not in ("source", "target", "weight", "pairs"):
        return each
    axis, value = (0, 0) if name == "pairs" else (1, 0)
    if name == "target":
        value = int(max(a.max() for a in each))  # the row that is thrown away
    longest = max(a.shape[axis] for a in each)
    return [fill_up(a, longest - a.shape[axis], axis, value) for a in each]


def _devices(plan: JaxPlan, runs: int) -> tuple[Mesh | None, int]:
    """Devices for this many realizations, and the number of frequencies they hold together."""
    devices = jax.local_devices()
    rule = plan.rule
    width = int(plan.map["modes"].shape[1] if rule.projected else plan.map["amplitude"].size)
    if len(devices) == 1:
        return None, width
    if runs > 1:
        return Mesh(np.array(devices[:runs]), ("runs",)), width
    nodes = plan.graphs[0].shape[0] if plan.graphs else 1
    if nodes * plan.problem.map.D < LARGE or rule.projected:
        return None, width
    mesh = Mesh(np.array(devices), ("features",))
    unit = plan.map["norms"].shape[1] if rule.structured else 1
    return mesh, -(-width // (unit * len(devices))) * unit * len(devices)


def filled(values: Array, name: str, width: int, mesh: Mesh | None) -> Array:
    """An array of the feature map with zeros up to the full width."""
    if mesh is None or mesh.axis_names[0] != "features":
        return values
    axis = jax_traced.FEATURE_AXIS[name] % values.ndim
    have = values.shape[axis] * (values.shape[-1] if axis != values.ndim - 1 else 1)
    unit = have // values.shape[axis]
    pad = [(0, (width - have) // unit if i == axis else 0) for i in range(values.ndim)]
    return np.pad(values, pad)


def alone(plan: JaxPlan) -> Batch:
    """One realization by itself; its arrays stay on the device as long as the plan."""
    if "alone" not in plan.kept:
        plan.kept["alone"] = together([plan])
    batch: Batch = plan.kept["alone"]
    return batch


def load(plan: JaxPlan, block: Block) -> Block:
    """The same block with rows that are used several times kept on the device."""
    block = block.cast(plan.dtype)
    if is_sparse(block.X) or block.index.size <= block.X.shape[0]:
        return block
    with precision(plan.dtype):
        return replace(block, X=on_device(plan, block.X))


def on_device(plan: JaxPlan, X: Any) -> Any:
    """Dense rows (N, d) on the device, in the form that is fastest there."""
    X = jnp.asarray(X)
    wide = plan.dtype == np.float32 and "omega" in plan.map and X.shape[1] > jax_traced.FEW_INPUTS
    exact = Exact.of(X) if wide and jax.default_backend() != "cpu" else None
    return X if exact is None else exact


def advance(
    plan: JaxPlan, state: State, block: Block, workers: int | None = None
) -> tuple[State, Array]:
    """Run a block; returns a new state and the a-priori predictions f: (n, K, m), NaN if absent."""
    return advance_many(alone(plan), [state], [block])[0]


def advance_many(
    batch: Batch, states: Sequence[State], blocks: Sequence[Block]
) -> list[tuple[State, Array]]:
    """`advance` for every realization of a batch: blocks of the same number of steps."""
    for plan, state, block in zip(batch.plans, states, blocks, strict=True):
        graphs = plan.exchange.graphs
        check_block(plan.problem.map, graphs[0].shape[0] if graphs else None, state, block)
        check_index(block)
    if batch.first.exchange.plain:
        return _advance_many(batch, states, blocks)
    pairs = [(plan.problem, plan.exchange) for plan in batch.plans]
    return rounds.advance_many(pairs, partial(_advance_many, batch), states, blocks)


def _advance_many(
    batch: Batch, states: Sequence[State], blocks: Sequence[Block]
) -> list[tuple[State, Array]]:
    """Blocks by the device, which combines by the product A theta or not at all."""
    with precision(batch.first.dtype):
        work = ChunkedCall(batch, states, blocks)
        memory, f = work.run()
    results = []
    for i, (plan, block) in enumerate(zip(batch.plans, blocks, strict=True)):
        out = np.where(work.present[i][..., None], f[i], plan.dtype(np.nan))
        state = work.state(i, memory)
        largest = _largest(f[i][work.present[i]], state.theta)
        check_progress(plan.problem, plan.exchange, state, block, out, largest)
        results.append((state, out))
    return results


def _largest(f: Array, theta: Array) -> float:
    """The largest |f|, infinite if a number among them or in theta is not finite."""
    largest, flat = float(np.abs(f).max(initial=0.0)), theta.reshape(-1)
    with np.errstate(over="ignore", invalid="ignore"):
        length = float(np.dot(flat, flat))  # one pass, without a temporary
    finite = math.isfinite(length) or bool(np.isfinite(flat).all())
    return largest if finite and math.isfinite(largest) else math.inf


def step(
    plan: JaxPlan, state: State, X: Array, Y: Array, w: Array | None = None
) -> tuple[State, Array]:
    """All nodes take one step on X: (K, d), Y: (K, m); returns the new state and f: (K, m)."""
    return rounds.one_step(advance, plan, state, X, Y, w)


def predict(plan: JaxPlan, theta: Array, bias: Array, X: Any, workers: int | None = None) -> Array:
    """Scores (N, m) of rows X with theta: (m, D), bias: (m,); a chunk of rows at a time."""
    N, m = X.shape[0], len(theta)
    shift = (plan.exchange.intercept * np.asarray(bias)).astype(plan.dtype)
    bytes_each = 2 * (2 * plan.map["amplitude"].size + X.shape[1]) * np.dtype(plan.dtype).itemsize
    rows = max(1, scratch_bytes()[1] // bytes_each)
    rows = min(1 << (rows.bit_length() - 1), 1 << max(N - 1, 0).bit_length())
    out = np.empty((N, m), plan.dtype)
    with precision(plan.dtype):
        batch = alone(plan)
        numbers = {name: batch.arrays[f"map.{name}"] for name in plan.map}
        if isinstance(X, Exact):
            numbers["parts"], numbers["power"] = jax_traced.in_parts(numbers["omega"])
            numbers["unit"] = np.float32(X.unit)
        flat = theta.reshape(m, plan.rule.S, -1).astype(plan.dtype)
        flat = np.pad(flat, [(0, 0), (0, 0), (0, batch.width - flat.shape[-1])])
        for start in range(0, N, rows):
            at = np.arange(start, min(start + rows, N))[:, None]
            x = fill_up(rows_of(X, at, plan.dtype)[:, 0], rows - len(at), 0, 0)
            found = jax_traced.scores(plan.rule, numbers, flat, x)
            out[start : start + rows] = np.asarray(found)[: len(at)] + shift
    return out
