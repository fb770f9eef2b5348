"""Adaptive projected subgradients: combine, then project on what the newest samples allow.

Each of a node's q newest samples allows the vectors that predict it to within eps, a hyperslab.
The combined vector moves towards the mean of its projections on them, farther where they agree:

    psi_k   = sum_l a_kl theta_l
    b_j     = sign(e_j) max(|e_j| - eps, 0) / |z_j|^2,    e_j = y_j - psi_k' z_j       j = 1..q
    theta_k = psi_k + mu M (1/q) sum_j b_j z_j,    M = mean_j |b_j z_j|^2 / |mean_j b_j z_j|^2

S. Chouvardas, K. Slavakis and S. Theodoridis, Adaptive robust distributed learning in diffusion
sensor networks, IEEE Trans. Signal Processing 59(10), 2011, on random features. 0 < mu < 2. A
message is theta, D numbers; q = 1 and eps = 0 is normalised LMS with step mu.
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
from dokl.paper.baselines.runs import BaselineLearner, Samples


@dataclass(frozen=True, eq=False)
class APSM(OverNetwork):
    """mu: relative step; eps: half a hyperslab's width; q: how many samples are kept; weights: a
    matrix (K, K), a recipe of one, or None: alone.
    """

    features: Any
    mu: float = 1.0
    eps: float = 0.0
    q: int = 8
    weights: Any = None
    name = "apsm"

    def __post_init__(self) -> None:
        if not 0 < self.mu < 2:
            raise BadInput(f"mu must be above 0 and below 2, got {self.mu!r}")
        if not (np.isfinite(self.eps) and self.eps >= 0):
            raise BadInput(f"eps must be finite and at least 0, got {self.eps!r}")
        check_whole("q", self.q, of="samples")

    def learner(self, samples: Samples, dtype: DTypeLike) -> BaselineLearner:
        """Ready for the first step."""
        return _Learner(self, samples, dtype)


class _Learner(FeatureLearner):
    """The newest rows of each node, Z: (K, q, D), y: (K, q), and which places are taken."""

    def __init__(self, method: APSM, samples: Samples, dtype: DTypeLike) -> None:
        super().__init__(method.features, method.weights, samples, dtype)
        self.method, K, D, q = method, samples.K, method.features.D, method.q
        self.Z, self.targets = np.zeros((K, q, D)), np.zeros((K, q))
        self.taken = np.zeros(K, np.int64)
        self.size[:], self.message[:] = D * (q + 1), D * np.dtype(dtype).itemsize

    def step(self, t: int, Z: Array, y: Array, w: Array) -> Array:
        self.theta, q = self.A @ self.theta, self.method.q
        f, have = (self.theta * Z).sum(axis=1), np.flatnonzero(w > 0)
        place = self.taken[have] % q
        self.Z[have, place], self.targets[have, place] = Z[have], y[have]
        self.taken[have] += 1
        self.theta[have] += self._moves(have)
        return np.asarray(f)

    def _moves(self, have: Array) -> Array:
        """Where the hyperslabs pull each of these nodes: (nodes, D)."""
        Z, held = self.Z[have], np.minimum(self.taken[have], self.method.q)[:, None]
        e = self.targets[have] - (Z @ self.theta[have][..., None])[..., 0]
        length = (Z * Z).sum(axis=2)
        inside = np.arange(self.method.q) < held
        beyond = np.sign(e) * np.maximum(np.abs(e) - self.method.eps, 0.0) * inside
        b = beyond / np.where(length > 0, length, 1.0)
        mean = np.einsum("kq,kqd->kd", b, Z) / held
        apart, short = (b * b * length).sum(axis=1) / held[:, 0], (mean * mean).sum(axis=1)
        farther = np.where(short > 0, apart / np.where(short > 0, short, 1.0), 1.0)
        return np.asarray(self.method.mu * farther[:, None] * mean)
