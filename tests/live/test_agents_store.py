"""The store: samples, keys, offsets, inputs that wait, and whose it is."""

import os
import stat
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

from dokl.base.errors import BadFile, BadInput, UnknownName
from dokl.live.store import KeyReused, Store, TooManyWaiting, read_saved
from stores import IDENTITY, LIMITS, journal, opened, rows, same


# -- samples and snapshots -----------------------------------------------------------------------
@pytest.mark.parametrize("durability", ["process", "full"])
def test_what_was_stored_is_there_after_closing(path, durability):
    store = opened(path, durability)
    with store.transaction() as change:
        assert change.samples(*rows(0, 2)) == 2
        assert change.samples(*rows(2, 3)) == 5
    with store.transaction() as change:
        change.snapshot(b"state after 5", 5)
        assert change.samples(*rows(5, 4)) == 9
    store.close()
    again = opened(path, durability)
    packed, learned, _ = again.restore()
    assert (packed, learned, again.samples, again.rows_since_snapshot) == (
        b"state after 5",
        5,
        9,
        4,
    )
    assert same(journal(again), rows(5, 4))
    again.close()


def test_the_modes_sync_as_they_promise(path):
    for durability, level in {"process": 1, "full": 2}.items():
        store = opened(path, durability)
        assert store._db.execute("PRAGMA synchronous").fetchone() == (level,)
        assert store._db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        store.close()
    with pytest.raises(UnknownName, match="durability"):
        opened(path, "ful")


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_numbers_come_back_bit_for_bit(store, dtype):
    rng = np.random.default_rng(1)
    X, Y = rng.standard_normal((7, 3)).astype(dtype), rng.standard_normal((7, 1)).astype(dtype)
    X[0, 0], X[1, 1] = np.finfo(dtype).tiny / 2, -0.0
    with store.transaction() as change:
        change.samples(X, Y)
        change.wait("x", X[2])
    (X2, Y2), x2 = journal(store), store.waiting("x")
    assert X2.dtype == Y2.dtype == x2.dtype == dtype
    assert (X2.tobytes(), Y2.tobytes(), x2.tobytes()) == (X.tobytes(), Y.tobytes(), X[2].tobytes())
    X2[0] = 0  # what comes back may be written to


def test_a_snapshot_in_the_middle_of_a_batch_keeps_the_rest(store):
    with store.transaction() as change:
        for first in (0, 4, 8):
            change.samples(*rows(first, 4))
        change.snapshot(b"after 6", 6)
    assert same(journal(store), rows(6, 6))
    assert store._db.execute("SELECT count(*) FROM samples").fetchone() == (2,)


def test_many_single_rows_are_restored_in_order(store):
    for i in range(300):  # more than are read at a time
        with store.transaction() as change:
            change.samples(*rows(i, 1))
    assert same(journal(store), rows(0, 300))


def test_no_rows_are_no_batch(store):
    with store.transaction() as change:
        assert change.samples(*rows(0, 0)) == 0
    assert store.restore()[:2] == (None, 0)
    assert len(journal(store)[0]) == 0


def test_shapes_and_snapshots_that_cannot_be(store):
    with pytest.raises(BadInput, match=r"\(n, 3\) and \(n, 1\)"), store.transaction() as change:
        change.samples(np.zeros((2, 2)), np.zeros((2, 1)))
    with pytest.raises(BadInput, match="0 to 0"), store.transaction() as change:
        change.snapshot(b"", 1)
    with store.transaction() as change:
        change.samples(*rows(0, 3))
        change.snapshot(b"", 2)
    with pytest.raises(BadInput, match="2 to 3"), store.transaction() as change:
        change.snapshot(b"", 1)
    assert same(journal(store), rows(2, 1))


def test_a_transaction_that_raises_changes_nothing(store):
    with store.transaction() as change:
        change.samples(*rows(0, 2))
        change.wait("old", np.ones(3))

    def fail():
        with store.transaction() as change:
            change.samples(*rows(2, 2))
            change.key("k", "digest", "answer")
            change.offset("file", {"bytes": 1})
            change.wait("new", np.zeros(3))
            change.label("old")
            change.snapshot(b"s", 3)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert (store.samples, store.waiting_count, store.rows_since_snapshot) == (2, 1, 2)
    assert store.answer("k") is store.offset("file") is store.waiting("new") is None
    assert store.restore()[:2] == (None, 0)
    assert same(journal(store), rows(0, 2))


# -- keys, offsets, waiting inputs ---------------------------------------------------------------
def test_keys_are_remembered_and_the_oldest_forgotten(path):
    store = opened(path)
    for i in range(8):
        with store.transaction() as change:
            change.key(f"k{i}", f"d{i}", f'{{"n": {i}}}')
    assert [store.answer(f"k{i}") for i in range(3)] == [None] * 3
    assert store.answer("k3") == ("d3", '{"n": 3}')
    store.close()
    again = opened(path, limits=SimpleNamespace(keys=2, waiting_labels=0))
    with again.transaction() as change:
        change.key("k8", "d8", "")
    known = [i for i in range(9) if again.answer(f"k{i}")]
    assert known == [7, 8]
    again.close()


