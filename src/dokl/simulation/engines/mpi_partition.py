"""K nodes over P ranks, equal counts, few edges between ranks.

Recursive bisection: each half is cut where a smooth order of its nodes is in the middle. Two
kinds of order are tried, by distance from a node at the rim and by the slowest modes of the
Laplacian (Fiedler 1973), and each is improved by exchanging pairs as in Kernighan & Lin (1970).
"""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array, diags_array
from scipy.sparse.csgraph import breadth_first_order, connected_components, shortest_path
from scipy.sparse.linalg import lobpcg

from dokl.base.arrays import Array
from dokl.base.errors import BadInput

# Up to here the Fiedler vector comes from all eigenvectors, beyond from 40 steps of LOBPCG.
SMALL = 200
MOST_SWAPS = 2000
ANGLES = 8


class Cut(NamedTuple):
    """What a partition costs: edges of the network, those between ranks, and vectors that travel
    in one combination (each boundary node's once to each rank that needs it).
    """

    edges: int
    cut: int
    vectors: int


def partition(graphs: list[Any], K: int, P: int) -> Array:
    """The rank of each node, (K,); ranks hold K // P nodes or one more.

    graphs: the combination matrices (K, K) used in turn; none: every node alone.

    >>> from dokl.network.graphs import metropolis, ring
    >>> A = metropolis(ring(6))
    >>> measure_cut([A], partition([A], 6, 3))
    Cut(edges=6, cut=3, vectors=6)
    """
    if not 1 <= P <= K:
        raise BadInput(f"{P} ranks are too many for a network of {K}: use at most one per node")
    owner = np.zeros(K, np.int64)
    if not graphs:
        return np.sort(np.arange(K) % P)
    _divide(_links(graphs), np.arange(K), 0, P, owner)
    return owner


def measure_cut(graphs: list[Any], owner: Array) -> Cut:
    """What a partition costs; averaged over graphs used in turn, rounded up."""
    edges = between = vectors = 0
    for A in graphs:
        pairs = A.tocoo()
        row, col = pairs.coords
        away = owner[row] != owner[col]
        edges += int((row != col).sum())
        between += int(away.sum())
        vectors += len(np.unique(owner[row][away] * len(owner) + col[away]))
    T = max(1, len(graphs))
    return Cut(-(-edges // (2 * T)), -(-between // (2 * T)), -(-vectors // T))


def _links(graphs: list[Any]) -> csr_array:
    """Undirected links, each counted as often as graphs have it; no self loops."""
    links = sum(csr_array((np.ones(A.nnz), A.indices, A.indptr), shape=A.shape) for A in graphs)
    links = csr_array(links + links.T)
    links.setdiag(0)
    links.eliminate_zeros()
    links.sort_indices()
    return links


def _divide(W: csr_array, nodes: Array, first: int, P: int, owner: Array) -> None:
    """Give `nodes`, whose links are W, to ranks first..first+P."""
    if P == 1:
        owner[nodes] = first
        return
    left = P // 2
    # Whole ranks go left and right, so that sizes differ by at most one in the end.
    size = len(nodes) // P * left + min(left, len(nodes) % P)
    right = _bisect(W, size)
    for side, start, count in ((~right, first, left), (right, first + left, P - left)):
        at = np.flatnonzero(side)
        _divide(csr_array(W[at][:, at]), nodes[at], start, count, owner)


def _bisect(W: csr_array, size: int) -> Array:
    """Which nodes go right: all but `size` of them, few links apart."""
    best, least = np.zeros(W.shape[0], bool), np.inf
    for values in (_distances(W), *_fiedler(W)):
        side = np.ones(W.shape[0], bool)
        side[np.argsort(values, kind="stable")[:size]] = False
        side = _improve(W, side)
        row = np.repeat(np.arange(W.shape[0]), np.diff(W.indptr))
        apart = float(W.data[side[row] != side[W.indices]].sum())
        if apart < least:
            best, least = side, apart
    return best


def _distances(W: csr_array) -> Array:
    """Steps from a node at the rim, one component after another: (n,)."""
    n = W.shape[0]
    out, offset = np.zeros(n), 0.0
    count, label = connected_components(W, directed=False)
    for c in range(count):
        start = int(np.flatnonzero(label == c)[0])
        rim = int(breadth_first_order(W, start, directed=False)[0][-1])
        steps = shortest_path(W, "D", directed=False, unweighted=True, indices=rim)
        inside = np.isfinite(steps)
        out[inside] = offset + steps[inside]
        offset += float(steps[inside].max()) + 1
    return out


def _fiedler(W: csr_array) -> list[Array]:
    """The two slowest modes of the Laplacian, or close to them, mixed in several ways: (n,) each.

    A square grid has two equally slow ones, and any mixture may come out.
    """
    n = W.shape[0]
    L = diags_array(W.sum(axis=1)) - W
    if n <= SMALL:
        modes = np.linalg.eigh(L.toarray())[1][:, 1:3]
    else:
        start = np.stack([_distances(W), np.random.default_rng(0).standard_normal(n)], axis=1)
        inverse = diags_array(1 / np.maximum(W.sum(axis=1), 1))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # not converged is good enough
            ones = np.ones((n, 1))
            modes = lobpcg(csr_array(L), start, M=inverse, Y=ones, largest=False, maxiter=40)[1]
    turns = np.linspace(0, np.pi, ANGLES, endpoint=False) if modes.shape[1] == 2 else [0.0]
    return [modes[:, 0] * np.cos(a) + modes[:, -1] * np.sin(a) for a in turns]


def _improve(W: csr_array, side: Array) -> Array:
    """Exchange the pair that saves most links, as long as one does."""
    side, n = side.copy(), len(side)
    row = np.repeat(np.arange(n), np.diff(W.indptr))
    across = np.where(side[row] != side[W.indices], W.data, -W.data)
    gain = np.bincount(row, across, minlength=n)  # links saved by moving a node
    for _ in range(MOST_SWAPS):
        a = int(np.argmax(np.where(side, -np.inf, gain)))
        linked = np.zeros(n)
        linked[W.indices[W.indptr[a] : W.indptr[a + 1]]] = W.data[W.indptr[a] : W.indptr[a + 1]]
        b = int(np.argmax(np.where(side, gain - 2 * linked, -np.inf)))
        if side.all() or not side.any() or gain[a] + gain[b] - 2 * linked[b] <= 0:
            break
        for node in (a, b):
            there = slice(W.indptr[node], W.indptr[node + 1])
            near, weight = W.indices[there], W.data[there]
            gain[near] += np.where(side[near] == side[node], 2 * weight, -2 * weight)
            gain[node] = -gain[node]
            side[node] = not side[node]
    return side
