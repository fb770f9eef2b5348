"""One live node that shares sums: a learner that also learns from others (`dokl.network.summing`).

What the node has learned from its own rows is part of its state, their sums among it. What it knows
of others' rows are the network's experts as last solved: they are stored, so that a node that comes
back predicts with them at once, and solved again as soon as others' sums arrive.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np

from dokl.base.arrays import Array
from dokl.learning.experts.bank import Prediction
from dokl.learning.experts.kinds import Settings
from dokl.learning.squares import memory as memories
from dokl.learning.squares import sums as adding
from dokl.learning.squares.sums import Sums
from dokl.live.lagged import LaggedInputs
from dokl.live.listeners import ListeningLearner, ListeningState
from dokl.live.sums import states
from dokl.live.sums.forgetting import Fading
from dokl.network import summing
from dokl.network.agreed import AgreedMap
from dokl.network.node import NetworkNode
from dokl.network.state import State
from dokl.network.summing import EXPERTS, SummingNode
from dokl.network.sums import shared
from dokl.network.sums.checks import Layout, squared_error
from dokl.tables.models.series import Series

WORSE = 2.0  # times the error alone, from which others' rows are left out


class SumsState(ListeningState):
    """A node, and what agents report of a state: a vector, and rows learned."""

    node: SummingNode

    def __init__(self, node: SummingNode, series: Series | None = None) -> None:
        theta = node.memories[0].theta if node.memories else node.own.added.zy
        rows = np.array([node.own.rows])
        super().__init__({"theta": theta[None], "count": rows}, int(rows[0]), 1.0)
        object.__setattr__(self, "node", node)
        object.__setattr__(self, "series", series)

    def with_series(self, series: Series | None) -> Self:
        """The same with another memory."""
        return type(self)(self.node, series)


class SumsLearner(ListeningLearner):
    """One node of a network that shares sums.

    made         the map that all nodes agree on
    number       of the node on the map, -1 where the map does not know its place
    settings     of its own bank: those of a single learner
    fingerprint  of all that others must agree on
    lagged       earlier values that are inputs
    """

    def __init__(
        self,
        made: AgreedMap,
        number: int,
        settings: Settings,
        classes: Sequence[Any] | None,
        fingerprint: str,
        lagged: LaggedInputs | None = None,
    ) -> None:
        self.made, self.number, self.settings, self.lagged = made, number, settings, lagged
        self.classes = None if classes is None else list(classes)
        self.d = made.d if lagged is None else lagged.rows.d
        self.D, self.m, self.K = made.D, made.m, 1
        self.dtype, self.fingerprint = np.float64, fingerprint

    def start(self) -> SumsState:
        """A node that knows nothing."""
        series = None if self.lagged is None else self.lagged.start()
        return SumsState(summing.start(self.made, self.settings), series)

    def learn_inputs(self, state: State, X: Array, Y: Array) -> tuple[SumsState, Prediction]:
        """Inputs X and targets Y: (n, m) of own rows, and what was predicted for each before."""
        node, prediction = summing.learn(node_of(state), self.made, self.number, X, Y)
        return SumsState(node), prediction

    def predict_inputs(self, state: State, X: Array) -> Prediction:
        """Means, variances and widths of inputs X."""
        return summing.predict(node_of(state), self.made, self.number, X)

    def own_node(self, state: State) -> NetworkNode:
        """The own learner, its corrections and its mixture."""
        return node_of(state).node

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
        node = summing.receive(node_of(state), self.made, (total, *left))
        return SumsState(node, _known(state).series)

    def listened(self, state: State) -> bool:
        """Whether the node knows sums of others' rows."""
        return bool(node_of(state).memories)

    def forget_others(self, state: State) -> State:
        """The node without others' sums: it predicts as its own learner does."""
        node = node_of(state)
        alone = replace(node, node=replace(node.node, corrections=None), memories=())
        return SumsState(alone, _known(state).series)

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
        known = node_of(state).memories[0].theta, shared.to_memory(own, self.rho).theta
        error, usual = (squared_error(theta, own) / (own.weight * self.m) for theta in known)
        unit = float(np.mean(self.made.targets.size**2))
        return error > WORSE * max(alone / unit, usual, memories.LEAST_NOISE)

    # -- as data -----------------------------------------------------------------------------
    def pack(self, state: State) -> bytes:
        """All that was learned, in bytes; exact."""
        return states.pack(node_of(state), _known(state).series)

    def unpack(self, data: bytes) -> State:
        """The state that was packed; of one that an earlier version packed, the sums of all rows:
        the own learner starts over, as nothing of them is left but these sums.
        """
        if states.is_old(data):
            own = states.old_sums(data, self.D, self.m)
            node = replace(node_of(self.start()), own=summing.sums_of(own))
            left = (adding.times(own, min(1.0, n / max(own.weight, 1.0))) for n, _ in EXPERTS[1:])
            return SumsState(summing.receive(node, self.made, (own, *left)))
        return SumsState(*states.unpack(data, self.made, self.settings, self.lagged))


def node_of(state: State) -> SummingNode:
    """The node of a state."""
    return _known(state).node


def _known(state: State) -> SumsState:
    assert isinstance(state, SumsState)
    return state
