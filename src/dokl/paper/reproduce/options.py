"""How to run: what the command line says, and what a part's provenance is made of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dokl.base.errors import UnknownName
from dokl.base.progress import Bar, progress
from dokl.paper.datasets import Dataset, load
from dokl.paper.reproduce.cache import Gathered, Work, gather
from dokl.paper.reproduce.results import machine

CHUNK = 10
ENGINES = ("auto", "numba", "reference", "jax")


@dataclass(frozen=True)
class ReproduceOptions:
    """runs: None for the paper's number, or the quick one; long: also what takes very long."""

    out: Path
    seed: int = 1
    runs: int | None = None
    engine: str = "auto"
    data_dir: Path | None = None
    quick: bool = False
    long: bool = False
    show_progress: bool | None = None
    chunk: int = CHUNK

    def __post_init__(self) -> None:
        if self.engine not in ENGINES:
            raise UnknownName("engine for dokl reproduce", self.engine, ENGINES)

    @property
    def engine_name(self) -> str:
        """The engine that "auto" stands for."""
        return "numba" if self.engine == "auto" else self.engine

    def dataset(self, name: str) -> Dataset:
        """A data set for classification."""
        data = load(name, self.data_dir, self.show_progress)
        assert isinstance(data, Dataset)
        return data

    def runs_of(self, setting: Any) -> int:
        """How many realizations of a figure or data set."""
        if self.runs is not None:
            return self.runs
        return int(setting.quick if self.quick else setting.runs)

    @contextmanager
    def bar(self, label: str, works: list[Work]) -> Iterator[Bar]:
        """A bar over the realizations that are not there yet."""
        total = sum(work.missing(self.out) for work in works)
        show = False if total == 0 else self.show_progress
        with progress(total, label, show, unit="runs") as bar:
            yield bar

    def gather(self, label: str, works: dict[str, Work]) -> dict[str, Gathered]:
        """All realizations of some works, under one bar."""
        with self.bar(label, list(works.values())) as bar:
            return {name: gather(self.out, w, self.seed, bar) for name, w in works.items()}

    def made(self, found: list[Gathered], runs: int, **more: Any) -> dict[str, Any]:
        """Provenance: version, seed, runs, engine, seconds of computing, machine of them."""
        known = [g.machine for g in found if g.machine]
        return {
            "dokl": ", ".join(sorted({g.version for g in found})),
            "seed": self.seed,
            "runs": runs,
            "engine": f"{self.engine_name}, float32" if self.engine_name != "reference"
            else "reference, float64",
            "seconds": round(sum(g.seconds for g in found), 1),
            "processor_seconds": _all(g.processor for g in found),
            "quick": self.quick,
            **more,
            "machine": known[-1] if known else machine(self.engine_name),
        }  # fmt: skip


def _all(seconds: Iterable[float]) -> float:
    """Their sum; 0 where one was not measured."""
    each = list(seconds)
    return round(sum(each), 1) if all(each) else 0.0
