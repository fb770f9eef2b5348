"""The compiled loops: projection, cosine, dot product and update, fused, one scratch row z.

What makes them fast, as measured:
- Frequencies and phases are in turns (divided by 2 pi), so range reduction is u - rint(u) and
  cos(2 pi u) = sin(2 pi (1/4 - |u|)) is an odd polynomial that LLVM vectorises.
- Rows are gathered eight at a time, the last eight together with cosine and dot product, so a
  number is loaded once. Missing rows of the last eight have weight 0: cheaper than a branch.
- The Walsh-Hadamard transform uses the constant-geometry form (Pease 1968): every stage reads
  pairs and writes halves, so every stage vectorises, also the first ones.

Arrays: rows (d, F) frequencies, base (F,) phases, theta (K*m, D), one row per node and output.
"""

from __future__ import annotations

import numpy as np
from numba import njit, types
from numba.extending import overload

from dokl.learning import losses

# Reassociation and contraction only: NaN and infinity must stay visible to the checks.
FAST = {"reassoc", "contract", "arcp", "nsz"}
inner = njit(fastmath=FAST, nogil=True, error_model="numpy")
# A call hands over seven words per array: worth it for a loop over D, not for a few lines.
within = njit(fastmath=FAST, nogil=True, error_model="numpy", forceinline=True)

# sin(2 pi s) = s P(s^2) on |s| <= 1/4. Degree 9 has error 3.4e-9: float32. The other is Taylor's
# series to degree 21, error under 1e-16: float64.
POLY32 = (6.28318516, -41.34165503, 81.60100408, -76.54978247, 39.53670726)
POLY64 = tuple(
    float((-1) ** k * (2 * np.pi) ** (2 * k + 1) / np.prod(np.arange(1.0, 2 * k + 2)))
    for k in range(11)
)


def wave(u, P):
    """scale * cos(2 pi u); P are the polynomial's coefficients times scale."""
    raise NotImplementedError("compiled only")


@overload(wave, inline="always")
def _wave(u, P):
    if len(P) == 5:

        def short(u, P):
            s = np.float32(0.25) - abs(u - np.rint(u))
            q = s * s
            return s * (P[0] + q * (P[1] + q * (P[2] + q * (P[3] + q * P[4]))))

        return short

    def long(u, P):
        s = 0.25 - abs(u - np.rint(u))
        q = s * s
        high = P[5] + q * (P[6] + q * (P[7] + q * (P[8] + q * (P[9] + q * P[10]))))
        return s * (P[0] + q * (P[1] + q * (P[2] + q * (P[3] + q * (P[4] + q * high)))))

    return long


@inner
def gather8(out, base, rows, j, v):
    """out = base + sum of v[i] * rows[j[i]] over eight rows."""
    a, b, c, d = j[0], j[1], j[2], j[3]
    e, f, g, h = j[4], j[5], j[6], j[7]
    v0, v1, v2, v3, v4, v5, v6, v7 = v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7]
    for i in range(out.size):
        left = v0 * rows[a, i] + v1 * rows[b, i] + v2 * rows[c, i] + v3 * rows[d, i]
        out[i] = (
            base[i] + left + v4 * rows[e, i] + v5 * rows[f, i] + v6 * rows[g, i] + v7 * rows[h, i]
        )


@inner
def add8(out, rows, j, v):
    """out += sum of v[i] * rows[j[i]] over eight rows; `gather8` onto itself does not vectorise."""
    a, b, c, d = j[0], j[1], j[2], j[3]
    e, f, g, h = j[4], j[5], j[6], j[7]
    v0, v1, v2, v3, v4, v5, v6, v7 = v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7]
    for i in range(out.size):
        left = v0 * rows[a, i] + v1 * rows[b, i] + v2 * rows[c, i] + v3 * rows[d, i]
        out[i] += left + v4 * rows[e, i] + v5 * rows[f, i] + v6 * rows[g, i] + v7 * rows[h, i]


