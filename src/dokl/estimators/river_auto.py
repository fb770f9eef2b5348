"""The estimators without settings, in River: `dokl.estimators.river` has them."""

from __future__ import annotations

import copy
import math
from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
from river import base

from dokl.base.arrays import Array
from dokl.base.errors import BadInput, UnknownName
from dokl.estimators import auto, river_inputs
from dokl.estimators.choices import Seeded, set_parameters
from dokl.estimators.inputs import all_or_nothing, checked_weight
from dokl.estimators.river_inputs import InputColumns, Piece, numbers_of, numbers_of_frame
from dokl.learning.classification import class_numbers

Sample = Mapping[Hashable, Any]
MISSING = ("mean", "zero")


class _Auto(Seeded):
    """What the two share: columns, and an estimator that knows as many inputs."""

    n_components: int
    experts: str
    bound: float
    missing: str

    _kind: Any

    def _begin(self, parameters: Mapping[str, Any]) -> None:
        set_parameters(self, parameters)
        self._keep_seed()
        if self.missing not in MISSING:
            raise UnknownName("missing", self.missing, MISSING)
        self._columns = InputColumns(zero=self.missing == "zero")
        self._estimator = self._fresh()
        self._estimator._settings()  # which refuses bad parameters

    def _fresh(self) -> Any:
        given = {"experts": self.experts, "bound": self.bound, "random_state": self._seed}
        return self._kind(self.n_components, **given)

    @property
    def estimator(self) -> Any:
        """The estimator behind it, with `experts_`, `remembers_` and more; its inputs are
        `features`.
        """
        return self._estimator

    @property
    def features(self) -> list[Hashable]:
        """Names of the inputs, as the estimator has them."""
        return list(self._columns.at)

    @property
    def relevance(self) -> dict[Hashable, float]:
        """How much the learned function bends along each input, summing to 1."""
        if not self.seen:
            return {}
        return dict(zip(self.features, self._estimator.relevance_.tolist(), strict=False))

    @property
    def ignored(self) -> int:
        """How many values were ignored, since their inputs came up after 1,000 rows."""
        return self._columns.ignored

    @property
    def seen(self) -> int:
        """Rows learned."""
        return self._estimator.bank_.seen if hasattr(self._estimator, "bank_") else 0

    # -- learning ----------------------------------------------------------------------------
    def _one(self, x: Sample) -> tuple[list[Hashable], Array]:
        names, values = numbers_of(x, zeros=True)
        return names, values.reshape(1, -1)

    def _learn(self, rows: tuple[list[Hashable], Array], y: Array, w: Any) -> None:
        """Rows of positive weight in order, cut where new inputs are taken in."""
        names, values = rows
        weight = checked_weight(w, len(y))
        kept = weight > 0
        if not kept.all():
            values, y, weight = values[kept], y[kept], weight[kept]
        with all_or_nothing(self):
            self._estimator, at = copy.copy(self._estimator), 0
            while at < len(y):
                stop = min(len(y), at + river_inputs.until_intake(self.seen))
                self._learn_piece(Piece(names, values[at:stop], y[at:stop], weight[at:stop]))
                at = stop

    def _learn_piece(self, piece: Piece) -> None:
        self._columns = river_inputs.met(self._columns, piece)
        if self._columns.waiting and self.seen < river_inputs.INTAKES[0]:
            self._take_in()
            return
        X = river_inputs.placed(self._columns, piece.names, piece.values)
        self._columns, X = river_inputs.learned(self._columns, X)
        self._fit(X, piece.y, piece.w)
        if self._columns.waiting and self.seen in river_inputs.INTAKES:
            self._take_in()
        self._columns = river_inputs.closed(self._columns, self.seen)

    def _take_in(self) -> None:
        """The rows so far, these among them, are learned again with the inputs that wait."""
        self._columns = river_inputs.taken(self._columns)
        self._begin_again()

    def _begin_again(self) -> None:
        """A new estimator that has learned the rows so far: all of them where they are at hand."""
        if self._columns.first is None:
            X, Y, w = self._estimator.bank_.stored.all()
            y = class_numbers(Y)  # only classes come so late
        else:
            self._columns, X, y, w = river_inputs.again(self._columns)
        self._estimator = self._fresh()
        if len(y):
            self._fit(X, y, w)

    def _fit(self, X: Array, y: Array, w: Array) -> None:
        self._estimator.partial_fit(X, y, sample_weight=None if (w == 1).all() else w)

    def _inputs(self, rows: tuple[list[Hashable], Array]) -> Array:
        return river_inputs.inputs(self._columns, *rows)


