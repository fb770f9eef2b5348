"""`dokl agent rollback`: nodes as they were at an earlier time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path

from dokl.base.errors import BadInput
from dokl.live.description import Network, read
from dokl.live.jobs.agents import identity, state_folder
from dokl.live.store import (
    AuditLog,
    Rollback,
    Store,
    StoredSnapshot,
    audit_path,
    find_snapshot,
    go_back,
    stored_snapshots,
)

_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def moment(text: str, now: float) -> float:
    """Seconds since 1970 of a time: ISO 8601, local without a zone, or so long ago.

    >>> moment("1970-01-01T00:01:00Z", 0.0), moment("2h", 10_000.0), moment("1.5m", 100.0)
    (60.0, 2800.0, 10.0)
    """
    span = _SPAN.fullmatch(text.strip())
    if span:
        return now - float(span[1]) * _SECONDS[span[2]]
    try:
        return datetime.fromisoformat(text.strip()).timestamp()
    except (ValueError, OverflowError, OSError):
        raise BadInput(
            f"--to {text!r} is not a time: use 2026-11-15T08:30 (local), with Z or +01:00 for "
            "another zone, or how long ago: 45m, 2h, 3d"
        ) from None


def snapshots_of(
    description: Path, names: Sequence[str] = (), folder: Path | None = None
) -> dict[str, list[StoredSnapshot]]:
    """The snapshots that nodes of this machine have kept, the oldest first."""
    network, folder = read(description), folder or state_folder(description)
    return {name: stored_snapshots(folder / f"{name}.db") for name in _here(network, names, folder)}


def rollback(
    description: Path, to: float, names: Sequence[str] = (), folder: Path | None = None
) -> dict[str, Rollback]:
    """Let nodes of this machine, all unless some are named, be as they were at a time.

    All or none: each is looked at before the first is changed. Agents must not run.
    """
    network, folder = read(description), folder or state_folder(description)
    chosen = _here(network, names, folder)
    places = {name: (folder / f"{name}.db", identity(network, name)) for name in chosen}
    snapshots = {name: find_snapshot(*place, to) for name, place in places.items()}
    with ExitStack() as stack:
        stores = {}
        for name, place in places.items():
            stores[name] = Store.open(*place, "full", network.limits)
            stack.callback(stores[name].close)
        done = {}
        for name in chosen:
            done[name] = went = go_back(stores[name], *snapshots[name])
            about = {"to": shown(went.at), "learned": went.learned, "undone": went.undone}
            AuditLog(audit_path(places[name][0]))("rollback", name, **about)
        return done


def _here(network: Network, names: Sequence[str], folder: Path) -> list[str]:
    for name in names:
        network.node(name)
        if not (folder / f"{name}.db").exists():
            raise BadInput(f"{folder}: there is no journal of {name!r} here (--state?)")
    found = [name for name in names or network.names if (folder / f"{name}.db").exists()]
    if not found:
        raise BadInput(f"{folder}: there is no journal of any node here (--state?)")
    return found


def shown(at: float) -> str:
    """A moment as people read it, local."""
    return datetime.fromtimestamp(at).astimezone().isoformat(" ", "seconds")
