"""What sums can be checked for: a node may lie about its rows, but not about what rows can be.

    pairs      z = s [cos, sin]: the two diagonal entries of a frequency add up to s^2 weight
    constant   the entry of a feature that is always c is c^2 weight
    length     the diagonal adds up to at most sup |z|^2 weight
    definite   Z'wZ has no negative direction
    targets    X_zy'(X_zz + eps I)^-1 X_zy <= y'wy: nothing explains more of y than there is
    weight     at most so much per row, and not next to nothing; y'wy at most the largest |y|^2 per
               weight
    growth     what an entry adds to the one before passes the same checks, and is of no more rows
               than an origin can see in the time

Flipped labels pass every check, since such rows could be. They show in what they do to one's own
rows: an origin whose rows hurt, or predict the opposite of them, is left out of the total
(`judged`), by tests whose rate of false alarms is known (`dokl.learning.alarms`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dokl.base.arrays import Array
from dokl.learning import alarms
from dokl.learning.squares.sums import Sums
from dokl.network.sums import origins, shared
from dokl.network.sums.origins import Account, Entry

# Rounding to float32 is 6e-8 of a number; sums of many numbers and their differences lose more.
TOLERANCE = 1e-5
FLOAT32 = 2.0**-22  # of two numbers, rounded to float32: what their difference may be off by
# What honest origins may cost by chance for hours where errors depend on each other: of `worse`,
# with an origin against without it, and of how unlike its rows alone predict.
HURTS, OPPOSED = 0.05, 0.1
BACK = math.log(20.0)  # evidence that an origin is in order again: a mistake here costs little
# Targets this many times as large as one's own, in the root of their mean square, are of another
# kind of rows: with robust=True they are left out at once, before they have done harm.
LOUD = 5.0

# A row whose target is e away from what is expected weighs least where others agree to rounding:
# 0.025 / e was measured beside 10^7 rows of theirs, on average over 50 rows and more.
LEAST_WEIGHT = 1e-3


@dataclass(frozen=True)
class Layout:
    """What is known of all rows' features.

    pairs: (n, 2) numbers of features whose squares add up to `square`; constant: {number: value};
    longest: the largest |z|^2 there can be.
    """

    pairs: Array = field(default_factory=lambda: np.empty((0, 2), np.int64))
    square: float = 0.0
    constant: Mapping[int, float] = field(default_factory=dict)
    longest: float = math.inf


def layout_of(features: Any) -> Layout:
    """What a drawn map fixes of its features."""
    longest = float(getattr(features, "sup_norm2", math.inf))
    if not getattr(features, "paired", False):
        return Layout(longest=longest)
    F = features.n_frequencies
    return Layout(np.arange(2 * F).reshape(2, F).T, features.scale**2, longest=longest)


@dataclass(frozen=True)
class RowLimits:
    """weight: the most that a row can weigh; target: the largest |y|; rate: rows a second."""

    weight: float = 1.0
    target: float = math.inf
    rate: float = math.inf

    def too_light(self, weight: float, rows: int) -> bool:
        """Whether no rows, learned one by one, weigh so little together."""
        least = LEAST_WEIGHT / (1.0 + self.target) * rows
        return self.weight < math.inf and rows > 0 and weight <= least


ANY = RowLimits(math.inf)


def faults(sums: Sums, layout: Layout, limits: RowLimits = ANY) -> list[str]:
    """Why no rows can have these sums, in words; empty if some could."""
    numbers = np.concatenate([shared.pack(sums), [sums.rows]])
    if not np.isfinite(numbers).all():
        return ["a number is not finite"]
    slack = TOLERANCE * max(1.0, abs(sums.weight))
    return [
        *_counts(sums, limits, slack),
        *_diagonal(sums, layout, slack),
        *_directions(sums, layout, slack),
    ]


def _counts(sums: Sums, limits: RowLimits, slack: float) -> list[str]:
    found = []
    if sums.rows < 0 or sums.weight < -slack:
        found.append(f"{sums.rows} rows of weight {sums.weight:g}")
    if sums.weight > limits.weight * sums.rows + slack:
        found.append(f"{sums.rows} rows weigh {sums.weight:g}, more than {limits.weight:g} each")
    if limits.too_light(sums.weight, sums.rows):
        found.append(f"{sums.rows} rows weigh {sums.weight:g} together, less than rows can")
    most = limits.target**2 * max(sums.weight, 0.0)
    if sums.yy.min() < 0 or (sums.yy > most * (1 + TOLERANCE) + slack).any():
        found.append(f"squares of targets add up to {sums.yy.max():g}, where {most:g} is the most")
    return found


def _diagonal(sums: Sums, layout: Layout, slack: float) -> list[str]:
    found, diagonal = [], sums.zz.diagonal()
    both = diagonal[layout.pairs].sum(axis=1)
    off = np.abs(both - layout.square * sums.weight)
    if off.size and off.max() > max(layout.square, 1e-3) * slack:
        found.append(
            f"cosine and sine of frequency {int(off.argmax())} have squares that add up to "
            f"{both[off.argmax()]:g}, and rows of this weight to {layout.square * sums.weight:g}"
        )
    for i, value in layout.constant.items():
        if abs(diagonal[i] - value**2 * sums.weight) > value**2 * slack:
            found.append(f"feature {i} is always {value:g}, yet its entry is {diagonal[i]:g}")
    if diagonal.sum() > layout.longest * (sums.weight + slack):
        found.append(f"features are longer than they can be: {diagonal.sum():g}")
    return found


def _directions(sums: Sums, layout: Layout, slack: float) -> list[str]:
    from scipy.linalg import lapack

    lower = np.array(sums.zz, order="F")
    diagonal = float(lower.diagonal().max(initial=0.0))
    lower.T.flat[:: len(lower) + 1] += slack * max(1e-3, min(layout.longest, diagonal + 1e-3))
    C, info = lapack.dpotrf(lower, lower=1, clean=0, overwrite_a=1)
    if info:
        return ["Z'Z has a negative direction"]
    explained = (lapack.dtrtrs(C, sums.zy.T, lower=1)[0] ** 2).sum(axis=0)
    # What rounding may add to a direction in which there is nothing.
    if (explained > sums.yy * (1 + 1e-3) + slack).any():
        return ["features explain more of the targets than there is"]
    return []


def negative(sums: Sums) -> bool:
    """Whether Z'Z, of finite numbers, has a negative direction."""
    return bool(_directions(replace(sums, yy=np.full(sums.yy.shape, np.inf)), Layout(), TOLERANCE))


