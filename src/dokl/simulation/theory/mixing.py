"""The graph's side of the mean-square recursion: combining is diagonal in the graph's modes.

With A = W diag(a) W' and blocks B_kl = E[U_k U_l'], the blocks C_pq = sum_kl w_kp w_lq B_kl are
only multiplied by a_p a_q when nodes combine. What a sample adds, it adds to its own node's
block B_kk alone, hence to all C_pq, times w_kp w_kq.

exact       all K^2 pairs (p, q); `gather` returns the K diagonal blocks after combining.
mean-field  only the K pairs p = q, and one block, the network mean of the diagonal ones: every
            node's addition is replaced by the mean over nodes, and sum_k w_kp w_kq is 0 or 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dokl.base.arrays import Array
from dokl.base.errors import BadGraph, UnknownName
from dokl.network.graphs import check_weights

KINDS = ("mean-field", "exact")


@dataclass(frozen=True)
class MixingModes:
    """P pairs of graph modes and Q blocks that are followed.

    alpha: (P,) the factors a_p a_q; weave: (Q, P) takes pairs to blocks, and its transpose times
    `share` back; start: (P,) of nodes that all begin alike; apart: (P,) weights of the mean
    squared distance of the nodes from their mean.
    """

    alpha: Array
    weave: Array
    share: float
    start: Array
    apart: Array

    def gather(self, C: Array) -> Array:
        """Diagonal blocks after combining: (P, ...) -> (Q, ...)."""
        return np.asarray(np.tensordot(self.weave * self.alpha, C, axes=1))

    def scatter(self, G: Array) -> Array:
        """What samples add, block by block, into the pairs: (Q, ...) -> (P, ...)."""
        return np.asarray(self.share * np.tensordot(self.weave.T, G, axes=1))


def graph_modes(weights: object) -> tuple[Array, Array]:
    """a: (K,), W: (K, K) of symmetric, doubly stochastic weights, the constant vector first."""
    A = check_weights(weights, connected=False).toarray()
    K = len(A)
    if np.abs(A - A.T).max() > 1e-9:
        raise BadGraph(
            "the theory needs symmetric weights (a_kl = a_lk), as the Metropolis rule makes them"
        )
    # the constant vector has eigenvalue 1; raised to 2 it is alone there, even if A = I
    a, W = np.linalg.eigh((A + A.T) / 2 + 1.0 / K)
    a, W = a[::-1].copy(), W[:, ::-1]
    a[0] -= 1.0
    return a, W


def mixing(weights: object = None, kind: str = "mean-field") -> MixingModes:
    """The mixing of given weights (K, K); None: a single node."""
    if kind not in KINDS:
        raise UnknownName("kind of network theory", kind, KINDS)
    if weights is None:
        one = np.ones(1)
        return MixingModes(one, np.ones((1, 1)), 1.0, one, np.zeros(1))
    a, W = graph_modes(weights)
    K = len(a)
    first = np.zeros(K)
    first[0] = 1.0
    if kind == "mean-field":
        return MixingModes(a**2, np.full((1, K), 1 / K), float(K), K * first, (1 - first) / K)
    weave = (W[:, :, None] * W[:, None, :]).reshape(K, K * K)
    start = K * np.outer(first, first).ravel()
    return MixingModes(np.outer(a, a).ravel(), weave, 1.0, start, np.diag(1 - first).ravel() / K)
