"""Method `squares`: exact recursive least squares on the features, with or without forgetting.

memory   what a node knows: theta, its covariance, and the newest rows as a short list
rows     one row after another: the equations
blocks   the same in exact blocks, at the speed of matrix products
sums     what an infinite memory is a function of: counts, Z'Z, Z'y; they add up, and subtract
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dokl.arrays import Array, Block, first_bad, used_rows
from dokl.errors import BadInput
from dokl.exchange import Exchange
from dokl.methods.squares import memory as memories
from dokl.methods.squares import rows
from dokl.methods.squares.memory import LIST, Memory, Numbers
from dokl.state import Slot, Slots, State

# What a node remembers, in the order of `Memory`.
NAMES = ("theta", "P", "a", "b", "W", "c", "n", "num", "den")


@dataclass(frozen=True)
class Squares:
    """Least squares with ridge rho, a memory of so many rows (infinite: all), and a bound on
    innovations, in standard deviations.
    """

    ridge: float = 0.01
    memory: float = math.inf
    bound: float = 6.0
    name = "squares"

    def __post_init__(self) -> None:
        for what in ("ridge", "bound"):
            if not getattr(self, what) > 0:
                raise BadInput(f"{what} must be above 0, got {getattr(self, what)!r}")
        if not self.memory >= 2:
            raise BadInput(f"a memory is of at least 2 rows, or infinite; got {self.memory!r}")

    @property
    def numbers(self) -> Numbers:
        """rho, lam and the bound."""
        return Numbers(self.ridge, 1.0 - 1.0 / self.memory, self.bound)

    def slots(self, features: Any, m: int, exchange: Exchange) -> Slots:
        """Everything in float64: a covariance forgives no rounding."""
        D, kind = features.D, np.float64
        prior = memories.start(1, m, self.ridge)
        return {
            "theta": Slot((m, D), kind),
            "P": Slot((D, D), kind, np.eye(D) / self.ridge, triangle=True),
            "a": Slot((), kind, 1.0),
            "b": Slot((), kind),
            "W": Slot((LIST, D), kind),
            "c": Slot((LIST,), kind),
            "n": Slot((), np.int64),
            "num": Slot((m,), kind, prior.num),
            "den": Slot((), kind, prior.den),
            "count": Slot((), np.int64),
        }

    def adapt(
        self, exchange: Exchange, state: State, Z: Array, Y: Array, w: Array
    ) -> tuple[State, Array]:
        """One row per node, Z: (K, D), Y: (K, m), w: (K,)."""
        f = np.full(Y.shape, np.nan)
        for k in np.flatnonzero(w > 0).tolist():
            memory, f[k] = rows.learn(self.numbers, memory_of(state, k), Z[k], Y[k], float(w[k]))
            put(state, k, memory, 1)
        return state, f

    def outgoing(self, state: State) -> Array:
        """theta alone: (K, m D). The matrix stays at home."""
        return state.theta.reshape(state.K, -1)

    def incoming(self, state: State, mixed: Array) -> State:
        """theta is what was mixed."""
        return state.having(theta=mixed.reshape(state.theta.shape))

    def check(
        self, features: Any, exchange: Exchange, state: State, block: Block, f: Array,
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

    def wild(self, features: Any, state: State, payload: Array) -> bool:
        """Whether what a neighbour sent predicts a million times what targets were."""
        longest = math.sqrt(features.sup_norm2 * float(np.sum(payload.astype(np.float64) ** 2)))
        return state.peak > 0 and longest > 1e6 * (1.0 + state.peak)

    def spec(self) -> dict[str, Any]:
        """Name and numbers; an infinite memory is None."""
        memory = None if self.memory == math.inf else self.memory
        bound = None if self.bound == math.inf else self.bound
        return {"name": self.name, "ridge": self.ridge, "memory": memory, "bound": bound}


def squares(ridge: float = 0.01, memory: float = math.inf, bound: float = 6.0) -> Squares:
    """Exact least squares on the features.

    ridge: noise variance over the prior variance of theta, for features of length one. memory:
    rows that are remembered, with back-to-the-prior forgetting. bound: an innovation of more
    standard deviations pulls like one of that size; infinite: every target is believed.

    >>> squares(memory=1000).numbers.lam
    0.999
    """
    return Squares(float(ridge), float(memory), float(bound))


def of_spec(spec: Mapping[str, Any]) -> Squares:
    """The method that `spec` described."""
    memory, bound = (math.inf if spec[k] is None else spec[k] for k in ("memory", "bound"))
    return squares(spec["ridge"], memory, bound)


def memory_of(state: State, k: int) -> Memory:
    """What node k knows; its arrays are not to be written to."""
    theta, P, a, b, W, c, n, num, den = (state.nodes[name][k] for name in NAMES)
    return Memory(theta, P.T, float(a), float(b), W, c, int(n), num, float(den))


def put(state: State, k: int, memory: Memory, rows: int) -> None:
    """Write what node k knows after so many more rows into a state that may be overwritten."""
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
