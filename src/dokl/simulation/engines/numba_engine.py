"""The Numba engine: `diffusion.step` as fused, compiled loops, float32 unless asked otherwise.

`plan` turns a problem into the numbers the loops need, once; `advance` runs a block of samples;
`step` is one step of all nodes; `predict` scores rows. None of them changes its arguments.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import repeat
from typing import Any

import numpy as np
from numba import njit
from numba.core.errors import NumbaError

from dokl.base.arrays import LINE, Array, Block, empty_in_quarter, is_sparse
from dokl.learning.features import FeatureMap, ProjectedMap
from dokl.learning.losses import Loss
from dokl.learning.schedules import Schedule
from dokl.network.exchange import Exchange
from dokl.network.state import State
from dokl.simulation.diffusion import Problem, check_block, check_index, check_progress
from dokl.simulation.engines import numba_sweeps, rounds
from dokl.simulation.engines.choice import NotCompilable
from dokl.simulation.engines.numba_loops import CODES, POLY32, POLY64
from dokl.simulation.engines.numba_projection import Projection, pieces, without_frequencies
from dokl.simulation.engines.numba_sweeps import LoopGraph, LoopMap, LoopMemory, LoopRows, LoopRule

AVERAGE_CODES = {"none": 0, "uniform": 1, "weighted": 2}
# Below this many numbers in theta, handing nodes to threads costs more than it gives.
LARGE = 2_000_000
CORES = os.cpu_count() or 1
# From this many steps on it pays to place theta well in memory.
MANY = 64


@dataclass(frozen=True)
class NumbaPlan:
    """A problem and an exchange as numbers for the loops, in one precision."""

    problem: Problem
    exchange: Exchange
    dtype: Any
    map: LoopMap
    graph: LoopGraph
    rule: LoopRule
    custom: bool
    nothing: Array  # an empty matrix, where there is nothing to remember
    projection: Projection | None = None


def feature_numbers(features: FeatureMap, dtype: Any) -> LoopMap:
    """The feature map in turns: frequencies divided by 2 pi, constant factors multiplied in."""
    coefficients = POLY32 if dtype == np.float32 else POLY64
    P = tuple(dtype(features.scale * a) for a in coefficients)
    freq = np.zeros((1, features.n_frequencies), dtype)
    signs, norms = np.zeros((3, 0, 0), dtype), np.zeros((0, 0), dtype)
    if features.signs is None:
        freq = _lined_up(features.omega_turns(dtype))
    else:
        signs = _writable(features.signs, dtype)
        norms = _writable(features.norms_turns(dtype), dtype)
    base = empty_in_quarter((features.n_frequencies,), dtype, 1)
    base[:] = features.phase_turns(dtype)
    return LoopMap(freq, base, signs, norms, features.paired, P)


def _lined_up(omega: Array) -> Array:
    """Frequencies (d, F) with zeros behind each row, so that every row begins a cache line."""
    d, F = omega.shape
    each = LINE // omega.itemsize
    rows = empty_in_quarter((d, -(-F // each) * each), omega.dtype, 2)
    rows[:, :F], rows[:, F:] = omega, 0.0
    return rows


def graph_numbers(exchange: Exchange, dtype: Any) -> LoopGraph:
    """All combination matrices in one CSR."""
    graphs = exchange.graphs
    starts, offset = [], 0
    for A in graphs:
        starts.append(A.indptr.astype(np.int64) + offset)
        offset += A.nnz
    K = graphs[0].shape[0] if graphs else 0
    indptr = np.stack(starts) if graphs else np.zeros((0, K + 1), np.int64)
    indices = [A.indices.astype(np.int64) for A in graphs] or [np.zeros(0, np.int64)]
    weights = [A.data.astype(dtype) for A in graphs] or [np.zeros(0, dtype)]
    return LoopGraph(indptr, np.concatenate(indices), np.concatenate(weights))


def nodes_of(graph: LoopGraph) -> int | None:
    """Number of nodes the combination matrices are for; None: no matrix, any number."""
    return graph.indptr.shape[1] - 1 if len(graph.indptr) else None


@lru_cache(maxsize=64)
def _tried(function: Any, *signature: Any) -> Any:
    compiled = function if hasattr(function, "py_func") else njit(function)
    float(compiled(*signature))
    return compiled


def _compiled(function: Any, *signature: Any) -> Any:
    """A user's function through Numba, tried on numbers; raises NotCompilable."""
    try:
        return _tried(function, *signature)
    except (NumbaError, TypeError) as error:
        raise NotCompilable(str(error).splitlines()[0]) from None


def loss_numbers(loss: Loss) -> Any:
    """(code, parameter) of a built-in loss, or the user's slope, compiled."""
    if loss.builtin:
        return CODES[loss.name], float("nan") if loss.p is None else float(loss.p)
    return _compiled(loss.slope_function, 1.0, 0.5)


