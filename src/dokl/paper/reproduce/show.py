"""Results to look at: a terminal table, CSV, JSON, and pictures of learning curves.

A picture has the mean over runs, a band that holds eight of ten runs, theory and levels.
"""

from __future__ import annotations

import csv
import io
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from dokl.base import files
from dokl.base.arrays import Array
from dokl.base.files import atomic_write
from dokl.learning.metrics import decibels
from dokl.paper.reproduce.results import FigureCurve, PartResult, Row
from dokl.tables import report
from dokl.tables.report import COLOURS, pyplot, save_picture

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


# -- pictures -------------------------------------------------------------------------------------
DASHES = {"small": (0, (1, 1.5)), "fourth": (0, (5, 2))}


def draw(result: PartResult, path: Path) -> Path:
    """One panel into a PNG or SVG."""
    figure, axes = pyplot().subplots(figsize=(7.2, 4.4), layout="constrained")
    panel(axes, result)
    if path.suffix == ".png":
        return save_picture(figure, path)
    with atomic_write(path) as file:  # without the date, so that the same result is the same file
        figure.savefig(file, format="svg", bbox_inches="tight", metadata={"Date": None})
    pyplot().close(figure)
    return path


def small(result: PartResult, path: Path) -> Path:
    """One panel as a small PNG, for a text."""
    figure, axes = pyplot().subplots(figsize=(6.0, 3.7), layout="constrained")
    panel(axes, result)
    with atomic_write(path) as file:
        figure.savefig(file, dpi=90, format="png")
    pyplot().close(figure)
    return path


def panel(axes: Any, result: PartResult) -> None:
    """Everything of one result."""
    measured = [c for c in result.curves if not c.theory]
    colours = {c.label: COLOURS[i % len(COLOURS)] for i, c in enumerate(measured)}
    for curve in measured:
        _measured(axes, curve, colours[curve.label])
    for curve in result.curves:
        if curve.theory:
            _theory(axes, curve, measured, colours)
    for (label, level), style in zip(result.levels.items(), ("--", "-"), strict=False):
        axes.axhline(level, color="black", lw=1.1, ls=style, label=label)
    _limits(axes, result)
    axes.set_title(result.title, fontsize=10)
    axes.set_xlabel("samples per node")
    axes.set_ylabel("mean square error (dB)")
    axes.grid(alpha=0.25, lw=0.6)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.legend(frameon=False, fontsize=8)


def _level(powers: list[float]) -> Array:
    """In dB; the paper's recursion gives powers below zero early on, which have no logarithm."""
    held = np.array(powers)
    return np.asarray(decibels(np.where(held > 0, held, np.nan)))


def _measured(axes: Any, curve: FigureCurve, colour: str) -> None:
    axes.plot(curve.at, _level(curve.mean), color=colour, lw=1.6, label=curve.label)
    band = (_level(a) for a in (curve.low, curve.high))
    axes.fill_between(curve.at, *band, color=colour, alpha=0.15, lw=0)


def _theory(
    axes: Any, curve: FigureCurve, measured: list[FigureCurve], colours: dict[str, str]
) -> None:
    """The paper's in the colour of what it predicts; ours in black, since it lies on top of it."""
    kind = "fourth" if "fourth" in curve.label else "small"
    ending = curve.label.rpartition(": ")[2]
    ending = {"rff": "RFF-KLMS"}.get(ending, ending)
    ending_here = [c.label for c in measured if c.label == ending]
    colour = colours[ending_here[0]] if ending_here and kind == "small" else "black"
    words = curve.label.partition(":")[0]
    first = words not in [line.get_label() for line in axes.get_lines()]
    axes.plot(
        curve.at, _level(curve.mean), color=colour, lw=1.1, ls=DASHES[kind],
        label=words if first else None,
    )  # fmt: skip


def _limits(axes: Any, result: PartResult) -> None:
    """The means fill the picture; the first few steps and rare runs may leave it."""
    measured = [c for c in result.curves if not c.theory]
    means = np.concatenate([_level(c.mean)[np.array(c.at) > c.at[-1] / 250] for c in measured])
    low = min([means.min(), *result.levels.values()])
    axes.set_ylim(low - 3, means.max() + 2)
    axes.set_xlim(0, max(c.at[-1] for c in result.curves))
