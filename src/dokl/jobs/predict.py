"""`dokl predict` and `dokl evaluate`: a saved model on new rows, streaming."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from dokl.arrays import Array
from dokl.errors import BadInput, listed
from dokl.jobs.sources import Source
from dokl.jobs.tables import check_labels, check_nodes, targets, wanted
from dokl.models import TableModel
from dokl.models.learning import answers
from dokl.models.scores import Score, make_score
from dokl.readers import Chunk, Reader

Watch = Callable[[Reader, int], None]
MORE = {"proba": "predict_proba", "scores": "decision_function"}


def predictions(
    model: TableModel,
    source: Source,
    keep: tuple[str, ...] = (),
    more: str | None = None,
    by_node: bool = False,
    watch: Watch | None = None,
) -> Iterator[dict[str, Array]]:
    """Result columns chunk by chunk, as rows arrive; `keep` copies columns of the input.

    more: "proba" or "scores", for each class besides. by_node: by the vector of each row's own
    node, where a network's mean vector would predict.
    """
    _check(model, by_node, more)
    rows = 0
    with source.open(wanted(model, *keep, target=False, node=by_node), live=True) as reader:
        for chunk in reader:
            missing = [name for name in keep if name not in chunk.columns]
            if missing:
                there = listed(chunk.names) or "none: LIBSVM rows have no names"
                raise BadInput(f"--keep: no column {missing[0]!r}; there are {there}")
            kept = {name: _copied(chunk.columns[name]) for name in keep}
            yield kept | predicted_columns(model, chunk, more, by_node, reader.name)
            rows += chunk.n
            if watch is not None:
                watch(reader, rows)


def _copied(values: Array) -> Array:
    """A column of the input as texts, numbers with all their digits."""
    if values.dtype.kind != "f":
        return values
    texts = (None if v != v else repr(v).removesuffix(".0") for v in values.tolist())
    return np.fromiter(texts, object, len(values))


def _check(model: TableModel, by_node: bool, more: str | None = None) -> None:
    """Whether the model can do what is asked for."""
    if not hasattr(model.estimator, "predict"):
        raise BadInput(f"a {type(model.estimator).__name__} does not predict")
    if by_node and model.node is None:
        raise BadInput("--by-node is for networks trained with --nodes; this model is none")
    if more is not None and not model.classifying:
        raise BadInput(f"--{more} is for classifiers; this model is a regression")
    if more == "proba" and not hasattr(model.estimator, "predict_proba"):
        raise BadInput("--proba needs a model trained with --loss logistic; --scores works always")


def predicted_columns(
    model: TableModel, chunk: Chunk, more: str | None, by_node: bool, name: str
) -> dict[str, Array]:
    """Columns of results for a chunk: `prediction`, then probabilities or scores if asked."""
    nodes = check_nodes(model, chunk, np.ones(chunk.n, bool), name) if by_node else None
    methods = ["predict", *([] if more is None else [MORE[more]])]
    predicted, *others = answers(model, chunk, *methods, nodes=nodes)
    columns = {"prediction": predicted}
    if predicted.ndim == 2:
        columns = {f"prediction {i + 1}": output for i, output in enumerate(predicted.T)}
    if more is None:
        return columns
    values = others[0]
    if values.ndim == 1:
        return {**columns, "score": values}
    kind = "probability" if more == "proba" else "score"
    return columns | {f"{kind} {label}": values[:, i] for i, label in enumerate(model.labels or ())}


def digits(model: TableModel) -> int:
    """Digits of a prediction that mean something."""
    return 9 if np.dtype(model.estimator.dtype_) == np.float32 else 17


def evaluate(
    model: TableModel, source: Source, by_node: bool = False, watch: Watch | None = None
) -> Score:
    """Score a model on rows with targets; nothing is learned."""
    _check(model, by_node)
    score, rows = make_score(model.classifying), 0
    with source.open(wanted(model, target=True, node=by_node)) as reader:
        for chunk in reader:
            _add(score, model, chunk, by_node, reader.name)
            rows += chunk.n
            if watch is not None:
                watch(reader, rows)
    if not score.n:
        raise BadInput(f"{source.path}: no row has a target to compare with")
    return score


def _add(score: Score, model: TableModel, chunk: Chunk, by_node: bool, name: str) -> None:
    y, keep = targets(model, chunk)
    if not len(y):
        return
    if model.classifying:
        check_labels(model, chunk, y, keep, name)
    nodes = check_nodes(model, chunk, keep, name) if by_node else None
    score.add(y, *answers(model, chunk, "predict", nodes=nodes, keep=keep))
