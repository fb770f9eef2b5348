"""SQLite under the store: one file, one owner, pragmas with their reasons, errors in one message.

The store is an ordinary SQLite database in WAL mode, readable with any SQLite tool, also while its
agent runs. It must lie on a local disk: neither the lock nor WAL works on network file systems.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import IO

from dokl.base.errors import BadFile, UnknownName
from dokl.live.store.examine import check_mark, examine
from dokl.live.store.failures import StoreFailed, store_errors
from dokl.live.store.folder import open_own
from dokl.live.store.marks import Mark, StoredMark
from dokl.live.store.records import Identities, Identity
from dokl.live.store.schema import prepare

DURABILITY = {
    # WAL appends, and the kernel has what was appended: it outlives the process, whatever kills
    # it. NORMAL syncs only at checkpoints, every few megabytes. OFF would save these and let a
    # power cut wreck the file; so it costs the last moments at most.
    "process": "NORMAL",
    # The WAL is synced in each commit, before anybody learns that it is done.
    "full": "FULL",
}
PAGE = 4096
CHECKPOINT_PAGES = 1000  # 4 MB of WAL are enough to make syncs rare, and little to read at a start
WAL_BYTES = 8 << 20


# -- one owner ---------------------------------------------------------------------------------
def lock_store(path: Path) -> IO[str]:
    """The lock file of a store, held until it is closed or its process dies, however it dies.

    It stays on the disk: to delete it would let two processes hold two files of one name.
    """
    place = path.with_name(path.name + ".lock")
    try:
        number = open_own(place, os.O_RDWR)
    except OSError as error:
        raise BadFile(f"{place}: the store cannot be locked ({error.strerror})") from None
    file = open(number, "r+", encoding="ascii", errors="replace")  # noqa: SIM115 (it is handed on)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        owner = file.read(20).strip()
        file.close()
        who = f"process {owner}" if owner.isdigit() else "another process"
        raise BadFile(
            f"{path}: {who} has this store open: a node runs once. End that one first"
        ) from None
    with suppress(OSError):  # a full disk may refuse the number; the lock holds without
        os.ftruncate(number, 0)
        os.pwrite(number, f"{os.getpid()}\n".encode(), 0)
    return file


# -- one file ----------------------------------------------------------------------------------
def open_database(path: Path, durability: str) -> sqlite3.Connection:
    """A connection to the store of a path, made if it is not there."""
    if durability not in DURABILITY:
        raise UnknownName("durability", durability, DURABILITY)
    _touch(path)
    try:
        return _connect(path, durability, alone=False)
    except StoreFailed as error:
        if not error.full:
            raise
    # A full disk has no room for the file by which several processes read a WAL together. With the
    # store to ourselves it is not needed, and predictions at least can be given.
    return _connect(path, durability, alone=True)


def _connect(path: Path, durability: str, alone: bool) -> sqlite3.Connection:
    with store_errors(path, opening=True):
        # Autocommit: transactions begin and end where the store says so. The store is used by one
        # thread at a time, which need not be the one that opened it.
        db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        try:
            if alone:
                db.execute("PRAGMA locking_mode = EXCLUSIVE")
            _set(db, durability)
            prepare(db)
        except BaseException:
            db.close()
            raise
    return db


def check_first(
    path: Path, identity: Identity, kept: StoredMark | None, durability: str,
    earlier: Identities = (),
) -> int:  # fmt: skip
    """Examine a store before anything is written to it; how many rows a power cut took."""
    if not path.exists():
        return check_mark(path, str(identity["name"]), Mark(), kept, durability)
    try:
        return _examined(open_read_only(path), path, identity, kept, durability, earlier)
    except StoreFailed as error:
        if not error.full:
            raise
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA locking_mode = EXCLUSIVE")
    return _examined(db, path, identity, kept, durability, earlier)


def _examined(
    db: sqlite3.Connection, path: Path, identity: Identity, kept: StoredMark | None,
    durability: str, earlier: Identities,
) -> int:  # fmt: skip
    try:
        with store_errors(path, opening=True):
            return examine(db, path, identity, kept, durability, earlier)
    finally:
        db.close()


def open_read_only(path: Path) -> sqlite3.Connection:
    """A connection that only reads, also beside the agent that owns the store."""
    if not path.is_file():
        raise BadFile(f"{path}: there is no such store")
    with store_errors(path, opening=True):
        db = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", isolation_level=None, uri=True)
        db.execute("PRAGMA busy_timeout = 5000")
        return db


def _touch(path: Path) -> None:
    """Make the file, for its owner's eyes only; SQLite gives -wal and -shm the same rights."""
    try:
        os.close(open_own(path, os.O_RDWR))
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)  # that the name lasts; SQLite does so for the WAL
        finally:
            os.close(folder)
    except OSError as error:
        raise BadFile(f"{path}: the store cannot be opened ({error.strerror})") from None


def _set(db: sqlite3.Connection, durability: str) -> None:
    for pragma in (
        f"page_size = {PAGE}",
        "journal_mode = WAL",  # a commit is one append; readers beside the agent are welcome
        f"synchronous = {DURABILITY[durability]}",
        "fullfsync = ON",  # Apple's fsync alone leaves data in the drive's cache
        # A checkpoint moves the WAL into the file, and the next commit starts the WAL over: it
        # stays near CHECKPOINT_PAGES. It is not cut to nothing, so that its room on the disk stays
        # ours; only what a great transaction left beyond WAL_BYTES is given back.
        f"wal_autocheckpoint = {CHECKPOINT_PAGES}",
        f"journal_size_limit = {WAL_BYTES}",
        "busy_timeout = 5000",  # a backup by other tools may hold it for a moment
        "secure_delete = OFF",  # no zeros over what is deleted: twice the writing
        "temp_store = MEMORY",
        "cell_size_check = ON",
        "trusted_schema = OFF",  # nothing in the file is executed
    ):
        db.execute(f"PRAGMA {pragma}")
