"""Write the extract that ships: three months of every station, the links, and a sample.

    python examples/beijing/extract.py --data-dir DIR [--out examples/beijing]

DIR holds beijing_air.csv.gz; without it the file is fetched once. The loader checks its hash, and
the same file gives the same bytes.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from beijing_data import (
    EVERY,
    HERE,
    MONTH,
    NUMERIC,
    QUARTER,
    TARGET,
    WIND,
    Stations,
    from_full,
    id_of,
    links,
)

from dokl.base.files import atomic_text
from dokl.paper.datasets.parse import STATIONS


def cells(stations: Stations, hour: int, k: int) -> list[str]:
    """The inputs and the target of one hour; empty where missing."""
    numbers = [stations.columns[name][hour, k] for name in NUMERIC]
    shown = ["" if np.isnan(value) else f"{value:.10g}" for value in numbers]
    wind = stations.columns[WIND][hour, k]
    return [*shown, wind or "", f"{stations.target[hour, k]:.4f}"]


def rows(stations: Stations, k: int, hours: range) -> list[tuple[int, list[str]]]:
    """The hours of one station at which PM2.5 is known."""
    known = (hour for hour in hours if not np.isnan(stations.target[hour, k]))
    return [(hour, cells(stations, hour, k)) for hour in known]


def written(path: Path, lines: list[list[str]]) -> None:
    """Lines of cells as CSV."""
    atomic_text(path, "".join(",".join(line) + "\n" for line in lines))


def write(stations: Stations, out: Path) -> None:
    """Everything but the texts."""
    (out / "stations").mkdir(parents=True, exist_ok=True)
    header = [*NUMERIC, WIND, TARGET]
    sample = [["station", *header]]
    for k, name in enumerate(stations.names):
        lines = [[id_of(hour), *line] for hour, line in rows(stations, k, range(QUARTER))]
        written(out / "stations" / f"{name}.csv", [["id", *header], *lines])
        sample += [[name, *line] for _, line in rows(stations, k, range(0, MONTH, EVERY))]
    written(out / "sample.csv", sample)
    written(
        out / "links.csv", [sorted(link) for link in sorted(map(sorted, links(STATIONS).edges))]
    )


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description="Write the extract of the Beijing example.")
    parser.add_argument("--data-dir", help="folder with beijing_air.csv.gz")
    parser.add_argument("--out", type=Path, default=HERE, help="default: this folder")
    options = parser.parse_args()
    write(from_full(options.data_dir), options.out)
    print(f"{options.out}: links.csv, sample.csv and {len(STATIONS)} files in stations/")


if __name__ == "__main__":
    main()
