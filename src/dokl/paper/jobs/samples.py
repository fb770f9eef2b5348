"""The network and the samples of a configuration: an example's, or those of a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dokl.base.arrays import Array
from dokl.base.errors import BadInput, UnknownName
from dokl.learning import losses
from dokl.network.graphs import GraphRecipe, weights
from dokl.paper.jobs.settings import DataSection, NetworkSection, Simulation
from dokl.paper.jobs.whole import Rows, stream_by_node, whole_file
from dokl.simulation.streams import AbruptDrift, Missing, Shards, SlowDrift, Stream, example
from dokl.tables.jobs.topology import is_file_of_edges, links_from_file

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
    """Number of nodes, which must be the same wherever it is told."""
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
    # On several ranks each reads the file anew, and keeps the rows of its own nodes.
    return shards if sim.run.engine == "mpi" else shards.dealt(rows), shards.K, d


@dataclass(frozen=True)
class _FileShards:
    """`Shards` of a file that is read anew by each draw: a rank keeps its own nodes' rows only."""

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
