"""Rows of the store's tables: raw little-endian numbers with checksums, never pickle."""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from dokl.base.arrays import Array
from dokl.base.errors import BadFile, BadInput
from dokl.live.store.failures import damage_error, store_errors
from dokl.live.store.marks import Mark

LONGEST_NAME = 255  # characters of an idempotency key, or of an id
_TYPES: dict[str, np.dtype[Any]] = {"<f4": np.dtype("<f4"), "<f8": np.dtype("<f8")}
BATCHES = 64  # read at a time when restoring


class Identity(TypedDict):
    """Whose a store is, of which columns and model, and how many numbers its rows have."""

    name: str
    fingerprint: str
    m: int
    D: int
    d: int


Identities = Sequence[Identity]

# Ids whose inputs went without a label, the newest last. The table comes with the first of them:
# journals without it, of earlier versions too, are as good as those with it.
EXPIRED = "CREATE TABLE IF NOT EXISTS expired (number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE)"


def has_expired(db: sqlite3.Connection, id: str) -> bool:
    """Whether the input of an id went without a label."""
    if db.execute("SELECT 1 FROM sqlite_schema WHERE name = 'expired'").fetchone() is None:
        return False
    return db.execute("SELECT 1 FROM expired WHERE id = ?", (id,)).fetchone() is not None


def about(db: sqlite3.Connection, key: str) -> str | None:
    """The value under a key of the store."""
    row = db.execute("SELECT value FROM about WHERE key = ?", (key,)).fetchone()
    return None if row is None else str(row[0])


def set_value(db: sqlite3.Connection, key: str, value: str) -> None:
    """Set the value under a key of the store."""
    db.execute("INSERT OR REPLACE INTO about VALUES (?, ?)", (key, value))


# -- what was sealed -----------------------------------------------------------------------------
def keep_sealed(db: sqlite3.Connection, rows: int, sealed: bytes) -> None:
    """Keep the newest sums that the node sealed, and a number of rows."""
    number = rows.to_bytes(8, "little")
    value = zlib.crc32(number + sealed).to_bytes(4, "little") + number + sealed
    db.execute("INSERT OR REPLACE INTO about VALUES ('sealed', ?)", (value,))


def sealed(db: sqlite3.Connection, path: Path) -> tuple[int, bytes] | None:
    """The same again; None where nothing was kept."""
    row = db.execute("SELECT value FROM about WHERE key = 'sealed'").fetchone()
    if row is None:
        return None
    value = row[0] if isinstance(row[0], bytes) else b""
    if len(value) < 12 or zlib.crc32(value[4:]).to_bytes(4, "little") != value[:4]:
        raise damage_error(path, "the checksum of the sums that it sealed does not match")
    return int.from_bytes(value[4:12], "little"), value[12:]


# -- logs of rows --------------------------------------------------------------------------------
# Batches of rows by origin, where nodes share rows. The table comes with the first of them.
_LOG = """
CREATE TABLE IF NOT EXISTS log (origin TEXT NOT NULL, first INTEGER NOT NULL, sealed BLOB NOT NULL,
                                crc INTEGER NOT NULL, PRIMARY KEY (origin, first)) WITHOUT ROWID
"""


def keep_log(
    db: sqlite3.Connection, origin: str, base: int, cut: int, batches: Iterable[tuple[int, bytes]]
) -> None:
    """Of an origin's log what has numbers from `base` on and below `cut`, and these batches."""
    db.execute(_LOG)
    ends = "DELETE FROM log WHERE origin = ? AND (first < ? OR first >= ?)"
    db.execute(ends, (origin, base, cut))
    rows = [(origin, first, sealed) for first, sealed in batches]
    insert(db, "log", rows)


def log(db: sqlite3.Connection, path: Path) -> list[bytes]:
    """All batches that are kept, origin by origin, in order."""
    found = []
    for origin, first, batch, crc in _log_rows(db):
        if seal(origin, first, batch) != crc:
            raise BadFile(
                f"{path}: the store is damaged (the checksum of rows of {origin!r} does not "
                "match). To continue without these rows, which neighbours may have: dokl agent "
                f"accept-loss DESCRIPTION --name {path.stem} (its description instead of that word)"
            )
        found.append(bytes(batch))
    return found


def drop_damaged_log(db: sqlite3.Connection) -> int:
    """Delete the batches whose checksum does not match; how many."""
    wrong = [row[:2] for row in _log_rows(db) if seal(*row[:-1]) != row[-1]]
    for key in wrong:
        db.execute("DELETE FROM log WHERE origin IS ? AND first IS ?", key)
    return len(wrong)


def _log_rows(db: sqlite3.Connection) -> Iterable[tuple[str, int, bytes, int]]:
    if db.execute("SELECT 1 FROM sqlite_schema WHERE name = 'log'").fetchone() is None:
        return []
    return db.execute("SELECT * FROM log ORDER BY origin, first")


