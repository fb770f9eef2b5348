"""How many faulty neighbours a neighbourhood tolerates, from its weights alone.

A node that drops b of its neighbours (`exchange.Mixing`, rules "ios" and "trimmed") must be left
with an honest majority that it can recognise: more than two thirds of its neighbourhood, itself
included, by number and by weight. With b faulty nodes among n neighbours that is

    3 b <= n    and    the b heaviest neighbours weigh less than a third together

(Wu, Chen, Ling 2023 need the second for rule "ios" to contract; the first keeps a
node with one neighbour from tolerating it by listening to nobody.) It is a local count: a network
whose every node tolerates b may still be cut in two by them, and sparse graphs tolerate few.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from dokl.network.graphs.rules import check_weights, metropolis
from dokl.network.graphs.topologies import as_graph

if TYPE_CHECKING:
    import networkx as nx
    from numpy.typing import ArrayLike
    from scipy.sparse import csr_array

A_THIRD = 1 / 3


def most_faulty(weights: Sequence[float]) -> int:
    """The most faulty nodes among neighbours of these weights, (n,), one's own not among them.

    >>> most_faulty([0.2, 0.2, 0.2, 0.2]), most_faulty([0.25, 0.25])
    (1, 0)
    """
    heaviest = np.cumsum(np.sort(np.asarray(weights, np.float64))[::-1])
    few = int(np.searchsorted(heaviest, A_THIRD, side="left"))
    return min(few, len(heaviest) // 3)


def faulty_tolerated(network: nx.Graph | csr_array | ArrayLike) -> np.ndarray:
    """The same of every node of a graph (with Metropolis weights) or of weights A (K, K): (K,).

    >>> from dokl.network.graphs import complete, ring
    >>> faulty_tolerated(complete(7)), faulty_tolerated(ring(5))
    (array([2, 2, 2, 2, 2, 2, 2]), array([0, 0, 0, 0, 0]))
    """
    import networkx as nx

    if isinstance(network, nx.Graph):
        A = metropolis(as_graph(network))
    else:
        A = check_weights(network, doubly=False, connected=False)
    rows = zip(A.indptr[:-1], A.indptr[1:], strict=True)
    each = [
        most_faulty(A.data[i:j][(A.indices[i:j] != k) & (A.data[i:j] > 0)])
        for k, (i, j) in enumerate(rows)
    ]
    return np.array(each, np.int64)
