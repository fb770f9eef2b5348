"""Open a table: find out what it is, and hand out its chunks."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import TracebackType
from typing import Self

import numpy as np

from dokl.base.errors import BadInput, UnknownName
from dokl.tables.readers import delimited, json_rows, libsvm, parquet, spreadsheet
from dokl.tables.readers.table import Chunk, Options
from dokl.tables.readers.text import OpenFile, reading

_READ: dict[str, Callable[[OpenFile, Options], Iterator[Chunk]]] = {
    "csv": delimited.read,
    "tsv": delimited.read,
    "jsonl": json_rows.read,
    "libsvm": libsvm.read,
    "parquet": parquet.read,
    "xlsx": spreadsheet.read,
}
FORMATS = tuple(_READ)
_ALIASES = {
    "svmlight": "libsvm",
    "svm": "libsvm",
    "ndjson": "jsonl",
    "json": "jsonl",
    "pq": "parquet",
}
_LIBSVM_LINE = re.compile(rb"\s*[-+.\deE]+(\s+(qid|\d+):[-+.\deE]+)*\s*(#.*)?$")


class Reader:
    """An open table; iterate over it once, it closes itself at the end.

    first: the first chunk, read already, which decides names and kinds; first_share: how much of
    the file that is, about, None if nobody knows. name: the file, for messages. format: what it is.
    bytes_read, bytes_total: how far we are, in the file as it lies on the disk (packed, if it is
    packed); bytes_total is None for a pipe.
    """

    def __init__(self, source: OpenFile, format: str, options: Options) -> None:
        self.name, self.format = source.name, format
        self._source, self._take = source, options.take
        self._chunks = _READ[format](source, options)
        first = self._next()
        if first is None:
            raise BadInput(f"{self.name} has no rows")
        self.first = first
        self.first_share = source.share
        self._fresh = True

    def _next(self) -> Chunk | None:
        chunk = self._any()
        while chunk is not None and self._take is not None:
            wanted = np.asarray(self._take(np.asarray(chunk.lines)), bool)
            if wanted.any():
                return chunk if wanted.all() else chunk.rows(wanted)
            chunk = self._any()
        return chunk

    def _any(self) -> Chunk | None:
        try:
            with reading(self.name):
                chunk = next(self._chunks, None)
        except BaseException:
            self.close()
            raise
        if chunk is None:
            self.close()
        return chunk

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns; none in a LIBSVM file."""
        return self.first.names

    @property
    def n_features(self) -> int | None:
        """Number of features of a LIBSVM file; None for a table with names."""
        return None if self.first.X is None else int(self.first.X.shape[1])

    @property
    def bytes_read(self) -> int:
        """How much of the file was taken."""
        return self._source.position

    @property
    def bytes_total(self) -> int | None:
        """Length of the file; None if nobody knows."""
        return self._source.total

    def __iter__(self) -> Iterator[Chunk]:
        if self._fresh:
            self._fresh = False
            yield self.first
        while (chunk := self._next()) is not None:
            yield chunk

    def go_live(self) -> None:
        """From now on a chunk of a pipe is the rows that are there, be it one."""
        self._source.go_live()

    def close(self) -> None:
        """Close the file; what was not read is not read."""
        self._source.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def open_table(
    source: str | os.PathLike[str], options: Options | None = None, live: bool = False
) -> Reader:
    """Open a file, or stdin for "-", and read its first chunk.

    live: of a pipe, a chunk is the rows that are there, at least one; do not wait for more.
    """
    options = options or Options()
    known = None if options.format is None else known_format(options.format)
    opened = OpenFile(source, live)
    format = known or guessed_format(opened)
    if opened.is_sheet and format != "xlsx":
        opened.close()
        raise BadInput(f"{opened.name} is a spreadsheet, and not {format}: leave out the format")
    if format == "tsv" and options.delimiter is None:
        options = replace(options, delimiter="\t")
    return Reader(opened, format, options)


def known_format(name: str) -> str:
    """The format of this name, aliases resolved.

    >>> known_format("svmlight")
    'libsvm'
    """
    plain = _ALIASES.get(name.lower(), name.lower())
    if plain not in _READ:
        raise UnknownName("format", name, [*_READ, "svmlight", "ndjson"])
    return plain


def guessed_format(source: OpenFile) -> str:
    """What the name says; where it says nothing, what the first line looks like."""
    line = source.first_line
    if line.startswith(b"PAR1"):
        return "parquet"
    if source.is_sheet:
        return "xlsx"
    name = (source.inner or source.name).lower().removesuffix(".gz")
    suffix = name.rpartition(".")[2] if "." in os.path.basename(name) else ""
    suffix = _ALIASES.get(suffix, suffix)
    if suffix in _READ:
        return suffix
    if source.is_array or line.lstrip(b"\xef\xbb\xbf \t").startswith(b"{"):
        return "jsonl"
    return "libsvm" if _LIBSVM_LINE.match(line) else "csv"
