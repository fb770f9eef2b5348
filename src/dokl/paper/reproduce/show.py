"""Results as a terminal table, CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dokl.base import files
from dokl.paper.reproduce.results import PartResult, Row
from dokl.tables import report

HEADER = ["", "ours", "se", "paper", "Δ/se", "prototype", "Δ/se", "agrees"]


def number(value: float | None, unit: str = "", digits: int = 2) -> str:
    """A figure with its unit, empty where there is none."""
    if value is None:
        return ""
    few = 3 if unit == "ms" and abs(value) < 1 else digits
    return f"{value:.{few}f}" + (f" {unit}" if unit else "")


def verdict(row: Row) -> str:
    """Yes, no, or nothing."""
    agrees = row.agrees()
    return "" if agrees is None else "yes" if agrees else "NO"


def cells(row: Row) -> list[str]:
    """A row of every table."""
    digits = 3 if row.unit == "dB" else 2
    return [
        row.what,
        number(row.ours, row.unit),
        number(row.error, digits=digits),
        number(row.paper),
        number(row.from_paper(), digits=1),
        number(row.prototype),
        number(row.apart(), digits=1),
        verdict(row),
    ]


def drop_empty_columns(
    header: list[str], lines: list[list[str]]
) -> tuple[list[str], list[list[str]]]:
    """The same without empty columns."""
    kept = [i for i in range(len(header)) if i < 2 or any(line[i] for line in lines)]
    return [header[i] for i in kept], [[line[i] for i in kept] for line in lines]


def groups(result: PartResult) -> dict[str, list[Row]]:
    """Rows by group, in order."""
    found: dict[str, list[Row]] = {}
    for row in result.rows:
        found.setdefault(row.group, []).append(row)
    return found


def print_result(result: PartResult) -> None:
    """To the terminal."""
    for group, rows in groups(result).items():
        header, lines = drop_empty_columns([group, *HEADER[1:]], [cells(row) for row in rows])
        report.table(f"{result.part}: {result.title}", header, lines)
    for note in result.notes:
        print(note)


def record(result: PartResult, curves: bool = False) -> dict[str, Any]:
    """For programs: rows with their differences, and the provenance."""
    rows = [
        {**asdict(row), "from_paper": row.from_paper(), "apart": row.apart(),
         "agrees": row.agrees()}
        for row in result.rows
    ]  # fmt: skip
    found: dict[str, Any] = {
        "part": result.part,
        "title": result.title,
        "rows": rows,
        "notes": result.notes,
    }
    if curves:
        found |= {"curves": [asdict(c) for c in result.curves], "levels": result.levels}
    return {**found, "made": result.made}


def write(result: PartResult, folder: Path) -> list[Path]:
    """CSV and JSON."""
    rows = record(result)["rows"]
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    as_csv = files.atomic_text(folder / f"{result.part}.csv", text.getvalue())
    as_json = json.dumps(record(result, curves=True), indent=1)
    return [as_csv, files.atomic_text(folder / f"{result.part}.json", as_json)]