def schedule_numbers(schedule: Schedule) -> Any:
    """The five numbers of a built-in schedule, or the user's function, compiled."""
    if schedule.function is not None:
        return _compiled(schedule.function, 1, 1.0)
    numbers = schedule.scale, schedule.offset, schedule.power
    return (*map(float, numbers), bool(schedule.normalised), float(schedule.eps))


def plan(problem: Problem, exchange: Exchange, dtype: Any = np.float32) -> NumbaPlan:
    """Prepare a problem (its features drawn) for `advance`; raises NotCompilable."""
    dtype = np.dtype(dtype).type
    features = problem.map
    if problem.method.name != "gradient":
        raise NotCompilable(f"the loops know the method 'gradient', not {problem.method.name!r}")
    if not exchange.plain and exchange.average != "none":
        raise NotCompilable("running means together with rules of sending or mixing")
    # |z| = 1 exactly for paired features, so nobody has to measure it.
    looks = problem.gradient.schedule.normalised or problem.gradient.schedule.function is not None
    rule = LoopRule(
        loss=loss_numbers(problem.gradient.loss),
        rate=schedule_numbers(problem.gradient.schedule),
        lam=float(problem.gradient.lam),
        c=float(exchange.intercept),
        measure=bool(looks and not features.paired),
        cta=exchange.order == "cta",
        every=int(exchange.every),
        average=AVERAGE_CODES[exchange.average],
    )
    custom = not problem.gradient.loss.builtin or problem.gradient.schedule.function is not None
    base = features.base if isinstance(features, ProjectedMap) else features
    map, projection = feature_numbers(base, dtype), None
    if isinstance(features, ProjectedMap):
        projection = Projection(map, np.ascontiguousarray(features.modes, dtype))
        map = without_frequencies(features.D, map.P, dtype)
    linked = exchange if exchange.plain else replace(exchange, weights=None)
    graph, nothing = graph_numbers(linked, dtype), np.zeros((0, 1), dtype)
    return NumbaPlan(problem, exchange, dtype, map, graph, rule, custom, nothing, projection)


def _writable(a: Array, dtype: Any) -> Array:
    """C-ordered, of one type, writable: each other combination would be compiled again."""
    a = np.ascontiguousarray(a, dtype)
    return a if a.flags.writeable else a.copy()


def row_numbers(block: Block, dtype: Any) -> LoopRows:
    """A block's samples as the loops take them."""
    X, empty = block.X, np.zeros(0, np.int64)
    if is_sparse(X):
        data, where = _writable(X.data, dtype), _writable(X.indices, np.int64)
        starts = _writable(X.indptr, np.int64)
        # An all-empty `where` would read as dense; one unused entry keeps it sparse.
        where = where if where.size else np.zeros(1, np.int64)
    else:
        data, where, starts = _writable(X, dtype).reshape(-1), empty, empty
    weight = np.zeros(0, dtype) if block.weight is None else _writable(block.weight, dtype)
    Y, index = _writable(block.Y, dtype), _writable(block.index, np.int64)
    return LoopRows(data, where, starts, int(X.shape[1]), Y, weight, index)


def _memory(plan: NumbaPlan, state: State, steps: int = MANY) -> LoopMemory:
    """Flat views of a private copy of the state, and a second theta to combine into."""
    theta, dtype = state.theta, plan.dtype
    D = theta.shape[2]
    old = theta.reshape(-1, D)
    if steps < MANY:  # finding a good place takes longer than a single step
        old = old.astype(dtype, "C")
    else:
        kept, old = old, empty_in_quarter(old.shape, dtype, 3)
        old[:] = kept
    mean, mean_bias = plan.nothing, plan.nothing
    if "mean_theta" in state:
        mean = state.mean_theta.astype(dtype, "C").reshape(-1, D)
        mean_bias = state.mean_bias.astype(dtype, "C")
    new = np.empty_like(old) if len(plan.graph.indptr) else plan.nothing
    return LoopMemory(old, new, mean, state.bias.astype(dtype, "C"), mean_bias, state.count.copy())


def memory_arrays(memory: LoopMemory, theta: Array) -> dict[str, Array]:
    """What the loops left, by name; theta: (K, m, D)."""
    nodes = {"theta": theta, "bias": memory.bias, "count": memory.seen}
    if memory.mean.size:
        nodes |= {"mean_theta": memory.mean.reshape(theta.shape), "mean_bias": memory.mean_bias}
    return nodes


def advance(
    plan: NumbaPlan, state: State, block: Block, workers: int | None = None
) -> tuple[State, Array]:
    """Run a block; returns a new state and the a-priori predictions f: (n, K, m), NaN if absent.

    A large network (K m D above LARGE) is shared among `workers` threads node by node.
    """
    if plan.exchange.plain or not plan.exchange.graphs:
        return _advance_alone_or_plainly(plan, state, block, workers)

    def alone(state: State, block: Block) -> tuple[State, Array]:
        return _advance_alone_or_plainly(plan, state, block, workers)

    return rounds.advance(plan.problem, plan.exchange, alone, state, block)