class AutoRegressor(_Auto, base.MiniBatchRegressor):  # type: ignore[misc]
    """Online regression without settings, for named features: `dokl.AutoRegressor` in River.

    Features and targets need no scaling. Which features there are is learned from the first rows:
    those of the first 30 at once, others up to row 1,000 when the model next learns its scales (at
    60, 125, 250, 500 and 1,000 rows), by learning the rows so far again. Later ones are ignored,
    with one warning, and counted (`ignored`).

    Before the first target is known the prediction is None, as of River's AMFRegressor:
    `evaluate.progressive_val_score` leaves such a row out of the metric. Metrics updated by hand,
    and wrappers that compute with predictions (ensembles, TargetStandardScaler, which is not needed
    here), must learn a row first.

    Parameters
    ----------
    n_components
        As in `dokl.AutoRegressor`.
    experts
        As there.
    bound
        As there.
    missing
        What stands for a feature that is absent, None or NaN: "mean", the mean of the rows so far,
        or "zero", for features that are left out where they are 0, as counts of words are.
    seed
        Models with the same seed are the same for the same rows.
    random_state
        The seed by scikit-learn's name; it counts where both are given.

    Examples
    --------
    >>> from river import datasets, evaluate, metrics
    >>> model = AutoRegressor()
    >>> rows = datasets.TrumpApproval().take(200)
    >>> evaluate.progressive_val_score(rows, model, metrics.MAE()).get() < 0.5
    True
    >>> max(model.relevance, key=model.relevance.get)
    'ordinal_date'
    """

    _kind = auto.AutoRegressor

    def __init__(
        self,
        n_components: int = 1000,
        experts: str = "all",
        bound: float = 10.0,
        missing: str = "mean",
        seed: int | None = 0,
        random_state: int | None = None,
    ) -> None:
        self._begin(locals())

    def learn_one(self, x: Sample, y: float, w: float = 1.0) -> None:
        """Learn one row; it counts as w rows."""
        self._learn(self._one(x), _numbers([y]), w)

    def predict_one(self, x: Sample) -> float | None:
        """The prediction; None before anything was learned."""
        return float(self._estimator.predict(self._inputs(self._one(x)))[0]) if self.seen else None

    def learn_many(self, X: Any, y: Any, w: Any = 1.0) -> None:
        """Learn the rows of a data frame, in their order: `learn_one` in a loop, and faster."""
        self._learn(numbers_of_frame(X, zeros=True), _numbers(y), w)

    def predict_many(self, X: Any) -> Any:
        """A Series of predictions; NaN before anything was learned."""
        import pandas as pd

        rows = numbers_of_frame(X, zeros=True)
        known = self.seen and len(X)
        f = self._estimator.predict(self._inputs(rows)) if known else np.full(len(X), np.nan)
        return pd.Series(f, index=X.index)


def _numbers(y: Any) -> Array:
    """Targets (n,), finite."""
    try:
        Y = np.array(y, np.float64)
    except (TypeError, ValueError) as error:
        raise BadInput(f"a target must be a number: {error}") from None
    if not np.isfinite(Y).all():
        raise BadInput("a target is NaN or infinite: leave rows without one out")
    return Y


