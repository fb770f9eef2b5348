"""A model solved again on fewer centres, small enough to carry, with what that costs in error.

A bank predicts with kernels at all centres of all its maps, thousands of numbers. Of these centres
the best few are taken one by one, each where it explains most of what is left of the full model's
predictions (orthogonal least squares), and heights are solved for again. What it learns from are
rows that the model keeps and, since the full model may be asked anything, rows between them.

What it costs is measured with a tenth of the kept rows left out: the distance d from the full model
for rows between these. The full model errs by e, as its own standard deviation says; if both are
independent, the small one errs by sqrt(e^2 + d^2). That is cautious: with all rows d is smaller,
and part of it is noise that the full model has learned.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, replace

import numpy as np

from dokl.base.arrays import Array
from dokl.base.errors import BadInput
from dokl.base.progress import Bar
from dokl.base.random_numbers import generator
from dokl.base.unlocked import one_thread
from dokl.estimators import AutoClassifier, AutoRegressor
from dokl.estimators.predict_only import FoldedClassifier, PredictOnly
from dokl.learning import calibration
from dokl.learning.experts import folding
from dokl.learning.experts.folding import Bumps, Folded
from dokl.learning.experts.maps import some_rows
from dokl.learning.experts.ranks import Ranks
from dokl.learning.experts.scaling import CLIP
from dokl.learning.scales import correlation, squared_distances
from dokl.tables.models import TableModel

# Rows to solve with, kept ones and between them; of each kept row at most BETWEEN.
ROWS, BETWEEN, NEIGHBOURS = 4500, 2, 8
CANDIDATES = 3000  # centres to choose from, the first of each map
HELD_BACK = 10  # one of this many rows measures the cost
# Ridge, of a column's mean square; a column is done with where so little of it is left.
RIDGE, LEFT = 1e-8, 1e-7
# Centres lie on a grid, so that C holds them in 16 bits; curves of ranks have fewer knots.
GRID, KNOTS = 9999, 32


@dataclass(frozen=True)
class Cost:
    """What fewer centres cost. before, centres: how many there were and are; rows: left out, to
    measure with; apart: root mean square of the difference from the full model there, over the
    outputs' sizes; error: of the full model in the same units; changed: the share of labels that
    differ, None of numbers. size: of the first output.
    """

    before: int
    centres: int
    rows: int
    apart: float
    error: float
    changed: float | None
    size: float

    @property
    def more(self) -> float:
        """The share by which the error of numbers grows."""
        return math.hypot(1.0, self.apart / self.error) - 1.0 if self.error > 0 else 0.0

    def lines(self) -> list[str]:
        """In words."""
        counts = f"{self.centres:,} centres instead of {self.before:,}"
        where = f"between {self.rows:,} rows left out for this"
        if self.changed is not None:
            return [f"{counts}: {100 * self.changed:.1f} % of labels change, {where}"]
        e, d = self.error * self.size, self.apart * self.size
        return [
            f"{counts}: {d:.3g} from the full model (root mean square, {where})",
            f"the full model's error is about {e:.3g}, so this one's is about "
            f"{math.hypot(e, d):.3g}: {100 * self.more:.1f} % more, by a cautious estimate",
        ]


@one_thread()
def fewer_centres(model: TableModel, most: int, bar: Bar | None = None) -> tuple[TableModel, Cost]:
    """A copy that predicts, with at most n centres, and what that costs.

    bar: advances by one for each centre, 2 most in all.
    """
    if most < 1:
        raise BadInput(f"a model needs a centre or more, not {most}")
    rows, bar = _rows_of(model), bar or Bar()
    small = model.predict_only()
    estimator: PredictOnly = small.estimator
    (full,) = estimator.folded_
    assert isinstance(full, Folded)
    drawn = generator(0, "fewer-centres").permutation(len(rows))
    out, rest = np.split(drawn, [len(rows) // HELD_BACK])
    bar.advance(0, "measuring what it costs")
    trial = _solve(full, rows[np.sort(rest)], most, bar)
    cost = _cost(estimator, full, trial, rows[np.sort(out)])
    bar.advance(0, "solving again")
    made = _solve(full, rows, most, bar)
    small.estimator = _with(estimator, made, cost)
    return small, replace(cost, centres=_count(made))


def _rows_of(model: TableModel) -> Array:
    """Rows that the model keeps, as its bank has them."""
    made = model.estimator
    if not isinstance(made, (AutoRegressor, AutoClassifier)):
        raise BadInput(
            f"a {type(made).__name__} cannot be solved again on fewer centres: that takes a model "
            "without settings (dokl train), with the rows that it keeps"
        )
    rows = made.bank_.stored.all()[0] if hasattr(made, "bank_") else np.empty((0, 0))
    if len(rows) < 2 * HELD_BACK or made.bank_.now is None:
        raise BadInput("this model has learned too few rows to be solved again on fewer centres")
    return np.asarray(rows[some_rows(0, len(rows), ROWS // (1 + BETWEEN), "fewer-centres")])


def _count(made: Folded) -> int:
    return sum(len(each.centres) for each in made.bumps)


def _cost(estimator: PredictOnly, full: Folded, trial: Folded, left_out: Array) -> Cost:
    """Measured between rows that were left out: (n, d)."""
    size, rows = full.targets.size, _between(full, left_out)
    ours, theirs = (folding.predict(each, rows) for each in (trial, full))
    apart = math.sqrt(float(np.mean(((ours - theirs) / size) ** 2)))
    error = math.sqrt(float(np.mean((estimator.spread_ / size) ** 2)))
    changed = None
    if isinstance(estimator, FoldedClassifier):
        given = estimator.calibration_
        levels = (calibration.levels(given, calibration.both(each)) for each in (ours, theirs))
        labels = [each.argmax(axis=1) for each in levels]
        changed = float(np.mean(labels[0] != labels[1]))
    counts = _count(full), _count(trial), len(left_out)
    return Cost(*counts, apart, error, changed, float(size[0]))


def _with(estimator: PredictOnly, made: Folded, cost: Cost) -> PredictOnly:
    """The same estimator with another formula, its intervals wider by what that costs."""
    small = copy.copy(estimator)
    small.folded_ = (made,)
    small.spread_ = np.hypot(estimator.spread_, cost.apart * made.targets.size)
    return small


# -- centres, one by one -----------------------------------------------------------------------
def _solve(full: Folded, rows: Array, most: int, bar: Bar) -> Folded:
    """What is like the full model at rows (n, d) and between them, with fewer centres."""
    rows = np.concatenate([rows, _between(full, rows)])
    Y = full.targets.inward(folding.predict(full, rows))
    start = _candidates(full)
    A, p = _columns(start, rows)
    few = _only(start, _forward(A, Y, p, most, bar))
    A, p = _columns(few, rows)
    G = A.T @ A
    G[np.diag_indices(len(G))] += RIDGE * len(A)
    theta = np.linalg.solve(G, A.T @ Y).T  # (m, columns)
    return _with_heights(few, theta[:, :p], theta[:, p:])


def _only(full: Folded, chosen: Array) -> Folded:
    """These centres, counted over all maps, on a grid; ranks where one of them needs them."""
    bumps, first = [], 0
    for each in full.bumps:
        last = first + len(each.centres)
        own = np.sort(chosen[(chosen >= first) & (chosen < last)]) - first
        first = last
        if len(own):
            centres, apart = _on_grid(each.centres[own]), each.apart[own]
            bumps.append(replace(each, centres=centres, apart=apart))
    ranks = full.ranks if any(each.ranked for each in bumps) else None
    return replace(full, bumps=tuple(bumps), ranks=ranks)


def _with_heights(full: Folded, lines: Array, heights: Array) -> Folded:
    """lines: (m, p) of the columns before the bumps, heights: (m, M)."""
    d = full.slope.shape[1]
    bumps, ranked = [], lines[:, 1 + d :]
    for each in full.bumps:
        mine, heights = np.split(heights, [len(each.centres)], axis=1)
        slope = None
        if each.ranked:  # the line of ranks stands with the first that has them
            slope, ranked = np.ascontiguousarray(ranked), np.zeros_like(ranked)
        bumps.append(replace(each, heights=np.ascontiguousarray(mine), slope=slope))
    slope = np.ascontiguousarray(lines[:, 1 : 1 + d])
    return replace(full, base=lines[:, 0].copy(), slope=slope, bumps=tuple(bumps))


def _between(full: Folded, rows: Array) -> Array:
    """Rows between each of rows (n, d) and near ones, every input somewhere on the way."""
    draw = generator(0, "fewer-between")
    n = len(rows)
    few = min(NEIGHBOURS, n - 1)
    plain = [each for each in full.bumps if not each.ranked]
    lengths = plain[0].lengths if plain else np.ones(rows.shape[1])
    places = full.standardised(rows) / lengths
    apart = squared_distances(places, places)
    apart[np.diag_indices(n)] = np.inf
    near = np.argpartition(apart, few - 1, axis=1)[:, :few]
    first = np.repeat(np.arange(n), BETWEEN)
    other = near[first, draw.integers(few, size=len(first))]
    share = draw.uniform(size=(len(first), rows.shape[1]))
    return np.asarray(rows[first] + share * (rows[other] - rows[first]))


def _candidates(full: Folded) -> Folded:
    """The first centres of each map, and ranks of fewer knots."""
    each = max(1, CANDIDATES // max(1, len(full.bumps)))
    return replace(
        full, bumps=tuple(_first(bumps, each) for bumps in full.bumps),
        ranks=None if full.ranks is None else _thin(full.ranks),
    )  # fmt: skip


def _first(bumps: Bumps, most: int) -> Bumps:
    return replace(bumps, centres=bumps.centres[:most], apart=bumps.apart[:most])


def _on_grid(centres: Array) -> Array:
    step = np.abs(centres).max(initial=0.0) / GRID or 1.0
    return np.asarray(np.rint(centres / step) * step)


def grid_step(centres: Array) -> float | None:
    """The step of the grid that centres (M, d) lie on; None where they lie on none."""
    step = np.abs(centres).max(initial=0.0) / GRID
    if not step > 0:
        return None
    whole = centres / step
    return float(step) if (np.abs(whole - np.rint(whole)) < 1e-6).all() else None


def _thin(ranks: Ranks) -> Ranks:
    """At most KNOTS knots for each input."""
    pairs = []
    for values, scores in zip(ranks.values.T, ranks.scores.T, strict=True):
        own = int(np.argmax(scores == scores[-1])) + 1  # beyond, scores are the last one's
        at = np.unique(np.linspace(0, max(own, 2) - 1, KNOTS).round().astype(int))
        pairs.append((values[at], scores[at]))
    K = max(len(values) for values, _ in pairs)
    longer = [_longer(values, scores, K) for values, scores in pairs]
    return Ranks(*(np.stack(part, axis=1) for part in zip(*longer, strict=True)))


def _longer(values: Array, scores: Array, K: int) -> tuple[Array, Array]:
    """K of them, the last score also beyond."""
    beyond = max(values[-1], CLIP) + np.arange(1.0, K - len(values) + 1.0)
    return np.append(values, beyond), np.append(scores, np.full(len(beyond), scores[-1]))


def _columns(full: Folded, rows: Array) -> tuple[Array, int]:
    """A: (n, p + K) and p: a constant, lines, lines of ranks, and every bump."""
    u = full.standardised(rows)
    ranked = u if full.ranks is None else full.ranks.of(u)
    parts = [np.ones((len(rows), 1)), u] + ([] if full.ranks is None else [ranked])
    p = sum(part.shape[1] for part in parts)
    for each in full.bumps:
        own = (ranked if each.ranked else u) / each.lengths
        parts.append(correlation(each.kernel, squared_distances(own, each.centres) + each.apart))
    return np.hstack(parts), p


def _forward(A: Array, Y: Array, p: int, most: int, bar: Bar) -> Array:
    """Columns of A from p on, at most n, each where it explains most of what those before it
    leave of Y: (n, m). Their numbers count from p.
    """
    Q = np.linalg.qr(A[:, :p])[0]
    B, R = A[:, p:], Y - Q @ (Q.T @ Y)
    L = np.zeros((B.shape[1], p + most))
    L[:, :p] = B.T @ Q
    whole = np.einsum("ij,ij->j", B, B)
    left, worth = whole - (L[:, :p] ** 2).sum(axis=1), B.T @ R
    chosen: list[int] = []
    while len(chosen) < min(most, B.shape[1]):
        k, usable = p + len(chosen), left > LEFT * whole
        usable[chosen] = False
        gain = np.where(usable, (worth**2).sum(axis=1) / np.where(usable, left, 1.0), -1.0)
        j = int(np.argmax(gain))
        if gain[j] <= 0:
            break
        column = (B.T @ B[:, j] - L[:, :k] @ L[j, :k]) / math.sqrt(left[j])
        worth -= np.outer(column, worth[j] / math.sqrt(left[j]))
        left -= column**2
        L[:, k] = column
        chosen.append(j)
        bar.advance(1)
    bar.advance(most - len(chosen))
    return np.array(chosen, np.int64)
