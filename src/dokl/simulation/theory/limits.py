"""How large a step may be: in the mean, in the mean square, and by the paper's own conditions.

Mean. E[U] <- (I - mu R) E[U] on the slowest graph mode (a = 1): mu < 2 / l_1.

Mean square. The step is B <- L(B) + N(B) with L = a_p a_q g g' . (the mean squared) and
N = mu^2 E[(zz' - R) B_kk (zz' - R)] in the nodes' own blocks. Both keep positive semidefinite
matrices so, hence the spectral radius of L + N is below one exactly if that of L is (the mean
limit: a mean-square limit never exceeds it) and that of (I - L)^-1 N is. The latter is free of the
many eigenvalues near one that slow modes give L + N, so Krylov methods find it at once.

One node. E[zz'Bzz'] = (1/mu) (RB + BR) at the limit: one symmetric eigenvalue problem.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dokl.base.arrays import Array
from dokl.simulation.theory.mixing import MixingModes, graph_modes, mixing
from dokl.simulation.theory.model import DataModel
from dokl.simulation.theory.modes import Basis


@dataclass(frozen=True)
class StepLimits:
    """Largest steps. The last two are the paper's conditions, as it states them (corrected)."""

    mean: float
    """2 / l_1: above it the mean of theta diverges."""
    mean_square: float
    """Above it the mean square error of a node alone diverges; exact on the modes."""
    network: float | None
    """The same for the network; None: no weights were given."""
    paper_mean: float
    """Proposition 3: 2 / l_1."""
    paper_mean_square: float
    """Proposition 4, bracketed right: 1 / l_1, from the small-step recursion. Neither necessary
    nor sufficient: it leaves out the fourth-order term."""


def step_limits(basis: Basis, weights: object = None, kind: str = "exact") -> StepLimits:
    """All limits at once; `kind` is that of the network's (see `network_limit`)."""
    top = float(basis.values[0])
    alone = mean_square_limit(basis)
    network = None if weights is None else network_limit(basis, weights, kind)
    return StepLimits(2 / top, alone, network, 2 / top, 1 / top)


def mean_square_limit(basis: Basis) -> float:
    """1 / (largest eigenvalue of P^-1/2 T P^-1/2), T(B) = E[zz'Bzz'], P(B) = RB + BR.

    Exactly 2 where |z| = 1: T(I) = R and P(I) = 2R.
    """
    values = basis.values
    root, start = 1 / np.sqrt(values[:, None] + values), np.diag(np.sqrt(values))
    top = _largest(lambda B: root * basis.fourth(_even(root * B)), start, True, 1e-12)
    return min(1 / top, 2 / float(values[0]))


def network_limit(basis: Basis, weights: object, kind: str = "exact", tol: float = 1e-4) -> float:
    """The step at which the spectral radius of (I - L)^-1 N is one; `tol` is relative.

    "exact" follows all K^2 pairs of blocks; "mean-field" is too optimistic.
    """
    from scipy.optimize import brentq

    mix, top = mixing(weights, kind), 2 / float(basis.values[0])

    def beyond(mu: float) -> float:
        return float(np.log(_noise_radius(basis, mix, mu)))

    high = top * (1 - 1e-6)
    if beyond(high) < 0:
        return top
    low = min(mean_square_limit(basis), high) / 2
    while beyond(low) > 0:
        low /= 2
    return float(brentq(beyond, low, high, rtol=tol))


def mean_square_radius(
    basis: Basis, mu: float, weights: object = None, kind: str = "exact"
) -> float:
    """Spectral radius of the whole mean-square recursion, L + N, at step mu.

    Slow modes put it close to one long before the limit; to find the limit use `step_limits`.
    """
    mix, g = mixing(weights, kind), 1 - mu * basis.values
    factor = mix.alpha[:, None, None] * np.outer(g, g)

    def step(C: Array) -> Array:
        C = (C + C.swapaxes(1, 2)) / 2 if len(mix.alpha) == len(mix.weave) else C
        return factor * C + mix.scatter(_noise(basis, mix.gather(C), mu))

    start = mix.start[:, None, None] * np.diag(basis.values) + 1e-3 * mix.scatter(_eyes(mix, basis))
    return _largest(step, start, False, tol=1e-12)


def small_step_radius(values: Array, a: Array, mu: float) -> float:
    """max |(1 - mu (l_i + l_j)) a_p a_q|: of the paper's recursion, bracketed right.

    Its matrix (I - mu (R [x] I + I [x] R)) (A [x] A) has D^2 K^2 rows, but I (x) R and A (x) I
    commute, so its eigenvalues need only those of R, `values`, and of A, `a`.
    """
    ends = 2 * np.array([values.min(), values.max()])
    return float(np.abs(1 - mu * ends).max() * np.abs(a).max() ** 2)


def printed_radius(values: Array, a: Array, mu: float) -> float:
    """max |1 - mu (l_i + l_j) a_p a_q|: of the matrix as the paper prints it.

    Above one as soon as A has eigenvalues of both signs: no condition on the algorithm at all.
    """
    a = np.asarray(a, dtype=np.float64)
    products = np.array([a.min() * a.max(), a.min() ** 2, a.max() ** 2, *np.square(a)])
    ends = 2 * np.array([values.min(), values.max()])
    return float(np.abs(1 - mu * np.outer(ends, products)).max())


