"""What experts that forget have left of the sums of each origin.

Sums of all rows travel, and nothing else is accounted for from node to node. By how much those of
an origin have grown since they were solved last is what came of it, and by as many rows as came of
all the expert forgets. Rows count by their weight, which the sums bear out, and not by the number
that an origin gives: rows of no weight make nobody forget. What is left is kept by origin: who is
left out is left out here, too.

It is not stored. Of an origin that is new here, after a restart say, as many rows count as the
expert remembers; of one that has a new life as many as it has more than before, without regard to
which ones, since it may have lost some.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import reduce

import numpy as np

from dokl.learning.squares import sums as added_up
from dokl.learning.squares.sums import Sums
from dokl.network.sums.origins import Account, Entry


@dataclass(frozen=True)
class Fading:
    """An expert that forgets: of how many rows, and how many features it uses, the first ones."""

    memory: float
    D: int


@dataclass(frozen=True)
class Remainder:
    """Of one origin. entry: as it was. left: what is left of it to each expert that forgets."""

    entry: Entry
    left: tuple[Sums, ...]


def remainders_now(
    remainders: Mapping[str, Remainder],
    account: Account,
    without: Collection[str],
    experts: tuple[Fading, ...],
) -> dict[str, Remainder]:
    """What is left of each origin, now that the account says this; rows of those that are left out
    make nobody forget.
    """
    new = sum(
        _new_weight(remainders.get(name), account[name]) for name in account if name not in without
    )
    found = {}
    for name, entry in account.items():
        old = remainders.get(name)
        left = [_left(old, entry, i, each, new) for i, each in enumerate(experts)]
        found[name] = Remainder(entry, tuple(left))
    return found


def totals(remainders: Mapping[str, Remainder], whom: Collection[str]) -> list[Sums]:
    """What each expert has left of these origins together."""
    by_expert = zip(*(remainders[name].left for name in sorted(whom)), strict=True)
    return [reduce(Sums.__add__, every) for every in by_expert]


def _new_weight(old: Remainder | None, entry: Entry) -> float:
    return 0.0 if old is None else max(0.0, entry.sums.weight - old.entry.sums.weight)


def _left(old: Remainder | None, entry: Entry, number: int, expert: Fading, new: float) -> Sums:
    sums = added_up.narrow(entry.sums, expert.D)
    if old is None:
        return added_up.times(sums, min(1.0, expert.memory / max(sums.weight, 1.0)))
    gone = (1.0 - 1.0 / expert.memory) ** new
    before, left = old.entry, added_up.times(old.left[number], gone)
    if before is entry or _same(before.sums, entry.sums):  # perhaps under another seal
        return left
    if before.incarnation == entry.incarnation and sums.rows >= before.sums.rows:
        return left + (sums - added_up.narrow(before.sums, expert.D))
    more = _new_weight(old, entry) / max(sums.weight, 1.0)
    return left + added_up.times(sums, more) if more else _share(left, sums)


def _same(one: Sums, other: Sums) -> bool:
    """Whether these are of the same rows; compared as they are, since packed they take as much
    room again, for each origin.
    """
    counts = (one.rows, one.weight) == (other.rows, other.weight)
    pairs = (one.yy, other.yy), (one.zy, other.zy), (one.zz, other.zz)
    return counts and all(np.array_equal(a, b) for a, b in pairs)


def _share(left: Sums, sums: Sums) -> Sums:
    """A like share of rows, some of which were taken back."""
    return added_up.times(sums, min(1.0, left.weight / max(sums.weight, 1e-300)))
