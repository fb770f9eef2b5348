"""What a bank predicts: means, and how sure it is."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dokl.base.arrays import Array
from dokl.learning import drift
from dokl.learning.drift import Drift
from dokl.learning.experts import folding
from dokl.learning.experts import group_errors as correcting
from dokl.learning.experts.bank import (
    AT_ONCE,
    Bank,
    Generation,
    Prediction,
    by_each,
    features,
    mean_and_variance,
)
from dokl.learning.experts.learn import FEW, on_all_cores
from dokl.learning.intervals import Tracker, width_at

SOME_GROUPS = 32  # by which it is judged how much groups differ


def predict(bank: Bank, X: Array) -> Array:
    """Means (n, m) of rows X: (n, d)."""
    if bank.settings.grouped and bank.now is not None:
        mean, known = folding.predict_groups(bank, X), bank.group_errors
        group = X[:, -1].astype(np.int64)
        return mean if known is None else correcting.predict(known, group, mean, mean)[0]
    return folding.predict(folding.folded(bank), X)


def predict_with_variance(bank: Bank, X: Array) -> Prediction:
    """Means and variances (n, m) of rows X: (n, d)."""
    if bank.now is None:
        both = np.tile(np.concatenate(mean_and_variance(bank.total)), (len(X), 1))
    else:
        now = bank.now
        both = _in_pieces(lambda rows: _both(bank, now, rows), X, 2 * bank.m)
        if bank.group_errors is not None:
            given = X[:, -1].astype(np.int64), both[:, : bank.m], both[:, bank.m :]
            both = np.hstack(correcting.predict(bank.group_errors, *given))
    widths = np.tile(bank.tracker.widths, (len(X), 1, 1))
    return Prediction(both[:, : bank.m], both[:, bank.m :], widths)


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
    for nothing, over so many rows; steps_ahead: how many rows beyond the last learned one each
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
    known, told = bank.drift, predict_with_variance(bank, X)
    counts = None if known is None else known.counts[0]
    width = frozen_widths(bank.tracker, counts, bank.seen, coverage, len(X), steps_ahead)
    newest, sd = width_at(bank.tracker, coverage), np.sqrt(told.variance)
    reach = width * sd
    if known is not None and len(known.rows) and (width > newest).any():
        like = np.sqrt(_in_pieces(lambda rows: _as_copy(bank, known, rows), X, bank.m))
        wider = np.log(np.maximum(width, 1e-300) / np.maximum(newest, 1e-300))
        share = np.minimum(wider / drift.TRUSTED, 1.0)
        reach = np.maximum(reach * (like / sd) ** share, newest * sd)
    return told.mean - reach, told.mean + reach


def _as_copy(bank: Bank, known: Drift, X: Array) -> Array:
    """Variances (n, m) of rows X: (n, d), as they count for copies: with the experts' variances of
    the newest one.
    """
    now, weights = bank.now, bank.weights
    assert now is not None
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


def _both(bank: Bank, now: Generation, X: Array) -> Array:
    weights = bank.weights
    used = np.flatnonzero(weights > 0).tolist()
    F, V = by_each(bank, now, features(bank, now, X, used))
    w, each = weights[used][:, None, None], np.array(F)
    mean = (w * each).sum(axis=0)
    spread = (w * (np.array(V) + (each - mean) ** 2)).sum(axis=0)
    if now.places is not None:
        new = np.flatnonzero(X[:, -1] < 0)
        spread[new] += _between_groups(bank, now, X[new])
    return np.hstack([mean, spread])


def _between_groups(bank: Bank, now: Generation, X: Array) -> Array:
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


def _in_pieces(function: Callable[[Array], Array], X: Array, width: int) -> Array:
    """Piece by piece, on all cores; a few rows are done before these have begun."""
    pieces = [X[i : i + AT_ONCE] for i in range(0, len(X), AT_ONCE)]
    with on_all_cores(len(X) >= FEW and len(pieces) > 1) as each:
        return np.concatenate([*each(function, pieces), np.empty((0, width))])
