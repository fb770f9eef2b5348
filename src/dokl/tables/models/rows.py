"""A `TableModel` and the rows of a table: what it takes of them, learning them, and answering."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils import get_tags

from dokl.base.arrays import Array, is_sparse, limited
from dokl.base.errors import BadInput, listed
from dokl.estimators.auto import Auto
from dokl.estimators.inputs import all_or_nothing
from dokl.learning.cells.frames import (
    Kind,
    array_of,
    by_name,
    column,
    is_unnamed,
    length_of,
    taken,
)
from dokl.learning.columns import class_target, is_text, numeric_target, require
from dokl.tables.models.scores import LEVEL, Coverage, make_score
from dokl.tables.models.series import MORE, Series, optional_columns, with_target
from dokl.tables.readers import MISSING, Chunk, Form

if TYPE_CHECKING:
    from dokl.tables.models.table import TableModel


# -- rows --------------------------------------------------------------------------------------
def kinds(model: TableModel, target: bool = False, node: bool = False) -> dict[str, Kind]:
    """The columns to read: the levels of those that hold text, None for numbers."""
    levels = {} if model.preprocessor is None else model.preprocessor.levels
    written = forms(model)
    found: dict[str, Kind] = {
        name: written.get(name, levels.get(name)) for name in model.columns or ()
    }
    by = None if model.series is None else model.series.plan.by
    if by is not None and by not in levels:
        found[by] = ()
    if model.preprocessor is not None and model.preprocessor.group is not None:
        found[model.preprocessor.group] = ()
    if target and model.target is not None:
        found[model.target] = written.get(model.target, _target_kind(model, None))
    if node and model.node is not None:
        found[model.node] = ()
    return found


def forms(model: TableModel) -> dict[str, Form]:
    """How the cells of columns are written, of those that are neither plain numbers nor text."""
    packed = {} if model.preprocessor is None else model.preprocessor.forms
    return {name: Form.from_spec(spec) for name, spec in packed.items()}


def missing_spellings(model: TableModel) -> Sequence[str]:
    """What stands for a missing value."""
    spellings = () if model.preprocessor is None else model.preprocessor.missing
    return spellings or MISSING


def _target_kind(model: TableModel, cells: Any) -> Kind:
    """Of the labels there are; before there are any, of the first cells."""
    if not model.classifying:
        return None
    return () if is_text(model.classes_ if model.started else cells) else None


def chunk_for(model: TableModel, rows: Any, target: bool = False, node: bool = False) -> Chunk:
    """Raw rows as columns, those that are needed; a `Chunk` is taken as it is."""
    if isinstance(rows, Chunk):
        return rows
    rows = taken(rows)
    if model.preprocessor is None and is_unnamed(rows):
        return _matrix(rows)
    table, wanted = by_name(rows, model.columns or ()), kinds(model, target, node)
    wanted |= {name: forms(model).get(name) for name in optional_columns(model) if name in table}
    if model.columns is None:
        wanted |= {name: None for name in table if name not in (model.target, model.node)}
    if target and model.target is not None:
        if model.target not in table:
            raise BadInput(f"the target is needed: give y, or a column {model.target!r}")
        kind = _target_kind(model, table[model.target])
        wanted[model.target] = forms(model).get(model.target, kind)
    return _chunk_of(table, wanted, missing_spellings(model))


def _matrix(rows: Any) -> Chunk:
    """Rows without names as they are, for an estimator that takes them so."""
    X = rows if is_sparse(rows) else array_of(rows)
    if not is_sparse(X) and X.dtype.kind not in "biuf":
        X = np.column_stack([column(f"x{i + 1}", cells, None) for i, cells in enumerate(X.T)])
    return Chunk((), {}, range(1, 1 + X.shape[0]), X)


def _chunk_of(
    table: Mapping[str, Any], wanted: Mapping[str, Kind], missing: Sequence[str] = MISSING
) -> Chunk:
    """The wanted columns, which must be there, with cells that can be what the column holds."""
    for name in wanted:
        require(name, table, "was there in training and is missing now")
    columns = {name: column(name, table[name], kind, missing) for name, kind in wanted.items()}
    return Chunk(tuple(table), columns, range(1, 1 + length_of(table)))


# -- inputs ------------------------------------------------------------------------------------
def inputs_for(model: TableModel, chunk: Chunk, learn: bool = False) -> Any:
    """X (n, d), what the estimator gets for these rows; learn: the scaling goes along, and so do
    the rows that are remembered.
    """
    prepared = model.preprocessor
    if prepared is None:
        return _as_they_are(model, chunk) if chunk.X is None else _as_taken(model, chunk.X)
    if chunk.X is not None:
        raise BadInput(
            "these rows have no names, and the model was trained with columns "
            f"{listed(prepared.columns)}"
        )
    change = prepared.learn_transform if learn else prepared.transform
    if model.series is None:
        return change(chunk.columns)
    series = model.series if learn else model.series.before(chunk.columns)
    series.lags.check(chunk.columns)
    made, lags = series.lags.extend(chunk.columns)
    X = change({**chunk.columns, **made})
    if learn:
        model.series = replace(series, lags=lags)
    return X


def _as_taken(model: TableModel, X: Any) -> Any:
    """Sparse rows where the estimator takes them, else dense ones."""
    if not is_sparse(X) or get_tags(model.estimator).input_tags.sparse:
        return X
    return X.toarray()


def _as_they_are(model: TableModel, chunk: Chunk) -> Array:
    """Columns of numbers, for an estimator that was saved by itself."""
    known, d = model.columns, model.estimator.n_features_in_
    names = [name for name in chunk.names if name != model.target] if known is None else known
    missing = [name for name in names if name not in chunk.columns]
    if missing:
        raise BadInput(f"there is no column {missing[0]!r}; there are {listed(chunk.names)}")
    if len(names) != d:
        raise BadInput(
            f"the model takes {d} inputs and there are {len(names)} columns: {listed(names)}"
        )
    gaps = get_tags(model.estimator).input_tags.allow_nan
    for name in names:
        cells = chunk.columns[name]
        if cells.dtype.kind != "f" or (np.isnan(cells).any() and not gaps):
            raise BadInput(
                f"column {name!r} has text or missing values, and this model has no "
                "preprocessing: it was saved in Python"
            )
    return np.column_stack([chunk.columns[name] for name in names])


# -- targets and nodes -------------------------------------------------------------------------
def targets_for(
    model: TableModel, chunk: Chunk, y: Any = None, node: bool = True
) -> tuple[Array, Array]:
    """The targets there are, and which rows (n,) have one, and a node in a network.

    y: the targets of all rows, where they are not among the columns. node: whether rows need one.
    """
    if y is None and chunk.y is not None:
        return chunk.y if model.classifying else limited(chunk.y), np.ones(chunk.n, bool)
    if y is None and (model.target is None or model.target not in chunk.columns):
        there = f", or name one of {listed(chunk.names)}" if chunk.names else ""
        raise BadInput(f"the target is needed: give y{there}")
    found = chunk.columns[str(model.target)] if y is None else _given(model, y, chunk.n)
    if found.ndim == 2:
        keep = np.asarray(~np.isnan(found).any(axis=1))
    else:
        pick = class_target if model.classifying else numeric_target
        found, keep = pick(found, model.target or "y")
    if node and model.node is not None and model.node in chunk.columns:
        keep = keep & np.array([name is not None for name in chunk.columns[model.node]], bool)
    if model.series is not None:
        keep = keep & model.series.before(chunk.columns).learnable(chunk.columns, chunk.n)
    found = kept(found, keep)
    return found.astype(str) if found.dtype == object else found, keep


def _given(model: TableModel, y: Any, n: int) -> Array:
    """Targets that did not come with the rows: (n,), or (n, m) for several outputs."""
    if np.ndim(y) == 2 and not model.classifying:
        found = np.asarray(y, np.float64)
    else:
        cells = y if hasattr(y, "__len__") and not isinstance(y, str) else [y]
        kind = forms(model).get(model.target or "", _target_kind(model, y))
        found = column(model.target or "y", cells, kind, missing_spellings(model))
    if len(found) != n:
        raise BadInput(f"there are {n} rows and {len(found)} targets")
    return found


def late_targets(model: TableModel, y: Any, n: int) -> Array:
    """Targets that come for themselves, (n,), none of them missing."""
    found = _given(model, y, n)
    if found.ndim == 1:
        found, keep = (class_target if model.classifying else numeric_target)(found)
        if not keep.all():
            raise BadInput(f"the target of key {int(np.flatnonzero(~keep)[0]) + 1} is missing")
    return found.astype(str) if found.dtype == object else found


def nodes_for(model: TableModel, chunk: Chunk, keep: Array) -> list[str]:
    """The node of each row to keep, by the column that names it."""
    assert model.node is not None
    names: list[str] = chunk.columns[model.node][keep].tolist()
    return names


def kept(values: Any, keep: Array) -> Any:
    """The rows to keep; no copy where that is all of them."""
    return values if keep.all() else values[keep]


# -- learning and answering -----------------------------------------------------------------------
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
            given_back = model.estimator.prequential(X, y, **given)
            predicted, *ends = (given_back,) if level is None else given_back
        if before is not None:
            predicted, ends = _predicted_before(model, kept(before, keep), predicted, ends)
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


def finish(model: TableModel) -> bool:
    """After the last row of a training that began with this model: see `learn.fit_few`. Whether
    rows were few.
    """
    able = model.series is None and isinstance(model.estimator, Auto) and model.started
    return able and model.estimator._finish()


def _due(model: TableModel, chunk: Chunk, X: Array) -> tuple[Array, Array]:
    """The inputs whose target comes with these rows (n, d), and what was predicted for them when
    they came (n, 3); the rows' own, X (n, d), wait from now on.
    """
    assert model.series is not None
    predictions = np.full((len(X), MORE), np.nan)
    if model.started and len(X):
        how: dict[str, Any] = {} if model.node is None else {"nodes": chunk.columns[model.node]}
        found = model.estimator.predict(X, **how)
        number = np.searchsorted(model.classes_, found) if model.classifying else found
        predictions[:, 0] = number
        if model.has_intervals:
            how |= {"steps_ahead": 1} if model.knows_distances else {}
            predictions[:, 1:] = np.transpose(
                model.estimator.predict_interval(X, coverage=LEVEL, **how)
            )
    X, before, waiting = model.series.due(chunk.columns, X, predictions)
    model.series = replace(model.series, waiting=waiting)
    return X, before


def _predicted_before(
    model: TableModel, before: Array, predicted: Array, ends: list[Array]
) -> tuple[Array, list[Array]]:
    """What was predicted a horizon before, (n,), and its ends; of the first rows, before there was
    a model, what was predicted just before learning.
    """
    known = ~np.isnan(before[:, 0])
    if not known.any():
        return predicted, ends
    before_due = before[:, 0]
    if model.classifying:
        before_due = model.classes_[np.where(known, before_due, 0).astype(int)]
    predicted = np.where(known, before_due, predicted)
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
    """What these methods of the estimator return; keep: (n,), of these rows only. due: of a model
    with a horizon, what it says of the inputs whose target comes with these rows.

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
