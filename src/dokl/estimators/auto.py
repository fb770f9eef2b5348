"""Estimators without settings: a bank of experts behind scikit-learn's habits."""

from __future__ import annotations

import html
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from dokl.base.arrays import LARGEST, Array, check_whole
from dokl.base.errors import BadInput, MissingExtra, UnknownName
from dokl.estimators.choices import seed_of, set_parameters
from dokl.estimators.inputs import (
    NumericTargets,
    all_or_nothing,
    check_same_columns,
    checked_weight,
    everywhere,
    machine_memory,
    present_rows,
)
from dokl.estimators.labels import Calibrated, Labels, blanked
from dokl.estimators.late import LateLearning
from dokl.estimators.plain import Savable
from dokl.learning import calibration, intervals
from dokl.learning.experts import learn, predicting
from dokl.learning.experts.bank import Bank, Prediction, fingerprint, matrix_bytes, remembers, start
from dokl.learning.experts.copies import watch
from dokl.learning.experts.kinds import (
    CLASS_PILOTS,
    FOR_CLASSES,
    FOR_NUMBERS,
    Kind,
    Settings,
)
from dokl.learning.order import order_to_learn

# -- the column of groups -------------------------------------------------------------------------
# Beyond, floats leave out whole numbers.
MOST = 2.0**53


def group_column(groups: Any, d: int, names: Any = None) -> int:
    """The place of a column among d inputs, by its place (-1 is the last) or its name."""
    if isinstance(groups, str):
        if names is None:
            raise BadInput(
                f"groups={groups!r} is a name, and these inputs have none: give a data frame, or "
                "the place of the column (-1 is the last one)"
            )
        known = list(names)
        if groups not in known:
            raise UnknownName("column of groups", groups, known)
        return known.index(groups)
    if isinstance(groups, bool) or not isinstance(groups, int | np.integer):
        raise BadInput(f"groups must be the place or the name of a column, got {groups!r}")
    if not -d <= groups < d:
        raise BadInput(f"groups={groups} names no column: there are {d} inputs")
    return int(groups) % d


def grouped_last(X: Array, at: int) -> Array:
    """Rows X: (n, d) with column `at`, of whole numbers, at the end."""
    if X.shape[1] < 2:
        raise BadInput(
            "the column of groups is the only input: with no other there is nothing to learn but "
            "the mean of each group"
        )
    group = X[:, at]
    wrong = np.flatnonzero((group != np.rint(group)) | (np.abs(group) > MOST))
    if len(wrong):
        raise BadInput(
            f"groups are whole numbers, and row {wrong[0]} has {group[wrong[0]]:g} in column {at}: "
            "number them first, for example with sklearn.preprocessing.OrdinalEncoder, or train "
            "from a table (dokl.fit_table, dokl train), where they may be texts"
        )
    return X if at == X.shape[1] - 1 else np.hstack([np.delete(X, at, axis=1), X[:, at : at + 1]])


