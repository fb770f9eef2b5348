"""Features of a learned kernel that are nested: the first D of them are the best D-dimensional ones
found on the rows at hand.

    z = [1, b x/sqrt(d), a L^-1 k(U, x)],   k(U, U) = L L'

U are rows chosen one by one, each where those before it explain the least (pivoted Cholesky), so
z z' is the kernel itself on U and its best guess elsewhere (Nystrom). A narrow expert takes the
first numbers of z, a wide one all of them, and one matrix product serves both.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from dokl.base import random_numbers, unlocked
from dokl.base.arrays import Array
from dokl.base.codec import IF_SET
from dokl.learning.experts.places import GroupPlaces
from dokl.learning.experts.ranks import Ranks
from dokl.learning.scales import Scales, correlation, squared_distances

# Where no row is left that the chosen ones do not explain to this share, choosing ends; and what
# they do not explain must be small beside the noise: of a large amplitude, as smooth functions
# have, a small share is much. FINEST: below, rounding decides.
EXPLAINED, OF_NOISE, FINEST = 1e-5, 2e-2, 1e-6
# Rows are chosen AT_A_TIME at most, among AMONG, while the best of these is at least NEARLY as
# little explained as any other row.
AMONG, AT_A_TIME, NEARLY = 256, 64, 0.9

# Lengths much below the distances between rows would leave nothing of these but rounding.
SPOTS = 1e-3

Which = Array | slice


@dataclass(frozen=True)
class NestedMap:
    """kernel: its name; centres: (M, d) standardised rows over their lengths; lower: L (M, M),
    in Fortran's order; ranks: what standardised rows become first, if anything.
    """

    kernel: str
    scales: Scales
    centres: Array
    lower: Array
    ranks: Ranks | None = None

    @property
    def D(self) -> int:
        """Numbers in z."""
        return 1 + int(self.centres.shape[1]) + len(self.centres)

    def width(self, most: int | None) -> int:
        """Numbers of z that an expert with at most `most` centres uses."""
        M = len(self.centres)
        return 1 + int(self.centres.shape[1]) + (M if most is None else min(M, most))

    def transform(self, X: Array, D: int | None = None) -> Array:
        """Standardised rows X: (n, d) -> z: (n, D), or the first D numbers of it."""
        d, s = X.shape[1], self.scales
        X = X if self.ranks is None else self.ranks.of(X)
        Z = np.empty((len(X), self.D if D is None else D))
        Z[:, 0] = 1.0
        Z[:, 1 : d + 1] = X * (s.linear / math.sqrt(d))
        M = Z.shape[1] - d - 1
        if M:
            K = correlation(self.kernel, squared_distances(X / s.lengths, self.centres[:M]))
            unlocked.trsm_left(s.amplitude, self.lower, K.T)
            Z[:, d + 1 :] = K
        return Z


@unlocked.one_thread()  # thousands of small products
def nested_map(
    kernel: str, scales: Scales, X: Array, most: int, ranks: Ranks | None = None
) -> NestedMap:
    """The map with centres among standardised rows X: (n, d), at most `most` of them. scales: of
    what ranks make of them, if there are any.
    """
    U = (X if ranks is None else ranks.of(X)) / scales.lengths

    def between(rows: Which, others: Array) -> Array:
        return correlation(kernel, squared_distances(U[rows], U[others]))

    noise = scales.noise / scales.amplitude**2
    chosen, _ = _choose_centres(np.ones(len(U)), between, most, noise)
    return NestedMap(kernel, scales, U[chosen], factor(kernel, U[chosen]), ranks)


def factor(kernel: str, centres: Array) -> Array:
    """L: (M, M) in Fortran's order, with k(U, U) = L L' for centres: (M, d). Files leave it out: it
    is half of what a map takes. Raises ValueError where centres are too close to each other.
    """
    L = np.asfortranarray(correlation(kernel, squared_distances(centres, centres)))
    if len(L) and not unlocked.potrf(L):
        raise ValueError("centres of a map lie too close to each other")
    return np.asfortranarray(np.tril(L))


def _choose_centres(
    left: Array, between: Callable[[Which, Array], Array], most: int, noise: float
) -> tuple[Array, Array]:
    """At most `most` rows, each where those before it explain the least of the kernel, and its
    Cholesky factor on them, in Fortran's order. left: (n,) the kernel's diagonal, which is
    overwritten; between: the kernel of some rows and others; noise: its variance, in the same
    units.

    Several rows are chosen at a time, among those of which the least is explained, so that products
    of matrices do the work: as long as no other row can be much less explained than the next.
    """
    n, M, whole = len(left), min(most, len(left)), left.max(initial=0.0)
    least = max(min(EXPLAINED * whole, OF_NOISE * noise), FINEST * whole)
    R, chosen = np.zeros((n, M), order="F"), np.zeros(0, np.int64)
    while (j := len(chosen)) < M:
        best = np.sort(np.argpartition(-left, AMONG)[: AMONG + 1]) if n > AMONG else np.arange(n)
        enough = max(least, NEARLY * float(left[best].min())) if n > AMONG else least
        S = between(best, best) - R[best, :j] @ R[best, :j].T
        picked, C = _greedy(S, left[best], least, enough, min(AT_A_TIME, M - j))
        if not len(picked):
            break
        new, k = best[picked], len(picked)
        K = np.asfortranarray(between(slice(None), new) - R[:, :j] @ R[new, :j].T)
        unlocked.trsm_right(C, K)
        R[:, j : j + k] = K
        left -= np.einsum("ij,ij->i", K, K)
        left[new] = -1.0
        chosen = np.concatenate([chosen, new])
    return chosen, np.asfortranarray(np.tril(R[chosen][:, : len(chosen)]))


def _greedy(
    S: Array, left: Array, least: float, enough: float, most: int
) -> tuple[list[int], Array]:
    """Rows of S: (b, b), whose diagonal is left: (b,), one by one where the least is explained:
    the first if that is `least`, others while it is `enough`; and the Cholesky factor on them.
    """
    left, L, picked = left.copy(), np.zeros((len(S), most)), list[int]()
    for k in range(most):
        i = int(np.argmax(left))
        if left[i] < (enough if k else least):
            break
        picked.append(i)
        L[:, k] = (S[:, i] - L[:, :k] @ L[i, :k]) / math.sqrt(left[i])
        left -= L[:, k] ** 2
        left[i] = -1.0
    return picked, np.asfortranarray(np.tril(L[picked][:, : len(picked)]))


@dataclass(frozen=True)
class GroupedMap:
    """The same for rows of groups, whose number is the last column, and the kernel of `places`:

        z = [1, b x/sqrt(d), L^-1 k(U, x)]

    The linear part stands twice: inside the kernel for what groups differ by, and before it for
    what all of them share, which narrow experts with short memories learn at once.

    centres: (M, d + 1), standardised rows with their groups; lower: L (M, M); slopes: whether
    groups have linear parts of their own inside the kernel; ranks: what standardised rows become
    first, if anything.
    """

    kernel: str
    scales: Scales
    places: GroupPlaces
    centres: Array
    lower: Array
    slopes: bool = True
    ranks: Ranks | None = field(default=None, metadata=IF_SET)

    @property
    def D(self) -> int:
        """Numbers in z."""
        return int(self.centres.shape[1]) + len(self.centres)

    def width(self, most: int | None) -> int:
        """Numbers of z that an expert with at most `most` centres uses."""
        M = len(self.centres)
        return int(self.centres.shape[1]) + (M if most is None else min(M, most))

    def transform(self, X: Array, D: int | None = None) -> Array:
        """Standardised rows X: (n, d + 1) -> z: (n, D), or the first D numbers of it."""
        Z, d = np.empty((len(X), self.D if D is None else D)), X.shape[1] - 1
        X = self.counted(X)
        Z[:, 0] = 1.0
        Z[:, 1 : d + 1] = X[:, :-1] * (self.scales.linear / math.sqrt(d))
        M = Z.shape[1] - d - 1
        if M:
            K = self.covariance(X, self.centres[:M])
            unlocked.trsm_left(1.0, self.lower, K.T)
            Z[:, d + 1 :] = K
        return Z

    def counted(self, X: Array) -> Array:
        """Standardised rows X: (n, d + 1) as the kernel counts them: with ranks of inputs, or as
        they are.
        """
        if self.ranks is None:
            return X
        return np.column_stack([self.ranks.of(X[:, :-1]), X[:, -1]])

    def covariance(self, A: Array, B: Array) -> Array:
        """The kernel between counted rows A: (n, d + 1) and B: (k, d + 1), without noise."""
        s, (a, g), (b, h) = self.scales, _split(A), _split(B)
        e = self.places.apart(g, h)
        found = correlation(self.kernel, squared_distances(a / s.lengths, b / s.lengths) + e)
        found *= s.amplitude**2
        if self.slopes:
            found += (a * (s.linear**2 / a.shape[1])) @ b.T * np.exp(-0.5 * e)
        found += np.where(g[:, None] == h, s.offset**2, 0.0)
        return np.asarray(found)


def _split(X: Array) -> tuple[Array, Array]:
    """Inputs (n, d) and groups (n,) of rows (n, d + 1)."""
    return X[:, :-1], X[:, -1].astype(np.int64)


@unlocked.one_thread()
def grouped_map(
    kernel: str, scales: Scales, places: GroupPlaces, X: Array, most: int, slopes: bool = True,
    ranks: Ranks | None = None,
) -> GroupedMap:  # fmt: skip
    """The map with centres among standardised rows X: (n, d + 1), at most `most` of them. scales
    and places: of ranked rows, if there are ranks.
    """
    whole = GroupedMap(kernel, scales, places, X, np.zeros((0, 0)), slopes, ranks)
    X = whole.counted(X)
    line = scales.linear**2 / (X.shape[1] - 1) if slopes else 0.0
    diagonal = scales.amplitude**2 + scales.offset**2 + line * (X[:, :-1] ** 2).sum(axis=1)
    noise = scales.noise
    chosen, lower = _choose_centres(
        diagonal, lambda a, b: whole.covariance(X[a], X[b]), most, noise
    )
    return GroupedMap(kernel, scales, places, X[chosen], lower, slopes, ranks)


def evenly_apart(width: float, X: Array) -> tuple[Scales, GroupPlaces]:
    """The same length along every input of rows X: (n, d + 1), and all groups equally far apart:
    as where every group is an input of its own, 1 in its rows and 0 in others, of unit variance.
    """
    d, numbers = X.shape[1] - 1, np.unique(X[:, -1]).astype(np.int64)
    K = len(numbers)
    length = width * math.sqrt(median_distance(X[:, :-1]) ** 2 + 2.0 * K)
    alone = np.full(K, K / length**2)
    share = K / (d + K)
    even = Scales(np.full(d, length), 1.0, math.sqrt(1.0 - share), 0.01, math.sqrt(share))
    return even, GroupPlaces(numbers, np.zeros((K, 2)), alone)


def median_distance(X: Array, most: int = 500) -> float:
    """Median distance between different rows of X: (n, d), of the first `most`; 1 if all agree.
    Of rows in a few spots it is not less than SPOTS times the largest.
    """
    apart = squared_distances(X[:most], X[:most])
    above = apart[np.triu_indices(len(apart), 1)]
    above = above[above > 1e-20]
    if not above.size:
        return 1.0
    return float(np.sqrt(max(np.median(above), SPOTS**2 * above.max())))


# -- rows to learn from ------------------------------------------------------------------------
def some_rows(seed: int, n: int, most: int, name: str = "pilot") -> Array:
    """Numbers of at most `most` of n rows, in order: always the same for a seed and a name."""
    if n <= most:
        return np.arange(n)
    return np.sort(drawn_rows(seed, n, name)[:most])


def drawn_rows(seed: int, n: int, name: str) -> Array:
    """Numbers of n rows as they are drawn."""
    return np.asarray(np.argsort(random_numbers.uniforms(seed, (name, n), n)))
