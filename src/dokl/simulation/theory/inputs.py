"""The law of the inputs, as weighted points: what an expectation over x is computed with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dokl.base import random_numbers
from dokl.base.arrays import Array, is_sparse
from dokl.base.errors import BadInput

# Where a lattice ends, in standard deviations: beyond it lies 4e-8 of the mass in one dimension.
EDGE = 5.5
# Up to here a lattice of a few thousand points is fine enough for oscillating features.
LATTICE_UP_TO = 2
# Points along an axis that are always enough: they resolve 146 radians per standard deviation.
FINEST = 257


@dataclass(frozen=True)
class InputLaw:
    """Points X: (S, d), their weights (S,) that sum to one, and mean and covariance if Gaussian.

    E f(x) is sum_s weight_s f(X_s). With `mean` and `cov` the law is N(mean, cov), the points
    only stand in for it where no closed form exists; without them the points are the law.
    """

    X: Any
    weight: Array
    mean: Array | None = None
    cov: Array | None = None

    @property
    def gaussian(self) -> bool:
        """Whether closed forms apply."""
        return self.mean is not None

    @property
    def normal(self) -> tuple[Array, Array]:
        """Mean (d,) and covariance (d, d); only of a Gaussian law."""
        if self.mean is None or self.cov is None:
            raise BadInput("these inputs are a sample: only a Gaussian law has closed forms")
        return self.mean, self.cov

    @property
    def d(self) -> int:
        """Number of inputs."""
        return int(self.X.shape[1])


def gaussian_inputs(mean: ArrayLike, cov: ArrayLike, points: int = 4096, seed: int = 0) -> InputLaw:
    """x ~ N(mean, cov), cov a matrix or one variance for all coordinates.

    Up to two dimensions the points are a lattice with normal weights. (The features oscillate,
    and a lattice integrates oscillations up to 2 pi / spacing: 36 per standard deviation for
    4096 points in the plane, where Gauss-Hermite points are wrong from 16 on.) Above, they are
    Sobol' points and their mirror images, so that odd moments vanish exactly.

    >>> x = gaussian_inputs([0.0, 1.0], [[1.0, 0.5], [0.5, 1.0]])
    >>> x.X.shape, round(float(x.weight @ (x.X[:, 0] * x.X[:, 1])), 5)
    ((3096, 2), 0.5)
    """
    m = np.atleast_1d(np.asarray(mean, dtype=np.float64))
    C = np.asarray(cov, dtype=np.float64)
    C = C * np.eye(m.size) if C.ndim == 0 else C
    if C.shape != (m.size, m.size) or not np.allclose(C, C.T):
        raise BadInput(f"cov must be symmetric of shape {(m.size, m.size)}, got {C.shape}")
    variances, axes = np.linalg.eigh(C)
    if variances[0] < -1e-10 * abs(variances[-1]):
        raise BadInput(f"cov has the negative eigenvalue {variances[0]:.3g}: not a covariance")
    unit, weight = (_lattice if m.size <= LATTICE_UP_TO else _mirror)(m.size, points, seed)
    X = m + unit @ (axes * np.sqrt(np.maximum(variances, 0))).T
    return InputLaw(X, weight, m, C)


def sampled_inputs(X: Any, weight: ArrayLike | None = None) -> InputLaw:
    """The law that takes these rows X: (S, d), dense or CSR, with these probabilities.

    >>> sampled_inputs(np.ones((4, 2))).weight.sum()
    np.float64(1.0)
    """
    X = X.tocsr() if is_sparse(X) else np.atleast_2d(np.asarray(X, dtype=np.float64))
    w = np.ones(X.shape[0]) if weight is None else np.asarray(weight, dtype=np.float64)
    if w.shape != (X.shape[0],) or (w < 0).any() or not w.sum() > 0:
        raise BadInput(f"weight must be {X.shape[0]} numbers of at least 0, not all of them 0")
    return InputLaw(X, w / w.sum())


def _lattice(d: int, points: int, seed: int) -> tuple[Array, Array]:
    """The points of a cubic lattice within EDGE, weighted by the normal density."""
    side = max(3, min(FINEST, round(points ** (1 / d))))
    axis = np.linspace(-EDGE, EDGE, side)
    unit = np.stack(np.meshgrid(*[axis] * d, indexing="ij"), axis=-1).reshape(-1, d)
    unit = unit[(unit**2).sum(1) <= EDGE**2 + 1e-9]
    weight = np.exp(-(unit**2).sum(1) / 2)
    return unit, weight / weight.sum()


def _mirror(d: int, points: int, seed: int) -> tuple[Array, Array]:
    half = random_numbers.normal_quantile(random_numbers.sobol(seed, max(1, points // 2), d))
    unit = np.concatenate([half, -half])
    return unit, np.full(len(unit), 1 / len(unit))
