"""Method `squares` when sums travel per origin, simulated: `origins` with all nodes in arrays.

sums      (S,) the node's own rows
entries   (K, S) the newest that it knows of every origin, itself included; `rows` shows which
          of two is newer, since nobody takes rows away in a simulation
total     (S,) the network's rows as of the last exchange, and
kept      (S,) what is left of them, where memory is finite: of the total that is never discounted,
          what came since the last exchange is added to what has been forgotten
hurts     (K,) and opposed (K,), the evidence against each origin with robust=True,
out       (K,) 1 for those left out, and back (K,) the evidence that they are in order again
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dokl.base.arrays import Array
from dokl.base.errors import BadInput
from dokl.learning.squares.memory import Numbers
from dokl.network.exchange import Exchange
from dokl.network.exchange.attacks import Seen
from dokl.network.exchange.rules import MEAN
from dokl.network.state import Slot, Slots, State
from dokl.network.sums import checks, origins, shared
from dokl.network.sums.checks import Trial
from dokl.network.sums.origins import Entry
from dokl.network.sums.shared import ROWS
from dokl.network.sums.sharing import empty, put

TRIAL = ("hurts", "opposed", "back", "out")


def slots(numbers: Numbers, robust: bool, D: int, m: int, exchange: Exchange) -> Slots:
    """The arrays of one node, none where it works alone."""
    if not exchange.graphs:
        return {}
    K, S, kind = exchange.graphs[0].shape[0], shared.size(D, m), np.float64
    origins.check_size(K * K, D, m)  # of all nodes, in one process
    sending = exchange.sending
    if exchange.mixing != MEAN or sending.least or sending.parts > 1 or sending.bits:
        raise BadInput(
            "sums per origin are not mixed and go out whole, whenever they are new: leave mixing=, "
            "least=, parts= and bits= as they are"
        )
    if sending.dtype == "float16":
        raise BadInput("sums of many rows do not fit into float16: send float32 or float64")
    found = {"sums": Slot((S,), kind), "entries": Slot((K, S), kind)}
    if numbers.lam < 1.0:
        found |= {"total": Slot((S,), kind), "kept": Slot((S,), kind)}
    return found | {name: Slot((K,), kind) for name in TRIAL} if robust else found


def merge(
    numbers: Numbers, fewest: int, features: object, exchange: Exchange, state: State, A: object
) -> tuple[State, int]:
    """Every node after one exchange with its neighbours over A, and the bytes that were sent.

    Origins whose entries fail the checks are not listened to. A node sends what its neighbour
    lacks, by versions that are sent beforehand.
    """
    K, m, D = state.theta.shape
    trials = _judge(numbers, state) if "hurts" in state else {}
    entries = _publish(fewest, features, exchange, state)
    received, sent = _receive(entries, A)
    nodes = empty(state) | {"entries": received} | trials
    nodes |= {name: state.nodes[name].copy() for name in ("total", "kept") if name in state}
    for k in range(K):
        used = np.arange(K) != k
        if trials:
            used &= trials["out"][k] == 0
            own = shared.unpack(state.sums[k], D, m)
            for j in np.flatnonzero(used & (received[k, :, ROWS] > 0)).tolist():
                used[j] = not checks.loud(shared.unpack(received[k, j], D, m), own)
        others = received[k, used].sum(axis=0) + state.sums[k]
        if "kept" in state:
            others = _forget(numbers, nodes, k, others, (D, m))
        put(nodes, k, shared.to_memory(shared.unpack(others, D, m), numbers.rho))
    size = exchange.sending.bytes_of(shared.size(D, m), state.sums.itemsize)
    return state.having(**nodes), sent * size


def _receive(entries: Array, A: Any) -> tuple[Array, int]:
    """Entries (K, K, S) once neighbours have exchanged them, and how many were sent."""
    received, sent = entries.copy(), 0
    for k in range(len(entries)):
        for other in A.indices[A.indptr[k] : A.indptr[k + 1]]:
            lacking = entries[other, :, ROWS] > entries[k, :, ROWS]
            better = entries[other, :, ROWS] > received[k, :, ROWS]
            received[k, better] = entries[other, better]
            sent += int(lacking.sum())
    return received, sent


def _publish(fewest: int, features: object, exchange: Exchange, state: State) -> Array:
    """Entries (K, K, S), with those of nodes that have enough new rows, as these send them."""
    _, m, D = state.theta.shape
    entries, layout = state.entries.copy(), checks.layout_of(features)
    limits = checks.RowLimits(weight=np.inf, rate=1.0)
    for k, sums in enumerate(exchange.sending.rounded(_own_entries(exchange, state))):
        if not sums[ROWS] >= entries[k, k, ROWS] + fewest:
            continue
        entry = Entry(str(k), 0, shared.unpack(sums, D, m))
        before = Entry(str(k), 0, shared.unpack(entries[k, k], D, m))
        # A row a step at most; what was new at the last exchange may have been held back.
        if not checks.growth_faults(before, entry, layout, limits, seconds=state.clock + 1.0):
            entries[k, k] = sums
    return entries


def _own_entries(exchange: Exchange, state: State) -> Array:
    """What each node sends of itself, (K, S): one thing to everybody, since it is relayed."""
    entries, faults = state.sums, exchange.faults
    turn = state.clock // exchange.every
    if faults is None or not faults.attack.speaks(turn) or faults.attack.message is None:
        return entries
    entries = entries.copy()
    honest = state.sums[exchange.honest(state.K)]
    about = honest.mean(axis=0), honest, np.full(len(honest), 1.0 / state.K)
    for attacker in faults.faulty:
        own = state.sums[attacker], state.entries[attacker, attacker]
        weight = len(faults.faulty) / state.K
        seen = Seen(turn, attacker, *own, *about, weight, faults.attack.seed)
        entries[attacker] = faults.attack.message(seen, faults.attack.p)
    return entries


def _judge(numbers: Numbers, state: State) -> dict[str, Array]:
    """What is held against whom, (K, K) each, once own rows not sent yet were
    predicted. Nobody is named in a simulation, so as little is enough to leave out as to take back.
    """
    K, m, D = state.theta.shape
    found = {name: state.nodes[name].copy() for name in TRIAL}
    for k in range(K):
        fresh = shared.unpack(state.sums[k] - state.entries[k, k], D, m)
        known = np.flatnonzero(state.entries[k, :, ROWS])
        if not fresh.rows or not known.size:
            continue
        account = {
            str(j): Entry(str(j), 0, shared.unpack(state.entries[k, j], D, m)) for j in known
        }
        hurts, opposed, back = ({str(j): float(found[n][k, j]) for j in known} for n in TRIAL[:3])
        back = {name: back[name] for name in back if found["out"][k, int(name)]}
        trial = Trial(hurts, opposed, back)
        trial = checks.judge(trial, account, str(k), fresh, numbers.rho, checks.BACK)
        for j in known:
            for name in TRIAL[:3]:
                found[name][k, j] = getattr(trial, name).get(str(j), 0.0)
            found["out"][k, j] = str(j) in trial.back
    return found


def _forget(
    numbers: Numbers, nodes: dict[str, Any], k: int, total: Array, size: tuple[int, int]
) -> Array:
    """What is left of the network's rows: what was kept, forgotten, and what came since."""
    came, kept = total - nodes["total"][k], shared.unpack(nodes["kept"][k], *size)
    memory = shared.to_memory(kept, numbers.rho)
    left = shared.pack(shared.forget(numbers, kept, memory, came[ROWS])) + came
    nodes["total"][k], nodes["kept"][k] = total, left
    return np.asarray(left)
