"""What the sections share: rows of a table, timing in turns, the machine in words."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from typing import Any

import numpy as np

HEAD = ("what", "figure", "ratio", "target", "verdict", "accuracy")


@dataclass
class Row:
    """One line: a figure, its ratio to something, the target, and the accuracy reached."""

    what: str
    figure: str
    ratio: float | None = None
    target: str = ""
    reached: bool | None = None  # None: for information, no target
    accuracy: str = ""

    def __post_init__(self) -> None:
        """Plain Python values: NumPy's booleans are neither True nor JSON."""
        self.ratio = None if self.ratio is None else float(self.ratio)
        self.reached = None if self.reached is None else bool(self.reached)

    def cells(self) -> tuple[str, ...]:
        ratio = "" if self.ratio is None else f"{self.ratio:.3g}x"
        verdict = {None: "", True: "reached", False: "NOT reached"}[self.reached]
        return self.what, self.figure, ratio, self.target, verdict, self.accuracy


@dataclass
class Section:
    """The rows of one section, what was measured in words, and notes below the table."""

    title: str
    how: str
    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    skipped: str = ""
    failed: str = ""

    def add(self, *args: Any, **kwargs: Any) -> None:
        self.rows.append(Row(*args, **kwargs))
        if sys.stderr.isatty():  # sections take minutes; their table comes at the end
            print(f"  {self.rows[-1].what}: {self.rows[-1].figure}", file=sys.stderr)

    def at_least(self, what: str, figure: str, ratio: float, least: float, accuracy: str) -> None:
        self.add(what, figure, ratio, f">= {least:g}x", ratio >= least, accuracy)

    def at_most(self, what: str, figure: str, ratio: float, most: float, accuracy: str) -> None:
        self.add(what, figure, ratio, f"<= {most:g}x", ratio <= most, accuracy)

    def text(self) -> str:
        if self.failed:
            return f"== {self.title} ==\nFAILED\n{self.failed}"
        if self.skipped:
            return f"== {self.title} ==\nskipped: {self.skipped}\n"
        cells = [HEAD, *(row.cells() for row in self.rows)]
        widths = [max(len(line[i]) for line in cells) for i in range(len(HEAD))]
        cells.insert(1, tuple("-" * w for w in widths))
        lines = ["  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)) for line in cells]
        notes = [f"* {note}" for note in self.notes]
        return "\n".join(
            [f"== {self.title} ==", self.how, *(s.rstrip() for s in lines), *notes, ""]
        )

    def record(self) -> dict[str, Any]:
        return asdict(self)


def run_sections(
    parser: argparse.ArgumentParser,
    options: argparse.Namespace,
    known: Mapping[str, Callable[[bool], Section]],
) -> None:
    """Measure the sections that were asked for, all by default; print each, and write all so far to
    --json.
    """
    for name in options.section:
        if name not in known:
            parser.error(f"unknown section {name!r}: choose from {', '.join(known)}")
    where, done = machine(), {}
    print(", ".join(f"{key} {value}" for key, value in where.items()), "\n")
    for name in options.section or known:
        section = known[name](options.quick)
        done[name] = section.record()
        print(section.text(), flush=True)
        if options.json:
            with open(options.json, "w") as file:
                json.dump({"machine": where, "sections": done}, file, indent=1)


def in_turns(
    jobs: Mapping[str, Callable[[int], int]],
    rounds: int,
    clock: Callable[[], float] = time.thread_time,
) -> dict[str, np.ndarray]:
    """Seconds per unit of work of each job, round by round: (rounds,) each.

    Jobs alternate A, B, A, B... so that whatever else the machine does meets all of them. A job
    takes the round's number and returns how many units it did. The clock is this thread's
    processor time, the same as the time on the wall while nobody else wants the core; jobs that
    start threads or processes need `time.perf_counter`.

    Before each round memory is taken and kept in random pieces, so that a job's arrays lie
    elsewhere every time: where they lie changes the speed of short loops by half, and one
    process by itself sees one place only.
    """
    taken: dict[str, list[float]] = {name: [] for name in jobs}
    rng = np.random.default_rng(0)
    for number in range(rounds):
        kept = [np.empty(int(size), np.uint8) for size in rng.integers(16, 60_000, size=32)]
        for name, job in jobs.items():
            began = clock()
            units = job(number)
            taken[name].append((clock() - began) / units)
        del kept
    return {name: np.array(each) for name, each in taken.items()}


def ratio(slow: np.ndarray, fast: np.ndarray) -> float:
    """How many times faster: the median over rounds of neighbouring measurements."""
    return float(np.median(slow / fast))


def micro(seconds: np.ndarray | float, unit: str = "sample") -> str:
    """The median as text, in microseconds."""
    return f"{np.median(seconds) * 1e6:.3g} us/{unit}"


def apart(a: float, b: float) -> float:
    """Relative difference."""
    return abs(a - b) / abs(b)


def last_tenth(errors: np.ndarray) -> float:
    """Mean square of the last tenth."""
    return float(np.mean(np.square(errors[-len(errors) // 10 :], dtype=np.float64)))


def machine() -> dict[str, Any]:
    """Where this runs: figures mean nothing without it."""
    packages = ("numpy", "numba", "scikit-learn", "scipy")
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "python": platform.python_version(),
        **{name: version(name) for name in packages},
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as lines:
            return next(line.split(":")[1].strip() for line in lines if "model name" in line)
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
