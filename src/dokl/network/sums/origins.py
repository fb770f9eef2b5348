"""Sums per origin: an account of who learned what, that merges whatever happens to messages.

A node keeps, of every origin, the newest entry that it knows: (origin, incarnation, rows, sums).
The network's sums are their sum. Merging takes the newer entry of each origin, so accounts agree
once the same entries have reached them, in whatever order, however often, by whatever way. What
drops or replaces one entry is exact: the total is added up again, in the order of names, and has
the same bits as if the other had never been.

    further rows       the same incarnation, more rows
    other sums         unlearned rows, an older copy after a crash: the next incarnation
    no rows any more   the next incarnation, of no rows; it stays, so that no older one comes back

>>> from dokl.learning.squares import sums
>>> one, two = (sums.add(sums.no_rows(2, 1), np.eye(2), np.full((2, 1), y)) for y in (1.0, 3.0))
>>> account = merge({}, [Entry("a", 0, one), Entry("b", 0, two)])
>>> total(account).yy, total(merge(account, [Entry("b", 1, sums.no_rows(2, 1))])).yy
(array([20.]), array([2.]))
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

import numpy as np

from dokl.base.arrays import Array
from dokl.base.errors import BadInput
from dokl.learning.squares import sums as added_up
from dokl.learning.squares.sums import Sums
from dokl.network.sums import shared

DTYPES: dict[str, np.dtype[Any]] = {"f": np.dtype("<f4"), "d": np.dtype("<f8")}
# Magic, type of numbers, length of the origin's name, incarnation, rows, D, m.
_HEAD = struct.Struct("<8scHqqII")
_MAGIC = b"doklor1\n"
# Before the bytes of a piece: of which whole (of its SHA-256), its number, how many there are.
PIECE = struct.Struct("<16sHH")
# A name, and what an account may hold, so that nobody fills another's memory.
LONGEST, MOST_BYTES = 255, 1 << 31


@dataclass(frozen=True)
class Entry:
    """What one origin has learned so far."""

    origin: str
    incarnation: int
    sums: Sums

    @property
    def version(self) -> tuple[int, int]:
        """The larger, the newer."""
        return self.incarnation, self.sums.rows

    @cached_property
    def content(self) -> bytes:
        """Its content, as bytes that are the same wherever it is."""
        return shared.pack(self.sums).tobytes()


Account = Mapping[str, Entry]


def newer(one: Entry, other: Entry) -> Entry:
    """The newer of two entries of an origin.

    An honest origin never gives two entries the same version. Of one that does, everybody takes
    the same: otherwise accounts would depend on the order of arrival.
    """
    if one.version != other.version:
        return max(one, other, key=lambda entry: entry.version)
    return one if one is other else max(one, other, key=lambda entry: entry.content)


def merge(account: Account, entries: Iterable[Entry]) -> dict[str, Entry]:
    """The account with these entries, in any order, again or for the first time."""
    found = dict(account)
    for entry in entries:
        known = found.get(entry.origin)
        found[entry.origin] = entry if known is None else newer(known, entry)
    return found


def total(account: Account, without: Collection[str] = ()) -> Sums:
    """The network's sums, but for some origins, in the order of names."""
    kept = [account[name].sums for name in sorted(account) if name not in without]
    if not kept and not account:
        raise BadInput("without entries there are no sums, and their size is unknown")
    m, D = next(iter(account.values())).sums.zy.shape
    return reduce(Sums.__add__, kept, added_up.no_rows(D, m))


def check_size(K: int, D: int, m: int, most: int = MOST_BYTES) -> None:
    """Refuse accounts of K origins that are too large, before they are."""
    size = 8 * K * shared.size(D, m)
    if size > most:
        raise BadInput(
            f"sums of {K} origins with D = {D} take {size / 1e9:.1f} GB at every node, more than "
            f"{most / 1e9:.1f}: take fewer features (modes), or share='sums', where a node "
            "keeps one copy for all"
        )


# -- as bytes ----------------------------------------------------------------------------------
def most_bytes(m: int, D: int) -> int:
    """The most bytes of a sealed entry of sums: numbers in float32, a name, a seal."""
    return 4 * (2 + D * (D + 1) // 2 + m * (D + 1)) + 16_384


def to_bytes(entry: Entry, dtype: Any = np.float32) -> bytes:
    """An entry in bytes; numbers rounded to float32, or exact in float64."""
    kind = np.dtype(dtype).char
    if kind not in DTYPES:
        raise BadInput(f"entries travel in float32 or float64, not in {np.dtype(dtype)}")
    name = entry.origin.encode()
    if not 0 < len(name) <= LONGEST:
        raise BadInput(f"a name of 1 to {LONGEST} bytes is needed, got {len(name)}")
    m, D = entry.sums.zy.shape
    numbers = shared.pack(entry.sums)[shared.ROWS + 1 :].astype(DTYPES[kind])
    about = kind.encode(), len(name), entry.incarnation, entry.sums.rows, D, m
    return _HEAD.pack(_MAGIC, *about) + name + numbers.tobytes()


def origin_in(data: bytes) -> str:
    """The origin that an entry names, without a look at the rest; "" where it names none."""
    if len(data) < _HEAD.size or data[:8] != _MAGIC:
        return ""
    length = _HEAD.unpack_from(data)[2]
    return data[_HEAD.size : _HEAD.size + length].decode(errors="replace")


def from_bytes(data: bytes) -> Entry:
    """The entry that was packed; BadInput if it is damaged or not finite."""
    if len(data) < _HEAD.size or data[:8] != _MAGIC:
        raise BadInput("these bytes are not an entry of sums")
    _, kind, length, incarnation, rows, D, m = _HEAD.unpack_from(data)
    dtype, at = DTYPES.get(kind.decode("latin1")), _HEAD.size + length
    if dtype is None or not 0 < length <= LONGEST or min(incarnation, rows, D - 1, m - 1) < 0:
        raise BadInput("the head of an entry is damaged")
    if len(data) - at != dtype.itemsize * (shared.size(D, m) - 1):
        raise BadInput(f"an entry with D = {D} and m = {m} has another length")
    with np.errstate(invalid="ignore"):  # signalling NaNs, which are refused next
        numbers: Array = np.frombuffer(data, dtype, offset=at).astype(np.float64)
    if not np.isfinite(numbers).all():
        raise BadInput("an entry has numbers that are not finite")
    try:
        origin = data[_HEAD.size : at].decode()
    except UnicodeDecodeError:
        raise BadInput("the name in an entry is no text") from None
    return Entry(origin, incarnation, shared.unpack(np.concatenate([[rows], numbers]), D, m))


def pieces(data: bytes, most: int) -> list[bytes]:
    """Bytes cut into messages of at most n; each can be repeated, lost or late."""
    room = most - PIECE.size
    count = -(-len(data) // room) if room > 0 else 0
    if not 0 < count < 1 << 16:
        raise BadInput(f"{len(data)} bytes cannot be cut into pieces of {most}")
    whole = hashlib.sha256(data).digest()[:16]
    parts = (data[i * room : (i + 1) * room] for i in range(count))
    return [PIECE.pack(whole, i, count) + part for i, part in enumerate(parts)]
