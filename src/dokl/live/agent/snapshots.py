"""Putting a snapshot aside every few minutes, for `dokl agent rollback`."""

from __future__ import annotations

from pathlib import Path

from dokl.base.errors import DoklError
from dokl.live.store.records import Identity
from dokl.live.store.snapshots import keep, stored_snapshots
from dokl.simulation.learner import Learner


class SnapshotSchedule:
    """When the last one was made, and where the next one goes."""

    def __init__(self, store: Path, learner: Learner, name: str) -> None:
        self._store = store
        m, D, d, agreed = learner.m, learner.D, learner.d, learner.fingerprint
        self._identity: Identity = {"name": name, "fingerprint": agreed, "m": m, "D": D, "d": d}
        self._last = max((each.at for each in stored_snapshots(store)), default=float("-inf"))

    def due(self, every: float, wall: float) -> bool:
        """Whether it is time; a clock that was set back does not stop it."""
        return every > 0 and not 0 <= wall - self._last < every

    def keep(self, packed: bytes, learned: int, wall: float) -> str:
        """Put it aside; why that failed, "" where it did not."""
        self._last = wall
        try:
            keep(self._store, self._identity, packed, learned, wall)
        except (OSError, DoklError) as error:  # a full disk must not stop samples
            return str(error)
        return ""
