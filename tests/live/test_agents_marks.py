"""Marks of the store: what was acknowledged and is gone is noticed, told, and never silent."""

import random
import shutil
import sqlite3
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from dokl.base.errors import BadFile, BadInput, DoklError
from dokl.live.store import RowsMissing, Store, StoreFailed, accept_loss, marks, read_saved

IDENTITY = {"name": "a", "fingerprint": "0123456789abcdef", "m": 1, "D": 4, "d": 3}
LIMITS = SimpleNamespace(keys=500, waiting_labels=100)
COMMITS = 60


def opened(path, durability="process", now_ns=1):
    return Store.open(path, IDENTITY, durability, LIMITS, now_ns)


def fill(store, commits=COMMITS):
    """Two rows with each commit, a key, an offset and an input; now and then a snapshot."""
    for i in range(commits):
        with store.transaction() as change:
            change.samples(np.full((2, 3), float(i)), np.full((2, 1), float(i)))
            change.key(f"k{i}", "digest", "{}")
            change.offset("file", {"rows": 2 * i + 2})
            change.wait(f"w{i % 20}", np.full(3, float(i)))
            if i % 25 == 24:
                change.snapshot(bytes([i]) * 3000, 2 * i + 2)


def whole(store, commits=COMMITS):
    """Whether everything that `fill` was acknowledged is there."""
    _, learned, batches = store.restore()
    rows = np.concatenate([X[:, 0] for X, _ in batches])
    return (
        np.array_equal(rows, np.repeat(np.arange(learned // 2, commits), 2))
        and store.samples == 2 * commits
        and all(store.answer(f"k{i}") == ("digest", "{}") for i in range(commits))
        and store.offset("file") == {"rows": 2 * commits}
        and all(store.waiting(f"w{i % 20}")[0] == i for i in range(commits - 20, commits))
    )


def crash(store):
    """As kill -9 leaves it: nothing is closed in order, and the files are as they are."""
    folder = store.path.parent.parent / "crashed"
    shutil.copytree(store.path.parent, folder)
    store.close()
    return folder / store.path.name


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """The files of a store after kill -9, with a write-ahead log."""
    folder = tmp_path_factory.mktemp("killed") / "state"
    folder.mkdir()
    store = opened(folder / "a.db")
    fill(store)
    return crash(store)


@pytest.fixture
def path(killed, tmp_path):
    """A copy of it."""
    shutil.copytree(killed.parent, tmp_path / "copy")
    return tmp_path / "copy" / "a.db"


def beside(path, end):
    return Path(f"{path}{end}")


def fate(path):
    """What becomes of a store that may be harmed: fine, refused, or anything else."""
    before = beside(path, "-wal").read_bytes()
    try:
        store = opened(path)
    except DoklError:
        assert beside(path, "-wal").read_bytes() == before  # what is refused is left alone
        return "refused"
    try:
        return "fine" if whole(store) else "lost silently"
    finally:
        store.close()


def harmed(killed, folder, harm, times):
    """How often which fate followed from harming the write-ahead log."""
    seen = []
    for i in range(times):
        place = folder / str(i)
        shutil.copytree(killed.parent, place)
        log = place / "a.db-wal"
        log.write_bytes(harm(bytearray(log.read_bytes())))
        seen.append(fate(place / "a.db"))
        shutil.rmtree(place)
    return {fate: seen.count(fate) for fate in seen}


def test_no_flipped_bit_of_the_log_loses_rows_silently(killed, tmp_path):
    chance = random.Random(1)

    def flip(data):
        bit = chance.randrange(8 * len(data))
        data[bit // 8] ^= 1 << bit % 8
        return data

    fates = harmed(killed, tmp_path, flip, 100)
    assert fates.keys() <= {"fine", "refused"}
    assert fates["refused"] > 20


def test_no_truncated_log_loses_rows_silently(killed, tmp_path):
    chance = random.Random(2)
    fates = harmed(killed, tmp_path, lambda data: data[: chance.randrange(len(data))], 50)
    assert fates == {"refused": 50}


def test_no_flipped_bit_of_the_file_is_believed(tmp_path):
    """Also of identity, schema and indexes: refused in words, or without effect."""
    folder = tmp_path / "state"
    folder.mkdir()
    store = opened(folder / "a.db")
    fill(store, 30)
    store.close()
    data, chance = (folder / "a.db").read_bytes(), random.Random(3)
    for _ in range(60):
        bit = chance.randrange(8 * len(data))
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        (folder / "a.db").write_bytes(changed)
        shutil.copy(folder / "a.db-mark", folder / "kept")
        try:
            store = opened(folder / "a.db")
        except BadFile:
            continue
        with store._db:
            try:
                assert whole(store, 30)
            except BadFile as error:
                assert "the store is damaged" in str(error)  # noqa: PT017 (it need not come)
        store.close()
        shutil.copy(folder / "kept", folder / "a.db-mark")


@pytest.mark.parametrize(
    "harm",
    [
        "UPDATE about SET value = '{\"name\": ' WHERE key = 'identity'",
        "UPDATE about SET value = 'null' WHERE key = 'identity'",
        "UPDATE about SET value = x'ff00' WHERE key = 'identity'",
        "DELETE FROM about WHERE key = 'identity'",
        "UPDATE about SET value = 'never' WHERE key = 'incarnation'",
        "UPDATE about SET value = '7 7 7' WHERE key = 'mark'",
        "DELETE FROM about",
        "DROP TABLE keys",
        "DROP TABLE about",
        "ALTER TABLE offsets DROP COLUMN number",
        "UPDATE keys SET digest = 'other' WHERE key = 'k3'",
        "UPDATE keys SET key = 'k300' WHERE key = 'k3'",
        "DELETE FROM keys WHERE key = 'k3'",
        "UPDATE offsets SET position = '{}'",
        "DELETE FROM offsets",
        "UPDATE waiting SET x = zeroblob(24) WHERE id = 'w3'",
        "DELETE FROM waiting WHERE id = 'w3'",
        "UPDATE snapshot SET learned = 'many'",
        "DELETE FROM samples WHERE first = 118",
        "DELETE FROM snapshot",
        "PRAGMA user_version = 2",
    ],
)
def test_damage_is_called_so(path, harm):
    with sqlite3.connect(path) as db:
        db.execute(harm)
    db.close()
    with pytest.raises(BadFile, match="the store is damaged") as caught:
        opened(path)
    assert "a.db" in str(caught.value)


def lose(path, keep=0.5):
    """Cut the log, as a broken disk may."""
    log = beside(path, "-wal")
    log.write_bytes(log.read_bytes()[: int(keep * log.stat().st_size)])


def test_accepting_a_loss_goes_on_with_what_is_left(path):
    lose(path)
    for _ in range(2):  # it does not forget
        with pytest.raises(RowsMissing, match="acknowledged rows are missing") as caught:
            opened(path)
    missing = caught.value.rows
    assert 10 < missing < 2 * COMMITS
    assert f"{missing} acknowledged rows" in str(caught.value)
    assert "dokl agent accept-loss DESCRIPTION --name a" in str(caught.value)
    with pytest.raises(RowsMissing):
        read_saved(path, IDENTITY)
    loss = accept_loss(path, IDENTITY)
    assert (loss.rows, loss.left, loss.dropped) == (missing, 2 * COMMITS - missing, {})
    store = opened(path)
    assert (store.samples, store.lost, store.power_cut) == (loss.left, missing, 0)
    rows = np.concatenate([X for X, _ in store.restore()[2]])
    assert rows[-1, 0] == loss.left / 2 - 1
    with store.transaction() as change:
        change.samples(np.zeros((6, 3)), np.zeros((6, 1)))
    store.close()
    assert accept_loss(path, IDENTITY).rows == 0  # nothing to accept: nothing happens
    store = opened(path)
    assert (store.samples, store.lost) == (loss.left + 6, missing)
    store.close()


def test_accepting_drops_what_cannot_be_believed(path):
    with sqlite3.connect(path) as db:
        db.execute("UPDATE keys SET digest = 'other' WHERE key = 'k3'")
        db.execute("UPDATE waiting SET x = zeroblob(24) WHERE id = 'w3'")
        db.execute("UPDATE samples SET rows = zeroblob(length(rows)) WHERE first = 110")
    db.close()
    loss = accept_loss(path, IDENTITY)
    assert loss.dropped == {"keys": 1, "waiting": 1, "samples": 5}
    assert (loss.rows, loss.left) == (10, 110)
    store = opened(path)
    assert store.answer("k3") is store.waiting("w3") is None
    assert sum(len(X) for X, _ in store.restore()[2]) == 10
    store.close()


def test_a_store_that_was_taken_away_is_missed(path):
    for end in ("", "-wal", "-shm"):
        beside(path, end).unlink()
    with pytest.raises(RowsMissing, match="120 acknowledged rows are missing"):
        opened(path)
    assert not path.exists()
    assert accept_loss(path, IDENTITY).rows == 120
    opened(path).close()
    with pytest.raises(BadInput, match="no such store"):
        accept_loss(path.with_name("other.db"), IDENTITY)


def test_an_older_copy_is_told_from_the_store(path, tmp_path):
    shutil.copy(path, tmp_path / "older.db")
    store = opened(path)
    with store.transaction() as change:
        change.samples(np.zeros((1, 3)), np.zeros((1, 1)))
    store.close()
    beside(path, "-wal").unlink(missing_ok=True)
    shutil.copy(tmp_path / "older.db", path)
    with pytest.raises(RowsMissing):
        opened(path)


# -- the mark itself -----------------------------------------------------------------------------
def test_a_mark_that_is_missing_or_unreadable(path):
    beside(path, "-mark").write_bytes(b"nonsense")
    with pytest.raises(RowsMissing, match="is damaged, which shows"):
        opened(path)
    beside(path, "-mark").unlink()
    with pytest.raises(RowsMissing, match="is missing, which shows") as caught:
        opened(path)
    assert caught.value.rows is None
    assert accept_loss(path, IDENTITY).rows == 0
    store = opened(path)
    assert whole(store)
    store.close()


def test_one_place_of_the_mark_is_enough(path):
    for place in range(marks.PLACES):
        data = bytearray(beside(path, "-mark").read_bytes())
        data[place * marks.PLACE + 20] ^= 1
        copy = path.parent.parent / str(place)
        shutil.copytree(path.parent, copy)
        (copy / "a.db-mark").write_bytes(data)
        store = opened(copy / "a.db")
        assert whole(store)
        store.close()


def another_boot(monkeypatch):
    monkeypatch.setattr("dokl.live.store.examine.boot_id", lambda: "another")


def test_what_a_power_cut_may_take_is_told_and_no_obstacle(path, monkeypatch):
    lose(path)
    another_boot(monkeypatch)
    copy = path.parent.parent / "full"
    shutil.copytree(path.parent, copy)
    with pytest.raises(RowsMissing):
        opened(copy / "a.db", "full")  # which promised that it takes nothing
    store = opened(path)
    assert store.power_cut == store.lost == 2 * COMMITS - store.samples > 0
    store.close()
    store = opened(path)
    assert (store.power_cut, store.lost) == (0, 2 * COMMITS - store.samples)
    store.close()


def test_what_was_closed_in_order_is_whole_after_any_boot(path, monkeypatch):
    store = opened(path)
    store.close()
    another_boot(monkeypatch)
    with sqlite3.connect(path) as db:
        db.execute("UPDATE about SET value = ? WHERE key = 'mark'",
                   (marks.pack_mark(store._mark._replace(commit=1)),))  # fmt: skip
    db.close()
    with pytest.raises(RowsMissing):
        opened(path)


def test_a_mark_that_is_behind_is_no_loss(path):
    """An end between a commit and its mark, or a mark that a power cut took."""
    store = opened(path)
    mark = beside(path, "-mark").read_bytes()
    with store.transaction() as change:
        change.samples(np.zeros((5, 3)), np.zeros((5, 1)))
    store.close()
    beside(path, "-mark").write_bytes(mark)
    store = opened(path)
    assert store.samples == 2 * COMMITS + 5
    store.close()


def test_a_disk_that_refuses_the_mark_refuses_no_rows(path, monkeypatch):
    store = opened(path)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.pwrite", full)
    with store.transaction() as change:
        change.samples(np.zeros((5, 3)), np.zeros((5, 1)))
    assert store.samples == 2 * COMMITS + 5
    store.close()


def test_a_full_disk_at_the_start_lets_it_be_read(path, monkeypatch):
    """The number of this life is stored with the first thing that can be stored."""
    tell, full = Store._changing, [True]

    def changing(self):
        if full[0]:
            raise StoreFailed("the disk is full", full=True)
        return tell(self)

    monkeypatch.setattr(Store, "_changing", changing)
    store = opened(path, now_ns=10**15)
    assert whole(store)
    with pytest.raises(StoreFailed), store.transaction():
        pass
    full[0] = False
    with store.transaction() as change:
        change.samples(np.zeros((1, 3)), np.zeros((1, 1)))
    store.close()
    again = opened(path)
    assert again.incarnation == 10**15 + 1
    again.close()


# -- earlier formats -----------------------------------------------------------------------------
OLD = """
CREATE TABLE about (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE samples (first INTEGER PRIMARY KEY, n INTEGER NOT NULL, type TEXT NOT NULL,
                      rows BLOB NOT NULL, crc INTEGER NOT NULL);
CREATE TABLE snapshot (id INTEGER PRIMARY KEY CHECK (id = 1), learned INTEGER NOT NULL,
                       packed BLOB NOT NULL, crc INTEGER NOT NULL);
CREATE TABLE keys (number INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, digest TEXT NOT NULL,
                   answer TEXT NOT NULL);
CREATE TABLE offsets (source TEXT PRIMARY KEY, position TEXT NOT NULL);
CREATE TABLE waiting (id TEXT PRIMARY KEY, type TEXT NOT NULL, x BLOB NOT NULL);
"""


def older(path, version, new):
    """A store of an earlier format with what is in a new one."""
    source = sqlite3.connect(path)
    with sqlite3.connect(new) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.executescript(
            f"{OLD} PRAGMA application_id = {0x646F6B6C}; PRAGMA user_version = {version}"
        )
        for table, columns in {
            "about": "*", "samples": "*", "snapshot": "*", "keys": "number, key, digest, answer",
            "offsets": "source, position", "waiting": "id, type, x",
        }.items():  # fmt: skip
            for row in source.execute(f"SELECT {columns} FROM {table}").fetchall():
                db.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)
        db.execute("DELETE FROM about WHERE key = 'mark'")
    db.close()
    source.close()
    return new


@pytest.mark.parametrize("version", [1, 2])
def test_stores_of_earlier_formats_are_opened_and_brought_up_to_date(path, tmp_path, version):
    old = older(path, version, tmp_path / "a.db")
    read_saved(old, IDENTITY)
    store = opened(old)
    assert whole(store)
    assert store._db.execute("PRAGMA user_version").fetchone() == (3,)
    with store.transaction() as change:
        change.samples(np.zeros((1, 3)), np.zeros((1, 1)))
    store.close()
    again = opened(old)
    assert again.samples == 2 * COMMITS + 1
    again.close()


def test_an_upgrade_that_fails_changes_nothing(path, tmp_path, monkeypatch):
    old = older(path, 2, tmp_path / "a.db")
    monkeypatch.setattr("dokl.live.store.records.insert", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        opened(old)
    monkeypatch.undo()
    store = opened(old)
    assert whole(store)
    store.close()
