"""How fast a network agrees, by its shape."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dokl.network.graphs.rules import check_weights, metropolis
from dokl.network.graphs.topologies import as_graph

if TYPE_CHECKING:
    import networkx as nx
    from numpy.typing import ArrayLike
    from scipy.sparse import csr_array

# Up to here a dense eigenvalue problem takes about a second.
DENSE_UP_TO = 1500
DIAMETER_UP_TO = 500
# What Lanczos may spend, in products with the matrix, before another way is tried.
LANCZOS_RESTARTS = 60
LANCZOS_VECTORS = 40


@dataclass(frozen=True)
class GraphFacts:
    """What there is to say about a network. None: not computed, and `note` says why."""

    K: int
    edges: int
    mean_degree: float
    algebraic_connectivity: float | None
    """Second smallest eigenvalue of the Laplacian; 0 when the graph falls apart."""
    lambda_2: float | None
    """Second largest modulus among the eigenvalues of the weights: disagreement shrinks by it."""
    diameter: int | None = None
    note: str = ""

    @property
    def gap(self) -> float | None:
        """1 - lambda_2: the larger, the faster the network agrees."""
        return None if self.lambda_2 is None else 1 - self.lambda_2


def describe(network: nx.Graph | csr_array | ArrayLike) -> GraphFacts:
    """Facts about a graph, or about given weights (K, K) and the graph of their links.

    For a graph lambda_2 is that of its Metropolis weights.

    >>> from dokl.network.graphs import star
    >>> facts = describe(star(10))
    >>> facts.edges, facts.diameter, round(facts.algebraic_connectivity, 6)
    (9, 2, 1.0)
    """
    from scipy.sparse import csgraph

    A, links = _weights_and_links(network)
    K, edges, mean_degree = A.shape[0], links.nnz // 2, links.nnz / A.shape[0]
    parts, _ = csgraph.connected_components(links, directed=False)
    if K == 1:
        return GraphFacts(K, edges, mean_degree, 0.0, 0.0, 0, "a single node")
    if parts > 1:
        return GraphFacts(K, edges, mean_degree, 0.0, 1.0, None, f"{parts} separate parts")
    notes: list[str] = []
    connectivity = _attempt(_smallest_positive, csgraph.laplacian(links), notes)
    lambda_2 = _attempt(_second_modulus, A, notes)
    diameter = None
    if K <= DIAMETER_UP_TO:
        diameter = int(csgraph.shortest_path(links, unweighted=True).max())
    return GraphFacts(K, edges, mean_degree, connectivity, lambda_2, diameter, "; ".join(notes))


def _weights_and_links(network: nx.Graph | csr_array | ArrayLike) -> tuple[csr_array, csr_array]:
    """The weights, and ones where two different nodes are linked: both (K, K)."""
    import networkx as nx
    from scipy.sparse import csr_array

    if isinstance(network, nx.Graph):
        A = metropolis(as_graph(network))
    else:
        A = check_weights(network, doubly=False, connected=False)
    links = csr_array(A + A.T)
    links.setdiag(0)
    links.eliminate_zeros()
    links.data[:] = 1.0
    return A, links


def _attempt(
    eigenvalue: Callable[[csr_array], float], M: csr_array, notes: list[str]
) -> float | None:
    """The eigenvalue, or None and a note: a guess would be worse than a gap in the table."""
    from scipy.sparse.linalg import ArpackError

    try:
        return float(eigenvalue(M))
    except (ArpackError, RuntimeError, MemoryError) as problem:
        notes.append(f"no eigenvalue within reason for {M.shape[0]} nodes ({problem})")
        return None


def _second_modulus(A: csr_array) -> float:
    """The second largest modulus among the eigenvalues of weights whose rows sum to one."""
    from scipy.sparse import eye_array
    from scipy.sparse.linalg import eigs, eigsh

    K = A.shape[0]
    symmetric = abs(A - A.T).max() < 1e-12
    if K <= DENSE_UP_TO:
        dense = A.toarray()
        values = np.linalg.eigvalsh(dense) if symmetric else np.linalg.eigvals(dense)
        return float(np.sort(np.abs(values))[-2])
    if not symmetric:
        values = eigs(A, k=2, **_lanczos(K))
        return float(np.sort(np.abs(values))[-2])
    second = 1 - _smallest_positive(eye_array(K) - A)
    lowest = 2 * A.diagonal().min() - 1  # Gershgorin: often enough to see who is larger
    if -lowest > second:
        lowest = eigsh(A, k=1, which="SA", **_lanczos(K))[0]
    return float(max(second, -lowest))


def _smallest_positive(L: csr_array) -> float:
    """The second smallest eigenvalue of the Laplacian L of a connected graph."""
    from scipy.sparse.linalg import ArpackNoConvergence

    if L.shape[0] <= DENSE_UP_TO:
        return float(np.linalg.eigvalsh(L.toarray())[1])
    try:
        return _by_products(L)
    except ArpackNoConvergence:
        # Slow Lanczos means that the graph is stretched out (a ring, a grid); such graphs
        # have small separators, and then a sparse factorisation is cheap.
        return _by_factorisation(L)


def _by_products(L: csr_array) -> float:
    from scipy.sparse.linalg import LinearOperator, eigsh

    # the constant vector has eigenvalue 0: lift it above all others, out of the way
    lift = 2 * L.diagonal().max()
    lifted = LinearOperator(L.shape, lambda x: L @ x + lift * x.mean(), dtype=np.float64)
    return float(eigsh(lifted, k=1, which="SA", **_lanczos(L.shape[0]))[0])


def _by_factorisation(L: csr_array) -> float:
    from scipy.sparse.linalg import LinearOperator, eigsh, splu

    K = L.shape[0]
    # Without its last row and column L is regular, and solving with it on vectors of mean
    # zero is the pseudo-inverse, whose largest eigenvalue is what we are after, inverted.
    grounded = splu(
        L.tocsc()[:-1, :-1], permc_spec="MMD_AT_PLUS_A", options={"SymmetricMode": True}
    )

    def pseudo_inverse(x: np.ndarray) -> np.ndarray:
        x = x.ravel() - x.mean()
        solved: np.ndarray = np.append(grounded.solve(x[:-1]), 0.0)
        solved -= solved.mean()
        return solved

    inverse = LinearOperator((K, K), pseudo_inverse, dtype=np.float64)
    return float(1 / eigsh(inverse, k=1, which="LA", **_lanczos(K))[0])


def _lanczos(K: int) -> dict[str, object]:
    # a start vector of our own, since ARPACK's is drawn again each time
    start = np.random.default_rng(0).standard_normal(K)
    return {
        "v0": start,
        "ncv": LANCZOS_VECTORS,
        "maxiter": LANCZOS_RESTARTS,
        "tol": 1e-8,
        "return_eigenvectors": False,
    }
