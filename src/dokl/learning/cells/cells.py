"""One cell, or a column of them, as numbers or as text; and what stands for a missing value."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from dokl.base.arrays import Array
from dokl.base.errors import BadInput

MISSING = ("", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "null", "NULL", "None", "?", "-")


# An option of commands that is good for any row that cannot be used.
SKIP = (
    "--on-error skip passes over such rows in train, predict and evaluate; stop keeps what was "
    "done before them"
)


class Ambiguous(BadInput):
    """Cells that can be read in two ways; `example` is one of them, `option` decides."""

    def __init__(self, problem: str, example: str, option: str) -> None:
        super().__init__(problem, options=[option])
        self.example = example


@functools.cache
def _as_nan(missing: Sequence[str]) -> dict[str, str]:
    return dict.fromkeys(missing, "nan")


def numbers(cells: Any, missing: Sequence[str] = MISSING) -> tuple[Array, list[int]]:
    """float64 with NaN where missing, and the rows that are no finite numbers.

    >>> numbers(["1", "NA", "x"])
    (array([ 1., nan, nan]), [2])
    """
    if isinstance(cells, np.ndarray) and cells.dtype == np.float64:
        return cells, np.flatnonzero(np.isinf(cells)).tolist()
    values = _all_at_once(cells, missing)
    if values is not None:
        return values, []
    each = [number(cell, missing) for cell in cells]
    bad = [i for i, value in enumerate(each) if value is None]
    return np.array(each, dtype=np.float64), bad


def _all_at_once(cells: Sequence[Any], missing: Sequence[str]) -> Array | None:
    """The quick way, or None if a cell needs a closer look."""
    types = set(map(type, cells))
    if types <= {str}:
        if "_" in "".join(cells):  # float() takes 1_000 for a number
            return None
        # A spelling of one's own may be a number: -999.
        tries: list[Iterable[Any]] = [cells] if missing is MISSING else []
        tries.append(map(_as_nan(missing).get, cells, cells))
    else:
        tries = [cells] if types <= {int, float, bool} else []
    for attempt in tries:
        try:
            values = np.fromiter(map(float, attempt), np.float64, len(cells))
        except (ValueError, OverflowError):
            continue
        return None if np.isinf(values).any() else values
    return None


def number(cell: Any, missing: Sequence[str] = MISSING) -> float | None:
    """One cell: NaN if it is missing, None if it is no finite number."""
    if isinstance(cell, str):
        cell = cell.strip()
        cell = None if cell in missing else cell
        if cell is not None and "_" in cell:
            return None
    if cell is None:
        return math.nan
    try:
        value = float(cell)
    except (ValueError, OverflowError, TypeError):
        return None
    return None if math.isinf(value) else value


def text(cell: object, missing: Sequence[str] = MISSING) -> str | None:
    """One cell without blanks around it; None if it is missing."""
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if cell is None or cell != cell:
        return None
    cell = cell.strip() if isinstance(cell, str) else str(cell)
    return None if cell in missing else cell


def infinite(cell: object) -> bool:
    """Whether a cell is an infinity, or too large for a double."""
    try:
        return isinstance(cell, str | int | float) and math.isinf(float(cell))
    except OverflowError:
        return True
    except ValueError:
        return False


def quote_cell(cell: object) -> str:
    """A cell as a message quotes it."""
    quoted = repr(cell.item() if isinstance(cell, np.generic) else cell)
    return quoted if len(quoted) <= 42 else quoted[:40] + "..."
