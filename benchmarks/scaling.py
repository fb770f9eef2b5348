"""Cost is linear in D, d, K and edges; 100,000 nodes run."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import networkx as nx
import numpy as np

from benchmarks.common import Section, in_turns
from dokl import (
    Exchange,
    KernelRegressor,
    Problem,
    graphs,
    run,
)
from dokl.paper.problems import example_problem
from dokl.simulation.streams import Example2

ROUNDS, MOST = 15, 1.1
Job = Callable[[int], int]


def over_D(D: int, d: int = 5) -> tuple[Job, int]:
    """Rows through partial_fit of a model that is ready; the size is D."""
    n = max(20, 20_000_000 // (D * (d + 12)))
    stream = Example2(K=1, n=n, d=d).draw(0)
    X, y = stream.X[:, 0], stream.y[:, 0]
    model = KernelRegressor(sigma=5.0, n_components=D, features="cos", step=0.5, random_state=0)
    model.partial_fit(X, y)
    return lambda r: len(model.partial_fit(X, y).state_.count) * n, D


def over_d(d: int) -> tuple[Job, int]:
    return over_D(1000, d)[0], d


def network(g: nx.Graph, D: int = 500) -> Job:
    K, d = g.number_of_nodes(), 5
    entries = K + 2 * g.number_of_edges()
    n = max(10, 20_000_000 // (D * (entries + 20 * K)))
    recipe = example_problem(D, mu=0.5)
    problem = Problem(recipe.features.draw(0), recipe.method)
    exchange, stream = Exchange(graphs.metropolis(g), "cta"), Example2(K, n, d).draw(0)
    return lambda r: run(problem, exchange, stream, workers=1, show_progress=False).steps


def over_K(K: int) -> tuple[Job, int]:
    return network(graphs.ring(K)), K


def over_edges(degree: int) -> tuple[Job, int]:
    """64 nodes in a circle, each linked to its nearest `degree`."""
    g = nx.circulant_graph(64, range(1, degree // 2 + 1))
    return network(g), g.number_of_edges()


AXES: dict[str, tuple[Callable[[int], tuple[Job, int]], Sequence[int], str]] = {
    "D (one node, d = 5)": (over_D, (2500, 5000, 10_000, 20_000), "us/sample"),
    "d (one node, D = 1000)": (over_d, (8, 16, 32, 64, 128), "us/sample"),
    "K (ring, D = 500)": (over_K, (10, 20, 40, 80, 160), "us/step"),
    "edges (K = 64, D = 500)": (over_edges, (6, 14, 30, 62), "us/step"),
}


def exponent(sizes: Sequence[int], times: Sequence[float]) -> float:
    """b of the least-squares fit time = a size^b."""
    return float(np.polyfit(np.log(sizes), np.log(times), 1)[0])


def measure() -> Section:
    how = (
        "Time at growing sizes, in turns, and the exponent b of time = a size^b: at most 1, less "
        "where something else still counts.\nOne core; a network of 100,000 nodes on all cores."
    )
    section = Section("scaling: cost is linear", how)
    for name, (make, values, unit) in AXES.items():
        made = [make(value) for value in values]
        for job, _ in made:
            job(0)
        times = in_turns({str(i): job for i, (job, _) in enumerate(made)}, ROUNDS)
        medians, sizes = [float(np.median(t)) for t in times.values()], [size for _, size in made]
        b = exponent(sizes, medians)
        figures = ", ".join(f"{t * 1e6:.3g}" for t in medians)
        what = f"{name}: {', '.join(map(str, sizes))}"
        target = f"exponent <= {MOST:g}"
        section.add(what, f"{figures} {unit}; exponent {b:.2f}", None, target, b <= MOST)
    _large(section)
    return section


def _large(section: Section, K: int = 100_000, D: int = 100, n: int = 20) -> None:
    began = time.perf_counter()
    g = graphs.small_world(K, k=6, p=0.1, seed=0)
    A = graphs.metropolis(g)
    built = time.perf_counter() - began
    recipe = example_problem(D, mu=0.5)
    problem = Problem(recipe.features.draw(0), recipe.method)
    stream = Example2(K, n, 5).draw(0)
    began = time.perf_counter()
    trace = run(problem, Exchange(A, "cta"), stream, show_progress=False)
    whole = time.perf_counter() - began
    # The graph is checked once per run; a second run of fewer steps separates that part from the
    # rest.
    began = time.perf_counter()
    run(problem, Exchange(A, "cta"), stream.rows(0, n // 4), show_progress=False)
    per_step = (whole - (time.perf_counter() - began)) / (n - n // 4)
    mse = trace["mse"]
    section.add(
        f"{K:,} nodes, {g.number_of_edges():,} edges, D = {D}",
        f"{per_step:.3f} s/step, {per_step / K * 1e9:.0f} ns/node and step",
        None,
        "runs",
        bool(np.isfinite(mse).all() and mse[-1] < mse[0]),
        f"MSE {mse[0]:.2f} -> {mse[-1]:.2f} in {n} steps",
    )
    section.notes.append(
        f"{K:,} nodes: graph and weights built in {built:.1f} s; {n} steps by dokl.run took "
        f"{whole:.2f} s in all, preparation included"
    )
