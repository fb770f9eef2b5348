"""Projected features for the Numba engine: z by the loops, V'z by one matrix product.

A block is cut into pieces whose projections fit the cache; the loops then find features where
inputs used to be, and a map without frequencies.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from dokl.base.arrays import Array, Block
from dokl.simulation.engines import numba_sweeps
from dokl.simulation.engines.numba_sweeps import LoopMap, LoopRows

SCRATCH = 2**21  # numbers in a temporary array


@dataclass(frozen=True)
class Projection:
    """The map before the projection, in turns, and V: (D, r)."""

    map: LoopMap
    modes: Array

    def of_rows(self, rows: LoopRows, N: int) -> Array:
        """V'z of the first N rows: (N, r)."""
        D, dtype = self.modes.shape[0], self.modes.dtype
        out, step = np.empty((N, self.modes.shape[1]), dtype), max(1, SCRATCH // D)
        for start in range(0, N, step):
            part = _part(rows, start, min(N, start + step))
            Z = np.empty((min(N, start + step) - start, D), dtype)
            numba_sweeps.feature_rows(0, len(Z), *self.map, *part[:4], Z)
            out[start : start + step] = Z @ self.modes
        return out


def _part(rows: LoopRows, start: int, stop: int) -> LoopRows:
    """Rows start..stop; entries are shared."""
    if rows.where.size == 0:
        return rows._replace(data=rows.data[start * rows.d : stop * rows.d])
    return rows._replace(starts=rows.starts[start : stop + 1])


def without_frequencies(r: int, P: tuple[Any, ...], dtype: DTypeLike) -> LoopMap:
    """A map for samples that are features of length r already."""
    empty = np.zeros((0, r), dtype), np.zeros(r, dtype)
    return LoopMap(*empty, np.zeros((3, 0, 0), dtype), np.zeros((0, 0), dtype), False, P)


def pieces(block: Block, r: int) -> Iterator[tuple[Block, Block]]:
    """The block cut into (piece, the same with the rows it uses alone, in order of use)."""
    K = block.index.shape[1]
    step = max(1, SCRATCH // (K * r))
    for start in range(0, block.n, step):
        piece = block.steps(start, min(block.n, start + step))
        used, place = np.unique(piece.index, return_inverse=True)
        absent = int(used.size > 0 and used[0] < 0)
        used = used[absent:]
        weight = None if block.weight is None else block.weight[used]
        index = (place.reshape(piece.index.shape) - absent).astype(np.int64)
        yield piece, Block(block.X[used], block.Y[used], weight, index)
