"""A network of nodes that learn one function together, as a single estimator."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from dokl import calibration, graphs
from dokl.arrays import Array
from dokl.errors import BadGraph, BadInput, UnknownName
from dokl.estimators import pilots
from dokl.estimators.choices import set_parameters
from dokl.estimators.cooperating import Cooperating, has_intervals, if_intervals, will_cooperate
from dokl.estimators.targets import Classification, Regression, if_logistic, logarithm
from dokl.exchange import Exchange


class _Network(Cooperating):
    """Graph, weights and the nodes' names; rows belong to nodes."""

    graph: Any
    n_nodes: int
    rule: str
    order: str
    every: Any

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

    def score(self, X: Any, y: Any, sample_weight: Any = None, nodes: Any = None) -> float:
        """R^2, or the share of right labels, of the mean vector, or of `nodes`."""
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

    def _exchange(self, weights: Any) -> Exchange:
        cooperates = self._cooperates
        every = self.every
        if isinstance(every, str):
            if every != "auto":
                raise UnknownName("every", every, ("auto",))
            every = pilots.EVERY if cooperates else 1
        if cooperates:
            return Exchange(weights, "atc", every)
        return Exchange(weights, self.order, every, self._constant(), self.average)

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
                f"{', '.join(map(repr, self.nodes_[:5]))}{'...' if len(self.nodes_) > 5 else ''}"
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


def _matrix(graph: Any) -> Any:
    """A doubly stochastic matrix; whether it connects the nodes, the exchange will tell."""
    try:
        return graphs.check_weights(graph, connected=False)
    except BadGraph:
        raise
    except (TypeError, ValueError):
        raise BadInput(
            "graph must be the name of a topology, a networkx graph or a square matrix of weights, "
            f"got {graph!r}"
        ) from None


class NetworkRegressor(_Network, Regression):
    """Regression over a network: each row belongs to a node, neighbours exchange what they learn.

    Without settings nodes cooperate, and it never hurts: length scales and what nodes' targets
    differ by (an offset for each) are learned from the network's first rows, what travels are
    sums of rows, and each node mixes experts of its own rows, of the network's, and of the
    network's with its own corrections by what each would have gained on the node's own rows.
    `cooperation_` says what that is worth, and from whom.

    `fit(X, y, nodes=...)` names the node of each row (without, rows are dealt out evenly); rows
    of one node are learned in order, one row per node and step, then neighbours exchange. Each
    call begins a new step. Nodes that cooperate take rows in the order given, all nodes together,
    so that nobody hears what is yet to come: sort them by time. Rows that are grouped by node
    (files of stations, one after the other) teach one node after the other.

    `predict(X)` uses what the network has learned together, where nodes weigh as many rows as they
    have seen, `predict(X, nodes=...)` each node's own mixture. The names are those of the graph's
    nodes, in `nodes_`.

    With learner="gradient" vectors are averaged instead (the paper's algorithm); that is also
    what is meant where one of its parameters, from order on, is set. Those are as in
    `KernelRegressor`.

    graph : name of a topology ("random", "ring", "grid", "star", "complete", "small_world",
        "geometric", "exponential"), a networkx graph, or a doubly stochastic matrix (K, K).
        Random ones are drawn from random_state.
    n_nodes : number of nodes when graph is a name, unless the first rows come with texts as
        `nodes`: then these are the nodes, in alphabetical order.
    rule : weights of a graph: "metropolis", "laplacian", "uniform", or "alone" (no exchange).
    learner : "cooperation", "gradient", or "auto": the first, unless a parameter of the second is
        set, inputs are sparse, or there are more than 300.
    every : exchange at every so many steps; "auto" is 1.
    n_components : features; "auto" is 300, of vectors 500.
    random_state : seed of graph, features and pilots.
    order : "atc" adapt-then-combine, or "cta" combine-then-adapt (the paper's).
    intercept : a constant per node that is learned but never shared: stations differ by an offset.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(800, 2))
    >>> y = np.sin(X[:, 0]) + X[:, 1] ** 2
    >>> model = NetworkRegressor("ring", n_nodes=8, random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.9)
    True
    """

    def __init__(
        self,
        graph: Any = "random",
        *,
        n_nodes: int = 20,
        rule: str = "metropolis",
        learner: str = "auto",
        order: str = "atc",
        every: Any = "auto",
        kernel: Any = "gaussian",
        sigma: Any = "scale",
        n_components: Any = "auto",
        features: str = "auto",
        loss: Any = "squared",
        step: Any = "auto",
        alpha: float = 0.0,
        average: str = "none",
        intercept: bool = False,
        passes: Any = "auto",
        shuffle: bool = True,
        dtype: Any = "float32",
        engine: str = "auto",
        verbose: bool = False,
        random_state: Any = None,
    ) -> None:
        set_parameters(self, locals())

    def fit(self, X: Any, y: Any, nodes: Any = None, sample_weight: Any = None) -> NetworkRegressor:
        """Learn from scratch. X: (n, d) dense or CSR; y: (n,) or (n, m); nodes: (n,)."""
        self._fit(X, y, sample_weight, nodes)
        return self

    def partial_fit(
        self, X: Any, y: Any, nodes: Any = None, sample_weight: Any = None
    ) -> NetworkRegressor:
        """Learn from these rows once, each node in the order given."""
        self._partial_fit(X, y, sample_weight, nodes)
        return self

    def predict(self, X: Any, nodes: Any = None) -> Array:
        """Predictions of the whole network, or of `nodes` (one name, or one per row)."""
        return self._predict(X, nodes)

    def prequential(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        nodes: Any = None,
        return_interval: float | None = None,
    ) -> Any:
        """`partial_fit` that returns what it predicted for each row just before learning it.

        The honest error of an online learner: every row is a test row first. A row of weight 0 is
        not looked at, and NaN stands in its place. return_interval: a coverage such as 0.9, where
        nodes cooperate; then the lower and the upper ends follow, too.
        """
        if return_interval is None:
            return super().prequential(X, y, sample_weight, nodes)
        has_intervals(self)
        found = self._prequential(X, y, sample_weight, nodes, return_interval)
        return tuple(map(self._values, found))

    @if_intervals
    def predict_interval(
        self, X: Any, coverage: float = 0.9, nodes: Any = None
    ) -> tuple[Array, Array]:
        """Lower and upper ends that hold the target in this share of each node's rows, as tracked
        online; of `nodes` (one name, or one per row), or around what the whole network predicts,
        wide enough for rows of all its nodes: where these differ, far wider than their own.
        """
        lower, upper = self._interval(X, coverage, nodes)
        return self._values(lower), self._values(upper)


