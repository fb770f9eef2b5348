"""The MPI engine: the nodes spread over ranks, each rank running its own with the compiled loops.

All ranks call the same functions with the same arguments. A `Worker` holds a rank's nodes over a
whole run; `advance` is the engine as others are: the whole network in, the whole network out.
Whatever the number of ranks, the result is that of the Numba engine bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from dokl.base.arrays import Array, Block
from dokl.base.errors import BadInput, FingerprintMismatch
from dokl.network.exchange import Exchange
from dokl.network.state import State
from dokl.simulation.diffusion import Problem, check_block, check_index, check_progress
from dokl.simulation.engines import mpi_halo as halo
from dokl.simulation.engines import mpi_ranks, numba_engine, numba_sweeps, rounds
from dokl.simulation.engines.choice import NotCompilable
from dokl.simulation.engines.mpi_halo import Halo, HaloExchange
from dokl.simulation.engines.mpi_partition import measure_cut, partition
from dokl.simulation.engines.numba_projection import pieces
from dokl.simulation.engines.numba_sweeps import LoopMemory, LoopRows

# Numbers that a rank's interior nodes must have before vectors travel while these are computed.
# It costs one more call of the loops, some us, and gives nothing where the MPI library moves bytes
# only inside its own calls (shared memory).
OVERLAP = 1_000_000


@dataclass(frozen=True)
class Share:
    """Who has which nodes: owner (K,) the rank of each; own: this rank's, in its order."""

    owner: Array
    own: Array
    halo: Halo | None


@dataclass(frozen=True)
class MpiPlan:
    """A problem and an exchange, prepared on every rank of `comm`."""

    problem: Problem
    exchange: Exchange
    dtype: DTypeLike
    comm: mpi_ranks.Comm
    local: numba_engine.NumbaPlan  # its graph is this rank's share
    share: Share | None  # None: every node alone, any number of them

    def close(self) -> None:
        """Give communicators back; all ranks do."""
        if self.share is not None and self.share.halo is not None:
            self.share.halo.close()


def plan(
    problem: Problem, exchange: Exchange, dtype: DTypeLike = np.float32, comm: mpi_ranks.Comm = None
) -> MpiPlan:
    """Prepare a problem (its features drawn) for `advance`; all ranks of comm (the world) call."""
    comm = mpi_ranks.world() if comm is None else comm
    mpi_ranks.attempt(comm, lambda: _check_plain(exchange))
    lonely = replace(exchange, weights=None)
    local = mpi_ranks.attempt(comm, lambda: _compiled(problem, lonely, dtype))
    graphs = mpi_ranks.attempt(comm, lambda: exchange.graphs)
    _check_same(comm, problem)
    if not graphs:
        return MpiPlan(problem, exchange, local.dtype, comm, local, None)
    K = graphs[0].shape[0]
    owner = mpi_ranks.attempt(comm, lambda: _owner(comm, graphs, K))
    owner = comm.bcast(owner)  # of rank 0: eigenvectors may round differently elsewhere
    near = halo.build(comm, graphs, owner, local.dtype)
    share = Share(owner, near.own, near)
    if comm.size > 1:
        found = measure_cut(graphs, owner)
        mpi_ranks.log.info(
            f"{K} nodes on {comm.size} ranks: {found.cut} of {found.edges} edges are cut, "
            f"{found.vectors} vectors travel per combination"
        )
    return MpiPlan(problem, exchange, local.dtype, comm, replace(local, graph=near.graph), share)


def _check_plain(exchange: Exchange) -> None:
    if not exchange.plain:
        raise BadInput(
            "engine 'mpi' sends whole vectors and takes their mean: rules of sending or mixing are "
            "run by engine='numba' or 'reference'"
        )


def _compiled(problem: Problem, exchange: Exchange, dtype: DTypeLike) -> numba_engine.NumbaPlan:
    if problem.method.name != "gradient":
        raise BadInput(
            "engine 'mpi' spreads vectors of the method 'gradient' over ranks, not the matrices of "
            f"{problem.method.name!r}: run that with engine='numba' or 'reference'"
        )
    try:
        return numba_engine.plan(problem, exchange, dtype)
    except NotCompilable as error:
        raise BadInput(
            f"engine 'mpi' cannot compile this loss or schedule ({error}): write it with NumPy "
            "functions of numbers"
        ) from None


