"""A whole simulation over ranks: what `runs.run` does in one process, with engine="mpi".

Each rank draws or reads its own nodes' samples and keeps their vectors; per piece, predictions and
targets come to rank 0, which records. Realizations run one after another, each over all ranks.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, TypeVar

import numpy as np

from dokl import __version__
from dokl.base.arrays import Array, Block
from dokl.base.errors import BadInput
from dokl.base.progress import Bar, progress
from dokl.base.random_numbers import draw_recipe, spawn
from dokl.network.state import State
from dokl.simulation import driver
from dokl.simulation.diffusion import Trace, init
from dokl.simulation.engines import mpi_engine, mpi_ranks
from dokl.simulation.engines.mpi_checkpoints import Checkpoint, Keeper, digest_of
from dokl.simulation.recording import NOW_AND_THEN, PER_STEP, Recorder
from dokl.simulation.streams.stream import draw_nodes, node_count

# Launchers take stderr through a pipe, where a bar cannot move: a line now and then replaces it.
TELL_SECONDS = 10.0
# Multiply-adds of one rank between two meetings: a few tenths of a second.
WORK = 1 << 29
T = TypeVar("T")


def run(
    job: driver.Job, count: int | None, checkpoint: Checkpoint | None, show: bool | None
) -> Trace:
    """The Trace of a run over all ranks (`count` of them, if given), which call this alike.

    Rank 0's trace holds the curves, and states if "state" is recorded; the others' hold neither.
    """
    comm, began = mpi_ranks.world(count), time.perf_counter()
    asked, total = job.asked, driver.samples_in(job.stream, job.asked.runs)
    dtype: np.dtype[Any] = np.dtype(np.float32 if job.dtype is None else job.dtype)
    show = show if comm.rank == 0 else False
    prints_lines = show is None and comm.size > 1 and not sys.stderr.isatty()
    with mpi_ranks.all_or_none(comm):
        mpi_ranks.agree(comm)
        keeper = Keeper(comm, checkpoint, _settings(job, dtype, comm.size))
        with _lines(total) if prints_lines else progress(total, "learning", show) as bar:
            for seed in spawn(asked.seed, asked.runs)[keeper.run :]:
                found = driver.drive(OverRanks(comm, job, dtype, keeper, seed), asked, bar)
                keeper.finish(found, last=keeper.run + 1 == asked.runs)
    # A rank that resumes what is finished has no result of its own.
    like = driver.Realization({}, [], None, keeper.clock, "mpi", dtype.name)
    return driver.trace_of(keeper.done, asked, time.perf_counter() - began, like)


def _settings(job: driver.Job, dtype: Any, size: int) -> dict[str, Any]:
    """What must be the same for a run to be resumed, in words; data and network are hashed."""
    method, exchange = job.problem.method, job.exchange
    same: dict[str, Any] = {"ranks": size, "dokl": __version__, "dtype": dtype.name}
    same |= {name: getattr(exchange, name) for name in ("order", "intercept", "average")}
    same |= {"every": int(exchange.every), **asdict(job.asked)}
    if method.name != "gradient":
        return same | {"method": method.spec()}
    steps = job.problem.gradient
    schedule = steps.schedule
    numbers = schedule.scale, schedule.offset, schedule.power, schedule.eps
    same |= {"schedule": [schedule.name, *(repr(number) for number in numbers)]}
    return same | {"loss": [steps.loss.name, steps.loss.p], "lam": steps.lam}


@contextmanager
def _lines(total: int | None) -> Iterator[Bar]:
    """Report progress now and then."""
    began = reported = time.monotonic()

    def draw(done: int, remark: str) -> None:
        nonlocal reported
        now = time.monotonic()
        if now - reported >= TELL_SECONDS:
            reported, rate = now, done / (now - began)
            of = "" if total is None else f" of {total:,} ({done / total:.0%})"
            mpi_ranks.log.info(f"learning: {done:,}{of} samples, {rate:,.0f} samples/s")

    bar = Bar(draw)
    yield bar
    bar.flush()


class OverRanks(driver.Executor):
    """One realization by all ranks; this rank has its share of the nodes."""

    engine = "mpi"

    def __init__(
        self, comm: mpi_ranks.Comm, job: driver.Job, dtype: Any, keeper: Keeper, seed: int
    ) -> None:
        self.comm, self.keeper, self.dtype, self.names = comm, keeper, dtype, job.asked.record
        self.problem, self.exchange, data_seed = self.attempt(lambda: job.draw(seed))
        self.plan = mpi_engine.plan(self.problem, self.exchange, dtype, comm)
        self.share = mpi_engine.share_of(self.plan, self._nodes(job.stream, data_seed))
        self.blocks = self._agreed(_own_blocks(job.stream, data_seed, self.share.own))
        self.nodes, self.done, self.marks = len(self.share.owner), keeper.clock, (keeper.steps,)
        self.recorder = Recorder(self.names if comm.rank == 0 else ())
        self.recorder.restore(keeper.now)

    def attempt(self, action: Callable[[], T]) -> T:
        """All ranks learn whether one failed."""
        return mpi_ranks.attempt(self.comm, action)

    def _nodes(self, stream: Any, seed: int) -> int:
        if self.plan.share is not None:
            return len(self.plan.share.owner)
        K = node_count(stream)
        return int(draw_recipe(stream, seed).K) if K is None else int(K)

    def _agreed(self, blocks: Iterator[Block]) -> Iterator[Block]:
        """The next block on all ranks, or an error on all."""
        while (block := self.attempt(lambda: next(blocks, None))) is not None:
            yield block

    def take(self, block: Block) -> tuple[int, int]:
        """With the first block comes the worker. Ranks meet after every piece: not too often."""
        features, m = self.problem.map, int(block.Y.shape[1])
        self.block, self.cast = block, block.cast(self.plan.dtype)
        if self.fed == 0:
            about = features.fingerprint, self.share.own, *self.plan.local.graph
            self.digest = digest_of(block, *about)
            state = init(self.problem, self.exchange, len(self.share.own), m, self.plan.dtype)
            if self.done:
                state = self.attempt(lambda: self.keeper.state(self.digest))
            self.worker = mpi_engine.Worker(self.plan, self.share, state)
            self.state = self.worker.view
        work = -(-self.nodes // self.comm.size) * m * features.D * (features.d + 16)
        return block.n, max(1, min(driver.longest(self.nodes, m), WORK // work))

    def advance(self, start: int, stop: int) -> None:
        """Own nodes on every rank; what is recorded of them comes to rank 0."""
        here = start - self.fed, stop - self.fed
        f, y = self.worker.advance(self.cast.steps(*here)), driver.targets(self.block, *here)
        self.state = self.worker.view
        if any(name in PER_STEP and name != "bytes" for name in self.names):
            f, y = self._gather(f), self._gather(y)
        self.recorder.take(f, y, self, slice(start, stop))

    def _gather(self, values: Array) -> Any:
        """(n, own, m) of each rank as (n, K, m) on rank 0."""
        turned = values.transpose(1, 0, 2)
        found = mpi_ranks.gather(self.comm, self.share.owner, self.share.own, turned)
        return None if found is None else np.ascontiguousarray(found.transpose(1, 0, 2))

    def snapshot(self, step: int) -> None:
        """From the state of all nodes, if something is taken from it."""
        taken = any(name in NOW_AND_THEN for name in self.names)
        self.recorder.snapshot(step, self._whole() if taken else None)

    def _whole(self) -> State | None:
        """The state of all nodes on rank 0."""
        return mpi_engine.whole(self.plan, self.share, self.state)

    def after(self, step: int) -> None:
        """Write a checkpoint, if it is time."""
        if self.keeper.due(step):
            now = self.recorder.arrays() if self.comm.rank == 0 else {}
            self.keeper.keep(step, self.state, self.digest, now)

    def kept(self) -> State | None:
        """The final state of all nodes on rank 0, if it was asked for."""
        state = self._whole() if "state" in self.names else None
        self.worker.close()
        self.plan.close()
        return state


def _own_blocks(stream: Any, seed: int, own: Array) -> Iterator[Block]:
    """Own nodes' samples, block after block; nobody else's are kept."""
    if any(hasattr(stream, name) for name in ("draw", "draw_nodes", "nodes")):
        yield draw_nodes(stream, seed, own).block()
    elif hasattr(stream, "block"):
        yield mpi_engine.columns(stream.block(), own)
    elif hasattr(stream, "__iter__"):
        for part in stream:
            yield draw_nodes(part, seed, own).block()
    else:
        raise BadInput(f"a stream is a Stream, a recipe of one, or Streams in turn; got {stream!r}")
