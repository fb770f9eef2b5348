"""How far a store had come, kept beside it: so that what SQLite drops without a word is noticed.

A write-ahead log with a bad frame, or cut short, is for SQLite one that ends there: it opens the
database as it was before, and says nothing. So every commit has a number, stored with a few counts
in the database, and after the commit, before any answer, the same line goes into a file of its
own, NAME.db-mark. A database that is behind its mark has lost something that was acknowledged.

The file has two places, written by turns, each with a checksum. Writing there needs no room on the
disk. In mode "full" it is synced once a second and not with every commit, which would take a third
of the speed: after a power cut it may be a second behind, and so may what it can notice then.
"""

from __future__ import annotations

import os
import time
import zlib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from dokl.base.errors import BadFile
from dokl.base.files import read_bytes

PLACE, PLACES, LONGEST = 4096, 2, 512
SYNC_SECONDS = 1.0
_MAGIC = "dokl-mark-1"


class Mark(NamedTuple):
    """What a store has after a commit; a tuple, since one is made several times per commit.

    commit: its number. rows: samples ever stored; learned: of these, in the snapshot. keys: the
    number of the last idempotency key; kept: how many are remembered. offsets: how often one was
    stored. waiting: inputs without labels. lost: rows that somebody agreed to go on without.
    expired: inputs that waited in vain.
    """

    commit: int = 0
    rows: int = 0
    learned: int = 0
    keys: int = 0
    kept: int = 0
    offsets: int = 0
    waiting: int = 0
    lost: int = 0
    expired: int = 0


@dataclass(frozen=True)
class StoredMark:
    """A mark as its file has it; closed: the store was closed in order. boot: of the machine."""

    mark: Mark
    boot: str
    closed: bool


def pack_mark(mark: Mark) -> str:
    """A mark as a line of text with its checksum."""
    return _sealed(" ".join(map(str, mark)))


def unpack_mark(text: str) -> Mark | None:
    """What `pack_mark` wrote; None if that is not what it is."""
    words = _unsealed(text)
    return None if words is None else _numbers(words)


def mark_path(path: Path) -> Path:
    """The file with the mark of a store."""
    return path.with_name(path.name + "-mark")


def read_mark(path: Path) -> StoredMark | None:
    """The newest mark of a store; None if it has no such file. BadFile if it is unreadable."""
    place = mark_path(path)
    try:
        data = read_bytes(place)[: PLACE * PLACES]
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadFile(f"{place}: the mark of the store cannot be read ({error.strerror})") from None
    found = [_unpack_stored(data[at : at + LONGEST]) for at in range(0, len(data), PLACE)]
    known = [kept for kept in found if kept is not None]
    return max(known, key=lambda kept: (kept.mark.commit, kept.closed), default=_DAMAGED)


_DAMAGED = StoredMark(Mark(commit=-1), "", False)


def boot_id() -> str:
    """Which start of the machine this is; "" if unknown."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return ""


class MarkFile:
    """The mark of an open store; `write` after each commit, `close` at the end."""

    def __init__(self, path: Path, synced: bool) -> None:
        self._place, self._synced = mark_path(path), synced
        self._boot, self._due = boot_id(), 0.0
        try:
            self._file = os.open(
                self._place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
            )
        except OSError as error:
            raise BadFile(
                f"{self._place}: the mark of the store cannot be written ({error.strerror})"
            ) from None

    def begin(self) -> None:
        """Take the room that marks need, where the file is new."""
        with suppress(OSError):  # on a full disk: then it is taken when there is room
            if os.fstat(self._file).st_size < PLACE * PLACES:
                os.pwrite(self._file, b"\n" * (PLACE * PLACES), 0)
                for turn in range(PLACES):
                    self._put(Mark(), turn, closed=False)
                os.fsync(self._file)

    def write(self, mark: Mark) -> None:
        """The database has this; a disk that refuses the mark leaves the earlier one."""
        with suppress(OSError):
            self._put(mark, mark.commit % PLACES, closed=False)
            if self._synced and time.monotonic() >= self._due:
                os.fdatasync(self._file)
                self._due = time.monotonic() + SYNC_SECONDS

    def settle(self, mark: Mark) -> None:
        """Both places say this, for good: after what was lost is accepted, and at the end."""
        with suppress(OSError):
            for turn in range(PLACES):
                self._put(mark, turn, closed=True)
            os.fsync(self._file)

    def close(self) -> None:
        """Close the file; a second time does nothing."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _put(self, mark: Mark, turn: int, closed: bool) -> None:
        words = (_MAGIC, *mark, self._boot or "-", int(closed))
        line = _sealed(" ".join(map(str, words))).ljust(LONGEST - 1) + "\n"
        os.pwrite(self._file, line.encode("ascii"), turn * PLACE)


def _unpack_stored(data: bytes) -> StoredMark | None:
    words = _unsealed(data.decode("ascii", "replace"))
    if words is None or len(words) < 4 or words[0] != _MAGIC:
        return None
    mark = _numbers(words[1:-2])
    return None if mark is None else StoredMark(mark, words[-2].strip("-"), words[-1] == "1")


def _numbers(words: list[str]) -> Mark | None:
    with suppress(ValueError, TypeError):
        return Mark(*map(int, words))
    return None


def _sealed(text: str) -> str:
    return f"{text} {zlib.crc32(text.encode()):08x}"


def _unsealed(text: str) -> list[str] | None:
    body, _, crc = text.strip().rpartition(" ")
    return body.split(" ") if f"{zlib.crc32(body.encode()):08x}" == crc else None


def later(mark: Mark) -> Mark:
    """The mark of the next commit, before anything is in it."""
    return mark._replace(commit=mark.commit + 1)
