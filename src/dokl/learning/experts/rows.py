"""Every expert predicts rows and learns them; one whose matrix is spoiled is repaired.

Experts that have long been useless sleep, at no cost, and wake when predictions surprise. Every
CHECK rows: who has had no weight at PATIENCE checks in a row goes to sleep. When errors since the
last check were larger than predicted (mean squared score above ALARM), the world has changed:
everybody wakes, learns the rows that are kept, and is weighed again. A pilot wakes everybody, too;
who has still no weight at the check after it goes back to sleep.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from dokl.base.arrays import Array
from dokl.base.background import Each
from dokl.learning.experts.bank import Bank, PilotMaps, extents, features, numbers_of
from dokl.learning.experts.pilots import relearn
from dokl.learning.squares import blocks, sums
from dokl.learning.squares.blocks import Found, NotDefinite
from dokl.learning.squares.memory import Memory

CHECK = 1024
PATIENCE = 4
ALARM = 2.0
MOST_SURPRISING = 100.0  # one wild target is no alarm


class RepairNotice(UserWarning):
    """A matrix lost its definiteness to rounding, and was made again."""


def learn_rows(
    bank: Bank,
    now: PilotMaps,
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
    Z = features(bank, now, X, which, each, learning=True) if made is None else made
    extent = extents(bank, now, X)[1]
    weight = None if (w == 1.0).all() else w

    def one(i: int) -> tuple[Memory, Found, int]:
        numbers = numbers_of(bank, now, i)
        try:
            return *blocks.learn(numbers, bank.memories[i], Z[i], y, weight), 0
        except NotDefinite:
            memory = _repair(bank, now, i)
            return *blocks.learn(numbers, memory, Z[i], y, weight), 1

    known, totals, mended, results = (
        list(bank.memories),
        list(bank.sums),
        bank.mended,
        list[Found](),
    )
    for i, (memory, found, times) in zip(which, each(one, which), strict=True):
        known[i], mended, kept = memory, mended + times, totals[i]
        totals[i] = None if kept is None else sums.add(kept, Z[i], y, found.weight)
        results.append(found)
    about = {"memories": tuple(known), "sums": tuple(totals), "mended": mended, "extent": extent}
    return replace(bank, **about), results  # type: ignore[arg-type]


def _repair(bank: Bank, now: PilotMaps, i: int) -> Memory:
    """An expert whose matrix rounding has spoiled, from its sums or from the rows that are kept."""
    warnings.warn(
        f"expert {i} ({bank.kinds[i].text}) lost the definiteness of its matrix to rounding after "
        f"{bank.seen:,} rows, and was rebuilt from stored rows",
        RepairNotice,
        stacklevel=2,
    )
    kept = bank.sums[i]
    if kept is not None:
        return sums.solve(kept, numbers_of(bank, now, i).rho)
    return relearn(bank, now, [i])[0][i]


# -- sleep ---------------------------------------------------------------------------------------
def surprised(bank: Bank, scores: Array) -> Bank:
    """Take note of squared scores (n, m), errors in standard deviations."""
    total, count = bank.surprise
    squares = np.minimum(scores * scores, MOST_SURPRISING)
    return replace(bank, surprise=(total + float(squares.sum()), count + squares.size))


def checked(bank: Bank, now: PilotMaps, seen: int) -> Bank:
    """The bank after its check, if it is time: seen rows, all of them kept by now."""
    awake = bank.awake
    if seen % CHECK or awake is None:
        return bank
    total, count = bank.surprise
    alarm = count > 0 and total > ALARM * count
    bank = replace(bank, surprise=(0.0, 0))
    if alarm:
        return woken(bank, now)
    useless = bank.weights == 0.0
    idle = np.where(useless, bank.idle + 1, 0)
    return replace(bank, idle=idle, awake=awake & (idle < PATIENCE))


def woken(bank: Bank, now: PilotMaps) -> Bank:
    """Sleeping experts learn the rows that are kept, and take part again."""
    assert bank.awake is not None
    asleep = np.flatnonzero(~bank.awake).tolist()
    known = list(bank.memories)
    for i, memory in relearn(bank, now, asleep)[0].items():
        known[i] = memory
    everybody = np.ones(len(known), bool)
    return replace(bank, memories=tuple(known), awake=everybody, idle=np.zeros(len(known), int))
