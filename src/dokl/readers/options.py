"""What is said about a file to read: one record, from the command line to the readers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dokl.errors import BadInput

MOST_ROWS = 8192
CHUNK_BYTES = 1 << 21


@dataclass(frozen=True)
class Options:
    """How to read a file, and what of it; where names are wanted, one may stand alone.

    format: one of `FORMATS`; None looks at the file's name, then at its first line. chunk: rows at
    a time; None takes 8192, fewer where lines are long. columns: those wanted, drop: those not
    wanted; others are not converted. text, numeric: columns that hold that, whatever their first
    rows look like. header: False for a CSV file without one (columns are then x1..xd); True takes
    the first line for names even if they look like numbers. delimiter: None finds , ; or tab in
    the header. n_features: for LIBSVM; without it a file is read twice, and stdin refused.
    zero_based: LIBSVM features are numbered from 0. compiled: False where loading Numba, and at
    first compiling, would take longer than it saves; the numbers are the same.

    >>> Options(drop="id", delimiter=";").drop
    ('id',)
    """

    format: str | None = None
    chunk: int | None = None
    columns: Sequence[str] | None = None
    drop: Sequence[str] = ()
    text: Sequence[str] = ()
    numeric: Sequence[str] = ()
    header: bool | None = None
    delimiter: str | None = None
    n_features: int | None = None
    zero_based: bool = False
    compiled: bool = True

    def __post_init__(self) -> None:
        """Check what can be checked without the file."""
        for field in ("columns", "drop", "text", "numeric"):
            names = getattr(self, field)
            if names is not None:
                object.__setattr__(self, field, (names,) if isinstance(names, str) else (*names,))
        for field in ("chunk", "n_features"):
            value = getattr(self, field)
            if value is not None and value < 1:
                raise BadInput(f"{field} must be at least 1, got {value}")
        mark = self.delimiter
        if mark is not None and (len(mark) != 1 or mark in '"\r\n'):
            raise BadInput(f"delimiter must be one character, and no quote; got {mark!r}")

    def rows(self, first_line: bytes) -> int:
        """Rows in a chunk: as told, or about 2 MiB of text and at most 8192."""
        return self.chunk or max(1, min(MOST_ROWS, CHUNK_BYTES // len(first_line)))
