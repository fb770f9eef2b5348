"""What a bank predicts: means, and how sure it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from dokl.base.arrays import Array
from dokl.learning import drift
from dokl.learning.experts import folding, rivals
from dokl.learning.experts import group_errors as correcting
from dokl.learning.experts.bank import (
    AT_ONCE,
    Bank,
    PilotMaps,
    Prediction,
    by_each,
    features,
    mean_and_variance,
)
from dokl.learning.experts.learn import FEW, on_all_cores
from dokl.learning.experts.maps import drawn_rows, some_rows
from dokl.learning.experts.rivals import Beside
from dokl.learning.experts.scaling import follow_on
from dokl.learning.intervals import Tracker, width_at

LEAST = 1e-300  # of variances, which targets of tiny units make vanish
RELEVANT_ROWS, RELEVANT_TOTAL = 300, 20_000  # by which relevance is judged, and of all inputs
SOME_GROUPS = 32  # by which it is judged how much groups differ


def predict(bank: Bank, X: Array, steps_ahead: object = None) -> Array:
    """Means (n, m) of rows X: (n, d). steps_ahead: how many rows beyond the last learned one each
    lies; None is for the next rows of a bank that goes on learning.
    """
    return _beside(bank, X, _by_bank(_ahead(bank, X, steps_ahead), X), steps_ahead)


def _ahead(bank: Bank, X: Array, steps_ahead: object) -> Bank:
    """The bank for rows X: (n, d) that far ahead: their inputs may have come further than those
    learned, as they have where copies are judged (`copies`).
    """
    if steps_ahead is None or bank.settings.grouped:
        return bank
    steps = drift.check_steps(steps_ahead, len(X))
    return replace(bank, extent=follow_on(bank.extent, steps, bank.seen))


def _beside(bank: Bank, X: Array, mean: Array, steps_ahead: object) -> Array:
    """A bank's predictions of rows X: (n, d), mean (n, m); of those beyond the next one with what
    stands beside it (`rivals`).
    """
    if steps_ahead is None:
        return mean
    far = drift.check_steps(steps_ahead, len(X)) > 1
    if bank.rivals is None or bank.now is None or not far.any():
        return mean
    return np.where(far[:, None], rivals.beside(bank.rivals).mixed(mean, X), mean)


def _by_bank(bank: Bank, X: Array) -> Array:
    if bank.settings.grouped and bank.now is not None:
        mean, known = folding.predict_groups(bank, X), bank.group_errors
        group = X[:, -1].astype(np.int64)
        return mean if known is None else correcting.predict(known, group, mean, mean)[0]
    return folding.predict(folding.fold(bank), X)


def predict_with_variance(bank: Bank, X: Array, steps_ahead: object = None) -> Prediction:
    """Means and variances (n, m) of rows X: (n, d); steps_ahead: as for `predict`."""
    if bank.now is None:
        both = np.tile(np.concatenate(mean_and_variance(bank.total)), (len(X), 1))
    else:
        then = _ahead(bank, X, steps_ahead)
        both = _in_pieces(_both, then, X, 2 * bank.m)
        if bank.group_errors is not None:
            given = X[:, -1].astype(np.int64), both[:, : bank.m], both[:, bank.m :]
            both = np.hstack(correcting.predict(bank.group_errors, *given))
    widths = np.tile(bank.tracker.widths, (len(X), 1, 1))
    own, variance = both[:, : bank.m], both[:, bank.m :]
    mean = _beside(bank, X, own, steps_ahead)
    return Prediction(mean, variance + (mean - own) ** 2, widths)


def relevance(bank: Bank) -> Array:
    """How much predictions change where rows exchange their values of an input, summing to 1: (d,).

    A length scale is about how much the function bends, not about its linear part.
    """
    even, most = np.full(bank.d, 1 / bank.d), max(30, RELEVANT_TOTAL // bank.d)
    X, seed = bank.stored.newest()[0], bank.settings.seed
    X = X[some_rows(seed, len(X), min(RELEVANT_ROWS, most), "relevance")]
    if bank.now is None or len(X) < 2:
        return even
    others, before = X[drawn_rows(seed, len(X), "exchange")], predict(bank, X)
    change = np.empty(bank.d)
    for i in range(bank.d):
        exchanged = X.copy()
        exchanged[:, i] = others[:, i]
        change[i] = np.sqrt(np.mean((predict(bank, exchanged) - before) ** 2))
    return change / change.sum() if change.sum() > 0 else even


def frozen_widths(
    tracker: Tracker,
    counts: Array | None,
    rows: int,
    coverage: float,
    n: int,
    steps_ahead: object,
) -> Array:
    """Half the widths of intervals for n rows, in standard deviations: (n, m).

    tracker: what was tracked, counts: (1 + DISTANCES, m, SCORES) what was counted of copies, None
    for nothing, over n rows; steps_ahead: how many rows beyond the last learned one each
    lies, None where that is unknown.
    """
    newest = width_at(tracker, coverage)
    if steps_ahead is None:
        steps_ahead = drift.usual_steps(rows)
    steps = drift.check_steps(steps_ahead, n)
    if counts is None:
        return np.tile(newest, (n, 1))
    return drift.widths(counts, coverage, newest, steps)


def frozen_ends(
    bank: Bank, X: Array, coverage: float, steps_ahead: object = None
) -> tuple[Array, Array]:
    """The ends (n, m) of intervals of a bank that learns no more; see `frozen_widths`.

    As far as they are wider than those of the next row, they are calibrated by copies, whose
    variances do without z'Pz of each row; so these count then, too.
    """
    then = _ahead(bank, X, steps_ahead)
    known, prediction = bank.drift, predict_with_variance(then, X)
    counts = None if known is None else known.counts[0]
    width = frozen_widths(bank.tracker, counts, bank.seen, coverage, len(X), steps_ahead)
    newest = width_at(bank.tracker, coverage)
    sd = np.sqrt(np.maximum(prediction.variance, LEAST))
    mean, reach = prediction.mean, width * sd
    now = None if bank.rivals is None or steps_ahead is None else rivals.beside(bank.rivals)
    like = prediction.variance
    if known is not None and len(known.rows) and (now is not None or (width > newest).any()):
        like = _in_pieces(_as_copy, then, X, bank.m)
        wider = np.log(np.maximum(width, 1e-300) / np.maximum(newest, 1e-300))
        share = np.minimum(wider / drift.TRUSTED, 1.0)
        reach = np.maximum(reach * (np.sqrt(np.maximum(like, LEAST)) / sd) ** share, newest * sd)
    if now is not None and bank.rivals is not None:
        steps = drift.check_steps(steps_ahead, len(X))
        given = bank.rivals.counts, coverage, newest, steps
        mean, reach = ends_beside(now, X, mean, reach, like, *given)
    return mean - reach, mean + reach


def ends_beside(
    now: Beside,
    X: Array,
    mean: Array,
    reach: Array,
    variance: Array,
    counts: Array,
    coverage: float,
    newest: Array,
    steps: Array,
) -> tuple[Array, Array]:
    """Middles and half the widths of intervals, (n, m) each, of rows X: (n, d), with what stands
    beside a bank. mean, reach, variance: its own, as of copies; counts: of scores of both together.
    """
    width = drift.widths_alone(counts, coverage, newest, steps)
    aged = (steps[:, None] > 1) & (now.weights[:, 0] < 1.0)
    wide = width * np.sqrt(now.variance(variance))
    return np.where(aged, now.mixed(mean, X), mean), np.where(aged, wide, reach)


def _as_copy(bank: Bank, X: Array) -> Array:
    """Variances (n, m) of rows X: (n, d), as they count for copies: with the experts' variances of
    the newest one.
    """
    now, known, weights = bank.now, bank.drift, bank.weights
    assert now is not None
    assert known is not None
    used = np.flatnonzero(weights > 0).tolist()
    Z, was = features(bank, now, X, used), known.experts.tolist()
    F = np.array([now.targets.outward(Z[i] @ bank.memories[i].theta.T) for i in used])
    V = [
        known.variance[-1, was.index(i)]
        if i in was
        else bank.memories[i].noise * now.targets.size**2
        for i in used
    ]
    w = weights[used][:, None, None]
    mean = (w * F).sum(axis=0)
    return np.asarray((w * (np.array(V)[:, None] + (F - mean) ** 2)).sum(axis=0))


def _both(bank: Bank, X: Array) -> Array:
    now, weights = bank.now, bank.weights
    assert now is not None
    used = np.flatnonzero(weights > 0).tolist()
    F, V = by_each(bank, now, features(bank, now, X, used))
    w, each = weights[used][:, None, None], np.array(F)
    mean = (w * each).sum(axis=0)
    spread = (w * (np.array(V) + (each - mean) ** 2)).sum(axis=0)
    if now.places is not None:
        new = np.flatnonzero(X[:, -1] < 0)
        spread[new] += _between_groups(bank, now, X[new])
    return np.hstack([mean, spread])


def _between_groups(bank: Bank, now: PilotMaps, X: Array) -> Array:
    """What rows X: (n, d) of a group that nobody has seen may differ by from the mean of all: the
    variance (n, m) of what is predicted for them as rows of the groups there are, of some if many.
    """
    assert now.places is not None
    numbers = now.places.numbers
    some = numbers[np.linspace(0, len(numbers) - 1, min(SOME_GROUPS, len(numbers))).astype(int)]
    if not len(X) or len(some) < 2:
        return np.zeros((len(X), bank.m))
    each = [np.hstack([X[:, :-1], np.full((len(X), 1), number)]) for number in some]
    found = folding.predict_groups(bank, np.concatenate(each))
    return np.asarray(found.reshape(len(some), len(X), bank.m).var(axis=0, ddof=1))


def _in_pieces(function: Callable[[Bank, Array], Array], bank: Bank, X: Array, width: int) -> Array:
    """Piece by piece, on all cores; a few rows are done before these have begun."""

    def one(i: int) -> Array:
        piece, own = slice(i, i + AT_ONCE), bank
        if bank.extent is not None and bank.extent.ndim == 2:
            own = replace(bank, extent=bank.extent[piece])
        return function(own, X[piece])

    with on_all_cores(len(X) >= FEW and len(X) > AT_ONCE) as each:
        return np.concatenate([*each(one, range(0, len(X), AT_ONCE)), np.empty((0, width))])
