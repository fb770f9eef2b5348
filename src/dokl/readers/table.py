"""Cells into columns: which hold numbers and which text, and where a cell is wrong."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dokl.arrays import Array
from dokl.errors import BadInput
from dokl.readers.options import Options

MISSING = ("", "NA", "NaN", "nan", "null", "None", "?")
_AS_NAN = dict.fromkeys(MISSING, "nan")


class NoColumn(BadInput):
    """A column that somebody asked for is not in the file."""

    def __init__(self, name: str, column: str, known: Sequence[str]) -> None:
        near = difflib.get_close_matches(column, known, n=1, cutoff=0.0)
        super().__init__(f"{name} has no column {column!r}; the nearest is {near[0]!r}")
        self.column = column


@dataclass(frozen=True, eq=False)
class Chunk:
    """Some rows of a table.

    columns: name -> (n,) float64 with NaN where missing, or objects (str, None where missing).
    lines: line number in the file of each row. LIBSVM files have no names: X (n, d) CSR and y (n,).
    """

    names: tuple[str, ...]
    columns: dict[str, Array]
    lines: Sequence[int]
    X: Any = None
    y: Array | None = None

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self.lines)

    @property
    def first_line(self) -> int:
        """Line number of the first row."""
        return self.lines[0]


@dataclass
class Columns:
    """Turns cells into chunks; the first chunk decides which columns hold numbers."""

    name: str
    names: tuple[str, ...]
    options: Options
    unit: str = "line"
    kinds: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check that every column somebody named is there."""
        told = self.options
        for wanted in (*(told.columns or ()), *sorted({*told.text, *told.numeric, *told.drop})):
            self._find(wanted)
        both = sorted({*told.text} & {*told.numeric})
        if both:
            raise BadInput(f"column {both[0]!r} cannot be both text and numeric")
        kept = self.names if told.columns is None else dict.fromkeys(told.columns)
        self.kept = tuple(name for name in kept if name not in told.drop)
        self.kinds = dict.fromkeys(told.text, "text") | dict.fromkeys(told.numeric, "number")

    def _find(self, wanted: str) -> None:
        if wanted not in self.names:
            raise NoColumn(self.name, wanted, self.names)

    @property
    def known(self) -> bool:
        """Whether it is settled for every column that is kept what it holds."""
        return all(name in self.kinds for name in self.kept)

    def chunk(self, cells: Mapping[str, Sequence[Any] | Array], lines: Sequence[int]) -> Chunk:
        """Convert the kept columns; an array of float64 is taken as it is."""
        columns = {name: self._column(name, cells[name], lines) for name in self.kept}
        return Chunk(self.kept, columns, lines)

    def _column(self, name: str, cells: Any, lines: Sequence[int]) -> Array:
        if name not in self.kinds:
            self.kinds[name] = guessed_kind(cells)
        if self.kinds[name] == "text":
            return self._texts(name, cells, lines)
        values, bad = numbers(cells)
        if bad:
            raise BadInput(
                f"{self._place(lines[bad[0]], name)}: {_fault(cells[bad[0]])}. Mend the cell, "
                "empty it if the value is missing, or say that the column holds text"
            )
        return values

    def _texts(self, name: str, cells: Sequence[Any], lines: Sequence[int]) -> Array:
        types = set(map(type, cells))
        for i, cell in enumerate(cells if types & {list, dict} else ()):
            if isinstance(cell, list | dict):
                raise BadInput(
                    f"{self._place(lines[i], name)}: {quote_cell(cell)} is no single value"
                )
        values = np.empty(len(cells), dtype=object)
        if types <= {str, type(None)}:  # few different ones, as a rule
            seen = {cell: text(cell) for cell in set(cells)}
            values[:] = [seen[cell] for cell in cells]
        else:
            values[:] = [text(cell) for cell in cells]
        return values

    def _place(self, line: int, column: str) -> str:
        return f"{self.name}, {self.unit} {line}, column {column!r}"


def numbers(cells: Any) -> tuple[Array, list[int]]:
    """float64 with NaN where missing, and the rows that are no finite numbers.

    >>> numbers(["1", "NA", "x"])
    (array([ 1., nan, nan]), [2])
    """
    if isinstance(cells, np.ndarray) and cells.dtype == np.float64:
        return cells, np.flatnonzero(np.isinf(cells)).tolist()
    values = _all_at_once(cells)
    if values is not None:
        return values, []
    each = [number(cell) for cell in cells]
    bad = [i for i, value in enumerate(each) if value is None]
    return np.array(each, dtype=np.float64), bad


def _all_at_once(cells: Sequence[Any]) -> Array | None:
    """The quick way, or None if a cell needs a closer look."""
    types = set(map(type, cells))
    if types <= {str}:
        if "_" in "".join(cells):  # float() takes 1_000 for a number
            return None
        tries: list[Iterable[Any]] = [cells, map(_AS_NAN.get, cells, cells)]
    else:
        tries = [cells] if types <= {int, float, bool} else []
    for attempt in tries:
        try:
            values = np.fromiter(map(float, attempt), np.float64, len(cells))
        except (ValueError, OverflowError):
            continue
        return None if np.isinf(values).any() else values
    return None


def number(cell: Any) -> float | None:
    """One cell: NaN if it is missing, None if it is no finite number."""
    if isinstance(cell, str):
        cell = cell.strip()
        cell = None if cell in _AS_NAN else cell
        if cell is not None and "_" in cell:
            return None
    if cell is None:
        return math.nan
    try:
        value = float(cell)
    except (ValueError, OverflowError, TypeError):
        return None
    return None if math.isinf(value) else value


def text(cell: Any) -> str | None:
    """One cell without blanks around it; None if it is missing."""
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if cell is None or cell != cell:
        return None
    cell = cell.strip() if isinstance(cell, str) else str(cell)
    return None if cell in _AS_NAN else cell


def guessed_kind(cells: Any) -> str:
    """Numbers, if at least half of what is not missing is numbers; otherwise text.

    A few wrong cells among numbers are mistakes to be named, not a column of text.

    >>> guessed_kind(["1", "2", "abc"]), guessed_kind(["red", "green", "3"])
    ('number', 'text')
    """
    values, bad = numbers(cells)
    good = np.count_nonzero(~np.isnan(values))
    wrong = sum(not _infinite(cells[i]) for i in bad)
    return "number" if good >= wrong else "text"


def _fault(cell: Any) -> str:
    """What is wrong with a cell that `number` refused."""
    return f"{quote_cell(cell)} is {'infinite' if _infinite(cell) else 'not a number'}"


def _infinite(cell: Any) -> bool:
    try:
        return isinstance(cell, str | int | float) and math.isinf(float(cell))
    except OverflowError:
        return True
    except ValueError:
        return False


def quote_cell(cell: Any) -> str:
    """A cell as a message quotes it."""
    quoted = repr(cell.item() if isinstance(cell, np.generic) else cell)
    return quoted if len(quoted) <= 42 else quoted[:40] + "..."
