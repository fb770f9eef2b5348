"""Rows of samples as the engines take them, and checks on arrays from outside."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from dokl.base.errors import BadInput

Array = NDArray[Any]
LARGEST = 1e70  # of targets: fourth powers of much larger ones overflow
FLOAT32 = float(np.finfo(np.float32).max)  # of a number that an agent takes, or sends


@dataclass(frozen=True)
class Block:
    """Samples of K nodes over n steps: rows, and which row each node sees at each step.

    X: (N, d) dense or CSR; Y: (N, m); weight: (N,) or None; index: (n, K) row numbers, -1 where
    a node has no sample. Shuffles and further passes are other indices into the same rows.
    """

    X: Any
    Y: Array
    weight: Array | None
    index: Array

    @property
    def n(self) -> int:
        """Number of steps."""
        return int(self.index.shape[0])

    def steps(self, start: int, stop: int) -> Block:
        """The block of steps start to stop; rows are shared, not copied."""
        return Block(self.X, self.Y, self.weight, self.index[start:stop])

    def cast(self, dtype: DTypeLike) -> Block:
        """The same samples in another precision; what has it already is shared."""
        X, Y = (a.astype(dtype, copy=False) for a in (self.X, self.Y))
        weight = None if self.weight is None else self.weight.astype(dtype, copy=False)
        return Block(X, Y, weight, self.index)


def used_rows(block: Block) -> Array:
    """Numbers of the rows that nodes learn from, in order: not absent, and of some weight."""
    rows = np.unique(block.index[block.index >= 0])
    return rows if block.weight is None else rows[block.weight[rows] > 0]


PAGE, LINE = 4096, 64  # bytes


def empty_in_quarter(shape: tuple[int, ...], dtype: DTypeLike, quarter: int) -> Array:
    """An empty array that begins in the given quarter of a memory page.

    The loops stream several arrays side by side. Vectors across cache lines cost up to half their
    speed, and so do a load and a store whose addresses agree in the last 12 bits: the processor
    takes them for the same. Arrays that are used together ask for different quarters.
    """
    dtype = np.dtype(dtype)
    size = int(np.prod(shape)) * dtype.itemsize
    raw = np.empty(size + PAGE, np.uint8)
    start = (quarter * PAGE // 4 - raw.ctypes.data) % PAGE
    return np.asarray(raw[start : start + size].view(dtype).reshape(shape))


def is_sparse(X: object) -> bool:
    """Whether X is a scipy.sparse matrix, without importing scipy to find out."""
    return hasattr(X, "tocsr") and hasattr(X, "nnz")


def limited(Y: Array) -> Array:
    """Targets, those beyond LARGEST as LARGEST: as wild, but powers of them are finite; and those
    below 1 / LARGEST as 0: powers of them would be.

    >>> limited(np.array([1e99, -2.0, 1e-99])).tolist()
    [1e+70, -2.0, 0.0]
    """
    Y = np.clip(Y, -LARGEST, LARGEST)
    return np.asarray(Y * (np.abs(Y) >= 1.0 / LARGEST))


def first_bad(values: Array) -> tuple[int, ...] | None:
    """Index of the first NaN or infinity, or None; the common case costs one pass."""
    finite = np.isfinite(values)
    return None if finite.all() else tuple(int(i) for i in np.argwhere(~finite)[0])


def check_rows(X: Any, d: int, what: str = "X") -> Any:
    """X as (N, d) floats, dense or CSR, finite; otherwise one message with the place."""
    if is_sparse(X):
        X = X.tocsr()
        values = X.data
    else:
        X = np.asarray(X)
        if X.ndim != 2:
            raise BadInput(f"{what} must have two dimensions (rows, {d}), got shape {X.shape}")
        values = X
    if X.shape[1] != d:
        raise BadInput(f"{what} has {X.shape[1]} columns, the feature map expects {d}")
    bad = first_bad(values)
    if bad is not None:
        where = f"row {bad[0]}, column {bad[1]}" if values.ndim == 2 else "a stored entry"
        raise BadInput(f"{what} contains NaN or infinity ({where}): remove or fill it first")
    return X


def check_whole(
    name: str, value: object, least: int = 1, most: int | None = None, of: str = ""
) -> int:
    """A parameter that counts something, as an int; of: what it counts.

    >>> check_whole("every", 1.5, of="steps")
    Traceback (most recent call last):
    dokl.base.errors.BadInput: every must be a whole number of steps, at least 1, got 1.5
    """
    if (
        not isinstance(value, int | np.integer)
        or isinstance(value, bool)
        or value < least
        or (most is not None and value > most)
    ):
        counted = f"{name} must be a whole number{f' of {of}' if of else ''}, at least {least}"
        raise BadInput(f"{counted}{'' if most is None else f' and at most {most}'}, got {value!r}")
    return int(value)
