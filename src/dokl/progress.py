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

    def __init__(self, draw: Callable[[int, str], None] | None = None) -> None:
        """Draw is called with the count and a remark, now and then; without it nothing is drawn."""
        self.done = 0
        self.remark = ""
        self._draw = draw
        self._lock = threading.Lock()
        self._drawn_at = time.monotonic()

    def advance(self, k: int = 1, remark: str | None = None) -> None:
        """Say that k more are done, and what else there is to say."""
        with self._lock:
            self.done += k
            self.remark = self.remark if remark is None else remark
            if self._draw is None:
                return
            now = time.monotonic()
            if now - self._drawn_at >= REFRESH_SECONDS:
                self._drawn_at = now
                self._draw(self.done, self.remark)

    def flush(self) -> None:
        """Draw the present count now."""
        with self._lock:
            if self._draw is not None:
                self._draw(self.done, self.remark)


@contextmanager
def progress(
    total: int | None, label: str, show: bool | None = None, unit: str | None = "samples"
) -> Iterator[Bar]:
    """Show a bar on stderr while the block runs.

    total: how many there will be, None when nobody knows. show: True, False, or None for
    'when stderr is a terminal'. unit: what is counted; None shows a percentage, and only the
    remarks of `advance` beside it. stdout is never written to, so results can be piped.
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
def _rich_bar(total: int | None, label: str, unit: str | None) -> Iterator[Bar]:
    from rich import progress as rich_progress
    from rich.console import Console

    display = rich_progress.Progress(
        rich_progress.TextColumn("{task.description}", markup=False),
        rich_progress.BarColumn(),
        rich_progress.MofNCompleteColumn() if unit else rich_progress.TaskProgressColumn(),
        rich_progress.TextColumn("{task.fields[speed]}", markup=False),
        rich_progress.TimeRemainingColumn(),
        console=Console(stderr=True),
        # rich would otherwise carry print() over to stderr while the bar is up
        redirect_stdout=False,
    )
    start = time.monotonic()
    task = display.add_task(label, total=total, speed="")

    def draw(done: int, remark: str) -> None:
        rate = done / max(time.monotonic() - start, 1e-9)
        speed = f"{rate:,.0f} {unit}/s " if unit else ""
        display.update(task, completed=done, speed=speed + remark)

    with display:
        bar = Bar(draw)
        try:
            yield bar
        finally:
            bar.flush()
