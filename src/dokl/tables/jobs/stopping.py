"""Ctrl-C that lets a piece of work finish first."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

Whole = Callable[[], AbstractContextManager[None]]


class Stopped(BaseException):
    """Somebody asked to stop, between two pieces of work. signum: by which signal."""

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum = signum


@contextmanager
def stoppable() -> Iterator[Whole]:
    """Ctrl-C, or SIGTERM, raises Stopped between `with whole():` blocks, inside one at its end.

    So a chunk is learned wholly or not at all, and the count of rows tells where to go on. A
    second Ctrl-C does not wait: it is a KeyboardInterrupt, and what was half done is lost.
    """
    if threading.current_thread() is not threading.main_thread():  # signals go to the main thread
        yield _undisturbed
        return
    waiter = _Waiter()
    heard = [number for number in _SIGNALS if signal.getsignal(number) != signal.SIG_IGN]  # nohup
    before = {number: signal.signal(number, waiter.asked) for number in heard}
    try:
        yield waiter.whole
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class _Waiter:
    """Whether a piece is being worked on, and whether someone waits for its end."""

    def __init__(self) -> None:
        self.busy = False
        self.signum: int | None = None

    def asked(self, signum: int, frame: Any) -> None:
        """The handler of the signals."""
        if self.signum is not None:
            raise KeyboardInterrupt
        self.signum = signum
        if not self.busy:
            raise Stopped(signum)

    @contextmanager
    def whole(self) -> Iterator[None]:
        """What is inside is not interrupted."""
        self.busy = True
        try:
            yield
        finally:
            self.busy = False
        if self.signum is not None:
            raise Stopped(self.signum)


@contextmanager
def _undisturbed() -> Iterator[None]:
    yield
