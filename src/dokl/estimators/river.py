"""Kernel learning in River: samples are dicts, and their features come and go.

>>> from river import datasets, evaluate, metrics, preprocessing
>>> from dokl.estimators.river import KernelClassifier
>>> model = preprocessing.StandardScaler() | KernelClassifier(sigma=2.0)
>>> evaluate.progressive_val_score(datasets.Phishing(), model, metrics.Accuracy())
Accuracy: 8...%

A feature's frequencies are drawn from its name (see `dokl.estimators.river_inputs`), so nothing has
to be known beforehand; a feature that is absent, None or NaN contributes nothing, as if it were 0.
Bring features to comparable sizes first, with River's StandardScaler or `standardise=True`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any

import numpy as np

from dokl.base.arrays import Array, Block, check_whole
from dokl.base.errors import BadInput, MissingExtra
from dokl.estimators.choices import Seeded, loss_of, set_parameters, step_of
from dokl.estimators.inputs import checked_weight, not_negative
from dokl.estimators.lags import as_list, seconds_column
from dokl.estimators.river_inputs import (
    NamedFrequencies,
    Running,
    SparseRows,
    Table,
    numbers_of,
    numbers_of_frame,
)
from dokl.learning import kernels
from dokl.learning.classification import shares
from dokl.learning.columns import LagColumns, LagPlan
from dokl.learning.features import FeatureMap
from dokl.learning.kernels import Kernel
from dokl.learning.losses import Loss
from dokl.learning.schedules import Schedule
from dokl.network.exchange import Exchange
from dokl.network.state import State
from dokl.simulation.diffusion import Problem
from dokl.simulation.learner import Learner
from dokl.simulation.methods import gradient

try:
    from river import base
except ImportError:
    raise MissingExtra("dokl.estimators.river", "river") from None

from dokl.estimators.river_auto import AutoClassifier, AutoRegressor

__all__ = ["AutoClassifier", "AutoRegressor", "KernelClassifier", "KernelRegressor", "Lags"]

Sample = Mapping[Hashable, Any]
Named = tuple[list[Hashable], Array]  # names of inputs, and their values: (n, names)


class Machine:
    """What a model computes with, apart from its state; made again where a pickle left it out.

    One object, so that a copy of a model has a plan and a table that belong together.
    """

    def __init__(
        self, kernel: Kernel, D: int, seed: int, limit: int, exchange: Exchange, loss: Loss,
        schedule: Schedule, lam: float,
    ) -> None:  # fmt: skip
        if D % 2:
            raise BadInput(f"n_components are pairs (cos, sin) and must be even: use {D + 1}")
        self.kernel, self.D, self.exchange = kernel, D, exchange
        self.table = Table(NamedFrequencies(kernel, D // 2, seed), limit)
        self.method = gradient(loss, schedule, lam)
        self.learner = self._learner()

    def _map(self) -> FeatureMap:
        """A map as large as the table, empty: its frequencies are written into the plan."""
        seed, F = self.table.frequencies.seed, self.table.frequencies.F
        d = len(self.table.turns)
        nothing = np.broadcast_to(0.0, (d, F))
        return FeatureMap(self.kernel, d, self.D, "paired", seed, omega=nothing)

    def _learner(self) -> Learner:
        problem = Problem(self._map(), self.method)
        learner = Learner(problem, self.exchange, dtype=np.float64, engine="numba")
        F, rows = self.table.frequencies.F, learner.plan.map.freq
        rows[:, :F] = self.table.turns[:, :F]  # the plan pads its rows
        self.table.turns = rows  # the loops see new rows from now on
        return learner

    def rows(self, names: Iterable[Hashable], values: Array) -> SparseRows:
        """values: (n, names) -> n rows for the engine."""
        slots = np.array(self.table.slots(names), np.int64)
        if len(self.table.turns) != self.learner.d:
            self.learner = self._learner()
        shape = len(values), len(self.table.turns)
        if len(values) == 1:
            return SparseRows(values[0], slots, np.array([0, len(slots)]), shape)
        there = values != 0
        starts = np.concatenate([[0], np.cumsum(there.sum(axis=1))])
        return SparseRows(values[there], slots[np.nonzero(there)[1]], starts, shape)

    def advance(self, state: State, X: object, Y: Array, w: Array | None) -> State:
        """The state after these rows, one after another; Y: (n, m)."""
        index = np.arange(len(Y), dtype=np.int64).reshape(-1, 1)
        return self.learner.advance(state, Block(X, Y, w, index))[0]


class _Learner(Seeded):
    """What the two share: parameters, a machine, a state."""

    kernel: Any
    sigma: float
    n_components: int
    loss: Any
    step: Any
    alpha: float
    average: str
    intercept: bool | float
    max_features: int
    standardise: bool = False

    _classifying = False
    _machine: Machine | None = None
    _running: Running | None = None

    def _begin(self, parameters: Mapping[str, Any]) -> None:
        set_parameters(self, parameters)
        self._keep_seed()
        self._machine = self._made()
        self._state: State = self._machine.learner.start()
        if self.standardise:
            self._running = Running()

    def _made(self) -> Machine:
        named = isinstance(self.kernel, str)
        kernel = kernels.resolve(self.kernel, self.sigma if named else None)
        loss = loss_of(self.loss, self._classifying)
        alpha, c = not_negative("alpha", self.alpha), not_negative("intercept", +self.intercept)
        schedule = step_of(self.step, loss, alpha, 1 + c * c, self._classifying)
        sizes = check_whole("n_components", self.n_components), self._seed
        limit = check_whole("max_features", self.max_features)
        exchange = Exchange(intercept=float(c), average=self.average)
        return Machine(kernel, *sizes, limit, exchange, loss, schedule, alpha)

    @property
    def machine(self) -> Machine:
        """Engine and frequencies."""
        if self._machine is None:
            self._machine = self._made()
        return self._machine

    def __getstate__(self) -> dict[str, Any]:
        """Parameters and what was learned: frequencies are drawn again when needed."""
        left = ("_machine",) if self.standardise else ("_machine", "standardise")
        left = left if self.random_state is not None else (*left, "random_state")
        return {name: value for name, value in self.__dict__.items() if name not in left}

    def _one(self, x: Sample) -> Named:
        names, values = numbers_of(x, zeros=self.standardise)
        return names, values.reshape(1, -1)

    def _many(self, X: object) -> Named:
        return numbers_of_frame(X, zeros=self.standardise)

    def _scores(self, rows: Named) -> Array:
        names, values = rows
        if self._running is not None:
            values = self._running.part(names).now(values.T).standardised().T
        X = self.machine.rows(names, values)  # which may need another learner
        return self.machine.learner.predict(self._state, X)

    def _advance(self, state: State, rows: Named, Y: Array, w: object) -> State:
        """The state after these rows; their scaling goes along, unless something fails."""
        weight = None if isinstance(w, float | int) and w == 1 else checked_weight(w, len(Y))
        names, values = rows
        if self._running is None:
            return self.machine.advance(state, self.machine.rows(names, values), Y, weight)
        part = self._running.part(names)
        values = part.learn(values.T, [str(name) for name in names]).standardised().T
        state = self.machine.advance(state, self.machine.rows(names, values), Y, weight)
        self._running.put(names, part)
        return state


class KernelRegressor(_Learner, base.MiniBatchRegressor):  # type: ignore[misc]
    """Online kernel regression with a model of fixed size, for named features that come and go.

    Learns one sample after another; `learn_many` is the same as `learn_one` in a loop, and
    faster. Time per sample depends on the features that are there and on n_components alone.

    Parameters
    ----------
    kernel
        "gaussian", "matern" (or "matern12", "matern32", "matern52"), "cauchy",
        "rational_quadratic", "laplacian", or such a kernel object of `dokl.kernels`.
    sigma
        The kernel's width. For d standardised features start with sqrt(d / 2).
    n_components
        D, the length of the model's vector; even.
    loss
        "squared", "huber", "absolute", "epsilon_insensitive", "quantile", or a `dokl.Loss`.
    step
        "auto", a number (a constant step), or a schedule of `dokl.schedules`; "auto" is
        0.5 / (1 + alpha), which keeps tracking (for losses with a kink it falls as 1 / sqrt(n)).
    alpha
        Strength of the L2 regularization.
    average
        "none", "uniform" or "weighted": predict with the last vector or a running mean.
    intercept
        Whether to learn a constant besides; a number above 1 makes it learn faster.
    max_features
        How many features' frequencies are kept at hand (4 n_components bytes each). It bounds
        memory, not what can be learned: those used least recently make room and are drawn again,
        equal, when they come back, at about 20 us each.
    seed
        Models with the same seed (and kernel, width, size) have the same frequencies for a name.
    standardise
        Whether to bring every feature to mean 0 and deviation 1 by the rows so far, as a
        StandardScaler before the model would; a feature that is absent then stands at its mean,
        and one that is 0 is a number like others. What is known of a name stays.
    random_state
        The seed by scikit-learn's name; it counts where both are given.

    Examples
    --------
    >>> from river import datasets, evaluate, metrics, preprocessing
    >>> model = preprocessing.StandardScaler() | KernelRegressor(sigma=3.0, intercept=True)
    >>> evaluate.progressive_val_score(datasets.TrumpApproval(), model, metrics.MAE())
    MAE: 0.8...
    """

    def __init__(
        self,
        kernel: object = "gaussian",
        sigma: float = 1.0,
        n_components: int = 500,
        loss: object = "squared",
        step: object = "auto",
        alpha: float = 0.0,
        average: str = "none",
        intercept: bool | float = False,
        max_features: int = 1024,
        seed: int | None = 0,
        standardise: bool = False,
        random_state: int | None = None,
    ) -> None:
        self._begin(locals())

    def learn_one(self, x: Sample, y: float, w: float = 1.0) -> None:
        """Take one step towards y; w multiplies it."""
        Y = np.array([[y]], np.float64)
        self._state = self._advance(self._state, self._one(x), Y, w)

    def predict_one(self, x: Sample) -> float:
        """The prediction; 0 before anything was learned, where steps begin from. Targets far from 0
        want River's TargetStandardScaler, or `AutoRegressor`.
        """
        return float(self._scores(self._one(x))[0, 0])

    def learn_many(self, X: Any, y: object, w: object = 1.0) -> None:
        """Learn the rows of a data frame, in their order."""
        if len(X):
            Y = np.array(y, np.float64).reshape(-1, 1)
            self._state = self._advance(self._state, self._many(X), Y, w)

    def predict_many(self, X: Any) -> Any:
        """A Series of predictions."""
        import pandas as pd

        return pd.Series(self._scores(self._many(X))[:, 0], index=X.index)


class KernelClassifier(_Learner, base.MiniBatchClassifier):  # type: ignore[misc]
    """Online kernel classification, for named features and classes that come and go.

    Any number of classes, one vector each, one class against the rest. Classes need not be
    known beforehand: a vector that learns "none of these" at every sample is what a class not
    yet seen would have learned, and a new class starts from it. So the order in which classes
    appear makes no difference.

    Parameters are those of `KernelRegressor`, with other defaults:

    Parameters
    ----------
    kernel
        As there.
    sigma
        As there.
    n_components
        As there.
    loss
        "logistic" (gives probabilities), "hinge" (a support vector machine), "squared_hinge",
        "squared", or a `dokl.Loss`.
    step
        "auto" is 1 / (alpha (n + n0)) with n0 = 0.1 / alpha.
    alpha
        As there; 1e-4.
    average
        "weighted" by n, which wins by far on a target that does not move.
    intercept
        As there.
    max_features
        As there.
    seed
        As there.
    standardise
        As there.
    random_state
        As there.

    Examples
    --------
    >>> model = KernelClassifier(sigma=1.0)
    >>> for _ in range(20):
    ...     model.learn_one({"x": 0.0, "y": 0.0}, "same")
    ...     model.learn_one({"x": 0.0, "y": 1.0}, "other")
    ...     model.learn_one({"x": 1.0, "y": 0.0}, "other")
    ...     model.learn_one({"x": 1.0, "y": 1.0}, "same")
    >>> model.predict_one({"x": 1.0, "y": 1.0}), model.predict_one({"x": 1.0})
    ('same', 'other')
    """

    _classifying = True

    def __init__(
        self,
        kernel: object = "gaussian",
        sigma: float = 1.0,
        n_components: int = 500,
        loss: object = "logistic",
        step: object = "auto",
        alpha: float = 1e-4,
        average: str = "weighted",
        intercept: bool | float = False,
        max_features: int = 1024,
        seed: int | None = 0,
        standardise: bool = False,
        random_state: int | None = None,
    ) -> None:
        self._begin(locals())
        self._classes: dict[Hashable, int] = {}  # output numbers; output 0 is "none of these"

    @property
    def _multiclass(self) -> bool:
        return True

    def learn_one(self, x: Sample, y: Hashable, w: float = 1.0) -> None:
        """Take one step towards label y; w multiplies it."""
        self._learn(self._one(x), [y], w)

    def predict_proba_one(self, x: Sample) -> dict[Hashable, float]:
        """Probability of each class seen so far; needs the logistic loss."""
        p = self._probabilities(self._one(x))[0]
        return dict(zip(self._classes, p.tolist(), strict=True))

    def predict_one(self, x: Sample) -> Any:
        """The label of the highest score; None before anything was learned."""
        if not self._classes:
            return None
        best = int(self._scores(self._one(x))[0, 1:].argmax())
        return list(self._classes)[best]

    def learn_many(self, X: Any, y: Any, w: Any = 1.0) -> None:
        """Learn the rows of a data frame, in their order; y: a Series of labels."""
        if len(X):
            self._learn(self._many(X), list(y), w)

    def predict_many(self, X: Any) -> Any:
        """A Series of labels; None before anything was learned."""
        import pandas as pd

        labels = list(self._classes) or [None]
        best = self._scores(self._many(X))[:, -len(labels) :].argmax(axis=1)
        return pd.Series([labels[i] for i in best], index=X.index)

    def predict_proba_many(self, X: Any) -> Any:
        """A data frame of probabilities, one column for each class seen so far."""
        import pandas as pd

        p = self._probabilities(self._many(X))
        return pd.DataFrame(p, index=X.index, columns=list(self._classes))

    def _learn(self, X: Named, labels: list[Any], w: object) -> None:
        """Classes and state change together, or not at all."""
        new = [label for label in dict.fromkeys(labels) if label not in self._classes]
        if None in new:
            raise BadInput("None is not a label: leave samples without one out")
        known = [*self._classes, *new]
        classes = {label: i + 1 for i, label in enumerate(known)} if new else self._classes
        Y = np.full((len(labels), len(known) + 1), -1.0)
        Y[np.arange(len(labels)), [classes[label] for label in labels]] = 1.0
        state = _grow(self._state, len(new)) if new else self._state
        self._state, self._classes = self._advance(state, X, Y, w), classes

    def _probabilities(self, X: Named) -> Array:
        """(n, classes): each class against the rest, scaled to sum to one."""
        if self.machine.method.loss.name != "logistic":
            raise NotImplementedError("probabilities need loss='logistic'")
        positive = 0.5 * (1.0 + np.tanh(0.5 * self._scores(X)[:, 1:]))
        return shares(positive)


def _grow(s: State, count: int) -> State:
    """The state with more outputs, all of them like the first: what an unseen class would have."""

    def more(rows: Array) -> Array:  # (1,), (1, m) or (1, m, D)
        return rows if rows.ndim == 1 else np.concatenate([rows, *[rows[:, :1]] * count], axis=1)

    return s.each(more)


# -- earlier values as features -------------------------------------------------------------------
class Lags(base.Transformer):  # type: ignore[misc]
    """Lags, rolling means and differences of features, and of the target.

    `transform_one` adds what was before a sample, and `learn_one` remembers the sample. It counts
    as supervised, since River lets other transformers learn a sample before they transform it.

    Parameters
    ----------
    lags, rolling, differences
        {feature: how far back, or a list}: rows (24), or times ("24h").
    by
        The feature that names the group.
    time
        The feature with the time of a sample, a datetime or seconds, which must rise.
    target
        A name for the target, so that its past can be used: lags={"y": [1, 24]}, target="y".
    max_groups
        More groups than this are an error.

    What is not known yet is left out of the sample, and so are `by` and `time`.

    Examples
    --------
    >>> lags = Lags({"temp": 1, "y": 1}, target="y")
    >>> lags.learn_one({"temp": 20.0}, 3.0)
    >>> lags.transform_one({"temp": 21.0})
    {'temp': 21.0, 'temp lag 1': 20.0, 'y lag 1': 3.0}
    """

    def __init__(
        self,
        lags: Mapping[str, Any] | None = None,
        rolling: Mapping[str, Any] | None = None,
        differences: Mapping[str, Any] | None = None,
        by: str | None = None,
        time: str | None = None,
        target: str | None = None,
        max_groups: int = 1000,
    ) -> None:
        self.lags, self.rolling, self.differences = lags, rolling, differences
        self.by, self.time, self.target, self.max_groups = by, time, target, max_groups
        given = [
            [(name, v) for name, values in (back or {}).items() for v in as_list(values)]
            for back in (lags, rolling, differences)
        ]
        hidden = () if target is None else (target,)
        how: dict[str, Any] = {"by": by, "time": time, "hidden": hidden, "most_groups": max_groups}
        self._memory = LagColumns(LagPlan.of(*given, **how))

    @property
    def _supervised(self) -> bool:  # of base.Transformer: pipelines know transformers by that
        return True

    def transform_one(self, x: Sample) -> dict[Hashable, Any]:
        """The sample, and what was before it; nothing is remembered."""
        row = self._row(x)
        self._memory.check(row)
        made = self._memory.extend(row)[0]
        known = {name: float(v[0]) for name, v in made.items() if v[0] == v[0]}
        left_out = (self.by, self.time)
        return {name: v for name, v in x.items() if name not in left_out} | known

    def learn_one(self, x: Sample, y: object = None) -> None:
        """Remember a sample, and its target if that has a name."""
        row = self._row(x)
        if self.target is not None:
            row[self.target] = np.array([np.nan if y is None else y], np.float64)
        self._memory.check(row)
        self._memory = self._memory.extend(row)[1]

    def _row(self, x: Sample) -> dict[str, Any]:
        """The features that are looked at; one that is absent is missing."""
        plan, row = self._memory.plan, dict[str, Any]()
        for name in plan.columns:
            if name != self.target:
                value = x.get(name)
                row[name] = np.array([np.nan if value is None else value], np.float64)
        for key in (plan.by, plan.time):
            if key is not None and key not in x:
                raise BadInput(f"the sample has no {key!r}, which lags need")
        if plan.by is not None:
            row[plan.by] = np.array([x[plan.by]], object)
        if plan.time is not None:
            row[plan.time] = seconds_column(plan.time, np.array([x[plan.time]]))
        return row
