"""Twelve stations of Beijing, alone and together: the study behind RESULTS.md.

    python examples/beijing/study.py --data-dir DIR       all four years, some minutes
    python examples/beijing/study.py --extract            the three months beside this file
    python examples/beijing/study.py --data-dir DIR --out examples/beijing

DIR holds beijing_air.csv.gz; without it the file is fetched once. --out writes results.json,
RESULTS.md and a picture.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from beijing_data import from_extract, from_full, read_links
from beijing_report import ALL, FEW, FEW_SAME, Grid, draw, page, tables
from beijing_runs import Errors, Settings, Study, from_stored, stored

from dokl.base.files import atomic_text


def naive(study: Study) -> dict[str, Errors]:
    """What learning is held against."""
    return {
        "the level of the first month": study.constant(),
        "the last label, all": study.last_label(ALL),
        "the last label, 10 %, staggered": study.last_label(FEW),
        "the last label, 10 %, same hours": study.last_label(FEW_SAME),
    }


def results(study: Study, whole: bool) -> dict[str, Any]:
    """Everything that was measured, for JSON; runs what was not run yet."""
    names, columns = study.stations.names, sorted(study.stations.columns)
    beside = naive(study)
    tables(study.errors, beside, names, set(columns), whole)
    return {
        "settings": vars(study.settings),
        "whole": whole,
        "names": list(names),
        "columns": columns,
        "naive": {name: errors.plain() for name, errors in beside.items()},
        "cases": stored(study),
    }


def grids(found: dict[str, Any]) -> list[Grid]:
    """The tables of stored results."""
    cases = from_stored(found["cases"])
    beside = {name: Errors.from_plain(entry) for name, entry in found["naive"].items()}
    named = tuple(found["names"]), set(found["columns"])
    return tables(cases.__getitem__, beside, *named, found["whole"])


def text(found: dict[str, Any]) -> str:
    """RESULTS.md of stored results."""
    return page(Settings(**found["settings"]), grids(found))


def write(found: dict[str, Any], out: Path, picture: Path) -> None:
    """The results, the page and the picture."""
    out.mkdir(parents=True, exist_ok=True)
    atomic_text(out / "results.json", json.dumps(found, separators=(",", ":")) + "\n")
    atomic_text(out / "RESULTS.md", text(found))
    draw(from_stored(found["cases"]).__getitem__, picture)
    print(f"{out / 'results.json'}, {out / 'RESULTS.md'}, {picture}")


def arguments() -> argparse.Namespace:
    """Arguments of the command."""
    parser = argparse.ArgumentParser(description="Stations of Beijing, alone and together.")
    parser.add_argument("--data-dir", help="folder with beijing_air.csv.gz")
    parser.add_argument("--extract", action="store_true", help="use the shipped three months")
    parser.add_argument("--seeds", type=int, default=Settings.seeds)
    parser.add_argument("--D", type=int, default=Settings.D)
    parser.add_argument("--out", type=Path, help="folder for results.json, RESULTS.md, picture")
    parser.add_argument("--picture", type=Path, help="the picture, default stations.png in --out")
    return parser.parse_args()


def main() -> None:
    """The command."""
    options = arguments()
    stations = from_extract() if options.extract else from_full(options.data_dir)
    study = Study(stations, read_links(), Settings(D=options.D, seeds=options.seeds))
    found = results(study, whole=not options.extract)
    for grid in grids(found):
        grid.show()
    if options.out:
        write(found, options.out, options.picture or options.out / "stations.png")


if __name__ == "__main__":
    main()
