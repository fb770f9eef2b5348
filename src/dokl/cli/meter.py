"""A progress bar over the bytes of a file: rows so far, rows a second, a figure, time left."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import Any

from dokl.progress import Bar, progress


class Meter:
    """Shows on stderr how far the reading of a file is; passes: how often it is read."""

    def __init__(self, label: str, quiet: bool, passes: int = 1) -> None:
        self.label, self.quiet, self.passes = label, quiet, passes
        self.began, self.at = time.monotonic(), 0
        self.bar: Bar | None = None
        self.stack = ExitStack()

    def __enter__(self) -> Meter:
        return self

    def show(self, reader: Any, rows: int, figure: str = "") -> None:
        """Say how far we are."""
        bar = self.bar or self._begin(reader)
        rate = rows / max(1e-9, self.seconds)
        gone = reader.bytes_read - self.at
        gone = gone if gone >= 0 else reader.bytes_read  # a new pass starts the file again
        self.at = reader.bytes_read
        bar.advance(gone, f"{rows:,} rows, {rate:,.0f}/s {figure}")

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
