"""Rows of earlier columns as rows of those of now.

>>> made = ColumnMap(2, np.array([1, -1]), np.array([1.0, 0.0]), np.array([0.0, 0.5]))
>>> made.rows(np.array([[7.0, 3.0]])).tolist()
[[3.0, 0.5]]
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dokl.base.arrays import FLOAT32, Array


@dataclass(frozen=True)
class ColumnMap:
    """How the inputs of earlier columns become those of now.

    d: inputs of the earlier columns. source: (n,) which of them each of now is made of, -1 where
    there is none; factor, offset: (n,) what it is multiplied by, and what is added: where there is
    no source, what a missing value becomes.
    """

    d: int
    source: Array
    factor: Array
    offset: Array

    def rows(self, X: Array) -> Array:
        """Rows X: (k, d) of the earlier columns as rows (k, n) of those of now."""
        there = self.source >= 0
        made = np.tile(self.offset, (len(X), 1))
        with np.errstate(over="ignore"):
            made[:, there] += X[:, self.source[there]] * self.factor[there]
        # A row that was taken stays one that is taken.
        return np.clip(made, -FLOAT32, FLOAT32, out=made)
