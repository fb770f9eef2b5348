"""The graph of a network: its weights, the names of its nodes, and which row each learns when."""

from __future__ import annotations

from typing import Any

import numpy as np

from dokl.base.arrays import Array
from dokl.base.errors import BadGraph, BadInput
from dokl.network import graphs


class GraphNodes:
    """What estimators over a graph share, whatever their nodes exchange; rows belong to nodes."""

    # Parameters: the constructors, whose signatures scikit-learn reads, set them.
    graph: Any
    n_nodes: int
    rule: str
    predict: Any

    def _network(self, seed: int) -> tuple[int, Any]:
        """Nodes and weights of the `graph` parameter: a name, a networkx graph or a matrix."""
        graph = self.graph
        if isinstance(graph, str):
            # The random topologies are drawn from the same seed as the features.
            names = self.__dict__.pop("_named", None)
            graph = graphs.build(graph, self.n_nodes if names is None else len(names), seed=seed)
            if names is not None:
                import networkx as nx

                graph = nx.relabel_nodes(graph, dict(enumerate(names)))
        if hasattr(graph, "nodes"):
            names, weights = list(graph.nodes), _weights(graph, self.rule)
        else:
            weights = _matrix(graph)
            names = list(range(weights.shape[0]))
        self.nodes_ = np.fromiter(names, object, len(names))
        self._number = {name: k for k, name in enumerate(names)}
        return len(names), weights

    def score(
        self, X: object, y: object, sample_weight: object = None, nodes: object = None
    ) -> float:
        """R^2, or the share of correct labels, of the whole network or of `nodes`."""
        from sklearn.metrics import accuracy_score, r2_score

        predicted = self.predict(X, nodes=nodes)
        right = accuracy_score if getattr(self, "_classifying", False) else r2_score
        return float(right(y, predicted, sample_weight=sample_weight))

    def _meet_nodes(self, nodes: Any) -> None:
        """Names that rows give the nodes of a topology, which has none of its own."""
        given = isinstance(nodes, str) or not hasattr(nodes, "__len__")
        if nodes is None or given or not isinstance(self.graph, str):
            return
        names = nodes.tolist() if hasattr(nodes, "tolist") else list(nodes)
        texts = all(isinstance(name, str) for name in names)
        if texts and len(set(names)) > 1:  # one name makes no network
            self._named = sorted(set(names))

    def _node_numbers(self, nodes: Any, n: int) -> Array | None:
        """Node number of each row, from the graph's own node names; one name is for all rows."""
        if nodes is None:
            return None
        try:
            one = isinstance(nodes, str) or not hasattr(nodes, "__len__")
            if one or (isinstance(nodes, tuple) and nodes in self._number):
                return np.full(n, self._number[nodes])
            names = nodes.tolist() if hasattr(nodes, "tolist") else list(nodes)
            numbers = np.array([self._number[name] for name in names], np.int64)
        except KeyError as missing:
            raise BadInput(
                f"node {missing} is not in the graph, whose {len(self.nodes_)} nodes are "
                f"{', '.join(map(repr, self.nodes_[:5]))}{'...' if len(self.nodes_) > 5 else ''}. "
                "Rows of an unknown node are predicted without nodes; to learn one, add it to the "
                "graph before the first row"
            ) from None
        except TypeError:  # lists within lists
            raise BadInput("nodes must be one name, or a list with a name for each row") from None
        if len(numbers) != n:
            raise BadInput(f"nodes names {len(numbers)} nodes for {n} rows: it takes one per row")
        return numbers


def _weights(graph: Any, rule: str) -> Any:
    """Combination weights of a networkx graph, rows in the order of its nodes."""
    import networkx as nx

    names = list(graph.nodes)
    if isinstance(graph, nx.Graph) and names != list(range(len(names))):
        graph = nx.convert_node_labels_to_integers(graph)
    weights = graphs.weights(graph, rule)
    parts = [] if rule == "alone" else list(nx.connected_components(graph))
    if len(parts) > 1:
        here, there = names[min(parts[0])], names[min(parts[1])]
        raise BadGraph(
            f"the graph is disconnected: {len(parts)} parts, with no path from node {here!r} to "
            f"{there!r}, so they never agree. Add links, or let all learn alone with rule='alone'"
        )
    return weights


def _matrix(graph: object) -> Any:
    """A doubly stochastic matrix; whether it connects the nodes, the exchange will check."""
    try:
        return graphs.check_weights(graph, connected=False)
    except BadGraph:
        raise
    except (TypeError, ValueError):
        raise BadInput(
            "graph must be the name of a topology, a networkx graph or a square matrix of weights, "
            f"got {graph!r}"
        ) from None


# -- the order of rows ---------------------------------------------------------------------------
# More steps than this, times those that end where a node comes again, show no order among nodes.
REPEATED = 1.25


def dealt(K: int, owner: Array, rng: np.random.Generator | None = None) -> Array:
    """Which row each node sees at each step: (steps, K), -1 where a node has no more rows.

    owner: (n,) the node of each row. With rng each node's rows come in a new order.

    >>> dealt(2, np.array([0, 1, 0]))
    array([[ 0,  1],
           [ 2, -1]])
    """
    n = len(owner)
    if K == 1:
        return (np.arange(n) if rng is None else rng.permutation(n)).reshape(n, 1)
    # Sorting by (node, random number) shuffles every node's rows by themselves.
    order = np.lexsort((np.arange(n) if rng is None else rng.random(n), owner))
    counts = np.bincount(owner, minlength=K)
    place = np.arange(n) - np.repeat(np.cumsum(counts) - counts, counts)
    index = np.full((int(counts.max(initial=0)), K), -1, np.int64)
    index[place, owner[order]] = order
    return index


def in_order(K: int, owner: Array) -> Array:
    """The same for rows that come in the order of time, (steps, K), -1 where a node has none.

    No row comes before one that was given earlier: a node that misses hours would otherwise run
    ahead of the others, and teach them what is yet to come. A step ends where a node comes again,
    and where nodes keep an order among each other also where it starts over. Rows that are grouped
    by node give nearly as many steps as rows, and one node learns after the other.

    >>> in_order(3, np.array([0, 1, 2, 1, 2, 0, 1, 2]))
    array([[ 0,  1,  2],
           [-1,  3,  4],
           [ 5,  6,  7]])
    """
    n, nodes = len(owner), owner.tolist()
    plain = _steps(nodes, [0] * K)
    rank = [0] * K
    for i, k in enumerate(dict.fromkeys(nodes)):
        rank[k] = i
    step = _steps(nodes, rank)
    if n and step[-1] > REPEATED * (1 + plain[-1]):  # they keep none
        step = plain
    index = np.full((1 + step[-1] if n else 0, K), -1, np.int64)
    index[step, owner] = np.arange(n)
    return index


def _steps(nodes: list[int], rank: list[int]) -> list[int]:
    """The step of each row: a new one where its node has had one, or ranks before the first."""
    found, last, step, first = list[int](), [-1] * len(rank), -1, len(rank)
    for k in nodes:
        if last[k] == step or rank[k] < first:
            step, first = step + 1, rank[k]
        last[k] = step
        found.append(step)
    return found
