"""Training and test rows, as the tables of the paper take them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dokl.base.arrays import Array
from dokl.base.errors import BadInput
from dokl.base.random_numbers import generator
from dokl.paper.datasets.parse import Dataset


class Split(NamedTuple):
    """Rows to learn from and rows to be judged on."""

    X_train: Any
    y_train: Array
    X_test: Any
    y_test: Array


def split(
    dataset: Dataset, n_train: int | None = None, n_test: int | None = None, seed: int = 0
) -> Split:
    """Training rows in random order, and test rows; every seed is another draw.

    - A given split (Adult, MNIST): n_train of its training rows, or all; all its test rows.
    - A test set by custom (Banana): n_train drawn from the rows before it, or all of them (4000);
      the test set is the last 1300 rows. The paper's table needs n_train=1300.
    - Neither (Waveform): n_train random rows, four fifths if not given; all others for the test.

    With n_test, that many of the test rows, at random.
    """
    rng = generator(seed, "split")
    N = len(dataset.y)
    if dataset.X_test is not None and dataset.y_test is not None:
        train, rows = rng.permutation(N), np.arange(len(dataset.y_test))
        train = train[: _size("n_train", n_train, N)]
        X_test, y_test = dataset.X_test, dataset.y_test
    else:
        order = rng.permutation(N - dataset.last)
        default = None if dataset.last else 4 * N // 5
        size = _size("n_train", n_train, len(order) if dataset.last else N - 1, default)
        train, rows = order[:size], np.sort(order[size:])
        if dataset.last:
            rows = np.arange(N - dataset.last, N)
        X_test, y_test = dataset.X, dataset.y
    if n_test is not None:
        rows = np.sort(rng.permutation(rows)[: _size("n_test", n_test, len(rows))])
    return Split(dataset.X[train], dataset.y[train], X_test[rows], y_test[rows])


def _size(name: str, asked: int | None, most: int, default: int | None = None) -> int:
    if asked is None:
        return most if default is None else default
    if not (isinstance(asked, int | np.integer) and 1 <= asked <= most):
        raise BadInput(f"{name} must be a whole number from 1 to {most}, got {asked!r}")
    return int(asked)
