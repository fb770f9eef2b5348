"""What a node sends and how what arrived is mixed: the same rules simulated and live.

What a node sends is a vector of numbers (its theta, say). What did not arrive, a message that was
not sent or a part of a vector, is replaced by one's own: its weight returns to self.

    psi_k = p_k + sum_l a_kl clip(v_l - p_k)        where v_l arrived; own numbers are never rounded

Where differences are sent (`Sending(bits=...)`), neighbours keep what they were told, h, and a node
moves by it alone, so that what coding does to a vector cancels out in the network's mean:

    psi_k = p_k + sum_l a_kl clip(h_l - h_k)        h_k <- h_k + q(p_k - h_k)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dokl.base.arrays import Array, check_whole
from dokl.base.errors import BadInput, UnknownName
from dokl.network.exchange import robust
from dokl.network.exchange.attacks import Attack, Seen
from dokl.network.exchange.coding import MOST_BITS, quantized
from dokl.network.exchange.coding import bytes_of as coded_bytes
from dokl.network.graphs import most_liars

DTYPES = ("float64", "float32", "float16")
MIXINGS = ("mean", "ios", "trimmed")
LARGEST16 = 65504.0


@dataclass(frozen=True)
class Sending:
    """What goes out when it is time.

    dtype    numbers are rounded to this type; None: as they are. float16 ends at 65504, and larger
             numbers are cut there.
    least    relative change since the last message below which nothing is sent; 0: always send.
    parts    a vector goes out in so many parts, one in turn at each exchange; 1: whole.
    bits     1 to 8 bits for the change of each number since the last message, with the error fed
             back (`exchange.coding`); 0: the numbers themselves.
    refresh  with bits: at every so many messages the numbers themselves, for whoever has missed
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
        """Whether a message depends on what was told before."""
        return self.least > 0 or self.bits > 0

    def rounded(self, payload: Array) -> Array:
        """The numbers as they arrive."""
        if self.dtype is None:
            return payload
        if self.dtype == "float16":
            payload = np.clip(payload, -LARGEST16, LARGEST16)
        return payload.astype(self.dtype).astype(payload.dtype)

    def known(self, payload: Array, told: Array, turn: int) -> Array:
        """What neighbours know of vectors once they were sent; before they knew told, both (n, p).

        turn: number of the exchange.
        """
        if self.whole(turn):
            return self.rounded(payload)
        change, known = payload.astype(np.float64) - told, told.astype(np.float64)
        for row, each in zip(known, change, strict=True):
            row += quantized(each, self.bits)
        return known.astype(told.dtype)

    def whole(self, turn: int) -> bool:
        """Whether this message holds the numbers themselves."""
        return not self.bits or (self.refresh > 0 and turn // self.parts % self.refresh == 0)

    def noticeable(self, payload: Array, told: Array) -> bool:
        """Whether a vector has changed enough since it was last told; both (P,)."""
        change = sum_of_squares(payload - told)
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

    clip   a difference longer than this Euclidean norm is shortened to it, so a neighbour that lies
           moves a node by no more than its weight times clip; 0: off. Sign flips it does not stop.
    rule   "mean": the weighted mean. "ios": without the neighbours that are farthest, one by
           one (iterative outlier scissors). "trimmed": the weighted mean of every number without
           its largest and smallest values. One's own vector always counts.
    liars  how many neighbours are dropped (by "trimmed": on either side); None: as many as those
           that arrived can stand, `graphs.most_liars`.
    far    "ios" drops only whose median distance to the others is more than so many times the usual
           one; 0: always, the farthest from the mean, as published, which costs much where honest
           nodes differ.
    """

    clip: float = 0.0
    rule: str = "mean"
    liars: int | None = None
    far: float = 1.75

    def __post_init__(self) -> None:
        if not (np.isfinite(self.clip) and self.clip >= 0):
            raise BadInput(f"clip must be a finite norm, at least 0, got {self.clip!r}")
        if not (np.isfinite(self.far) and self.far >= 0):
            raise BadInput(f"far must be a finite ratio, at least 0, got {self.far!r}")
        if self.rule not in MIXINGS:
            raise UnknownName("rule of mixing", self.rule, MIXINGS)
        whole = isinstance(self.liars, int | np.integer) and not isinstance(self.liars, bool)
        if self.liars is not None and not (whole and self.liars >= 0):
            raise BadInput(f"liars must be a whole number, at least 0, or None, got {self.liars!r}")

    def mixed(self, own: Array, arrived: Sequence[tuple[float, Array]]) -> Array:
        """One's own vector moved towards those that arrived, (weight, vector), in this order."""
        own = own.astype(np.float64)
        if self.rule == "trimmed" and arrived:
            weights, apart = _stacked(own, arrived)
            apart = np.stack([self._short(each) for each in apart])
            return np.asarray(own + robust.trimmed(weights, apart, self._dropped(weights)))
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
        weights, apart = _stacked(own.astype(np.float64), arrived)
        left = robust.scissors(weights, apart, self._dropped(weights), self.far)
        return [bool(use) for use in left]

    def _dropped(self, weights: Array) -> int:
        return most_liars(weights.tolist()) if self.liars is None else int(self.liars)

    def _short(self, apart: Array) -> Array:
        """A difference, no longer than clip."""
        length = float(np.sqrt(sum_of_squares(apart))) if self.clip else 0.0
        return apart * (self.clip / length) if length > self.clip else apart


def _stacked(own: Array, arrived: Sequence[tuple[float, Array]]) -> tuple[Array, Array]:
    """Weights (n,), and differences from one's own (n, P)."""
    weights = np.array([weight for weight, _ in arrived], np.float64)
    return weights, np.stack([np.asarray(other, np.float64) - own for _, other in arrived])


MEAN = Mixing()


def sum_of_squares(values: Array) -> float:
    """Sum of squares in float64, the same however the numbers lie in memory."""
    flat = np.ascontiguousarray(values, np.float64).reshape(-1)
    return float(np.sum(flat * flat))


@dataclass(frozen=True)
class Lies:
    """Who lies, and how."""

    attack: Attack
    liars: tuple[int, ...]

    def now(self, turn: int, K: int) -> Array:
        """Who lies at this exchange: (K,) of bool."""
        lying = np.zeros(K, bool)
        lying[list(self.liars)] = self.attack.speaks(turn)
        return lying


class _Round:
    """What all nodes say in one exchange, of the numbers whose turn it is: (K, p) each.

    own: what nodes compare with; said: what arrives of it; here: of whom something arrives.
    """

    def __init__(
        self, sending: Sending, turn: int, payload: Array, told: Array, lies: Lies | None
    ) -> None:
        K = len(payload)
        self.sending, self.turn, self.payload, self.lies = sending, turn, payload, lies
        self.lying = np.zeros(K, bool) if lies is None else lies.now(turn, K)
        noticed = [sending.noticeable(*pair) for pair in zip(payload, told, strict=True)]
        self.send = np.array(noticed) | self.lying
        tell, self.told = self.send & ~self.lying, told.copy()
        self.told[tell] = payload[tell]
        self.own, self.said, self.here = payload, sending.rounded(payload), self.send
        if sending.bits:  # what was told is what counts, on both sides, and silence changes nothing
            self.told[tell] = sending.known(payload[tell], told[tell], turn)
            self.said, self.here = self.told, np.ones(K, bool)
            self.own = np.where(self.lying[:, None], payload, self.told)

    def heard(self, k: int, links: Sequence[tuple[int, float]]) -> list[tuple[float, Array]]:
        """What arrives at node k from its neighbours, (weight, vector)."""
        near = [(node, a) for node, a in links if node != k and self.here[node]]
        if self.lies is None or self.lying[k] or not any(self.lying[node] for node, _ in near):
            return [(a, self.said[node]) for node, a in near]
        honest = [(node, a) for node, a in near if not self.lying[node]]
        vectors = self.said[[node for node, _ in honest]].astype(np.float64)
        shares = np.array([a for _, a in honest], np.float64)
        weight = sum(a for node, a in near if self.lying[node])
        found, attack = [], self.lies.attack
        for node, a in near:
            said = self.said[node]
            if self.lying[node] and attack.message is not None:
                about = self.payload[node], self.told[node], self.own[k], vectors, shares, weight
                seen = Seen(self.turn, node, *about, attack.seed)
                said = self.sending.rounded(attack.message(seen, attack.p).astype(said.dtype))
            found.append((a, said))
        return found


def _moves(A: Any, now: _Round) -> Array:
    """How far the weighted mean moves every node, (K, p): products along the links."""
    heard = np.where(now.here[:, None], now.said, 0.0).astype(np.float64)
    weight = A @ now.here.astype(np.float64)
    own = A.diagonal()[:, None]
    others = A @ heard - own * heard
    return np.asarray(others - (weight[:, None] - own * now.here[:, None]) * now.own)


def _mixed(mixing: Mixing, A: Any, now: _Round) -> Array:
    """How far any rule moves every node, (K, p)."""
    moves = np.zeros(now.own.shape)
    for k in range(len(moves)):
        links = slice(A.indptr[k], A.indptr[k + 1])
        near = zip(A.indices[links].tolist(), A.data[links].tolist(), strict=True)
        moves[k] = mixing.mixed(now.own[k], now.heard(k, list(near))) - now.own[k]
    return moves


def exchange_once(
    sending: Sending, mixing: Mixing, A: Any, turn: int, payload: Array, told: Array,
    lies: Lies | None = None,
) -> tuple[Array, Array, int]:  # fmt: skip
    """One exchange of all nodes: (mixed (K, P), what was last told (K, P), bytes sent).

    A: (K, K) CSR weights; payload: (K, P) what each node has now; told: (K, P) what its neighbours
    last heard of it. turn: number of this exchange.
    """
    K, size = payload.shape
    part = sending.chosen(size, turn)
    now = _Round(sending, turn, payload[:, part], told[:, part], lies)
    told = told.copy()
    told[:, part] = now.told
    mixed = payload.astype(np.float64)
    moves = _moves(A, now) if mixing == MEAN and not now.lying.any() else _mixed(mixing, A, now)
    mixed[:, part] += moves
    out = np.bincount(A.indices, minlength=K) - (A.diagonal() != 0)
    return mixed, told, int(out[now.send].sum()) * sending.bytes_of(size, payload.itemsize, turn)
