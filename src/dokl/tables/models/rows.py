"""Raw rows, in the forms that people have them, as columns.

Cells follow the rules of `dokl.tables.readers`, by which files are read: None, NaN and texts such
as "" and "NA" are missing; a text like "20.5" is a number in a column of numbers.

>>> rows = [{"temp": 20.5, "place": "roof"}, {"temp": None, "place": "cellar"}]
>>> chunk = chunk_of(by_name(rows), {"temp": None, "place": ["cellar", "roof"]})
>>> chunk.columns["temp"], chunk.columns["place"].tolist()
(array([20.5,  nan]), ['roof', 'cellar'])
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from dokl.base.arrays import Array, is_sparse
from dokl.base.errors import BadInput, listed
from dokl.learning.columns import require
from dokl.tables.readers import MISSING, Chunk, Form
from dokl.tables.readers.cells import quote_cell, text
from dokl.tables.readers.told import words

FORMS = "a data frame, a dict of columns, a list of dicts, or an array (rows, columns)"
# Of a column: its levels if it holds text, None if it holds numbers, else how it is written.
Kind = Collection[str] | Form | None


# -- forms -------------------------------------------------------------------------------------
def taken(rows: Any) -> Any:
    """Rows that can be looked at more than once."""
    return list(rows) if isinstance(rows, Iterator) else rows


def is_unnamed(rows: Any) -> bool:
    """Whether rows have no names: a sparse matrix, an array, lists."""
    return is_sparse(rows) or not (isinstance(rows, Mapping) or _names(rows) or _is_records(rows))


def by_name(rows: Any, order: Sequence[str] = ()) -> dict[str, Any]:
    """{name: cells} of rows in any of the FORMS; order: what the columns of an array are.

    A record may lack a key that others have: then the value is missing.
    """
    names = _names(rows)
    if names:
        table = {name: rows[name] for name in names}
    elif isinstance(rows, Mapping):
        table = {str(name): _cells(str(name), cells) for name, cells in rows.items()}
    elif _is_records(rows):
        found = dict.fromkeys(name for row in rows for name in row)
        table = {str(name): [row.get(name) for row in rows] for name in found}
    else:
        X = _array(rows)
        if X.shape[1] != len(order):
            raise BadInput(
                f"these rows have {X.shape[1]} columns, and the model was trained with "
                f"{len(order)}: {listed(order)}"
            )
        table = {name: X[:, i] for i, name in enumerate(order)}
    if not _length(table):
        raise BadInput("there are no rows")
    return table


def matrix(rows: Any) -> Chunk:
    """Rows without names as they are, for an estimator that takes them so."""
    X = rows if is_sparse(rows) else _array(rows)
    if not is_sparse(X) and X.dtype.kind not in "biuf":
        X = np.column_stack([column(f"x{i + 1}", cells, None) for i, cells in enumerate(X.T)])
    return Chunk((), {}, range(1, 1 + X.shape[0]), X)


def _names(rows: Any) -> list[str]:
    """The columns' names of a data frame, of pandas or the like, or an arrow table; else none."""
    names = getattr(rows, "column_names", getattr(rows, "columns", None))
    if names is None or isinstance(rows, Mapping) or not hasattr(rows, "__getitem__"):
        return []
    names = list(names)
    if not all(isinstance(name, str) for name in names):
        return []
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise BadInput(f"there are two columns {twice!r}")
    return names


def _is_records(rows: Any) -> bool:
    several = isinstance(rows, Sequence) and len(rows) > 0
    return several and all(isinstance(row, Mapping) for row in rows)


def _cells(name: str, cells: Any) -> Any:
    if isinstance(cells, str) or not hasattr(cells, "__len__"):
        raise BadInput(
            f"column {name!r} is one value, {quote_cell(cells)}: put a single row into a list, "
            "[row]"
        )
    return cells


