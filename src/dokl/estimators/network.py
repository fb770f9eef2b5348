"""A network of nodes that cooperate without settings, as a single estimator."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from dokl import answers, calibration, intervals
from dokl.arrays import Array, is_sparse
from dokl.errors import BadInput
from dokl.estimators import cooperating
from dokl.estimators.calibrated import decision, log_probabilities
from dokl.estimators.checked import everywhere, only, present_rows, whole
from dokl.estimators.choices import seed_of, set_parameters
from dokl.estimators.labels import Labels, NumericTargets, blanked
from dokl.estimators.learner import all_or_nothing
from dokl.estimators.nodes import GraphNodes
from dokl.exchange import Exchange
from dokl.fingerprints import agreed_fingerprint


class NetworkEstimator(GraphNodes):
    """Parameters, checks and names around `network_`, which `dokl.estimators.cooperating` learns.

    Nothing here, or in what uses these estimators, depends on how it is learned.
    """

    every: int
    n_components: int
    verbose: bool
    random_state: Any
    network_: cooperating.CooperatingNetwork
    n_features_in_: int
    classes_: Array
    _flat: bool

    _classifying = False

    # -- what subclasses provide -------------------------------------------------------------
    def _checked(self, X: Any, y: Any, reset: bool) -> tuple[Array, Array]:
        raise NotImplementedError

    def _targets(self, y: Array) -> Array:
        raise NotImplementedError

    def _meet(self, y: Array) -> None:
        """Learn from the first y what y can be: its classes, say."""

    def _meet_again(self, classes: Any, fresh: bool) -> None:
        """What `partial_fit` is given beforehand; nothing in a regression."""

    def _agreed(self) -> dict[str, Any]:
        """What nodes must agree on besides the map."""
        return {}

    def _follow(self, scores: Array, Y: Array, weight: Array) -> Array:
        """Calibrate by rows that were just predicted, (n, m); numbers stay as they are."""
        return scores

    # -- learning ----------------------------------------------------------------------------
    def _start(self, Y: Array) -> None:
        seed = seed_of(self.random_state)
        K, weights = self._network(seed)
        exchange = Exchange(weights, "atc", self.every)
        most = whole("n_components", self.n_components)
        classes = len(self.classes_) if self._classifying else 0
        self.network_ = cooperating.start(exchange, K, Y.shape[1], most, seed, classes)

    def _fit(self, X: Any, y: Any, sample_weight: Any, nodes: Any) -> None:
        with all_or_nothing(self):
            X, y = self._valid(X, y, reset=True)
            n, X, y, weight, kept = present_rows(X, y, sample_weight, first=True)
            self._meet(y)
            self._meet_nodes(nodes)
            Y = self._targets(y)
            self._start(Y)
            rows = _rows(X, Y, weight)
            owner = only(self._node_numbers(nodes, n), kept)
            self.network_, predicted, fair = cooperating.fit(self.network_, *rows, owner)
            self._follow(predicted, rows[1], np.where(fair, rows[2], 0.0))

    def _partial_fit(
        self, X: Any, y: Any, sample_weight: Any, nodes: Any, classes: Any = None,
        coverage: float | None = None,
    ) -> list[Array]:  # fmt: skip
        """Learn once; the scores (n, m) that each row had just before, NaN for rows of weight 0.

        coverage: the ends of the intervals follow, (n, m) each.
        """
        with all_or_nothing(self):
            level = None if coverage is None else intervals.check_level(coverage)
            fresh = not hasattr(self, "network_")
            X, y = self._valid(X, y, reset=fresh)
            n, X, y, weight, kept = present_rows(X, y, sample_weight, first=fresh)
            if fresh or classes is not None:
                self._meet_again(classes, fresh)
            Y = self._targets(y)
            if fresh:
                self._meet_nodes(nodes)
                self._start(Y)
            rows = _rows(X, Y, weight)
            owner = only(self._node_numbers(nodes, n), kept)
            self.network_, predicted = cooperating.learn(self.network_, *rows, owner)
            found = [self._follow(predicted.mean, *rows[1:])]
        found += [] if level is None else cooperating.ends(predicted, level)
        return [everywhere(part, kept, n) for part in found]

    def _valid(self, X: Any, y: Any, reset: bool) -> tuple[Array, Array]:
        """Rows to learn from, and targets, checked."""
        self._check_inputs(X)  # before scikit-learn refuses sparse rows in its own words
        X, y = self._checked(X, y, reset)
        self._check_inputs(X)  # lists have a shape now
        return X, y

    def _check_inputs(self, X: Any) -> None:
        """Refuse rows that this network cannot learn from, and name the class that can."""
        shape: tuple[int, ...] = getattr(X, "shape", ())
        most = cooperating.MOST_INPUTS
        wide = len(shape) == 2 and shape[1] > most
        if not wide and not is_sparse(X):
            return
        name, found = type(self).__name__, f"has {shape[1]:,} inputs" if wide else "is sparse"
        raise BadInput(
            f"X {found}, and {name} takes dense rows of up to {most} inputs: "
            f"{name.replace('Network', 'Diffusion')} takes sparse rows and any number of inputs "
            "(dokl train --method gradient)"
        )

    # -- predicting --------------------------------------------------------------------------
    def _inputs(self, X: Any, nodes: Any) -> tuple[Array, Array | None]:
        """Rows to predict, checked, and the node of each."""
        check_is_fitted(self, "network_")
        X = np.ascontiguousarray(validate_data(self, X, reset=False, dtype=np.float64))
        return X, self._node_numbers(nodes, len(X))

    def _scores(self, X: Any, nodes: Any) -> Array:
        rows, owner = self._inputs(X, nodes)
        return cooperating.predict(self.network_, rows, owner)

    @property
    def fingerprint_(self) -> str:
        """Of the map and the labels."""
        check_is_fitted(self, "network_")
        return agreed_fingerprint(cooperating.fingerprint(self.network_), **self._agreed())

    @property
    def message_bytes_(self) -> int:
        """Bytes of what a node sends to each neighbour when it is time."""
        check_is_fitted(self, "network_")
        return cooperating.message_bytes(self.network_)

    @property
    def cooperation_(self) -> cooperating.SharingWorth:
        """What sharing is worth to each node so far, and who could teach it most."""
        check_is_fitted(self, "network_")
        return cooperating.sharing(self.network_, list(self.nodes_))

    def save(self, path: str | PathLike[str]) -> Path:
        """Write the fitted estimator to a data file; `dokl.load` reads it back."""
        from dokl.estimators.saving import save  # which knows all the estimators, this one too

        return save(self, path)


def _rows(X: Array, Y: Array, weight: Array | None) -> tuple[Array, Array, Array]:
    """Rows, targets and weights in float64, C order."""
    weight = np.ones(len(X)) if weight is None else np.array(weight, np.float64)
    return np.ascontiguousarray(X, np.float64), np.asarray(Y, np.float64), weight


class NetworkRegressor(NumericTargets, NetworkEstimator, RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Regression over a network: each row belongs to a node, neighbours exchange what they learn.

    Nodes cooperate without settings: length scales and what nodes' targets differ by (an offset
    for each) are learned from the network's first rows, what travels are sums of rows, and each
    node mixes experts of its own rows, of the network's, and of the network's with its own
    corrections by what each would have gained on the node's own rows. `cooperation_` says what
    that is worth, and from whom.

    `fit(X, y, nodes=...)` names the node of each row (without, rows are dealt out evenly). Rows
    are taken in the order given, all nodes together, so that nobody hears what is yet to come:
    sort them by time. Rows that are grouped by node (files of stations, one after the other) teach
    one node after the other. Each call begins a new step.

    `predict(X)` uses what the network has learned together, where nodes weigh as many rows as they
    have seen, `predict(X, nodes=...)` each node's own mixture. The names are those of the graph's
    nodes, in `nodes_`.

    For sparse rows, more than 300 inputs or thousands of nodes there is `DiffusionRegressor`.

    Parameters
    ----------
    graph : name of a topology ("random", "ring", "grid", "star", "complete", "small_world",
        "geometric", "exponential"), a networkx graph, or a doubly stochastic matrix (K, K).
        Random ones are drawn from random_state.
    n_nodes : number of nodes when graph is a name, unless the first rows come with texts as
        `nodes`: then these are the nodes, in alphabetical order.
    rule : weights of a graph: "metropolis", "laplacian", "uniform", or "alone" (no exchange).
    every : exchange every n steps.
    n_components : features of the map that all nodes share.
    verbose : unused so far; kept for symmetry with other estimators.
    random_state : seed of graph, features and pilots.

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
        every: int = 1,
        n_components: int = 300,
        verbose: bool = False,
        random_state: Any = None,
    ) -> None:
        set_parameters(self, locals())

    @property
    def _outputs(self) -> int:
        return int(self.network_.m)

    def fit(self, X: Any, y: Any, nodes: Any = None, sample_weight: Any = None) -> NetworkRegressor:
        """Learn from scratch, in the order given. X: (n, d); y: (n,) or (n, m); nodes: (n,)."""
        self._fit(X, y, sample_weight, nodes)
        return self

    def partial_fit(
        self, X: Any, y: Any, nodes: Any = None, sample_weight: Any = None
    ) -> NetworkRegressor:
        """Learn from these rows once, in the order given."""
        self._partial_fit(X, y, sample_weight, nodes)
        return self

    def predict(self, X: Any, nodes: Any = None) -> Array:
        """Predictions of the whole network, or of `nodes` (one name, or one per row)."""
        return self._shaped(self._scores(X, nodes))

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
        not looked at, and NaN stands in its place. return_interval: a coverage such as 0.9; then
        the lower and the upper ends follow, too.
        """
        found = self._partial_fit(X, y, sample_weight, nodes, coverage=return_interval)
        shaped = tuple(map(self._shaped, found))
        return shaped[0] if len(shaped) == 1 else shaped

    def predict_interval(
        self, X: Any, coverage: float = 0.9, nodes: Any = None
    ) -> tuple[Array, Array]:
        """Lower and upper ends that hold the target in this share of each node's rows, as tracked
        online; of `nodes` (one name, or one per row), or around what the whole network predicts,
        wide enough for rows of all its nodes: where these differ, far wider than their own.
        """
        rows, owner = self._inputs(X, nodes)
        lower, upper = cooperating.interval(self.network_, rows, coverage, owner)
        return self._shaped(lower), self._shaped(upper)


