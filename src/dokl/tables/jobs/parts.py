"""A chunk of rows in parts: learned one after the other, with something to see in between.

Experts take their time for a row, and seconds at a pilot, where they learn length scales again;
networks of them as well. Parts end there, wherever a snapshot of the model is taken, and where
somebody may want to stop; of a network at the end of a step. It learns the same as from the whole
where every node has a row in each step. Where some are missing it learns nearly the same: each part
finds the order among its nodes anew, by which one comes first, and a few steps become two (of six
nodes that miss 15 % of their rows, 203 steps instead of 200).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dokl.base.arrays import Array
from dokl.estimators.auto import Auto
from dokl.estimators.choices import in_order
from dokl.estimators.network import NetworkEstimator
from dokl.learning.experts.bank import AT_ONCE
from dokl.learning.experts.kinds import PILOTS
from dokl.tables.models import TableModel
from dokl.tables.readers import Chunk

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
    if not stands_still(model):
        return [whole if model.started else replace(whole, doing=COMPILING)]
    seen, pilots, there = rows_seen(model), _pilots(model), np.flatnonzero(whole.keep)
    ends = [stop - seen for stop in stops(seen, len(there), pilots)]
    if whole.nodes is not None:
        ends = _at_steps(ends, whole.nodes)
    parts, row, begin = list[ChunkPart](), 0, 0
    for end in ends:
        last = len(whole.keep) if end == len(there) else int(there[end - 1]) + 1
        pilot = next((p for p in pilots if seen + begin < p <= seen + end), None)
        doing = "" if pilot is None else f"learning length scales at row {pilot:,}"
        part = rows_of(whole.chunk, row, last), whole.y[begin:end], whole.keep[row:last]
        nodes = None if whole.nodes is None else whole.nodes[begin:end]
        parts.append(ChunkPart(*part, nodes, None if begin else whole.classes, doing))
        row, begin = last, end
    return parts or [whole]


def stands_still(model: TableModel) -> bool:
    """Whether a snapshot costs little beside the learning itself: of experts, and of networks."""
    return isinstance(model.estimator, Auto | NetworkEstimator)


def rows_seen(model: TableModel) -> int:
    """How many rows such a model has learned."""
    known = getattr(model.estimator, "bank_", getattr(model.estimator, "network_", None))
    return 0 if known is None else int(np.sum(known.seen))


def _pilots(model: TableModel) -> Sequence[int]:
    bank = getattr(model.estimator, "bank_", None)
    return PILOTS if bank is None else bank.settings.pilots


def _at_steps(ends: list[int], nodes: Sequence[str]) -> list[int]:
    """The ends of the steps that these rows are in, by the order among nodes in all of them."""
    names, owner = np.unique(np.array(nodes, str), return_inverse=True)
    index = in_order(len(names), owner)
    last = 1 + index.max(axis=1, initial=-1)  # rows up to the end of each step
    return sorted({int(last[np.searchsorted(last, end)]) for end in ends})


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
