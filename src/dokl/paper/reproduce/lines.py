"""Theory beside the measured curves: the paper's small-step recursion, and with fourth moments.

Targets are those of the simulated runs; the feature map and the graph are one draw each.
Examples 3, 4, 7 and 8 have a hidden state (their samples are not independent): no theory here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dokl.base.arrays import Array
from dokl.base.random_numbers import generator, spawn
from dokl.learning.features import Features
from dokl.learning.kernels import Gaussian
from dokl.learning.metrics import decibels
from dokl.network.graphs import GraphRecipe
from dokl.paper.reproduce.cache import Work
from dokl.paper.reproduce.results import FigureCurve, Row, bin_means, middles
from dokl.paper.reproduce.settings import Figure, ReproduceOptions
from dokl.simulation import theory
from dokl.simulation.streams import example

METHODS = {"small-step": "theory, the paper's small steps", "mean-field": "theory, fourth order"}
TARGETS = 1000
POINTS, FINE = 2048, 16  # of the theory: quadrature points, and how fine its leaps are
NOISE = {"example1": 0.1, "example2": 0.05}
PAPER_LEVEL, RIGHT_LEVEL = "the paper's 1.5 s²", "2 s²"


@dataclass(frozen=True)
class Predicted:
    """Theory curves, their last tenths by label, and the time they took."""

    curves: list[FigureCurve] = field(default_factory=list)
    tails: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0


def levels(name: str) -> dict[str, float]:
    """The horizontal lines of a panel, in dB: what Figure 2 tends to, printed and right."""
    if name != "fig2":
        return {}
    noise = NOISE["example1"] ** 2
    return {PAPER_LEVEL: float(decibels(1.5 * noise)), RIGHT_LEVEL: float(decibels(2 * noise))}


def rows(found: Predicted) -> list[Row]:
    """The theory's steady states."""
    return [Row("theory", label, "dB", float(decibels(x))) for label, x in found.tails.items()]


def predict_lines(
    name: str, setting: Figure, measured: dict[str, Work], options: ReproduceOptions
) -> Predicted:
    """The lines of a panel; none where the theory does not apply, and Figure 2 has levels."""
    if setting.example not in NOISE or setting.widths:
        return Predicted()
    jobs = _works(name, setting, measured, options)
    found = options.gather(f"{name}: theory", jobs)
    curves, tails = [], {}
    for key, gathered in found.items():
        for i, words in enumerate(METHODS.values()):
            label = f"{words}: {key}"
            curve = gathered.arrays["curve"][0, i].tolist()
            curves.append(FigureCurve(label, middles(setting.n), curve, theory=True))
            tails[label] = float(gathered.arrays["tail"][0, i])
    return Predicted(curves, tails, sum(g.seconds for g in found.values()))


def _works(
    name: str, setting: Figure, measured: dict[str, Work], options: ReproduceOptions
) -> dict[str, Work]:
    """One work, of both methods, for together, alone and RFF-KLMS."""
    found = {}
    for key, work in measured.items():
        if key not in ("qklms", "klms"):
            targets = min(TARGETS, work.runs)
            settings = {**work.settings, "theory": list(METHODS), "targets": targets}
            compute = _lines(setting, key == "together", work, targets, options.seed)
            found[key] = Work(f"{name}-theory-{key}", settings, 1, 1, compute)
    return found


def _targets(setting: Figure, work: Work, count: int, seed: int) -> list[Any]:
    """Of the first `count` realizations, as the streams draw them."""
    law = example(setting.example, K=setting.nodes, n=setting.n)
    seeds = spawn(seed, len(work.chunks()))
    drawn = []
    for own, (start, stop) in zip(seeds, work.chunks(), strict=True):
        for each in spawn(own, stop - start):
            drawn.append(law.draw_target(generator(spawn(each, 3)[2], ("target", 0))))
    return drawn[:count]


def _lines(
    setting: Figure, together: bool, work: Work, targets: int, seed: int
) -> Callable[[int, int], dict[str, Array]]:
    def compute(own: int, runs: int) -> dict[str, Array]:
        x = theory.gaussian_inputs(np.zeros(5), 1.0, POINTS)
        z = Features(Gaussian(setting.sigma), 5, setting.D, "cos").draw(seed)
        about = theory.model(z, x, _targets(setting, work, targets, seed), NOISE[setting.example])
        weights = GraphRecipe("random", setting.nodes).draw(seed) if together else None
        curves = np.stack([
            theory.learning_curve(about, setting.mu, setting.n, weights, method, FINE).mse
            for method in METHODS
        ])  # fmt: skip
        tail = curves[:, -max(1, setting.n // 10) :].mean(axis=1)
        return {"curve": bin_means(curves)[None], "tail": tail[None]}

    return compute