# -- what both share ------------------------------------------------------------------------------
class Auto(Savable, LateLearning, BaseEstimator):  # type: ignore[misc]
    """What regressor and classifier share: a bank, checks, and what it can report."""

    n_components: int
    experts: str
    bound: float
    groups: int | str | None
    random_state: Any
    verbose: bool

    _sets: dict[str, Callable[[], tuple[Kind, ...]]] = FOR_NUMBERS
    _classifying = False

    # -- what subclasses provide -------------------------------------------------------------
    def _targets(self, y: Array) -> Array:
        raise NotImplementedError

    # -- learning ----------------------------------------------------------------------------
    def _settings(self) -> Settings:
        sets = self._sets
        if self.experts not in sets:
            raise UnknownName("experts", self.experts, sets)
        most = check_whole("n_components", self.n_components)
        if not self.bound > 0:
            raise BadInput(f"bound must be above 0 standard deviations, got {self.bound!r}")
        kinds, lasting = sets[self.experts](), self.experts == "one"
        check_memory(kinds, most)
        seed, grouped = seed_of(self.random_state), self.groups is not None
        made = Settings(kinds, most, float(self.bound), seed, sums=lasting)
        if not grouped:
            return replace(made, beside=self.experts == "lasting" and not self._classifying)
        # One expert stays a function of its sums, so that models can be added and taken away.
        return replace(made, grouped=True, group_errors=not lasting)

    def _fit(self, X: Array, y: Array, sample_weight: Any) -> tuple[Prediction, Array | slice]:
        """Learn from scratch; the order in which rows with a weight were learned, and what was
        predicted for each before.
        """
        Y = self._targets(y)
        _, X, Y, weight, _ = present_rows(self._arrange(X), Y, sample_weight, first=True)
        settings = self._settings()
        order = order_to_learn(X, Y, self._classifying, settings.seed)
        weight = None if weight is None else weight[order]
        bank, prediction = learn.fit_rows(settings, X[order], Y[order], weight)
        self.bank_: Bank = bank
        return prediction, order

    def _partial_fit(self, X: Array, y: Array, sample_weight: Any) -> Prediction:
        """Learn once; its prediction of each row before, NaN for rows of weight 0."""
        Y = self._targets(y)
        n, X, Y, weight, kept = present_rows(self._arrange(X), Y, sample_weight, first=False)
        if not hasattr(self, "bank_"):
            bank = start(X.shape[1], Y.shape[1], self._settings())
            watching = not (self._classifying or bank.settings.grouped)
            self.bank_ = watch(bank) if watching else bank
        self.bank_, prediction = learn.learn(self.bank_, X, Y, weight)
        if kept is None:
            return prediction
        return Prediction(*(everywhere(part, kept, n) for part in vars(prediction).values()))

    def _finish(self) -> bool:
        """After the last row of a file: few rows are worth a fit of all of them. Whether it was."""
        before, self.bank_ = self.bank_, learn.fit_few(self.bank_)
        return self.bank_ is not before

    def _inputs(self, X: Any) -> Array:
        check_is_fitted(self, "bank_")
        return self._arrange(self._read_rows(X))

    def _arrange(self, X: Array) -> Array:
        """Rows X: (n, d) as the bank wants them: the number of the group last."""
        if self.groups is None:
            return X
        return grouped_last(X, self._group_column())

    def _group_column(self) -> int:
        """The place of the column of groups among the inputs."""
        known = getattr(self, "preprocessor_", None)
        if known is None or known.numbers_only:
            names = getattr(self, "feature_names_in_", None)
            return group_column(self.groups, self.n_features_in_, names)
        name = self._group_name(known.columns)
        if name not in known.names_out:
            raise BadInput(f"groups={self.groups!r} names a column of times: give numbers or texts")
        return int(known.names_out.index(name))

    def _group_name(self, names: tuple[str, ...]) -> str | None:
        return None if self.groups is None else names[group_column(self.groups, len(names), names)]

    # -- what it can report ------------------------------------------------------------------
    @property
    def relevance_(self) -> Array:
        """How much predictions change where rows exchange their values of an input, summing to 1:
        (d,).

        Before the first pilot (30 rows; 8 for classes) every input counts alike.
        """
        check_is_fitted(self, "bank_")
        found = predicting.relevance(self.bank_)
        if self.groups is None:
            return found
        return np.insert(found[:-1], self._group_column(), found[-1])

    @property
    def experts_(self) -> list[dict[str, Any]]:
        """The experts, the heaviest first: what each is, its weight, memory in rows, and error."""
        check_is_fitted(self, "bank_")
        bank = self.bank_
        noise = [float(np.mean(memory.noise)) for memory in bank.memories] or [math.nan] * 99
        rows = [
            {"expert": kind.text, "weight": float(w), "memory": kind.memory, "error": error}
            for kind, w, error in zip(bank.kinds, bank.weights, noise, strict=False)
        ]
        return sorted(rows, key=lambda row: -row["weight"])

    @property
    def remembers_(self) -> str:
        """In words, how far back predictions reach."""
        check_is_fitted(self, "bank_")
        n = remembers(self.bank_)
        everything = n > 0.9 * self.bank_.seen
        return f"remembers {'all ' if everything else 'about '}{n:,.0f} rows"

    @property
    def fingerprint_(self) -> str:
        """Of the map and the scalings; models with the same one can be merged."""
        check_is_fitted(self, "bank_")
        return fingerprint(self.bank_)

    def plot_relevance(self, ax: Any = None) -> Any:
        """A bar for each input: how much predictions depend on it. Returns the axes."""
        if ax is None:
            try:
                import matplotlib.pyplot as plt
            except ImportError:
                raise MissingExtra("a picture", "plot") from None
            ax = plt.subplots()[1]
        order = np.argsort(self.relevance_)
        ax.barh(np.asarray(self.inputs_, str)[order], self.relevance_[order])
        ax.set_xlabel("relevance")
        return ax

    def _repr_html_inner(self) -> str:
        """Scikit-learn's diagram, and below it the experts, once there are any."""
        return str(super()._repr_html_inner()) + experts_html(self)

    def _repr_mimebundle_(self, **how: Any) -> dict[str, Any]:
        """The same for notebooks."""
        found: dict[str, Any] = super()._repr_mimebundle_(**how)
        if "text/html" in found:
            found["text/html"] += experts_html(self)
        return found

    # -- adding and taking away --------------------------------------------------------------
    def freeze(self) -> Any:
        """Learn no more scales: map and scalings stay as they are, and this model itself."""
        check_is_fitted(self, "bank_")
        if self.bank_.now is None:
            raise BadInput(
                f"there is no map yet after {self.bank_.seen} rows: it comes with row "
                f"{min(self.bank_.settings.pilots, default=30)}"
            )
        self.bank_ = learn.freeze(self.bank_)
        return self

    def fresh(self) -> Any:
        """An empty model with the same map and scalings, which stay as they are."""
        from sklearn.base import clone

        other = clone(self)
        learned = {k: v for k, v in vars(self).items() if k not in self.get_params()}
        vars(other).update(learned)
        other.bank_ = learn.forget_all(self.freeze().bank_)
        return other

    def without(self, other: Any) -> Any:
        """The model that never had the rows of `other`, which has the same map."""
        return combine(self, other, -1)


