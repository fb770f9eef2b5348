"""Run a network over a stream, many times: draw the recipes, feed blocks, record, report."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np

from dokl import metrics
from dokl.arrays import Array, Block
from dokl.diffusion import Problem, Trace, combines_now, init
from dokl.draws import check_seed, drawn, spawn
from dokl.engines.choice import DEFAULT_DTYPE as DEFAULT_DTYPE
from dokl.engines.choice import EngineNotice as EngineNotice
from dokl.engines.choice import candidates, choose, module_of
from dokl.errors import BadInput, UnknownName
from dokl.exchange import Exchange
from dokl.progress import Bar, progress
from dokl.state import State

# Recorded at every step, from predictions f and targets y: (n, K, m) -> (n, ...).
PER_STEP: dict[str, Callable[..., Array]] = {
    "mse": lambda problem, f, y: metrics.squared_error(f, y),
    "node_mse": lambda problem, f, y: metrics.node_squared_error(f, y),
    "mistakes": lambda problem, f, y: metrics.mistakes(f, y),
    "loss": lambda problem, f, y: metrics.mean_loss(problem.method.loss.value, f, y),
    "predictions": lambda problem, f, y: f,
}
# Recorded every `snapshot` steps, from the state.
NOW_AND_THEN: dict[str, Callable[[State], Any]] = {
    "disagreement": lambda state: metrics.disagreement(state.theta),
    "theta": lambda state: state.theta.copy(),
    "delivered": lambda state: state.delivered()[0].copy(),
}
RECORDABLE = (*PER_STEP, *NOW_AND_THEN, "bytes", "state")
# Predictions held at once; also how often a progress bar moves.
BLOCK = 1 << 19


@dataclass
class _Recorder:
    """Collects what was asked for, block by block, for one realization."""

    names: Sequence[str]
    problem: Problem
    exchange: Exchange
    graphs: list[Any]
    parts: dict[str, list[Any]] = field(default_factory=dict)
    points: list[int] = field(default_factory=list)

    def after_block(self, start: int, state: State, f: Array, y: Array) -> None:
        """Per-step quantities of a block that began at step `start` (from 0)."""
        for name in self.names:
            if name in PER_STEP:
                value = PER_STEP[name](self.problem, f, y)
                self.parts.setdefault(name, []).append(value)
        if "bytes" in self.names:
            self.parts.setdefault("bytes", []).append(self._bytes(start, len(f), state))

    def _bytes(self, start: int, n: int, state: State) -> Array:
        sent, clocks = np.zeros(n), np.arange(start, start + n)
        if self.graphs:
            mixing = np.array([combines_now(self.exchange, self.graphs, int(c)) for c in clocks])
            size = int(state.theta[0].nbytes)
            sent[mixing] = metrics.bytes_sent(self.graphs, clocks[mixing], size)
        return sent

    def snapshot(self, state: State) -> None:
        """Quantities taken now and then."""
        self.points.append(state.clock)
        for name in self.names:
            if name in NOW_AND_THEN:
                self.parts.setdefault(name, []).append(NOW_AND_THEN[name](state))

    def curves(self) -> dict[str, Array]:
        """Everything recorded, as arrays (points, ...); bytes are cumulated."""
        out = {}
        for name, parts in self.parts.items():
            out[name] = np.stack(parts) if name in NOW_AND_THEN else np.concatenate(parts)
        if "bytes" in out:
            out["bytes"] = np.cumsum(out["bytes"])
        return out


def _blocks(stream: Any, seed: int) -> Iterable[Block]:
    """A stream's samples as blocks: a recipe, a Stream, or an iterable of Streams."""
    if hasattr(stream, "block"):
        return [stream.block(seed) if hasattr(stream, "draw") else stream.block()]
    if hasattr(stream, "draw"):
        return [stream.draw(seed).block()]
    if isinstance(stream, Iterable):
        return (part.block() for part in stream)
    raise BadInput(f"a stream is a Stream, a recipe of one, or Streams in turn; got {stream!r}")


def _cuts(start: int, stop: int, size: int, snapshot: int | None) -> list[int]:
    """Where to cut steps start..stop: no piece longer than `size`, and at every snapshot."""
    cuts = set(range(start, stop, size)) | {stop}
    if snapshot is not None:
        cuts |= set(range(start - start % snapshot + snapshot, stop, snapshot))
    return sorted(cuts)


def targets(Y: Array, index: Array) -> Array:
    """The targets (n, K, m) at each step; NaN where a node has no sample."""
    return np.where((index >= 0)[..., None], Y[np.maximum(index, 0)], np.nan)


Result = tuple[dict[str, Array], list[int], State, str]


@dataclass
class Start:
    """A realization that is drawn and planned; its state comes with the first block."""

    problem: Problem
    exchange: Exchange
    name: str
    engine: Any
    plan: Any
    recorder: _Recorder
    blocks: Iterable[Block]
    state: State | None = None