def growth_faults(
    before: Entry | None,
    after: Entry,
    layout: Layout,
    limits: RowLimits = ANY,
    seconds: float = math.inf,
) -> list[str]:
    """Why an origin cannot have got from one entry to the next within n seconds.

    Another incarnation may have other sums, but no more new rows: a node that starts again still
    has the earlier ones.
    """
    found = faults(after.sums, layout, limits)
    if before is not None and before.incarnation == after.incarnation:
        grown = _grown(after.sums - before.sums, layout)
        lost = FLOAT32 * after.sums.weight
        added = after.sums.rows - before.sums.rows
        if limits.too_light(after.sums.weight - before.sums.weight + lost, added):
            grown.append(f"{added} rows of next to no weight")
        found += [f"since the entry before: {why}" for why in grown]
    new = after.sums.rows - (0 if before is None else before.sums.rows)
    if new > limits.rate * seconds:
        found.append(f"{new} rows within {seconds:g} s, more than {limits.rate:g} a second")
    return found


def _grown(added: Sums, layout: Layout) -> list[str]:
    """Differences lose digits, so only what is far off counts."""
    found = ["rows were taken away"] if added.rows < 0 or added.weight < -1.0 else []
    slack = 1e-2 * max(1.0, abs(added.weight))
    return found + _diagonal(added, layout, slack)


# -- origins whose rows hurt -------------------------------------------------------------------
@dataclass(frozen=True)
class Trial:
    """Evidence (`dokl.learning.alarms`) by origin. hurts: that own rows are predicted worse with
    its rows than without them. opposed: that its rows alone predict the opposite of them. back: of
    those left out, that they are in order again.
    """

    hurts: Mapping[str, float] = field(default_factory=dict)
    opposed: Mapping[str, float] = field(default_factory=dict)
    back: Mapping[str, float] = field(default_factory=dict)

    @property
    def out(self) -> set[str]:
        """Who is left out."""
        return set(self.back)


def loud(sums: Sums, own: Sums) -> bool:
    """Whether targets are much larger than those of one's own rows; undecided with few of these."""
    if own.rows < 2 or not own.yy.sum() > 0:
        return False
    return bool(sums.yy.sum() * own.weight > LOUD**2 * own.yy.sum() * sums.weight)


