"""What a node sends and how what arrived is mixed: the same rules simulated and live.

What a node sends is a vector of numbers (its theta, say). What did not arrive, a message that was
not sent or a part of a vector, is replaced by one's own: its weight returns to self.

    psi_k = p_k + sum_l a_kl clip(v_l - p_k)        where v_l arrived; own numbers are never rounded

Where differences are sent (`Sending(bits=...)`), neighbours keep what they received, h, and a node
moves by it alone, so that what coding does to a vector cancels out in the network's mean:

    psi_k = p_k + sum_l a_kl clip(h_l - h_k)        h_k <- h_k + q(p_k - h_k)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dokl.base.arrays import Array, check_whole
from dokl.base.errors import BadInput, UnknownName
from dokl.network.exchange import robust
from dokl.network.exchange.attacks import Attack, Seen
from dokl.network.exchange.coding import MOST_BITS, quantize
from dokl.network.exchange.coding import bytes_of as coded_bytes
from dokl.network.graphs import most_faulty

DTYPES = ("float64", "float32", "float16")
MIXINGS = ("mean", "ios", "trimmed")
LARGEST16 = 65504.0


@dataclass(frozen=True)
class Sending:
    """What goes out when it is time.

    dtype    numbers are rounded to this type; None: as they are. float16 ends at 65504, and larger
             numbers are cut there.
    least    relative change since the last message below which nothing is sent; 0: always send.
    parts    a vector goes out in n parts, one in turn at each exchange; 1: whole.
    bits     1 to 8 bits for the change of each number since the last message, with the error fed
             back (`exchange.coding`); 0: the numbers themselves.
    refresh  with bits: at every n messages the numbers themselves, for receivers that missed
             one; 0: never.
    """

    dtype: str | None = None
    least: float = 0.0
    parts: int = 1
    bits: int = 0
    refresh: int = 0

    def __post_init__(self) -> None:
        if self.dtype is not None and self.dtype not in DTYPES:
            raise UnknownName("dtype to send", self.dtype, DTYPES)
        if not (np.isfinite(self.least) and self.least >= 0):
            raise BadInput(f"least must be a finite change, at least 0, got {self.least!r}")
        for name, low, high in (("parts", 1, None), ("bits", 0, MOST_BITS), ("refresh", 0, None)):
            check_whole(name, getattr(self, name), low, high)
        if self.refresh and not self.bits:
            raise BadInput("refresh is for bits: without them every message is whole")

    @property
    def remembers(self) -> bool:
        """Whether a message depends on what was sent before."""
        return self.least > 0 or self.bits > 0

    def rounded(self, payload: Array) -> Array:
        """The numbers as they arrive."""
        if self.dtype is None:
            return payload
        if self.dtype == "float16":
            payload = np.clip(payload, -LARGEST16, LARGEST16)
        return payload.astype(self.dtype).astype(payload.dtype)

    def known(self, payload: Array, sent: Array, turn: int) -> Array:
        """What neighbours know of vectors once they were sent; before they knew `known`, both (n,
        p).

        turn: number of the exchange.
        """
        if self.whole(turn):
            return self.rounded(payload)
        change, known = payload.astype(np.float64) - sent, sent.astype(np.float64)
        for row, each in zip(known, change, strict=True):
            row += quantize(each, self.bits)
        return known.astype(sent.dtype)

    def whole(self, turn: int) -> bool:
        """Whether this message holds the numbers themselves."""
        return not self.bits or (self.refresh > 0 and turn // self.parts % self.refresh == 0)

    def noticeable(self, payload: Array, sent: Array) -> bool:
        """Whether a vector has changed enough since it was last sent; both (P,)."""
        change = sum_of_squares(payload - sent)
        return change > self.least**2 * sum_of_squares(payload) if self.least else True

    def chosen(self, size: int, turn: int) -> slice:
        """The numbers of a vector whose turn it is."""
        return slice(turn % self.parts, size, self.parts)

    def bytes_of(self, size: int, itemsize: int, turn: int = 0) -> int:
        """Bytes of one message that carries a vector of `size` numbers, or its part."""
        part = -(-size // self.parts)
        if not self.whole(turn):
            return coded_bytes(part, self.bits)
        return part * (itemsize if self.dtype is None else np.dtype(self.dtype).itemsize)


@dataclass(frozen=True)
class Mixing:
    """How what arrived is mixed.

    clip   a difference longer than this Euclidean norm is shortened to it, so a faulty neighbour
           moves a node by no more than its weight times clip; 0: off. Sign flips it does not stop.
    rule   "mean": the weighted mean. "ios": without the neighbours that are farthest, one by
           one (iterative outlier scissors). "trimmed": the weighted mean of every number without
           its largest and smallest values. One's own vector always counts.
    faulty how many neighbours are dropped (by "trimmed": on either side); None: as many as those
           that arrived tolerate, `graphs.most_faulty`.
    far    "ios" drops only whose median distance to the others is more than n times the usual
           one; 0: always, the farthest from the mean, as published, which costs much where honest
           nodes differ.
    """

    clip: float = 0.0
    rule: str = "mean"
    faulty: int | None = field(default=None, metadata={"earlier": "liars"})
    far: float = 1.75

    def __post_init__(self) -> None:
        if not (np.isfinite(self.clip) and self.clip >= 0):
            raise BadInput(f"clip must be a finite norm, at least 0, got {self.clip!r}")
        if not (np.isfinite(self.far) and self.far >= 0):
            raise BadInput(f"far must be a finite ratio, at least 0, got {self.far!r}")
        if self.rule not in MIXINGS:
            raise UnknownName("rule of mixing", self.rule, MIXINGS)
        whole = isinstance(self.faulty, int | np.integer) and not isinstance(self.faulty, bool)
        if self.faulty is not None and not (whole and self.faulty >= 0):
            raise BadInput(
                f"faulty must be a whole number, at least 0, or None, got {self.faulty!r}"
            )

    def mixed(self, own: Array, arrived: Sequence[tuple[float, Array]]) -> Array:
        """One's own vector moved towards those that arrived, (weight, vector), in this order."""
        own = own.astype(np.float64)
        if self.rule == "trimmed" and arrived:
            weights, apart = _stack(own, arrived)
            apart = np.stack([self._short(each) for each in apart])
            return np.asarray(own + robust.trimmed(weights, apart, self._drop(weights)))
        used = [part for part, use in zip(arrived, self.kept(own, arrived), strict=True) if use]
        gone = sum(weight for weight, _ in arrived) - sum(weight for weight, _ in used)
        left = 1.0 - gone if len(used) < len(arrived) else 1.0  # to divide by, where some are gone
        total = own.copy()
        for weight, other in used:
            total += weight / left * self._short(other - own)
        return total

    def kept(self, own: Array, arrived: Sequence[tuple[float, Array]]) -> list[bool]:
        """Whose vectors are used; by "ios" not all, and what is dropped is far from the others."""
        if self.rule != "ios" or not arrived:
            return [True] * len(arrived)
        weights, apart = _stack(own.astype(np.float64), arrived)
        left = robust.iterative_outliers(weights, apart, self._drop(weights), self.far)
        return [bool(use) for use in left]

    def _drop(self, weights: Array) -> int:
        return most_faulty(weights.tolist()) if self.faulty is None else int(self.faulty)

    def _short(self, apart: Array) -> Array:
        """A difference, no longer than clip."""
        length = float(np.sqrt(sum_of_squares(apart))) if self.clip else 0.0
        return apart * (self.clip / length) if length > self.clip else apart


