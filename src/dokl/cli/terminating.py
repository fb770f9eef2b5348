"""SIGTERM as Ctrl-C: a command that ends early prints and keeps what it has."""

from __future__ import annotations

import functools
import signal
import threading
from collections.abc import Callable
from typing import Any, NoReturn


class Terminated(KeyboardInterrupt):
    """Somebody sent SIGTERM."""


def terminable(command: Callable[..., Any]) -> Callable[..., Any]:
    """The command, in which SIGTERM is raised as `Terminated`, unless somebody else handles it."""

    @functools.wraps(command)
    def run(*args: Any, **how: Any) -> Any:
        alone = threading.current_thread() is threading.main_thread()
        if not alone or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
            return command(*args, **how)
        signal.signal(signal.SIGTERM, _raise)
        try:
            return command(*args, **how)
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    return run


def _raise(*_: Any) -> NoReturn:
    raise Terminated
