"""KLMS: least mean squares in the kernel's space, one new centre with every sample.

    f_n = f_{n-1} + mu e_n kappa(., x_n),    e_n = y_n - f_{n-1}(x_n),    f_0 = 0

W. Liu, P. Pokharel and J. Principe, The kernel least-mean-square algorithm, IEEE Trans. Signal
Processing 56(2), 2008. The cost of step n is n kernel values; a network's nodes work alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dokl.base.arrays import Array
from dokl.learning.kernels import Gaussian
from dokl.paper.baselines.growing import (
    Alone,
    Powers,
    Shape,
    append,
    evaluate,
    growing_njit,
    require_gaussian,
)
from dokl.paper.baselines.runs import Samples, positive


@dataclass(frozen=True)
class KLMS:
    """Kernel LMS with step mu; a sample's weight multiplies its step."""

    kernel: Gaussian
    mu: float = 1.0
    name = "klms"

    def __post_init__(self) -> None:
        require_gaussian(self.kernel)
        positive("mu", self.mu)

    def learner(self, samples: Samples, dtype: Any) -> Alone:
        """Ready for the first step."""
        return Alone(samples, dtype, self.kernel, sweep, (dtype(self.mu),))


@growing_njit
def sweep(
    start: int, stop: int, K: int, k: int, X: Array, y: Array, weight: Array, mu: Any,
    centres: Array, alpha: Array, M: int, near: Array, shape: Shape, powers: Powers,
    f: Array, size: Array,
) -> int:  # fmt: skip
    """Steps start to stop of node k; returns the number of centres."""
    for t in range(start, stop):
        r = t * K + k
        if weight[r] > 0:
            f[t, k] = evaluate(centres, alpha, 0, M, X, r, near, shape, powers)
            M = append(centres, alpha, 0, M, X, r, mu * weight[r] * (y[r] - f[t, k]))
        else:
            f[t, k] = np.nan
        size[t, k] = M
    return M
