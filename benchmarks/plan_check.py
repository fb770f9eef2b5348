"""The planner against a grid: python -m benchmarks.plan_check [--data-dir DIR] [names...]

For each data set the planner sees the training rows and chooses; then 8 widths times 8 steps are
run in one pass each at the planner's own D. Errors: of the delivered vector on the test rows
(classification), a-priori mean square error over the second half (regression). The planner's
choice should be within 10% of the grid's best, for a thirtieth of its price in samples times
features.
"""

from __future__ import annotations

import argparse
import os
from itertools import product

import numpy as np

from dokl import datasets, kernels, losses
from dokl.base.arrays import Block
from dokl.base.random_numbers import generator
from dokl.learning.features import sample
from dokl.network.exchange import Exchange
from dokl.simulation.diffusion import Problem, init
from dokl.simulation.engines import choose
from dokl.simulation.methods import gradient
from dokl.tables.plan import plan
from dokl.tables.plan.pilots import STEPS, WIDTHS, Candidate, Pilots
from dokl.tables.plan.planner import base


def air(folder):
    """One Beijing station: PM2.5 (log) from gases and weather, standardised, no gaps."""
    table = datasets.load("beijing", folder).at("Aotizhongxin")
    names = [
        n
        for n in ("PM10", "SO2", "NO2", "CO", "O3", "TEMP", "PRES", "DEWP", "WSPM")
        if n in table.columns
    ]
    X = np.column_stack([table.columns[name] for name in names])
    y = np.log1p(table.columns["PM2.5"])
    keep = np.isfinite(X).all(axis=1) & np.isfinite(y)
    X, y = X[keep], y[keep]
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    return X, y - y.mean(), None, None


def classes(name, folder, seed):
    """Training and test rows, in random order.

    Waveform is generated (16,000 test rows) and Banana split again each time: with the 1,000 or
    1,300 test rows of one split, chance alone moves an error rate by 10% of itself.
    """
    rng = generator(seed, "plan-check")
    if name == "waveform":
        X, label = datasets.waveform(20_000, seed)
        X, y = (X - X.mean(axis=0)) / X.std(axis=0), np.where(label == 1, 1.0, -1.0)
        return X[:4000], y[:4000], X[4000:], y[4000:]
    data = datasets.load(name, folder)
    if name == "banana":
        order = rng.permutation(len(data.y))
        train, test = order[:4000], order[4000:]
        return data.X[train], data.y[train], data.X[test], data.y[test]
    order = rng.permutation(data.X.shape[0])
    return data.X[order], data.y[order], data.X_test, data.y_test


def one_pass(X, y, X_test, y_test, sigma, schedule, alpha, average, D, loss):
    features = sample(kernels.Gaussian(sigma), X.shape[1], D, "orthogonal", 7)
    problem, exchange = (
        Problem(features, gradient(loss, schedule, alpha)),
        Exchange(average=average),
    )
    _, engine, prepared = choose("auto", problem, exchange, None)
    block = Block(X, y[:, None], None, np.arange(X.shape[0])[:, None])
    try:
        state, f = engine.advance(prepared, init(problem, exchange, 1, 1, np.float32), block)
    except ArithmeticError:
        return float("inf")
    if X_test is None:
        half = slice(len(y) // 2, None)
        return float(((f[half, 0, 0] - y[half]) ** 2).mean())
    theta, bias = state.delivered()
    scores = engine.predict(prepared, theta[0], bias[0], X_test)[:, 0]
    return float((np.where(scores > 0, 1, -1) != y_test).mean())


def compare(name, folder, D, seed):
    """(planner's error, errors of the grid (8, 8), price as a share of the grid's)."""
    X, y, X_test, y_test = air(folder) if name == "beijing" else classes(name, folder, seed)
    regression = X_test is None
    loss = losses.squared() if regression else losses.hinge()
    advice = plan(X, y, D=D, task="regression" if regression else "classification", seed=seed)

    def run(sigma, schedule, alpha, average):
        return one_pass(X, y, X_test, y_test, sigma, schedule, alpha, average, D, loss)

    ours = run(advice.sigma, advice.schedule, advice.alpha, advice.average)
    pilots = Pilots(X, y[:, None], not regression, loss, "gaussian", base(X), D, "orthogonal", 0)
    grid = np.empty((len(WIDTHS), len(STEPS)))
    for w, s in product(range(len(WIDTHS)), range(len(STEPS))):
        choice = Candidate(w, s)
        grid[w, s] = run(pilots.sigma(choice), *pilots.settings(choice))
    return ours, grid, advice.spent / (64.0 * X.shape[0] * D)


def check(name, folder, D, repeats):
    found = [compare(name, folder, D, seed) for seed in range(repeats)]
    ours, price = np.mean([f[0] for f in found]), np.mean([f[2] for f in found])
    grid = np.mean([f[1] for f in found], axis=0)
    print(
        f"{name:9} D = {D}, mean of {repeats}: planner {ours:.5f}, grid's best {grid.min():.5f}, "
        f"ratio {ours / grid.min():.3f} (wanted <= 1.10), price 1/{1 / price:.0f} (wanted 1/30)",
        flush=True,
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=["banana", "waveform", "adult", "beijing"])
    parser.add_argument("--data-dir", default=os.environ.get("DOKL_DATA", "../shared/data"))
    parser.add_argument("--components", type=int, default=500)
    options = parser.parse_args()
    for name in options.names:
        repeats = {"banana": 6, "waveform": 4}.get(name, 1)
        check(name, options.data_dir, options.components, repeats)
