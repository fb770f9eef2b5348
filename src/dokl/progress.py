"""A progress bar on stderr, and nothing at all when nobody is looking.

>>> with progress(100, "learning", show=False) as bar:
...     for _ in range(10):
...         bar.advance(10)
>>> bar.done
100
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# A learner may advance a million times a second; a terminal wants ten frames.
REFRESH_SECONDS = 0.1


class Bar:
    """Counts what is done; any number of threads may advance it."""

    def __init__(self, draw: Callable[[int], None] | None = None) -> None:
        """Draw is called with the count, now and then; without it the bar only counts."""
        self.done = 0
        self._draw = draw
        self._lock = threading.Lock()
        self._drawn_at = time.monotonic()

    def advance(self, k: int = 1) -> None:
        """Say that k more are done."""
        with self._lock:
            self.done += k
            if self._draw is None:
                return
            now = time.monotonic()
            if now - self._drawn_at >= REFRESH_SECONDS:
                self._drawn_at = now
                self._draw(self.done)

    def flush(self) -> None:
        """Draw the present count now."""
        with self._lock:
            if self._draw is not None:
                self._draw(self.done)


@contextmanager
def progress(
    total: int | None, label: str, show: bool | None = None, unit: str = "samples"
) -> Iterator[Bar]:
    """Show a bar on stderr while the block runs.

    total: how many there will be, None when nobody knows. show: True, False, or None for
    'when stderr is a terminal'. stdout is never written to, so results can be piped.
    """
    if not (_is_terminal() if show is None else show):
        yield Bar()
        return
    with _rich_bar(total, label, unit) as bar:
        yield bar


def _is_terminal() -> bool:
    # stderr is None under pythonw and some service managers
    return sys.stderr is not None and sys.stderr.isatty()


@contextmanager
def _rich_bar(total: int | None, label: str, unit: str) -> Iterator[Bar]:
    from rich import progress as rich_progress
    from rich.console import Console

    display = rich_progress.Progress(
        rich_progress.TextColumn("{task.description}", markup=False),
        rich_progress.BarColumn(),
        rich_progress.MofNCompleteColumn(),
        rich_progress.TextColumn("{task.fields[speed]}", markup=False),
        rich_progress.TimeRemainingColumn(),
        console=Console(stderr=True),
        # rich would otherwise carry print() over to stderr while the bar is up
        redirect_stdout=False,
    )
    start = time.monotonic()
    task = display.add_task(label, total=total, speed="")

    def draw(done: int) -> None:
        rate = done / max(time.monotonic() - start, 1e-9)
        display.update(task, completed=done, speed=f"{rate:,.0f} {unit}/s")

    with display:
        bar = Bar(draw)
        try:
            yield bar
        finally:
            bar.flush()
