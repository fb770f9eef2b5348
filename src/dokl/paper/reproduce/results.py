"""What an experiment found, as data: figures, pictures and texts are made from this alone."""

from __future__ import annotations

import json
import math
import os
import platform
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from dokl.base import files
from dokl.base.arrays import Array
from dokl.base.errors import BadFile
from dokl.simulation.engines.choice import gpu

NEAR_DB = 0.3
STANDARD_ERRORS = 3.0
FEWEST = 5  # runs: the standard error of fewer is a guess


@dataclass(frozen=True)
class Row:
    """One number: ours with its standard error, the paper's, the prototypes'.

    judged: whether it is held to the prototype's figure at all.
    """

    group: str
    what: str
    unit: str
    ours: float
    error: float | None = None
    runs: int = 1
    paper: float | None = None
    prototype: float | None = None
    prototype_error: float | None = None
    judged: bool = True

    def apart(self) -> float | None:
        """From the prototype, in combined standard errors; an unknown error is taken as ours."""
        if self.prototype is None or not self.error:
            return None
        theirs = self.error if self.prototype_error is None else self.prototype_error
        return (self.ours - self.prototype) / math.hypot(self.error, theirs)

    def from_paper(self) -> float | None:
        """From the paper's figure, in our standard errors."""
        if self.paper is None or not self.error:
            return None
        return (self.ours - self.paper) / self.error

    def agrees(self) -> bool | None:
        """Within three combined standard errors, or 0.3 dB; None if undecided."""
        if not self.judged or self.prototype is None:
            return None
        if self.unit == "dB" and abs(self.ours - self.prototype) <= NEAR_DB:
            return True
        apart = self.apart() if self.runs >= FEWEST else None
        return None if apart is None else abs(apart) <= STANDARD_ERRORS


@dataclass(frozen=True)
class FigureCurve:
    """A learning curve: steps, mean over runs, tenth and ninetieth percentile; powers, not dB."""

    label: str
    at: list[float]
    mean: list[float]
    low: list[float] = field(default_factory=list)
    high: list[float] = field(default_factory=list)
    theory: bool = False


@dataclass(frozen=True)
class PartResult:
    """A part's rows and curves, horizontal lines in dB, remarks, and where it came from."""

    part: str
    title: str
    rows: list[Row]
    curves: list[FigureCurve] = field(default_factory=list)
    levels: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    made: dict[str, Any] = field(default_factory=dict)


def machine(engine: str = "") -> dict[str, Any]:
    """Where this runs: processor (with JAX also a GPU) and versions, nothing that names a place."""
    jax = engine == "jax"
    names = ("numpy", "numba", "scikit-learn", *(["jax"] if jax else []))
    packages = {name: version(name) for name in names}
    where = {"processor": _processor(), "cores": os.cpu_count()}
    if jax and gpu() is not None:
        where["gpu"] = gpu()
    return {**where, "python": platform.python_version(), **packages}


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def save(folder: Path, result: PartResult) -> Path:
    """Keep a result as JSON in folder/results."""
    path = folder / "results" / f"{result.part}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    return files.atomic_text(path, json.dumps(asdict(result), indent=1))


def load(folder: Path, part: str) -> PartResult | None:
    """What was kept, None if nothing was."""
    path = folder / "results" / f"{part}.json"
    if not path.exists():
        return None
    try:
        data = json.loads(files.read_text(path))
        data["rows"] = [Row(**row) for row in data["rows"]]
        data["curves"] = [FigureCurve(**curve) for curve in data["curves"]]
        return PartResult(**data)
    except (ValueError, TypeError, KeyError) as error:
        raise BadFile(f"{path}: the file is damaged ({error}): delete it and run again") from None


# -- learning curves, shortened: single steps first, then wider bins ------------------------------
def edges(n: int, most: int = 200) -> Array:
    """Where to cut n steps into bins: single steps first, then a tenth of what is past."""
    cuts = [0]
    while cuts[-1] < n:
        cuts.append(min(n, cuts[-1] + max(1, min(math.ceil(n / most), cuts[-1] // 10))))
    return np.array(cuts)


def bin_means(curves: Array) -> Array:
    """Means over the bins of `edges`: (..., n) -> (..., bins)."""
    cuts = edges(curves.shape[-1])
    sums = np.add.reduceat(curves, cuts[:-1], axis=-1)
    return np.asarray(sums / np.diff(cuts))


def middles(n: int) -> list[float]:
    """The middle step of each bin, from 1."""
    cuts = edges(n)
    return [float(m) for m in (cuts[:-1] + 1 + cuts[1:]) / 2]
