"""The main thread of a process that works until a signal."""

from __future__ import annotations

import threading

GLANCE = 0.5  # seconds


def wait_until(done: threading.Event) -> None:
    """Wait for the event, and let handlers of signals run meanwhile.

    Python runs them in the main thread alone, and a wait without a bound does not end when the
    system gives the signal to another thread, or just before the wait begins.
    """
    while not done.wait(GLANCE):
        pass
