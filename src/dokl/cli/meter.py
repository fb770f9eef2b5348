"""A progress bar over the bytes of a file: rows so far, rows a second, a figure, time left."""

from __future__ import annotations

import gc
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import click

from dokl.base.progress import Bar, progress

PATIENCE = 1.0


class Meter:
    """Shows on stderr how far the reading of a file is; passes: how often it is read."""

    def __init__(self, label: str, quiet: bool, passes: int = 1) -> None:
        self.label, self.quiet, self.passes = label, quiet, passes
        self.began = time.monotonic()
        self.at = self.before = self.read = 0  # done, begin and end of what was read last
        self.bar: Bar | None = None
        self.stack = ExitStack()

    def __enter__(self) -> Meter:
        return self

    def show(
        self, reader: Any, rows: int, figure: str = "", doing: str = "", left: float = 0.0
    ) -> None:
        """Say how far we are. doing: what takes long now, which is said at once; left: the share of
        what was read last that is still to be worked on.
        """
        bar = self.bar or self._begin(reader)
        if doing:
            bar.advance(0, f"{rows:,} rows, {doing}")
            bar.flush()
            return
        rate = rows / max(1e-9, self.seconds)
        place = self._place(reader.bytes_read, left)
        gone = place - self.at if place >= self.at else place  # a new pass starts the file again
        self.at = place
        bar.advance(gone, f"{rows:,} rows, {rate:,.0f}/s {figure}")

    def _place(self, read: int, left: float) -> int:
        """The byte up to which all is done."""
        if read != self.read:
            self.before, self.read = self.read if read > self.read else 0, read
        return read - round(left * (read - self.before))

    def _begin(self, reader: Any) -> Bar:
        total = reader.bytes_total and reader.bytes_total * self.passes
        shown = progress(total, self.label, False if self.quiet else None, unit=None)
        self.bar = self.stack.enter_context(shown)
        return self.bar

    @property
    def seconds(self) -> float:
        """Since it began."""
        return time.monotonic() - self.began

    def __exit__(self, *error: Any) -> None:
        self.stack.close()


@contextmanager
def loading(quiet: bool) -> Iterator[None]:
    """For the imports of a command: say on a terminal that libraries are being loaded, where that
    takes more than a second. Nothing is garbage until they are there.
    """
    text = "loading libraries, which is slow the first time"
    seen = not quiet and sys.stderr is not None and sys.stderr.isatty()
    timer = threading.Timer(PATIENCE, click.echo, (text,), {"err": True})
    if seen:
        timer.start()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        timer.cancel()
