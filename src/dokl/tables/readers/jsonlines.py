"""JSON: one object a line, or one array of objects; a key that is not there is a missing value.

Keys that come up only after the first chunk are not taken, unless `columns` asks for them.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

from dokl.base.errors import BadInput
from dokl.learning.cells.cells import quote_cell
from dokl.tables.readers.json_array import Elements
from dokl.tables.readers.open_file import OpenFile, decode_lines
from dokl.tables.readers.options import MOST_ROWS, Options, Refuse
from dokl.tables.readers.parsing import json_value
from dokl.tables.readers.table import Chunk, Columns


def read(source: OpenFile, options: Options) -> Iterator[Chunk]:
    """Chunks of objects; the columns are those asked for, or all keys of the first chunk."""
    columns = None
    for rows, at in _of_array(source, options) if source.is_array else _of_lines(source, options):
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


Rows = tuple[list[dict[str, Any]], list[int]]  # objects and their line numbers


def _of_lines(source: OpenFile, options: Options) -> Iterator[Rows]:
    line = 1
    while raw := source.take(options.rows(source.first_line)):
        rows, at = _objects(raw, source.name, line, options.refuse)
        line += len(raw)
        if rows:
            yield rows, at


def _of_array(source: OpenFile, options: Options) -> Iterator[Rows]:
    elements, most = iter(Elements(source)), options.chunk or MOST_ROWS
    while some := list(itertools.islice(elements, most)):
        rows, lines = [], []
        for at, value in some:
            if isinstance(value, dict):
                rows.append(value)
                lines.append(at)
            elif options.refuse is None:
                raise BadInput(f"{source.name}, line {at}: {_no_object(value)}")
            else:
                options.refuse(at, BadInput(_no_object(value)), json.dumps(value))
        if rows:
            yield rows, lines


def _objects(raw: list[bytes], name: str, first: int, refuse: Refuse | None) -> Rows:
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
        alone = ". An object stands on one line, or all of them in one array"
        more = alone if line.strip() == "{" else ""
        raise BadInput(f"{name}, line {at}: {error}{more}") from None
    if not isinstance(value, dict):
        raise BadInput(f"{name}, line {at}: {_no_object(value)}")
    return value


def _no_object(value: Any) -> str:
    return f'expected an object like {{"x": 1}}, got {quote_cell(value)}'