def _owner(comm: mpi_ranks.Comm, graphs: list[Any], K: int) -> Array | None:
    return partition(graphs, K, comm.size) if comm.rank == 0 else None


def _check_same(comm: mpi_ranks.Comm, problem: Problem) -> None:
    """Vectors of different feature maps must not meet."""
    ours = problem.map.fingerprint
    first = comm.bcast(ours)
    error = FingerprintMismatch(f"rank {comm.rank}", first, ours) if ours != first else None
    mpi_ranks.agree(comm, error)


def share_of(plan: MpiPlan, K: int) -> Share:
    """Who has which of K nodes."""
    if plan.share is not None:
        return plan.share
    owner = mpi_ranks.attempt(plan.comm, lambda: partition([], K, plan.comm.size))
    return Share(owner, np.flatnonzero(owner == plan.comm.rank), None)


class Worker:
    """A rank's nodes and all they remember; `advance` changes it."""

    def __init__(self, plan: MpiPlan, share: Share, state: State) -> None:
        """State is of own nodes only."""
        self.plan, self.share, self.m = plan, share, state.theta.shape[1]
        self.clock, self.peak = state.clock, state.peak
        self._memory = self._room(state)
        self._at = 0  # which of the two buffers holds the vectors
        self._wire: HaloExchange | None = None
        self._rim = len(share.own)  # nodes from here on need no ghosts, and are run meanwhile
        if share.halo is not None and plan.comm.size > 1:
            self._wire = HaloExchange(share.halo, (self._memory.old, self._memory.new), self.m)
            if (self._rim - share.halo.boundary) * state.theta[0].size >= OVERLAP:
                self._rim = share.halo.boundary

    def _room(self, state: State) -> LoopMemory:
        """The Numba engine's memory, with room for ghosts behind own vectors."""
        memory = numba_engine._memory(self.plan.local, state)
        near = self.share.halo
        if near is None:
            return memory
        rows = (len(self.share.own) + near.ghosts) * self.m
        old, new = (np.zeros((rows, memory.old.shape[1]), self.plan.dtype) for _ in range(2))
        old[: len(memory.old)] = memory.old
        return memory._replace(old=old, new=new)

    @property
    def state(self) -> State:
        """A copy of own nodes' state."""
        return self.view.copy()

    @property
    def view(self) -> State:
        """Own nodes' state as it lies: the next `advance` overwrites it."""
        memory, shape = self._present(), (len(self.share.own), self.m, -1)
        theta = memory.old[: shape[0] * self.m].reshape(shape)
        return State(numba_engine.memory_arrays(memory, theta), self.clock, self.peak)

    def _present(self) -> LoopMemory:
        """Memory with the buffer that holds the vectors as `old`."""
        here = self._memory
        return here._replace(old=here.new, new=here.old) if self._at else here

    def advance(self, block: Block) -> Array:
        """Run a block of own nodes' samples; predictions f: (n, own, m). All ranks advance
        together, and all raise if one finds targets that are not finite or iterates diverged.
        """
        plan, own, largest = self.plan, len(self.share.own), np.zeros(2)
        mpi_ranks.attempt(plan.comm, lambda: self._check(block))
        out = np.empty((block.n, own, self.m), plan.dtype)
        done = 0
        for rows, n in self._rows(block):
            self._run(rows, out[done : done + n], largest)
            done += n
        self.peak = max(self.peak, float(largest[1]))
        found = plan.problem, plan.exchange, self.view, block, out, float(largest[0])
        mpi_ranks.attempt(plan.comm, lambda: check_progress(*found))
        return out

    def _check(self, block: Block) -> None:
        check_block(self.plan.problem.map, len(self.share.own), self.view, block)
        check_index(block)

    def _rows(self, block: Block) -> Iterator[tuple[LoopRows, int]]:
        """The block as the loops take it, with its number of steps; projected piece by piece."""
        plan = self.plan.local
        if plan.projection is None:
            yield numba_engine.row_numbers(block, plan.dtype), block.n
            return
        for _, part in pieces(block, plan.map.freq.shape[1]):
            X = plan.projection.of_rows(numba_engine.row_numbers(part, plan.dtype), part.X.shape[0])
            projected = Block(X, part.Y, part.weight, part.index)
            yield numba_engine.row_numbers(projected, plan.dtype), part.n

    def _run(self, rows: LoopRows, out: Array, largest: Array) -> None:
        near = self.plan.local
        fixed = (*near.map, *rows, *near.graph, *near.rule)
        for start, stop in self._pieces(len(out)):
            self._piece(start, stop, (*fixed, *self._present(), out, largest))
        self.clock += len(out)

    def _mixes(self, t: int) -> bool:
        rule = self.plan.local.rule
        turn = self.clock + t + (0 if rule.cta else 1)
        return turn % rule.every == 0

    def _pieces(self, n: int) -> Iterator[tuple[int, int]]:
        """Steps 0..n cut so that each piece needs one exchange at most: at its first step (CTA)
        or at its last (ATC).
        """
        if self._wire is None:
            yield from [(0, n)] if n else []
            return
        rule, start = self.plan.local.rule, 0
        shift = 0 if rule.cta else 1
        while start < n:
            turn = self.clock + start + shift
            ahead = rule.every - turn % rule.every if rule.cta else -turn % rule.every + 1
            stop = min(n, start + ahead)
            yield start, stop
            start = stop

    def _piece(self, start: int, stop: int, arguments: tuple[Any, ...]) -> None:
        """Steps start..stop: exchange where the first or last combines, and run the loops."""
        sweep = numba_sweeps.sweep_custom if self.plan.local.custom else numba_sweeps.sweep
        K, clock, cta = len(self.share.own), self.clock, self.plan.local.rule.cta
        first, phase = (start, 0) if cta else (stop - 1, 2)
        if self._wire is None or not self._mixes(first):
            self._at ^= bool(sweep(0, K, start, stop, clock, 0, *arguments))
            return
        if not cta:
            sweep(0, K, start, stop, clock, 1, *arguments)
        self._wire.start(self._at, clock + first)
        if self._rim < K:
            sweep(self._rim, K, first, stop, clock, phase, *arguments)
        self._wire.wait()
        sweep(0, self._rim, first, stop, clock, phase, *arguments)
        self._at ^= 1

    def close(self) -> None:
        """Free what MPI holds for this worker."""
        if self._wire is not None:
            self._wire.close()


