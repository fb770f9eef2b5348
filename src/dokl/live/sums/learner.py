"""One live node that shares sums: a lone learner that also listens (`dokl.network.summing`).

What the node has learned from its own rows is part of its state, their sums among it. What it knows
of others' rows are the network's experts as last solved: they are stored, so that a node that comes
back predicts with them at once, and solved anew as soon as others' sums arrive.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dokl.base.arrays import Array
from dokl.learning.experts.bank import Prediction
from dokl.learning.experts.kinds import Settings
from dokl.learning.squares import memory as memories
from dokl.learning.squares import sums as adding
from dokl.learning.squares.sums import Sums
from dokl.live.listeners import ListeningLearner
from dokl.live.sums import states
from dokl.live.sums.forgetting import Fading
from dokl.network import summing
from dokl.network.agreed import AgreedMap
from dokl.network.node import NetworkNode
from dokl.network.state import State
from dokl.network.summing import EXPERTS, SummingNode
from dokl.network.sums import shared
from dokl.network.sums.checks import Layout, squared_error

WORSE = 2.0  # times the error alone, from which others' rows are left out


class SumsState(State):
    """A node, and what agents tell of a state: a vector, and rows learned."""

    node: SummingNode

    def __init__(self, node: SummingNode) -> None:
        theta = node.memories[0].theta if node.memories else node.own.added.zy
        rows = np.array([node.own.rows])
        super().__init__({"theta": theta[None], "count": rows}, int(rows[0]), 1.0)
        object.__setattr__(self, "node", node)


class SumsLearner(ListeningLearner):
    """One node of a network that shares sums.

    made         the map that all nodes agree on
    number       of the node on the map, -1 where the map does not know its place
    settings     of its own bank: those of a lone learner
    fingerprint  of all that others must agree on
    """

    def __init__(
        self,
        made: AgreedMap,
        number: int,
        settings: Settings,
        classes: Sequence[Any] | None,
        fingerprint: str,
    ) -> None:
        self.made, self.number, self.settings = made, number, settings
        self.classes = None if classes is None else list(classes)
        self.d, self.D, self.m, self.K = made.d, made.D, made.m, 1
        self.dtype, self.fingerprint = np.float64, fingerprint

    def start(self) -> SumsState:
        """A node that knows nothing."""
        return SumsState(summing.start(self.made, self.settings))

    def learn_predicting(self, state: State, X: Array, Y: Array) -> tuple[State, Prediction]:
        """Own rows X: (n, d), Y: (n, m) in order, and what was predicted for each before."""
        rows, after = self._entered(state, X, Y)
        node, told = summing.learn(node_of(state), self.made, self.number, rows, Y)
        return after(node), told

    def predict_all(self, state: State, X: Array) -> Prediction:
        """Means, variances and widths of rows X: (n, d)."""
        rows, _ = self._entered(state, X)
        return self.predict_inputs(state, rows)

    def predict_inputs(self, state: State, X: Array) -> Prediction:
        """The same of rows as the node's bank keeps them: with earlier values, where there are."""
        return summing.predict(node_of(state), self.made, self.number, X)

    def own_node(self, state: State) -> NetworkNode:
        """The lone learner, its corrections and its mixture."""
        return node_of(state).node

    def _entered(
        self, state: State, X: Array, Y: Array | None = None
    ) -> tuple[Array, Callable[[SummingNode], SumsState]]:
        """What the node gets of rows X, whose targets are known where Y is given; and what becomes
        of the state once it has learned them.
        """
        return X, SumsState

    # -- sums --------------------------------------------------------------------------------
    @property
    def rho(self) -> float:
        """The ridge of the network's experts."""
        return self.made.ridge

    @property
    def layout(self) -> Layout:
        """What is known of the features of any row."""
        return self.made.layout

    def largest_target(self, most: float) -> float:
        """What the largest |y| that is believed becomes on the map."""
        scaling = self.made.targets
        return float(((most + np.abs(scaling.centre)) / scaling.size).max())

    def own_sums(self, state: State) -> Sums:
        """Of all rows that this node has learned itself."""
        return node_of(state).own.total()

    def own_rows(self, state: State) -> int:
        """How many these are."""
        return node_of(state).own.rows

    def knowing(self, state: State, total: Sums, left: Sequence[Sums]) -> State:
        """The node once the network's experts know the rows of these sums, own ones included;
        left: what those that forget have left of them.
        """
        return self._like(state, summing.hear(node_of(state), self.made, (total, *left)))

    def _like(self, state: State, node: SummingNode) -> SumsState:
        """The state with a node that has learned no further row."""
        return SumsState(node)

    @property
    def fading(self) -> tuple[Fading, ...]:
        """The network's experts that forget."""
        return tuple(Fading(memory, self.made.width(centres)) for memory, centres in EXPERTS[1:])

    def hurts(self, state: State) -> bool:
        """Whether the network's expert is so much worse on this node's own rows than the lone
        learner was, before it had learned them, that others' rows are of no use here.
        """
        alone, own = self.worth(state)["alone"], self.own_sums(state)
        if alone is None or not own.weight:
            return False
        # Where the world has changed an own expert of all rows errs, too: no fault of others.
        known = node_of(state).memories[0].theta, shared.learned(own, self.rho).theta
        error, usual = (squared_error(theta, own) / (own.weight * self.m) for theta in known)
        unit = float(np.mean(self.made.targets.size**2))
        return error > WORSE * max(alone / unit, usual, memories.LEAST_NOISE)

    # -- as data -----------------------------------------------------------------------------
    def pack(self, state: State) -> bytes:
        """All that was learned, in bytes; exact."""
        return states.pack(node_of(state))

    def unpack(self, data: bytes) -> State:
        """The state that was packed; of one that an earlier version packed, the sums of all rows:
        the lone learner begins anew, as nothing of them is left but these sums.
        """
        if states.is_old(data):
            own = states.old_sums(data, self.D, self.m)
            node = replace(node_of(self.start()), own=summing.sums_of(own))
            left = (adding.times(own, min(1.0, n / max(own.weight, 1.0))) for n, _ in EXPERTS[1:])
            return SumsState(summing.hear(node, self.made, (own, *left)))
        return SumsState(states.unpack(data, self.made, self.settings))


def node_of(state: State) -> SummingNode:
    """The node of a state."""
    assert isinstance(state, SumsState)
    return state.node