def _stack(own: Array, arrived: Sequence[tuple[float, Array]]) -> tuple[Array, Array]:
    """Weights (n,), and differences from one's own (n, P)."""
    weights = np.array([weight for weight, _ in arrived], np.float64)
    return weights, np.stack([np.asarray(other, np.float64) - own for _, other in arrived])


MEAN = Mixing()


def sum_of_squares(values: Array) -> float:
    """Sum of squares in float64, the same however the numbers lie in memory."""
    flat = np.ascontiguousarray(values, np.float64).reshape(-1)
    return float(np.sum(flat * flat))


@dataclass(frozen=True)
class Faults:
    """An attack, and the nodes that run it."""

    attack: Attack
    faulty: tuple[int, ...]

    def now(self, turn: int, K: int) -> Array:
        """Which nodes attack at this exchange: (K,) of bool."""
        attacking = np.zeros(K, bool)
        attacking[list(self.faulty)] = self.attack.speaks(turn)
        return attacking


class _Round:
    """What all nodes send in one exchange, of the numbers whose turn it is: (K, p) each.

    own: what nodes compare with; arriving: what arrives of it; here: of whom something arrives.
    """

    def __init__(
        self, sending: Sending, turn: int, payload: Array, sent: Array, faults: Faults | None
    ) -> None:
        K = len(payload)
        self.sending, self.turn, self.payload, self.faults = sending, turn, payload, faults
        self.attacking = np.zeros(K, bool) if faults is None else faults.now(turn, K)
        noticed = [sending.noticeable(*pair) for pair in zip(payload, sent, strict=True)]
        self.send = np.array(noticed) | self.attacking
        sends, self.last_sent = self.send & ~self.attacking, sent.copy()
        self.last_sent[sends] = payload[sends]
        self.own, self.arriving, self.here = payload, sending.rounded(payload), self.send
        if sending.bits:  # what was sent is what counts, on both sides, and silence changes nothing
            self.last_sent[sends] = sending.known(payload[sends], sent[sends], turn)
            self.arriving, self.here = self.last_sent, np.ones(K, bool)
            self.own = np.where(self.attacking[:, None], payload, self.last_sent)

    def arrivals(self, k: int, links: Sequence[tuple[int, float]]) -> list[tuple[float, Array]]:
        """What arrives at node k from its neighbours, (weight, vector)."""
        near = [(node, a) for node, a in links if node != k and self.here[node]]
        if (
            self.faults is None
            or self.attacking[k]
            or not any(self.attacking[node] for node, _ in near)
        ):
            return [(a, self.arriving[node]) for node, a in near]
        honest = [(node, a) for node, a in near if not self.attacking[node]]
        vectors = self.arriving[[node for node, _ in honest]].astype(np.float64)
        shares = np.array([a for _, a in honest], np.float64)
        weight = sum(a for node, a in near if self.attacking[node])
        found, attack = [], self.faults.attack
        for node, a in near:
            vector = self.arriving[node]
            if self.attacking[node] and attack.message is not None:
                about = (
                    self.payload[node],
                    self.last_sent[node],
                    self.own[k],
                    vectors,
                    shares,
                    weight,
                )
                seen = Seen(self.turn, node, *about, attack.seed)
                vector = self.sending.rounded(attack.message(seen, attack.p).astype(vector.dtype))
            found.append((a, vector))
        return found


