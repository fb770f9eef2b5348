"""`run`: a network over a stream, many times, by any engine."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from dokl.base.arrays import Array, Block
from dokl.base.errors import BadInput
from dokl.base.progress import Bar, progress
from dokl.base.unlocked import one_thread
from dokl.network.exchange import Exchange
from dokl.network.exchange.attacks import attacked_rows
from dokl.network.state import State
from dokl.simulation import driver
from dokl.simulation.diffusion import Problem, Trace, init
from dokl.simulation.driver import Job, Realization
from dokl.simulation.engines.choice import candidates, choose, module_of
from dokl.simulation.recording import Recorder, check_asked


class ByEngine(driver.Executor):
    """One realization, drawn from its seed, by an engine's `advance`."""

    def __init__(self, job: Job, seed: int) -> None:
        self.problem, self.exchange, data_seed = job.draw(seed)
        chosen = choose(job.engine, self.problem, self.exchange, job.dtype, job.work)
        self.engine, self.module, self.plan = chosen
        self.job, given = job, driver.blocks_of(job.stream, data_seed)
        faults = self.exchange.attack, self.exchange.faulty
        self.blocks = (
            given if faults[0] is None else (attacked_rows(*faults, block) for block in given)
        )
        self.recorder = Recorder(job.asked.record)
        counted = not self.exchange.plain or self.problem.method.merges
        rules = self.exchange.graphs and counted
        if rules and "bytes" in job.asked.record:
            self.marks = (self.exchange.every,)  # what was sent is known after each exchange

    def take(self, block: Block, cast: Block | None = None) -> tuple[int, int]:
        """With the first block comes the state; cast: the block as the engine takes it."""
        if self.nodes == 0:
            self.nodes, m = block.index.shape[1], block.Y.shape[1]
            self.state = init(self.problem, self.exchange, self.nodes, m, self.plan.dtype)
            self.dtype = self.state.theta.dtype
        self.block, self.cast = block, block.cast(self.plan.dtype) if cast is None else cast
        return block.n, driver.longest(self.nodes, block.Y.shape[1])

    def advance(self, start: int, stop: int) -> None:
        """By the engine."""
        piece = self.cast.steps(start - self.fed, stop - self.fed)
        found = self.module.advance(self.plan, self.state, piece, self.job.workers)
        self.learned(start, stop, *found)

    def learned(self, start: int, stop: int, state: State, f: Array) -> None:
        """Take over what the engine found in a piece, and record it."""
        self.sent, self.state = state.sent - self.state.sent, state
        y = driver.targets(self.block, start - self.fed, stop - self.fed)
        if self.exchange.faulty:  # as if these nodes had no samples
            f = np.array(f)
            f[:, list(self.exchange.faulty)] = np.nan
        self.recorder.take(f, y, self, slice(start, stop))

    def snapshot(self, step: int) -> None:
        """Record what is recorded now and then, of honest nodes."""
        faulty = bool(self.exchange.faulty)
        honest = self.state.part(self.exchange.honest(self.nodes)) if faulty else self.state
        self.recorder.snapshot(step, honest)

    def kept(self) -> State | None:
        """The final state, if it is wanted."""
        return self.state if self.job.asked.keep else None


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
    dtype: DTypeLike | None = None,
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
    theta, delivered (every `snapshot` steps), bytes (sent so far), state (the final one). Where
    the exchange has faulty nodes, errors and snapshots are of the honest ones, and
    predictions of faulty ones are NaN.

    With engine="mpi" all ranks of an MPI job call this alike; rank 0 gets the result. `ranks`: how
    many there must be; checkpoint: a `checkpoints.Checkpoint`, to resume the run after a crash.

    >>> from dokl import Exchange, Features, Gaussian, GraphRecipe, Problem
    >>> from dokl import gradient, losses, schedules
    >>> from dokl.simulation.streams import Example2
    >>> step = gradient(losses.squared(), schedules.constant(1))
    >>> problem = Problem(Features(Gaussian(5.0), 5, 100), step)
    >>> together = Exchange(GraphRecipe("ring", 8), order="cta")
    >>> trace = run(problem, together, Example2(K=8, n=400), runs=3, seed=1)
    >>> trace["mse"].shape, bool(trace.tail().mean() < trace["mse"][:20].mean())
    ((400,), True)
    """
    given, workers = check_asked(record, snapshot, runs, seed), workers or os.cpu_count() or 1
    if isinstance(stream, Iterator) and runs > 1:
        raise BadInput("an iterator of Streams can be read only once: pass a list, or runs=1")
    total = driver.samples_in(stream, runs)
    work = float((total or 0) * getattr(problem.features, "D", 0))
    inside = 1 if runs > 1 else workers
    job = Job(problem, exchange, stream, given, engine, dtype, inside, work)
    if engine == "mpi":
        from dokl.simulation.engines import mpi_cluster

        return mpi_cluster.run(job, ranks, checkpoint, show_progress)
    if ranks is not None or checkpoint is not None:
        raise BadInput(f"ranks and checkpoints are for engine='mpi', not {engine!r}")
    began, bar = time.perf_counter(), progress(total, "learning", show_progress)
    results = _all_runs(job, bar, workers)
    return driver.trace_of(results, given, time.perf_counter() - began)


def _all_runs(job: Job, bar: AbstractContextManager[Bar], workers: int) -> list[Realization]:
    """On at most this many threads, or in step where the engine advances many runs at once."""
    method, runs = job.problem.method.name, job.asked.runs
    likely = module_of(candidates(job.engine, job.work)[0], method)
    # Compiled loops have threads of their own; least squares is made of small products.
    alone = nullcontext() if method == "gradient" else one_thread()
    with alone, bar as shown, ThreadPoolExecutor(min(workers, runs)) as pool:
        if runs > 1 and hasattr(likely, "advance_many"):
            from dokl.simulation.engines import jax_batches

            return jax_batches.in_step(job, shown, pool)
        return driver.drive_all(lambda seed: ByEngine(job, seed), job.asked, shown, pool)


def check_engine(engine: str, dtype: DTypeLike = np.float64, tol: float = 1e-9) -> None:
    """Hold an engine to the reference on small problems of every kind; raises BadInput.

    Run it on an engine of your own (add it to `ENGINES` first).

    >>> check_engine("numba")
    """
    from dokl.learning import losses, schedules
    from dokl.learning.features import VARIANTS, Features
    from dokl.learning.kernels import Gaussian
    from dokl.network import graphs
    from dokl.simulation.methods import gradient
    from dokl.simulation.streams import Example2, Missing

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
