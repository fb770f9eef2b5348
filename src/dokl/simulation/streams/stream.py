"""The samples of all nodes, checked once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dokl.base.arrays import Array, Block, first_bad, is_sparse
from dokl.base.errors import BadInput


@dataclass(frozen=True, eq=False)
class Stream:
    """Samples of K nodes over n steps.

    X: (n, K, d), or scipy.sparse with n * K rows, where row i * K + k is step i of node k.
    y: (n, K) or (n, K, m). weight: (n, K), or None for all ones; 0 means that the node has no
    sample at that step and only combines, and then X and y may hold anything (kept as 0).
    """

    X: Any
    y: Array
    weight: Array | None = None

    def __post_init__(self) -> None:
        """Check shapes and numbers once, so that engines need not."""
        y = _floats(self.y, "y")
        if y.ndim not in (2, 3) or 0 in y.shape:
            raise BadInput(f"y must have shape (n, K) or (n, K, m), none of them 0; got {y.shape}")
        n, K = y.shape[:2]
        X = _csr_floats(self.X) if is_sparse(self.X) else _floats(self.X, "X")
        if is_sparse(X):
            if X.shape[0] != n * K:
                raise BadInput(f"sparse X needs n * K = {n * K} rows, as y has; got {X.shape[0]}")
        elif X.ndim != 3 or X.shape[:2] != (n, K):
            raise BadInput(f"X must have shape ({n}, {K}, d), as y has; got {X.shape}")
        weight = None if self.weight is None else _checked_weight(self.weight, n, K)
        if weight is not None and not weight.all():
            absent = weight == 0
            X, y = _blank(X, absent), _blank(y, absent)
        _check_finite(X, "X", K)
        _check_finite(y, "y", K)
        self._set(X, y, weight)

    def _set(self, X: object, y: Array, weight: Array | None) -> None:
        for name, value in (("X", X), ("y", y), ("weight", weight)):
            object.__setattr__(self, name, value)

    @property
    def n(self) -> int:
        """Number of steps."""
        return int(self.y.shape[0])

    @property
    def K(self) -> int:
        """Number of nodes."""
        return int(self.y.shape[1])

    @property
    def d(self) -> int:
        """Number of inputs."""
        return int(self.X.shape[-1])

    @property
    def m(self) -> int:
        """Number of outputs."""
        return 1 if self.y.ndim == 2 else int(self.y.shape[2])

    def block(self) -> Block:
        """The samples as engines take them: one row after another, nothing copied."""
        n, K, d = self.n, self.K, self.d
        X = self.X if is_sparse(self.X) else self.X.reshape(n * K, d)
        weight = None if self.weight is None else self.weight.reshape(-1)
        index = np.arange(n * K, dtype=np.int64).reshape(n, K)
        return Block(X, self.y.reshape(n * K, -1), weight, index)

    def nodes(self, nodes: Array) -> Stream:
        """The samples of some nodes only, copied; nodes: their numbers."""
        X = self.X[:, nodes] if not is_sparse(self.X) else None
        if X is None:
            rows = np.arange(self.n)[:, None] * self.K + nodes
            X = self.X[rows.ravel()]
        part = object.__new__(Stream)  # already checked as a whole
        part._set(X, self.y[:, nodes], None if self.weight is None else self.weight[:, nodes])
        return part

    def rows(self, start: int, stop: int) -> Stream:
        """Steps start to stop; dense arrays are views.

        >>> from dokl.simulation.streams import Example2
        >>> Example2(K=3, n=100).draw(0).rows(90, 100).n
        10
        """
        start, stop, _ = slice(start, stop).indices(self.n)
        X = self.X[start * self.K : stop * self.K] if is_sparse(self.X) else self.X[start:stop]
        part = object.__new__(Stream)  # already checked as a whole
        part._set(X, self.y[start:stop], None if self.weight is None else self.weight[start:stop])
        return part


def node_count(stream: object) -> int | None:
    """Nodes of a Stream or recipe, as far as it says without being drawn."""
    while getattr(stream, "K", None) is None and hasattr(stream, "base"):
        stream = stream.base
    return getattr(stream, "K", None)


def draw_nodes(stream: Any, seed: int, nodes: Array) -> Stream:
    """The samples of some nodes of a Stream or recipe, without the others' where that can be.

    A recipe may have a method `draw_nodes(seed, nodes)` for this; otherwise all are drawn.
    """
    if hasattr(stream, "draw_nodes"):
        return stream.draw_nodes(seed, nodes)  # type: ignore[no-any-return]
    whole: Stream = stream.draw(seed) if hasattr(stream, "draw") else stream
    return whole.nodes(nodes)


def _floats(a: object, what: str) -> Array:
    """An array of float32 or float64; whole numbers and booleans become float64."""
    a = np.asarray(a)
    if a.dtype.kind not in "biuf":
        raise BadInput(f"{what} must hold real numbers; got dtype {a.dtype}")
    return np.asarray(a, dtype=a.dtype if a.dtype in (np.float32, np.float64) else np.float64)


def _csr_floats(X: Any) -> Any:
    X = X.tocsr()
    return X.astype(_floats(X.data[:0], "X").dtype, copy=False)


def _checked_weight(weight: object, n: int, K: int) -> Array:
    weight = _floats(weight, "weight")
    if weight.shape != (n, K):
        raise BadInput(f"weight must have shape ({n}, {K}), as y has; got {weight.shape}")
    bad = np.argwhere(~(np.isfinite(weight) & (weight >= 0)))
    if bad.size:
        i, k = bad[0]
        raise BadInput(f"weight at step {i}, node {k} is {weight[i, k]:g}: it must be 0 or more")
    return np.asarray(weight)


def _blank(values: Any, absent: Array) -> Any:
    """Zeros where no sample is; a copy only if there is something to wipe. absent: (n, K)."""
    if is_sparse(values):
        gone = np.repeat(absent.ravel(), np.diff(values.indptr))
        if values.data[gone].any():
            values = values.copy()
            values.data[gone] = 0
    elif values[absent].any():
        values = values.copy()
        values[absent] = 0
    return values


def _check_finite(values: Any, what: str, K: int) -> None:
    sparse = is_sparse(values)
    bad = first_bad(values.data if sparse else values)
    if bad is None:
        return
    if sparse:
        step, node = divmod(int(np.searchsorted(values.indptr, bad[0], side="right")) - 1, K)
    else:
        step, node = bad[:2]
    raise BadInput(
        f"{what} has NaN or infinity at step {step}, node {node}: fill it, or give that sample "
        "weight 0 if it is missing"
    )