class NetworkClassifier(Labels, NetworkEstimator, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Classification over a network, with calibrated probabilities; see `NetworkRegressor`.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(800, 2))
    >>> y = X[:, 0] * X[:, 1] > 0
    >>> model = NetworkClassifier("complete", n_nodes=5, random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.95)
    True
    """

    calibration_: calibration.Calibration  # one for all nodes

    def __init__(
        self,
        graph: Any = "random",
        *,
        n_nodes: int = 20,
        rule: str = "metropolis",
        every: int = 1,
        n_components: int = 300,
        verbose: bool = False,
        random_state: Any = None,
    ) -> None:
        set_parameters(self, locals())

    def _start(self, Y: Array) -> None:
        super()._start(Y)
        self.calibration_ = calibration.start(len(self.classes_))

    def _agreed(self) -> dict[str, Any]:
        return {"classes": self.classes_}

    def _follow(self, scores: Array, Y: Array, weight: Array) -> Array:
        """Calibrate by rows that were just predicted; the levels (n, classes) before each."""
        weight = np.where(weight >= cooperating.LEAST_WEIGHT, weight, 0.0)
        given = calibration.both(scores), answers.class_numbers(Y), weight
        self.calibration_, level = calibration.followed(self.calibration_, *given)
        return level

    def _levels(self, X: Any, nodes: Any) -> Array:
        """Log probabilities but for a constant, (n, classes)."""
        scores = calibration.both(self._scores(X, nodes))
        return calibration.levels(self.calibration_, scores)

    def fit(
        self, X: Any, y: Any, nodes: Any = None, sample_weight: Any = None
    ) -> NetworkClassifier:
        """Learn from scratch, in the order given. X: (n, d); y: (n,) labels; nodes: (n,)."""
        self._fit(X, y, sample_weight, nodes)
        return self

    def partial_fit(
        self, X: Any, y: Any, classes: Any = None, nodes: Any = None, sample_weight: Any = None
    ) -> NetworkClassifier:
        """Learn from these rows once, in the order given; the first call names all classes."""
        self._partial_fit(X, y, sample_weight, nodes, classes)
        return self

    def prequential(
        self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None, nodes: Any = None
    ) -> Array:
        """`partial_fit` that returns what it predicted for each row just before learning it.

        A row of weight 0 is not looked at: NaN (float labels) or None stands in its place.
        """
        (level,) = self._partial_fit(X, y, sample_weight, nodes, classes)
        absent = np.isnan(level[:, 0])
        return blanked(self.classes_[np.where(absent, 0, level.argmax(axis=1))], absent)

    def predict(self, X: Any, nodes: Any = None) -> Array:
        """Labels by the whole network, or by `nodes` (one name, or one per row)."""
        level = self._levels(X, nodes)
        return np.asarray(self.classes_[level.argmax(axis=1)])

    def decision_function(self, X: Any, nodes: Any = None) -> Array:
        """Log odds (n,) for two classes (positive: the second), else log probabilities but for a
        constant (n, classes).
        """
        return decision(self._levels(X, nodes))

    def predict_proba(self, X: Any, nodes: Any = None) -> Array:
        """Probabilities (n, classes), calibrated by every row so far before it was learned."""
        return calibration.softmax(self._levels(X, nodes))

    def predict_log_proba(self, X: Any, nodes: Any = None) -> Array:
        """Logarithms of `predict_proba`."""
        return log_probabilities(self._levels(X, nodes))
