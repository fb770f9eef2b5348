"""The compiled loops of `rows`: a member's rows, sums, and both mixtures, one row at a time."""

from __future__ import annotations

import math

import numpy as np

from dokl.base.machine_code import cached_njit
from dokl.learning.intervals import LEVELS, PACE, REMEMBERED
from dokl.learning.mixture import CURVE, MOST, ROUNDING
from dokl.learning.squares.memory import LEAST_NOISE
from dokl.network.sums.shared import ROWS
from dokl.simulation.cooperation.node import BEGINNING, LATELY

_MISSED = 1.0 - np.array(LEVELS)
_KEEP, _KEEP_WIDTH = 1.0 - 1.0 / LATELY, 1.0 - 1.0 / REMEMBERED
# Reassociation and contraction only: NaN and infinity must stay visible to the checks.
_FAST = {"reassoc", "contract", "arcp", "nsz"}
_CONSTANTS = (
    "learning/intervals.py", "learning/mixture.py", "simulation/cooperation/node.py",
    "learning/squares/memory.py", "network/sums/shared.py",
)  # fmt: skip


@cached_njit(*_CONSTANTS, fastmath=_FAST, nogil=True, error_model="numpy")
def member_rows(theta, P, a, b, W, c, n, num, den, rho, lam, bound, calm, Z, Y, F, V, held):
    """Rows that fit on the list; P: (D, D), what counts of it is above the diagonal. Returns how
    many were learned: fewer where rounding has spoiled P, so that a variance would be negative.
    """
    m, D = theta.shape
    error, noise, root = np.empty(m), np.empty(m), math.sqrt(lam)
    for t in range(len(Z)):
        z, at = Z[t], n[0]
        g = W[at]
        times(P, a[0], b[0], W, c, at, z, g)
        q = 0.0
        for i in range(D):
            q += z[i] * g[i]
        size, plain = 0.0, 1.0 + q
        if not 0.0 < plain < np.inf:
            return t
        for j in range(m):
            f = 0.0
            for i in range(D):
                f += theta[j, i] * z[i]
            noise[j] = max(num[j] / den[0], LEAST_NOISE)
            error[j] = Y[t, j] - f
            size += error[j] * error[j] / noise[j]
            F[t, j], V[t, j] = f, noise[j] * plain
        size = math.sqrt(size / (m * plain))
        s = plain if size <= bound else plain * (size / bound)
        quiet = min(1.0, calm / max(size, 1e-300))
        for j in range(m):
            step = root * error[j] / s
            for i in range(D):
                theta[j, i] = root * theta[j, i] + step * g[i]
            num[j] = lam * num[j] + (quiet * error[j]) ** 2 / plain
        den[0] = lam * den[0] + 1.0
        c[at], n[0] = 1.0 / math.sqrt(s), at + 1
        if lam < 1.0:
            for i in range(at + 1):
                c[i] *= root
            a[0], b[0] = lam * a[0], lam * b[0] + (1.0 - lam) / rho
        held[t] = 1.0 / (s - q)
    return len(Z)


@cached_njit(fastmath=_FAST, nogil=True, error_model="numpy")
def times(P, a, b, W, c, n, z, g):
    """g = P_now z: the matrix by its triangle, then the list."""
    D = len(z)
    for i in range(D):
        g[i] = 0.0
    for j in range(D):
        row, zj, s = P[j], z[j], 0.0
        for i in range(j + 1, D):
            g[i] += row[i] * zj
            s += row[i] * z[i]
        g[j] += s + row[j] * zj
    for i in range(D):
        g[i] = a * g[i] + b * z[i]
    for k in range(n):
        w, s = W[k], 0.0
        for i in range(D):
            s += w[i] * z[i]
        s *= c[k] * c[k]
        for i in range(D):
            g[i] -= s * w[i]


@cached_njit(*_CONSTANTS, fastmath=_FAST, nogil=True, error_model="numpy")
def add_sums(sums, Z, Y, held):
    """Rows with their weights into sums as `shared.packed` writes them."""
    (n, D), m = Z.shape, Y.shape[1]
    for t in range(n):
        z, w = Z[t], held[t]
        sums[ROWS] += 1.0
        sums[ROWS + 1] += w
        at = ROWS + 2
        for j in range(D):
            v = w * z[j]
            column = sums[at : at + D - j]
            rest = z[j:]
            for i in range(D - j):
                column[i] += v * rest[i]
            at += D - j
        for k in range(m):
            v = w * Y[t, k]
            for i in range(D):
                sums[at + i] += v * z[i]
            at += D
        for k in range(m):
            sums[at + k] += w * Y[t, k] * Y[t, k]


