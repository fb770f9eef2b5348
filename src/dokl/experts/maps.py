"""Features of a learned kernel that are nested: the first D of them are the best D-dimensional ones
found on the rows at hand.

    z = [1, b x/sqrt(d), a L^-1 k(U, x)],   k(U, U) = L L'

U are rows chosen one by one, each where those before it explain the least (pivoted Cholesky), so
z z' is the kernel itself on U and its best guess elsewhere (Nystrom). A narrow expert takes the
first numbers of z, a wide one all of them, and one matrix product serves both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dokl import random_numbers, unlocked
from dokl.arrays import Array
from dokl.scales import Scales, correlation, squared_distances

# Where no row is left that the chosen ones do not explain to this share, choosing ends.
EXPLAINED = 1e-5


@dataclass(frozen=True)
class NestedMap:
    """kernel: its name; centres: (M, d) standardised rows over their lengths; lower: L (M, M),
    in Fortran's order.
    """

    kernel: str
    scales: Scales
    centres: Array
    lower: Array

    @property
    def D(self) -> int:
        """Numbers in z."""
        return 1 + int(self.centres.shape[1]) + len(self.centres)

    def width(self, most: int | None) -> int:
        """Numbers of z that an expert with at most so many centres uses."""
        M = len(self.centres)
        return 1 + int(self.centres.shape[1]) + (M if most is None else min(M, most))

    def transform(self, X: Array, D: int | None = None) -> Array:
        """Standardised rows X: (n, d) -> z: (n, D), or the first D numbers of it."""
        d, s = X.shape[1], self.scales
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
def nested_map(kernel: str, scales: Scales, X: Array, most: int) -> NestedMap:
    """The map with centres among standardised rows X: (n, d), at most so many of them."""
    U = X / scales.lengths
    n, M = len(U), min(most, len(U))
    norms = np.einsum("ij,ij->i", U, U)
    R, left, chosen = np.zeros((n, M), order="F"), np.ones(n), list[int]()
    for j in range(M):
        i = int(np.argmax(left))
        if left[i] < EXPLAINED:
            break
        chosen.append(i)
        column = correlation(kernel, np.maximum(norms + norms[i] - 2.0 * (U @ U[i]), 0.0))
        column -= R[:, :j] @ R[i, :j]
        R[:, j] = column / math.sqrt(left[i])
        left -= R[:, j] ** 2
        left[i] = -1.0
    lower = np.tril(R[chosen][:, : len(chosen)])
    return NestedMap(kernel, scales, U[chosen], np.asfortranarray(lower))


def median_distance(X: Array, most: int = 500) -> float:
    """Median distance between different rows of X: (n, d), of the first `most`; 1 if all agree."""
    apart = squared_distances(X[:most], X[:most])
    above = apart[np.triu_indices(len(apart), 1)]
    above = above[above > 1e-20]
    return float(np.sqrt(np.median(above))) if above.size else 1.0


# -- rows to learn from ------------------------------------------------------------------------
def some_rows(seed: int, n: int, most: int, name: str = "pilot") -> Array:
    """Numbers of at most so many of n rows, in order: always the same for a seed and a name."""
    if n <= most:
        return np.arange(n)
    return np.sort(drawn_rows(seed, n, name)[:most])


def drawn_rows(seed: int, n: int, name: str) -> Array:
    """Numbers of n rows as they are drawn."""
    return np.asarray(np.argsort(random_numbers.uniforms(seed, (name, n), n)))
