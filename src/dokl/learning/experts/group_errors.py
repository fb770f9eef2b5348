"""Short memories of each group's errors, which correct a bank's predictions for its rows.

A bank over (row, group) learns what groups have in common and where they lie. A group of few rows,
or one that the last pilot has not seen, shares the place of others, and errs in the same direction
from row to row; so does one that drifts. For every group and each of MEMORIES

    c = sum_k decay^k w_k e_k / (RIDGE + sum_k decay^k w_k)

with the bank's errors e_k on its rows of weight w_k, newest first, is what would be added to its
prediction. Those and "no correction" are mixed by what each gains over all groups
(`dokl.learning.mixture`).

>>> known, group, y = start(1), np.arange(200) % 4, np.arange(200.0).reshape(-1, 1) % 4
>>> known, mean, _ = learn(known, group, y, np.ones((200, 1)), np.ones((200, 1)))
>>> bool(np.abs(mean - y)[100:].max() < 0.1)  # the bank predicted 1 for all
True
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dokl.base.arrays import Array
from dokl.learning import mixture as mixing
from dokl.learning.mixture import Mixture

# In rows of the group. The last error alone is best where groups drift, all of them where they
# differ by a constant.
MEMORIES = (1.0, 3.0, 10.0, math.inf)
# At a new map those longer than this begin again: it has learned most of what they knew.
SHORT = 3.0
# How many rows' worth of "no error" each group begins with.
RIDGE = 0.3
# Groups whose errors are remembered. A further one takes the place of the one that was not seen
# for longest.
MOST_GROUPS = 50_000
# Rows over which squared errors are averaged; they begin with 1.
LATELY = 1000.0
LEAST, MOST = 1e-9, 1e9  # of them
_DECAY = np.array([1.0 - 1.0 / rows for rows in MEMORIES])
_AWAKE = np.ones(1 + len(MEMORIES), bool)


@dataclass(frozen=True)
class GroupErrors:
    """Of groups by number: (G,), ascending, the row when each was last seen: (G,), and discounted
    sums of errors, total: (G, M, m), and of their weights: (G, M). errors: (1 + M, m), mean squares
    without and with each correction, in the bank's variances; mixture: of these. rows: learned;
    most: groups that are remembered.
    """

    numbers: Array
    last: Array
    total: Array
    weight: Array
    errors: Array
    mixture: Mixture
    rows: int = 0
    most: int = MOST_GROUPS

    def corrections(self, group: Array) -> Array:
        """(n, M, m) for groups by number: (n,); 0 where a group is not known."""
        n, (_, M, m) = len(group), self.total.shape
        if not len(self.numbers):
            return np.zeros((n, M, m))
        at = np.minimum(np.searchsorted(self.numbers, group), len(self.numbers) - 1)
        found = self.total[at] / (RIDGE + self.weight[at])[:, :, None]
        return np.where((self.numbers[at] == group)[:, None, None], found, 0.0)


def start(m: int) -> GroupErrors:
    """No group is known; m outputs."""
    M = len(MEMORIES)
    nothing = np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros((0, M, m)), np.zeros((0, M))
    return GroupErrors(*nothing, np.ones((1 + M, m)), mixing.start(1 + M))


def learn(
    known: GroupErrors, group: Array, Y: Array, f: Array, variance: Array,
    weight: Array | None = None, bound: float = math.inf,
) -> tuple[GroupErrors, Array, Array]:  # fmt: skip
    """Rows of groups by number: (n,), with targets Y: (n, m), which the bank predicted as f with
    variance: (n, m). Returns means and variances (n, m) with the correction that each row had
    before it was learned. Groups of negative numbers are nobody's: they are not corrected.
    """
    new = np.setdiff1d(group[group >= 0], known.numbers)
    if len(group) > 1 and len(known.numbers) + len(new) > known.most:
        return _one_by_one(known, group, Y, f, variance, weight, bound)
    known = _with(known, new)
    total, sums, last = known.total.copy(), known.weight.copy(), known.last.copy()
    errors, w = known.errors.copy(), np.ones(len(group)) if weight is None else weight
    sd = np.sqrt(np.maximum(variance, 1e-300))
    reach = bound * sd if bound < math.inf else np.full(sd.shape, math.inf)
    e = np.clip(Y - f, -reach, reach)
    F, V = np.repeat(f[:, None], len(_AWAKE), axis=1), np.empty((len(f), *errors.shape))
    for t, i in enumerate(_places(known, group)):
        V[t] = variance[t] * errors / errors[0]
        if i >= 0:
            c = total[i] / (RIDGE + sums[i])[:, None]
            F[t, 1:] += c
            total[i] = _DECAY[:, None] * total[i] + w[t] * e[t]
            sums[i] = _DECAY * sums[i] + w[t]
            last[i] = known.rows + t
        off = np.clip(F[t] - Y[t], -reach[t], reach[t]) / sd[t]
        errors += (np.clip(off * off, LEAST, MOST) - errors) / LATELY
    mixture, mean, spread = mixing.mix(known.mixture, F, V, Y, _AWAKE, weight, bound, relative=True)
    about = {"last": last, "total": total, "weight": sums, "errors": errors, "mixture": mixture}
    return replace(known, rows=known.rows + len(f), **about), mean, spread  # type: ignore[arg-type]


def predict(known: GroupErrors, group: Array, f: Array, variance: Array) -> tuple[Array, Array]:
    """Means and variances (n, m) with their correction."""
    F = np.repeat(f[:, None], len(_AWAKE), axis=1)
    F[:, 1:] += known.corrections(group)
    # Of a group that nobody has seen nothing is corrected, and nothing gained by it.
    gained = np.where(
        np.isin(group, known.numbers)[:, None, None], known.errors / known.errors[0], 1.0
    )
    V = variance[:, None] * gained
    return mixing.combine(known.mixture.weights(_AWAKE), F, V)


def begin_again(known: GroupErrors, left: GroupErrors) -> GroupErrors:
    """With a new map of the bank's, which leaves these errors: the short memories stay."""
    both = _with(
        known, np.setdiff1d(left.numbers, known.numbers)[: known.most - len(known.numbers)]
    )
    short = np.array([rows <= SHORT for rows in MEMORIES])
    total, weight = both.total * short[:, None], both.weight * short
    at = np.flatnonzero(np.isin(both.numbers, left.numbers))
    of = np.searchsorted(left.numbers, both.numbers[at])
    total[at] += left.total[of] * ~short[:, None]
    weight[at] += left.weight[of] * ~short
    return replace(both, total=total, weight=weight)


