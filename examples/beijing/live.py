"""Twelve agents, one per station, fed day by day: the error of each, together and alone.

    python examples/beijing/live.py                              # the three months that ship
    python examples/beijing/live.py --data-dir DIR --days 180    # more, from the full file

Every station is a process on loopback (`dokl up`) that learns by least squares and exchanges sums
with the stations near it. Its rows go to it over HTTP, a day at a time; its prediction of each
before it learned it is read back from its status. The same again with exchange off is each
station alone. DIR holds beijing_air.csv.gz.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from beijing_data import HERE, NUMERIC, QUARTER, TARGET, WIND, from_extract, from_full
from extract import rows

from dokl.live.description import read

DAY = 24
HEADER = ",".join([*NUMERIC, WIND, TARGET])
Days = dict[str, list[list[str]]]  # per station, the lines of each day


@dataclass
class Course:
    """What one station predicted: (number, measured, predicted, lower, upper) of every row."""

    rows: list[list[float]] = field(default_factory=list)

    def error(self, first: int) -> float:
        """Mean squared error of the rows after n."""
        return float(np.mean([(row[1] - row[2]) ** 2 for row in self.rows[first:]]))

    def covered(self, first: int) -> float:
        """The share of them within their intervals."""
        return float(np.mean([row[3] <= row[1] <= row[4] for row in self.rows[first:]]))


def days_of(data_dir: str | None, days: int) -> Days:
    """The rows of every station at which PM2.5 is known, as lines of CSV, day by day."""
    stations = from_extract() if data_dir is None else from_full(data_dir)
    found: Days = {}
    for k, name in enumerate(stations.names):
        found[name] = [[] for _ in range(days)]
        for hour, cells in rows(stations, k, range(min(days * DAY, stations.n))):
            found[name][hour // DAY].append(",".join(cells))
    return found


# -- agents ------------------------------------------------------------------------------------
def described(folder: Path, together: bool, D: int) -> Path:
    """A description of the network: scaling and length scales agreed by the sample."""
    path = folder / ("together.toml" if together else "alone.toml")
    command = [sys.executable, "-m", "dokl", "network", "new", path, "--graph", HERE / "links.csv"]
    model = ["--method", "squares", "--components", D, "--insecure-loopback"]
    about = ["--sample", HERE / "sample.csv", "--node-column", "station", "--target", TARGET]
    how = ["--quiet", "--exchange", "push" if together else "off"]
    subprocess.run([*map(str, [*command, *about, *model]), *how], check=True, capture_output=True)
    return path


@contextmanager
def running(path: Path) -> Iterator[dict[str, str]]:
    """All its agents, until the block ends: the address of each."""
    process = subprocess.Popen([sys.executable, "-m", "dokl", "up", str(path), "--quiet"])
    faces = {name: f"http://{node.http}" for name, node in read(path).nodes.items()}
    try:
        for face in faces.values():
            _wait_for(face)
        yield faces
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)


def _wait_for(face: str, seconds: float = 120.0) -> None:
    limit = time.monotonic() + seconds
    while True:
        try:
            asked(f"{face}/readyz")
            return
        except urllib.error.URLError:
            if time.monotonic() > limit:
                raise
            time.sleep(0.2)


def asked(url: str, body: str | None = None) -> Any:
    """The answer of an agent; a body is posted as CSV."""
    data = None if body is None else body.encode()
    request = urllib.request.Request(url, data, {"Content-Type": "text/csv"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


# -- the run -----------------------------------------------------------------------------------
def course_of(path: Path, days: Days, pace: float) -> tuple[dict[str, Course], dict[str, Any]]:
    """Feed all agents day by day, `pace` seconds each: their predictions and their last status."""
    courses = {name: Course() for name in days}
    with running(path) as faces, ThreadPoolExecutor(len(days)) as pool:

        def live(name: str, day: int) -> None:
            lines = days[name][day]
            if lines:
                asked(f"{faces[name]}/samples", "\n".join([HEADER, *lines]) + "\n")
                newest = asked(f"{faces[name]}/status")["newest"]["rows"]
                courses[name].rows += newest[-len(lines) :]

        for day in range(max(map(len, days.values()))):
            began = time.monotonic()
            list(pool.map(live, days, [day] * len(days)))
            time.sleep(max(0.0, pace - (time.monotonic() - began)))
        last = {name: asked(f"{face}/status") for name, face in faces.items()}
    return courses, last


def table(
    together: dict[str, Course], alone: dict[str, Course], first: dict[str, int]
) -> Iterator[str]:
    """A line for each station, and one for all of them."""
    titles = f"{'alone':>8} {'together':>9} {'ratio':>7} {'within 90 %':>12}"
    yield f"{'station':14} {'rows':>6} {titles}"
    sums = np.zeros(3)
    for name, course in sorted(together.items()):
        n = first[name]
        pair, share = (alone[name].error(n), course.error(n)), course.covered(n)
        sums += [*pair, share]
        scored = len(course.rows) - n
        yield _line(name, f"{scored:,}", *pair, share)
    yield _line("mean", "", *(sums / len(together)))


def _line(name: str, rows: str, alone: float, both: float, share: float) -> str:
    return f"{name:14} {rows:>6} {alone:8.4f} {both:9.4f} {both / alone:7.3f} {share:12.1%}"


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description="Twelve stations live, together and alone.")
    parser.add_argument("--data-dir", help="folder with beijing_air.csv.gz; else the extract")
    parser.add_argument("--days", type=int, default=QUARTER // DAY, help="default: %(default)s")
    parser.add_argument("--weeks", type=int, default=3, help="not scored; default: %(default)s")
    parser.add_argument("--pace", type=float, default=1.0, help="seconds a day; default: 1")
    parser.add_argument("--components", type=int, default=300, help="D; default: %(default)s")
    parser.add_argument("--json", type=Path, help="write the figures there, too")
    options = parser.parse_args()
    days = days_of(options.data_dir, options.days)
    first = {name: sum(map(len, every[: 7 * options.weeks])) for name, every in days.items()}
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for together in (True, False):
            path = described(Path(folder), together, options.components)
            began = time.monotonic()
            pace = options.pace if together else 0.0
            found[together], last = course_of(path, days, pace)
            total = sum(len(course.rows) for course in found[together].values())
            print(f"{'together' if together else 'alone'}: {total:,} rows, {options.days} days in "
                  f"{time.monotonic() - began:.0f} s", flush=True)  # fmt: skip
            if together:
                known = {status["sharing"]["rows"] for status in last.values()}
                print(f"rows in each agent's total at the end: {min(known):,} to {max(known):,}")
    print(*table(found[True], found[False], first), sep="\n")
    ratios = [found[True][name].error(first[name]) / found[False][name].error(first[name])
              for name in days]  # fmt: skip
    print(f"the worst station: {max(ratios):.3f} of its own alone")
    if options.json:
        options.json.write_text(json.dumps({
            name: {"together": found[True][name].rows, "alone": found[False][name].rows}
            for name in days}))  # fmt: skip


if __name__ == "__main__":
    main()
