"""Regression without settings."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import RegressorMixin

from dokl.base.arrays import Array
from dokl.estimators.auto import Auto
from dokl.estimators.choices import set_parameters
from dokl.estimators.labels import NumericTargets
from dokl.estimators.learner import all_or_nothing
from dokl.learning import intervals
from dokl.learning.experts import predicting


class AutoRegressor(NumericTargets, RegressorMixin, Auto):  # type: ignore[misc]
    """Online regression without settings: eighteen experts of exact least squares, mixed.

    Length scales are learned from the first rows (and again at 60, 125, ... 100,000), inputs and
    targets are brought to unit size, memories from ten rows to all of them compete, beside inputs
    as they are two experts take them by their ranks, and each row is predicted before it is
    learned. Memory never grows with the stream.

    X is an array, in which NaN is a missing value, or a data frame (pandas, polars) of numbers,
    truth values, texts, categories and times, read as `dokl train` reads files. The first call
    decides what the columns are, and which levels texts have; later frames are matched by name.

    Parameters
    ----------
    n_components : centres of the widest experts' maps. More follow finer detail; time per row
        grows with the square.
    experts : "all" mixes eighteen; "lasting" those that forget nothing and a linear one, which is
        better where a model stays frozen for long or targets come late; "one" is a single expert
        that remembers everything, whose models can be merged and subtracted (`fresh`, `merge`,
        `without`).
    bound : a target that is off by more standard deviations pulls like one of this size.
    groups : the place (-1 is the last) or the name of a column of X whose whole numbers say which
        group a row belongs to: a station, a customer, an animal. Groups are no quantities: each
        gets a place that is learned, near those which are like it, and its last errors correct its
        next prediction. Thousands of groups are welcome. One that was not seen is predicted like
        an average one, and so is a negative number, which stands for none.
    random_state : seed of the rows that are kept for learning scales anew; an integer gives the
        same model for the same rows.
    verbose : unused so far; kept for symmetry with other estimators.

    Attributes
    ----------
    relevance_ : (d,) how much the function bends along each input, summing to 1.
    inputs_ : names of these inputs: columns of X, levels of texts, circles of times.
    experts_ : a list of the experts with weights, memories and errors.
    remembers_ : in words, how far back predictions reach.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(400, 2))
    >>> y = 1e4 + np.sin(3 * X[:, 0])  # any offset, any scale; the second input is useless
    >>> model = AutoRegressor(random_state=0)
    >>> f = model.prequential(X, y)  # predicts each row, then learns it
    >>> bool(np.var((y - f)[200:]) < 0.02 * np.var(y)), bool(model.relevance_[0] > 0.8)
    (True, True)
    >>> lower, upper = model.predict_interval(X[:3], coverage=0.9)
    """

    def __init__(
        self,
        n_components: int = 1000,
        *,
        experts: str = "all",
        bound: float = 10.0,
        groups: int | str | None = None,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        set_parameters(self, locals())

    @property
    def _outputs(self) -> int:
        return self.bank_.m

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> AutoRegressor:
        """Learn from scratch, in the order given; scales are learned from all rows."""
        with all_or_nothing(self):
            X, y = self._checked(X, y, True, sample_weight)
            self._fit(X, y, sample_weight)
        return self

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> AutoRegressor:
        """Learn from these rows, in this order, once."""
        self.prequential(X, y, sample_weight)
        return self

    def prequential(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        return_std: bool = False,
        return_interval: float | None = None,
    ) -> Any:
        """`partial_fit` that returns what it predicted for each row just before learning it, and
        with return_std how sure it was. Rows of weight 0 are not looked at: NaN stands there.

        return_interval: a coverage such as 0.9; then the lower and the upper ends follow, too.
        """
        with all_or_nothing(self):
            level = None if return_interval is None else intervals.check_level(return_interval)
            X, y = self._checked(X, y, not hasattr(self, "bank_"), sample_weight)
            told = self._partial_fit(X, y, sample_weight)
        sd, found = np.sqrt(told.variance), [told.mean]
        found += [sd] if return_std else []
        if level is not None:
            reach = sd * intervals.width_at(self.bank_.tracker, level, told.widths)
            found += [told.mean - reach, told.mean + reach]
        shaped = tuple(map(self._shaped, found))
        return shaped[0] if len(shaped) == 1 else shaped

    def predict(self, X: Any, return_std: bool = False, keys: Any = None) -> Any:
        """Predictions (n,), or (n, m) for several outputs; with return_std also their standard
        deviations, noise included.

        keys: a name for each row, by which `learn` finds it when its target is known.
        """
        rows = self._inputs(X)
        if keys is not None:
            self._wait(X, keys)
        if not return_std:
            return self._shaped(predicting.predict(self.bank_, rows))
        told = predicting.predict_with_variance(self.bank_, rows)
        return self._shaped(told.mean), self._shaped(np.sqrt(told.variance))

    def predict_interval(
        self, X: Any, coverage: float = 0.9, steps_ahead: Any = None
    ) -> tuple[Array, Array]:
        """Lower and upper ends that hold the target in this share of rows.

        steps_ahead: how many rows beyond the last learned one these lie, a number for all of them
        or one for each. 1 is the next row, for a model that learns each row after predicting it.
        The further, the wider, as frozen copies of the model erred along its stream; where rows
        came in no order that is no wider. None: unknown. Then intervals are those at an eighth of
        the rows learned, which stands for all rows up to a quarter: the same for a row in whatever
        company it is predicted.
        """
        ends = predicting.frozen_ends(self.bank_, self._inputs(X), coverage, steps_ahead)
        return self._shaped(ends[0]), self._shaped(ends[1])
