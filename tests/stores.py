"""A small store for tests, and samples that say which they are."""

from types import SimpleNamespace

import numpy as np

from dokl.live.store import Store

IDENTITY = {"name": "a", "fingerprint": "0123456789abcdef", "m": 1, "D": 4, "d": 3}
LIMITS = SimpleNamespace(keys=5, waiting_labels=3)


def opened(path, durability="process", identity=IDENTITY, limits=LIMITS, now_ns=1):
    return Store.open(path, identity, durability, limits, now_ns)


def rows(first, n, d=3, m=1):
    """n samples that say which they are, the first of them `first`."""
    number = np.arange(first, first + n, dtype=np.float64)[:, None]
    return number + np.arange(d) / 8, -number * np.ones(m)


def journal(store):
    """All samples after the snapshot, (n, d) and (n, m)."""
    batches = list(store.restore()[2])
    if not batches:
        return np.zeros((0, store.d)), np.zeros((0, store.m))
    return np.concatenate([X for X, _ in batches]), np.concatenate([Y for _, Y in batches])


def same(found, wanted):
    return all(np.array_equal(a, b) for a, b in zip(found, wanted, strict=True))
