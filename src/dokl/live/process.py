"""Figures of the process itself, as the system has them."""

from __future__ import annotations

import ctypes
import gc
import os
import resource
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

_PAGE = os.sysconf("SC_PAGE_SIZE")
_ARENA_MAX = -8  # M_ARENA_MAX of malloc.h


def process_facts() -> dict[str, Any]:
    """Processor seconds, memory, open files and their limit; None where the system does not say."""
    times = os.times()
    return {
        "cpu_s": times.user + times.system,
        "memory_bytes": _memory(),
        "open_files": _open_files(),
        "open_files_limit": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    }


def _memory() -> int | None:
    with suppress(OSError, ValueError, IndexError):
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * _PAGE
    return None


def _open_files() -> int | None:
    with suppress(OSError):
        return len(os.listdir("/proc/self/fd"))
    return None


# -- memory that is free, and not given back ---------------------------------------------------
def use_few_arenas() -> None:
    """Let glibc have two arenas instead of eight for each core.

    Zenoh's threads and the guard's come and go with every reload. Each arena that one of them has
    used keeps its free pages: megabytes after some dozen reloads, though nothing is in them.
    """
    with suppress(OSError, AttributeError):  # another C library has none
        ctypes.CDLL(None).mallopt(_ARENA_MAX, 2)


def give_back_memory() -> None:
    """Return what is free to the system: after a session was closed, say."""
    gc.collect()
    trim_memory()


def trim_memory() -> None:
    """Return the free pages of the C library to the system; nothing is looked through for it."""
    with suppress(OSError, AttributeError):  # another C library has no such function
        ctypes.CDLL(None).malloc_trim(0)


class Latency:
    """How long requests took, in buckets that Prometheus can add up; for one thread at a time.

    >>> latency = Latency()
    >>> latency.add(0.003)
    >>> latency.counts["0.005"], latency.counts["0.001"], latency.n
    (1, 0, 1)
    """

    BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

    def __init__(self) -> None:
        self.counts = dict.fromkeys(map(str, self.BOUNDS), 0)
        self.n, self.total = 0, 0.0

    def add(self, seconds: float) -> None:
        """One more request."""
        self.n, self.total = self.n + 1, self.total + seconds
        for bound in self.BOUNDS:
            self.counts[str(bound)] += seconds <= bound

    def since(self, began: float) -> None:
        """One that began at a time of `time.monotonic`."""
        self.add(time.monotonic() - began)
