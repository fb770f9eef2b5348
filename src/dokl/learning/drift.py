"""How much wider the intervals of a frozen model must be, by the distance from its last row.

While a bank learns, it keeps frozen copies of itself: what its experts predict, their weights and
their variances, as they were after some row. Each copy predicts the rows that follow. Its scores

    |y - f|/s,   s^2 = sum_i w_i (v_i + (f_i - f)^2)

are counted by the distance h from the copy's row, in bins of a factor of two, beside the scores of
the model that goes on learning (h = 0). v_i is the variance of expert i as it was on average when
the copy was taken: that of each row takes matrices, which copies do without. With Q_h the quantile
of the scores at h for some coverage, intervals of a frozen model are

    Q_h / Q_0

times as wide, made monotone over h, and as wide as those of a model that follows at h = 1. What
chance alone may do is taken off, so that rows in no order widen nothing. Where intervals widen, s
is that of copies for the frozen model, too: z'Pz grows far away, and would widen a second time.

(CHANCE, TRUSTED, and how fast counts fade were chosen by models frozen after 400 to 4,600 rows of
the first four fifths of ten real streams and of synthetic ones. `python -m benchmarks.coverage` has
what intervals of the last fifth then hold. A random walk of 1,200 rows shows too few of its turns:
there 90 % intervals held 75 to 81 %.)

A model that follows tracks its width, row by row, and the newest one may be far from usual. It is
corrected soon; that of a frozen model is not. So where the newest width is off by more than TRUSTED
from the usual one, Q_0, or errors grow with the distance, the usual one counts; but no interval is
narrower than that of a model that follows.

>>> rng = np.random.default_rng(0)
>>> counts, none = start(1).counts[0], np.zeros(2000, np.int64)
>>> for after in (1, 20, 40, 80, 160):
...     counts = add(counts, np.full(500, after), abs(rng.normal(size=(500, 1))) * after**0.3)
>>> counts = add(counts, none, abs(rng.normal(size=(2000, 1))))
>>> width = widths(counts, 0.9, np.array([1.6]), np.array([1, 20, 200]))[:, 0]
>>> bool(width[0] == 1.6 and 2 * 1.6 < width[1] < width[2])
True
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from dokl.base.arrays import Array
from dokl.base.errors import BadInput

NEAR = 16  # the first bin holds distances below, each further one those up to twice as far
DISTANCES = 20
# Scores are counted in bins of an eighth of a power of two.
PER_OCTAVE, LOWEST, SCORES = 8, -6, 96
EDGES = (LOWEST + np.arange(SCORES + 1) / PER_OCTAVE) * math.log(2.0)
LEAST = 30.0  # scores of a bin before it counts
# Standard errors that chance may reach: several copies are judged by the same rows, so errors are
# larger than those of as many rows.
CHANCE = 2.0
TRUSTED = 0.4  # of the logarithm of a width
STEEPEST = 0.5  # beyond what was measured: errors of a random walk grow with the root of time


@dataclass(frozen=True)
class Drift:
    """counts: (2, 1 + DISTANCES, m, SCORES), of the model that follows and of copies by distance;
    errors over s, and errors over `spread`, for models that have one width for all rows.

    Of C copies: rows (C,), after which each was taken; experts (U,) that have weight in any;
    weights (C, U); variance (C, U, m); spread (C, m), s on average before; thetas: U of (C, m, D).

    Sums over the rows since the last copy: unsure, z'Pz of each expert, (E,); sd, s, (m,), 0 where
    there are none; since: how many rows.
    """

    counts: Array
    rows: Array
    experts: Array
    weights: Array
    variance: Array
    spread: Array
    thetas: tuple[Array, ...] = ()
    unsure: Array = field(default_factory=lambda: np.zeros(1))
    sd: Array = field(default_factory=lambda: np.zeros(1))
    since: int = 0


def start(m: int) -> Drift:
    """No copies, nothing counted."""
    return without_copies(np.zeros((2, 1 + DISTANCES, m, SCORES)))


def without_copies(counts: Array) -> Drift:
    """What was counted, and no copies."""
    m, none = counts.shape[2], np.zeros(0, np.int64)
    return Drift(counts, none, none, np.zeros((0, 0)), np.zeros((0, 0, m)), np.zeros((0, m)))


def add(counts: Array, distance: Array, scores: Array) -> Array:
    """Counts (1 + DISTANCES, m, SCORES) with scores (n, m) at these distances (n,)."""
    counts, m = counts.copy(), counts.shape[1]
    size = np.log2(np.maximum(scores, 1e-300)) - LOWEST
    at = np.clip(size * PER_OCTAVE, 0, SCORES - 1).astype(np.int64)
    octave = np.log2(np.maximum(distance, NEAR / 2) / (NEAR / 2)).astype(np.int64)
    row = np.where(distance > 0, 1 + np.minimum(octave, DISTANCES - 1), 0)
    np.add.at(counts, (row[:, None], np.arange(m), at), 1.0)
    return counts


def trim(counts: Array) -> Array:
    """Counts (1 + DISTANCES, m, SCORES) without distances that were never met, for files."""
    return counts[: 1 + int(np.flatnonzero(counts.any(axis=(1, 2))).max(initial=-1))]


def untrim(counts: Array, m: int) -> Array:
    """Counts that were trimmed, as they were; ValueError where that cannot be."""
    out = np.zeros((1 + DISTANCES, m, SCORES))
    if counts.shape[1:] != out.shape[1:] or len(counts) > len(out) or not (counts >= 0).all():
        raise ValueError(f"counts of drift are {counts.shape}, or not counts")
    out[: len(counts)] = counts
    return out


def untrim_pair(own: Array, even: Array) -> Array:
    """The counts of a `Drift` from both of its parts, trimmed."""
    return np.stack([untrim(each, own.shape[1]) for each in (own, even)])


def check_steps(steps_ahead: object, n: int) -> Array:
    """Distances of n rows, (n,), from what was given: one number for all, or one for each."""
    try:
        steps = np.asarray(steps_ahead, float)
    except (TypeError, ValueError):
        steps = np.empty((0, 0))
    if steps.shape not in ((), (n,)) or not (np.isfinite(steps) & (steps >= 1)).all():
        raise BadInput(
            f"steps_ahead must be a number of rows from 1 on, or one for each of the {n} rows, got "
            f"{steps_ahead!r}: 1 is the row after the last learned one"
        )
    return np.broadcast_to(steps, (n,))


def usual_steps(rows: int) -> int:
    """The distance that stands for an unknown one, of a model that has learned n rows: the
    middle of a quarter as many.
    """
    return max(1, rows // 8)


def widths(counts: Array, coverage: float, newest: Array, distance: Array) -> Array:
    """Half the widths of intervals in standard deviations, (n, m), at these distances (n,); newest:
    (m,) that of a model that follows.
    """
    found = np.tile(newest, (len(distance), 1))
    for k, q in enumerate(newest.tolist()):
        at, height = curve(counts[:, k], coverage)
        if len(at) < 2 or not q > 0.0:
            continue
        far = np.log(distance)
        wider = _extend(far, at, height)
        gap = _quantile(counts[0, k], coverage)[0] - math.log(q)
        off = np.maximum(abs(gap) - np.maximum(TRUSTED - wider, 0.0), 0.0)
        soon = np.minimum(far / at[1], 1.0)
        change = wider + math.copysign(1.0, gap) * off * soon
        found[:, k] = q * np.exp(np.maximum(change, 0.0))
    return found


def widths_alone(counts: Array, coverage: float, few: Array, distance: Array) -> Array:
    """Half the widths (n, m) where the counts at distance 0 are those of all distances together:
    their quantile, wider further on; `few`: (m,) where there are too few.
    """
    enough = counts[0].sum(axis=1) >= LEAST
    usual = [math.exp(_quantile(each, coverage)[0]) for each in counts[0, enough]]
    newest = few.copy()
    newest[enough] = usual
    return widths(counts, coverage, newest, distance)


def curve(counts: Array, coverage: float) -> tuple[Array, Array]:
    """Logarithms of distances, from that of 1 on, and of Q_h / Q_0 there, for the counts of one
    output, (1 + DISTANCES, SCORES).
    """
    n = counts.sum(axis=1)
    known = 1 + np.flatnonzero(n[1:] >= LEAST)
    if n[0] < LEAST or not len(known):
        return np.zeros(1), np.zeros(1)
    middle = np.where(known == 1, NEAR / 2, NEAR * 2.0 ** (known - 1.5))
    followed = _quantile(counts[0], coverage)[0]
    found, error = np.array([_quantile(counts[b], coverage) for b in known]).T
    height, chance = rising(found - followed, n[known]), CHANCE * error + 1e-9
    # What is far above chance stays nearly as it is (the garrote of Breiman 1995).
    height = np.maximum(height, chance) - chance**2 / np.maximum(height, chance)
    return np.append(0.0, np.log(middle)), np.append(0.0, np.maximum.accumulate(height))


def _quantile(counts: Array, coverage: float) -> tuple[float, float]:
    """The logarithm of a quantile of scores counted in bins, (SCORES,), and its standard error."""
    n = float(counts.sum())
    below = np.append(0.0, np.cumsum(counts)) / n + 1e-12 * np.arange(SCORES + 1)  # never level
    error = math.sqrt(coverage * (1.0 - coverage) / n)
    low, value, high = np.interp([coverage - error, coverage, coverage + error], below, EDGES)
    return float(value), float(high - low) / 2.0


def rising(values: Array, weight: Array) -> Array:
    """The values (n,) that never fall and are nearest to these by weighted squares.

    >>> rising(np.array([0.0, 3.0, 1.0, 4.0]), np.ones(4)).tolist()
    [0.0, 2.0, 2.0, 4.0]
    """
    pools: list[tuple[float, float, int]] = []
    for value, w in zip(values.tolist(), weight.tolist(), strict=True):
        pool = value, w, 1
        while pools and pools[-1][0] > pool[0]:
            mean, heavy, n = pools.pop()
            both = heavy + pool[1]
            pool = (mean * heavy + pool[0] * pool[1]) / both, both, n + pool[2]
        pools.append(pool)
    return np.repeat([mean for mean, _, _ in pools], [n for *_, n in pools])


def _extend(at: Array, known: Array, height: Array) -> Array:
    """Between known places by straight lines; beyond the last by the slope of a factor of four."""
    back = math.log(4.0)
    slope = (height[-1] - np.interp(known[-1] - back, known, height)) / back
    beyond = np.maximum(at - known[-1], 0.0)
    return np.asarray(np.interp(at, known, height) + min(slope, STEEPEST) * beyond)
