"""MNIST at D = 100,000 in bounded memory: features of a block of rows, computed once for all.

All four networks (5 and 20 nodes, together and alone) see the rows in the same order, so that one
block of features, a few hundred megabytes, serves them all: row i goes to node i mod K.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dokl import losses, schedules
from dokl.arrays import Array
from dokl.datasets import Dataset, split
from dokl.diffusion import Exchange, Problem, State, init, step_z
from dokl.draws import spawn
from dokl.features import FeatureMap, Features
from dokl.graphs import GraphRecipe
from dokl.reproduce.cache import Work
from dokl.reproduce.options import Options
from dokl.reproduce.paper import PASSES, Classification, classification

BLOCK = 50_000_000  # features held at once: 200 MB in float32
QUICK_D, QUICK_ROWS = 2000, 12_000


@dataclass
class _Net:
    """One network under way."""

    problem: Problem
    exchange: Exchange
    state: State

    def learn(self, Z: Array, y: Array) -> None:
        """Rows Z: (rows, D), y: (rows,), K a step."""
        K = len(self.state.theta)
        graphs, w = self.exchange.graphs, np.ones(K)
        for i in range(0, len(y), K):
            rows = slice(i, i + K)
            self.state, _ = step_z(
                self.problem, self.exchange, graphs, self.state, Z[rows], y[rows, None], w
            )


def features_of(z: FeatureMap, X: Any) -> Array:
    """z of rows X by one product in float32: (n, D)."""
    assert z.omega is not None
    Z = np.asarray(X @ z.omega.astype(np.float32), np.float32)
    Z += np.asarray(z.phases, np.float32)
    np.cos(Z, out=Z)
    Z *= np.float32(z.scale)
    return Z


def _rows_at_once(D: int) -> int:
    return max(20, BLOCK // D // 20 * 20)


def _nets(z: FeatureMap, setting: Classification, seed: int) -> dict[str, _Net]:
    nets = {}
    problem = Problem(z, losses.hinge(), schedules.pegasos(setting.lam), setting.lam)
    for K in (5, 20):
        recipe = GraphRecipe("random", K, "metropolis", {"p": 0.2})
        for who, weights in (("together", recipe.draw(seed)), ("alone", None)):
            exchange = Exchange(weights, "cta")
            state = init(problem, exchange, K, 1, np.float32)
            nets[f"{K}-{who}"] = _Net(problem, exchange, state)
    return nets


def realize(data: Dataset, setting: Classification, size: int, seed: int) -> dict[str, Array]:
    """One realization of all four networks: errors in % after each of PASSES, (passes,) each."""
    feature_seed, graph_seed, data_seed = spawn(seed, 3)
    z = Features(setting.kernel, data.X.shape[1], setting.D, "cos").draw(feature_seed)
    rows = split(data, size // 20 * 20, seed=data_seed)
    X, X_test = (np.asarray(a, np.float32) for a in (rows.X_train, rows.X_test))
    nets, step = _nets(z, setting, graph_seed), _rows_at_once(setting.D)
    found: dict[str, list[float]] = {name: [] for name in nets}
    for turn in range(1, max(PASSES) + 1):
        for start in range(0, len(X), step):
            Z = features_of(z, X[start : start + step])
            for net in nets.values():
                net.learn(Z, rows.y_train[start : start + step])
        if turn in PASSES:
            for name, error in errors_of(z, nets, X_test, rows.y_test, step).items():
                found[name].append(error)
    return {name: np.array(each) for name, each in found.items()}


def errors_of(
    z: FeatureMap, nets: dict[str, _Net], X: Array, y: Array, step: int
) -> dict[str, float]:
    """Test error in %, mean over nodes, block by block."""
    theta = np.concatenate([net.state.theta[:, 0] for net in nets.values()])
    wrong = np.zeros(len(theta))
    for start in range(0, len(X), step):
        f = features_of(z, X[start : start + step]) @ theta.T
        wrong += (np.where(f >= 0, 1, -1) != y[start : start + step, None]).sum(axis=0)
    ends = np.cumsum([len(net.state.theta) for net in nets.values()])[:-1]
    parts = np.split(100 * wrong / len(X), ends)
    return {name: float(part.mean()) for name, part in zip(nets, parts, strict=True)}


def work(data: Dataset, options: Options) -> Work:
    """Realizations one by one; with quick a smaller map and fewer rows."""
    setting, size = classification("mnist"), len(data.y)
    if options.quick:
        setting, size = replace(setting, D=QUICK_D), min(size, QUICK_ROWS)
    settings = {
        "table": {"sigma2": setting.sigma2, "lam": setting.lam, "D": setting.D}, "data": "mnist",
        "size": size, "seed": options.seed,
    }  # fmt: skip

    def compute(seed: int, runs: int) -> dict[str, Array]:
        found = [realize(data, setting, size, own) for own in spawn(seed, runs)]
        return {name: np.stack([each[name] for each in found]) for name in found[0]}

    return Work("table-mnist", settings, options.runs_of(setting), 1, compute, None)


def note(options: Options) -> str:
    """What was done."""
    if options.quick:
        return (
            f"Quick: D = {QUICK_D} and {QUICK_ROWS} training rows, not the paper's 100,000 and "
            "60,000: only the orderings mean something."
        )
    return "D = 100,000, features block by block; the paper and the prototype have ten runs."
