"""Alarms with a stated rate of false ones: a sequential test by betting.

Each test pays something in [-1, 1] that is at most 0 on average, given the past, while all is well.
Betting a share BET of what one has on it multiplies it by an e-value, and losses beyond the first
stake are forgiven (the CUSUM e-detector of Shin, Ramdas and Rinaldo, 2023):

    evidence <- max(evidence, 0) + log(1 + BET payoff)

However long one looks, the mean number of tests until evidence reaches log(c) without a cause is at
least c. Payoffs may depend on each other as long as their mean given the past is not above 0.

>>> level = threshold(tests_per_hour=7200)
>>> count, found = 0, 0.0
>>> while found < level:
...     count, found = count + 1, update(found, 0.95)
>>> count
26
"""

from __future__ import annotations

import math
from dataclasses import dataclass

BET = 0.9
HOURS = 1000.0  # of one node, on average, from one false alarm to the next at the soonest
SECONDS = 0.5  # from one test to the next of its kind, at least
PER_HOUR = 3600.0 / SECONDS
MOST = 25.0  # evidence that is kept, so that an alarm soon ends when its cause does
SHOWN_SECONDS = 600.0  # seconds in which people see an alarm after the last test that confirmed it


def update(evidence: float, payoff: float) -> float:
    """The evidence after one more test; payoff in [-1.1, 1]."""
    return max(evidence, 0.0) + math.log1p(BET * payoff)


def threshold(tests_per_hour: float) -> float:
    """The evidence at which to give an alarm, with n tests in an hour."""
    return math.log(HOURS * tests_per_hour)


@dataclass(frozen=True)
class Alarm:
    """One kind of test of one thing. at: the time of the last test; seen: of the last one at which
    the alarm was raised. It ends when the evidence for it is gone, and people see it for
    SHOWN_SECONDS seconds at most after that, also where there are no more tests.

    >>> alarm = Alarm()
    >>> for turn in range(30):
    ...     alarm = alarm.tested(1.0, threshold(PER_HOUR), SECONDS * turn)
    >>> alarm.raised, alarm.is_reported(600.0), alarm.is_reported(615.0)
    (True, True, False)
    """

    evidence: float = 0.0
    raised: bool = False
    at: float = -math.inf
    seen: float = -math.inf

    def due(self, now: float) -> bool:
        """Whether it is time for the next test."""
        return now >= self.at + SECONDS

    def tested(self, payoff: float, limit: float, now: float) -> Alarm:
        """The alarm after one more test; limit: the evidence at which it is raised."""
        evidence = min(update(self.evidence, payoff), max(MOST, limit))
        raised = evidence >= limit or (self.raised and evidence > 0.0)
        return Alarm(evidence, raised, now, now if raised else self.seen)

    def is_reported(self, now: float) -> bool:
        """Whether people see it."""
        return now < self.seen + SHOWN_SECONDS


def worse(error: float, other: float) -> float:
    """How much larger an error is than another, in [-1, 1]; the reverse has the other sign. Below
    0 errors are rounding.

    >>> worse(3.0, 1.0), worse(1.0, 3.0), worse(0.0, -1e-9)
    (0.5, -0.5, 0.0)
    """
    error, other = max(error, 0.0), max(other, 0.0)
    whole = error + other
    if not math.isfinite(whole):
        return 1.0 if not math.isfinite(error) else -1.0
    return (error - other) / whole if whole > 0 else 0.0
