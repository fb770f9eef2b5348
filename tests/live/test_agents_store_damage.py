"""The store: what was committed stays, whatever happens to the process, the disk or the file."""

import json
import os
import random
import select
import signal
import sqlite3
import subprocess
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest

from dokl.base.errors import BadFile
from dokl.live.store import StoreFailed
from stores import journal, opened, rows, same


# -- damage --------------------------------------------------------------------------------------
def test_files_that_are_no_store(tmp_path):
    text = tmp_path / "text.db"
    text.write_text("something else entirely\n" * 100)
    before = text.read_bytes()
    with pytest.raises(BadFile, match="damaged"):
        opened(text)
    assert text.read_bytes() == before
    foreign = tmp_path / "foreign.db"
    with sqlite3.connect(foreign) as db:
        db.execute("CREATE TABLE notes (text)")
    db.close()
    with pytest.raises(BadFile, match="not an agent's store"):
        opened(foreign)
    with pytest.raises(BadFile, match=r"cannot be (opened|locked)"):
        opened(tmp_path / "no folder" / "a.db")


def test_a_newer_format_is_refused(path):
    opened(path).close()
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(BadFile, match="format 99"):
        opened(path)


@pytest.mark.parametrize(
    "harm",
    [
        "UPDATE samples SET rows = zeroblob(length(rows)) WHERE first = 2",
        "UPDATE samples SET n = 3 WHERE first = 2",
        "DELETE FROM samples WHERE first = 2",
        "UPDATE snapshot SET packed = x'00'",
        "UPDATE samples SET type = 'pickle'",
    ],
)
def test_damaged_rows_are_noticed(path, harm):
    store = opened(path)
    with store.transaction() as change:
        change.snapshot(b"state", 0)
        for first in (0, 2, 4):
            change.samples(*rows(first, 2))
    store.close()
    with sqlite3.connect(path) as db:
        db.execute(harm)
    db.close()
    again = opened(path)
    with pytest.raises(BadFile, match="the store is damaged"):
        journal(again)
    again.close()


def test_overwritten_pages_are_noticed(path):
    store = opened(path)
    for i in range(50):
        with store.transaction() as change:
            change.samples(*rows(i * 100, 100))
    store.close()
    data = bytearray(path.read_bytes())
    data[4096:20000] = os.urandom(20000 - 4096)
    path.write_bytes(data)
    with pytest.raises(BadFile, match="damaged"):
        opened(path)


def test_what_goes_wrong_later_is_not_the_senders_fault(store, monkeypatch):
    def failing(code):
        error = sqlite3.DatabaseError("something with the disk")
        error.sqlite_errorcode = code
        with store.transaction() as change:
            change.samples(*rows(0, 1))
            raise error

    with pytest.raises(StoreFailed, match="damaged") as caught:
        failing(sqlite3.SQLITE_CORRUPT)
    assert not caught.value.full
    for free, full in ((0, True), (1 << 30, False)):
        usage = SimpleNamespace(free=free)
        monkeypatch.setattr("shutil.disk_usage", lambda folder, usage=usage: usage)
        with pytest.raises(StoreFailed) as caught:
            failing(sqlite3.SQLITE_IOERR_WRITE)
        assert caught.value.full is full
    with store.transaction() as change:
        change.wait("x", np.zeros(3))
    store._db.execute("UPDATE waiting SET x = x'00'")
    with pytest.raises(StoreFailed, match="damaged"), store.transaction() as change:
        change.label("x")
    assert (store.samples, store.waiting_count) == (0, 1)


# -- room ----------------------------------------------------------------------------------------
def test_the_file_does_not_grow_with_snapshots(path):
    limits = SimpleNamespace(keys=50, waiting_labels=50)
    store = opened(path, limits=limits)
    sizes, packed = [], bytes(20_000)
    for cycle in range(60):
        for i in range(40):
            with store.transaction() as change:
                change.samples(*rows(store.samples, 20))
                change.key(f"{cycle} {i} {'k' * 60}", "d" * 64, "answer")
                change.offset("file", {"bytes": store.samples})
                change.wait(str(i), np.zeros(3))
        with store.transaction() as change:
            for i in range(40):
                change.label(str(i))
            change.snapshot(packed, store.samples)
        sizes.append(store.bytes)
    assert max(sizes[20:]) <= max(sizes[:20]) + 16 * 4096  # a page a cycle would be 40
    assert sizes[-1] < 8_000_000
    assert same(journal(store), rows(0, 0))
    store.close()
    assert os.path.getsize(path) < 1_000_000


def limit(store):
    """No page more than there are."""
    pages = store._db.execute("PRAGMA page_count").fetchone()[0]
    store._db.execute(f"PRAGMA max_page_count = {pages}")


