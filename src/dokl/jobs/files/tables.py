"""A model on files: the columns that it wants of them, and what it refuses, with its line."""

from __future__ import annotations

from typing import Any

import numpy as np

from dokl.arrays import Array
from dokl.errors import BadInput, listed
from dokl.jobs.files.sources import Wanted
from dokl.models import TableModel
from dokl.models.columns import kinds, nodes_for, targets_for
from dokl.readers import Chunk

# Rows at a time where each takes long, so that there is something to see every second.
FEW_ROWS = 1024


def wanted(model: TableModel, *more: str, target: bool, node: bool) -> Wanted:
    """The columns to read: the inputs, `more` (as text), the target, the node."""
    chunk = FEW_ROWS if hasattr(model.estimator, "bank_") else None
    how: dict[str, Any] = {"chunk": chunk, "compiled": hasattr(model.estimator, "state_")}
    if model.preprocessor is None:
        return Wanted(n_features=getattr(model.estimator, "n_features_in_", None), **how)
    known = kinds(model, target, node)
    numeric = tuple(name for name, levels in known.items() if levels is None)
    text = [name for name in known if name not in numeric]
    text += [name for name in more if name not in known]
    return Wanted((*numeric, *text), tuple(text), numeric, trained=tuple(known), **how)


def targets(model: TableModel, chunk: Chunk) -> tuple[Array, Array]:
    """The targets there are, and which rows (n,) have one, and a node in a network."""
    if chunk.y is None and (model.target is None or model.target not in chunk.columns):
        known = "--target must be" if model.target is None else f"no {model.target!r} among"
        raise BadInput(f"the target is needed: {known} one of {listed(chunk.names)}")
    return targets_for(model, chunk)


def check_labels(model: TableModel, chunk: Chunk, y: Array, keep: Array, name: str) -> None:
    """A label never seen is an error that names its line; y: of the rows kept."""
    strange = ~np.isin(y, model.classes_)
    if strange.any():
        at = np.flatnonzero(keep)[np.flatnonzero(strange)[0]]
        label = y[strange].tolist()[0]
        numbers = "" if isinstance(label, str) else ", or say --task regression"
        raise BadInput(
            f"{name}, line {chunk.lines[at]}: label {label!r} was never seen; the classes are "
            f"{listed(model.labels or ())}. Name all of them with --classes when you start{numbers}"
        )


def check_nodes(model: TableModel, chunk: Chunk, keep: Array, name: str) -> list[str]:
    """The node of each row kept; one that is not in the network is an error with its line."""
    nodes, estimator = nodes_for(model, chunk, keep), model.estimator
    known = set(estimator.nodes_ if hasattr(estimator, "nodes_") else estimator.graph.nodes)
    for i, node in enumerate(nodes):
        if node not in known:
            at = np.flatnonzero(keep)[i]
            raise BadInput(
                f"{name}, line {chunk.lines[at]}, column {model.node!r}: node {node!r} is not in "
                f"the network, whose nodes are {listed(sorted(known))}"
            )
    return nodes


def notices(model: TableModel) -> list[str]:
    """What the user may not have meant."""
    prepared = model.preprocessor
    if prepared is None:
        return []
    return [
        f"column {name!r}: {count:,} texts are none of the levels that the first rows had "
        f"({listed(prepared.levels[name], 5) or 'none'}); they count as none of them. "
        f"--levels names all levels at the start"
        for name, count in prepared.unseen.items()
        if count
    ]
