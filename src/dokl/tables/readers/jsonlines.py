"""JSON lines: one object a line; a key that is not there is a missing value.

Keys that come up only after the first chunk are not taken, unless `columns` asks for them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from dokl.base.errors import BadInput
from dokl.learning.cells.cells import quote_cell
from dokl.tables.readers.open_file import OpenFile, decode_lines
from dokl.tables.readers.options import Options, Refuse
from dokl.tables.readers.parsing import json_value
from dokl.tables.readers.table import Chunk, Columns


def read(source: OpenFile, options: Options) -> Iterator[Chunk]:
    """Chunks of objects; the columns are those asked for, or all keys of the first chunk."""
    columns, line = None, 1
    while raw := source.take(options.rows(source.first_line)):
        rows, at = _objects(raw, source.name, line, options.refuse)
        line += len(raw)
        if not rows:
            continue
        if columns is None:
            there = dict.fromkeys(itertools.chain.from_iterable(rows))
            more = [name for name in options.optional if name in there]
            names = (*options.columns, *more) if options.columns else there
            if not names:
                raise BadInput(f"{source.name}: the first objects have no keys")
            columns = Columns(source.name, tuple(names), options)
        chunk = columns.chunk({name: [row.get(name) for row in rows] for name in columns.kept}, at)
        if chunk.n:
            yield chunk


def _objects(
    raw: list[bytes], name: str, first: int, refuse: Refuse | None
) -> tuple[list[dict[str, Any]], list[int]]:
    """The objects and their line numbers, blank lines left out.

    Each line is parsed by itself: joined, two halves of an object would pass for a whole one.
    """
    rows, lines = [], []
    for at, line in enumerate(raw, first):
        if not line.strip():
            continue
        try:
            rows.append(_object(decode_lines([line], name, at), name, at))
            lines.append(at)
        except BadInput as error:
            if refuse is None:
                raise
            refuse(at, error, line.decode("utf-8", "replace").rstrip())
    return rows, lines


def _object(line: str, name: str, at: int) -> dict[str, Any]:
    try:
        value = json_value(line)
    except BadInput as error:
        raise BadInput(f"{name}, line {at}: {error}") from None
    if not isinstance(value, dict):
        found = quote_cell(value)
        raise BadInput(f'{name}, line {at}: expected an object like {{"x": 1}}, got {found}')
    return value
