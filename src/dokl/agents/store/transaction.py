"""What a store can change, several things together and all or none of them."""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dokl.agents.store import records
from dokl.arrays import Array
from dokl.errors import BadInput, DoklError

if TYPE_CHECKING:
    from dokl.agents.store.journal import Store

_FORGET = "DELETE FROM samples WHERE first < ? AND first + n <= ?"


class TooManyWaiting(DoklError):
    """As many inputs wait for their labels as may wait."""


class KeyReused(DoklError):
    """An idempotency key that was used for another body."""


class Transaction:
    """What can be changed together, in a `with store.transaction()` block."""

    def __init__(self, store: Store) -> None:
        self._store, self._db = store, store._db

    @contextmanager
    def part(self) -> Iterator[None]:
        """Changes that can fail alone: if the block raises, they are undone and the rest stays.

        For one arrival among several in one transaction. (Where SQLite itself fails, leave the
        whole transaction.)
        """
        before = self._store._counts
        self._db.execute("SAVEPOINT part")
        try:
            yield
        except BaseException:
            self._store._counts = before
            if self._db.in_transaction:
                self._db.execute("ROLLBACK TO part")
                self._db.execute("RELEASE part")
            raise
        self._db.execute("RELEASE part")

    def samples(self, X: Array, Y: Array) -> int:
        """Add samples to the journal, X (n, d), Y (n, m); how many rows it ever had."""
        store, counts = self._store, self._store._counts
        n = len(X)
        if X.shape != (n, store.d) or Y.shape != (n, store.m):
            raise BadInput(
                f"samples of shapes {X.shape} and {Y.shape}: (n, {store.d}) and (n, {store.m}) "
                "are expected"
            )
        if n:
            kind = records.kind(X, Y)
            rows = records.pack_array(X, kind) + records.pack_array(Y, kind)
            self._db.execute(
                "INSERT INTO samples VALUES (?, ?, ?, ?, ?)",
                (counts.total, n, kind, rows, zlib.crc32(rows)),
            )
            store._counts = replace(counts, total=counts.total + n)
        return store._counts.total

    def key(self, key: str, digest: str, answer: str) -> None:
        """Remember what was answered to a request; the oldest beyond limits.keys are forgotten.

        A key is stored once: ask `Store.answer` before.
        """
        name = records.name("idempotency key", key)
        try:
            add = "INSERT INTO keys (key, digest, answer) VALUES (?, ?, ?)"
            added = self._db.execute(add, (name, digest, answer)).lastrowid
        except sqlite3.IntegrityError:
            raise KeyReused(f"the idempotency key {key!r} is stored already") from None
        oldest = (added or 0) - self._store.limits.keys
        self._db.execute("DELETE FROM keys WHERE number <= ?", (oldest,))

    def offset(self, source: str, position: Mapping[str, Any]) -> None:
        """Remember how far a source was read, together with the samples from there."""
        text = json.dumps(dict(position), allow_nan=False)
        self._db.execute("INSERT OR REPLACE INTO offsets VALUES (?, ?)", (source, text))

    def wait(self, id: str, x: Array) -> bool:
        """Keep an input x (d,) until its label comes; whether it took the place of an earlier one.

        An input under an id that waits already replaces it. TooManyWaiting beyond
        limits.waiting_labels.
        """
        store, name = self._store, records.name("id", id)
        if x.shape != (store.d,):
            raise BadInput(f"an input of shape {x.shape}: ({store.d},) is expected")
        known = self._known(name)
        if not known and store.waiting_count >= store.limits.waiting_labels:
            raise TooManyWaiting(
                f"{store.waiting_count:,} inputs wait for their labels, and no more may wait: send "
                "labels first, or raise waiting_labels in [limits]"
            )
        kind = records.kind(x)
        row = (name, kind, records.pack_array(x, kind))
        self._db.execute("INSERT OR REPLACE INTO waiting VALUES (?, ?, ?)", row)
        self._waiting(0 if known else 1)
        return known

    def label(self, id: str) -> Array | None:
        """Take the input (d,) that waits under an id; None if none does."""
        x = self._store.waiting(id)
        if x is not None:
            self._db.execute("DELETE FROM waiting WHERE id = ?", (id,))
            self._waiting(-1)
        return x

    def snapshot(self, packed: bytes, learned: int) -> None:
        """Keep the state after the first `learned` rows, and delete these from the journal."""
        counts = self._store._counts
        if not counts.learned <= learned <= counts.total:
            raise BadInput(
                f"a snapshot after {learned} rows: {counts.learned} to {counts.total} can be"
            )
        self._db.execute(_FORGET, (learned, learned))  # first: on a full disk, this makes room
        row = (learned, packed, zlib.crc32(packed))
        self._db.execute("INSERT OR REPLACE INTO snapshot VALUES (1, ?, ?, ?)", row)
        self._store._counts = replace(counts, learned=learned)

    def _known(self, id: str) -> bool:
        return self._db.execute("SELECT 1 FROM waiting WHERE id = ?", (id,)).fetchone() is not None

    def _waiting(self, more: int) -> None:
        counts = self._store._counts
        self._store._counts = replace(counts, waiting=counts.waiting + more)
