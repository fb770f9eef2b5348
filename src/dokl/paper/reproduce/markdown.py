"""REPRODUCTION.md from stored results: no figure in it is typed."""

from __future__ import annotations

import os
from pathlib import Path

from dokl.base import files
from dokl.paper.reproduce import findings, show, texts
from dokl.paper.reproduce.parts import COMMANDS, PARTS
from dokl.paper.reproduce.results import PartResult

PICTURES = Path("docs") / "reproduction"


def grid(header: list[str], rows: list[list[str]]) -> str:
    """A Markdown table, the first column on the left."""
    head = "| " + " | ".join(header) + " |\n|---|" + "---:|" * (len(header) - 1)
    return head + "".join("\n| " + " | ".join(row) + " |" for row in rows)


def section(result: PartResult, folder: str) -> str:
    """One part."""
    out = [f"### {result.part}: {result.title}"]
    if result.curves:
        out.append(f"![Learning curves: {result.title}]({folder}/{result.part}.png)")
    for group, rows in show.groups(result).items():
        header = [group, *show.HEADER[1:]]
        lines = [show.cells(row) for row in rows]
        for line in lines:
            line[-1] = "**no**" if line[-1] == "NO" else line[-1]
        out.append(grid(*show.drop_empty_columns(header, lines)))
    out += result.notes
    out.append(f"<sub>{texts.provenance(result.made)}</sub>")
    return "\n\n".join(out)


def page(results: dict[str, PartResult], folder: str) -> str:
    """The whole text."""
    out = [f"# {texts.TITLE}", texts.INTRODUCTION]
    out.append(
        "Made by `dokl reproduce report --md REPRODUCTION.md` from the stored results of `dokl "
        "reproduce`; the figures are not typed."
    )
    out += ["## In short", findings.summary(results)]
    out += ["## What does not agree", findings.disagreements(results)]
    out += ["## What the paper says and does not hold", findings.against(results)]
    for command, words in COMMANDS.items():
        there = [r for name, r in results.items() if PARTS[name].command == command]
        if there:
            out.append(f"## {command}: {words}")
            out += [section(result, folder) for result in there]
    for title, points in texts.POINTS.items():
        out += [f"## {title}", "\n".join(f"- {point}" for point in points)]
    return "\n\n".join(part for part in out if part) + "\n"


def write(results: dict[str, PartResult], path: Path) -> list[Path]:
    """The text, and its pictures in docs/reproduction beside it."""
    folder = path.parent / PICTURES
    os.makedirs(folder, exist_ok=True)
    drawn = [
        show.small(result, folder / f"{name}.png")
        for name, result in results.items()
        if result.curves
    ]
    return [files.atomic_text(path, page(results, PICTURES.as_posix())), *drawn]