def experts_html(estimator: Any) -> str:
    """The experts as a table of HTML, those that count; nothing before anything was learned."""
    if not hasattr(estimator, "bank_"):
        return ""
    rows = estimator.experts_
    heavy = [row for row in rows if row["weight"] >= 0.005]
    cells = "".join(
        f"<tr><td style='text-align:left'>{html.escape(row['expert'])}</td>"
        f"<td>{100 * row['weight']:.0f} %</td><td>{row['error']:.3g}</td></tr>"
        for row in heavy
    )
    more = f"<p>and {len(rows) - len(heavy)} more</p>" if len(rows) > len(heavy) else ""
    head = (
        "<tr><th style='text-align:left'>expert</th><th>weight</th><th>error / variance</th></tr>"
    )
    title = f"{estimator.bank_.seen:,} rows learned; {html.escape(estimator.remembers_)}"
    return f"<div><p>{title}</p><table>{head}{cells}</table>{more}</div>"


def check_memory(kinds: Any, most: int) -> None:
    """Refuse matrices that this machine cannot hold."""
    need, have = matrix_bytes(kinds, most), machine_memory()
    if need > 0.7 * have:
        raise BadInput(
            f"n_components={most} takes {need / 1e9:,.0f} GB for the experts' matrices, and this "
            f"machine has {have / 1e9:,.0f} GB: take fewer, or experts='one'"
        )


def merge(a: Any, b: Any) -> Any:
    """The model that has learned the rows of both; they must have the same map.

    `b = a.fresh()` makes one with the map of a. Exact for experts='one', whose knowledge is sums.
    """
    return combine(a, b, 1)


