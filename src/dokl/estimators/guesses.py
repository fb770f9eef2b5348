"""What the first rows show a gradient learner: how wide its kernel is, and the unit of its targets.

A width guessed from one row, or from fifty that are all the same, would be wrong for good: theta
means nothing under another width. So the rows are kept, fewer than a hundred, and where the guess
turns out wrong the model starts again from them.

A loss whose slope is bounded pulls with the same force however far off a target is: an offset of
10^4 would take 10^4 steps, and a spread of 10^-6 would drown in a single one. So targets are
learned as (y - centre)/size, by median and quartiles (these losses are there for what is far out),
and answers are given in the units that targets came in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dokl.base.arrays import Array, is_sparse
from dokl.estimators.choices import SIGMAS, width
from dokl.learning.experts.scaling import Scaling
from dokl.learning.losses import Loss

# This many rows, each different from the one before, settle the width.
ENOUGH = 64
# A guess that is off by this factor costs more than a new start; less is not worth one.
APART = 1.1


@dataclass(frozen=True)
class FirstRows:
    """Rows learned so far. sigma: the guess, by name, None where it was given; X: (n, d) dense or
    CSR; Y: (n, m); weight: (n,); owner: (n,) the node of each row.
    """

    sigma: str | None
    X: Any
    Y: Array
    weight: Array
    owner: Array

    def and_then(self, X: object, Y: Array, weight: Array | None, owner: Array) -> FirstRows:
        """These rows and some more."""
        weight = np.ones(len(Y)) if weight is None else weight
        pairs = (self.Y, Y), (self.weight, weight), (self.owner, owner)
        return FirstRows(self.sigma, _stack(self.X, X), *map(np.concatenate, pairs))

    def looks(self, before: FirstRows) -> bool:
        """Whether there are enough more rows than `before` for another guess: looking at each
        doubling bounds how often a model starts again.
        """
        n, seen = int(changes(self.X).sum()), int(changes(before.X).sum())
        return n.bit_length() > seen.bit_length() or n >= ENOUGH

    def guess(self) -> float | None:
        """The width by rows that differ from the one before: a stuck sensor has no spread."""
        return None if self.sigma is None else width(self.sigma, self.X[changes(self.X)])

    def kept(self) -> FirstRows | None:
        """What to keep of these: None where they settle the width, and few in any case."""
        if len(self.Y) < ENOUGH:
            return self
        at = np.flatnonzero(changes(self.X))
        if len(at) >= ENOUGH:
            return None
        return FirstRows(self.sigma, self.X[at], self.Y[at], self.weight[at], self.owner[at])

    def packed(self) -> dict[str, Array]:
        """As arrays by name, for a file."""
        X = {"X": self.X}
        if is_sparse(self.X):
            X = {part: getattr(self.X, part) for part in ("data", "indices", "indptr")}
        return {**X, "Y": np.asarray(self.Y, float), "weight": self.weight, "owner": self.owner}


def none_yet(sigma: str | None, X: Any, Y: Array) -> FirstRows:
    """Nothing learned so far, of rows like these."""
    return FirstRows(sigma, X[:0], Y[:0], np.ones(0), np.zeros(0, np.int64))


def unpacked(sigma: str | None, arrays: Mapping[str, Array], K: int, m: int, d: int) -> FirstRows:
    """What `packed` wrote; a file that says otherwise is damaged (ValueError, KeyError)."""
    if "X" in arrays:
        X = arrays["X"]
    else:
        from scipy.sparse import csr_array

        parts = tuple(arrays[part] for part in ("data", "indices", "indptr"))
        X = csr_array(parts, shape=(len(parts[2]) - 1, d))
        X.check_format(full_check=True)
    Y, weight, owner = (arrays[name] for name in ("Y", "weight", "owner"))
    n = X.shape[0]
    if X.shape != (n, d) or Y.shape != (n, m) or not weight.shape == owner.shape == (n,):
        raise ValueError(f"first rows are {X.shape}, {Y.shape}, {weight.shape}, {owner.shape}")
    numbers = X.data if is_sparse(X) else X
    if not all(np.isfinite(a).all() for a in (numbers, Y, weight)):
        raise ValueError("first rows have values that are not finite")
    if sigma is not None and sigma not in SIGMAS:
        raise ValueError(f"first rows are for a sigma {sigma!r}")
    if not (weight > 0).all() or not ((owner >= 0) & (owner < K)).all():
        raise ValueError("first rows have weights or nodes that cannot be")
    return FirstRows(sigma, X, Y, weight, owner)


def settled(X: Any) -> bool:
    """Whether rows X: (n, d) are enough to find the width; a look at few is mostly enough."""
    return any(int(changes(X[:n]).sum()) >= ENOUGH for n in (2 * ENOUGH, X.shape[0]))


def changes(X: Any) -> Array:
    """Which rows differ from the one before: (n,) of bool, the first one does."""
    unlike = X[1:] != X[:-1]
    apart = unlike.sum(axis=1) > 0 if is_sparse(unlike) else unlike.any(axis=1)
    return np.concatenate([np.ones(min(1, X.shape[0]), bool), np.asarray(apart).ravel()])


def _stack(a: object, b: object) -> Any:
    if not is_sparse(a) and not is_sparse(b):
        return np.concatenate([a, b])
    from scipy.sparse import csr_array, vstack

    return vstack([csr_array(a), csr_array(b)], format="csr")


# -- the unit of targets --------------------------------------------------------------------------
# Quartiles of a normal law are this many standard deviations apart.
QUARTILES = 1.349


def near_unit(unit: Scaling, other: Scaling) -> bool:
    """Whether the two are about the same."""
    ratio, off = unit.size / other.size, np.abs(unit.centre - other.centre) / other.size
    return bool(((ratio >= 1 / APART) & (ratio <= APART) & (off <= APART - 1.0)).all())


def agreed_unit(unit: Scaling) -> dict[str, list[float]]:
    """What nodes must agree on, for a fingerprint."""
    return {"centre": unit.centre.tolist(), "size": unit.size.tolist()}


def wanted_by(loss: Loss) -> bool:
    """Whether targets need a unit for this loss."""
    return loss.bounded and not loss.margin


def unit_of(Y: Array) -> Scaling:
    """By targets Y: (n, m); size 1 where nothing varies."""
    Y = np.asarray(Y, np.float64)
    low, centre, high = np.percentile(Y, (25.0, 50.0, 75.0), axis=0)
    quartiles, spread = (high - low) / QUARTILES, Y.std(axis=0)
    least = 1e-12 * np.maximum(np.abs(Y).max(axis=0), 1e-290)
    size = np.where(quartiles > least, quartiles, np.where(spread > least, spread, 1.0))
    return Scaling(centre, size)
