"""Length scales and noise from a sample; a network agrees on the scales before it starts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dokl.base.arrays import Array, is_sparse
from dokl.base.random_numbers import generator
from dokl.learning import answers, scales
from dokl.learning.scales import Scales

SCALE_ROWS = 500  # by which length scales are learned: a second or less
MOST_INPUTS = 100  # with more, length scales take minutes


def sample_scales(X: Any, Y: Array, classifying: bool) -> Scales | None:
    """The length scale of each input, as the experts learn them from 500 rows, and the noise.

    X: (n, d) standardised; Y: (n, m) numbers, or -1 and 1 for classes; the noise is in units of
    their variance. None for very many inputs, and where rows are sparse.
    """
    if is_sparse(X) or X.shape[1] > MOST_INPUTS:
        return None
    some = np.sort(generator(0, "plan-scales").permutation(len(X))[:SCALE_ROWS])
    rows, Y = X[some], Y[some]
    if classifying:
        return scales.learn_class_scales(rows, answers.class_numbers(Y), max(2, Y.shape[1]))
    return scales.learn_scales(rows, (Y - Y.mean(axis=0)) / np.maximum(Y.std(axis=0), 1e-300))


def least_noise(X: Any, found: Scales | None) -> float:
    """A share of the targets' variance that no function of the inputs explains: what marginal
    likelihood takes for noise, less two standard errors of so many rows.
    """
    return float("inf") if found is None else lower_end(found.noise, min(SCALE_ROWS, X.shape[0]))


def lower_end(error: float, rows: int) -> float:
    """A mean square of so many errors, less two standard errors as if they were Gaussian."""
    return error * max(0.0, 1 - 2 * math.sqrt(2 / rows))
