"""Combination weights: rules that turn a graph into A (K, K), and the check of any A."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from dokl.base.errors import BadGraph
from dokl.network.graphs.topologies import BUILDERS, as_graph, build, check_size, lookup

if TYPE_CHECKING:
    import networkx as nx
    from numpy.typing import ArrayLike
    from scipy.sparse import csr_array


def metropolis(g: nx.Graph) -> csr_array:
    """a_kl = 1 / max(|N_k|, |N_l|) for neighbours, the rest on the diagonal; k is in N_k.

    Symmetric, doubly stochastic, and each node needs to know only its neighbours' degrees.
    """
    adjacency = _adjacency(g)
    size = adjacency.sum(axis=1) + 1  # |N_k|: (K,)
    links = adjacency.tocoo()
    links.data = 1 / np.maximum(size[links.row], size[links.col])
    return _with_diagonal(links)


def laplacian(g: nx.Graph) -> csr_array:
    """I - L / (max degree + 1): every link the same weight ("max-degree")."""
    links = _adjacency(g)
    links.data /= links.sum(axis=1).max() + 1
    return _with_diagonal(links)


def uniform(g: nx.Graph) -> csr_array:
    """a_kl = 1 / |N_k|: each node takes the plain mean of its neighbourhood.

    Rows sum to one, columns only when all degrees are equal. Otherwise the network agrees on
    an average that favours nodes with many links; `check_weights(A)` says so and
    `check_weights(A, doubly=False)` lets it pass.
    """
    links = _adjacency(g)
    size = links.sum(axis=1) + 1
    links.data /= np.repeat(size, np.diff(links.indptr))
    return _with_diagonal(links)


def alone(K: int) -> csr_array:
    """The identity: nobody listens to anybody."""
    from scipy.sparse import csr_array, eye_array

    check_size(K)
    return csr_array(eye_array(K))


RULES: dict[str, Callable[[nx.Graph], csr_array]] = {
    "metropolis": metropolis,
    "laplacian": laplacian,
    "max-degree": laplacian,
    "uniform": uniform,
    "alone": lambda g: alone(g.number_of_nodes()),
}


def weights(g: nx.Graph, rule: str = "metropolis") -> csr_array:
    """The combination weights of a graph, by the name of the rule: (K, K)."""
    return lookup("weight rule", rule, RULES)(as_graph(g))


def check_weights(
    A: ArrayLike | csr_array, *, doubly: bool = True, connected: bool = True, tol: float = 1e-9
) -> csr_array:
    """A as a csr_array, or BadGraph with the failing assumption and its place.

    doubly: columns must sum to one, too. connected: repeated combining must lead to agreement
    (everyone reaches everyone and nobody merely swaps); the identity passes only without it.
    Symmetry is not asked for: the algorithm needs no more than the sums and the connection.
    """
    from scipy.sparse import csr_array

    # copy: the caller's matrix is not ours to sort
    A = csr_array(A, dtype=np.float64, copy=True)
    if A.ndim != 2 or A.shape[0] != A.shape[1] or A.shape[0] == 0:
        raise BadGraph(f"weights must be a square matrix (K, K); got shape {A.shape}")
    A.sum_duplicates()
    _check_entries(A)
    _check_sums(A.sum(axis=1), "row", "divide each row by its sum", tol)
    if doubly:
        advice = "use Metropolis weights, or doubly=False if a biased average will do"
        _check_sums(A.sum(axis=0), "column", advice, tol)
    if connected:
        _check_agreement(A)
    return A


def _check_entries(A: csr_array) -> None:
    bad = np.flatnonzero(~(np.isfinite(A.data) & (A.data >= 0)))
    if bad.size:
        row = int(np.searchsorted(A.indptr, bad[0], side="right")) - 1
        raise BadGraph(
            f"weights must be finite and not negative: entry ({row}, {A.indices[bad[0]]}) is "
            f"{A.data[bad[0]]:g}"
        )


def _check_sums(sums: np.ndarray, axis: str, advice: str, tol: float) -> None:
    off = np.flatnonzero(np.abs(sums - 1) > tol)
    if off.size:
        raise BadGraph(
            f"{axis} {off[0]} of the weights sums to {sums[off[0]]:.10g}, not 1: {advice}"
        )


def _check_agreement(A: csr_array) -> None:
    from scipy.sparse import csgraph

    A = A.copy()
    A.eliminate_zeros()  # a stored zero is no link
    parts, label = csgraph.connected_components(A, directed=True, connection="strong")
    if parts > 1:
        lost = int(np.flatnonzero(label != label[0])[0])
        raise BadGraph(
            f"the network is not connected: {parts} parts (nodes 0 and {lost} do not reach each "
            "other), so it will never agree. Add links, or pass connected=False"
        )
    if A.diagonal().any():
        return  # connected, and somebody keeps a share of their own: powers of A converge
    level = csgraph.dijkstra(A, unweighted=True, indices=0).astype(np.int64)
    links = A.tocoo()
    # the period of the chain: the gcd of all cycle lengths
    if len(level) > 1 and np.gcd.reduce(np.abs(level[links.row] + 1 - level[links.col])) != 1:
        raise BadGraph(
            "nodes only swap their estimates (eigenvalue -1 or another root of one), so they never "
            "agree: give nodes a weight of their own, as Metropolis with k in N_k does"
        )


def _adjacency(g: nx.Graph) -> csr_array:
    """Ones where there is a link; edge attributes play no part: (K, K)."""
    from scipy.sparse import csr_array

    # straight from the dictionaries: networkx's own conversion is ten times slower
    neighbours = [near for _, near in as_graph(g).adjacency()]
    indptr = np.cumsum([0, *map(len, neighbours)], dtype=np.int32)
    columns = np.fromiter(chain.from_iterable(neighbours), np.int32, count=indptr[-1])
    K = len(neighbours)
    A = csr_array((np.ones(len(columns)), columns, indptr), shape=(K, K))
    A.sort_indices()
    return A


def _with_diagonal(links: csr_array) -> csr_array:
    """Each node keeps what its neighbours do not get."""
    from scipy.sparse import csr_array, diags_array

    A = csr_array(links + diags_array(1 - links.sum(axis=1)))
    A.sort_indices()
    return A


@dataclass(frozen=True)
class GraphRecipe:
    """A graph still to be drawn: each realization gets its own.

    >>> recipe = GraphRecipe("random", 20, params={"p": 0.3})
    >>> recipe.draw(seed=7).shape
    (20, 20)
    """

    name: str
    K: int
    rule: str = "metropolis"
    params: Mapping[str, object] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        """Refuse unknown names now, not in the middle of a hundred runs."""
        lookup("graph", self.name, BUILDERS)
        lookup("weight rule", self.rule, RULES)
        check_size(self.K)

    def graph(self, seed: int = 0) -> nx.Graph:
        """The graph of this seed."""
        return build(self.name, self.K, seed=seed, **self.params)

    def draw(self, seed: int = 0) -> csr_array:
        """The weights of this seed's graph: (K, K)."""
        return weights(self.graph(seed), self.rule)