def small_step_eigenvalues(values: Array, weights: object, mu: float) -> Array:
    """All (1 - mu (l_i + l_j)) a_p a_q: (r, r, K, K), in O(r^2 K^2) once both are decomposed."""
    a = graph_modes(weights)[0]
    inner = 1 - mu * (values[:, None] + values)
    return np.asarray(inner[:, :, None, None] * np.outer(a, a))


def steady_state(
    model: DataModel, mu: float, weights: object = None, kind: str = "mean-field"
) -> float:
    """MSE as n tends to infinity: B = (I - L)^-1 (N(B) + noise), by GMRES; inf beyond the limit.

    Slow modes may take far longer than any run to get there.
    """
    from scipy.sparse.linalg import LinearOperator, gmres

    mix, basis = mixing(weights, kind), model.basis
    solve = _solver(basis, mix, mu)
    Q, r = len(mix.weave), basis.modes.r
    drive = np.tile(basis.fourth(np.zeros((r, r)), model.residual), (Q, 1, 1))
    if _noise_radius(basis, mix, mu) >= 1 or mu >= 2 / basis.values[0]:
        return float("inf")
    gain = _tail_gain(basis, mix, mu)

    def loop(x: Array) -> Array:
        B = x.reshape(Q, r, r)
        error = np.diagonal(B, axis1=1, axis2=2) @ basis.values
        q = gain @ error
        pushed = q[:, None, None] * np.diag(basis.values)
        return np.asarray(x - solve(_noise(basis, B, mu) + mu**2 * pushed).ravel())

    floor = (gain @ np.full(Q, model.j_opt))[:, None, None] * np.diag(basis.values)
    right = solve(mu**2 * (drive + floor)).ravel()
    operator = LinearOperator((right.size, right.size), loop, dtype=np.float64)
    found, failed = gmres(operator, right, rtol=1e-8, restart=40, maxiter=50)
    if failed:
        return float("inf")
    error = np.diagonal(found.reshape(Q, r, r), axis1=1, axis2=2) @ basis.values + model.j_opt
    return float((error + gain @ error).mean())


def unit_norm_steady_state(j_opt: float, mu: float, trace: float = 1.0) -> float:
    """J_opt (1 + mu tr R / (2 - mu tr R)): a single node whose features have |z| = 1.

    >>> unit_norm_steady_state(0.01, 1.0)
    0.02
    """
    return float("inf") if mu * trace >= 2 else j_opt * (1 + mu * trace / (2 - mu * trace))


def _tail_gain(basis: Basis, mix: MixingModes, mu: float) -> Array:
    """(Q, Q): from error on the modes to what the tail adds to it, in the steady state."""
    modes, Q = basis.modes, len(mix.weave)
    if modes.tail <= 0:
        return np.zeros((Q, Q))
    inner = 1 - mix.alpha * (1 - mu * modes.tail_square / modes.tail) ** 2
    to = mix.gather(mix.scatter(np.eye(Q)) / inner[:, None])
    q = mu**2 * modes.tail_square * to
    return np.asarray(np.linalg.solve(np.eye(Q) - q, q))


def _noise(basis: Basis, B: Array, mu: float) -> Array:
    """N: mu^2 (E[zz'Bzz'] - RBR) of every block (Q, r, r)."""
    values = basis.values
    return np.stack([mu**2 * (basis.fourth(b) - values[:, None] * b * values) for b in B])


def _solver(basis: Basis, mix: MixingModes, mu: float) -> Callable[[Array], Array]:
    """(I - L)^-1 of what is added to the blocks, back on the blocks: (Q, r, r) -> (Q, r, r)."""
    g = 1 - mu * basis.values
    inverse = 1 / (1 - mix.alpha[:, None, None] * np.outer(g, g))
    return lambda G: mix.gather(inverse * mix.scatter(G))


def _noise_radius(basis: Basis, mix: MixingModes, mu: float) -> float:
    """Spectral radius of (I - L)^-1 N, on the blocks."""
    solve = _solver(basis, mix, mu)
    return _largest(lambda B: solve(_noise(basis, _even(B), mu)), _eyes(mix, basis), False)


def _eyes(mix: MixingModes, basis: Basis) -> Array:
    return np.tile(np.diag(np.sqrt(basis.values)), (len(mix.weave), 1, 1))


def _even(B: Array) -> Array:
    return (B + B.swapaxes(-1, -2)) / 2


def _largest(
    apply: Callable[[Array], Array], start: Array, symmetric: bool, tol: float = 1e-7
) -> float:
    """The largest eigenvalue, by modulus, of a linear map of arrays shaped like start."""
    from scipy.sparse.linalg import LinearOperator, eigs, eigsh

    if start.size <= 2:  # ARPACK wants more room
        columns = [apply(e.reshape(start.shape)).ravel() for e in np.eye(start.size)]
        return float(np.abs(np.linalg.eigvals(np.array(columns).T)).max())
    operator = LinearOperator(
        (start.size, start.size),
        lambda x: apply(x.reshape(start.shape)).ravel(),
        dtype=np.float64,
    )
    find = eigsh if symmetric else eigs
    options = {"k": 1, "which": "LM", "v0": start.ravel(), "tol": tol}
    values = find(operator, return_eigenvectors=False, **options)
    return float(np.abs(values).max())
