"""Spreadsheets (.xlsx), by openpyxl: the first sheet, a row at a time."""

from __future__ import annotations

import datetime
import importlib
import itertools
import zipfile
from collections.abc import Iterator
from typing import Any

from dokl.base.errors import BadInput, MissingExtra
from dokl.learning.cells.cells import SKIP, number
from dokl.tables.readers.table import MOST_ROWS, Chunk, Columns, Options
from dokl.tables.readers.text import OpenFile, twice

Row = tuple[int, list[Any]]  # its number in the sheet, from 1, and its cells


def read(source: OpenFile, options: Options) -> Iterator[Chunk]:
    """Chunks of rows; names stand in the first row that is not empty."""
    if not source.is_sheet:
        raise BadInput(f"{source.name} is not a spreadsheet: .xlsx must be a file, not a stream")
    try:
        openpyxl = importlib.import_module("openpyxl")
    except ImportError:
        raise MissingExtra("reading a spreadsheet", "xlsx") from None
    try:
        book = openpyxl.load_workbook(source.path, read_only=True, data_only=True)
    except (KeyError, ValueError, zipfile.BadZipFile) as error:
        raise BadInput(f"{source.name} cannot be read as a spreadsheet: {error}") from None
    try:
        yield from _chunks(book, source, options)
    finally:
        book.close()


def _chunks(book: Any, source: OpenFile, options: Options) -> Iterator[Chunk]:
    if not book.worksheets:
        raise BadInput(f"{source.name} has no sheet of cells")
    sheet, sheets = book.worksheets[0], len(book.worksheets)
    total = sheet.max_row or 0
    sheet.reset_dimensions()  # which some programs write wrongly
    rows = _rows(sheet)
    first = next(rows, None)
    if first is None:
        raise BadInput(f"{source.name}: the sheet {sheet.title!r} is empty")
    names = _names(first, options.header, source.name)
    rows = itertools.chain([first], rows) if options.header is False else rows
    which = (
        f"spreadsheet, the first of {sheets} sheets, {sheet.title!r}; save another one separately"
    )
    guesses = [which] if sheets > 1 else []
    columns = Columns(source.name, names, options, unit="row", guesses=guesses)
    while some := list(itertools.islice(rows, options.chunk or MOST_ROWS)):
        source.at(min(1.0, some[-1][0] / max(1, total)))
        some = [row for row in some if _fits(row, names, source.name, options)]
        cells = {name: [_cell(row, i) for _, row in some] for i, name in enumerate(names)}
        chunk = columns.chunk({name: cells[name] for name in columns.kept}, [at for at, _ in some])
        if chunk.n:
            yield chunk


def _rows(sheet: Any) -> Iterator[Row]:
    """Rows that have something in them, without the empty cells at their end."""
    for at, cells in enumerate(sheet.iter_rows(values_only=True), 1):
        row = [_plain(cell) for cell in cells]
        while row and row[-1] is None:
            row.pop()
        if row:
            yield at, row


def _names(first: Row, header: bool | None, name: str) -> tuple[str, ...]:
    at, cells = first
    if header is False:
        return tuple(f"x{i + 1}" for i in range(len(cells)))
    if header is None and all(number(cell) is not None for cell in cells if cell is not None):
        raise BadInput(
            f"{name}, row {at}: column names are expected, and there are none. Add a header, or "
            "say that there is no header",
            options=["--no-header"],
        )
    texts = ("" if cell is None else str(cell).strip() for cell in cells)
    names = tuple(text or f"x{i + 1}" for i, text in enumerate(texts))
    if (same := twice(names)) is not None:
        raise BadInput(f"{name}, row {at}: two columns are called {same!r}: rename one")
    return names


def _fits(row: Row, names: tuple[str, ...], name: str, options: Options) -> bool:
    """Whether a row is no longer than the first one."""
    at, cells = row
    if len(cells) <= len(names):
        return True
    fault = BadInput(
        f"{len(names)} cells are expected, as in the first row, and {len(cells)} are there",
        options=[SKIP],
    )
    if options.refuse is None:
        raise fault.at(f"{name}, row {at}")
    options.refuse(at, fault, ", ".join(map(str, cells)))
    return False


def _cell(row: list[Any], i: int) -> Any:
    return row[i] if i < len(row) else None


def _plain(cell: object) -> Any:
    """A cell as CSV or JSON would have it: times as ISO 8601, truth as 1 and 0."""
    if isinstance(cell, bool):
        return int(cell)
    if isinstance(cell, datetime.datetime | datetime.date | datetime.time):
        return cell.isoformat()
    if isinstance(cell, datetime.timedelta):
        return cell.total_seconds()
    return None if isinstance(cell, str) and not cell.strip() else cell
