"""A file that fits into memory as samples: X, y, and the node of each row if a column says so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dokl.base.arrays import Array
from dokl.base.errors import BadInput, listed
from dokl.learning.columns import Preprocessor, class_target, is_text, numeric_target
from dokl.simulation.streams import Stream
from dokl.tables.readers import Chunk, Options, open_table


@dataclass(frozen=True, eq=False)
class Rows:
    """X: (n, d) dense or CSR; y: (n,); node: (n,) names as objects, or None where none are told."""

    X: Any
    y: Array
    node: Array | None = None


def whole_file(
    path: Path,
    target: str | None,
    node: str | None = None,
    drop: Sequence[str] = (),
    two_classes: bool = False,
) -> Rows:
    """All rows that have a target (and a node), numbers standardised over the whole file.

    two_classes: the target has two labels, which become -1 and 1.
    """
    options = Options(drop=drop, text=() if node is None else (node,), quantity=target)
    with open_table(path, options) as reader:
        chunks = list(reader)
    if chunks[0].X is not None:
        from scipy.sparse import vstack

        y = np.concatenate([chunk.y for chunk in chunks if chunk.y is not None])
        return Rows(vstack([c.X for c in chunks]).tocsr(), signs(y) if two_classes else y)
    if target is None or target not in chunks[0].columns:
        wrong = "" if target is None else f"there is no column {target!r}; "
        names = listed(chunks[0].names)
        raise BadInput(f"{path}: {wrong}[data] target must be one of {names}")
    return _of_columns(_joined(chunks), target, node, two_classes, chunks[0].times)


def _of_columns(
    columns: dict[str, Array],
    target: str,
    node: str | None,
    two_classes: bool,
    times: Sequence[str] = (),
) -> Rows:
    given = [target] if node is None else [target, node]
    X = Preprocessor.plan(columns, given, "fixed", times=times).transform(columns)
    pick = class_target if two_classes else numeric_target
    y, keep = pick(columns[target], target)
    if node is not None:
        keep = keep & np.array([name is not None for name in columns[node]], bool)
    if not keep.any():
        raise BadInput(f"no row has the target {target!r}")
    y = signs(y[keep]) if two_classes else y[keep]
    return Rows(X[keep], y, None if node is None else columns[node][keep])


def _joined(chunks: list[Chunk]) -> dict[str, Array]:
    names = chunks[0].names
    return {name: np.concatenate([chunk.columns[name] for chunk in chunks]) for name in names}


def signs(y: Array) -> Array:
    """Two labels as -1 and 1, in their order.

    >>> signs(np.array(["spam", "ham"])).tolist()
    [1.0, -1.0]
    """
    labels = np.unique(y.astype(str) if is_text(y) else y)
    if len(labels) != 2:
        raise BadInput(
            f"this loss is for two classes, and there are {len(labels)}: {listed(labels)}"
        )
    return np.where(y == labels[1], 1.0, -1.0)


def stream_by_node(rows: Rows, nodes: Sequence[str], steps: int | None, passes: int) -> Stream:
    """Each node's rows in their order, a row a step; a node without more rows has no sample.

    nodes: their names, in the order of the network. passes: how often each node's rows come.
    """
    assert rows.node is not None
    number = {name: k for k, name in enumerate(nodes)}
    strange = sorted({name for name in rows.node.tolist() if name not in number})
    if strange:
        raise BadInput(f"{listed(strange)}: not in the network, whose nodes are {listed(nodes)}")
    owner = np.array([number[name] for name in rows.node.tolist()])
    mine = [np.tile(np.flatnonzero(owner == k)[:steps], passes) for k in range(len(nodes))]
    shape = max(map(len, mine)), len(nodes)
    X, y, weight = np.zeros((*shape, rows.X.shape[1])), np.zeros(shape), np.zeros(shape)
    for k, at in enumerate(mine):
        X[: len(at), k], y[: len(at), k], weight[: len(at), k] = rows.X[at], rows.y[at], 1.0
    return Stream(X, y, None if weight.all() else weight)
