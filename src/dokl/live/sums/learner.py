"""One live node by method "squares": own, shared and corrected experts, mixed on its own rows.

Everything goes row by row, features included: BLAS rounds other shapes otherwise, and after a crash
the journal's rows, cut as they may be, must give the same bits. What the node has learned from its
own rows alone, as sums, is part of its state (`sums`); what it knows of others' is not, is fetched
again, and stands in the shared expert only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dokl.base.arrays import Array, first_bad
from dokl.base.errors import BadInput
from dokl.learning import intervals
from dokl.learning.squares import memory as memories
from dokl.learning.squares.sums import Sums
from dokl.live.sums.forgetting import Fading
from dokl.network import state as states
from dokl.network.exchange import Exchange
from dokl.network.state import Slot, State
from dokl.network.sums import shared
from dokl.network.sums.checks import squared_error
from dokl.simulation.cooperation import cooperation, node, reach, rows
from dokl.simulation.cooperation.members import Member
from dokl.simulation.diffusion import Problem
from dokl.simulation.learner import Learner

# The first shared one knows the total. New ones come last: `up_to_date` starts them in a state
# without them.
MEMBERS = (
    Member("own"),
    Member("own", 1000, 100, 0.2),
    Member("own", 100, 100, 0.2),
    Member("shared"),
    Member("corrected", 10, 0),
    Member("corrected", math.inf, 100, 8.0),
    Member("own", 10, 50, 0.2),
    Member("shared", 10_000, 100),
    Member("shared", 1000, 100, 0.3),
    Member("corrected", 2, 0, of=1),
    Member("corrected", 10, 0, of=1),
    Member("corrected", 1000, 100, 8.0, of=1),
)
SHARED = "shared0"
_TWO = Exchange(np.full((2, 2), 0.5))  # somebody to share with: what a node remembers then
LEVEL = 0.9
WORSE = 2.0  # times the error alone, from which others' rows are left out


class SquaresLearner(Learner):
    """A node that learns by least squares; its `fingerprint` is that of a network like this."""

    def __init__(
        self, features: Any, ridge: float, bound: float, m: int, classes: Any, fingerprint: str
    ) -> None:
        method = cooperation(ridge, bound, MEMBERS)
        super().__init__(
            Problem(features, method), m=m, classes=classes, dtype=np.float64, engine="reference",
            fingerprint=fingerprint, row_by_row=True,
        )  # fmt: skip
        self.crew = replace(method.crew(_TWO), one_sum=True)
        own = Slot((shared.size(self.D, self.m),), np.float64)
        self.slots = {**method.slots(features, self.m, _TWO), "sums": own}

    def start(self) -> State:
        """A node that knows nothing."""
        return states.start(self.slots, 1, np.float64)

    def learn(
        self, state: State, X: Any, Y: Any, weight: Array | None = None
    ) -> tuple[State, Array]:
        """Rows X: (n, d), Y: (n, m) in order: the new state, and what was said of each before."""
        return self.learn_saying(state, X, Y)[:2]

    def learn_saying(self, state: State, X: Any, Y: Any) -> tuple[State, Array, Array]:
        """The same, and half the width of each row's interval: (n, m)."""
        X, Y = self.rows(X, Y)
        new, Z = _own(state), np.empty((len(X), self.D))
        for i in range(len(X)):
            Z[i] = self.problem.features.transform(X[i : i + 1])[0]
        said, level = rows.learn(self.crew, new, Z, Y), intervals.LEVELS.index(LEVEL)
        bad = first_bad(said.mean)
        if bad is not None:
            raise BadInput(f"row {bad[0]}: its target is too large to be learned: remove the row")
        new.nodes["count"][0] += len(X)
        new.clock, new.peak = state.clock + len(X), float(np.abs(Y).max(initial=state.peak))
        node.fold(self.crew, new)
        return new, said.mean, np.sqrt(said.variance) * said.widths[:, :, level]

    def predict(
        self, state: State, X: Any, node: int | None = None, workers: int | None = None
    ) -> Array:
        """What the mixture says of rows X: (n, m)."""
        return self.said(state, X)[0]

    def said(self, state: State, X: Any) -> tuple[Array, Array]:
        """Mean and standard deviation (n, m) of rows X."""
        Z = self.problem.features.transform(np.asarray(X, np.float64))
        mean, variance = node.predicted(self.crew, state, 0, Z)
        return mean, np.sqrt(variance)

    def interval(self, state: State, X: Any, level: float = LEVEL) -> tuple[Array, Array, Array]:
        """Mean, lower and upper end (n, m) of intervals that cover so often."""
        mean, deviation = self.said(state, X)
        widths = reach.widths(state.reach[0], state.own_reach[0])  # (m, levels)
        half = deviation * widths[:, intervals.LEVELS.index(level)]
        return mean, mean - half, mean + half

    def interval_answers(self, state: State, X: Any) -> dict[str, Any]:
        """The ends of intervals and the standard deviation, as an answer to a question."""
        if self.classes is not None:
            raise BadInput("intervals are for regressions: here the predictions are labels")
        _, lower, upper = self.interval(state, X)
        ends = {"lower": lower, "upper": upper, "std": self.said(state, X)[1]}
        flat = {name: values[:, 0] if self.m == 1 else values for name, values in ends.items()}
        return {**{name: values.tolist() for name, values in flat.items()}, "coverage": LEVEL}

    def worth(self, state: State) -> dict[str, float | None]:
        """The recent mean square error of the mixture, of the node's own experts alone, and the
        first over the second: below 1, sharing helps.
        """
        rows = float(state.learned[0])
        *errors, counted = state.error[0].tolist()
        both, alone = (error / counted if counted else None for error in errors)
        return {
            "error": both,
            "alone": alone,
            "ratio": both / alone if both is not None and alone else None,
            "covered": float(state.covered[0, intervals.LEVELS.index(LEVEL)]) / rows
            if rows
            else None,
        }

    @property
    def rho(self) -> float:
        """The ridge of the expert that knows the total."""
        return self.crew.numbers[self.crew.shared[0]].rho

    # -- sums --------------------------------------------------------------------------------
    def own_sums(self, state: State) -> Sums:
        """Of all rows that this node has learned itself."""
        return shared.unpacked(state.sums[0], self.D, self.m)

    def own_rows(self, state: State) -> int:
        """How many these are."""
        return int(state.sums[0, shared.ROWS])

    def knowing(self, state: State, total: Sums, left: Sequence[Sums] = ()) -> State:
        """The node once its shared experts know the rows of these sums, own ones included; left:
        what those that forget have left of them, if anything is known of that.
        """
        names = ("theta", "bias", "common", "seen")
        new = state.having(**{name: state.nodes[name].copy() for name in names})
        for i, sums in zip(self.crew.shared, (total, *left), strict=False):
            rows.begin(new, self.crew.names[i], shared.learned(sums, self.crew.numbers[i].rho))
        new.nodes["seen"][0] = total.rows
        node.fold(self.crew, new)
        return new

    @property
    def fading(self) -> tuple[Fading, ...]:
        """The shared experts that forget."""
        members = (self.crew.members[i] for i in self.crew.shared[1:])
        return tuple(Fading(member.memory, member.D(self.D)) for member in members)

    def hurts(self, state: State) -> bool:
        """Whether the shared expert is so much worse on this node's own rows than the node was
        alone, before it had learned them, that others' rows are of no use here.
        """
        alone, own = self.worth(state)["alone"], self.own_sums(state)
        if alone is None or not own.weight:
            return False
        # Where the world has changed an own expert of all rows errs, too: no fault of others.
        error, usual = (
            squared_error(state.nodes[f"{name}.theta"][0], own) / (own.weight * self.m)
            for name in (SHARED, "own0")
        )
        return error > WORSE * max(alone, usual, memories.LEAST_NOISE)

    # -- as data -----------------------------------------------------------------------------
    def pack(self, state: State) -> bytes:
        """All that was learned, in bytes; exact, and without what is left beyond lists' ends."""
        clean = {}
        for name in self.crew.names:
            n = int(state.nodes[f"{name}.n"][0])
            for part in ("W", "c"):
                clean[f"{name}.{part}"] = state.nodes[f"{name}.{part}"].copy()
                clean[f"{name}.{part}"][0, n:] = 0.0
        return states.pack(state.having(**clean), self.slots)

    def unpack(self, data: bytes) -> State:
        """The state that was packed, also by a version with fewer experts."""
        found = states.unpack(data, self.slots)
        if f"{SHARED}.theta" in found and set(found.nodes) != set(self.slots):
            data = states.pack(up_to_date(found, self.start()), self.slots)
        return super().unpack(data)


def up_to_date(old: State, fresh: State) -> State:
    """A state of fewer members, with those that it lacks knowing nothing yet."""
    nodes = {}
    for name, array in fresh.nodes.items():
        known = old.nodes.get(name, array)
        same = known.ndim == array.ndim == 2 and known.shape[1] < array.shape[1]
        nodes[name] = np.hstack([known, array[:, known.shape[1] :]]) if same else known
    return State(nodes, old.clock, old.peak, old.sent)


def _own(state: State) -> State:
    """A copy that may be written to; matrices are copied where they change."""
    return state.having(
        **{name: a.copy() for name, a in state.nodes.items() if not name.endswith(".P")}
    )
