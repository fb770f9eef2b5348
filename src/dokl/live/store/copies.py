"""A copy of a store at one moment, also while its agent runs, and the way back from it.

A copy is an ordinary store in one file. To restore it means that its node goes back in time: rows
acknowledged since are counted as lost, what it sealed since is not known any more, and it speaks
with a later incarnation than ever before, so that nobody takes it for the one it was.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from pathlib import Path

from dokl.base.errors import BadFile, BadInput
from dokl.live.store import records
from dokl.live.store.database import lock_store, open_read_only
from dokl.live.store.examine import check_counts, read_own_mark
from dokl.live.store.failures import StoreFailed, store_errors
from dokl.live.store.folder import open_own
from dokl.live.store.marks import Mark, MarkFile, mark_path, pack_mark, read_mark
from dokl.live.store.schema import FORMAT, check_schema

PARTS = ("", "-wal", "-shm")  # files of a store, besides its lock and its mark
REPLACED = ".replaced"  # what they were called is followed by this once a copy took their place


@dataclass(frozen=True)
class Copied:
    """rows: acknowledged ones in a copy, learned: those in its snapshot. bytes: its size.
    incarnation: the last one that it knows of.
    """

    rows: int
    learned: int
    incarnation: int
    bytes: int


@dataclass(frozen=True)
class StoreRestored:
    """rows: what the node goes on with. lost: acknowledged ones that it had and goes on without.
    replaced: whether there was a store before, which is put aside.
    """

    rows: int
    lost: int
    incarnation: int
    replaced: bool


def copy_store(
    path: Path, identity: records.Identity, to: Path, earlier: records.Identities = ()
) -> Copied:
    """Copy the store of a node to a file, whole or not at all; the agent may run. earlier: what the
    node was before its columns were changed.
    """
    part = to.with_name(to.name + ".part")
    try:
        with closing(open_read_only(path)) as db, store_errors(path, opening=True):
            records.check_identity(db, path, identity, earlier)
            _copy(db, part)
        found = examined(part, identity, earlier)
        os.replace(part, to)
    except OSError as error:
        raise BadFile(f"{to}: the copy cannot be written ({error.strerror})") from None
    finally:
        with suppress(OSError):
            part.unlink()
    return found


def examined(copy: Path, identity: records.Identity, earlier: records.Identities = ()) -> Copied:
    """What is in a copy; BadFile where it is damaged, another node's, or of another version."""
    try:
        return _examined(copy, identity, earlier)
    except BadFile as error:  # what to do with a store does not help with a copy
        text = str(error).partition(". Move it away")[0].partition(". To continue without")[0]
        raise BadFile(text) from None


def _examined(copy: Path, identity: records.Identity, earlier: records.Identities) -> Copied:
    with closing(open_read_only(copy)) as db, store_errors(copy, opening=True):
        if check_schema(db, copy) != FORMAT:
            raise BadInput(
                f"{copy}: a copy of an earlier version: start that version with it, or put it in "
                "place by hand, and it is converted when it is opened"
            )
        records.check_identity(db, copy, identity, earlier)
        mark = read_own_mark(db, copy)
        check_counts(db, copy, mark)
        records.log(db, copy)
        last = int(records.about(db, "incarnation") or 0)
    return Copied(mark.rows, mark.learned, last, copy.stat().st_size)


def restore_store(
    copy: Path, path: Path, identity: records.Identity, overwrite: bool = False,
    earlier: records.Identities = (),
) -> StoreRestored:  # fmt: skip
    """Put a copy in the place of a node's store; refused while an agent has that open.

    overwrite: put a store aside that is there already; otherwise that is refused. earlier: what the
    node was before its columns were changed.
    """
    examined(copy, identity, earlier)
    with ExitStack() as stack:
        stack.enter_context(lock_store(path))
        kept = read_mark(path)
        stored = Mark() if kept is None or kept.mark.commit < 0 else kept.mark
        there = path.exists()
        if there and not overwrite:
            raise BadInput(
                f"{path}: there is a store already, with {stored.rows:,} rows; with --overwrite it "
                f"is put aside as {path.name}{REPLACED}"
            )
        last = _last_incarnation(path) if there else 0
        part = path.with_name(path.name + ".part")
        stack.callback(_unlink, part)
        with closing(open_read_only(copy)) as db, store_errors(copy, opening=True):
            _copy(db, part)
        with closing(_writable(part)) as db, store_errors(part, opening=True):
            mark, incarnation = _settled(db, part, stored, last)
        # In this order: whatever comes in between, the store is refused as one that lacks rows.
        if kept is not None:
            shutil.copyfile(mark_path(path), mark_path(Path(f"{path}{REPLACED}")))
        marks = MarkFile(path, synced=True)
        stack.callback(marks.close)
        marks.begin()
        marks.settle(mark)
        for end in PARTS:
            _put_aside(Path(f"{path}{end}"), Path(f"{path}{REPLACED}{end}"))
        os.replace(part, path)
    return StoreRestored(mark.rows, mark.lost - stored.lost, incarnation, there)


def _settled(db: sqlite3.Connection, path: Path, stored: Mark, last: int) -> tuple[Mark, int]:
    """The copy as what the node goes on with: counted on from what was acknowledged and sent."""
    own = read_own_mark(db, path)
    lost = stored.lost + max(stored.rows - own.rows, 0)
    mark = own._replace(commit=max(stored.commit, own.commit) + 1, lost=lost)
    incarnation = max(int(records.about(db, "incarnation") or 0), last) + 1
    db.execute("BEGIN IMMEDIATE")
    # Sums were sealed since, perhaps: the node asks its neighbours what it sent.
    db.execute("DELETE FROM about WHERE key = 'sealed'")
    records.set_value(db, "incarnation", str(incarnation))
    records.set_value(db, "mark", pack_mark(mark))
    db.execute("COMMIT")
    return mark, incarnation


def _last_incarnation(path: Path) -> int:
    """Of a store that may be damaged: 0 if unknown; then the clock decides."""
    try:
        with closing(open_read_only(path)) as db:
            return int(records.about(db, "incarnation") or 0)
    except (BadFile, StoreFailed, sqlite3.Error, ValueError):
        return 0


def _copy(db: sqlite3.Connection, part: Path) -> None:
    """All pages of one moment: SQLite reads them in one transaction, and writers go on."""
    _unlink(part)
    os.close(open_own(part, os.O_RDWR))
    with closing(_writable(part)) as copy, store_errors(part):
        db.backup(copy)
        copy.execute("PRAGMA journal_mode = DELETE")  # one file, with everything in it
    number = os.open(part, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def _writable(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None)


def _put_aside(old: Path, new: Path) -> None:
    _unlink(new)
    with suppress(FileNotFoundError):
        os.replace(old, new)


def _unlink(path: Path) -> None:
    with suppress(FileNotFoundError):
        path.unlink()
