"""Whether a store can be believed: asked of a connection that only reads, so that a store which is
refused stays as it was found, with its write-ahead log.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from dokl.live.store import records
from dokl.live.store.failures import damage_error, missing_error
from dokl.live.store.marks import Mark, StoredMark, boot_id, mark_path, unpack_mark
from dokl.live.store.schema import FORMAT, check_schema, is_new

SEALED = ("keys", "offsets", "waiting")
_COUNTED = ("rows", "learned", "keys", "kept", "offsets", "waiting")


def examine(
    db: sqlite3.Connection,
    path: Path,
    identity: records.Identity,
    kept: StoredMark | None,
    durability: str,
    earlier: records.Identities = (),
) -> int:
    """Refuse a store that is damaged, another's, or behind its mark `kept`.

    How many rows a power cut took, where the mode "process" allows for that; 0 otherwise.
    """
    name = str(identity["name"])
    if is_new(db):
        return check_mark(path, name, Mark(), kept, durability)
    old = check_schema(db, path) != FORMAT
    if old:
        mark = Mark()
    else:
        mark = read_own_mark(db, path)
        check_counts(db, path, mark)
    if mark.commit or about_identity(db):  # an end between tables and identity leaves none
        records.check_identity(db, path, identity, earlier)
    int(records.about(db, "incarnation") or 0)
    return check_mark(path, name, mark, None if old and _blank(kept) else kept, durability, old)


def about_identity(db: sqlite3.Connection) -> bool:
    """Whether somebody has put a name to it."""
    return records.about(db, "identity") is not None


def read_own_mark(db: sqlite3.Connection, path: Path) -> Mark:
    """The mark in the database itself, of its last commit."""
    mark = unpack_mark(records.about(db, "mark") or "")
    if mark is None:
        raise damage_error(path, "the number of its last commit is unreadable")
    return mark


def check_counts(db: sqlite3.Connection, path: Path, mark: Mark) -> None:
    """Refuse tables of different moments, and rows whose checksum does not match."""
    there = records.count(db, mark)
    for count in _COUNTED:
        here, stored = getattr(there, count), getattr(mark, count)
        if here != stored:
            raise damage_error(path, f"{count}: {stored} were stored, and {here} are there")
    if there.rows < there.learned:
        raise damage_error(
            path, f"{there.learned} rows are in its snapshot and {there.rows} in its journal"
        )
    records.sealed(db, path)
    for table in SEALED:
        wrong = len(records.damaged(db, table))
        if wrong:
            raise damage_error(path, f"{wrong} checksums of its table {table} do not match")


def check_mark(
    path: Path, name: str, mark: Mark, kept: StoredMark | None, durability: str, old: bool = False
) -> int:
    """Compare the database with what was acknowledged; rows lost that may be lost."""
    if kept is None:
        if mark.commit:
            why = (
                f"{mark_path(path)} is missing, which shows whether all acknowledged rows are here"
            )
            raise missing_error(path, name, why, None)
        return 0
    if kept.mark.commit < 0:
        why = f"{mark_path(path)} is damaged, which shows whether all acknowledged rows are here"
        raise missing_error(path, name, why, None)
    if mark.commit >= kept.mark.commit:
        return 0
    lost = max(kept.mark.rows - mark.rows, 0)
    if durability == "process" and not kept.closed and kept.boot != (boot_id() or kept.boot):
        return lost  # the machine went down, and this mode promises the last moments to nobody
    raise missing_error(path, name, _loss_text(mark, kept.mark, lost), lost)


def _loss_text(mark: Mark, wanted: Mark, lost: int) -> str:
    behind = wanted.commit - mark.commit
    parts = [
        f"{name} {getattr(mark, name):,} instead of {getattr(wanted, name):,}"
        for name in ("rows", "keys", "offsets")
        if getattr(mark, name) != getattr(wanted, name)
    ]
    rows = f"{lost:,} acknowledged row{'s are' if lost != 1 else ' is'} missing"
    return f"{rows}, with the last {behind:,} commits ({', '.join(parts) or 'no samples in them'})"


def _blank(kept: StoredMark | None) -> bool:
    return kept is None or kept.mark.commit <= 0
