"""Streams made from something else: dealt data sets, drifting targets, missing samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dokl.base.arrays import Array, check_whole, is_sparse
from dokl.base.errors import BadInput
from dokl.base.random_numbers import draw_recipe, generator
from dokl.simulation.streams.examples import Law, draw_law
from dokl.simulation.streams.stream import Stream, draw_nodes, node_count


@dataclass(frozen=True, eq=False)
class Shards:
    """Rows of a data set dealt over K nodes, equal counts, the remainder dropped.

    X: (N, d) dense or scipy.sparse, y: (N,) or (N, m). With shuffle, each seed deals the rows
    again; without, row i * K + k is step i of node k. A row stays with its node in all passes; each
    pass has a new order (reshuffle) or repeats the first. Passes follow each other in one stream,
    so a step count runs on over them.

    >>> Shards(np.arange(7.0)[:, None], np.arange(7.0), K=2, shuffle=False).draw(0).y
    array([[0., 1.],
           [2., 3.],
           [4., 5.]])
    """

    X: Any
    y: Array
    K: int
    shuffle: bool = True
    passes: int = 1
    reshuffle: bool = True

    def __post_init__(self) -> None:
        """Check shapes; the numbers are checked when drawn."""
        X = self.X.tocsr() if is_sparse(self.X) else np.asarray(self.X)
        y = np.asarray(self.y)
        if X.ndim != 2 or y.ndim not in (1, 2) or X.shape[0] != y.shape[0]:
            raise BadInput(f"need X: (N, d), y: (N,) or (N, m); got {X.shape} and {y.shape}")
        if not isinstance(self.K, int | np.integer) or not 1 <= self.K <= X.shape[0]:
            raise BadInput(f"cannot deal {X.shape[0]} rows over {self.K} nodes")
        check_whole("passes", self.passes)
        object.__setattr__(self, "X", X)
        object.__setattr__(self, "y", y)

    def order(self, seed: int) -> Array:
        """Which row each node sees at each step: (passes * (N // K), K), whole numbers."""
        N = self.X.shape[0]
        rng = generator(seed, "shards")
        rows = rng.permutation(N) if self.shuffle else np.arange(N)
        first = rows[: N // self.K * self.K].reshape(-1, self.K)
        if not (self.shuffle and self.reshuffle):
            return np.tile(first, (self.passes, 1))
        # `permuted` shuffles each column, that is each node, by itself
        again = [rng.permuted(first, axis=0) for _ in range(self.passes - 1)]
        return np.concatenate([first, *again])

    def draw(self, seed: int) -> Stream:
        """The stream of this seed."""
        return self._dealt(self.order(seed))

    def draw_nodes(self, seed: int, nodes: Array) -> Stream:
        """The same of some nodes only: no other rows are touched."""
        return self._dealt(self.order(seed)[:, nodes])

    def _dealt(self, order: Array) -> Stream:
        X = self.X[order.ravel()] if is_sparse(self.X) else self.X[order]
        return Stream(X, self.y[order])


@dataclass(frozen=True)
class AbruptDrift:
    """A new target from each step in `at` on (counted from 0), inputs and noise as before.

    at: steps as whole numbers, or fractions of the stream as floats between 0 and 1. Up to the
    first change the stream equals that of the base with the same seed.

    >>> from dokl.simulation.streams import Example2
    >>> AbruptDrift(Example2(K=2, n=1000), at=[0.5, 900]).steps
    (500, 900)
    """

    base: Law
    at: Sequence[float]

    def __post_init__(self) -> None:
        """Check the base and the steps."""
        _check_law(self.base)
        object.__setattr__(self, "at", tuple(self.at))
        if not self.at or min(np.diff([0, *self.steps, self.base.n])) < 1:
            raise BadInput(
                f"at must name increasing steps between 1 and {self.base.n - 1} (whole numbers) "
                f"or fractions between 0 and 1; got {list(self.at)}"
            )

    @property
    def steps(self) -> tuple[int, ...]:
        """The first step of each new target."""
        n = self.base.n
        return tuple(round(a * n) if isinstance(a, float) and a < 1 else int(a) for a in self.at)

    def draw(self, seed: int) -> Stream:
        """The stream of this seed."""
        return draw_law(self.base, seed, len(self.steps) + 1, self._mix)

    def draw_nodes(self, seed: int, nodes: Array) -> Stream:
        """The same of some nodes only."""
        return draw_law(self.base, seed, len(self.steps) + 1, self._mix, nodes)

    def _mix(self, y: list[Array]) -> Array:
        which = np.searchsorted(self.steps, np.arange(self.base.n), side="right")
        return np.asarray(np.stack(y)[which, np.arange(self.base.n)])


@dataclass(frozen=True)
class SlowDrift:
    """The target moves in a straight line from one draw at the first step to another at the last.

    y_n = (1 - w_n) f_0(x_n) + w_n f_1(x_n) + noise, with w_n going from 0 to 1.
    """

    base: Law

    def __post_init__(self) -> None:
        """Check the base."""
        _check_law(self.base)

    def draw(self, seed: int) -> Stream:
        """The stream of this seed."""
        return draw_law(self.base, seed, 2, self._mix)

    def draw_nodes(self, seed: int, nodes: Array) -> Stream:
        """The same of some nodes only."""
        return draw_law(self.base, seed, 2, self._mix, nodes)

    def _mix(self, y: list[Array]) -> Array:
        w = np.linspace(0, 1, self.base.n)[:, None]
        return np.asarray((1 - w) * y[0] + w * y[1])


def _check_law(base: object) -> None:
    if not isinstance(base, Law):
        raise BadInput(
            f"{type(base).__name__} has no target to change: drift needs draw_inputs and "
            "draw_target, as Example1 and Example2 have"
        )


@dataclass(frozen=True)
class Missing:
    """Each sample of the base is missing with probability p, independently.

    base: a recipe or a Stream. p: one number, or one for each node: (K,). What is not missing
    equals the base's stream of the same seed, so the two can be compared sample by sample.
    """

    base: Any
    p: float | Sequence[float]

    def __post_init__(self) -> None:
        """Check the probabilities."""
        if isinstance(self.base, Missing):
            raise BadInput("Missing of Missing: combine them as 1 - (1 - p) * (1 - q)")
        p = np.asarray(self.p, dtype=np.float64)
        if p.ndim > 1 or not ((p >= 0) & (p <= 1)).all():
            raise BadInput(f"p must be one probability or one for each node; got {self.p!r}")
        object.__setattr__(self, "p", p.tolist() if p.ndim == 0 else tuple(p.tolist()))

    def draw(self, seed: int) -> Stream:
        """The stream of this seed."""
        stream: Stream = draw_recipe(self.base, seed)
        return self._thin(stream, self._present(seed, stream.n, stream.K))

    def draw_nodes(self, seed: int, nodes: Array) -> Stream:
        """The same of some nodes only."""
        K = node_count(self.base)
        if K is None:
            return self.draw(seed).nodes(nodes)
        stream = draw_nodes(self.base, seed, nodes)
        return self._thin(stream, self._present(seed, stream.n, K)[:, nodes])

    def _present(self, seed: int, n: int, K: int) -> Array:
        if not isinstance(self.p, float) and len(self.p) != K:
            raise BadInput(f"p has {len(self.p)} entries, the stream has {K} nodes")
        chance = generator(seed, "missing").random((n, K))
        return np.where(chance < np.asarray(self.p), 0.0, 1.0)

    def _thin(self, stream: Stream, weight: Array) -> Stream:
        if stream.weight is not None:
            weight = weight * stream.weight
        return Stream(stream.X, stream.y, weight)
