"""What an expert that forgets has left of sums that grow.

Only totals of all rows are accounted for from node to node. How much they have grown since they
were solved last is what such an expert learns, and by as many rows it forgets. What it has left is
not stored: after a restart it begins with everything again, and forgets from there on.
"""

from __future__ import annotations

from dataclasses import dataclass

from dokl.methods.squares import shared
from dokl.methods.squares.blocks import NotDefinite
from dokl.methods.squares.memory import Numbers
from dokl.methods.squares.sums import Sums


@dataclass(frozen=True)
class Kept:
    """total: the sums as they were, all rows. left: what was left of them."""

    total: Sums
    left: Sums


def forgetting(before: Kept | None, total: Sums, numbers: Numbers) -> Kept:
    """What is left of the total now; rows that were taken away are in it no more."""
    if before is None or total.rows < before.total.rows:
        return Kept(total, total)
    came = total - before.total
    try:
        memory = shared.learned(before.left, numbers.rho)
        left = shared.forgotten(numbers, before.left, memory, came.rows)
    except NotDefinite:  # by rounding: it begins again
        return Kept(total, total)
    return Kept(total, left + came)
