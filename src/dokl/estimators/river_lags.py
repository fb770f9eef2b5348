"""Earlier values as features, in River: `dokl.estimators.river` has them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
from river import base

from dokl.base.errors import BadInput
from dokl.estimators.lags import as_list, seconds_column
from dokl.learning.columns import LagColumns, LagPlan

Sample = Mapping[Hashable, Any]


class Lags(base.Transformer):  # type: ignore[misc]
    """Lags, rolling means and differences of features, and of the target.

    `transform_one` adds what was before a sample, and `learn_one` remembers the sample. It counts
    as supervised, since River lets other transformers learn a sample before they transform it.

    Parameters
    ----------
    lags, rolling, differences
        {feature: how far back, or a list}: rows (24), or times ("24h").
    by
        The feature that tells groups apart.
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

    def learn_one(self, x: Sample, y: Any = None) -> None:
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
