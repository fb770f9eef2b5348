"""Columns as rows of numbers that a journal can keep, and back.

>>> rows = RawRows(["temp"], {"place": ("roof", "yard")})
>>> X = rows.transform({"temp": np.array([np.nan, 20.0]), "place": np.array(["yard", None])})
>>> X.tolist(), rows.columns(X)["temp"]
([[0.0, 0.0, 1.0], [20.0, 1.0, -2.0]], array([nan, 20.]))
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dokl.base.arrays import Array
from dokl.learning.columns.preprocessor import NO_LEVEL

UNSEEN, MISSING = -1.0, -2.0


class RawRows:
    """Columns as numbers that a journal can keep, and back: numbers, 1 where one is there and 0
    where it is missing, and the numbers of levels.
    """

    def __init__(self, numeric: Sequence[str], levels: Mapping[str, Sequence[str]]) -> None:
        self.numeric, self.levels = tuple(numeric), {k: tuple(v) for k, v in levels.items()}
        self.names_out = (*self.numeric, *(f"{name} is there" for name in numeric), *self.levels)
        self.d = len(self.names_out)
        # -2 and -1 count from the end.
        self._texts = {name: (*known, None, NO_LEVEL) for name, known in self.levels.items()}
        self._numbers: dict[str, dict[Any, float]] = {
            name: {level: float(i) for i, level in enumerate(known)} | {None: MISSING}
            for name, known in self.levels.items()
        }

    def transform(self, columns: Mapping[str, Array]) -> Array:
        """X (n, d) of columns as `Inputs` reads them."""
        numbers = [np.asarray(columns[name], np.float64) for name in self.numeric]
        there = [~np.isnan(values) for values in numbers]
        filled = [np.where(ok, v, 0.0) for v, ok in zip(numbers, there, strict=True)]
        codes = [self._codes(name, columns[name]) for name in self.levels]
        return np.column_stack([*filled, *there, *codes]).astype(np.float64)

    def _codes(self, name: str, texts: Array) -> list[float]:
        known = self._numbers[name]
        return [known.get(text, UNSEEN) for text in texts.tolist()]

    def columns(self, X: Array) -> dict[str, Array]:
        """What X: (n, d) came from, but for the texts of unknown levels."""
        X, p = np.asarray(X, np.float64), len(self.numeric)
        found = {
            name: np.where(X[:, p + i] > 0, X[:, i], np.nan) for i, name in enumerate(self.numeric)
        }
        for i, (name, texts) in enumerate(self._texts.items()):
            column = np.empty(len(X), object)
            column[:] = [texts[int(code)] for code in X[:, 2 * p + i]]
            found[name] = column
        return found
