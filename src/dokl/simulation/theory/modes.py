"""The leading eigenmodes of R_zz, and the features on them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dokl.base.arrays import Array
from dokl.base.errors import BadInput
from dokl.base.random_numbers import draw_recipe, normal_quantile, uniforms
from dokl.learning.features import AnyMap
from dokl.simulation.theory.inputs import InputLaw
from dokl.simulation.theory.moments import autocorrelation, feature_rows, product, trace

# Up to here R_zz is formed and decomposed; above, only products with it are taken.
DENSE_UP_TO = 1000
PASSES = 3
EXTRA = 24  # directions beyond those wanted
PROBES = 8


@dataclass(frozen=True)
class Modes:
    """R v_i = l_i v_i. values: (r,) falling; vectors: (D, r); trace = tr R = E|z|^2.

    `tail_square` is the sum of l_i^2 over the modes left out: with `tail`, the sum of l_i, it
    says how many of them count.
    """

    values: Array
    vectors: Array
    trace: float
    tail_square: float

    @property
    def r(self) -> int:
        """How many modes."""
        return int(self.values.size)

    @property
    def tail(self) -> float:
        """E|z|^2 outside the modes."""
        return max(0.0, self.trace - float(self.values.sum())) if self.tail_square > 0 else 0.0

    def first(self, r: int) -> Modes:
        """Only the r leading ones."""
        left = float((self.values[r:] ** 2).sum())
        return Modes(self.values[:r], self.vectors[:, :r], self.trace, self.tail_square + left)


def leading_modes(
    features: AnyMap, inputs: InputLaw, r: int | None = None, tail: float = 1e-4
) -> Modes:
    """The r leading modes; without r, as many as leave at most `tail` of E|z|^2 outside.

    Above D = 1000 by subspace iteration: a few dozen directions more than wanted, three products
    with R_zz, which is never formed (Halko, Martinsson and Tropp 2011). Memory is D times the
    number of directions, plus 16 MiB scratch arrays; D = 10,000 takes some 10 seconds.
    """
    if r is not None and not 1 <= r <= features.D:
        raise BadInput(f"r must be from 1 to D = {features.D}, got {r!r}")
    if features.D <= DENSE_UP_TO:
        return _cut(_dense(features, inputs), r, tail)
    k, V = (r or 40) + EXTRA, np.empty((features.D, 0))
    while True:
        k = min(k, features.D)
        found, V = _iterate(features, inputs, k, V)
        wanted = found.r - EXTRA
        enough = r is not None or found.first(wanted).tail <= tail * found.trace
        if enough or k == features.D:
            return _cut(found, r, tail)
        k *= 2


def _cut(modes: Modes, r: int | None, tail: float) -> Modes:
    if r is None:
        outside = modes.trace - np.cumsum(modes.values)
        small = np.flatnonzero(outside <= tail * modes.trace)
        r = int(small[0]) + 1 if small.size else modes.r
    return modes.first(r)


def _dense(features: AnyMap, inputs: InputLaw) -> Modes:
    R = autocorrelation(features, inputs)
    values, vectors = np.linalg.eigh((R + R.T) / 2)
    values = np.maximum(values[::-1], 0)
    return Modes(values, _fix_signs(vectors[:, ::-1]), float(values.sum()), 0.0)


def _iterate(features: AnyMap, inputs: InputLaw, k: int, V: Array) -> tuple[Modes, Array]:
    """Subspace iteration from the directions V and fresh ones up to k."""
    fresh = uniforms(0, ("modes", V.shape[1]), (features.D, k - V.shape[1]))
    Q = np.linalg.qr(np.hstack([V, normal_quantile(fresh)]))[0]
    for _ in range(PASSES - 1):
        Q = np.linalg.qr(product(features, inputs, Q))[0]
    probes = normal_quantile(uniforms(0, "probes", (features.D, PROBES)))
    RQ = product(features, inputs, np.hstack([Q, probes]))
    small = Q.T @ RQ[:, :k]
    values, turn = np.linalg.eigh((small + small.T) / 2)
    outside = RQ[:, k:] - Q @ (Q.T @ RQ[:, k:])
    tail_square = float((outside**2).sum() / PROBES)
    vectors = _fix_signs(Q @ turn[:, ::-1])
    values = np.maximum(values[::-1], 0)
    return Modes(values, vectors, trace(features, inputs), tail_square), vectors


def _fix_signs(vectors: Array) -> Array:
    """The largest entry of every vector positive: eigenvectors leave their sign open."""
    largest = np.abs(vectors).argmax(axis=0)
    signs = np.where(vectors[largest, np.arange(vectors.shape[1])] < 0, -1.0, 1.0)
    return np.ascontiguousarray(vectors * signs)


@dataclass(frozen=True)
class Basis:
    """The modes and phi = V'z turn on the points of the inputs: phi (S, r), weight (S,).

    Expectations of products of four phi are sums over these points. `turn` (r, r) makes
    E phi phi' = diag(l) exact on them; it is close to the identity, and is it for sampled inputs.
    """

    modes: Modes
    phi: Array
    weight: Array
    turn: Array

    @cached_property
    def values(self) -> Array:
        """l: (r,)."""
        return self.modes.values

    def fourth(self, B: Array, extra: Array | float = 0.0) -> Array:
        """E[(phi'B phi + extra(x)) phi phi'], extra: (S,) or a number."""
        v = np.einsum("si,si->s", self.phi @ B, self.phi) + extra
        return np.asarray((self.phi * (self.weight * v)[:, None]).T @ self.phi)


def basis(features: AnyMap, inputs: InputLaw, modes: Modes | None = None) -> Basis:
    """Modes (by default the leading ones) and the features on them.

    Modes from a closed form meet points that know E phi phi' = diag(l) only to quadrature error;
    the smallest linear map that repairs it is `turn`.
    """
    modes = modes or leading_modes(features, inputs)
    kept = modes.first(int((modes.values > 1e-12 * modes.values[0]).sum()))
    phi = np.concatenate([Z @ kept.vectors for Z, _ in feature_rows(features, inputs)])
    turn = np.eye(kept.r)
    if inputs.gaussian:
        turn = _repair(phi, inputs.weight, np.sqrt(kept.values))
        phi = phi @ turn
    return Basis(kept, phi, inputs.weight, turn)


def _repair(phi: Array, weight: Array, root: Array) -> Array:
    """T near the identity with E[T'phi phi'T] = diag(root^2), by the inverse square root."""
    white = phi / root
    size, axes = np.linalg.eigh((white * weight[:, None]).T @ white)
    if size[0] < 1e-3:
        raise BadInput(
            f"{len(phi)} points cannot separate {len(root)} modes: give gaussian_inputs more "
            "points, or take fewer modes"
        )
    return np.asarray((axes / np.sqrt(size)) @ axes.T * root / root[:, None])


@dataclass(frozen=True)
class ModalFeatures:
    """A recipe of projected features: draw the map, find its modes, project on r of them."""

    features: Any
    inputs: InputLaw
    r: int | None = None
    tail: float = 1e-4

    def draw(self, seed: int) -> Any:
        """The projected map of this seed."""
        drawn = draw_recipe(self.features, seed)
        modes = leading_modes(drawn, self.inputs, self.r, self.tail)
        return drawn.project(modes.vectors)
