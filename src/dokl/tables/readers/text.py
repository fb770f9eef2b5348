"""Text from outside, step by step: bytes of a file or stdin, lines, cells of CSV, values of JSON.

Files are plain, gzip or zip, and know their position, for a progress bar. Requests have cells and
values, too; errors in them have the same messages.
"""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import json
import os
import re
import stat
import sys
import zipfile
import zlib
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from dokl.base.errors import BadInput, listed

GZIP = b"\x1f\x8b"
ZIP = b"PK\x03\x04"
WORKBOOK = "xl/workbook.xml"  # in every .xlsx file
FOREIGN = {
    b"BZh": "compressed with bzip2",
    b"\xfd7zXZ": "compressed with xz",
    b"\x28\xb5\x2f\xfd": "compressed with zstd",
    ZIP: "a zip archive or a spreadsheet, which are read back and forth: save it to a file",
    b"\xd0\xcf\x11\xe0": "an old spreadsheet (.xls): save it as .xlsx or CSV",
    b"ARROW1": "a Feather file: save it as Parquet",
    b"\x89HDF": "an HDF5 file: save its table as Parquet or CSV",
    b"\x93NUMPY": "an array of NumPy: save it as CSV",
    b"\x80\x04": "a pickle of Python, which can run code: save it as Parquet or CSV",
    b"\x80\x05": "a pickle of Python, which can run code: save it as Parquet or CSV",
    b"SQLite format 3": "a database of SQLite: save a table of it as CSV",
    b"\xff\xfe": "text in UTF-16",
    b"\xfe\xff": "text in UTF-16",
}
_ARRAY = re.compile(rb"(\xef\xbb\xbf)?\s*\[\s*(\{|$)")
BUFFER = 1 << 18
LONGEST_FIRST_LINE = 1 << 24


@contextmanager
def reading(name: str) -> Iterator[None]:
    """Whatever goes wrong with the bytes becomes one message that names the file."""
    try:
        yield
    except FileNotFoundError:
        raise BadInput(f"{name}: there is no such file") from None
    except IsADirectoryError:
        raise BadInput(f"{name} is a directory: name a file in it") from None
    except EOFError:
        raise BadInput(f"{name} is cut off: its gzip data ends too early. Copy it again") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise BadInput(f"{name} is damaged: its gzip data cannot be unpacked ({error})") from None
    except zipfile.BadZipFile as error:
        raise BadInput(
            f"{name} is a zip archive or a spreadsheet that cannot be unpacked ({error})"
        ) from None
    except OSError as error:
        raise BadInput(f"{name} cannot be read: {error.strerror or error}") from None


class _Counted(io.RawIOBase):
    """A file that counts what was read of it, and gives its first two bytes once more."""

    def __init__(self, file: Any) -> None:
        self.file = file
        self.position = 0
        self._take = getattr(file, "read1", file.read)  # what a pipe has now, be it one line
        self.magic = file.read(1) + file.read(1)
        self._again = self.magic

    def readable(self) -> bool:
        """Yes; `io.BufferedReader` asks."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer as far as the file has something now; 0 at its end."""
        if self._again:
            n = min(len(buffer), len(self._again))
            buffer[:n], self._again = self._again[:n], self._again[n:]
        else:
            data = self._take(len(buffer))
            n = len(data)
            buffer[:n] = data
        self.position += n
        return n


class _Arriving(Iterator[bytes]):
    """Lines of a stream as they come in; they wait here, not in the stream."""

    def __init__(self, file: Any, *before: bytes) -> None:
        self.file, self.rest = file, b""
        self.lines = deque(before)

    def __next__(self) -> bytes:
        while not self.lines:
            data = self.file.read1(BUFFER)  # what is there now; it waits only if that is nothing
            if not data and not self.rest:
                raise StopIteration
            pieces = (self.rest + data).split(b"\n") if data else [self.rest, b""]
            self.rest = pieces.pop()
            self.lines.extend(piece + b"\n" for piece in pieces)
        return self.lines.popleft()

    def take(self, rows: int) -> list[bytes]:
        """The lines that are there, at least one; none at the end."""
        first = next(self, None)
        if first is None:
            return []
        more = min(rows - 1, len(self.lines))
        return [first, *(self.lines.popleft() for _ in range(more))]


