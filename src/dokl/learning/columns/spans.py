"""A distance between two rows of a stream: a number of rows, or a time."""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass, field
from typing import Self

import numpy as np

from dokl.base.errors import BadInput

UNITS = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_TEXT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*")
MOST_ROWS = 100_000


@dataclass(frozen=True)
class Span:
    """`rows` rows, or `seconds` where `rows` is 0; text: as people write it.

    >>> Span.of(24), Span.of("24h").seconds, str(Span.of("1d")), Span.of("1d") == Span.of("24h")
    (Span(rows=24, seconds=0.0), 86400.0, '1d', True)
    """

    rows: int = 0
    seconds: float = 0.0
    text: str = field(default="0", compare=False, repr=False)

    @classmethod
    def of(cls, value: object, least: int = 1) -> Self:
        """A whole number of rows, or a time such as "24h", or a timedelta."""
        if isinstance(value, cls):
            return value
        if isinstance(value, datetime.timedelta | np.timedelta64):
            seconds = float(np.timedelta64(value, "us") / np.timedelta64(1, "s"))
            value = f"{seconds:g}s"
        whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
        found = _TEXT.fullmatch(str(value)) if whole or isinstance(value, str) else None
        if found is None or found[2] not in ("", *UNITS):
            raise _wrong(value)
        if found[2]:
            seconds = float(found[1]) * UNITS[found[2]]
            if seconds <= 0:
                raise _wrong(value)
            return cls(0, seconds, found[1] + found[2])
        if "." in found[1] or not least <= int(found[1]) <= MOST_ROWS:
            raise _wrong(value, least)
        return cls(int(found[1]), 0.0, str(int(found[1])))

    @property
    def timed(self) -> bool:
        """Whether it is a time, and not a number of rows."""
        return self.seconds > 0

    def __bool__(self) -> bool:
        return self.rows > 0 or self.timed

    def __str__(self) -> str:
        return self.text

    @property
    def words(self) -> str:
        """For sentences: "6 rows", "24h"."""
        return self.text if self.timed else f"{self.rows} row{'' if self.rows == 1 else 's'}"


def _wrong(value: object, least: int = 1) -> BadInput:
    units = ", ".join(UNITS)
    return BadInput(
        f"{value!r} is neither a number of rows, from {least} to {MOST_ROWS:,}, nor a time such as "
        f"'24h' (units: {units})"
    )
