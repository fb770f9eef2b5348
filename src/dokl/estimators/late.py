"""Targets that come later: rows are predicted now, and learned when their target is known.

>>> from dokl import AutoRegressor
>>> X = np.random.default_rng(0).normal(size=(50, 2))
>>> model = AutoRegressor(n_components=20, random_state=0).fit(X, X[:, 0])
>>> _ = model.predict(X[:2], keys=["noon", "one"])
>>> model.learn(["noon", "two"], [0.3, 0.4])
LateTargets(learned=1, expired=(), unknown=('two',))
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from dokl.base.arrays import Array
from dokl.base.errors import BadInput
from dokl.estimators.inputs import EncodedRows, FrameInputs
from dokl.estimators.plain import pack, unpack

MOST, HOURS = 100_000, 168.0  # as agents and `dokl serve` have them
NOBODY = -1  # of a row that belongs to no node


@dataclass(frozen=True)
class LateTargets:
    """What `learn` did: how many rows were learned, and the keys that found no row: `expired` ones
    waited too long, or too many came after them; `unknown` ones never waited, or are learned.
    """

    learned: int
    expired: tuple[Hashable, ...] = ()
    unknown: tuple[Hashable, ...] = ()


@dataclass
class WaitingRows:
    """Inputs that wait for their targets, by key, the oldest first; bounded in number and time.

    rows: {key: (since when in seconds, inputs (d,), node)}. gone: the newest keys whose rows went
    without a target, as many as rows may wait; expired: how many went in all.
    """

    most: int = MOST
    hours: float = HOURS
    rows: dict[Hashable, tuple[float, Array, int]] = field(default_factory=dict, repr=False)
    gone: dict[Hashable, None] = field(default_factory=dict, repr=False)
    expired: int = 0

    def __len__(self) -> int:
        return len(self.rows)

    def put(self, keys: list[Hashable], X: Array, nodes: Array, now: float) -> None:
        """Let rows X (n, d) wait; one with the key of another takes its place."""
        for key, x, node in zip(keys, X, nodes.tolist(), strict=True):
            self.rows.pop(key, None)
            self.gone.pop(key, None)
            self.rows[key] = now, x.copy(), node
        self.expire(now)

    def expire(self, now: float) -> None:
        """Let rows go that have waited too long, and the oldest of too many."""
        too_old = now - 3600 * self.hours
        while self.rows:
            key = next(iter(self.rows))
            if len(self.rows) <= self.most and self.rows[key][0] >= too_old:
                break
            del self.rows[key]
            self.gone[key] = None
            self.expired += 1
        while len(self.gone) > self.most:
            del self.gone[next(iter(self.gone))]

    # -- files -------------------------------------------------------------------------------
    def to_file(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """A part for JSON, and arrays."""
        about = {"most": self.most, "hours": self.hours, "expired": self.expired}
        keys = {"keys": [pack(k) for k in self.rows], "gone": [pack(k) for k in self.gone]}
        since, X, nodes = zip(*self.rows.values(), strict=True) if self.rows else ((), (), ())
        arrays = {"since": np.array(since, np.float64), "nodes": np.array(nodes, np.int64)}
        return about | keys, arrays | {"X": np.array(X, np.float64).reshape(len(X), -1)}

    @classmethod
    def from_file(cls, about: Mapping[str, Any], arrays: Mapping[str, Array], d: int) -> Self:
        """The same again; ValueError where the parts do not fit."""
        keys, gone = ([_key(unpack(k)) for k in about[name]] for name in ("keys", "gone"))
        X, since, nodes = (np.asarray(arrays[name]) for name in ("X", "since", "nodes"))
        n = len(keys)
        fits = since.shape == nodes.shape == (n,) and (X.shape == (n, d) or not n)
        if not fits or np.isinf(X).any() or not np.isfinite(since).all() or len(set(keys)) < n:
            raise ValueError("the rows that wait for targets do not fit")
        rows = zip(since.tolist(), X, nodes.astype(int).tolist(), strict=True)
        made = cls(*_bounds(about["most"], about["hours"]), dict(zip(keys, rows, strict=True)))
        made.gone, made.expired = dict.fromkeys(gone), int(about["expired"])
        return made


class LateLearning(FrameInputs):
    """`predict(X, keys=...)` now, `learn(keys, y)` later."""

    waiting_: WaitingRows
    partial_fit: Any

    def keep_waiting(self, most: int = MOST, hours: float = HOURS) -> Self:
        """How many rows may wait for their targets, and how long; the oldest go first."""
        waiting = vars(self).setdefault("waiting_", WaitingRows())
        waiting.most, waiting.hours = _bounds(most, hours)
        waiting.expire(time.time())
        return self

    def learn(self, keys: object, y: Any, sample_weight: object = None) -> LateTargets:
        """Learn the rows that were predicted under these keys, in this order, now that their
        targets y are known: (n,), or (n, m) for several outputs. A row is learned once.

        Keys without a row are reported, and the others learned. A call that fails changes nothing.
        """
        names = checked_keys(keys)
        targets = np.asarray([y] if np.ndim(y) == 0 else y)
        if len(targets) != len(names):
            raise BadInput(f"there are {len(names)} keys and {len(targets)} targets")
        waiting = vars(self).get("waiting_", WaitingRows())
        waiting.expire(time.time())
        first = {key: i for i, key in reversed(list(enumerate(names)))}
        at = [i for i, key in enumerate(names) if first[key] == i and key in waiting.rows]
        if at:
            found = [waiting.rows[names[i]] for i in at]
            how = {} if sample_weight is None else {"sample_weight": _some(sample_weight, at)}
            how |= self._owners_of(np.array([node for _, _, node in found]))
            rows = EncodedRows(np.stack([x for _, x, _ in found]))
            self.partial_fit(rows, targets[at], **how)
        for i in at:
            del waiting.rows[names[i]]
        done = set(at)
        others = [key for i, key in enumerate(names) if i not in done]
        gone = tuple(key for key in others if key in waiting.gone)
        return LateTargets(len(at), gone, tuple(key for key in others if key not in waiting.gone))

    def _forget(self) -> None:
        if "waiting_" in vars(self):
            self.waiting_ = WaitingRows(self.waiting_.most, self.waiting_.hours)

    def _owners_of(self, nodes: Array) -> dict[str, Any]:
        """Whose rows these are, as `partial_fit` takes it; nothing where there are no nodes."""
        return {}

    def _wait(self, X: object, keys: object, nodes: Array | None = None) -> None:
        """Remember rows that were predicted, X as it came; nodes: their numbers."""
        if isinstance(keys, str | int):
            keys = [keys]
        names, rows = checked_keys(keys), self._encode(X)
        if len(names) != len(rows):
            raise BadInput(f"there are {len(rows)} rows and {len(names)} keys: one for each")
        owner = np.full(len(rows), NOBODY) if nodes is None else nodes
        waiting = vars(self).setdefault("waiting_", WaitingRows())
        waiting.put(names, rows, owner, time.time())


def checked_keys(keys: object) -> list[Hashable]:
    """Texts or whole numbers, one for each row."""
    if isinstance(keys, str | int):
        return [_key(keys)]
    if not isinstance(keys, Iterable):
        raise BadInput(f"keys are texts or whole numbers, one for each row, not {keys!r}")
    return [_key(key) for key in keys]


def _key(key: object) -> Hashable:
    key = key.item() if isinstance(key, np.generic) else key
    if not isinstance(key, str | int) or isinstance(key, bool):
        raise BadInput(f"a key is a text or a whole number, not {key!r}")
    return key


def _bounds(most: object, hours: object) -> tuple[int, float]:
    if not (isinstance(most, int) and most > 0 and isinstance(hours, int | float) and hours > 0):
        raise BadInput(f"at least one row may wait, for some time: got {most!r} and {hours!r}")
    return most, float(hours)


def _some(weight: object, at: list[int]) -> Any:
    weight = np.asarray(weight)
    return weight[at] if weight.ndim else weight
