"""Targets Y: numbers as they are, labels as -1 and 1, the same as the estimators have them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dokl.base.arrays import FLOAT32, Array
from dokl.base.errors import BadInput
from dokl.learning import classification
from dokl.learning.cells.cells import number, text
from dokl.live.inputs.bodies import Cells, quote_value
from dokl.live.inputs.outside import Outside
from dokl.tables.readers import MISSING, Form

PLAIN = Form()


class Targets:
    """How the cells of the target become Y: (n, m).

    No labels: regression, m = 1. Two labels: m = 1, the first is -1 and the second 1. More: one
    output each, 1 for the row's own label and -1 for the others. where: what says which
    targets are believed.

    >>> Targets("y", ("ham", "spam")).encoded(["spam", "ham", None], 3)
    (array([[ 1.], [-1.], [ 0.]]), array([ True,  True, False]))
    """

    def __init__(
        self, name: str, labels: Sequence[Any] = (), believed: Sequence[float] = (),
        outside: Outside | None = None, form: Form = PLAIN, missing: Sequence[str] = MISSING,
        where: str = "target_range in the description",
    ) -> None:  # fmt: skip
        self.name, self.labels = name, tuple(labels)
        self._low, self._high = believed or (-FLOAT32, FLOAT32)
        self._outside = outside or Outside()
        self._form, self._missing, self._where = form, missing, where
        self.m = classification.outputs(len(labels))
        self._numeric = not any(isinstance(label, str | bool) for label in labels)
        read = float if self._numeric else text
        codes = classification.targets(np.arange(len(labels)), len(labels))
        self._codes: dict[Any, Array] = {
            read(label): y for label, y in zip(labels, codes, strict=True)
        }

    def encoded(self, cells: Cells | None, n: int, strict: bool = False) -> tuple[Array, Array]:
        """Y (n, m), 0 where there is no target, and the rows (n,) that have one.

        strict: true and false are no numbers.
        """
        Y, known = np.zeros((n, self.m)), np.zeros(n, bool)
        for row, cell in enumerate(cells or ()):
            if strict and isinstance(cell, bool) and (self._numeric or not self.labels):
                raise self._refused(cell, row, "is not a number that can be used")
            y = self._one(cell, row)
            if y is not None:
                Y[row], known[row] = y, True
        return Y, known

    def _one(self, cell: object, row: int) -> Any:
        if isinstance(cell, list | dict) or (isinstance(cell, float) and cell != cell):
            raise self._refused(cell, row, "is no target")
        if not self.labels or self._numeric:
            value = self._number(cell)
            if value is None or abs(value) > FLOAT32:
                raise self._refused(cell, row, "is not a number that can be used")
            if value != value:
                return None
            return self._believed(value, row) if not self.labels else self._code(value, cell, row)
        known = text(cell, self._missing)
        return None if known is None else self._code(known, cell, row)

    def _number(self, cell: object) -> float | None:
        if self._form.plain:
            return number(cell, self._missing)
        values, bad = self._form.read([cell], self._missing)
        return None if bad else float(values[0])

    def _believed(self, value: float, row: int) -> float:
        if self._low <= value <= self._high:
            return value
        self._outside.count(self.name, 1)
        if self._outside.clip:
            return min(max(value, self._low), self._high)
        why = f"is outside {self._low:g} to {self._high:g}, {self._where}"
        raise self._refused(value, row, why)

    def _code(self, label: object, cell: object, row: int) -> Array:
        code = self._codes.get(label)
        if code is None:
            listed = ", ".join(map(repr, self.labels[:12])) + ", ..." * (len(self.labels) > 12)
            raise self._refused(cell, row, f"is not one of the agreed labels, {listed}")
        return code

    def _refused(self, cell: object, row: int, why: str) -> BadInput:
        return BadInput(f"row {row + 1}, column {self.name!r}: {quote_value(cell)} {why}")
