"""Few bits a number: what changed since the last message, coarsely, with its error fed back.

A sender keeps what its neighbours know of it, told, and sends only the difference, each number as
one of 2^bits levels, evenly apart and none of them 0:

    told <- told + q(payload - told)

What q leaves behind is part of the next difference (error feedback), so told comes ever nearer to a
payload that rests. Levels are laid by the difference's root mean square, as is best for a Gaussian
(Max 1960), and then scaled by least squares: what is left is never longer than what there was,
whatever the difference. Whoever missed a message cannot read the next; see `applied`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np

from dokl.base.arrays import Array
from dokl.base.errors import BadInput

# Distance of levels over the root mean square, for 1 to 8 bits: the best for a Gaussian.
SPACING = (1.5958, 0.9957, 0.5860, 0.3352, 0.1881, 0.1041, 0.0569, 0.0308)
MOST_BITS = len(SPACING)
WHOLE = -1
_SCALE = struct.Struct("<f")


def coded(difference: Array, bits: int) -> tuple[Array, np.float32]:
    """Levels 0 to 2^bits - 1, (P,), and the distance between them."""
    apart, top = np.asarray(difference, np.float64), 2**bits - 1
    size = float(np.sqrt(np.mean(apart * apart))) if apart.size else 0.0
    if not size > 0:
        return np.zeros(apart.shape, np.uint8), np.float32(0.0)
    levels = np.clip(np.floor(apart / (SPACING[bits - 1] * size)) + (top + 1) / 2, 0, top)
    middle = levels - top / 2
    return levels.astype(np.uint8), np.float32(apart @ middle / (middle @ middle))


def decoded(levels: Array, scale: np.float32, bits: int) -> Array:
    """The difference as it arrives: (P,)."""
    return np.asarray((levels - (2**bits - 1) / 2) * float(scale))


def quantized(difference: Array, bits: int) -> Array:
    """q: what a difference, (P,), is after coding and decoding."""
    return decoded(*coded(difference, bits), bits)


def bytes_of(size: int, bits: int) -> int:
    """Bytes of a coded difference of `size` numbers."""
    return _SCALE.size + -(-size * bits // 8)


@dataclass(frozen=True)
class Coded:
    """A message: its number, that of the message it builds on (WHOLE: on none), and its bytes."""

    number: int
    after: int
    data: bytes


@dataclass(frozen=True)
class Copy:
    """What one side knows of the other's vector, and from which message."""

    values: Array
    number: int = 0


def encode(payload: Array, told: Copy, bits: int, whole: bool = False) -> tuple[Coded, Copy]:
    """The next message, and what a neighbour knows after it; whole: in float32, for anyone."""
    number = told.number + 1
    if whole:
        values = np.asarray(payload, np.float32)
        return Coded(number, WHOLE, values.astype("<f4").tobytes()), Copy(values, number)
    levels, scale = coded(np.asarray(payload, np.float64) - told.values, bits)
    packed = np.packbits(np.unpackbits(levels[:, None], axis=1, count=bits, bitorder="little"))
    known = told.values + decoded(levels, scale, bits)
    return Coded(number, told.number, _SCALE.pack(scale) + packed.tobytes()), Copy(known, number)


def applied(message: Coded, known: Copy, bits: int) -> Copy | None:
    """What a neighbour knows after a message; None after a gap: ask for a whole one.

    A message that is known, or older, changes nothing.
    """
    if message.number <= known.number:
        return known
    size = len(known.values)
    if message.after == WHOLE:
        _check_length(message, 4 * size)
        return Copy(np.frombuffer(message.data, "<f4").astype(np.float32), message.number)
    if message.after != known.number:
        return None
    _check_length(message, bytes_of(size, bits))
    (scale,) = _SCALE.unpack_from(message.data)
    each = np.unpackbits(np.frombuffer(message.data, np.uint8, offset=_SCALE.size))
    levels = np.packbits(each[: size * bits].reshape(size, bits), axis=1, bitorder="little")
    return Copy(known.values + decoded(levels[:, 0], np.float32(scale), bits), message.number)


def _check_length(message: Coded, length: int) -> None:
    if len(message.data) != length:
        raise BadInput(f"a message of {len(message.data)} bytes, where {length} were expected")