class AutoClassifier(_Auto, base.MiniBatchClassifier):  # type: ignore[misc]
    """Online classification without settings, for named features: `dokl.AutoClassifier` in River.

    Classes need not be known beforehand. A third one, and each one after it, makes a new model that
    learns the rows so far again, which takes time: all of them up to 1,000 rows, so the order in
    which classes come up makes no difference; later a fair sample of 10,000. Where they are known,
    `classes` saves that. Features are treated as in `AutoRegressor`.

    Parameters
    ----------
    n_components
        As in `AutoRegressor`.
    experts
        As there.
    bound
        As there, but infinite: a class that appears late is not an outlier.
    missing
        As there.
    classes
        Labels that are known beforehand.
    seed
        As there.
    random_state
        As there.

    Examples
    --------
    >>> from river import datasets, evaluate, metrics
    >>> rows = datasets.Phishing().take(300)
    >>> score = evaluate.progressive_val_score(rows, AutoClassifier(), metrics.Accuracy())
    >>> score.get() > 0.8
    True
    """

    _kind = auto.AutoClassifier

    def __init__(
        self,
        n_components: int = 1000,
        experts: str = "all",
        bound: float = math.inf,
        missing: str = "mean",
        classes: Any = None,
        seed: int | None = 0,
        random_state: int | None = None,
    ) -> None:
        self._begin(locals())
        self._classes: dict[Hashable, int] = _number(classes or ())

    @property
    def _multiclass(self) -> bool:
        return True

    def learn_one(self, x: Sample, y: Hashable, w: float = 1.0) -> None:
        """Learn one row; it counts as w rows."""
        self._learn_labels(self._one(x), [y], w)

    def learn_many(self, X: Any, y: Any, w: Any = 1.0) -> None:
        """Learn the rows of a data frame, in their order; y: a Series of labels."""
        self._learn_labels(numbers_of_frame(X, zeros=True), list(y), w)

    def predict_one(self, x: Sample) -> Any:
        """The label of the highest score; None before anything was learned."""
        return self._labels(self._one(x))[0]

    def predict_many(self, X: Any) -> Any:
        """A Series of labels; None before anything was learned."""
        import pandas as pd

        return pd.Series(self._labels(numbers_of_frame(X, zeros=True)), index=X.index)

    def predict_proba_one(self, x: Sample) -> dict[Hashable, float]:
        """Probability of each class so far."""
        return dict(zip(self._classes, self._shares(self._one(x))[0].tolist(), strict=True))

    def predict_proba_many(self, X: Any) -> Any:
        """A data frame of probabilities, one column for each class so far."""
        import pandas as pd

        p = self._shares(numbers_of_frame(X, zeros=True))
        return pd.DataFrame(p, index=X.index, columns=list(self._classes))

    def _learn_labels(self, rows: tuple[list[Hashable], Array], labels: list[Any], w: Any) -> None:
        if None in labels:
            raise BadInput("None is not a label: leave rows without one out")
        with all_or_nothing(self):
            classes = _number((*self._classes, *labels))
            more = len(classes) > max(2, len(self._classes))
            self._classes = classes
            if more:
                self._begin_again()
            self._learn(rows, np.array([classes[label] for label in labels], np.int64), w)

    def _fit(self, X: Array, y: Array, w: Array) -> None:
        """Two classes from the start: the second has no name until it comes up."""
        fresh = not hasattr(self._estimator, "bank_")
        known = {"classes": np.arange(max(2, len(self._classes)))} if fresh else {}
        weight = None if (w == 1).all() else w
        self._estimator.partial_fit(X, y, sample_weight=weight, **known)

    def _labels(self, rows: tuple[list[Hashable], Array]) -> list[Any]:
        names = list(self._classes)
        if not self.seen or not len(rows[1]):
            return [None] * len(rows[1])
        numbers = self._estimator.predict(self._inputs(rows)).tolist()
        return [names[min(i, len(names) - 1)] for i in numbers]

    def _shares(self, rows: tuple[list[Hashable], Array]) -> Array:
        """(n, classes)"""
        n, k = len(rows[1]), len(self._classes)
        if not self.seen or not n or k < 2:
            return np.full((n, k), 1.0 / max(1, k))
        return np.asarray(self._estimator.predict_proba(self._inputs(rows)))


def _number(labels: Any) -> dict[Hashable, int]:
    return {label: i for i, label in enumerate(dict.fromkeys(labels))}
