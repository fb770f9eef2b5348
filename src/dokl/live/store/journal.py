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

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Protocol, Self

from dokl.base.arrays import Array
from dokl.base.errors import BadFile
from dokl.base.files import PathLike
from dokl.live.store import records
from dokl.live.store.database import check_first, lock_store, open_database, open_read_only
from dokl.live.store.examine import check_mark, read_own_mark
from dokl.live.store.failures import RowsMissing, StoreFailed, damage_error, store_errors
from dokl.live.store.marks import Mark, MarkFile, later, pack_mark, read_mark
from dokl.live.store.schema import FORMAT, check_schema
from dokl.live.store.transaction import KeyReused, TooManyWaiting, Transaction

__all__ = [
    "KeyReused",
    "Restored",
    "RowsMissing",
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

    incarnation: greater with every opening. power_cut: rows that the machine's end took, where the
    mode "process" lets it. The counts (`samples`, `rows_since_snapshot`, `waiting_count`, `bytes`)
    may be asked by any thread. fingerprint: of the columns that its rows have.
    """

    def __init__(
        self, path: Path, lock: IO[str], db: sqlite3.Connection, marks: MarkFile,
        identity: records.Identity, limits: StoreLimits,
    ) -> None:  # fmt: skip
        self.path, self.limits = path, limits
        self.fingerprint = str(identity["fingerprint"])
        self.d, self.m = int(identity["d"]), int(identity["m"])
        self.incarnation = self.power_cut = 0
        self._lock, self._db, self._marks = lock, db, marks
        self._mark = read_own_mark(db, path)
        self._to_store: dict[str, str] = {}  # values to set with the next commit

    @classmethod
    def open(
        cls,
        path: PathLike,
        identity: records.Identity,
        durability: str,
        limits: StoreLimits,
        now_ns: int | None = None,
        earlier: records.Identities = (),
    ) -> Self:
        """Open the store of a node, or make it; refuse another node's, and one that is in use.

        identity: name, fingerprint, m, D, d. now_ns: the wall clock, if it is not to be asked.
        earlier: what the node was before its columns were changed; such a store is opened as what
        it is, for `change_columns`.
        """
        path = Path(path)
        with ExitStack() as undo:
            lock = lock_store(path)
            undo.callback(lock.close)
            kept = read_mark(path)
            lost = check_first(path, identity, kept, durability, earlier)
            marks = MarkFile(path, synced=durability == "full")
            undo.callback(marks.close)
            marks.begin()  # before the store: one without would look as if it had been lost
            db = open_database(path, durability)
            undo.callback(db.close)
            with store_errors(path, opening=True):
                if records.about(db, "identity") is not None:
                    identity = records.check_identity(db, path, identity, earlier)
                store = cls(path, lock, db, marks, identity, limits)
                store.power_cut = lost
                newest = store._mark if kept is None else max(store._mark, kept.mark, key=_commit)
                store._begin_life(identity, newest, time.time_ns() if now_ns is None else now_ns)
            undo.pop_all()
        return store

    def _begin_life(self, identity: records.Identity, newest: Mark, now_ns: int) -> None:
        """Name the owner, and number this life; on a full disk with the first thing stored.

        newest: of the marks in and beside the store, from which commits are counted on.
        """
        last = int(records.about(self._db, "incarnation") or 0)
        self.incarnation = max(last + 1, min(now_ns, _LARGEST))
        self._to_store["identity"] = records.make_identity(identity)
        self._to_store["incarnation"] = str(self.incarnation)
        self._mark = self._mark._replace(
            commit=newest.commit, lost=self._mark.lost + self.power_cut
        )
        try:
            with self._changing():
                pass
        except StoreFailed as error:
            if not error.full:
                raise

    # -- writing -------------------------------------------------------------------------------
    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Changes that happen together when the block ends; none of them if it raises.

        Where SQLite fails, the block raises StoreFailed; the store then is as before, and goes on.
        """
        with self._changing():
            yield Transaction(self)

    @contextmanager
    def _changing(self) -> Iterator[None]:
        before = self._mark
        try:
            with store_errors(self.path):
                self._db.execute("BEGIN IMMEDIATE")
                self._mark = later(before)
                yield
                for key, value in self._to_store.items():
                    records.set_value(self._db, key, value)
                records.set_value(self._db, "mark", pack_mark(self._mark))
                self._db.execute("COMMIT")
        except BaseException as error:
            self._mark = before
            self._undo(make_room=isinstance(error, StoreFailed) and error.full)
            raise
        self._to_store.clear()
        self._marks.write(self._mark)

    def _undo(self, make_room: bool) -> None:
        with suppress(sqlite3.Error):
            if self._db.in_transaction:  # SQLite has sometimes rolled back by itself
                self._db.execute("ROLLBACK")
        if make_room:
            # Once the WAL is moved into the file it is written over from its start, which needs
            # no room on the disk: small transactions may go on where it could not grow.
            with suppress(sqlite3.Error):
                self._db.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def change_columns(
        self, identity: records.Identity, packed: bytes, remade: Callable[[Array], Array] | None
    ) -> int:
        """Be the store of the same node with other columns: with this state, in which all its rows
        are. remade: makes rows (n, d) of the new columns of inputs that wait for labels; without
        it, these expire. How many expired.
        """
        before = dict(self._to_store)
        try:
            with self.transaction() as change:
                gone = change.remake_waiting(int(identity["d"]), remade)
                change.snapshot(packed, self._mark.rows)
                self._to_store["identity"] = records.make_identity(identity)
        except BaseException:
            self._to_store = before
            raise
        self.fingerprint, self.d = str(identity["fingerprint"]), int(identity["d"])
        return gone

    # -- reading -------------------------------------------------------------------------------
    def restore(self) -> Restored:
        """The last snapshot or None, how many rows are in it, and the batches after it, in order.

        Take all batches before anything new is stored.
        """
        with store_errors(self.path, opening=True):
            packed, learned = records.snapshot(self._db, self.path)
        return packed, learned, records.batches(self._db, self.path, learned, self.d, self.m)

    def sealed(self) -> tuple[int, bytes] | None:
        """What `Transaction.sealed` kept last, if anything."""
        with store_errors(self.path, opening=True):
            return records.sealed(self._db, self.path)

    def log(self) -> list[bytes]:
        """Sealed batches of rows, as `Transaction.log` kept them, origin by origin, in order."""
        with store_errors(self.path, opening=True):
            return records.log(self._db, self.path)

    def answer(self, key: str) -> tuple[str, str] | None:
        """Digest and answer stored under an idempotency key, if it is remembered."""
        with store_errors(self.path):
            row = self._db.execute("SELECT * FROM keys WHERE key = ?", (key,)).fetchone()
        if row is None:
            return None
        if records.seal(*row[:-1]) != row[-1]:
            raise StoreFailed(str(damage_error(self.path, f"the checksum of key {key!r}")))
        return str(row[2]), str(row[3])

    def offset(self, source: str) -> dict[str, Any] | None:
        """How far a source was read, as it was stored with its last samples."""
        with store_errors(self.path):
            row = self._db.execute(OFFSET, (source,)).fetchone()
        try:
            return None if row is None else records.position(self.path, row[0])
        except BadFile as error:
            raise StoreFailed(str(error)) from None

    def waiting(self, id: str) -> Array | None:
        """The input (d,) that waits under an id, if one does."""
        with store_errors(self.path):
            found = self._db.execute("SELECT type, x FROM waiting WHERE id = ?", (id,)).fetchone()
        if found is None:
            return None
        try:
            return records.array(self.path, found[0], found[1], (self.d,))
        except BadFile as error:
            raise StoreFailed(str(error)) from None

    def has_expired(self, id: str) -> bool:
        """Whether the input of an id went without a label, as far back as that is remembered."""
        with store_errors(self.path):
            return records.has_expired(self._db, id)

    def waiting_since(self, before: float, most: int = 1) -> int:
        """How many inputs have waited for labels since before a time, counted up to `most`."""
        ask = "SELECT count(*) FROM (SELECT 1 FROM waiting WHERE since <= ? LIMIT ?)"
        with store_errors(self.path):
            return int(self._db.execute(ask, (before, most)).fetchone()[0])

    @property
    def samples(self) -> int:
        """Rows ever stored as samples."""
        return self._mark.rows

    @property
    def rows_since_snapshot(self) -> int:
        """Rows that a restart would learn again."""
        return self._mark.rows - self._mark.learned

    @property
    def waiting_count(self) -> int:
        """Inputs that wait for their labels."""
        return self._mark.waiting

    @property
    def expired(self) -> int:
        """Inputs that went without a label: they waited too long, were too many, or purged."""
        return self._mark.expired

    @property
    def lost(self) -> int:
        """Acknowledged rows that are gone: by power cuts, or because somebody agreed to it."""
        return self._mark.lost

    @property
    def bytes(self) -> int:
        """What the store takes on the disk."""
        size = 0
        for end in ("", "-wal", "-shm", "-mark"):
            with suppress(OSError):
                size += Path(f"{self.path}{end}").stat().st_size
        return size

    def close(self) -> None:
        """Close the file and free its lock; a second time does nothing."""
        if not self._lock.closed:
            with suppress(sqlite3.Error):
                self._db.close()
            self._marks.settle(self._mark)
            self._marks.close()
            self._lock.close()


def _commit(mark: Mark) -> int:
    return mark.commit


def read_saved(path: PathLike, identity: records.Identity) -> Restored:
    """What `Store.restore` gives, only read, also while an agent has the store open."""
    path = Path(path)
    kept = read_mark(path)  # before the database, which may only be further
    db = open_read_only(path)
    try:
        with store_errors(path, opening=True):
            db.execute("BEGIN")  # snapshot and batches of one moment
            if check_schema(db, path) == FORMAT and kept is not None:
                check_mark(path, str(identity["name"]), read_own_mark(db, path), kept, "full")
            records.check_identity(db, path, identity)
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
        with store_errors(path, opening=True):
            row = db.execute(OFFSET, (source,)).fetchone()
    finally:
        db.close()
    return None if row is None else records.position(path, row[0])
