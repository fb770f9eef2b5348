"""Least squares in exact blocks for many learners at once, as JAX functions.

The equations of `learning.squares.blocks` with an axis of learners in front: nodes, realizations or
experts, each with its own P, memory and rows. A row of weight 0 is none: its z and y count as 0,
and powers of lam count the rows that are there, so learners may have different numbers of rows.

The covariance is a P + b I, as in `learning.squares.memory`: forgetting changes two numbers, and
needs no pass over P of its own.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from dokl.learning.squares.memory import CALM

# Rows of a block at most: 64 would go over P twice as often.
BLOCK = 128
# Rows that are eliminated one by one; more are halved.
FEW = 16


class BlockNumbers(NamedTuple):
    """rho, lam and bound of every learner: (N,) each."""

    rho: Any
    lam: Any
    bound: Any

    @property
    def calm(self) -> Any:
        """As that of `Numbers`: (N,)."""
        return jnp.where(jnp.isinf(self.bound), self.bound, jnp.minimum(self.bound, CALM))


class Known(NamedTuple):
    """What N learners know. theta: (N, m, D); P: (N, D, D), full; a, b: (N,); noise num: (N, m)
    over den: (N,).
    """

    theta: Any
    P: Any
    a: Any
    b: Any
    num: Any
    den: Any


class Factor(NamedTuple):
    """S + diag(1/w) = C C'. inverse: C^-1 (N, B, B); u: C^-1 R (N, B, m). Of each row before it is
    learned, error: (N, B, m), and held: (N, B), its weight as it was bounded; num, den: the noise
    after these rows.
    """

    inverse: Any
    u: Any
    error: Any
    held: Any
    num: Any
    den: Any


class _Begun(NamedTuple):
    """A block before its rows are eliminated: S, R, and what W is made of."""

    S: Any
    R: Any
    H: Any
    end: Any


def block(settings: BlockNumbers, known: Known, Z: Any, Y: Any, w: Any) -> tuple[Known, Any, Any]:
    """Learn rows Z: (N, B, D), Y: (N, B, m), w: (N, B); what is known then, f: (N, B, m) before
    each row, and the weights (N, B) as they were bounded. B is a power of two.
    """
    begun = _begin(settings, known, Z, Y, w)
    C = eliminate(settings, known.num, known.den, begun.S, begun.R, w)
    return _end(settings, known, begun, C), Y - C.error, C.held


def _begin(settings: BlockNumbers, known: Known, Z: Any, Y: Any, w: Any) -> _Begun:
    there = w > 0
    Z, Y = (jnp.where(there[..., None], each, 0.0) for each in (Z, Y))
    a, b, rho, lam = (v[:, None, None] for v in (known.a, known.b, settings.rho, settings.lam))
    G = Z @ known.P  # of a P + b I it is a G + b Z
    # All powers of lam in `blocks` are products of these two, and i - 1 counts rows that are there:
    # lam^(|i-j|/2) lam^k = r_i r_j and lam^(|i-j|/2) = min(r_i, r_j) / max(r_i, r_j).
    count = jnp.cumsum(there, axis=1, dtype=Z.dtype)[:, :, None]
    r, end = lam ** ((count - there[:, :, None]) / 2), lam ** (count[:, -1:] / 2)
    both, apart = r * r.mT, jnp.minimum(r, r.mT) / jnp.maximum(r, r.mT)
    S = a * both * (Z @ G.mT) + (b * both + (apart - both) / rho) * (Z @ Z.mT)
    H = a * r * G + (b * r + (1 / r - r) / rho) * Z  # times `end`, which cancels
    return _Begun(S, Y - r * (Z @ known.theta.mT), H, end)


def _end(settings: BlockNumbers, known: Known, begun: _Begun, C: Factor) -> Known:
    a, b, rho = (v[:, None, None] for v in (known.a, known.b, settings.rho))
    W = C.inverse / jnp.sqrt(a) @ begun.H  # over the root of what a will be
    theta = begun.end * (known.theta + jnp.sqrt(a) * C.u.mT @ W)
    P, gone = known.P - W.mT @ W, begun.end * begun.end
    a, b = gone * a, gone * b + (1 - gone) / rho
    return Known(theta, P, a[:, 0, 0], b[:, 0, 0], C.num, C.den)


def fold(known: Known) -> Known:
    """The same with a = 1 and b = 0."""
    one, none = jnp.ones_like(known.a), jnp.zeros_like(known.b)
    P = known.a[:, None, None] * known.P + known.b[:, None, None] * jnp.eye(known.P.shape[-1])
    return known._replace(P=P, a=one, b=none)


def eliminate(settings: BlockNumbers, num: Any, den: Any, S: Any, R: Any, w: Any) -> Factor:
    """The factor of S: (N, B, B), for what the targets are apart from theta, R: (N, B, m).

    Rows take their turns, so a row's innovation is known before its weight must be, and nothing is
    computed twice where one is bounded. Halves are joined by products of matrices.
    """
    B = S.shape[-1]
    if B <= FEW:
        return one_by_one(settings, num, den, S, R, w)
    i = B // 2
    first = eliminate(settings, num, den, S[:, :i, :i], R[:, :i], w[:, :i])
    X = first.inverse @ S[:, :i, i:]
    rest = S[:, i:, i:] - X.mT @ X, R[:, i:] - X.mT @ first.u, w[:, i:]
    second = eliminate(settings, first.num, first.den, *rest)
    corner = -(second.inverse @ (X.mT @ first.inverse))
    above = jnp.concatenate([first.inverse, jnp.zeros_like(corner)], axis=2)
    inverse = jnp.concatenate([above, jnp.concatenate([corner, second.inverse], axis=2)], axis=1)
    found = zip(first[1:4], second[1:4], strict=True)
    parts = [inverse, *(jnp.concatenate(each, axis=1) for each in found)]
    return Factor._make([*parts, second.num, second.den])


def one_by_one(settings: BlockNumbers, num: Any, den: Any, S: Any, R: Any, w: Any) -> Factor:
    """The same row after row: Gauss's elimination of [S, I, R]."""
    B, bound, lam = S.shape[-1], settings.bound, settings.lam
    M = jnp.concatenate([S, jnp.broadcast_to(jnp.eye(B, dtype=S.dtype), S.shape), R], axis=2)

    def one(carry: Any, step: Any) -> Any:
        M, num, den = carry
        i, given = step
        there, row = given > 0, lax.dynamic_index_in_dim(M, i, 1, keepdims=False)
        error, q = row[:, 2 * B :], lax.dynamic_index_in_dim(row, i, 1, keepdims=False)
        plain = 1 / jnp.where(there, given, 1.0) + q
        size = jnp.sqrt((error * error / num).mean(axis=1) * den / plain)
        copies = jnp.sqrt(jnp.maximum(given, 1.0))
        short = jnp.where(size > bound * copies, bound / size, 1.0)
        most = settings.calm * copies
        calm = jnp.where(size > most, most / size, 1.0)
        jolt = (calm[:, None] * error) ** 2 / plain[:, None]
        num = jnp.where(there[:, None], lam[:, None] * num + jolt, num)
        den = jnp.where(there, lam * den + given, den)
        # Nothing follows from a row that is not learned.
        row = jnp.where(there[:, None], row / jnp.sqrt(plain / short)[:, None], 0.0)
        below = jnp.where(jnp.arange(B) > i, row[:, :B], 0.0)
        found = row[:, B:], error, jnp.where(there, 1 / (plain / short - q), 0.0)
        return (M - below[:, :, None] * row[:, None, :], num, den), found

    # Every turn of a loop costs a GPU some microseconds; a CPU would compile for a minute instead.
    unroll = jax.default_backend() != "cpu"
    (_, num, den), found = lax.scan(one, (M, num, den), (jnp.arange(B), w.T), unroll=unroll)
    rows, *others = (each.swapaxes(0, 1) for each in found)
    return Factor._make([rows[..., :B], rows[..., B:], *others, num, den])