class OpenFile:
    """An open file, or stdin for "-", unpacked where it is gzip or a zip archive of one file (its
    first bytes say so).

    inner: the name of the file in a zip archive; is_sheet: whether it is a spreadsheet, which has
    no lines. first_line is looked at and not taken; iterating gives every line, as bytes. live: of
    a pipe, `take` gives the lines that are there now, rather than wait for as many as it may take.
    """

    def __init__(self, source: str | os.PathLike[str], live: bool = False) -> None:
        path = os.fspath(source)
        self.path = None if path == "-" else path
        self.name = "stdin" if path == "-" else path
        self._taken = 0  # bytes of lines
        with reading(self.name):
            self._file: Any = sys.stdin.buffer if path == "-" else io.FileIO(path)
        try:
            with reading(self.name):
                self.total = _size(self._file)
                self.inner: str | None = None
                self.is_sheet = False
                if self.regular:
                    self._open_zip()
                self._counted = _Counted(self._file if self.inner is None else self._inside)
                self.zipped = self._counted.magic == GZIP
                self._lines = self._unpacked()
                self.first_line: bytes = self._lines.readline(LONGEST_FIRST_LINE)
            self._rows: Iterator[bytes] = itertools.chain((self.first_line,), self._lines)
            if live and not self.regular:
                self._rows = _Arriving(self._lines, self.first_line)
            self._check()
        except BaseException:
            self.close()
            raise

    def _open_zip(self) -> None:
        """Go on with the one file in a zip archive, if this is one."""
        magic = self._file.read(len(ZIP))
        self._file.seek(0)
        if magic != ZIP:
            return
        archive = zipfile.ZipFile(self._file)
        if WORKBOOK in archive.namelist():
            self.is_sheet = True
            self._file.seek(0)
            return
        whole = [i for i in archive.infolist() if not i.is_dir() and not _hidden(i.filename)]
        if len(whole) != 1:
            names = listed([member.filename for member in whole]) or "none"
            raise BadInput(f"{self.name} must hold one file, and these are in it: {names}")
        (member,) = whole
        try:
            self._inside: Any = archive.open(member)
        except (RuntimeError, NotImplementedError) as error:  # a password, or a rare packing
            raise BadInput(f"{self.name} cannot be unpacked: {error}") from None
        self.inner, self.total = member.filename, member.file_size

    def _unpacked(self) -> Any:
        plain: Any = io.BufferedReader(self._counted, BUFFER)
        if not self.zipped:
            return plain
        packed: Any = gzip.GzipFile(fileobj=plain, mode="rb")
        return io.BufferedReader(packed, BUFFER)  # its lines come faster than GzipFile's own

    def _check(self) -> None:
        if not self.first_line:
            raise BadInput(f"{self.name} is empty")
        if self.first_line.startswith(b"PAR1") or self.is_sheet or self.is_array:
            return  # these have no lines
        if len(self.first_line) == LONGEST_FIRST_LINE:
            raise BadInput(f"{self.name} has no line end in its first 16 MiB: not a text file")
        for magic, what in FOREIGN.items():
            if self.first_line.startswith(magic):
                known = "UTF-8 text, also packed (.gz, .zip), Parquet and .xlsx"
                raise BadInput(f"{self.name} is {what}; what is read is {known}")

    @property
    def is_array(self) -> bool:
        """Whether it looks like one JSON array of objects."""
        return _ARRAY.match(self.first_line) is not None

    def blocks(self) -> Iterator[bytes]:
        """All of it in pieces, for what has no lines."""
        block = self.first_line
        while block:
            self._taken += len(block)
            yield block
            block = self._lines.read(BUFFER)

    @property
    def position(self) -> int:
        """Bytes taken so far, of the packed file where it is packed."""
        return self._counted.position

    def at(self, share: float) -> None:
        """Report the progress of a reader with its own position in the file."""
        self._counted.position = round(share * (self.total or 0))

    @property
    def regular(self) -> bool:
        """Whether the file can be read a second time."""
        return self.path is not None and os.path.isfile(self.path)

    def __iter__(self) -> Iterator[bytes]:
        return self._rows

    def take(self, rows: int) -> list[bytes]:
        """The next lines, at most n; none at the end."""
        if isinstance(self._rows, _Arriving):
            return self._rows.take(rows)
        found = list(itertools.islice(self._rows, rows))
        self._taken += sum(map(len, found))
        return found

    @property
    def share(self) -> float | None:
        """How much of the file the lines are that were taken; None if nobody knows. Of a packed
        file about, by how far it is packed up to here.
        """
        if not self.total or not self.regular:
            return None
        if not self._taken:  # a reader that finds its own way
            return self.position / self.total or None
        read = self._lines.raw.tell() if self.zipped else self.position
        return min(1.0, self._taken / (self.total * read / self.position))

    def go_live(self) -> None:
        """From now on, take what a pipe has; some lines must have been taken already."""
        if not self.regular:
            self._rows = _Arriving(self._lines)

    def close(self) -> None:
        """Close the file; stdin is left open."""
        if self.path is not None:
            self._file.close()


