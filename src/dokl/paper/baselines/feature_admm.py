"""ADMM over random features: DKLA, and COKE, which is silent where little has changed.

Every node keeps the sums of its own rows and a copy of theta; the alternating direction method of
multipliers makes the copies agree. One iteration, with N_k the neighbours of k, T_k its rows so far
and h what was last sent:

    (2 X_zz / T_k + 2 lam / K + 2 rho |N_k|) theta_k = 2 X_zy / T_k - g_k + rho sum_N (h_k + h_l)
    send theta_k, h_k = theta_k, if |theta_k - h_k| >= threshold * decay^i     # DKLA: always
    g_k += rho sum_N (h_k - h_l)

P. Xu, Y. Wang, X. Chen and Z. Tian, COKE: Communication-censored decentralized kernel learning,
JMLR 22, 2021. There all rows are known from the start; here iteration i uses the rows so far, and
comes after every `every` steps. A message is theta, D numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from dokl.base.arrays import Array, check_whole
from dokl.base.errors import BadInput
from dokl.paper.baselines.networks import OverNetwork
from dokl.paper.baselines.on_features import FeatureLearner
from dokl.paper.baselines.runs import BaselineLearner, Samples, positive


@dataclass(frozen=True, eq=False)
class FeatureADMM(OverNetwork):
    """lam: ridge, of a mean loss; rho: ADMM's penalty; threshold, decay: of the censoring, 0 for
    none; weights: a matrix (K, K) whose links count, a recipe of one, or None: alone.
    """

    features: Any
    lam: float = 1e-4
    rho: float = 1e-3
    every: int = 1
    threshold: float = 0.0
    decay: float = 1.0
    weights: Any = None

    @property
    def name(self) -> str:
        """COKE censors, DKLA does not."""
        return "coke" if self.threshold else "dkla"

    def __post_init__(self) -> None:
        for what in ("lam", "rho"):
            positive(what, getattr(self, what))
        check_whole("every", self.every, of="steps")
        if not (self.threshold >= 0 and 0 < self.decay <= 1):
            what = f"{self.threshold!r}, {self.decay!r}"
            raise BadInput(f"threshold must be at least 0, decay above 0 and at most 1, got {what}")

    def learner(self, samples: Samples, dtype: DTypeLike) -> BaselineLearner:
        """Ready for the first step."""
        return _Learner(self, samples, dtype)


class _Learner(FeatureLearner):
    """zz: (K, D, D), zy: (K, D), rows: (K,); sent and dual: (K, D)."""

    def __init__(self, method: FeatureADMM, samples: Samples, dtype: DTypeLike) -> None:
        super().__init__(method.features, method.weights, samples, dtype)
        self.method, K, D = method, samples.K, method.features.D
        self.zz, self.zy, self.rows = np.zeros((K, D, D)), np.zeros((K, D)), np.zeros(K)
        self.last_sent, self.dual, self.iteration = np.zeros((K, D)), np.zeros((K, D)), 0
        self.near = (self.A.toarray() != 0) & ~np.eye(K, dtype=bool)
        self.near |= self.near.T
        self.links, self.size[:] = self.near.sum(axis=0), D * (D + 7) // 2
        self.each = D * np.dtype(dtype).itemsize

    def step(self, t: int, Z: Array, y: Array, w: Array) -> Array:
        f = (self.theta * Z).sum(axis=1)
        self.zz += np.einsum("k,ki,kj->kij", w, Z, Z)
        self.zy += (w * y)[:, None] * Z
        self.rows += w
        if (t + 1) % self.method.every == 0:
            self._iterate(t)
        return np.asarray(f)

    def _iterate(self, t: int) -> None:
        given, (K, D) = self.method, self.theta.shape
        count, degree = np.maximum(self.rows, 1.0)[:, None], self.near.sum(axis=1)[:, None]
        ridge = 2 * given.lam / K + 2 * given.rho * degree
        matrix = 2 * self.zz / count[..., None] + ridge[..., None] * np.eye(D)
        around = degree * self.last_sent + self.near @ self.last_sent
        known = 2 * self.zy / count - self.dual + given.rho * around
        self.theta = np.linalg.solve(matrix, known[..., None])[..., 0]
        self.iteration += 1
        change = np.linalg.norm(self.theta - self.last_sent, axis=1)
        sends = change >= given.threshold * given.decay**self.iteration
        self.last_sent[sends] = self.theta[sends]
        self.message[t] = self.each * sends
        self.dual += given.rho * (degree * self.last_sent - self.near @ self.last_sent)
