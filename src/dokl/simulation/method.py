"""What every method declares. A new one is a file beside this, and a line in each engine that
has a faster way than `adapt`.
"""

from __future__ import annotations

from typing import Any, Protocol

from dokl.base.arrays import Array, Block
from dokl.learning.features import AnyMap
from dokl.network.exchange import Exchange
from dokl.network.state import Slots, State


class Method(Protocol):
    """A value: numbers and functions that say how a node learns, nothing that changes."""

    @property
    def name(self) -> str:
        """One word, for files, messages and engines."""

    @property
    def conserved(self) -> bool:
        """Whether what nodes send must neither be lost nor counted twice, as sums of rows."""

    @property
    def merges(self) -> bool:
        """Whether `merged(features, exchange, state, A)` -> (state, bytes sent) takes the place of
        sending and mixing: nodes then keep apart what they have of whom.
        """

    def slots(self, features: AnyMap, m: int, exchange: Exchange) -> Slots:
        """The arrays of one node with m outputs, by name."""

    def adapt(
        self, exchange: Exchange, state: State, Z: Array, Y: Array, w: Array
    ) -> tuple[State, Array]:
        """One sample per node, Z: (K, D), Y: (K, m), w: (K,); the new state and a-priori f: (K, m).

        The state may be overwritten. Nodes with w = 0 have no sample: their arrays stay, and their
        prediction is NaN.
        """

    def outgoing(self, state: State) -> Array:
        """What each node would send: (K, P)."""

    def incoming(self, state: State, mixed: Array) -> State:
        """The state once each node has mixed what it got with its own: (K, P)."""

    def check(
        self, features: AnyMap, exchange: Exchange, state: State, block: Block, f: Array,
        largest: float,
    ) -> None:  # fmt: skip
        """After a block: raise where targets or iterates left what is finite. f: (n, K, m); largest
        |f| among them, infinite if an array of the state is not finite.
        """

    def check_rows(self, old: State, new: State, Y: Array, f: Array) -> None:
        """Row by row what `check` says of a block; Y and f (n, m) of one node, from old to new."""

    def wild(self, features: AnyMap, state: State, payload: Array) -> bool:
        """Whether what a neighbour sent, (P,), is too far off to be mixed."""

    def spec(self) -> dict[str, Any]:
        """Name and numbers, for files and messages."""
