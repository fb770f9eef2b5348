"""Draw docs/theory.png: predicted learning curves over simulated ones, and modal compression.

Run from the root of the repository: `python docs/make_theory_figure.py`, a minute or two.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

import dokl
from dokl import (
    Exchange,
    Features,
    Gaussian,
    GraphRecipe,
    Problem,
    gradient,
    losses,
    schedules,
    theory,
)
from dokl.base.random_numbers import generator
from dokl.learning.metrics import decibels
from dokl.simulation.streams import Example1, Stream

STEPS, NODES, RUNS = 3000, 20, 6
MUS = {0.25: "tab:green", 1.0: "tab:blue", 1.5: "tab:red"}


@dataclass(frozen=True)
class OneTarget:
    """Example 1 with its function held fixed."""

    law: Example1
    target: Any
    n: int = STEPS
    K: int = NODES

    def draw(self, seed: int) -> Stream:
        """Fresh inputs and noise."""
        X = self.law.draw_inputs(generator(seed, "inputs"))
        noise = self.law.noise * generator(seed, "noise").standard_normal(X.shape[:2])
        return Stream(X, self.target(X) + noise)


def simulated(features: Any, streams: list[OneTarget], mu: float, A: Any) -> tuple[Any, Any]:
    """(mse, bytes) by steps, mean over targets and runs."""
    problem = Problem(features, gradient(losses.squared(), schedules.constant(mu)))
    exchange = Exchange(A, order="cta")
    record = ("mse", "bytes")
    traces = [
        dokl.run(problem, exchange, s, runs=RUNS, seed=i, record=record, engine="numba")
        for i, s in enumerate(streams)
    ]
    return np.mean([t["mse"] for t in traces], axis=0), traces[0]["bytes"]


def dots(mse: Any) -> tuple[Any, Any]:
    """Means over windows even in log n, in dB."""
    edges = np.unique(np.geomspace(1, STEPS + 1, 34).astype(int)) - 1
    middle = [np.sqrt((a + 1) * b) for a, b in pairwise(edges)]
    return middle, [decibels(mse[a:b].mean()) for a, b in pairwise(edges)]


def panel(axis: Any, model: Any, features: Any, streams: Any, A: Any, title: str) -> None:
    """Dots: simulated; lines: predicted; dashes: the paper's recursion."""
    n = np.arange(1, STEPS + 1)
    for mu, colour in MUS.items():
        axis.plot(*dots(simulated(features, streams, mu, A)[0]), ".", color=colour)
        curve = theory.learning_curve(model, mu, STEPS, A)
        axis.plot(n, curve.decibels, "-", color=colour, lw=1, label=f"mu = {mu:g}")
    small = theory.learning_curve(model, 1.0, STEPS, A, "small-step")
    axis.plot(n, small.decibels, "--", color="tab:blue", lw=1, label="mu = 1, small-step")
    axis.axhline(decibels(model.j_opt), color="0.6", lw=0.8)
    axis.set(title=title, xlabel="samples per node", xscale="log", ylim=(-22, 32))


def compression(axis: Any, features: Any, modes: Any, streams: Any, A: Any) -> None:
    """The same learning curve against bytes, for whole and projected vectors."""
    for r, colour in ((None, "black"), (56, "tab:blue"), (21, "tab:orange")):
        map_ = features if r is None else features.project(modes.vectors[:, :r])
        mse, sent = simulated(map_, streams, 1.0, A)
        edges = np.unique(np.geomspace(1, STEPS + 1, 60).astype(int)) - 1
        x = [sent[b - 1] / NODES / 1e6 for _, b in pairwise(edges)]
        y = [decibels(mse[a:b].mean()) for a, b in pairwise(edges)]
        axis.plot(x, y, color=colour, label=f"{map_.D} numbers a message")
    axis.set(title="together, mu = 1: what is sent", xlabel="megabytes sent per node")
    axis.set(xscale="log", ylim=(-22, 32))


def main() -> None:
    """Three panels of Example 1."""
    law = Example1(K=NODES, n=STEPS)
    features = Features(Gaussian(law.sigma), law.d, 2500).draw(1)
    inputs = theory.gaussian_inputs(np.zeros(law.d), 1.0)
    targets = [law.draw_target(generator(seed, ("target", 0))) for seed in range(4)]
    streams = [OneTarget(law, target) for target in targets]
    modes = theory.leading_modes(features, inputs, r=60)
    model = theory.model(features, inputs, targets, law.noise, modes)
    A = GraphRecipe("random", NODES).draw(3)
    figure, axes = plt.subplots(1, 3, figsize=(13, 4.2), sharey=True, layout="constrained")
    panel(axes[0], model, features, streams, None, "Example 1, each node alone")
    panel(axes[1], model, features, streams, A, "Example 1, 20 nodes together")
    compression(axes[2], features, modes, streams, A)
    axes[0].set_ylabel("mean square error, dB")
    for axis in axes:
        axis.legend(fontsize=8)
        axis.grid(alpha=0.3)
    figure.savefig(Path(__file__).with_name("theory.png"), dpi=110)


if __name__ == "__main__":
    main()
