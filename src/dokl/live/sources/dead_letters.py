"""Dead letters: messages that cannot be samples, kept for the repair of their sender.

One JSON object a line: when, from where, why, and the body, as text or else in base64. The file is
for its owner's eyes and bounded: past `MOST` bytes it makes room by becoming NAME.dead.jsonl.1,
instead of the one before.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from dokl.live.store.folder import open_own

MOST = 64_000_000  # bytes of one file
BODY = 1_000_000  # bytes of a body that are kept


@dataclass(frozen=True)
class SensorMessage:
    """What a broker delivered. where: topic, and offset if there is one. key: by which the journal
    knows it again; None: every delivery counts.
    """

    where: str
    body: bytes
    key: str | None = None


class DeadLetters:
    """The file; it is made when it is needed."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, messages: Sequence[tuple[SensorMessage, str]], wall: float) -> None:
        """Messages with the reasons why they are here; on the disk when this returns.

        OSError where that cannot be done.
        """
        if not messages:
            return
        lines = "".join(_line(message, reason, wall) for message, reason in messages).encode()
        number = open_own(self.path, os.O_RDWR | os.O_APPEND)
        with os.fdopen(number, "ab") as file:
            if file.tell() and not _ends_a_line(number, file.tell()):
                lines = b"\n" + lines  # the last one was cut short
            file.write(lines)
            file.flush()
            os.fsync(number)
            full = file.tell() > MOST
        if full:
            os.replace(self.path, f"{self.path}.1")


def _ends_a_line(number: int, size: int) -> bool:
    return os.pread(number, 1, size - 1) == b"\n"


def _line(message: SensorMessage, reason: str, wall: float) -> str:
    at = datetime.fromtimestamp(wall, UTC).isoformat(timespec="milliseconds")
    letter = {"at": at.replace("+00:00", "Z"), "from": message.where, "reason": reason}
    body = message.body[:BODY]
    try:
        letter["body"] = body.decode()
    except UnicodeDecodeError:
        letter["base64"] = base64.b64encode(body).decode()
    if len(message.body) > BODY:
        letter["cut"] = f"{len(message.body):,} bytes, of which these are the first"
    return json.dumps(letter) + "\n"
