"""Parquet, by pyarrow: column by column, a batch of rows at a time."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from dokl.base.errors import BadInput, MissingExtra
from dokl.learning.cells.forms import TEXT
from dokl.tables.readers.table import MOST_ROWS, Chunk, Columns, Options
from dokl.tables.readers.text import OpenFile


def read(source: OpenFile, options: Options) -> Iterator[Chunk]:
    """Chunks of rows; messages count rows from 1."""
    if source.zipped or source.inner is not None or not source.regular:
        raise BadInput(
            f"{source.name}: Parquet must be a file, not a stream, and not compressed. "
            "Save it to a file first"
        )
    try:
        parquet = importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise MissingExtra("reading Parquet", "parquet") from None
    try:
        yield from _chunks(parquet.ParquetFile(source.path), source, options)
    except importlib.import_module("pyarrow").ArrowException as error:
        raise BadInput(f"{source.name} cannot be read as Parquet: {error}") from None


def _chunks(file: Any, source: OpenFile, options: Options) -> Iterator[Chunk]:
    columns = Columns(source.name, tuple(file.schema_arrow.names), options, unit="row")
    row, total = 0, max(1, file.metadata.num_rows)
    batches = file.iter_batches(options.chunk or MOST_ROWS, columns=list(columns.kept))
    for batch in batches:
        lines = range(row + 1, row + 1 + batch.num_rows)
        cells = {name: _cells(batch.column(name), name, columns) for name in columns.kept}
        row += batch.num_rows
        source.at(row / total)
        chunk = columns.chunk(cells, lines) if lines else None
        if chunk is not None and chunk.n:
            yield chunk


def _cells(column: Any, name: str, columns: Columns) -> Any:
    """float64 with NaN for numbers; for anything else a list of texts."""
    try:
        return _convert(column, columns.forms.get(name) == TEXT)
    except importlib.import_module("pyarrow").ArrowException:
        raise BadInput(
            f"{columns.name}: column {name!r} is of type {column.type}, neither numbers nor text. "
            "Leave it out"
        ) from None


def _convert(column: Any, as_text: bool) -> Any:
    types = importlib.import_module("pyarrow.types")
    if types.is_dictionary(column.type):
        column = column.dictionary_decode()
    tests = (types.is_integer, types.is_floating, types.is_decimal, types.is_boolean)
    if as_text or not any(test(column.type) for test in tests):
        return column.cast("string").to_pylist()
    return np.array(column.cast("float64", safe=False).to_numpy(zero_copy_only=False))
