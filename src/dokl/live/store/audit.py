"""Who changed what, and when: a file of JSON lines beside a store or a description.

Lines are only ever added, and each is on the disk before its writer goes on. A file that has
grown to a megabyte is put aside, four of them are kept: NAME.audit.jsonl, and .1 (newer) to .4.

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as folder:
...     log = AuditLog(Path(folder) / "a.audit.jsonl")
...     log("reload", "a", ok=True)
...     log.lines()[0]["event"]
True
'reload'
"""

from __future__ import annotations

import fcntl
import json
import os
import pwd
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

MOST_BYTES, KEPT = 1_000_000, 4
LONGEST = 4000  # characters of one text
PATIENCE = 50  # times that a lock is tried, a hundredth of a second apart
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


def audit_path(store: Path) -> Path:
    """The file for a store NAME.db, or for a description lab.toml."""
    return store.with_suffix(".audit.jsonl")


class AuditLog:
    """One file; several processes may write to it, and none waits for long."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, event: str, node: str = "", **facts: object) -> bool:
        """Add a line; False where that cannot be done, which stops nobody."""
        at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line = {"at": at, "event": event, "node": node, "by": _who(), "pid": os.getpid(), **facts}
        short = {key: v[:LONGEST] if isinstance(v, str) else v for key, v in line.items()}
        try:
            self._add(json.dumps(short, default=str).encode() + b"\n")
        except OSError:
            return False
        return True

    def _add(self, line: bytes) -> None:
        folder = os.open(self.path.parent, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if _locked(folder):
                self._rotate(len(line))
            number = os.open(self.path, _APPEND, 0o600)
            try:
                os.write(number, line)
                os.fsync(number)
            finally:
                os.close(number)
        finally:
            os.close(folder)

    def _rotate(self, more: int) -> None:
        with suppress(FileNotFoundError):
            if self.path.stat().st_size + more <= MOST_BYTES:
                return
            for number in range(KEPT, 1, -1):
                with suppress(FileNotFoundError):
                    os.replace(self._aside(number - 1), self._aside(number))
            os.replace(self.path, self._aside(1))

    def _aside(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}")

    def lines(self) -> list[dict[str, Any]]:
        """All that is kept, the oldest first; a line that a crash cut short is left out."""
        found = []
        for path in (*(self._aside(n) for n in range(KEPT, 0, -1)), self.path):
            with suppress(FileNotFoundError):
                for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
                    with suppress(ValueError):
                        found.append(dict(json.loads(line)))
        return found


def _locked(folder: int) -> bool:
    """Whether nobody else writes here now; who waits for too long adds a line all the same, which
    is one write, and leaves it to the next one to put the file aside.
    """
    for _ in range(PATIENCE):
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            time.sleep(0.01)
        else:
            return True
    return False


def _who() -> str:
    """The user, and who became it by sudo."""
    number = os.getuid()
    try:
        name = pwd.getpwuid(number).pw_name
    except KeyError:  # in a container there may be none
        name = str(number)
    other = os.environ.get("SUDO_USER")
    return f"{name} (sudo by {other})" if other else name
