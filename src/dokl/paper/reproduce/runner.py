"""Run parts one after another, keep what each found, and write everything that is made of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dokl.base.errors import BadFile
from dokl.paper.reproduce import beside, beyond, figures, html, show, tables, timing
from dokl.paper.reproduce.parts import PARTS, Part
from dokl.paper.reproduce.results import PartResult, load, save
from dokl.paper.reproduce.settings import ReproduceOptions


def reproduce(part: Part, options: ReproduceOptions) -> PartResult:
    """One part: run what is missing, store and draw it."""
    if part.command.startswith("fig"):
        result = figures.reproduce(part.name, options)
    elif part.command == "table5":
        result = timing.reproduce(options)
    elif part.command == "beside":
        result = beside.reproduce(part.only, options)
    elif part.command == "beyond":
        result = beyond.reproduce(part.only, options)
    else:
        result = tables.reproduce(part.command, part.only, options)
    save(options.out, result)
    return result


def remark(part: Part, options: ReproduceOptions) -> str:
    """What to say where another engine runs than was asked for; empty otherwise."""
    asked = options.engine
    if part.command == "table5" and asked not in ("auto", "numba"):
        return f"{part.name} compares compiled loops: it runs numba, not {asked}"
    if part.only == "mnist" and asked not in ("auto", "jax"):
        return f"{part.name} runs in NumPy, a block of features at a time, or in jax: not {asked}"
    return ""


def read_results(folder: Path) -> dict[str, PartResult]:
    """Every result that a folder holds, in the paper's order."""
    found = {name: load(folder, name) for name in PARTS}
    return {name: result for name, result in found.items() if result is not None}


def folder_for(path: Path) -> Path:
    """The folder, made if need be."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadFile(f"{path}: the folder cannot be made ({error.strerror})") from None
    return path


def write(folder: Path, names: Sequence[str] | None = None) -> list[Path]:
    """Pictures and tables of some parts (or all stored), and the report on all of them."""
    found = read_results(folder_for(folder))
    written = []
    for name in found if names is None else names:
        result = found[name]
        if result.curves:
            written += [show.draw(result, folder / f"{name}.{kind}") for kind in ("png", "svg")]
        written += show.write(result, folder)
    written.append(html.write(found, folder / "report.html"))
    return written
