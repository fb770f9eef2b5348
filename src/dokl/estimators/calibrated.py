"""Labels, log odds and probabilities from scores that are calibrated online."""

from __future__ import annotations

from typing import Any

import numpy as np

from dokl.base.arrays import Array
from dokl.learning import calibration
from dokl.learning.calibration import Calibration


class Calibrated:
    """What a classifier says once its scores have become probabilities."""

    classes_: Array
    calibration_: Calibration

    def _scores(self, X: Any) -> Array:
        """What the model itself says: (n, m)."""
        raise NotImplementedError

    def _levels(self, X: Any) -> Array:
        scores = calibration.both(self._scores(X))
        return calibration.levels(self.calibration_, scores)

    def predict(self, X: Any) -> Array:
        """Labels (n,): the most probable."""
        level = self._levels(X)
        return np.asarray(self.classes_[level.argmax(axis=1)])

    def decision_function(self, X: Any) -> Array:
        """Log odds (n,) for two classes (positive: the second), else log probabilities but for a
        constant (n, classes).
        """
        return decision(self._levels(X))

    def predict_proba(self, X: Any) -> Array:
        """Probabilities (n, classes), calibrated by every row so far before it was learned."""
        return calibration.softmax(self._levels(X))

    def predict_log_proba(self, X: Any) -> Array:
        """Logarithms of `predict_proba`."""
        return log_probabilities(self._levels(X))


def decision(level: Array) -> Array:
    """Levels (n, classes) as a decision function: (n,) of two classes, else as they are."""
    return level[:, 1] - level[:, 0] if level.shape[1] == 2 else level


def log_probabilities(level: Array) -> Array:
    """Levels (n, classes) as logarithms of probabilities, none of them infinite."""
    return np.asarray(np.log(np.maximum(calibration.softmax(level), 1e-300)))
