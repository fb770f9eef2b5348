"""What a `TableModel` takes of a table: the columns, the inputs, the targets and the nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils import get_tags

from dokl.base.arrays import Array, is_sparse, limited
from dokl.base.errors import BadInput, listed
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
from dokl.tables.models.series import optional_columns
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
    told = () if model.preprocessor is None else model.preprocessor.missing
    return told or MISSING


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
