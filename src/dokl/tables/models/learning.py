"""A `TableModel` at work on a chunk: learning from it, and answering."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dokl.base.arrays import Array
from dokl.estimators.learner import all_or_nothing
from dokl.tables.models.columns import inputs_for, kept
from dokl.tables.models.scores import LEVEL, Coverage, make_score
from dokl.tables.models.series import MORE, Series, with_target
from dokl.tables.readers import Chunk

if TYPE_CHECKING:
    from dokl.tables.models.table import TableModel


def learn(
    model: TableModel,
    chunk: Chunk,
    y: Array,
    keep: Array,
    nodes: Any = None,
    classes: Any = None,
    settled: Callable[[], None] = lambda: None,
) -> Array:
    """Learn the rows to keep, and return what was predicted for each of them just before.

    y, keep: as `targets_for` gives them; nodes: of the rows kept. The scaling goes along with the
    other rows, too. settled: called once the rows are learned; what interrupts before leaves the
    model as it was, and after that only scores are left to count.
    """
    coverage = _coverage(model, y)
    level = None if coverage is None else coverage.level
    more = {"nodes": nodes, "classes": classes, "return_interval": level}
    given = {name: value for name, value in more.items() if value is not None}
    predicted, ends = y[:0], list[Array]()
    chunk = with_target(model, chunk, y, keep)
    with _or_as_before(model), _as_named(model.estimator):
        X, before = inputs_for(model, chunk, learn=True), None
        if model.series is not None and model.series.horizon:
            X, before = _due(model, chunk, X)
        X = kept(X, keep)
        if len(y):
            told = model.estimator.prequential(X, y, **given)
            predicted, *ends = (told,) if level is None else told
        if before is not None:
            predicted, ends = _said_before(model, kept(before, keep), predicted, ends)
        settled()
    if len(y) and y.ndim == 1:
        model.tally = make_score(model.classifying) if model.tally is None else model.tally
        model.tally.add(y, predicted)
    if coverage is not None and ends:
        coverage.add(y, *ends)
        model.coverage = coverage
    model.rows_read += chunk.n
    model.rows_skipped += chunk.n - len(y)
    return predicted


def _due(model: TableModel, chunk: Chunk, X: Array) -> tuple[Array, Array]:
    """The inputs whose target comes with these rows (n, d), and what was predicted for them when
    they came (n, 3); the rows' own, X (n, d), wait from now on.
    """
    assert model.series is not None
    said = np.full((len(X), MORE), np.nan)
    if model.started and len(X):
        found = model.estimator.predict(X)
        number = np.searchsorted(model.classes_, found) if model.classifying else found
        said[:, 0] = number
        if model.has_intervals:
            how = {"steps_ahead": 1} if model.knows_distances else {}
            said[:, 1:] = np.transpose(model.estimator.predict_interval(X, coverage=LEVEL, **how))
    X, before, waiting = model.series.due(chunk.columns, X, said)
    model.series = replace(model.series, waiting=waiting)
    return X, before


def _said_before(
    model: TableModel, before: Array, predicted: Array, ends: list[Array]
) -> tuple[Array, list[Array]]:
    """What was predicted a horizon before, (n,), and its ends; of the first rows, before there was
    a model, what was predicted just before learning.
    """
    known = ~np.isnan(before[:, 0])
    if not known.any():
        return predicted, ends
    said = before[:, 0]
    if model.classifying:
        said = model.classes_[np.where(known, said, 0).astype(int)]
    predicted = np.where(known, said, predicted)
    return predicted, [np.where(known, v, e) for v, e in zip(before.T[1:], ends, strict=False)]


def remember(model: TableModel, chunk: Chunk) -> None:
    """Go on to the rows after these, which are not learned."""
    if model.series is None:
        return
    series = model.series.before(chunk.columns)
    series.lags.check(chunk.columns)
    made, lags = series.lags.extend(chunk.columns)
    waiting = series.waiting
    if series.horizon and model.preprocessor is not None:
        X = model.preprocessor.transform({**chunk.columns, **made})
        waiting = series.due(chunk.columns, X, np.full((len(X), MORE), np.nan))[2]
    model.series = Series(lags, series.horizon, waiting)


def _coverage(model: TableModel, y: Array) -> Coverage | None:
    """Where intervals are counted that stood before a row was learned; None without any."""
    if not model.has_intervals or y.ndim != 1:
        return None
    return Coverage() if model.coverage is None else model.coverage


def answers(
    model: TableModel,
    chunk: Chunk,
    *methods: str,
    nodes: Any = None,
    keep: Array | None = None,
    due: bool = False,
    **how: Any,
) -> list[Array]:
    """What these methods of the estimator say; keep: (n,), of these rows only. due: of a model with
    a horizon, what it says of the inputs whose target comes with these rows.

    how: arguments of the methods. One that says several things, (n,) each, gives a row for each.
    """
    X, given = inputs_for(model, chunk), how if nodes is None else {"nodes": nodes, **how}
    if due and model.series is not None and model.series.horizon:
        series = model.series.before(chunk.columns)
        X = series.due(chunk.columns, X, np.full((len(X), MORE), np.nan))[0]
    X = X if keep is None else kept(X, keep)
    with _as_named(model.estimator):
        return [np.asarray(getattr(model.estimator, name)(X, **given)) for name in methods]


@contextmanager
def _or_as_before(model: TableModel) -> Iterator[None]:
    """What fails inside leaves the estimator, the scaling and the memory as they were."""
    prepared, series, estimator = model.preprocessor, model.series, model.estimator
    if prepared is None:
        with all_or_nothing(estimator):
            yield
        return
    before, groups = prepared.copied(), len(prepared.group_levels)
    try:
        with all_or_nothing(estimator):
            yield
    except BaseException:
        vars(prepared).update(vars(before))
        prepared.forget_groups(groups)
        model.series = series
        raise


@contextmanager
def _as_named(estimator: Any) -> Iterator[None]:
    """Columns are put in order by name, so scikit-learn need not warn that X has no names."""
    if not hasattr(estimator, "feature_names_in_"):
        yield
        return
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        yield