def test_a_full_disk_stores_nothing_and_breaks_nothing(store):
    with store.transaction() as change:
        change.samples(*rows(0, 10))
    limit(store)

    def too_much():
        with store.transaction() as change:
            change.key("k", "d", "a")
            change.wait("x", np.zeros(3))
            change.samples(*rows(10, 10_000))

    with pytest.raises(StoreFailed, match="disk is full") as caught:
        too_much()
    assert caught.value.full
    assert (store.samples, store.waiting_count, store.answer("k")) == (10, 0, None)
    assert same(journal(store), rows(0, 10))
    with store.transaction() as change:  # small changes still find room
        change.samples(*rows(10, 1))
    store._db.execute("PRAGMA max_page_count = 1000000")
    with store.transaction() as change:
        change.samples(*rows(11, 10_000))
    assert same(journal(store), rows(0, 10_011))


def test_a_snapshot_makes_room_in_a_file_that_cannot_grow(store):
    with store.transaction() as change:
        change.samples(*rows(0, 2_000))
        change.snapshot(bytes(5_000), 0)
    limit(store)
    full = 0
    for _ in range(60):
        try:
            with store.transaction() as change:
                change.samples(*rows(store.samples, 200))
        except StoreFailed as error:
            full += error.full
            with store.transaction() as change:
                change.snapshot(bytes(5_000), store.samples)
    assert full > 2
    left = store.rows_since_snapshot
    assert same(journal(store), rows(store.samples - left, left))


# -- kill -9 -------------------------------------------------------------------------------------
CHILD = """
import sys
from types import SimpleNamespace
import numpy as np
from dokl.live.store import Store

identity = {"name": "a", "fingerprint": "0123456789abcdef", "m": 1, "D": 4, "d": 3}
limits = SimpleNamespace(keys=100_000, waiting_labels=100)
store = Store.open(sys.argv[1], identity, sys.argv[2], limits)
rng = np.random.default_rng(int(sys.argv[3]))
print("ready", flush=True)
while True:
    first, n = store.samples, int(rng.integers(1, 40))
    number = np.arange(first, first + n, dtype=np.float64)[:, None]
    with store.transaction() as change:
        change.samples(number + np.arange(3) / 8, -number)
        change.key(str(first), str(n), "")
        change.offset("file", {"rows": first + n})
        change.wait("next", np.full(3, first + n, np.float64))
        if rng.random() < 0.1:
            learned = first + n if rng.random() < 0.5 else first
            change.snapshot(b"%d" % learned + bytes(30_000), learned)
    print(first + n, flush=True)
"""


def killed_at_random(path, durability, chance, seed):
    """The last number that a child acknowledged before SIGKILL met it."""
    command = [sys.executable, "-c", CHILD, str(path), durability, str(seed)]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as child:
        try:
            assert select.select([child.stdout], [], [], 60)[0]
            assert child.stdout.readline() == b"ready\n"
            time.sleep(chance.uniform(0.0, 0.3))
        finally:
            child.send_signal(signal.SIGKILL)
        said = child.stdout.read().split(b"\n")[:-1]  # what has no line end was cut by the kill
    return int(said[-1]) if said else 0


@pytest.mark.parametrize(("durability", "rounds"), [("process", 5), ("full", 2)])
def test_what_was_acknowledged_survives_a_kill(path, durability, rounds):
    chance, acknowledged = random.Random(durability), 0
    for seed in range(rounds):
        acknowledged = killed_at_random(path, durability, chance, seed) or acknowledged
        store = opened(path, durability, limits=SimpleNamespace(keys=100_000, waiting_labels=100))
        packed, learned, _ = store.restore()
        assert store.samples >= acknowledged
        assert same(journal(store), rows(learned, store.samples - learned))  # each exactly once
        assert packed is None or int(packed.rstrip(b"\0")) == learned
        if store.samples:
            # One transaction: the last key, the offset and the input belong to the last samples.
            assert store.offset("file") == {"rows": store.samples}
            assert store.waiting("next").tolist() == [store.samples] * 3
            keys = store._db.execute("SELECT key, digest FROM keys ORDER BY number").fetchall()
            ends = np.cumsum([int(n) for _, n in keys])
            assert [int(key) for key, _ in keys] == [0, *ends[:-1]]
            assert ends[-1] == store.samples
        acknowledged = store.samples
        store.close()
    assert acknowledged > 0


def test_the_lock_of_a_killed_process_is_free(path):
    killed_at_random(path, "process", random.Random(0), 0)
    store = opened(path)
    assert json.loads(path.with_name("a.db.lock").read_text()) == os.getpid()
    store.close()
