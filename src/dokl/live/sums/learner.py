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

from dokl.base.arrays import LARGEST, Array
from dokl.base.errors import BadInput
from dokl.learning import answers, intervals
from dokl.learning.experts.bank import Prediction
from dokl.learning.experts.kinds import Settings
from dokl.learning.squares import memory as memories
from dokl.learning.squares import sums as adding
from dokl.learning.squares.sums import Sums
from dokl.live.sums import states
from dokl.live.sums.forgetting import Fading
from dokl.network import summing
from dokl.network.agreed import AgreedMap
from dokl.network.state import State
from dokl.network.summing import EXPERTS, SummingNode
from dokl.network.sums import shared
from dokl.network.sums.checks import Layout, squared_error
from dokl.simulation.learner import Learner

LEVEL = 0.9
WORSE = 2.0  # times the error alone, from which others' rows are left out


class SumsState(State):
    """A node, and what agents tell of a state: a vector, and rows learned."""

    node: SummingNode

    def __init__(self, node: SummingNode) -> None:
        theta = node.memories[0].theta if node.memories else node.own.added.zy
        rows = np.array([node.own.rows])
        super().__init__({"theta": theta[None], "count": rows}, int(rows[0]), 1.0)
        object.__setattr__(self, "node", node)


class SumsLearner(Learner):
    """One node of a network that shares sums.

    made         the map that all nodes agree on
    number       of the node on the map, -1 where the map does not know its place
    settings     of its own bank: those of a lone learner
    fingerprint  of all that others must agree on
    """

    averages = False

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

    def prepare(self, rows: int = 1) -> None:
        """Load everything that learning and predicting need; nothing is compiled for it."""
        X, Y = np.zeros((1, self.d)), np.ones((1, self.m))
        self.predict(self.learn(self.start(), X, Y)[0], X)

    # -- learning ----------------------------------------------------------------------------
    def learn(
        self, state: State, X: Any, Y: Any, weight: Array | None = None
    ) -> tuple[State, Array]:
        """Rows X: (n, d), Y: (n, m) in order: the new state, and what was said of each before."""
        return self.learn_saying(state, X, Y)[:2]

    def learn_saying(self, state: State, X: Any, Y: Any) -> tuple[State, Array, Array]:
        """The same, and half the width of each row's interval: (n, m)."""
        X, Y = self.rows(X, Y)
        wild = np.flatnonzero((np.abs(Y) > LARGEST).any(axis=1))
        if len(wild):
            raise BadInput(f"row {wild[0]}: its target is too large to be learned: remove the row")
        X, after = self._entered(state, X, Y)
        node, said = summing.learn(node_of(state), self.made, self.number, X, Y)
        return after(node), said.mean, _half(said)

    def _entered(
        self, state: State, X: Array, Y: Array | None = None
    ) -> tuple[Array, Callable[[SummingNode], SumsState]]:
        """What the node gets of rows X, whose targets are known where Y is given; and what becomes
        of the state once it has learned them.
        """
        return X, SumsState

    # -- predicting --------------------------------------------------------------------------
    def predict(
        self, state: State, X: Any, node: int | None = None, workers: int | None = None
    ) -> Array:
        """Numbers, or scores of classes, of rows X: (n, m)."""
        return self._told(state, X).mean

    def interval_answers(self, state: State, X: Any) -> dict[str, Any]:
        """The ends of intervals and the standard deviation, as an answer to a question."""
        if self.classes is not None:
            raise BadInput("intervals are for regressions: here the predictions are labels")
        told = self._told(state, X)
        half, deviation = _half(told), np.sqrt(told.variance)
        ends = {"lower": told.mean - half, "upper": told.mean + half, "std": deviation}
        flat = {name: values[:, 0] if self.m == 1 else values for name, values in ends.items()}
        return {**{name: values.tolist() for name, values in flat.items()}, "coverage": LEVEL}

    def _told(self, state: State, X: Any) -> Prediction:
        rows, _ = self._entered(state, np.asarray(X, np.float64))
        return summing.predict(node_of(state), self.made, self.number, rows)

    def answers(self, scores: Array) -> list[Any]:
        """Scores (n, m) as people want them: numbers, or labels."""
        if self.classes is None:
            rows: list[Any] = scores.tolist()
            return [row[0] for row in rows] if self.m == 1 else rows
        return [self.classes[i] for i in answers.class_numbers(scores).tolist()]

    def worth(self, state: State) -> dict[str, float | None]:
        """The recent mean square error of the node, of its lone learner, and the first over the
        second: below 1, sharing helps. covered: how often 90 % intervals held.
        """
        found = node_of(state).node.errors
        if not found.weight:
            return dict.fromkeys(("error", "alone", "ratio", "covered"))
        alone, _, both = (found.total / found.weight).tolist()
        ratio = both / alone if alone else None
        return {
            "error": both,
            "alone": alone,
            "ratio": ratio,
            "covered": found.covered / found.weight,
        }

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


def _half(told: Prediction) -> Array:
    """Half the width (n, m) of intervals of LEVEL."""
    return np.asarray(np.sqrt(told.variance) * told.widths[:, :, intervals.LEVELS.index(LEVEL)])
