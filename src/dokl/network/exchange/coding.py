"""Few bits a number: what changed since the last message, coarsely, with its error fed back.

A sender keeps what its neighbours know of it, h, and sends only the difference, each number as
one of 2^bits levels, evenly apart and none of them 0:

    h <- h + q(payload - h)

What q leaves behind is part of the next difference (error feedback), so h comes ever nearer to a
payload that rests. Levels are laid by the difference's root mean square, as is best for a Gaussian
(Max 1960), and then scaled by least squares: what is left is never longer than what there was,
whatever the difference. A receiver that missed a message cannot decode the next.
"""

from __future__ import annotations

import struct

import numpy as np

from dokl.base.arrays import Array

# Distance of levels over the root mean square, for 1 to 8 bits: the best for a Gaussian.
SPACING = (1.5958, 0.9957, 0.5860, 0.3352, 0.1881, 0.1041, 0.0569, 0.0308)
MOST_BITS = len(SPACING)
_SCALE = struct.Struct("<f")


def encode_levels(difference: Array, bits: int) -> tuple[Array, np.float32]:
    """Levels 0 to 2^bits - 1, (P,), and the distance between them."""
    apart, top = np.asarray(difference, np.float64), 2**bits - 1
    size = float(np.sqrt(np.mean(apart * apart))) if apart.size else 0.0
    if not size > 0:
        return np.zeros(apart.shape, np.uint8), np.float32(0.0)
    levels = np.clip(np.floor(apart / (SPACING[bits - 1] * size)) + (top + 1) / 2, 0, top)
    middle = levels - top / 2
    return levels.astype(np.uint8), np.float32(apart @ middle / (middle @ middle))


def decode_levels(levels: Array, scale: np.float32, bits: int) -> Array:
    """The difference as it arrives: (P,)."""
    return np.asarray((levels - (2**bits - 1) / 2) * float(scale))


def quantize(difference: Array, bits: int) -> Array:
    """q: what a difference, (P,), is after coding and decoding."""
    return decode_levels(*encode_levels(difference, bits), bits)


def bytes_of(size: int, bits: int) -> int:
    """Bytes of a coded difference of `size` numbers."""
    return _SCALE.size + -(-size * bits // 8)
