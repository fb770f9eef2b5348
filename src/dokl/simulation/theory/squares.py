"""Learning curves of least squares: alone, and over a network whose sums travel.

At node k a row that node l saw r rounds ago counts w = K [A^r]_kl times: not at all before the
first round, once in the end, and how fast is lambda_2^r. Own rows since the last round count once.
So every node knows a ridge regression on weighted rows, N_c of them with weight w_c. A row at x
pulls with its weight over 1 + w u, where u is its own leverage, and the others are so many that
only their mean matters (leave one out):

    u(x) = phi'Q phi,   Q = (M + rho)^-1,   M = E[s_1(u) phi phi']
    s_p(u) = sum_c N_c (w_c / (1 + w_c u))^p
    B = rho^2 Q theta_* theta_*' Q,   C = Q E[s_2(u) v phi phi'] Q,   MSE = J_opt + tr R (B + C)
    v(x) = E[e^2 | x] = phi'(B + C) phi + 2 misfit rho (Q theta_*)'phi + misfit^2 + s^2

B is what the ridge, and rows that have not come yet, hide; C the noise and misfit in those that
have. Q and C are fixed points on the points of the inputs. As everywhere in `theory`, rows are
independent and of one law. In the first rounds nodes with many neighbours know much more than those
with few, and the mean error is that of the latter: nodes are taken in groups that know about as
much, and only those of a group are replaced by their mean (mean-field).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dokl.base.arrays import Array
from dokl.base.errors import BadInput
from dokl.network.graphs import check_weights
from dokl.simulation.theory.curves import PredictedCurve
from dokl.simulation.theory.model import DataModel

# Rows whose count is this close to 1 everywhere are taken to be fully mixed.
MIXED, LONGEST = 1e-4, 4096
# Steps of a curve that are computed; those between are interpolated.
POINTS = 48
TURNS, TOLERANCE = 200, 1e-4
# Nodes whose rows count for as many, but for this share, are one group; and all nodes are one, once
# the errors of groups are apart by less than this factor: their mean then is that of the mean node.
ALIKE, APART = 0.3, 1.2


def squares_curve(
    model: DataModel, ridge: float, n: int, weights: object = None, every: int = 1
) -> PredictedCurve:
    """The a-priori error of n steps of `squares(ridge, share="sums")`, of infinite memory.

    weights: (K, K) symmetric and doubly stochastic, None for a node alone; every: steps from one
    round to the next. How far nodes are apart is not predicted (NaN).

    >>> from dokl import Features, Gaussian, theory
    >>> z = Features(Gaussian(5.0), d=2, D=60).draw(1)
    >>> x = theory.gaussian_inputs([0.0, 0.0], 1.0)
    >>> about = theory.model(z, x, lambda X: X[:, 0], noise=0.1)
    >>> curve = theory.squares_curve(about, 0.01, n=500)
    >>> bool(curve.mse[0] > 0.5 > 0.02 > curve.mse[-1] > curve.j_opt)
    True
    """
    if not ridge > 0:
        raise BadInput(f"ridge must be above 0, got {ridge!r}")
    if n < 1 or every < 1:
        raise BadInput(f"a curve needs n and every of at least 1, got {n!r} and {every!r}")
    A = np.eye(1) if weights is None else check_weights(weights).toarray()
    if not np.allclose(A, A.T):
        raise BadInput("the curve is for symmetric weights: take metropolis or max-degree weights")
    walk, at = _Knowledge(model, ridge), _points(n, every)
    error = [walk.mean_error(A, every, int(t)) for t in at]
    steps, apart = np.arange(1, n + 1), np.full(n, np.nan)
    mse = np.exp(np.interp(np.log(steps), np.log(at), np.log(error)))
    return PredictedCurve(mse, apart, apart, model.j_opt)


def _points(n: int, every: int) -> Array:
    """Steps to compute: evenly in log n, and both sides of the first rounds, where it jumps."""
    rounds = 1 + every * np.unique(np.geomspace(1, max(1, n // every), 12).round().astype(int))
    some = np.geomspace(1, n, POINTS).round().astype(int)
    at = np.unique(np.concatenate([some, rounds, rounds - 1]))
    return at[(at >= 1) & (at <= n)]


def _alike(A: Array, every: int, step: int) -> list[Array]:
    """The nodes in groups. Rows of weights w count for (sum w)^2 / sum w^2 rows at a node; the sum
    is the same everywhere.
    """
    rounds, own = divmod(step - 1, every)
    squares, power = np.full(len(A), own + every * len(A) * float(rounds)), A
    for _ in range(min(rounds, LONGEST)):
        more = every * (np.sum((len(A) * power) ** 2, axis=1) - len(A))
        if more.max(initial=0.0) < MIXED * squares.max():
            break
        squares, power = squares + more, A @ power
    order, groups = np.argsort(squares), list[list[int]]()
    for k in order.tolist():
        if not groups or squares[k] > (1 + ALIKE) * squares[groups[-1][0]]:
            groups.append([])
        groups[-1].append(k)
    return [np.array(group) for group in groups]


def _counts(A: Array, every: int, step: int, nodes: Any = slice(None)) -> tuple[Array, Array]:
    """Weights (C,) of rows before a step (from 1), and how many rows a node has of each (C,); the
    mean of these nodes.
    """
    K, (rounds, own) = len(A), divmod(step - 1, every)
    weights, many, power = [np.ones(1)], [np.array([float(own)])], A
    for _ in range(min(rounds, LONGEST)):
        if np.abs(K * power - 1).max() < MIXED:
            break
        each = K * power[nodes]
        weights.append(each.ravel())
        many.append(np.full(each.size, every / len(each)))  # each pair of nodes is one node's
        power = A @ power
    mixed = rounds - (len(weights) - 1)
    weights.append(np.ones(1))
    many.append(np.array([float(K * every * mixed)]))
    return np.concatenate(weights), np.concatenate(many)


class _Knowledge:
    """From one point of the curve to the next: the fixed points begin where the last ended."""

    def __init__(self, model: DataModel, rho: float) -> None:
        self.model, self.rho, self.at = model, rho, model.basis
        modes, r = self.at.modes, self.at.modes.r
        # Modes left out are one lump of equal ones, which hold nothing: they only lever.
        self.lump = modes.tail_square / modes.tail if modes.tail > 0 else 0.0
        self.lumps = modes.tail / self.lump if self.lump else 0.0
        self.Q, self.C, self.T = np.eye(r) / rho, np.zeros((r, r)), 0.0
        self.one = False  # whether nodes are all alike from now on

    def mean_error(self, A: Array, every: int, step: int) -> float:
        """The predicted error at a step, over all nodes."""
        groups = [np.arange(len(A))] if self.one else _alike(A, every, step)
        errors = [self.error(*_counts(A, every, step, group)) for group in groups]
        self.one = self.one or (step > every and max(errors) < APART * min(errors))
        return float(np.average(errors, weights=[len(group) for group in groups]))

    def error(self, weights: Array, many: Array) -> float:
        """The predicted error with these rows."""
        some = (weights > 0) & (many > 0)
        weights, many = weights[some], many[some]
        scale = self._leverage(weights, many)
        hidden, values = self.rho * self.Q, self.at.values
        bias = hidden @ self.model.start @ hidden.T
        # theta_* enters the coupling mode by mode: Q is close to diagonal there.
        extra = self.model.residual + 2 * (self.model.coupling @ np.diagonal(hidden))
        for _ in range(TURNS):
            noise = scale * (self._form(bias + self.C) + extra)
            new = self.Q @ self._moment(noise) @ self.Q
            change = float(np.abs(values @ np.diagonal(new - self.C)))
            self.C = new
            if change <= TOLERANCE * float(values @ np.diagonal(bias + new) + self.model.j_opt):
                break
        return self.model.j_opt + float(values @ np.diagonal(bias + self.C))

    def _leverage(self, weights: Array, many: Array) -> Array:
        """Solve for Q; returns s_2 at every point: (S,)."""
        for _ in range(TURNS):
            u = self._form(self.Q)
            if self.lump:
                u = u + self.lumps * self.lump / (self.T * self.lump + self.rho)
            first, second = _counted(weights, many, u)
            self.T = float(self.at.weight @ first)
            new = np.linalg.inv(self._moment(first) + self.rho * np.eye(len(self.Q)))
            new = (new + self.Q) / 2  # damped: the map turns around its fixed point
            change = np.abs(np.diagonal(new - self.Q)) / np.diagonal(new)
            self.Q = new
            if change.max() < TOLERANCE:
                break
        return second

    def _form(self, B: Array) -> Array:
        """phi'B phi at every point: (S,)."""
        return np.asarray(np.einsum("si,si->s", self.at.phi @ B, self.at.phi))

    def _moment(self, scale: Array) -> Array:
        """E[scale phi phi']: (r, r)."""
        phi = self.at.phi
        return np.asarray((phi * (self.at.weight * scale)[:, None]).T @ phi)


def _counted(weights: Array, many: Array, u: Array) -> tuple[Array, Array]:
    """s_1 and s_2 at leverages u: (S,), from a table along log u."""
    if not weights.size:
        return np.zeros_like(u), np.zeros_like(u)
    u = np.maximum(u, 1e-12)
    grid = np.geomspace(u.min() * 0.999, u.max() * 1.001, 65)
    each = weights / (1 + np.outer(grid, weights))
    first, second = (np.log(sums) for sums in (each @ many, (each * each) @ many))
    at, along = np.log(u), np.log(grid)
    return np.exp(np.interp(at, along, first)), np.exp(np.interp(at, along, second))
