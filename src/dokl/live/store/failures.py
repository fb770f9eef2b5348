"""What goes wrong with a store, in one message each."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dokl.base.errors import BadFile, DoklError

_DISK_ERRORS = (sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE)
_WRECKED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
# What SQLite says of tables that are not there, or hold what they cannot. A text that is no UTF-8
# comes without a code.
_NONSENSE = (0, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_CONSTRAINT)
_NO_ROOM = 1 << 18


class StoreFailed(DoklError):
    """Something could not be stored, and nothing of it was; full: for want of room on the disk."""

    def __init__(self, text: str, full: bool = False) -> None:
        super().__init__(text)
        self.full = full


class RowsMissing(BadFile):
    """A store is behind what was acknowledged; rows: how many it lacks, if that is known."""

    def __init__(self, text: str, rows: int | None) -> None:
        super().__init__(text)
        self.rows = rows


@contextmanager
def store_errors(path: Path, opening: bool = False) -> Iterator[None]:
    """Errors of SQLite, and while it is opened of what is in it, as one clear message.

    Damage is a BadFile while a store is opened; later, when what a client sends is no cause of it,
    a StoreFailed.
    """
    try:
        yield
    except DoklError:
        raise
    except sqlite3.Error as error:
        clear = _explain(path, error, opening)
        wrecked = isinstance(clear, BadFile) and not opening
        raise (StoreFailed(str(clear)) if wrecked else clear) from error
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        if not opening:
            raise
        raise damage_error(path, f"{type(error).__name__}: {error}") from error


def _explain(path: Path, error: sqlite3.Error, opening: bool) -> DoklError:
    code = getattr(error, "sqlite_errorcode", None) or 0
    plain = code & 0xFF
    if plain in _WRECKED or (opening and plain in _NONSENSE):
        return damage_error(path, str(error))
    if plain == sqlite3.SQLITE_FULL or (code in _DISK_ERRORS and _no_room(path)):
        return StoreFailed(f"{path}: the disk is full; nothing of this was stored", full=True)
    if plain == sqlite3.SQLITE_CANTOPEN:
        return BadFile(
            f"{path}: the store cannot be opened: check that you can write to its folder"
        )
    return StoreFailed(f"{path}: the store cannot be read or written ({error})")


def damage_error(path: Path, why: str) -> BadFile:
    """The message for a damaged store."""
    return BadFile(
        f"{path}: the store is damaged ({why}). Move it away, with all files that begin with "
        f"{path.name}: the agent then starts again from its neighbours' vectors"
    )


def missing_error(path: Path, name: str, why: str, rows: int | None) -> RowsMissing:
    """The message for a store that has lost something, or may have."""
    return RowsMissing(
        f"{path}: {why}. Put back the files that were here, all that begin with {path.name}, if "
        "you have them; to continue without: "
        f"dokl agent accept-loss DESCRIPTION --name {name} (its description instead of that word)",
        rows,
    )


def _no_room(path: Path) -> bool:
    with suppress(OSError):
        return shutil.disk_usage(path.parent).free < _NO_ROOM
    return False
