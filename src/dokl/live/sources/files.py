"""Where an agent's samples come from: a file read to its end, a followed file, stdin.

Each is an iterator of arrivals that carry their source's name and the position after them. Stored
in one transaction with its samples, the position lets a restart go on exactly after what was
stored: nothing twice, nothing left out. CSV with a header, or JSON lines; what the first line looks
like decides.

A line that cannot be a sample is skipped and reported to `on_bad(where, why)`, unless `strict`,
which raises. The header is another matter: a file without a good one is refused. A header that
comes up again is no row. One line is one row: a quoted cell cannot go on in the next line.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from dokl.base.errors import BadInput
from dokl.live.inputs import Arrival, Inputs
from dokl.live.sources.lines import Line, LineFile, Pipe
from dokl.live.sources.rows import OnBad, Position, RowReader, place

BATCH = 500
POLL = 0.2  # seconds between looks at a file that does not grow
OnNote = Callable[[str], None]


def name_of(path: str | Path) -> str:
    """The name under which a file's position is stored."""
    return str(Path(path).resolve())


def read_file(
    path: str | Path,
    inputs: Inputs,
    position: Position | None = None,
    *,
    batch: int = BATCH,
    strict: bool = False,
    on_bad: OnBad | None = None,
    stop: threading.Event | None = None,
) -> Iterator[Arrival]:
    """The rows of a file, plain or gzip, to its end; a last line without line end counts, too.

    position: of the last arrival that was stored; it counts bytes as they are unpacked.
    """
    rows = RowReader(name_of(path), inputs, strict, on_bad or _nothing)
    most = min(batch, inputs.most_rows)
    stop = stop or threading.Event()
    file = LineFile(Path(path))
    try:
        if not file.regular:
            yield from _piped(Pipe(file.stream, stop), rows, most)
            return
        if position is not None:
            _go_on(file, rows, position)
        while not stop.is_set() and (lines := file.take(most, last=True)):
            yield from rows.arrivals(lines, file)
        rows.finish()
    finally:
        file.close()


def follow(
    path: str | Path,
    inputs: Inputs,
    position: Position | None = None,
    *,
    batch: int = BATCH,
    strict: bool = False,
    on_bad: OnBad | None = None,
    on_note: OnNote | None = None,
    stop: threading.Event | None = None,
    poll: float = POLL,
) -> Iterator[Arrival]:
    """The rows of a file as it grows, like `tail -F`, until `stop` is set.

    A file that is not there yet is waited for. A line counts once its line end is there. Where the
    file is renamed and a new one has something in it, the old one is read to its end first; this
    holds over a restart, too, as long as the old one is still in the same folder and not packed (of
    several that came and went meanwhile, only the one that was being read and the newest). A
    file that was cut is read from its new beginning. A new beginning may repeat the header or not.
    on_note(text) receives these events.
    """
    rows = RowReader(name_of(path), inputs, strict, on_bad or _nothing)
    tail = _Tail(Path(path), rows, position, on_note or _nothing)
    most, stop = min(batch, inputs.most_rows), stop or threading.Event()
    try:
        while not stop.is_set():
            lines = tail.take(most)
            if lines and tail.file is not None:
                yield from rows.arrivals(lines, tail.file)
            elif not tail.turned():
                stop.wait(poll)
    finally:
        tail.close()


def read_stdin(
    inputs: Inputs,
    *,
    stream: object = None,
    batch: int = BATCH,
    strict: bool = False,
    on_bad: OnBad | None = None,
    stop: threading.Event | None = None,
) -> Iterator[Arrival]:
    """The rows of stdin, those that are there at a time, until it ends or `stop` is set.

    The position is only a count of rows: what was read from a pipe and not stored is gone, and a
    restart takes what comes then. Where that matters, follow a file.
    """
    rows = RowReader("stdin", inputs, strict, on_bad or _nothing)
    pipe = Pipe(sys.stdin.buffer if stream is None else stream, stop or threading.Event())
    yield from _piped(pipe, rows, min(batch, inputs.most_rows))


def _piped(pipe: Pipe, rows: RowReader, most: int) -> Iterator[Arrival]:
    while lines := pipe.take(most):
        yield from rows.arrivals(lines, None)
    if pipe.ended:
        rows.finish()


def _nothing(*ignored: str) -> None:
    """Nobody wants to know."""


def _go_on(file: LineFile, rows: RowReader, position: Position) -> None:
    """Go to where a file was read to, if it is the same file."""
    at, _, head = place(position)
    if not (file.begins(head) and file.move(at)):
        raise BadInput(
            f"{file.path}: {at:,} bytes of a file of this name were read before, and this is "
            "another one (it is shorter, or begins otherwise): give it another name"
        )
    rows.go_on(position)


class _Tail:
    """The end of a file that may be renamed, replaced or cut; file: None while there is none."""

    def __init__(
        self, path: Path, rows: RowReader, position: Position | None, on_note: OnNote
    ) -> None:
        self._path, self._rows, self._note = path, rows, on_note
        self._leaving = self._missed = False
        self.file = None if position is None else self._found(position)

    def take(self, most: int) -> list[Line]:
        """The next lines, if there are any."""
        if self.file is None:
            self.file = self._opened(self._path)
        if self.file is None:
            return []
        if self.file.was_cut():
            self._note(f"{self._path} was cut: it is read from its new beginning")
            self.file.move(0)
            self._rows.start_over()
        return self.file.take(most)

    def turned(self) -> bool:
        """Once there are no more lines: whether it is worth looking for some elsewhere."""
        if self.file is None or not self.file.was_replaced():
            return False
        if not self._leaving:  # what was written between the last look and the new file
            self._leaving = True
            return True
        if self.file.half:
            self._rows.skip("the file was replaced, and its last line has no line end")
        self._note(f"{self._path} was replaced: the new file is read from its beginning")
        self.close()
        self._leaving = False
        self._rows.start_over()
        return True

    def close(self) -> None:
        """Read no more."""
        if self.file is not None:
            self.file.close()
            self.file = None

    def _opened(self, path: Path) -> LineFile | None:
        if not path.exists():
            if not self._missed:
                self._note(f"{path} is not there yet: it is waited for")
            self._missed = True
            return None
        try:
            file = LineFile(path)
        except BadInput:
            if path.exists():
                raise
            return None  # renamed between the two looks
        if file.packed or not file.regular:
            file.close()
            raise BadInput(f"{path}: only a plain file can be followed")
        return file

    def _found(self, position: Position) -> LineFile | None:
        """The file that was followed before, whatever it is called now; None if it is gone."""
        at, inode, head = place(position)
        self._rows.go_on(position)
        for path in (self._path, *_siblings(self._path, inode)):
            file = self._opened(path) if path.exists() else None
            if file is None:
                continue
            if file.inode == inode and file.begins(head) and file.move(at):
                file.path = self._path
                return file
            file.close()
        self._note(
            f"{self._path} is not the file that was read before, and that one was not found: what "
            "is there is read from its beginning"
        )
        self._rows.start_over()
        return None


def _siblings(path: Path, inode: int) -> list[Path]:
    """Files beside a file that have this inode: what it was renamed to."""
    try:
        with os.scandir(path.parent) as entries:
            return [Path(entry.path) for entry in entries if entry.inode() == inode]
    except OSError:
        return []
