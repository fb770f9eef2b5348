"""Method `squares` at matrix speed: blocks of rows through BLAS, node by node, nothing compiled."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from dokl.base.arrays import Array, Block
from dokl.base.unlocked import one_thread
from dokl.learning.squares import blocks
from dokl.network.exchange import Exchange
from dokl.network.state import State
from dokl.network.sums import shared, sharing
from dokl.simulation.diffusion import (
    Problem,
    check_block,
    check_index,
    check_progress,
    largest_prediction,
)
from dokl.simulation.engines import rounds
from dokl.simulation.squares import memory_of, together

# Features computed at once.
ROWS = 1024


@dataclass(frozen=True)
class BlasPlan:
    """A problem and an exchange; least squares is computed in float64."""

    problem: Problem
    exchange: Exchange
    dtype: DTypeLike = np.float64


def plan(problem: Problem, exchange: Exchange, dtype: DTypeLike = np.float64) -> BlasPlan:
    """Prepare a problem (its features drawn) for `advance`."""
    return BlasPlan(problem, exchange)


def advance(
    plan: BlasPlan, state: State, block: Block, workers: int | None = None
) -> tuple[State, Array]:
    """Run a block; returns a new state and the a-priori predictions f: (n, K, m), NaN if absent."""
    graphs = plan.exchange.graphs
    check_block(plan.problem.map, graphs[0].shape[0] if graphs else None, state, block)
    check_index(block)

    def alone(state: State, block: Block) -> tuple[State, Array]:
        return _alone(plan, state, block)

    with one_thread():
        if not graphs:
            return alone(state, block)
        return rounds.advance(plan.problem, plan.exchange, alone, state, block)


def _alone(plan: BlasPlan, state: State, block: Block) -> tuple[State, Array]:
    """Every node its own rows, in order."""
    K, m, _ = state.theta.shape
    numbers, features = plan.problem.squares.numbers, plan.problem.map
    out, known, count, peak = np.full((block.n, K, m), np.nan), [], state.count.copy(), state.peak
    grown = [sharing.growing(state)] if "sums" in state else []
    kept = State({name: state.nodes[name].copy() for name in grown})
    for k in range(K):
        memory, index = memory_of(state, k), block.index[:, k]
        at = np.flatnonzero(index >= 0)
        weight = None if block.weight is None else block.weight[index[at]].astype(np.float64)
        if weight is not None:
            at, weight = at[weight > 0], weight[weight > 0]
        peak = float(np.abs(block.Y[index[at]]).max(initial=peak))
        if np.isfinite(peak):  # else nothing is learned, and `check_progress` says why
            for some in _pieces(len(at)):
                rows = index[at[some]]
                Z, Y = features.transform(block.X[rows]), np.asarray(block.Y[rows], np.float64)
                w = None if weight is None else weight[some]
                memory, found = blocks.learn(numbers, memory, Z, Y, w)
                out[at[some], k] = found.f
                if kept.nodes:
                    sharing.add(kept, k, shared.of_rows(Z, Y, found.weight))
        known.append(memory)
        count[k] += len(at)
    new = State(together(known, count) | kept.nodes, state.clock + block.n, peak, state.sent)
    largest = largest_prediction(out, new.theta)
    check_progress(plan.problem, plan.exchange, new, block, out, largest)
    return new, out


def _pieces(n: int) -> Iterator[slice]:
    for start in range(0, n, ROWS):
        yield slice(start, min(n, start + ROWS))


def step(
    plan: BlasPlan, state: State, X: Array, Y: Array, w: Array | None = None
) -> tuple[State, Array]:
    """All nodes take one step on X: (K, d), Y: (K, m); returns the new state and f: (K, m)."""
    return rounds.one_step(advance, plan, state, X, Y, w)


def predict(plan: BlasPlan, theta: Array, bias: Array, X: Any, workers: int | None = None) -> Array:
    """Scores (N, m) of rows X with theta: (m, D), bias: (m,)."""
    parts = [plan.problem.map.transform(X[i]) @ theta.T for i in _pieces(X.shape[0])]
    return np.concatenate(parts) + bias if parts else np.empty((0, len(theta)))
