"""Diffusion RLS: recursive least squares at every node, its own matrix, vectors averaged.

    g_k   = P_k z_k / (lam / w_k + z_k' P_k z_k),    P_k <- (P_k - g_k z_k' P_k) / lam
    psi_k = theta_k + g_k (y_k - theta_k' z_k)                             # adapt
    theta_k = sum_l a_kl psi_l                                             # combine

F. Cattivelli, C. Lopes and A. Sayed, Diffusion recursive least-squares for distributed estimation
over adaptive networks, IEEE Trans. Signal Processing 56(5), 2008, on random features and without
its exchange of raw samples (C = I there): a message is theta, D numbers. With lam < 1 it forgets by
a factor, and winds up where inputs do not come; `dokl.squares` goes back to the prior instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from dokl.base.arrays import Array
from dokl.base.errors import BadInput
from dokl.paper.baselines.networks import OverNetwork
from dokl.paper.baselines.on_features import FeatureLearner
from dokl.paper.baselines.runs import BaselineLearner, Samples, positive


@dataclass(frozen=True, eq=False)
class DiffusionRLS(OverNetwork):
    """ridge: P starts at I/ridge; lam: forgetting factor, 1 for none; weights: a matrix (K, K), a
    recipe of one, or None: alone.
    """

    features: Any
    ridge: float = 0.01
    lam: float = 1.0
    weights: Any = None
    name = "diffusion-rls"

    def __post_init__(self) -> None:
        positive("ridge", self.ridge)
        if not 0 < self.lam <= 1:
            raise BadInput(f"lam must be above 0 and at most 1, got {self.lam!r}")

    def learner(self, samples: Samples, dtype: DTypeLike) -> BaselineLearner:
        """Ready for the first step."""
        return _Learner(self, samples, dtype)


class _Learner(FeatureLearner):
    """P: (K, D, D)."""

    def __init__(self, method: DiffusionRLS, samples: Samples, dtype: DTypeLike) -> None:
        super().__init__(method.features, method.weights, samples, dtype)
        D, self.lam = method.features.D, method.lam
        self.P = np.tile(np.eye(D) / method.ridge, (samples.K, 1, 1))
        self.size[:], self.message[:] = D * (D + 1), D * np.dtype(dtype).itemsize

    def step(self, t: int, Z: Array, y: Array, w: Array) -> Array:
        f = (self.theta * Z).sum(axis=1)
        for k in np.flatnonzero(w > 0):
            Pz = self.P[k] @ Z[k]
            g = Pz / (self.lam / w[k] + Z[k] @ Pz)
            self.P[k] -= np.outer(g, Pz)
            self.P[k] /= self.lam
            self.theta[k] += g * (y[k] - f[k])
        self.theta = self.A @ self.theta
        return np.asarray(f)
