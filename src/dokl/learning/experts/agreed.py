"""A learned map that nodes agree on: from raw inputs to features, by a pilot of first rows."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dokl.base.arrays import Array, check_rows
from dokl.learning import answers, scales
from dokl.learning.experts.bending import Bending, bending_of
from dokl.learning.experts.maps import NestedMap, nested_map, some_rows
from dokl.learning.experts.scaling import Scaling, scaling_of, tamed

# A map's centres are chosen among so many times as many rows.
CANDIDATES = 4
LEAST_RIDGE = 1e-4
# Fewer rows say nothing about length scales.
FEW = 30


@dataclass(frozen=True, eq=False)
class AgreedMap:
    """Raw rows to features: the scaling and bending of inputs, and a nested map; targets: how
    targets are brought to unit size for whoever learns on it; offsets: (K, m), what each node's
    targets are above the others', in that unit, which is taken from them before they are learned.
    """

    inputs: Bending
    nested: NestedMap
    targets: Scaling
    offsets: Array
    paired = False  # |z| is not fixed

    @property
    def d(self) -> int:
        """Number of inputs."""
        return len(self.inputs.centre)

    @property
    def D(self) -> int:
        """Number of features."""
        return self.nested.D

    @property
    def sup_norm2(self) -> float:
        """A bound on |z|^2; inputs are cut off at 5 standard deviations."""
        own = self.nested.scales
        return 1.0 + 25.0 * float(np.mean(self._linear**2)) + own.amplitude**2

    @property
    def _linear(self) -> Array:
        return np.broadcast_to(np.asarray(self.nested.scales.linear, np.float64), self.d)

    @property
    def ridge(self) -> float:
        """The variance of the noise that the pilot found."""
        return max(self.nested.scales.noise, LEAST_RIDGE)

    @cached_property
    def fingerprint(self) -> str:
        """16 hexadecimal digits, of every bit; equal for maps whose sums may be added."""
        own, digest = self.nested.scales, hashlib.sha256(self.nested.kernel.encode())
        numbers = np.array([own.amplitude, own.noise])
        arrays = [*vars(self.inputs).values(), self.targets.centre, self.targets.size]
        arrays += [self.offsets] if self.offsets.any() else []
        for array in (*arrays, own.lengths, self._linear, numbers, self.nested.centres):
            digest.update(np.ascontiguousarray(array, "<f8").tobytes())
        return digest.hexdigest()[:16]

    def transform(self, X: Any) -> Array:
        """X: (n, d) -> z: (n, D)."""
        rows = check_rows(np.asarray(X, np.float64), self.d)
        return self.nested.transform(self.inputs.clipped(rows))

    def inward(self, Y: Array, owner: Array) -> Array:
        """Targets (n, m) of these nodes (n,) as they are learned."""
        return self.targets.inward(Y) - self.offsets[owner]

    def outward(self, F: Array, owner: Array) -> Array:
        """What these nodes, (n,), say of rows, (n, m), in the targets' own units."""
        return self.targets.outward(F + self.offsets[owner])


def agreed_map(
    X: Array, Y: Array, weight: Array, most: int, seed: int, owner: Array, K: int, classes: int = 0
) -> AgreedMap:
    """Scalings, length scales and centres by rows X: (n, d), Y: (n, m) of nodes (n,), K in all,
    with at most so many features; classes: how many there are, 0 where targets are numbers.
    """
    Y = tamed(Y)
    inputs, targets = bending_of(X, weight), scaling_of(Y, weight)
    if classes:  # -1 and 1 have their size
        targets = Scaling(np.zeros(Y.shape[1]), np.ones(Y.shape[1]))
    rows = inputs.clipped(X)
    some, offsets = some_rows(seed, len(rows), scales.MOST), np.zeros((K, Y.shape[1]))
    if len(some) < FEW:
        found = scales.isotropic(np.sqrt(X.shape[1]), X.shape[1])
    elif classes:
        found = scales.learn_class_scales(rows[some], answers.class_numbers(Y[some]), classes)
    else:
        given = rows[some], targets.inward(Y)[some]
        groups = owner[some] if K > 1 else None
        found = scales.learn_scales(*given, slopes=True, groups=groups)
        if groups is not None:
            offsets = scales.group_offsets(found, *given, groups, K)
    centres = max(1, most - 1 - X.shape[1])
    among = rows[some_rows(seed, len(rows), CANDIDATES * centres)]
    return AgreedMap(inputs, nested_map("gaussian", found, among, centres), targets, offsets)
