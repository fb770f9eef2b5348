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


def mixed(
    mixture: Mixture,
    F: Array,
    V: Array,
    Y: Array,
    awake: Array,
    weight: Array | None = None,
    bound: float = math.inf,
    relative: bool = False,
) -> tuple[Mixture, Array, Array]:
    """Mix rows in turn. F, V: (n, E, m) a-priori means and variances, Y: (n, m), awake: (E,).

    Returns the new mixture, and means and variances (n, m): the experts' own and their spread. An
    error of more than `bound` standard deviations counts as one of that size, or a single wild
    target would decide for ever who is believed. relative: gains are counted in units of the
    variance of the surest expert, MOST of them at most, so that the large errors of a beginning do
    not decide for long, and less by CURVE (f - f_i)^2.
    """
    n, _, m = F.shape
    gain, square, largest = mixture.gain.copy(), mixture.square.copy(), mixture.largest
    f, variance = np.empty((n, m)), np.empty((n, m))
    for t in range(n):
        w = _weights(gain, square, largest, awake)
        mean = w @ F[t]
        apart = mean - F[t]
        # What rounding leaves between experts that agree is no gain, and would decide who is
        # believed once they differ.
        apart[np.abs(apart) <= ROUNDING * max(np.abs(F[t]).max(), np.abs(Y[t]).max())] = 0.0
        f[t], variance[t] = mean, w @ (V[t] + apart * apart)
        error = mean - Y[t]
        if bound < math.inf:
            reach = bound * np.sqrt(variance[t])
            error = np.clip(error, -reach, reach)
        r = 2.0 * (apart @ error)
        if relative:
            best = max(float(V[t][awake].mean(axis=1).min()), 1e-300)
            r = np.clip((r - CURVE * (apart * apart).sum(axis=1)) / best, -MOST, MOST)
        r = np.where(awake, r if weight is None else weight[t] * r, 0.0)
        gain += r
        rr = r * r
        square += rr
        largest = max(largest, float(rr.max()))
    return replace(mixture, gain=gain, square=square, largest=largest), f, variance


def _weights(gain: Array, square: Array, largest: float, awake: Array) -> Array:
    positive = np.where(awake, np.maximum(gain, 0.0), 0.0)
    if not positive.any():
        return np.asarray(awake / awake.sum())
    share = positive / (largest + square)
    return np.asarray(share / share.sum())


def combine(weights: Array, F: Array, V: Array) -> tuple[Array, Array]:
    """Means and variances (n, m) of experts' F, V: (n, E, m) with weights: (E,)."""
    mean = np.einsum("e,nem->nm", weights, F)
    apart = F - mean[:, None]
    return mean, np.einsum("e,nem->nm", weights, V + apart * apart)
