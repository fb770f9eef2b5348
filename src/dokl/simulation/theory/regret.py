"""Agreement and regret: the bounds with their constants, and what a run really did."""

from __future__ import annotations

from typing import Any

import numpy as np

from dokl.base.arrays import Array
from dokl.base.errors import BadInput
from dokl.learning import schedules
from dokl.learning.features import AnyMap
from dokl.learning.losses import Loss
from dokl.learning.metrics import regret
from dokl.simulation.theory.mixing import graph_modes


def second_modulus(weights: object) -> float:
    """lambda_2, the second largest |a_p|: what a combination leaves of disagreement.

    The spectral gap is 1 - lambda_2.
    """
    a = graph_modes(weights)[0]
    return float(np.abs(a[1:]).max(initial=0.0))


def gradient_bound(loss: Loss, features: AnyMap, largest_y: float, U_2: float) -> float:
    """U: a bound on |grad L| = |slope| |z| while |theta| <= U_2 and |y| <= largest_y.

    The slope of a convex loss is monotone in the prediction, so its ends suffice.
    """
    z = float(np.sqrt(features.sup_norm2))
    y = np.array([-largest_y, largest_y])[:, None]
    f = np.array([-U_2 * z, U_2 * z])[None, :]
    return float(np.abs(np.asarray(loss.slope(y, f), dtype=np.float64)).max() * z)


def disagreement_bound(weights: object, schedule: object, U: float, n: int) -> Array:
    """(n,): root mean square distance from the mean, at most sum_j lambda_2^(n-j) mu_j U.

    With mu_n = mu / sqrt(n) it falls as mu U / ((1 - lambda_2) sqrt(n)); with a constant step, or
    weights that do not connect (lambda_2 = 1), it does not.
    """
    schedule, shrink = schedules.resolve(schedule), second_modulus(weights)
    bound, at = np.empty(n), 0.0
    for i in range(n):
        at = shrink * at + float(schedule(i + 1, 1.0)) * U
        bound[i] = at
    return bound


def regret_bound(K: int, n: int, mu: float, g_norm: float, U: float, U_2: float) -> float:
    """Of all nodes together over n steps with mu_n = mu / sqrt(n), from theta = 0:

    K |g|^2 / (2 mu) + K U^2 mu sqrt(n) + 2 K U_2^2 (sqrt(n) + 1) / mu,

    where U bounds the gradients' norm, and U_2 both |theta_k| and |g|. It needs a step of the
    order of 1/sqrt(n), not merely below it.

    >>> regret_bound(K=1, n=4, mu=1.0, g_norm=2.0, U=1.0, U_2=2.0)
    28.0
    """
    if mu <= 0:
        raise BadInput(f"the bound needs a step above 0, got {mu!r}: mu = 0 has linear regret")
    root = np.sqrt(n)
    return float(K * (g_norm**2 / (2 * mu) + U**2 * mu * root + 2 * U_2**2 * (root + 1) / mu))


def best_fixed(loss: Loss, Z: Array, y: Array, radius: float = np.inf) -> Array:
    """theta of least total loss on features Z: (N, D) and targets y: (N,), |theta| <= radius.

    A ridge penalty is raised until the ball is met; for the squared loss this is exact, for
    others L-BFGS minimises (kinks cost it a little, so measured regret errs low, if at all).
    """
    solve = _ridge(Z, y) if loss.name == "squared" else _descent(loss, Z, y)
    theta: Array = solve(0.0)
    if np.linalg.norm(theta) <= radius:
        return theta
    low, high = -40.0, 10.0  # log of the penalty, which is per sample
    for _ in range(60):
        middle = (low + high) / 2
        theta = solve(np.exp(middle))
        low, high = (middle, high) if np.linalg.norm(theta) > radius else (low, middle)
    return np.asarray(solve(np.exp(high)))


def measured_regret(loss: Loss, predictions: Array, y: Array, best: Array) -> Array:
    """Regret of the whole network after each step, (n,).

    predictions, y and best (the comparator's predictions): (n, K), or (n, K, 1) as a Trace
    records them: `trace.curves["predictions"][run]`. Steps without a sample (NaN) count nothing.
    """
    f, y, g = (np.asarray(a, dtype=np.float64).reshape(len(a), -1) for a in (predictions, y, best))
    if not f.shape == y.shape == g.shape:
        raise BadInput(f"predictions, y and best differ in shape: {f.shape}, {y.shape}, {g.shape}")
    there = ~np.isnan(f)
    paid = np.where(there, loss.value(y, np.where(there, f, 0.0)), 0.0)
    fixed = np.where(there, loss.value(y, g), 0.0)
    return regret(paid.sum(axis=1), fixed.sum(axis=1))


def _ridge(Z: Array, y: Array) -> Any:
    """penalty -> argmin of mean (y - Z theta)^2 / 2 + penalty |theta|^2 / 2, by one SVD."""
    left, size, right = np.linalg.svd(Z / np.sqrt(len(Z)), full_matrices=False)
    seen = left.T @ (y / np.sqrt(len(Z)))
    keep = size > 1e-10 * size[0]

    def solve(penalty: float) -> Array:
        return np.asarray(right[keep].T @ (size * seen / (size**2 + penalty))[keep])

    return solve


def _descent(loss: Loss, Z: Array, y: Array) -> Any:
    from scipy.optimize import minimize

    def solve(penalty: float) -> Array:
        def value_and_slope(theta: Array) -> tuple[float, Array]:
            f = Z @ theta
            value = np.mean(loss.value(y, f)) + penalty * theta @ theta / 2
            return float(value), Z.T @ loss.slope(y, f) / len(y) + penalty * theta

        start = np.zeros(Z.shape[1])
        found = minimize(value_and_slope, start, jac=True, method="L-BFGS-B")
        return np.asarray(found.x)

    return solve
