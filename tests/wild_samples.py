"""Rows as networks really have them: wild targets, and nodes without a row at some steps."""

import numpy as np


def wild_rows(rng, shape, d, m=1, absent=0.2):
    """X (n K, d), Y (n K, m), one target in seven steps far off, and index (n, K), -1 if absent."""
    size = shape[0] * shape[1]
    X = rng.normal(size=(size, d))
    Y = np.sin(X[:, :m]) + 0.1 * rng.normal(size=(size, m))
    Y[:: 7 * shape[1]] += 25.0
    index = np.arange(size).reshape(shape)
    index[rng.random(shape) < absent] = -1
    return X, Y, index


def spoil_unused(X, index):
    """Rows that no node has may be anything; but absent nodes of the reference borrow row 0."""
    unused = np.setdiff1d(np.arange(len(X)), index)
    X[unused[unused > 0]] = np.nan