@cached_njit(*_CONSTANTS, nogil=True, error_model="numpy")
def mixed_rows(
    F, V, Y, own, others, bound, gain0, square0, largest0, gain1, square1, largest1, error, learned,
    covered, count, reach, own_reach, energy, mean, variance, used,
):  # fmt: skip
    """Mix the node's own members, then that mixture with the others; keep account of both."""
    n, m = Y.shape
    E = len(own)
    F0, V0 = np.empty((E, m)), np.empty((E, m))
    F1, V1 = np.empty((1 + len(others), m)), np.empty((1 + len(others), m))
    for t in range(n):
        for i in range(E):
            F0[i], V0[i] = F[t, own[i]], V[t, own[i]]
        mixed_row(F0, V0, Y[t], bound, gain0, square0, largest0, F1[0], V1[0])
        for i in range(len(others)):
            F1[i + 1], V1[i + 1] = F[t, others[i]], V[t, others[i]]
        mixed_row(F1, V1, Y[t], bound, gain1, square1, largest1, mean[t], variance[t])
        if count + t >= BEGINNING:
            both, alone = 0.0, 0.0
            for j in range(m):
                both += (Y[t, j] - mean[t, j]) ** 2
                alone += (Y[t, j] - F1[0, j]) ** 2
            error[0] = _KEEP * error[0] + both / m
            error[1] = _KEEP * error[1] + alone / m
            error[2] = _KEEP * error[2] + 1.0
        learned[0] = _KEEP * learned[0] + 1.0
        follow(Y[t], mean[t], variance[t], reach, own_reach, energy, covered, used[t])


@cached_njit(*_CONSTANTS, nogil=True, error_model="numpy")
def mixed_row(F, V, y, bound, gain, square, largest, mean, variance):
    """One row of `mixture.mixed`, everybody awake, gains in units of the surest one's variance."""
    E, m = F.shape
    w, r = np.empty(E), np.zeros(E)
    total = 0.0
    for i in range(E):
        w[i] = max(gain[i], 0.0) / (largest[0] + square[i]) if gain[i] > 0.0 else 0.0
        total += w[i]
    for i in range(E):
        w[i] = w[i] / total if total > 0.0 else 1.0 / E
    size, best = 0.0, np.inf
    for i in range(E):
        v = 0.0
        for j in range(m):
            size = max(size, abs(F[i, j]), abs(y[j]))
            v += V[i, j]
        best = min(best, v / m)
    best = max(best, 1e-300)
    for j in range(m):
        f, v = 0.0, 0.0
        for i in range(E):
            f += w[i] * F[i, j]
        for i in range(E):
            apart = f - F[i, j]
            apart = 0.0 if abs(apart) <= ROUNDING * size else apart
            v += w[i] * (V[i, j] + apart * apart)
        reach = bound * math.sqrt(v)
        off = min(max(f - y[j], -reach), reach)
        for i in range(E):
            apart = f - F[i, j]
            if abs(apart) > ROUNDING * size:
                r[i] += 2.0 * apart * off - CURVE * apart * apart
        mean[j], variance[j] = f, v
    for i in range(E):
        won = min(max(r[i] / best, -MOST), MOST)
        gain[i] += won
        square[i] += won * won
        largest[0] = max(largest[0], won * won)


@cached_njit(*_CONSTANTS, nogil=True, error_model="numpy")
def follow(y, mean, variance, reach, own_reach, energy, covered, used):
    """One row of `reach.follow`, and how often it was inside."""
    m, levels = reach.shape
    for k in range(levels):
        covered[k] *= _KEEP
    for j in range(m):
        score = abs(y[j] - mean[j]) / math.sqrt(max(variance[j], 1e-300))
        widest = 0.0
        for k in range(levels):
            q = max(0.0, reach[j, k] + own_reach[j, k])
            widest = max(widest, q)
            used[j, k] = widest
            covered[k] += (1.0 if score <= widest else 0.0) / m
            g = _MISSED[k] - (1.0 if score > q else 0.0)
            if math.isnan(score) or g == 0.0:
                continue
            energy[j, k] = _KEEP_WIDTH * energy[j, k] + g * g
            down = min(PACE * g / math.sqrt(3.0 * energy[j, k]), q)
            reach[j, k] -= 0.5 * down
            own_reach[j, k] -= 0.5 * down
