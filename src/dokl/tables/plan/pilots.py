"""Pilot runs for a plan: widths and steps tried on a sample, and the experts without settings.

Length scales and noise come from the sample first; a network agrees on the scales before it starts.

Widths and steps are tried by successive halving (Jamieson and Talwalkar 2016) on one pass of online
learning. All candidates of a round see the same rows in the same order, with the same frequencies
scaled by 1/sigma, so that their difference is not drowned in noise. The price is counted in samples
times features, and is at most two passes over the sample with the planned number of features.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dokl.base.arrays import Array, Block, is_sparse
from dokl.base.errors import Diverged
from dokl.base.progress import Bar
from dokl.base.random_numbers import generator
from dokl.estimators import AutoClassifier, AutoRegressor
from dokl.learning import classification, kernels, losses, scales, schedules
from dokl.learning.experts.bank import matrix_bytes
from dokl.learning.features import sample
from dokl.learning.scales import Scales
from dokl.learning.schedules import Schedule
from dokl.network.exchange import Exchange
from dokl.simulation.diffusion import Problem, init
from dokl.simulation.engines import choose
from dokl.simulation.methods import gradient
from dokl.tables.plan.advice import Advice, Budget

SCALE_ROWS = 500  # by which length scales are learned: a second or less
MOST_INPUTS = 100  # with more, length scales take minutes


def sample_scales(X: Any, Y: Array, classifying: bool) -> Scales | None:
    """The length scale of each input, as the experts learn them from 500 rows, and the noise.

    X: (n, d) standardised; Y: (n, m) numbers, or -1 and 1 for classes; the noise is in units of
    their variance. None for very many inputs, and where rows are sparse.
    """
    if is_sparse(X) or X.shape[1] > MOST_INPUTS:
        return None
    some = np.sort(generator(0, "plan-scales").permutation(len(X))[:SCALE_ROWS])
    rows, Y = X[some], Y[some]
    if classifying:
        return scales.learn_class_scales(rows, classification.class_numbers(Y), max(2, Y.shape[1]))
    return scales.learn_scales(rows, (Y - Y.mean(axis=0)) / np.maximum(Y.std(axis=0), 1e-300))


def least_noise(X: Any, found: Scales | None) -> float:
    """A share of the targets' variance that no function of the inputs explains: what marginal
    likelihood takes for noise, less two standard errors of n rows.
    """
    return float("inf") if found is None else lower_end(found.noise, min(SCALE_ROWS, X.shape[0]))


def lower_end(error: float, rows: int) -> float:
    """A mean square of n errors, less two standard errors as if they were Gaussian."""
    return error * max(0.0, 1 - 2 * math.sqrt(2 / rows))


# -- widths and steps -----------------------------------------------------------------------------
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
    """Share of wrong labels, and a little of the mean loss to separate equals."""
    if Y.shape[1] == 1:
        wrong = (np.where(scores > 0, 1.0, -1.0) != Y).mean()
    else:
        wrong = (scores.argmax(axis=1) != Y.argmax(axis=1)).mean()
    return float(wrong + 0.02 * np.mean(loss.value(Y, np.asarray(scores, float))))


def part(N: int, of: int) -> int:
    """A share of N rows, but never too few."""
    return min(N, max(200, N // of))


def even(D: int, most: int) -> int:
    """An even number of features, at most `most`."""
    return max(2, min(D, most) // 2 * 2)


# -- the experts without settings -----------------------------------------------------------------
EXPERT_ROWS = 1500  # of the sample that they are tried on: a few seconds
AT_A_TIME = 50
EXPERT_SHARE = 50  # of a hundred parts of all work, as far as a progress bar knows


@dataclass(frozen=True)
class ExpertPilot:
    """How the experts did: error (mean square or rate) over the second half of n rows,
    microseconds per row, bytes of their matrices; refused: why they are not advised, else "".
    y, predicted, inside: (rows,), targets, what was predicted for each before it was learned, and
    whether its 90 % interval held it (numbers only); relevance: (d,) of the inputs, summing to 1.
    model: what has learned these rows.
    """

    refused: str = ""
    error: float = math.nan
    rows: int = 0
    microseconds: float = math.nan
    memory: float = math.nan
    y: Array | None = field(default=None, repr=False)
    predicted: Array | None = field(default=None, repr=False)
    inside: Array | None = field(default=None, repr=False)
    relevance: Array | None = field(default=None, repr=False)
    model: Any = field(default=None, repr=False)

    @property
    def lines(self) -> list[Advice]:
        """What a plan reports of them."""
        if self.refused:
            return [Advice("method", "gradient", self.refused)]
        about = f"{self.rows:,} rows of the sample, the second half counted"
        return [
            Advice("method", "bank, no settings", "the best there is, wherever a budget lets"),
            Advice("error of the experts", self.error, about),
            Advice("microseconds a row", self.microseconds, "this machine, just now, with pilots"),
            Advice("memory of the experts, bytes", self.memory, "float64; matrices when full"),
        ]


def expert_pilot(
    X: Any, Y: Array, classifying: bool, budget: Budget, network: bool, D: int | None,
    bar: Bar | None = None,
) -> ExpertPilot:  # fmt: skip
    """Try the experts on a part of the sample, unless something speaks against them.

    X: (N, d), Y: (N, m) as engines take them. D: components that were asked for. bar: advances by
    EXPERT_SHARE in all.
    """
    model: Any = (AutoClassifier if classifying else AutoRegressor)(random_state=0)
    memory = matrix_bytes(model._settings().kinds, model.n_components)
    refused = _refused(X, budget, network, D, memory)
    if refused:
        return ExpertPilot(refused)
    rows = min(X.shape[0] * 4 // 5, EXPERT_ROWS)  # others show which columns matter
    half, began = rows // 2, time.perf_counter()
    if classifying:
        y, how = classification.class_numbers(Y[:rows]), {"classes": np.arange(max(2, Y.shape[1]))}
        (predicted,) = _in_parts(model, X, y, bar, **how)
        error, inside = float(np.mean(predicted[half:] != y[half:])), None
    else:
        y = Y[:rows, 0]
        predicted, low, high = _in_parts(model, X, y, bar, return_interval=0.9)
        error, inside = float(np.mean((predicted[half:] - y[half:]) ** 2)), (low <= y) & (y <= high)
    spent = (time.perf_counter() - began) / rows * 1e6
    if budget.microseconds is not None and spent > budget.microseconds:
        return ExpertPilot(f"time: experts take {spent:.0f} microseconds a row")
    found = y, predicted, inside, model.relevance_, model
    return ExpertPilot("", error, rows, spent, memory, *found)


def _in_parts(model: Any, X: Any, y: Array, bar: Bar | None, **how: Any) -> list[Array]:
    """Predictions of the rows of y before each is learned, some rows at a time: the same however
    they are split.
    """
    found, done = [], 0
    for start in range(0, len(y), AT_A_TIME):
        end = min(start + AT_A_TIME, len(y))
        predicted = model.prequential(X[start:end], y[start:end], **how)
        found.append(predicted if isinstance(predicted, tuple) else (predicted,))
        share = EXPERT_SHARE * end // len(y)
        if bar is not None:
            bar.advance(share - done, f"learning {end:,} of {len(y):,} rows of a sample")
        done = share
    return [np.concatenate(part) for part in zip(*found, strict=True)]


def _refused(X: Any, budget: Budget, network: bool, D: int | None, memory: float) -> str:
    if network:
        return "a network's: its nodes' vectors travel"
    if D is not None:
        return "this number of components was asked for"
    if is_sparse(X) or X.shape[1] > MOST_INPUTS:
        return "very many inputs: length scales would take minutes"
    if budget.memory is not None and memory > budget.memory:
        return f"memory: experts take {memory / 1e6:.0f} MB"
    if budget.microseconds is not None and budget.microseconds < 1:
        return "time: experts take more than a microsecond a row"
    return ""
