"""Columns of results as text: CSV or JSON lines, quickly."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from dokl.arrays import Array

OUTPUTS = ("csv", "jsonl")
# A text that is a number in JSON as it stands; 007 and 1e5x are none.
_JSON_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][-+]?\d+)?")
_TO_QUOTE = re.compile(r'[",\r\n]|^\s|\s$')


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
        row = ", ".join(f"{_escaped(json.dumps(name))}: {form}" for name, (form, _) in pairs)
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


def _csv_text(text: Any) -> str:
    if text is None:
        return ""
    plain = str(text)
    return '"' + plain.replace('"', '""') + '"' if _TO_QUOTE.search(plain) else plain


def _json_text(value: Any) -> str:
    if isinstance(value, str) and _JSON_NUMBER.fullmatch(value):
        return value
    return json.dumps(value)


def _csv_line(cells: list[str]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(cells)
    return line.getvalue()


def _escaped(text: str) -> str:
    return text.replace("%", "%%")