def _advance_alone_or_plainly(
    plan: NumbaPlan, state: State, block: Block, workers: int | None
) -> tuple[State, Array]:
    """A block by the loops, which combine by the product A theta or not at all."""
    check_block(plan.problem.map, nodes_of(plan.graph), state, block)
    if plan.projection is not None and block.n > 0:
        return _advance_projected(plan, plan.projection, state, block, workers)
    state, out, largest = _advance(plan, state, block, workers)
    check_progress(plan.problem, plan.exchange, state, block, out, largest)
    return state, out


def _advance_projected(
    plan: NumbaPlan, projection: Projection, state: State, block: Block, workers: int | None
) -> tuple[State, Array]:
    """`advance` piece by piece, on projected rows."""
    found = []
    for piece, alone in pieces(block, state.theta.shape[2]):
        X = projection.of_rows(row_numbers(alone, plan.dtype), alone.X.shape[0])
        projected = Block(X, alone.Y, alone.weight, alone.index)
        state, out, largest = _advance(plan, state, projected, workers)
        check_progress(plan.problem, plan.exchange, state, piece, out, largest)
        found.append(out)
    return state, np.concatenate(found)


def _advance(
    plan: NumbaPlan, state: State, block: Block, workers: int | None
) -> tuple[State, Array, float]:
    """The new state, the predictions and the largest of them."""
    K, m, D = state.theta.shape
    memory = _memory(plan, state, block.n)
    rows = row_numbers(block, plan.dtype)
    out = np.empty((block.n, K, m), plan.dtype)
    workers = workers or CORES
    sweep = numba_sweeps.sweep_custom if plan.custom else numba_sweeps.sweep
    try:
        if workers > 1 and 2 * workers <= K and memory.old.size >= LARGE:
            swapped, largest = _sweep_threads(plan, state.clock, rows, memory, out, workers)
        else:
            where, largest = (0, K, 0, block.n, state.clock, 0), np.zeros(2)
            swapped = sweep(
                *where, *plan.map, *rows, *plan.graph, *plan.rule, *memory, out, largest
            )
    except IndexError:
        check_index(block)
        raise
    theta = (memory.new if swapped else memory.old).reshape(K, m, D)
    peak = max(state.peak, float(largest[1]))
    new = State(memory_arrays(memory, theta), state.clock + block.n, peak)
    return new, out, float(largest[0])


def _sweep_threads(
    plan: NumbaPlan, clock: int, rows: LoopRows, memory: LoopMemory, out: Array, workers: int
) -> tuple[bool, Array]:
    """`sweeps.sweep` with the nodes of each half step dealt over threads, which then meet."""
    sweep = numba_sweeps.sweep_custom if plan.custom else numba_sweeps.sweep
    rule, bounds = plan.rule, np.linspace(0, memory.seen.size, workers + 1).astype(int)
    swapped, largest = False, np.zeros((workers, 2))

    def half_step(i: int, t: int, half: int) -> None:
        where = (int(bounds[i]), int(bounds[i + 1]), t, t + 1, clock, half)
        sweep(*where, *plan.map, *rows, *plan.graph, *rule, *memory, out, largest[i])

    with ThreadPoolExecutor(workers) as pool:
        for t in range(len(out)):
            turn = clock + t + (0 if rule.cta else 1)
            mixing = len(plan.graph.indptr) > 0 and turn % rule.every == 0
            for half in (1, 2) if mixing and not rule.cta else (1,):
                list(pool.map(half_step, range(workers), repeat(t), repeat(half)))
            if mixing:
                memory = memory._replace(old=memory.new, new=memory.old)
                swapped = not swapped
    return swapped, largest.max(axis=0)


def step(
    plan: NumbaPlan, state: State, X: Array, Y: Array, w: Array | None = None
) -> tuple[State, Array]:
    """All nodes take one step on X: (K, d), Y: (K, m); returns the new state and f: (K, m)."""
    return rounds.one_step(advance, plan, state, X, Y, w)


def predict(
    plan: NumbaPlan, theta: Array, bias: Array, X: Any, workers: int | None = None
) -> Array:
    """Scores (N, m) of rows X with theta: (m, D), bias: (m,); rows are shared among threads."""
    N, (m, D) = X.shape[0], theta.shape
    no_index = np.zeros((0, 1), np.int64)
    rows = row_numbers(Block(X, np.zeros((0, m)), None, no_index), plan.dtype)
    theta = _writable(theta, plan.dtype)
    shift = np.array(plan.exchange.intercept * bias, plan.dtype)
    if plan.projection is not None:
        return np.asarray(plan.projection.of_rows(rows, N) @ theta.T + shift)
    out = np.empty((N, m), plan.dtype)
    workers = min(workers or CORES, 1 + N * D // 1_000_000)

    def part(i: int) -> None:
        lo, hi = i * N // workers, (i + 1) * N // workers
        numba_sweeps.scores(lo, hi, *plan.map, *rows[:4], theta, shift, out)

    if workers == 1:
        part(0)
    else:
        with ThreadPoolExecutor(workers) as pool:
            list(pool.map(part, range(workers)))
    return out
