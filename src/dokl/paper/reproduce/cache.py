"""Finished realizations on disk: an interrupted experiment goes on where it stopped.

    OUT/cache/<name>-<hash of the settings>/0000-0010.safetensors     realizations 0 to 9

Chunk c is drawn from the c-th seed spawned from the experiment's, so more runs later keep those
that are there.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from dokl import __version__
from dokl.base import files
from dokl.base.arrays import Array
from dokl.base.errors import BadFile
from dokl.base.progress import Bar
from dokl.base.random_numbers import spawn
from dokl.paper.reproduce.results import machine

FORMAT, KIND = 1, "realizations"


@dataclass(frozen=True)
class Work:
    """Realizations to be had: compute(seed, runs) gives arrays whose first axis is the run.

    settings: all that decides the outcome, as JSON; a change of any makes another work. blas:
    threads of a matrix product; realizations side by side want one each (None: all cores).
    """

    name: str
    settings: dict[str, Any]
    runs: int
    chunk: int
    compute: Callable[[int, int], dict[str, Array]]
    blas: int | None = 1

    @property
    def key(self) -> str:
        """Name and hash."""
        text = json.dumps({"format": FORMAT, **self.settings}, sort_keys=True)
        return f"{self.name}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"

    def chunks(self) -> list[tuple[int, int]]:
        """(first, last + 1) of each."""
        starts = range(0, self.runs, self.chunk)
        return [(start, min(self.runs, start + self.chunk)) for start in starts]

    def missing(self, folder: Path) -> int:
        """Realizations still to be computed."""
        there = [(a, b) for a, b in self.chunks() if not self._path(folder, a, b).exists()]
        return sum(b - a for a, b in there)

    def _path(self, folder: Path, start: int, stop: int) -> Path:
        return folder / "cache" / self.key / f"{start:04d}-{stop:04d}.safetensors"


@dataclass(frozen=True)
class Gathered:
    """All realizations of a work: arrays (runs, ...), seconds spent on them, which dokl did it.

    processor: seconds of all cores together, which other work on the machine does not stretch;
    0 where it was not measured. machine: that of the last ones, None where it was not kept.
    """

    arrays: dict[str, Array]
    seconds: float
    version: str
    processor: float = 0.0
    machine: dict[str, Any] | None = None


def gather(folder: Path, work: Work, seed: int, bar: Bar) -> Gathered:
    """Read what is there, compute what is not, chunk by chunk."""
    found, spent, versions = [], np.zeros(2), []
    seeds = spawn(seed, len(work.chunks()))
    for own, (start, stop) in zip(seeds, work.chunks(), strict=True):
        path = work._path(folder, start, stop)
        kept = _kept(path)
        if kept is None:
            kept = _computed(path, work, own, stop - start)
            bar.advance(stop - start)
        meta, arrays = kept
        found.append(arrays)
        spent += (float(meta["seconds"]), float(meta.get("processor", np.nan)))
        versions.append(str(meta["dokl"]))
    joined = {name: np.concatenate([part[name] for part in found]) for name in found[0]}
    seconds, processor = np.nan_to_num(spent).tolist()
    version = ", ".join(sorted(set(versions)))
    return Gathered(joined, seconds, version, processor, meta.get("machine"))


def _kept(path: Path) -> tuple[dict[str, Any], dict[str, Array]] | None:
    """What an earlier call left; a damaged file counts as none."""
    if path.exists():
        with suppress(BadFile):
            return files.read(path, KIND)
    return None


def _computed(path: Path, work: Work, seed: int, runs: int) -> tuple[dict[str, Any], Any]:
    began, busy = time.perf_counter(), time.process_time()
    with threadpool_limits(work.blas):
        arrays = work.compute(seed, runs)
    seconds = time.perf_counter() - began
    meta = {"dokl": __version__, "seconds": seconds, "settings": work.settings}
    meta["processor"] = time.process_time() - busy
    meta["machine"] = machine(work.settings.get("engine", ""))
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write(path, KIND, meta, arrays)
    return meta, arrays
