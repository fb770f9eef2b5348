"""A chunk of rows in parts: learned one after the other, with something to see in between.

Experts take their time for a row, and seconds at a pilot, where they learn length scales anew.
Parts end there, and wherever a snapshot of the model is taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dokl.arrays import Array
from dokl.estimators.auto import Auto
from dokl.experts.bank import AT_ONCE
from dokl.experts.kinds import PILOTS
from dokl.models import TableModel
from dokl.readers import Chunk

FIRST_SNAPSHOT = 32
COMPILING = "compiling, unless that was done before"


@dataclass(frozen=True)
class ChunkPart:
    """Rows to learn. y: targets of those to keep; nodes: of a network, theirs; classes: all labels
    there will be, the first time; doing: what takes long about it, if anything does.
    """

    chunk: Chunk
    y: Array
    keep: Array
    nodes: Any = None
    classes: Any = None
    doing: str = ""


def cut(model: TableModel, whole: ChunkPart) -> list[ChunkPart]:
    """The parts of a chunk, the whole where it is learned at once."""
    if not isinstance(model.estimator, Auto):
        return [whole if model.started else replace(whole, doing=COMPILING)]
    bank = getattr(model.estimator, "bank_", None)
    seen, pilots = (0, PILOTS) if bank is None else (bank.seen, bank.settings.pilots)
    there, parts = np.flatnonzero(whole.keep), []
    row = begin = 0
    for stop in stops(seen, len(there), pilots):
        end = stop - seen
        last = len(whole.keep) if end == len(there) else int(there[end - 1]) + 1
        doing = f"learning length scales at row {stop:,}" if stop in pilots else ""
        part = rows_of(whole.chunk, row, last), whole.y[begin:end], whole.keep[row:last]
        parts.append(ChunkPart(*part, classes=whole.classes if not begin else None, doing=doing))
        row, begin = last, end
    return parts or [whole]


def stops(seen: int, n: int, pilots: Sequence[int]) -> list[int]:
    """After which rows, of n that follow `seen`, a part ends.

    >>> stops(100, 500, (125, 250))
    [125, 128, 250, 256, 512, 600]
    """
    last = seen + n
    found = {last, *pilots, *range(AT_ONCE * (seen // AT_ONCE + 1), last, AT_ONCE)}
    found |= {1 << k for k in range(last.bit_length()) if is_snapshot(1 << k)}
    return sorted(stop for stop in found if seen < stop <= last)


def is_snapshot(seen: int) -> bool:
    """Whether a snapshot is taken after so many rows: at powers of two."""
    return seen >= FIRST_SNAPSHOT and not seen & (seen - 1)


def rows_of(chunk: Chunk, start: int, stop: int | None = None) -> Chunk:
    """Some rows of a chunk."""
    if not start and (stop is None or stop == chunk.n):
        return chunk
    return chunk.rows(slice(start, stop))
