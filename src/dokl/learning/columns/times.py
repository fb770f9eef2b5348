"""Times as inputs: time of day, of week and of year on circles.

A circle is taken where the rows cover it about twice: half a year does not show what comes
back every year. Days since the start are no input, since no row shows how a trend continues beyond
the last one; files of earlier versions may have them ("since"), and are used as they were.

>>> hours = np.arange(0.0, 15 * 86400, 3600)
>>> parts = TimeParts.plan(hours)
>>> parts.parts, parts.names("when")[:2], TimeParts.plan(hours, longer=50).parts
(('day', 'week'), ('when: time of day cos', 'when: time of day sin'), ('day', 'week', 'year'))
>>> print(parts.circles(np.array([0.0, 6 * 3600.0, np.nan]))[:2].round(1))
[[1. 0. 0.]
 [0. 1. 0.]]
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from dokl.base.arrays import Array
from dokl.base.errors import BadInput

DAY = 86_400.0
# 1970 began on a Thursday, as good as any day; a mean year of the calendar is never a day off.
_ROUNDS = {"day": DAY, "week": 7 * DAY, "year": 365.2425 * DAY}
TWICE = 1.9  # of each circle that rows must cover
PARTS = (*_ROUNDS, "since")


@dataclass(frozen=True)
class TimeParts:
    """What is taken of a column of times, in seconds. start: from where time is counted."""

    parts: tuple[str, ...]
    start: float = 0.0

    @classmethod
    def plan(cls, times: Array, longer: float = 1.0) -> Self:
        """By the first rows (n,): what does not vary in them is left out, and circles that they do
        not cover twice. longer: how many times as long all rows are, if that is known.
        """
        known = times[~np.isnan(times)]
        if not known.size:
            return cls(())
        days = np.floor(known / DAY)
        clocks = bool((days == 0).all())  # without a date
        grows = bool((np.diff(known) >= 0).all())
        covered = np.inf if clocks else float(np.ptp(known)) * (longer if grows else 1.0)
        varies = {
            "day": np.ptp(known - DAY * days) > 0,
            "week": len(np.unique(days % 7)) > 1,
            "year": not clocks,
        }
        taken = (k for k, length in _ROUNDS.items() if varies[k] and covered >= TWICE * length)
        return cls(tuple(taken), float(known[0]))

    @property
    def since(self) -> bool:
        """Whether the time since the start is an input."""
        return "since" in self.parts

    def names(self, name: str) -> tuple[str, ...]:
        """Names of the inputs on circles."""
        rounds = [part for part in self.parts if part in _ROUNDS]
        return tuple(f"{name}: time of {part} {end}" for part in rounds for end in ("cos", "sin"))

    @property
    def rounds(self) -> tuple[float, ...]:
        """Seconds of each circle."""
        return tuple(_ROUNDS[part] for part in self.parts if part in _ROUNDS)

    def circles(self, times: Array) -> Array:
        """Places on circles, (2 for each, n); a missing time is in the middle."""
        turns = [times / seconds for seconds in self.rounds]
        angles = 2.0 * np.pi * np.array([turn % 1.0 for turn in turns]).reshape(-1, len(times))
        both = np.stack([np.cos(angles), np.sin(angles)], axis=1).reshape(-1, len(times))
        return np.asarray(np.nan_to_num(both))

    def days(self, times: Array) -> Array:
        """Days since the start (n,), NaN where missing."""
        return np.asarray((times - self.start) / DAY)

    def spec(self) -> dict[str, Any]:
        """For files."""
        return {"parts": list(self.parts), "start": self.start}

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> Self:
        """The same again."""
        parts, start = tuple(spec["parts"]), float(spec["start"])
        if not set(parts) <= set(PARTS) or not np.isfinite(start):
            raise BadInput(f"{parts!r} are not parts of a time")
        return cls(parts, start)
