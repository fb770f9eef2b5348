"""Linear diffusion LMS: the same network, with the inputs themselves as features.

    psi_{k,n}   = sum_l a_kl theta_{l,n-1}
    theta_{k,n} = psi_{k,n} + mu e_{k,n} x_{k,n},    e = y - psi_{k,n}' x_{k,n}

C. Lopes and A. Sayed, Diffusion least-mean squares over adaptive networks, IEEE Trans. Signal
Processing 56(7), 2008 (combine-then-adapt). An optional constant c among the inputs is an
intercept; it is shared. The step must stay well under 2 / E|x|^2: random features have |z| = 1,
the inputs do not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dokl.base.arrays import Array, check_rows, is_sparse
from dokl.paper.baselines.growing import growing_njit
from dokl.paper.baselines.networks import OverNetwork, edges, one_graph, out_links
from dokl.paper.baselines.runs import BaselineLearner, Samples, positive


@dataclass(frozen=True, eq=False)
class LinearLMS(OverNetwork):
    """Linear LMS with step mu; constant: size of a constant input, 0 for none; weights: a matrix
    (K, K), a recipe of one, or None: alone.
    """

    mu: float
    constant: float = 0.0
    weights: Any = None
    name = "linear-lms"

    def __post_init__(self) -> None:
        positive("mu", self.mu)

    def learner(self, samples: Samples, dtype: Any) -> BaselineLearner:
        """Ready for the first step."""
        return _Learner(self, samples, dtype)


def _inputs(X: Any, constant: float, dtype: Any) -> Array:
    X = X.toarray() if is_sparse(X) else np.asarray(X)
    if constant:
        X = np.concatenate([X, np.full((len(X), 1), constant)], axis=1)
    return np.ascontiguousarray(X, dtype)


@dataclass(frozen=True)
class LinearModel:
    """f(x) = theta'x, theta with the constant's entry last where there is one."""

    theta: Array
    constant: float

    def predict(self, X: Any) -> Array:
        """Values (N,) at rows X: (N, d)."""
        X = check_rows(X, len(self.theta) - bool(self.constant))
        return _inputs(X, self.constant, self.theta.dtype) @ self.theta


class _Learner(BaselineLearner):
    def __init__(self, method: LinearLMS, samples: Samples, dtype: Any) -> None:
        super().__init__(samples, dtype)
        A = one_graph(method.weights, samples.K)
        self.X, self.method = _inputs(samples.X, method.constant, dtype), method
        self.theta = np.zeros((2, samples.K, self.X.shape[1]), dtype)
        self.edges, self.links, self.mu = edges(A, dtype), out_links(A), dtype(method.mu)
        self.size[:] = self.X.shape[1]
        self.message[:] = self.theta[0, 0].nbytes

    def advance(self, start: int, stop: int) -> None:
        """All nodes, step by step."""
        seen = self.X, self.y, self.weight, self.mu
        sweep(start, stop, *seen, *self.edges, self.theta, self.f)

    def models(self) -> list[LinearModel]:
        """Each node's vector, adapted and not yet combined, as the scheme delivers it."""
        last = self.theta[self.samples.n % 2]
        return [LinearModel(theta.copy(), self.method.constant) for theta in last]


@growing_njit
def sweep(
    start: int, stop: int, X: Array, y: Array, weight: Array, mu: Any,
    indptr: Array, indices: Array, weights: Array, theta: Array, f: Array,
) -> None:  # fmt: skip
    """Steps start to stop; theta[t % 2] is what there is before step t, from 0."""
    K, d = f.shape[1], X.shape[1]
    for t in range(start, stop):
        old, new = theta[t % 2], theta[(t + 1) % 2]
        for k in range(K):
            r, total = t * K + k, X.dtype.type(0)
            new[k] = 0
            for e in range(indptr[k], indptr[k + 1]):
                for i in range(d):
                    new[k, i] += weights[e] * old[indices[e], i]
            for i in range(d):
                total += new[k, i] * X[r, i]
            f[t, k] = total if weight[r] > 0 else np.nan
            push = mu * weight[r] * (y[r] - total)  # the weight is 0 where there is no sample
            for i in range(d):
                new[k, i] += push * X[r, i]
