"""What a network estimator does where its nodes cooperate, without settings."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from dokl import answers, calibration, intervals
from dokl.arrays import Array, is_sparse
from dokl.errors import BadInput, UnknownName
from dokl.estimators import pilots
from dokl.estimators.checked import whole
from dokl.estimators.choices import in_order, seed_of
from dokl.estimators.learner import Estimator, all_or_nothing
from dokl.estimators.worth import SharingWorth, sharing_worth
from dokl.fingerprints import agreed_fingerprint
from dokl.methods.cooperation import node, reach
from dokl.unlocked import one_thread

Method = TypeVar("Method", bound=Callable[..., Any])
LEARNERS = ("auto", "cooperation", "gradient")
# What only the gradient learner has: whoever sets one of these wants that one.
GRADIENTS = (
    "order", "kernel", "sigma", "features", "loss", "step", "alpha", "average", "intercept",
    "passes", "shuffle", "dtype", "engine",
)  # fmt: skip
# With more inputs, length scales take minutes to learn.
MOST_INPUTS = 300
BOUND = 10.0


class Cooperating(Estimator):
    """Takes over from the gradient learner wherever `learner_` is "cooperation"."""

    learner: str
    learner_: str
    network_: pilots.CooperatingNetwork
    calibration_: calibration.Calibration  # of classes: one for all nodes
    _level: float | None = None  # of intervals that are asked for while learning
    _ends: tuple[Array, Array]

    def _choose(self, X: Any) -> None:
        """Which learner it is to be, by the parameters and the first rows."""
        if self.learner not in LEARNERS:
            raise UnknownName("learner", self.learner, LEARNERS)
        self.__dict__.pop("network_", None)
        self.learner_ = self.learner
        if self.learner == "auto":
            shape: Any = getattr(X, "shape", ())
            many = is_sparse(X) or (len(shape) == 2 and shape[1] > MOST_INPUTS)
            self.learner_ = "gradient" if many or self._told() else "cooperation"
        elif self.learner == "cooperation" and self._told():
            raise BadInput(
                f"{', '.join(self._told())}: for learner='gradient' alone. Cooperation takes "
                "graph, n_nodes, rule, every, n_components and random_state"
            )

    def _told(self) -> list[str]:
        """Parameters of the gradient learner that are not as they come."""
        usual = inspect.signature(type(self).__init__).parameters
        return [n for n in GRADIENTS if not _same(getattr(self, n), usual[n].default)]

    @property
    def _cooperates(self) -> bool:
        return getattr(self, "learner_", "gradient") == "cooperation"

    # -- learning ----------------------------------------------------------------------------
    def _fit(self, X: Any, y: Any, sample_weight: Any, nodes: Any) -> None:
        with all_or_nothing(self):
            self._choose(X)
            super()._fit(X, y, sample_weight, nodes)

    def _partial_fit(
        self, X: Any, y: Any, sample_weight: Any, nodes: Any, classes: Any = None
    ) -> Array:
        with all_or_nothing(self):
            if not hasattr(self, "state_"):
                self._choose(X)
            return super()._partial_fit(X, y, sample_weight, nodes, classes)

    def _rules(self, reset: bool) -> dict[str, Any]:
        if not self._cooperates:
            return super()._rules(reset)
        return {"accept_sparse": "csr", "dtype": np.float64, "order": "C"}

    def _start(self, X: Any, Y: Array) -> None:
        if not self._cooperates:
            super()._start(X, Y)
            return
        self._first, self._seed, self.dtype_ = None, seed_of(self.random_state), np.float64
        K, weights = self._network(self._seed)
        self.exchange_ = self._exchange(weights)
        most = self.n_components
        most = pilots.COMPONENTS if isinstance(most, str) else whole("n_components", most)
        classes = len(self.classes_) if self._classifying else 0
        self.engine_ = "numba"
        self.network_ = pilots.CooperatingNetwork(
            self.exchange_, K, Y.shape[1], most, self._seed, classes, BOUND
        )
        if classes:
            self.calibration_ = calibration.start(classes)

    def _start_small(self, X: Any, Y: Array) -> None:
        if self._cooperates:
            self._start(X, Y)
        else:
            super()._start_small(X, Y)

    def _owners(self, n: int, numbers: Array | None) -> Array:
        if not self._cooperates or numbers is not None:
            return super()._owners(n, numbers)
        return (np.arange(n) + self.network_.seen) % self.network_.K

    def _learn_all(self, X: Any, Y: Array, weight: Array | None, owner: Array | None) -> None:
        """`fit`: one map from all rows, and one pass in the order given; it is exact. Members are
        weighed before, on rows that did not choose the map.
        """
        if not self._cooperates:
            super()._learn_all(X, Y, weight, owner)
            return
        owner = np.arange(X.shape[0]) % self.network_.K if owner is None else owner
        rows = _dense(X), np.asarray(Y, np.float64), _weights(weight, X.shape[0])
        network, told, fair = pilots.fitted(self.network_, *rows, in_order(self.network_.K, owner))
        self._take(network)
        self._calibrate(told, rows[1], np.where(fair, rows[2], 0.0))

    def _learn_once(self, X: Any, Y: Array, weight: Array | None, owner: Array) -> Array:
        if not self._cooperates:
            return super()._learn_once(X, Y, weight, owner)
        rows = _dense(X), np.asarray(Y, np.float64), _weights(weight, X.shape[0])
        network, said = pilots.learn(self.network_, *rows, in_order(self.network_.K, owner))
        self._take(network)
        if self._level is not None:
            first = intervals.start(outputs=self.network_.m)
            reach_ = np.sqrt(said.variance) * intervals.width_at(first, self._level, said.widths)
            self._ends = said.mean - reach_, said.mean + reach_
        return self._calibrate(said.mean, *rows[1:])

    def _calibrate(self, scores: Array, Y: Array, weight: Array) -> Array:
        """Let probabilities follow rows that were just predicted; returns the log odds of each
        before, as scores (n, m); numbers stay as they are.
        """
        if not self._classifying:
            return scores
        weight = np.where(weight >= node.LEAST_WEIGHT, weight, 0.0)
        given = calibration.both(scores), answers.class_numbers(Y), weight
        self.calibration_, level = calibration.followed(self.calibration_, *given)
        return _as_scores(level)

    def _prequential(
        self, X: Any, y: Any, sample_weight: Any, nodes: Any, coverage: float
    ) -> tuple[Array, Array, Array]:
        """Predictions of rows before they were learned, and the ends of their intervals: (n, m)."""
        with all_or_nothing(self):
            self._level = intervals.check_level(coverage)
            f = self._partial_fit(X, y, sample_weight, nodes)
            made: tuple[Array, Array] = self.__dict__.pop("_ends")
            del self._level
        there = ~np.isnan(f[:, 0])  # rows of weight 0 were not looked at
        ends = [np.full(f.shape, np.nan) for _ in made]
        for everywhere, end in zip(ends, made, strict=True):
            everywhere[there] = end
        return f, ends[0], ends[1]

    def _take(self, network: pilots.CooperatingNetwork) -> None:
        """Set what follows from what the network knows now."""
        if network.map is not self.network_.map or not hasattr(self, "_learner"):
            self._learner = pilots.learner_of(network)
        assert network.map is not None
        assert network.state is not None
        self.network_, self.state_, self.feature_map_ = network, network.state, network.map
        self.fingerprint_ = agreed_fingerprint(network.map.fingerprint, **self._agreed())

    def _ready(self) -> None:
        if not self._cooperates:
            super()._ready()
        elif not hasattr(self, "_learner") and self.network_.map is not None:
            self._learner = pilots.learner_of(self.network_)

    # -- predicting --------------------------------------------------------------------------
    def _scores(self, X: Any, nodes: Any = None) -> Array:
        if self._cooperates:
            check_is_fitted(self, "state_")
            X = _dense(self._rows(X))
        scores = super()._scores(X, nodes)
        if not self._cooperates:
            return scores
        scores = self._outward(scores, self._node_numbers(nodes, len(X)))
        return _as_scores(self._levels(scores)) if self._classifying else scores

    def _outward(self, scores: Array, numbers: Array | None) -> Array:
        """Scores (n, m) of these nodes, or of the network, in the targets' own units."""
        made = self.network_.map
        assert made is not None
        if numbers is not None:
            return made.outward(scores, numbers)
        return made.targets.outward(scores + self._offset())

    def _offset(self, k: int | None = None) -> Array:
        """What is added to what node k says, or for a row of any node, by how many each has seen:
        (m,).
        """
        offsets, count = self.feature_map_.offsets, self.state_.count
        whole: Array = count @ offsets / max(1, count.sum()) if k is None else offsets[k]
        return whole

    def _levels(self, scores: Array) -> Array:
        """Log probabilities but for a constant, (n, classes)."""
        return calibration.levels(self.calibration_, calibration.both(scores))

    @one_thread()
    def _interval(self, X: Any, coverage: float, nodes: Any) -> tuple[Array, Array]:
        """Ends (n, m) around what is predicted, which hold the target in this share of rows."""
        check_is_fitted(self, "state_")
        X = _dense(self._rows(X))
        numbers, state, made = self._node_numbers(nodes, len(X)), self.state_, self.feature_map_
        self._ready()
        Z, crew = made.transform(X), self._learner.problem.method.crew(self.exchange_)
        if numbers is None:
            mean, spread = self._together(crew, X, Z, coverage)
        else:
            mean, spread = np.empty((2, len(X), state.theta.shape[1]))
            for k in np.unique(numbers).tolist():
                own = np.flatnonzero(numbers == k)
                mean[own], variance = node.predicted(crew, state, k, Z[own])
                spread[own] = np.sqrt(variance) * self._width(k, coverage)
        return self._outward(mean - spread, numbers), self._outward(mean + spread, numbers)

    def _together(self, crew: Any, X: Array, Z: Array, coverage: float) -> tuple[Array, Array]:
        """What the network predicts, and half the width of its intervals, (n, m).

        A row is taken for that of any node, by how many each has seen, so squares add up: of the
        nodes' own half widths, and of how far what they say lies from what the network does, which
        nobody has tracked and counts as a standard deviation.
        """
        from scipy.special import ndtri

        state, far = self.state_, float(ndtri(0.5 + 0.5 * intervals.check_level(coverage)))
        mean = np.asarray(self._learner.predict(state, X), np.float64)
        squares = np.zeros_like(mean)
        for k in np.flatnonzero(state.count).tolist():
            said, variance = node.predicted(crew, state, k, Z)
            said += self._offset(k) - self._offset()
            own = variance * self._width(k, coverage) ** 2
            squares += state.count[k] / state.count.sum() * (own + (far * (said - mean)) ** 2)
        return mean, np.sqrt(squares)

    def _width(self, k: int, coverage: float) -> Array:
        """Half the width of intervals of node k in standard deviations: (m,)."""
        widths = reach.widths(self.state_.reach[k], self.state_.own_reach[k])
        return intervals.width_at(intervals.start(outputs=widths.shape[0]), coverage, widths)

    @property
    def message_bytes_(self) -> int:
        """Bytes of what a node sends to each neighbour when it is time."""
        check_is_fitted(self, "state_")
        self._ready()
        method = self._learner.problem.method
        return int(method.outgoing(self.state_.part(slice(0, 1))).nbytes)

    @property
    def cooperation_(self) -> SharingWorth:
        """What sharing is worth to each node so far, and who could teach it most."""
        check_is_fitted(self, "state_")
        if not self._cooperates:
            raise BadInput("what sharing is worth is known with learner='cooperation' alone")
        self._ready()
        crew = self._learner.problem.method.crew(self.exchange_)
        made = self.feature_map_
        about = list(self.nodes_), float(np.mean(made.targets.size**2)), made.offsets
        return sharing_worth(crew, self.state_, self.exchange_, *about)


