"""Sums of Gaussian kernels that grow, f = sum_i alpha_i kappa(., c_i): the compiled parts.

What makes them fast, as measured:
- Inputs are scaled once so that kappa = 2^-|x - c|^2: no factor is left inside the loop.
- Centres lie in blocks (blocks, d, BLOCK), so one load takes many centres' same coordinate and
  LLVM vectorises over centres. Up to EIGHT coordinates are unrolled and fused with power,
  coefficient and sum, without a store; more of them are gathered before, four at a time.
- 2^t is a polynomial and an addition to the exponent's bits, so it vectorises, too.
- The smallest distance is a minimum of integers, which vectorises; a float's minimum does not.
  The bits of non-negative floats are ordered as they are. Only the block that holds the nearest
  centre is searched for its number.
- Room beyond the last centre is filled with far ones of coefficient 0, LANES at a time: no tails.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
from numba import njit, types
from numba.extending import intrinsic

from dokl.base.arrays import Array, check_rows, is_sparse
from dokl.base.errors import BadInput
from dokl.base.machine_code import cached_njit
from dokl.learning.kernels import Gaussian, Kernel
from dokl.paper.baselines.runs import BaselineLearner, Samples

F = TypeVar("F", bound=Callable[..., Any])

BLOCK, LANES, EIGHT = 256, 32, 8
FAR = 1e18  # its square is finite in float32

# Reassociation and contraction only: NaN and infinity must stay visible to the checks.
FAST = {"reassoc", "contract", "arcp", "nsz"}


def inner(function: F) -> F:
    """Compiled as a part of others."""
    return cast(F, njit(fastmath=FAST, nogil=True, error_model="numpy")(function))


def exactly(function: F) -> F:
    """Compiled as a part of others, the order of additions kept."""
    return cast(F, njit(fastmath={"contract"}, nogil=True, error_model="numpy")(function))


def growing_njit(function: F) -> F:
    """Compiled, kept on disk, run without Python's lock."""
    options = {"fastmath": FAST, "nogil": True, "error_model": "numpy"}
    return cached_njit("paper/baselines/growing.py", **options)(function)


class Powers(NamedTuple):
    """2^t in one precision: a number that rounds to integers when added, the lowest t, one and a
    few roundings, and the coefficients of 2^f on |f| <= 1/2.
    """

    magic: Any
    lowest: Any
    slack: Any
    coefficients: tuple[Any, ...]


# Interpolation at Chebyshev points, error 2.5e-9: float32. The other is Taylor's series to degree
# 13, error under 1e-16: float64.
POLY32 = (
    1,
    0.6931472067,
    0.2402265092,
    0.05550327227,
    0.009618056678,
    0.001340042818,
    0.0001546144472,
)
POLY64 = tuple(math.log(2) ** k / math.factorial(k) for k in range(14))


def _powers(dtype: Any, coefficients: tuple[float, ...]) -> Powers:
    info = np.finfo(dtype)
    magic, lowest = 1.5 * 2.0**info.nmant, float(info.minexp + 1)
    slack = 1 + 8 * info.eps
    powers = dtype(magic), dtype(lowest), dtype(slack)
    return Powers(*powers, tuple(dtype(c) for c in coefficients))


POWERS = {np.float32: _powers(np.float32, POLY32), np.float64: _powers(np.float64, POLY64)}

_intrinsic: Callable[[F], Any] = intrinsic
_BITS: Any = {types.float32: types.int32, types.float64: types.int64}
_FLOAT: Any = {types.int32: types.float32, types.int64: types.float64}


@_intrinsic
def ordered_bits(typing: Any, x: Any) -> Any:
    """The bits of a non-negative float, as an integer: ordered as the floats are."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], context.get_value_type(_BITS[x]))

    return _BITS[x](x), generate


@_intrinsic
def from_ordered_bits(typing: Any, x: Any) -> Any:
    """The float of these bits."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], context.get_value_type(_FLOAT[x]))

    return _FLOAT[x](x), generate


