"""Inputs that wait for their labels, and how long."""

from __future__ import annotations

from contextlib import suppress

from dokl.live.agent.clock import Clock
from dokl.live.agent.logs import Log
from dokl.live.store import Store, StoreFailed

EVERY = 60.0  # seconds between two looks for inputs that have waited too long


class WaitingInputs:
    """Lets inputs go whose labels have not come; in the agent's thread."""

    def __init__(self, store: Store, clock: Clock, log: Log) -> None:
        self._store, self._clock, self._log = store, clock, log
        self._due = clock.now()

    def expire(self, hours: float) -> None:
        """Now and then: those that have waited longer."""
        now = self._clock.now()
        if now < self._due or not self._store.waiting_count:
            return
        self._due = now + EVERY
        with suppress(StoreFailed):  # the next time
            self.let_go(3600 * hours)

    def let_go(self, older_s: float) -> int:
        """Those that have waited for n seconds; how many, once it is stored."""
        before = self._clock.wall() - older_s
        if not self._store.waiting_since(before):
            return 0
        with self._store.transaction() as transaction:
            gone = transaction.expire(before)
        self._log("inputs expired", inputs=gone, waiting=self._store.waiting_count)
        return gone
