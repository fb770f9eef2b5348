"""Rows of the store's tables: raw little-endian numbers with checksums, never pickle."""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dokl.agents.store.database import damage_error, telling
from dokl.arrays import Array
from dokl.errors import BadFile, BadInput

IDENTITY = {"name": str, "fingerprint": str, "m": int, "D": int, "d": int}
LONGEST_NAME = 255  # characters of an idempotency key, or of an id
_TYPES: dict[str, np.dtype[Any]] = {"<f4": np.dtype("<f4"), "<f8": np.dtype("<f8")}
BATCHES = 64  # read at a time when restoring


@dataclass(frozen=True)
class Counts:
    """What is counted beside the file, so that nobody need ask it; learned: by the snapshot."""

    total: int
    learned: int
    waiting: int


def about(db: sqlite3.Connection, key: str) -> str | None:
    """What the store says of itself under a key."""
    row = db.execute("SELECT value FROM about WHERE key = ?", (key,)).fetchone()
    return None if row is None else str(row[0])


def tell(db: sqlite3.Connection, key: str, value: str) -> None:
    """Let the store say this of itself."""
    db.execute("INSERT OR REPLACE INTO about VALUES (?, ?)", (key, value))


def identify(
    db: sqlite3.Connection, path: Path, identity: Mapping[str, Any], make: bool = True
) -> None:
    """Refuse the store of another node or of another feature space; mark a new one."""
    ours = json.dumps({key: made(identity[key]) for key, made in IDENTITY.items()})
    theirs = about(db, "identity")
    if theirs is None and make:
        tell(db, "identity", ours)
    elif theirs != ours:
        raise BadFile(
            f"{path}: this store is that of {_shown(theirs)}, and not of {_shown(ours)}. Vectors "
            "and samples of the two must not be mixed: name another store, or move this one away"
        )


def _shown(identity: str | None) -> str:
    if identity is None:
        return "nobody"
    known = json.loads(identity)
    return f"node {known.pop('name')!r} ({', '.join(f'{k} {v}' for k, v in known.items())})"


def count_rows(db: sqlite3.Connection, path: Path) -> Counts:
    """Count once, when the store is opened."""
    learned = db.execute("SELECT learned FROM snapshot").fetchone()
    last = db.execute("SELECT first + n FROM samples ORDER BY first DESC LIMIT 1").fetchone()
    waiting = db.execute("SELECT count(*) FROM waiting").fetchone()[0]
    known = 0 if learned is None else int(learned[0])
    total = known if last is None else int(last[0])
    if total < known:
        raise damage_error(path, f"{known} rows are in its snapshot and {total} in its journal")
    return Counts(total, known, int(waiting))


def snapshot(db: sqlite3.Connection, path: Path) -> tuple[bytes | None, int]:
    """The last snapshot, and how many rows are in it."""
    row = db.execute("SELECT learned, packed, crc FROM snapshot").fetchone()
    if row is None:
        return None, 0
    if zlib.crc32(row[1]) != row[2]:
        raise damage_error(path, "the checksum of its snapshot does not match")
    return bytes(row[1]), int(row[0])


def batches(
    db: sqlite3.Connection, path: Path, learned: int, d: int, m: int
) -> Iterator[tuple[Array, Array]]:
    """Batches after the first `learned` rows; a batch that is partly learned gives its rest."""
    start = "(SELECT coalesce(max(first), 0) FROM samples WHERE first <= :at)"
    ask = (
        f"SELECT * FROM samples WHERE first >= {start} AND first + n > :at ORDER BY first LIMIT :n"
    )
    at = learned
    while True:
        with telling(
            path, opening=True
        ):  # a few at a time: an open query would keep the WAL from starting over
            rows = db.execute(ask, {"at": at, "n": BATCHES}).fetchall()
        for first, n, kind, data, crc in rows:
            if first > at or (first < at and at != learned) or zlib.crc32(data) != crc:
                raise damage_error(path, f"of its journal, rows {at + 1} to {first + n} do not fit")
            both = array(path, kind, data, (n * (d + m),))
            X, Y = both[: n * d].reshape(n, d), both[n * d :].reshape(n, m)
            yield X[at - first :], Y[at - first :]
            at = first + n
        if len(rows) < BATCHES:
            return


def kind(*arrays: Array) -> str:
    """Samples are kept in the precision they came in."""
    return "<f4" if all(array.dtype == np.float32 for array in arrays) else "<f8"


def pack_array(array: Array, kind: str) -> bytes:
    """An array as bytes, row after row."""
    return np.ascontiguousarray(array, _TYPES[kind]).tobytes()


def array(path: Path, kind: str, data: bytes, shape: tuple[int, ...]) -> Array:
    """An array of this shape, which can be written to."""
    size = int(np.prod(shape))
    if kind not in _TYPES or len(data) != size * _TYPES[kind].itemsize:
        raise damage_error(path, f"{len(data)} bytes where {size} numbers are expected")
    return np.asarray(np.frombuffer(data, _TYPES[kind]).astype(kind[1:]).reshape(shape))


def name(what: str, name: str) -> str:
    """A key or an id, if it can be stored."""
    if not 1 <= len(name) <= LONGEST_NAME:
        raise BadInput(f"an {what} has 1 to {LONGEST_NAME} characters, this one has {len(name)}")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise BadInput(f"the {what} {name!r} is not Unicode text") from None
    return name
