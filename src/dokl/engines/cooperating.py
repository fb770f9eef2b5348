"""Method `cooperation` at matrix speed: blocks of each node's rows through BLAS, then an exchange."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dokl.arrays import Array, Block
from dokl.diffusion import Problem, check_block, check_index, check_progress, largest_prediction
from dokl.engines import rounds
from dokl.engines.blas import predict
from dokl.exchange import Exchange
from dokl.methods.cooperation import node
from dokl.methods.cooperation.node import Said
from dokl.state import State

__all__ = ["CooperatingPlan", "advance", "advance_said", "plan", "predict", "step"]

# Rows of all nodes whose features are in memory at once.
ROWS = 4096


@dataclass(frozen=True)
class CooperatingPlan:
    """A problem and an exchange; least squares is computed in float64."""

    problem: Problem
    exchange: Exchange
    dtype: Any = np.float64


def plan(problem: Problem, exchange: Exchange, dtype: Any = np.float64) -> CooperatingPlan:
    """Prepare a problem (its features drawn) for `advance`."""
    return CooperatingPlan(problem, exchange)


def advance(
    plan: CooperatingPlan, state: State, block: Block, workers: int | None = None
) -> tuple[State, Array]:
    """Run a block; returns a new state and the a-priori predictions f: (n, K, m), NaN if absent."""
    state, said = advance_said(plan, state, block)
    return state, said.mean


def advance_said(plan: CooperatingPlan, state: State, block: Block) -> tuple[State, Said]:
    """The same with all that was said of each row: arrays (n, K, m) and (n, K, m, levels)."""
    exchange, problem = plan.exchange, plan.problem
    graphs = exchange.graphs
    check_block(problem.features, graphs[0].shape[0] if graphs else None, state, block)
    check_index(block)
    used = block.Y[block.index[block.index >= 0]]
    peak = float(np.abs(used).max(initial=state.peak))
    if not np.isfinite(peak):
        check_progress(problem, exchange, replace(state, peak=peak), block, used, np.inf)
    # Matrices are copied where they are first written to, everything else now.
    mine = {n: a if n.endswith(".P") else a.copy() for n, a in state.nodes.items()}
    state, ours, told = replace(state, nodes=mine, peak=peak), set[str](), list[Said]()

    def alone(state: State, block: Block) -> tuple[State, Array]:
        step = max(1, ROWS // block.index.shape[1])
        for start in range(0, block.n, step):
            state, said = _alone(plan, state, block.steps(start, start + step), ours)
            told.append(said)
        return state, np.empty((block.n, 0))

    state, _ = rounds.advance(problem, exchange, alone, state, block)
    said = _joined(told, state)
    check_progress(
        problem, exchange, state, block, said.mean, largest_prediction(said.mean, state.theta)
    )
    return state, said


def _alone(plan: CooperatingPlan, state: State, block: Block, ours: set[str]) -> tuple[State, Said]:
    """Every node its own rows, in order, into arrays that may be overwritten."""
    crew, (K, m, _) = plan.problem.method.crew(plan.exchange), state.theta.shape
    L = state.reach.shape[2]
    out = Said(*(np.full((block.n, K, m, *more), np.nan) for more in ((), (), (L,))))
    for k in range(K):
        index = block.index[:, k]
        at = np.flatnonzero(index >= 0)
        weight = np.ones(len(at))
        if block.weight is not None:
            weight = block.weight[index[at]].astype(np.float64)
            at, weight = at[weight > 0], weight[weight > 0]
        if not at.size:
            continue
        Z = plan.problem.features.transform(block.X[index[at]])
        Y = np.asarray(block.Y[index[at]], np.float64)
        said = node.learn(crew, state, k, Z, Y, weight, ours)
        out.mean[at, k], out.variance[at, k], out.widths[at, k] = vars(said).values()
        state.nodes["count"][k] += len(at)
        node.fold(crew, state, [k])
    return replace(state, clock=state.clock + block.n), out


def _joined(told: list[Said], state: State) -> Said:
    K, m, _ = state.theta.shape
    nothing = Said(*(np.empty((0, K, m, *more)) for more in ((), (), state.reach.shape[2:])))
    parts = zip(*(vars(said).values() for said in told or [nothing]), strict=True)
    return Said(*map(np.concatenate, parts))


def step(
    plan: CooperatingPlan, state: State, X: Array, Y: Array, w: Array | None = None
) -> tuple[State, Array]:
    """All nodes take one step on X: (K, d), Y: (K, m); returns the new state and f: (K, m)."""
    index = np.arange(len(Y), dtype=np.int64).reshape(1, -1)
    state, f = advance(plan, state, Block(X, np.asarray(Y), w, index))
    return state, f[0]
