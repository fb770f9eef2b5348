"""A network whose nodes are learners that also learn from others, as a single estimator."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from dokl.base.arrays import Array, check_whole, is_sparse
from dokl.base.errors import BadInput, UnknownName
from dokl.base.fingerprints import agreed_fingerprint
from dokl.estimators.choices import seed_of, set_parameters
from dokl.estimators.inputs import (
    NumericTargets,
    all_or_nothing,
    everywhere,
    only,
    present_rows,
)
from dokl.estimators.labels import Labels, blanked, decision, log_probabilities
from dokl.estimators.late import NOBODY, LateLearning
from dokl.estimators.nodes import GraphNodes, in_order
from dokl.estimators.old_files import OldNetwork
from dokl.estimators.plain import Savable, check_components
from dokl.estimators.sharing_worth import SharingWorth, sharing_worth
from dokl.learning import calibration, classification, intervals
from dokl.learning.experts.bank import Prediction, fingerprint
from dokl.learning.experts.kinds import CLASS_PILOTS, FOR_CLASSES, FOR_NUMBERS, Settings
from dokl.learning.order import order_to_learn
from dokl.network import banks
from dokl.network.banks import LEAST_WEIGHT
from dokl.network.sharing import SharingRule, diameter

# With more inputs, length scales take minutes to learn.
MOST_INPUTS = 300
EXPERTS = "all", "lasting"


class NetworkEstimator(Savable, GraphNodes, LateLearning):
    """Parameters, checks and names around `network_`, which `dokl.network.banks` learns."""

    share: str
    every: int
    n_components: int
    experts: str
    verbose: bool
    random_state: Any
    network_: Any  # banks.BankNetwork, or an OldNetwork, which predicts and no more
    weights_: Any  # (K, K) in compressed rows; what is not 0 is a link
    classes_: Array
    _flat: bool

    _classifying = False

    # -- what subclasses provide -------------------------------------------------------------
    def _checked(self, X: Any, y: Any, reset: bool, weight: Any = None) -> tuple[Array, Array]:
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
    def _settings(self, seed: int) -> Settings:
        """Those of a single learner with as many components."""
        most = check_whole("n_components", self.n_components)
        if self.experts not in EXPERTS:
            raise UnknownName("experts", self.experts, EXPERTS)
        if self._classifying:
            about = {"classes": len(self.classes_), "pilots": CLASS_PILOTS}
            kinds = FOR_CLASSES[self.experts]()
            return Settings(kinds, most, np.inf, seed, **about)  # type: ignore[arg-type]
        return Settings(FOR_NUMBERS[self.experts](), most, seed=seed)

    def _start(self, X: Array, Y: Array) -> None:
        seed = seed_of(self.random_state)
        K, weights = self._network(seed)
        every = check_whole("every", self.every)
        self.weights_ = weights
        links = self._links()
        degree = np.bincount(links.nonzero()[0], minlength=K)
        delay = every * diameter(links) if degree.any() else 0
        sharing = SharingRule(self.share, delay, degree)
        self.network_ = banks.start(X.shape[1], Y.shape[1], self._settings(seed), sharing)

    def _links(self) -> Any:
        """Who is linked with whom, without oneself: (K, K) in compressed rows."""
        from scipy.sparse import csr_array

        found = csr_array(self.weights_, copy=True)
        found.setdiag(0.0)
        found.eliminate_zeros()
        return found

    def _check_size(self) -> None:
        """Refuse parameters and names that do not fit what was learned."""
        network = self._learning()
        if len(self.nodes_) != network.K:
            raise BadInput(f"there are {len(self.nodes_)} names for {network.K} nodes")
        bank = network.nodes[0].own if network.bank is None else network.bank
        check_components(self, bank.settings.most)

    def _fit(self, X: Any, y: Any, sample_weight: Any, nodes: Any) -> None:
        with all_or_nothing(self):
            X, y = self._valid(X, y, True, sample_weight)
            n, X, y, weight, kept = present_rows(X, y, sample_weight, first=True)
            self._meet(y)
            self._meet_nodes(nodes)
            Y = self._targets(y)
            self._start(X, Y)
            rows = _rows(X, Y, weight)
            labelled = np.flatnonzero(rows[2] >= LEAST_WEIGHT)
            _check_some(labelled)
            owner = only(self._node_numbers(nodes, n), kept)
            owner = np.arange(len(X)) % self.network_.K if owner is None else owner
            X, Y, weight, owner = (part[labelled] for part in (*rows, owner))
            seed = self.network_.nodes[0].own.settings.seed
            order = order_to_learn(X, Y, self._classifying, seed, owner)
            X, Y, weight, owner = (part[order] for part in (X, Y, weight, owner))
            self.network_, predicted = banks.fit(self.network_, X, Y, weight, owner)
            fair = np.isfinite(predicted.mean[:, 0])
            self._follow(*(part[fair] for part in (predicted.mean, Y, weight)))

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
            X, y = self._valid(X, y, fresh, sample_weight)
            n, X, y, weight, kept = present_rows(X, y, sample_weight, first=fresh)
            if fresh or classes is not None:
                self._meet_again(classes, fresh)
            Y = self._targets(y)
            if fresh:
                self._meet_nodes(nodes)
                self._start(X, Y)
            rows = _rows(X, Y, weight)
            if fresh:
                _check_some(np.flatnonzero(rows[2] >= LEAST_WEIGHT))
            network = self._learning()
            owner = only(self._node_numbers(nodes, n), kept)
            if owner is None:  # dealing goes on where it stopped, or node 0 would get single rows
                owner = (np.arange(len(X)) + int(network.seen.sum())) % network.K
            index = in_order(network.K, owner)
            self.network_, predicted = banks.learn(network, *rows, index)
            found = [self._follow(predicted.mean, *rows[1:])]
        found += [] if level is None else _ends(predicted, level)
        return [everywhere(part, kept, n) for part in found]

    def _learning(self) -> banks.BankNetwork:
        """The network, if it can learn."""
        if isinstance(self.network_, OldNetwork):
            raise BadInput(
                "this network was saved by an earlier version of dokl: it predicts as it did, and "
                "cannot learn on or give intervals. Train it again from its rows"
            )
        network: banks.BankNetwork = self.network_
        return network

    def _valid(self, X: Any, y: Any, reset: bool, weight: Any) -> tuple[Array, Array]:
        """Rows to learn from, and targets, checked."""
        self._check_inputs(X)  # before scikit-learn refuses sparse rows in its own words
        X, y = self._checked(X, y, reset, weight)
        self._check_inputs(X)  # lists have a shape now
        return X, y

    def _check_inputs(self, X: Any) -> None:
        """Refuse rows that this network cannot learn from, and name the class that can."""
        shape: tuple[int, ...] = getattr(X, "shape", ())
        wide = len(shape) == 2 and shape[1] > MOST_INPUTS
        if not wide and not is_sparse(X):
            return
        name, found = type(self).__name__, f"has {shape[1]:,} inputs" if wide else "is sparse"
        raise BadInput(
            f"X {found}, and {name} takes dense rows of up to {MOST_INPUTS} inputs: "
            f"{name.replace('Network', 'Diffusion')} takes sparse rows and any number of inputs "
            "(dokl train --method gradient)"
        )

    # -- predicting --------------------------------------------------------------------------
    def _inputs(self, X: Any, nodes: Any) -> tuple[Array, Array | None]:
        """Rows to predict, checked, and the node of each."""
        check_is_fitted(self, "network_")
        X = np.ascontiguousarray(self._read_rows(X))
        return X, self._node_numbers(nodes, len(X))

    def _owners_of(self, nodes: Array) -> dict[str, Any]:
        """The nodes under which rows were predicted; rows of none are dealt out."""
        none = nodes == NOBODY
        if none.all():
            return {}
        if none.any():
            raise BadInput(
                "some of these rows were predicted for a node, and some for none: learn them in "
                "two calls"
            )
        return {"nodes": self.nodes_[nodes]}

    def _scores(self, X: Any, nodes: Any, keys: Any = None) -> Array:
        rows, owner = self._inputs(X, nodes)
        if keys is not None:
            self._learning()
            self._wait(X, keys, owner)
        if isinstance(self.network_, OldNetwork):
            return self.network_.predict(rows, owner)
        network = banks.for_later_rows(self.network_)
        return banks.predict_mean(network, rows, _anywhere(owner, len(rows)))

    @property
    def fingerprint_(self) -> str:
        """Of the map and the labels."""
        check_is_fitted(self, "network_")
        network = self.network_
        if isinstance(network, OldNetwork):
            return network.fingerprint
        bank = network.nodes[0].own if network.bank is None else network.bank
        return agreed_fingerprint(fingerprint(bank), **self._agreed())

    @property
    def sent_bytes_(self) -> Array:
        """Bytes that each node has sent so far, over all its links: (K,)."""
        check_is_fitted(self, "network_")
        return self._learning().bytes

    @property
    def cooperation_(self) -> SharingWorth:
        """What sharing is worth to each node so far, compared with a single learner on its rows,
        and who is alike.
        """
        check_is_fitted(self, "network_")
        links = self._links().toarray() != 0
        return sharing_worth(self._learning(), list(self.nodes_), links)

    def plot_nodes(self, ax: Any = None) -> Any:
        """The map of nodes: those that lie together learn alike. Returns the axes."""
        return self.cooperation_.plot(ax)


def _check_some(labelled: Array) -> None:
    if not len(labelled):
        raise BadInput(
            f"all sample weights are below {LEAST_WEIGHT:g}: there is nothing to start from"
        )


def _anywhere(owner: Array | None, n: int) -> Array:
    """Nodes by number; -1 where none is given."""
    return np.full(n, -1) if owner is None else owner


def _ends(predicted: Prediction, coverage: float) -> list[Array]:
    """Lower and upper ends (n, m) of intervals."""
    first = intervals.start(outputs=predicted.mean.shape[1])
    far = intervals.width_at(first, coverage, predicted.widths) * np.sqrt(predicted.variance)
    return [predicted.mean - far, predicted.mean + far]


def _rows(X: Array, Y: Array, weight: Array | None) -> tuple[Array, Array, Array]:
    """Rows, targets and weights in float64, C order."""
    weight = np.ones(len(X)) if weight is None else np.array(weight, np.float64)
    return np.ascontiguousarray(X, np.float64), np.asarray(Y, np.float64), weight


class NetworkRegressor(NumericTargets, NetworkEstimator, RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Regression over a network: every node is a learner that also learns from others.

    Each row belongs to a node. A node has its own `AutoRegressor`, on its own rows; a bank over
    (row, node) that learns what all nodes share, with a learned place for every node; and the mean
    of both, by how sure each is, corrected by its errors on its own rows. It weights the three by
    their past errors on its own rows, so a node that differs is not much worse than alone, and
    nodes that are alike learn from all. `cooperation_` shows the gain of each node, `plot_nodes`
    draws their places.

    `share` sets what leaves a node. "sums": sums over at least 50 rows, and the sample of rows from
    which each new map is made; "rows": every row. Both are simulated, with the delay that the graph
    causes, and `sent_bytes_` counts the bytes.

    `fit(X, y, nodes=...)` names the node of each row (without, rows are dealt out evenly). Rows
    are learned in the order given, all nodes together, so that no node learns from later rows:
    sort them by time. (Only `fit` draws another order, for rows that are sorted by their target at
    their nodes, as `AutoRegressor.fit` does.) Each call begins a new step.

    `predict(X, nodes=...)` is each node's own prediction, `predict(X)` that for an unknown node.
    Only `prequential` uses the last errors to correct the next row. `nodes_` has the names.

    X is as in `AutoRegressor`: numbers, or a data frame with texts, times and missing values. All
    nodes know the types of the columns, and the means that replace missing numbers.

    For sparse rows or more than 300 inputs there is `DiffusionRegressor`.

    Parameters
    ----------
    graph : name of a topology ("random", "ring", "grid", "star", "complete", "small_world",
        "geometric", "exponential"), a networkx graph, or a doubly stochastic matrix (K, K).
        Random ones are drawn from random_state.
    n_nodes : number of nodes when graph is a name, unless the first rows come with texts as
        `nodes`: then these are the nodes, in alphabetical order.
    rule : weights of a graph; "alone" shares nothing, the others decide only who is linked.
    share : "sums" or "rows", what leaves a node.
    every : nodes exchange every n steps.
    n_components : centres of the widest experts' maps, as in `AutoRegressor`. Networks of very
        many nodes take fewer for each node's own bank, so that all of them fit into 4 GB.
    experts : "all", or "lasting" for those that forget nothing, if targets come long after their
        rows, as with a horizon.
    verbose : not used; for symmetry with other estimators.
    random_state : seed of graph and pilots.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(300, 2))
    >>> y = np.sin(X[:, 0]) + X[:, 1] ** 2
    >>> model = NetworkRegressor("ring", n_nodes=4, random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.9)
    True
    """

    def __init__(
        self,
        graph: Any = "random",
        *,
        n_nodes: int = 20,
        rule: str = "metropolis",
        share: str = "sums",
        every: int = 1,
        n_components: int = 1000,
        experts: str = "all",
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

    def predict(self, X: Any, nodes: Any = None, keys: Any = None) -> Array:
        """Predictions of `nodes` (one name, or one per row), or for an unknown node.

        keys: a name for each row, by which `learn` finds it when its target is known.
        """
        return self._shaped(self._scores(X, nodes, keys))

    def prequential(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        nodes: Any = None,
        return_interval: float | None = None,
    ) -> Any:
        """`partial_fit` that returns the prediction of each row from before learning it.

        Every row is a test row first. Rows of weight 0 are skipped, with NaN as result.
        return_interval: a coverage such as 0.9; then also the lower and the upper ends.
        """
        found = self._partial_fit(X, y, sample_weight, nodes, coverage=return_interval)
        shaped = tuple(map(self._shaped, found))
        return shaped[0] if len(shaped) == 1 else shaped

    def predict_interval(
        self, X: Any, coverage: float = 0.9, nodes: Any = None
    ) -> tuple[Array, Array]:
        """Lower and upper ends that hold the target in this share of each node's rows, as tracked
        online; of `nodes` (one name, or one per row), or for an unknown node.
        """
        rows, owner = self._inputs(X, nodes)
        level = intervals.check_level(coverage)
        network = banks.for_later_rows(self._learning())
        predicted = banks.predict(network, rows, _anywhere(owner, len(rows)))
        lower, upper = _ends(predicted, level)
        return self._shaped(lower), self._shaped(upper)


class NetworkClassifier(Labels, NetworkEstimator, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Classification over a network, with calibrated probabilities; see `NetworkRegressor`.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(400, 2))
    >>> y = X[:, 0] * X[:, 1] > 0
    >>> model = NetworkClassifier("complete", n_nodes=3, random_state=0).fit(X, y)
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
        share: str = "sums",
        every: int = 1,
        n_components: int = 1000,
        experts: str = "all",
        verbose: bool = False,
        random_state: Any = None,
    ) -> None:
        set_parameters(self, locals())

    def _start(self, X: Array, Y: Array) -> None:
        super()._start(X, Y)
        self.calibration_ = calibration.start(len(self.classes_))

    def _agreed(self) -> dict[str, Any]:
        return {"classes": self.classes_}

    def _follow(self, scores: Array, Y: Array, weight: Array) -> Array:
        """Calibrate by rows that were just predicted; the levels (n, classes) before each."""
        weight = np.where(weight >= LEAST_WEIGHT, weight, 0.0)
        given = calibration.both(scores), classification.class_numbers(Y), weight
        self.calibration_, level = calibration.follow(self.calibration_, *given)
        return level

    def _levels(self, X: Any, nodes: Any, keys: Any = None) -> Array:
        """Log probabilities but for a constant, (n, classes)."""
        scores = calibration.both(self._scores(X, nodes, keys))
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
        """`partial_fit` that returns the prediction of each row from before learning it.

        A row of weight 0 is not looked at: NaN (float labels) or None stands in its place.
        """
        (level,) = self._partial_fit(X, y, sample_weight, nodes, classes)
        absent = np.isnan(level[:, 0])
        return blanked(self.classes_[np.where(absent, 0, level.argmax(axis=1))], absent)

    def predict(self, X: Any, nodes: Any = None, keys: Any = None) -> Array:
        """Labels by the whole network, or by `nodes` (one name, or one per row).

        keys: a name for each row, by which `learn` finds it when its target is known.
        """
        level = self._levels(X, nodes, keys)
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
