"""Rows that cannot be used: errors, or passed over and written to a file, or where to stop."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from dokl.base.arrays import Array
from dokl.base.errors import BadInput, UnknownName
from dokl.tables.readers import Chunk, Options, Reader

MODES = ("stop", "skip")
HEADER = ("line", "reason", "row")


@dataclass
class OnError:
    """What to do with a row that cannot be used.

    mode: None makes it an error that leaves all files as they were; "stop" uses the rows before it
    and then raises, so that what was done by then is kept; "skip" passes over it, and writes it to
    `path` with its reason. count: rows passed over. fault: why it stopped.
    """

    mode: str | None = None
    path: Path | None = None
    count: int = 0
    fault: BadInput | None = None
    again: bool = False
    _line: int = field(default=0, repr=False)
    _file: Any = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.mode not in (None, *MODES):
            raise UnknownName("way to deal with errors", self.mode, MODES)

    def heard(self, options: Options) -> Options:
        """Options of a reader that tells of bad rows; as they are where a bad row is an error."""
        return options if self.mode is None else replace(options, refuse=self.refuse)

    def refuse(self, line: int, reason: BadInput, row: str) -> None:
        """A row that cannot be used."""
        if self.mode == "stop":
            if self.fault is None or line < self._line:
                self.fault, self._line = reason, line
            return
        if self.again:  # another pass over the same file
            return
        self.count += 1
        if self._file is None and self.path is not None:
            self._file = open(self.path, "w", encoding="utf-8", newline="")  # noqa: SIM115
            csv.writer(self._file).writerow(HEADER)
        if self._file is not None:
            csv.writer(self._file).writerow((line, reason, row))

    def chunks(self, reader: Reader) -> Iterator[Chunk]:
        """The chunks of a reader; where it is to stop, up to the row that is wrong."""
        for chunk in reader:
            if self.fault is None:
                yield chunk
                continue
            before = np.array([line < self._line for line in chunk.lines], bool)
            if before.any():
                yield chunk.rows(before)
            self.check(reader)
        self.check(reader)

    def check(self, reader: Reader) -> None:
        """Stop where a row was wrong, if it is to stop there."""
        if self.fault is not None:
            raise self.fault.at(f"{reader.name}, line {self._line}")

    def usable(self, chunk: Chunk, keep: Array, strange: dict[int, BadInput]) -> Array:
        """Which rows to keep (n,), of those kept so far, where some are strange: {row: why}."""
        keep = keep.copy()
        if self.mode == "stop":
            first = min(strange)
            self.refuse(chunk.lines[first], strange[first], "")
            keep[first:] = False
        for i, why in strange.items() if self.mode == "skip" else ():
            self.refuse(chunk.lines[i], why, _row(chunk, i))
            keep[i] = False
        return keep

    def close(self) -> None:
        """Close the file of refused rows."""
        if self._file is not None:
            self._file.close()

    @property
    def words(self) -> str:
        """How many rows were passed over, and where they are."""
        where = "" if self.path is None else f"; they are in {self.path}, with the reasons"
        rows = "row that cannot be used was" if self.count == 1 else "rows that cannot be used were"
        return f"{self.count:,} {rows} passed over{where}"


@contextmanager
def closing(faults: OnError) -> Iterator[None]:
    """Close the file of refused rows at the end."""
    try:
        yield
    finally:
        faults.close()


def _row(chunk: Chunk, i: int) -> str:
    return ", ".join(f"{name}={column[i]}" for name, column in chunk.columns.items())
