"""The compiled steps of a network: combine, adapt and average, over nodes and samples.

`sweep` runs steps start..stop for nodes lo..hi; with `phase` 1 or 2 it runs only the first or
second half of a step, so that threads can share a large network and meet between the halves.
It exists twice: cached on disk for built-in losses and schedules, and compiled afresh for a
user's own functions, which have no stable identity to file a cache entry under.

Arguments come in groups, named tuples that Python spreads (`*map, *rows, ...`): Numba takes
plain arrays several times faster than nested tuples, and the loops touch no reference counts.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from dokl.base.arrays import PAGE, Array
from dokl.base.machine_code import cached_njit
from dokl.simulation.engines.numba_loops import (
    FAST,
    combine_row,
    dot,
    dot_row,
    features_of,
    move_towards,
    rate_at,
    scale_and_add,
    slope_at,
)

part = njit(fastmath=FAST, nogil=True, error_model="numpy")
cached: Any = cached_njit(
    "simulation/engines/numba_loops.py",
    "learning/losses.py",
    "base/arrays.py",
    fastmath=FAST,
    nogil=True,
    error_model="numpy",
)


class LoopMap(NamedTuple):
    """Feature map in turns. freq: (d, F); base: (F,); signs: (3, B, p), norms: (B, p) or empty.

    freq of no rows: samples are features already.
    """

    freq: Array
    base: Array
    signs: Array
    norms: Array
    paired: bool
    P: tuple[Any, ...]


class LoopRows(NamedTuple):
    """Samples. Dense: data (N*d,), where and starts empty; CSR: data, column numbers, starts."""

    data: Array
    where: Array
    starts: Array
    d: int
    Y: Array
    weight: Array
    picks: Array  # (n, K) row numbers


class LoopGraph(NamedTuple):
    """T combination matrices in turn: indptr (T, K+1) into the entries of all T together."""

    indptr: Array
    indices: Array
    weights: Array


class LoopRule(NamedTuple):
    """How to adapt: loss and rate are tuples of numbers (built in) or compiled functions."""

    loss: Any
    rate: Any
    lam: float
    c: float  # the private constant feature
    measure: bool  # whether the schedule looks at |z|^2
    cta: bool
    every: int
    average: int  # 0 none, 1 uniform, 2 weighted


class LoopMemory(NamedTuple):
    """What is overwritten. old, new, mean: (K*m, D); bias, mean_bias: (K, m); seen: (K,)."""

    old: Array
    new: Array
    mean: Array
    bias: Array
    mean_bias: Array
    seen: Array


@part
def span(where, starts, d, r):
    """Where row r's entries lie in the data."""
    if where.size == 0:
        return r * d, (r + 1) * d
    return starts[r], starts[r + 1]


@part
def gain_at(average, clock):
    """Weight of the newest vector in the running mean after `clock` steps; 0: no averaging."""
    if average == 0:
        return 0.0
    return 1.0 / clock if average == 1 else 2.0 / (clock + 1.0)