def columns(block: Block, own: Array) -> Block:
    """The samples of own nodes: only the rows they see."""
    index = np.ascontiguousarray(block.index[:, own])
    used, where = np.unique(index[index >= 0], return_inverse=True)
    index[index >= 0] = where
    weight = None if block.weight is None else block.weight[used]
    return Block(block.X[used], block.Y[used], weight, index)


def whole(plan: MpiPlan, share: Share, state: State, to_all: bool = False) -> State | None:
    """The state of all nodes from each rank's; None off rank 0, unless to all."""
    comm, owner, own = plan.comm, share.owner, share.own

    gathered = state.each(lambda values: mpi_ranks.gather(comm, owner, own, values, to_all))
    gathered.peak = comm.allreduce(state.peak, op=mpi_ranks.mpi().MAX)
    return None if gathered.theta is None else gathered


def advance(
    plan: MpiPlan, state: State, block: Block, workers: int | None = None
) -> tuple[State, Array]:
    """Run a block of all nodes; every rank gets the new state and predictions f: (n, K, m)."""
    nodes = None if plan.share is None else len(plan.share.owner)
    check_block(plan.problem.map, nodes, state, block)
    share = share_of(plan, state.theta.shape[0])
    worker = Worker(plan, share, state.part(share.own))
    with mpi_ranks.all_or_none(plan.comm):
        own = columns(block, share.own)
        f = worker.advance(own)
        turned = np.ascontiguousarray(f.transpose(1, 0, 2))
        every_f = mpi_ranks.gather(plan.comm, share.owner, share.own, turned, True)
        new = whole(plan, share, worker.state, to_all=True)
    worker.close()
    assert new is not None
    return new, np.ascontiguousarray(every_f.transpose(1, 0, 2))


def step(
    plan: MpiPlan, state: State, X: Array, Y: Array, w: Array | None = None
) -> tuple[State, Array]:
    """All nodes take one step on X: (K, d), Y: (K, m); returns the new state and f: (K, m)."""
    return rounds.one_step(advance, plan, state, X, Y, w)


def predict(
    plan: MpiPlan, theta: Array, bias: Array, X: object, workers: int | None = None
) -> Array:
    """Scores (N, m) of rows X with theta: (m, D), bias: (m,), on the rank that asks."""
    return numba_engine.predict(plan.local, theta, bias, X, workers)
