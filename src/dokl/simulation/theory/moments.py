"""R_zz = E zz' and E[z y]: in closed form for Gaussian inputs, from the points otherwise.

Each feature is z_a = sqrt(2/D) cos(c_a + omega_f'(x - m)), where f is its frequency, and
c_a = omega_f'm plus its phase (-pi/2 for a sine). With C_a = cos c_a, S_a = sin c_a, x ~ N(m, S),

    r_ab = (1/D) [C_a (E1 + E2)_fg C_b + S_a (E1 - E2)_fg S_b],
    E1_fg = exp(-u'Su/2), u = omega_f - omega_g,   E2_fg = exp(-v'Sv/2), v = omega_f + omega_g,

so a paired map of D features needs only (D/2)^2 exponentials. Products R V go row by row and
never hold R. Only the frequencies enter: the formula serves every kernel and variant.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from dokl.base.arrays import Array
from dokl.base.errors import BadInput
from dokl.learning.kernels import Gaussian
from dokl.simulation.theory.inputs import InputLaw

SCRATCH = 2**21  # numbers in a temporary array, 16 MiB


@dataclass(frozen=True)
class KernelExpansion:
    """f(x) = sum_m coefficients_m kappa(x - centres_m); centres: (M, d)."""

    kernel: Any
    centres: Array
    coefficients: Array

    def __call__(self, X: Array) -> Array:
        """X: (n, d) -> (n,)."""
        step = max(1, SCRATCH // self.centres.size)
        parts = [X[i : i + step, None, :] - self.centres for i in range(0, len(X), step)]
        return np.concatenate([self.kernel(delta) @ self.coefficients for delta in parts])


def autocorrelation(features: Any, inputs: InputLaw) -> Array:
    """R_zz: (D, D), formed; for large D use `product`."""
    return product(features, inputs, np.eye(features.D))


def trace(features: Any, inputs: InputLaw) -> float:
    """tr R_zz = E|z|^2: exactly 1 for the paired variants."""
    if hasattr(features, "modes"):
        return float(np.trace(autocorrelation(features, inputs)))
    if features.paired:
        return 1.0
    if inputs.gaussian:
        omega, C, S = _waves(features, inputs)
        square = np.einsum("df,df->f", omega, inputs.normal[1] @ omega)
        return float(np.mean(1 + np.exp(-2 * square) * (C**2 - S**2)))
    return float(sum(w @ (Z**2).sum(1) for Z, w in feature_rows(features, inputs)))


def product(features: Any, inputs: InputLaw, V: Array) -> Array:
    """R_zz V for V: (D, k), in memory of the order of (D + k) times a few rows."""
    if hasattr(features, "modes"):
        return np.asarray(features.modes.T @ product(features.base, inputs, features.modes @ V))
    if inputs.gaussian:
        return _gaussian_product(features, inputs, V)
    out = np.zeros((features.D, V.shape[1]))
    for Z, w in feature_rows(features, inputs):
        out += Z.T @ (w[:, None] * (Z @ V))
    return out


def cross_moment(features: Any, inputs: InputLaw, target: Any) -> Array:
    """p = E[z f(x)]: (D,) for one target, (D, J) for values (S, J) on the points.

    Closed form for a `KernelExpansion` of a Gaussian kernel under Gaussian inputs; a function or
    its values on the points otherwise.
    """
    if inputs.gaussian and _closed(target):
        if hasattr(features, "modes"):
            return np.asarray(features.modes.T @ cross_moment(features.base, inputs, target))
        return _expansion_moment(features, inputs, target)
    values, at = target_values(target, inputs), 0
    total = np.zeros((features.D, values.shape[1]))
    for Z, w in feature_rows(features, inputs):
        total += Z.T @ (w[:, None] * values[at : at + len(Z)])
        at += len(Z)
    return total[:, 0] if total.shape[1] == 1 else total


def power(inputs: InputLaw, target: Any) -> float:
    """E[f(x)^2], averaged over targets; closed form where `cross_moment` has one."""
    if inputs.gaussian and _closed(target):
        c, a, sigma = target.centres, target.coefficients, target.kernel.sigma
        middle = ((c[:, None] + c[None]) / 2).reshape(-1, c.shape[1])
        apart = np.exp(-((c[:, None] - c[None]) ** 2).sum(-1) / (4 * sigma**2))
        overlap = apart * _mean_kernel(inputs, middle, sigma / np.sqrt(2)).reshape(apart.shape)
        return float(a @ overlap @ a)
    return float(inputs.weight @ (target_values(target, inputs) ** 2).mean(1))


def target_values(target: object, inputs: InputLaw) -> Array:
    """Values on the points, (S, J): of a function, of several (a list), or given as numbers.

    Several targets, or several columns, are averaged over by whatever uses them.
    """
    if callable(target):
        target = [target]
    if isinstance(target, list | tuple) and target and callable(target[0]):
        columns = [np.asarray(f(inputs.X), dtype=np.float64).reshape(-1) for f in target]
        values = np.stack(columns, axis=1)
    else:
        values = np.asarray(target, dtype=np.float64)
        values = values[:, None] if values.ndim == 1 else values
    if values.ndim != 2 or len(values) != len(inputs.weight):
        wanted = f"one value for each of the {len(inputs.weight)} input points"
        raise BadInput(f"a target is a function of X: (n, d), or {wanted}; got {values.shape}")
    return values


def feature_rows(features: Any, inputs: InputLaw) -> Iterator[tuple[Array, Array]]:
    """Features and weights of the points, a few rows at a time."""
    width = getattr(features, "base", features).D
    step = max(1, SCRATCH // width)
    for start in range(0, len(inputs.weight), step):
        part = slice(start, start + step)
        yield features.transform(inputs.X[part]), inputs.weight[part]


def _waves(features: Any, inputs: InputLaw) -> tuple[Array, Array, Array]:
    """Frequencies (d, F) and C, S: (D,) as above."""
    omega = features.dense_omega()
    if omega.shape[0] != inputs.d:
        raise BadInput(f"the features expect {omega.shape[0]} inputs, the law has {inputs.d}")
    c = omega.T @ inputs.normal[0]
    if features.phases is not None:
        c = c + features.phases
    if features.paired:
        c = np.concatenate([c, c - np.pi / 2])
    return omega, np.cos(c), np.sin(c)


def _gaussian_product(features: Any, inputs: InputLaw, V: Array) -> Array:
    omega, C, S = _waves(features, inputs)
    F, pairs = omega.shape[1], features.D // omega.shape[1]
    # features with the same frequency share rows and columns of E1 and E2
    even = (C[:, None] * V).reshape(pairs, F, -1).sum(0)
    odd = (S[:, None] * V).reshape(pairs, F, -1).sum(0)
    out_even, out_odd = np.empty_like(even), np.empty_like(odd)
    for rows, E1, E2 in _exponentials(omega, inputs.normal[1]):
        out_even[rows] = (E1 + E2) @ even
        out_odd[rows] = (E1 - E2) @ odd
    out = C[:, None] * np.tile(out_even, (pairs, 1)) + S[:, None] * np.tile(out_odd, (pairs, 1))
    return np.asarray(out / features.D)


def _exponentials(omega: Array, cov: Array) -> Iterator[tuple[slice, Array, Array]]:
    """Rows of E1 and E2, (b, F) each. Exponents are never positive, whatever rounding says."""
    F = omega.shape[1]
    half = omega.T @ cov  # (F, d)
    power = np.einsum("fd,df->f", half, omega) / 2
    for start in range(0, F, max(1, SCRATCH // F)):
        rows = slice(start, min(F, start + max(1, SCRATCH // F)))
        G = half[rows] @ omega
        base = -power[rows, None] - power
        E1, E2 = np.exp(np.minimum(base + G, 0)), np.exp(np.minimum(base - G, 0))
        E1[np.arange(len(G)), np.arange(rows.start, rows.stop)] = 1.0  # u = 0
        yield rows, E1, E2


def _closed(target: object) -> bool:
    return isinstance(target, KernelExpansion) and isinstance(target.kernel, Gaussian)


def _mean_kernel(inputs: InputLaw, c: Array, sigma: float) -> Array:
    """E kappa(x - c) = |I + S/sigma^2|^(-1/2) exp(-(c - m)'(S + sigma^2 I)^-1 (c - m) / 2)."""
    mean, cov = inputs.normal
    wide, delta = cov + sigma**2 * np.eye(inputs.d), c - mean
    quadratic = np.einsum("md,dm->m", delta, np.linalg.solve(wide, delta.T))
    return np.asarray(np.exp(-quadratic / 2) / np.sqrt(np.linalg.det(wide / sigma**2)))


def _expansion_moment(features: Any, inputs: InputLaw, target: KernelExpansion) -> Array:
    """E[kappa(x - c) cos(omega'x + b)]: under kappa(. - c) x is Gaussian again.

    Its mass is `_mean_kernel`, its mean m + G (c - m) and its covariance S - G S, where
    G = S (S + sigma^2 I)^-1.
    """
    sigma, c, (m, S) = target.kernel.sigma, target.centres, inputs.normal
    G = np.linalg.solve(S + sigma**2 * np.eye(inputs.d), S).T
    mass = target.coefficients * _mean_kernel(inputs, c, sigma)
    mean = m + (c - m) @ G.T
    omega = features.dense_omega()
    damp = np.exp(-np.einsum("df,df->f", omega, (S - G @ S) @ omega) / 2)
    phases = 0.0 if features.phases is None else features.phases
    angle = mean @ omega + phases  # (M, F)
    waves = [mass @ np.cos(angle)] + ([mass @ np.sin(angle)] if features.paired else [])
    return np.asarray(features.scale * np.concatenate([damp * wave for wave in waves]))
