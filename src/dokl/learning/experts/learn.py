"""How a bank learns: rows are predicted first, then learned by every expert, then mixed.

It predicts from the first row on. At each pilot (30, 60, 125... rows) length scales are learned
from the rows so far, maps are made, and all experts start again and learn those rows. That begins
some rows earlier, in the background (`pending`). Rows are predicted before they are learned, and
mixed by what each expert would have gained. `learn` returns a new bank: a call that fails changes
nothing.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from dokl.base.arrays import Array, limited
from dokl.base.background import Each
from dokl.base.errors import BadInput, FingerprintMismatch
from dokl.base.unlocked import one_thread, threads
from dokl.learning import intervals
from dokl.learning import mixture as mixing
from dokl.learning.drift import Drift
from dokl.learning.experts import buffer as keeping
from dokl.learning.experts import copies, pending
from dokl.learning.experts import group_errors as correcting
from dokl.learning.experts.bank import (
    AT_ONCE,
    Bank,
    PilotMaps,
    Prediction,
    Total,
    by_each,
    features,
    fingerprint,
    mean_and_variance,
    numbers_of,
    start,
)
from dokl.learning.experts.copies import Snapshot
from dokl.learning.experts.kinds import Settings
from dokl.learning.experts.maps import some_rows
from dokl.learning.experts.pilots import (
    learn_from_prior,
    residual_group_errors,
    run_pilot,
    with_extent,
    with_memories,
    with_nothing_learned,
)
from dokl.learning.experts.rivals import Rivals
from dokl.learning.experts.rows import checked, learn_rows, surprised
from dokl.learning.experts.scaling import cut_wild_targets, sane
from dokl.learning.squares import sums
from dokl.learning.squares.blocks import NotDefinite

# Fewer rows than this are learned before threads have started.
FEW = 8
# Up to this many rows `fit` weighs experts by every one of them; beyond, by those of the last half
# that made no maps, among this many at most. (Centres explain themselves: a row that is one says
# nothing of how sure predictions of others are.)
ENOUGH, WEIGHED = 2000, 10_000
GROUPED_ENOUGH = 1000  # learning places takes longer
# Up to this many rows each quarter is predicted by experts that have learned the other three: those
# of a half are too unlike those of all rows (half of their error, at 500 rows). It takes twice as
# long.
QUARTERED, QUARTERS = 600, 4

# Fewer rows than this are worth a fit of their own where training ends with them: maps of the last
# pilot know half of them, before the first there are none, and weights stand on what is left.
FEW_FOR_MAPS = 125

# Rows count as this many at most: of heavier ones rounding would spoil the matrices.
HEAVIEST = 1e6

Rows = tuple[Array, Array, Array]  # X: (n, d), Y: (n, m), weight: (n,)


def learn(bank: Bank, X: Array, Y: Array, weight: Array | None = None) -> tuple[Bank, Prediction]:
    """Rows X: (n, d), Y: (n, m), finite, of positive weight: (n,), in order."""
    Y, w = limited(Y), _weight(weight, len(X))
    bank, predictions, at = pending.begin(bank), [], 0
    with on_all_cores(len(X) >= FEW) as each:
        while at < len(X):
            stop = min(len(X), at + min(_most_at_once(bank), copies.rows_left(bank)))
            bank, prediction = _learn_some(bank, X[at:stop], Y[at:stop], w[at:stop], each)
            predictions.append(prediction)
            at = stop
    pending.give_time(bank, len(X))
    return bank, _join(bank, predictions)


def learn_late(bank: Bank, X: Array, Y: Array) -> Bank:
    """Rows X: (n, d), Y: (n, m) that come long after their time: they are kept for the pilots to
    come, and learned by experts that remember everything. Those that forget would lose newer rows.
    """
    Y, w, at = limited(Y), np.ones(len(X)), 0
    bank = pending.begin(bank)
    with on_all_cores(len(X) >= FEW) as each:
        while at < len(X):
            some = slice(at, min(len(X), at + _most_at_once(bank)))
            bank = _learn_late(bank, X[some], Y[some], w[some], each)
            at = some.stop
    pending.give_time(bank, len(X))
    return bank


def _weight(given: Array | None, n: int) -> Array:
    """Of n rows: (n,)."""
    return np.ones(n) if given is None else np.minimum(given, HEAVIEST)


def _most_at_once(bank: Bank) -> int:
    """Rows that may be learned together: no pilot begins or ends among them."""
    return min(pending.rows_left(bank), AT_ONCE - bank.seen % AT_ONCE)


def _learn_late(bank: Bank, X: Array, Y: Array, w: Array, each: Each) -> Bank:
    """Rows among which no pilot begins or ends."""
    if bank.now is None or bank.awake is None:
        return _learn_some(bank, X, Y, w, each)[0]
    up = np.flatnonzero(bank.awake).tolist()
    lasting = [i for i in up if bank.kinds[i].memory == math.inf]
    return _count_rows(learn_rows(bank, bank.now, lasting, X, Y, w, each)[0], X, Y, w, each)


def fit_rows(
    settings: Settings, X: Array, Y: Array, weight: Array | None = None
) -> tuple[Bank, Prediction]:
    """A bank that has learned rows X: (n, d), Y: (n, m) with maps made from all of them, and what
    it would have predicted for those that it was weighted by: NaN elsewhere.

    Rows that chose the scales must not be scored with them. Where rows are few, experts are weighed
    on each half, or quarter, by scales of the others; then scales of all rows are learned, and all
    rows with them. Of many rows, a half drawn at random makes the maps, and the other half weighs.
    """
    Y = limited(Y)
    rows = X, Y, _weight(weight, len(X))
    bank = start(X.shape[1], Y.shape[1], settings)
    kept = keeping.append(bank.kept, *rows, settings.kept, settings.seed)
    total = _totals(cut_wild_targets(Y), rows[2])
    meant = np.flatnonzero(sane(Y))
    if len(meant) < len(X):
        rows = X[meant], Y[meant], rows[2][meant]
    few = len(meant) <= (GROUPED_ENOUGH if settings.grouped else ENOUGH)
    with on_all_cores() as each:
        fit = _fit_in_parts if few else _fit_in_one_pass
        bank, fair, which, prediction, aged = fit(bank, rows, each)
    out = [np.full((len(X), *part.shape[1:]), np.nan) for part in vars(prediction).values()]
    for everywhere, part in zip(out, vars(prediction).values(), strict=True):
        everywhere[meant[which]] = part
    about = {"mixture": fair.mixture, "tracker": fair.tracker, "kept": kept, "total": total}
    if fair.group_errors is not None:  # the bank has learned since what these would correct
        left = residual_group_errors(
            replace(bank, mixture=fair.mixture), *(part[-WEIGHED:] for part in rows)
        )
        worth = fair.group_errors
        about["group_errors"] = replace(left, mixture=worth.mixture, errors=worth.errors)
    if not (settings.grouped or settings.classes):  # copies know nothing of groups' last errors
        about["drift"], about["rivals"] = aged
    return replace(bank, **about), Prediction(*out)  # type: ignore[arg-type]


def fit_few(bank: Bank) -> Bank:
    """The bank after the last row of a training: where rows are few, `fit_rows` of all of them.
    Classes gain nothing by that.
    """
    if bank.settings.classes or not 0 < bank.seen < FEW_FOR_MAPS:
        return bank
    return fit_rows(bank.settings, *pending.cancel(bank).stored.all())[0]


# The bank that has learned; that was weighed; by which rows; its predictions of them; how it ages.
Fit = tuple[Bank, Bank, Array, Prediction, tuple[Drift, Rivals | None]]


def _fit_in_parts(bank: Bank, rows: Rows, each: Each) -> Fit:
    n = len(rows[0])
    parts = QUARTERS if n <= QUARTERED and not bank.settings.grouped else 2
    held, which = list[tuple[Array, ...]](), list[Array]()
    taken, aging = list[Snapshot](), None
    for k in reversed(range(parts)):
        first, end = n - n * (parts - k) // parts, n - n * (parts - k - 1) // parts
        if end - first == n:
            continue
        later, learned = _some(rows, slice(first, end)), _some(rows, np.r_[:first, end:n])
        known = _learn_only(_make_maps(bank, learned, each), learned, each)
        swept, found, snapshots = _sweep(known, later, each, first)
        held.append(found)
        which.append(np.arange(first, end))
        taken, aging = taken or snapshots, aging or swept
    fair, prediction = _weigh(bank, rows, np.concatenate(which), *_stack(held))
    fair, now = (fair, None) if aging is None else (replace(fair, extent=aging.extent), aging.now)
    aged = copies.aged(fair, now, taken, rows, which[0], held[0][1], prediction)
    bank = _learn_only(_make_maps(bank, rows, each), rows, each)
    return bank, fair, np.concatenate(which), prediction, aged


def _fit_in_one_pass(bank: Bank, rows: Rows, each: Each) -> Fit:
    n = len(rows[0])
    first = n - min(n // 2, WEIGHED)
    chosen = some_rows(bank.settings.seed, n, n - n // 2, "maps")
    known = _learn_only(
        _make_maps(bank, _some(rows, chosen), each), _some(rows, slice(first)), each
    )
    learned, found, taken = _sweep(known, _some(rows, slice(first, n)), each, first)
    which = np.setdiff1d(np.arange(first, n), chosen)
    found = tuple(part[which - first] for part in found)
    fair, prediction = _weigh(bank, rows, which, *found)
    fair = replace(fair, extent=learned.extent)
    aged = copies.aged(fair, known.now, taken, rows, which, found[1], prediction)
    return learned, fair, which, prediction, aged


def _some(rows: Rows, which: Array | slice) -> Rows:
    X, Y, w = rows
    return X[which], Y[which], w[which]


def _make_maps(bank: Bank, rows: Rows, each: Each) -> Bank:
    """The bank with maps made from these rows, and nothing learned."""
    none, settings = keeping.no_rows(bank.d, bank.m), bank.settings
    some = keeping.append(none, *rows, settings.kept, settings.seed)
    now = run_pilot(bank, *some.all(), each)
    return with_nothing_learned(replace(bank, now=now), now)


def _learn_only(bank: Bank, rows: Rows, each: Each) -> Bank:
    """A bank with maps, of which nobody asks what it predicts for these rows, after them."""
    now, everybody = bank.now, range(len(bank.kinds))
    assert now is not None
    bank = with_extent(bank, now, rows[0])
    return with_memories(bank, *learn_from_prior(bank, now, everybody, *rows, each))


def _weigh(
    bank: Bank, rows: Rows, which: Array, F: Array, V: Array, late_F: Array, late_V: Array
) -> tuple[Bank, Prediction]:
    """Mixture and widths of intervals by these rows, of which experts' predictions before they
    learned them were F with variances V: (n, E, m); and what the bank predicts for them.

    late_F, late_V: the same by experts that had not learned the last rows, either. Both count: what
    `fit` gives may be asked for the next row or for one long after.
    """
    Y, w = rows[1][which], rows[2][which]
    awake, bound = np.ones(len(bank.kinds), bool), bank.settings.bound
    twice = np.concatenate([late_F, F]), np.concatenate([late_V, V])
    targets, weight = np.concatenate([Y, Y]), np.concatenate([w, w])
    mixture, _, variance = mixing.mix(bank.mixture, *twice, targets, awake, weight, bound)
    if len(Y):
        reach = bound * np.sqrt(variance)[:, None] if bound < math.inf else math.inf
        mixture = mixing.weigh(mixture, np.clip(twice[0] - targets[:, None], -reach, reach), weight)
    mean, variance = mixing.combine(mixture.weights(awake), F, V)
    if bank.group_errors is not None:  # a group's last errors are those of its last rows
        order = np.argsort(which)
        given = rows[0][which][order], Y[order], mean[order], variance[order], w[order]
        bank, mean[order], variance[order] = _correct(bank, *given)
    scores = np.abs(Y - mean) / np.sqrt(np.maximum(variance, 1e-300))
    tracker, widths = intervals.follow_scores(bank.tracker, scores)
    tracker = intervals.settle(tracker, scores)
    return replace(bank, mixture=mixture, tracker=tracker), Prediction(mean, variance, widths)


def _widths(bank: Bank) -> tuple[int, int]:
    return bank.m, len(bank.tracker.levels)


def _sweep(
    bank: Bank, rows: Rows, each: Each, first: int = 0
) -> tuple[Bank, tuple[Array, ...], list[Snapshot]]:
    """The bank after these rows, not mixed; experts' means and variances (n, E, m) before each of
    them was learned, and the same by the last snapshot; and snapshots, each before a row, whose
    numbers begin with `first`.
    """
    assert bank.now is not None
    everybody, nothing = range(len(bank.kinds)), np.empty((0, len(bank.kinds), bank.m))
    found: list[tuple[Array, ...]] = [(nothing,) * 4]
    taken, frozen = list[Snapshot](), bank
    for at in range(0, len(rows[0]), AT_ONCE):
        if copies.snaps(at, len(rows[0])):
            taken.append((first + at, bank.memories))
            frozen = bank
        X, Y, w = (part[at : at + AT_ONCE] for part in rows)
        Z = features(bank, bank.now, X, everybody, each, learning=True)
        later = (np.stack(part, axis=1) for part in by_each(frozen, bank.now, Z, each))
        bank, F, V, _ = _learn_each(bank, bank.now, X, Y, w, each, Z)
        found.append((F, V, *later))
    return bank, _stack(found), taken


def _stack(parts: Iterable[tuple[Array, ...]]) -> tuple[Array, ...]:
    return tuple(map(np.concatenate, zip(*parts, strict=True)))


def _join(bank: Bank, predictions: list[Prediction]) -> Prediction:
    if len(predictions) == 1:
        return predictions[0]
    m = bank.m
    nothing = Prediction(np.empty((0, m)), np.empty((0, m)), np.empty((0, *_widths(bank))))
    parts = [(t.mean, t.variance, t.widths) for t in predictions or [nothing]]
    return Prediction(*map(np.concatenate, zip(*parts, strict=True)))


def _learn_some(bank: Bank, X: Array, Y: Array, w: Array, each: Each) -> tuple[Bank, Prediction]:
    """Rows among which no pilot begins or ends; after the last it does, if it is time."""
    if bank.now is None:
        prediction, total = _running_mean(bank, Y, w)
        bank = replace(bank, total=total)
    else:
        bank, prediction = _learn_by_experts(bank, bank.now, X, Y, w, each)
    return _count_rows(bank, X, Y, w, each), prediction


def _count_rows(bank: Bank, X: Array, Y: Array, w: Array, each: Each) -> Bank:
    """The bank with rows that it has learned among those kept, and a new map if it is time."""
    settings = bank.settings
    if bank.pending is None:
        kept = keeping.append(bank.kept, X, Y, w, settings.kept, settings.seed)
        bank = replace(bank, kept=kept)
    else:
        bank = pending.append(bank, X, Y, w)
    if bank.seen in settings.pilots:
        bank = pending.adopt(bank, each)
    elif bank.now is not None:
        bank = checked(bank, bank.now, bank.seen)
    return pending.begin(copies.keep_copy(bank))


def _running_mean(bank: Bank, Y: Array, w: Array) -> tuple[Prediction, Total]:
    """The mean and variance of the targets before each row. A wild one among them is cut off, or
    one would decide about all rows up to the first pilot.
    """
    _, before, weight = bank.stored.all()
    known, w = np.concatenate([before, Y]), np.concatenate([weight, w])
    mean, variance = np.zeros((2, len(Y), bank.m))
    total = bank.total
    for t in range(len(Y)):
        mean[t], variance[t] = mean_and_variance(total)
        end = len(before) + t + 1
        total = _totals(cut_wild_targets(known[:end]), w[:end])
    widths = np.tile(bank.tracker.widths, (len(Y), 1, 1))
    return Prediction(mean, variance, widths), total


def _totals(Y: Array, w: Array) -> Total:
    return float(w.sum()), w @ Y, w @ Y**2


def _learn_by_experts(
    bank: Bank, now: PilotMaps, X: Array, Y: Array, w: Array, each: Each
) -> tuple[Bank, Prediction]:
    """Rows learned by every expert, and mixed by what each would have gained."""
    judged = copies.CopyScores(bank, now, X, each)
    bank, F, V, unsure = _learn_each(bank, now, X, Y, w, each, judged.Z)
    assert bank.awake is not None
    weight, bound = None if (w == 1.0).all() else w, bank.settings.bound
    mixture, f, variance = mixing.mix(bank.mixture, F, V, Y, bank.awake, weight, bound)
    bank, f, variance = _correct(bank, X, Y, f, variance, weight)
    scores = np.abs(Y - f) / np.sqrt(np.maximum(variance, 1e-300))
    tracker, widths = intervals.follow_scores(bank.tracker, scores)
    bank = replace(bank, mixture=mixture, tracker=tracker)
    prediction = Prediction(f, variance, widths)
    return surprised(judged.counted(bank, Y, w, prediction, unsure), scores), prediction


def _correct(
    bank: Bank, X: Array, Y: Array, f: Array, variance: Array, weight: Array | None
) -> tuple[Bank, Array, Array]:
    """The bank with the errors of groups after these rows, and its corrected predictions."""
    if bank.group_errors is None:
        return bank, f, variance
    group = X[:, -1].astype(np.int64)
    errors, f, variance = correcting.learn(
        bank.group_errors, group, Y, f, variance, weight, bank.settings.bound
    )
    return replace(bank, group_errors=errors), f, variance


def _learn_each(
    bank: Bank,
    now: PilotMaps,
    X: Array,
    Y: Array,
    w: Array,
    each: Each,
    Z: Mapping[int, Array] | None = None,
) -> tuple[Bank, Array, Array, Array]:
    """Rows learned by every expert, and before that their means and variances (n, E, m), and by how
    much each was unsure of a row, z'Pz (n, E). Z: the rows' features, if they are known.
    """
    assert bank.awake is not None
    up = np.flatnonzero(bank.awake).tolist()
    n, E, m = len(X), len(bank.kinds), bank.m
    F, V, unsure = np.zeros((n, E, m)), np.zeros((n, E, m)), np.zeros((n, E))
    bank, each_found = learn_rows(bank, now, up, X, Y, w, each, Z)
    for i, found in zip(up, each_found, strict=True):
        F[:, i], unsure[:, i] = found.f, found.q
        V[:, i] = found.noise * (1.0 + found.q)[:, None]
    F, V = F * now.targets.size + now.targets.centre, V * now.targets.size**2
    return bank, F, V, unsure


def freeze(bank: Bank) -> Bank:
    """The bank with the maps that it has, for good."""
    bank = pending.cancel(bank)
    return replace(bank, settings=replace(bank.settings, pilots=()))


def forget_all(bank: Bank) -> Bank:
    """A bank with the same maps and scalings that has seen nothing."""
    assert bank.now is not None
    empty = start(bank.d, bank.m, bank.settings)
    empty = empty if bank.drift is None else copies.watch(empty)
    return with_nothing_learned(replace(empty, now=bank.now), bank.now)


def combine_sums(a: Bank, b: Bank, sign: int) -> Bank:
    """The bank that knows the rows of both, or those of a without b's; exact, from their sums."""
    if fingerprint(a) != fingerprint(b):
        raise FingerprintMismatch("the other model", fingerprint(a), fingerprint(b))
    if not a.sums or any(kept is None for kept in (*a.sums, *b.sums)):
        raise BadInput(
            "only models of experts='one' can be added or taken away: others forget, or mix, and "
            "the result would not be what learning all rows gives"
        )
    assert a.now is not None
    totals = tuple(x + y if sign > 0 else x - y for x, y in zip(a.sums, b.sums, strict=True))  # type: ignore[operator]
    try:
        known = [sums.solve(each, numbers_of(a, a.now, i).rho) for i, each in enumerate(totals)]
    except NotDefinite:
        raise BadInput("rows were taken away that this model has never learned") from None
    a, seen = pending.cancel(a), a.seen + sign * b.seen
    counts = replace(a.kept, seen=seen)
    return replace(a, memories=tuple(known), sums=totals, kept=counts, rivals=None)


def cores() -> int:
    """How many experts learn at once."""
    return os.cpu_count() or 1


@contextmanager
def on_all_cores(many: bool = True) -> Iterator[Each]:
    """A `map` over experts, by threads where there is much to do. Experts share the cores; threads
    inside a product would only wait for each other.
    """
    with one_thread():
        if not many:
            yield map
            return
        with threads(cores()) as each:
            yield each
