"""Mixing with a guard: an expert that has begun to fail loses what it has gained.

Gains add up over all rows. An expert that was good for long and then fails, because a neighbour's
sensor broke or lies, would be believed for hundreds of rows more. So the squared errors of the last
rows are followed, too: while an expert's mean over about RECENT rows is more than FAILED times that
of a reference, the node's own learner, the expert is not used, and then it begins again without
gains. Chance does that seldom: twice the error over twenty rows.

>>> rng = np.random.default_rng(0)
>>> Y = rng.normal(size=(300, 1))
>>> good, broken = Y + 0.1 * rng.normal(size=(2, 300, 1))
>>> broken[200:] += 1.0
>>> F = np.stack([good, broken], axis=1)
>>> V = np.full(F.shape, 0.01)
>>> mixture, recent, mean, _ = mix(mixing.start(2), start(2), F, V, Y, F[:, 0], V[:, 0])
>>> bool(np.mean((mean - Y)[210:] ** 2) < 1.05 * np.mean((good - Y)[210:] ** 2))
True
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from dokl.base.arrays import Array
from dokl.learning import mixture as mixing
from dokl.learning.mixture import Mixture

# Rows of which the mean counts, and how many times the reference's error is a failure.
RECENT, FAILED = 20.0, 2.0
# No one is judged by fewer rows.
FEWEST = 5.0
# An error counts as this many of the reference's standard deviations at most: one wild target must
# not take away what thousands of rows have gained.
MOST = 3.0


@dataclass(frozen=True)
class RecentErrors:
    """Discounted sums of squared errors, total: (E,) of experts and reference, and their weight."""

    total: Array
    reference: float = 0.0
    weight: float = 0.0

    @property
    def failing(self) -> Array:
        """Which experts are not to be used: (E,)."""
        if self.weight < FEWEST:
            return np.zeros(len(self.total), bool)
        return np.asarray(self.total > FAILED * self.reference)


def start(experts: int) -> RecentErrors:
    """Nobody has erred."""
    return RecentErrors(np.zeros(experts))


def mix(
    mixture: Mixture,
    recent: RecentErrors,
    F: Array,
    V: Array,
    Y: Array,
    mean: Array,
    variance: Array,
    awake: Array | None = None,
    weight: Array | None = None,
    bound: float = math.inf,
    memory: float = math.inf,
) -> tuple[Mixture, RecentErrors, Array, Array]:
    """Mix rows in turn. F, V: (n, E, m) as for `mixture.mixed`, whose gains are relative; mean,
    variance: (n, m) of the reference. Returns the means and variances (n, m) of the mixture.
    """
    awake = np.ones(F.shape[1], bool) if awake is None else awake
    reach = MOST * np.sqrt(variance)[:, None]
    errors = (np.clip(F - Y[:, None], -reach, reach) ** 2).mean(axis=2)
    reference = (np.clip(mean - Y, -reach[:, 0], reach[:, 0]) ** 2).mean(axis=1)
    failing = np.empty(errors.shape, bool)
    for t in range(len(Y)):
        failing[t] = recent.failing
        recent = _follow(recent, errors[t], float(reference[t]))
    f, spread = np.empty(Y.shape), np.empty(Y.shape)
    ends = [0, *(np.flatnonzero((failing[1:] != failing[:-1]).any(axis=1)) + 1).tolist(), len(Y)]
    for i, j in pairwise(ends):
        if i < j:
            off, own = failing[i], None if weight is None else weight[i:j]
            gain = np.where(off, np.minimum(mixture.gain, 0.0), mixture.gain)
            given = F[i:j], V[i:j], Y[i:j], used(awake, off), own, bound, True, memory
            mixture, f[i:j], spread[i:j] = mixing.mix(replace(mixture, gain=gain), *given)
    return mixture, recent, f, spread


def used(awake: Array, failing: Array) -> Array:
    """Which experts are mixed: (E,). Where all of them fail, those that know anything."""
    left = awake & ~failing
    return left if left.any() else awake


def _follow(recent: RecentErrors, errors: Array, reference: float) -> RecentErrors:
    keep = 1.0 - 1.0 / RECENT
    return RecentErrors(
        keep * recent.total + errors,
        keep * recent.reference + reference,
        keep * recent.weight + 1.0,
    )
