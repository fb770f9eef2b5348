"""Sums of rows for many learners at once, as JAX functions: added up, packed, and solved.

What `network.sums.shared` does for one node, with an axis of learners in front. All matrices of
a batch are factorised side by side; the few that rounding has made indefinite are left to `shared`.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular

from dokl.base.arrays import Array
from dokl.learning.squares.memory import FIRST_NOISE, FIRST_ROWS
from dokl.network.sums import shared
from dokl.simulation.engines.jax_blocks import BlockNumbers


class Added(NamedTuple):
    """Sums of rows, such as those since the last exchange. rows, weight: (N,); zz: (N, D, D);
    zy: (N, m, D); yy: (N, m).
    """

    rows: Any
    weight: Any
    zz: Any
    zy: Any
    yy: Any


class SolvedSums(NamedTuple):
    """theta: (N, m, D), P: (N, D, D), num: (N, m), den: (N,), and left: (N, S), what is left of the
    sums until the next exchange.
    """

    theta: Any
    P: Any
    num: Any
    den: Any
    left: Any


def no_rows(N: int, m: int, D: int) -> Added:
    """Of no rows."""
    zeros = partial(jnp.zeros, dtype=np.float64)
    return Added(zeros(N), zeros(N), zeros((N, D, D)), zeros((N, m, D)), zeros((N, m)))


def add(fresh: Added, Z: Any, Y: Any, held: Any) -> Added:
    """With rows Z: (N, B, D), Y: (N, B, m) of weights (N, B), 0 where there is none."""
    weighed = Z * held[..., None]
    return Added(
        fresh.rows + (held > 0).sum(axis=1),
        fresh.weight + held.sum(axis=1),
        fresh.zz + weighed.mT @ Z,
        fresh.zy + Y.mT @ weighed,
        fresh.yy + (Y * Y * held[..., None]).sum(axis=1),
    )


@jax.jit
def pack(fresh: Added) -> Any:
    """As vectors: (N, S)."""
    rows, columns = np.triu_indices(fresh.zz.shape[-1])
    parts = fresh.zz[:, rows, columns], fresh.zy.reshape(len(fresh.zy), -1), fresh.yy
    return jnp.concatenate([fresh.rows[:, None], fresh.weight[:, None], *parts], axis=1)


def unpack(vectors: Any, D: int, m: int) -> Added:
    """The sums that `packed` gave."""
    rows, columns = np.triu_indices(D)
    place = np.empty((D, D), np.int64)
    place[rows, columns] = place[columns, rows] = np.arange(len(rows))
    end = 2 + len(rows)
    zz = vectors[:, 2:end][:, place.ravel()].reshape(-1, D, D)
    zy, yy = vectors[:, end : end + m * D].reshape(-1, m, D), vectors[:, end + m * D :]
    return Added(vectors[:, 0], vectors[:, 1], zz, zy, yy)


def _inverse(A: Any) -> Any:
    """A^-1 of symmetric matrices (N, D, D); NaN where one is not positive definite."""
    C = jnp.linalg.cholesky(A)
    inner = solve_triangular(C, jnp.broadcast_to(jnp.eye(A.shape[-1]), A.shape), lower=True)
    return inner.mT @ inner


def known_of(rho: Any, sums: Added) -> tuple[Any, Any, Any]:
    """What follows from sums of N learners, with rho: (N,). theta: (N, m, D), P: (N, D, D), and
    what they leave of y'y: (N, m). NaN where they are no sums of rows.
    """
    P = _inverse(sums.zz + rho[:, None, None] * jnp.eye(sums.zz.shape[-1]))
    theta = sums.zy @ P
    return theta, P, jnp.maximum(sums.yy - (theta * sums.zy).sum(axis=2), 0.0)


def noise_of(weight: Any, left: Any) -> tuple[Any, Any]:
    """Of rows that weigh so much, (N,), and leave this of y'y, (N, m): num and den."""
    return FIRST_NOISE * FIRST_ROWS + left, FIRST_ROWS + weight


def fade(rho: Any, gone: Any, sums: Added, theta: Any, P: Any, left: Any) -> Added:
    """Sums of what is known once a share `gone`: (N,) of it is left: back to the prior."""
    rho, part, eye = rho[:, None, None], gone[:, None, None], jnp.eye(P.shape[-1])
    A = _inverse(part * P + (1.0 - part) / rho * eye)
    kept = jnp.sqrt(part) * theta
    zy = kept @ A
    yy = gone[:, None] * left + (kept * zy).sum(axis=2)
    return Added(sums.rows, gone * sums.weight, A - rho * eye, zy, yy)


@partial(jax.jit, static_argnums=(0, 1))
def _solve(D: int, m: int, rho: Any, vectors: Any) -> Any:
    """theta, P, num, den of sums (N, S), and whether they are sums of rows at all: (N,)."""
    sums = unpack(vectors, D, m)
    doubted = sums.zz + 0.1 * rho[:, None, None] * jnp.eye(D)
    theta, P, left = known_of(rho, sums)
    sound = jnp.isfinite(jnp.linalg.cholesky(doubted)).all((1, 2))
    return theta, P, *noise_of(sums.weight, left), sound


@partial(jax.jit, static_argnums=(0, 1))
def _forgotten(D: int, m: int, rho: Any, gone: Any, vectors: Any, theta: Any, P: Any) -> Any:
    """`faded` of sums (N, S)."""
    sums = unpack(vectors, D, m)
    left = jnp.maximum(sums.yy - (theta * sums.zy).sum(axis=2), 0.0)
    return pack(fade(rho, gone, sums, theta, P, left))


def solve(
    settings: BlockNumbers, m: int, D: int, sums: Array, times: Array, since: Array, own: Any
) -> SolvedSums:
    """What N learners know of sums (N, S), times as much; since: rows of the network since they
    last forgot; own: (N, S) rows of theirs that they have not sent, or None.
    """
    whole, rho = jnp.asarray(sums) * times[:, None], settings.rho
    theta, P, num, den, sound = _solve(D, m, rho, whole)
    left = jnp.asarray(sums)
    if bool((settings.lam < 1.0).any()):
        gone = settings.lam**since
        kept = _forgotten(D, m, rho, gone, whole, theta, P) / times[:, None]
        left = jnp.where((settings.lam < 1.0)[:, None], kept.at[:, 0].set(left[:, 0]), left)
    if own is not None:
        theta, P, num, den, sound = _solve(D, m, rho, whole + own)
    found = SolvedSums(theta, P, num, den, left)
    for k in np.flatnonzero(~np.asarray(sound)).tolist():
        found = _repair(found, k, np.asarray(whole[k] + (0.0 if own is None else own[k])), rho)
    return found


def _repair(found: SolvedSums, k: int, sums: Array, rho: Any) -> SolvedSums:
    """Learner k as `shared` has it, with a ridge that hides what is off; it forgets nothing now."""
    m, D = found.theta.shape[1:]
    memory = shared.to_memory(shared.unpack(sums, D, m), float(rho[k]))
    P = np.tril(memory.P) + np.tril(memory.P, -1).T
    return SolvedSums(
        found.theta.at[k].set(memory.theta),
        found.P.at[k].set(P),
        found.num.at[k].set(memory.num),
        found.den.at[k].set(memory.den),
        found.left,
    )
