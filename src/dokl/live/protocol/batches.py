"""Rows of one origin, numbered and sealed: what travels and is kept where nodes share rows.

An entry is a header, little-endian, and the rows in a compressed form:

========= ======== ==================================================================
offset    type     meaning
========= ======== ==================================================================
0         u8       version of this layout, 1
1         8 bytes  the network: SHA-256 of its name, cut
9         8 bytes  fingerprint of columns and labels
17        u64      incarnation of the origin that sealed it
25        u64      number of the first row
33        u16      rows, 1 to MOST_ROWS
35        f64      when the first of them was learned, seconds since 1970
43        f64      when it was sealed
51        16 bytes hash of the batch before, zeros where there is none
67        u8       length of the origin's name
68        ...      the name, then the rows
========= ======== ==================================================================

The hash of a batch is that of its whole entry, so each batch vouches for all before it. A seal
(`dokl.live.certificates.signing`) covers the entry. On the way a certificate that the neighbours
have is left out, and 8 bytes stand for it.

Rows are stored column by column: as whole multiples of a power of ten where that gives the same
bits, as float64 otherwise, and compressed. No claim in an entry decides how much memory is taken,
and none takes more than its rows could: logs are bounded by rows.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Self, TypeVar

import numpy as np

from dokl.base.arrays import FLOAT32, Array
from dokl.base.errors import BadInput
from dokl.live.certificates.signing import LONGEST, seal_and_entry
from dokl.live.rows import ColumnMap, RowsLearner

LAYOUT = 1
MOST_ROWS = 256
MESSAGE = 200_000  # bytes after which no further batch goes into a message
HASH = 16
NOTHING = bytes(HASH)  # the hash before the first batch
_HEADER = struct.Struct("<B8s8sQQHdd16sB")
_LENGTH = struct.Struct("<I")
_LENGTHS = struct.Struct("<HH")
_DECIMALS = 6
_PLAIN = 255  # a column of float64


@dataclass(frozen=True)
class Context:
    """What every batch of a network agrees on: its mark, the columns, d inputs and m outputs.
    earlier: how rows of earlier columns become rows of these.
    """

    network: bytes
    columns: bytes
    d: int
    m: int
    earlier: Mapping[bytes, ColumnMap] = field(default_factory=dict)

    @classmethod
    def of(cls, learner: RowsLearner) -> Self:
        """That of the network of a learner."""
        earlier = {bytes.fromhex(mark): made for mark, made in learner.earlier.items()}
        columns = bytes.fromhex(learner.fingerprint)
        return cls(learner.network_mark, columns, learner.inputs, learner.m, earlier)

    @property
    def most_entry(self) -> int:
        """The most bytes of an entry."""
        width = max(self.width(each) for each in (self.columns, *self.earlier))
        return _HEADER.size + 255 + _most_packed(MOST_ROWS, width)

    def width(self, columns: bytes) -> int:
        """The numbers of a row of these columns, or of earlier ones."""
        return (self.d if columns == self.columns else self.earlier[columns].d) + self.m

    @property
    def most_message(self) -> int:
        """The most bytes of a message: one batch may follow on MESSAGE bytes."""
        return MESSAGE + LONGEST + self.most_entry + 64


@dataclass(frozen=True, slots=True)
class SealedBatch:
    """Rows first ... first + n - 1 of an origin; since, until: of their time; columns: the
    fingerprint of those that they were sealed with. There may be many of them with a row each, so
    they share their certificate.
    """

    columns: bytes
    origin: str
    incarnation: int
    first: int
    n: int
    since: float
    until: float
    before: bytes
    hash: bytes
    certificate: bytes
    signature: bytes
    entry: bytes

    @property
    def sealed(self) -> bytes:
        """All of it, as it is stored."""
        lengths = _LENGTHS.pack(len(self.certificate), len(self.signature))
        return lengths + self.certificate + self.signature + self.entry

    @property
    def size(self) -> int:
        """About how many bytes it takes on the way."""
        return len(self.signature) + len(self.entry) + 64

    @property
    def end(self) -> int:
        """The number of the row after the last."""
        return self.first + self.n

    @property
    def rank(self) -> tuple[int, bytes]:
        """Of two batches with the same number the one of larger rank counts: that of the later
        incarnation; of one incarnation any, as long as all nodes choose alike.
        """
        return self.incarnation, bytes(255 - byte for byte in self.hash)


# -- entries ---------------------------------------------------------------------------------------
def pack_entry(
    context: Context, origin: str, incarnation: int, first: int, X: Array, Y: Array,
    since: float, until: float, before: bytes,
) -> bytes:  # fmt: skip
    """An entry to seal, of rows X: (n, d), Y: (n, m)."""
    name, about = origin.encode(), (context.network, context.columns, incarnation, first, len(X))
    head = _HEADER.pack(LAYOUT, *about, since, until, before, len(name))
    return head + name + _pack_rows(np.hstack([X, Y]))


def read_batch(context: Context, sealed: bytes) -> SealedBatch:
    """The batch in sealed bytes, its seal not looked at; BadInput where it can be nobody's."""
    certificate, signature, entry = seal_and_entry(sealed)
    if not _HEADER.size <= len(entry) <= context.most_entry:
        raise BadInput("a batch of rows of an impossible size")
    layout, network, columns, *numbers = _HEADER.unpack_from(entry)
    incarnation, first, n, since, until, before, length = numbers
    if layout != LAYOUT:
        raise BadInput(f"a batch of layout {layout}, this node reads {LAYOUT}")
    if network != context.network:
        raise BadInput("a batch of rows of another network")
    if columns != context.columns and columns not in context.earlier:
        raise BadInput(
            f"a batch of rows of other columns, {columns.hex()}, than the description has, in "
            "[inputs] or [[earlier]] ('dokl network columns' changes columns)"
        )
    largest = 1 << 62
    if not (1 <= n <= MOST_ROWS and first < largest and incarnation < largest):
        raise BadInput("a batch of rows whose numbers are out of range")
    if len(entry) > _HEADER.size + length + _most_packed(n, context.width(columns)):
        raise BadInput("a batch of few rows and an impossible size")
    if not (math.isfinite(since) and math.isfinite(until) and since <= until):
        raise BadInput("a batch of rows of an impossible time")
    try:
        origin = entry[_HEADER.size : _HEADER.size + length].decode()
    except UnicodeDecodeError:
        raise BadInput("a batch of rows without an origin") from None
    mark = hash_of(sealed)
    seal = _intern(certificate), signature, entry
    about = _intern(origin), incarnation, first, n, since, until
    return SealedBatch(_intern(columns), *about, before, mark, *seal)


