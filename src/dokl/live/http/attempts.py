"""A limit for wrong tokens, by the address that they come from.

An address has `burst` wrong tokens, and one more every `every` seconds. After that its tokens are
not compared any more, so that guessing is slow, and the answer says when to retry. Failures of one
address do not count for another. An address that showed the right token within `known_seconds` is
compared all the same: behind one proxy, strangers must not lock out those who have the token.
Memory is bounded: of too many addresses the oldest is forgotten, and strangers, who have no right
token, cannot make the server forget an address that had one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from dokl.live.doors.places import origin

Clock = Callable[[], float]
T = TypeVar("T")


class TokenAttempts:
    """Who has sent wrong tokens of late; for one thread.

    >>> attempts = TokenAttempts(burst=2, clock=lambda: 0.0)
    >>> [attempts.wait("192.0.2.7", lambda: False) for _ in range(3)]
    [0.0, 0.0, 6.0]
    >>> attempts.wait("192.0.2.8", lambda: True) is None
    True
    """

    def __init__(
        self, burst: int = 10, every: float = 6.0, known_seconds: float = 86_400.0,
        most: int = 4096, clock: Clock = time.monotonic,
    ) -> None:  # fmt: skip
        self.burst, self.every, self.known_seconds, self.most = burst, every, known_seconds, most
        self._clock = clock
        self._left: dict[str, tuple[float, float]] = {}  # wrong tokens left, and when
        self._known: dict[str, float] = {}  # when the right token was here

    def __len__(self) -> int:
        """Addresses in memory."""
        return len(self._left) + len(self._known)

    def wait(self, host: str, right: Callable[[], bool]) -> float | None:
        """None if the token of this host is right; else the seconds until its next try, 0 if it
        may come at once. right: compares, and is not called where the address must wait.
        """
        address, now = origin(host), self._clock()
        left = self._tokens(address, now)
        known = now - self._known.get(address, -self.known_seconds) < self.known_seconds
        if left >= 1 or known:
            if right():
                self._keep(self._known, address, now)
                return None
            if left >= 1:
                self._keep(self._left, address, (left - 1, now))
                return 0.0
        return (1 - left) * self.every

    def _tokens(self, address: str, now: float) -> float:
        left, since = self._left.get(address, (float(self.burst), now))
        return min(float(self.burst), left + (now - since) / self.every)

    def _keep(self, kept: dict[str, T], address: str, value: T) -> None:
        kept.pop(address, None)  # the newest is the last
        kept[address] = value
        if len(kept) > self.most:
            del kept[next(iter(kept))]