def test_keys_that_cannot_be(store):
    with store.transaction() as change:
        change.key("k" * 255, "d", "first")
    for key in ("", "k" * 256, "\ud800"):
        with pytest.raises(BadInput, match="idempotency key"), store.transaction() as change:
            change.key(key, "d", "a")
    with pytest.raises(KeyReused), store.transaction() as change:
        change.key("k" * 255, "d", "second")
    assert store.answer("k" * 255) == ("d", "first")


def test_offsets(path):
    store = opened(path)
    assert store.offset("a.csv") is None
    for n in (10, 20):
        with store.transaction() as change:
            change.offset("a.csv", {"bytes": n, "header": "x,y", "head": [1, 2]})
            change.offset("b.csv", {"bytes": 1})
    store.close()
    again = opened(path)
    assert again.offset("a.csv") == {"bytes": 20, "header": "x,y", "head": [1, 2]}
    again.close()


def test_inputs_wait_for_their_labels(path):
    store = opened(path)
    with store.transaction() as change:
        assert not change.wait("1", np.full(3, 1.0))
        assert not change.wait("2", np.full(3, 2.0))
        assert change.wait("1", np.full(3, 9.0))  # replaced
    assert store.waiting_count == 2
    store.close()
    again = opened(path)
    assert again.waiting_count == 2
    with again.transaction() as change:
        assert change.label("1").tolist() == [9.0] * 3
        assert change.label("1") is None
        assert change.label("unknown") is None
    assert (again.waiting("1"), again.waiting_count) == (None, 1)
    again.close()


def test_only_so_many_may_wait(store):
    with store.transaction() as change:
        for i in range(3):
            change.wait(str(i), np.zeros(3))
    with pytest.raises(TooManyWaiting, match="3 inputs wait"), store.transaction() as change:
        change.wait("3", np.zeros(3))
    with store.transaction() as change:
        assert change.wait("2", np.ones(3))  # takes no more room
        change.label("0")
        change.wait("3", np.zeros(3))
    assert store.waiting_count == 3
    with pytest.raises(BadInput, match="id"), store.transaction() as change:
        change.wait("i" * 256, np.zeros(3))
    with pytest.raises(BadInput, match=r"\(3,\)"), store.transaction() as change:
        change.wait("3", np.zeros(4))


def test_inputs_expire_by_time_and_by_number(path):
    hour, store = 3600.0, opened(path)
    with store.transaction() as change:
        for i in range(3):
            change.wait(str(i), np.full(3, float(i)), now=i * hour)
    with pytest.raises(TooManyWaiting), store.transaction() as change:
        change.wait("3", np.zeros(3), now=0.5 * hour)  # nobody has waited for an hour
    with store.transaction() as change:
        change.wait("3", np.zeros(3), now=1.5 * hour)  # the oldest makes room
    assert [store.waiting(str(i)) is None for i in range(4)] == [True, False, False, False]
    assert (store.waiting_count, store.expired) == (3, 1)
    assert store.waiting_since(hour, 9) == 1
    with store.transaction() as change:
        assert change.expire(1.6 * hour) == 2
    assert (store.waiting_count, store.expired) == (1, 3)
    store.close()
    again = opened(path)
    assert (again.waiting_count, again.expired) == (1, 3)
    again.close()


# -- whose store it is ---------------------------------------------------------------------------
def test_incarnations_only_grow(path):
    seen = []
    for now in (1_000, 5_000, 200, -7, 2**80, 10):
        store = opened(path, now_ns=now)
        seen.append(store.incarnation)
        store.close()
    assert seen == [1_000, 5_000, 5_001, 5_002, 2**62, 2**62 + 1]
    store = Store.open(path.with_name("b.db"), IDENTITY, "process", LIMITS)
    assert abs(store.incarnation - time.time_ns()) < 60e9
    store.close()


@pytest.mark.parametrize("change", [{"name": "b"}, {"fingerprint": "f00d"}, {"m": 2}, {"D": 8}])
def test_another_nodes_store_is_refused(path, change):
    opened(path).close()
    with pytest.raises(BadFile) as caught:
        opened(path, identity={**IDENTITY, **change})
    for value in (*change.values(), *(IDENTITY[key] for key in change)):
        assert str(value) in str(caught.value)
    opened(path).close()  # the lock is free again


def test_a_store_is_opened_once(path, store):
    with pytest.raises(BadFile, match=f"process {os.getpid()} has this store open"):
        opened(path)
    store.close()
    store.close()
    opened(path).close()


def test_only_the_owner_may_read_it(path, store):
    with store.transaction() as change:
        change.samples(*rows(0, 1))
    for name in os.listdir(path.parent):
        assert stat.S_IMODE(os.stat(path.parent / name).st_mode) == 0o600, name


def test_it_can_be_looked_into_while_it_is_open(path, store):
    with store.transaction() as change:
        change.samples(*rows(0, 4))
        change.snapshot(b"state", 3)
    packed, learned, batches = read_saved(path, IDENTITY)
    assert (packed, learned) == (b"state", 3)
    assert same(next(batches), rows(3, 1))
    with pytest.raises(BadFile, match="not that of node 'b'"):
        read_saved(path, {**IDENTITY, "name": "b"})
    with pytest.raises(BadFile, match="no such store"):
        read_saved(path.with_name("other.db"), IDENTITY)


def test_another_thread_may_go_on(store):
    def work():
        with store.transaction() as change:
            change.samples(*rows(0, 1))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert store.samples == 1
