"""Going on with a store that has lost something: invalid parts are dropped and reported."""

from __future__ import annotations

import sqlite3
import zlib
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from dokl.base.errors import BadInput
from dokl.base.files import PathLike
from dokl.live.store import records
from dokl.live.store.database import lock_store, open_database
from dokl.live.store.examine import SEALED
from dokl.live.store.failures import store_errors
from dokl.live.store.marks import Mark, MarkFile, mark_path, pack_mark, read_mark, unpack_mark
from dokl.live.store.schema import check_schema, is_new

_FIRST = {"keys": "number", "offsets": "source", "waiting": "id"}


@dataclass(frozen=True)
class JournalLoss:
    """What a store goes on without; rows: acknowledged ones that are gone. left: those it has.

    dropped: damaged rows of its tables, by table.
    """

    rows: int
    left: int
    dropped: dict[str, int]


def accept_loss(
    path: PathLike, identity: records.Identity, earlier: records.Identities = ()
) -> JournalLoss:
    """Make a store that is behind its mark, or has lost it, one that can be opened again; earlier:
    what its node was before its columns were changed.
    """
    path = Path(path)
    with ExitStack() as stack:
        stack.enter_context(lock_store(path))
        kept = read_mark(path)
        acknowledged = Mark() if kept is None or kept.mark.commit < 0 else kept.mark
        if not path.exists():
            if kept is None:
                raise BadInput(f"{path}: there is no such store, and nothing was lost")
            mark_path(path).unlink()
            return JournalLoss(acknowledged.rows, 0, {})
        db = open_database(path, "full")
        stack.callback(db.close)
        with store_errors(path, opening=True):
            if not is_new(db):
                check_schema(db, path)
            if records.about(db, "identity") is not None:
                records.check_identity(db, path, identity, earlier)
            db.execute("BEGIN IMMEDIATE")
            mark, dropped = _repair(db, path, acknowledged)
            db.execute("COMMIT")
        marks = MarkFile(path, synced=True)
        stack.callback(marks.close)
        marks.settle(mark)
    return JournalLoss(mark.lost - acknowledged.lost, mark.rows, dropped)


def _repair(db: sqlite3.Connection, path: Path, acknowledged: Mark) -> tuple[Mark, dict[str, int]]:
    """Drop what cannot be believed, and count what is left."""
    records.snapshot(db, path)  # without it there is nothing to go on with
    dropped = {table: _drop_damaged(db, table) for table in SEALED}
    dropped["log"] = records.drop_damaged_log(db)
    dropped["samples"] = _cut_journal(db)
    # It may be of an earlier commit, or damaged: then the node asks its neighbours for it.
    db.execute("DELETE FROM about WHERE key = 'sealed'")
    own = unpack_mark(records.about(db, "mark") or "") or Mark()
    left = records.count(db, own)
    lost = max(acknowledged.rows, own.rows) - left.rows
    mark = left._replace(
        commit=max(acknowledged.commit, own.commit) + 1, lost=acknowledged.lost + max(lost, 0)
    )
    records.set_value(db, "mark", pack_mark(mark))
    return mark, {table: n for table, n in dropped.items() if n}


def _drop_damaged(db: sqlite3.Connection, table: str) -> int:
    wrong = records.damaged(db, table)
    for first in wrong:
        db.execute(f"DELETE FROM {table} WHERE {_FIRST[table]} IS ?", (first,))
    return len(wrong)


def _cut_journal(db: sqlite3.Connection) -> int:
    """Delete the samples from the first batch on that does not fit; how many batches."""
    at = db.execute("SELECT coalesce(max(learned), 0) FROM snapshot").fetchone()[0]
    for first, n, rows, crc in db.execute("SELECT first, n, rows, crc FROM samples ORDER BY first"):
        if first > at or zlib.crc32(rows) != crc:
            return db.execute("DELETE FROM samples WHERE first >= ?", (first,)).rowcount
        at = first + n
    return 0
