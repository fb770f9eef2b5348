"""Ctrl-C that lets a piece of work finish first, if that is soon."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

# Called inside a piece of work from where it can no longer be undone.
Settled = Callable[[], None]
Whole = Callable[[], AbstractContextManager[Settled]]
# Seconds that whoever asked waits for a piece of work.
PATIENCE = 0.7


class Stopped(BaseException):
    """Somebody asked to stop, between two pieces of work. signum: by which signal."""

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum = signum


@contextmanager
def stoppable() -> Iterator[Whole]:
    """Ctrl-C, or SIGTERM, raises Stopped between `with whole() as settled:` blocks, inside one at
    its end; or after PATIENCE seconds, unless `settled()` was called by then.

    What is inside undoes what it did until then. So a chunk is learned wholly or not at all, and
    the count of rows tells where to go on. A second Ctrl-C does not wait: it is a
    KeyboardInterrupt, and everything is lost.
    """
    if threading.current_thread() is not threading.main_thread():  # signals go to the main thread
        yield _undisturbed
        return
    waiter = _Waiter()
    heard = [number for number in _SIGNALS if signal.getsignal(number) != signal.SIG_IGN]  # nohup
    before = {number: signal.signal(number, waiter.asked) for number in heard}
    before[signal.SIGALRM] = signal.signal(signal.SIGALRM, waiter.late)
    try:
        yield waiter.whole
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        for number, handler in before.items():
            signal.signal(number, handler)


_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class _Waiter:
    """Whether a piece is being worked on, and whether someone waits for its end."""

    def __init__(self) -> None:
        self.busy = self.settled = False
        self.signum: int | None = None

    def asked(self, signum: int, frame: Any) -> None:
        """The handler of the signals."""
        if self.signum is not None:
            raise KeyboardInterrupt
        self.signum = signum
        if not self.busy:
            raise Stopped(signum)
        signal.setitimer(signal.ITIMER_REAL, PATIENCE)

    def late(self, signum: int, frame: Any) -> None:
        """The handler of the timer: the piece takes too long."""
        if self.busy and not self.settled and self.signum is not None:
            raise Stopped(self.signum)

    def settle(self) -> None:
        """The piece of work cannot be undone any more."""
        self.settled = True

    @contextmanager
    def whole(self) -> Iterator[Settled]:
        """What is inside is not interrupted, for a while."""
        self.busy, self.settled = True, False
        try:
            yield self.settle
        finally:
            self.busy = False
        if self.signum is not None:
            raise Stopped(self.signum)


@contextmanager
def _undisturbed() -> Iterator[Settled]:
    yield lambda: None
