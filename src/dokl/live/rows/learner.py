"""One live node that shares rows: a lone learner that also listens (`dokl.network.listening`).

What it has learned and heard is its state, with how far it has learned the log of each origin and
with own rows that are not sealed yet: so whatever a crash leaves, no row is learned twice by the
network's bank, and none of its own is sealed twice or not at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any

import numpy as np

from dokl.base.arrays import Array
from dokl.learning.experts.bank import Prediction
from dokl.learning.experts.kinds import Settings
from dokl.live.listeners import ListeningLearner
from dokl.live.rows import states
from dokl.live.rows.states import RowsNode
from dokl.network import listening
from dokl.network.node import NetworkNode
from dokl.network.state import State


class RowsState(State):
    """A node, and what agents tell of a state: a vector, and rows learned."""

    rows: RowsNode

    def __init__(self, rows: RowsNode) -> None:
        own = rows.node.node.own
        theta = own.memories[0].theta if own.memories else own.total[1][:, None]
        count = np.array([own.seen])
        super().__init__({"theta": theta[None], "count": count}, int(count[0]), 1.0)
        object.__setattr__(self, "rows", rows)


class RowsLearner(ListeningLearner):
    """One node of a network that shares rows.

    name         of the node, and names: of all, in the order of the description
    d, m         inputs and outputs
    settings     of its own bank: those of a lone learner
    kept         own rows that wait to be sealed, at most: where there is no exchange, the newest
    fingerprint  of all that others must agree on: columns and labels
    listens      whether there are neighbours; without any, it is the lone learner
    D            a number that messages and journals of a network have in common; of no meaning
    """

    def __init__(
        self,
        network: str,
        name: str,
        names: Sequence[str],
        d: int,
        m: int,
        settings: Settings,
        classes: Sequence[Any] | None,
        fingerprint: str,
        kept: int,
        listens: bool = True,
        D: int = 1,
    ) -> None:
        self.name, self.names, self.settings, self.kept = name, tuple(names), settings, kept
        self.classes = None if classes is None else list(classes)
        self.d, self.D, self.m, self.K = d, D, m, 1
        self.dtype, self.fingerprint, self.listens = np.float64, fingerprint, listens
        self.network_mark = sha256(network.encode()).digest()[:8]
        self.clock = 0.0  # seconds since 1970, as rows come

    def start(self) -> RowsState:
        """A node that knows nothing."""
        node = listening.start(self.d, self.m, self.settings, self.listens)
        heard = np.zeros(len(self.names), np.int64)
        none = np.zeros((0, self.d)), np.zeros((0, self.m)), np.zeros(0)
        return RowsState(RowsNode(node, self.names, heard, *none))

    def learn_predicting(self, state: State, X: Array, Y: Array) -> tuple[State, Prediction]:
        """Own rows X: (n, d), Y: (n, m) in order, and what was predicted for each before."""
        known = rows_of(state)
        number = known.names.index(self.name)
        node, told = listening.learn(known.node, number, X, Y)
        at = np.full(len(X), self.clock)
        mine = {"X": (known.X, X), "Y": (known.Y, Y), "at": (known.at, at)}
        parts = {name: np.concatenate(pair)[-self.kept :] for name, pair in mine.items()}
        return RowsState(replace(known, node=node, **parts)), told  # type: ignore[arg-type]

    def predict_all(self, state: State, X: Array) -> Prediction:
        """Means, variances and widths of rows X: (n, d)."""
        known = rows_of(state)
        return listening.predict(known.node, known.names.index(self.name), X)

    def own_node(self, state: State) -> NetworkNode:
        """The lone learner, its corrections and its mixture."""
        return rows_of(state).node.node

    # -- own rows that are not sealed ----------------------------------------------------------
    def unsealed(self, state: State) -> tuple[Array, Array, Array]:
        """X: (n, d), Y: (n, m), and when they were learned: (n,)."""
        known = rows_of(state)
        return known.X, known.Y, known.at

    def sealing(self, state: State, rows: int) -> State:
        """The state once the first of these rows are sealed."""
        known = rows_of(state)
        parts = {name: getattr(known, name)[rows:] for name in ("X", "Y", "at")}
        return RowsState(replace(known, **parts, sealed=known.sealed + rows))

    def sealed(self, state: State) -> int:
        """How many own rows were sealed before those that are not."""
        return rows_of(state).sealed

    def following(self, state: State, number: int) -> State:
        """The state whose rows that are not sealed yet have the numbers from this one on."""
        return RowsState(replace(rows_of(state), sealed=number))

    # -- others' rows --------------------------------------------------------------------------
    def heard(self, state: State) -> Mapping[str, int]:
        """The number of the next row of each origin that is to be learned."""
        known = rows_of(state)
        return dict(zip(known.names, known.heard.tolist(), strict=True))

    def hear(
        self, state: State, origin: str, X: Array, Y: Array, end: int, late: bool = False
    ) -> State:
        """Rows of an origin, up to number `end`, learned by the network's bank."""
        known = self._knowing(rows_of(state), origin)
        at = known.names.index(origin)
        node = listening.hear(known.node, np.full(len(X), at), X, Y, late)
        heard = known.heard.copy()
        heard[at] = end
        return RowsState(replace(known, node=node, heard=heard))

    def hear_from(self, state: State, origin: str, number: int) -> State:
        """The state that goes on with this row of an origin, whatever it has learned of it."""
        known = self._knowing(rows_of(state), origin)
        heard = known.heard.copy()
        heard[known.names.index(origin)] = number
        return RowsState(replace(known, heard=heard))

    def forget_others(self, state: State) -> State:
        """The state with a network's bank that has heard nothing."""
        known = rows_of(state)
        node = listening.forget_others(known.node)
        return RowsState(replace(known, node=node, heard=np.zeros_like(known.heard)))

    def _knowing(self, known: RowsNode, origin: str) -> RowsNode:
        if origin in known.names:
            return known
        heard = np.append(known.heard, 0)
        return replace(known, names=(*known.names, origin), heard=heard)

    # -- as data -----------------------------------------------------------------------------
    def pack(self, state: State) -> bytes:
        """All that was learned, in bytes; exact."""
        return states.pack(rows_of(state))

    def unpack(self, data: bytes) -> State:
        """The state that was packed."""
        known = states.unpack(data, self.d, self.m, self.settings)
        for name in self.names:  # that came into the network since
            known = self._knowing(known, name)
        return RowsState(known)


def rows_of(state: State) -> RowsNode:
    """The node in a state."""
    assert isinstance(state, RowsState)
    return state.rows
