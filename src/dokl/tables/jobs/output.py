"""Columns of results as CSV or JSON lines, quickly, or as Parquet."""

from __future__ import annotations

import csv
import importlib
import io
import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from dokl.base.arrays import Array
from dokl.base.errors import BadInput, MissingExtra, UnknownName
from dokl.base.files import atomic_write

OUTPUTS = ("csv", "jsonl", "parquet")
Write = Callable[[dict[str, Array]], None]
# A text that is a number in JSON as it stands; 007 and 1e5x are none.
_JSON_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][-+]?\d+)?")
_TO_QUOTE = re.compile(r'[",\r\n]|^\s|\s$')


@contextmanager
def open_output(path: Path | None, output: str, digits: int = 9) -> Iterator[Write]:
    """What writes chunks of results, one after the other: to a file, whole or not at all, or to
    stdout, each at once.
    """
    if output not in OUTPUTS:
        raise UnknownName("output", output, OUTPUTS)
    if output == "parquet":
        with _parquet(path) as write:
            yield write
        return
    with nullcontext(sys.stdout) if path is None else atomic_write(path, "w") as file:
        first = True

        def write_text(columns: dict[str, Array]) -> None:
            nonlocal first
            file.write(as_text(columns, output, first, digits))
            if path is None:
                file.flush()  # someone may be waiting for it
            first = False

        yield write_text


@contextmanager
def _parquet(path: Path | None) -> Iterator[Write]:
    """Row groups of a Parquet file, which has its list of contents at the end."""
    if path is None:
        raise BadInput("Parquet is written to a file: name it with --out")
    try:
        arrow = importlib.import_module("pyarrow")
        parquet = importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise MissingExtra("writing Parquet", "parquet") from None
    writer = None
    with atomic_write(path, "wb") as file:

        def write(columns: dict[str, Array]) -> None:
            nonlocal writer
            table = arrow.table({name: _arrow(arrow, values) for name, values in columns.items()})
            writer = writer or parquet.ParquetWriter(file, table.schema)
            writer.write_table(table.cast(writer.schema))

        yield write
        if writer is not None:
            writer.close()


def _arrow(arrow: Any, values: Array) -> Any:
    """A column; texts may be missing, and one without any is one of texts all the same."""
    if values.dtype.kind in "OU":
        texts = [None if value is None else str(value) for value in values.tolist()]
        return arrow.array(texts, arrow.string())
    return arrow.array(values)


def as_text(columns: dict[str, Array], output: str, first: bool, digits: int = 9) -> str:
    """A chunk of results as CSV (with a header before the first) or JSON lines.

    digits: of numbers that are no copies; 9 are all that float32 has, 17 those of float64.
    """
    write = _csv_cells if output == "csv" else _json_cells
    made = [write(values, digits) for values in columns.values()]
    if output == "csv":
        row, header = ",".join(form for form, _ in made), list(columns)
        start = _csv_line(header) if first else ""
    else:
        pairs = zip(columns, made, strict=True)
        row = ", ".join(f"{_escape(json.dumps(name))}: {form}" for name, (form, _) in pairs)
        row, start = f"{{{row}}}", ""
    cells = [cells for _, cells in made]
    n = len(cells[0])
    flat: list[Any] = [None] * (n * len(cells))
    for i, column in enumerate(cells):
        flat[i :: len(cells)] = column
    # One format string for all rows: the loop is inside Python's %, several times as fast.
    return start + (row + "\n") * n % tuple(flat)


def _csv_cells(values: Array, digits: int) -> tuple[str, Sequence[Any]]:
    """A % format and what goes into it."""
    if values.dtype.kind in "biu":
        return "%s", values.tolist()
    if values.dtype.kind == "f" and not np.isnan(values).any():
        return f"%.{digits}g", values.tolist()
    if values.dtype.kind == "f":
        return "%s", ["" if v != v else f"{v:.{digits}g}" for v in values.tolist()]
    seen = {text: _csv_text(text) for text in set(values.tolist())}
    return "%s", [seen[text] for text in values.tolist()]


def _json_cells(values: Array, digits: int) -> tuple[str, Sequence[Any]]:
    if values.dtype.kind == "f":
        return "%s", ["null" if v != v else f"{v:.{digits}g}" for v in values.tolist()]
    if values.dtype.kind in "iu":
        return "%s", values.tolist()
    seen = {value: _json_text(value) for value in set(values.tolist())}
    return "%s", [seen[value] for value in values.tolist()]


def _csv_text(text: object) -> str:
    if text is None:
        return ""
    plain = str(text)
    return '"' + plain.replace('"', '""') + '"' if _TO_QUOTE.search(plain) else plain


def _json_text(value: object) -> str:
    if isinstance(value, str) and _JSON_NUMBER.fullmatch(value):
        return value
    return json.dumps(value)


def _csv_line(cells: list[str]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(cells)
    return line.getvalue()


def _escape(text: str) -> str:
    return text.replace("%", "%%")
