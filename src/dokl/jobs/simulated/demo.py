"""`dokl demo`: 20 nodes learning together, against the same nodes alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dokl import losses, report, schedules
from dokl.diffusion import Problem, Trace
from dokl.engines import run
from dokl.errors import BadInput
from dokl.exchange import Exchange
from dokl.features import Features
from dokl.graphs import GraphRecipe, describe
from dokl.kernels import Gaussian
from dokl.methods import gradient
from dokl.metrics import decibels
from dokl.random_numbers import spawn
from dokl.streams import Example1

DEMO_NODES, DEMO_STEPS, DEMO_D, DEMO_LEVEL = 20, 5000, 2500, 0.02
WINDOW = 50


@dataclass(frozen=True)
class Demo:
    """What the demonstration found: the traces, and where its picture lies."""

    together: Trace
    alone: Trace
    picture: Path

    def rows(self) -> list[list[str]]:
        """One row per way of working, for a table."""
        return [self._row("together", self.together), self._row("alone", self.alone)]

    def _row(self, name: str, trace: Trace) -> list[str]:
        found = _figures(trace)
        reached = found["samples_to_level"]
        return [
            name,
            f"{found['final_error_db']:.2f} dB",
            "never" if reached is None else f"{reached:,} samples",
            f"{found['bytes_per_step'] / 1e3:.1f} kB",
            f"{found['samples_per_second'] / 1e6:.2f} M",
        ]

    @property
    def gain(self) -> float:
        """How many times smaller the error is together."""
        return float(self.alone.tail().mean() / self.together.tail().mean())

    def results(self) -> dict[str, Any]:
        """Everything, for programs."""
        both = {"together": _figures(self.together), "alone": _figures(self.alone)}
        made = {"gain": self.gain, "runs": self.together.runs, "seed": self.together.seed}
        return {**both, **made, "level_db": float(decibels(DEMO_LEVEL)), "picture": self.picture}


def _figures(trace: Trace) -> dict[str, Any]:
    """Final error, how soon it was low, what was sent per node and step, and the speed."""
    return {
        "final_error_db": float(decibels(trace.tail().mean())),
        "samples_to_level": report.first_below(report.smooth(trace["mse"], WINDOW), DEMO_LEVEL),
        "bytes_per_step": float(trace["bytes"][-1] / DEMO_NODES / trace.steps),
        "samples_per_second": trace.runs * trace.steps * DEMO_NODES / trace.seconds,
    }


def demo(folder: Path, runs: int = 12, seed: int = 1, show_progress: bool | None = None) -> Demo:
    """20 nodes learn one function together, and the same nodes on the same data alone.

    The paper's Example 1: a sum of 50 Gaussian bumps in five dimensions, seen through noise, on
    random networks. Writes `dokl-demo.png` into the folder.
    """
    if not folder.is_dir():
        raise BadInput(f"{folder} is not a folder: make it first, or name another one")
    report.pyplot()  # where it is missing, say so before the work and not after it
    problem = Problem(
        Features(Gaussian(5.0), 5, DEMO_D), gradient(losses.squared(), schedules.constant(1.0))
    )
    stream, recipe = Example1(K=DEMO_NODES, n=DEMO_STEPS), GraphRecipe("random", DEMO_NODES)
    record = ("mse", "node_mse", "bytes")
    settings: dict[str, Any] = {"runs": runs, "seed": seed, "record": record}
    settings["show_progress"] = show_progress
    # Compilation happens once per installation; a short run keeps it out of the speed shown.
    run(problem, Exchange(recipe, "cta"), Example1(K=DEMO_NODES, n=2), show_progress=False)
    together = run(problem, Exchange(recipe, "cta"), stream, **settings)
    alone = run(problem, Exchange(None, "cta"), stream, **settings)
    first_graph = recipe.graph(spawn(spawn(seed, runs)[0], 3)[1])
    picture = _demo_picture(folder / "dokl-demo.png", together, alone, first_graph)
    return Demo(together, alone, picture)


def _demo_picture(path: Path, together: Trace, alone: Trace, graph: Any) -> Path:
    plt = report.pyplot()
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(12, 5), width_ratios=(1, 1.3), layout="constrained"
    )
    tail = together.curves["node_mse"][0][-DEMO_STEPS // 10 :]
    error = decibels(np.nanmean(tail, axis=0))
    facts = describe(graph)
    report.draw_graph(left, graph, error, "error of each node (dB)")
    left.set_title(
        f"one of the {together.runs} networks: {facts.K} nodes, {facts.edges} links\n"
        f"algebraic connectivity {facts.algebraic_connectivity:.2f}",
        fontsize=10,
    )
    curves = {"20 nodes together": together, "the same nodes alone": alone}
    report.draw_curves(right, curves, window=WINDOW)
    right.axhline(decibels(0.01), color="#555555", lw=0.9, ls=":")
    right.annotate("noise", (DEMO_STEPS, decibels(0.01)), (0, -11), textcoords="offset points",
                   ha="right", fontsize=9, color="#555555")  # fmt: skip
    right.set_title(f"what cooperation buys (mean of {together.runs} runs)", fontsize=10)
    figure.suptitle("dokl: 20 nodes learn one function over a network", weight="bold")
    return report.save_picture(figure, path)
