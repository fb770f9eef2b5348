"""SQLite under the store: one file, one owner, pragmas with their reasons, errors in one message.

The store is an ordinary SQLite database in WAL mode, readable with any SQLite tool, also while its
agent runs. It must lie on a local disk: neither the lock nor WAL works on network file systems.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from dokl.errors import BadFile, DoklError, UnknownName

DURABILITY = {
    # WAL appends, and the kernel has what was appended: it outlives the process, whatever kills
    # it. NORMAL syncs only at checkpoints, every few megabytes. OFF would save these and let a
    # power cut wreck the file; so it costs the last moments at most.
    "process": "NORMAL",
    # The WAL is synced in each commit, before anybody is told that it is done.
    "full": "FULL",
}
PAGE = 4096
CHECKPOINT_PAGES = 1000  # 4 MB of WAL are enough to make syncs rare, and little to read at a start
WAL_BYTES = 8 << 20
APPLICATION = 0x646F6B6C  # "dokl", for the `file` command and against opening something else
# 2: snapshots are arrays by name. One of format 1 differs in nothing else, and is read as it is.
FORMAT, UPGRADED = 2, (1,)

_SCHEMA = """
CREATE TABLE about (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE samples (first INTEGER PRIMARY KEY, n INTEGER NOT NULL, type TEXT NOT NULL,
                      rows BLOB NOT NULL, crc INTEGER NOT NULL);
CREATE TABLE snapshot (id INTEGER PRIMARY KEY CHECK (id = 1), learned INTEGER NOT NULL,
                       packed BLOB NOT NULL, crc INTEGER NOT NULL);
CREATE TABLE keys (number INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, digest TEXT NOT NULL,
                   answer TEXT NOT NULL);
CREATE TABLE offsets (source TEXT PRIMARY KEY, position TEXT NOT NULL);
CREATE TABLE waiting (id TEXT PRIMARY KEY, type TEXT NOT NULL, x BLOB NOT NULL);
"""
_DISK_ERRORS = (sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE)
_WRECKED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_NO_ROOM = 1 << 18


class StoreFailed(DoklError):
    """Something could not be stored, and nothing of it was; full: for want of room on the disk."""

    def __init__(self, text: str, full: bool = False) -> None:
        super().__init__(text)
        self.full = full


@contextmanager
def telling(path: Path, opening: bool = False) -> Iterator[None]:
    """Errors of SQLite as one clear message.

    Damage is a BadFile while a store is opened; later, when what a client sends is no cause of it,
    a StoreFailed.
    """
    try:
        yield
    except sqlite3.Error as error:
        told = _told(path, error)
        wrecked = isinstance(told, BadFile) and not opening
        raise (StoreFailed(str(told)) if wrecked else told) from error


def _told(path: Path, error: sqlite3.Error) -> DoklError:
    code = getattr(error, "sqlite_errorcode", None) or 0
    plain = code & 0xFF
    if plain in _WRECKED:
        return damage_error(path, str(error))
    if plain == sqlite3.SQLITE_FULL or (code in _DISK_ERRORS and _no_room(path)):
        return StoreFailed(f"{path}: the disk is full; nothing of this was stored", full=True)
    if plain == sqlite3.SQLITE_CANTOPEN:
        return BadFile(f"{path}: the store cannot be opened; is there such a folder, and a right?")
    return StoreFailed(f"{path}: the store cannot be read or written ({error})")


def damage_error(path: Path, why: str) -> BadFile:
    """What is said of a store that cannot be believed."""
    return BadFile(
        f"{path}: the store is damaged ({why}). Move it away, with its -wal and -shm: the agent "
        "then begins anew, from its neighbours' vectors"
    )


def _no_room(path: Path) -> bool:
    with suppress(OSError):
        return shutil.disk_usage(path.parent).free < _NO_ROOM
    return False


# -- one owner ---------------------------------------------------------------------------------
def lock_store(path: Path) -> IO[str]:
    """The lock file of a store, held until it is closed or its process dies, however it dies.

    It stays on the disk: to delete it would let two processes hold two files of one name.
    """
    place = path.with_name(path.name + ".lock")
    try:
        number = os.open(place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
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
    """A connection to the store of a path, made if it is not there, checked if it is."""
    if durability not in DURABILITY:
        raise UnknownName("durability", durability, DURABILITY)
    _touch(path)
    with telling(path, opening=True):
        # Autocommit: transactions begin and end where the store says so. The store is used by one
        # thread at a time, which need not be the one that opened it.
        db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        try:
            _set(db, durability)
            _prepare(db, path)
        except BaseException:
            db.close()
            raise
    return db


def open_read_only(path: Path) -> sqlite3.Connection:
    """A connection that only reads, also beside the agent that owns the store."""
    if not path.is_file():
        raise BadFile(f"{path}: there is no such store")
    with telling(path, opening=True):
        db = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", isolation_level=None, uri=True)
        db.execute("PRAGMA busy_timeout = 5000")
        return db


def _touch(path: Path) -> None:
    """Make the file, for its owner's eyes only; SQLite gives -wal and -shm the same rights."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
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


def _prepare(db: sqlite3.Connection, path: Path) -> None:
    """Make the tables of a new store; check those of an old one."""
    tables = db.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
    application = db.execute("PRAGMA application_id").fetchone()[0]
    version = db.execute("PRAGMA user_version").fetchone()[0]
    if tables == 0 and application == 0:
        marks = f"PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {FORMAT};"
        db.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} {marks} COMMIT")
        return
    if application != APPLICATION:
        raise BadFile(f"{path}: this is a database, but not an agent's store")
    if version in UPGRADED:
        db.execute(f"PRAGMA user_version = {FORMAT}")
    elif version != FORMAT:
        raise BadFile(
            f"{path}: a store of format {version}, and this dokl reads format {FORMAT}: "
            "use the dokl that wrote it, or a newer one"
        )
    found = db.execute("PRAGMA quick_check(1)").fetchone()[0]
    if found != "ok":
        raise damage_error(path, found)