def _likeness(theta: Array, fresh: Sums) -> float:
    """The cosine of the angle between fresh targets and what theta: (m, D) predicts of them."""
    both = float((theta * fresh.zy).sum())
    explained = squared_error(theta, fresh) - float(fresh.yy.sum()) + 2 * both
    size = math.sqrt(max(explained, 0.0) * max(float(fresh.yy.sum()), 0.0))
    return max(-1.0, min(1.0, both / size)) if size > 0 else 0.0


def squared_error(theta: Array, fresh: Sums) -> float:
    """Squared error, added up over fresh rows and outputs, of theta: (m, D)."""
    from scipy.linalg.blas import dsymm

    explained = dsymm(1.0, fresh.zz, theta.T, lower=1).T - 2 * fresh.zy
    return float(fresh.yy.sum() + (theta * explained).sum())


@dataclass(frozen=True)
class Payoff:
    """What fresh rows show of one origin, each in [-1, 1]; None: not asked this time.

    hurts: how much `worse` they are predicted with it. opposed: the cosine of the angle between
    them and the opposite of what its rows alone predict, however large that is.
    """

    hurts: float | None
    opposed: float | None


def judge(
    trial: Trial,
    account: Account,
    own: str,
    fresh: Sums,
    rho: float,
    limit: float,
    whom: Collection[str] | None = None,
    solos: Mapping[str, Array] | None = None,
) -> Trial:
    """The trial once `fresh` rows of one's own, which are in no entry yet, have been predicted with
    and without each origin, or some of them (`whom`), and by the rows of each alone (`solos`, the
    best theta of each; by default of those in `whom`). limit: the evidence that is enough.

    With several to be left out each is judged beside the others that stay.
    """
    out = trial.out
    if own in account:
        out |= {name for name in account if loud(account[name].sums, account[own].sums)}
    others = {n for n in account if n != own and account[n].sums.rows}
    asked = others & set(others if whom is None else whom)
    if solos is None:
        solos = {name: solo(account[name], rho) for name in sorted(asked)}
    whole = origins.total(account, out)
    usual = squared_error(_best(whole, rho), fresh)
    for name in sorted(others & (asked | set(solos))):
        hurts = opposed = None
        if name in asked:
            entry, within = account[name].sums, name not in out
            other = squared_error(_best(whole - entry if within else whole + entry, rho), fresh)
            hurts = alarms.worse(usual, other) if within else alarms.worse(other, usual)
        if name in solos:
            opposed = -_likeness(solos[name], fresh)
        trial = judge_origin(trial, name, Payoff(hurts, opposed), limit)
    return trial


def judge_origin(trial: Trial, name: str, payoff: Payoff, limit: float) -> Trial:
    """The trial with what fresh rows show of one origin: in or out, or one step nearer to it."""
    if name in trial.back:
        evidence = alarms.update(trial.back[name], _in_favour(payoff))
        back = {n: e for n, e in trial.back.items() if n != name}
        return replace(trial, back=back if evidence >= BACK else {**back, name: evidence})
    hurts, opposed = dict(trial.hurts), dict(trial.opposed)
    if payoff.hurts is not None:
        hurts[name] = alarms.update(hurts.get(name, 0.0), payoff.hurts - HURTS)
    if payoff.opposed is not None:
        opposed[name] = alarms.update(opposed.get(name, 0.0), payoff.opposed - OPPOSED)
    if max(hurts.get(name, 0.0), opposed.get(name, 0.0)) < limit:
        return Trial(hurts, opposed, trial.back)
    hurts.pop(name, None)
    opposed.pop(name, None)
    return Trial(hurts, opposed, {**trial.back, name: 0.0})


def _in_favour(payoff: Payoff) -> float:
    """What speaks for one that is out: nothing while its rows would hurt."""
    if payoff.hurts is not None and payoff.hurts > HURTS:
        return -payoff.hurts
    return 0.0 if payoff.opposed is None else -payoff.opposed - OPPOSED


def solo(entry: Entry, rho: float) -> Array:
    """The best theta, (m, D), of an origin's rows alone."""
    return _best(entry.sums, rho)


def _best(sums: Sums, rho: float) -> Array:
    """The theta of sums, (m, D), without the covariance that nobody asks for here."""
    from scipy.linalg import lapack

    lower = np.array(sums.zz, order="F")
    lower.T.flat[:: len(lower) + 1] += rho
    C, info = lapack.dpotrf(lower, lower=1, clean=0, overwrite_a=1)
    if info:  # rounded on their way
        return shared.to_memory(sums, rho).theta
    return np.asarray(lapack.dpotrs(C, sums.zy.T, lower=1)[0].T)
