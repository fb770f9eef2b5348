"""One JSON array of objects, pretty-printed or not, a piece of the file at a time."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from typing import Any

from dokl.base.errors import BadInput
from dokl.tables.readers.open_file import OpenFile
from dokl.tables.readers.parsing import json_at

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
                    raise self._wrong("a comma stands before the end of the array")
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
