"""Intervals after training: `python -m benchmarks.coverage [--rows N] [--components N]`.

A model learns the first four fifths of a stream, row by row, and is frozen. How many targets of the
last fifth do its 90 % intervals hold, and how wide are they? Before: as wide as those of a model
that follows (steps_ahead=1). After: by the distance of each row from the last learned one, and by
default, without knowing it. Streams are those of `benchmarks.streams`, and Beijing's hourly air
quality: PM2.5 at some stations by all other numbers, rows without gaps, in the order of time.
"""

from __future__ import annotations

import argparse
import csv
import gzip

import numpy as np

from benchmarks.common import Section, run_sections
from benchmarks.streams import data
from dokl import AutoRegressor

STATIONS = ("Aotizhongxin", "Gucheng", "Huairou")
IN_NO_ORDER = ("airfoil", "concrete", "elevators", "kin40k")
LEAST, MOST = 0.80, 0.97


def beijing(station: str) -> tuple[np.ndarray, np.ndarray]:
    """X: (n, 14) and PM2.5: (n,) of one station."""
    rows = []
    with gzip.open(data.FOLDER / "beijing_air.csv.gz", "rt") as file:
        for row in csv.DictReader(file):
            if row.pop("station") == station and "NA" not in row.values():
                row.pop("wd")
                rows.append([float(row.pop("PM2.5")), *map(float, row.values())])
    table = np.array(rows)
    return table[:, 1:], table[:, 0]


def load(name: str) -> tuple[np.ndarray, np.ndarray]:
    return beijing(name) if name in STATIONS else data.load(name)


def measure(rows: int | None, components: int) -> Section:
    found = Section(
        "coverage",
        "share of the last fifth inside 90 % intervals of a frozen model; ratio: of widths",
    )
    for name in (*data.REGRESSION, *STATIONS):
        if data.ONLY and name not in data.ONLY:
            continue
        X, y = load(name)
        X, y = X[:rows], y[:rows]
        n = len(y) * 4 // 5
        model = AutoRegressor(n_components=components, random_state=0)
        model.partial_fit(X[:n], y[:n])
        ways = {"before": 1, "after": np.arange(1, len(y) - n + 1), "default": None}
        held, wide = {}, {}
        for way, steps in ways.items():
            lower, upper = model.predict_interval(X[n:], 0.9, steps_ahead=steps)
            held[way] = float(((lower <= y[n:]) & (y[n:] <= upper)).mean())
            wide[way] = float((upper - lower).mean())
        ratio = wide["after"] / wide["before"]
        right = all(LEAST <= held[way] <= MOST for way in ("after", "default"))
        wanted = f"{LEAST:g} to {MOST:g}"
        if name in IN_NO_ORDER:
            right, wanted = right and ratio < 1.05, f"{wanted}, < 1.05x"
        figure = f"{held['before']:.3f} -> {held['after']:.3f}"
        about = f"default {held['default']:.3f}, {wide['default'] / wide['before']:.2f}x; width "
        about += f"{wide['before']:.4g} -> {wide['after']:.4g}"
        found.add(name, figure, ratio, wanted, right, about)
        print(*found.rows[-1].cells(), flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.coverage", description=__doc__)
    parser.add_argument("--rows", type=int, help="of each stream, at most")
    parser.add_argument("--components", type=int, default=1000, help="n_components")
    parser.add_argument("--only", default="", help="streams, with commas between")
    parser.add_argument("--json", metavar="FILE", help="write the figures there, too")
    options = parser.parse_args()
    data.ONLY.update(filter(None, options.only.split(",")))
    options.section, options.quick = [], False
    run_sections(parser, options, {"coverage": lambda _: measure(options.rows, options.components)})


if __name__ == "__main__":
    main()
