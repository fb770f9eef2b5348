"""Bodies of requests, JSON or CSV, into cells with names; nothing is believed before it is seen.

JSON is UTF-8, in one of these forms; NDJSON (an object on each line) is one of them::

    {"temp": 20.5, "y": 1}                               one row
    [{"temp": 20.5, "y": 1}, {"temp": 21, "y": 2}]       rows
    {"rows": [{"temp": 20.5, "y": 1}]}                   rows
    {"columns": ["temp", "y"], "data": [[20.5, 1]]}      names once, then cells

A key that stands twice in an object is refused, and so are numbers with thousands of digits and
deep nesting. In requests and messages NaN and Infinity, which are no JSON, are refused as well
(null is a missing value), and true and false are no numbers. CSV has a header; cells are separated
by comma, semicolon or tab.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dokl.base.errors import BadInput
from dokl.learning.cells.cells import quote_cell
from dokl.tables.readers.text import Several, cells_of, delimiter_of, json_value, twice

Cells = Sequence[Any]


@dataclass(frozen=True)
class BodyTable:
    """n rows by column: name -> n cells, None where a row does not have it.

    rows: the objects that they came from, which may have different keys; None where all rows have
    all columns. strict: true and false are no numbers.
    """

    n: int
    cells: Mapping[str, Cells]
    rows: Sequence[Mapping[str, Any]] | None = None
    strict: bool = False

    def has_any(self, row: int, names: Iterable[str]) -> bool:
        """Whether a row says something of these columns, be it null."""
        there: Mapping[str, Any] = self.cells if self.rows is None else self.rows[row]
        return any(name in there for name in names)

    def row_with(self, name: str) -> int:
        """The first row that has this column."""
        return next(i for i, row in enumerate(self.rows or [self.cells]) if name in row)


# -- JSON --------------------------------------------------------------------------------------
def from_json(body: bytes, most: int) -> BodyTable:
    """The rows of the JSON body of a request or message, at most `most`."""
    return replace(_rows_of(_text(body), most), strict=True)


def _rows_of(text: str, most: int) -> BodyTable:
    try:
        found = json_value(text, once=True, literals=False)
    except Several:
        lines = [line for line in text.split("\n") if line.strip()]
        return from_lines(lines, most, literals=False)
    if isinstance(found, dict):
        if found.keys() == {"rows"} and isinstance(found["rows"], list):
            found = found["rows"]
        elif found.keys() == {"columns", "data"}:
            return _of_columns(found["columns"], found["data"], most)
    return _of_objects(found if isinstance(found, list) else [found], most)


def from_lines(lines: Sequence[str], most: int, literals: bool = True) -> BodyTable:
    """A row on each line, as a JSON object; literals: of a file, which may have NaN."""
    _check_count(len(lines), most)
    return _of_objects([_line(line, i, literals) for i, line in enumerate(lines, 1)], most)


def _line(line: str, number: int, literals: bool) -> Any:
    try:
        return json_value(line, once=True, literals=literals)
    except Several:
        raise BadInput(f"row {number}: one JSON object a line is expected") from None
    except BadInput as error:
        raise BadInput(f"row {number}: {error}") from None


def _of_objects(rows: list[Any], most: int) -> BodyTable:
    _check_count(len(rows), most)
    if set(map(type, rows)) != {dict}:
        at = next(i for i, row in enumerate(rows) if not isinstance(row, dict))
        found = quote_value(rows[at])
        raise BadInput(f'row {at + 1}: an object like {{"x": 1}} is expected, not {found}')
    return BodyTable(len(rows), _Columns(rows), rows)


class _Columns(Mapping[str, Cells]):
    """The columns of rows that are objects, each made when it is asked for: rows that all have
    keys of their own are refused, and must not become a square of cells before.
    """

    def __init__(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self._rows = rows
        self._names = dict.fromkeys(name for row in rows for name in row)

    def __getitem__(self, name: str) -> Cells:
        if name not in self._names:
            raise KeyError(name)
        return [row.get(name) for row in self._rows]

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _of_columns(names: object, data: object, most: int) -> BodyTable:
    if not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
        raise BadInput('"columns" must be a list of names')
    if not isinstance(data, list):
        raise BadInput('"data" must be a list of rows, each a list of cells')
    for at, row in enumerate(data, 1):
        if not isinstance(row, list):
            raise BadInput(f"row {at}: a list of cells is expected, not {quote_value(row)}")
    return table(names, data, most)


# -- CSV ---------------------------------------------------------------------------------------
def from_csv(body: bytes, most: int) -> BodyTable:
    """The rows of a CSV body with a header, at most n; blank lines are no rows."""
    text = _text(body)
    lines = io.StringIO(text, newline="")
    header = next((line for line in lines if line.strip()), "")
    mark = delimiter_of(header)
    names = [name.strip() for name in cells_of([header], mark)[0]] if header else []
    return table(names, [row for row in cells_of(lines, mark) if row], most)


# -- both --------------------------------------------------------------------------------------
def table(names: Sequence[str], rows: Sequence[Sequence[Any]], most: int) -> BodyTable:
    """A table of rows of cells under these names."""
    _check_count(len(rows), most)
    if (same := twice(names)) is not None:
        raise BadInput(f"two columns are called {same[:80]!r}")
    if set(map(len, rows)) != {len(names)}:
        at = next(i for i, row in enumerate(rows) if len(row) != len(names))
        raise BadInput(
            f"row {at + 1}: {len(names)} cells are expected, one for each column, and "
            f"{len(rows[at])} are there"
        )
    return BodyTable(len(rows), dict(zip(names, zip(*rows, strict=True), strict=True)))


def quote_value(value: object) -> str:
    """A value as a message quotes it; lists and objects, which may be endless, are only named."""
    named = {dict: "an object", list: "a list", type(None): "null", bool: str(value).lower()}
    return named.get(type(value)) or quote_cell(value)


def _text(body: bytes) -> str:
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        byte = body[error.start]
        raise BadInput(f"byte {error.start + 1}, 0x{byte:02x}, is not UTF-8 text") from None
    if not text.strip():
        raise BadInput("the body is empty: at least one row is expected")
    return text


def _check_count(n: int, most: int) -> None:
    if n == 0:
        raise BadInput("there are no rows: one is expected, in CSV below the names of the columns")
    if n > most:
        bound = f"{most:,} is the most (queue_rows in [limits])"
        raise BadInput(f"{n:,} rows, and {bound}: send them in several requests")
