"""Long work: a progress bar on stderr, if somebody is looking, and Ctrl-C between two pieces.

>>> with progress(100, "learning", show=False) as bar:
...     for _ in range(10):
...         bar.advance(10)
>>> bar.done
100
"""

from __future__ import annotations

import html
import importlib
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType
from typing import Any

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
        """Report that k more are done, with a remark."""
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
    remarks of `advance` beside it. stdout is never written to, so results can be piped. In a
    notebook the bar is shown there.
    """
    if not (_is_terminal() if show is None else show):
        yield Bar()
        return
    with (_notebook_bar if in_notebook() else _rich_bar)(total, label, unit) as bar:
        yield bar


def in_notebook() -> bool:
    """Whether this runs in the kernel of a notebook; asking loads nothing."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None


def _is_terminal() -> bool:
    # stderr is None under pythonw and some service managers
    return sys.stderr is not None and sys.stderr.isatty()


@contextmanager
def _notebook_bar(total: int | None, label: str, unit: str | None) -> Iterator[Bar]:
    """A bar of plain HTML that replaces itself; it needs no widgets."""
    shown = importlib.import_module("IPython.display")
    start = time.monotonic()
    handle: Any = None

    def draw(done: int, remark: str) -> None:
        nonlocal handle
        page = shown.HTML(_bar_html(total, label, unit, done, remark, time.monotonic() - start))
        if handle is None:
            handle = shown.display(page, display_id=True)
        else:
            handle.update(page)

    bar = Bar(draw)
    try:
        yield bar
    finally:
        bar.flush()


def _bar_html(
    total: int | None, label: str, unit: str | None, done: int, remark: str, seconds: float
) -> str:
    """One line: label, bar, count, speed, and a remark."""
    place = f'value="{done}" max="{total}"' if total else ""
    count = f"{done:,}" + (f" of {total:,}" if total else "") + f" {unit}" if unit else ""
    speed = f"{done / max(seconds, 1e-9):,.0f} {unit}/s" if unit else ""
    words = " ".join(word for word in (count, speed, html.escape(remark)) if word)
    return f"{html.escape(label)} <progress {place}></progress> {words}"


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
        # At once: rich's own thread may come only when the next remark is there.
        display.update(task, completed=done, speed=speed + remark, refresh=True)

    with display:
        bar = Bar(draw)
        try:
            yield bar
        finally:
            bar.flush()


# -- Ctrl-C lets a piece of work finish first, if that is soon ------------------------------------
# Called inside a piece of work from where it can no longer be undone.
Settled = Callable[[], None]
Whole = Callable[[], AbstractContextManager[Settled]]
# Seconds that a caller waits for a piece of work.
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
    the count of rows shows where to continue. A second Ctrl-C does not wait: it is a
    KeyboardInterrupt, and everything is lost.
    """
    if threading.current_thread() is not threading.main_thread():  # signals go to the main thread
        yield _undisturbed
        return
    waiter = _Waiter()
    handled = [number for number in _SIGNALS if signal.getsignal(number) != signal.SIG_IGN]  # nohup
    before = {number: signal.signal(number, waiter.asked) for number in handled}
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

    def asked(self, signum: int, frame: FrameType | None) -> None:
        """The handler of the signals."""
        if self.signum is not None:
            raise KeyboardInterrupt
        self.signum = signum
        if not self.busy:
            raise Stopped(signum)
        signal.setitimer(signal.ITIMER_REAL, PATIENCE)

    def late(self, signum: int, frame: FrameType | None) -> None:
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
