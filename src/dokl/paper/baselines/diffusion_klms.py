"""Diffusion KLMS with growing sums: what a network would do without random features.

    psi_{k,n} = sum_l a_kl f_{l,n-1}                                       # combine functions
    f_{k,n}   = psi_{k,n} + mu e_{k,n} kappa(., x_{k,n}),   e = y - psi_{k,n}(x_{k,n})

A function is a list of centres with coefficients, and a combination is one over the union of
both lists: every sample of every node becomes a centre at all nodes it can reach, after as many
steps as hops. W. Gao, J. Chen, C. Richard and J. Huang, Diffusion adaptation over networks with
kernel least-mean-square, CAMSAP 2015; without its shared, fixed dictionary.

**Bytes of a message**: all coefficients of the sender, since combining changes each of them, and
the inputs of those centres that are new to it since its last message (all others were passed on
before): (M + d * new) numbers. Names of centres are not counted, nor what a neighbour already
has; both choices flatter this baseline or cost it a constant. M grows by about K a step, so bytes
and time per step grow with n, where theta of random features stays D numbers for ever.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dokl.base.arrays import Array
from dokl.learning.kernels import Gaussian
from dokl.paper.baselines.growing import (
    GrowingSums,
    KernelSum,
    Powers,
    Shape,
    append,
    blocks_of,
    count_of,
    evaluate,
    growing_njit,
    inner,
    require_gaussian,
    scaled_rows,
)
from dokl.paper.baselines.networks import OverNetwork, edges, hops, one_graph, out_links
from dokl.paper.baselines.runs import BaselineLearner, Samples, positive


@dataclass(frozen=True, eq=False)
class DiffusionKLMS(OverNetwork):
    """Combine-then-adapt KLMS; weights: a matrix (K, K), a recipe of one, or None: alone."""

    kernel: Gaussian
    mu: float = 1.0
    weights: Any = None
    name = "diffusion-klms"

    def __post_init__(self) -> None:
        require_gaussian(self.kernel)
        positive("mu", self.mu)

    def learner(self, samples: Samples, dtype: Any) -> BaselineLearner:
        """Ready for the first step."""
        return _Learner(self, samples, dtype)


def known_centres(present: Array, A: Any) -> Array:
    """How many centres each node holds after each step: (n, K), from `present`: (n, K)."""
    n, K = present.shape
    seen = np.concatenate([np.zeros((1, K), np.int64), np.cumsum(present, axis=0)])
    far, known = hops(A), np.zeros((n, K), np.int64)
    for k in range(K):
        for node in np.flatnonzero(far[k] < n):
            late = int(far[k, node])
            known[late:, k] += seen[1 : n + 1 - late, node]
    return known


def message_bytes(known: Array, d: int, itemsize: int) -> Array:
    """Bytes of each node's message at the beginning of each step: (n, K)."""
    before = np.concatenate([np.zeros((2, known.shape[1]), np.int64), known])[:-1]
    return np.asarray(itemsize * (before[1:] + d * np.diff(before, axis=0)))


class _Learner(BaselineLearner):
    """Coefficients (K, centres) twice: those of now, and room to combine into."""

    def __init__(self, method: DiffusionKLMS, samples: Samples, dtype: Any) -> None:
        super().__init__(samples, dtype)
        A = one_graph(method.weights, samples.K)
        most = int(samples.present.sum())
        self.X = scaled_rows(samples.X, method.kernel, dtype)
        self.sums = GrowingSums.empty(method.kernel, samples.d, samples.K, most, dtype)
        self.other, self.edges = np.empty_like(self.sums.alpha), edges(A, dtype)
        self.mu, self.links = dtype(method.mu), out_links(A)
        self.size = known_centres(samples.present, A)
        self.message = message_bytes(self.size, samples.d, np.dtype(dtype).itemsize)

    def advance(self, start: int, stop: int) -> None:
        """All nodes, step by step."""
        sums, seen = self.sums, (self.X, self.y, self.weight, self.mu)
        held = sums.centres, sums.alpha, self.other
        sums.size = sweep(start, stop, *seen, *self.edges, *held, sums.size, *sums.tools, self.f)
        if (stop - start) % 2:
            sums.alpha, self.other = self.other, sums.alpha

    def models(self) -> list[KernelSum]:
        """Each node's sum, adapted and not yet combined, as the scheme delivers it."""
        return [self.sums.model(k) for k in range(self.samples.K)]


@inner
def combine(
    new: Array, old: Array, k: int, M: int, indptr: Array, indices: Array, weights: Array
) -> None:
    """new[k] = sum over neighbours l of a_kl old[l], block by block."""
    for b in range(blocks_of(M)):
        count = count_of(M, b)
        for e in range(indptr[k], indptr[k + 1]):
            node, a, first = indices[e], weights[e], e == indptr[k]
            for j in range(count):
                new[k, b, j] = a * old[node, b, j] + (0 if first else new[k, b, j])


@growing_njit
def sweep(
    start: int, stop: int, X: Array, y: Array, weight: Array, mu: Any,
    indptr: Array, indices: Array, weights: Array,
    centres: Array, old: Array, new: Array, M: int, near: Array, shape: Shape, powers: Powers,
    f: Array,
) -> int:  # fmt: skip
    """Steps start to stop; returns the number of centres. After an odd number of steps the
    coefficients lie in `new`, otherwise in `old`.
    """
    K = f.shape[1]
    for t in range(start, stop):
        held = M
        for k in range(K):
            combine(new, old, k, held, indptr, indices, weights)
        for k in range(K):
            r = t * K + k
            f[t, k] = np.nan
            if weight[r] > 0:
                f[t, k] = evaluate(centres, new, k, held, X, r, near, shape, powers)
                M = append(centres, new, k, M, X, r, mu * weight[r] * (y[r] - f[t, k]))
        old, new = new, old
    return M
