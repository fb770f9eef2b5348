"""What is measured along a run. Predictions f and targets y: (n, K, m); NaN: no sample there."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dokl.base.arrays import Array
from dokl.learning.classification import wrong_classes

MOST_BINS, FIRST_BIN, MOST_DRAWN = 200, 10, 40


def decibels(power: Any) -> Any:
    """10 log10 of a power, as learning curves are drawn.

    >>> float(decibels(0.01))
    -20.0
    """
    return 10.0 * np.log10(power)


def mean_present(values: Array, axes: tuple[int, ...]) -> Array:
    """Mean over axes of what is not NaN; NaN where nothing is (without NumPy's warning)."""
    present = ~np.isnan(values)
    count = present.sum(axis=axes)
    total = np.where(present, values, 0.0).sum(axis=axes)
    return np.asarray(np.divide(total, count, out=np.full(count.shape, np.nan), where=count > 0))


def squared_error(f: Array, y: Array) -> Array:
    """Squared a-priori error per step: mean over nodes and outputs, (n,)."""
    return mean_present((y - f) ** 2, (1, 2))


def node_squared_error(f: Array, y: Array) -> Array:
    """Squared a-priori error per step and node, (n, K)."""
    return mean_present((y - f) ** 2, (2,))


def mistakes(f: Array, y: Array) -> Array:
    """Share of nodes that predicted the wrong class before seeing it, per step, (n,).

    One output: the sign, targets -1 and 1. Several: the largest, targets 1 for the true class.
    """
    wrong = wrong_classes(f, y)
    wrong[np.isnan(f).any(axis=2)] = np.nan
    return mean_present(wrong, (1,))


def mean_loss(value: Any, f: Array, y: Array) -> Array:
    """Mean loss per step; `value` is the loss's value(y, f)."""
    with np.errstate(invalid="ignore"):  # the NaN of nodes without a sample pass through
        losses = np.asarray(value(y, f), float)
    return mean_present(losses, (1, 2))


def disagreement(theta: Array) -> float:
    """Root mean square distance of the nodes' vectors theta: (K, m, D) from their mean.

    >>> disagreement(np.array([[[0.0, 0.0]], [[2.0, 0.0]]]))
    1.0
    """
    apart = theta - theta.mean(axis=0, keepdims=True)
    return float(np.sqrt((apart**2).sum(axis=(1, 2)).mean()))


def messages(A: Any) -> int:
    """Messages of one combination with weights A: one per directed link, none to oneself."""
    return int(A.nnz - np.count_nonzero(A.diagonal()))


def bytes_sent(graphs: list[Any], steps: Array, size: int) -> Array:
    """Bytes sent by the whole network when it combined at `steps` (counted from 0), per entry.

    graphs: the matrices used in turn; size: bytes of one vector.
    """
    each = np.array([messages(A) for A in graphs])
    return np.asarray(each[np.asarray(steps) % len(graphs)] * size)


def regret(losses: Array, best: Array) -> Array:
    """Cumulated loss beyond that of a fixed comparator; both (n,) or (n, K)."""
    return np.asarray(np.cumsum(losses - best, axis=0))


@dataclass
class Bins:
    """A curve of bounded length: sums over bins of rows; when there are too many, each two become
    one. done: (last row, rows, sum) of each bin.

    >>> bins = Bins()
    >>> bins.add(np.arange(20.0))
    >>> bins.means()
    (array([10., 20.]), array([ 4.5, 14.5]))
    """

    size: int = FIRST_BIN
    done: list[tuple[int, int, float]] = field(default_factory=list)
    end: int = 0
    n: int = 0
    total: float = 0.0

    def add(self, values: Array, end: int | None = None) -> None:
        """A value for each of some more rows; end: the number of the last one, if not all rows
        have a value here.
        """
        at, self.end = 0, self.end if end is None else end - len(values)
        while at < len(values):
            piece = values[at : at + self.size - self.n]
            self._add(len(piece), float(piece.sum()))
            at += len(piece)

    def _add(self, n: int, total: float) -> None:
        self.end, self.n, self.total = self.end + n, self.n + n, self.total + total
        if self.n >= self.size:
            self.done.append((self.end, self.n, self.total))
            self.n, self.total = 0, 0.0
        if len(self.done) >= MOST_BINS:
            self.done = _halve(self.done)
            self.size *= 2

    def means(self) -> tuple[Array, Array]:
        """The last row of each bin, and the mean in it; a short rest joins the bin before."""
        bins, rest = list(self.done), (self.end, self.n, self.total)
        if self.n and (not bins or 2 * self.n >= self.size):
            bins.append(rest)
        elif self.n:
            bins.append(_join(bins.pop(), rest))
        while len(bins) > MOST_DRAWN:  # what is left is less noisy
            if len(bins) % 2:
                bins[-2:] = [_join(*bins[-2:])]
            bins = _halve(bins)
        ends, counts, totals = np.array(bins, float).reshape(-1, 3).T
        return ends, totals / counts


def _join(a: tuple[int, int, float], b: tuple[int, int, float]) -> tuple[int, int, float]:
    return b[0], a[1] + b[1], a[2] + b[2]


def _halve(bins: list[tuple[int, int, float]]) -> list[tuple[int, int, float]]:
    return [_join(*pair) for pair in zip(bins[0::2], bins[1::2], strict=True)]
