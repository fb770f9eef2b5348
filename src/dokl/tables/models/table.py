"""`TableModel`: an estimator with all that turns the rows of a table into its inputs, and its file.

docs/format.md specifies what is written.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np

from dokl.base.arrays import Array
from dokl.base.errors import BadFile, BadInput, FingerprintMismatch
from dokl.base.files import PathLike, whole
from dokl.base.fingerprints import agreed_fingerprint
from dokl.estimators import folded, saving
from dokl.estimators.inputs import has_gaps
from dokl.estimators.late import LateTargets, checked_keys
from dokl.estimators.learner import AvailableOrTold
from dokl.estimators.old_files import OldNetwork
from dokl.learning.columns import Preprocessor
from dokl.tables.models.rows import (
    answers,
    chunk_for,
    inputs_for,
    late_targets,
    learn,
    nodes_for,
    remember,
    targets_for,
)
from dokl.tables.models.scores import Coverage, Score, finite, restored, whole_label
from dokl.tables.models.series import Series, raw_columns, with_target

Method = TypeVar("Method", bound=Callable[..., Any])


def _where_there_is(name: str) -> Callable[[Method], Method]:
    """A method that is there where the estimator has it."""

    def decorate(method: Method) -> Method:
        made: Any = AvailableOrTold(method, lambda self: getattr(self.estimator, name))
        return made  # type: ignore[no-any-return]

    return decorate


@dataclass(eq=False)
class TableModel:
    """What predicts the rows of a table: columns in, predictions out.

    It holds an estimator and how raw rows become its inputs: which columns, in which order, the
    levels of texts, what stands for missing values, and the scaling. `dokl train` and `dokl agent
    export` write its files, `dokl.load` reads them. `rows` may come as

    - a data frame (pandas, or what behaves like it),
    - a dict of columns, {name: values},
    - a list of dicts, one for each row; a key that only some of them have is a missing value,
    - an array (rows, columns), or lists, with the columns in the order of `columns`.

    Other columns do not matter; one that is missing is an error that names it. A missing number
    (None, NaN, "", "NA") stands at the mean of its column, a text of no known level at none.

    estimator: what learns and predicts. preprocessor: None if rows are taken as they are (LIBSVM
    files; estimators saved by themselves). target: the column to predict, if it has a name. node:
    the column that names the node of each row. rows_read: so far; rows_skipped:
    those without a target, or without a node. tally: the prequential error of all rows so far.
    coverage: how often 90 % intervals held the target before it was learned, where there are any.
    series: lags and the horizon, with the rows that they remember; see `remember`.

    >>> import tempfile
    >>> import dokl
    >>> first = {"place": np.array(["roof", "yard"] * 500, object), "temp": np.arange(1000) % 7.0}
    >>> prepared = dokl.preprocess.Preprocessor.plan(first, standardise="fixed")
    >>> model = TableModel(dokl.KernelRegressor(random_state=0), prepared, "ozone")
    >>> model = model.partial_fit(first, np.tile([3.0, 1.0], 500))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = model.save(folder + "/ozone.dokl")
    ...     loaded = dokl.load(path)
    >>> loaded.predict([{"temp": 4, "place": "roof"}, {"temp": None, "place": "yard"}]).round(1)
    array([3., 1.])
    """

    estimator: Any
    preprocessor: Preprocessor | None = field(default=None, repr=False)
    target: str | None = None
    node: str | None = None
    rows_read: int = field(default=0, repr=False)
    rows_skipped: int = field(default=0, repr=False)
    tally: Score | None = field(default=None, repr=False)
    coverage: Coverage | None = field(default=None, repr=False)
    series: Series | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.preprocessor is not None and hasattr(self.estimator, "_raw"):
            self.estimator._raw = False  # what it gets are inputs already

    @classmethod
    def of(cls, estimator: Any) -> TableModel:
        """The table model of an estimator: of one that has learned from raw columns (texts, times,
        gaps) they are those of the table, any other takes its rows as they are.
        """
        prepared = getattr(estimator, "preprocessor_", None)
        if prepared is None or (prepared.numbers_only and not has_gaps(estimator)):
            return cls(estimator)
        inner = copy.copy(estimator)
        for name in ("preprocessor_", "feature_names_in_"):
            vars(inner).pop(name, None)
        inner.n_features_in_ = prepared.d
        return cls(inner, prepared.copied())

    # -- what it is --------------------------------------------------------------------------
    @property
    def columns(self) -> tuple[str, ...] | None:
        """The input columns, in the order that arrays have; None where they have no names."""
        if self.preprocessor is not None:
            return raw_columns(self)
        names = getattr(self.estimator, "feature_names_in_", None)
        return None if names is None else tuple(names)

    @property
    def classes_(self) -> Array:
        """The labels, sorted; regressions have none."""
        return np.asarray(self.estimator.classes_)

    @property
    def classifying(self) -> bool:
        """Whether targets are labels."""
        return bool(getattr(self.estimator, "_classifying", False))

    @property
    def started(self) -> bool:
        """Whether anything was learned."""
        return any(
            hasattr(self.estimator, name) for name in ("state_", "network_", "bank_", "folded_")
        )

    @property
    def has_intervals(self) -> bool:
        """Whether it predicts an interval of the target."""
        old = isinstance(getattr(self.estimator, "network_", None), OldNetwork)
        return hasattr(self.estimator, "predict_interval") and not old

    @property
    def knows_distances(self) -> bool:
        """Whether its intervals are wider the further a row lies beyond the last learned one."""
        return self.has_intervals and not hasattr(self.estimator, "nodes_")

    @property
    def labels(self) -> list[Any] | None:
        """The classes as they are shown, None in a regression."""
        if not self.classifying:
            return None
        return [whole_label(label) for label in self.estimator.classes_.tolist()]

    @property
    def fingerprint_(self) -> str:
        """What vectors of this model may be averaged with; fixed standardisation is part of it."""
        features = str(self.estimator.fingerprint_)
        if self.preprocessor is None or not self.preprocessor.frozen:
            return features
        return agreed_fingerprint(features, preprocessing=self.preprocessor.agreed())

    # -- predicting --------------------------------------------------------------------------
    def predict(
        self,
        rows: object,
        nodes: object = None,
        return_std: bool = False,
        keys: object = None,
        steps_ahead: object = None,
    ) -> Any:
        """Predictions (n,): numbers, or labels.

        nodes: of a network, whose vector predicts: a name, or one for each row; else the mean.
        return_std: also their standard deviations, which regressions without settings know.
        keys: a name for each row, by which `learn` finds it when its target is known. steps_ahead:
        of a model that stays as it is, how many rows beyond the last learned one these lie, a
        number or one for each.
        """
        how: dict[str, Any] = {"return_std": True} if return_std else {}
        if keys is not None:
            self._check_late()
            how["keys"] = keys
        how |= self._distances(steps_ahead)
        if return_std and not self.has_intervals:
            raise BadInput(f"a {type(self.estimator).__name__} has no standard deviations")
        (found,) = answers(self, chunk_for(self, rows), "predict", nodes=nodes, **how)
        return tuple(found) if return_std else found

    @_where_there_is("predict_interval")
    def predict_interval(
        self, rows: Any, coverage: float = 0.9, nodes: Any = None, steps_ahead: Any = None
    ) -> tuple[Array, Array]:
        """Lower and upper ends (n,) that hold the target in this share of rows; nodes: of a
        network, whose: a name, or one for each row; steps_ahead: of a model of one place, how many
        rows beyond the last learned one these lie, a number or one for each, None where unknown.
        """
        chunk, how = chunk_for(self, rows), {"coverage": coverage, "nodes": nodes}
        how |= self._distances(steps_ahead)
        lower, upper = answers(self, chunk, "predict_interval", **how)[0]
        return lower, upper

    def _distances(self, steps_ahead: object) -> dict[str, Any]:
        if steps_ahead is None:
            return {}
        if not self.knows_distances:
            raise BadInput("steps_ahead is for regressions by --method bank in one place")
        return {"steps_ahead": steps_ahead}

    @_where_there_is("decision_function")
    def decision_function(self, rows: object, nodes: object = None) -> Array:
        """Scores: (n,) for two classes (positive: the second), else (n, classes)."""
        return answers(self, chunk_for(self, rows), "decision_function", nodes=nodes)[0]

    @_where_there_is("predict_proba")
    def predict_proba(self, rows: object, nodes: object = None) -> Array:
        """Probabilities (n, classes), with the logistic loss only."""
        return answers(self, chunk_for(self, rows), "predict_proba", nodes=nodes)[0]

    def score(self, rows: object, y: object = None, nodes: Any = None) -> float:
        """R^2, or the share of right labels; without y, the rows have the target's column.

        nodes: of a network, whose vector predicts: a name, or one for each row; else the mean.
        """
        from sklearn.metrics import accuracy_score, r2_score

        chunk = chunk_for(self, rows, target=y is None)
        y, keep = targets_for(self, chunk, y)
        chunk = with_target(self, chunk, y, keep)
        if hasattr(nodes, "__len__") and not isinstance(nodes, str) and len(nodes) == chunk.n:
            nodes = [name for name, kept in zip(nodes, keep, strict=True) if kept]
        (predicted,) = answers(self, chunk, "predict", keep=keep, nodes=nodes, due=True)
        return float((accuracy_score if self.classifying else r2_score)(y, predicted))

    def inputs(self, rows: object) -> Any:
        """X (n, d), what the estimator gets for these rows."""
        return inputs_for(self, chunk_for(self, rows))

    # -- learning ----------------------------------------------------------------------------
    def partial_fit(
        self, rows: object, y: object = None, *, nodes: object = None, classes: object = None
    ) -> Self:
        """Learn from these rows, in this order, once, and let the scaling go along.

        y: targets, without which the rows have the target's column; nodes: the node of each row of
        a network, likewise. A row without a target, or without a node, is passed over. classes:
        all labels there will be, on the first call. A call that fails changes nothing.
        """
        self.prequential(rows, y, nodes=nodes, classes=classes)
        return self

    def prequential(
        self, rows: object, y: object = None, *, nodes: Any = None, classes: object = None
    ) -> Array:
        """`partial_fit` that returns the prediction of each row from before learning it.

        NaN, or None among labels that are no floats, stands for rows that were passed over.
        """
        by_column = nodes is None and self.node is not None
        chunk = chunk_for(self, rows, target=y is None, node=by_column)
        y, keep = targets_for(self, chunk, y)
        if by_column:
            nodes = nodes_for(self, chunk, keep)
        elif hasattr(nodes, "__len__") and len(nodes) == chunk.n and not isinstance(nodes, str):
            nodes = [name for name, kept in zip(nodes, keep, strict=True) if kept]
        predicted = learn(self, chunk, y, keep, nodes, classes)
        if keep.all():
            return predicted
        floats = predicted.dtype.kind == "f"
        out = np.full((len(keep), *predicted.shape[1:]), np.nan if floats else None)
        out[keep] = predicted
        return out

    def learn(self, keys: object, y: object) -> LateTargets:
        """Learn the rows that were predicted under these keys, now that their targets are known.

        The scaling and the prequential error do not go along with these rows.
        """
        self._check_late()
        names = checked_keys(keys)
        y = late_targets(self, y, len(names))
        found: LateTargets = self.estimator.learn(names, y)
        self.rows_read += found.learned
        return found

    def _check_late(self) -> None:
        if not hasattr(self.estimator, "learn"):
            raise BadInput(
                f"a {type(self.estimator).__name__} cannot learn targets that come later: models "
                "without settings can (AutoRegressor, AutoClassifier, networks of them)"
            )
        if self.series is not None and self.series.horizon:
            raise BadInput(
                "a model with a horizon joins rows with their later targets itself: give it rows "
                "in the order of time"
            )

    def remember(self, rows: object) -> Self:
        """Go on to the rows after these, which are not learned: lags look back at them.

        Rows that are predicted are not remembered by themselves: predict, then remember. Where
        times show that the rows do not follow those before, the past is forgotten.
        """
        remember(self, chunk_for(self, rows))
        return self

    def predict_only(self) -> TableModel:
        """A copy that predicts as this one does now, made small; it does not learn.

        For models of experts; those of gradients are as small as they get.
        """
        small = copy.deepcopy(replace(self, estimator=None))
        small.estimator = folded(self.estimator)
        return small

    # -- to look at --------------------------------------------------------------------------
    def plot(self) -> Any:
        """A Matplotlib figure of what was learned: relevance of inputs, and the experts."""
        from dokl.tables.models.pictures import figure_of

        return figure_of(self)

    def _repr_html_(self) -> str:
        from dokl.tables.models.pictures import page_of

        return page_of(self)

    # -- files -------------------------------------------------------------------------------
    def save(self, path: PathLike) -> Path:
        """Write everything into one file, whole or not at all; `dokl.load` reads it back."""
        return save(self, path)

    @classmethod
    def load(cls, path: PathLike) -> TableModel:
        """Read a model file; an estimator that was saved by itself takes columns as they are."""
        loaded = load(path)
        return loaded if isinstance(loaded, TableModel) else cls.of(loaded)


# -- files ----------------------------------------------------------------------------------------
# Any of these in a file's `extra` shows that it is the file of a TableModel.
KEYS = {"target", "node", "preprocessing", "fingerprint"}


def save(model: object, path: PathLike, exact: bool = False) -> Path:
    """Write a fitted estimator, or a `TableModel`, to a file; an earlier file is replaced.

    Whole or not at all. Kernels, losses and schedules of your own are Python code: the file has
    their names, and `load` takes them back by name.

    A loaded model predicts what the saved one does. Models without settings continue to single
    precision, in which their files hold covariances; with `exact`, which takes twice as much room,
    they continue with the same bits. Others always do.
    """
    if not isinstance(model, TableModel):
        return saving.save(model, path, exact=exact)
    return saving.save(model.estimator, path, _extra(model) if model.started else None, exact)


def load(path: PathLike, objects: saving.Objects = None) -> Any:
    """The model saved in a file, ready to predict and to go on learning.

    That is a `TableModel`, which predicts raw rows, where `dokl train`, `dokl agent export` or
    `TableModel.save` wrote the file, and the estimator where that was saved by itself.

    objects: {name: object} for kernels, losses and schedules of your own. A `graph` given as a
    matrix comes back as the sparse matrix of weights, a networkx graph without its attributes, a
    `random_state` that was a generator as the seed that was drawn from it.
    """
    estimator, extra = saving.load_with_extra(path, objects)
    if not KEYS & set(extra[0]):
        return estimator
    try:
        return _table_model(estimator, extra)
    except FingerprintMismatch as error:
        raise BadFile(f"{path}: {error}") from None
    except (BadInput, *saving.DAMAGE) as error:
        raise BadFile(f"{path}: the file is damaged ({error})") from None


def _extra(model: TableModel) -> saving.Extra:
    """What belongs to the model beside its estimator: a part for JSON, and arrays."""
    meta: dict[str, Any] = {"target": model.target, "node": model.node}
    meta["fingerprint"] = model.fingerprint_
    # Counts are arrays: as JSON they would grow a digit now and then, and the file with them.
    arrays: dict[str, Array] = {"rows": np.array([model.rows_read, model.rows_skipped], np.int64)}
    if model.tally is not None:
        arrays["score"] = model.tally.sums(model.labels or ())
    if model.coverage is not None:
        arrays["coverage"] = model.coverage.sums()
    if model.preprocessor is None:
        return meta, arrays
    packed, moments = model.preprocessor.spec()
    meta, arrays = meta | {"preprocessing": packed}, arrays | moments
    if model.series is not None:
        meta["series"], remembered = model.series.spec()
        arrays |= remembered
    return meta, arrays


def _table_model(estimator: object, extra: saving.Extra) -> TableModel:
    meta, arrays = extra
    packed = meta.get("preprocessing")
    prepared = None if packed is None else Preprocessor.from_spec(packed, arrays)
    for name in (meta["target"], meta["node"]):
        if not isinstance(name, str | None):
            raise BadInput(f"{name!r} is not the name of a column")
    rows, skipped = (whole("rows", count) for count in arrays["rows"])
    model = TableModel(estimator, prepared, meta["target"], meta["node"], rows, skipped)
    if "score" in arrays:
        model.tally = restored(arrays["score"], model.labels)
    if "coverage" in arrays:
        model.coverage = Coverage.of(finite(arrays["coverage"]))
    if "series" in meta and prepared is not None:
        model.series = Series.from_spec(meta["series"], arrays, prepared.d)
    if model.fingerprint_ != meta["fingerprint"]:
        ours, theirs = model.fingerprint_, meta["fingerprint"]
        raise FingerprintMismatch("the saved preprocessing", ours, theirs)
    return model
