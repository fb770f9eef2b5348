"""A `TableModel` at work on a chunk: learning from it, and answering."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from dokl.base.arrays import Array
from dokl.estimators.learner import all_or_nothing
from dokl.learning.columns import Preprocessor
from dokl.tables.models.columns import inputs_for, kept
from dokl.tables.models.scores import Coverage, make_score
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
    with _or_as_before(model.preprocessor, model.estimator), _as_named(model.estimator):
        X = kept(inputs_for(model, chunk, learn=True), keep)
        if len(y):
            told = model.estimator.prequential(X, y, **given)
            predicted, *ends = (told,) if level is None else told
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
    **how: Any,
) -> list[Array]:
    """What these methods of the estimator say; keep: (n,), of these rows only.

    how: arguments of the methods. One that says several things, (n,) each, gives a row for each.
    """
    X, given = inputs_for(model, chunk), how if nodes is None else {"nodes": nodes, **how}
    X = X if keep is None else kept(X, keep)
    with _as_named(model.estimator):
        return [np.asarray(getattr(model.estimator, name)(X, **given)) for name in methods]


@contextmanager
def _or_as_before(prepared: Preprocessor | None, estimator: Any) -> Iterator[None]:
    """What fails inside leaves the estimator and the scaling as they were."""
    if prepared is None:
        with all_or_nothing(estimator):
            yield
        return
    named = {name: dict(levels) for name, levels in prepared.new_levels.items()}
    before = copy.copy(prepared.moments), dict(prepared.unseen), named
    try:
        with all_or_nothing(estimator):
            yield
    except BaseException:
        prepared.moments, prepared.unseen, prepared.new_levels = before
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
