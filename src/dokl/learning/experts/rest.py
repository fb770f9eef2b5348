"""Experts that have long been useless sleep, at no cost, and wake when predictions surprise.

Every CHECK rows: who has had no weight at PATIENCE checks in a row goes to sleep. When errors since
the last check were larger than predicted (mean squared score above ALARM), the world has changed:
everybody wakes, learns the rows that are kept, and is weighed anew. A pilot wakes everybody, too.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dokl.base.arrays import Array
from dokl.learning.experts.bank import Bank, Generation
from dokl.learning.experts.pilots import relearned

CHECK = 1024
PATIENCE = 4
ALARM = 2.0
MOST_SURPRISING = 100.0  # one wild target is no alarm


def surprised(bank: Bank, scores: Array) -> Bank:
    """Take note of squared scores (n, m), errors in standard deviations."""
    total, count = bank.surprise
    squares = np.minimum(scores * scores, MOST_SURPRISING)
    return replace(bank, surprise=(total + float(squares.sum()), count + squares.size))


def checked(bank: Bank, now: Generation, seen: int) -> Bank:
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


def woken(bank: Bank, now: Generation) -> Bank:
    """Whoever sleeps learns the rows that are kept, and takes part again."""
    assert bank.awake is not None
    asleep = np.flatnonzero(~bank.awake).tolist()
    known = list(bank.memories)
    for i, memory in relearned(bank, now, asleep)[0].items():
        known[i] = memory
    everybody = np.ones(len(known), bool)
    return replace(bank, memories=tuple(known), awake=everybody, idle=np.zeros(len(known), int))
