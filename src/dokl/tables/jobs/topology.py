"""Graphs by name or from files, in words and pictures; and the network of `dokl train --nodes`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from dokl.base.errors import BadInput, listed
from dokl.base.files import atomic_write, read_named_text
from dokl.network import graphs
from dokl.tables import report
from dokl.tables.jobs.sources import Source, Wanted

# First lines of files of edges that name the columns, and no nodes.
HEADERS = {("from", "to"), ("source", "target"), ("node", "neighbour"), ("node", "neighbor")}


def topology(name: str, nodes: int, seed: int, parameters: dict[str, Any]) -> Any:
    """A graph by its name, or from a file of edges."""
    if not is_file_of_edges(name):
        return graphs.build(name, nodes, seed=seed, **parameters)
    if parameters:
        raise BadInput(f"a file of edges takes no parameter {next(iter(parameters))!r}")
    return edges_from_file(Path(name))


def is_file_of_edges(name: str) -> bool:
    """Whether this names a file, and not a topology."""
    if name.replace("_", "-") in graphs.BUILDERS:
        return False
    return Path(name).suffix != "" or "/" in name or Path(name).exists()


def edges_from_file(path: Path) -> Any:
    """One edge a line: two node names, separated by comma, semicolon, tab, or blanks."""
    import networkx as nx

    graph = nx.Graph()
    for number, line in enumerate(_lines(path), 1):
        parts = _parts(line.split("#")[0])
        if parts and (len(parts) != 2 or "" in parts):
            raise BadInput(f"{path}, line {number}: an edge is two node names, got {line!r}")
        header = number == 1 and tuple(part.lower() for part in parts) in HEADERS
        if parts and not header:
            graph.add_edge(*parts)
    if not len(graph):
        raise BadInput(f"{path}: no edges in it")
    return graph


def links_from_file(path: Path) -> Any:
    """The edges of a file, for nodes that are to learn together. A first pair that nobody else is
    linked with would be refused for that, and is most likely a header.
    """
    graph = edges_from_file(path)
    first, second = [*graph.nodes, None][:2]
    if len(graph) > 2 and [*graph[first]] == [second] and [*graph[second]] == [first]:
        raise BadInput(
            f"{path}: its first line links {first!r} and {second!r} with each other, and no "
            "other node with them. If it names columns, and no nodes, leave it out, or let it read "
            "from,to"
        )
    return graph


def _lines(path: Path) -> list[str]:
    try:
        return read_named_text(path, "a file of edges", "utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise BadInput(f"{path} is not UTF-8 text: an edge is two node names on a line") from None


def _parts(line: str) -> list[str]:
    for separator in ",;\t":
        if separator in line:
            return [part.strip() for part in line.split(separator)]
    return line.split()


def facts(graph: object, rule: str) -> dict[str, Any]:
    """What there is to know: size, connectivity, and how fast these weights agree."""
    A = graphs.weights(graph, rule)
    found = asdict(graphs.describe(graph))
    found["lambda_2"] = graphs.describe(A).lambda_2
    found["rule"] = rule
    found["gap"] = None if found["lambda_2"] is None else 1.0 - found["lambda_2"]
    found["steps_to_tenth"] = _steps_to_tenth(found["lambda_2"])
    sums = np.asarray(A.sum(axis=0)).ravel()
    found["doubly_stochastic"] = bool(np.abs(sums - 1).max() < 1e-9)
    stood = graphs.faulty_tolerated(A)
    found["faulty_tolerated"] = {"least": int(stood.min()), "most": int(stood.max())}
    found["faulty_tolerated"]["none"] = int((stood == 0).sum())
    return found


def _steps_to_tenth(lambda_2: float | None) -> float | None:
    """Steps until disagreement is a tenth; None if that is unknown, or never."""
    if lambda_2 is None or lambda_2 >= 1 - 1e-12:
        return None
    return 1.0 if lambda_2 <= 0.1 else float(np.log(0.1) / np.log(lambda_2))


def draw(graph: Any, path: Path, title: str) -> Path:
    """A picture of the graph, nodes coloured by their number of links."""
    plt = report.pyplot()
    figure, axes = plt.subplots(figsize=(6.5, 5.2), layout="constrained")
    degree = np.array([k for _, k in graph.degree()])
    report.draw_graph(axes, graph, degree if len(set(degree)) > 1 else None, "links of each node")
    axes.set_title(title, fontsize=11)
    return report.save_picture(figure, path)


def write_weights(graph: Any, rule: str, path: Path) -> Path:
    """The combination weights as CSV: from, to, weight; one line per non-zero entry."""
    A, names = graphs.weights(graph, rule).tocoo(), list(graph.nodes)
    entries = zip(A.row.tolist(), A.col.tolist(), A.data.tolist(), strict=True)
    lines = ["node,neighbour,weight", *(f"{names[k]},{names[j]},{w!r}" for k, j, w in entries)]
    with atomic_write(path) as file:
        file.write(("\n".join(lines) + "\n").encode())
    return path


# -- the network of a training --------------------------------------------------------------------
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
                raise BadInput(
                    f"column {column!r} names over {MOST_NODES:,} nodes: is it the column of nodes?"
                )
    found = sorted(name for name in names if name is not None)
    if len(found) < 2:
        raise BadInput(f"column {column!r} names one node only, {listed(found)}: no network")
    return found
