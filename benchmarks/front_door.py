"""The front door: how long the commands take, and what they make of awkward files.

    python -m benchmarks.front_door                all of it
    python -m benchmarks.front_door --files        the table of files only
    python -m benchmarks.front_door --data DIR     where real files lie; else DOKL_DATA

Cold: a new process with no machine code kept from before; warm: the second time. Files: seventeen
that put people off, made here, and real ones where they are there; what `dokl train` says of each.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from datetime import datetime, timedelta
from pathlib import Path
from time import perf_counter

import numpy as np

ROWS = 500
REAL = {
    "banana.csv.gz": ("y",),
    "waveform_uci.csv.gz": ("y",),
    "streams/letter.csv.gz": (),
    "streams/airfoil.csv.gz": (),
    "beijing_air.csv.gz": ("PM10",),
}
QUICK = ("--method", "gradient", "--components", "100")


def german(value: float) -> str:
    return f"{value:,.3f}".translate(str.maketrans(",.", ".,"))


def written(path: Path, columns: dict[str, object], mark: str = ",") -> Path:
    rows = zip(*columns.values(), strict=True)
    lines = [mark.join(columns), *(mark.join(map(str, row)) for row in rows)]
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


def awkward(folder: Path) -> dict[str, tuple[Path, str]]:
    """Seventeen files, each with its target."""
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=ROWS).round(3), rng.integers(1, 9000, ROWS)
    y = (np.sin(2 * a) + b / 4500).round(3)
    when = [datetime(2024, 1, 1) + timedelta(hours=5 * i) for i in range(ROWS)]
    late = np.array([np.sin(t.hour / 4) + (t.weekday() > 4) for t in when]).round(3)
    gaps = ["-", "N/A", "#N/A", "null"]
    label = np.sort(np.where(a + rng.normal(size=ROWS) > 0, "yes", "no"))
    six, bad = b % 6 + 1, [*map(str, a[:400]), "oops", *map(str, a[401:])]

    def made(name: str, columns: dict[str, object], mark: str = ",") -> Path:
        return written(folder / name, columns, mark)

    comma = {"a": map(german, a), "b": map(german, b + 0.5), "y": map(german, y)}
    return {
        "decimal commas, ;": (made("german.csv", comma, ";"), "y"),
        "$1,234 and 12 %": (
            made("money.csv", {"b": [f'"${v:,}"' for v in b], "s": [f"{v} %" for v in b], "y": y}),
            "y",
        ),
        "a price as target": (
            made("price.csv", {"a": a, "price": [f"{german(v)} €" for v in b]}, ";"), "price",
        ),
        "pipes, odd gaps": (
            made("pipes.txt", {"a": a, "b": [gaps[i % 4] if i % 9 == 0 else v
                                             for i, v in enumerate(b)], "y": y}, "|"), "y",
        ),
        "ISO times": (made("iso.csv", {"when": [t.isoformat() for t in when], "y": late}), "y"),
        "31.12.2024 14:30": (
            made("days.csv", {"when": [f"{t:%d.%m.%Y %H:%M}" for t in when], "y": late}), "y",
        ),
        "12/31/2024 2:30 PM": (
            made("us.csv", {"when": [f"{t:%m/%d/%Y %I:%M %p}" for t in when], "y": late}), "y",
        ),
        "1/2/2024, all below 13": (
            made("unclear.csv", {"day": [f"{1 + i % 12}/{1 + i % 11}/2024" for i in range(ROWS)],
                                 "y": y}), "y",
        ),
        "1,234 in a TSV": (
            made("twice.tsv", {"b": [f"{v // 1000 + 1},{v % 1000:03}" for v in b],
                               "y": (100 * y).astype(int)}, "\t"), "y",
        ),
        "six integers": (made("six.csv", {"a": a, "class": six}), "class"),
        "sorted by its label": (made("sorted.csv", {"a": a, "label": label}), "label"),
        "a wrong cell in row 401": (made("wrong.csv", {"a": bad, "b": b, "y": y}), "y"),
        "Jan 1 2000": (
            made("named.csv", {"when": [f"{t:%b} {t.day} {t:%Y}" for t in when], "y": late}), "y",
        ),
        "names and free text": (
            made("names.csv", {"a": a, "who": [f"person {i}" for i in range(ROWS)],
                               "note": [f"they wrote this of number {i % 200} today"
                                        for i in range(ROWS)], "y": y}), "y",
        ),
        **packed(folder, a, y),
    }  # fmt: skip


def packed(folder: Path, a: np.ndarray, y: np.ndarray) -> dict[str, tuple[Path, str]]:
    """One table as a JSON array, in a zip archive, and as a spreadsheet if openpyxl is there."""
    columns = {"a": a.tolist(), "y": y.tolist()}
    rows = list(zip(*columns.values(), strict=True))
    array, archive, book = (folder / f"t.{end}" for end in ("json", "zip", "xlsx"))
    array.write_text(json.dumps([dict(zip(columns, row, strict=True)) for row in rows], indent=2))
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("t.csv", "".join(f"{u},{v}\n" for u, v in [tuple(columns), *rows]))
    found = {"pretty-printed JSON": (array, "y"), "a zip archive": (archive, "y")}
    try:
        import openpyxl
    except ImportError:
        return found
    sheet = openpyxl.Workbook()
    for row in [tuple(columns), *rows]:
        sheet.active.append(row)
    sheet.save(book)
    return {**found, "a spreadsheet": (book, "y")}


def dokl(
    *words: object, cache: Path | None = None, folder: Path | None = None
) -> tuple[float, str]:
    """Seconds of a command in a new process, and its whole output."""
    env = dict(os.environ) | ({} if cache is None else {"NUMBA_CACHE_DIR": str(cache)})
    command = [sys.executable, "-m", "dokl", *map(str, words)]
    began = perf_counter()
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    return perf_counter() - began, done.stdout + done.stderr


def times(folder: Path) -> None:
    """The commands, cold and warm, on a file of 500 rows."""
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(2, ROWS)).round(4)
    path = written(folder / "r.csv", {"a": a, "b": b, "y": (np.sin(2 * a) * b).round(4)})
    train = ("train", path, "--target", "y", "--overwrite", "--model", folder / "m.dokl")
    commands = {
        "--help": ("--help",),
        "train": train,
        "train --method gradient": (*train[:-1], folder / "g.dokl", "--method", "gradient"),
        "predict": ("predict", folder / "m.dokl", path),
        "evaluate": ("evaluate", folder / "m.dokl", path),
        "inspect": ("inspect", folder / "m.dokl"),
        "plan --rows 400": ("plan", path, "--target", "y", "--rows", 400),
    }
    print(f"a file of {ROWS} rows, seconds\n\n{'command':<28}{'cold':>8}{'warm':>8}")
    for name, words in commands.items():
        with tempfile.TemporaryDirectory() as cache:
            cold, _ = dokl(*words, cache=Path(cache))
            warm = min(dokl(*words, cache=Path(cache))[0] for _ in range(3))
        print(f"{name:<28}{cold:>8.2f}{warm:>8.2f}", flush=True)


def said_of(path: Path, target: str, folder: Path, *more: str) -> list[str]:
    """What was guessed of a file, refused, or reported of its order."""
    words = ("train", path, "--target", target, "--model", folder / "f.dokl", "--overwrite", *more)
    lines = dokl(*words)[1].replace(f"{path.parent}/", "").splitlines()
    kinds = r"CSV, |column '|taken as|target '|dokl: |the rows (are|change)|no value|one value"
    kinds += "|not used|spreadsheet"
    return [line for line in lines if re.match(kinds, line)]


def files(folder: Path, data: Path) -> None:
    """A table of files and what was guessed."""
    for name, (path, target) in awkward(folder).items():
        show(name, said_of(path, target, folder, *(() if name.startswith("sorted") else QUICK)))
    for name, target in REAL.items():
        if (data / name).exists():
            columns = target or (_last_column(data / name),)
            show(name, said_of(data / name, columns[0], folder, *QUICK))
        else:
            print(f"\n{name}: not there")


def _last_column(path: Path) -> str:
    from dokl.tables.readers import open_table

    with open_table(path) as reader:
        return reader.names[-1]


def show(name: str, lines: list[str]) -> None:
    print(f"\n{name}")
    for line in lines or ["(nothing)"]:
        print(f"    {line}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.front_door", description=__doc__)
    parser.add_argument("--files", action="store_true", help="the table of files only")
    parser.add_argument("--data", type=Path, help="where real files lie")
    args = parser.parse_args()
    near = Path(__file__).parents[2] / "shared" / "data"
    data = args.data or Path(os.environ.get("DOKL_DATA", near))
    with tempfile.TemporaryDirectory() as folder:
        if not args.files:
            times(Path(folder))
        files(Path(folder), data)


if __name__ == "__main__":
    main()
