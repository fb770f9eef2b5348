"""The estimators that learn by gradients: their habits, and what y means to them.

For one node and for a network alike: regression of one output or several, or labels.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import DTypeLike
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from dokl.base.arrays import Array, Block, check_whole, is_sparse
from dokl.base.errors import BadInput, Diverged
from dokl.base.fingerprints import agreed_fingerprint
from dokl.base.progress import progress
from dokl.base.random_numbers import generator
from dokl.estimators.choices import kernel_of, loss_of, passes_of, seed_of, step_of, variant_of
from dokl.estimators.guesses import (
    APART,
    FirstRows,
    agreed_unit,
    changes,
    near_unit,
    none_yet,
    settled,
    unit_of,
    wanted_by,
)
from dokl.estimators.inputs import (
    NumericTargets,
    all_or_nothing,
    check_numbers,
    everywhere,
    float_type,
    not_negative,
    only,
    plain_numbers,
    present_rows,
    valid_numbers,
)
from dokl.estimators.labels import Labels, blanked, checked_labels
from dokl.estimators.nodes import dealt
from dokl.estimators.plain import Savable
from dokl.learning import classification
from dokl.learning.classification import class_numbers
from dokl.learning.experts.scaling import Scaling
from dokl.learning.features import sample
from dokl.network.exchange import Exchange
from dokl.simulation.diffusion import Problem
from dokl.simulation.learner import Learner
from dokl.simulation.methods import gradient

# From this many inputs on, those that matter may drown among the others.
MANY_INPUTS = 100


class NothingLearned(UserWarning):
    """A constant would have predicted as well."""


class Estimator(Savable, BaseEstimator):  # type: ignore[misc]
    """Base of the estimators; subclasses say what targets are and which network there is."""

    # Parameters: the constructors, whose signatures scikit-learn reads, set them.
    kernel: Any
    sigma: Any
    n_components: int
    features: str
    loss: Any
    step: Any
    alpha: float
    average: str
    intercept: Any
    passes: Any
    shuffle: bool
    dtype: DTypeLike
    engine: str
    verbose: bool
    random_state: Any
    feature_map_: Any

    _classifying = False
    _first: FirstRows | None = None  # until the width is settled
    _unit: Scaling | None = None  # of targets, where the loss needs one

    # -- what subclasses provide -------------------------------------------------------------
    def _checked(self, X: object, y: object, reset: bool) -> tuple[Any, Array]:
        """X as rows and y as a vector or matrix, both valid; `reset` on a first call."""
        raise NotImplementedError

    def _meet(self, y: Array) -> None:
        """Learn from the first y what y can be: its classes, say."""

    def _meet_nodes(self, nodes: object) -> None:
        """Learn the names of nodes, where there are any."""

    def _targets(self, y: Array) -> Array:
        """What the outputs are to be: (n, m)."""
        raise NotImplementedError

    def _network(self, seed: int) -> tuple[int, Any]:
        """Number of nodes and combination weights (None: alone)."""
        return 1, None

    def _exchange(self, weights: object) -> Exchange:
        return Exchange(weights, "atc", 1, self._constant(), self.average)

    def _node_numbers(self, nodes: object, n: int) -> Array | None:
        """Node number of each of n rows; None where rows are to be dealt out."""
        return None

    def _agreed(self) -> dict[str, Any]:
        """What nodes must agree on besides the features."""
        return {} if self._unit is None else {"targets": agreed_unit(self._unit)}

    # -- starting ----------------------------------------------------------------------------
    def _start(self, X: Any, Y: Array) -> None:
        """Fix kernel, features, loss and schedule from the parameters and the first data."""
        self._first, m = None, Y.shape[1]
        self._seed = seed_of(self.random_state)
        self.dtype_ = float_type(self.dtype)
        kernel = kernel_of(self.kernel, self.sigma, X)
        self.sigma_ = float(getattr(kernel, "sigma", np.nan))
        D = check_whole("n_components", self.n_components)
        variant = variant_of(self.features, kernel, D)
        self.feature_map_ = sample(kernel, X.shape[1], D, variant, self._seed)
        K, weights = self._network(self._seed)
        self.exchange_ = self._exchange(weights)
        self.loss_ = loss_of(self.loss, self._classifying)
        scaled = not self._classifying and wanted_by(self.loss_)
        self._unit = unit_of(Y) if scaled else None
        longest = self.feature_map_.sup_norm2 + self.exchange_.intercept**2
        alpha = not_negative("alpha", self.alpha)
        self.schedule_ = step_of(self.step, self.loss_, alpha, longest, self._classifying)
        self._problem = Problem(self.feature_map_, gradient(self.loss_, self.schedule_, alpha))
        self.fingerprint_ = agreed_fingerprint(self.feature_map_.fingerprint, **self._agreed())
        self._learner = self._ready_made(self.engine, K, m)
        self.engine_, self.state_ = self._learner.engine, self._learner.start()

    def _ready_made(self, engine: str, K: int, m: int) -> Learner:
        """The learner behind this face."""
        about: dict[str, Any] = {"engine": engine, "dtype": self.dtype_, "K": K, "m": m}
        return Learner(self._problem, self.exchange_, fingerprint=self.fingerprint_, **about)

    def _constant(self) -> float:
        """Size of the constant feature: 1 for True; a number makes the intercept learn faster."""
        c = self.intercept
        return float(c) if isinstance(c, bool | np.bool_) else not_negative("intercept", c)

    def __getstate__(self) -> Any:
        """Pickle what was learned; the learner, with its engine's plan, is made when needed."""
        state = dict(super().__getstate__())
        state.pop("_learner", None)
        return state

    def _ready(self) -> None:
        """Refuse a model that has learned nothing; make the learner that a pickle left out."""
        if not hasattr(self, "_learner"):
            check_is_fitted(self, "state_")
            self._learner = self._ready_made(self.engine_, *self.state_.theta.shape[:2])

    # -- learning ----------------------------------------------------------------------------
    def _fit(self, X: object, y: Any, sample_weight: object, nodes: object) -> None:
        with all_or_nothing(self):
            X, y = self._checked(X, y, reset=True)
            n, X, y, weight, kept = present_rows(X, y, sample_weight, first=True)
            self._meet(y)
            self._meet_nodes(nodes)
            Y = self._targets(y)
            self._start(X, Y)
            self._learn_all(X, Y, weight, only(self._node_numbers(nodes, n), kept))

    def _partial_fit(
        self, X: Any, y: Any, sample_weight: object, nodes: Any, classes: object = None
    ) -> Array:
        """Learn once; returns the scores (n, m) that each row had just before it was learned."""
        with all_or_nothing(self):
            fresh = not hasattr(self, "state_")
            X, y = self._checked(X, y, reset=fresh)
            n, X, y, weight, kept = present_rows(X, y, sample_weight, first=fresh)
            if fresh or classes is not None:
                self._meet_again(classes, fresh)
            Y = self._targets(y)
            if fresh:
                self._meet_nodes(nodes)
                self._start_small(X, Y)
            self._ready()
            owner = self._owners(X.shape[0], only(self._node_numbers(nodes, n), kept))
            if self._first is not None:
                self._look_again(self._first, X, Y, weight, owner)
            scores = self._learn_once(X, Y, weight, owner)
        return everywhere(scores, kept, n)

    def _start_small(self, X: Any, Y: Array) -> None:
        """Start with what may be the first rows of many: few, or all the same."""
        guessed = isinstance(self.kernel, str) and isinstance(self.sigma, str)
        if settled(X):
            self._start(X, Y)
            return
        self._start(X[changes(X)] if guessed else X, Y)
        if guessed or self._unit is not None:
            self._first = none_yet(self.sigma if guessed else None, X, Y)

    def _look_again(
        self, first: FirstRows, X: object, Y: Array, weight: Array | None, owner: Array
    ) -> None:
        """Guess the width, and the targets' unit, again with more rows; where they were far off,
        start again from the first.
        """
        rows = first.and_then(X, Y, weight, owner)
        if rows.looks(first):
            sigma, unit = rows.guess(), None if self._unit is None else unit_of(rows.Y)
            wide = sigma is not None and not 1 / APART <= sigma / self.sigma_ <= APART
            if wide or not (unit is None or self._unit is None or near_unit(unit, self._unit)):
                self._begin_again(sigma if wide else None, unit)
                self._learn_once(first.X, first.Y, first.weight, first.owner)
        self._first = rows.kept()

    def _begin_again(self, sigma: float | None, unit: Scaling | None) -> None:
        """Forget all and start with another width, or unit; parameters changed meanwhile wait for
        `fit`.
        """
        old, (K, m, _), self._unit = self.feature_map_, self.state_.theta.shape, unit
        if sigma is not None:
            named: Any = old.kernel  # one of ours, so a record with a width
            kernel, drawn = replace(named, sigma=sigma), (old.d, old.D, old.variant, old.seed)
            self.sigma_, self.feature_map_ = sigma, sample(kernel, *drawn)
            self._problem = replace(self._problem, features=self.feature_map_)
        self.fingerprint_ = agreed_fingerprint(self.feature_map_.fingerprint, **self._agreed())
        self._learner = self._ready_made(self.engine_, K, m)
        self.state_ = self._learner.start()

    def _meet_again(self, classes: object, fresh: bool) -> None:
        """What `partial_fit` is given about y beforehand; nothing in a regression."""

    def _rows(self, X: object) -> Any:
        """Rows to predict, checked."""
        plain = self._plain_rows(X)
        return valid_numbers(self, X, reset=False, **self._rules(False)) if plain is None else plain

    def _plain_rows(self, X: Any) -> Any:
        """X where it beyond doubt suits a model that has started, else None.

        validate_data would say the same, but takes 100 us (sparse: 450), most of the time of a
        single row.
        """
        sparse = is_sparse(X) and X.format == "csr"
        known = (sparse or type(X) is np.ndarray) and X.ndim == 2 and X.dtype.kind == "f"
        if not known or hasattr(self, "feature_names_in_") or X.shape[1] != self.n_features_in_:
            return None
        if X.shape[0] == 0:
            return None
        if not sparse:
            return plain_numbers(X, self.dtype_)
        right = X.dtype == self.dtype_ and np.isfinite(X.data).all()
        return X if right else None

    def _rules(self, reset: bool) -> dict[str, Any]:
        kind = float_type(self.dtype) if reset else self.dtype_
        return {"accept_sparse": "csr", "dtype": kind, "order": "C"}

    def _learn_all(self, X: Any, Y: Array, weight: Array | None, owner: Array | None) -> None:
        """`fit`: several shuffled passes; a row stays with its node in all of them."""
        n, K = X.shape[0], len(self.state_.theta)
        rng = generator(self._seed, "shuffle") if self.shuffle else None
        if owner is None:
            owner = (np.arange(n) if rng is None else rng.permutation(n)) % K
        passes = passes_of(self.passes, int(np.bincount(owner, minlength=K).max()))
        with progress(passes * n, "learning", bool(self.verbose)) as bar:
            for i in range(passes):
                index = dealt(K, owner, rng)
                f = self._feed(X, Y, weight, index)
                if not i:
                    self._compare(Y[index[index >= 0]], f[index >= 0], X.shape[1])
                bar.advance(n)

    def _compare(self, Y: Array, f: Array, d: int) -> None:
        """Warn where predictions f of targets Y: (n, m), before they were learned, are no better
        than a constant, and many inputs may be the reason.
        """
        half = len(Y) // 2  # while it begins anything errs
        if d < MANY_INPUTS or half < MANY_INPUTS // 2:
            return
        Y, f = Y[half:], f[half:]
        if self._classifying:
            labels, predicted = class_numbers(Y), class_numbers(f)
            useful = np.mean(predicted == labels) > np.bincount(labels).max() / len(labels)
        else:
            useful = np.mean((Y - f) ** 2) < np.mean((Y - Y.mean(axis=0)) ** 2)
        if not useful:
            other = "AutoClassifier" if self._classifying else "AutoRegressor"
            warnings.warn(
                "nothing was learned: rows that it had not seen were predicted no better than by a "
                f"constant. All {d:,} inputs count equally here: leave out irrelevant ones, "
                f"try a larger sigma than {self.sigma_:.3g}, or take dokl.{other}, which learns "
                "which inputs matter",
                NothingLearned,
                stacklevel=5,
            )

    def _owners(self, n: int, numbers: Array | None) -> Array:
        """The node of each of n rows: as given, or dealt out."""
        if numbers is not None:
            return numbers
        K = len(self.state_.theta)
        if K == 1:
            return np.zeros(n, np.int64)
        # Dealing goes on where it stopped, or node 0 would get single rows all.
        return (np.arange(n) + int(self.state_.count.sum())) % K

    def _learn_once(self, X: Any, Y: Array, weight: Array | None, owner: Array) -> Array:
        """`partial_fit`: one pass, in the order given; returns the a-priori scores (n, m)."""
        n, K = X.shape[0], len(self.state_.theta)
        index = dealt(K, owner)
        f = self._feed(X, Y, weight, index)
        if K == 1:
            return f[:, 0]
        scores = np.empty((n, f.shape[2]), f.dtype)
        scores[index[index >= 0]] = f[index >= 0]
        return scores

    def _feed(self, X: object, Y: Array, weight: Array | None, index: Array) -> Array:
        """Advance the state; returns the a-priori predictions (steps, K, m)."""
        unit = self._unit
        Y = Y if unit is None else unit.inward(Y)
        try:
            self.state_, f = self._learner.advance(self.state_, Block(X, Y, weight, index))
        except Diverged as error:
            largest = 1.0 if weight is None else float(weight.max())
            if largest <= 1:
                raise
            advice = f"Sample weights multiply the step: divide them by the largest, {largest:g}."
            raise Diverged(f"{error} {advice}") from None
        return f if unit is None else unit.outward(f)

    # -- predicting --------------------------------------------------------------------------
    def _scores(self, X: Any, nodes: Any = None) -> Array:
        """Scores (n, m): of one node, of each row's node, or of the network's mean vector."""
        self._ready()
        X = self._rows(X)
        numbers = self._node_numbers(nodes, X.shape[0])
        if numbers is None:
            out = np.asarray(self._learner.predict(self.state_, X), np.float64)
            return out if self._unit is None else self._unit.outward(out)
        out = np.empty((X.shape[0], self._learner.m))
        for k in np.unique(numbers):
            mine = np.flatnonzero(numbers == k)
            out[mine] = self._learner.predict(self.state_, X[mine], k)
        return out if self._unit is None else self._unit.outward(out)

    @property
    def coef_(self) -> Array:
        """The delivered vectors: (m, D) of one node, (K, m, D) of a network."""
        check_is_fitted(self, "state_")
        theta = self.state_.delivered()[0]
        if self._unit is not None:  # predictions are coef_ z, and the targets' centre
            theta = theta * self._unit.size[:, None]
        return theta[0] if len(theta) == 1 else theta

    def __sklearn_tags__(self) -> Any:
        """Sparse input is welcome."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


# -- regression and classification ----------------------------------------------------------------
Method = TypeVar("Method", bound=Callable[..., Any])


class Regression(NumericTargets, RegressorMixin, Estimator):  # type: ignore[misc]
    """One output or several, in the precision of the model or of the targets' unit."""

    @property
    def _outputs(self) -> int:
        return int(self.state_.theta.shape[1])

    def _checked(self, X: object, y: Any, reset: bool, weight: object = None) -> tuple[Any, Array]:
        plain = None if reset else self._plain_rows(X)
        if plain is not None and type(y) is np.ndarray and y.dtype.kind == "f" and y.ndim == 1:
            Y = plain_numbers(y, self.dtype_ if self._unit is None else np.float64)
            if Y is not None and len(Y) == plain.shape[0] and self._outputs == 1:
                return plain, Y.reshape(-1, 1)
        check_numbers(self, y)
        rules = self._rules(reset)
        X, y = valid_numbers(self, X, y=y, reset=reset, multi_output=True, y_numeric=True, **rules)
        scaled = wanted_by(loss_of(self.loss, False)) if reset else self._unit is not None
        Y = plain_numbers(y.reshape(len(y), -1), np.float64 if scaled else rules["dtype"])
        if Y is None:
            raise BadInput("y has values too large for float32: scale it, or use dtype='float64'")
        if reset:
            self._flat = y.ndim == 1
        elif Y.shape[1] != self._outputs:
            outputs = Y.shape[1]
            raise BadInput(f"y has {outputs} outputs, the model was started with {self._outputs}")
        return X, Y

    def _targets(self, y: Array) -> Array:
        return y

    def _predict(self, X: object, nodes: object = None) -> Array:
        return self._shaped(self._scores(X, nodes))

    def prequential(
        self, X: object, y: object, sample_weight: object = None, nodes: object = None
    ) -> Array:
        """`partial_fit` that returns the prediction of each row from before learning it.

        The honest error of an online learner: every row is a test row first. A row of weight 0 is
        not looked at, and NaN stands in its place.
        """
        return self._shaped(self._partial_fit(X, y, sample_weight, nodes))