def _hidden(name: str) -> bool:
    """Whether a name in an archive is none that somebody has put there."""
    return name.startswith("__MACOSX/") or os.path.basename(name).startswith(".")


def _size(file: Any) -> int | None:
    """Length of a regular file; None for a pipe."""
    try:
        status = os.fstat(file.fileno())
    except (OSError, AttributeError):
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def decode_lines(raw: list[bytes], name: str, first_line: int) -> str:
    """Lines as one text; a byte that is not UTF-8 is named by its line."""
    data = b"".join(raw)
    try:
        return data.decode("utf-8-sig" if first_line == 1 else "utf-8")
    except UnicodeDecodeError as error:
        line = first_line + data.count(b"\n", 0, error.start)
        raise BadInput(
            f"{name}, line {line}: byte 0x{data[error.start]:02x} is not UTF-8 text. "
            "Save the file as UTF-8 (iconv -f WINDOWS-1252 -t UTF-8, say)"
        ) from None


DELIMITERS = ",;\t|"


# -- CSV ---------------------------------------------------------------------------------------
def delimiter_of(header: str) -> str:
    """The one of , ; | and tab that cuts a line into most cells.

    >>> delimiter_of("a;b;c, d")
    ';'
    """
    return max(DELIMITERS, key=lambda mark: width(header, mark))


def width(line: str, mark: str) -> int:
    """How many cells are on a line; 0 if it is no CSV."""
    with suppress(csv.Error):
        return len(next(csv.reader([line], delimiter=mark), ()))
    return 0


def csv_reader(lines: Iterable[str], mark: str) -> Any:
    """Rows of cells, one by one; quotes as in the standard library's csv, whose errors it has."""
    return csv.reader(lines, delimiter=mark, strict=True)


def cells_of(lines: Iterable[str], mark: str) -> list[list[str]]:
    """All rows of cells.

    >>> cells_of(['1,"a, b"', "2,c"], ",")
    [['1', 'a, b'], ['2', 'c']]
    """
    try:
        return list(csv_reader(lines, mark))
    except csv.Error as error:
        raise BadInput(f"this is not CSV ({error})") from None


def twice(names: Sequence[str]) -> str | None:
    """A name that stands there more than once."""
    return Counter(names).most_common(1)[0][0] if len(set(names)) < len(names) else None


# -- JSON --------------------------------------------------------------------------------------
class NotJson(BadInput):
    """A text that is no JSON."""


class Several(NotJson):
    """One JSON value is followed by something else."""


def json_at(text: str, at: int) -> tuple[Any, int]:
    """The JSON value that begins at this character, and where it ends; `json.JSONDecodeError` where
    there is none, which may go on later.

    >>> json_at('[{"a": 1}, 2', 1)
    ({'a': 1}, 9)
    """
    try:
        return _DECODERS[False, True].raw_decode(text, at)
    except json.JSONDecodeError:
        raise
    except RecursionError:
        raise BadInput("too deeply nested JSON") from None
    except ValueError:
        raise BadInput("this JSON holds a number of too many digits") from None


def json_value(text: str, once: bool = False, literals: bool = True) -> Any:
    """The value of a JSON text. once: refuse a key that stands twice in an object. literals: take
    NaN and Infinity, which are no JSON, as Python's json does.

    >>> json_value('{"a": [1, null]}')
    {'a': [1, None]}
    """
    try:
        return _DECODERS[once, literals].decode(text)
    except json.JSONDecodeError as error:
        kind = Several if error.msg == "Extra data" else NotJson
        raise kind(f"this is not JSON ({error})") from None
    except RecursionError:
        raise BadInput("too deeply nested JSON") from None
    except ValueError as error:
        if isinstance(error, BadInput):
            raise
        raise BadInput("this JSON holds a number of too many digits") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        name = twice([name for name, _ in pairs]) or ""
        raise BadInput(f"the key {name[:80]!r} occurs twice in one JSON object")
    return made


def _no_literal(name: str) -> Any:
    raise NotJson(f"{name} is not JSON: send null where a value is missing")


_DECODERS = {
    (once, literals): json.JSONDecoder(
        object_pairs_hook=_once if once else None,
        parse_constant=None if literals else _no_literal,
    )
    for once in (False, True)
    for literals in (False, True)
}