@dataclass(frozen=True)
class _Job:
    """One realization to run, drawn from its own seed."""

    problem: Problem
    exchange: Exchange
    stream: Any
    engine: str
    dtype: Any
    record: Sequence[str]
    snapshot: int | None
    workers: int
    bar: Bar
    work: float = 0.0

    def prepare(self, seed: int) -> Start:
        """Draw features, graph and data from the seed."""
        feature_seed, graph_seed, data_seed = spawn(seed, 3)
        problem = replace(self.problem, features=drawn(self.problem.features, feature_seed))
        exchange = replace(self.exchange, weights=drawn(self.exchange.weights, graph_seed))
        chosen = choose(self.engine, problem, exchange, self.dtype, self.work)
        recorder = _Recorder(self.record, problem, exchange, exchange.graphs)
        return Start(problem, exchange, *chosen, recorder, _blocks(self.stream, data_seed))

    def realize(self, seed: int) -> Result:
        """Draw a realization, run it, and return what was recorded."""
        return self.go(self.prepare(seed))

    def go(self, start: Start) -> Result:
        """Run a realization over its blocks."""
        for block in start.blocks:
            K, m = block.index.shape[1], block.Y.shape[1]
            if start.state is None:
                start.state = init(start.problem, start.exchange, K, m, start.plan.dtype)
            start.state = self._feed(start.engine, start.plan, start.state, block, start.recorder)
        return self.finish(start)

    def finish(self, start: Start) -> Result:
        """What was recorded."""
        state, recorder = start.state, start.recorder
        if state is None:
            raise BadInput("the stream is empty")
        if self.snapshot is not None and not recorder.points:
            raise BadInput(f"snapshot={self.snapshot} is beyond the stream's {state.clock} steps")
        return recorder.curves(), recorder.points, state, start.name

    def _feed(
        self, engine: Any, plan: Any, state: State, block: Block, recorder: _Recorder
    ) -> State:
        K, m, begin = block.index.shape[1], block.Y.shape[1], state.clock
        size, cast = max(1, BLOCK // (K * m)), block.cast(plan.dtype)  # once for all pieces
        cuts = _cuts(begin, begin + block.n, size, self.snapshot)
        for start, stop in pairwise(cuts):
            piece = cast.steps(start - begin, stop - begin)
            state, f = engine.advance(plan, state, piece, self.workers)
            recorder.after_block(start, state, f, targets(block.Y, piece.index))
            if self.snapshot is not None and (stop % self.snapshot == 0):
                recorder.snapshot(state)
            self.bar.advance((stop - start) * K)
        return state


def run(
    problem: Problem,
    exchange: Exchange,
    stream: Any,
    *,
    engine: str = "auto",
    runs: int = 1,
    seed: int = 0,
    record: Sequence[str] = ("mse",),
    snapshot: int | None = None,
    dtype: Any = None,
    workers: int | None = None,
    show_progress: bool | None = None,
    ranks: int | None = None,
    checkpoint: Any = None,
) -> Trace:
    """Simulate a network over a stream, `runs` times; returns the Trace of what was recorded.

    Features, weights and stream may be recipes (anything with `draw(seed)`): each run redraws
    them with seeds spawned from `seed`; plain arrays stay fixed. Runs are shared among `workers`
    threads (all cores by default); a single run of a large network is shared node by node.

    record: any of mse, node_mse, mistakes, loss, predictions (at every step), disagreement,
    theta, delivered (every `snapshot` steps), bytes (sent so far), state (the final one).

    With engine="mpi" all ranks of an MPI job call this alike; rank 0 gets the result. `ranks`: how
    many there must be; checkpoint: a `checkpoints.Checkpoint`, to resume the run after a crash.

    >>> from dokl import Exchange, Features, Gaussian, GraphRecipe, Problem
    >>> from dokl import gradient, losses, schedules
    >>> from dokl.streams import Example2
    >>> step = gradient(losses.squared(), schedules.constant(1))
    >>> problem = Problem(Features(Gaussian(5.0), 5, 100), step)
    >>> together = Exchange(GraphRecipe("ring", 8), order="cta")
    >>> trace = run(problem, together, Example2(K=8, n=400), runs=3, seed=1)
    >>> trace["mse"].shape, bool(trace.tail().mean() < trace["mse"][:20].mean())
    ((400,), True)
    """
    record, seed = _checked_record(record, snapshot, runs), check_seed(seed)
    if isinstance(stream, Iterator) and runs > 1:
        raise BadInput("an iterator of Streams can be read only once: pass a list, or runs=1")
    if engine == "mpi":
        from dokl.engines.spread import cluster

        return cluster.run(
            problem, exchange, stream, runs=runs, seed=seed, record=record, snapshot=snapshot,
            dtype=dtype, show_progress=show_progress, count=ranks, checkpoint=checkpoint,
        )  # fmt: skip
    if ranks is not None or checkpoint is not None:
        raise BadInput(f"ranks and checkpoints are for engine='mpi', not {engine!r}")
    workers = workers or os.cpu_count() or 1
    began = time.perf_counter()
    total = _total(stream, runs)
    with progress(total, "learning", show_progress) as bar:
        inside = 1 if runs > 1 else workers
        work = float((total or 0) * getattr(problem.features, "D", 0))
        job = _Job(problem, exchange, stream, engine, dtype, record, snapshot, inside, bar, work)
        seeds = spawn(seed, runs)
        if runs == 1:
            results = [job.realize(seeds[0])]
        else:
            with ThreadPoolExecutor(min(workers, runs)) as pool:
                results = _realize_all(job, seeds, pool)
    seconds = time.perf_counter() - began
    return _trace(results, record, seed, seconds, dtype)


def _realize_all(job: _Job, seeds: list[int], pool: ThreadPoolExecutor) -> list[Result]:
    """All realizations: in step with an engine that takes many at once, else one a thread."""
    likely = module_of(candidates(job.engine, job.work)[0])
    if not hasattr(likely, "advance_many"):
        return list(pool.map(job.realize, seeds))
    from dokl.engines.device import batches

    return batches.realize_all(job, seeds, pool)


def _checked_record(record: Sequence[str], snapshot: int | None, runs: int) -> Sequence[str]:
    record = (record,) if isinstance(record, str) else tuple(record)
    for name in record:
        if name not in RECORDABLE:
            raise UnknownName("quantity to record", name, RECORDABLE)
        if name in NOW_AND_THEN and snapshot is None:
            raise BadInput(f"recording {name!r} needs snapshot=: every how many steps to take it")
    if not (isinstance(runs, int | np.integer) and runs >= 1):
        raise BadInput(f"runs must be a whole number, at least 1, got {runs!r}")
    if snapshot is not None and not (isinstance(snapshot, int | np.integer) and snapshot >= 1):
        raise BadInput(f"snapshot must be a whole number of steps, at least 1, got {snapshot!r}")
    return record


def _total(stream: Any, runs: int) -> int | None:
    n, K = getattr(stream, "n", None), getattr(stream, "K", None)
    return n * K * runs if n is not None and K is not None else None


def _trace(
    results: list[Any], record: Sequence[str], seed: int, seconds: float, dtype: Any
) -> Trace:
    curves, points, state, engine = results[0]
    stacked = {name: np.stack([r[0][name] for r in results]) for name in curves}
    at = {
        name: np.array(points) if name in NOW_AND_THEN else np.arange(1, state.clock + 1)
        for name in curves
    }
    states = [r[2] for r in results] if "state" in record or len(results) == 1 else []
    kind = str(np.dtype(state.theta.dtype))
    return Trace(stacked, at, states, len(results), state.clock, seed, engine, kind, seconds)


def check_engine(engine: str, dtype: Any = np.float64, tol: float = 1e-9) -> None:
    """Hold an engine to the reference on small problems of every kind; raises BadInput.

    Run it on an engine of your own (add it to `ENGINES` first).

    >>> check_engine("numba")
    """
    from dokl import graphs, losses, schedules
    from dokl.features import VARIANTS, Features
    from dokl.kernels import Gaussian
    from dokl.methods import gradient
    from dokl.streams import Example2, Missing

    weights = graphs.GraphRecipe("random", 5)
    stream = Missing(Example2(K=5, n=60), p=0.2)
    for variant in VARIANTS:
        for order, average, every in (("cta", "none", 1), ("atc", "weighted", 3)):
            problem = Problem(
                Features(Gaussian(3.0), 5, 32, variant),
                gradient(losses.huber(), schedules.sqrt(0.5), 1e-3),
            )
            exchange = Exchange(weights, order, every, 0.5, average)
            record = ("predictions", "state")
            kwargs: dict[str, Any] = {"record": record, "dtype": dtype, "show_progress": False}
            ours = run(problem, exchange, stream, engine=engine, **kwargs)
            true = run(problem, exchange, stream, engine="reference", **kwargs)
            for name, a, b in (
                ("predictions", ours.curves["predictions"], true.curves["predictions"]),
                ("theta", ours.states[0].theta, true.states[0].theta),
                ("delivered", ours.states[0].delivered()[0], true.states[0].delivered()[0]),
            ):
                gap = float(np.nanmax(np.abs(a - b)))
                if not gap <= tol:
                    raise BadInput(
                        f"engine {engine!r}: {name} differ from the reference by {gap:.3g} "
                        f"(variant {variant}, order {order}, average {average})"
                    )
