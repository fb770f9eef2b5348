"""One live node that shares rows: a learner that also learns from others
(`dokl.network.listening`).

What it has learned and received is its state, with how far it has learned the log of each origin
and with own rows that are not sealed yet: so whatever a crash leaves, no row is learned twice by
the network's bank, and none of its own is sealed twice or not at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any, Self

import numpy as np

from dokl.base.arrays import Array, limited
from dokl.learning.experts import learn as learning
from dokl.learning.experts.bank import Prediction
from dokl.learning.experts.kinds import Settings
from dokl.live.lagged import LaggedInputs
from dokl.live.listeners import ListeningLearner, ListeningState
from dokl.live.rows import states
from dokl.live.rows.columns import ColumnMap
from dokl.live.rows.states import RowsNode
from dokl.network import listening
from dokl.network.node import NetworkNode
from dokl.network.state import State
from dokl.tables.models.series import Series

WEIGHED = 500  # rows of earlier columns that the mixture learns; own experts learn all


class RowsState(ListeningState):
    """A node, and what agents report of a state: a vector, and rows learned."""

    rows: RowsNode

    def __init__(self, rows: RowsNode, series: Series | None = None) -> None:
        own = rows.node.node.own
        theta = own.memories[0].theta if own.memories else own.total[1][:, None]
        count = np.array([own.seen])
        super().__init__({"theta": theta[None], "count": count}, int(count[0]), 1.0)
        object.__setattr__(self, "rows", rows)
        object.__setattr__(self, "series", series)

    def with_series(self, series: Series | None) -> Self:
        """The same with another memory."""
        return type(self)(self.rows, series)


class RowsLearner(ListeningLearner):
    """One node of a network that shares rows.

    name         of the node, and names: of all, in the order of the description
    inputs, m    numbers of inputs, of which shared rows are made, and of outputs
    settings     of its own bank: those of a single learner
    fingerprint  of all that others must agree on: columns and labels
    listens      whether there are neighbours; without any, it is the own learner
    D            a number that messages and journals of a network have in common; of no meaning
    lagged       earlier values that are inputs: the node that a row is of makes them, so rows that
                 are shared have them
    earlier      how rows of earlier columns become rows of those of now, by their fingerprints
    """

    def __init__(
        self,
        network: str,
        name: str,
        names: Sequence[str],
        inputs: int,
        m: int,
        settings: Settings,
        classes: Sequence[Any] | None,
        fingerprint: str,
        listens: bool = True,
        D: int = 1,
        lagged: LaggedInputs | None = None,
        earlier: Mapping[str, ColumnMap] | None = None,
    ) -> None:
        self.name, self.names, self.settings = name, tuple(names), settings
        self.earlier = dict(earlier or {})
        self.classes = None if classes is None else list(classes)
        self.inputs, self.lagged = inputs, lagged
        self.d = inputs if lagged is None else lagged.rows.d
        self.D, self.m, self.K = D, m, 1
        self.dtype, self.fingerprint, self.listens = np.float64, fingerprint, listens
        self.network_mark = sha256(network.encode()).digest()[:8]
        self.clock = 0.0  # seconds since 1970, as rows come

    def start(self) -> RowsState:
        """A node that knows nothing."""
        node = listening.start(self.inputs, self.m, self.settings, self.listens)
        heard = np.zeros(len(self.names), np.int64)
        none = np.zeros((0, self.inputs)), np.zeros((0, self.m)), np.zeros(0)
        series = None if self.lagged is None else self.lagged.start()
        return RowsState(RowsNode(node, self.names, heard, *none), series)

    def learn_inputs(self, state: State, X: Array, Y: Array) -> tuple[RowsState, Prediction]:
        """Inputs X and targets Y: (n, m) of own rows, and what was predicted for each before."""
        known = rows_of(state)
        number = known.names.index(self.name)
        node, prediction = listening.learn(known.node, number, X, Y)
        at = np.full(len(X), self.clock)
        mine = {"X": (known.X, X), "Y": (known.Y, Y), "at": (known.at, at)}
        parts = {name: np.concatenate(pair) for name, pair in mine.items()}
        return RowsState(replace(known, node=node, **parts)), prediction  # type: ignore[arg-type]

    def predict_inputs(self, state: State, X: Array) -> Prediction:
        """Means, variances and widths of inputs X."""
        known = rows_of(state)
        return listening.predict(known.node, known.names.index(self.name), X)

    def own_node(self, state: State) -> NetworkNode:
        """The own learner, its corrections and its mixture."""
        return rows_of(state).node.node

    # -- own rows that are not sealed ----------------------------------------------------------
    def unsealed(self, state: State) -> tuple[Array, Array, Array]:
        """Inputs X and targets Y: (n, m), and when they were learned: (n,)."""
        known = rows_of(state)
        return known.X, known.Y, known.at

    def sealing(self, state: State, rows: int) -> State:
        """The state once the first of these rows are sealed."""
        known = rows_of(state)
        parts = {name: getattr(known, name)[rows:] for name in ("X", "Y", "at")}
        return _like(state, replace(known, **parts, sealed=known.sealed + rows))

    def sealed(self, state: State) -> int:
        """How many own rows were sealed before those that are not."""
        return rows_of(state).sealed

    def following(self, state: State, number: int) -> State:
        """The state whose rows that are not sealed yet have the numbers from this one on."""
        return _like(state, replace(rows_of(state), sealed=number))

    # -- others' rows --------------------------------------------------------------------------
    def next_rows(self, state: State) -> Mapping[str, int]:
        """The number of the next row of each origin that is to be learned."""
        known = rows_of(state)
        return dict(zip(known.names, known.heard.tolist(), strict=True))

    def receive(
        self, state: State, parts: Sequence[tuple[str, Array, Array, int]], late: bool = False
    ) -> State:
        """Rows of origins, each up to a number of its log, learned by the network's bank together:
        (origin, X: (n, d), Y: (n, m), the number of its next row).
        """
        known = rows_of(state)
        for origin, _, _, _ in parts:
            known = self._knowing(known, origin)
        heard, numbers = known.heard.copy(), list[Array]()
        for origin, X, _, end in parts:
            at = known.names.index(origin)
            heard[at] = end
            numbers.append(np.full(len(X), at))
        X = np.concatenate([part[1] for part in parts])
        Y = np.concatenate([part[2] for part in parts])
        node = listening.receive(known.node, np.concatenate(numbers), X, Y, late)
        return _like(state, replace(known, node=node, heard=heard))

    def receive_from(self, state: State, origin: str, number: int) -> State:
        """The state that goes on with this row of an origin, whatever it has learned of it."""
        known = self._knowing(rows_of(state), origin)
        heard = known.heard.copy()
        heard[known.names.index(origin)] = number
        return _like(state, replace(known, heard=heard))

    def forget_others(self, state: State) -> State:
        """The state with an untrained network's bank."""
        known = rows_of(state)
        node = listening.forget_others(known.node)
        return _like(state, replace(known, node=node, heard=np.zeros_like(known.heard)))

    # -- earlier columns -----------------------------------------------------------------------
    def take_over(self, state: State, fingerprint: str, X: Array, Y: Array, done: int) -> State:
        """A state of earlier columns as one of those of now. The own learner begins again with own
        rows that are kept, X: (n, d) and Y: (n, m) of the columns of now, and then those that are
        not sealed, but for the first `done`; the network's bank learns all kept rows again.
        """
        before = rows_of(state)
        waiting = self.earlier[fingerprint].rows(before.X), before.Y, before.at
        X, Y = np.concatenate([X, waiting[0][done:]]), np.concatenate([Y, waiting[1][done:]])
        node = listening.start(self.inputs, self.m, self.settings, self.listens)
        own, _ = learning.learn(node.node.own, X[:-WEIGHED], limited(Y[:-WEIGHED]))
        node = replace(node, node=replace(node.node, own=own))
        number = before.names.index(self.name)
        node, _ = listening.learn(node, number, X[-WEIGHED:], Y[-WEIGHED:])
        heard = np.zeros(len(before.names), np.int64)
        rows = RowsNode(node, before.names, heard, *waiting, before.sealed)
        series = None if self.lagged is None else self.lagged.start()
        remembered = _known(state).series
        if series is not None and remembered is not None:
            series = _remembering(series, remembered, self.earlier[fingerprint])
        return RowsState(rows, series)

    def _knowing(self, known: RowsNode, origin: str) -> RowsNode:
        if origin in known.names:
            return known
        heard = np.append(known.heard, 0)
        return replace(known, names=(*known.names, origin), heard=heard)

    # -- as data -----------------------------------------------------------------------------
    def pack(self, state: State) -> bytes:
        """All that was learned, in bytes; exact."""
        return states.pack(rows_of(state), _known(state).series)

    def unpack(self, data: bytes) -> State:
        """The state that was packed."""
        shape = self.inputs, self.m
        known, lags = states.unpack(data, *shape, self.settings, self.lagged)
        for name in self.names:  # that came into the network since
            known = self._knowing(known, name)
        return RowsState(known, lags)


def rows_of(state: State) -> RowsNode:
    """The node in a state."""
    return _known(state).rows


def _known(state: State) -> RowsState:
    assert isinstance(state, RowsState)
    return state


def _remembering(series: Series, before: Series, made: ColumnMap) -> Series:
    """A memory with what one of earlier columns remembers, as far as it is of the same kind."""
    lags = before.lags if before.plan == series.plan else series.lags
    if before.horizon != series.horizon:
        return replace(series, lags=lags)
    groups = {
        name: replace(past, values=np.hstack([made.rows(values[:, : made.d]), values[:, made.d :]]))
        for name, past in before.waiting.groups.items()
        for values in [past.values]
    }
    return replace(series, lags=lags, waiting=replace(before.waiting, groups=groups))


def _like(state: State, rows: RowsNode) -> RowsState:
    """The state with a node that has learned no further row of its own."""
    return RowsState(rows, _known(state).series)
