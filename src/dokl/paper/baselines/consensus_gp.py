"""Consensus on increments: Gaussian processes on random features that all agents update alike.

Every agent turns its newest sample into an increment of the information of all, (z z', z y)/s2.
The agents average these increments over the network in `rounds` rounds of consensus, for every
sample again, and each adds K times what it got to what it had:

    (U_k, v_k) = (z_k z_k', z_k y_k) / s2;   rounds times  (U, v) <- A (U, v)
    L_k += K U_k,   b_k += K v_k,   theta_k = (I + L_k)^-1 b_k

Several maps (widths) are an ensemble, weighted by the likelihoods of all samples, whose logarithms
travel in the same way. This is our reading of decentralised online ensembles of random-feature
Gaussian processes (ICASSP 2025) from their description: they send matrices, D (D + 3)/2 numbers
and a logarithm for each map and each round.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from dokl.base.arrays import Array, check_whole
from dokl.paper.baselines.networks import OverNetwork
from dokl.paper.baselines.on_features import FeatureLearner, FeatureModel
from dokl.paper.baselines.runs import BaselineLearner, Samples, positive


@dataclass(frozen=True, eq=False)
class ConsensusGP(OverNetwork):
    """features: one map, or several of them; noise: its variance s2, where the prior's is 1;
    rounds: of consensus after each sample; weights: a matrix (K, K), a recipe, or None: alone.
    """

    features: Any
    noise: float = 0.01
    rounds: int = 10
    weights: Any = None
    name = "consensus-gp"

    def __post_init__(self) -> None:
        positive("noise", self.noise)
        check_whole("rounds", self.rounds, 0)

    def learner(self, samples: Samples, dtype: DTypeLike) -> BaselineLearner:
        """Ready for the first step."""
        return _Learner(self, samples, dtype)


@dataclass(frozen=True)
class EnsembleModel:
    """A weighted mean of functions."""

    models: tuple[FeatureModel, ...]
    shares: Array

    def predict(self, X: object) -> Array:
        """Values (N,) at rows X: (N, d)."""
        return np.asarray(
            sum(s * model.predict(X) for s, model in zip(self.shares, self.models, strict=True))
        )


class _Learner(FeatureLearner):
    """L: (K, D, D) and b: (K, D) of each map; evidence: (K, maps) log likelihoods."""

    def __init__(self, method: ConsensusGP, samples: Samples, dtype: DTypeLike) -> None:
        several = isinstance(method.features, list | tuple)
        self.maps = tuple(method.features) if several else (method.features,)
        super().__init__(self.maps[0], method.weights, samples, dtype)
        K, sizes = samples.K, [features.D for features in self.maps]
        self.noise = method.noise
        self.spread = np.linalg.matrix_power(self.A.toarray(), method.rounds)
        self.L = [np.tile(np.eye(D), (K, 1, 1)) for D in sizes]
        self.b = [np.zeros((K, D)) for D in sizes]
        self.evidence = np.zeros((K, len(sizes)))
        self.size[:] = sum(D * (D + 3) // 2 + 1 for D in sizes)
        self.message[:] = self.size * method.rounds * np.dtype(dtype).itemsize

    def advance(self, start: int, stop: int) -> None:
        """All nodes, step by step, every map beside the others."""
        K, samples = self.samples.K, self.samples
        turns = [self.features_of(features, start, stop) for features in self.maps]
        for steps in zip(*turns, strict=True):
            t, rows = steps[0][0], slice(steps[0][0] * K, (steps[0][0] + 1) * K)
            y, w = samples.y[rows], samples.weight[rows]
            f = self._step([Z for _, Z in steps], np.where(w > 0, y, 0.0), w)
            self.f[t] = np.where(w > 0, f, np.nan)

    def _step(self, Zs: list[Array], y: Array, w: Array) -> Array:
        shares, K = self._shares(), len(y)
        evidence, found = np.zeros_like(self.evidence), np.zeros((K, len(Zs)))
        for i, Z in enumerate(Zs):
            theta_and_Pz = np.linalg.solve(self.L[i], np.stack([self.b[i], Z], axis=-1))
            found[:, i] = (theta_and_Pz[..., 0] * Z).sum(axis=1)
            s = self.noise + (theta_and_Pz[..., 1] * Z).sum(axis=1)
            evidence[:, i] = -0.5 * (np.log(s) + (y - found[:, i]) ** 2 / s) * (w > 0)
            # K rows at once: row l counts K * spread[k, l] times at node k.
            counted = K * self.spread * w / self.noise
            self.L[i] += np.einsum("kl,li,lj->kij", counted, Z, Z, optimize=True)
            self.b[i] += counted @ (Z * y[:, None])
        self.evidence += K * self.spread @ evidence
        return np.asarray((shares * found).sum(axis=1))

    def _shares(self) -> Array:
        weight = np.exp(self.evidence - self.evidence.max(axis=1, keepdims=True))
        return np.asarray(weight / weight.sum(axis=1, keepdims=True))

    def models(self) -> list[Any]:
        """Each node's ensemble."""
        thetas = [
            np.linalg.solve(L, b[..., None])[..., 0] for L, b in zip(self.L, self.b, strict=True)
        ]
        return [
            EnsembleModel(
                tuple(map(FeatureModel, self.maps, [theta[k] for theta in thetas])), share
            )
            for k, share in enumerate(self._shares())
        ]
