"""Cases of the study, and their errors: one simulation for each case and seed.

A seed draws the frequencies Omega and the hours that have a label; both are the same for
all cases of that seed, so alone and together are compared like with like.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Self

import numpy as np
from beijing_data import FIRST, LEVEL, MONTH, NUMERIC, QUARTER, Stations, weights

from dokl import Exchange, Features, Gaussian, Problem, Stream, gradient, losses, run, schedules
from dokl.base.arrays import Array
from dokl.base.random_numbers import generator
from dokl.learning.metrics import mean_present

# The weight of an hour without a label: it is predicted, and float32 keeps nothing of the step.
PREDICT_ONLY = 1e-30
YEAR = 365.25 * 24


@dataclass(frozen=True)
class Case:
    """One way to learn.

    share: of the hours have a label; staggered: each station's own ones, or the same for all.
    intercept: size of the private constant, 0 for none. every: hours from exchange to exchange.
    inputs: "agreed", or another choice of INPUTS; target: "centred", or another of TARGETS.
    """

    together: bool = False
    intercept: float = 0.0
    share: float = 1.0
    staggered: bool = True
    mu: float = 0.5
    every: int = 1
    inputs: str = "agreed"
    target: str = "centred"


@dataclass(frozen=True)
class Settings:
    """What all cases have in common."""

    D: int = 500
    sigma: float = 5.0
    variant: str = "orthogonal"
    seeds: int = 10


@dataclass(frozen=True, eq=False)
class Errors:
    """Mean squared errors of one case, at the hours at which PM2.5 is known.

    early: (seeds,) over months 2 and 3; whole: (seeds,) from month 2 on; stations: (K,) and
    months: (months,) are means over seeds, the former from month 2 on.
    """

    early: Array
    whole: Array
    stations: Array
    months: Array

    def plain(self) -> dict[str, list[float]]:
        """For JSON."""
        return {name: np.round(values, 6).tolist() for name, values in vars(self).items()}

    @classmethod
    def from_plain(cls, entry: Mapping[str, Any]) -> Self:
        """From JSON, where there may be more."""
        return cls(**{field.name: np.array(entry[field.name]) for field in fields(cls)})


def _with_time(stations: Stations) -> Array:
    """Hour of day and day of year, each as a point on a circle."""
    hours = np.arange(stations.n)
    turns = 2 * np.pi * np.stack([hours / 24, hours / YEAR])
    circle = np.concatenate([np.sin(turns), np.cos(turns)]).T[:, None, :]
    X = stations.inputs()
    return np.concatenate([X, np.broadcast_to(circle, (*X.shape[:2], 4))], axis=2, dtype=np.float32)


INPUTS: dict[str, Callable[[Stations], Array]] = {
    "agreed": Stations.inputs,
    "time": _with_time,
    "calm": lambda stations: stations.inputs(wind=False),
    "rain": lambda stations: stations.inputs((*NUMERIC, "RAIN")),
    "PM10": lambda stations: stations.inputs((*NUMERIC, "PM10")),
}
TARGETS: dict[str, Callable[[Stations], Array]] = {
    "centred": lambda stations: stations.target,
    "plain": lambda stations: stations.target + LEVEL,
    "log": lambda stations: np.log(stations.pm25) - LEVEL,
}


class Study:
    """Runs cases over the stations' hours, each once."""

    def __init__(self, stations: Stations, graph: Any, settings: Settings) -> None:
        self.stations, self.settings = stations, settings
        self.weights = weights(graph, stations.names)
        self.done: dict[Case, Errors] = {}
        self._inputs: dict[str, Array] = {}

    def errors(self, case: Case) -> Errors:
        """The errors of a case over all seeds."""
        if case not in self.done:
            each = [self._squares(case, seed) for seed in range(self.settings.seeds)]
            self.done[case] = measured(each)
        return self.done[case]

    def labelled(self, case: Case, seed: int) -> Array:
        """Which hours have a label, (n, K); a larger share has those of a smaller one, too."""
        u = generator(seed, "label").random(self.stations.target.shape)
        u = u if case.staggered else np.broadcast_to(u[:, :1], u.shape)
        return np.asarray(u < case.share)

    def _squares(self, case: Case, seed: int) -> Array:
        """Squared a-priori errors (n, K); NaN where PM2.5 is missing."""
        X, y = self._input(case.inputs), TARGETS[case.target](self.stations)
        known = ~np.isnan(y)
        weight = np.where(self.labelled(case, seed), 1.0, PREDICT_ONLY) * known
        stream = Stream(X, np.nan_to_num(y).astype(np.float32), weight)
        settings = self.settings
        features = Features(
            Gaussian(settings.sigma), d=stream.d, D=settings.D, variant=settings.variant
        )
        problem = Problem(features, gradient(losses.squared(), schedules.normalised(case.mu)))
        A = self.weights if case.together else None
        exchange = Exchange(A, every=case.every, intercept=case.intercept)
        trace = run(
            problem, exchange, stream, seed=seed, record=["node_mse"], engine="numba",
            dtype="float32", workers=1, show_progress=False,
        )  # fmt: skip
        return np.asarray(trace.curves["node_mse"][0])

    def _input(self, name: str) -> Array:
        """One choice of inputs at a time is kept: four years of them are 40 MB."""
        if name not in self._inputs:
            self._inputs = {name: INPUTS[name](self.stations)}
        return self._inputs[name]

    def last_label(self, case: Case) -> Errors:
        """Instead of learning: the station's last label."""
        each = []
        for seed in range(self.settings.seeds):
            y = self.stations.target
            there = self.labelled(case, seed) & ~np.isnan(y)
            hours = np.arange(len(y))[:, None]
            last = np.maximum.accumulate(np.where(there, hours, -1), axis=0)
            before = np.vstack([np.full((1, y.shape[1]), -1), last[:-1]])
            guess = np.take_along_axis(y, np.maximum(before, 0), axis=0)
            each.append((y - np.where(before < 0, 0.0, guess)) ** 2)
        return measured(each)

    def constant(self) -> Errors:
        """Instead of learning: always the agreed level."""
        return measured([self.stations.target**2])


def measured(each: list[Array]) -> Errors:
    """From the squared errors (n, K) of each seed."""
    early = np.array([np.nanmean(e[MONTH:QUARTER]) for e in each])
    whole = np.array([np.nanmean(e[MONTH:]) for e in each])
    stations = np.mean([mean_present(e[MONTH:], (0,)) for e in each], axis=0)
    return Errors(early, whole, stations, np.mean([monthly(e) for e in each], axis=0))


def monthly(squares: Array) -> Array:
    """Means over the months of the calendar and all stations: (n, K) -> (months,)."""
    hours = FIRST + np.arange(len(squares))
    month = hours.astype("M8[M]").astype(int)
    starts = np.flatnonzero(np.diff(month, prepend=-1))
    return np.array([np.nanmean(part) for part in np.split(squares, starts[1:])])


def ways(case: Case) -> list[Case]:
    """Alone, together, and together with a private intercept of 0.3."""
    shared = replace(case, together=True)
    return [case, shared, replace(shared, intercept=0.3)]


def stored(study: Study) -> list[dict[str, Any]]:
    """All cases done, for JSON."""
    return [{**asdict(case), **errors.plain()} for case, errors in study.done.items()]


def from_stored(cases: Iterable[dict[str, Any]]) -> dict[Case, Errors]:
    """The cases of a file of results."""
    names = [field.name for field in fields(Case)]
    return {
        Case(**{name: entry[name] for name in names}): Errors.from_plain(entry) for entry in cases
    }
