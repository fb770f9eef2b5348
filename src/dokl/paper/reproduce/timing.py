"""Table V: training times of RFF-KLMS and QKLMS, both compiled, in one process, in turns."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from dokl.base.arrays import Array
from dokl.base.random_numbers import draw_recipe, spawn
from dokl.learning.kernels import Gaussian
from dokl.network.exchange import Exchange
from dokl.paper import baselines
from dokl.paper.baselines.runs import samples_of
from dokl.paper.reproduce.cache import Work
from dokl.paper.reproduce.figures import problem_of, size_row
from dokl.paper.reproduce.results import PartResult, Row
from dokl.paper.reproduce.settings import Figure, ReproduceOptions, expected, figure
from dokl.simulation.diffusion import Problem, init
from dokl.simulation.engines import numba_engine
from dokl.simulation.methods import gradient
from dokl.simulation.streams import example

PANELS = ("fig3a", "fig3b", "fig3c", "fig3d")
REPEATS, QUICK_REPEATS = 15, 3


def seconds_rff(problem: Problem, stream: Any) -> float:
    """Processor seconds of learning one realization, drawing the data not counted."""
    plan = numba_engine.plan(problem, Exchange())
    state, block = init(problem, Exchange(), 1, 1, plan.dtype), stream.block().cast(plan.dtype)
    began = time.thread_time()
    numba_engine.advance(plan, state, block, workers=1)
    return time.thread_time() - began


def seconds_qklms(method: baselines.QKLMS, stream: object) -> tuple[float, int]:
    """The same for QKLMS, and how many centres it ended with."""
    learner = method.learner(samples_of(stream, 0), np.float32)
    began = time.thread_time()
    learner.advance(0, learner.samples.n)
    return time.thread_time() - began, int(learner.size[-1, 0])


def work(name: str, setting: Figure, options: ReproduceOptions) -> Work:
    """Repeats of both in turns, one thread."""
    problem = problem_of(setting, setting.D)
    method = baselines.QKLMS(Gaussian(setting.sigma), setting.mu, setting.q)
    law = example(setting.example, K=1, n=setting.n)
    repeats = QUICK_REPEATS if options.quick else REPEATS
    settings = {"times": name, "n": setting.n, "D": setting.D, "q": setting.q,
                "seed": options.seed, "repeats": repeats}  # fmt: skip

    def compute(seed: int, runs: int) -> dict[str, Array]:
        found = np.zeros((runs, 3))
        for i, own in enumerate([seed, *spawn(seed, runs)]):  # the first one compiles
            feature_seed, _, data_seed = spawn(own, 3)
            stream = law.draw(data_seed)
            drawn = Problem(
                draw_recipe(problem.features, feature_seed),
                gradient(problem.gradient.loss, problem.gradient.schedule),
            )
            found[max(0, i - 1)] = (seconds_rff(drawn, stream), *seconds_qklms(method, stream))
        return {"rff": found[:, 0], "qklms": found[:, 1], "size": found[:, 2]}

    return Work(f"times-{name}", settings, repeats, repeats, compute)


def _rows(name: str, setting: Figure, arrays: dict[str, Array]) -> list[Row]:
    reference, group = expected()["seconds"][name], setting.title.partition(":")[0]
    runs, rows = len(arrays["rff"]), []
    for key, words in (("qklms", "QKLMS"), ("rff", "RFF-KLMS")):
        ours = float(np.median(arrays[key]) * 1000)
        rows.append(Row(group, f"{words} time", "ms", ours, None, runs, reference[key] * 1000))
    ratio = float(np.median(arrays["qklms"] / arrays["rff"]))
    printed = reference["qklms"] / reference["rff"]
    rows.append(Row(group, "QKLMS time / RFF-KLMS time", "", ratio, None, runs, printed))
    return [*rows, size_row(group, name, arrays["size"])]


def reproduce(options: ReproduceOptions) -> PartResult:
    """The whole table."""
    settings = {name: figure(name) for name in PANELS}
    works = {name: work(name, setting, options) for name, setting in settings.items()}
    found = options.gather("table5", works)
    rows = [r for name in PANELS for r in _rows(name, settings[name], found[name].arrays)]
    notes = [
        "The paper's times are of MATLAB code; ours are processor times of two compiled loops, "
        "each in one thread, the median of repeats in turns. A ratio below 1 says that QKLMS is "
        "faster: the paper's order is then reversed.",
    ]
    repeats = max(w.runs for w in works.values())
    made = options.made([*found.values()], repeats, engine="numba, float32")
    return PartResult("table5", "Training times and dictionary sizes", rows, [], {}, notes, made)