def _array(rows: Any) -> Array:
    """Rows without names: (n, columns), of any type."""
    wrong = BadInput(f"rows must be {FORMS}, not {type(rows).__name__}")
    if hasattr(rows, "__array__"):
        X = np.asarray(rows)
    elif isinstance(rows, Sequence) and not any(isinstance(row, str) for row in rows):
        try:
            X = np.array([list(row) for row in rows], object)
        except (TypeError, ValueError):
            raise wrong from None
    else:
        raise wrong
    if not len(X):
        raise BadInput("there are no rows")
    if X.ndim != 2:
        raise BadInput(f"rows must be {FORMS}, not an array of shape {X.shape}")
    return X


def _length(table: Mapping[str, Any]) -> int:
    return len(next(iter(table.values()), ()))


# -- cells -------------------------------------------------------------------------------------
def chunk_of(
    table: Mapping[str, Any], wanted: Mapping[str, Kind], missing: Sequence[str] = MISSING
) -> Chunk:
    """The wanted columns, which must be there, with cells that can be what the column holds."""
    for name in wanted:
        require(name, table, "was there in training and is missing now")
    columns = {name: column(name, table[name], kind, missing) for name, kind in wanted.items()}
    return Chunk(tuple(table), columns, range(1, 1 + _length(table)))


def column(name: str, cells: Any, kind: Kind, missing: Sequence[str] = MISSING) -> Array:
    """(n,) float64 with NaN where missing, or objects: texts, and None where missing."""
    timed = isinstance(kind, Form) and kind.kind == "time"
    if holds_numbers(cells) and not timed and (kind is None or isinstance(kind, Form)):
        return np.asarray(cells, np.float64)
    if timed and getattr(getattr(cells, "dtype", None), "kind", "") == "M":
        return _since_1970(cells)
    plain = _plain(cells)
    if kind is None or isinstance(kind, Form):
        values, bad = (kind or Form()).read(plain, missing)
        if bad:
            at, cell = bad[0], quote_cell(plain[bad[0]])
            what = "time" if timed else "number"
            like = "" if kind is None else f" like those in training ({words(kind)})"
            raise BadInput(f"row {at + 1}, column {name!r}: {cell} is not a {what}{like}")
        return values
    for i, cell in enumerate(plain):
        nested = isinstance(cell, Sequence | Mapping) and not isinstance(cell, str)
        if nested or not isinstance(cell, Hashable):
            raise BadInput(f"row {i + 1}, column {name!r}: {quote_cell(cell)} is no single value")
    known, out = frozenset(kind), np.empty(len(plain), object)
    out[:] = [_level(cell, known, missing) for cell in plain]
    return out


def _since_1970(cells: Any) -> Array:
    """Seconds of an array of datetime64, or of a column of them; NaN where there is none."""
    plain = cells.dt.tz_localize(None) if getattr(cells.dtype, "tz", None) is not None else cells
    moments = np.asarray(plain, "datetime64[us]")
    found = moments.astype(np.int64) / 1e6
    return np.where(np.isnat(moments), np.nan, found)


def holds_numbers(cells: Any) -> bool:
    """Whether an array has numbers by its type."""
    dtype = getattr(cells, "dtype", None)
    return isinstance(dtype, np.dtype) and dtype.kind in "biuf"


def _plain(cells: Any) -> list[Any]:
    """Cells as Python's own objects, None where a data frame has nothing."""
    gone = np.asarray(cells.isna()) if hasattr(cells, "isna") else ()
    values = np.asarray(cells, object) if hasattr(cells, "__array__") else cells
    plain = [cell.item() if isinstance(cell, np.generic) else cell for cell in values]
    for i in np.flatnonzero(gone):
        plain[i] = None
    return [None if type(cell).__name__ == "NAType" else cell for cell in plain]


def _level(cell: Any, known: Collection[str], missing: Sequence[str]) -> str | None:
    """A text; whole numbers are whole even where a missing one made floats of them all."""
    found = text(cell, missing)
    if found not in known and isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    return found
