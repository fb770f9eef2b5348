"""Raw rows, in the forms that people have them, as columns.

Cells follow the rules by which files are read: None, NaN and texts such as "" and "NA" are missing;
a text like "20.5" is a number in a column of numbers. What a data frame (pandas, polars) says of a
column by its type is believed: numbers, truth values (0 and 1) and time spans (seconds) are
numbers, times are times, and categories are text, even if they are numbered. A time with a zone is
taken as its clock shows it.

>>> rows = [{"temp": 20.5, "place": "roof"}, {"temp": None, "place": "cellar"}]
>>> table = by_name(rows)
>>> column("temp", table["temp"], None), column("place", table["place"], ["roof"]).tolist()
(array([20.5,  nan]), ['roof', 'cellar'])
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from dokl.base.arrays import Array, is_sparse
from dokl.base.errors import BadInput, listed
from dokl.learning.cells.cells import MISSING, quote_cell, text
from dokl.learning.cells.forms import Form, words

FORMS = "a data frame, a dict of columns, a list of dicts, or an array (rows, columns)"
# Of a column: its levels if it holds text, None if it holds numbers, else how it is written.
Kind = Collection[str] | Form | None


# -- forms -------------------------------------------------------------------------------------
def taken(rows: object) -> Any:
    """Rows that can be looked at more than once."""
    return list(rows) if isinstance(rows, Iterator) else rows


def is_unnamed(rows: object) -> bool:
    """Whether rows have no names: a sparse matrix, an array, lists."""
    return is_sparse(rows) or not (
        isinstance(rows, Mapping) or column_names(rows) or _is_records(rows)
    )


def by_name(rows: Any, order: Sequence[str] = ()) -> dict[str, Any]:
    """{name: cells} of rows in any of the FORMS; order: what the columns of an array are.

    A record may lack a key that others have: then the value is missing.
    """
    names = column_names(rows)
    if names:
        table = {name: rows[name] for name in names}
    elif isinstance(rows, Mapping):
        table = {str(name): _cells(str(name), cells) for name, cells in rows.items()}
    elif _is_records(rows):
        found = dict.fromkeys(name for row in rows for name in row)
        table = {str(name): [row.get(name) for row in rows] for name in found}
    else:
        X = array_of(rows)
        if X.shape[1] != len(order):
            raise BadInput(
                f"these rows have {X.shape[1]} columns, and the model was trained with "
                f"{len(order)}: {listed(order)}"
            )
        table = {name: X[:, i] for i, name in enumerate(order)}
    if not length_of(table):
        raise BadInput("there are no rows")
    return table


def column_names(rows: object) -> list[str]:
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


def _cells(name: str, cells: object) -> Any:
    if isinstance(cells, str) or not hasattr(cells, "__len__"):
        raise BadInput(
            f"column {name!r} is one value, {quote_cell(cells)}: put a single row into a list, "
            "[row]"
        )
    return cells


def array_of(rows: object) -> Array:
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


def length_of(table: Mapping[str, Any]) -> int:
    """Number of rows."""
    return len(next(iter(table.values()), ()))


# -- cells -------------------------------------------------------------------------------------
def column(name: str, cells: object, kind: Kind, missing: Sequence[str] = MISSING) -> Array:
    """(n,) float64 with NaN where missing, or objects: texts, and None where missing."""
    timed = isinstance(kind, Form) and kind.kind == "time"
    if kind is None or isinstance(kind, Form):
        values = typed_seconds(cells) if timed else typed_numbers(cells)
        return _read(name, plain_cells(cells), kind, missing) if values is None else values
    plain = plain_cells(cells)
    for i, cell in enumerate(plain):
        nested = isinstance(cell, Sequence | Mapping) and not isinstance(cell, str)
        if nested or not isinstance(cell, Hashable):
            place = f"row {i + 1}, column {name!r}"
            raise BadInput(f"{place}: {quote_cell(cell)} is not a single value")
    known, out = frozenset(kind), np.empty(len(plain), object)
    out[:] = [_level(cell, known, missing) for cell in plain]
    return out


def _read(name: str, plain: list[Any], kind: Form | None, missing: Sequence[str]) -> Array:
    """Cells that are written, as numbers or as seconds."""
    values, bad = (kind or Form()).read(plain, missing)
    if bad:
        at, cell = bad[0], quote_cell(plain[bad[0]])
        what = "time" if kind is not None and kind.kind == "time" else "number"
        like = "" if kind is None else f" like those in training ({words(kind)})"
        raise BadInput(f"row {at + 1}, column {name!r}: {cell} is not a {what}{like}")
    return values


def typed_numbers(cells: Any) -> Array | None:
    """float64 (n,), NaN where missing, of cells that are numbers by their type; else None."""
    dtype = getattr(cells, "dtype", None)
    kind = getattr(dtype, "kind", "")  # of NumPy's types and of those of pandas
    if kind == "m" or type(dtype).__name__ == "Duration":
        return _counted(np.asarray(cells, "timedelta64[us]"))
    if isinstance(dtype, np.dtype):
        return np.asarray(cells, np.float64) if kind in "biuf" else None
    if kind and kind in "biuf":
        return np.asarray(cells.to_numpy(np.float64, na_value=np.nan))
    numeric = getattr(dtype, "is_numeric", bool)()
    return np.asarray(cells.cast(float).to_numpy(), np.float64) if numeric else None


def typed_seconds(cells: Any) -> Array | None:
    """Seconds since 1970 (n,), NaN where missing, of cells that are times by their type."""
    if type(getattr(cells, "dtype", None)).__name__ == "PeriodDtype":
        cells = cells.dt.to_timestamp()
    dtype = getattr(cells, "dtype", None)
    if getattr(dtype, "kind", "") != "M" and type(dtype).__name__ not in ("Datetime", "Date"):
        return None
    if getattr(dtype, "tz", None) is not None:
        cells = cells.dt.tz_localize(None)
    elif getattr(dtype, "time_zone", None) is not None:
        cells = cells.dt.replace_time_zone(None)
    return _counted(np.asarray(cells, "datetime64[us]"))


def _counted(moments: Array) -> Array:
    return np.where(np.isnat(moments), np.nan, moments.astype(np.int64) / 1e6)


def is_category(cells: object) -> bool:
    """Whether cells are categories by their type."""
    kind = type(getattr(cells, "dtype", None)).__name__
    return kind in ("CategoricalDtype", "Categorical", "Enum")


def declared_levels(cells: Any, missing: Sequence[str] = MISSING) -> list[str]:
    """All levels that a column of categories may have, by its type; none where it does not say."""
    levels = getattr(cells.dtype, "categories", None) if is_category(cells) else None
    known = plain_cells(levels) if hasattr(levels, "__len__") else []
    return list(dict.fromkeys(found for each in known if (found := _level(each, (), missing))))


def plain_cells(cells: Any) -> list[Any]:
    """Cells as Python's own objects, None where a data frame has nothing."""
    gone = np.asarray(cells.isna()) if hasattr(cells, "isna") else ()
    values = np.asarray(cells, object) if hasattr(cells, "__array__") else cells
    plain = [cell.item() if isinstance(cell, np.generic) else cell for cell in values]
    for i in np.flatnonzero(gone):
        plain[i] = None
    return [None if type(cell).__name__ in ("NAType", "NaTType") else cell for cell in plain]


def written_cells(cells: object) -> list[Any]:
    """Cells as a file would have them: dates and times are ISO 8601, categories are texts."""
    if is_category(cells):
        return [_level(cell, (), MISSING) for cell in plain_cells(cells)]
    times = typed_seconds(cells)
    if times is None:
        plain = plain_cells(cells)
        return [cell.isoformat() if hasattr(cell, "isoformat") else cell for cell in plain]
    moments = np.where(np.isnan(times), 0.0, 1e6 * times).round().astype("datetime64[us]")
    return [None if t != t else str(each) for t, each in zip(times, moments, strict=True)]


def _level(cell: object, known: Collection[str], missing: Sequence[str]) -> str | None:
    """A text; whole numbers are whole even where a missing one made floats of them all."""
    found = text(cell, missing)
    if found not in known and isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    return found
