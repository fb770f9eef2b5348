"""Length scales from a sample, on which a network agrees before it starts."""

from __future__ import annotations

from typing import Any

import numpy as np

from dokl import answers, scales
from dokl.arrays import Array, is_sparse
from dokl.random_numbers import generator

SCALE_ROWS = 500  # by which length scales are learned: a second or less
MOST_INPUTS = 100  # with more, length scales take minutes


def learned_lengths(X: Any, Y: Array, classifying: bool) -> Array | None:
    """The length scale of each input (d,), as the experts learn them from 500 rows.

    X: (n, d) standardised; Y: (n, m) numbers, or -1 and 1 for classes. None for one input, for
    very many, and where rows are sparse.
    """
    if is_sparse(X) or not 1 < X.shape[1] <= MOST_INPUTS:
        return None
    some = np.sort(generator(0, "plan-scales").permutation(len(X))[:SCALE_ROWS])
    rows, Y = X[some], Y[some]
    if classifying:
        numbers = answers.class_numbers(Y)
        return scales.learn_class_scales(rows, numbers, max(2, Y.shape[1])).lengths
    return scales.learn_scales(
        rows, (Y - Y.mean(axis=0)) / np.maximum(Y.std(axis=0), 1e-300)
    ).lengths