def _one_by_one(
    known: GroupErrors, group: Array, Y: Array, f: Array, variance: Array,
    weight: Array | None, bound: float,
) -> tuple[GroupErrors, Array, Array]:  # fmt: skip
    """Who makes room for whom must not depend on how rows are cut into calls."""
    mean, spread = np.empty_like(f), np.empty_like(f)
    for t in range(len(group)):
        one = slice(t, t + 1)
        own = None if weight is None else weight[one]
        given = known, group[one], Y[one], f[one], variance[one], own, bound
        known, mean[one], spread[one] = learn(*given)
    return known, mean, spread


def _with(known: GroupErrors, new: Array) -> GroupErrors:
    """With further groups: (k,), which have no errors yet; at most one where there is no room."""
    if not len(new):
        return known
    parts = {name: getattr(known, name) for name in ("numbers", "last", "total", "weight")}
    if len(known.numbers) + len(new) > known.most:
        longest = int(np.argmin(known.last))
        parts = {name: np.delete(part, longest, axis=0) for name, part in parts.items()}
    at = np.searchsorted(parts["numbers"], new)
    values: dict[str, Any] = {"numbers": new, "last": known.rows, "total": 0.0, "weight": 0.0}
    parts = {name: np.insert(part, at, values[name], axis=0) for name, part in parts.items()}
    return replace(known, **parts)


def _places(known: GroupErrors, group: Array) -> list[int]:
    """Where each row's group stands, -1 where it does not: (n,)."""
    if not len(known.numbers):
        return [-1] * len(group)
    at = np.minimum(np.searchsorted(known.numbers, group), len(known.numbers) - 1)
    places: list[int] = np.where(known.numbers[at] == group, at, -1).tolist()
    return places
