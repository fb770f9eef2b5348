"""`dokl predict` and `dokl evaluate`: a saved model on new rows, streaming."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from dokl.arrays import Array
from dokl.errors import BadInput
from dokl.jobs.scores import Score, make_score
from dokl.jobs.tables import Model
from dokl.jobs.train import Source, check_labels
from dokl.readers import Chunk, Reader

OUTPUTS = ("csv", "jsonl")


def predicted_columns(model: Model, chunk: Chunk, more: str | None) -> dict[str, Array]:
    """Columns of results for a chunk: `prediction`, then probabilities or scores if asked."""
    X, estimator = model.inputs(chunk, learn=False), model.estimator
    columns = {"prediction": estimator.predict(X)}
    if columns["prediction"].ndim == 2:
        outputs = columns.pop("prediction").T
        columns = {f"prediction{i + 1}": output for i, output in enumerate(outputs)}
    if more is None:
        return columns
    if not model.classifying:
        raise BadInput(f"--{more} is for classifiers; this model is a regression")
    values = _proba(estimator, X) if more == "proba" else estimator.decision_function(X)
    if values.ndim == 1:
        return {**columns, "score": values}
    labels = estimator.classes_.tolist()
    return columns | {f"{more} {label}": values[:, i] for i, label in enumerate(labels)}


def _proba(estimator: Any, X: Any) -> Array:
    if not hasattr(estimator, "predict_proba"):
        raise BadInput("--proba needs a model trained with --loss logistic; --scores works always")
    return np.asarray(estimator.predict_proba(X))


def predictions(
    model: Model,
    source: Source,
    keep: tuple[str, ...] = (),
    more: str | None = None,
    watch: Callable[[Reader, int], None] | None = None,
) -> Iterator[dict[str, list[Any]]]:
    """Result columns chunk by chunk; `keep` copies columns of the input."""
    rows = 0
    with source.open() as reader:
        missing = [name for name in keep if name not in reader.names]
        if missing:
            raise BadInput(f"--keep: no column {missing[0]!r}; there are {', '.join(reader.names)}")
        for chunk in reader:
            kept = {name: _listed(chunk.columns[name]) for name in keep}
            made = predicted_columns(model, chunk, more)
            yield kept | {name: _listed(values) for name, values in made.items()}
            rows += chunk.n
            if watch is not None:
                watch(reader, rows)


def _listed(values: Array) -> list[Any]:
    """Plain values; float32's digits, no more, and None for what is missing."""
    if values.dtype.kind == "f":
        out: list[Any] = [float(f"{v:.8g}") for v in values.tolist()]
        return [None if v != v else v for v in out]
    return list(values.tolist())


def as_text(columns: dict[str, list[Any]], output: str, first: bool) -> str:
    """A chunk of results as CSV (with a header before the first) or JSON lines."""
    names, rows = list(columns), list(zip(*columns.values(), strict=True))
    if output == "jsonl":
        return "".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if first:
        writer.writerow(names)
    writer.writerows(rows)
    return text.getvalue()


def evaluate(
    model: Model, source: Source, watch: Callable[[Reader, int], None] | None = None
) -> Score:
    """Score a model on rows with targets; nothing is learned."""
    score, rows = make_score(model.classifying), 0
    with source.open() as reader:
        for chunk in reader:
            y, keep = model.targets(chunk)
            X = model.inputs(chunk, learn=False)
            y = y[keep]
            if model.classifying:
                check_labels(model, chunk, y, keep, reader.name)
            if len(y):
                score.add(y, model.estimator.predict(X if keep.all() else X[keep]))
            rows += chunk.n
            if watch is not None:
                watch(reader, rows)
    if not score.n:
        raise BadInput(f"{source.path}: no row has a target to compare with")
    return score
