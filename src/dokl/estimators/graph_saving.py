"""The graph of a network, its weights and its nodes, as arrays and JSON, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dokl.base.arrays import Array
from dokl.estimators.plain import pack, unpack

Arrays = dict[str, Array]


def links_of(graph: Any) -> Array:
    """Pairs of node numbers (links, 2) of a networkx graph."""
    number = {name: k for k, name in enumerate(graph.nodes)}
    links = [(number[a], number[b]) for a, b in graph.edges()]
    return np.array(links, np.int64).reshape(-1, 2)


def unpacked_graph(packed: Mapping[str, Any], arrays: Arrays) -> Any:
    """The `graph` parameter that was packed, if it was no name."""
    if "$weights" in packed:
        return unpacked_weights(arrays)
    import networkx as nx

    names = [unpack(name) for name in packed["$graph"]]
    graph = nx.Graph()
    graph.add_nodes_from(names)
    graph.add_edges_from((names[a], names[b]) for a, b in arrays["graph.links"].tolist())
    return graph


def packed_weights(weights: Any) -> Arrays:
    """Weights (K, K) in compressed rows; none where nodes are alone."""
    if weights is None:
        return {}
    parts = ("data", "indices", "indptr")
    return {f"weights.{part}": np.asarray(getattr(weights, part)) for part in parts}


def unpacked_weights(arrays: Arrays) -> Any:
    """The (K, K) weights in compressed rows, or None; wild indices are refused."""
    if "weights.data" not in arrays:
        return None
    from scipy.sparse import csr_array

    parts = tuple(arrays[f"weights.{part}"] for part in ("data", "indices", "indptr"))
    K = len(parts[2]) - 1
    A = csr_array(parts, shape=(K, K))
    A.check_format(full_check=True)
    return A


def node_names(model: Any) -> list[Any]:
    """Names of the nodes, as JSON."""
    return [pack(name) for name in model.nodes_.tolist()]


def take_nodes(model: Any, meta: Mapping[str, Any]) -> None:
    """Set the names that `node_names` packed."""
    names = [unpack(name) for name in meta["nodes"]]
    model.nodes_ = np.fromiter(names, object, len(names))
    model._number = {name: k for k, name in enumerate(names)}