class NetworkClassifier(_Network, Classification):
    """Classification over a network; see `NetworkRegressor` and `KernelClassifier`.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(800, 2))
    >>> y = X[:, 0] * X[:, 1] > 0
    >>> model = NetworkClassifier("complete", n_nodes=5, random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.95)
    True
    """

    def __init__(
        self,
        graph: Any = "random",
        *,
        n_nodes: int = 20,
        rule: str = "metropolis",
        learner: str = "auto",
        order: str = "atc",
        every: Any = "auto",
        kernel: Any = "gaussian",
        sigma: Any = "scale",
        n_components: Any = "auto",
        features: str = "auto",
        loss: Any = "hinge",
        step: Any = "auto",
        alpha: float = 1e-4,
        average: str = "weighted",
        intercept: bool = False,
        passes: Any = "auto",
        shuffle: bool = True,
        dtype: Any = "float32",
        engine: str = "auto",
        verbose: bool = False,
        random_state: Any = None,
    ) -> None:
        set_parameters(self, locals())

    def fit(
        self, X: Any, y: Any, nodes: Any = None, sample_weight: Any = None
    ) -> NetworkClassifier:
        """Learn from scratch. X: (n, d) dense or CSR; y: (n,) labels; nodes: (n,)."""
        self._fit(X, y, sample_weight, nodes)
        return self

    def partial_fit(
        self, X: Any, y: Any, classes: Any = None, nodes: Any = None, sample_weight: Any = None
    ) -> NetworkClassifier:
        """Learn from these rows once, each node in the order given."""
        self._partial_fit(X, y, sample_weight, nodes, classes)
        return self

    def predict(self, X: Any, nodes: Any = None) -> Array:
        """Labels by the whole network, or by `nodes` (one name, or one per row)."""
        return self._predict(X, nodes)

    def decision_function(self, X: Any, nodes: Any = None) -> Array:
        """Scores: (n,) for two classes (positive: the second), else (n, classes); where nodes
        cooperate log odds, and log probabilities but for a constant.
        """
        return self._decide(X, nodes)

    @property
    def _calibrates(self) -> bool:
        return will_cooperate(self)

    def _probabilities(self, X: Any, nodes: Any = None) -> Array:
        if not self._cooperates:
            return super()._probabilities(X, nodes)
        scores = self._scores(X, nodes)
        return calibration.softmax(
            np.hstack([-0.5 * scores, 0.5 * scores]) if scores.shape[1] == 1 else scores
        )

    @if_logistic
    def predict_proba(self, X: Any, nodes: Any = None) -> Array:
        """Probabilities (n, classes): where nodes cooperate, calibrated by every row so far before
        it was learned; of vectors with the logistic loss only.
        """
        check_is_fitted(self, "state_")
        return self._probabilities(X, nodes)

    @if_logistic
    def predict_log_proba(self, X: Any, nodes: Any = None) -> Array:
        """Logarithms of `predict_proba`."""
        check_is_fitted(self, "state_")
        return logarithm(self._probabilities(X, nodes))
