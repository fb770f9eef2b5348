"""Method `squares`: exact recursive least squares on the features, with or without forgetting.

How one learner does it is in `dokl.learning.squares`, how sums travel in `dokl.network.sums`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dokl.base.arrays import Array, Block, first_bad, used_rows
from dokl.base.errors import BadInput, UnknownName
from dokl.learning.features import AnyMap
from dokl.learning.squares import memory as memories
from dokl.learning.squares import rows
from dokl.learning.squares.memory import Memory, Numbers
from dokl.network.exchange import Exchange
from dokl.network.state import Slot, Slots, State
from dokl.network.sums import per_origin, shared, sharing

# What a node remembers, in the order of `Memory`.
NAMES = ("theta", "P", "a", "b", "W", "c", "n", "num", "den")
# What nodes send: their vectors, their copies of the network's sums, or everybody's sums.
SHARES = ("theta", "sums", "origins")


@dataclass(frozen=True)
class Squares:
    """Least squares with ridge rho, a memory of n rows (infinite: all), and a bound on
    innovations, in standard deviations. share: what nodes send; fewest: own rows that a message
    of sums must add, or none; robust: whether origins are left out whose rows hurt.
    """

    ridge: float = 0.01
    memory: float = math.inf
    bound: float = 6.0
    share: str = "theta"
    fewest: int = 1
    robust: bool = False
    name = "squares"

    def __post_init__(self) -> None:
        if self.ridge == 0:
            raise BadInput(
                "ridge must be above 0: with fewer rows than features, as every stream begins, "
                "least squares without a ridge has no unique solution; 1e-6 hardly matters"
            )
        for what in ("ridge", "bound"):
            if not getattr(self, what) > 0:
                raise BadInput(f"{what} must be above 0, got {getattr(self, what)!r}")
        if not self.memory >= 2:
            raise BadInput(f"a memory is of at least 2 rows, or infinite; got {self.memory!r}")
        if self.share not in SHARES:
            raise UnknownName("thing to share", self.share, SHARES)
        if not (isinstance(self.fewest, int | np.integer) and self.fewest >= 1):
            raise BadInput(f"fewest must be a number of rows, at least 1, got {self.fewest!r}")
        if self.fewest > 1 and self.share == "theta":
            raise BadInput("fewest counts the rows in a message of sums: it needs share='sums'")
        if self.robust and self.share != "origins":
            raise BadInput("only sums per origin can be left out: robust needs share='origins'")

    @property
    def conserved(self) -> bool:
        """Sums must neither be lost nor counted twice; vectors may be averaged as one likes."""
        return self.share == "sums"

    @property
    def numbers(self) -> Numbers:
        """rho, lam and the bound."""
        return Numbers(self.ridge, 1.0 - 1.0 / self.memory, self.bound)

    @property
    def merges(self) -> bool:
        """Sums per origin are kept apart."""
        return self.share == "origins"

    def slots(self, features: AnyMap, m: int, exchange: Exchange) -> Slots:
        """What `Memory` holds, how many rows there were, and what sharing needs."""
        D = features.D
        known = memory_slots(D, m, self.ridge) | {"count": Slot((), np.int64)}
        return known | self._sharing(D, m, exchange)

    def _sharing(self, D: int, m: int, exchange: Exchange) -> dict[str, Slot]:
        if self.merges:
            return dict(per_origin.slots(self.numbers, self.robust, D, m, exchange))
        if self.conserved:
            return dict(sharing.slots(self.numbers, self.fewest, D, m, exchange))
        return {}

    def adapt(
        self, exchange: Exchange, state: State, Z: Array, Y: Array, w: Array
    ) -> tuple[State, Array]:
        """One row per node, Z: (K, D), Y: (K, m), w: (K,)."""
        f = np.full(Y.shape, np.nan)
        for k in np.flatnonzero(w > 0).tolist():
            given = memory_of(state, k), Z[k], Y[k], float(w[k])
            memory, f[k], held = rows.learn_weighed(self.numbers, *given)
            put(state, k, memory, 1)
            if "sums" in state:
                sharing.add(state, k, shared.of_rows(Z[k : k + 1], Y[k : k + 1], np.array([held])))
        return state, f

    def outgoing(self, state: State) -> Array:
        """theta alone, (K, m D), and the matrix stays at home; or a node's copy of the network's
        sums: (K, S).
        """
        if self.conserved:
            return sharing.outgoing(state, self.fewest)
        return state.theta.reshape(state.K, -1)

    def incoming(self, state: State, mixed: Array) -> State:
        """theta is what was mixed, or what follows from sums."""
        if self.conserved:
            return sharing.incoming(self.numbers, self.fewest, state, mixed)
        return state.having(theta=mixed.reshape(state.theta.shape))

    def merged(
        self, features: AnyMap, exchange: Exchange, state: State, A: object
    ) -> tuple[State, int]:
        """Every node after receiving its neighbours' accounts, and the bytes they sent."""
        return per_origin.merge(self.numbers, self.fewest, features, exchange, state, A)

    def check(
        self, features: AnyMap, exchange: Exchange, state: State, block: Block, f: Array,
        largest: float,
    ) -> None:  # fmt: skip
        """Targets must be finite; least squares does not diverge."""
        if math.isfinite(state.peak) and math.isfinite(largest):
            return
        used = used_rows(block)
        bad = first_bad(block.Y[used])
        row = "" if bad is None else f" of row {used[bad[0]]}"
        raise BadInput(f"target{row} is NaN, infinite or too large: remove the row")

    def check_rows(self, old: State, new: State, Y: Array, f: Array) -> None:
        """Nothing that `check` has not seen."""

    def wild(self, features: AnyMap, state: State, payload: Array) -> bool:
        """Whether what a neighbour sent predicts a million times what targets were."""
        longest = math.sqrt(features.sup_norm2 * float(np.sum(payload.astype(np.float64) ** 2)))
        return state.peak > 0 and longest > 1e6 * (1.0 + state.peak)

    def spec(self) -> dict[str, Any]:
        """Name and numbers; an infinite memory is None."""
        memory = None if self.memory == math.inf else self.memory
        bound = None if self.bound == math.inf else self.bound
        spec = {"name": self.name, "ridge": self.ridge, "memory": memory, "bound": bound}
        travels = {"share": self.share, "fewest": self.fewest, "robust": self.robust}
        return spec if self.share == "theta" else spec | travels


