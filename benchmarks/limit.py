"""The machine's own limit: vector instructions a sample over the rate of fused multiply-adds."""

from __future__ import annotations

import re

import numpy as np
from numba import njit

# Vector instructions per vector of features, as the algorithm needs them: arithmetic only, loads
# and stores taken as free, theta + c z without regularization.
NEEDED = {
    "range reduction": 4,  # rint(u), u - rint(u), its absolute value, 1/4 - that
    "polynomial": 6,  # s^2, four fused multiply-adds, times s; sqrt(2/D) is in the coefficients
    "dot product": 1,
    "update": 1,
}
ELEMENTS, STEPS = 128, 16
contracting = njit(fastmath={"contract"}, nogil=True)


def instructions(d: int) -> int:
    """Vector instructions per vector of features: d multiply-adds of the projection and NEEDED."""
    return d + sum(NEEDED.values())


@contracting
def fused(x, b, c, rounds):
    """STEPS multiply-adds on every element of x: (8, ELEMENTS), rounds times.

    Neither memory nor latency bounds it: x is 4 KiB in the first cache, loaded and stored once
    per STEPS, and the eight chains stay in registers and do not wait for each other.
    """
    x0, x1, x2, x3, x4, x5, x6, x7 = x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7]
    for _ in range(rounds):
        for i in range(ELEMENTS):
            p, q, r, s, t, u, v, w = x0[i], x1[i], x2[i], x3[i], x4[i], x5[i], x6[i], x7[i]
            for _ in range(STEPS):
                p, q, r, s = p * b + c, q * b + c, r * b + c, s * b + c
                t, u, v, w = t * b + c, u * b + c, v * b + c, w * b + c
            x0[i], x1[i], x2[i], x3[i], x4[i], x5[i], x6[i], x7[i] = p, q, r, s, t, u, v, w


def multiply_adds(rounds: int = 50_000) -> int:
    """Do float32 multiply-adds for about 15 ms; returns how many."""
    fused(np.zeros((8, ELEMENTS), np.float32), np.float32(0.5), np.float32(0.25), rounds)
    return 8 * ELEMENTS * STEPS * rounds


def lanes() -> int:
    """How many float32 the compiler puts into one multiply-add, read from its assembly."""
    multiply_adds(1)
    assembly = "\n".join(fused.inspect_asm().values())
    used = re.findall(r"vfn?m(?:add|sub)\d+ps\s.*%([xyz])mm", assembly)
    return max({"x": 4, "y": 8, "z": 16}[kind] for kind in used) if used else 4
