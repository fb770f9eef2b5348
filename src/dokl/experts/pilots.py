"""Pilots: what the rows so far say about scales, and experts that begin again with them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dokl import draws, scales
from dokl.arrays import Array
from dokl.experts.bank import Bank, Generation, features, numbers_of
from dokl.experts.maps import median_distance, nested_map
from dokl.experts.scaling import scaling_of, tamed
from dokl.methods.squares import blocks, sums
from dokl.methods.squares import memory as memories
from dokl.methods.squares.memory import Memory

# Centres are chosen among so many times as many rows.
CANDIDATES = 4


def pilot(bank: Bank, each: Callable[..., Iterable[Any]] = map) -> Bank:
    """Learn scales from the rows that are kept, make maps, and let all experts learn those rows."""
    X, Y, w = bank.kept.all()
    now, Y = generation(bank, X, Y, w), tamed(Y)
    bank = at_the_prior(replace(bank, now=now), now)
    y, Z = now.targets.inward(Y), features(bank, now, X)
    totals = tuple(
        None if kept is None else sums.added(kept, z, y, w * (bank.seen / max(1, len(X))))
        for kept, z in zip(bank.sums, Z, strict=True)
    )
    memories = relearned(bank, now, range(len(bank.kinds)), each)
    return replace(bank, memories=tuple(memories), sums=totals)


def at_the_prior(bank: Bank, now: Generation) -> Bank:
    """All experts awake, and knowing nothing."""
    known, totals = [], []
    for i, kind in enumerate(bank.kinds):
        D = now.maps[kind.features].width(kind.width)
        known.append(memories.start(D, bank.m, numbers_of(bank, now, i).rho))
        lasting = bank.settings.sums and kind.memory == math.inf
        totals.append(sums.nothing(D, bank.m) if lasting else None)
    awake = np.ones(len(bank.kinds), bool)
    rested = {"awake": awake, "idle": np.zeros(len(awake), int), "surprise": (0.0, 0)}
    return replace(bank, memories=tuple(known), sums=tuple(totals), **rested)  # type: ignore[arg-type]


def relearned(
    bank: Bank, now: Generation, which: Sequence[int], each: Callable[..., Iterable[Any]] = map
) -> list[Memory]:
    """Experts that have learned the rows that are kept. A sample stands for all rows seen; experts
    that forget want the newest rows in their order.
    """
    (X, Y, w), recent = bank.kept.all(), bank.kept.newest()
    sampled, share = bank.seen > len(X), bank.seen / max(1, len(X))
    Z, Z_recent = features(bank, now, X), features(bank, now, recent[0]) if sampled else []
    y, y_recent = (now.targets.inward(tamed(each)) for each in (Y, recent[1]))

    def one(i: int) -> Memory:
        numbers = numbers_of(bank, now, i)
        memory = memories.start(Z[i].shape[1], bank.m, numbers.rho)
        if sampled and numbers.lam < 1.0:
            return blocks.learn(numbers, memory, Z_recent[i], y_recent, recent[2])[0]
        return blocks.learn(numbers, memory, Z[i], y, w * share)[0]

    return list(each(one, which))


def generation(bank: Bank, X: Array, Y: Array, w: Array) -> Generation:
    """Scalings, scales and maps by these rows."""
    Y = tamed(Y)
    inputs, targets = scaling_of(X, w), scaling_of(Y, w)
    rows, y = inputs.clipped(X), targets.inward(Y)
    some = _some(bank.settings.seed, len(rows), scales.MOST)
    # From the start each time: where few rows looked linear, the slope around their scales is flat.
    found = scales.learned(rows[some], y[some])
    middle = median_distance(rows[some])
    centres = min(bank.settings.most, len(rows))
    among = rows[_some(bank.settings.seed, len(rows), CANDIDATES * centres)]
    maps = {}
    for base, kernel in dict.fromkeys(kind.features for kind in bank.kinds):
        own = found if base == "learned" else scales.isotropic(float(base) * middle, bank.d)
        maps[base, kernel] = nested_map(kernel, own, among, centres)
    return Generation(inputs, targets, found, maps)


def _some(seed: int, n: int, most: int) -> Array:
    """Numbers of at most so many of n rows, in order: always the same for a seed."""
    if n <= most:
        return np.arange(n)
    return np.sort(np.argsort(draws.uniforms(seed, ("pilot", n), n))[:most])
