"""Labels as targets, and scores as answers: what a class is to a learner, in one place.

Two classes are one output, targets -1 and 1; more are one output each, 1 for the row's own class
and -1 for the others. A score of exactly 0 is the first class, as in scikit-learn.

>>> targets(np.array([0, 2, 1]), 3)
array([[ 1., -1., -1.],
       [-1., -1.,  1.],
       [-1.,  1., -1.]])
>>> class_numbers(np.array([[0.3], [0.0], [-2.0]]))
array([1, 0, 0])
"""

from __future__ import annotations

import numpy as np

from dokl.base.arrays import Array


def outputs(classes: int) -> int:
    """The number of outputs for n classes."""
    return classes if classes > 2 else 1


def targets(numbers: Array, classes: int) -> Array:
    """Y: (n, m) of class numbers (n,)."""
    if classes == 2:
        return np.where(numbers == 1, 1.0, -1.0).reshape(-1, 1)
    return np.where(numbers[:, None] == np.arange(classes), 1.0, -1.0)


def class_numbers(scores: Array) -> Array:
    """Class numbers (...,) of scores (..., m): the sign of one, or the first of the largest."""
    if scores.shape[-1] == 1:
        return np.asarray(scores[..., 0] > 0).astype(np.int64)
    return np.asarray(np.nan_to_num(scores).argmax(axis=-1))


def wrong_classes(scores: Array, Y: Array) -> Array:
    """1.0 where scores (..., m) decide for another class than targets Y (..., m), else 0.0."""
    return np.asarray(class_numbers(scores) != class_numbers(Y)).astype(np.float64)


def probabilities(scores: Array) -> Array:
    """(n, classes) from the scores (n, m) of a logistic loss; several classes: one against the
    rest, scaled to sum to one.
    """
    positive = 0.5 * (1.0 + np.tanh(0.5 * scores))  # the logistic function, without overflow
    if scores.shape[1] == 1:
        return np.hstack([1.0 - positive, positive])
    return shares(positive)


def shares(positive: Array) -> Array:
    """Rows scaled to sum to one; even where a row is all zeros."""
    total = positive.sum(axis=1, keepdims=True)
    even = np.full_like(positive, 1.0 / max(1, positive.shape[1]))
    return np.asarray(np.divide(positive, total, out=even, where=total > 0))
