"""What a node adds to the network's prediction: short memories of the errors on its own rows.

The network's bank learns from everybody. Where it errs at one node in the same direction for a
while (a station that drifts, an hour that differs), the node learns that error by least squares on
a constant and on its inputs, with memories from ten rows on, and mixes these experts with "no
correction" by what each gains (`dokl.learning.mixture`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dokl.base.arrays import Array
from dokl.learning import mixture as mixing
from dokl.learning.experts.scaling import Scaling
from dokl.learning.mixture import Mixture
from dokl.learning.squares import blocks
from dokl.learning.squares import memory as memories
from dokl.learning.squares.blocks import NotDefinite
from dokl.learning.squares.memory import Memory, Numbers

# (memory in rows, whether it uses the inputs or a constant alone)
EXPERTS = ((10, False), (100, False), (100, True), (1000, True))
# An error is as likely a constant as it is noise, to begin with.
RIDGE = 1.0


@dataclass(frozen=True)
class Corrections:
    """inputs: how rows are standardised; size: (m,), of targets; experts' memories; mixture: of "no
    correction" and the experts, in this order.
    """

    inputs: Scaling
    size: Array
    memories: tuple[Memory, ...]
    mixture: Mixture


def start(inputs: Scaling, size: Array) -> Corrections:
    """Nothing learned. inputs: of d columns; size: (m,)."""
    d, m = len(inputs.centre), len(size)
    known = tuple(memories.start(1 + d * wide, m, RIDGE) for _, wide in EXPERTS)
    return Corrections(inputs, size, known, mixing.start(1 + len(known)))


def features(corrections: Corrections, X: Array) -> Array:
    """Rows X: (n, d) -> z: (n, 1 + d)."""
    rows = corrections.inputs.clipped(X)
    return np.hstack([np.ones((len(X), 1)), rows / np.sqrt(max(1, rows.shape[1]))])


def learn(
    corrections: Corrections, X: Array, Y: Array, f: Array, variance: Array, weight: Array | None,
    bound: float,
) -> tuple[Corrections, Array, Array]:  # fmt: skip
    """Rows X: (n, d), Y: (n, m), which the network predicted as f with variance: (n, m).

    Returns means and variances (n, m) with the correction that each row had before it was learned.
    """
    Z, error = features(corrections, X), (Y - f) / corrections.size
    F, V = [f], [variance]
    known = list(corrections.memories)
    for i, (rows, wide) in enumerate(EXPERTS):
        z = Z if wide else Z[:, :1]
        numbers = Numbers(RIDGE, 1.0 - 1.0 / rows, bound)
        try:
            known[i], found = blocks.learn(numbers, known[i], z, error, weight)
        except NotDefinite:  # rounding; a short memory loses little by beginning again
            known[i] = memories.start(z.shape[1], error.shape[1], RIDGE)
            known[i], found = blocks.learn(numbers, known[i], z, error, weight)
        F.append(f + found.f * corrections.size)
        V.append(found.noise * (1.0 + found.q)[:, None] * corrections.size**2)
    mixture, mean, spread = mixing.mixed(
        corrections.mixture, np.stack(F, axis=1), np.stack(V, axis=1), Y, np.ones(len(F), bool),
        weight, bound, relative=True,
    )  # fmt: skip
    return replace(corrections, memories=tuple(known), mixture=mixture), mean, spread


def predict(corrections: Corrections, X: Array, f: Array, variance: Array) -> tuple[Array, Array]:
    """Means and variances (n, m) of rows X: (n, d) with their correction."""
    Z, size = features(corrections, X), corrections.size
    F, V = [f], [variance]
    for (_, wide), memory in zip(EXPERTS, corrections.memories, strict=True):
        z = Z if wide else Z[:, :1]
        error, spread = memory.predict(z)
        F.append(f + error * size)
        V.append(spread * size**2)
    weights = corrections.mixture.weights(np.ones(len(F), bool))
    return mixing.combine(weights, np.stack(F, axis=1), np.stack(V, axis=1))
