"""Many rows at once, where nobody asks what was predicted for each: sums, and one solution.

`blocks` writes P again every few rows, which takes three times as long as to add up Z'Z. An
infinite memory is a function of its sums, so here rows are added up, and solved whenever their
number has doubled. Innovations are bounded as in `blocks`, but by the solution before: a target
beyond is moved to where it pulls like one of the bounded size.

A memory that forgets is no function of sums, but has forgotten what lies LONG of its lengths back.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from dokl.base.arrays import Array
from dokl.learning.squares import blocks
from dokl.learning.squares import sums as adding
from dokl.learning.squares.memory import FIRST_NOISE, FIRST_ROWS, Memory, Numbers
from dokl.learning.squares.sums import Solution, Sums

# Rows that are learned one after another first: there is no solution yet to judge them by.
FIRST = 512
# What the first row of LONG lengths of a memory still counts is exp(-LONG/2), 0.2 %.
LONG = 12
# Where more rows than this share were moved, the function has changed along the rows. Then only
# `blocks` follows it.
FEW_MOVED = 0.01


@dataclass(frozen=True)
class Pass:
    """numbers: the learner's settings; judge: the newest solution, of `solved` rows; sums: of
    all rows so far; moved: targets that were; squares: of errors, as they are and as they count in
    the noise.
    """

    numbers: Numbers
    judge: Memory | Solution
    sums: Sums
    solved: int = 0
    moved: int = 0
    squares: tuple[float, float] = (0.0, 0.0)

    @property
    def trusted(self) -> bool:
        """Whether its rows are of one function."""
        return self.moved <= max(3.0, FEW_MOVED * self.sums.rows)


def start(numbers: Numbers, memory: Memory) -> Pass:
    """numbers: with lam = 1; memory: one that has learned nothing."""
    if numbers.lam != 1.0:
        raise ValueError("sums are what an infinite memory is a function of")
    return Pass(numbers, memory, adding.no_rows(memory.theta.shape[1], len(memory.num)))


def learn(known: Pass, Z: Array, Y: Array, weight: Array) -> Pass:
    """The pass after rows Z: (n, D), Y: (n, m) of positive weight: (n,). Raises NotDefinite."""
    at, judge = max(0, min(len(Z), FIRST - known.sums.rows)), known.judge
    if at:
        assert isinstance(judge, Memory)  # of so few rows there is no other
        judge, found = blocks.learn(known.numbers, judge, Z[:at], Y[:at], weight[:at])
        variance = (1.0 / weight[:at] + found.q)[:, None] * found.noise
        known = _add_rows(known, Z[:at], Y[:at], weight[:at], found.f, variance)
        known = replace(known, judge=judge, solved=known.sums.rows)
    if at < len(Z):
        Z, Y, weight = Z[at:], Y[at:], weight[at:]
        f, noise = Z @ judge.theta.T, judge.noise
        variance = noise / weight[:, None]
        # z'Pz makes an innovation smaller, so only those that are large without it need it.
        size = np.mean((Y - f) ** 2 / variance, axis=1)
        far = blocks.wild(known.numbers.bound, size, weight)
        if far.any():
            variance[far] += judge.variance(Z[far])[:, None] * noise
        known = _add_rows(known, Z, Y, weight, f, variance)
    if known.sums.rows < max(1, 2 * known.solved):
        return known
    return replace(known, judge=_solution(known), solved=known.sums.rows)


def _add_rows(known: Pass, Z: Array, Y: Array, w: Array, f: Array, variance: Array) -> Pass:
    """With rows that are predicted as f: (n, m), with errors of this variance: (n, m)."""
    error, bound, calm = Y - f, known.numbers.bound, known.numbers.calm
    size = np.mean(error**2 / variance, axis=1)
    moved = blocks.wild(bound, size, w)
    if moved.any():
        short = np.where(moved, bound / np.sqrt(np.maximum(size, 1e-300)), 1.0)
        Y, size = f + short[:, None] * error, np.where(moved, bound**2, size)
    most, level = calm**2 * np.maximum(w, 1.0), float(np.mean(size))
    for _ in range(5 if calm < math.inf else 0):  # what is calm depends on the noise without it
        level = float(np.mean(np.minimum(size, most * level)))
    squares = known.squares[0] + float(size.sum()), known.squares[1] + level * len(size)
    sums = adding.add(known.sums, Z, Y, w)
    return replace(known, sums=sums, moved=known.moved + int(moved.sum()), squares=squares)


def solve(known: Pass) -> Memory:
    """The memory of all rows so far. Raises NotDefinite."""
    judge = known.judge if known.solved == known.sums.rows else _solution(known)
    return judge if isinstance(judge, Memory) else judge.memory()


def _solution(known: Pass) -> Solution:
    """Of all rows so far, with noise in which each counts by its bounded size."""
    found, (raw, calm) = adding.solution(known.sums, known.numbers.rho), known.squares
    first = FIRST_NOISE * FIRST_ROWS
    num = first + (found.num - first) * (calm / raw if raw > 0.0 else 1.0)
    return replace(found, num=num)


def rows_that_count(numbers: Numbers, rows: int) -> int:
    """How many of the last of n rows a memory knows anything of."""
    if numbers.lam == 1.0:
        return rows
    return min(rows, math.ceil(LONG / (1.0 - numbers.lam)))
