"""The tables of a store, and how those of earlier formats become the present ones."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

from dokl.base.errors import BadFile
from dokl.live.store import records
from dokl.live.store.failures import damage_error
from dokl.live.store.marks import Mark, pack_mark

APPLICATION = 0x646F6B6C  # "dokl", for the `file` command and against opening something else
# 2: snapshots are arrays by name. 3: marks, checksums everywhere, since when an input waits.
FORMAT, UPGRADED = 3, (1, 2)

_SCHEMA = """
CREATE TABLE about (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE samples (first INTEGER PRIMARY KEY, n INTEGER NOT NULL, type TEXT NOT NULL,
                      rows BLOB NOT NULL, crc INTEGER NOT NULL);
CREATE TABLE snapshot (id INTEGER PRIMARY KEY CHECK (id = 1), learned INTEGER NOT NULL,
                       packed BLOB NOT NULL, crc INTEGER NOT NULL);
"""
_SCHEMA_3 = """
CREATE TABLE keys (number INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, digest TEXT NOT NULL,
                   answer TEXT NOT NULL, crc INTEGER NOT NULL);
CREATE TABLE offsets (source TEXT PRIMARY KEY, position TEXT NOT NULL, number INTEGER NOT NULL,
                      crc INTEGER NOT NULL);
CREATE TABLE waiting (id TEXT PRIMARY KEY, type TEXT NOT NULL, x BLOB NOT NULL,
                      since REAL NOT NULL, crc INTEGER NOT NULL);
CREATE INDEX waiting_since ON waiting (since);
"""
_COLUMNS = {
    "about": "key value",
    "samples": "first n type rows crc",
    "snapshot": "id learned packed crc",
    "keys": "number key digest answer crc",
    "offsets": "source position number crc",
    "waiting": "id type x since crc",
}
_OLD = {"keys": "number key digest answer", "offsets": "source position", "waiting": "id type x"}


def is_new(db: sqlite3.Connection) -> bool:
    """Whether nothing is in it yet."""
    tables = db.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
    return tables == 0 and _pragma(db, "application_id") == 0


def check_schema(db: sqlite3.Connection, path: Path) -> int:
    """The format of a store; refuse what is none, a format not known, and damage."""
    if _pragma(db, "application_id") != APPLICATION:
        raise BadFile(f"{path}: this is a database, but not an agent's store")
    version = int(_pragma(db, "user_version"))
    if version != FORMAT and version not in UPGRADED:
        raise BadFile(
            f"{path}: a store of format {version}, and this dokl reads format {FORMAT}: "
            "use the dokl that wrote it, or a newer one"
        )
    found = db.execute("PRAGMA integrity_check(1)").fetchone()[0]
    if found != "ok":
        raise damage_error(path, " ".join(str(found).split()))
    expected = _COLUMNS if version == FORMAT else {**_COLUMNS, **_OLD}
    for table, columns in expected.items():
        there = " ".join(str(row[1]) for row in db.execute(f"PRAGMA table_info({table})"))
        if there != columns:
            raise damage_error(path, f"its table {table} has the columns {there or 'of none'}")
    return version


def prepare(db: sqlite3.Connection) -> None:
    """Make the tables of a new store; bring those of an earlier format up to date."""
    if is_new(db):
        db.execute("BEGIN IMMEDIATE")
        _run(db, _SCHEMA + _SCHEMA_3)
        records.set_value(db, "mark", pack_mark(Mark()))
        db.execute(f"PRAGMA application_id = {APPLICATION}")
        db.execute(f"PRAGMA user_version = {FORMAT}")
        db.execute("COMMIT")
    elif int(_pragma(db, "user_version")) in UPGRADED:
        db.execute("BEGIN IMMEDIATE")
        _upgrade(db)
        db.execute("COMMIT")


def _upgrade(db: sqlite3.Connection) -> None:
    """Read what has no checksum yet, and write it with one; whole or not at all."""
    keys = db.execute("SELECT number, key, digest, answer FROM keys ORDER BY number").fetchall()
    offsets = db.execute("SELECT source, position FROM offsets").fetchall()
    waiting = db.execute("SELECT id, type, x FROM waiting").fetchall()
    for table in _OLD:
        db.execute(f"DROP TABLE {table}")
    _run(db, _SCHEMA_3)
    now = time.time()  # inputs that wait begin to wait now
    for table, rows in {
        "keys": keys,
        "offsets": [(*row, number) for number, row in enumerate(offsets, 1)],
        "waiting": [(*row, now) for row in waiting],
    }.items():
        records.insert(db, table, rows)
    records.set_value(db, "mark", pack_mark(records.count(db, Mark(commit=1))))
    db.execute(f"PRAGMA user_version = {FORMAT}")


def _run(db: sqlite3.Connection, script: str) -> None:
    for statement in script.split(";"):  # executescript would commit before
        db.execute(statement)


def _pragma(db: sqlite3.Connection, name: str) -> int:
    return int(db.execute(f"PRAGMA {name}").fetchone()[0])
