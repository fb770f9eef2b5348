"""What a bank predicts: means, and how sure it is."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dokl.base.arrays import Array
from dokl.learning.experts import folding
from dokl.learning.experts.bank import (
    AT_ONCE,
    Bank,
    Generation,
    Prediction,
    features,
    mean_and_variance,
)
from dokl.learning.experts.learn import FEW, on_all_cores
from dokl.learning.experts.maps import GroupedMap


def predict(bank: Bank, X: Array) -> Array:
    """Means (n, m) of rows X: (n, d)."""
    return folding.predict(folding.folded(bank), X)


def predict_with_variance(bank: Bank, X: Array) -> Prediction:
    """Means and variances (n, m) of rows X: (n, d)."""
    if bank.now is None:
        both = np.tile(np.concatenate(mean_and_variance(bank.total)), (len(X), 1))
    else:
        now = bank.now
        both = _in_pieces(lambda rows: _both(bank, now, rows), X, 2 * bank.m)
    widths = np.tile(bank.tracker.widths, (len(X), 1, 1))
    return Prediction(both[:, : bank.m], both[:, bank.m :], widths)


def _both(bank: Bank, now: Generation, X: Array) -> Array:
    weights = bank.weights
    used = np.flatnonzero(weights > 0).tolist()
    Z, F, V = features(bank, now, X, used), list[Array](), list[Array]()
    new = {bank.kinds[i].features: _of_new_groups(bank, now, X, i) for i in used}
    for i in used:
        memory = bank.memories[i]
        F.append(now.targets.outward(Z[i] @ memory.theta.T))
        variance = (1.0 + memory.variance(Z[i]))[:, None] * memory.noise
        V.append((variance + new[bank.kinds[i].features]) * now.targets.size**2)
    w, each = weights[used][:, None, None], np.array(F)
    mean = (w * each).sum(axis=0)
    return np.hstack([mean, (w * (np.array(V) + (each - mean) ** 2)).sum(axis=0)])


def _of_new_groups(bank: Bank, now: Generation, X: Array, i: int) -> Array:
    """What groups that nobody has seen, of number -1, may differ by from all others: a variance
    (n, 1) that least squares on the features does not know of. 0 for other rows.
    """
    made, out = now.maps[bank.kinds[i].features], np.zeros((len(X), 1))
    if isinstance(made, GroupedMap):
        rows = np.flatnonzero(X[:, -1] < 0)
        if len(rows):
            out[rows, 0] = made.unexplained(now.inward(X[rows]))
    return out


def _in_pieces(function: Callable[[Array], Array], X: Array, width: int) -> Array:
    """Piece by piece, on all cores; a few rows are done before these have begun."""
    pieces = [X[i : i + AT_ONCE] for i in range(0, len(X), AT_ONCE)]
    with on_all_cores(len(X) >= FEW and len(pieces) > 1) as each:
        return np.concatenate([*each(function, pieces), np.empty((0, width))])
