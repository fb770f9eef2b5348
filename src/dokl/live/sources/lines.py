"""Lines of files that grow, are rotated or cut, with the place to go on from after a restart."""

from __future__ import annotations

import gzip
import os
import select
import stat
import threading
import zlib
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dokl.base.errors import BadInput
from dokl.tables.readers.text import FOREIGN, GZIP, reading

CHUNK = 1 << 18
LONGEST_LINE = 1 << 20  # bytes; a longer one is no row, and is not kept in memory
HEAD = 1024  # bytes by which a file is known again


@dataclass(frozen=True)
class Line:
    """One line without its end, None if it was too long to keep; length: its bytes in the file."""

    text: bytes | None
    length: int


class Lines:
    """Bytes, as they come, into whole lines; what has no line end yet is kept back."""

    def __init__(self) -> None:
        self.whole: deque[Line] = deque()
        self.part = b""  # of a line whose end is not there yet
        self._lost = 0  # bytes of it that were too many to keep

    @property
    def waiting(self) -> int:
        """Bytes that came and were not taken."""
        return sum(line.length for line in self.whole) + len(self.part) + self._lost

    def add(self, data: bytes) -> None:
        """Some more bytes."""
        pieces = data.split(b"\n")
        pieces[0] = self.part + pieces[0]
        self.part = pieces.pop()
        for piece in pieces:
            length, self._lost = self._lost + len(piece) + 1, 0
            self.whole.append(Line(piece if length <= LONGEST_LINE else None, length))
        if len(self.part) > LONGEST_LINE:
            self._lost += len(self.part)
            self.part = b""

    def end(self) -> None:
        """Nothing more comes: what is left is a line, too."""
        if self.part or self._lost:
            self.add(b"\n")
            last = self.whole.pop()
            self.whole.append(Line(last.text, last.length - 1))

    def take(self, most: int) -> list[Line]:
        """The lines that are there, at most n."""
        return [self.whole.popleft() for _ in range(min(most, len(self.whole)))]


class LineFile:
    """A file to read lines from, plain or gzip; `at` is the place after the last line taken.

    Places count bytes as they are unpacked. path: under which name it is followed.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with reading(str(path)):
            # Without a buffer, which would not notice that the file changed beneath it.
            self.stream = open(path, "rb", buffering=0)  # noqa: SIM115 (closed by `close`)
        try:
            status = os.fstat(self.stream.fileno())
            self.inode, self.regular = status.st_ino, stat.S_ISREG(status.st_mode)
            first = os.pread(self.stream.fileno(), 8, 0) if self.regular else b""
            self._check(first)
            self.packed = first.startswith(GZIP)
            self._file: Any = gzip.GzipFile(fileobj=self.stream) if self.packed else self.stream
            self._begin_at(0)
        except BaseException:
            self.close()
            raise

    def _check(self, first: bytes) -> None:
        for magic, what in {**FOREIGN, b"PAR1": "a Parquet file"}.items():
            if first.startswith(magic):
                raise BadInput(
                    f"{self.path} is {what}; an agent reads CSV and JSON lines, UTF-8 or gzip of it"
                )

    def _begin_at(self, at: int, begin: bytes = b"") -> None:
        self.at, self._begin = at, begin
        self._lines, self._seen = Lines(), (-1, -1)

    # -- places --------------------------------------------------------------------------------
    @property
    def size(self) -> int:
        """Bytes on the disk."""
        return os.fstat(self.stream.fileno()).st_size

    def head(self, at: int) -> list[int]:
        """Length and checksum of the file's beginning, as far as it lies before a place."""
        begin = self._begin[:at]
        return [len(begin), zlib.crc32(begin)]

    def begins(self, head: Sequence[int]) -> bool:
        """Whether the file begins as it did when it had this head."""
        with reading(str(self.path)):
            self._file.seek(0)
            begin = self._file.read(head[0])
        return len(begin) == head[0] and zlib.crc32(begin) == head[1]

    def move(self, at: int) -> bool:
        """Go to a place; False if the file does not reach that far."""
        with reading(str(self.path)):
            self._file.seek(0)
            self._begin_at(at, self._file.read(min(at, HEAD)))
            reached: int = self._file.seek(at)
        return reached == at and (self.packed or at <= self.size)

    # -- lines ---------------------------------------------------------------------------------
    def take(self, most: int, last: bool = False) -> list[Line]:
        """The next lines, fewer than asked for at the end; last: an open line counts, too."""
        with reading(str(self.path)):
            while len(self._lines.whole) < most:
                data = self._file.read(CHUNK)
                if not data:
                    if last:
                        self._lines.end()
                    break
                self._begin += data[: HEAD - len(self._begin)]
                self._lines.add(data)
        taken = self._lines.take(most)
        self.at += sum(line.length for line in taken)
        return taken

    @property
    def half(self) -> bool:
        """Whether a line is there whose end is not."""
        return bool(self._lines.waiting)

    # -- while it is followed ------------------------------------------------------------------
    def was_cut(self) -> bool:
        """Whether the file is not what it was: shorter, or beginning otherwise."""
        status = os.fstat(self.stream.fileno())
        now = (status.st_size, status.st_mtime_ns)
        if now == self._seen:
            return False
        self._seen = now
        read = self.at + self._lines.waiting
        begin = os.pread(self.stream.fileno(), len(self._begin), 0)
        return status.st_size < read or begin != self._begin

    def was_replaced(self) -> bool:
        """Whether another file has its name now, with something in it."""
        try:
            status = os.stat(self.path)
        except OSError:
            return False  # gone, and nothing new yet: this one may still be written to
        return status.st_ino != self.inode and status.st_size > 0

    def close(self) -> None:
        """Read no more."""
        self.stream.close()


class Pipe:
    """Lines of a pipe as they come in; waiting for them costs nothing."""

    def __init__(self, stream: Any, stop: threading.Event) -> None:
        self._stop, self._lines, self.ended = stop, Lines(), False
        self._stream = stream
        try:
            self._number: int | None = stream.fileno()
        except (OSError, AttributeError):
            self._number = None

    def take(self, most: int) -> list[Line]:
        """The lines that are there, at least one unless it ended or was stopped."""
        while not (self._lines.whole or self.ended or self._stop.is_set()):
            data = self._read()
            if data:
                self._lines.add(data)
            elif data is not None:
                self.ended = True
                self._lines.end()
        return self._lines.take(most)

    def _read(self) -> bytes | None:
        """What is there; nothing at the end; None if nothing came for a while."""
        if self._number is None:
            return bytes(self._stream.read(CHUNK))
        with reading("stdin"):
            ready, _, _ = select.select([self._number], [], [], 0.5)
            return os.read(self._number, CHUNK) if ready else None
