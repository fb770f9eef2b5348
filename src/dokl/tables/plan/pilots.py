"""Pilot runs: widths and steps tried on a sample, the better ones again on more of it.

Successive halving (Jamieson and Talwalkar 2016) on one pass of online learning. All candidates of a
round see the same rows in the same order, with the same frequencies scaled by 1/sigma, so that
their difference is not drowned in noise. The price is counted in samples times features, and is
at most two passes over the sample with the planned number of features.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dokl.base.arrays import Array, Block
from dokl.base.errors import Diverged
from dokl.learning import kernels, losses, schedules
from dokl.learning.features import sample
from dokl.learning.schedules import Schedule
from dokl.network.exchange import Exchange
from dokl.simulation.diffusion import Problem, init
from dokl.simulation.engines import choose
from dokl.simulation.methods import gradient

# Around the median distance between rows, as factors.
WIDTHS = (0.1, 0.17, 0.28, 0.45, 0.7, 1.1, 1.7, 2.8)
STEPS = (0.03, 0.06, 0.12, 0.25, 0.5, 0.75, 1.0, 1.5)  # regression: mu, over |z|^2
ALPHAS = (1e-6, 1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2)  # classification


@dataclass(frozen=True)
class Candidate:
    """A width, as a factor of the base one, and a step: numbers of both in the lists above."""

    width: int
    step: int
    stretched: bool = False  # whether inputs have lengths of their own

    def near(self) -> Iterable[Candidate]:
        """Itself and its neighbours in width and step."""
        yield self
        for by in (-1, 1):
            if 0 <= self.step + by < len(STEPS):
                yield replace(self, step=self.step + by)
            if 0 <= self.width + by < len(WIDTHS):
                yield replace(self, width=self.width + by)


# What an estimator does without settings.
USUAL = Candidate(-1, -1)


@dataclass
class Pilots:
    """The sample and what is tried on it. X: (N, d) dense or CSR; Y: (N, m); spent: the price."""

    X: Any
    Y: Array
    classifying: bool
    loss: losses.Loss
    kernel: str
    base: float
    D: int
    variant: str
    seed: int
    spent: float = 0.0
    lengths: tuple[float, ...] | None = None  # of each input, on average 1; None: all alike
    plain: float = 1.0  # the width that an estimator takes by default

    def made(self, candidate: Candidate) -> kernels.Kernel:
        """The candidate's kernel."""
        if self.lengths is None or not candidate.stretched:
            return kernels.resolve(self.kernel, self.sigma(candidate))
        return kernels.resolve(
            self.kernel, tuple(self.sigma(candidate) * each for each in self.lengths)
        )

    def sigma(self, candidate: Candidate) -> float:
        """The candidate's width."""
        return self.plain if candidate == USUAL else self.base * WIDTHS[candidate.width]

    def settings(self, candidate: Candidate) -> tuple[Schedule, float, str]:
        """Schedule, alpha and averaging of a candidate: the estimators' own choices."""
        if not self.classifying:
            usual = STEPS[4] if candidate == USUAL else STEPS[candidate.step]
            return schedules.normalised(usual), 0.0, "none"
        alpha = ALPHAS[3] if candidate == USUAL else ALPHAS[candidate.step]
        return schedules.pegasos(alpha, 0.1 / alpha), alpha, "weighted"

    def error(self, candidate: Candidate, rows: int, D: int) -> float:
        """Error after one pass over `rows` rows: mean square or rate, on the rows that follow.

        Regression: a-priori error over the second half. Classification: error of the delivered
        (averaged) vector, learned from one half of the rows, on the other half.
        """
        schedule, alpha, average = self.settings(candidate)
        features = sample(
            self.made(candidate), self.X.shape[1], D, self.variant, self.seed,
        )  # fmt: skip
        problem = Problem(features, gradient(self.loss, schedule, alpha))
        exchange = Exchange(average=average)
        _, engine, plan = choose("auto", problem, exchange, None)
        test = rows // 2 if self.classifying else 0
        learn = rows - test
        block = Block(self.X, self.Y, None, np.arange(learn, dtype=np.int64)[:, None])
        state = init(problem, exchange, 1, self.Y.shape[1], plan.dtype)
        self.spent += float(rows) * D
        try:
            state, f = engine.advance(plan, state, block, 1)
        except Diverged:
            return float("inf")
        if not self.classifying:
            half = slice(learn // 2, learn)
            return float(((f[half, 0] - self.Y[half]) ** 2).mean())
        theta, bias = state.delivered()
        scores = engine.predict(plan, theta[0], bias[0], self.X[learn:rows], 1)
        return error_rate(scores, self.Y[learn:rows], self.loss)

    def search(self) -> tuple[Candidate, float]:
        """The best candidate and its error in the last round, where it meets what an estimator
        does without settings: advice is never worse than that on the same rows.

        With N rows and D features the rounds cost 24/8/4 + (at most) 6/4/4 + 3/3 times N D.
        """
        N = self.X.shape[0]
        coarse = even(max(64, self.D // 4), self.D)
        first = {Candidate(w, s) for w in range(len(WIDTHS)) for s in (1, 4, 6)}
        kept = best_of(self.round(first, part(N, 8), coarse), 3)
        near = list(dict.fromkeys(c for k in kept for c in k.near()))[:6]
        (found,) = best_of(self.round(near, part(N, 4), coarse), 1)
        more = [replace(found, stretched=True)] if self.lengths is not None else []
        last = self.round([found, USUAL, *more], part(N, 3), self.D)
        best = min(last, key=lambda c: (last[c], c.stretched, c.width, c.step))
        return best, last[best]

    def round(self, candidates: Iterable[Candidate], rows: int, D: int) -> dict[Candidate, float]:
        """The error of each candidate."""
        return {c: self.error(c, rows, D) for c in candidates}


def best_of(found: dict[Candidate, float], keep: int) -> list[Candidate]:
    """The `keep` best, each judged together with those around it.

    Errors on a few hundred rows are noisy and the true ones are smooth in width and step: a
    candidate counts for as much as all its neighbours together.
    """

    def smoothed(c: Candidate) -> float:
        around = [found[k] for k in found if k != c and close(k, c)]
        return 0.5 * (found[c] + sum(around) / len(around)) if around else found[c]

    return sorted(found, key=lambda c: (smoothed(c), c.width, c.step))[:keep]


def close(a: Candidate, b: Candidate) -> bool:
    """Neighbours in width, with the step at most three places apart (the first round has gaps)."""
    return abs(a.width - b.width) <= 1 and abs(a.step - b.step) <= (3 if a.width == b.width else 0)


def error_rate(scores: Array, Y: Array, loss: losses.Loss) -> float:
    """Share of wrong labels, and a little of the mean loss to tell equals apart."""
    if Y.shape[1] == 1:
        wrong = (np.where(scores > 0, 1.0, -1.0) != Y).mean()
    else:
        wrong = (scores.argmax(axis=1) != Y.argmax(axis=1)).mean()
    return float(wrong + 0.02 * np.mean(loss.value(Y, np.asarray(scores, float))))


def part(N: int, of: int) -> int:
    """A share of N rows, but never so few that they say nothing."""
    return min(N, max(200, N // of))


def even(D: int, most: int) -> int:
    """An even number of features, at most `most`."""
    return max(2, min(D, most) // 2 * 2)