# -- rows with checksums -------------------------------------------------------------------------
def seal(*values: object) -> int:
    """The checksum of a row: of every value, and where it begins."""
    crc = 0
    for value in values:
        data = value if isinstance(value, bytes) else repr(value).encode("utf-8", "replace")
        crc = zlib.crc32(data, zlib.crc32(b"%d:" % len(data), crc))
    return crc


def insert(db: sqlite3.Connection, table: str, rows: Iterable[tuple[object, ...]]) -> None:
    """Rows into a table whose last column is the checksum of the others."""
    for row in rows:
        marks = ", ".join("?" * (len(row) + 1))
        db.execute(f"INSERT OR REPLACE INTO {table} VALUES ({marks})", (*row, seal(*row)))


def damaged(db: sqlite3.Connection, table: str) -> list[object]:
    """The first columns of those rows of a table whose checksum does not match."""
    return [row[0] for row in db.execute(f"SELECT * FROM {table}") if seal(*row[:-1]) != row[-1]]


# -- whose it is, and how much -------------------------------------------------------------------
def make_identity(identity: Identity) -> str:
    """Whose store it is and of what, as it is stored."""
    numbers = {"m": int(identity["m"]), "D": int(identity["D"]), "d": int(identity["d"])}
    names = {"name": str(identity["name"]), "fingerprint": str(identity["fingerprint"])}
    return json.dumps({**names, **numbers})


def check_identity(
    db: sqlite3.Connection, path: Path, identity: Identity, earlier: Identities = ()
) -> Identity:
    """Refuse the store of another node or of another feature space; whose it is. earlier: what the
    node was before its columns were changed.
    """
    theirs = about(db, "identity")
    for each in (identity, *earlier):
        if theirs == make_identity(each):
            return each
    raise BadFile(
        f"{path}: this store belongs to {_shown(path, theirs)}; it is not that of "
        f"{_shown(path, make_identity(identity))}. Vectors and samples of the two must not be "
        "mixed: name another store, or move this one away. (Where rows are shared, 'dokl network "
        "columns' changes columns, and an agent that starts takes its store over)"
    )


def _shown(path: Path, identity: str | None) -> str:
    try:
        known = json.loads(identity or "")
        if known.keys() != Identity.__annotations__.keys():
            raise ValueError
        return f"node {known.pop('name')!r} ({', '.join(f'{k} {v}' for k, v in known.items())})"
    except (ValueError, AttributeError):
        raise damage_error(path, "its owner is unknown") from None


def count(db: sqlite3.Connection, mark: Mark) -> Mark:
    """A mark with the counts of what the tables have."""
    learned = db.execute("SELECT learned FROM snapshot").fetchone()
    last = db.execute("SELECT first + n FROM samples ORDER BY first DESC LIMIT 1").fetchone()
    known = 0 if learned is None else int(learned[0])
    keys = db.execute("SELECT coalesce(max(number), 0), count(*) FROM keys").fetchone()
    return mark._replace(
        rows=known if last is None else int(last[0]),
        learned=known,
        keys=keys[0],
        kept=keys[1],
        offsets=db.execute("SELECT coalesce(max(number), 0) FROM offsets").fetchone()[0],
        waiting=db.execute("SELECT count(*) FROM waiting").fetchone()[0],
    )


# -- samples and snapshots -----------------------------------------------------------------------
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
        # A few at a time: an open query would keep the WAL from starting over.
        with store_errors(path, opening=True):
            rows = db.execute(ask, {"at": at, "n": BATCHES}).fetchall()
        for first, n, kind, data, crc in rows:
            with store_errors(path, opening=True):
                if first > at or (first < at and at != learned) or zlib.crc32(data) != crc:
                    raise damage_error(
                        path, f"of its journal, rows {at + 1} to {first + n} do not fit"
                    )
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
    size, found = int(np.prod(shape)), len(data) if isinstance(data, bytes) else 0
    if kind not in _TYPES or found != size * _TYPES[kind].itemsize:
        raise damage_error(path, f"{found} bytes where {size} numbers are expected")
    return np.asarray(np.frombuffer(data, _TYPES[kind]).astype(kind[1:]).reshape(shape))


def position(path: Path, stored: str) -> dict[str, Any]:
    """How far a source was read, as it was stored."""
    try:
        return dict(json.loads(stored))
    except (ValueError, TypeError, RecursionError):
        raise damage_error(path, "how far a source was read cannot be read") from None


def name(what: str, name: str) -> str:
    """A key or an id, if it can be stored."""
    if not 1 <= len(name) <= LONGEST_NAME:
        raise BadInput(f"an {what} has 1 to {LONGEST_NAME} characters, this one has {len(name)}")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise BadInput(f"the {what} {name!r} is not Unicode text") from None
    return name
