"""The network of `dokl train --nodes`: which nodes there are, and who talks to whom."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dokl.base.errors import BadInput, listed
from dokl.network import graphs
from dokl.tables.jobs.sources import Source, Wanted
from dokl.tables.jobs.topology import is_file_of_edges, links_from_file

MOST_NODES = 10_000


def named_graph(graph: str, source: Source, column: str, seed: int) -> Any:
    """A networkx graph whose nodes are the names in a column.

    graph: a file of edges between these names, or the name of a topology, which then has as many
    nodes as there are names; they are found by a first pass over the file.
    """
    if is_file_of_edges(graph):
        return links_from_file(Path(graph))
    if source.path == "-":
        raise BadInput(
            f"stdin can be read only once, and {graph!r} does not name the nodes: give a file of "
            "edges, two node names a line"
        )
    import networkx as nx

    names = node_names(source, column)
    made = graphs.build(graph, len(names), seed=seed)
    return nx.relabel_nodes(made, dict(enumerate(names)))


def graph_words(graph: str, seed: int) -> str:
    """Where the links of a `named_graph` are from."""
    if is_file_of_edges(graph):
        return f"from {graph}"
    seeded = graph.replace("_", "-") in ("random", "small-world", "geometric")
    return f"by the topology {graph!r}" + (f", seed {seed}" if seeded else "")


def node_names(source: Source, column: str) -> list[str]:
    """The different names in a column, sorted; only that column is converted."""
    names: set[str | None] = set()
    with source.open(Wanted((column,), (column,))) as reader:
        for chunk in reader:
            names.update(chunk.columns[column].tolist())
            if len(names) > MOST_NODES:
                raise BadInput(f"column {column!r} names over {MOST_NODES:,} nodes: is it the one?")
    found = sorted(name for name in names if name is not None)
    if len(found) < 2:
        raise BadInput(f"column {column!r} names one node only, {listed(found)}: no network")
    return found
