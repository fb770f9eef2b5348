"""The network and the samples of a configuration: an example's, or those of a file in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dokl.base.arrays import Array
from dokl.base.errors import BadInput, UnknownName, listed
from dokl.learning import losses
from dokl.learning.columns import Preprocessor, class_target, is_text, numeric_target
from dokl.network.graphs import GraphRecipe, weights
from dokl.paper.jobs.settings import DataSection, NetworkSection, Simulation
from dokl.simulation.streams import AbruptDrift, Missing, Shards, SlowDrift, Stream, example
from dokl.tables.jobs.topology import is_file_of_edges, links_from_file
from dokl.tables.readers import Chunk, Options, open_table


@dataclass(frozen=True, eq=False)
class Rows:
    """X: (n, d) dense or CSR; y: (n,); node: (n,) names as objects, or None if none are given."""

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


# -- by a configuration ---------------------------------------------------------------------------
NODES = 20


def network_and_stream(sim: Simulation, folder: Path) -> tuple[Any, Any, int]:
    """Combination weights, the stream, both recipes where they are random, and the inputs' number.

    Files are below `folder`.
    """
    data, links = sim.data, _links(sim.network, folder)
    names = None if links is None else list(links.nodes)
    if data.file is None:
        _check_example(data)
        K = _count(data, names)
        size = {} if data.steps is None else {"n": data.steps}
        stream = example(data.example or "example2", K=K, **size, **data.parameters)
        d = stream.draw(0).d if not hasattr(stream, "d") else stream.d
    else:
        stream, K, d = _file_stream(sim, folder, names)
    network = _recipe(sim.network, K) if links is None else weights(links, sim.network.rule)
    return network, _changed(stream, data), int(d)


def _links(network: NetworkSection, folder: Path) -> Any:
    """The graph of a file of edges; None for the name of a topology."""
    path = folder / network.graph
    if not is_file_of_edges(network.graph) and not path.is_file():
        return None
    if network.parameters:
        raise BadInput("[network] parameters are for topologies, and graph is a file of edges")
    return links_from_file(path)


def _recipe(network: NetworkSection, K: int) -> GraphRecipe:
    return GraphRecipe(network.graph, K, network.rule, network.parameters)


def _count(data: DataSection, names: list[str] | None) -> int:
    """Number of nodes, which must be the same wherever it is given."""
    if names is not None and data.nodes not in (None, len(names)):
        raise BadInput(f"[data] nodes is {data.nodes}, and there are {len(names)} node names")
    return len(names) if names is not None else data.nodes or NODES


def _check_example(data: DataSection) -> None:
    for key, value in (("target", data.target), ("node", data.node), ("drop", data.drop)):
        if value:
            raise BadInput(f"[data] {key} is for a file, and none is named: file = ...")


def _changed(stream: Any, data: DataSection) -> Any:
    """The stream with its drift, and with samples missing."""
    if data.drift == "abrupt":
        stream = AbruptDrift(stream, data.drift_at)
    elif data.drift == "slow":
        stream = SlowDrift(stream)
    elif data.drift != "none":
        raise UnknownName("drift", data.drift, ("none", "abrupt", "slow"))
    return Missing(stream, data.missing) if data.missing else stream


# -- files -------------------------------------------------------------------------------------
def _file_stream(sim: Simulation, folder: Path, names: list[str] | None) -> tuple[Any, int, int]:
    """The stream of a file, its number of nodes and of inputs."""
    data = sim.data
    if data.example is not None:
        raise BadInput("[data] names both an example and a file: keep one of them")
    if data.parameters:
        raise BadInput("[data] parameters are for examples, and this is a file")
    shards = _FileShards(folder / str(data.file), data, losses.resolve(sim.learn.loss).margin)
    rows = shards.rows()
    d = int(rows.X.shape[1])
    if rows.node is not None:
        found = sorted(set(rows.node.tolist())) if names is None else names
        return stream_by_node(rows, found, data.steps, data.passes), _count(data, found), d
    shards = _FileShards(shards.path, data, shards.margin, _count(data, names), len(rows.y))
    # On several ranks each reads the file again, and keeps the rows of its own nodes.
    return shards if sim.run.engine == "mpi" else shards.dealt(rows), shards.K, d


@dataclass(frozen=True)
class _FileShards:
    """`Shards` of a file that is read again by each draw: a rank keeps its own nodes' rows only."""

    path: Path
    data: DataSection
    margin: bool
    K: int = NODES
    N: int = 0

    @property
    def n(self) -> int:
        """Number of steps."""
        return min(self.N // self.K, self.data.steps or self.N) * self.data.passes

    def rows(self) -> Rows:
        """All rows of the file."""
        data = self.data
        return whole_file(self.path, data.target, data.node, data.drop, self.margin)

    def dealt(self, rows: Rows) -> Shards:
        """The rows, or the first of them, dealt over the nodes."""
        most = None if self.data.steps is None else self.data.steps * self.K
        return Shards(rows.X[:most], rows.y[:most], self.K, passes=self.data.passes)

    def draw(self, seed: int) -> Stream:
        """The stream of this seed."""
        return self.dealt(self.rows()).draw(seed)

    def draw_nodes(self, seed: int, nodes: Array) -> Stream:
        """The same of some nodes only."""
        return self.dealt(self.rows()).draw_nodes(seed, nodes)
