"""kin40k on ten nodes: how far from all rows in one place."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.common import Section
from benchmarks.networks import rows
from dokl import Exchange, Features, Gaussian, gradient, losses, schedules, squares
from dokl.network.graphs import GraphRecipe, describe

K, ROWS, D, WIDTH, RIDGE = 10, 1000, 300, 2.0, 0.01
GRAPH = GraphRecipe("geometric", K).draw(2)
# How much worse than one place the mean over nodes may be, by rows between exchanges; and any node.
TARGETS, ANY_NODE = {10: 1.01, 50: 1.03}, 1.10


def measure(quick: bool) -> Section:
    """Test error over variance, mean over nodes and of the worst."""
    slow = describe(GRAPH).lambda_2
    section = Section(
        "kin40k, ten nodes",
        f"{ROWS} rows each, D = {D}, graph with lambda_2 = {slow:.3f}; test error / variance on "
        "5000 rows, mean over nodes (ratio: to all rows in one place) and of the worst node.",
    )
    X, y = rows.load("kin40k")
    train = slice(K * ROWS)
    X, y = ((a - a[train].mean(axis=0)) / a[train].std(axis=0) for a in (X, y))
    features = Features(Gaussian(WIDTH), X.shape[1], D, "orthogonal").draw(1)
    Z, y_test = features.transform(X[K * ROWS :]), y[K * ROWS :]
    for how in rows.HOW:
        given = rows.block(X[train], y[train], K, how)
        one = rows.learned(features, squares(RIDGE), Exchange(), rows.in_one_place(given))
        best = float(rows.errors(one, Z, y_test)[0])
        section.add(f"{how}: all rows in one place", _text(best / y_test.var()))
        for name, method, every in _ways(quick):
            exchange = Exchange(GRAPH if every else None, every=every or 1)
            found = rows.errors(rows.learned(features, method, exchange, given), Z, y_test)
            _add(section, f"{how}: {name}", found / y_test.var(), best / y_test.var(), every, name)
    return section


def _ways(quick: bool) -> list[tuple[str, Any, int]]:
    """Name, method, rows between exchanges (0: never)."""
    step = gradient(losses.squared(), schedules.constant(1.0))
    sums, each = squares(RIDGE, share="sums"), squares(RIDGE, share="origins")
    ways = [("alone", squares(RIDGE), 0), ("gradient diffusion, every row", step, 1)]
    ways += [] if quick else [("theta averaged, every row", squares(RIDGE), 1)]
    often = (10, 50, 250) if quick else (1, 10, 50, 250)
    ways += [(f"sums, every {n} row{'s' * (n > 1)}", sums, n) for n in often]
    return [*ways, ("sums per origin, every 50 rows", each, 50)]


def _add(
    section: Section, what: str, found: np.ndarray, best: float, every: int, name: str
) -> None:
    goal = TARGETS.get(every) if name.startswith("sums, ") else None
    ratio, worst = float(found.mean()) / best, float(found.max()) / best
    section.add(
        what,
        _text(float(found.mean())),
        ratio,
        "" if goal is None else f"{goal:.2f}x, any node {ANY_NODE:.2f}x",
        None if goal is None else ratio <= goal and worst <= ANY_NODE,
        f"mean {ratio:.4f}x, worst node {worst:.4f}x",
    )


def _text(error: float) -> str:
    return f"{error:.4f}"