@part
def empty_in_quarter(n, like, quarter):
    """n numbers as in `like`, as `dokl.arrays.empty_in_quarter` gives them."""
    width = like.itemsize
    raw = np.empty(n + PAGE // width, like.dtype)
    start = (quarter * (PAGE // 4) - raw.ctypes.data) % PAGE // width
    return raw[start : start + n]


@part
def scratch_for(D, base, norms):
    """Work space: z, u, padded input, transform, zeros, eight indices and eight values."""
    p, kind = norms.shape[1], base.dtype
    z, u = empty_in_quarter(D, base, 0), empty_in_quarter(max(base.size, norms.size), base, 2)
    j, v = np.zeros(8, np.int64), np.zeros(8, kind)
    return z, u, np.zeros(p, kind), np.empty(p, kind), np.zeros(D, kind), j, v


@njit(inline="always")
def update(
    z, Y, r, w, first, node, loss, rate, lam, c, measure, theta, bias, count, out, t, largest
):
    """Predictions f of all outputs into out, then theta and bias one gradient step on.

    largest: (2,) keeps the largest |f| and |y|, infinite if one was NaN or theta left the finite.
    """
    m, cast = out.shape[2], z.dtype.type
    q = float(dot(z, z)) if measure else 1.0
    count[node] += 1
    mu = rate_at(rate, count[node], q + c * c)
    for o in range(m):
        k = node * m + o
        y = Y[r, o]
        f = (first if o == 0 else dot_row(theta, k, z)) + cast(c) * bias[node, o]
        out[t, node, o] = f
        if not abs(f) <= largest[0]:
            largest[0] = np.inf if np.isnan(f) else abs(f)
        if not abs(y) <= largest[1]:
            largest[1] = np.inf if np.isnan(y) else abs(y)
        pull = mu * w * slope_at(loss, y, f)
        if not abs(pull) < np.inf:
            largest[0] = np.inf
        if pull != 0 or lam != 0:
            scale_and_add(theta, k, cast(1.0 - mu * lam), z, cast(-pull))
            bias[node, o] -= cast(pull * c)


def _sweep(
    lo, hi, start, stop, clock, phase,
    freq, base, signs, norms, paired, P,
    data, where, starts, d, Y, weight, index,
    indptr, indices, weights,
    loss, rate, lam, c, measure, cta, every, average,
    old, new, mean, bias, mean_bias, count,
    out, largest,
):  # fmt: skip
    """Steps start..stop of nodes lo..hi (see above); True when the result lies in `new`."""
    z, u, pad, tmp, zero, j, v = scratch_for(old.shape[1], base, norms)
    m, cast, T = bias.shape[1], old.dtype.type, indptr.shape[0]
    swapped = False
    for t in range(start, stop):
        now = clock + t
        mixing = T > 0 and (now if cta else now + 1) % every == 0
        gain = cast(gain_at(average, now + 1))
        for half in range(1, 3):
            adapting = half == 1
            combining = mixing and adapting == cta
            if (phase and phase != half) or not (adapting or combining):
                continue
            theta = new if combining else old
            averaging = gain > 0 and (cta or combining or not mixing)
            for node in range(lo, hi):
                if combining:
                    edges = indptr[now % T]
                    for o in range(m):
                        mixed = theta[node * m + o]
                        combine_row(mixed, old, node, m, o, edges, indices, weights, zero, j, v)
                if adapting:
                    r = index[t, node]
                    if r >= Y.shape[0]:
                        raise IndexError
                    w = float(weight[r]) if r >= 0 and weight.size > 0 else 1.0
                    if r < 0 or w <= 0:
                        out[t, node, :] = np.nan
                    else:
                        s, e = span(where, starts, d, r)
                        first = features_of(
                            z, u, freq, base, signs, norms, paired, P, data, where, s, e,
                            theta, node * m, j, v, pad, tmp,
                        )  # fmt: skip
                        update(
                            z, Y, r, w, first, node, loss, rate, lam, c, measure,
                            theta, bias, count, out, t, largest,
                        )  # fmt: skip
                if averaging:
                    for o in range(m):
                        move_towards(mean, theta, node * m + o, gain)
                        mean_bias[node, o] += gain * (bias[node, o] - mean_bias[node, o])
        if mixing and phase == 0:
            old, new = new, old
            swapped = not swapped
    return swapped


sweep, sweep_custom = cached(_sweep), part(_sweep)


@cached
def scores(
    lo, hi,
    freq, base, signs, norms, paired, P,
    data, where, starts, d,
    theta, shift, out,
):  # fmt: skip
    """out[r] = theta z(x_r) + shift for rows lo..hi; theta: (m, D), shift: (m,), out: (N, m)."""
    z, u, pad, tmp, _, j, v = scratch_for(theta.shape[1], base, norms)
    for r in range(lo, hi):
        s, e = span(where, starts, d, r)
        first = features_of(
            z, u, freq, base, signs, norms, paired, P, data, where, s, e, theta, 0, j, v, pad, tmp
        )
        out[r, 0] = first + shift[0]
        for o in range(1, theta.shape[0]):
            out[r, o] = dot_row(theta, o, z) + shift[o]


@cached
def feature_rows(
    lo, hi,
    freq, base, signs, norms, paired, P,
    data, where, starts, d,
    out,
):  # fmt: skip
    """out[r] = z(x_r) for rows lo..hi; out: (N, D)."""
    z, u, pad, tmp, zero, j, v = scratch_for(out.shape[1], base, norms)
    zero = zero.reshape(1, -1)
    for r in range(lo, hi):
        s, e = span(where, starts, d, r)
        features_of(
            z, u, freq, base, signs, norms, paired, P, data, where, s, e, zero, 0, j, v, pad, tmp
        )
        out[r] = z
