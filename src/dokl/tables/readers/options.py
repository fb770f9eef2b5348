"""What is said about a file to read: one record, from the command line to the readers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dokl.base.errors import BadInput
from dokl.learning.cells.cells import MISSING
from dokl.learning.cells.forms import Form

# What takes a row that cannot be used: its line, why, and the row as text.
Refuse = Callable[[int, BadInput, str], None]
# Which rows are read, by their lines: (n,) whole numbers -> (n,) truth values.
Take = Callable[[Any], Any]

MOST_ROWS = 8192
CHUNK_BYTES = 1 << 21


@dataclass(frozen=True)
class Options:
    """How to read a file, and what of it; where names are wanted, one may stand alone.

    format: one of `FORMATS`; None looks at the file's name, then at its first line. chunk: rows at
    a time; None takes 8192, fewer where lines are long. columns: those wanted, drop: those not
    wanted; others are not converted. optional: columns of text that are read, too, if the file has
    them. text, numeric: columns that hold that, whatever their first
    rows look like. header: False for a CSV file without one (columns are then x1..xd); True takes
    the first line for names even if they look like numbers. delimiter: None finds , ; | or tab in
    the header. n_features: for LIBSVM; without it a file is read twice, and stdin refused.
    zero_based: LIBSVM features are numbered from 0. compiled: False where loading Numba, and at
    first compiling, would take longer than it saves; the numbers are the same.

    forms: how the cells of some columns are written, if that is known. decimal: the mark of all
    numbers, "." or ","; dates: "dmy" or "mdy", of dates that are all numbers. missing: spellings of
    a missing value instead of `MISSING`. refuse: takes the rows that cannot be used, which are then
    passed over; without it they are errors. quantity: a column, the target, whose numbers are
    never times that are counted. take: which rows are read, by their lines; None is all.

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
    forms: Mapping[str, Form] = field(default_factory=dict)
    decimal: str | None = None
    dates: str | None = None
    missing: Sequence[str] = MISSING
    refuse: Refuse | None = None
    quantity: str | None = None
    optional: Sequence[str] = ()
    take: Take | None = None

    def __post_init__(self) -> None:
        """Check what can be checked without the file."""
        for name in ("columns", "drop", "text", "numeric", "optional"):
            names = getattr(self, name)
            if names is not None:
                object.__setattr__(self, name, (names,) if isinstance(names, str) else (*names,))
        for name in ("chunk", "n_features"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise BadInput(f"{name} must be at least 1, got {value}")
        if self.missing is not MISSING:
            object.__setattr__(self, "missing", ("", *self.missing))
        for name, known in (("decimal", (".", ",")), ("dates", ("dmy", "mdy"))):
            if getattr(self, name) not in (None, *known):
                raise BadInput(f"{name} must be {' or '.join(known)}")
        mark = self.delimiter
        if mark is not None and (len(mark) != 1 or mark in '"\r\n'):
            raise BadInput(f"delimiter must be one character, and no quote; got {mark!r}")

    def rows(self, first_line: bytes) -> int:
        """Rows in a chunk: as told, or about 2 MiB of text and at most 8192."""
        return self.chunk or max(1, min(MOST_ROWS, CHUNK_BYTES // len(first_line)))
