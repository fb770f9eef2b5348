"""What is learned in the comparison: real data sets and generated streams, in every input form.

Each library takes rows in a form of its own. All forms are made here, before any clock runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dokl.base.arrays import Array, is_sparse
from dokl.base.errors import UnknownName
from dokl.base.random_numbers import generator
from dokl.simulation.streams import Example2

CLASSES = np.array([-1.0, 1.0])


@dataclass(frozen=True)
class Rows:
    """Samples X: (n, d), dense or CSR, with y: (n,), and the same in other libraries' forms."""

    X: Any
    y: Array

    def __len__(self) -> int:
        return len(self.y)

    def first(self, n: int) -> Rows:
        """The first n rows."""
        return Rows(self.X[:n], self.y[:n])

    @cached_property
    def single(self) -> list[tuple[Any, Array]]:
        """Every row as a matrix of one row."""
        return [(self.X[i : i + 1], self.y[i : i + 1]) for i in range(len(self))]

    @cached_property
    def dicts(self) -> list[dict[str, float]]:
        """River's form; zeros of sparse rows are left out."""
        return [{f"x{j}": float(v) for j, v in self._entries(i)} for i in range(len(self))]

    @cached_property
    def lines(self) -> list[str]:
        """Vowpal Wabbit's form; names that are not numbers, which it would not hash."""
        return [
            f"{t:.9g} |f " + " ".join(f"{name}:{v:.7g}" for name, v in x.items())
            for x, t in zip(self.dicts, self.y.tolist(), strict=True)
        ]

    def _entries(self, i: int) -> Any:
        if not is_sparse(self.X):
            return enumerate(self.X[i])
        row = slice(self.X.indptr[i], self.X.indptr[i + 1])
        return zip(self.X.indices[row], self.X.data[row], strict=True)


@dataclass(frozen=True)
class Task:
    """One data set: rows to learn one after another, rows to be judged on, a kernel width."""

    name: str
    learn: Rows
    test: Rows
    sigma: float
    classifying: bool = True
    about: str = ""

    @property
    def d(self) -> int:
        """Number of inputs."""
        return int(self.learn.X.shape[1])

    @property
    def gamma(self) -> float:
        """The width as others write it."""
        return 1 / (2 * self.sigma**2)

    @property
    def metric(self) -> str:
        """What predictions are judged by."""
        return "accuracy" if self.classifying else "mse"

    def score(self, predictions: Array, y: Array) -> float:
        """Accuracy, or mean squared error."""
        if self.classifying:
            return float(np.mean(predictions == y))
        with np.errstate(over="ignore", invalid="ignore"):  # a peer may have diverged
            return float(np.mean((predictions - y) ** 2))


# name: (name in dokl.datasets, sigma); the widths are those of the paper's tables.
REAL = {
    "banana": ("banana", 0.7),
    "waveform": ("waveform", math.sqrt(10)),
    "a9a": ("adult", math.sqrt(10)),
}


def _real(name: str, rows: int | None, tests: int, data_dir: Any) -> Task:
    from dokl.paper import datasets

    known_as, sigma = REAL[name]
    data = datasets.load(known_as, data_dir)
    assert isinstance(data, datasets.Dataset)
    s = datasets.split(data, seed=0)
    learn, test = Rows(s.X_train, s.y_train), Rows(s.X_test, s.y_test)
    return Task(name, learn.first(rows or len(learn)), test.first(tests), sigma)


def _xor(rows: int | None, tests: int) -> Task:
    n = rows or 10_000
    X = generator(0, "bench-xor").uniform(-1, 1, (n + tests, 2))
    every = Rows(X, np.where(X[:, 0] * X[:, 1] > 0, 1.0, -1.0))
    about = (
        "x uniform on a square, y = sign(x1 x2): no input says anything alone, their product all"
    )
    return Task("xor", every.first(n), Rows(X[n:], every.y[n:]), 0.5, about=about)


def _example2(rows: int | None, tests: int) -> Task:
    n = rows or 10_000
    stream = Example2(K=1, n=n + tests).draw(0)
    X, y = stream.X[:, 0], stream.y[:, 0]
    about = (
        "y = w0'x + 0.1 (w1'x)^2 + noise of variance 0.0025: inputs and products of two describe "
        "it exactly"
    )
    return Task("example2", Rows(X[:n], y[:n]), Rows(X[n:], y[n:]), 5.0, False, about)


GENERATED: dict[str, Callable[[int | None, int], Task]] = {"xor": _xor, "example2": _example2}
NAMES = (*REAL, *GENERATED)


def load(name: str, rows: int | None, tests: int, data_dir: object = None) -> Task:
    """A task with at most `rows` rows to learn (None: all there are) and `tests` to test."""
    if name in GENERATED:
        return GENERATED[name](rows, tests)
    if name not in REAL:
        raise UnknownName("data set", name, NAMES)
    return _real(name, rows, tests, data_dir)
