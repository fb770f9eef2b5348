"""A learner of named features: the compiled engine over a table of frequencies that changes."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

import numpy as np

from dokl.base.arrays import Array, Block
from dokl.base.errors import BadInput
from dokl.estimators.river_named import NamedFrequencies, SparseRows, Table
from dokl.learning.features import FeatureMap
from dokl.learning.kernels import Kernel
from dokl.learning.losses import Loss
from dokl.learning.schedules import Schedule
from dokl.network.exchange import Exchange
from dokl.network.state import State
from dokl.simulation.diffusion import Problem
from dokl.simulation.learner import Learner
from dokl.simulation.methods import gradient


class Machine:
    """What a model computes with, apart from its state; made again where a pickle left it out.

    One object, so that a copy of a model has a plan and a table that belong together.
    """

    def __init__(
        self, kernel: Kernel, D: int, seed: int, limit: int, exchange: Exchange, loss: Loss,
        schedule: Schedule, lam: float,
    ) -> None:  # fmt: skip
        if D % 2:
            raise BadInput(f"n_components are pairs (cos, sin) and must be even: use {D + 1}")
        self.kernel, self.D, self.exchange = kernel, D, exchange
        self.table = Table(NamedFrequencies(kernel, D // 2, seed), limit)
        self.method = gradient(loss, schedule, lam)
        self.learner = self._learner()

    def _map(self) -> FeatureMap:
        """A map as large as the table, empty: its frequencies are written into the plan."""
        seed, F = self.table.frequencies.seed, self.table.frequencies.F
        d = len(self.table.turns)
        nothing = np.broadcast_to(0.0, (d, F))
        return FeatureMap(self.kernel, d, self.D, "paired", seed, omega=nothing)

    def _learner(self) -> Learner:
        problem = Problem(self._map(), self.method)
        learner = Learner(problem, self.exchange, dtype=np.float64, engine="numba")
        F, rows = self.table.frequencies.F, learner.plan.map.freq
        rows[:, :F] = self.table.turns[:, :F]  # the plan pads its rows
        self.table.turns = rows  # the loops see new rows from now on
        return learner

    def rows(self, names: Iterable[Hashable], values: Array) -> SparseRows:
        """values: (n, names) -> n rows for the engine."""
        slots = np.array(self.table.slots(names), np.int64)
        if len(self.table.turns) != self.learner.d:
            self.learner = self._learner()
        shape = len(values), len(self.table.turns)
        if len(values) == 1:
            return SparseRows(values[0], slots, np.array([0, len(slots)]), shape)
        there = values != 0
        starts = np.concatenate([[0], np.cumsum(there.sum(axis=1))])
        return SparseRows(values[there], slots[np.nonzero(there)[1]], starts, shape)

    def advance(self, state: State, X: Any, Y: Array, w: Array | None) -> State:
        """The state after these rows, one after another; Y: (n, m)."""
        index = np.arange(len(Y), dtype=np.int64).reshape(-1, 1)
        return self.learner.advance(state, Block(X, Y, w, index))[0]
