"""Every expert predicts rows and learns them; one whose matrix is spoiled is repaired."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace

from dokl.base.arrays import Array
from dokl.base.background import Each
from dokl.learning.experts.bank import Bank, Generation, features, numbers_of
from dokl.learning.experts.pilots import relearned
from dokl.learning.squares import blocks, sums
from dokl.learning.squares.blocks import Found, NotDefinite
from dokl.learning.squares.memory import Memory


class MendedNotice(UserWarning):
    """A matrix lost its definiteness to rounding, and was made anew."""


def learn_rows(
    bank: Bank,
    now: Generation,
    which: Sequence[int],
    X: Array,
    Y: Array,
    w: Array,
    each: Each,
    made: Mapping[int, Array] | None = None,
) -> tuple[Bank, list[Found]]:
    """The bank after these experts have learned rows X: (n, d), Y: (n, m) of weight w: (n,), and
    what each of them predicted; the mixture stays as it is. made: the features of X, if they are.
    """
    y = now.targets.inward(Y)
    Z = features(bank, now, X, which, each) if made is None else made
    weight = None if (w == 1.0).all() else w

    def one(i: int) -> tuple[Memory, Found, int]:
        numbers = numbers_of(bank, now, i)
        try:
            return *blocks.learn(numbers, bank.memories[i], Z[i], y, weight), 0
        except NotDefinite:
            memory = _mended(bank, now, i)
            return *blocks.learn(numbers, memory, Z[i], y, weight), 1

    known, totals, mended, told = list(bank.memories), list(bank.sums), bank.mended, list[Found]()
    for i, (memory, found, times) in zip(which, each(one, which), strict=True):
        known[i], mended, kept = memory, mended + times, totals[i]
        totals[i] = None if kept is None else sums.added(kept, Z[i], y, found.weight)
        told.append(found)
    return replace(bank, memories=tuple(known), sums=tuple(totals), mended=mended), told


def _mended(bank: Bank, now: Generation, i: int) -> Memory:
    """An expert whose matrix rounding has spoiled, from its sums or from the rows that are kept."""
    warnings.warn(
        f"expert {i} ({bank.kinds[i].text}) lost the definiteness of its matrix to rounding after "
        f"{bank.seen:,} rows, and was rebuilt from stored rows",
        MendedNotice,
        stacklevel=2,
    )
    kept = bank.sums[i]
    if kept is not None:
        return sums.solved(kept, numbers_of(bank, now, i).rho)
    return relearned(bank, now, [i])[0][i]