@inner
def cosine8(z, base, rows, j, v, theta, k, P):
    """z = scale cos(2 pi (base + gathered rows)); returns theta'z."""
    a, b, c, d = j[0], j[1], j[2], j[3]
    e, f, g, h = j[4], j[5], j[6], j[7]
    v0, v1, v2, v3, v4, v5, v6, v7 = v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7]
    dot = z.dtype.type(0)
    for i in range(base.size):
        left = v0 * rows[a, i] + v1 * rows[b, i] + v2 * rows[c, i] + v3 * rows[d, i]
        u = base[i] + left + v4 * rows[e, i] + v5 * rows[f, i] + v6 * rows[g, i] + v7 * rows[h, i]
        t = wave(u, P)
        z[i] = t
        dot += t * theta[k, i]
    return dot


@inner
def paired8(z, base, rows, j, v, theta, k, P):
    """The same for [cos, sin]; sin(2 pi u) = cos(2 pi (u - 1/4))."""
    a, b, c, d = j[0], j[1], j[2], j[3]
    e, f, g, h = j[4], j[5], j[6], j[7]
    v0, v1, v2, v3, v4, v5, v6, v7 = v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7]
    F = base.size
    zs = z[F:]
    quarter = z.dtype.type(0.25)
    dot = z.dtype.type(0)
    for i in range(F):
        left = v0 * rows[a, i] + v1 * rows[b, i] + v2 * rows[c, i] + v3 * rows[d, i]
        u = base[i] + left + v4 * rows[e, i] + v5 * rows[f, i] + v6 * rows[g, i] + v7 * rows[h, i]
        t = wave(u, P)
        s = wave(u - quarter, P)
        z[i] = t
        zs[i] = s
        dot += t * theta[k, i] + s * theta[k, F + i]
    return dot


@inner
def hadamard_stages(x, y):
    """Unnormalised Walsh-Hadamard transform of x, y as scratch; returns where the result is."""
    half = x.size // 2
    stages = 0
    while (1 << stages) < x.size:
        stages += 1
    for _ in range(stages):
        for i in range(half):
            p = x[2 * i]
            q = x[2 * i + 1]
            y[i] = p + q
            y[half + i] = p - q
        x, y = y, x
    return x


@inner
def structured_turns(u, pad, tmp, signs, norms):
    """u (B*p) = norms * H S0 H S1 H S2 pad, block by block; norms hold all constant factors."""
    B, p = norms.shape
    for b in range(B):
        block = u[b * p : (b + 1) * p]
        for i in range(p):
            block[i] = pad[i]
        for s in (2, 1, 0):
            sign = signs[s, b]
            for i in range(p):
                block[i] *= sign[i]
            x = hadamard_stages(block, tmp)
            for i in range(p):
                block[i] = x[i]
        norm = norms[b]
        for i in range(p):
            block[i] *= norm[i]


@inner
def dot(a, b):
    """a'b."""
    total = a.dtype.type(0)
    for i in range(a.size):
        total += a[i] * b[i]
    return total


@inner
def dot_row(theta, k, z):
    """theta[k]'z."""
    total = z.dtype.type(0)
    for i in range(z.size):
        total += theta[k, i] * z[i]
    return total


@inner
def scale_and_add(theta, k, shrink, z, c):
    """theta = shrink * theta + c * z, in place."""
    for i in range(z.size):
        theta[k, i] = shrink * theta[k, i] + c * z[i]


@inner
def move_towards(mean, theta, k, gain):
    """mean += gain * (theta - mean), in place."""
    for i in range(mean.shape[1]):
        mean[k, i] += gain * (theta[k, i] - mean[k, i])


@within
def pick(j, v, data, where, s, at, e):
    """Columns and values of up to eight entries from `at` on; missing ones have value 0."""
    dense = where.size == 0
    n = min(8, e - at)
    for i in range(n):
        j[i] = at + i - s if dense else where[at + i]
        v[i] = data[at + i]
    for i in range(n, 8):
        j[i] = 0
        v[i] = 0


@within
def finish(z, base, rows, j, v, theta, k, paired, P):
    """Features from the last eight rows; returns theta[k]'z."""
    if paired:
        return paired8(z, base, rows, j, v, theta, k, P)
    return cosine8(z, base, rows, j, v, theta, k, P)


