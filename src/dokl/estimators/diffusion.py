"""Gradient diffusion over a graph: nodes take gradient steps and average their vectors."""

from __future__ import annotations

from dokl.base.arrays import Array
from dokl.estimators.choices import set_parameters
from dokl.estimators.learner import Classification, Estimator, Regression, if_logistic, logarithm
from dokl.estimators.nodes import GraphNodes
from dokl.network.exchange import Exchange


class DiffusionEstimator(GraphNodes, Estimator):
    """A `KernelRegressor` or `KernelClassifier` at every node, and how they average."""

    order: str
    every: int

    def _exchange(self, weights: object) -> Exchange:
        return Exchange(weights, self.order, self.every, self._constant(), self.average)


class DiffusionRegressor(DiffusionEstimator, Regression):
    """Regression by gradient diffusion: each node takes a step for its row, neighbours average.

    The paper's algorithm. A model is one vector per node, a message is one vector, and a row takes
    microseconds: for thousands of nodes, sparse rows, or more than 300 inputs. `NetworkRegressor`
    needs no settings and predicts better wherever its time and memory can be spent.

    `fit(X, y, nodes=...)` names the node of each row (without, rows are dealt out evenly); rows of
    one node are learned in order, one row per node and step, then neighbours exchange. Each call
    begins a new step. `predict(X)` uses the mean of all vectors, `predict(X, nodes=...)` the
    vectors of these nodes. The names are those of the graph's nodes, in `nodes_`.

    Parameters
    ----------
    graph : name of a topology ("random", "ring", "grid", "star", "complete", "small_world",
        "geometric", "exponential"), a networkx graph, or a doubly stochastic matrix (K, K).
        Random ones are drawn from random_state.
    n_nodes : number of nodes when graph is a name, unless the first rows come with texts as
        `nodes`: then these are the nodes, in alphabetical order.
    rule : weights of a graph: "metropolis", "laplacian", "uniform", or "alone" (no exchange).
    order : "atc" adapt-then-combine, or "cta" combine-then-adapt (the paper's).
    every : exchange every n steps.
    intercept : a constant per node that is learned but never shared: stations differ by an offset.
    random_state : seed of graph and features.

    The others are those of `KernelRegressor`.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(800, 2))
    >>> y = np.sin(X[:, 0]) + X[:, 1] ** 2
    >>> model = DiffusionRegressor("ring", n_nodes=8, random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.9)
    True
    """

    def __init__(
        self,
        graph: object = "random",
        *,
        n_nodes: int = 20,
        rule: str = "metropolis",
        order: str = "atc",
        every: int = 1,
        kernel: object = "gaussian",
        sigma: object = "scale",
        n_components: int = 500,
        features: str = "auto",
        loss: object = "squared",
        step: object = "auto",
        alpha: float = 0.0,
        average: str = "none",
        intercept: bool = False,
        passes: object = "auto",
        shuffle: bool = True,
        dtype: object = "float32",
        engine: str = "auto",
        verbose: bool = False,
        random_state: object = None,
    ) -> None:
        set_parameters(self, locals())

    def fit(
        self, X: object, y: object, nodes: object = None, sample_weight: object = None
    ) -> DiffusionRegressor:
        """Learn from scratch. X: (n, d) dense or CSR; y: (n,) or (n, m); nodes: (n,)."""
        self._fit(X, y, sample_weight, nodes)
        return self

    def partial_fit(
        self, X: object, y: object, nodes: object = None, sample_weight: object = None
    ) -> DiffusionRegressor:
        """Learn from these rows once, each node in the order given."""
        self._partial_fit(X, y, sample_weight, nodes)
        return self

    def predict(self, X: object, nodes: object = None) -> Array:
        """Predictions of the mean vector, or of `nodes` (one name, or one per row)."""
        return self._predict(X, nodes)


class DiffusionClassifier(DiffusionEstimator, Classification):
    """Classification by gradient diffusion; see `DiffusionRegressor` and `KernelClassifier`.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(800, 2))
    >>> y = X[:, 0] * X[:, 1] > 0
    >>> model = DiffusionClassifier("complete", n_nodes=5, random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.95)
    True
    """

    def __init__(
        self,
        graph: object = "random",
        *,
        n_nodes: int = 20,
        rule: str = "metropolis",
        order: str = "atc",
        every: int = 1,
        kernel: object = "gaussian",
        sigma: object = "scale",
        n_components: int = 500,
        features: str = "auto",
        loss: object = "hinge",
        step: object = "auto",
        alpha: float = 1e-4,
        average: str = "weighted",
        intercept: bool = False,
        passes: object = "auto",
        shuffle: bool = True,
        dtype: object = "float32",
        engine: str = "auto",
        verbose: bool = False,
        random_state: object = None,
    ) -> None:
        set_parameters(self, locals())

    def fit(
        self, X: object, y: object, nodes: object = None, sample_weight: object = None
    ) -> DiffusionClassifier:
        """Learn from scratch. X: (n, d) dense or CSR; y: (n,) labels; nodes: (n,)."""
        self._fit(X, y, sample_weight, nodes)
        return self

    def partial_fit(
        self,
        X: object,
        y: object,
        classes: object = None,
        nodes: object = None,
        sample_weight: object = None,
    ) -> DiffusionClassifier:
        """Learn from these rows once, each node in the order given."""
        self._partial_fit(X, y, sample_weight, nodes, classes)
        return self

    def predict(self, X: object, nodes: object = None) -> Array:
        """Labels by the mean vector, or by `nodes` (one name, or one per row)."""
        return self._predict(X, nodes)

    def decision_function(self, X: object, nodes: object = None) -> Array:
        """Scores: (n,) for two classes (positive: the second), else (n, classes)."""
        return self._decide(X, nodes)

    @if_logistic
    def predict_proba(self, X: object, nodes: object = None) -> Array:
        """Probabilities (n, classes), with the logistic loss only."""
        return self._probabilities(X, nodes)

    @if_logistic
    def predict_log_proba(self, X: object, nodes: object = None) -> Array:
        """Logarithms of `predict_proba`."""
        return logarithm(self._probabilities(X, nodes))
