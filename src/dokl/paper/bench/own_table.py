"""A user's own file as rows that every library can take."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from dokl.base.arrays import Array, is_sparse
from dokl.base.errors import BadInput
from dokl.paper.bench.tasks import Rows
from dokl.tables.jobs.sources import Source
from dokl.tables.jobs.start import Training, guesses, start
from dokl.tables.jobs.tables import targets
from dokl.tables.models.columns import inputs_for
from dokl.tables.readers import Chunk

FEWEST = 50
MOST_NUMBERS = 200_000_000  # of a sparse file, all of them written out: 1.6 GB
PIECE = 512  # rows between two looks at the clock
PARTS = 5  # the first of them is not scored; who is refitted is so before each of the others


@dataclass(frozen=True)
class OwnTable:
    """rows: X (n, d) as they are, texts as 0 and 1, gaps at the mean so far; y (n,) targets, or
    numbers of classes. scaled: X (n, d) standardised by the rows so far. labels: of classes, in
    their order; none in a regression. guesses: what was found out about the file, in words.
    """

    name: str
    rows: Rows
    scaled: Array
    labels: tuple[Any, ...] = ()
    guesses: tuple[str, ...] = ()

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self.rows)

    @property
    def d(self) -> int:
        """Number of inputs."""
        return int(self.rows.X.shape[1])

    @property
    def cuts(self) -> list[int]:
        """Where one part ends and the next begins."""
        return [self.n * k // PARTS for k in range(1, PARTS)]

    @property
    def metric(self) -> str:
        """What predictions are judged by."""
        return "error rate" if self.labels else "error / variance"

    def first(self, n: int) -> OwnTable:
        """The first rows; labels stay, whether they come up or not."""
        return replace(self, rows=self.rows.first(n), scaled=self.scaled[:n])

    def pieces(self) -> Iterator[tuple[int, int]]:
        """(i, j) in order, short ones, cut where parts end."""
        for a, b in zip([0, *self.cuts], [*self.cuts, self.n], strict=True):
            for i in range(a, b, PIECE):
                yield i, min(b, i + PIECE)

    def error(self, predicted: Array) -> float | None:
        """Of predictions (n,), or of fewer rows, after the first part; None if it is all there is.

        The share of wrong labels, or the mean squared error over the variance of the target there.
        """
        return self._error(predicted, self.cuts[0], len(predicted))

    def errors(self, predicted: Array) -> tuple[float | None, ...]:
        """The same of each part but the first; None where not all of it was predicted."""
        parts = zip(self.cuts, [*self.cuts[1:], self.n], strict=True)
        whole = len(predicted)
        return tuple(self._error(predicted, a, b) if b <= whole else None for a, b in parts)

    def _error(self, predicted: Array, start: int, stop: int) -> float | None:
        f, y = predicted[start:stop], self.rows.y[start:stop]
        if not len(y):
            return None
        if self.labels:
            return float(np.mean(f != y))
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # it may have diverged
            return float(np.mean((f - y) ** 2) / np.var(y))


def read(source: Source, training: Training, most: int | None) -> OwnTable:
    """At most so many rows of a file that have a target."""
    told = replace(training, method="gradient")  # to which inputs may come in either way
    plain, scaled = (replace(told, standardise=how) for how in ("off", "running"))
    parts: list[tuple[Any, Any, Array]] = []
    with source.open(target=training.target) as reader:
        models = start(plain, reader.first), start(scaled, reader.first)
        said = guesses(told, reader.first, models[0])
        rows = 0
        for chunk in reader:
            y, keep = targets(models[0], chunk)
            X, Z = (_dense(inputs_for(model, chunk, learn=True), chunk)[keep] for model in models)
            parts.append((X, Z, y))
            rows += len(y)
            if most is not None and rows >= most:
                break
    X, Z, y = (np.concatenate(each)[:most] for each in zip(*parts, strict=True))
    name = "stdin" if source.path == "-" else Path(source.path).name
    if len(y) < FEWEST:
        raise BadInput(f"{name} has {len(y)} rows with a target: {FEWEST} are needed to compare")
    if not models[0].classifying:
        return _with_spread(OwnTable(name, Rows(X, np.asarray(y, np.float64)), Z, (), said))
    labels, numbers = np.unique(y, return_inverse=True)
    if len(labels) < 2:
        raise BadInput(f"{name} has one class only, {labels[0]!r}, in its first {len(y):,} rows")
    return OwnTable(name, Rows(X, numbers.astype(np.int64)), Z, tuple(labels.tolist()), said)


def _with_spread(table: OwnTable) -> OwnTable:
    if not np.var(table.rows.y[table.cuts[0] :]) > 0:
        raise BadInput(f"the target of {table.name} does not vary: there is nothing to predict")
    return table


def _dense(X: Any, chunk: Chunk) -> Array:
    if not is_sparse(X):
        return np.asarray(X)
    if X.shape[1] * chunk.n > MOST_NUMBERS:
        raise BadInput(f"{X.shape[1]:,} inputs are too many for this comparison")
    return np.asarray(X.toarray(), np.float64)
