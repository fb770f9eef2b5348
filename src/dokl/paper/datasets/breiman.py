"""Breiman's waveforms, drawn afresh: an endless supply of the Waveform data.

    x_i = u h_a(i) + (1 - u) h_b(i) + N(0, 1),  i = 1..21,  u ~ U(0, 1)

with one of three pairs (a, b) of triangular waves for each class: h_1(i) = max(6 - |i - 11|, 0),
h_2(i) = h_1(i - 4), h_3(i) = h_1(i + 4). L. Breiman, J. Friedman, R. Olshen and C. Stone,
Classification and Regression Trees, 1984, section 2.6.2. The best possible error is 14 % for
three classes.
"""

from __future__ import annotations

import numpy as np

from dokl.base.arrays import Array, check_whole
from dokl.base.random_numbers import generator

PAIRS = ((1, 2), (0, 2), (0, 1))  # waves of the classes 0, 1 and 2 as UCI numbers them


def waves() -> Array:
    """The three triangles: (3, 21).

    >>> waves()[0].astype(int)
    array([0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 5, 4, 3, 2, 1, 0, 0, 0, 0, 0])
    """
    peaks = np.array([11, 15, 7])[:, None]
    return np.asarray(np.maximum(6.0 - np.abs(np.arange(1, 22) - peaks), 0))


def waveform(n: int, seed: int = 0) -> tuple[Array, Array]:
    """n samples X: (n, 21) and their classes 0, 1, 2 as whole numbers: (n,), equally likely.

    >>> X, labels = waveform(1000, seed=1)
    >>> X.shape, bool(np.bincount(labels).min() > 280)
    ((1000, 21), True)
    """
    check_whole("n", n)
    rng = generator(seed, "waveform")
    labels = rng.integers(3, size=n)
    first, second = waves()[np.array(PAIRS)[labels].T]
    u = rng.random((n, 1))
    return u * first + (1 - u) * second + rng.standard_normal((n, 21)), labels
