"""Topologies: builders on top of networkx, by function or by name."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from dokl.base.errors import BadGraph, BadInput, UnknownName
from dokl.base.random_numbers import generator

if TYPE_CHECKING:
    import networkx as nx

Entry = TypeVar("Entry")

# More isolated nodes than this expected means that no redraw will help.
HOPELESS = 40.0


def random_connected(K: int, p: float = 0.2, seed: int = 0) -> nx.Graph:
    """Each edge with probability p, redrawn until connected: the paper's graph.

    >>> random_connected(20, seed=1).number_of_nodes()
    20
    """
    import networkx as nx

    check_size(K)
    _check_probability(p)
    likely = min(1.0, 2 * math.log(max(K, 2)) / K)
    too_sparse = BadInput(
        f"a random graph of {K} nodes with edge probability p = {p:g} is hardly ever connected: "
        f"it takes p of about ln(K)/K = {math.log(K) / K:.3g}; p = {likely:.3g} makes it likely"
    )
    if K * (1 - p) ** (K - 1) > HOPELESS:
        raise too_sparse
    tries = max(20, min(5000, 1_000_000 // K))
    # the sparse generator: time in proportion to the edges, not to K^2
    draw = nx.fast_gnp_random_graph
    return _until_connected(lambda s: draw(K, p, seed=s), seed, tries, too_sparse)


def ring(K: int) -> nx.Graph:
    """Node k linked to k - 1 and k + 1."""
    import networkx as nx

    check_size(K)
    # a cycle of one node would be a self loop
    return nx.cycle_graph(K) if K > 2 else nx.path_graph(K)


def grid(rows: int, cols: int) -> nx.Graph:
    """Node r * cols + c linked to the nodes beside, above and below."""
    import networkx as nx

    check_size(rows)
    check_size(cols)
    g = nx.convert_node_labels_to_integers(nx.grid_2d_graph(rows, cols))
    nx.set_node_attributes(g, {k: (k % cols, k // cols) for k in g}, "pos")
    return g


def star(K: int) -> nx.Graph:
    """Node 0 linked to all others."""
    import networkx as nx

    check_size(K)
    return nx.star_graph(K - 1)


def complete(K: int) -> nx.Graph:
    """Everybody linked to everybody."""
    import networkx as nx

    check_size(K)
    return nx.complete_graph(K)


def small_world(K: int, k: int = 4, p: float = 0.1, seed: int = 0) -> nx.Graph:
    """A ring of k nearest neighbours, each edge rewired with probability p (Watts, Strogatz)."""
    import networkx as nx

    check_size(K)
    _check_probability(p)
    if k % 2 or not 2 <= k < K:
        raise BadInput(f"small_world needs an even k with 2 <= k < K = {K}; got k = {k}")
    failed = BadInput(f"no connected small world of {K} nodes came up: raise k = {k}, lower p")
    return _until_connected(
        lambda s: nx.watts_strogatz_graph(K, k, p, seed=s), seed, tries=100, failed=failed
    )


def geometric(K: int, radius: float | None = None, seed: int = 0) -> nx.Graph:
    """K points in the unit square (node attribute `pos`), linked when nearer than radius.

    The default radius, sqrt(2 ln(K) / (pi K)), is connected more often than not; the points
    are redrawn until it is.
    """
    import networkx as nx

    check_size(K)
    default = math.sqrt(2 * math.log(max(K, 2)) / (math.pi * K))
    r = default if radius is None else radius
    if not r > 0:
        raise BadInput(f"geometric needs a positive radius; got {radius}")
    failed = BadInput(
        f"{K} random points are hardly ever connected within radius {r:.3g}: "
        f"sqrt(2 ln(K) / (pi K)) = {default:.3g} usually is enough"
    )
    if K * math.exp(-math.pi * r * r * (K - 1)) > HOPELESS:
        raise failed
    tries = max(20, min(1000, 200_000 // K))
    return _until_connected(lambda s: nx.random_geometric_graph(K, r, seed=s), seed, tries, failed)


def exponential(K: int) -> nx.Graph:
    """Node k linked to k +- 2^j mod K for every 2^j < K: few links, a large gap.

    >>> sorted(exponential(8)[0])
    [1, 2, 4, 6, 7]
    """
    import networkx as nx

    check_size(K)
    return nx.circulant_graph(K, [2**j for j in range((K - 1).bit_length())])


def _grid_of(K: int, rows: int | None = None) -> nx.Graph:
    """The grid of K nodes with the given number of rows, or the squarest one."""
    check_size(K)
    if rows is None:
        rows = next(r for r in range(math.isqrt(K), 0, -1) if K % r == 0)
    if rows < 1 or K % rows:
        raise BadInput(f"a grid of {K} nodes cannot have {rows} rows: {K} is no multiple of it")
    return grid(rows, K // rows)


BUILDERS: dict[str, Callable[..., nx.Graph]] = {
    "random": random_connected,
    "ring": ring,
    "grid": _grid_of,
    "star": star,
    "complete": complete,
    "small-world": small_world,
    "geometric": geometric,
    "exponential": exponential,
}


def build(name: str, K: int, *, seed: int = 0, **params: object) -> nx.Graph:
    """Build a graph by name; `params` are the builder's own (p, k, radius, rows).

    >>> build("small-world", 10, k=2).number_of_edges()
    10
    >>> build("ring", 10, p=0.3)
    Traceback (most recent call last):
    dokl.base.errors.BadInput: graph 'ring' has no parameter 'p': it takes none besides K
    """
    builder = lookup("graph", name, BUILDERS)
    known = [key for key in inspect.signature(builder).parameters if key != "K"]
    takes_seed = "seed" in known
    own = [key for key in known if key != "seed"]
    for key in params:
        if key not in own:
            takes = f"only {', '.join(own)}" if own else "none besides K"
            raise BadInput(f"graph {name!r} has no parameter {key!r}: it takes {takes}")
    # a ring has nothing to draw, so it is given no seed
    return builder(K, **params, **({"seed": seed} if takes_seed else {}))


def as_graph(g: nx.Graph) -> nx.Graph:
    """Any undirected networkx graph, as one with nodes 0, 1, ..., K-1 in this order.

    Nodes already called 0..K-1 keep their names; others are numbered in their order. Self loops
    are dropped, not refused: here every node is in its own neighbourhood anyway.
    """
    import networkx as nx

    if not isinstance(g, nx.Graph):
        raise BadGraph(f"expected a networkx.Graph, got {type(g).__name__}")
    if g.is_directed() or g.is_multigraph():
        raise BadGraph("links must be undirected and single: pass networkx.Graph(g)")
    K = g.number_of_nodes()
    if K == 0:
        raise BadGraph("the graph has no nodes")
    if list(g) != list(range(K)):
        named = set(g) == set(range(K))
        clean = nx.Graph()
        clean.add_nodes_from((k, g.nodes[k]) for k in (range(K) if named else g))
        clean.add_edges_from(g.edges(data=True))
        g = clean if named else nx.convert_node_labels_to_integers(clean)
    if any(True for _ in nx.selfloop_edges(g)):
        g = g.copy()
        g.remove_edges_from(list(nx.selfloop_edges(g)))
    return g


def lookup(kind: str, name: str, table: dict[str, Entry]) -> Entry:
    """An entry by name, spelled with - or _ alike."""
    try:
        return table[name.replace("_", "-")]
    except (KeyError, AttributeError):
        raise UnknownName(kind, name, table) from None


def check_size(K: int) -> None:
    """Refuse what is no number of nodes."""
    if not isinstance(K, (int, np.integer)) or isinstance(K, bool) or K < 1:
        raise BadInput(f"a network needs a whole number of nodes, at least 1; got {K!r}")


def _check_probability(p: float) -> None:
    if not 0 <= p <= 1:
        raise BadInput(f"a probability lies between 0 and 1; got p = {p!r}")


def _until_connected(
    draw: Callable[[int], nx.Graph], seed: int, tries: int, failed: BadInput
) -> nx.Graph:
    import networkx as nx

    rng = generator(seed, "graph")
    for _ in range(tries):
        g = draw(int(rng.integers(2**63)))
        if nx.is_connected(g):
            return g
    raise failed
