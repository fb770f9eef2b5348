"""Probabilities that mean what they say: scores calibrated online, row by row.

Scores of least squares on targets -1 and 1 are no probabilities. With one score g_k for each class,

    p = softmax(b_1 g + b_2 l(g) + c),   l(g) = log of the smoothed positive part of (1 + g)/2

where (1 + g)/2 is what a score would be if it were a probability. Two slopes b are shared by all
classes, biases c are one each; both follow the log loss by Newton steps that remember N rows. The
probabilities told for a row are those before it was learned, so they can be judged by it.

>>> rng = np.random.default_rng(0)
>>> y = rng.integers(2, size=3000)
>>> f = (2 * y - 1) + 1.5 * rng.normal(size=3000)
>>> state, level = followed(start(2), both(f[:, None]), y)
>>> said = softmax(level)[1000:, 1]
>>> bool(abs(y[1000:][said > 0.7].mean() - said[said > 0.7].mean()) < 0.05)
True
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dokl.arrays import Array

SMOOTH = 0.04
REMEMBERED = 1000.0
FIRST_SLOPES = (1.5, 0.5)
SLOPE_PRIOR, BIAS_PRIOR = 1.0, 5.0


@dataclass(frozen=True)
class Calibration:
    """slopes: (2,), bias: (classes,), and their curvatures (2, 2) and (classes,)."""

    slopes: Array
    bias: Array
    bend: Array
    bias_bend: Array


def start(classes: int) -> Calibration:
    """Before any row: scores taken for what they would be on a well-fitted model."""
    curvature = SLOPE_PRIOR * np.eye(2), np.full(classes, BIAS_PRIOR)
    return Calibration(np.array(FIRST_SLOPES), np.zeros(classes), *curvature)


def both(scores: Array) -> Array:
    """One score for each class: (n, classes), from the scores (n, m) of a model."""
    return np.hstack([-scores, scores]) if scores.shape[1] == 1 else scores


def inputs(scores: Array) -> Array:
    """What the slopes multiply: (n, classes, 2)."""
    share = 0.5 * (1.0 + scores)
    positive = 0.5 * (share + np.sqrt(share * share + 4.0 * SMOOTH**2))
    return np.stack([scores, np.log(positive)], axis=-1)


def levels(state: Calibration, scores: Array) -> Array:
    """Logarithms of probabilities but for a constant per row: (n, classes)."""
    return np.asarray(inputs(scores) @ state.slopes + state.bias)


def softmax(level: Array) -> Array:
    """Probabilities over the last axis."""
    raised = np.exp(level - level.max(axis=-1, keepdims=True))
    return np.asarray(raised / raised.sum(axis=-1, keepdims=True))


def followed(
    state: Calibration, scores: Array, numbers: Array, weight: Array | None = None
) -> tuple[Calibration, Array]:
    """Follow rows with scores (n, classes) of classes number (n,); returns the levels (n, classes)
    that stood before each row.
    """
    b, c, A, d = state.slopes, state.bias, state.bend, state.bias_bend
    keep, prior = 1.0 - 1.0 / REMEMBERED, SLOPE_PRIOR * np.eye(2)
    H, out = inputs(scores), np.empty(scores.shape)
    for t, h in enumerate(H):
        out[t] = h @ b + c
        p = softmax(out[t])
        w = 1.0 if weight is None else float(weight[t])
        g = p.copy()
        g[numbers[t]] -= 1.0
        mean = p @ h
        A = keep * A + (1.0 - keep) * prior + w * ((p[:, None] * h).T @ h - np.outer(mean, mean))
        d = keep * d + (1.0 - keep) * BIAS_PRIOR + w * p * (1.0 - p)
        b = b - w * np.linalg.solve(A, g @ h)
        c = c - w * g / d
    return Calibration(b, c, A, d), out


def probabilities(state: Calibration, scores: Array) -> Array:
    """(n, classes) for scores (n, classes)."""
    return softmax(levels(state, scores))
