"""Frozen copies that a bank keeps of itself while it learns, to see how they age (`drift`).

Copies are taken after rows that depend on their count alone, and kept up to the next pilot: they
share the map of the bank, so they cost one vector for each expert, and no features.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dokl.base.arrays import Array
from dokl.base.background import Each
from dokl.learning.drift import Drift, add, start, without_copies
from dokl.learning.experts.bank import AT_ONCE, Bank, Generation, Prediction, features
from dokl.learning.squares.memory import Memory

Snapshot = tuple[int, tuple[Memory, ...]]  # rows before it, experts

PER_OCTAVE = 4  # copies while the count of rows doubles
CLOSEST = 32  # rows between copies, at least
# Rows by which copies are judged: so many after each is taken, then one of EVERY.
FIRST, EVERY = 16, 8
FEW = 500  # of fewer rows than this, `fit` judges by all
FADING = 0.5 ** (1.0 / PER_OCTAVE)  # of what was counted, with each copy


def watched(bank: Bank) -> Bank:
    """The bank, keeping copies of itself from now on."""
    return replace(bank, drift=start(bank.m))


def spacing(seen: int) -> int:
    """Rows between copies after so many rows."""
    return max(CLOSEST, (1 << max(1, seen).bit_length()) // (2 * PER_OCTAVE))


def rows_left(bank: Bank) -> int:
    """Rows before the next copy is taken. Banks that keep none count alike: they learn the same, to
    the last bit.
    """
    apart = spacing(bank.seen)
    return apart - bank.seen % apart


def kept(bank: Bank) -> Bank:
    """The bank with a copy of itself, if it is time for one. A copy that is followed by more rows
    than it has learned is dropped.
    """
    known, now, seen = bank.drift, bank.now, bank.seen
    if known is None or now is None or seen % spacing(seen) or not known.since:
        return bank
    known, weights = _younger(known, seen), bank.weights
    C, unsure, sd = len(known.rows), known.unsure / known.since, known.sd / known.since
    experts = np.union1d(known.experts, np.flatnonzero(weights > 0))
    was = {e: u for u, e in enumerate(known.experts.tolist())}
    W, V = np.zeros((C + 1, len(experts))), np.zeros((C + 1, len(experts), bank.m))
    thetas = []
    for u, e in enumerate(experts.tolist()):
        memory = bank.memories[e]
        before = np.zeros((C, *memory.theta.shape))
        if e in was:
            before = known.thetas[was[e]]
            W[:C, u], V[:C, u] = known.weights[:, was[e]], known.variance[:, was[e]]
        thetas.append(np.concatenate([before, memory.theta[None]]))
        W[C, u], V[C, u] = weights[e], memory.noise * (1.0 + unsure[e]) * now.targets.size**2
    rows, spread = np.append(known.rows, seen), np.concatenate([known.spread, sd[None]])
    made = Drift(FADING * known.counts, rows, experts, W, V, spread, tuple(thetas))
    return replace(bank, drift=made)


def _younger(known: Drift, seen: int) -> Drift:
    """Copies that no more rows followed than they have learned, and the experts that these use."""
    young = known.rows * 2 >= seen
    used = np.flatnonzero((known.weights[young] > 0).any(axis=0))
    thetas = (known.thetas[u][young] for u in used.tolist())
    return replace(
        known,
        rows=known.rows[young],
        experts=known.experts[used],
        weights=known.weights[young][:, used],
        variance=known.variance[young][:, used],
        spread=known.spread[young],
        thetas=tuple(thetas),
    )


class Judged:
    """Rows X: (n, d) by which the copies of a bank are judged, before it learns them.

    Z: the features of all rows, for the experts that are awake and those of copies; None where no
    copy is judged.
    """

    def __init__(self, bank: Bank, now: Generation, X: Array, each: Each) -> None:
        self.now, self.row = now, bank.seen + np.arange(len(X))
        self.Z: dict[int, Array] | None = None
        known, apart = bank.drift, spacing(bank.seen)  # the same for all: it changes with a copy
        if known is None or not len(known.rows) or bank.awake is None:
            return
        self.some = np.flatnonzero((self.row % apart < FIRST) | (self.row % EVERY == 0))
        if len(self.some):
            which = np.union1d(np.flatnonzero(bank.awake), known.experts)
            self.Z = features(bank, now, X, which.tolist(), each)

    def counted(self, bank: Bank, Y: Array, told: Prediction, unsure: Array) -> Bank:
        """The bank after these rows, with the scores of its copies counted, and its own.

        Y: (n, m) targets; told: what it predicted; unsure: (n, E), z'Pz.
        """
        known = bank.drift
        if known is None:
            return bank
        sd, counts = np.sqrt(told.variance), known.counts
        if self.Z is not None:
            some, row = self.some, self.row[self.some]
            Z = [self.Z[e][some] for e in known.experts.tolist()]
            off, size = _of_copies(known, self.now, Z, Y[some])
            distance = np.append(row + 1 - known.rows[:, None], 0 * row)
            off = np.concatenate([off.reshape(-1, bank.m), np.abs(Y - told.mean)[some]])
            own = np.concatenate([size.reshape(-1, bank.m), sd[some]])
            even = np.concatenate([known.spread, known.spread[-1:]]).repeat(len(some), axis=0)
            scores = (off / np.maximum(each, 1e-300) for each in (own, even))
            counts = np.stack([add(c, distance, r) for c, r in zip(counts, scores, strict=True)])
        sums = {"unsure": known.unsure + unsure.sum(axis=0), "sd": known.sd + sd.sum(axis=0)}
        since = known.since + len(Y)
        return replace(bank, drift=replace(known, counts=counts, since=since, **sums))


# -- `fit` ---------------------------------------------------------------------------------------
def snaps(at: int, n: int) -> bool:
    """Whether a snapshot is taken before this row of n, which begins a block."""
    apart = max(1, -(-n // AT_ONCE) // PER_OCTAVE) * AT_ONCE
    return at % apart == 0


def aged(
    bank: Bank,
    now: Generation | None,
    taken: list[Snapshot],
    rows: tuple[Array, Array, Array],
    which: Array,
    V: Array,
    told: Prediction,
) -> Drift:
    """What snapshots say of the rows after them, counted: those of one sweep over rows, of which
    `which` (their numbers, in order) are counted, by maps `now`, with the weights that the bank has
    after it.

    V: (n, E, m) the experts' variances before these rows were learned; told: what the bank says of
    them, and of others after.
    """
    made, n = start(bank.m), len(which)
    taken = [(at, memories) for at, memories in taken if _soon(which, at).any()]
    if now is None or not taken:
        return made
    X, Y, _ = (part[which] for part in rows)
    off, sd = np.abs(Y - told.mean[:n]), np.sqrt(told.variance[:n])
    at, experts = np.array([row for row, _ in taken]), np.flatnonzero(bank.weights > 0)
    soon = [_soon(which, row) for row, _ in taken]
    known = replace(
        made,
        rows=at,
        experts=experts,
        weights=np.tile(bank.weights[experts], (len(at), 1)),
        variance=np.stack([V[each][:, experts].mean(axis=0) for each in soon]),
        spread=np.stack([sd[each].mean(axis=0) for each in soon]),
        thetas=tuple(np.stack([known[e].theta for _, known in taken]) for e in experts.tolist()),
    )
    every, close = min(EVERY, max(1, n // FEW)), np.abs(which[:, None] - at) < FIRST
    some = np.flatnonzero((np.arange(n) % every == 0) | close.any(axis=1))
    some = some[which[some] >= at.min()]
    own, even = made.counts
    for i in range(0, len(some), AT_ONCE):
        part = some[i : i + AT_ONCE]
        Z = features(bank, now, X[part], experts.tolist())
        off_c, size = _of_copies(known, now, [Z[e] for e in experts.tolist()], Y[part])
        distance = which[part] + 1 - at[:, None]
        after = distance > 0
        newest = known.spread[after.sum(axis=0) - 1]
        steps = np.append(distance[after], 0 * part)
        errors = np.concatenate([off_c[after], off[part]])
        sizes = np.concatenate([size[after], sd[part]])
        evenly = np.broadcast_to(known.spread[:, None], size.shape)[after]
        own = add(own, steps, errors / np.maximum(sizes, 1e-300))
        evenly = np.maximum(np.concatenate([evenly, newest]), 1e-300)
        even = add(even, steps, errors / evenly)
    return without_copies(np.stack([own, even]))


def _soon(which: Array, at: int) -> Array:
    """Which of these rows follow a snapshot soon: (n,)."""
    return np.asarray((which >= at) & (which < at + AT_ONCE))


def _of_copies(known: Drift, now: Generation, Z: list[Array], Y: Array) -> tuple[Array, Array]:
    """Errors and standard deviations, (C, n, m) each, of C copies for rows whose features are Z:
    (n, D) for each of their experts, with targets Y: (n, m).
    """
    (n, m), C = Y.shape, len(known.rows)
    F = np.empty((C, n, len(Z), m))
    for u, (z, theta) in enumerate(zip(Z, known.thetas, strict=True)):
        each = z @ theta.reshape(C * m, -1).T
        F[:, :, u] = each.reshape(n, C, m).transpose(1, 0, 2)
    F = now.targets.outward(F)
    mean = np.einsum("cu,cnum->cnm", known.weights, F)
    spread = known.variance[:, None] + (F - mean[:, :, None]) ** 2
    return np.abs(Y - mean), np.sqrt(np.einsum("cu,cnum->cnm", known.weights, spread))
