"""Regression and classification: what y means, for one node and for a network alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin

from dokl.base.arrays import Array
from dokl.base.errors import BadInput
from dokl.estimators.checked import plain_numbers
from dokl.estimators.choices import loss_of
from dokl.estimators.frames import valid_numbers
from dokl.estimators.labels import Labels, blanked, checked_labels
from dokl.estimators.learner import Estimator
from dokl.estimators.units import wanted_by
from dokl.learning import answers

Method = TypeVar("Method", bound=Callable[..., Any])


class Regression(RegressorMixin, Estimator):  # type: ignore[misc]
    """One output or several; y: (n,) or (n, m)."""

    def _checked(self, X: Any, y: Any, reset: bool) -> tuple[Any, Array]:
        plain = None if reset else self._plain_rows(X)
        if plain is not None and type(y) is np.ndarray and y.dtype.kind == "f" and y.ndim == 1:
            Y = plain_numbers(y, self.dtype_ if self._unit is None else np.float64)
            if Y is not None and len(Y) == plain.shape[0] and self.state_.theta.shape[1] == 1:
                return plain, Y.reshape(-1, 1)
        rules = self._rules(reset)
        X, y = valid_numbers(self, X, y=y, reset=reset, multi_output=True, y_numeric=True, **rules)
        scaled = wanted_by(loss_of(self.loss, False)) if reset else self._unit is not None
        Y = plain_numbers(y.reshape(len(y), -1), np.float64 if scaled else rules["dtype"])
        if Y is None:
            raise BadInput("y has values too large for float32: scale it, or use dtype='float64'")
        if reset:
            self._flat = y.ndim == 1
        elif Y.shape[1] != self.state_.theta.shape[1]:
            started = self.state_.theta.shape[1]
            raise BadInput(f"y has {Y.shape[1]} outputs, the model was started with {started}")
        return X, Y

    def _targets(self, y: Array) -> Array:
        return y

    def _predict(self, X: Any, nodes: Any = None) -> Array:
        return self._values(self._scores(X, nodes))

    def _values(self, scores: Array) -> Array:
        return scores[:, 0] if self._flat else scores

    def prequential(self, X: Any, y: Any, sample_weight: Any = None, nodes: Any = None) -> Array:
        """`partial_fit` that returns what it predicted for each row just before learning it.

        The honest error of an online learner: every row is a test row first. A row of weight 0 is
        not looked at, and NaN stands in its place.
        """
        return self._values(self._partial_fit(X, y, sample_weight, nodes))

    def __sklearn_tags__(self) -> Any:
        """Several outputs are welcome, too."""
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


class AvailableOrTold:
    """A method that is there where `check(self)` raises nothing; else its error says why not.

    Scikit-learn's `available_if` does the same, and keeps the reason to itself.
    """

    def __init__(self, method: Callable[..., Any], check: Callable[[Any], Any]) -> None:
        self.method, self.check = method, check
        self.__doc__ = method.__doc__

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self.method
        self.check(instance)
        return self.method.__get__(instance, owner)


def _check_probabilities(self: Any) -> None:
    loss = self.loss if isinstance(self.loss, str) else self.loss.name
    if loss != "logistic":
        name = type(self).__name__
        raise AttributeError(
            f"predict_proba needs loss='logistic'; this model has {loss!r}: "
            f"{name}(loss='logistic') has it (dokl train --method gradient --loss logistic), and "
            "so have AutoClassifier and NetworkClassifier; decision_function gives scores"
        )


def if_logistic(method: Method) -> Method:
    """A method that only a model with the logistic loss has."""
    made: Any = AvailableOrTold(method, _check_probabilities)
    return made  # type: ignore[no-any-return]


class Classification(Labels, ClassifierMixin, Estimator):  # type: ignore[misc]
    """Labels of any kind; y: (n,)."""

    def _agreed(self) -> dict[str, Any]:
        return {"classes": self.classes_}

    def _checked(self, X: Any, y: Any, reset: bool, weight: Any = None) -> tuple[Any, Array]:
        plain = None if reset else self._plain_rows(X)
        simple = type(y) is np.ndarray and y.ndim == 1 and y.dtype.kind in "biufU"
        if plain is not None and simple and len(y) == plain.shape[0]:
            return plain, y  # labels must be known ones, `_numbers` sees to that
        X, y = valid_numbers(self, X, y=y, reset=reset, **self._rules(reset))
        return X, checked_labels(y)

    def _decide(self, X: Any, nodes: Any = None) -> Array:
        scores = self._scores(X, nodes)
        return scores[:, 0] if len(self.classes_) == 2 else scores

    def _predict(self, X: Any, nodes: Any = None) -> Array:
        return self._labels(self._scores(X, nodes))

    def _labels(self, scores: Array) -> Array:
        """The label of the highest score; scores: (n, m)."""
        return np.asarray(self.classes_[answers.class_numbers(scores)])

    def prequential(
        self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None, nodes: Any = None
    ) -> Array:
        """`partial_fit` that returns what it predicted for each row just before learning it.

        The honest error of an online learner: every row is a test row first. It is that of the
        last vector, before any averaging.

        A row of weight 0 is not looked at, and has no prediction. Where there are such rows, NaN
        stands in their places if labels are floats; else the labels come as an array of objects
        with None in those places.
        """
        scores = self._partial_fit(X, y, sample_weight, nodes, classes)
        return blanked(self._labels(scores), np.isnan(scores[:, 0]))

    def _probabilities(self, X: Any, nodes: Any = None) -> Array:
        """(n, classes); several classes: one against the rest, scaled to sum to one."""
        return answers.probabilities(self._scores(X, nodes))


def logarithm(p: Array) -> Array:
    """log p, minus infinity where p is 0, without a warning."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(p))
