"""`dokl demo`: 20 nodes learning together, by sums and by vectors, and the same nodes alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from dokl.base.errors import BadInput
from dokl.base.random_numbers import spawn
from dokl.learning.features import Features
from dokl.learning.kernels import Gaussian
from dokl.learning.metrics import decibels
from dokl.network.exchange import Exchange
from dokl.network.graphs import GraphRecipe, describe
from dokl.paper.problems import example_problem
from dokl.simulation.diffusion import Problem, Trace
from dokl.simulation.engines import run
from dokl.simulation.methods import squares
from dokl.simulation.streams import Example1, Stream
from dokl.simulation.theory import ModalFeatures, gaussian_inputs
from dokl.tables import report

DEMO_NODES, DEMO_STEPS, DEMO_D, DEMO_LEVEL = 20, 5000, 2500, 0.02
# Sums travel every this many samples, in the modes of a smaller map whose frequencies are spread
# evenly; they cost more to compute, so every fourth realization has to do.
SUMS_EVERY, SUMS_D, SUMS_SHARE, RIDGE = 50, 500, 4, 1e-3
WINDOW = 50


@dataclass(frozen=True)
class Demo:
    """What the demonstration found: the traces, and where its picture lies."""

    sums: Trace
    together: Trace
    alone: Trace
    place: Trace
    picture: Path

    @property
    def ways(self) -> dict[str, Trace]:
        """The ways of working, by name, the best last."""
        return {
            "alone": self.alone,
            "together, vectors": self.together,
            "together, sums": self.sums,
            "all in one place": self.place,
        }

    def rows(self) -> list[list[str]]:
        """One row per way of working, for a table."""
        return [self._row(name, trace) for name, trace in self.ways.items()]

    def _row(self, name: str, trace: Trace) -> list[str]:
        found = _figures(trace)
        reached = found["samples_to_level"]
        return [
            name,
            f"{found['final_error_db']:.2f} dB",
            "never" if reached is None else f"{reached:,} samples",
            f"{found['bytes_per_step'] / 1e3:.1f} kB" if "bytes" in trace.curves else "its rows",
            f"{found['samples_per_second'] / 1e6:.2f} M",
        ]

    @property
    def gain(self) -> float:
        """How many times smaller the error is together, with sums."""
        return float(self.alone.tail().mean() / self.sums.tail().mean())

    def results(self) -> dict[str, Any]:
        """Everything, for programs."""
        names = {"sums": self.sums, "together": self.together, "alone": self.alone}
        each = {name: _figures(trace) for name, trace in (names | {"place": self.place}).items()}
        made = {"gain": self.gain, "runs": self.together.runs, "seed": self.together.seed}
        return {**each, **made, "level_db": float(decibels(DEMO_LEVEL)), "picture": self.picture}


def _figures(trace: Trace) -> dict[str, Any]:
    """Final error, how soon it was low, what was sent per node and step, and the speed."""
    return {
        "final_error_db": float(decibels(trace.tail().mean())),
        "samples_to_level": report.first_below(report.smooth(trace["mse"], WINDOW), DEMO_LEVEL),
        "bytes_per_step": float(trace["bytes"][-1] / DEMO_NODES / trace.steps)
        if "bytes" in trace.curves
        else None,
        "samples_per_second": trace.runs * trace.steps * DEMO_NODES / trace.seconds,
    }


@dataclass(frozen=True)
class InOnePlace:
    """What all nodes of a stream see, one after the other, at a single node."""

    stream: Any

    def draw(self, seed: int) -> Stream:
        """The stream of this seed."""
        X, y = (np.asarray(part) for part in self._parts(seed))
        return Stream(X.reshape(-1, 1, X.shape[-1]), y.reshape(-1, 1))

    def _parts(self, seed: int) -> tuple[Any, Any]:
        block = self.stream.draw(seed).block()
        return block.X[block.index], block.Y[block.index]


def demo(folder: Path, runs: int = 12, seed: int = 1, show_progress: bool | None = None) -> Demo:
    """20 nodes learn one function together, and the same nodes on the same data alone.

    The paper's Example 1: a sum of 50 Gaussian bumps in five dimensions, seen through noise, on
    random networks. Together they send their vectors with every sample, as the paper does, or sums
    of what they saw now and then; then they know what one place with all samples would know.
    Writes `dokl-demo.png` into the folder.
    """
    if not folder.is_dir():
        raise BadInput(f"{folder} is not a folder: make it first, or name another one")
    report.pyplot()  # where it is missing, say so before the work and not after it
    problem = example_problem(DEMO_D)
    stream, recipe = Example1(K=DEMO_NODES, n=DEMO_STEPS), GraphRecipe("random", DEMO_NODES)
    settings: dict[str, Any] = {"seed": seed, "record": ("mse", "node_mse", "bytes")}
    settings["show_progress"] = show_progress
    # Compilation happens once per installation; a short run keeps it out of the speed shown.
    run(problem, Exchange(recipe, "cta"), Example1(K=DEMO_NODES, n=2), show_progress=False)
    together = run(problem, Exchange(recipe, "cta"), stream, runs=runs, **settings)
    alone = run(problem, Exchange(None, "cta"), stream, runs=runs, **settings)
    sums, place = _second_order(recipe, stream, -(-runs // SUMS_SHARE), settings)
    first_graph = recipe.graph(spawn(spawn(seed, runs)[0], 3)[1])
    found = Demo(sums, together, alone, place, folder / "dokl-demo.png")
    _demo_picture(found, first_graph)
    return found


def _second_order(
    recipe: Any, stream: Any, runs: int, settings: dict[str, Any]
) -> tuple[Trace, Trace]:
    """Least squares whose sums travel, and with all samples in one place."""
    inputs = gaussian_inputs(np.zeros(5), 1.0)
    modes = ModalFeatures(Features(Gaussian(5.0), 5, SUMS_D, "sobol"), inputs)
    shared = Problem(modes, squares(RIDGE, share="sums"))
    sums = run(shared, Exchange(recipe, every=SUMS_EVERY), stream, runs=runs, **settings)
    whole = run(
        Problem(modes, squares(RIDGE)),
        Exchange(),
        InOnePlace(stream),
        runs=runs,
        **settings | {"record": ("mse",)},
    )
    mse = whole.curves["mse"].reshape(runs, stream.n, stream.K).mean(axis=2)
    at = {"mse": np.arange(1, stream.n + 1)}
    return sums, replace(whole, curves={"mse": mse}, at=at, steps=stream.n)


def _demo_picture(found: Demo, graph: Any) -> Path:
    plt, together = report.pyplot(), found.together
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(12, 5), width_ratios=(1, 1.3), layout="constrained"
    )
    tail = found.sums.curves["node_mse"][0][-DEMO_STEPS // 10 :]
    error = decibels(np.nanmean(tail, axis=0))
    facts = describe(graph)
    report.draw_graph(left, graph, error, "error of each node, with sums (dB)")
    left.set_title(
        f"one of the {together.runs} networks: {facts.K} nodes, {facts.edges} links\n"
        f"algebraic connectivity {facts.algebraic_connectivity:.2f}",
        fontsize=10,
    )
    report.draw_curves(right, found.ways, window=WINDOW)
    right.set(xscale="log", xlim=(3, DEMO_STEPS), ylim=(-22, 15))  # the first ones are wild
    right.axhline(decibels(0.01), color="#555555", lw=0.9, ls=":")
    right.annotate("noise", (DEMO_STEPS, decibels(0.01)), (0, -11), textcoords="offset points",
                   ha="right", fontsize=9, color="#555555")  # fmt: skip
    right.set_title(
        f"what cooperation buys (mean of {together.runs} runs; sums, one place: {found.sums.runs})",
        fontsize=10,
    )
    figure.suptitle("dokl: 20 nodes learn one function over a network", weight="bold")
    return report.save_picture(figure, found.picture)
