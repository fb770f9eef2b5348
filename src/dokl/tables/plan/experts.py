"""The experts without settings as a plan's advice: how they do on the sample, and their price."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dokl.base.arrays import Array, is_sparse
from dokl.base.progress import Bar
from dokl.estimators import AutoClassifier, AutoRegressor
from dokl.learning import answers
from dokl.learning.experts.bank import matrix_bytes
from dokl.tables.plan.advice import Advice, Budget
from dokl.tables.plan.lengths import MOST_INPUTS

EXPERT_ROWS = 1500  # of the sample that they are tried on: a few seconds
AT_A_TIME = 50
EXPERT_SHARE = 50  # of a hundred parts of all work, as far as a progress bar knows


@dataclass(frozen=True)
class ExpertPilot:
    """How the experts did: error (mean square or rate) over the second half of so many rows,
    microseconds per row, bytes of their matrices; refused: why they are not advised, else "".
    y, said, inside: (rows,), targets, what was said of each before it was learned, and whether its
    90 % interval held it (numbers only); relevance: (d,) of the inputs, summing to 1. model: what
    has learned these rows.
    """

    refused: str = ""
    error: float = math.nan
    rows: int = 0
    microseconds: float = math.nan
    memory: float = math.nan
    y: Array | None = field(default=None, repr=False)
    said: Array | None = field(default=None, repr=False)
    inside: Array | None = field(default=None, repr=False)
    relevance: Array | None = field(default=None, repr=False)
    model: Any = field(default=None, repr=False)

    @property
    def lines(self) -> list[Advice]:
        """What a plan says of them."""
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
    rows = min(X.shape[0] * 4 // 5, EXPERT_ROWS)  # others tell which columns matter
    half, began = rows // 2, time.perf_counter()
    if classifying:
        y, how = answers.class_numbers(Y[:rows]), {"classes": np.arange(max(2, Y.shape[1]))}
        (said,) = _in_parts(model, X, y, bar, **how)
        error, inside = float(np.mean(said[half:] != y[half:])), None
    else:
        y = Y[:rows, 0]
        said, low, high = _in_parts(model, X, y, bar, return_interval=0.9)
        error, inside = float(np.mean((said[half:] - y[half:]) ** 2)), (low <= y) & (y <= high)
    spent = (time.perf_counter() - began) / rows * 1e6
    if budget.microseconds is not None and spent > budget.microseconds:
        return ExpertPilot(f"time: experts take {spent:.0f} microseconds a row")
    found = y, said, inside, model.relevance_, model
    return ExpertPilot("", error, rows, spent, memory, *found)


def _in_parts(model: Any, X: Any, y: Array, bar: Bar | None, **how: Any) -> list[Array]:
    """What is said of the rows of y before each is learned, some rows at a time: the same however
    they are split.
    """
    found, done = [], 0
    for start in range(0, len(y), AT_A_TIME):
        end = min(start + AT_A_TIME, len(y))
        said = model.prequential(X[start:end], y[start:end], **how)
        found.append(said if isinstance(said, tuple) else (said,))
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