class AvailableOrTold:
    """A method that is there where `check(self)` raises nothing; else its error gives the reason.

    Scikit-learn's `available_if` does the same, and keeps the reason to itself.
    """

    def __init__(self, method: Callable[..., Any], check: Callable[[Any], Any]) -> None:
        self.method, self.check = method, check
        self.__doc__ = method.__doc__

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self.method
        self.check(instance)
        return self.method.__get__(instance, owner)


def _check_probabilities(self: Any) -> None:
    loss = self.loss if isinstance(self.loss, str) else self.loss.name
    if loss != "logistic":
        name = type(self).__name__
        raise AttributeError(
            f"predict_proba needs loss='logistic'; this model has {loss!r}: "
            f"{name}(loss='logistic') has it (dokl train --method gradient --loss logistic), and "
            "so have AutoClassifier and NetworkClassifier; decision_function gives scores"
        )


def if_logistic(method: Method) -> Method:
    """A method that only a model with the logistic loss has."""
    made: Any = AvailableOrTold(method, _check_probabilities)
    return made  # type: ignore[no-any-return]


class Classification(Labels, ClassifierMixin, Estimator):  # type: ignore[misc]
    """Labels of any kind; y: (n,)."""

    def _agreed(self) -> dict[str, Any]:
        return {"classes": self.classes_}

    def _checked(self, X: object, y: Any, reset: bool, weight: object = None) -> tuple[Any, Array]:
        plain = None if reset else self._plain_rows(X)
        simple = type(y) is np.ndarray and y.ndim == 1 and y.dtype.kind in "biufU"
        if plain is not None and simple and len(y) == plain.shape[0]:
            return plain, y  # labels must be known ones, `_numbers` sees to that
        X, y = valid_numbers(self, X, y=y, reset=reset, **self._rules(reset))
        return X, checked_labels(y)

    def _decide(self, X: object, nodes: object = None) -> Array:
        scores = self._scores(X, nodes)
        return scores[:, 0] if len(self.classes_) == 2 else scores

    def _predict(self, X: object, nodes: object = None) -> Array:
        return self._labels(self._scores(X, nodes))

    def _labels(self, scores: Array) -> Array:
        """The label of the highest score; scores: (n, m)."""
        return np.asarray(self.classes_[classification.class_numbers(scores)])

    def prequential(
        self,
        X: object,
        y: object,
        classes: object = None,
        sample_weight: object = None,
        nodes: object = None,
    ) -> Array:
        """`partial_fit` that returns the prediction of each row from before learning it.

        The honest error of an online learner: every row is a test row first. It is that of the
        last vector, before any averaging.

        A row of weight 0 is not looked at, and has no prediction. Where there are such rows, NaN
        stands in their places if labels are floats; else the labels come as an array of objects
        with None in those places.
        """
        scores = self._partial_fit(X, y, sample_weight, nodes, classes)
        return blanked(self._labels(scores), np.isnan(scores[:, 0]))

    def _probabilities(self, X: object, nodes: object = None) -> Array:
        """(n, classes); several classes: one against the rest, scaled to sum to one."""
        return classification.probabilities(self._scores(X, nodes))


def logarithm(p: Array) -> Array:
    """log p, minus infinity where p is 0, without a warning."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(p))
