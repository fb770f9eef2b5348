"""By whose knowledge a network predicts a row: its own node's, or all nodes' together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dokl.base.arrays import Array
from dokl.tables.jobs.sources import Source
from dokl.tables.jobs.tables import nodes_or_none, without_strange_nodes
from dokl.tables.models import TableModel
from dokl.tables.models.columns import nodes_for
from dokl.tables.models.learning import answers
from dokl.tables.readers import Chunk

Say = Callable[[str], None]
Nodes = list[str | None] | None
MOST_NAMES = 5


@dataclass
class Whose:
    """What was asked for, and what became of it.

    by_node: None is by each row's own node where rows name it. Then rows of nodes that the network
    does not have, or of none, are predicted together, and counted; where nodes were asked for, they
    are refused as wrong rows are. say: is told what nobody decided. names: of the first such nodes.
    """

    model: TableModel
    source: Source
    by_node: bool | None
    say: Say | None = None
    strangers: int = 0
    names: dict[str, None] = field(default_factory=dict)
    _own: bool | None = None

    def nodes(self, chunk: Chunk, keep: Array, name: str) -> tuple[Nodes, Array]:
        """The node of each row that is kept, None for those that are predicted together, and which
        are kept, (n,), of those to keep.
        """
        if self._own is None:
            self._own = self._chosen(chunk)
        if not self._own:
            return None, keep
        if self.by_node:
            keep = without_strange_nodes(self.model, chunk, self.source, keep, name)
            return list(nodes_for(self.model, chunk, keep)), keep
        nodes = nodes_or_none(self.model, chunk, keep)
        if None in nodes:
            self._count(nodes, nodes_for(self.model, chunk, keep))
        return nodes, keep

    def _chosen(self, chunk: Chunk) -> bool:
        """Whether each row is predicted by its own node; what nobody decided is said."""
        if self.by_node is not None:
            return self.by_node
        model, say = self.model, self.say
        there = model.node is not None and model.node in chunk.columns
        if say is not None and hasattr(model.estimator, "nodes_"):
            if there:
                say(
                    f"each row is predicted by its own node, which column {model.node!r} names; "
                    "--together: by what all nodes have learned"
                )
            else:
                lacking = "the model names no column of nodes, as it was saved in Python"
                if model.node is not None:
                    lacking = f"there is no column {model.node!r} to name each row's node"
                say(f"{lacking}: predicted by what all nodes have learned together (--together)")
        return there

    def _count(self, nodes: list[str | None], named: list[Any]) -> None:
        for known, node in zip(nodes, named, strict=True):
            if known is None:
                self.strangers += 1
                if len(self.names) <= MOST_NAMES:  # one more, which shows that there are more
                    self.names["an empty cell" if node is None else repr(node)] = None

    def close(self) -> None:
        """Say how many rows were predicted together for want of a node, if any."""
        if self.say is None or not self.strangers:
            return
        rows = "row names" if self.strangers == 1 else "rows name"
        more = " and others" if len(self.names) > MOST_NAMES else ""
        names = ", ".join(list(self.names)[:MOST_NAMES]) + more
        self.say(
            f"{self.strangers:,} {rows} no node of the network ({names}): predicted by what all "
            "nodes have learned together; --by-node refuses such rows"
        )


def answers_of(
    model: TableModel, chunk: Chunk, nodes: Nodes, *methods: str, **how: Any
) -> list[Any]:
    """What these methods of the estimator say of the rows of a chunk, each by its node, where that
    is None by all together.
    """
    alone = np.array([node is None for node in nodes or ()], bool)
    if nodes is None or not alone.any():
        return answers(model, chunk, *methods, nodes=nodes, **how)
    known = [node for node in nodes if node is not None]
    found = [answers(model, chunk.rows(alone), *methods, **how)]
    if known:
        found.append(answers(model, chunk.rows(~alone), *methods, nodes=known, **how))
    order = np.argsort(np.concatenate([np.flatnonzero(alone), np.flatnonzero(~alone)]))
    axes = [1 if name == "predict_interval" else 0 for name in methods]  # of rows
    return [
        np.concatenate(parts, axis).take(order, axis)
        for axis, *parts in zip(axes, *found, strict=True)
    ]
