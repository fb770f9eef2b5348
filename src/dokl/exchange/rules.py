"""What a node sends and how what arrived is mixed: the same rules simulated and live.

What a node sends is a vector of numbers (its theta, say). What did not arrive, a message that was
not sent or a part of a vector, is replaced by one's own: its weight returns to self.

    psi_k = p_k + sum_l a_kl clip(v_l - p_k)        where v_l arrived; own numbers are never rounded
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dokl.arrays import Array
from dokl.errors import BadInput, UnknownName

DTYPES = ("float64", "float32", "float16")
LARGEST16 = 65504.0


@dataclass(frozen=True)
class Sending:
    """What goes out when it is time.

    dtype  numbers are rounded to this type; None: as they are. float16 ends at 65504, and larger
           numbers are cut there.
    least  relative change since the last message below which nothing is sent; 0: always send.
    parts  a vector goes out in so many parts, one in turn at each exchange; 1: whole.
    """

    dtype: str | None = None
    least: float = 0.0
    parts: int = 1

    def __post_init__(self) -> None:
        if self.dtype is not None and self.dtype not in DTYPES:
            raise UnknownName("dtype to send", self.dtype, DTYPES)
        if not (np.isfinite(self.least) and self.least >= 0):
            raise BadInput(f"least must be a finite change, at least 0, got {self.least!r}")
        if not (isinstance(self.parts, int | np.integer) and self.parts >= 1):
            raise BadInput(f"parts must be a whole number, at least 1, got {self.parts!r}")

    def rounded(self, payload: Array) -> Array:
        """The numbers as they arrive."""
        if self.dtype is None:
            return payload
        if self.dtype == "float16":
            payload = np.clip(payload, -LARGEST16, LARGEST16)
        return payload.astype(self.dtype).astype(payload.dtype)

    def noticeable(self, payload: Array, told: Array) -> bool:
        """Whether a vector has changed enough since it was last told; both (P,)."""
        change = sum_of_squares(payload - told)
        return change > self.least**2 * sum_of_squares(payload) if self.least else True

    def chosen(self, size: int, turn: int) -> slice:
        """The numbers of a vector whose turn it is."""
        return slice(turn % self.parts, size, self.parts)

    def bytes_of(self, size: int, itemsize: int) -> int:
        """Bytes of one message that carries a vector of `size` numbers, or its part."""
        each = itemsize if self.dtype is None else np.dtype(self.dtype).itemsize
        return each * -(-size // self.parts)


@dataclass(frozen=True)
class Mixing:
    """How what arrived is mixed.

    clip  a difference longer than this Euclidean norm is shortened to it, so a neighbour that lies
          moves a node by no more than its weight times clip; 0: off.
    """

    clip: float = 0.0

    def __post_init__(self) -> None:
        if not (np.isfinite(self.clip) and self.clip >= 0):
            raise BadInput(f"clip must be a finite norm, at least 0, got {self.clip!r}")

    def mixed(self, own: Array, arrived: Sequence[tuple[float, Array]]) -> Array:
        """One's own vector moved towards those that arrived, (weight, vector), in this order."""
        total = own.astype(np.float64)
        own = total.copy()
        for weight, other in arrived:
            apart = other - own
            length = float(np.sqrt(sum_of_squares(apart))) if self.clip else 0.0
            total += (weight * self.clip / length if length > self.clip else weight) * apart
        return total


def sum_of_squares(values: Array) -> float:
    """Sum of squares in float64, the same however the numbers lie in memory."""
    flat = np.ascontiguousarray(values, np.float64).reshape(-1)
    return float(np.sum(flat * flat))


def exchange_once(
    sending: Sending, mixing: Mixing, A: Any, turn: int, payload: Array, told: Array
) -> tuple[Array, Array, int]:
    """One exchange of all nodes: (mixed (K, P), what was last told (K, P), bytes sent).

    A: (K, K) CSR weights; payload: (K, P) what each node has now; told: (K, P) what its neighbours
    last heard of it. turn: number of this exchange.
    """
    K, size = payload.shape
    part = sending.chosen(size, turn)
    send = np.array([sending.noticeable(payload[k, part], told[k, part]) for k in range(K)])
    told = told.copy()
    told[send, part] = payload[send, part]
    arriving = np.where(send[:, None], sending.rounded(payload[:, part]), np.nan)
    mixed = payload.astype(np.float64)
    for k in range(K):
        links = slice(A.indptr[k], A.indptr[k + 1])
        others = [
            (float(a), arriving[other])
            for other, a in zip(A.indices[links], A.data[links], strict=True)
            if other != k and send[other]
        ]
        mixed[k, part] = mixing.mixed(payload[k, part], others)
    out = np.bincount(A.indices, minlength=K) - (A.diagonal() != 0)
    return mixed, told, int(out[send].sum()) * sending.bytes_of(size, payload.itemsize)
