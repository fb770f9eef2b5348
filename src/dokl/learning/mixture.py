"""Experts instead of settings: predictions mixed by what each would have gained (ML-Poly).

    f   = sum_i w_i f_i
    r_i = 2 (f - y)(f - f_i), summed over outputs        what expert i would have gained
    R_i += r_i,  V_i += r_i^2,  c = largest r^2 so far
    w_i ~ max(R_i, 0)/(c + V_i)                          equal weights while nobody gains

(Gaillard, Stoltz and van Erven 2014: no rate to choose, and never much worse than the best in
hindsight.) Likelihood weights would be right for densities, and are wrong for squared error.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from dokl.base.arrays import Array

ROUNDING = 1e-12
MOST = 4.0
# What being far from the mixture counts against an expert where gains are relative. Errors that
# have nothing to do with the mixture's are no gain or loss on average, however large they are:
# without this, chance would give a little weight to experts that err a hundred times as much.
CURVE = 0.02

LEAST = 1e-300  # of what gains are measured by: squares of smaller ones are 0
HEAVY = 1e3  # that weights sum to one, as an equation beside others


@dataclass(frozen=True)
class Mixture:
    """gain R: (E,), square V: (E,), largest c."""

    gain: Array
    square: Array
    largest: float = 0.0

    def weights(self, awake: Array) -> Array:
        """(E,), summing to one over those who are awake: (E,)."""
        return _weights(self.gain, self.square, self.largest, awake)


def start(experts: int) -> Mixture:
    """Everybody alike."""
    return Mixture(np.zeros(experts), np.zeros(experts))


def mix(
    mixture: Mixture,
    F: Array,
    V: Array,
    Y: Array,
    awake: Array,
    weight: Array | None = None,
    bound: float = math.inf,
    relative: bool = False,
    memory: float = math.inf,
) -> tuple[Mixture, Array, Array]:
    """Mix rows in turn. F, V: (n, E, m) a-priori means and variances, Y: (n, m), awake: (E,).

    Returns the new mixture, and means and variances (n, m): the experts' own and their spread. An
    error of more than `bound` standard deviations counts as one of that size, or a single wild
    target would decide for ever who is believed. relative: gains are counted in units of the
    variance of the surest expert, MOST of them at most, so that the large errors of a beginning do
    not decide for long, and less by CURVE (f - f_i)^2. memory: rows after which gains fade.
    """
    n, _, m = F.shape
    keep = 1.0 - 1.0 / memory
    gain, square, largest = mixture.gain.copy(), mixture.square.copy(), mixture.largest
    f, variance = np.empty((n, m)), np.empty((n, m))
    size = np.abs(F).max(axis=(1, 2), initial=0.0), np.abs(Y).max(axis=1, initial=0.0)
    rounding = (ROUNDING * np.maximum(*size)).tolist()
    for t in range(n):
        w = _weights(gain, square, largest, awake)
        mean = w @ F[t]
        apart = mean - F[t]
        # What rounding leaves between experts that agree is no gain, and would decide who is
        # believed once they differ.
        apart[np.abs(apart) <= rounding[t]] = 0.0
        f[t], variance[t] = mean, w @ (V[t] + apart * apart)
        error = mean - Y[t]
        if bound < math.inf:
            reach = bound * np.sqrt(variance[t])
            error = np.minimum(np.maximum(error, -reach), reach)
        r = 2.0 * (apart @ error)
        if relative:
            best = max(float(V[t][awake].mean(axis=1).min()), 1e-300)
            with np.errstate(over="ignore"):
                r = (r - CURVE * (apart * apart).sum(axis=1)) / best
            r = np.clip(r, -MOST, MOST)
        r = np.where(awake, r if weight is None else weight[t] * r, 0.0)
        gain = keep * gain + r
        rr = r * r
        square = keep * square + rr
        largest = max(largest, float(rr.max()))
    return replace(mixture, gain=gain, square=square, largest=largest), f, variance


def _weights(gain: Array, square: Array, largest: float, awake: Array) -> Array:
    positive = np.where(awake, np.maximum(gain, 0.0), 0.0)
    if not np.count_nonzero(positive):
        return np.asarray(awake / awake.sum())
    share = positive / (max(largest, LEAST) + square)
    return np.asarray(share / np.add.reduce(share))


def weigh(mixture: Mixture, errors: Array, weight: Array) -> Mixture:
    """The mixture with the weights that would have erred least on rows that nobody had learned.

    errors: (n, E, m) of every expert; weight: (n,). Where all rows are known, these are better than
    the weights at the end of a pass over them: there one row that is far from all others, where the
    mixture erred by much, decides for hundreds of rows. With G the mean products of errors, they
    minimise w'(G + diag(G)/k) w, w >= 0, sum w = 1. k is the effective number of rows: fewer than
    n, the more a few large errors make up the whole. What was gained by all together stays, and
    with it how fast later rows change the weights.
    """
    from scipy.optimize import nnls

    E = errors.shape[1]
    inert = mixture.largest + mixture.square
    if E < 2 or not inert.all():
        return mixture
    rows = errors.transpose(0, 2, 1) * np.sqrt(weight)[:, None, None]
    rows = rows / max(float(np.abs(rows).max()), 1e-300)
    G = np.einsum("nme,nmf->ef", rows, rows, optimize=True)
    best = (rows[:, :, int(G.diagonal().argmin())] ** 2).sum(axis=1)
    effective_rows = best.sum() ** 2 / max(float(best @ best), 1e-300)
    G.flat[:: E + 1] *= 1.0 + 1.0 / max(float(effective_rows), 1.0)
    G.flat[:: E + 1] += ROUNDING * max(float(np.trace(G)), 1e-300)
    heavy = HEAVY * math.sqrt(float(np.trace(G)))
    A = np.vstack([np.linalg.cholesky(G).T, np.full(E, heavy)])
    w = nnls(A, np.append(np.zeros(E), heavy))[0]
    total = max(float(np.maximum(mixture.gain, 0.0).sum()), math.sqrt(mixture.largest))
    gain = np.where(w > 0.0, w * inert * (total / float(w @ inert)), np.minimum(mixture.gain, 0.0))
    return replace(mixture, gain=gain)


def combine(weights: Array, F: Array, V: Array) -> tuple[Array, Array]:
    """Means and variances (n, m) of experts' F, V: (n, E, m) with weights: (E,)."""
    mean = np.einsum("e,nem->nm", weights, F)
    apart = F - mean[:, None]
    return mean, np.einsum("e,nem->nm", weights, V + apart * apart)
