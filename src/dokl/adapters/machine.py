"""A learner of named features: the compiled engine over a table of frequencies that changes."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from dokl.adapters.named import NamedFrequencies, SparseRows, Table
from dokl.arrays import Array, Block
from dokl.diffusion import Exchange, Problem, State, init
from dokl.engines import compiled
from dokl.errors import BadInput
from dokl.features import FeatureMap
from dokl.kernels import Kernel
from dokl.losses import Loss
from dokl.schedules import Schedule


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
        self.problem = Problem(self._map(), loss, schedule, lam)
        self._plan()

    def _map(self) -> FeatureMap:
        """A map as large as the table, empty: its frequencies are written into the plan."""
        seed, F = self.table.frequencies.seed, self.table.frequencies.F
        d = len(self.table.turns)
        nothing = np.broadcast_to(0.0, (d, F))
        return FeatureMap(self.kernel, d, self.D, "paired", seed, omega=nothing)

    def _plan(self) -> None:
        try:
            self.plan = compiled.plan(self.problem, self.exchange, np.float64)
        except compiled.NotCompilable as error:
            raise BadInput(
                f"this loss or schedule does not compile ({error}): write it with NumPy functions "
                "of numbers"
            ) from None
        F = self.table.frequencies.F
        self.plan.map.freq[:, :F] = self.table.turns[:, :F]  # the plan pads its rows
        self.table.turns = self.plan.map.freq  # the loops see new rows from now on

    def start(self) -> State:
        """One output, at 0."""
        return init(self.problem, self.exchange, 1, 1, np.float64)

    def rows(self, names: Iterable[Hashable], values: Array) -> SparseRows:
        """values: (n, names) -> n rows for the engine."""
        slots = np.array(self.table.slots(names), np.int64)
        if len(self.table.turns) != self.problem.features.d:
            self.problem = replace(self.problem, features=self._map())
            self._plan()
        shape = len(values), len(self.table.turns)
        if len(values) == 1:
            return SparseRows(values[0], slots, np.array([0, len(slots)]), shape)
        there = values != 0
        starts = np.concatenate([[0], np.cumsum(there.sum(axis=1))])
        return SparseRows(values[there], slots[np.nonzero(there)[1]], starts, shape)

    def advance(self, state: State, X: Any, Y: Array, w: Array | None) -> State:
        """The state after these rows, one after another; Y: (n, m)."""
        index = np.arange(len(Y), dtype=np.int64).reshape(-1, 1)
        return compiled.advance(self.plan, state, Block(X, Y, w, index))[0]

    def scores(self, state: State, X: Any) -> Array:
        """(n, m)."""
        theta, bias = state.delivered()
        return compiled.predict(self.plan, theta[0], bias[0], X)
