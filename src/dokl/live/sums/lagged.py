"""A live node that shares sums, with earlier values of its own rows as inputs.

The journal keeps rows as they came. The state has the newest of them, and the inputs of a row
follow from the state before it: a restart, which replays rows, makes the same lags to the last bit,
and nothing else has to be stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from dokl.base.arrays import Array
from dokl.learning.columns import LagColumns, LagPlan, Preprocessor, RawRows
from dokl.learning.columns.raw_rows import MISSING
from dokl.learning.experts.kinds import Settings
from dokl.live.sums import states
from dokl.live.sums.learner import SumsLearner, SumsState, node_of
from dokl.network import summing
from dokl.network.agreed import AgreedMap
from dokl.network.state import State
from dokl.network.summing import SummingNode


class LaggedState(SumsState):
    """A node, and the rows that it remembers."""

    lags: LagColumns

    def __init__(self, node: SummingNode, lags: LagColumns) -> None:
        super().__init__(node)
        object.__setattr__(self, "lags", lags)


class LaggedLearner(SumsLearner):
    """One node of a network that shares sums, by rows X as they came.

    rows      how columns are kept as numbers
    prepared  how columns, with earlier values among them, become the inputs of the map
    plan      which earlier values; target: the column of targets, which may be among them
    """

    def __init__(
        self,
        made: AgreedMap,
        number: int,
        settings: Settings,
        classes: Sequence[Any] | None,
        fingerprint: str,
        rows: RawRows,
        prepared: Preprocessor,
        plan: LagPlan,
        target: str,
    ) -> None:
        super().__init__(made, number, settings, classes, fingerprint)
        self.d, self._raw, self._prepared = rows.d, rows, prepared
        self._plan, self._target = plan, target

    def start(self) -> LaggedState:
        """A node that knows and remembers nothing."""
        return LaggedState(summing.start(self.made, self.settings), LagColumns(self._plan))

    def prepare(self, rows: int = 1) -> None:
        """Load everything that learning and predicting need; nothing is compiled for it."""
        X, p = np.zeros((1, self.d)), len(self._raw.numeric)
        X[:, p : 2 * p], X[:, 2 * p :] = 1.0, MISSING
        self.learn(self.start(), X, np.ones((1, self.m)))
        self.predict(self.start(), X)

    def _entered(
        self, state: State, X: Array, Y: Array | None = None
    ) -> tuple[Array, Callable[[SummingNode], SumsState]]:
        """Inputs of rows that follow those of the state; BadInput where they do not."""
        lags, columns = lags_of(state), self._raw.columns(X)
        if Y is not None and self._target in self._plan.hidden:
            columns[self._target] = Y[:, 0]
        lags.check(columns)
        made, after = lags.extend(columns)
        return self._prepared.transform({**columns, **made}), partial(LaggedState, lags=after)

    def _like(self, state: State, node: SummingNode) -> SumsState:
        return LaggedState(node, lags_of(state))

    def pack(self, state: State) -> bytes:
        """All that was learned, and the rows that are remembered; exact."""
        return states.pack(node_of(state), lags_of(state))

    def unpack(self, data: bytes) -> State:
        """The state that was packed."""
        node = states.unpack(data, self.made, self.settings)
        return LaggedState(node, states.unpack_lags(data, self._plan))


def lags_of(state: State) -> LagColumns:
    """The rows that a node remembers."""
    assert isinstance(state, LaggedState)
    return state.lags
