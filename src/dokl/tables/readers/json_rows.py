"""JSON: one object a line, or one array of objects; a key that is not there is a missing value.

An array may be pretty-printed; a piece of the file at a time is read. Keys that come up only after
the first chunk are not taken, unless `columns` asks for them.
"""

from __future__ import annotations

import codecs
import itertools
import json
from collections.abc import Iterator
from typing import Any

from dokl.base.errors import BadInput
from dokl.learning.cells.cells import quote_cell
from dokl.tables.readers.table import MOST_ROWS, Chunk, Columns, Options, Refuse
from dokl.tables.readers.text import OpenFile, decode_lines, json_at, json_value


def read(source: OpenFile, options: Options) -> Iterator[Chunk]:
    """Chunks of objects; the columns are those asked for, or all keys of the first chunk."""
    columns = None
    for rows, at in _of_array(source, options) if source.is_array else _of_lines(source, options):
        if columns is None:
            there = dict.fromkeys(itertools.chain.from_iterable(rows))
            more = [name for name in options.optional if name in there]
            names = (*options.columns, *more) if options.columns else there
            if not names:
                raise BadInput(f"{source.name}: the first objects have no keys")
            columns = Columns(source.name, tuple(names), options)
        chunk = columns.chunk({name: [row.get(name) for row in rows] for name in columns.kept}, at)
        if chunk.n:
            yield chunk


Rows = tuple[list[dict[str, Any]], list[int]]  # objects and their line numbers


def _of_lines(source: OpenFile, options: Options) -> Iterator[Rows]:
    line = 1
    while raw := source.take(options.rows(source.first_line)):
        rows, at = _objects(raw, source.name, line, options.refuse)
        line += len(raw)
        if rows:
            yield rows, at


def _of_array(source: OpenFile, options: Options) -> Iterator[Rows]:
    elements, most = iter(Elements(source)), options.chunk or MOST_ROWS
    while some := list(itertools.islice(elements, most)):
        rows, lines = [], []
        for at, value in some:
            if isinstance(value, dict):
                rows.append(value)
                lines.append(at)
            elif options.refuse is None:
                raise BadInput(f"{source.name}, line {at}: {_no_object(value)}")
            else:
                options.refuse(at, BadInput(_no_object(value)), json.dumps(value))
        if rows:
            yield rows, lines


def _objects(raw: list[bytes], name: str, first: int, refuse: Refuse | None) -> Rows:
    """The objects and their line numbers, blank lines left out.

    Each line is parsed by itself: joined, two halves of an object would pass for a whole one.
    """
    rows, lines = [], []
    for at, line in enumerate(raw, first):
        if not line.strip():
            continue
        try:
            rows.append(_object(decode_lines([line], name, at), name, at))
            lines.append(at)
        except BadInput as error:
            if refuse is None:
                raise
            refuse(at, error, line.decode("utf-8", "replace").rstrip())
    return rows, lines


def _object(line: str, name: str, at: int) -> dict[str, Any]:
    try:
        value = json_value(line)
    except BadInput as error:
        alone = ". Write each object on one line, or all of them in one array"
        more = alone if line.strip() == "{" else ""
        raise BadInput(f"{name}, line {at}: {error}{more}") from None
    if not isinstance(value, dict):
        raise BadInput(f"{name}, line {at}: {_no_object(value)}")
    return value


def _no_object(value: object) -> str:
    return f'expected an object like {{"x": 1}}, got {quote_cell(value)}'


# -- the elements of an array ---------------------------------------------------------------------
_BLANK = " \t\r\n"


class Elements:
    """The elements of an array, each with the number of the line that it begins on."""

    def __init__(self, source: OpenFile) -> None:
        self.name, self.blocks = source.name, source.blocks()
        self.text, self.at, self.line = "", 0, 1  # line: of the character at `at`
        self.decoder = codecs.getincrementaldecoder("utf-8-sig")()

    def __iter__(self) -> Iterator[tuple[int, Any]]:
        self._expect("[")
        mark = self._next()
        while mark != "]":
            at = self.line
            yield at, self._value()
            mark = self._next()
            if mark == ",":
                self._go(1)
                mark = self._next()
                if mark == "]":
                    raise self._wrong("there is a comma before the end of the array")
            elif mark != "]":
                raise self._wrong("a comma or the end of the array is expected")
        self._go(1)
        if self._next():
            raise self._wrong("the array is followed by something else")

    def _next(self) -> str:
        """The next character that is not blank; nothing at the end."""
        while True:
            rest = len(self.text)
            start = self.at
            while start < rest and self.text[start] in _BLANK:
                start += 1
            self._go(start - self.at)
            if start < rest:
                return self.text[start]
            if not self._more():
                return ""

    def _go(self, n: int) -> None:
        self.line += self.text.count("\n", self.at, self.at + n)
        self.at += n

    def _more(self) -> bool:
        """Take the next piece of the file; what is done with goes."""
        block = next(self.blocks, None)
        try:
            text = self.decoder.decode(block or b"", final=block is None)
        except UnicodeDecodeError as error:
            raise BadInput(
                f"{self.name}: byte 0x{error.object[error.start]:02x} after line {self.line} is "
                "not UTF-8 text. Save the file as UTF-8"
            ) from None
        self.text, self.at = self.text[self.at :] + text, 0
        return block is not None

    def _expect(self, mark: str) -> None:
        if self._next() != mark:
            raise self._wrong(f"{mark!r} is expected")
        self._go(1)

    def _value(self) -> Any:
        """The value that begins here. It may go on in the next piece; what is still wrong at the
        same character when that is there is no JSON.
        """
        before = None
        while True:
            try:
                value, end = json_at(self.text, self.at)
            except json.JSONDecodeError as error:
                place = error.pos - self.at
                if place == before or not self._more():
                    raise self._wrong(str(error.msg), place) from None
                before = place
                continue
            except BadInput as error:
                raise self._wrong(str(error)) from None
            if end < len(self.text) or not self._more():  # a number may go on
                self._go(end - self.at)
                return value

    def _wrong(self, what: str, further: int = 0) -> BadInput:
        line = self.line + self.text.count("\n", self.at, self.at + further)
        end = "" if self.text[self.at :].strip() else ", and the file ends"
        return BadInput(f"{self.name}, line {line}: this is not JSON ({what}{end})")
