"""Structured log lines: one JSON object a line, for machines and for eyes."""

from __future__ import annotations

import json
import sys
import threading
from datetime import UTC, datetime
from typing import Any, TextIO

from dokl.base.errors import UnknownName
from dokl.live.agent.clock import Clock

LEVELS = ("info", "warning", "error")
# Events that are more than information.
EVENTS = {
    "error": ("failed", "internal error", "http error", "not stored", "rows lost", "source failed"),
    "warning": (
        "audit line not written", "bad line", "broker", "broker lost", "clock jumped",
        "dead letter", "diverged", "inputs expired", "link failed", "link refused", "login refused",
        "message refused", "neighbour lost", "not committed", "not learned", "not published",
        "problem", "reload refused", "snapshot not kept",
    ),
}  # fmt: skip
_LEVEL = {event: level for level, events in EVENTS.items() for event in events}
OFTEN = 1.0  # seconds between two lines of the same kind
KINDS = 100  # distinguished at a time: reasons may quote what others sent


class Log:
    """Writes lines like {"at": "2026-01-31T12:00:00.123Z", "level": "info", "node": "a",
    "event": "started", ...}; level: of the least that are written.

    Lines that come in floods (`often=True`) are thinned out to one a second of each kind, and the
    next one counts those left out.
    """

    def __init__(
        self, node: str, clock: Clock, out: TextIO | None = None, level: str = "info"
    ) -> None:
        self._node, self._clock, self._out = node, clock, out
        if level not in LEVELS:
            raise UnknownName("level of a log", level, LEVELS)
        self._least = LEVELS.index(level)
        self._lock = threading.Lock()
        self._last: dict[tuple[str, str], float] = {}
        self._left_out: dict[tuple[str, str], int] = {}

    def __call__(self, event: str, *, often: bool = False, **fields: object) -> None:
        """One line; a log that cannot be written stops nobody."""
        level = _LEVEL.get(event, "info")
        if LEVELS.index(level) < self._least:
            return
        with self._lock:
            if often and not self._due(event, fields):
                return
            at = datetime.fromtimestamp(self._clock.wall(), UTC)
            stamp = at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
            line = {"at": stamp, "level": level, "node": self._node, "event": event, **fields}
            out = self._out or sys.stderr
            try:
                out.write(json.dumps(line, default=str) + "\n")
                out.flush()
            except (OSError, ValueError):
                return

    def _due(self, event: str, fields: dict[str, Any]) -> bool:
        kind, now = (event, str(fields.get("reason", ""))), self._clock.now()
        if kind not in self._last and len(self._last) >= KINDS:
            self._forget(now)
            kind = kind if len(self._last) < KINDS else (event, "")
        if now - self._last.get(kind, -OFTEN) < OFTEN:
            self._left_out[kind] = self._left_out.get(kind, 0) + 1
            return False
        self._last[kind] = now
        missed = self._left_out.pop(kind, 0)
        if missed:
            fields["left_out"] = missed
        return True

    def _forget(self, now: float) -> None:
        """Kinds that may come again; how many of them were left out stays with their event."""
        for kind in [kind for kind, last in self._last.items() if now - last >= OFTEN]:
            del self._last[kind]
            missed = self._left_out.pop(kind, 0)
            if missed:
                rest = (kind[0], "")
                self._left_out[rest] = self._left_out.get(rest, 0) + missed
