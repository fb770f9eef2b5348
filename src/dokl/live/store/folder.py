"""The folder of journals: its owner's, closed to others' hands, and no way to elsewhere.

Who can write there could put a link where the lock or the log is to be, and have the agent
write over any file of its owner.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from dokl.base.errors import BadFile


def private_folder(folder: Path) -> Path:
    """The folder, made if it is not there; BadFile where it is not ours alone to write to."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        raise BadFile(f"{folder}: no folder for journals ({error.strerror})") from None
    check_folder(folder, found)
    return folder


def check_folder(folder: Path, found: os.stat_result) -> None:
    """Refuse a link, another's folder, and one that others can write to."""
    if stat.S_ISLNK(found.st_mode):
        raise BadFile(f"{folder}: a symbolic link; name the folder itself")
    if found.st_uid != os.geteuid():
        raise BadFile(
            f"{folder}: it belongs to user {found.st_uid}, and this is user {os.geteuid()}: "
            "journals need a folder of one's own"
        )
    mode = stat.S_IMODE(found.st_mode)
    if mode & 0o022:
        raise BadFile(f"{folder}: others can write to it (mode {mode:o}): chmod 700 {folder}")


def open_own(path: Path, flags: int) -> int:
    """A descriptor of a file of ours, made if need be for our eyes only; OSError where it is a
    link, no plain file, or another's.
    """
    number = os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    found = os.fstat(number)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_nlink > 1:
        os.close(number)
        raise OSError(0, "it is not a plain file of this user")
    return number
