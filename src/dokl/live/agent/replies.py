"""What a sender of samples gets: an answer once they are stored, or the reason why not."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

from dokl.base.errors import DoklError
from dokl.live.inputs import Arrival

Answer = dict[str, Any]
Job = tuple[Arrival, "Future[Answer]"]


class Busy(DoklError):
    """The queue is full: come back in `retry_after` seconds."""

    def __init__(self, retry_after: float) -> None:
        self.retry_after = retry_after
        super().__init__(f"the queue is full: send again in {retry_after:.1f} seconds")


class Stopping(DoklError):
    """The agent is about to end."""


def answer(future: Future[Answer], reply: Answer) -> None:
    """Answer, if anyone still waits."""
    if future.set_running_or_notify_cancel():
        future.set_result(reply)


def refuse(future: Future[Answer], error: Exception) -> None:
    """Send the reason for no answer; a second call sends nothing."""
    if not future.done() and future.set_running_or_notify_cancel():
        future.set_exception(error)
