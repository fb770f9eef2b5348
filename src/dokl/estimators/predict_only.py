"""Estimators that predict and learn no more: what is left of one without settings, made small."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from dokl.base import codec
from dokl.base.arrays import Array
from dokl.base.errors import BadInput
from dokl.base.files import real, whole
from dokl.estimators.auto import AutoClassifier, AutoRegressor
from dokl.estimators.inputs import FrameInputs
from dokl.estimators.labels import Calibrated
from dokl.estimators.network import NetworkEstimator
from dokl.estimators.plain import Savable
from dokl.learning import calibration, drift, intervals
from dokl.learning.drift import trim, untrim
from dokl.learning.experts import folding, predicting, rivals
from dokl.learning.experts.folding import Bumps, Folded, Part, Waves
from dokl.learning.experts.ranks import Ranks, checked_ranks
from dokl.learning.experts.rivals import Beside
from dokl.learning.experts.saving import check_beside, check_extent, check_scaling, fits
from dokl.learning.experts.scaling import Scaling
from dokl.learning.intervals import Tracker
from dokl.learning.scales import KERNELS

# What is taken over from the estimator that learned.
FACTS = ("relevance_", "remembers_", "fingerprint_", "n_features_in_")
IF_ANY = ("feature_names_in_", "classes_", "calibration_", "_flat", "preprocessor_")
# Rows by which the one width of intervals is set: what comes next is like them. Where a row shows
# its time, those long ago are far from all that is remembered, and intervals there ten times wider.
NEWEST = 100


class PredictOnly(Savable, FrameInputs, BaseEstimator):  # type: ignore[misc]
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

    def _scores(self, X: Any, steps_ahead: Any = None) -> Array:
        check_is_fitted(self, "folded_")
        rows, parts = self._read_rows(X), self.folded_
        if steps_ahead is not None:
            steps = drift.check_steps(steps_ahead, len(rows))
            parts = tuple(folding.ahead(part, steps, self.rows_) for part in parts)
        return folding.predict_sum(parts, rows)

    def fit(self, X: Any, y: Any = None, **_: Any) -> NoReturn:
        """Refuse: there is nothing left to learn with."""
        raise BadInput(
            "this model was exported for predicting only and cannot learn: continue with the model "
            "that it was exported from"
        )

    partial_fit = prequential = fit


class FoldedRegressor(RegressorMixin, PredictOnly):  # type: ignore[misc]
    """An `AutoRegressor` without its matrices: the same predictions, intervals of one width."""

    _flat: bool
    counts_: Array | None = None  # of frozen copies by distance (`dokl.learning.drift`)
    beside_: tuple[Beside, Array] | None = None  # what stands beside (`rivals`), and its counts

    def _shaped(self, values: Array) -> Array:
        return values[:, 0] if self._flat else values

    def predict(self, X: Any, return_std: bool = False, steps_ahead: Any = None) -> Array:
        """Predictions (n,), or (n, m) for several outputs; steps_ahead as for `AutoRegressor`."""
        if return_std:
            raise BadInput(
                "a model exported for predicting only has no standard deviations: they need the "
                "matrices that were left out"
            )
        mean = self._scores(X, steps_ahead)
        if steps_ahead is not None and self.beside_ is not None:
            far = drift.check_steps(steps_ahead, len(mean))[:, None] > 1
            mean = np.where(far, self.beside_[0].mixed(mean, self._read_rows(X)), mean)
        return self._shaped(mean)

    def predict_interval(
        self, X: Any, coverage: float = 0.9, steps_ahead: Any = None
    ) -> tuple[Array, Array]:
        """Lower and upper ends, as far apart as those of the full model were on average; by
        steps_ahead as for `AutoRegressor`.
        """
        mean = self._scores(X, steps_ahead)
        about = self.tracker_, self.counts_, self.rows_, coverage, len(mean), steps_ahead
        half = predicting.frozen_widths(*about) * self.spread_
        if steps_ahead is not None and self.beside_ is not None:
            now, counts = self.beside_
            newest = intervals.width_at(self.tracker_, coverage)
            given = counts, coverage, newest, drift.check_steps(steps_ahead, len(mean))
            own = self._read_rows(X), mean, half, np.broadcast_to(self.spread_**2, mean.shape)
            mean, half = predicting.ends_beside(now, *own, *given)
        return self._shaped(mean - half), self._shaped(mean + half)


class FoldedClassifier(ClassifierMixin, Calibrated, PredictOnly):  # type: ignore[misc]
    """An `AutoClassifier` without its matrices: the same labels and probabilities."""

    _classifying = True

    def _scores(self, X: Any, steps_ahead: Any = None) -> Array:
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
            f"a {type(estimator).__name__} has only what predicts already: it cannot be smaller"
        )
    check_is_fitted(estimator, "bank_")
    if estimator.groups is not None:
        raise BadInput(
            "a model with a column of groups has a place, and errors, for every group, which no "
            "export holds: predict with the model file itself (dokl predict, dokl serve), or train "
            "one without groups"
        )
    small, bank = kinds[type(estimator)](), estimator.bank_
    small.folded_, small.rows_ = (folding.fold(bank),), bank.seen
    if bank.drift is not None:
        small.counts_ = bank.drift.counts[1]
    if bank.rivals is not None:
        small.beside_ = rivals.beside(bank.rivals), bank.rivals.counts
    small.tracker_ = replace(bank.tracker, energy=np.zeros_like(bank.tracker.energy))
    newest = predicting.predict_with_variance(bank, bank.stored.newest()[0][-NEWEST:])
    small.spread_ = np.sqrt(newest.variance).mean(axis=0) if bank.seen else np.ones(bank.m)
    for name in FACTS:
        setattr(small, name, getattr(estimator, name))
    for name in IF_ANY:
        if hasattr(estimator, name):
            setattr(small, name, getattr(estimator, name))
    return small


# -- files ---------------------------------------------------------------------------------------
@dataclass(frozen=True)
class FoldedModel:
    """What files hold of such an estimator. counts, and those of what stands beside: see
    `dokl.learning.drift`, trimmed.
    """

    parts: tuple[Part, ...]
    tracker: Tracker
    spread: Array
    relevance: Array
    rows: int
    remembers: str
    counts: Array | None = None
    beside: Beside | None = None
    beside_counts: Array | None = None


RECORDS = (FoldedModel, Beside, Folded, Bumps, Waves, Scaling, Ranks, Tracker)


def encode(model: PredictOnly) -> tuple[Any, dict[str, Array]]:
    """A JSON value and the arrays that it names."""
    counts, beside = getattr(model, "counts_", None), getattr(model, "beside_", None)
    about = model.tracker_, model.spread_, model.relevance_, model.rows_, model.remembers_
    parts = tuple(_compact(part) for part in model.folded_)
    record = FoldedModel(parts, *about, None if counts is None else trim(counts))
    if beside is not None:
        record = replace(record, beside=beside[0], beside_counts=trim(beside[1]))
    return codec.encode(record)


def resume(model: PredictOnly, meta: Any, arrays: Mapping[str, Array]) -> None:
    """Set what was encoded; KeyError, TypeError or ValueError where that cannot be."""
    found = codec.decode(meta, arrays, RECORDS)
    if not isinstance(found, FoldedModel) or not found.parts:
        raise ValueError("there is nothing in it that predicts")
    m, d = _shape_of(found.parts[0])
    model.folded_ = tuple(_complete(part) for part in found.parts)
    for part in model.folded_:
        _check_part(part, m, d)
    L = len(found.tracker.levels)
    for name, shape in (("levels", (L,)), ("width", (m, L)), ("energy", (m, L))):
        fits(name, getattr(found.tracker, name), shape)
    fits("spread", found.spread, (m,))
    fits("relevance", found.relevance, (d,))
    if found.counts is not None:
        model.counts_ = untrim(found.counts, m)
    if found.beside is not None and found.beside_counts is not None:
        check_beside(found.beside, d, m)
        model.beside_ = found.beside, untrim(found.beside_counts, m)
    model.rows_, model.remembers_ = whole("rows", found.rows), found.remembers
    model.tracker_, model.spread_, model.relevance_ = found.tracker, found.spread, found.relevance
    model.n_features_in_ = d


def _compact(part: Part) -> Part:
    """Without what is added to distances where that is nothing."""
    if isinstance(part, Waves):
        return part
    bumps = (b if b.apart.any() else replace(b, apart=np.zeros(0)) for b in part.bumps)
    return replace(part, bumps=tuple(bumps))


def _complete(part: Part) -> Part:
    if isinstance(part, Waves):
        return part
    bumps = (b if len(b.apart) else replace(b, apart=np.zeros(len(b.centres))) for b in part.bumps)
    return replace(part, bumps=tuple(bumps))


def _shape_of(part: Part) -> tuple[int, int]:
    """Outputs and inputs."""
    if isinstance(part, Waves):
        return len(part.constant), len(part.omega)
    return len(part.base), len(part.inputs.centre)


def _check_part(part: Part, m: int, d: int) -> None:
    """Refuse a part that is not of d inputs and m outputs."""
    if isinstance(part, Waves):
        F = part.omega.shape[-1]
        fits("omega", part.omega, (d, F))
        fits("theta", part.theta, (m, F if part.phases is not None else 2 * F))
        fits("constant", part.constant, (m,))
        real("scale", part.scale)
        if part.phases is not None:
            fits("phases", part.phases, (F,))
        return
    check_scaling(part.inputs, d)
    check_scaling(part.targets, m)
    check_extent(part.extent, d)
    fits("base", part.base, (m,))
    fits("slope", part.slope, (m, d))
    for bumps in part.bumps:
        M = len(bumps.centres)
        shapes = {"lengths": (d,), "centres": (M, d), "heights": (m, M), "apart": (M,)}
        shapes |= {} if bumps.slope is None else {"slope": (m, d)}
        for name, shape in shapes.items():
            fits(name, getattr(bumps, name), shape)
        if bumps.kernel not in KERNELS:
            raise ValueError(f"{bumps.kernel!r} is no kernel")
        if bumps.ranked is not (bumps.slope is not None) or (bumps.ranked and part.ranks is None):
            raise ValueError("a map counts by ranks, and there are none")
    if part.ranks is not None:
        checked_ranks(part.ranks, d)
