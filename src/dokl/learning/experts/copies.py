"""Frozen copies that a bank keeps of itself while it learns, to see how they age (`drift`).

Copies are taken after rows that depend on their count alone, and kept up to the next pilot: they
share the map of the bank, so they cost one vector for each expert, and no features. Beside each
stands what else could predict (`rivals`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dokl.base.arrays import Array
from dokl.base.background import Each
from dokl.learning.drift import Drift, add, start, without_copies
from dokl.learning.experts import rivals
from dokl.learning.experts.bank import AT_ONCE, Bank, PilotMaps, Prediction, features
from dokl.learning.experts.rivals import Beside, Rivals
from dokl.learning.squares.memory import Memory

Rows = tuple[Array, Array, Array]
Snapshot = tuple[int, tuple[Memory, ...]]  # rows before it, experts

PER_OCTAVE = 4  # copies while the count of rows doubles
CLOSEST = 8  # rows between copies, at least
# Rows by which copies are judged: this many after each is taken, then one of EVERY.
FIRST, EVERY = 16, 8
SOON = 0.5  # of the rows that a copy has learned: what stands beside it is weighed by these
FEW = 500  # of fewer rows than this, `fit` judges by all
FADING = 0.5 ** (1.0 / PER_OCTAVE)  # of what was counted, with each copy


def watch(bank: Bank) -> Bank:
    """The bank, keeping copies of itself from now on."""
    return replace(bank, drift=start(bank.m))


def spacing(seen: int) -> int:
    """Rows between copies after n rows."""
    return max(CLOSEST, (1 << max(1, seen).bit_length()) // (2 * PER_OCTAVE))


def rows_left(bank: Bank) -> int:
    """Rows before the next copy is taken. Banks that keep none count alike: they learn the same, to
    the last bit.
    """
    apart = spacing(bank.seen)
    return apart - bank.seen % apart


def keep_copy(bank: Bank) -> Bank:
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
    return replace(bank, drift=made, rivals=_keep_rivals(bank, C))


def _keep_rivals(bank: Bank, C: int) -> Rivals | None:
    """With a copy, beside the newest C there are."""
    if bank.rivals is None:
        return None
    young = bank.rivals.copies[max(0, len(bank.rivals.copies) - C) :]
    return rivals.with_copy(rivals.faded(replace(bank.rivals, copies=young), FADING))


def no_more(bank: Bank) -> Bank:
    """The bank with what its copies showed, and without them: it has a new map."""
    if bank.drift is None:
        return bank
    beside = None if bank.rivals is None else replace(bank.rivals, copies=())
    return replace(bank, drift=without_copies(bank.drift.counts), rivals=beside)


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


class CopyScores:
    """Rows X: (n, d) by which the copies of a bank are judged, before it learns them.

    Z: the features of all rows, for the experts that are awake and those of copies; None where no
    copy is judged.
    """

    def __init__(self, bank: Bank, now: PilotMaps, X: Array, each: Each) -> None:
        self.now, self.X, self.row = now, X, bank.seen + np.arange(len(X))
        self.beside = bank.rivals
        if bank.settings.beside and bank.drift is not None and self.beside is None:
            self.beside = rivals.start(*bank.stored.all())
        self.Z: dict[int, Array] | None = None
        known, apart = bank.drift, spacing(bank.seen)  # the same for all: it changes with a copy
        self.apart = apart
        if known is None or not len(known.rows) or bank.awake is None:
            return
        self.some = np.flatnonzero((self.row % apart < FIRST) | (self.row % EVERY == 0))
        if len(self.some):
            which = np.union1d(np.flatnonzero(bank.awake), known.experts)
            self.Z = features(bank, now, X, which.tolist(), each, learning=True)

    def counted(
        self, bank: Bank, Y: Array, weight: Array, prediction: Prediction, unsure: Array
    ) -> Bank:
        """The bank after these rows, with the scores of its copies counted, and its own.

        Y: (n, m) targets of weight (n,); prediction: what it predicted; unsure: (n, E), z'Pz.
        """
        known, beside = bank.drift, self.beside
        if known is None:
            return bank
        sd, counts, bound = np.sqrt(prediction.variance), known.counts, bank.settings.bound
        reach = bound * sd if bound < math.inf else math.inf
        tame = np.clip(Y, prediction.mean - reach, prediction.mean + reach)
        if self.Z is not None:
            some, row, (own, even) = self.some, self.row[self.some], counts
            mean, size = _of_copies(known, self.now, [self.Z[e][some] for e in known.experts])
            after, off = row + 1 - known.rows[:, None], np.abs(Y[some] - mean)
            last = 0 * row, np.abs(Y - prediction.mean)[some], sd[some]
            spread = np.broadcast_to(known.spread[:, None], size.shape)
            own = _add_scores(own, (after, off, size), last)
            even = _add_scores(even, (after, off, spread), (*last[:2], spread[-1]))
            counts = np.stack([own, even])
            if beside is not None:
                beside = self._compare(beside, (after, mean, size), Y, tame)
        if beside is not None:
            beside = rivals.with_rows(beside, self.X, tame, weight)
        sums = {"unsure": known.unsure + unsure.sum(axis=0), "sd": known.sd + sd.sum(axis=0)}
        made = replace(known, counts=counts, since=known.since + len(Y), **sums)
        return replace(bank, drift=made, rivals=beside)

    def _compare(self, beside: Rivals, of_copies: Rows, Y: Array, tame: Array) -> Rivals:
        """What stands beside copies after some of these rows, with targets Y and tamed ones.

        of_copies: distances (C, n), what copies predict and its standard deviation, (C, n, m).
        """
        C, some = len(beside.copies), self.some
        after, f, size = (part[len(part) - C :] for part in of_copies)
        learned = self.row[some] + 1 - after
        stands = np.where(self.row[some] % self.apart < FIRST, 1.0, EVERY)
        given = f, self.X[some], tame[some], stands, after <= SOON * learned
        spread = _beside_spread(beside.copies[-1:] * C, size)
        beside, predicted = rivals.judged(beside, *given)
        off = np.abs(Y[some] - predicted)
        counts = _add_scores(beside.counts, (after, off, spread), (0 * after, off, spread))
        return replace(beside, counts=counts)


# -- `fit` ---------------------------------------------------------------------------------------
def snaps(at: int, n: int) -> bool:
    """Whether a snapshot is taken before this row of n, which begins a block."""
    apart = max(1, -(-n // AT_ONCE) // PER_OCTAVE) * AT_ONCE
    return at % apart == 0


def aged(
    bank: Bank,
    now: PilotMaps | None,
    taken: list[Snapshot],
    rows: Rows,
    which: Array,
    V: Array,
    prediction: Prediction,
) -> tuple[Drift, Rivals | None]:
    """What snapshots say of the rows after them, counted, and what stands beside them: those of one
    sweep over rows, of which `which` (their numbers, in order) are counted, by maps `now`, with the
    weights that the bank has after it.

    V: (n, E, m) the experts' variances before these rows were learned; prediction: of them
    and of others after.
    """
    made, n = start(bank.m), len(which)
    taken = [(at, memories) for at, memories in taken if _soon(which, at).any()]
    at = np.array([row for row, _ in taken])
    some = _counted(which, at)
    if now is None or not len(some):
        return made, None
    X, Y, _ = (part[which] for part in rows)
    off, sd = np.abs(Y - prediction.mean[:n]), np.sqrt(prediction.variance[:n])
    known = _as_copies(bank, taken, which, V, sd)
    mean, size = _predicted(bank, now, known, X[some])
    after = which[some] + 1 - at[:, None]
    late, last = after > 0, (0 * some, off[some], sd[some])
    newest = known.spread[late.sum(axis=0) - 1]
    spread = np.broadcast_to(known.spread[:, None], size.shape)
    own, even = made.counts

    def parts(predicted: Array, size: Array) -> Rows:
        return after[late], np.abs(Y[some] - predicted)[late], size[late]

    own = _add_scores(own, parts(mean, size), last)
    even = _add_scores(even, parts(mean, spread), (*last[:2], newest))
    beside = None
    if bank.settings.beside and at.min() > 0:
        beside, predicted, wide = _age_rivals(rows, at, mean, size, which[some], late)
        steps, off, wide = parts(predicted, wide)
        counts = _add_scores(beside.counts, (steps, off, wide), (0 * steps, off, wide))
        beside = replace(beside, counts=counts)
    return without_copies(np.stack([own, even])), beside


def _counted(which: Array, at: Array) -> Array:
    """Which of these rows count, by their place: some at even distances, and all soon after one of
    the snapshots, which were taken before rows `at`: (C,). None before the first of them.
    """
    if not len(at):
        return np.empty(0, int)
    n = len(which)
    every, close = min(EVERY, max(1, n // FEW)), np.abs(which[:, None] - at) < FIRST
    some = np.flatnonzero((np.arange(n) % every == 0) | close.any(axis=1))
    return np.asarray(some[which[some] >= at.min()])


def _as_copies(bank: Bank, taken: list[Snapshot], which: Array, V: Array, sd: Array) -> Drift:
    """Snapshots as copies, with the bank's weights. V: (n, E, m), sd: (n, m): experts' variances
    and standard deviations of the mixture for rows `which`, before they were learned.
    """
    experts = np.flatnonzero(bank.weights > 0)
    soon = [_soon(which, row) for row, _ in taken]
    return replace(
        start(bank.m),
        rows=np.array([row for row, _ in taken]),
        experts=experts,
        weights=np.tile(bank.weights[experts], (len(taken), 1)),
        variance=np.stack([V[each][:, experts].mean(axis=0) for each in soon]),
        spread=np.stack([sd[each].mean(axis=0) for each in soon]),
        thetas=tuple(np.stack([known[e].theta for _, known in taken]) for e in experts.tolist()),
    )


def _predicted(bank: Bank, now: PilotMaps, known: Drift, X: Array) -> tuple[Array, Array]:
    """As `_of_copies`, of rows X: (n, d), some at a time."""
    which, found = known.experts.tolist(), []
    for i in range(0, len(X), AT_ONCE):
        Z = features(bank, now, X[i : i + AT_ONCE], which)
        found.append(_of_copies(known, now, list(Z.values())))
    mean, size = (np.concatenate([each[i] for each in found], axis=1) for i in (0, 1))
    return mean, size


def _age_rivals(
    rows: Rows, at: Array, f: Array, size: Array, some: Array, after: Array
) -> tuple[Rivals, Array, Array]:
    """What stands beside snapshots taken before rows `at`: (C,), which predict f: (C, n, m) for the
    rows whose numbers are `some`: (n,), with standard deviations `size`; and what each makes of it
    with the weights that come of it, with their standard deviations.

    after: (C, n), which rows follow a snapshot.
    """
    cuts = [0, *at.tolist(), len(rows[0])]
    parts = [[part[i:j] for part in rows] for i, j in itertools.pairwise(cuts)]
    known = rivals.with_copy(rivals.start(*parts[0]))
    for part in parts[1:-1]:
        known = rivals.with_copy(rivals.with_rows(known, *part))
    X, Y = rows[0][some], rows[1][some]
    known, _ = rivals.judged(known, f, X, Y, np.ones(len(some)), after)
    known = rivals.with_rows(known, *parts[-1])
    now = rivals.beside(known)
    copies = [replace(copy, weights=now.weights, error=now.error) for copy in known.copies]
    predicted = np.stack([copy.mixed(each, X) for copy, each in zip(copies, f, strict=True)])
    return replace(known, copies=()), predicted, _beside_spread(copies, size)


def _beside_spread(copies: Sequence[Beside], size: Array) -> Array:
    """Standard deviations of f*, where those of C copies are size: (C, n, m)."""
    spread = np.empty_like(size)
    for c, copy in enumerate(copies):
        spread[c] = np.sqrt(copy.variance(size[c] ** 2))
    return spread


def _soon(which: Array, at: int) -> Array:
    """Which of these rows follow a snapshot soon: (n,)."""
    return np.asarray((which >= at) & (which < at + AT_ONCE))


def _add_scores(counts: Array, *parts: Rows) -> Array:
    """Counts with the scores of some rows more: each part has distances (..., n), errors and
    standard deviations (..., n, m).
    """
    m = counts.shape[1]
    distance = np.concatenate([after.ravel() for after, _, _ in parts])
    off, size = (np.concatenate([p[i].reshape(-1, m) for p in parts]) for i in (1, 2))
    return add(counts, distance, off / np.maximum(size, 1e-300))


def _of_copies(known: Drift, now: PilotMaps, Z: list[Array]) -> tuple[Array, Array]:
    """What C copies predict, and its standard deviations, (C, n, m) each, for rows whose features
    are Z: (n, D) for each of their experts.
    """
    n, C, m = len(Z[0]), len(known.rows), known.counts.shape[2]
    F = np.empty((C, n, len(Z), m))
    for u, (z, theta) in enumerate(zip(Z, known.thetas, strict=True)):
        each = z @ theta.reshape(C * m, -1).T
        F[:, :, u] = each.reshape(n, C, m).transpose(1, 0, 2)
    F = now.targets.outward(F)
    mean = np.einsum("cu,cnum->cnm", known.weights, F)
    spread = known.variance[:, None] + (F - mean[:, :, None]) ** 2
    return mean, np.sqrt(np.einsum("cu,cnum->cnm", known.weights, spread))
