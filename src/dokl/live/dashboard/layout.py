"""Where the nodes of a graph are drawn: the same graph gives the same picture every time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from dokl.base.arrays import Array
from dokl.live.description import Network

if TYPE_CHECKING:
    import networkx as nx

# Springs between all pairs look best and cost K^3; beyond this many nodes only links pull.
MOST_ALL_PAIRS = 120


def given_places(network: Network) -> dict[str, tuple[float, float]] | None:
    """Longitude and latitude of every node as x and y, y downwards; None where one has none."""
    at = {name: node.at for name, node in network.nodes.items()}
    if len(at) < 2 or not all(at.values()):
        return None
    middle = np.deg2rad(np.mean([place[1] for place in at.values()]))
    return {name: (place[0] * float(np.cos(middle)), -place[1]) for name, place in at.items()}


def learned_places(network: Network) -> dict[str, tuple[float, float]] | None:
    """Where the map that nodes share sums on has them, in the unit square: who is alike lies
    together. Nodes that the map does not know are in the middle of the others; None without a map.
    """
    if not network.model.squares or network.model.rows:
        return None
    made = network.agreed_map
    if made.places is None or len(network.names) < 2:
        return None
    numbers = np.array([made.number(name) for name in network.names])
    points, _ = made.places.of(numbers)
    pairs = zip(network.names, points.tolist(), strict=True)
    return places(network.names, [], {name: (x, y) for name, (x, y) in pairs})


def places(
    names: Sequence[str],
    links: Sequence[tuple[str, str]],
    given: dict[str, tuple[float, float]] | None = None,
) -> dict[str, tuple[float, float]]:
    """Name -> (x, y) in the unit square, the longer way horizontal; as given, if it is.

    >>> places(["a"], [])
    {'a': (0.5, 0.5)}
    >>> places(["a", "b"], [("a", "b")])
    {'a': (0.0, 0.5), 'b': (1.0, 0.5)}
    """
    if given is not None:
        points = np.array([given[name] for name in names])
        points = points - (points.min(axis=0) + points.max(axis=0)) / 2
        points = 0.5 + points / max(float(np.ptp(points, axis=0).max()), 1e-12)
        return {name: (float(x), float(y)) for name, (x, y) in zip(names, points, strict=True)}
    import networkx as nx

    graph = nx.Graph()
    graph.add_nodes_from(names)
    graph.add_edges_from(links)
    pieces = [graph.subgraph(piece).copy() for piece in nx.connected_components(graph)]
    found = _side_by_side([_one_piece(piece, names) for piece in pieces])
    spread = _into_square(np.array([found[name] for name in names]))
    return {name: (float(x), float(y)) for name, (x, y) in zip(names, spread.round(4), strict=True)}


def _one_piece(graph: nx.Graph, names: Sequence[str]) -> dict[str, Array]:
    """Coordinates of a connected graph, its longest direction along x."""
    import networkx as nx

    ordered = [name for name in names if name in graph]
    start = nx.circular_layout(ordered)
    if 2 < len(ordered) <= MOST_ALL_PAIRS:
        place = nx.kamada_kawai_layout(graph, pos=start)
    else:
        place = (
            nx.spring_layout(graph, pos=start, seed=1, iterations=200) if len(graph) > 1 else start
        )
    points = np.array([place[name] for name in ordered])
    points = _turned(points - points.mean(axis=0))
    return dict(zip(ordered, points * np.sqrt(len(ordered)), strict=True))


def _turned(points: Array) -> Array:
    """Along the principal axes; the first node is never on the right, nor below: (n, 2)."""
    if len(points) < 2:
        return points
    turned = points @ np.linalg.svd(points, full_matrices=False)[2].T
    return np.asarray(turned * np.where(turned[0] > 0, -1.0, 1.0))


def _side_by_side(pieces: list[dict[str, Array]]) -> dict[str, Array]:
    """Pieces of a graph that falls apart, in a row."""
    out: dict[str, Array] = {}
    right = 0.0
    for piece in pieces:
        left, edge = min(p[0] for p in piece.values()), max(p[0] for p in piece.values())
        shift = np.array([right - left, 0.0])
        out |= {name: point + shift for name, point in piece.items()}
        right += edge - left + 1.0
    return out


def _into_square(points: Array) -> Array:
    """Stretched so that each direction fills [0, 1]; a direction without extent is 0.5."""
    low, high = points.min(axis=0), points.max(axis=0)
    flat = high - low < 1e-6 * max(1.0, float((high - low).max()))
    scaled = (points - low) / np.where(flat, 1.0, high - low)
    return np.asarray(np.where(flat, 0.5, scaled))
