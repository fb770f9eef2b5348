"""JSON lines: one object a line; a key that is not there is a missing value.

Keys that come up only after the first chunk are not taken, unless `columns` asks for them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from dokl.errors import BadInput
from dokl.readers.open_file import OpenFile, decode_lines
from dokl.readers.options import Options
from dokl.readers.parsing import json_value
from dokl.readers.table import Chunk, Columns, quote_cell


def read(source: OpenFile, options: Options) -> Iterator[Chunk]:
    """Chunks of objects; the columns are those asked for, or all keys of the first chunk."""
    columns, line = None, 1
    while raw := source.take(options.rows(source.first_line)):
        rows, at = _objects(decode_lines(raw, source.name, line), source.name, line)
        line += len(raw)
        if not rows:
            continue
        if columns is None:
            names = options.columns or dict.fromkeys(itertools.chain.from_iterable(rows))
            if not names:
                raise BadInput(f"{source.name}: the first objects have no keys")
            columns = Columns(source.name, tuple(names), options)
        yield columns.chunk({name: [row.get(name) for row in rows] for name in columns.kept}, at)


def _objects(text: str, name: str, first: int) -> tuple[list[dict[str, Any]], list[int]]:
    """The objects and their line numbers, blank lines left out."""
    lines = [(at, line) for at, line in enumerate(text.split("\n"), first) if line.strip()]
    at = [number for number, _ in lines]
    try:
        rows = json_value("[" + ",".join(line for _, line in lines) + "]")
    except BadInput:
        rows = []
    if len(rows) != len(lines) or not set(map(type, rows)) <= {dict}:
        rows = [_object(line, name, number) for number, line in lines]
    return rows, at


def _object(line: str, name: str, at: int) -> dict[str, Any]:
    try:
        value = json_value(line)
    except BadInput as error:
        raise BadInput(f"{name}, line {at}: {error}") from None
    if not isinstance(value, dict):
        found = quote_cell(value)
        raise BadInput(f'{name}, line {at}: expected an object like {{"x": 1}}, got {found}')
    return value
