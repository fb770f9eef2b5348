"""Snapshots of earlier moments, to go back to: files in NAME.kept beside the store NAME.db.

A store holds what was learned last, and with it whatever a faulty neighbour or a broken sensor has
done to it. So every few minutes the state of then is put aside. Their number and
bytes are bounded; those that go are the ones whose neighbours in time are nearest, measured by how
long ago they are: ten minutes matter in what was an hour ago, and not in what was last month.

A file is a line that says whose it is and when it was made, as JSON, with a checksum of the packed
state that follows.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dokl.base.errors import BadFile, BadInput
from dokl.base.files import from_bytes, read_bytes
from dokl.live.store.folder import open_own, private_folder
from dokl.live.store.journal import Store
from dokl.live.store.records import Identity, make_identity
from dokl.network.state import unpack

MOST, MOST_BYTES = 48, 256_000_000
END = ".snapshot"


@dataclass(frozen=True)
class StoredSnapshot:
    """One of them: when it was made, seconds since 1970, how many rows were learned then."""

    at: float
    learned: int
    bytes: int
    path: Path


@dataclass(frozen=True)
class Rollback:
    """What became of going back: to the moment `at`; undone: rows learned since, which are not
    learned again.
    """

    at: float
    learned: int
    undone: int


def snapshot_folder(store: Path) -> Path:
    """Where the snapshots of a store are."""
    return store.with_suffix(".kept")


def stored_snapshots(store: Path) -> list[StoredSnapshot]:
    """Those of a store, the oldest first; files of other names are left alone."""
    found = []
    for path in snapshot_folder(store).glob(f"*{END}"):
        made, _, learned = path.name.removesuffix(END).partition("-")
        if made.isdigit() and learned.isdigit():
            found.append(StoredSnapshot(int(made) / 1e3, int(learned), path.stat().st_size, path))
    return sorted(found, key=lambda each: (each.at, each.learned))


def keep(
    store: Path, identity: Identity, packed: bytes, learned: int, at: float,
    most: int = MOST, most_bytes: int = MOST_BYTES,
) -> None:  # fmt: skip
    """Put a state aside, whole or not at all, and let others go that are too many; OSError or
    BadFile where the disk does not want it.
    """
    folder = private_folder(snapshot_folder(store))
    place = folder / f"{max(0, round(at * 1e3)):013d}-{learned}{END}"
    part = folder / ".part"
    about = {"at": at, "learned": learned, "crc": zlib.crc32(packed)}
    head = json.dumps({"identity": make_identity(identity), **about})
    with open(open_own(part, os.O_WRONLY | os.O_TRUNC), "wb") as file:
        file.write(head.encode() + b"\n" + packed)
    part.replace(place)
    for gone in too_many(stored_snapshots(store), most, most_bytes):
        gone.path.unlink(missing_ok=True)


def too_many(
    snapshots: Sequence[StoredSnapshot], most: int, most_bytes: int
) -> list[StoredSnapshot]:  # fmt: skip
    """Which of these, the oldest first, are to go; never the newest."""
    left, gone = list(snapshots), list[StoredSnapshot]()
    while len(left) > 1 and (len(left) > most or sum(s.bytes for s in left) > most_bytes):
        gone.append(left.pop(_least(left)))
    return gone


def _least(snapshots: list[StoredSnapshot]) -> int:
    """The one that is missed least: its neighbours are near, for its age."""
    times = [each.at for each in snapshots]
    if len(times) == 2:
        return 0
    gaps = [
        (times[i + 1] - times[i - 1]) / max(times[-1] - times[i], 1e-9)
        for i in range(1, len(times) - 1)
    ]
    return 1 + min(range(len(gaps)), key=gaps.__getitem__)


def find_snapshot(
    store: Path, identity: Identity, at: float
) -> tuple[StoredSnapshot, bytes]:  # fmt: skip
    """The last snapshot of a store that was made before a time, and the packed state in it."""
    snapshots = stored_snapshots(store)
    before = [each for each in snapshots if each.at <= at]
    if not before:
        oldest = f", the first of {len(snapshots)} is later" if snapshots else ", nor any other"
        raise BadInput(
            f"{snapshot_folder(store)}: no snapshot is kept from before that time{oldest}"
        )
    return before[-1], _read(before[-1], identity)


def go_back(store: Store, chosen: StoredSnapshot, packed: bytes) -> Rollback:
    """Let an open store be as it was then.

    Rows that were stored since stay acknowledged and counted, and are not learned again.
    """
    undone = store.samples - chosen.learned
    with store.transaction() as transaction:
        transaction.back_to(packed, chosen.learned)
    return Rollback(chosen.at, chosen.learned, undone)


def _check(packed: bytes) -> None:
    """By its checksum: of a vector, or of a node that shares sums or rows."""
    try:
        unpack(packed)
    except BadInput:
        from_bytes(packed)


def _read(snapshot: StoredSnapshot, identity: Identity) -> bytes:
    try:
        head, _, packed = read_bytes(snapshot.path).partition(b"\n")
        head_line = json.loads(head)
        owner, learned = head_line["identity"], head_line["learned"]
        if "crc" not in head_line:  # as earlier versions wrote it, with a checksum inside
            _check(packed)
        elif head_line["crc"] != zlib.crc32(packed):
            raise ValueError("its checksum does not fit")
    except (OSError, ValueError, KeyError, TypeError, BadInput, BadFile) as error:
        raise BadFile(f"{snapshot.path}: this snapshot cannot be read ({error})") from None
    if owner != make_identity(identity) or learned != snapshot.learned:
        raise BadFile(
            f"{snapshot.path}: a snapshot of another node, or of another feature space: move it "
            "away, or roll back to another time"
        )
    return packed
