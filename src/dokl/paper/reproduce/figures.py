"""Figures 1 to 3: learning curves of the examples."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from dokl.base.arrays import Array
from dokl.learning import losses, schedules
from dokl.learning.features import Features
from dokl.learning.kernels import Gaussian
from dokl.learning.metrics import decibels
from dokl.network.exchange import Exchange
from dokl.network.graphs import GraphRecipe
from dokl.paper import baselines
from dokl.paper.reproduce import lines
from dokl.paper.reproduce.cache import Gathered, Work
from dokl.paper.reproduce.results import FigureCurve, PartResult, Row, bin_means, middles
from dokl.paper.reproduce.settings import Figure, ReproduceOptions, expected, figure
from dokl.simulation.diffusion import Problem, Trace
from dokl.simulation.engines import run
from dokl.simulation.methods import gradient
from dokl.simulation.streams import example

DIMENSIONS = {"example1": 5, "example2": 5, "example3": 1, "example4": 2}
LABELS = {
    "together": "together",
    "alone": "alone",
    "rff": "RFF-KLMS",
    "qklms": "QKLMS",
    "klms": "KLMS",
}
NOTES = {
    "fig1b": "Not at steady state after 15000 samples, and the mean is ruled by the few runs with "
    "large w: it lies above most of the runs.",
    "fig1c": "Cooperation hurts here. Under the reading that the dictionary sizes force (x is the "
    "input u alone) each node's d is its own near random walk, so neighbours' estimates are of "
    "something else. With x = (d, u) it helps (prototype: -34.8 dB together, -31.1 dB alone).",
    "fig2": "The four curves saw the same data, so that their differences from the prototypes' "
    "figures go together.",
    "fig3b": "Not at steady state after 15000 samples, and heavy-tailed in w: compare methods "
    "within this figure (they saw the same data), and means between figures with care.",
}


def problem_of(setting: Figure, D: int) -> Problem:
    """RFF-KLMS with the paper's map."""
    map = Features(Gaussian(setting.sigma), DIMENSIONS[setting.example], D, "cos")
    return Problem(map, gradient(losses.squared(), schedules.constant(setting.mu)))


def works(name: str, options: ReproduceOptions) -> dict[str, Work]:
    """One work for each curve of a panel; curves of a panel see the same data."""
    setting = figure(name)
    stream = example(setting.example, K=setting.nodes, n=setting.n)
    jobs: dict[str, Callable[[int, int], Trace]] = {}
    if setting.nodes > 1:
        together = Exchange(GraphRecipe("random", setting.nodes, "metropolis", {"p": 0.2}), "cta")
        jobs["together"] = _network(setting, setting.D, together, stream, options)
        jobs["alone"] = _network(
            setting, setting.D, replace(together, weights=None), stream, options
        )
    elif setting.widths:
        for D in setting.widths:
            jobs[str(D)] = _network(setting, D, Exchange(), stream, options)
    else:
        jobs["rff"] = _network(setting, setting.D, Exchange(), stream, options)
        kernel = Gaussian(setting.sigma)
        jobs["qklms"] = _baseline(baselines.QKLMS(kernel, setting.mu, setting.q), stream)
        jobs["klms"] = _baseline(baselines.KLMS(kernel, setting.mu), stream)
    return {key: _work(name, key, setting, options, job) for key, job in jobs.items()}


def _network(
    setting: Figure, D: int, exchange: Exchange, stream: object, options: ReproduceOptions
) -> Callable[[int, int], Trace]:
    problem = problem_of(setting, D)

    def job(seed: int, runs: int) -> Trace:
        return run(
            problem, exchange, stream, engine=options.engine_name, runs=runs, seed=seed,
            show_progress=False,
        )  # fmt: skip

    return job


def _baseline(method: Any, stream: Any) -> Callable[[int, int], Trace]:
    def job(seed: int, runs: int) -> Trace:
        return baselines.run(method, stream, runs=runs, seed=seed, show_progress=False)

    return job


def _work(
    name: str,
    key: str,
    setting: Figure,
    options: ReproduceOptions,
    job: Callable[[int, int], Trace],
) -> Work:
    what = asdict(setting)
    for unimportant in ("title", "runs", "quick"):
        del what[unimportant]
    settings = {"figure": what, "curve": key, "seed": options.seed, "engine": options.engine_name}

    def compute(seed: int, runs: int) -> dict[str, Array]:
        trace = job(seed, runs)
        found = {"curve": bin_means(trace.curves["mse"]), "tail": trace.tail("mse")}
        if "size" in trace.curves:
            found["size"] = trace.curves["size"][:, -1]
        return found

    chunk = min(options.chunk, 5) if setting.n > 10000 else options.chunk
    return Work(f"{name}-{key}", settings, options.runs_of(setting), chunk, compute)


def steady_row(group: str, label: str, tail: Array, prototype: float | None) -> Row:
    """The mean of the last tenth in dB; its standard error by the delta rule."""
    mean, error = float(tail.mean()), None
    if len(tail) > 1:
        error = float(tail.std(ddof=1) / math.sqrt(len(tail)) / mean * 10 / math.log(10))
    return Row(group, label, "dB", float(decibels(mean)), error, len(tail), None, prototype)


def curve_of(label: str, n: int, found: Gathered) -> FigureCurve:
    """Mean over runs and where eight of ten runs lie."""
    curves = found.arrays["curve"]
    low, high = np.quantile(curves, (0.1, 0.9), axis=0)
    numbers = [a.tolist() for a in (curves.mean(axis=0), low, high)]
    return FigureCurve(label, middles(n), *numbers)


def size_row(group: str, name: str, sizes: Array) -> Row:
    """The mean number of centres."""
    reference = expected()["centres"][name]
    error = float(sizes.std(ddof=1) / math.sqrt(len(sizes))) if len(sizes) > 1 else None
    ours = float(sizes.mean())
    return Row(
        group,
        "QKLMS centres",
        "",
        ours,
        error,
        len(sizes),
        reference["paper"],
        reference["prototype"],
    )


def reproduce(name: str, options: ReproduceOptions) -> PartResult:
    """Run a panel, or take what is there."""
    setting = figure(name)
    jobs = works(name, options)
    found = options.gather(name, jobs)
    reference = expected()["steady"][name]
    rows, curves = [], []
    for key, gathered in found.items():
        label = LABELS.get(key, f"D = {key}")
        rows.append(steady_row("steady state", label, gathered.arrays["tail"], reference.get(key)))
        curves.append(curve_of(label, setting.n, gathered))
    if "qklms" in found:
        rows.append(size_row("dictionary", name, found["qklms"].arrays["size"]))
    runs = options.runs_of(setting)
    theory = lines.predict_lines(name, setting, jobs, options)
    rows += lines.rows(theory)
    made = options.made([*found.values()], runs, theory_seconds=round(theory.seconds, 1))
    notes = [NOTES[name]] if name in NOTES else []
    drawn = [*curves, *theory.curves]
    return PartResult(name, setting.title, rows, drawn, lines.levels(name), notes, made)
