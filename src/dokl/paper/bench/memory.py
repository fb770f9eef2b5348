"""How much memory something takes: the peak of the resident set, where the system reports it."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

PROCESS = Path("/proc/self")


def peak_growth(action: Callable[[], Any]) -> int | None:
    """Bytes by which the resident set grew at most while the action ran; None: not measurable.

    Linux forgets the earlier peak when asked to. What was freed before is given back to the
    system as far as it can be; the rest, taken again, is no growth.
    """
    gc.collect()
    _give_back()
    try:
        (PROCESS / "clear_refs").write_text("5")
        before = _field("VmRSS")
    except (OSError, KeyError, ValueError):
        action()
        return None
    action()
    return max(0, _field("VmHWM") - before)


def _give_back() -> None:
    """Ask the C library to return freed memory; only GNU's can."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError, TypeError):
        return


def _field(name: str) -> int:
    lines = (PROCESS / "status").read_text().splitlines()
    kilobytes = dict(line.split(":", 1) for line in lines)[name]
    return 1024 * int(kilobytes.split()[0])
