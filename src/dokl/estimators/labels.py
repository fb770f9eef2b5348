"""What classifiers know about their labels, whatever learns behind them."""

from __future__ import annotations

from typing import Any

import numpy as np

from dokl import answers
from dokl.arrays import Array
from dokl.errors import BadInput


class Labels:
    """classes_: (classes,) sorted. Two classes are one output, targets -1 and 1; more one each."""

    _classifying = True
    classes_: Array

    def _meet(self, y: Array) -> None:
        self.classes_ = np.unique(y)
        if len(self.classes_) < 2:
            raise BadInput(
                "a classifier needs at least two classes, and there is one class only: "
                f"{self.classes_.tolist()}"
            )

    def _meet_again(self, classes: Any, fresh: bool) -> None:
        """What `partial_fit` was told: all classes in the first call, the same or none later."""
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
                f"label {y[row : row + 1].tolist()[0]!r} is none of the classes, "
                f"{self.classes_.tolist()}: the first partial_fit(classes=...) must name all"
            )
        return np.asarray(at)

    def _targets(self, y: Array) -> Array:
        """-1 and 1: (n, 1) for two classes, (n, classes) for more."""
        return answers.targets(self._numbers(y), len(self.classes_))


def blanked(labels: Array, absent: Array) -> Array:
    """Labels (n,) with nothing where `absent`: NaN among floats, else None among objects."""
    if not absent.any():
        return labels
    floats = labels.dtype.kind == "f"
    labels = labels.copy() if floats else labels.astype(object)
    labels[absent] = np.nan if floats else None
    return labels
