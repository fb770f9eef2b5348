"""The clock of an agent: wall time, which may jump, and time that only goes forward."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

SHIFT = "DOKL_CLOCK_SHIFT"  # a file with seconds to add to wall time, for trying out jumps
JUMP = 1.0  # seconds by which wall time must leave the other clock to count as a jump


class Clock:
    """Wall time in seconds since 1970, and monotonic seconds; all that an agent knows of time."""

    def wall(self) -> float:
        """Seconds since 1970; people and NTP may set it."""
        return time.time() + _shift()

    def now(self) -> float:
        """Seconds that only go forward; deadlines and ages are counted in these."""
        return time.monotonic()


def _shift() -> float:
    name = os.environ.get(SHIFT)
    if name:
        with suppress(OSError, ValueError):
            return float(Path(name).read_text(encoding="ascii"))
    return 0.0


class JumpWatch:
    """Notices when wall time jumps against monotonic time.

    >>> class Fake(Clock):
    ...     seconds = 0.0
    ...     def wall(self): return self.seconds
    ...     def now(self): return 0.0
    >>> clock = Fake()
    >>> watch = JumpWatch(clock)
    >>> clock.seconds = -3600.0
    >>> watch.jumped(), watch.jumped()
    (-3600.0, None)
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ahead = clock.wall() - clock.now()

    def jumped(self) -> float | None:
        """By how many seconds wall time has jumped since the last call; None if it has not."""
        ahead = self._clock.wall() - self._clock.now()
        by, self._ahead = ahead - self._ahead, ahead
        return by if abs(by) > JUMP else None
