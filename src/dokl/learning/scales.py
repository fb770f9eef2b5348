"""Length scales, one per input, learned from a pilot of rows.

They maximise the marginal likelihood of an exact Gaussian process with kernel

    a^2 k((x - x')/l) + b^2 x'x'/d + noise          k: Gaussian, or Matern 3/2

by L-BFGS with the analytic gradient. The number of evaluations is bounded, never the time, so the
same rows give the same scales on every machine. Several outputs share one kernel: the likelihoods
are added. A weak penalty keeps the scale of an irrelevant input from diverging. For rows
of groups see `dokl.learning.experts.places`.

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

from dokl.base import unlocked
from dokl.base.arrays import Array
from dokl.base.errors import UnknownName
from dokl.base.unlocked import one_thread
from dokl.learning import classification

KERNELS = ("gaussian", "matern32")
PENALTY = 0.025
# Where log b and the noise's log standard deviation begin. Thirty rows of several nodes can be
# fitted without any noise, and must not be believed to have none.
SLOPE, NOISE = -1.0, math.log(0.3)
CLASS_PENALTY = 0.5
EVALUATIONS = 60
_MIDDLE_NOISE = 0.5 * math.log(0.1)
# A pilot is of at most this many rows: each evaluation costs n^3.
MOST = 1000
# With more rows than this the search begins on every other row, where an evaluation costs an
# eighth, by SOONER as many evaluations, and continues on all of them by FINER as many. From scales
# where the smooth part has died out (a below FLAT) it does not continue.
HALVED, SOONER, FINER, FLAT = 500, 2 / 3, 1 / 3, 0.1
# A search that begins at known scales ends where a step gains less, as a share of the likelihood:
# about 0.1 of a thousand rows, where another draw of rows changes it by 10.
GAIN = 1e-4


@dataclass(frozen=True)
class Scales:
    """lengths: (d,); amplitude a and linear b, a number or (d,); noise: its variance, all for
    standardised rows; offset c: the standard deviation of what groups of rows differ by.
    """

    lengths: Array
    amplitude: float = 1.0
    linear: Any = 1.0
    noise: float = 0.01
    offset: float = 0.0


def isotropic(length: float, d: int) -> Scales:
    """The same length along every input."""
    return Scales(np.full(d, float(length)))


@one_thread()
def learn_scales(
    X: Array,
    Y: Array,
    kernel: str = "gaussian",
    evaluations: int = EVALUATIONS,
    before: Scales | None = None,
) -> Scales:
    """Scales for standardised rows X: (n, d) and targets Y: (n, m); n of a thousand at most.
    before: scales of as many rows, to begin with.

    Scales of few rows are a bad start. They look linear, a goes to 0, and there nothing depends on
    the lengths any more.
    """
    from scipy.optimize import minimize

    if kernel not in KERNELS:
        raise UnknownName("kernel", kernel, KERNELS)
    if before is None and len(X) > HALVED:
        drawn = half_of(len(X))
        half = learn_scales(X[drawn], Y[drawn], kernel, max(1, int(SOONER * evaluations)))
        if half.amplitude > FLAT:
            before, evaluations = half, max(1, int(FINER * evaluations))
    d = X.shape[1]
    middle = 0.5 * math.log(d)
    first = np.concatenate([np.full(d, middle), [0.0, SLOPE, NOISE]])
    if before is not None:
        about = before.amplitude, before.linear, math.sqrt(before.noise)
        first = np.log(np.append(before.lengths, about))
    bounds = [(middle - 4.0, middle + 6.0)] * d
    bounds += [(-3.0, 3.0), (-5.0, 3.0), (math.log(1e-3), 0.7)]
    limits = {"maxfun": evaluations, "maxiter": evaluations}
    options = limits if before is None else {**limits, "ftol": GAIN}
    best = minimize(
        negative_likelihood, first, (X, Y, kernel, _room(X)), "L-BFGS-B", jac=True, bounds=bounds,
        options=options,
    )  # fmt: skip
    a, b, noise = np.exp(best.x[d:]) ** np.array([1, 1, 2])
    return Scales(np.exp(best.x[:d]), float(a), float(b), float(noise))


def half_of(n: int) -> Array:
    """Half of n rows, drawn: every other row of two sources in turn is a row of the same source."""
    return np.sort(np.random.default_rng(0).permutation(n)[: n // 2])


def negative_likelihood(
    p: Array, X: Array, Y: Array, kernel: str, room: _Room | None = None
) -> tuple[float, Array]:
    """Minus the log marginal likelihood with its penalty, and its gradient.

    p: logarithms of the d lengths, of a, of b, and of the noise's standard deviation. room: what
    one evaluation leaves to the next.
    """
    d = X.shape[1]
    room = _room(X) if room is None else room
    made = _covariances(p, X, kernel, room)
    found = likelihood_by_kernel(made.K, Y)
    if found is None:
        return 1e25, np.zeros_like(p)
    value, pull = found
    slope = _by_parameters(X, made, pull, room)
    off = p[:d] - 0.5 * math.log(d)
    slope[:d] += 2.0 * PENALTY * off
    return value + PENALTY * float(off @ off), slope


def likelihood_by_kernel(K: Array, Y: Array) -> tuple[float, Array] | None:
    """Minus the log marginal likelihood of targets Y: (n, m) with covariance K: (n, n), and its
    derivatives by K, of which the lower triangle counts. None where K is not positive definite.

    K is overwritten.
    """
    from scipy.linalg.blas import dsymm

    m, inverse = Y.shape[1], K.T
    if not unlocked.potrf(inverse):
        return None
    half_determinant = float(np.log(inverse.diagonal()).sum())
    unlocked.potri(inverse)  # its lower triangle, as all from here on
    alpha = dsymm(1.0, inverse, Y, lower=1)
    value = 0.5 * float((Y * alpha).sum()) + m * half_determinant
    unlocked.syrk(-0.5, alpha.T, 0.5 * m, inverse)  # one pass, over that triangle
    return value, inverse


@one_thread()
def learn_class_scales(
    X: Array, numbers: Array, classes: int, kernel: str = "gaussian", evaluations: int = 30
) -> Scales:
    """Scales for standardised rows X: (n, d) of classes by number (n,).

    They minimise the log loss of what least squares predicts for each row without that row. Targets
    -1 and 1 are no Gaussian process: on rare classes its likelihood sees no noise, and takes scales
    that are far too short (letter: 8.7 % errors with them, 4.7 with these).
    """
    from scipy.optimize import minimize

    if kernel not in KERNELS:
        raise UnknownName("kernel", kernel, KERNELS)
    d = X.shape[1]
    middle = 0.5 * math.log(d)
    first = np.concatenate([np.full(d, middle), [0.0, 0.0, _MIDDLE_NOISE, math.log(3.0)]])
    bounds = [(middle - 4.0, middle + 6.0)] * d
    bounds += [(-5.0, 3.0), (-5.0, 3.0), (math.log(1e-3), 1.5), (-3.0, 6.0)]
    limits = {"maxfun": evaluations, "maxiter": evaluations}
    given = X, classification.targets(numbers, classes), numbers, kernel, _room(X)
    best = minimize(
        leave_one_out_loss, first, given, "L-BFGS-B", jac=True, bounds=bounds, options=limits
    )
    a, b, noise = np.exp(best.x[d : d + 3]) ** np.array([1, 1, 2])
    return Scales(np.exp(best.x[:d]), float(a), float(b), float(noise))


def leave_one_out_loss(
    p: Array, X: Array, Y: Array, numbers: Array, kernel: str, room: _Room | None = None
) -> tuple[float, Array]:
    """Log loss of softmax(steepness f), where f is what the other rows predict for a row, with its
    penalty, and its gradient.

    p: logarithms of the d lengths, of a, of b, of the noise's standard deviation, of the steepness.
    Without row i, f_i = y_i - (K^-1 y)_i/(K^-1)_ii.
    """
    d = X.shape[1]
    room = _room(X) if room is None else room
    made = _covariances(p[:-1], X, kernel, room)
    found = class_loss_by_kernel(made.K, Y, numbers, math.exp(p[-1]))
    if found is None:
        return 1e25, np.zeros_like(p)
    value, pull, by_steepness = found
    slope = np.append(_by_parameters(X, made, pull, room), by_steepness)
    off = p[: d + 3] - np.array([0.5 * math.log(d)] * d + [0.0, 0.0, _MIDDLE_NOISE])
    weight = CLASS_PENALTY * np.array([1.0] * (d + 2) + [4.0])
    slope[:-1] += 2.0 * weight * off
    return value + float(weight @ off**2), slope


def class_loss_by_kernel(
    K: Array, Y: Array, numbers: Array, steep: float
) -> tuple[float, Array, float] | None:
    """The log loss of classes by number (n,), coded as Y: (n, m), with covariance K: (n, n), which
    is overwritten; its derivatives by K, and by the logarithm of the steepness. None where K is
    not positive definite.
    """
    n, centre, inverse = len(Y), Y.mean(axis=0), K.T
    if not unlocked.potrf(inverse):
        return None
    unlocked.potri(inverse)
    inverse = np.tril(inverse) + np.tril(inverse, -1).T
    alpha, own = inverse @ (Y - centre), inverse.diagonal()[:, None]
    f = Y - alpha / own
    level = steep * (np.hstack([-f, f]) if Y.shape[1] == 1 else f)
    level -= level.max(axis=1, keepdims=True)
    sums = np.exp(level).sum(axis=1, keepdims=True)
    value = float(np.log(sums).sum() - level[np.arange(n), numbers].sum())
    off_class = np.exp(level) / sums
    off_class[np.arange(n), numbers] -= 1.0
    by_f = steep * (np.diff(off_class) if Y.shape[1] == 1 else off_class)
    by_own = (by_f * alpha).sum(axis=1) / own[:, 0] ** 2
    crossed = (inverse @ (by_f / own)) @ alpha.T
    pull = 0.5 * (crossed + crossed.T) - (inverse * by_own) @ inverse
    return value, pull, float((off_class * level).sum())


def squared_distances(A: Array, B: Array, out: Array | None = None) -> Array:
    """(n, k) for rows A: (n, d), B: (k, d); out: where to."""
    apart = np.matmul(-2.0 * A, B.T, out=out)
    apart += np.einsum("ij,ij->i", A, A)[:, None]
    apart += np.einsum("ij,ij->i", B, B)
    return np.asarray(np.maximum(apart, 0.0, out=apart))


def correlation(kernel: str, squared: Array) -> Array:
    """k of squared distances, which are overwritten."""
    if kernel == "gaussian":
        squared *= -0.5
        return np.asarray(np.exp(squared, out=squared))
    squared *= 3.0
    root = np.sqrt(squared, out=squared)
    decay = np.negative(root)
    np.exp(decay, out=decay)
    root += 1.0
    root *= decay
    return root


@dataclass(frozen=True)
class _Room:
    """Arrays (n, n) that every evaluation fills again: to fetch them from the system each time
    costs as much as the arithmetic. inner: X X'.
    """

    inner: Array
    smooth: Array
    slope: Array
    K: Array
    spare: Array


def _room(X: Array) -> _Room:
    n = len(X)
    return _Room(X @ X.T, *(np.empty((n, n)) for _ in range(4)))


@dataclass(frozen=True)
class _Covariances:
    """Rows over their lengths (n, d); a^2 k, what multiplies (x_j - x'_j)^2/l_j^2 in its derivative
    by log l_j, and all of the kernel, each (n, n); b^2/d, and the variance of the noise.
    """

    scaled: Array
    smooth: Array
    slope: Array
    K: Array
    line: float
    noise: float


def _covariances(p: Array, X: Array, kernel: str, room: _Room) -> _Covariances:
    n, d = X.shape
    scaled = np.asfortranarray(X / np.exp(p[:d]))
    a2, b2, noise = np.exp(2.0 * p[d:]).tolist()
    line = b2 / d
    smooth = slope = squared_distances(scaled, scaled, room.smooth)
    if kernel == "gaussian":
        smooth *= -0.5
        np.exp(smooth, out=smooth)
        smooth *= a2
    else:
        smooth *= 3.0
        root, slope = np.sqrt(smooth, out=smooth), np.negative(smooth, out=room.slope)
        np.exp(slope, out=slope)
        slope *= a2
        root += 1.0
        smooth *= slope
        slope *= 3.0
    K = np.multiply(room.inner, line, out=room.K)
    K += smooth
    K.flat[:: n + 1] += noise
    return _Covariances(scaled, smooth, slope, K, line, noise)


def _by_parameters(X: Array, made: _Covariances, pull: Array, room: _Room) -> Array:
    """Derivatives by p: (d + 3,), from those by K, of which the lower triangle counts."""
    from scipy.linalg.blas import dsymm, dsymv

    scaled, ones = made.scaled, np.ones(len(X))
    bend = np.multiply(pull, made.slope.T, out=room.spare.T)
    rows = dsymv(1.0, bend, ones, lower=1)
    along = 2.0 * (rows @ scaled**2 - (scaled * dsymm(1.0, bend, scaled, lower=1)).sum(axis=0))
    amplitude = rows.sum()
    if made.slope is not made.smooth:
        both = np.multiply(pull, made.smooth.T, out=room.spare.T)
        amplitude = dsymv(1.0, both, ones, lower=1).sum()
    each = X * dsymm(1.0, pull, X, lower=1)
    rest = amplitude, made.line * each.sum(), made.noise * np.trace(pull)
    return np.concatenate([along, 2.0 * np.array(rest)])
