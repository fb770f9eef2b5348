"""The exchange of what must neither be lost nor counted twice: the network's total stays.

    X_k <- X_k + sum_l b_kl h_l - h_k          h_k: what k last sent its neighbours

What one node gives another takes, of the very numbers that were sent. So however these were
rounded and however old they are, sum_k X_k stays what it was, to rounding.

b = a, where the columns of the weights sum to one: nodes then come to agree on the mean. Where
they do not, as over directed links, every node shares out all it has, b_kl = a_kl / sum_j a_jl,
and one number more, which began as 1 everywhere, is shared out alike: what a node holds, over that
number, comes to be the mean (push-sum; Kempe, Dobra and Gehrke 2003).

A node that has nothing new to send is silent. Over links on which both are, nothing flows: what was
sent would flow again and again, until a node had given more than it has. Nor does anything flow
where what a neighbour sent is impossible: honest nodes then keep their total.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dokl.base.arrays import Array
from dokl.network.exchange.attacks import Seen
from dokl.network.exchange.rules import Faults, Sending


def flows(A: Any) -> Any:
    """B - I (K, K) of weights A, its columns scaled to sum to one."""
    from scipy.sparse import csr_array, diags_array, eye_array

    return csr_array(A @ diags_array(1.0 / A.sum(axis=0)) - eye_array(A.shape[0]))


def is_doubly(A: Any, tol: float = 1e-9) -> bool:
    """Whether the columns of weights sum to one, as rows do."""
    return bool(np.abs(A.sum(axis=0) - 1.0).max() <= tol)


def is_symmetric(A: Any, tol: float = 1e-9) -> bool:
    """Whether links go both ways, and weigh the same."""
    return bool(abs(A - A.T).max() <= tol)


def conserve_once(
    sending: Sending, A: Any, flow: object, turn: int, payload: Array, sent: Array,
    faults: Faults | None = None, wild: Callable[[Array], bool] = lambda claimed: False,
) -> tuple[Array, Array, int]:  # fmt: skip
    """One exchange of all nodes: (mixed (K, P), what was last sent (K, P), bytes sent).

    A: (K, K) CSR weights, flow: B - I of them; the rest as in `rules.exchange_once`. A vector that
    goes out in parts is that of the first one, and flows with the last: parts of different ages
    would belong to no sums at all. wild: whether what a neighbour sends is impossible.
    """
    K, size = payload.shape
    send, known = np.full(K, True), sent.copy()
    if turn % sending.parts == 0:
        send = np.array([sending.noticeable(payload[k], sent[k]) for k in range(K)])
        known[send] = sending.known(payload[send], sent[send], turn)
    mixed, attacking = payload.copy(), np.zeros(K, bool) if faults is None else faults.now(turn, K)
    if turn % sending.parts == sending.parts - 1:
        links = _open(flow, send | attacking)
        mixed = payload + links @ known
        if faults is not None and attacking.any():
            mixed += _attacked_flow(sending, links, turn, payload, known, sent, faults, wild)
    known[attacking] = sent[attacking]  # which is what they would repeat
    out = np.bincount(A.indices, minlength=K) - (A.diagonal() != 0)
    return mixed, known, int(out[send].sum()) * sending.bytes_of(size, payload.itemsize, turn)


def _attacked_flow(
    sending: Sending, links: Any, turn: int, payload: Array, known: Array, sent: Array,
    faults: Faults, wild: Callable[[Array], bool],
) -> Array:  # fmt: skip
    """What lies add to that which honest nodes would have got, (K, P)."""
    flow, attacking, attack = links.toarray(), faults.now(turn, len(payload)), faults.attack
    change = np.zeros(payload.shape)
    for k in np.flatnonzero(~attacking).tolist():
        near = np.flatnonzero((flow[k] != 0) & (np.arange(len(flow)) != k))
        honest, faulty = near[~attacking[near]], near[attacking[near]]
        about = known[k], known[honest], flow[k, honest], float(flow[k, faulty].sum())
        for attacker in faulty.tolist():
            seen = Seen(turn, attacker, payload[attacker], sent[attacker], *about, attack.seed)
            assert attack.message is not None  # or nobody would lie
            claimed = sending.rounded(attack.message(seen, attack.p))
            if wild(claimed):  # then nothing flows either way
                change[k] += flow[attacker, k] * known[k] - flow[k, attacker] * known[attacker]
            else:
                change[k] += flow[k, attacker] * (claimed - known[attacker])
    return change


def _open(flow: Any, send: Array) -> Any:
    """What flows over links of which at least one end has spoken; links go both ways alike."""
    from scipy.sparse import csr_array, diags_array

    if send.all():
        return flow
    links = flow.tocoo()
    kept = (links.row != links.col) & (send[links.row] | send[links.col])
    where = links.row[kept], links.col[kept]
    between = csr_array((links.data[kept], where), shape=flow.shape)
    return csr_array(between - diags_array(between.sum(axis=0)))