def squares(
    ridge: float = 0.01,
    memory: float = math.inf,
    bound: float = 6.0,
    share: str = "theta",
    fewest: int = 1,
    robust: bool = False,
) -> Squares:
    """Exact least squares on the features.

    ridge: noise variance over the prior variance of theta, for features of length one. memory:
    rows that are remembered, with back-to-the-prior forgetting. bound: an innovation of more
    standard deviations pulls like one of that size; infinite: every target is believed.

    share: what nodes of a network send. "theta", their vectors, is cheap; with "sums" every node
    comes to know what one place with all rows would know. A memory then counts the network's rows.
    With "origins" everybody keeps everybody's sums apart, so that they can be checked, left out and
    taken back, and learns nothing twice however messages are lost or repeated.
    fewest: a message adds n of a node's own rows, or none, since few rows could be read off.
    robust: with "origins", leave out those whose rows make predictions of own rows worse.

    >>> squares(memory=1000).numbers.lam
    0.999
    """
    return Squares(float(ridge), float(memory), float(bound), share, fewest, robust)


def of_spec(spec: Mapping[str, Any]) -> Squares:
    """The method that `spec` described."""
    memory, bound = (math.inf if spec[k] is None else spec[k] for k in ("memory", "bound"))
    more = {name: spec[name] for name in ("share", "fewest", "robust") if name in spec}
    if "wary" in spec:  # the name in earlier files
        more["robust"] = spec["wary"]
    return squares(spec["ridge"], memory, bound, **more)


def memory_slots(D: int, m: int, rho: float) -> dict[str, Slot]:
    """What `Memory` holds as a node's named arrays, knowing nothing. Everything is float64: a
    covariance forgives no rounding.
    """
    kind, prior = np.float64, memories.start(1, m, rho)
    return {
        "theta": Slot((m, D), kind),
        "P": Slot((D, D), kind, np.eye(D) / rho, triangle=True),
        "a": Slot((), kind, 1.0),
        "b": Slot((), kind),
        "W": Slot((memories.LIST, D), kind),
        "c": Slot((memories.LIST,), kind),
        "n": Slot((), np.int64),
        "num": Slot((m,), kind, prior.num),
        "den": Slot((), kind, prior.den),
    }


def memory_of(state: State, k: int) -> Memory:
    """What node k knows; its arrays are not to be written to."""
    theta, P, a, b, W, c, n, num, den = (state.nodes[name][k] for name in NAMES)
    return Memory(theta, P.T, float(a), float(b), W, c, int(n), num, float(den))


def put(state: State, k: int, memory: Memory, rows: int) -> None:
    """Write what node k knows after n more rows into a state that may be overwritten."""
    for name in NAMES:
        value = getattr(memory, name)
        state.nodes[name][k] = value.T if name == "P" else value
    state.nodes["count"][k] += rows


def together(memories: Sequence[Memory], count: Array) -> dict[str, Array]:
    """What all nodes know, by name; one node's arrays are not copied."""
    nodes = {}
    for name in NAMES:
        each = [np.asarray(getattr(memory, name)) for memory in memories]
        each = [P.T for P in each] if name == "P" else each
        nodes[name] = each[0][None] if len(each) == 1 else np.stack(each)
    return nodes | {"count": count}
