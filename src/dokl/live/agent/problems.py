"""What is wrong with an agent now, as `/status` tells it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from dokl.live.agent.clock import Clock

TOLD = 600.0  # seconds in which a problem that passed is still told


class Problems(dict[str, str]):
    """Texts by kind. What lasts is set, and popped when it is over; what passes is `note`d.

    >>> class Fake(Clock):
    ...     seconds = 0.0
    ...     def now(self): return self.seconds
    >>> clock = Fake()
    >>> problems = Problems(clock)
    >>> problems["store"] = "the disk is full"
    >>> problems.note("learning", "a row diverged")
    >>> clock.seconds = 601.0
    >>> problems.forget()
    >>> list(problems)
    ['store']
    """

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self._until: dict[str, float] = {}

    def note(self, kind: str, text: str) -> None:
        """A problem that may not come again: it is told for a while."""
        self[kind] = text
        self._until[kind] = self._clock.now() + TOLD

    def forget(self) -> None:
        """Drop what was told for long enough."""
        now = self._clock.now()
        for kind in [kind for kind, until in self._until.items() if now > until]:
            del self._until[kind]
            self.pop(kind, None)


class Disputes:
    """Logs what begins and what is over, of texts that are told as long as they hold.

    >>> disputes = Disputes(lambda event, text: print(event, text))
    >>> for texts in (["two speak as 'b'"], ["two speak as 'b'"], []):
    ...     disputes.see(texts)
    problem two speak as 'b'
    over two speak as 'b'
    """

    def __init__(self, log: Callable[..., None]) -> None:
        self._log = log
        self._told: frozenset[str] = frozenset()

    def see(self, texts: Iterable[str]) -> None:
        """Those of now."""
        now = frozenset(texts)
        for text in sorted(now - self._told):
            self._log("problem", text=text)
        for text in sorted(self._told - now):
            self._log("over", text=text)
        self._told = now