def hash_of(sealed: bytes) -> bytes:
    """The hash of a sealed batch: that of its entry."""
    return sha256(seal_and_entry(sealed)[2]).digest()[:HASH]


def read_rows(context: Context, batch: SealedBatch) -> tuple[Array, Array]:
    """X: (n, d) and Y: (n, m) of a batch, by the columns of now; BadInput where there are no such
    rows in it.
    """
    entry = batch.entry
    start = _HEADER.size + entry[_HEADER.size - 1]
    earlier = context.earlier.get(batch.columns)
    d = context.d if earlier is None else earlier.d
    both = _unpack_rows(entry[start:], batch.n, d + context.m)
    X, Y = both[:, :d], both[:, d:]
    X = X if earlier is None else earlier.rows(X)
    # As they were sealed, and mapped: nodes of both columns must judge them alike. False of NaN.
    parts = (both,) if earlier is None else (both, X)
    if not all((np.abs(part) <= FLOAT32).all() for part in parts):
        raise BadInput("a batch has rows with numbers that cannot be used")
    return X, Y


_once: dict[Any, Any] = {}
_Part = TypeVar("_Part", bytes, str)


def _intern(part: _Part) -> _Part:
    """The same bytes or text, once in memory, as long as there are not too many: nobody has proved
    yet that they are of this network, and what is interned some Pythons never forget.
    """
    if len(_once) >= 1024:
        _once.clear()
    found: _Part = _once.setdefault(part, part)
    return found


# -- rows ------------------------------------------------------------------------------------------
def _most_packed(n: int, columns: int) -> int:
    """Bytes of rows that do not compress at all; zlib adds a few."""
    whole = columns * (1 + 8 * n)
    return whole + whole // 1000 + 64