@within
def features_of(
    z, u, rows, base, signs, norms, paired, P, data, where, s, e, theta, k, j, v, pad, tmp
):
    """z of the sample whose non-zeros are data[s:e] in columns where[...]; returns theta[k]'z.

    `where` is CSR's column array, or empty: a dense row, whose columns are 0, 1, 2... Without
    frequencies the sample itself is z (a projection made earlier). Each case calls `finish` with
    arrays of its own: a variable that is now one array, now another, costs reference counting.
    """
    if rows.shape[0] == 0:
        z[:] = data[s:e]
        return dot_row(theta, k, z)
    if norms.size > 0:
        pad[:] = 0
        for i in range(s, e):
            pad[i - s if where.size == 0 else where[i]] += data[i]
        structured_turns(u, pad, tmp, signs, norms)
        pick(j, v, data, where, s, e, e)
        return finish(z, u[: base.size], rows, j, v, theta, k, paired, P)
    pick(j, v, data, where, s, s, e)
    if e - s <= 8:
        return finish(z, base, rows, j, v, theta, k, paired, P)
    gather8(u, base, rows, j, v)
    at = s + 8
    while e - at > 8:
        pick(j, v, data, where, s, at, e)
        add8(u, rows, j, v)
        at += 8
    pick(j, v, data, where, s, at, e)
    return finish(z, u, rows, j, v, theta, k, paired, P)


@inner
def combine_row(out, theta, node, m, output, indptr, indices, weights, zero, j, v):
    """out = sum over neighbours l of a[node, l] * theta[l*m + output]."""
    begin, stop = indptr[node], indptr[node + 1]
    for at in range(begin, stop, 8):
        for i in range(8):
            there = at + i < stop
            j[i] = indices[at + i] * m + output if there else j[0]
            v[i] = weights[at + i] if there else 0
        if at == begin:
            gather8(out, zero, theta, j, v)
        else:
            add8(out, theta, j, v)


_slopes = {name: inner(getattr(losses, f"{name}_slope")) for name in losses.BUILTIN}
CODES = {name: code for code, name in enumerate(losses.BUILTIN)}
_squared, _hinge, _squared_hinge = _slopes["squared"], _slopes["hinge"], _slopes["squared_hinge"]
_logistic, _huber, _absolute = _slopes["logistic"], _slopes["huber"], _slopes["absolute"]
_epsilon, _quantile = _slopes["epsilon_insensitive"], _slopes["quantile"]


@inner
def slope_by_code(code, p, y, f):
    """Slope of a built-in loss: one branch a sample, so one compilation serves all losses."""
    if code == 0:
        return float(_squared(y, f, p))
    if code == 1:
        return float(_hinge(y, f, p))
    if code == 2:
        return float(_squared_hinge(y, f, p))
    if code == 3:
        return float(_logistic(y, f, p))
    if code == 4:
        return float(_huber(y, f, p))
    if code == 5:
        return float(_absolute(y, f, p))
    if code == 6:
        return float(_epsilon(y, f, p))
    return float(_quantile(y, f, p))


@inner
def rate_by_numbers(scale, offset, power, normalised, eps, n, q):
    """The step of a built-in schedule; the common powers avoid pow."""
    if power == 0.0:
        mu = scale
    elif power == 1.0:
        mu = scale / (n + offset)
    elif power == 0.5:
        mu = scale / np.sqrt(n + offset)
    else:
        mu = scale / (n + offset) ** power
    return mu / (eps + q) if normalised else mu


def slope_at(loss, y, f):
    """Slope of `loss`: a (code, p) pair, or the user's compiled function."""
    raise NotImplementedError("compiled only")


@overload(slope_at)
def _slope_at(loss, y, f):
    if isinstance(loss, types.BaseTuple):
        return lambda loss, y, f: slope_by_code(loss[0], loss[1], y, f)
    return lambda loss, y, f: float(loss(y, f))


def rate_at(rate, n, q):
    """Step of `rate`: five numbers, or the user's compiled function."""
    raise NotImplementedError("compiled only")


@overload(rate_at)
def _rate_at(rate, n, q):
    if isinstance(rate, types.BaseTuple):
        return lambda rate, n, q: rate_by_numbers(rate[0], rate[1], rate[2], rate[3], rate[4], n, q)
    return lambda rate, n, q: float(rate(n, q))
