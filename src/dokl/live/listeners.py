"""What live nodes have in common that are lone learners and also listen: answers with intervals."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np

from dokl.base.arrays import LARGEST, Array
from dokl.base.errors import BadInput
from dokl.learning import answers, intervals
from dokl.learning.experts.bank import Prediction
from dokl.network.node import NetworkNode
from dokl.network.state import State
from dokl.simulation.learner import Learner

LEVEL = 0.9


class ListeningLearner(Learner):
    """One node that knows sums or rows of others: see `dokl.network.node`."""

    averages = False

    @abstractmethod
    def predict_all(self, state: State, X: Array) -> Prediction:
        """Means, variances and widths of rows X: (n, d)."""

    def predict_inputs(self, state: State, X: Array) -> Prediction:
        """The same of rows as the node's bank keeps them."""
        return self.predict_all(state, X)

    @abstractmethod
    def learn_predicting(self, state: State, X: Array, Y: Array) -> tuple[State, Prediction]:
        """Own rows X: (n, d), Y: (n, m) in order, and what was predicted for each before."""

    @abstractmethod
    def own_node(self, state: State) -> NetworkNode:
        """The lone learner, its corrections and its mixture."""

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
        state, told = self.learn_predicting(state, X, Y)
        return state, told.mean, _half(told)

    # -- predicting --------------------------------------------------------------------------
    def predict(
        self, state: State, X: Any, node: int | None = None, workers: int | None = None
    ) -> Array:
        """Numbers, or scores of classes, of rows X: (n, m)."""
        return self.predict_all(state, np.asarray(X, np.float64)).mean

    def interval_answers(self, state: State, X: Any) -> dict[str, Any]:
        """The ends of intervals and the standard deviation, as an answer to a question."""
        if self.classes is not None:
            raise BadInput("intervals are for regressions: here the predictions are labels")
        told = self.predict_all(state, np.asarray(X, np.float64))
        half, deviation = _half(told), np.sqrt(told.variance)
        ends = {"lower": told.mean - half, "upper": told.mean + half, "std": deviation}
        flat = {name: values[:, 0] if self.m == 1 else values for name, values in ends.items()}
        return {**{name: values.tolist() for name, values in flat.items()}, "coverage": LEVEL}

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
        found = self.own_node(state).errors
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


def _half(told: Prediction) -> Array:
    """Half the width (n, m) of intervals of LEVEL."""
    return np.asarray(np.sqrt(told.variance) * told.widths[:, :, intervals.LEVELS.index(LEVEL)])
