"""Least squares in blocks of B rows: what `rows` computes one by one, to rounding, at the speed of
matrix products.

With i, j = 1..B inside the block, k = min(i, j) - 1, G = P Z' (D x B), r_i = lam^((i-1)/2):

    S_ij  = lam^(|i-j|/2) (lam^k (Z G)_ij + (1 - lam^k)/rho (Z Z')_ij) + delta_ij/w_i     S = C C'
    u     = C^-1 (y - r (Z theta));   a-priori f = r (Z theta) + (C - diag(C)) u
    q     = diag(S) - diag(1/w) - squares of C beside its diagonal: z'Pz before each row
    H_i   = lam^((B-i+1)/2) (lam^(i-1) G_i + (1 - lam^(i-1))/rho z_i);   W = H C^-T
    theta <- lam^(B/2) theta + W u;   P <- lam^B P + (1 - lam^B)/rho I - W W'

so LIST rows cost one symm, one trsm and one syrk on one triangle of P. A weight that is bounded by
the innovation of its own row changes C from that row on, and only then is C computed again. f and q
are no differences from y or 1/w: those of a wild target are so large that nothing would be left.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from dokl.base import unlocked
from dokl.base.arrays import Array
from dokl.learning.squares.memory import LEAST_NOISE, LIST, Memory, Numbers, fold, listed


class NotDefinite(Exception):
    """P has lost its definiteness to rounding, and must be made again from sums or rows."""


@dataclass(frozen=True)
class Found:
    """Predictions of rows before they were learned. f: (n, m) predictions; q: (n,) z'Pz; noise: (n,
    m) the noise variance; weight: (n,) as bounded.
    """

    f: Array
    q: Array
    noise: Array
    weight: Array


@dataclass(frozen=True)
class _Powers:
    """Powers of lam for a block of B rows."""

    old: Array  # (B, B) what P counts in S
    prior: Array  # (B, B) what the prior counts in S
    r: Array  # (B,)
    left: Array  # (B,) of G in H
    fresh: Array  # (B,) of z in H
    decay: Array  # (B,) what a row's noise counts at the end


@lru_cache(maxsize=1024)
def _powers(B: int, lam: float, rho: float) -> _Powers:
    i = np.arange(B)
    apart, k = np.abs(i[:, None] - i), np.minimum(i[:, None], i)
    outer, gone = lam ** (apart / 2.0), lam ** k.astype(float)
    to_end, before = lam ** ((B - i) / 2.0), lam ** i.astype(float)
    return _Powers(
        outer * gone,
        outer * (1.0 - gone) / rho,
        lam ** (i / 2.0),
        to_end * before,
        to_end * (1.0 - before) / rho,
        lam ** (B - 1.0 - i),
    )


def learn(
    numbers: Numbers, memory: Memory, Z: Array, Y: Array, weight: Array | None = None
) -> tuple[Memory, Found]:
    """Learn rows Z: (n, D), Y: (n, m) of positive weight: (n,), block by block.

    Raises NotDefinite. The memory that was given stays as it was.
    """
    found, start, own = [], 0, False
    while start < len(Z):
        room = LIST - memory.n
        rows = slice(start, min(len(Z), start + room))
        memory, prediction = _block(
            numbers, memory, Z[rows], Y[rows], None if weight is None else weight[rows]
        )
        if memory.n == LIST:  # what the first one wrote is nobody else's yet
            memory, own = fold(memory, own), True
        found.append(prediction)
        start = rows.stop
    if len(found) == 1:
        return memory, found[0]
    parts = [(t.f, t.q, t.noise, t.weight) for t in found] or [_nothing(Y)]
    return memory, Found(*map(np.concatenate, zip(*parts, strict=True)))


def _nothing(Y: Array) -> tuple[Array, Array, Array, Array]:
    return np.empty((0, Y.shape[1])), np.empty(0), np.empty((0, Y.shape[1])), np.empty(0)


def _block(
    numbers: Numbers, memory: Memory, Z: Array, Y: Array, weight: Array | None
) -> tuple[Memory, Found]:
    """Rows that fit on the list."""
    if len(Z) == 1:
        return _one(numbers, memory, Z, Y, 1.0 if weight is None else float(weight[0]))
    B, lam, rho = len(Z), numbers.lam, numbers.rho
    G = memory.times(Z)
    S, start, H = Z @ G, Z @ memory.theta.T, G
    by = _powers(B, lam, rho) if lam < 1.0 else None
    if by is not None:
        S = by.old * S + by.prior * (Z @ Z.T)
        start *= by.r[:, None]
        H = G * by.left + Z.T * by.fresh
    C, beside, u, q, noise, w, jolt = _innovations(numbers, memory, S, Y - start, weight)
    found = Found(start + beside @ u, q, noise, w)
    H = np.asfortranarray(H)
    unlocked.trsm_right(C, H)
    W = H.T
    gone, decay = lam**B, np.ones(B) if by is None else by.decay
    theta = math.sqrt(gone) * memory.theta + u.T @ W
    rows, c, n = listed(memory, W)
    c[: memory.n] *= math.sqrt(gone)
    covariance = gone * memory.a, gone * memory.b + (1.0 - gone) / rho
    given = np.ones(B) if weight is None else weight
    num, den = gone * memory.num + decay @ jolt, float(gone * memory.den + decay @ given)
    return Memory(theta, memory.P, *covariance, rows, c, n, num, den), found


def _one(numbers: Numbers, memory: Memory, Z: Array, Y: Array, w: float) -> tuple[Memory, Found]:
    """A block of one row, without the factorisation that one number does not need."""
    z, lam, n = Z[0], numbers.lam, memory.n
    g = memory.times(Z)[:, 0]
    q, f, noise = float(z @ g), memory.theta @ z, memory.noise
    error = Y[0] - f
    plain = 1.0 / w + q
    size = math.sqrt(float(error @ (error / noise)) / (len(error) * plain))
    wild = size > numbers.bound * math.sqrt(max(w, 1.0))
    short = numbers.bound / size if wild else 1.0
    s = plain / short
    theta = memory.theta + (error / s)[:, None] * g
    memory.W[n] = g
    c = memory.c.copy()
    c[n] = 1.0 / math.sqrt(s)
    covariance = memory.a, memory.b
    if lam < 1.0:
        theta *= math.sqrt(lam)
        c[: n + 1] *= math.sqrt(lam)
        covariance = lam * memory.a, lam * memory.b + (1.0 - lam) / numbers.rho
    calm = min(1.0, numbers.calm * math.sqrt(max(w, 1.0)) / max(size, 1e-300))
    num, den = lam * memory.num + (calm * error) ** 2 / plain, lam * memory.den + w
    found = Found(f[None], np.array([q]), noise[None], np.array([1.0 / (s - q)]))
    return Memory(theta, memory.P, *covariance, memory.W, c, n + 1, num, den), found


def _innovations(
    numbers: Numbers, memory: Memory, S: Array, apart: Array, weight: Array | None
) -> tuple[Array, Array, Array, Array, Array, Array, Array]:
    """C with S + diag(1/w) = C C', C without its diagonal, u = C^-1 apart: (B, m), q, noise, w as
    it was bounded, and what each row adds to the noise: (B, m).
    """
    from scipy.linalg import lapack
    from scipy.linalg.blas import dtrsm

    given = np.ones(len(S)) if weight is None else np.asarray(weight, np.float64)
    w, settled, diagonal = given, 0, S.diagonal()
    for _ in range(len(S) + 1):
        lower = np.array(S, order="F")
        lower.T.flat[:: len(S) + 1] += 1.0 / w
        C, info = lapack.dpotrf(lower, lower=1, clean=1, overwrite_a=1)
        if info:
            raise NotDefinite
        u = dtrsm(1.0, C, apart, lower=1)
        own = C.diagonal()[:, None].copy()
        beside = C.copy(order="K")
        beside.T.flat[:: len(S) + 1] = 0.0
        q = diagonal - np.einsum("ij,ij->i", beside, beside)
        error = own * u
        plain = 1.0 / given + q
        jolt, noise = _bound_noise(numbers, memory, error * error / plain[:, None], given)
        wanted = bound_weights(numbers.bound, given, q, error, noise)
        off = np.flatnonzero(np.abs(wanted - w)[settled:] > 1e-13 * given[settled:])
        if not off.size:
            break
        # Rows before it stay as they are; what follows depends on it.
        at = settled + int(off[0])
        w, settled = np.where(np.arange(len(w)) == at, wanted, w), at + 1
    return C, beside, u, q, noise, w, jolt


def _bound_noise(numbers: Numbers, memory: Memory, squared: Array, w: Array) -> tuple[Array, Array]:
    """What each row adds to the noise, of squared innovations (B, m), and the noise before each.

    A bounded row changes what is wild after it: each round settles one more of them for good, so
    as many rounds as rows are enough.
    """
    jolt, most = squared, numbers.calm**2 * np.maximum(w, 1.0)
    even = np.full(squared.shape[1], 1.0 / squared.shape[1])
    for _ in range(len(w) + 1):
        noise = _noise_before(numbers.lam, memory, jolt, w)
        size = (squared / noise) @ even
        if (size <= most).all():
            return squared, noise
        wanted = squared * np.minimum(1.0, most / np.maximum(size, most))[:, None]
        if (np.abs(wanted - jolt) <= 1e-14 * squared).all():
            break
        jolt = wanted
    return wanted, noise


def _noise_before(lam: float, memory: Memory, jolt: Array, w: Array) -> Array:
    """The noise variance (B, m) before each row."""
    num, den = np.vstack([memory.num, jolt[:-1]]), np.concatenate([[memory.den], w[:-1]])
    if lam == 1.0:
        found = np.cumsum(num, axis=0) / np.cumsum(den)[:, None]
        return np.asarray(np.maximum(found, LEAST_NOISE))
    before = _before(len(w), lam)
    return np.asarray(np.maximum((before @ num) / (before @ den)[:, None], LEAST_NOISE))


@lru_cache(maxsize=1024)
def _before(B: int, lam: float) -> Array:
    """What each row counts before each other one: (B, B), lam^(i-j) for j <= i."""
    apart = np.subtract.outer(np.arange(B), np.arange(B))
    return np.where(apart >= 0, lam ** np.maximum(apart, 0.0), 0.0)


def bound_weights(bound: float, given: Array, q: Array, error: Array, noise: Array) -> Array:
    """Weights (B,) once the innovations (B, m) are seen: a wild one pulls exactly like one of
    `bound` standard deviations. A weight in that proportion would not do: where z'Pz is large, as
    in short memories, it would still pull z'Pz times as much.
    """
    if bound == math.inf:
        return given
    s = 1.0 / given + q
    squared = np.mean(error * error / noise, axis=1) / s
    size = np.sqrt(np.maximum(squared, bound**2))
    return np.where(wild(bound, squared, given), 1.0 / (s * size / bound - q), given)


def wild(bound: float, squared: Array, weight: Array) -> Array:
    """Which rows are wild: (n,), by squares of their innovations in standard deviations. A row that
    counts as w > 1 errs like one row, and its standard deviation is that of the mean of all w.
    """
    return np.asarray(squared > bound**2 * np.maximum(weight, 1.0))
