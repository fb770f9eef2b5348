"""Settings of the experiments: the folder's data and expected figures, and how to run."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from math import sqrt
from pathlib import Path
from typing import Any

from dokl.base.errors import UnknownName
from dokl.base.progress import Bar, progress
from dokl.learning.kernels import Gaussian
from dokl.paper.datasets import Dataset, load
from dokl.paper.reproduce.cache import Gathered, Work, gather
from dokl.paper.reproduce.results import machine

PASSES = (1, 2, 5)
NODES = {"table2": 5, "table3": 20}


@dataclass(frozen=True)
class Figure:
    """One panel: an example, the size of its network, its kernel and step (mu = 1 throughout)."""

    title: str
    example: str
    nodes: int
    n: int
    sigma: float
    D: int
    runs: int
    quick: int
    q: float = 0.0
    widths: tuple[int, ...] = ()
    mu: float = 1.0


@dataclass(frozen=True)
class ClassificationSetting:
    """A data set of Tables II and III; sizes: numbers of training points, 0 for all."""

    title: str
    sigma2: float
    lam: float
    D: int
    sizes: tuple[int, ...]
    runs: int
    quick: int

    @property
    def kernel(self) -> Gaussian:
        """The Gaussian kernel."""
        return Gaussian(sqrt(self.sigma2))


@cache
def _toml(name: str) -> dict[str, Any]:
    return tomllib.loads(files("dokl.paper.reproduce").joinpath(name).read_text(encoding="utf-8"))


def expected() -> dict[str, Any]:
    """The tables of expected.toml."""
    return _toml("expected.toml")


def figure(name: str) -> Figure:
    """The settings of a panel, e.g. fig1a."""
    table = dict(_toml("settings.toml")["figures"][name])
    table["widths"] = tuple(table.get("widths", ()))
    return Figure(**table)


def classification(name: str) -> ClassificationSetting:
    """The settings of a data set.

    >>> classification("banana").kernel
    Gaussian(sigma=0.7)
    """
    table = dict(_toml("settings.toml")["data"][name])
    return ClassificationSetting(**{**table, "sizes": tuple(table["sizes"])})


# -- how to run -----------------------------------------------------------------------------------
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

    def made(self, found: list[Gathered], runs: int, **more: object) -> dict[str, Any]:
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
