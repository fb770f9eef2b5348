"""Which entries of an account a node has, in short: what neighbours compare."""

from __future__ import annotations

import struct
from collections.abc import Mapping

from dokl.live.protocol.messages import mark_of
from dokl.network.sums.origins import Account

Version = tuple[int, int]
_VERSION = struct.Struct("<8sQQ")
MOST_TOLD = 4096  # versions in a message


def pack_versions(account: Account) -> bytes:
    """What is in an account, in short."""
    named = sorted(account.values(), key=lambda entry: entry.origin)[:MOST_TOLD]
    return b"".join(_VERSION.pack(mark_of(e.origin), *e.version) for e in named)


def list_bytes(account: Account) -> int:
    """How long that is."""
    return _VERSION.size * min(len(account), MOST_TOLD)


def unpack_versions(data: bytes) -> dict[bytes, Version]:
    """The same, by the marks of origins."""
    whole = data[: len(data) // _VERSION.size * _VERSION.size][: MOST_TOLD * _VERSION.size]
    return {mark: (incarnation, rows) for mark, incarnation, rows in _VERSION.iter_unpack(whole)}


def apart(mine: Mapping[bytes, Version], theirs: Mapping[bytes, Version]) -> float:
    """The share of the rows of two accounts that not both have; another incarnation has others.

    >>> apart({b"a": (1, 60), b"b": (1, 40)}, {b"a": (1, 50), b"b": (1, 40)})
    0.1
    """
    nothing = (-1, 0)
    pairs = [(mine.get(mark, nothing), theirs.get(mark, nothing)) for mark in {*mine, *theirs}]
    whole = sum(max(one[1], other[1]) for one, other in pairs)
    same = sum(min(one[1], other[1]) for one, other in pairs if one[0] == other[0])
    return (whole - same) / whole if whole else 0.0
