"""Sums that are too large for one message: cut into pieces, and put together again.

The whole is signed, not its pieces; each carries 16 bytes of the SHA-256 of the whole, so that
pieces of two wholes never mix (`origins.pieces`). They may be lost, repeated or overtaken: a whole
that stays incomplete is sent again, and what is here of it counts. A neighbour takes no more room
than two wholes of this network, whatever it sends, and for no longer than `expiry` says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256

from dokl.base.errors import BadInput
from dokl.network.sums import origins

WHOLE = 2_000_000  # bytes that travel in one message
SIZE = 1_000_000  # bytes of a piece
KEPT = 2  # incomplete wholes of one neighbour
EXPIRY = 30.0  # seconds that they wait for their next piece, at least
PACES = 3.0  # times what is between two pieces, the same: one may be lost or late


@dataclass(frozen=True)
class Incomplete:
    """What is here of a whole: its pieces by number. at: when the last of them came."""

    mark: bytes
    count: int
    known: Mapping[int, bytes]
    at: float


def cut(body: bytes) -> tuple[bytes, ...]:
    """What is sent of a body that is too large for one message."""
    return tuple(origins.pieces(body, SIZE))


def number(most: int) -> int:
    """How many messages a body of n bytes takes.

    >>> number(2_000_000), number(2_000_001)
    (1, 3)
    """
    return 1 if most <= WHOLE else -(-most // (SIZE - origins.PIECE.size))


def expiry(pace: float) -> float:
    """For how long a whole waits for its next piece where pieces are n seconds apart.

    >>> expiry(0.1), expiry(60.0)
    (30.0, 180.0)
    """
    return max(EXPIRY, PACES * pace)


def largest(most: int) -> int:
    """The largest message body where wholes have at most n bytes."""
    return most if most <= WHOLE else SIZE


def add(
    incomplete: tuple[Incomplete, ...], piece: bytes, most: int, now: float, wait: float = EXPIRY
) -> tuple[tuple[Incomplete, ...], bytes | None]:
    """What is incomplete once this piece has come, and the whole that it completed, if any.

    most: the most bytes that a whole may have; wait: seconds after which it is forgotten. BadInput
    where the piece is none of such a whole.
    """
    mark, i, count = _head(piece)
    if not i < count <= number(most):
        raise BadInput(f"piece {i} of {count}, where there are {number(most)} at most")
    incomplete = alive(incomplete, now, wait)
    before = next((each for each in incomplete if (each.mark, each.count) == (mark, count)), None)
    known = {**({} if before is None else before.known), i: piece[origins.PIECE.size :]}
    others = tuple(each for each in incomplete if each is not before)
    if len(known) < count:
        return (*others[-(KEPT - 1) :], Incomplete(mark, count, known, now)), None
    whole = b"".join(known[n] for n in range(count))
    if len(whole) > most or sha256(whole).digest()[: len(mark)] != mark:
        raise BadInput("its pieces do not make the whole that they belong to")
    return others, whole


def alive(
    incomplete: tuple[Incomplete, ...], now: float, wait: float = EXPIRY
) -> tuple[Incomplete, ...]:
    """Without what has waited for too long."""
    return tuple(each for each in incomplete if now - each.at < wait)


def _head(piece: bytes) -> tuple[bytes, int, int]:
    if not origins.PIECE.size < len(piece) <= SIZE:
        raise BadInput(f"{len(piece)} bytes are not a piece of a message")
    mark, i, count = origins.PIECE.unpack_from(piece)
    return mark, i, count