def _pack_rows(rows: Array) -> bytes:
    """Rows (n, c) of finite numbers; exact."""
    parts = []
    for column in np.ascontiguousarray(rows.T, "<f8"):
        whole = _whole(column)
        if whole is None:
            parts.append(bytes([_PLAIN]) + column.tobytes())
        else:
            decimals, numbers = whole
            steps = np.diff(numbers, prepend=0).astype("<i8")
            planes = steps.view(np.uint8).reshape(len(column), 8).T  # high bytes are all alike
            parts.append(bytes([decimals]) + planes.tobytes())
    return zlib.compress(b"".join(parts), 9)


def _whole(column: Array) -> tuple[int, Array] | None:
    """(decimals, whole numbers) that a column is made of, to the bit."""
    for decimals in range(_DECIMALS + 1):
        scaled = np.rint(column * 10.0**decimals)
        if np.abs(scaled).max(initial=0.0) >= 2.0**52:
            return None
        back = scaled / 10.0**decimals
        if np.array_equal((back + 0.0).view(np.int64), column.view(np.int64)):
            return decimals, scaled.astype(np.int64)
    return None


def _unpack_rows(data: bytes, n: int, columns: int) -> Array:
    """Rows (n, columns); BadInput where these bytes are none."""
    size = 1 + 8 * n
    made = zlib.decompressobj()
    try:
        whole = made.decompress(data, columns * size + 1)
    except zlib.error:
        raise BadInput("a batch has rows that cannot be read") from None
    if len(whole) != columns * size or not made.eof or made.unused_data:
        raise BadInput("a batch has other rows than its header")
    rows = np.empty((n, columns))
    for i in range(columns):
        kind, part = whole[i * size], whole[i * size + 1 : (i + 1) * size]
        if kind == _PLAIN:
            rows[:, i] = np.frombuffer(part, "<f8")
        elif kind <= _DECIMALS:
            planes = np.frombuffer(part, np.uint8).reshape(8, n)
            steps = np.ascontiguousarray(planes.T).view("<i8")[:, 0]
            rows[:, i] = np.cumsum(steps, dtype=np.int64) / 10.0**kind
        else:
            raise BadInput("a batch has a column of an unknown kind")
    return rows


# -- on the way ------------------------------------------------------------------------------------
def certificate_mark(certificate: bytes) -> bytes:
    """What stands for a certificate that the other side has."""
    return sha256(certificate).digest()[:8]


def pack_batches(batches: list[SealedBatch], known: set[bytes]) -> bytes:
    """Batches as they travel, without certificates whose marks are in `known`; it grows."""
    parts = []
    for batch in batches:
        certificate, signature, entry = batch.certificate, batch.signature, batch.entry
        mark = certificate_mark(certificate)
        if certificate and mark in known:
            certificate, full = mark, b"\0"
        else:
            known.add(mark)
            full = b"\1"
        lengths = _LENGTHS.pack(len(certificate), len(signature))
        body = full + lengths + certificate + signature + entry
        parts.append(_LENGTH.pack(len(body)) + body)
    return b"".join(parts)


def unpack_batches(data: bytes, certificates: Mapping[bytes, bytes]) -> list[bytes | None]:
    """Sealed batches, None for one whose certificate is not known here; BadInput for rubbish."""
    found: list[bytes | None] = []
    at = 0
    while at < len(data):
        if len(data) < at + _LENGTH.size:
            raise BadInput("a message of rows that ends too early")
        (length,) = _LENGTH.unpack_from(data, at)
        body, at = data[at + _LENGTH.size : at + _LENGTH.size + length], at + _LENGTH.size + length
        if at > len(data) or length < 1 + _LENGTHS.size:
            raise BadInput("a message of rows that ends too early")
        certificate, signature, entry = seal_and_entry(body[1:])
        if body[0] == 0:
            known = certificates.get(certificate)
            if known is None:
                found.append(None)
                continue
            certificate = known
        lengths = _LENGTHS.pack(len(certificate), len(signature))
        found.append(lengths + certificate + signature + entry)
    return found
