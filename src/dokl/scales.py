"""Length scales, one per input, learned from a pilot of rows.

They maximise the marginal likelihood of an exact Gaussian process with kernel

    a^2 k((x - x')/l) + b^2 x'x'/d + noise          k: Gaussian, or Matern 3/2

by L-BFGS with the analytic gradient. The number of evaluations is bounded, never the time, so the
same rows give the same scales on every machine. Several outputs share one kernel: the likelihoods
are added. A weak penalty keeps the scale of an input that says nothing from running away.

>>> X = np.random.default_rng(0).normal(size=(150, 3))
>>> found = learn_scales(X, np.sin(2 * X[:, :1]))
>>> bool(found.lengths[0] < 0.3 * found.lengths[1:].min())
True
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from dokl.arrays import Array
from dokl.errors import UnknownName

KERNELS = ("gaussian", "matern32")
PENALTY = 0.025
EVALUATIONS = 60
# A pilot is of at most so many rows: each evaluation costs n^3.
MOST = 1000


@dataclass(frozen=True)
class Scales:
    """lengths: (d,); amplitude a and linear b; noise: its variance, all for standardised rows."""

    lengths: Array
    amplitude: float = 1.0
    linear: float = 1.0
    noise: float = 0.01

    @property
    def relevance(self) -> Array:
        """How much the function bends along each input, summing to 1: (d,)."""
        bend = 1.0 / self.lengths
        return np.asarray(bend / bend.sum())


def isotropic(length: float, d: int) -> Scales:
    """The same length along every input."""
    return Scales(np.full(d, float(length)))


def learn_scales(
    X: Array, Y: Array, kernel: str = "gaussian", evaluations: int = EVALUATIONS
) -> Scales:
    """Scales for standardised rows X: (n, d) and targets Y: (n, m); n of a thousand at most.

    Always from the same start: scales of fewer rows are a bad one. Few rows look linear, a goes
    to 0, and there nothing depends on the lengths any more.
    """
    from scipy.optimize import minimize

    if kernel not in KERNELS:
        raise UnknownName("kernel", kernel, KERNELS)
    d = X.shape[1]
    middle = 0.5 * math.log(d)
    first = np.concatenate([np.full(d, middle), [0.0, -1.0, math.log(0.3)]])
    bounds = [(middle - 4.0, middle + 6.0)] * d + [(-3.0, 3.0), (-5.0, 3.0), (math.log(1e-3), 0.7)]
    limits = {"maxfun": evaluations, "maxiter": evaluations}
    best = minimize(
        negative_likelihood, first, (X, Y, kernel), "L-BFGS-B", jac=True, bounds=bounds,
        options=limits,
    )  # fmt: skip
    a, b, noise = np.exp(best.x[d:]) ** np.array([1, 1, 2])
    return Scales(np.exp(best.x[:d]), float(a), float(b), float(noise))


def negative_likelihood(p: Array, X: Array, Y: Array, kernel: str) -> tuple[float, Array]:
    """Minus the log marginal likelihood with its penalty, and its gradient.

    p: logarithms of the d lengths, of a, of b, and of the noise's standard deviation.
    """
    from scipy.linalg import lapack
    from scipy.linalg.blas import dsymm, dsymv

    n, d = X.shape
    m = Y.shape[1]
    scaled = np.asfortranarray(X / np.exp(p[:d]))
    a2, b2, noise = np.exp(2.0 * p[d:])
    smooth, slope = _covariance(scaled, a2, kernel)
    K = X @ X.T
    K *= b2 / d
    K += smooth
    K.flat[:: n + 1] += noise
    C, info = lapack.dpotrf(K.T, lower=1, overwrite_a=1)
    if info:
        return 1e25, np.zeros_like(p)
    half_determinant = float(np.log(C.diagonal()).sum())
    inverse, _ = lapack.dpotri(C, lower=1, overwrite_c=1)  # its lower triangle, as all from here on
    alpha = dsymm(1.0, inverse, Y, lower=1)
    value = 0.5 * float((Y * alpha).sum()) + m * half_determinant
    pull = inverse  # d value / d K
    pull *= 0.5 * m
    pull -= 0.5 * (alpha @ alpha.T)
    bend, ones = pull * slope.T, np.ones(n)
    rows = dsymv(1.0, bend, ones, lower=1)
    along = 2.0 * (rows @ scaled**2 - (scaled * dsymm(1.0, bend, scaled, lower=1)).sum(axis=0))
    off = p[:d] - 0.5 * math.log(d)
    along += 2.0 * PENALTY * off
    amplitude = rows.sum() if slope is smooth else dsymv(1.0, pull * smooth.T, ones, lower=1).sum()
    line = (b2 / d) * (X * dsymm(1.0, pull, X, lower=1)).sum()
    rest = amplitude, line, noise * np.trace(pull)
    return value + PENALTY * float(off @ off), np.concatenate([along, 2.0 * np.array(rest)])


def squared_distances(A: Array, B: Array) -> Array:
    """(n, k) for rows A: (n, d), B: (k, d)."""
    apart = -2.0 * (A @ B.T)
    apart += np.einsum("ij,ij->i", A, A)[:, None]
    apart += np.einsum("ij,ij->i", B, B)
    return np.maximum(apart, 0.0, out=apart)


def correlation(kernel: str, squared: Array) -> Array:
    """k of squared distances."""
    if kernel == "gaussian":
        return np.asarray(np.exp(-0.5 * squared))
    root = np.sqrt(3.0 * squared)
    return np.asarray((1.0 + root) * np.exp(-root))


def _covariance(scaled: Array, a2: Any, kernel: str) -> tuple[Array, Array]:
    """a^2 k, and what multiplies (x_j - x'_j)^2/l_j^2 in its derivative by log l_j."""
    squared = squared_distances(scaled, scaled)
    if kernel == "gaussian":
        smooth = a2 * np.exp(-0.5 * squared)
        return smooth, smooth
    root = np.sqrt(3.0 * squared)
    fall = a2 * np.exp(-root)
    return (1.0 + root) * fall, 3.0 * fall
