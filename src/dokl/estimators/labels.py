"""Labels: classes as targets, and their calibrated probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from dokl.base.arrays import Array
from dokl.base.errors import BadInput, listed
from dokl.learning import calibration, classification
from dokl.learning.calibration import Calibration


def checked_labels(y: object) -> Array:
    """Labels y: (n,) that can be classes; BadInput where they are quantities."""
    try:
        with np.errstate(invalid="ignore"):  # of numbers that no int64 holds
            check_classification_targets(y)
    except ValueError as error:
        kind = str(error).partition(".")[0]  # scikit-learn's checks look for these words
        raise BadInput(
            f"{kind}: classes are texts or whole numbers, and quantities are for a regressor",
            options=["--task regression"],
        ) from None
    except TypeError:  # what cannot be sorted
        raise _unlike(np.asarray(y, dtype=object).ravel().tolist()) from None
    return np.asarray(column_or_1d(y))


def _unlike(labels: list[object]) -> BadInput:
    """What is wrong with labels that cannot be compared."""
    for row, label in enumerate(labels):
        if label is None or type(label).__name__ == "NAType":
            return BadInput(f"y has no label in row {row}: leave out rows without one")
    types = sorted({type(label).__name__ for label in labels})
    return BadInput(f"labels must be of one type, and y mixes {listed(types)}")


class Labels:
    """classes_: (classes,) sorted. Two classes are one output, targets -1 and 1; more one each."""

    _classifying = True
    classes_: Array

    def _checked(self, X: Any, y: Any, reset: bool, weight: object = None) -> tuple[Array, Array]:
        X, y = self._learn_rows(X, y, reset, weight)  # type: ignore[attr-defined]
        return X, checked_labels(y)

    def _meet(self, y: Array) -> None:
        self.classes_ = np.unique(y)
        if len(self.classes_) < 2:
            raise BadInput(
                "a classifier needs at least two classes, and there is one class only: "
                f"{self.classes_.tolist()}"
            )

    def _meet_again(self, classes: Any, fresh: bool) -> None:
        """What `partial_fit` was given: all classes in the first call, the same or none later."""
        if fresh and classes is None:
            raise BadInput(
                "the first call of partial_fit must name all classes: partial_fit(X, y, "
                "classes=[...])"
            )
        if fresh:
            self._meet(np.asarray(classes))
        elif classes is not None and not np.array_equal(np.unique(classes), self.classes_):
            raise BadInput(
                f"classes {np.unique(classes).tolist()} differ from those of the first call, "
                f"{self.classes_.tolist()}"
            )

    def _numbers(self, y: Array) -> Array:
        """Class numbers (n,) of labels y: (n,)."""
        at = np.minimum(np.searchsorted(self.classes_, y), len(self.classes_) - 1)
        known = self.classes_[at] == y
        if not known.all():
            row = int(np.flatnonzero(~known)[0])
            raise BadInput(
                f"label {y[row : row + 1].tolist()[0]!r} is not one of the classes, "
                f"{self.classes_.tolist()}: the first partial_fit(classes=...) must name all"
            )
        return np.asarray(at)

    def _targets(self, y: Array) -> Array:
        """-1 and 1: (n, 1) for two classes, (n, classes) for more."""
        return classification.targets(self._numbers(y), len(self.classes_))


def blanked(labels: Array, absent: Array) -> Array:
    """Labels (n,) with nothing where `absent`: NaN among floats, else None among objects."""
    if not absent.any():
        return labels
    floats = labels.dtype.kind == "f"
    labels = labels.copy() if floats else labels.astype(object)
    labels[absent] = np.nan if floats else None
    return labels


# -- probabilities from scores --------------------------------------------------------------------
class Calibrated:
    """A classifier's label once its scores have become probabilities."""

    classes_: Array
    calibration_: Calibration

    def _scores(self, X: object) -> Array:
        """The model's own scores: (n, m)."""
        raise NotImplementedError

    def _levels(self, X: object) -> Array:
        scores = calibration.both(self._scores(X))
        return calibration.levels(self.calibration_, scores)

    def predict(self, X: object) -> Array:
        """Labels (n,): the most probable."""
        level = self._levels(X)
        return np.asarray(self.classes_[level.argmax(axis=1)])

    def decision_function(self, X: object) -> Array:
        """Log odds (n,) for two classes (positive: the second), else log probabilities but for a
        constant (n, classes).
        """
        return decision(self._levels(X))

    def predict_proba(self, X: object) -> Array:
        """Probabilities (n, classes), calibrated by every row so far before it was learned."""
        return calibration.softmax(self._levels(X))

    def predict_log_proba(self, X: object) -> Array:
        """Logarithms of `predict_proba`."""
        return log_probabilities(self._levels(X))


def decision(level: Array) -> Array:
    """Levels (n, classes) as a decision function: (n,) of two classes, else as they are."""
    return level[:, 1] - level[:, 0] if level.shape[1] == 2 else level


def log_probabilities(level: Array) -> Array:
    """Levels (n, classes) as logarithms of probabilities, none of them infinite."""
    return np.asarray(np.log(np.maximum(calibration.softmax(level), 1e-300)))
