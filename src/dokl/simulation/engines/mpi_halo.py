"""What a rank needs of others: copies of their boundary nodes' vectors, behind its own.

A rank's vectors are rows [own nodes; ghosts]. The graph is the communicator: its neighbours are
the ranks that own ghosts, and one neighbourhood collective per combination fills them. Ghosts are
numbered per matrix, so that with several matrices in turn only those of the present one travel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from dokl.base.arrays import Array
from dokl.simulation.engines.mpi_ranks import Comm
from dokl.simulation.engines.numba_sweeps import LoopGraph


@dataclass(frozen=True)
class Trade:
    """One matrix's exchange: own rows to send, neighbour after neighbour, and numbers of rows."""

    rows: Array
    sent: Array  # (destinations,)
    received: Array  # (sources,)


@dataclass(frozen=True)
class Halo:
    """A rank's nodes and its share of the matrices.

    own: its nodes, the first `boundary` of them with neighbours on other ranks; graph: local CSR;
    ghosts: the most that one matrix needs; single: one node on every rank, and one matrix.
    """

    comm: Comm  # the communicator that is the graph
    own: Array
    boundary: int
    graph: LoopGraph
    trades: list[Trade]
    ghosts: int
    single: bool

    def close(self) -> None:
        """Give the communicator back; all ranks do."""
        self.comm.Free()


def needs(A: Any, owner: Array) -> Array:
    """(receiving rank, sending rank, node), each once, in this order; (N, 3)."""
    pairs = A.tocoo()
    row, node = pairs.coords
    away = owner[row] != owner[node]
    triples = np.stack([owner[row], owner[node], node], axis=1)[away]
    return np.unique(triples, axis=0)


def build(comm: Comm, graphs: list[Any], owner: Array, dtype: DTypeLike) -> Halo:
    """This rank's halo; all ranks call it with the same graphs and owners."""
    all_needs = [needs(A, owner) for A in graphs]
    mine = np.flatnonzero(owner == comm.rank)
    at_rim = np.zeros(len(owner), bool)
    for A in graphs:
        row, col = A.tocoo().coords
        at_rim[row[owner[row] != owner[col]]] = True
    own = np.concatenate([mine[at_rim[mine]], mine[~at_rim[mine]]])
    together = np.concatenate(all_needs)
    sources = np.unique(together[together[:, 0] == comm.rank, 1])
    targets = np.unique(together[together[:, 1] == comm.rank, 0])
    # reorder=True hangs in some versions of Open MPI
    circle = comm.Create_dist_graph_adjacent(sources.tolist(), targets.tolist(), reorder=False)
    trades = [_trade(triples, comm.rank, own, sources, targets) for triples in all_needs]
    incoming = [triples[triples[:, 0] == comm.rank, 2] for triples in all_needs]
    graph = _local(graphs, own, incoming, dtype)
    single = len(graphs) == 1 and comm.size == len(owner)
    ghosts = max(map(len, incoming))
    return Halo(circle, own, int(at_rim[mine].sum()), graph, trades, ghosts, single)


def _trade(triples: Array, rank: int, own: Array, sources: Array, targets: Array) -> Trade:
    row = np.argsort(own)
    outgoing = triples[triples[:, 1] == rank]
    rows = row[np.searchsorted(own, outgoing[:, 2], sorter=row)]
    incoming = triples[triples[:, 0] == rank, 1]
    sent = np.array([(outgoing[:, 0] == r).sum() for r in targets], np.int64)
    return Trade(rows, sent, np.array([(incoming == s).sum() for s in sources], np.int64))


def _local(graphs: list[Any], own: Array, incoming: list[Array], dtype: DTypeLike) -> LoopGraph:
    """Own rows of all matrices in one CSR, in local numbers.

    Entries keep the order they have in the whole matrix: sums then round as in one process, and
    the number of ranks changes no bit of the result.
    """
    K, offset = graphs[0].shape[0], 0
    starts, indices, weights = [], [], []
    for A, ghosts in zip(graphs, incoming, strict=True):
        number = np.full(K, -1, np.int64)
        number[own] = np.arange(len(own))
        number[ghosts] = len(own) + np.arange(len(ghosts))
        lengths = np.diff(A.indptr)[own]
        ends = np.cumsum(lengths)
        entry = np.arange(lengths.sum()) + np.repeat(A.indptr[own] - (ends - lengths), lengths)
        starts.append(np.concatenate([[0], ends]).astype(np.int64) + offset)
        indices.append(number[A.indices[entry]])
        weights.append(A.data[entry].astype(dtype))
        offset += len(entry)
    return LoopGraph(np.stack(starts), np.concatenate(indices), np.concatenate(weights))


class HaloExchange:
    """The exchange itself, between two buffers of vectors that take turns.

    Requests are persistent where the MPI library has that (MPI 4): their arguments are then looked
    at once. Each is one neighbourhood collective: an allgather straight from the node's vector
    with one node per rank, an alltoallv of packed vectors otherwise.
    """

    def __init__(self, halo: Halo, buffers: tuple[Array, Array], m: int) -> None:
        """buffers: two arrays ((own + ghosts) * m, D)."""
        self._halo, size = halo, m * buffers[0].shape[1]
        self._vectors = [a.reshape(-1, size) for a in buffers]
        most = max(len(trade.rows) for trade in halo.trades)
        self._packed = np.empty((0 if halo.single else most, size), buffers[0].dtype)
        self._requests: dict[tuple[int, int], Any] = {}
        self._running: Any = None

    def start(self, buffer: int, clock: int) -> None:
        """Send own boundary vectors of a buffer, as the matrix whose turn it is wants them."""
        which = clock % len(self._halo.trades)
        if not self._halo.single:
            rows = self._halo.trades[which].rows
            # mode="clip" writes straight to `out`; rows are in range anyway
            np.take(self._vectors[buffer], rows, 0, out=self._packed[: len(rows)], mode="clip")
        request = self._requests.get((buffer, which)) or self._request(buffer, which)
        if request is None:
            self._running = self._at_once(buffer, which)
        else:
            request.Start()
            self._running = request

    def wait(self) -> None:
        """Until the ghosts are there."""
        self._running.Wait()

    def _request(self, buffer: int, which: int) -> Any:
        """A persistent request, or None where the library has none."""
        comm, messages = self._halo.comm, self._messages(buffer, which)
        make = comm.Neighbor_allgather_init if self._halo.single else comm.Neighbor_alltoallv_init
        try:
            request = make(*messages)
        except NotImplementedError:
            return None
        self._requests[buffer, which] = request
        return request

    def _at_once(self, buffer: int, which: int) -> Any:
        comm, messages = self._halo.comm, self._messages(buffer, which)
        if self._halo.single:
            return comm.Ineighbor_allgather(*messages)
        return comm.Ineighbor_alltoallv(*messages)

    def _messages(self, buffer: int, which: int) -> tuple[Any, Any]:
        vectors, trade, n = self._vectors[buffer], self._halo.trades[which], len(self._halo.own)
        size, ghosts = vectors.shape[1], vectors[n:]
        if self._halo.single:
            return vectors[:n], ghosts
        return [self._packed, trade.sent * size], [ghosts, trade.received * size]

    def close(self) -> None:
        """Free the requests."""
        for request in self._requests.values():
            request.Free()
        self._requests.clear()
