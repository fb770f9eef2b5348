"""QKLMS: KLMS that adds to the nearest centre where there is one near enough.

    e_n = y_n - f_{n-1}(x_n),    c = the centre nearest to x_n
    |x_n - c|^2 <= q:  f_n = f_{n-1} + mu e_n kappa(., c)
    otherwise:         f_n = f_{n-1} + mu e_n kappa(., x_n), and x_n becomes a centre

B. Chen, S. Zhao, P. Zhu and J. Principe, Quantized kernel least mean square algorithm, IEEE
Trans. Neural Networks and Learning Systems 23(1), 2012. There the radius is given; here q is its
**square**, as dictionary sizes show that the paper's q is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dokl.base.arrays import Array
from dokl.base.errors import BadInput
from dokl.learning.kernels import Gaussian
from dokl.paper.baselines.growing import (
    BLOCK,
    Alone,
    Powers,
    Shape,
    append,
    blocks_of,
    count_of,
    distance,
    from_ordered_bits,
    gather,
    growing_njit,
    inner,
    ordered_bits,
    power,
    require_gaussian,
    scale_of,
)
from dokl.paper.baselines.runs import Samples, positive


@dataclass(frozen=True)
class QKLMS:
    """Quantized kernel LMS: step mu, squared radius q (0 is KLMS, but for repeated inputs)."""

    kernel: Gaussian
    mu: float = 1.0
    q: float = 1.0
    name = "qklms"

    def __post_init__(self) -> None:
        require_gaussian(self.kernel)
        positive("mu", self.mu)
        if not (np.isfinite(self.q) and self.q >= 0):
            raise BadInput(f"q, the squared radius, must be finite and at least 0, got {self.q!r}")

    def learner(self, samples: Samples, dtype: Any) -> Alone:
        """Ready for the first step."""
        q = self.q * scale_of(self.kernel) ** 2
        return Alone(samples, dtype, self.kernel, sweep, (dtype(self.mu), dtype(q)))


@inner
def evaluate_near(
    centres: Array, alpha: Array, M: int, X: Array, r: int,
    near: Array, shape: Shape, powers: Powers,
) -> Any:  # fmt: skip
    """One pass: the sum at row r, the smallest squared distance, and the block it lies in."""
    kind, where = X.dtype.type, 0
    total, best = kind(0), ordered_bits(kind(np.inf))
    for b in range(blocks_of(M)):
        count, smallest = count_of(M, b), ordered_bits(kind(np.inf))
        if len(shape.before):
            gather(near, centres, b, count, X, r, X.shape[1] - len(shape.fused))
        for j in range(count):
            u = distance(near, centres, b, j, X, r, shape)
            smallest = min(smallest, ordered_bits(u))
            total += alpha[0, b, j] * power(-u, powers)
        if smallest < best:
            best, where = smallest, b
    return total, from_ordered_bits(best), where


@inner
def place_in(
    centres: Array, b: int, M: int, X: Array, r: int, limit: Any, near: Array, shape: Shape
) -> Any:
    """The first place in block b whose squared distance to row r is within the limit."""
    count, first = count_of(M, b), np.int32(BLOCK)
    if len(shape.before):
        gather(near, centres, b, count, X, r, X.shape[1] - len(shape.fused))
    for j in range(count):
        u = distance(near, centres, b, j, X, r, shape)
        first = min(first, np.int32(j) if u <= limit else np.int32(BLOCK))
    return first


@growing_njit
def sweep(
    start: int, stop: int, K: int, k: int, X: Array, y: Array, weight: Array, mu: Any, q: Any,
    centres: Array, alpha: Array, M: int, near: Array, shape: Shape, powers: Powers,
    f: Array, size: Array,
) -> int:  # fmt: skip
    """Steps start to stop of node k; returns the number of centres."""
    for t in range(start, stop):
        r = t * K + k
        if weight[r] > 0:
            total, best, b = evaluate_near(centres, alpha, M, X, r, near, shape, powers)
            f[t, k] = total
            push = mu * weight[r] * (y[r] - total)
            if best <= q:
                # Computed again in another loop, the distance may be rounded otherwise.
                j = place_in(centres, b, M, X, r, best * powers.slack, near, shape)
                alpha[0, b, j] += push
            else:
                M = append(centres, alpha, 0, M, X, r, push)
        else:
            f[t, k] = np.nan
        size[t, k] = M
    return M