def _moves(A: Any, now: _Round) -> Array:
    """How far the weighted mean moves every node, (K, p): products along the links."""
    arrived = np.where(now.here[:, None], now.arriving, 0.0).astype(np.float64)
    weight = A @ now.here.astype(np.float64)
    own = A.diagonal()[:, None]
    others = A @ arrived - own * arrived
    return np.asarray(others - (weight[:, None] - own * now.here[:, None]) * now.own)


def _mix_all(mixing: Mixing, A: Any, now: _Round) -> Array:
    """How far any rule moves every node, (K, p)."""
    moves = np.zeros(now.own.shape)
    for k in range(len(moves)):
        links = slice(A.indptr[k], A.indptr[k + 1])
        near = zip(A.indices[links].tolist(), A.data[links].tolist(), strict=True)
        moves[k] = mixing.mixed(now.own[k], now.arrivals(k, list(near))) - now.own[k]
    return moves


def exchange_once(
    sending: Sending, mixing: Mixing, A: Any, turn: int, payload: Array, sent: Array,
    faults: Faults | None = None,
) -> tuple[Array, Array, int]:  # fmt: skip
    """One exchange of all nodes: (mixed (K, P), what was last sent (K, P), bytes sent).

    A: (K, K) CSR weights; payload: (K, P) what each node has now; sent: (K, P) what its neighbours
    last received of it. turn: number of this exchange.
    """
    K, size = payload.shape
    part = sending.chosen(size, turn)
    now = _Round(sending, turn, payload[:, part], sent[:, part], faults)
    sent = sent.copy()
    sent[:, part] = now.last_sent
    mixed = payload.astype(np.float64)
    moves = (
        _moves(A, now) if mixing == MEAN and not now.attacking.any() else _mix_all(mixing, A, now)
    )
    mixed[:, part] += moves
    out = np.bincount(A.indices, minlength=K) - (A.diagonal() != 0)
    return mixed, sent, int(out[now.send].sum()) * sending.bytes_of(size, payload.itemsize, turn)
