"""Calibrated probabilities: scores calibrated online, row by row.

Least squares on targets -1 and 1 estimates 2p - 1, roughly: it is too sure near the ends and too
modest where it has seen little. With one score g_k for each class,

    p = softmax(b_1 g + b_2 l + c),   l = log of u's smoothed positive part,   u = (1 + g)/2

where u is what a score would be if it were a probability. Two slopes b, never negative, are shared
by all classes, biases c are one each. Both follow the log loss by Newton steps, on scores given
before a row was learned. With r = p - [true class] of a row of weight w, and h = (g, l),

    slopes  R = sum_k r_k h_k,   A <- lam A + (1 - lam) A_0 + w cov_p(h),         b -= A^-1 w R
    biases  r_k,                 A_k <- lam A_k + (1 - lam) A_0 + w p_k (1 - p_k),  c_k -= w r_k/A_k

and no step is longer than 1, so that a row of a rare class with a large weight cannot throw the map
away. Steps are taken after rows 1, 2, 4, 8, 16, 32, 64, 96... with sums in between: a call's rows
are worked on together, and how a stream is cut does not matter, to the last bit.

>>> rng = np.random.default_rng(0)
>>> y = rng.integers(2, size=3000)
>>> f = (2 * y - 1) + 1.5 * rng.normal(size=3000)
>>> state, level = follow(start(2), both(f[:, None]), y)
>>> p = softmax(level)[1000:, 1]
>>> bool(abs(y[1000:][p > 0.7].mean() - p[p > 0.7].mean()) < 0.05)
True
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dokl.base.arrays import Array

SMOOTH = 0.03  # a score of -1 stands for about this probability
FARTHEST = 3.0  # scores beyond add nothing
REMEMBERED = 500.0
EVERY = 32
FIRST_SLOPES = (1.5, 0.5)
LONGEST = 1.0
SLOPE_PRIOR, BIAS_PRIOR = 2.0, 20.0


@dataclass(frozen=True)
class Calibration:
    """slopes: (2,), bias: (classes,), and their curvatures A, bend: (2, 2), bias_bend: (classes,).

    Since the last step: sums of gradients (pull) and of curvatures (gain). seen: rows of positive
    weight, a whole number.
    """

    slopes: Array
    bias: Array
    bend: Array
    bias_bend: Array
    pull: Array
    bias_pull: Array
    gain: Array
    bias_gain: Array
    seen: Array


def start(classes: int) -> Calibration:
    """Before any row: scores taken for what they would be on a well-fitted model."""
    k, zeros = classes, np.zeros
    curvature = SLOPE_PRIOR * np.eye(2), np.full(k, BIAS_PRIOR)
    sums = zeros(2), zeros(k), zeros((2, 2)), zeros(k)
    return Calibration(np.array(FIRST_SLOPES), zeros(k), *curvature, *sums, np.array(0))


def both(scores: Array) -> Array:
    """One score for each class: (n, classes), from the scores (n, m) of a model."""
    return np.hstack([-scores, scores]) if scores.shape[1] == 1 else scores


def inputs(scores: Array) -> Array:
    """What the slopes multiply: (n, 2, classes)."""
    near = np.clip(scores, -FARTHEST, FARTHEST)
    share = 0.5 * (1.0 + near)
    positive = 0.5 * (share + np.sqrt(share * share + 4.0 * SMOOTH**2))
    return np.stack([near, np.log(positive)], axis=1)


def levels(state: Calibration, scores: Array) -> Array:
    """Logarithms of probabilities but for a constant per row: (n, classes)."""
    return _levels(state, inputs(scores))


def _levels(state: Calibration, h: Array) -> Array:
    return np.asarray(state.slopes[0] * h[:, 0] + state.slopes[1] * h[:, 1] + state.bias)


def softmax(level: Array) -> Array:
    """Probabilities over the last axis."""
    raised = np.exp(level - level.max(axis=-1, keepdims=True))
    return np.asarray(raised / raised.sum(axis=-1, keepdims=True))


def probabilities(state: Calibration, scores: Array) -> Array:
    """(n, classes) for scores (n, classes)."""
    return softmax(levels(state, scores))


def follow(
    state: Calibration, scores: Array, numbers: Array, weight: Array | None = None
) -> tuple[Calibration, Array]:
    """Follow rows with scores (n, classes) of classes number (n,); returns the levels (n, classes)
    that stood before each row. A row of weight 0 changes nothing.
    """
    n, h, out = len(scores), inputs(scores), np.empty(scores.shape)
    w = np.ones(n) if weight is None else np.asarray(weight, np.float64)
    counts, at = int(state.seen) + np.cumsum(w > 0), 0
    while at < n:
        stop = _next_step(int(state.seen))
        some = slice(at, min(n, int(np.searchsorted(counts, stop)) + 1))
        out[some] = _levels(state, h[some])
        state = _with_rows(state, h[some], softmax(out[some]), numbers[some], w[some])
        if state.seen == stop:
            state = _step(state)
        at = some.stop
    return state, out


def _with_rows(state: Calibration, h: Array, p: Array, numbers: Array, w: Array) -> Calibration:
    """Gradients and curvatures of some rows, added one after the other."""
    r = p.copy()
    r[np.arange(len(r)), numbers] -= 1.0
    R, mean = ((each[:, None] * h).sum(axis=2) for each in (r, p))
    off = h - mean[:, :, None]
    spread = (p[:, None, None] * off[:, :, None] * off[:, None]).sum(axis=3)
    w1 = w[:, None]
    return replace(
        state,
        pull=_onward(state.pull, w1 * R),
        bias_pull=_onward(state.bias_pull, w1 * r),
        gain=_onward(state.gain, w1[:, None] * spread),
        bias_gain=_onward(state.bias_gain, w1 * p * (1.0 - p)),
        seen=state.seen + np.count_nonzero(w > 0),
    )


def _onward(total: Array, rows: Array) -> Array:
    """A sum that goes on row by row, the same however the rows come."""
    return np.asarray(np.cumsum(np.concatenate([total[None], rows]), axis=0)[-1])


def _next_step(seen: int) -> int:
    """The number of rows after which the next step is taken."""
    return 1 << seen.bit_length() if seen < EVERY else (seen // EVERY + 1) * EVERY


def _step(state: Calibration) -> Calibration:
    """A Newton step by the rows since the last one; the sums begin again."""
    seen = int(state.seen)
    keep = (1.0 - 1.0 / REMEMBERED) ** (seen - seen // 2 if seen <= EVERY else EVERY)
    A = keep * state.bend + (1.0 - keep) * SLOPE_PRIOR * np.eye(2) + state.gain
    each = keep * state.bias_bend + (1.0 - keep) * BIAS_PRIOR + state.bias_gain
    slopes = _feasible(state.slopes - _short(np.linalg.solve(A, state.pull)), A)
    bias = state.bias - _short(state.bias_pull / each)
    fresh = start(len(bias))
    knowing = {"slopes": slopes, "bias": bias - bias.mean(), "bend": A, "bias_bend": each}
    return replace(fresh, seen=state.seen, **knowing)


def _short(step: Array) -> Array:
    longest = float(np.abs(step).max())
    return step if longest <= LONGEST else step * (LONGEST / longest)


def _feasible(b: Array, A: Array) -> Array:
    """The slopes that are not negative and nearest to b in the metric of A: (2,). Cutting b off
    would forget that one slope has grown to make up for the other.
    """
    for i, other in ((0, 1), (1, 0)):
        if b[i] < 0.0:
            b[other] += b[i] * A[0, 1] / A[other, other]
            b[i] = 0.0
    return np.asarray(np.maximum(b, 0.0))
