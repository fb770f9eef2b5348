"""What the baselines over a network share: one checked matrix, and its links."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import DTypeLike

from dokl.base.arrays import Array
from dokl.base.errors import BadInput
from dokl.base.random_numbers import draw_recipe
from dokl.network.exchange import Exchange


class OverNetwork:
    """A baseline whose nodes combine; weights: a matrix (K, K), a recipe of one, or None: alone."""

    weights: Any

    def draw(self, seed: int) -> Self:
        """The same with its network drawn."""
        return replace(self, weights=draw_recipe(self.weights, seed))  # type: ignore[type-var]


def one_graph(weights: object, K: int) -> Any:
    """Combination weights, checked, as one CSR array (the identity where nodes are alone)."""
    from scipy.sparse import eye_array

    graphs = Exchange(weights).graphs
    if len(graphs) > 1:
        raise BadInput("the baselines know one network only, not a sequence of them")
    A = graphs[0] if graphs else eye_array(K, format="csr")
    if A.shape[0] != K:
        raise BadInput(f"the combination weights are for {A.shape[0]} nodes, the stream has {K}")
    return A


def edges(A: Any, dtype: DTypeLike) -> tuple[Array, Array, Array]:
    """(indptr, indices, weights) as the loops take them."""
    return A.indptr.astype(np.int64), A.indices.astype(np.int64), A.data.astype(dtype)


def out_links(A: Any) -> Array:
    """To how many others each node sends: (K,)."""
    others = A.copy()
    others.setdiag(0)
    others.eliminate_zeros()
    return np.bincount(others.indices, minlength=A.shape[0])


def hops(A: object) -> Array:
    """Steps that news of node l needs to reach node k: (K, K), infinite where it never does."""
    from scipy.sparse.csgraph import shortest_path

    return np.asarray(shortest_path(A, unweighted=True))
