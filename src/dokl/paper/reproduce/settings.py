"""The folder's data: settings of the experiments and expected figures."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from math import sqrt
from typing import Any

from dokl.learning.kernels import Gaussian

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