def will_cooperate(model: Any) -> bool:
    """Whether a network cooperates, or is meant to."""
    told = getattr(model, "learner_", None) or model.learner
    return told == "cooperation" or (told == "auto" and not model._told())


def has_intervals(model: Any) -> bool:
    """Whether a network cooperates, or will; gradients know no variance."""
    if will_cooperate(model):
        return True
    raise AttributeError("intervals come with learner='cooperation': gradients know no variance")


if_intervals: Callable[[Method], Method] = available_if(has_intervals)


def _as_scores(level: Array) -> Array:
    """Levels (n, classes) as scores: (n, 1) log odds of two classes, else as they are."""
    return level[:, 1:] - level[:, :1] if level.shape[1] == 2 else level


def _same(value: Any, usual: Any) -> bool:
    return type(value) is type(usual) and bool(value == usual)


def _dense(X: Any) -> Array:
    if is_sparse(X):
        if X.shape[1] > MOST_INPUTS:
            raise BadInput(
                f"sparse rows of {X.shape[1]} inputs are for learner='gradient': length scales "
                "are learned from dense ones"
            )
        X = X.toarray()
    return np.ascontiguousarray(X, np.float64)


def _weights(weight: Array | None, n: int) -> Array:
    return np.ones(n) if weight is None else np.array(weight, np.float64)
