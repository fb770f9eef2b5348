"""What a store can change, several things together and all or none of them."""

from __future__ import annotations

import json
import sqlite3
import time
import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from dokl.base.arrays import Array
from dokl.base.errors import BadInput, DoklError
from dokl.live.store import records

if TYPE_CHECKING:
    from dokl.live.store.journal import Store

CROWDED = 3600.0  # seconds that an input may wait for its label in any case
_FORGET = "DELETE FROM samples WHERE first < ? AND first + n <= ?"


class TooManyWaiting(DoklError):
    """As many inputs wait for their labels as may wait."""


class KeyReused(DoklError):
    """An idempotency key that was used for another body."""


class Transaction:
    """What can be changed together, in a `with store.transaction()` block."""

    def __init__(self, store: Store) -> None:
        self._store, self._db = store, store._db

    def samples(self, X: Array, Y: Array) -> int:
        """Add samples to the journal, X (n, d), Y (n, m); how many rows it ever had."""
        store, mark = self._store, self._store._mark
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
                (mark.rows, n, kind, rows, zlib.crc32(rows)),
            )
            store._mark = mark._replace(rows=mark.rows + n)
        return store._mark.rows

    def key(self, key: str, digest: str, answer: str) -> None:
        """Remember what was answered to a request; the oldest beyond limits.keys are forgotten.

        A key is stored once: ask `Store.answer` before.
        """
        name, mark = records.name("idempotency key", key), self._store._mark
        row = (mark.keys + 1, name, digest, answer)
        try:
            add = "INSERT INTO keys VALUES (?, ?, ?, ?, ?)"
            self._db.execute(add, (*row, records.seal(*row)))
        except sqlite3.IntegrityError:
            raise KeyReused(f"the idempotency key {key!r} is stored already") from None
        oldest = row[0] - self._store.limits.keys
        gone = self._db.execute("DELETE FROM keys WHERE number <= ?", (oldest,)).rowcount
        self._store._mark = mark._replace(keys=row[0], kept=mark.kept + 1 - gone)

    def offset(self, source: str, position: Mapping[str, Any]) -> None:
        """Remember how far a source was read, together with the samples from there."""
        text, mark = json.dumps(dict(position), allow_nan=False), self._store._mark
        records.insert(self._db, "offsets", [(source, text, mark.offsets + 1)])
        self._store._mark = mark._replace(offsets=mark.offsets + 1)

    def wait(self, id: str, x: Array, now: float | None = None) -> bool:
        """Keep an input x (d,) until its label comes; whether it took the place of an earlier one.

        An input under an id that waits already replaces it. TooManyWaiting beyond
        limits.waiting_labels.
        """
        store, name = self._store, records.name("id", id)
        if x.shape != (store.d,):
            raise BadInput(f"an input of shape {x.shape}: ({store.d},) is expected")
        known = self._known(name)
        if not known:
            self.make_room(1, time.time() if now is None else now)
        if not known and store.waiting_count >= store.limits.waiting_labels:
            raise TooManyWaiting(
                f"{store.waiting_count:,} inputs wait for their labels, and no more may wait: send "
                "labels first, or raise waiting_labels in [limits]"
            )
        kind = records.kind(x)
        row = (name, kind, records.pack_array(x, kind), time.time() if now is None else now)
        records.insert(self._db, "waiting", [row])
        if records.has_expired(self._db, name):
            self._db.execute("DELETE FROM expired WHERE id = ?", (name,))
        self._waiting(0 if known else 1)
        return known

    def make_room(self, more: int, now: float) -> int:
        """Let the oldest inputs go where n more would be too many; how many went.

        Only those go that have waited for an hour: a sender in a hurry must not push out another's.
        """
        over = self._store.waiting_count + more - self._store.limits.waiting_labels
        if over <= 0:
            return 0
        oldest = "SELECT id FROM waiting WHERE since <= ? ORDER BY since LIMIT ?"
        return self._expired(f"id IN ({oldest})", now - CROWDED, over)

    def expire(self, before: float) -> int:
        """Let inputs go that have waited since before a time; how many."""
        return self._expired("since <= ?", before)

    def _expired(self, which: str, *values: float) -> int:
        self._db.execute(records.EXPIRED)
        note = f"INSERT OR REPLACE INTO expired (id) SELECT id FROM waiting WHERE {which}"
        self._db.execute(note, values)
        most = self._store.limits.waiting_labels
        self._db.execute(
            "DELETE FROM expired WHERE number <= (SELECT max(number) FROM expired) - ?", (most,)
        )
        gone = self._db.execute(f"DELETE FROM waiting WHERE {which}", values).rowcount
        self._waiting(-gone)
        mark = self._store._mark
        self._store._mark = mark._replace(expired=mark.expired + gone)
        return gone

    def remake_waiting(self, d: int, remade: Callable[[Array], Array] | None) -> int:
        """Let inputs that wait have other columns, d of them, or go where there is no way; how many
        went.
        """
        if remade is None:
            return self.expire(float("inf"))
        path, shape = self._store.path, (1, self._store.d)
        for id, kind, x, since, _ in self._db.execute("SELECT * FROM waiting").fetchall():
            X = remade(records.array(path, kind, x, shape))
            if X.shape != (1, d):
                raise BadInput(f"an input of {X.shape[1]} numbers: {d} are expected")
            records.insert(self._db, "waiting", [(id, "<f8", records.pack_array(X, "<f8"), since)])
        return 0

    def label(self, id: str) -> Array | None:
        """Take the input (d,) that waits under an id; None if none does."""
        x = self._store.waiting(id)
        if x is not None:
            self._db.execute("DELETE FROM waiting WHERE id = ?", (id,))
            self._waiting(-1)
        return x

    def snapshot(self, packed: bytes, learned: int) -> None:
        """Keep the state after the first `learned` rows, and delete these from the journal."""
        mark = self._store._mark
        if not mark.learned <= learned <= mark.rows:
            raise BadInput(f"a snapshot after {learned} rows: {mark.learned} to {mark.rows} can be")
        self._db.execute(_FORGET, (learned, learned))  # first: on a full disk, this makes room
        row = (learned, packed, zlib.crc32(packed))
        self._db.execute("INSERT OR REPLACE INTO snapshot VALUES (1, ?, ?, ?)", row)
        self._store._mark = mark._replace(learned=learned)

    def sealed(self, rows: int, sealed: bytes) -> None:
        """Keep the newest sums that this node sealed, and the rows from which new ones count."""
        records.keep_sealed(self._db, rows, sealed)

    def log(self, origin: str, base: int, cut: int, batches: Iterable[tuple[int, bytes]]) -> None:
        """Keep an origin's rows with numbers from `base` on and below `cut`, and these batches."""
        records.keep_log(self._db, origin, base, cut, batches)

    def back_to(self, packed: bytes, learned: int) -> None:
        """An earlier state, after `learned` rows, in place of all that was learned since: the rows
        of the journal go, stay counted, and count as lost.
        """
        mark = self._store._mark
        if not 0 <= learned <= mark.rows:
            raise BadInput(f"a state after {learned} rows, and {mark.rows} were ever stored")
        self.snapshot(packed, mark.rows)
        mark = self._store._mark
        self._store._mark = mark._replace(lost=mark.lost + mark.rows - learned)

    def _known(self, id: str) -> bool:
        return self._db.execute("SELECT 1 FROM waiting WHERE id = ?", (id,)).fetchone() is not None

    def _waiting(self, more: int) -> None:
        mark = self._store._mark
        self._store._mark = mark._replace(waiting=mark.waiting + more)
