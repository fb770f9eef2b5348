"""A whole simulation over ranks: what `driver.run` does in one process, with engine="mpi".

Each rank draws or reads its own nodes' samples and keeps their vectors; per block, predictions and
targets come to rank 0, which records exactly as the driver does. Realizations run one after
another, each over all ranks.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np

from dokl import __version__
from dokl.arrays import Array, Block
from dokl.diffusion import Problem, Trace, init
from dokl.draws import drawn, spawn
from dokl.engines import ranks
from dokl.engines.driver import BLOCK, NOW_AND_THEN, PER_STEP, _cuts, _Recorder, _total
from dokl.engines.spread import crew
from dokl.engines.spread.checkpoints import Checkpoint, Keeper, Result, digest_of
from dokl.errors import BadInput
from dokl.exchange import Exchange
from dokl.progress import Bar, progress
from dokl.state import State
from dokl.streams.stream import draw_nodes, node_count

# Launchers take stderr through a pipe, where a bar cannot move: a line now and then replaces it.
TELL_SECONDS = 10.0
# Multiply-adds of one rank between two meetings: a few tenths of a second.
WORK = 1 << 29


def run(
    problem: Problem,
    exchange: Exchange,
    stream: Any,
    *,
    runs: int,
    seed: int,
    record: Sequence[str],
    snapshot: int | None,
    dtype: Any,
    show_progress: bool | None,
    count: int | None,
    checkpoint: Checkpoint | None,
) -> Trace:
    """The Trace of a run over all ranks (`count` of them, if given), which call this alike.

    Rank 0's trace holds the curves, and states if "state" is recorded; the others' hold neither.
    """
    comm, began = crew.world(count), time.perf_counter()
    dtype = np.dtype(np.float32 if dtype is None else dtype)
    with crew.together(comm):
        crew.agree(comm)
        settings = _settings(problem, exchange, record, comm.size)
        settings |= {"seed": seed, "runs": runs, "snapshot": snapshot, "dtype": dtype.name}
        keeper = Keeper(comm, checkpoint, settings)
        show, total = show_progress if comm.rank == 0 else False, _total(stream, runs)
        tells = show is None and comm.size > 1 and not sys.stderr.isatty()
        with progress(total, "learning", show) as bar:
            what = problem, exchange, stream, dtype, record, snapshot
            job = _Job(comm, *what, keeper, bar, total, tells)
            results, steps = job.all_of(spawn(seed, runs))
    return _trace(results, record, runs, steps, seed, dtype, time.perf_counter() - began)


def _settings(
    problem: Problem, exchange: Exchange, record: Sequence[str], size: int
) -> dict[str, Any]:
    """What must be the same for a run to be resumed, in words; data and network are hashed."""
    loss, schedule = problem.method.loss, problem.method.schedule
    numbers = schedule.scale, schedule.offset, schedule.power, schedule.eps
    return {
        "ranks": size,
        "dokl": __version__,
        "loss": [loss.name, loss.p],
        "schedule": [schedule.name, *(repr(number) for number in numbers)],
        "lam": problem.method.lam,
        "order": exchange.order,
        "every": int(exchange.every),
        "intercept": exchange.intercept,
        "average": exchange.average,
        "record": list(record),
    }


@dataclass
class _Job:
    """What all realizations share."""

    comm: crew.Comm
    problem: Problem
    exchange: Exchange
    stream: Any
    dtype: Any
    record: Sequence[str]
    snapshot: int | None
    keeper: Keeper
    bar: Bar
    total: int | None
    tells: bool
    began: float = field(default_factory=time.monotonic)
    told: float = field(default_factory=time.monotonic)

    def advance_bar(self, samples: int) -> None:
        """Move the bar, or say how far we are."""
        self.bar.advance(samples)
        now = time.monotonic()
        if self.tells and now - self.told >= TELL_SECONDS:
            self.told = now
            done, rate = self.bar.done, self.bar.done / (now - self.began)
            of = "" if self.total is None else f" of {self.total:,} ({done / self.total:.0%})"
            crew.log.info(f"learning: {done:,}{of} samples, {rate:,.0f} samples/s")

    def all_of(self, seeds: list[int]) -> tuple[list[Result], int]:
        """Results of all realizations (on rank 0), and steps of each."""
        first, keeper = self.keeper.run, self.keeper
        done, now = crew.attempt(self.comm, keeper.record)
        steps = keeper.clock
        for number, seed in enumerate(seeds):
            if number < first:
                continue
            resumed = number == first and keeper.clock > 0
            result, steps = self.realize(number, seed, done, now if resumed else None)
            done = [*done, result]
            last = number + 1 == len(seeds)
            # The last set has no vectors, only results: resuming a finished run returns them.
            keeper.keep(number + 1, steps if last else 0, None, "", done, {})
        return done, steps

    def realize(
        self, number: int, seed: int, done: list[Result], now: dict[str, Array] | None
    ) -> tuple[Result, int]:
        """Draw features, graph and own data from the seed, and run; now: what was recorded."""
        feature_seed, graph_seed, data_seed = spawn(seed, 3)
        problem, exchange = crew.attempt(self.comm, lambda: self._drawn(feature_seed, graph_seed))
        plan = ranks.plan(problem, exchange, self.dtype, self.comm)
        share = ranks.share_of(plan, self._nodes(plan, data_seed))
        recorder = _Recorder(self.record, problem, exchange, exchange.graphs)
        if now is not None:
            _restore(recorder, now)
        leg = _Leg(self, plan, share, recorder, number, done)
        blocks = _own_blocks(self.stream, data_seed, share.own)
        while (block := crew.attempt(self.comm, lambda: next(blocks, None))) is not None:
            leg.feed(block, resumed=now is not None)
        state = leg.finish()
        plan.close()
        return Result(recorder.curves(), recorder.points, state), leg.begin

    def _drawn(self, feature_seed: int, graph_seed: int) -> tuple[Problem, Exchange]:
        problem = replace(self.problem, features=drawn(self.problem.features, feature_seed))
        return problem, replace(self.exchange, weights=drawn(self.exchange.weights, graph_seed))

    def _nodes(self, plan: ranks.Plan, seed: int) -> int:
        if plan.share is not None:
            return len(plan.share.owner)
        K = node_count(self.stream)
        return int(drawn(self.stream, seed).K) if K is None else int(K)


def _own_blocks(stream: Any, seed: int, own: Array) -> Iterator[Block]:
    """Own nodes' samples, block after block; nobody else's are kept."""
    if any(hasattr(stream, name) for name in ("draw", "draw_nodes", "nodes")):
        yield draw_nodes(stream, seed, own).block()
    elif hasattr(stream, "block"):
        yield ranks.columns(stream.block(), own)
    elif hasattr(stream, "__iter__"):
        for part in stream:
            yield draw_nodes(part, seed, own).block()
    else:
        raise BadInput(f"a stream is a Stream, a recipe of one, or Streams in turn; got {stream!r}")


class _Leg:
    """One realization on its way."""

    def __init__(
        self,
        job: _Job,
        plan: ranks.Plan,
        share: ranks.Share,
        recorder: _Recorder,
        number: int,
        done: list[Result],
    ) -> None:
        self.job, self.plan, self.share, self.recorder = job, plan, share, recorder
        self.number, self.done, self.begin = number, done, 0
        self.worker: ranks.Worker | None = None
        self.digest = ""
        self.root = job.comm.rank == 0

    def feed(self, block: Block, resumed: bool) -> None:
        """Run a block, piece by piece; pieces before the checkpoint are only counted."""
        worker = self._worker(block, resumed)
        keeper, K = self.job.keeper, len(self.share.owner)
        begin, cast = self.begin, block.cast(self.plan.dtype)
        for start, stop in pairwise(self._cuts(begin, begin + block.n, worker.m)):
            if start >= worker.clock:
                piece = cast.steps(start - begin, stop - begin)
                self._record(start, stop, piece, block.Y, worker.advance(piece))
                if keeper.due(stop):
                    now = _arrays(self.recorder) if self.root else {}
                    keeper.keep(self.number, stop, worker.state, self.digest, self.done, now)
            self.job.advance_bar((stop - start) * K)
        self.begin += block.n

    def _worker(self, block: Block, resumed: bool) -> ranks.Worker:
        """The worker, made for the first block: at the beginning, or from the checkpoint."""
        if self.worker is None:
            plan, keeper = self.plan, self.job.keeper
            own, m = self.share.own, block.Y.shape[1]
            about = plan.problem.features.fingerprint, own, *plan.local.graph
            self.digest = digest_of(block, *about)
            state = init(plan.problem, plan.exchange, len(own), m, plan.dtype)
            if resumed:
                state = crew.attempt(self.job.comm, lambda: keeper.state(self.digest))
            self.worker = ranks.Worker(plan, self.share, state)
        return self.worker

    def _cuts(self, start: int, stop: int, m: int) -> list[int]:
        """Where ranks meet: alike on all of them, and at the clock of a checkpoint."""
        K, P, D = len(self.share.owner), self.job.comm.size, self.plan.problem.features.D
        work = -(-K // P) * m * D * (self.plan.problem.features.d + 16)
        size = max(1, min(BLOCK // (K * m), WORK // work))
        cuts = set(_cuts(start, stop, size, self.job.snapshot))
        if self.job.keeper.steps is not None:
            cuts |= set(_cuts(start, stop, size, self.job.keeper.steps))
        clock = 0 if self.worker is None else self.worker.clock
        return sorted(cuts | ({clock} if start < clock < stop else set()))

    def _record(self, start: int, stop: int, piece: Block, Y: Array, f: Array) -> None:
        names, worker = self.recorder.names, self.worker
        assert worker is not None
        every_f, every_y = (np.empty((stop - start, 0, 0)),) * 2
        if any(name in PER_STEP for name in names):
            y = np.where((piece.index >= 0)[..., None], Y[np.maximum(piece.index, 0)], np.nan)
            every_f, every_y = self._gathered(f), self._gathered(y)
        if self.root:
            self.recorder.after_block(start, worker.view, every_f, every_y)
        if self.job.snapshot is not None and stop % self.job.snapshot == 0:
            taken = any(name in NOW_AND_THEN for name in names)
            state = ranks.whole(self.plan, self.share, worker.state) if taken else worker.view
            if self.root and state is not None:
                self.recorder.snapshot(state)

    def _gathered(self, values: Array) -> Any:
        """(n, own, m) of each rank as (n, K, m) on rank 0."""
        turned = values.transpose(1, 0, 2)
        found = crew.gather(self.job.comm, self.share.owner, self.share.own, turned)
        return None if found is None else np.ascontiguousarray(found.transpose(1, 0, 2))

    def finish(self) -> State | None:
        """The final state of all nodes on rank 0, if it was asked for."""
        crew.attempt(self.job.comm, self._check_end)
        assert self.worker is not None
        state = None
        if "state" in self.recorder.names:
            state = ranks.whole(self.plan, self.share, self.worker.state)
        self.worker.close()
        return state

    def _check_end(self) -> None:
        if self.worker is None:
            raise BadInput("the stream is empty")
        if self.root and self.job.snapshot is not None and not self.recorder.points:
            raise BadInput(
                f"snapshot={self.job.snapshot} is beyond the stream's {self.begin} steps"
            )


def _arrays(recorder: _Recorder) -> dict[str, Array]:
    """What was recorded so far, as arrays."""
    arrays: dict[str, Array] = {"points": np.array(recorder.points, np.int64)}
    for name, parts in recorder.parts.items():
        arrays[name] = np.stack(parts) if name in NOW_AND_THEN else np.concatenate(parts)
    return arrays


def _restore(recorder: _Recorder, arrays: dict[str, Array]) -> None:
    for name, values in arrays.items():
        if name == "points":
            recorder.points.extend(int(p) for p in values)
        else:
            recorder.parts[name] = list(values) if name in NOW_AND_THEN else [values]


def _trace(
    results: list[Result],
    record: Sequence[str],
    runs: int,
    steps: int,
    seed: int,
    dtype: Any,
    seconds: float,
) -> Trace:
    names = results[0].curves if results else {}
    stacked = {name: np.stack([r.curves[name] for r in results]) for name in names}
    at = {
        name: np.array(results[0].points) if name in NOW_AND_THEN else np.arange(1, steps + 1)
        for name in names
    }
    states = [r.state for r in results if r.state is not None]
    return Trace(stacked, at, states, runs, steps, seed, "mpi", str(dtype), seconds)
