"""Estimators that predict and learn no more: what is left of one without settings, made small."""

from __future__ import annotations

from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from dokl.base.arrays import Array
from dokl.base.errors import BadInput
from dokl.estimators.auto_classifier import AutoClassifier
from dokl.estimators.auto_regressor import AutoRegressor
from dokl.estimators.calibrated import Calibrated
from dokl.estimators.frames import FrameInputs
from dokl.estimators.network import NetworkEstimator
from dokl.learning import calibration
from dokl.learning.experts import folding, predicting
from dokl.learning.experts.folding import Part
from dokl.learning.intervals import Tracker

# What is taken over from the estimator that learned.
FACTS = ("relevance_", "remembers_", "fingerprint_", "n_features_in_")
IF_ANY = ("feature_names_in_", "classes_", "calibration_", "_flat", "preprocessor_")
# Rows by which the one width of intervals is set: what comes next is like them. Where a row tells
# its time, those long ago are far from all that is remembered, and intervals there ten times wider.
NEWEST = 100


class PredictOnly(FrameInputs, BaseEstimator):  # type: ignore[misc]
    """What both share; `folded` makes them.

    folded_: what predicts, parts that add up. rows_: how many were learned. tracker_: widths of
    intervals in standard deviations. spread_: (m,) the standard deviation that predictions had for
    the newest rows, on average. relevance_, remembers_, fingerprint_: as they were.
    """

    folded_: tuple[Part, ...]
    rows_: int
    tracker_: Tracker
    spread_: Array
    relevance_: Array
    remembers_: str
    fingerprint_: str

    _classifying = False

    def _scores(self, X: Any) -> Array:
        check_is_fitted(self, "folded_")
        return folding.predict_sum(self.folded_, self._read_rows(X))

    def fit(self, X: Any, y: Any = None, **_: Any) -> NoReturn:
        """Refuse: there is nothing left to learn with."""
        raise BadInput(
            "this model was exported for predicting only and cannot learn: go on with the model "
            "that it was exported from"
        )

    partial_fit = prequential = fit

    def save(self, path: str | PathLike[str]) -> Path:
        """Write it to a data file; `dokl.load` reads it back."""
        from dokl.estimators.saving import save  # which knows all the estimators, this one too

        return save(self, path)


class FoldedRegressor(RegressorMixin, PredictOnly):  # type: ignore[misc]
    """An `AutoRegressor` without its matrices: the same predictions, intervals of one width."""

    _flat: bool
    counts_: Array | None = None  # of frozen copies by distance (`dokl.learning.drift`)

    def _shaped(self, values: Array) -> Array:
        return values[:, 0] if self._flat else values

    def predict(self, X: Any, return_std: bool = False) -> Array:
        """Predictions (n,), or (n, m) for several outputs."""
        if return_std:
            raise BadInput(
                "a model exported for predicting only does not know how sure it is of a row, which "
                "takes the matrices that were left out: it has no standard deviations"
            )
        return self._shaped(self._scores(X))

    def predict_interval(
        self, X: Any, coverage: float = 0.9, steps_ahead: Any = None
    ) -> tuple[Array, Array]:
        """Lower and upper ends, as far apart as those of the full model were on average; by
        steps_ahead as for `AutoRegressor`.
        """
        mean = self._scores(X)
        about = self.tracker_, self.counts_, self.rows_, coverage, len(mean), steps_ahead
        reach = predicting.frozen_widths(*about) * self.spread_
        return self._shaped(mean - reach), self._shaped(mean + reach)


class FoldedClassifier(ClassifierMixin, Calibrated, PredictOnly):  # type: ignore[misc]
    """An `AutoClassifier` without its matrices: the same labels and probabilities."""

    _classifying = True

    def _scores(self, X: Any) -> Array:
        return PredictOnly._scores(self, X)


def predict_only(
    parts: tuple[Part, ...],
    *,
    rows: int,
    tracker: Tracker,
    spread: Array,
    relevance: Array,
    remembers: str,
    fingerprint: str,
    classes: Array | None = None,
) -> PredictOnly:
    """An estimator that predicts what these parts add up to; see `PredictOnly` for the rest.

    classes: labels in order, whose scores the parts are; their probabilities are not calibrated.
    """
    made = FoldedRegressor() if classes is None else FoldedClassifier()
    made.folded_, made.rows_, made.spread_ = parts, rows, spread
    made.tracker_ = replace(tracker, energy=np.zeros_like(tracker.energy))
    made.relevance_, made.remembers_, made.fingerprint_ = relevance, remembers, fingerprint
    made.n_features_in_ = len(relevance)
    if classes is None:
        made._flat = len(spread) == 1
    else:
        made.classes_, made.calibration_ = classes, calibration.start(len(classes))
    return made


def folded(estimator: Any) -> Any:
    """An estimator that predicts what this one, without settings, does, and needs no matrices.

    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> model = AutoRegressor(n_components=50, random_state=0).fit(X, X[:, 0] ** 2)
    >>> small = folded(model)
    >>> bool((small.predict(X) == model.predict(X)).all())
    True
    """
    kinds = {AutoRegressor: FoldedRegressor, AutoClassifier: FoldedClassifier}
    if isinstance(estimator, PredictOnly):
        return estimator
    if isinstance(estimator, NetworkEstimator):
        raise BadInput(
            f"a {type(estimator).__name__} has no small model file: export it to .onnx or .c, "
            "which hold nothing but what predicts (--node NAME: at one node)"
        )
    if type(estimator) not in kinds:
        raise BadInput(
            f"a {type(estimator).__name__} holds nothing but what predicts: it is as small as it "
            "gets"
        )
    check_is_fitted(estimator, "bank_")
    if estimator.groups is not None:
        raise BadInput(
            "a model with a column of groups has a place, and errors, for every group, which no "
            "export holds: predict with the model file itself (dokl predict, dokl serve), or train "
            "one without groups"
        )
    small, bank = kinds[type(estimator)](), estimator.bank_
    small.folded_, small.rows_ = (folding.folded(bank),), bank.seen
    if bank.drift is not None:
        small.counts_ = bank.drift.counts[1]
    small.tracker_ = replace(bank.tracker, energy=np.zeros_like(bank.tracker.energy))
    newest = predicting.predict_with_variance(bank, bank.stored.newest()[0][-NEWEST:])
    small.spread_ = np.sqrt(newest.variance).mean(axis=0) if bank.seen else np.ones(bank.m)
    for name in FACTS:
        setattr(small, name, getattr(estimator, name))
    for name in IF_ANY:
        if hasattr(estimator, name):
            setattr(small, name, getattr(estimator, name))
    return small
