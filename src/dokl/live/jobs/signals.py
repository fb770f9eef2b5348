"""Talking to agents that run on this machine."""

from __future__ import annotations

import fcntl
import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from dokl.base.errors import BadInput
from dokl.live.description import read
from dokl.live.jobs.agents import state_folder
from dokl.live.store import AuditLog, audit_path
from dokl.live.store.folder import check_folder

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC


def running_pid(store: Path) -> int | None:
    """The process that has a store open, None if none has."""
    place = store.with_name(store.name + ".lock")
    with suppress(OSError, ValueError), open(os.open(place, _READ), encoding="ascii") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return int(lock.read(20))
    return None


def reload(description: Path, names: Sequence[str], folder: Path | None) -> dict[str, int]:
    """Make agents read their description again: {name: process} of those that got the signal.

    A description that they would refuse is refused here, before anyone is disturbed.
    """
    network = read(description)
    for name in names:
        network.node(name)
    folder = folder or state_folder(description)
    if folder.exists():  # who can write there could name any of our processes
        check_folder(folder, folder.lstat())
    found = {name: running_pid(folder / f"{name}.db") for name in names or network.names}
    if names:
        absent = [name for name, pid in found.items() if pid is None]
        if absent:
            raise BadInput(f"{folder}: no agent {absent[0]!r} is running here (--state?)")
    signalled = {name: pid for name, pid in found.items() if pid is not None}
    if not signalled:
        raise BadInput(f"{folder}: no agent of {description} is running here (--state?)")
    for name, pid in signalled.items():
        AuditLog(audit_path(folder / f"{name}.db"))("reload asked", name, process=pid)
        os.kill(pid, signal.SIGHUP)
    return signalled
