"""Every engine that is installed on the same problems: time, speed-up, and how far they differ."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dokl.base.errors import MissingExtra
from dokl.learning import losses, schedules
from dokl.learning.features import Features
from dokl.learning.kernels import Gaussian
from dokl.network.exchange import Exchange
from dokl.network.graphs import GraphRecipe
from dokl.paper.problems import example_problem
from dokl.simulation.diffusion import Problem, Trace
from dokl.simulation.engines import ENGINES, run
from dokl.simulation.engines.choice import DEFAULT_DTYPE, gpu, module_of
from dokl.simulation.methods import gradient
from dokl.simulation.streams import Example1, Example2

# Started by a launcher, so it cannot take its turn in one process.
LAUNCHED = ("mpi",)


@dataclass(frozen=True)
class Task:
    """One problem for all engines, small enough for the slowest of them."""

    name: str
    problem: Problem
    exchange: Exchange
    stream: Any
    runs: int = 1
    seed: int = 1


@dataclass(frozen=True)
class EngineRow:
    """One engine on one task. `note` says why there is no figure, or on what it ran."""

    task: str
    engine: str
    dtype: str = ""
    seconds: float | None = None  # of the second call: compilation is not in it
    first_seconds: float | None = None  # of the first call, compilation included
    speedup: float | None = None  # over the reference
    difference: float | None = None  # the largest of any a-priori prediction from the reference's
    note: str = ""


def tasks() -> list[Task]:
    """A network, a single node and a classifier, at the paper's sizes and for a few steps."""
    network = Exchange(GraphRecipe("random", 20), "cta")
    small, large = example_problem(300), example_problem(2500)
    smooth = Problem(
        Features(Gaussian(5.0), 5, 500, "orthogonal"),
        gradient(losses.huber(), schedules.sqrt(1.0), 1e-3),
    )
    delivered = Exchange(GraphRecipe("random", 20), "atc", average="weighted")
    return [
        Task("20 nodes, D = 300", small, network, Example2(n=200), runs=4),
        Task("one node, D = 2500", large, Exchange(), Example1(K=1, n=2000), runs=4),
        Task("20 nodes, D = 500, averaged", smooth, delivered, Example2(n=200), runs=4),
    ]


def compare_engines(
    problems: Sequence[Task] | None = None, engines: Sequence[str] | None = None
) -> list[EngineRow]:
    """One row for each task and engine (all that run in one process, unless named).

    >>> rows = compare_engines(tasks()[:1], ["reference", "numba"])
    >>> [row.engine for row in rows], bool(rows[1].difference < 1e-3)
    (['reference', 'numba'], True)
    """
    names = [name for name in ENGINES if name not in LAUNCHED] if engines is None else engines
    rows = []
    for task in tasks() if problems is None else problems:
        true, first, again = _timed(task, "reference")
        for name in names:
            try:
                module_of(name)
            except MissingExtra as error:
                rows.append(EngineRow(task.name, name, note=str(error)))
                continue
            ours = (true, first, again) if name == "reference" else _timed(task, name)
            rows.append(_row(task, name, true, again, *ours))
    return rows


def _timed(task: Task, engine: str) -> tuple[Trace, float, float]:
    """The trace, and the seconds of a first and a second call."""
    taken = []
    for _ in range(2):
        began = time.perf_counter()
        trace = run(
            task.problem, task.exchange, task.stream, engine=engine, runs=task.runs,
            seed=task.seed, record=("predictions",), show_progress=False,
        )  # fmt: skip
        taken.append(time.perf_counter() - began)
    return trace, taken[0], taken[1]


def _row(
    task: Task, name: str, true: Trace, slow: float, ours: Trace, first: float, again: float
) -> EngineRow:
    gap = np.abs(ours.curves["predictions"] - true.curves["predictions"])
    difference = float(np.nanmax(gap)) if gap.size else 0.0
    where = (gpu() or "on the CPU") if name == "jax" else ""
    dtype = str(np.dtype(DEFAULT_DTYPE[name]))
    return EngineRow(task.name, name, dtype, again, first, slow / again, difference, where)
