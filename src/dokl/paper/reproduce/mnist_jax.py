"""MNIST with the JAX engine: ten realizations at D = 100,000 take about a minute on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from dokl.base.arrays import Array, Block
from dokl.paper.reproduce.mnist import Drawn, MnistNetwork
from dokl.paper.reproduce.settings import PASSES
from dokl.simulation.diffusion import init
from dokl.simulation.engines import jax_engine, jax_translate

AHEAD = 4  # realizations drawn at a time, about a gigabyte each


class Ahead:
    """Realizations in turn: threads draw the next ones while the device learns from this one."""

    def __init__(self, draw: Callable[[int], Drawn], seeds: Sequence[int]) -> None:
        """Draw makes one from its seed; seeds: of all, in the order in which they are taken."""
        self._draw, self._seeds = draw, list(seeds)
        self._pool = ThreadPoolExecutor(AHEAD)
        self._begun: dict[int, Future[Drawn]] = {}

    def take(self, seed: int) -> Drawn:
        """The realization of a seed."""
        at = self._seeds.index(seed)
        for own in self._seeds[at : at + AHEAD + 1]:
            if own not in self._begun:
                self._begun[own] = self._pool.submit(self._prepare, own)
        return self._begun.pop(seed).result()

    def _prepare(self, seed: int) -> Drawn:
        drawn = self._draw(seed)
        jax_translate.map_numbers(drawn.problem.map, np.float32)  # kept as long as the map
        return drawn


def realize(drawn: Drawn) -> dict[str, Array]:
    """As `mnist.realize`: errors in % of each network after each of PASSES, (passes,) each."""
    found, rows = {}, drawn.rows
    X: list[Any] = []
    for name, network in drawn.networks.items():
        plan = jax_engine.plan(drawn.problem, network.exchange, np.float32)
        X = X or [jax_engine.on_device(plan, each) for each in (rows.X_train, rows.X_test)]
        found[name] = np.array(list(_errors(plan, network, drawn, *X)))
    return found


def _errors(
    plan: jax_engine.JaxPlan, network: MnistNetwork, drawn: Drawn, X: object, X_test: object
) -> Iterator[float]:
    """Test error in %, mean over nodes, after each of PASSES."""
    K, y, y_test = network.nodes, drawn.rows.y_train[:, None], drawn.rows.y_test[:, None]
    state, done = init(drawn.problem, network.exchange, K, 1, np.float32), 0
    one_pass = np.arange(len(y)).reshape(-1, K)
    for passes in PASSES:
        block = Block(X, y, None, np.tile(one_pass, (passes - done, 1)))
        state, _ = jax_engine.advance(plan, state, block)
        f = jax_engine.predict(plan, state.theta[:, 0], np.zeros(K), X_test)
        yield 100 * float(np.mean(np.where(f >= 0, 1, -1) != y_test))
        done = passes
