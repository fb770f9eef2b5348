"""Method `squares` when sums travel: what a node keeps for it, sends, and makes of what it gets.

sums      (S,) the node's copy of the network's sums, its own new rows added once
pending   (S,) own new rows that are too few for a message, with fewest > 1
share     what the copy stands for, over directed links (push-sum)
seen      rows of the network at the last exchange, where memory is finite
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dokl.base.arrays import Array
from dokl.base.errors import BadInput
from dokl.learning.squares.memory import LIST, Memory, Numbers
from dokl.network.exchange import Exchange
from dokl.network.exchange.rules import MEAN
from dokl.network.state import Slot, Slots, State
from dokl.network.sums import shared
from dokl.network.sums.shared import ROWS


def slots(numbers: Numbers, fewest: int, D: int, m: int, exchange: Exchange) -> Slots:
    """The arrays of one node, none where it works alone; refuses rules that sums cannot bear."""
    if not exchange.graphs:
        return {}
    _check(exchange)
    kind, sums = np.float64, Slot((shared.size(D, m),), np.float64)
    found = {"sums": sums}
    found |= {} if fewest == 1 else {"pending": sums}
    found |= {} if exchange.doubly else {"share": Slot((), kind, 1.0)}
    found |= {} if numbers.lam == 1.0 else {"seen": Slot((), kind)}
    return found


def _check(exchange: Exchange) -> None:
    sending = exchange.sending
    if exchange.mixing != MEAN:
        raise BadInput(
            "sums are mixed by the weighted mean alone: honest nodes differ, and what is clipped "
            "or dropped would be missing for ever. Leave mixing= as it is; sums can be checked "
            "instead (dokl.network.sums.origins)"
        )
    if exchange.attack is not None and exchange.attack.message is not None:
        raise BadInput(
            f"no fault ({exchange.attack.name!r}) can be detected in averaged copies of sums: "
            'simulate faulty nodes with share="origins", whose entries are checked'
        )
    if sending.dtype == "float16":
        raise BadInput("sums of many rows do not fit into float16: send float32 or float64")
    if sending.bits:
        raise BadInput(
            "sums need full precision: with a few bits Z'Z is not that of any rows. "
            "Leave bits=0, and send float32, more rarely (every=), or in modes"
        )
    if sending.least and not exchange.symmetric:
        raise BadInput(
            "with sums, silence needs links that go both ways and weigh the same, such as "
            "Metropolis weights: otherwise nodes give away what nobody gives back. Use least=0"
        )
    if sending.least and sending.parts > 1:
        raise BadInput("sums go out in parts, or only when they have changed, not both")


def growing(state: State) -> str:
    """The name of what own new rows are added to."""
    return "pending" if "pending" in state else "sums"


def add(state: State, k: int, rows: Array) -> None:
    """Node k has learned rows whose sums are these: (S,); the state may be overwritten."""
    state.nodes[growing(state)][k] += rows


def outgoing(state: State, fewest: int) -> Array:
    """What each node would send: (K, S), and its share where that counts."""
    sums = state.sums
    if "pending" in state:
        sums = sums + np.where(enough(state, fewest), state.pending, 0.0)
    return np.column_stack([state.share, sums]) if "share" in state else sums


def enough(state: State, fewest: int) -> Array:
    """Whether what a node holds back can be sent: (K, 1)."""
    held = state.pending[:, ROWS] >= fewest
    return np.asarray(held[:, None])


@dataclass(frozen=True)
class Received:
    """What nodes hold after an exchange, by name; times: (K,) how many times its copy is what the
    network knows, and since: (K,) rows of the network since the exchange before.
    """

    nodes: dict[str, Array]
    times: Array
    since: Array


def received(fewest: int, state: State, mixed: Array) -> Received:
    """What was mixed, (K, P), in its places; nothing is solved or forgotten yet."""
    nodes, K = {"sums": mixed}, state.K
    times = np.full(K, float(K))
    if "share" in state:
        nodes = {"share": mixed[:, 0].copy(), "sums": np.ascontiguousarray(mixed[:, 1:])}
        times = K / nodes["share"]
    since = np.zeros(K)
    if "seen" in state:
        nodes["seen"] = times * nodes["sums"][:, ROWS]
        since = np.maximum(nodes["seen"] - state.seen, 0.0)
    if "pending" in state:
        nodes["pending"] = np.where(enough(state, fewest), 0.0, state.pending)
    return Received(nodes, times, since)


def incoming(numbers: Numbers, fewest: int, state: State, mixed: Array) -> State:
    """Every node solves again; own rows that it has not sent yet count once."""
    K, m, D = state.theta.shape
    got = received(fewest, state, mixed)
    nodes, copies = empty(state) | got.nodes, got.nodes["sums"]
    for k in range(K):
        sums = shared.unpack(copies[k], D, m, got.times[k])
        memory = shared.to_memory(sums, numbers.rho)
        if "seen" in nodes:
            left = shared.forget(numbers, sums, memory, got.since[k])
            copies[k, ROWS + 1 :] = shared.pack(left)[ROWS + 1 :] / got.times[k]
        if "pending" in nodes and nodes["pending"][k, ROWS]:
            own = shared.unpack(nodes["pending"][k], D, m)
            memory = shared.to_memory(sums + own, numbers.rho)
        put(nodes, k, memory)
    return state.having(**nodes)


def empty(state: State) -> dict[str, Any]:
    """Arrays of their own, with empty lists of newest rows."""
    K, D = state.K, state.theta.shape[-1]
    nodes: dict[str, Any] = {
        name: np.empty_like(state.nodes[name]) for name in ("theta", "P", "num", "den")
    }
    nodes |= {"W": np.zeros((K, LIST, D)), "c": np.zeros((K, LIST)), "n": np.zeros(K, np.int64)}
    return nodes | {"a": np.ones(K), "b": np.zeros(K)}


def put(nodes: dict[str, Any], k: int, memory: Memory) -> None:
    """Node k knows what `memory` does, with nothing on its list."""
    nodes["theta"][k], nodes["P"][k] = memory.theta, memory.P.T
    nodes["num"][k], nodes["den"][k] = memory.num, memory.den
