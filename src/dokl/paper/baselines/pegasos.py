"""Kernel Pegasos: the regularised hinge loss, exactly, with a centre for every violation.

    f_n = (1 - 1/n) f_{n-1} + [y_n f_{n-1}(x_n) < 1] y_n / (lam n) kappa(., x_n)

Unrolled, f_n = 1/(lam n) sum of y_i kappa(., x_i) over the violations so far: the coefficients
are signs, and nothing has to be shrunk. S. Shalev-Shwartz, Y. Singer, N. Srebro and A. Cotter,
Pegasos: primal estimated sub-gradient solver for SVM, Math. Programming 127, 2011, section 4.
No projection, as in the paper's tables; a network's nodes work alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import DTypeLike

from dokl.base.arrays import Array
from dokl.base.errors import BadInput
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
class KernelPegasos:
    """Kernel Pegasos with regularization lam; targets are -1 and 1."""

    kernel: Gaussian
    lam: float
    name = "pegasos"

    def __post_init__(self) -> None:
        require_gaussian(self.kernel)
        positive("lam", self.lam)

    def learner(self, samples: Samples, dtype: DTypeLike) -> Alone:
        """Ready for the first step."""
        if not np.isin(samples.y[samples.weight > 0], (-1, 1)).all():
            raise BadInput("Pegasos needs targets -1 and 1")
        seen = np.zeros(samples.K, np.int64)
        learner = Alone(samples, dtype, self.kernel, sweep, (self.lam, seen))
        learner.limit = float(np.finfo(dtype).max)  # the first f is of the size of 1/lam
        learner.factor = lambda k: 1.0 / (self.lam * max(1, int(seen[k])))
        return learner


@growing_njit
def sweep(
    start: int, stop: int, K: int, k: int, X: Array, y: Array, weight: Array,
    lam: float, seen: Array,
    centres: Array, alpha: Array, M: int, near: Array, shape: Shape, powers: Powers,
    f: Array, size: Array,
) -> int:  # fmt: skip
    """Steps start to stop of node k; returns the number of centres."""
    for t in range(start, stop):
        r = t * K + k
        if weight[r] > 0:
            total = evaluate(centres, alpha, 0, M, X, r, near, shape, powers)
            f[t, k] = total / (lam * max(seen[k], 1))
            seen[k] += 1
            if y[r] * f[t, k] < 1:
                M = append(centres, alpha, 0, M, X, r, weight[r] * y[r])
        else:
            f[t, k] = np.nan
        size[t, k] = M
    return M
