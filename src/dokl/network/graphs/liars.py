"""How many lying neighbours a neighbourhood can stand, from its weights alone.

A node that drops b of its neighbours (`exchange.Mixing`, rules "ios" and "trimmed") must be left
with an honest majority that it can tell: more than two thirds of its neighbourhood, itself
included, by number and by weight. With b liars among n neighbours that is

    3 b <= n    and    the b heaviest neighbours weigh less than a third together

(Wu, Chen, Ling 2023 need the second for iterative outlier scissors to contract; the first keeps a
node with one neighbour from "standing" it by listening to nobody.) It is a local count: a network
whose every node stands b may still be cut in two by them, and sparse graphs stand few.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dokl.network.graphs.rules import check_weights, metropolis
from dokl.network.graphs.topologies import as_graph

A_THIRD = 1 / 3


def most_liars(weights: Sequence[float]) -> int:
    """The most liars among neighbours of these weights, (n,), one's own not among them.

    >>> most_liars([0.2, 0.2, 0.2, 0.2]), most_liars([0.25, 0.25])
    (1, 0)
    """
    heaviest = np.cumsum(np.sort(np.asarray(weights, np.float64))[::-1])
    few = int(np.searchsorted(heaviest, A_THIRD, side="left"))
    return min(few, len(heaviest) // 3)


def liars_stood(network: Any) -> np.ndarray:
    """The same of every node of a graph (with Metropolis weights) or of weights A (K, K): (K,).

    >>> from dokl.network.graphs import complete, ring
    >>> liars_stood(complete(7)), liars_stood(ring(5))
    (array([2, 2, 2, 2, 2, 2, 2]), array([0, 0, 0, 0, 0]))
    """
    import networkx as nx

    if isinstance(network, nx.Graph):
        A = metropolis(as_graph(network))
    else:
        A = check_weights(network, doubly=False, connected=False)
    rows = zip(A.indptr[:-1], A.indptr[1:], strict=True)
    each = [
        most_liars(A.data[i:j][(A.indices[i:j] != k) & (A.data[i:j] > 0)])
        for k, (i, j) in enumerate(rows)
    ]
    return np.array(each, np.int64)
