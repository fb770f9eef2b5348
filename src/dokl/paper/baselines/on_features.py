"""What the baselines on random features share: rows as features, and the bytes they send."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from dokl.base.arrays import Array, check_rows
from dokl.paper.baselines.networks import one_graph, out_links
from dokl.paper.baselines.runs import BaselineLearner, Samples

# Rows whose features are held at once.
ROWS = 4096


@dataclass(frozen=True)
class FeatureModel:
    """f(x) = theta'z(x)."""

    features: Any
    theta: Array

    def predict(self, X: object) -> Array:
        """Values (N,) at rows X: (N, d)."""
        Z = self.features.transform(check_rows(X, self.features.d))
        return np.asarray(Z @ self.theta)


class FeatureLearner(BaselineLearner):
    """Nodes with a vector theta: (K, D) each; every step of all nodes is one call of `step`."""

    def __init__(self, features: Any, weights: object, samples: Samples, dtype: DTypeLike) -> None:
        super().__init__(samples, dtype)
        self.features, self.A = features, one_graph(weights, samples.K)
        self.links, self.theta = out_links(self.A), np.zeros((samples.K, features.D))

    def advance(self, start: int, stop: int) -> None:
        """All nodes, step by step."""
        for t, Z in self.features_of(self.features, start, stop):
            rows = slice(t * self.samples.K, (t + 1) * self.samples.K)
            y, w = self.samples.y[rows], self.samples.weight[rows]
            f = self.step(t, Z, np.where(w > 0, y, 0.0), w)
            self.f[t] = np.where(w > 0, f, np.nan)

    def step(self, t: int, Z: Array, y: Array, w: Array) -> Array:
        """One row per node, Z: (K, D), y, w: (K,), w = 0 where there is none; f: (K,) before."""
        raise NotImplementedError

    def features_of(self, features: Any, start: int, stop: int) -> Iterator[tuple[int, Array]]:
        """(t, Z: (K, D)) of steps start to stop."""
        K, D = self.samples.K, features.D
        some = max(1, ROWS // K)
        for first in range(start, stop, some):
            last = min(first + some, stop)
            X = self.samples.X[first * K : last * K]
            Z = np.asarray(features.transform(X), np.float64).reshape(-1, K, D)
            yield from zip(range(first, last), Z, strict=True)

    def models(self) -> list[FeatureModel]:
        """Each node's function."""
        return [FeatureModel(self.features, theta.copy()) for theta in self.theta]
