"""Arrivals that wait to be learned: how many seconds they will take, and who still has room."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from dokl.base.errors import DoklError
from dokl.live.agent.replies import Job

if TYPE_CHECKING:
    from dokl.live.description import Limits
    from dokl.simulation.learner import Learner

GROUP = 4000  # rows that share one transaction, at most
SLICE = 0.05  # seconds of learning after which others have their turn
LEAST = 1e-6  # seconds of a row, at least
FEW = 16  # rows of a call from which on it counts: of fewer, the call itself takes the most
MEMORY = 1000.0  # rows after which what was measured counts half
TRIES = 3


class Pace:
    """Seconds that a row takes to learn: a running mean, in which older rows count less.

    >>> pace = Pace()
    >>> pace.add(1000, 2.0)
    >>> pace.add(1000, 1.0)
    >>> round(pace.seconds(3000), 1), pace.rows(0.133)
    (4.0, 99)
    """

    def __init__(self) -> None:
        self._rows = self._seconds = self._call = 0.0

    def measure(self, learner: Learner, now: Callable[[], float]) -> None:
        """What rows take of a learner that is compiled, before any have come."""
        took = {}
        with suppress(DoklError):  # of a step too long for these rows: the first will show it
            for rows in (1, 1 + FEW):
                took[rows] = min(_timed(learner, rows, now) for _ in range(TRIES))
            self._call = took[1]
            self.add(FEW, took[1 + FEW])

    def add(self, rows: int, seconds: float) -> None:
        """These rows were learned by one call."""
        if rows >= FEW:
            kept = 0.5 ** (rows / MEMORY)
            self._rows = kept * self._rows + rows
            self._seconds = kept * self._seconds + max(seconds - self._call, 0.0)

    def seconds(self, rows: int) -> float:
        """What n rows will take."""
        return rows * max(LEAST, self._seconds / self._rows if self._rows else 0.0)

    def rows(self, seconds: float) -> int:
        """How many rows are learned in that time; one at least."""
        return max(1, int(seconds / self.seconds(1)))


def _timed(learner: Learner, rows: int, now: Callable[[], float]) -> float:
    began = now()
    learner.prepare(rows)
    return now() - began


class Backlog:
    """First come, first stored; its owner sees to it that one thread at a time is in it.

    rows: those that wait to be stored, and those of the present group. behind: those that are in
    the journal and not learned yet. large: those of arrivals that take longer than a slice and are
    not answered yet.
    """

    def __init__(self, behind: int = 0) -> None:
        self.rows, self.behind, self.large = 0, behind, 0
        self.pace = Pace()
        self._jobs, self._present = deque[Job](), 0  # rows of the present group

    def __bool__(self) -> bool:
        return bool(self._jobs)

    def add(self, job: Job) -> None:
        """One more arrival, with the future of its answer."""
        self._jobs.append(job)
        self.rows += job[0].rows

    def group(self) -> list[Job]:
        """The next ones, taken out; their rows count until they are `done`."""
        jobs: list[Job] = []
        rows = 0
        while self._jobs and rows < GROUP:
            jobs.append(self._jobs.popleft())
            rows += jobs[-1][0].rows
        self._present += rows
        return jobs

    def done(self, behind: int) -> None:
        """The present group, if there is one, was stored or refused; n rows are behind now."""
        self.rows, self._present, self.behind = self.rows - self._present, 0, behind

    @property
    def seconds(self) -> float:
        """What all rows that wait will take."""
        return self.pace.seconds(self.rows + self.behind)

    def wait(self, rows: int, limits: Limits) -> float:
        """Seconds after which there will be room for n rows; 0 where there is now.

        Large arrivals take no room from small ones. Where hardly anything waits there is always
        room for a large one, since it may take longer than the limit by itself.
        """
        waiting = self.rows + self.behind
        ahead = waiting if self.is_large(rows) else max(0, waiting - self.large)
        work, most = self.pace.seconds(ahead), limits.queue_seconds
        late = work + min(self.pace.seconds(rows), most) - most if work > SLICE else 0.0
        over = waiting + rows - limits.queue_rows if waiting else 0
        if late <= 0 and over <= 0:
            return 0.0
        return max(0.1, round(max(late, self.pace.seconds(max(over, 0))), 1))

    def is_large(self, rows: int) -> bool:
        """Whether learning n rows takes longer than a slice."""
        return self.pace.seconds(rows) > SLICE

    def left(self) -> list[Job]:
        """Those that will not be learned any more."""
        return list(self._jobs)
