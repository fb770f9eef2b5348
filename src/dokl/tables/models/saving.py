"""Saving what predicts to data files and loading it; docs/format.md specifies what is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from dokl.base.arrays import Array
from dokl.base.errors import BadFile, BadInput, FingerprintMismatch
from dokl.base.files import PathLike, whole
from dokl.estimators import loading, saving
from dokl.learning.columns import Preprocessor
from dokl.tables.models.scores import Coverage, finite, restored
from dokl.tables.models.series import Series
from dokl.tables.models.table import TableModel

# Any of these in a file's `extra` tells that it is the file of a TableModel.
KEYS = {"target", "node", "preprocessing", "fingerprint"}


def save(model: Any, path: PathLike) -> Path:
    """Write a fitted estimator, or a `TableModel`, to a file; an earlier file is replaced.

    Whole or not at all. Kernels, losses and schedules of your own are Python code: the file has
    their names, and `load` takes them back by name.
    """
    if not isinstance(model, TableModel):
        return saving.save(model, path)
    return saving.save(model.estimator, path, _extra(model) if model.started else None)


def load(path: PathLike, objects: loading.Objects = None) -> Any:
    """The model saved in a file, ready to predict and to go on learning as if never saved.

    That is a `TableModel`, which predicts raw rows, where `dokl train`, `dokl agent export` or
    `TableModel.save` wrote the file, and the estimator where that was saved by itself.

    objects: {name: object} for kernels, losses and schedules of your own. A `graph` given as a
    matrix comes back as the sparse matrix of weights, a networkx graph without its attributes, a
    `random_state` that was a generator as the seed that was drawn from it.
    """
    estimator, extra = loading.load_with_extra(path, objects)
    if not KEYS & set(extra[0]):
        return estimator
    try:
        return _table_model(estimator, extra)
    except FingerprintMismatch as error:
        raise BadFile(f"{path}: {error}") from None
    except (BadInput, *loading.DAMAGE) as error:
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


def _table_model(estimator: Any, extra: saving.Extra) -> TableModel:
    meta, arrays = extra
    packed = meta.get("preprocessing")
    prepared = None if packed is None else Preprocessor.from_spec(packed, arrays)
    for name in (meta["target"], meta["node"]):
        if not isinstance(name, str | None):
            raise BadInput(f"{name!r} is no name of a column")
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
