"""Rows kept for the pilots to come: the first ones all, then a fair sample, and the newest.

Arrays grow by doubling and are written to only beyond what an earlier record uses, until the
sample is full; from then on the newest record alone is to be used.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from dokl.base import random_numbers
from dokl.base.arrays import Array

RECENT = 1000
_WORDS = 1024  # random numbers drawn at a time, so that they do not depend on how rows are cut


@dataclass(frozen=True)
class Buffer:
    """X: (room, d), Y: (room, m), weight: (room,), arrival: (room,), of which n are in use; the
    last rows, RECENT at most, in `recent` once the sample no longer has them all.
    """

    SAVED_AS: ClassVar[str] = "Kept"

    X: Array
    Y: Array
    weight: Array
    arrival: Array
    n: int
    seen: int
    recent: tuple[Array, Array, Array] | None = None

    def all(self) -> tuple[Array, Array, Array]:
        """X, Y and weight of the sample in the order of arrival."""
        order = slice(self.n)
        if self.recent is not None:
            order = np.argsort(self.arrival[: self.n])  # type: ignore[assignment]
        return self.X[: self.n][order], self.Y[: self.n][order], self.weight[: self.n][order]

    def newest(self) -> tuple[Array, Array, Array]:
        """The last rows in order, RECENT at most."""
        if self.recent is not None:
            return self.recent
        last = slice(max(0, self.n - RECENT), self.n)
        return self.X[last], self.Y[last], self.weight[last]


def no_rows(d: int, m: int) -> Buffer:
    """No rows yet."""
    return Buffer(np.empty((0, d)), np.empty((0, m)), np.empty(0), np.empty(0, np.int64), 0, 0)


def append(buffer: Buffer, X: Array, Y: Array, weight: Array, room: int, seed: int) -> Buffer:
    """The rows kept after these: (n, d), (n, m), (n,)."""
    first = max(0, min(len(X), room - buffer.n))
    buffer = _append(buffer, X[:first], Y[:first], weight[:first], room)
    if first == len(X):
        return buffer
    old = buffer.newest() if buffer.recent is None else buffer.recent
    rest = X[first:], Y[first:], weight[first:]
    recent = tuple(np.concatenate([a, b])[-RECENT:] for a, b in zip(old, rest, strict=True))
    places = _places(seed, buffer.seen, len(rest[0]))
    for i in np.flatnonzero(places < room):  # a later row may replace an earlier one of these
        at = places[i]
        buffer.X[at], buffer.Y[at], buffer.weight[at] = rest[0][i], rest[1][i], rest[2][i]
        buffer.arrival[at] = buffer.seen + i
    return replace(buffer, seen=buffer.seen + len(rest[0]), recent=recent)  # type: ignore[arg-type]


def copy(buffer: Buffer) -> Buffer:
    """The same rows in arrays of their own."""
    own = {name: getattr(buffer, name).copy() for name in ("X", "Y", "weight", "arrival")}
    return replace(buffer, **own)


def _append(buffer: Buffer, X: Array, Y: Array, weight: Array, room: int) -> Buffer:
    n = buffer.n + len(X)
    arrays = buffer.X, buffer.Y, buffer.weight, buffer.arrival
    if n > len(buffer.X):
        size = min(room, max(64, 2 * n))
        arrays = tuple(  # type: ignore[assignment]
            np.concatenate([a[: buffer.n], np.empty((size - buffer.n, *a.shape[1:]), a.dtype)])
            for a in arrays
        )
    arrival = np.arange(buffer.seen, buffer.seen + len(X))
    for array, new in zip(arrays, (X, Y, weight, arrival), strict=True):
        array[buffer.n : n] = new
    return Buffer(*arrays, n, buffer.seen + len(X), buffer.recent)


def _places(seed: int, seen: int, n: int) -> Array:
    """Where row number t = seen, seen + 1... would go among t + 1: (n,) whole numbers."""
    t = np.arange(seen, seen + n)
    u = np.empty(n)
    for group in range(seen // _WORDS, (seen + n - 1) // _WORDS + 1):
        mine = t // _WORDS == group
        u[mine] = random_numbers.uniforms(seed, ("reservoir", group), _WORDS)[t[mine] % _WORDS]
    return np.asarray((u * (t + 1)).astype(np.int64))