@_intrinsic
def scaled(typing: Any, p: Any, shifted: Any) -> Any:
    """p * 2^k, where `shifted` is magic + k: k from the last bits of one to the exponent of p."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        integer = context.get_value_type(_BITS[p])
        digits = context.get_constant(_BITS[p], 23 if p == types.float32 else 52)
        k = builder.shl(builder.bitcast(args[1], integer), digits)
        return builder.bitcast(builder.add(builder.bitcast(args[0], integer), k), args[0].type)

    return p(p, shifted), generate


@exactly
def power(t: Any, powers: Powers) -> Any:
    """2^t for t <= 0; beyond the smallest numbers it stays there."""
    t = max(t, powers.lowest)
    shifted = t + powers.magic
    f = t - (shifted - powers.magic)
    a = powers.coefficients
    p = a[len(a) - 1]
    for i in range(2, len(a) + 1):
        p = a[len(a) - i] + f * p
    return scaled(p, shifted)


class Shape(NamedTuple):
    """How many coordinates are fused, and whether others come before: lengths of tuples, so that
    they are constants to the compiler.
    """

    fused: tuple[int, ...]
    before: tuple[int, ...]


def shape_of(d: int) -> Shape:
    """All d coordinates up to eight; beyond, five to eight of them after groups of four."""
    fused = d if d <= EIGHT else 5 + (d - 5) % 4
    return Shape((0,) * fused, (0,) * int(d > EIGHT))


@inner
def gather(near: Array, centres: Array, b: int, count: int, X: Array, r: int, stop: int) -> None:
    """near = squared distances of row r to a block's centres in the coordinates before `stop`."""
    for i in range(0, stop, 4):
        x0, x1, x2, x3 = X[r, i], X[r, i + 1], X[r, i + 2], X[r, i + 3]
        for j in range(count):
            u = (centres[b, i, j] - x0) ** 2 + (centres[b, i + 1, j] - x1) ** 2
            u += (centres[b, i + 2, j] - x2) ** 2 + (centres[b, i + 3, j] - x3) ** 2
            near[j] = u if i == 0 else near[j] + u


@inner
def distance(near: Array, centres: Array, b: int, j: int, X: Array, r: int, shape: Shape) -> Any:
    """Squared distance of row r to centre j of block b."""
    start = X.shape[1] - len(shape.fused)
    u = near[j] if len(shape.before) else X.dtype.type(0)
    for i in range(len(shape.fused)):
        u += (centres[b, start + i, j] - X[r, start + i]) ** 2
    return u


@inner
def blocks_of(M: int) -> int:
    """Blocks that hold M centres."""
    return (M + BLOCK - 1) // BLOCK


