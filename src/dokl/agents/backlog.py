"""Arrivals that wait to be learned: how many rows they are, and how soon these will be gone."""

from __future__ import annotations

from collections import deque

from dokl.agents.answers import Job

GROUP = 4000  # rows that share one transaction, at most
FIRST_RATE = 1000.0  # rows a second, before any have been learned


class Backlog:
    """First come, first learned; its owner sees to it that one thread at a time is in it.

    rows: those that wait, and those that are being learned.
    """

    def __init__(self) -> None:
        self.rows = 0
        self._jobs, self._rate = deque[Job](), FIRST_RATE

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
        return jobs

    def done(self, jobs: list[Job], seconds: float) -> None:
        """These were learned or refused, in so many seconds."""
        rows = sum(arrival.rows for arrival, _ in jobs)
        self.rows -= rows
        if rows:
            self._rate += 0.1 * (rows / max(seconds, 1e-4) - self._rate)

    @property
    def wait(self) -> float:
        """Seconds after which a sender that was too much should come back."""
        return max(0.1, round(self.rows / self._rate, 1))

    def left(self) -> list[Job]:
        """Those that will not be learned any more."""
        return list(self._jobs)