def combine(a: Any, b: Any, sign: int) -> Any:
    """A new model with the sums of a, and those of b added or taken away."""
    from sklearn.base import clone

    for model in (a, b):
        if not hasattr(model, "bank_"):
            raise BadInput(
                f"{model!r} cannot be merged: it has learned nothing, or is not an AutoRegressor"
            )
    if type(a) is not type(b):
        raise BadInput(f"a {type(a).__name__} and a {type(b).__name__} cannot be merged")
    check_same_columns(a, b)
    other = clone(a)
    vars(other).update({k: v for k, v in vars(a).items() if k not in a.get_params()})
    other.bank_ = learn.combine_sums(a.bank_, b.bank_, sign)
    return other


# -- regression -----------------------------------------------------------------------------------
class AutoRegressor(NumericTargets, RegressorMixin, Auto):  # type: ignore[misc]
    """Online regression without settings: eighteen experts of exact least squares, mixed.

    The model learns length scales from the first rows (and again at 60, 125, ... 100,000), and
    scales inputs and targets. Experts differ in kernel and memory, from ten rows to all; two use
    the ranks of the inputs. Each row is predicted before it is learned. Memory does not grow with
    the stream.

    X is an array, in which NaN is a missing value, or a data frame (pandas, polars) of numbers,
    booleans, texts, categories and times, read as `dokl train` reads files. The first call fixes
    the types of the columns and the levels of texts; later frames are matched by name.

    Parameters
    ----------
    n_components : centres of the widest experts' maps. More resolve finer detail; time per row
        grows with the square.
    experts : "all" mixes eighteen; "lasting" those that forget nothing and a linear one, for
        models that stay frozen for long or whose targets come late; "one" is a single expert that
        remembers all rows, for models to merge and subtract (`fresh`, `merge`, `without`).
    bound : a target that is off by more standard deviations counts as one at that distance.
    groups : the position (-1 is the last) or the name of a column of X with whole numbers that
        identify the group of a row: a station, a customer, an animal. Each of up to thousands of
        groups gets a learned place, near similar groups, and its last errors correct its next
        prediction. An unknown group, or a negative or missing number, is predicted like an average
        group.
    random_state : seed of the replay buffer; an integer gives the same model for the same rows.
    verbose : not used; for symmetry with other estimators.

    Attributes
    ----------
    relevance_ : (d,) how much predictions change if rows exchange their values of an input; sums
        to 1.
    inputs_ : names of these inputs: columns of X, levels of texts, circles of times.
    experts_ : a list of the experts with weights, memories and errors.
    remembers_ : in words, how far back predictions reach.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(400, 2))
    >>> y = 1e4 + np.sin(3 * X[:, 0])  # any offset, any scale; the second input is useless
    >>> model = AutoRegressor(random_state=0)
    >>> f = model.prequential(X, y)  # predicts each row, then learns it
    >>> bool(np.var((y - f)[200:]) < 0.02 * np.var(y)), bool(model.relevance_[0] > 0.8)
    (True, True)
    >>> lower, upper = model.predict_interval(X[:3], coverage=0.9)
    """

    def __init__(
        self,
        n_components: int = 1000,
        *,
        experts: str = "all",
        bound: float = 10.0,
        groups: int | str | None = None,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        set_parameters(self, locals())

    @property
    def _outputs(self) -> int:
        return self.bank_.m

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> AutoRegressor:
        """Learn from scratch; scales are learned from all rows.

        Rows are learned in their order, as a stream: the newest may count more. Rows sorted by
        their target (of the rows at which it changes, 95 % go one way; also within the values of an
        input that sorts them first) are learned in an order drawn from random_state, unless an
        input moves gradually from row to row, as in a series. `partial_fit` keeps their order.
        """
        with all_or_nothing(self):
            X, y = self._checked(X, y, True, sample_weight)
            usual = float(np.median(np.abs(y)))
            if usual > LARGEST:
                raise BadInput(
                    f"targets are about {usual:.0e}, and {LARGEST:.0e} at most can be learned: "
                    "divide them by a unit"
                )
            self._fit(X, y, sample_weight)
        return self

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> AutoRegressor:
        """Learn from these rows, in this order, once."""
        self.prequential(X, y, sample_weight)
        return self

    def prequential(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        return_std: bool = False,
        return_interval: float | None = None,
    ) -> Any:
        """`partial_fit` that returns the prediction of each row from before learning it, and
        with return_std its standard deviation. Rows of weight 0 are skipped, with NaN as result.

        return_interval: a coverage such as 0.9; then also the lower and the upper ends.
        """
        with all_or_nothing(self):
            level = None if return_interval is None else intervals.check_level(return_interval)
            X, y = self._checked(X, y, not hasattr(self, "bank_"), sample_weight)
            prediction = self._partial_fit(X, y, sample_weight)
        sd, found = np.sqrt(prediction.variance), [prediction.mean]
        found += [sd] if return_std else []
        if level is not None:
            reach = sd * intervals.width_at(self.bank_.tracker, level, prediction.widths)
            found += [prediction.mean - reach, prediction.mean + reach]
        shaped = tuple(map(self._shaped, found))
        return shaped[0] if len(shaped) == 1 else shaped

    def predict(
        self, X: Any, return_std: bool = False, keys: Any = None, steps_ahead: Any = None
    ) -> Any:
        """Predictions (n,), or (n, m) for several outputs; with return_std also their standard
        deviations, noise included.

        keys: a name for each row, by which `learn` finds it when its target is known. steps_ahead:
        how many rows beyond the last learned one these lie, a number for all of them or one for
        each, where a model of a series stays as it is. Beyond the next row, a linear function of
        the inputs and each input itself (an earlier value) count as far as frozen copies of the
        model did worse along its stream.
        """
        rows = self._inputs(X)
        if keys is not None:
            self._wait(X, keys)
        if not return_std:
            return self._shaped(predicting.predict(self.bank_, rows, steps_ahead))
        prediction = predicting.predict_with_variance(self.bank_, rows, steps_ahead)
        return self._shaped(prediction.mean), self._shaped(np.sqrt(prediction.variance))

    def predict_interval(
        self, X: Any, coverage: float = 0.9, steps_ahead: Any = None
    ) -> tuple[Array, Array]:
        """Lower and upper ends of intervals that contain the target in this share of rows.

        steps_ahead: the distance of these rows from the last learned one, a number for all of them
        or one for each. 1 is the next row, for a model that learns each row after predicting it.
        Intervals grow with the distance as the errors of frozen copies did during learning, so for
        rows without an order they do not grow. The middle is the prediction for that distance.
        None: unknown; then the width at an eighth of the rows learned, which stands for all rows up
        to a quarter.
        """
        ends = predicting.frozen_ends(self.bank_, self._inputs(X), coverage, steps_ahead)
        return self._shaped(ends[0]), self._shaped(ends[1])


# -- classification -------------------------------------------------------------------------------
class AutoClassifier(Labels, ClassifierMixin, Calibrated, Auto):  # type: ignore[misc]
    """Online classification without settings: ten experts, one matrix for all classes in each.

    Parameters are those of `AutoRegressor`, except that `bound` is infinite (a class that appears
    late is not an outlier), and:

    class_weight : {label: weight}, or "balanced" by how often each class was seen so far.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(600, 2))
    >>> y = np.where(X[:, 0] * X[:, 1] > 0, "same", "other")
    >>> model = AutoClassifier(random_state=0)
    >>> labels = model.prequential(X, y, classes=["other", "same"])
    >>> bool(np.mean(labels[300:] == y[300:]) > 0.9)
    True
    """

    class_weight: Any
    _sets = FOR_CLASSES

    def __init__(
        self,
        n_components: int = 1000,
        *,
        experts: str = "all",
        bound: float = math.inf,
        groups: int | str | None = None,
        class_weight: Any = None,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        set_parameters(self, locals())

    def _settings(self) -> Settings:
        given = {"classes": len(getattr(self, "classes_", ())), "pilots": CLASS_PILOTS}
        return replace(super()._settings(), **given)  # type: ignore[arg-type]

    def _weights(self, y: Array, weight: Array) -> Array:
        """Sample weights (n,) times class weights."""
        if self.class_weight is None:
            return weight
        at = self._numbers(y)
        if isinstance(self.class_weight, str):
            if self.class_weight != "balanced":
                raise UnknownName("class_weight", self.class_weight, ("balanced",))
            seen = getattr(self, "class_count_", np.zeros(len(self.classes_)))
            self.class_count_ = seen + np.bincount(at, minlength=len(self.classes_))
            each = self.class_count_.sum() / np.maximum(self.class_count_, 1) / len(self.classes_)
        else:
            each = np.array([float(self.class_weight.get(c, 1.0)) for c in self.classes_.tolist()])
        return np.asarray(each[at] * weight)

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> AutoClassifier:
        """Learn from scratch; scales are learned from all rows.

        Rows are learned in their order, as a stream: the newest may count more. Rows sorted by
        their class (it changes ten times more seldom than by chance) are learned in an order drawn
        from random_state, unless an input moves gradually from row to row, as in a series.
        `partial_fit` keeps their order.
        """
        with all_or_nothing(self):
            X, y = self._checked(X, y, True, sample_weight)
            if hasattr(self, "class_count_"):
                del self.class_count_
            weight = checked_weight(1.0 if sample_weight is None else sample_weight, len(y))
            if not weight.any():
                raise BadInput("all sample weights are zero: there is nothing to start from")
            X, y, weight = (a[weight > 0] for a in (X, y, weight))
            self._meet(y)
            weight = self._weights(y, weight)
            prediction, order = self._fit(X, y, None if (weight == 1.0).all() else weight)
            self.calibration_ = calibration.start(len(self.classes_))
            finite = np.isfinite(prediction.mean[:, 0])
            given = prediction.mean, y[order], weight[order]
            self._follow(*(part[finite] for part in given))
        return self

    def partial_fit(
        self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None
    ) -> AutoClassifier:
        """Learn from these rows, in this order, once; the first call names all classes."""
        self.prequential(X, y, classes, sample_weight)
        return self

    def prequential(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Array:
        """`partial_fit` that returns the prediction of each row from before learning it.

        A row of weight 0 is not looked at: NaN (float labels) or None stands in its place.
        """
        with all_or_nothing(self):
            fresh = not hasattr(self, "bank_")
            X, y = self._checked(X, y, fresh, sample_weight)
            self._meet_again(classes, fresh)
            weight = checked_weight(1.0 if sample_weight is None else sample_weight, len(y))
            weight = self._weights(y, weight)
            prediction = self._partial_fit(X, y, None if (weight == 1.0).all() else weight)
            if fresh:
                self.calibration_ = calibration.start(len(self.classes_))
            level = self._follow(prediction.mean, y, weight)
        return blanked(self.classes_[level.argmax(axis=1)], weight == 0)

    def _follow(self, scores: Array, y: Array, weight: Array) -> Array:
        """Calibrate by rows that were just predicted: the levels (n, classes) before each."""
        seen, level = weight > 0, np.zeros((len(y), len(self.classes_)))
        given = calibration.both(scores[seen]), self._numbers(y[seen]), weight[seen]
        self.calibration_, level[seen] = calibration.follow(self.calibration_, *given)
        return level

    def predict(self, X: Any, keys: Any = None) -> Array:
        """Labels (n,): the most probable.

        keys: a name for each row, by which `learn` finds it when its target is known.
        """
        labels = super().predict(X)
        if keys is not None:
            self._wait(X, keys)
        return np.asarray(labels)

    def _scores(self, X: Any) -> Array:
        X = self._inputs(X)
        return predicting.predict(self.bank_, X)