@inner
def count_of(M: int, b: int) -> int:
    """How many places of block b to look at, far centres among them."""
    return min(BLOCK, (M + LANES - 1) // LANES * LANES - b * BLOCK)


@inner
def evaluate(
    centres: Array, alpha: Array, k: int, M: int, X: Array, r: int,
    near: Array, shape: Shape, powers: Powers,
) -> Any:  # fmt: skip
    """sum_i alpha[k, i] kappa(x_r, c_i) over M centres."""
    total = X.dtype.type(0)
    before = X.shape[1] - len(shape.fused)
    for b in range(blocks_of(M)):
        count = count_of(M, b)
        if len(shape.before):
            gather(near, centres, b, count, X, r, before)
        for j in range(count):
            u = distance(near, centres, b, j, X, r, shape)
            total += alpha[k, b, j] * power(-u, powers)
    return total


@inner
def append(centres: Array, alpha: Array, k: int, M: int, X: Array, r: int, a: Any) -> int:
    """Row r becomes a centre with coefficient a in row k of alpha; returns the new number."""
    b, j = M // BLOCK, M % BLOCK
    if j % LANES == 0:
        for i in range(X.shape[1]):
            centres[b, i, j : j + LANES] = FAR
        for node in range(alpha.shape[0]):
            alpha[node, b, j : j + LANES] = 0
    for i in range(X.shape[1]):
        centres[b, i, j] = X[r, i]
    alpha[k, b, j] = a
    return M + 1


@growing_njit
def evaluate_rows(
    centres: Array, alpha: Array, k: int, M: int, X: Array,
    near: Array, shape: Shape, powers: Powers, out: Array,
) -> None:  # fmt: skip
    """out[r] = the sum at row r."""
    for r in range(X.shape[0]):
        out[r] = evaluate(centres, alpha, k, M, X, r, near, shape, powers)


def require_gaussian(kernel: Any) -> Gaussian:
    """The kernel, if it is Gaussian: the others are not compiled here."""
    if isinstance(kernel, Gaussian):
        return kernel
    name = kernel.name if isinstance(kernel, Kernel) else repr(kernel)
    raise BadInput(
        f"the growing sums are compiled for the Gaussian kernel only, got {name}: use "
        "kernels.Gaussian(sigma), or random features (dokl.run) for other kernels"
    )


def scale_of(kernel: Gaussian) -> float:
    """s with kappa(x - c) = 2^-|s x - s c|^2."""
    return float(np.sqrt(np.log2(np.e) / 2) / kernel.sigma)


def scaled_rows(X: Any, kernel: Gaussian, dtype: Any) -> Array:
    """Rows (N, d) as the loops take them, scaled, dense and writable."""
    X = X.toarray() if is_sparse(X) else np.asarray(X)
    return np.ascontiguousarray(X * scale_of(kernel), dtype=dtype)


@dataclass
class GrowingSums:
    """K growing sums over one list of centres. centres: (blocks, d, BLOCK), scaled;
    alpha: (K, blocks, BLOCK). They hold `size` centres; memory is touched as they grow.
    """

    kernel: Gaussian
    centres: Array
    alpha: Array
    size: int = 0

    @classmethod
    def empty(cls, kernel: Gaussian, d: int, K: int, most: int, dtype: Any) -> GrowingSums:
        """Room for `most` centres."""
        blocks = max(1, -(-most // BLOCK))
        centres = np.empty((blocks, d, BLOCK), dtype)
        return cls(kernel, centres, np.empty((K, blocks, BLOCK), dtype))

    @cached_property
    def tools(self) -> tuple[Array, Shape, Powers]:
        """What the loops need besides: scratch, shape and powers."""
        d, dtype = self.centres.shape[1], self.centres.dtype
        return np.zeros(BLOCK, dtype), shape_of(d), POWERS[dtype.type]

    def model(self, k: int = 0, factor: float = 1.0) -> KernelSum:
        """Sum k times a factor, to predict with."""
        d, M = self.centres.shape[1], self.size
        centres = self.centres[: -(-M // BLOCK)].transpose(0, 2, 1).reshape(-1, d)[:M]
        alpha = self.alpha[k].reshape(-1)[:M] * self.alpha.dtype.type(factor)
        return KernelSum(self.kernel, centres / scale_of(self.kernel), alpha)


@dataclass(frozen=True)
class KernelSum:
    """f = sum_i alpha_i kappa(., c_i), as learned. centres: (M, d), alpha: (M,).

    >>> f = KernelSum(Gaussian(1.0), np.array([[0.0], [1.0]]), np.array([2.0, 1.0]))
    >>> f.predict([[0.0], [100.0]]).round(4)
    array([2.6065, 0.    ])
    """

    kernel: Gaussian
    centres: Array
    alpha: Array

    def predict(self, X: Any) -> Array:
        """Values (N,) at rows X: (N, d)."""
        d, dtype = self.centres.shape[1], self.alpha.dtype.type
        rows = scaled_rows(check_rows(X, d), self.kernel, dtype)
        sums, out = self._blocks(dtype), np.empty(len(rows), dtype)
        evaluate_rows(sums.centres, sums.alpha, 0, sums.size, rows, *sums.tools, out)
        return out

    def _blocks(self, dtype: Any) -> GrowingSums:
        M, d = self.centres.shape
        blocks = max(1, -(-M // BLOCK))
        padded = np.full((blocks * BLOCK, d), FAR, dtype)
        padded[:M] = scaled_rows(self.centres, self.kernel, dtype)
        alpha = np.zeros((1, blocks * BLOCK), dtype)
        alpha[0, :M] = self.alpha
        centres = np.ascontiguousarray(padded.reshape(blocks, BLOCK, d).transpose(0, 2, 1))
        return GrowingSums(self.kernel, centres, alpha.reshape(1, blocks, BLOCK), M)


class Alone(BaselineLearner):
    """K dictionaries, moved on by a method's `sweep` with its `numbers`."""

    def __init__(
        self,
        samples: Samples,
        dtype: Any,
        kernel: Gaussian,
        sweep: Callable[..., int],
        numbers: tuple[Any, ...],
    ) -> None:
        super().__init__(samples, dtype)
        self.X = scaled_rows(samples.X, kernel, dtype)
        most = samples.present.sum(axis=0)
        self.sums = [GrowingSums.empty(kernel, samples.d, 1, int(m), dtype) for m in most]
        self.sweep, self.numbers = sweep, numbers
        self.factor: Callable[[int], float] = lambda k: 1.0  # of node k's coefficients

    def advance(self, start: int, stop: int) -> None:
        """Node after node: they share nothing."""
        for k, sums in enumerate(self.sums):
            where = start, stop, self.samples.K, k
            seen = self.X, self.y, self.weight, *self.numbers
            held = sums.centres, sums.alpha, sums.size, *sums.tools
            sums.size = self.sweep(*where, *seen, *held, self.f, self.size)

    def models(self) -> list[KernelSum]:
        """Each node's sum."""
        return [sums.model(0, self.factor(k)) for k, sums in enumerate(self.sums)]
