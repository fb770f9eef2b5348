"""Classification without settings."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin

from dokl.base.arrays import Array
from dokl.base.errors import BadInput, UnknownName
from dokl.estimators.auto import Auto
from dokl.estimators.calibrated import Calibrated
from dokl.estimators.checked import checked_weight
from dokl.estimators.choices import set_parameters
from dokl.estimators.labels import Labels, blanked
from dokl.estimators.learner import all_or_nothing
from dokl.learning import calibration
from dokl.learning.experts import predicting
from dokl.learning.experts.kinds import CLASS_PILOTS, FOR_CLASSES, Settings


class AutoClassifier(Labels, ClassifierMixin, Calibrated, Auto):  # type: ignore[misc]
    """Online classification without settings: ten experts, one matrix for all classes in each.

    Parameters are those of `AutoRegressor`, but that `bound` is infinite (a class that comes late
    is no wild target), and:

    class_weight : {label: weight}, or "balanced" by how often each class was seen so far.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(600, 2))
    >>> y = np.where(X[:, 0] * X[:, 1] > 0, "same", "other")
    >>> model = AutoClassifier(random_state=0)
    >>> said = model.prequential(X, y, classes=["other", "same"])
    >>> bool(np.mean(said[300:] == y[300:]) > 0.9)
    True
    """

    class_weight: Any
    _sets = FOR_CLASSES

    def __init__(
        self,
        n_components: int = 1000,
        *,
        experts: str = "all",
        bound: float = math.inf,
        groups: int | str | None = None,
        class_weight: Any = None,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        set_parameters(self, locals())

    def _settings(self) -> Settings:
        given = {"classes": len(getattr(self, "classes_", ())), "pilots": CLASS_PILOTS}
        return replace(super()._settings(), **given)  # type: ignore[arg-type]

    def _weights(self, y: Array, weight: Array) -> Array:
        """Sample weights (n,) times class weights."""
        if self.class_weight is None:
            return weight
        at = self._numbers(y)
        if isinstance(self.class_weight, str):
            if self.class_weight != "balanced":
                raise UnknownName("class_weight", self.class_weight, ("balanced",))
            seen = getattr(self, "class_count_", np.zeros(len(self.classes_)))
            self.class_count_ = seen + np.bincount(at, minlength=len(self.classes_))
            each = self.class_count_.sum() / np.maximum(self.class_count_, 1) / len(self.classes_)
        else:
            each = np.array([float(self.class_weight.get(c, 1.0)) for c in self.classes_.tolist()])
        return np.asarray(each[at] * weight)

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> AutoClassifier:
        """Learn from scratch, in the order given; scales are learned from all rows."""
        with all_or_nothing(self):
            X, y = self._checked(X, y, True, sample_weight)
            if hasattr(self, "class_count_"):
                del self.class_count_
            weight = checked_weight(1.0 if sample_weight is None else sample_weight, len(y))
            if not weight.any():
                raise BadInput("all sample weights are zero: there is nothing to start from")
            X, y, weight = (a[weight > 0] for a in (X, y, weight))
            self._meet(y)
            weight = self._weights(y, weight)
            told = self._fit(X, y, None if (weight == 1.0).all() else weight)
            self.calibration_ = calibration.start(len(self.classes_))
            heard = np.isfinite(told.mean[:, 0])
            self._follow(told.mean[heard], y[heard], weight[heard])
        return self

    def partial_fit(
        self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None
    ) -> AutoClassifier:
        """Learn from these rows, in this order, once; the first call names all classes."""
        self.prequential(X, y, classes, sample_weight)
        return self

    def prequential(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Array:
        """`partial_fit` that returns what it predicted for each row just before learning it.

        A row of weight 0 is not looked at: NaN (float labels) or None stands in its place.
        """
        with all_or_nothing(self):
            fresh = not hasattr(self, "bank_")
            X, y = self._checked(X, y, fresh, sample_weight)
            self._meet_again(classes, fresh)
            weight = checked_weight(1.0 if sample_weight is None else sample_weight, len(y))
            weight = self._weights(y, weight)
            told = self._partial_fit(X, y, None if (weight == 1.0).all() else weight)
            if fresh:
                self.calibration_ = calibration.start(len(self.classes_))
            level = self._follow(told.mean, y, weight)
        return blanked(self.classes_[level.argmax(axis=1)], weight == 0)

    def _follow(self, scores: Array, y: Array, weight: Array) -> Array:
        """Calibrate by rows that were just predicted: the levels (n, classes) before each."""
        seen, level = weight > 0, np.zeros((len(y), len(self.classes_)))
        given = calibration.both(scores[seen]), self._numbers(y[seen]), weight[seen]
        self.calibration_, level[seen] = calibration.followed(self.calibration_, *given)
        return level

    def predict(self, X: Any, keys: Any = None) -> Array:
        """Labels (n,): the most probable.

        keys: a name for each row, by which `learn` finds it when its target is known.
        """
        labels = super().predict(X)
        if keys is not None:
            self._wait(X, keys)
        return np.asarray(labels)

    def _scores(self, X: Any) -> Array:
        X = self._inputs(X)
        return predicting.predict(self.bank_, X)
