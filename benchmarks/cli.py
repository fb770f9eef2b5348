"""The command line as a whole, start-up and reading included: train and predict on files.

python -m benchmarks.cli                     a million rows
python -m benchmarks.cli --rows 10000000     as the targets have it; 550 MB in --folder
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.common import Section
from benchmarks.sparse import data_folder

D, INPUTS, BLOCK = 500, 5, 100_000
ROUNDS = 3
LEAST_ROWS, MOST_SECONDS = 150_000, 3.0
MEGABYTE = 1e6
COMMAND = (sys.executable, "-m", "dokl")


@dataclass
class Run:
    """A command that was run: seconds on the clock, of the processor, and its largest memory."""

    wall: float
    cpu: float
    memory: float


def run(*arguments: object) -> Run:
    """Run dokl on one core; whatever it prints is thrown away."""
    began = time.perf_counter()
    process = subprocess.Popen(
        [*COMMAND, *map(str, arguments)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=one_core,
    )
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"dokl {arguments[0]} ended with {process.returncode}")
    seconds = time.perf_counter() - began
    return Run(seconds, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024 / MEGABYTE)


def one_core() -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def write_rows(path: Path, rows: int) -> None:
    """y = sin(a) b + noise with six digits, d = 5."""
    rng = np.random.default_rng(0)
    with open(path, "w") as file:
        file.write(",".join([*"abcde", "y"]) + "\n")
        for start in range(0, rows, BLOCK):
            n = min(BLOCK, rows - start)
            X = rng.normal(size=(n, INPUTS))
            y = np.sin(X[:, 0]) * X[:, 1] + 0.1 * rng.normal(size=n)
            cells = np.column_stack([X, y]).ravel().tolist()
            file.write((",".join(["%.6g"] * (INPUTS + 1)) + "\n") * n % tuple(cells))


def measure(rows: int = 1_000_000, folder: Path | None = None) -> Section:
    how = (
        f"`dokl` as one types it, on one core, in a process of its own: D = {D}, d = {INPUTS}, "
        f"{rows:,} rows of CSV; a9a from gzip.\nTargets are for the clock of an idle machine; "
        "processor time is what it would be there. The first use, which compiles, is not timed."
    )
    section = Section("cli: whole commands", how)
    with tempfile.TemporaryDirectory(dir=folder) as place:
        _adult(section, Path(place))
        _rows(section, Path(place), rows)
    return section


def _adult(section: Section, place: Path) -> None:
    data, model = data_folder() / "a9a.gz", place / "adult.dokl"
    if not data.exists():
        section.notes.append("a9a.gz is not there, in the folder DOKL_DATA or ../shared/data")
        return
    how = ("train", data, "--method", "gradient", "--model", model, "--overwrite")
    run(*how)
    best = min((run(*how) for _ in range(ROUNDS)), key=lambda one: one.wall)
    figure = f"{best.wall:.2f} s, of the processor {best.cpu:.2f} s"
    target = f"< {MOST_SECONDS:g} s"
    section.add("train a9a.gz", figure, None, target, best.wall < MOST_SECONDS)
    bare = min((run("inspect", model, "--json") for _ in range(ROUNDS)), key=lambda one: one.wall)
    section.add("  of that start-up (inspect)", f"{bare.wall:.2f} s, {bare.cpu:.2f} s")


def _rows(section: Section, place: Path, rows: int) -> None:
    few, all_rows, model = place / "few.csv", place / "rows.csv", place / "m.dokl"
    write_rows(few, rows // 10)
    write_rows(all_rows, rows)
    chosen = ("--method", "gradient", "--components", D)
    settings = ("--target", "y", *chosen, "--model", model, "--overwrite")
    small = run("train", few, *settings)
    trained = run("train", all_rows, *settings)
    predicted = run("predict", model, all_rows, "--out", place / "p.csv")
    _speed(section, "train", trained, rows)
    _speed(section, "predict", predicted, rows)
    section.add(
        "predict against train", f"{predicted.cpu:.2f} s, {trained.cpu:.2f} s",
        trained.cpu / predicted.cpu, ">= 1x", trained.cpu >= 0.95 * predicted.cpu,
    )  # fmt: skip
    growth = trained.memory - small.memory
    section.add(
        "train: memory", f"{trained.memory:.0f} MB", None, "flat", abs(growth) < 20,
        f"{growth:+.0f} MB against a tenth of the rows",
    )  # fmt: skip


def _speed(section: Section, what: str, done: Run, rows: int) -> None:
    rate = rows / done.wall
    section.add(
        what, f"{rate:,.0f} rows/s on the clock, {rows / done.cpu:,.0f} by the processor",
        None, f">= {LEAST_ROWS:,}", rate >= LEAST_ROWS,
    )  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path, help="where to put the files, for the time being")
    given = parser.parse_args()
    print(measure(given.rows, given.folder).text())
