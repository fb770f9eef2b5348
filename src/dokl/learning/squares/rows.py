"""Least squares, one row after another: the readable truth of `blocks`.

    predict   f = theta z,   s = 1/w + z'Pz
    learn     g = P z,   theta += (y - f) g'/s,   P -= g g'/s
    forget    P <- lam P + (1 - lam)/rho I,   theta <- sqrt(lam) theta      back to the prior
    noise     num <- lam num + (y - f)^2/s,   den <- lam den + w,   s2 = num/den

Forgetting towards the prior never winds up, as forgetting by a factor alone does (Van Vaerenbergh,
Lazaro-Gredilla and Santamaria 2012, kernel RLS tracker). One wild target must not stay for ever:
its weight is bounded by its innovation, and in the noise it counts as one of three standard
deviations at most (times sqrt(w) for a row that counts as w > 1).
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from dokl.base.arrays import Array
from dokl.learning.squares.blocks import bound_weights
from dokl.learning.squares.memory import Memory, Numbers, fold


def learn(numbers: Numbers, memory: Memory, z: Array, y: Array, w: float) -> tuple[Memory, Array]:
    """One row z: (D,), y: (m,) of weight w > 0; the new memory, and f: (m,) before it."""
    return learn_weighed(numbers, memory, z, y, w)[:2]


def learn_weighed(
    numbers: Numbers, memory: Memory, z: Array, y: Array, w: float
) -> tuple[Memory, Array, float]:
    """The same, and the weight as it was bounded."""
    memory, lam = fold(memory), numbers.lam
    P = memory.covariance()
    g = P @ z
    f, q = memory.theta @ z, z @ g
    given = np.array([w]), np.array([q]), (y - f)[None], memory.noise[None]
    plain = 1.0 / w + q
    held = float(bound_weights(numbers.bound, *given)[0])
    s = 1.0 / held + q
    theta = memory.theta + np.outer(y - f, g) / s
    P = lam * (P - np.outer(g, g) / s) + (1.0 - lam) / numbers.rho * np.eye(len(z))
    size = math.sqrt(float(np.mean((y - f) ** 2 / memory.noise)) / plain)
    calm = min(1.0, numbers.calm * math.sqrt(max(w, 1.0)) / max(size, 1e-300))
    num = lam * memory.num + (calm * (y - f)) ** 2 / plain
    noise = {"num": num, "den": lam * memory.den + w}
    known = {"theta": math.sqrt(lam) * theta, "P": np.asfortranarray(P), **noise}
    return replace(memory, **known), f, held
