"""What live nodes have in common that have a learner and also learn from others: earlier values of
their own rows as inputs, where these are wanted, and answers with intervals.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from dokl.base.arrays import LARGEST, Array
from dokl.base.errors import BadInput
from dokl.learning import classification, intervals
from dokl.learning.experts.bank import Prediction
from dokl.live.lagged import LaggedInputs
from dokl.network.node import NetworkNode
from dokl.network.state import State
from dokl.simulation.learner import Learner
from dokl.tables.models.series import MORE, Series

LEVEL = 0.9
EXPERIENCE = 64  # rows after which there are experts


class ListeningState(State):
    """What such a node knows; series: the rows that it remembers, where earlier values are inputs,
    and inputs that wait for their target, where that lies later.
    """

    series: Series | None

    @abstractmethod
    def with_series(self, series: Series | None) -> Self:
        """The same with another memory."""


class ListeningLearner(Learner):
    """One node that knows sums or rows of others: see `dokl.network.node`.

    d: numbers in a row as it comes. lagged: how such rows become inputs, where earlier values are
    among them; otherwise they are the inputs.
    """

    averages = False
    lagged: LaggedInputs | None = None

    def predict_all(self, state: State, X: Array) -> Prediction:
        """Means, variances and widths of rows X: (n, d)."""
        return self.predict_inputs(state, self._entered(state, X)[0])

    def learn_predicting(self, state: State, X: Array, Y: Array) -> tuple[State, Prediction]:
        """Own rows X: (n, d), Y: (n, m) in order, and what was predicted for each before."""
        inputs, series = self._entered(state, X, Y)
        after, prediction = self.learn_inputs(state, inputs, Y)
        return after.with_series(series), prediction

    def _entered(
        self, state: State, X: Array, Y: Array | None = None
    ) -> tuple[Array, Series | None]:
        """Inputs of rows that follow those of the state; BadInput where they do not."""
        assert isinstance(state, ListeningState)
        if self.lagged is None or state.series is None:
            return X, None
        inputs, _, after = self.lagged.enter(state.series, X, Y)
        return inputs, after

    def _learn_ahead(
        self, lagged: LaggedInputs, state: State, X: Array, Y: Array
    ) -> tuple[State, Array, Array]:
        """Rows X: (n, d), Y: (n, 1) in order, which are the targets of earlier ones: these are
        learned, and (n, 1) what was predicted for each when its inputs came, and half the width of
        its interval; of the first rows, which are nobody's target, what is predicted for later.
        """
        assert isinstance(state, ListeningState)
        series = state.series
        assert series is not None
        inputs, columns, after = lagged.enter(series, X, Y)
        predicted = np.full((len(X), MORE), np.nan)
        due = series.due(columns, inputs, predicted)[0]
        for i in range(len(X)):
            one = slice(i, i + 1)
            prediction = self.predict_inputs(state, inputs[one])
            half = _half(prediction)
            predicted[one] = np.hstack(
                [prediction.mean, prediction.mean - half, prediction.mean + half]
            )
            if not np.isnan(due[i]).any():
                state, _ = self.learn_inputs(state, due[one], Y[one])
        _, before, waiting = series.due(columns, inputs, predicted)
        before = np.where(np.isnan(before), predicted, before)
        assert isinstance(state, ListeningState)
        done = state.with_series(replace(after, waiting=waiting))
        return done, before[:, :1], before[:, 2:] - before[:, :1]

    @abstractmethod
    def predict_inputs(self, state: State, X: Array) -> Prediction:
        """Means, variances and widths of inputs X."""

    @abstractmethod
    def learn_inputs(self, state: State, X: Array, Y: Array) -> tuple[ListeningState, Prediction]:
        """Inputs X and targets Y: (n, m) of own rows, and what was predicted for each before."""

    @abstractmethod
    def own_node(self, state: State) -> NetworkNode:
        """The own learner, its corrections and its mixture."""

    def prepare(self, rows: int = 1) -> None:
        """Load everything that learning and predicting need; nothing is compiled for it. rows: so
        many, if they are more than one, are learned as most rows are: by experts.
        """
        X = np.zeros((1, self.d)) if self.lagged is None else self.lagged.empty_row()
        Y = np.ones((1, self.m))
        self.learn(self.start(), X, Y)
        self.predict(self.start(), X)
        if rows > 1:
            state, X, Y = self._experienced
            self.learn_inputs(state, X[:rows], Y[:rows])

    @cached_property
    def _experienced(self) -> tuple[State, Array, Array]:
        """A state with experts, and rows that it might learn: what the first ones take, before
        there are experts, is a fraction of what all others do.
        """
        rng, state = np.random.default_rng(0), self.start()
        X = rng.normal(size=(EXPERIENCE, self.own_node(state).own.d))
        Y = np.where(rng.random((EXPERIENCE, self.m)) < 0.5, -1.0, 1.0)
        return self.learn_inputs(state, X, Y)[0], X, Y

    # -- learning ----------------------------------------------------------------------------
    def learn(
        self, state: State, X: object, Y: object, weight: Array | None = None
    ) -> tuple[State, Array]:
        """Rows X: (n, d), Y: (n, m) in order: the new state, and the prediction of each before."""
        return self.learn_saying(state, X, Y)[:2]

    def learn_saying(self, state: State, X: object, Y: object) -> tuple[State, Array, Array]:
        """The same, and half the width of each row's interval: (n, m)."""
        X, Y = self.rows(X, Y)
        wild = np.flatnonzero((np.abs(Y) > LARGEST).any(axis=1))
        if len(wild):
            raise BadInput(f"row {wild[0]}: its target is too large to be learned: remove the row")
        if self.lagged is not None and self.lagged.horizon:
            return self._learn_ahead(self.lagged, state, X, Y)
        state, prediction = self.learn_predicting(state, X, Y)
        return state, prediction.mean, _half(prediction)

    # -- predicting --------------------------------------------------------------------------
    def predict(
        self, state: State, X: object, node: int | None = None, workers: int | None = None
    ) -> Array:
        """Numbers, or scores of classes, of rows X: (n, m)."""
        return self.predict_all(state, np.asarray(X, np.float64)).mean

    def interval_answers(self, state: State, X: object) -> dict[str, Any]:
        """The ends of intervals and the standard deviation, as an answer to a question."""
        if self.classes is not None:
            raise BadInput("intervals are for regressions: here the predictions are labels")
        prediction = self.predict_all(state, np.asarray(X, np.float64))
        half, deviation = _half(prediction), np.sqrt(prediction.variance)
        ends = {"lower": prediction.mean - half, "upper": prediction.mean + half, "std": deviation}
        flat = {name: values[:, 0] if self.m == 1 else values for name, values in ends.items()}
        return {**{name: values.tolist() for name, values in flat.items()}, "coverage": LEVEL}

    def answers(self, scores: Array) -> list[Any]:
        """Scores (n, m) as people want them: numbers, or labels."""
        if self.classes is None:
            rows: list[Any] = scores.tolist()
            return [row[0] for row in rows] if self.m == 1 else rows
        return [self.classes[i] for i in classification.class_numbers(scores).tolist()]

    def worth(self, state: State) -> dict[str, float | None]:
        """The recent mean square error of the node, of its own learner, and the first over the
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


def _half(prediction: Prediction) -> Array:
    """Half the width (n, m) of intervals of LEVEL."""
    return np.asarray(
        np.sqrt(prediction.variance) * prediction.widths[:, :, intervals.LEVELS.index(LEVEL)]
    )
