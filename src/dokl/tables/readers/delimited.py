"""CSV and TSV: a header, then rows of cells; quotes as in the standard library's csv."""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from dokl.base.errors import BadInput
from dokl.learning.cells.cells import SKIP, number
from dokl.tables.readers.table import Chunk, Columns, Options
from dokl.tables.readers.text import (
    OpenFile,
    cells_of,
    csv_reader,
    decode_lines,
    delimiter_of,
    twice,
    width,
)


def read(source: OpenFile, options: Options) -> Iterator[Chunk]:
    """Chunks of rows; blank lines are no rows."""
    table = _Table(source, options)
    while raw := source.take(table.rows):
        chunk = table.parsed(raw)
        if chunk.n:
            yield chunk


class _Table:
    """What is known after the header, and how far we are."""

    def __init__(self, source: OpenFile, options: Options) -> None:
        self.name, self.source = source.name, source
        self.rows, self.compiled = options.rows(source.first_line), options.compiled
        self.refuse = options.refuse
        self.line = 1
        first = decode_lines([source.first_line], self.name, 1)
        if "\r" in first.rstrip("\r\n"):
            raise BadInput(f"{self.name}: lines end in CR alone. Save it with LF or CRLF")
        self.delimiter = options.delimiter or delimiter_of(first)
        self.names = self._header(first, options.header)
        self.columns = Columns(
            self.name, self.names, options, delimiter=self.delimiter, guesses=self._guesses(options)
        )

    def _guesses(self, options: Options) -> list[str]:
        """What was found out about the file as a whole."""
        mark = {"\t": "a tab"}.get(self.delimiter, repr(self.delimiter))
        found = [f"{mark} between cells; --delimiter"] if options.delimiter is None else []
        found += ["names in line 1; --no-header"] if options.header is None else []
        return [f"CSV, {line}" for line in found] if len(self.names) > 1 else []

    def _header(self, first: str, header: bool | None) -> tuple[str, ...]:
        """Names of the columns; where there are none, x1..xd."""
        if header is False:
            cells = [""] * width(first, self.delimiter)
        else:
            cells = [cell.strip() for cell in self._records(self.source.take(1))[0][0]]
        words = " ".join(cells).split()
        if not cells or (header is None and all(number(word) is not None for word in words)):
            raise BadInput(
                f"{self.name}, line 1: column names are expected, and there are none. Add a "
                "header, or declare that there is none",
                options=["--no-header"],
            )
        names = tuple(cell or f"x{i + 1}" for i, cell in enumerate(cells))
        if (same := twice(names)) is not None:
            raise BadInput(f"{self.name}, line 1: two columns are called {same!r}: rename one")
        return names

    def parsed(self, raw: list[bytes]) -> Chunk:
        """The rows of some lines, quickly where nothing about them is unusual."""
        quick = self._quick(raw) if self.compiled and self.columns.known else None
        if quick is not None:
            lines = range(self.line, self.line + len(raw))
            self.line += len(raw)
            return self.columns.chunk(quick, lines)
        rows, at = self._even(*self._records(raw))
        cells = zip(*rows, strict=True) if rows else ((),) * len(self.names)
        return self.columns.chunk(dict(zip(self.names, cells, strict=True)), at)

    def _quick(self, raw: list[bytes]) -> dict[str, Any] | None:
        """The columns kept, numbers by compiled code; None if anything at all is unusual."""
        from dokl.tables.readers.digits import numbers

        data, mark, plain = b"".join(raw), self.delimiter.encode(), self.columns.plain
        if _unusual(data) or len(mark) > 1 or len(self.names) == 1:
            return None
        if not data.isascii():
            try:
                decode_lines(raw, self.name, self.line)  # which names the byte that is wrong
            except BadInput:
                if self.refuse is None:
                    raise
                return None
        at = {name: i for i, name in enumerate(self.names) if name in self.columns.kept}
        numeric = np.zeros(len(self.names), bool)
        numeric[[i for name, i in at.items() if name in plain]] = True
        values = numbers(data, self.delimiter, numeric, len(raw))
        if values is None:
            return None
        found: dict[str, Any] = dict(zip(np.array(self.names)[numeric], values, strict=True))
        for name, i in at.items():
            if name not in plain:
                found[name] = _texts([line.split(mark, i + 1)[i] for line in raw])
        return found

    def _records(self, raw: list[bytes]) -> tuple[list[list[str]], list[int]]:
        """Rows of cells and their line numbers; a quoted cell may go on beyond these lines."""
        if self.refuse is not None:
            return self._line_by_line(raw)
        n, start = len(raw), 0
        text = io.StringIO(decode_lines(raw, self.name, self.line), newline="\n")
        after = enumerate(self.source, self.line + n)
        more = (decode_lines([line], self.name, at) for at, line in after)
        reader = csv_reader(itertools.chain(text, more), self.delimiter)
        rows, lines = [], []
        try:
            while (start := reader.line_num) < n:
                rows.append(next(reader))
                lines.append(self.line + start)
        except csv.Error as error:
            raise BadInput(f"{self.name}, line {self.line + start}: {error}") from None
        self.line += reader.line_num
        return rows, lines

    def _line_by_line(self, raw: list[bytes]) -> tuple[list[list[str]], list[int]]:
        """The same where bad rows are passed over: a line is a row, and no quote goes beyond it."""
        assert self.refuse is not None
        rows, lines = [], []
        for line in raw:
            try:
                text = decode_lines([line], self.name, self.line)
                rows += cells_of([text], self.delimiter)
                lines.append(self.line)
            except BadInput as error:
                self.refuse(self.line, error, line.decode("utf-8", "replace").rstrip())
            self.line += 1
        return rows, lines

    def _even(self, rows: list[list[str]], lines: list[int]) -> tuple[list[list[str]], list[int]]:
        """Rows without the blank ones, all as long as the header."""
        wanted = len(self.names)
        if set(map(len, rows)) == {wanted}:
            return rows, lines
        kept = [i for i, row in enumerate(rows) if not _blank(row, wanted)]
        uneven = [i for i in kept if len(rows[i]) != wanted]
        for i in uneven:
            problem = (
                f"{wanted} cells are expected, as in the first line, and {len(rows[i])} are there"
            )
            if self.refuse is None:
                fault = BadInput(f"{problem}{self._hint(rows[i])}", options=[SKIP])
                raise fault.at(f"{self.name}, line {lines[i]}")
            fault = BadInput(problem, options=[SKIP])
            self.refuse(lines[i], fault, self.delimiter.join(rows[i]))
        kept = [i for i in kept if len(rows[i]) == wanted]
        return [rows[i] for i in kept], [lines[i] for i in kept]

    def _hint(self, row: list[str]) -> str:
        """What may be wrong with a row of too many cells."""
        if self.names[0].startswith("#"):
            return ". The first line looks like a remark: remove what comes before the names"
        if self.delimiter != "," or len(row) <= len(self.names):
            return ""
        return ". Numbers with commas have to be quoted, or cells separated by another character"


def _unusual(data: bytes) -> bool:
    """Whether there are quotes, or line ends other than LF and CRLF."""
    return b'"' in data or (b"\r" in data and data.count(b"\r") != data.count(b"\r\n"))


def _texts(cells: list[bytes]) -> list[str]:
    """Cells as text; there are few different ones, as a rule."""
    seen = {cell: cell.decode() for cell in set(cells)}
    return [seen[cell] for cell in cells]


def _blank(row: list[str], wanted: int) -> bool:
    """A line with nothing on it; in a table of one column, blanks may be a missing value."""
    return not row or (wanted > 1 and len(row) == 1 and not row[0].strip())
