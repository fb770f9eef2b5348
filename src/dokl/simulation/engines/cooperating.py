"""Method `cooperation` at matrix speed: blocks of each node's rows through BLAS."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dokl.base.arrays import Array, Block
from dokl.base.unlocked import one_thread
from dokl.network.exchange import Exchange
from dokl.network.state import State
from dokl.simulation.cooperation import node
from dokl.simulation.cooperation.node import Said
from dokl.simulation.diffusion import check_block, check_index, check_progress, largest_prediction
from dokl.simulation.engines import rounds
from dokl.simulation.engines.blas import BlasPlan, plan, predict

__all__ = ["BlasPlan", "advance", "advance_said", "plan", "predict", "step"]

# Rows of all nodes whose features are in memory at once.
ROWS = 4096


def advance(
    plan: BlasPlan, state: State, block: Block, workers: int | None = None
) -> tuple[State, Array]:
    """Run a block; returns a new state and the a-priori predictions f: (n, K, m), NaN if absent."""
    state, said = advance_said(plan, state, block)
    return state, said.mean


def advance_said(plan: BlasPlan, state: State, block: Block) -> tuple[State, Said]:
    """The same with all that was said of each row: arrays (n, K, m) and (n, K, m, levels)."""
    with one_thread():
        return _advance_said(plan, state, block)


def _advance_said(plan: BlasPlan, state: State, block: Block) -> tuple[State, Said]:
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
    step = max(1, ROWS // block.index.shape[1])
    for start in range(0, block.n, step):
        piece = block.steps(start, start + step)
        state, said = (_plainly if exchange.plain else _by_rules)(plan, state, piece, ours)
        told.append(said)
    said = _joined(told, state)
    largest = largest_prediction(said.mean, state.theta)
    check_progress(problem, exchange, state, block, said.mean, largest)
    return state, said


@dataclass(frozen=True)
class _Rows:
    """The rows of one node in a block: at which steps they come, features, targets, weights."""

    at: Array
    Z: Array
    Y: Array
    weight: Array

    def between(self, start: int, stop: int) -> slice:
        """Those of some steps."""
        return slice(*np.searchsorted(self.at, (start, stop)).tolist())


def _rows(plan: BlasPlan, block: Block, k: int) -> _Rows:
    index = block.index[:, k]
    at = np.flatnonzero(index >= 0)
    weight = np.ones(len(at))
    if block.weight is not None:
        weight = block.weight[index[at]].astype(np.float64)
        at, weight = at[weight > 0], weight[weight > 0]
    Z = plan.problem.features.transform(block.X[index[at]])
    return _Rows(at, Z, np.asarray(block.Y[index[at]], np.float64), weight)


def _plainly(plan: BlasPlan, state: State, block: Block, ours: set[str]) -> tuple[State, Said]:
    """Only the shared members need to go from exchange to exchange; what they said being known, a
    node learns the rest of the block at once, and the widths of intervals follow last.
    """
    exchange, method, clock = plan.exchange, plan.problem.method, state.clock
    crew, (K, m, _) = method.crew(exchange), state.theta.shape
    rows = [_rows(plan, block, k) for k in range(K)]
    spans = list(rounds.spans(exchange, clock, block.n))
    by_shared = [np.empty((2, len(row.at), len(crew.shared), m)) for row in rows]
    for start, stop, turn in spans if crew.shared else []:
        if start == stop:
            which = turn % len(exchange.graphs)
            mixed = state.sums + exchange.flows[which] @ state.sums
            state = method.received(state, mixed, ours)
            continue
        for k, row in enumerate(rows):
            some = row.between(start, stop)
            if some.start < some.stop:
                given = row.Z[some], row.Y[some], row.weight[some]
                by_shared[k][:, some] = node.learn_shared(crew, state, k, *given, ours)
    out = _nothing(block.n, state)
    for k, row in enumerate(rows):
        if len(row.at):
            data = row.Z, row.Y, row.weight, by_shared[k]
            mean, variance = node.learn_own(crew, state, k, *data, ours)
            out.mean[row.at, k], out.variance[row.at, k] = mean, variance
            state.nodes["count"][k] += len(row.at)
    _follow(exchange, state, rows, out, spans)
    node.fold(crew, state)
    return replace(state, clock=clock + block.n), out


def _follow(
    exchange: Exchange,
    state: State,
    rows: list[_Rows],
    out: Said,
    spans: list[tuple[int, int, int]],
) -> None:
    """Widths of intervals, from exchange to exchange."""
    for start, stop, turn in spans:
        if start == stop:
            reach = state.reach.reshape(state.K, -1)
            mixed = reach + exchange.flows[turn % len(exchange.graphs)] @ reach
            state.nodes["reach"] = mixed.reshape(state.reach.shape)
            continue
        for k, row in enumerate(rows):
            some = row.between(start, stop)
            if some.start < some.stop:
                at = row.at[some]
                said = out.mean[at, k], out.variance[at, k]
                out.widths[at, k] = node.follow(state, k, row.Y[some], *said, row.weight[some])


def _by_rules(plan: BlasPlan, state: State, block: Block, ours: set[str]) -> tuple[State, Said]:
    """Where the exchange has rules of its own: everything from exchange to exchange."""
    told = list[Said]()

    def alone(state: State, block: Block) -> tuple[State, Array]:
        crew, out = plan.problem.method.crew(plan.exchange), _nothing(block.n, state)
        for k in range(state.K):
            row = _rows(plan, block, k)
            if len(row.at):
                said = node.learn(crew, state, k, row.Z, row.Y, row.weight, ours)
                out.mean[row.at, k], out.variance[row.at, k] = said.mean, said.variance
                out.widths[row.at, k] = said.widths
                state.nodes["count"][k] += len(row.at)
        node.fold(crew, state)
        told.append(out)
        return replace(state, clock=state.clock + block.n), np.empty((block.n, 0))

    state, _ = rounds.advance(plan.problem, plan.exchange, alone, state, block)
    return state, _joined(told, state)


def _nothing(n: int, state: State) -> Said:
    K, m, _ = state.theta.shape
    shapes = (n, K, m), (n, K, m), (n, K, *state.reach.shape[1:])
    return Said(*(np.full(shape, np.nan) for shape in shapes))


def _joined(told: list[Said], state: State) -> Said:
    parts = zip(*(vars(said).values() for said in told or [_nothing(0, state)]), strict=True)
    return Said(*map(np.concatenate, parts))


def step(
    plan: BlasPlan, state: State, X: Array, Y: Array, w: Array | None = None
) -> tuple[State, Array]:
    """All nodes take one step on X: (K, d), Y: (K, m); returns the new state and f: (K, m)."""
    return rounds.one_step(advance, plan, state, X, Y, w)
