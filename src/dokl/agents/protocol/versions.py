"""Which entries of an account a node has, in short: what neighbours compare."""

from __future__ import annotations

import struct

from dokl.agents.protocol.messages import mark_of
from dokl.methods.squares.origins import Account

Version = tuple[int, int]
_VERSION = struct.Struct("<8sQQ")
MOST_TOLD = 4096  # versions in a message


def pack_versions(account: Account) -> bytes:
    """What is in an account, in short."""
    told = sorted(account.values(), key=lambda entry: entry.origin)[:MOST_TOLD]
    return b"".join(_VERSION.pack(mark_of(e.origin), *e.version) for e in told)


def unpack_versions(data: bytes) -> dict[bytes, Version]:
    """The same, by the marks of origins."""
    whole = data[: len(data) // _VERSION.size * _VERSION.size][: MOST_TOLD * _VERSION.size]
    return {mark: (incarnation, rows) for mark, incarnation, rows in _VERSION.iter_unpack(whole)}
