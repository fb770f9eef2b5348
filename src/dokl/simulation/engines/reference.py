"""The reference engine: `diffusion.step` in NumPy, one step after another. Readable, slow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from dokl.base.arrays import Array, Block, used_rows
from dokl.network.exchange import Exchange
from dokl.network.state import State
from dokl.simulation.diffusion import (
    Problem,
    check_block,
    check_index,
    check_progress,
    largest_prediction,
    step_z,
)


@dataclass(frozen=True)
class ReferencePlan:
    """A problem and an exchange with its matrices ready."""

    problem: Problem
    exchange: Exchange
    dtype: DTypeLike
    graphs: list[Any]


def plan(problem: Problem, exchange: Exchange, dtype: DTypeLike = np.float64) -> ReferencePlan:
    """Prepare a problem (its features drawn) for `advance`."""
    return ReferencePlan(problem, exchange, np.dtype(dtype).type, exchange.graphs)


def advance(
    plan: ReferencePlan, state: State, block: Block, workers: int | None = None
) -> tuple[State, Array]:
    """Run a block; returns a new state and the a-priori predictions f: (n, K, m), NaN if absent."""
    problem, exchange, graphs = plan.problem, plan.exchange, plan.graphs
    nodes = graphs[0].shape[0] if graphs else None
    check_block(problem.map, nodes, state, block)
    check_index(block)
    state, out = state.copy(), np.empty((block.n, *state.theta.shape[:2]))
    with np.errstate(over="ignore", invalid="ignore"):  # check_progress says it better
        for t, rows in enumerate(block.index):
            w = np.where(rows >= 0, 1.0 if block.weight is None else block.weight[rows], 0.0)
            # Absent nodes borrow row 0; their weight of 0 keeps it unread.
            at = np.maximum(rows, 0)
            Z = problem.map.transform(block.X[at])
            state, out[t] = step_z(problem, exchange, graphs, state, Z, block.Y[at], w)
    state.peak = float(np.abs(block.Y[used_rows(block)]).max(initial=state.peak))
    largest = largest_prediction(out, state.theta)
    check_progress(problem, exchange, state, block, out, largest)
    return state, out


def step(
    plan: ReferencePlan, state: State, X: Array, Y: Array, w: Array | None = None
) -> tuple[State, Array]:
    """All nodes take one step on X: (K, d), Y: (K, m); returns the new state and f: (K, m)."""
    index = np.arange(len(Y), dtype=np.int64).reshape(1, -1)
    state, f = advance(plan, state, Block(X, Y, w, index))
    return state, f[0]


def predict(
    plan: ReferencePlan, theta: Array, bias: Array, X: Any, workers: int | None = None
) -> Array:
    """Scores (N, m) of rows X with theta: (m, D), bias: (m,)."""
    shift = plan.exchange.intercept * bias
    chunks = range(0, X.shape[0], 1024)
    parts = [plan.problem.map.transform(X[i : i + 1024]) @ theta.T + shift for i in chunks]
    return np.concatenate(parts) if parts else np.empty((0, len(theta)))
