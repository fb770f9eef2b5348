"""Method `squares` when sums travel per origin, simulated: `origins` with all nodes in arrays.

sums      (S,) the node's own rows
entries   (K, S) the newest that it has heard of every origin, itself included; `rows` tells which
          of two is newer, since nobody takes rows away in a simulation
total     (S,) the network's rows as of the last exchange, and
kept      (S,) what is left of them, where memory is finite: of the total that is never discounted,
          what came since the last exchange is added to what has been forgotten
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dokl.arrays import Array
from dokl.errors import BadInput
from dokl.exchange import Exchange
from dokl.exchange.rules import MEAN
from dokl.methods.squares import checks, origins, shared
from dokl.methods.squares.memory import Numbers
from dokl.methods.squares.shared import ROWS
from dokl.methods.squares.sharing import empty, put
from dokl.state import Slot, Slots, State


def slots(numbers: Numbers, D: int, m: int, exchange: Exchange) -> Slots:
    """The arrays of one node, none where it works alone."""
    if not exchange.graphs:
        return {}
    K, S, kind = exchange.graphs[0].shape[0], shared.size(D, m), np.float64
    origins.check_size(K * K, D, m)  # of all nodes, in one process
    sending = exchange.sending
    if exchange.mixing != MEAN or sending.least or sending.parts > 1:
        raise BadInput(
            "sums per origin are not mixed and go out whole, whenever they are new: leave mixing=, "
            "least= and parts= as they are"
        )
    if sending.dtype == "float16":
        raise BadInput("sums of many rows do not fit into float16: send float32 or float64")
    found = {"sums": Slot((S,), kind), "entries": Slot((K, S), kind)}
    more = {"total": Slot((S,), kind), "kept": Slot((S,), kind)}
    return found if numbers.lam == 1.0 else found | more


def merged(
    numbers: Numbers, fewest: int, features: Any, exchange: Exchange, state: State, A: Any
) -> tuple[State, int]:
    """Every node after one exchange with its neighbours over A, and the bytes that were sent.

    Origins whose entries fail the checks are not listened to. A node sends what its neighbour
    lacks, as versions tell that go out beforehand.
    """
    K, m, D = state.theta.shape
    entries, sent = _published(fewest, features, exchange, state), 0
    heard = entries.copy()
    for k in range(K):
        for other in A.indices[A.indptr[k] : A.indptr[k + 1]]:
            lacking = entries[other, :, ROWS] > entries[k, :, ROWS]
            better = entries[other, :, ROWS] > heard[k, :, ROWS]
            heard[k, better] = entries[other, better]
            sent += int(lacking.sum())
    nodes = empty(state) | {"entries": heard}
    nodes |= {name: state.nodes[name].copy() for name in ("total", "kept") if name in state}
    for k in range(K):
        others = heard[k].sum(axis=0) - heard[k, k] + state.sums[k]
        if "kept" in state:
            others = _forgotten(numbers, nodes, k, others, (D, m))
        put(nodes, k, shared.learned(shared.unpacked(others, D, m), numbers.rho))
    size = exchange.sending.bytes_of(shared.size(D, m), state.sums.itemsize)
    return state.having(**nodes), sent * size


def _published(fewest: int, features: Any, exchange: Exchange, state: State) -> Array:
    """Entries (K, K, S), with those of nodes that have enough new rows, as these tell them."""
    _, m, D = state.theta.shape
    entries, layout = state.entries.copy(), checks.layout_of(features)
    limits = checks.RowLimits(weight=np.inf)
    for k, sums in enumerate(exchange.sending.rounded(state.sums)):
        if sums[ROWS] < entries[k, k, ROWS] + fewest:
            continue
        if not checks.faults(shared.unpacked(sums, D, m), layout, limits):
            entries[k, k] = sums
    return entries


def _forgotten(
    numbers: Numbers, nodes: dict[str, Any], k: int, total: Array, size: tuple[int, int]
) -> Array:
    """What is left of the network's rows: what was kept, forgotten, and what came since."""
    came, kept = total - nodes["total"][k], shared.unpacked(nodes["kept"][k], *size)
    memory = shared.learned(kept, numbers.rho)
    left = shared.packed(shared.forgotten(numbers, kept, memory, came[ROWS])) + came
    nodes["total"][k], nodes["kept"][k] = total, left
    return np.asarray(left)
