"""Problems of an agent now, as in `/status`."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from dokl.live.agent.clock import Clock

SHOWN_SECONDS = 600.0  # seconds in which a past problem is still shown


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
        """A problem that may not recur: it is shown for a while."""
        self[kind] = text
        self._until[kind] = self._clock.now() + SHOWN_SECONDS

    def forget(self) -> None:
        """Drop what was shown for long enough."""
        now = self._clock.now()
        for kind in [kind for kind, until in self._until.items() if now > until]:
            del self._until[kind]
            self.pop(kind, None)


class Disputes:
    """Logs what begins and what is over, of texts that are shown as long as they hold.

    >>> disputes = Disputes(lambda event, text: print(event, text))
    >>> for texts in (["two speak as 'b'"], ["two speak as 'b'"], []):
    ...     disputes.see(texts)
    problem two speak as 'b'
    over two speak as 'b'
    """

    def __init__(self, log: Callable[..., None]) -> None:
        self._log = log
        self._reported: frozenset[str] = frozenset()

    def see(self, texts: Iterable[str]) -> None:
        """Those of now."""
        now = frozenset(texts)
        for text in sorted(now - self._reported):
            self._log("problem", text=text)
        for text in sorted(self._reported - now):
            self._log("over", text=text)
        self._reported = now
