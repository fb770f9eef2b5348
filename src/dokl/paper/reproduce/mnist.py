"""MNIST at D = 100,000: four networks (5 and 20 nodes, together and alone) on the same rows.

Row i goes to node i mod K, in the same order in every pass. In NumPy, features are computed for a
block of rows, a few hundred megabytes, that serves all four; `mnist_jax` does the same on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dokl.base.arrays import Array
from dokl.base.random_numbers import spawn
from dokl.learning import losses, schedules
from dokl.learning.features import FeatureMap, Features
from dokl.network.exchange import Exchange
from dokl.network.graphs import GraphRecipe
from dokl.network.state import State
from dokl.paper.datasets import Dataset, Split, split
from dokl.paper.reproduce.cache import Work
from dokl.paper.reproduce.settings import (
    NODES,
    PASSES,
    ClassificationSetting,
    ReproduceOptions,
    classification,
)
from dokl.simulation.diffusion import Problem, init, step_z
from dokl.simulation.engines.choice import gpu, module_of
from dokl.simulation.methods import gradient

BLOCK = 50_000_000  # features held at once: 200 MB in float32
QUICK_D, QUICK_ROWS = 2000, 12_000
CPU_RUNS = 1  # ten take a GPU, or hours
EVEN = 20  # rows come in multiples of it, so that every node has as many


@dataclass(frozen=True)
class MnistNetwork:
    """Some nodes and how they exchange."""

    nodes: int
    exchange: Exchange


@dataclass(frozen=True)
class Drawn:
    """All that chance decides in a realization: features, networks, order of the rows."""

    problem: Problem
    networks: dict[str, MnistNetwork]
    rows: Split


def draw(data: Dataset, setting: ClassificationSetting, size: int, seed: int) -> Drawn:
    """A realization, the same for every engine; rows in float32."""
    feature_seed, graph_seed, data_seed = spawn(seed, 3)
    z = Features(setting.kernel, data.X.shape[1], setting.D, "cos").draw(feature_seed)
    problem = Problem(z, gradient(losses.hinge(), schedules.pegasos(setting.lam), setting.lam))
    rows = split(data, size // EVEN * EVEN, seed=data_seed)
    X, X_test = (np.asarray(a, np.float32) for a in (rows.X_train, rows.X_test))
    return Drawn(problem, _networks(graph_seed), rows._replace(X_train=X, X_test=X_test))


def _networks(seed: int) -> dict[str, MnistNetwork]:
    found = {}
    for K in NODES.values():
        recipe = GraphRecipe("random", K, "metropolis", {"p": 0.2})
        for who, weights in (("together", recipe.draw(seed)), ("alone", None)):
            found[f"{K}-{who}"] = MnistNetwork(K, Exchange(weights, "cta"))
    return found


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
    return max(EVEN, BLOCK // D // EVEN * EVEN)


def realize(drawn: Drawn) -> dict[str, Array]:
    """One realization of all four networks: errors in % after each of PASSES, (passes,) each."""
    problem, rows = drawn.problem, drawn.rows
    nets = {
        name: _Net(problem, of.exchange, init(problem, of.exchange, of.nodes, 1, np.float32))
        for name, of in drawn.networks.items()
    }
    z, step = problem.map, _rows_at_once(problem.map.D)
    assert isinstance(z, FeatureMap)
    found: dict[str, list[float]] = {name: [] for name in nets}
    for turn in range(1, max(PASSES) + 1):
        for start in range(0, len(rows.y_train), step):
            Z = features_of(z, rows.X_train[start : start + step])
            for net in nets.values():
                net.learn(Z, rows.y_train[start : start + step])
        if turn in PASSES:
            for name, error in errors_of(z, nets, rows.X_test, rows.y_test, step).items():
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


def engine_of(options: ReproduceOptions) -> str:
    """JAX where it was asked for or finds a GPU; NumPy, block by block, for all others."""
    if options.engine == "jax" or (options.engine == "auto" and gpu() is not None):
        module_of("jax")  # says what to install where it is absent
        return "jax"
    return "numpy"


def work(data: Dataset, options: ReproduceOptions) -> Work:
    """Realizations one by one; with quick a smaller map and fewer rows."""
    setting, size, engine = classification("mnist"), len(data.y), engine_of(options)
    if options.quick:
        setting, size = replace(setting, D=QUICK_D), min(size, QUICK_ROWS)
    elif engine == "numpy":
        setting = replace(setting, runs=CPU_RUNS)
    settings = {
        "table": {"sigma2": setting.sigma2, "lam": setting.lam, "D": setting.D}, "data": "mnist",
        "size": size, "seed": options.seed,
    } | ({"engine": engine} if engine != "numpy" else {})  # fmt: skip

    def drawn(seed: int) -> Drawn:
        return draw(data, setting, size, spawn(seed, 1)[0])

    runs = options.runs_of(setting)
    realized = _realizer(engine, drawn, spawn(options.seed, runs))

    def compute(seed: int, runs: int) -> dict[str, Array]:
        return {name: errors[None] for name, errors in realized(seed).items()}

    return Work("table-mnist", settings, runs, 1, compute, None)


def _realizer(
    engine: str, drawn: Callable[[int], Drawn], seeds: list[int]
) -> Callable[[int], dict[str, Array]]:
    """From the seed of a realization to its errors."""
    if engine == "numpy":
        return lambda seed: realize(drawn(seed))
    from dokl.paper.reproduce import mnist_jax

    ahead = mnist_jax.Ahead(drawn, seeds)
    return lambda seed: mnist_jax.realize(ahead.take(seed))


def note(options: ReproduceOptions) -> str:
    """What was done."""
    if options.quick:
        return (
            f"Quick: D = {QUICK_D} and {QUICK_ROWS} training rows, not the paper's 100,000 and "
            "60,000: only the orderings mean something."
        )
    return (
        "D = 100,000. Both sizes of network saw the same rows and were computed together: the time "
        "is that of both. The prototype's figures are means of ten runs."
    )
