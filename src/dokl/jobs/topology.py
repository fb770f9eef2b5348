"""`dokl graph`: build a topology, describe it, draw it, write its weights."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from dokl import graphs, report
from dokl.errors import BadInput
from dokl.files import atomic_write


def topology(name: str, nodes: int, seed: int, parameters: dict[str, Any]) -> Any:
    """A graph by its name, or from a file of edges (two columns: from, to)."""
    if Path(name).suffix in (".csv", ".txt", ".tsv", ".edges"):
        return edges_from_file(Path(name))
    return graphs.build(name, nodes, seed=seed, **parameters)


def edges_from_file(path: Path) -> Any:
    """One edge a line: two node names, separated by a comma, semicolon, tab or blank."""
    import networkx as nx

    graph = nx.Graph()
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({error.strerror})") from None
    for number, line in enumerate(lines, 1):
        parts = line.split("#")[0].replace(",", " ").replace(";", " ").split()
        if parts and len(parts) != 2:
            raise BadInput(f"{path}, line {number}: an edge is two node names, got {line!r}")
        if parts:
            graph.add_edge(*parts)
    if not len(graph):
        raise BadInput(f"{path}: no edges in it")
    return graph


def facts(graph: Any, rule: str) -> dict[str, Any]:
    """What there is to know: size, connectivity, and how fast these weights agree."""
    A = graphs.weights(graph, rule)
    found = asdict(graphs.describe(graph))
    found["lambda_2"] = graphs.describe(A).lambda_2
    found["rule"] = rule
    if found["lambda_2"] is not None:
        found["gap"] = 1.0 - found["lambda_2"]
        if 0 < found["lambda_2"] < 1:
            found["steps_to_tenth"] = float(np.log(0.1) / np.log(found["lambda_2"]))
    sums = np.asarray(A.sum(axis=0)).ravel()
    found["doubly_stochastic"] = bool(np.abs(sums - 1).max() < 1e-9)
    return found


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
