"""What a node must not forget: samples, snapshots, keys, offsets, and inputs that wait for labels.

A transaction happens whole or not at all, and once it is through it stays: in mode "process"
whatever kills the process, in mode "full" also when the power goes. So an agent stores first and
answers then. The journal holds the samples since the last snapshot of the state; a snapshot deletes
what it contains, and the file, which uses its pages again, stays as small as that.

>>> import tempfile
>>> import numpy as np
>>> from types import SimpleNamespace
>>> identity = {"name": "a", "fingerprint": "f00d", "m": 1, "D": 2, "d": 3}
>>> limits = SimpleNamespace(keys=10, waiting_labels=10)
>>> with tempfile.TemporaryDirectory() as folder:
...     store = Store.open(folder + "/a.db", identity, "process", limits)
...     with store.transaction() as change:
...         change.samples(np.ones((2, 3)), np.ones((2, 1)))
...         change.key("request 1", "digest of its body", '{"accepted": 2}')
...     store.answer("request 1")
...     packed, learned, batches = store.restore()
...     [X.shape for X, Y in batches]
...     store.close()
2
('digest of its body', '{"accepted": 2}')
[(2, 3)]
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Protocol, Self

from dokl.agents.store import records
from dokl.agents.store.database import (
    StoreFailed,
    lock_store,
    open_database,
    open_read_only,
    telling,
)
from dokl.agents.store.transaction import KeyReused, TooManyWaiting, Transaction
from dokl.arrays import Array
from dokl.errors import BadFile
from dokl.files import PathLike

__all__ = [
    "KeyReused",
    "Restored",
    "Store",
    "StoreFailed",
    "TooManyWaiting",
    "Transaction",
    "read_saved",
]

OFFSET = "SELECT position FROM offsets WHERE source = ?"
_LARGEST = 2**62  # incarnations, whatever the clock says

Restored = tuple[bytes | None, int, Iterator[tuple[Array, Array]]]


class StoreLimits(Protocol):
    """The limits that a store keeps."""

    @property
    def keys(self) -> int:
        """Idempotency keys remembered."""

    @property
    def waiting_labels(self) -> int:
        """Inputs that may wait for labels."""


class Store:
    """One node's store; `open` makes one. For one thread at a time.

    incarnation: greater with every opening. The counts (`samples`, `rows_since_snapshot`,
    `waiting_count`, `bytes`) may be asked by any thread.
    """

    def __init__(
        self, path: Path, lock: IO[str], db: sqlite3.Connection, identity: Any, limits: StoreLimits
    ) -> None:
        self.path, self.limits = path, limits
        self.d, self.m = int(identity["d"]), int(identity["m"])
        self.incarnation = 0
        self._lock, self._db = lock, db
        self._counts = records.count_rows(db, path)

    @classmethod
    def open(
        cls,
        path: PathLike,
        identity: Mapping[str, Any],
        durability: str,
        limits: StoreLimits,
        now_ns: int | None = None,
    ) -> Self:
        """Open the store of a node, or make it; refuse another node's, and one that is in use.

        identity: name, fingerprint, m, D, d. now_ns: the wall clock, if it is not to be asked.
        """
        path = Path(path)
        lock = lock_store(path)
        try:
            db = open_database(path, durability)
        except BaseException:
            lock.close()
            raise
        try:
            with telling(path, opening=True):
                records.identify(db, path, identity)
                store = cls(path, lock, db, identity, limits)
                store._begin_life(time.time_ns() if now_ns is None else now_ns)
        except BaseException:
            db.close()
            lock.close()
            raise
        return store

    def _begin_life(self, now_ns: int) -> None:
        with self._changing():
            last = int(records.about(self._db, "incarnation") or 0)
            self.incarnation = max(last + 1, min(now_ns, _LARGEST))
            records.tell(self._db, "incarnation", str(self.incarnation))

    # -- writing -------------------------------------------------------------------------------
    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Changes that happen together when the block ends; none of them if it raises.

        Where SQLite fails, the block raises StoreFailed; the store then is as before, and goes on.
        """
        before = self._counts
        try:
            with self._changing():
                yield Transaction(self)
        except BaseException:
            self._counts = before
            raise

    @contextmanager
    def _changing(self) -> Iterator[None]:
        try:
            with telling(self.path):
                self._db.execute("BEGIN IMMEDIATE")
                yield
                self._db.execute("COMMIT")
        except BaseException as error:
            self._undo(make_room=isinstance(error, StoreFailed) and error.full)
            raise

    def _undo(self, make_room: bool) -> None:
        with suppress(sqlite3.Error):
            if self._db.in_transaction:  # SQLite has sometimes rolled back by itself
                self._db.execute("ROLLBACK")
        if make_room:
            # Once the WAL is moved into the file it is written over from its start, which needs
            # no room on the disk: small transactions may go on where it could not grow.
            with suppress(sqlite3.Error):
                self._db.execute("PRAGMA wal_checkpoint(PASSIVE)")

    # -- reading -------------------------------------------------------------------------------
    def restore(self) -> Restored:
        """The last snapshot or None, how many rows are in it, and the batches after it, in order.

        Take all batches before anything new is stored.
        """
        with telling(self.path, opening=True):
            packed, learned = records.snapshot(self._db, self.path)
        return packed, learned, records.batches(self._db, self.path, learned, self.d, self.m)

    def answer(self, key: str) -> tuple[str, str] | None:
        """Digest and answer stored under an idempotency key, if it is remembered."""
        with telling(self.path):
            found = self._db.execute("SELECT digest, answer FROM keys WHERE key = ?", (key,))
            row = found.fetchone()
        return None if row is None else (str(row[0]), str(row[1]))

    def offset(self, source: str) -> dict[str, Any] | None:
        """How far a source was read, as it was stored with its last samples."""
        with telling(self.path):
            row = self._db.execute(OFFSET, (source,)).fetchone()
        return None if row is None else dict(json.loads(row[0]))

    def waiting(self, id: str) -> Array | None:
        """The input (d,) that waits under an id, if one does."""
        with telling(self.path):
            found = self._db.execute("SELECT type, x FROM waiting WHERE id = ?", (id,)).fetchone()
        if found is None:
            return None
        try:
            return records.array(self.path, found[0], found[1], (self.d,))
        except BadFile as error:
            raise StoreFailed(str(error)) from None

    @property
    def samples(self) -> int:
        """Rows ever stored as samples."""
        return self._counts.total

    @property
    def rows_since_snapshot(self) -> int:
        """Rows that a restart would learn again."""
        return self._counts.total - self._counts.learned

    @property
    def waiting_count(self) -> int:
        """Inputs that wait for their labels."""
        return self._counts.waiting

    @property
    def bytes(self) -> int:
        """What the store takes on the disk."""
        size = 0
        for end in ("", "-wal", "-shm"):
            with suppress(OSError):
                size += Path(f"{self.path}{end}").stat().st_size
        return size

    def close(self) -> None:
        """Close the file and free its lock; a second time does nothing."""
        with suppress(sqlite3.Error):
            self._db.close()
        self._lock.close()


def read_saved(path: PathLike, identity: Mapping[str, Any]) -> Restored:
    """What `Store.restore` gives, only read, also while an agent has the store open."""
    path = Path(path)
    db = open_read_only(path)
    try:
        with telling(path, opening=True):
            db.execute("BEGIN")  # snapshot and batches of one moment
            records.identify(db, path, identity, make=False)
            packed, learned = records.snapshot(db, path)
            batches = list(
                records.batches(db, path, learned, int(identity["d"]), int(identity["m"]))
            )
    finally:
        db.close()
    return packed, learned, iter(batches)


def read_offset(path: PathLike, source: str) -> dict[str, Any] | None:
    """What `Store.offset` gives, only read, also while an agent has the store open."""
    path = Path(path)
    db = open_read_only(path)
    try:
        with telling(path):
            row = db.execute(OFFSET, (source,)).fetchone()
    finally:
        db.close()
    return None if row is None else dict(json.loads(row[0]))
