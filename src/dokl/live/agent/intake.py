"""From arrivals to what is learned and stored: idempotency keys, and labels that come later.

One `Intake` serves the arrivals of one transaction. It looks into the store and writes nothing:
what is to be written is listed, and is written at once with everything else in the group.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dokl.base.arrays import Array
from dokl.live.inputs import Arrival
from dokl.live.store import CROWDED, KeyReused, Store, TooManyWaiting, Transaction


@dataclass
class Taken:
    """An arrival, sorted out: rows to learn, X (n, d), Y (n, m), and what else is to be stored."""

    arrival: Arrival
    X: Array
    Y: Array
    labelled: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    expired: list[str] = field(default_factory=list)  # labels whose inputs have gone
    skipped: list[str] = field(default_factory=list)  # why rows of a file were not learned

    def answer(self, samples: int) -> dict[str, Any]:
        """The answer to the sender; `samples` were acknowledged in all."""
        reply = {
            "accepted": len(self.arrival.X),
            "waiting": len(self.arrival.waiting),
            "labelled": len(self.labelled),
            "unknown_ids": self.unknown[:100],
            "repeated": False,
            "samples": samples,
        }
        reply |= {"expired_ids": self.expired[:100]} if self.expired else {}
        return {**reply, "skipped": self.skipped} if self.skipped else reply


class Intake:
    """The arrivals of one transaction."""

    def __init__(self, store: Store, wall: float) -> None:
        self._wall, self._crowded = wall, 0  # old inputs that will make room for new ones
        self._store, self._most = store, store.limits.waiting_labels
        self._answers: dict[str, tuple[str, str]] = {}  # keys of this very group
        self._waiting: dict[str, Array | None] = {}  # ids that came or went in this group
        self._count = store.waiting_count
        self._taken: list[Taken] = []
        self.rows = 0  # to be learned, of all that was taken

    def repeated(self, arrival: Arrival) -> dict[str, Any] | None:
        """The earlier answer to the same key; the same key with another body is refused."""
        if arrival.key is None:
            return None
        known = self._answers.get(arrival.key) or self._store.answer(arrival.key)
        if known is None:
            return None
        digest, answer = known
        if digest != (arrival.digest or ""):
            raise KeyReused(
                f"the idempotency key {arrival.key!r} was used for another body: use a new key for "
                "new samples"
            )
        return {**json.loads(answer), "repeated": True}

    def sort(self, arrival: Arrival) -> Taken:
        """Put labels to the inputs that waited for them; nothing is remembered yet."""
        fresh = {name for name, _ in arrival.waiting if self._find(name) is None}
        if fresh and not self._room(len(fresh)):
            raise TooManyWaiting(
                f"{self._count:,} inputs wait for their labels, and {self._most:,} may: send "
                "labels first (limits.waiting_labels in the description)"
            )
        here = dict(arrival.waiting)
        taken, rows, targets = Taken(arrival, arrival.X, arrival.Y), [], []
        done: dict[str, None] = {}
        for name, y in arrival.labels:
            known = name not in done
            x = (here.get(name) if name in here else self._find(name)) if known else None
            if x is None:
                gone = known and self._store.has_expired(name)
                (taken.expired if gone else taken.unknown).append(name)
                continue
            done[name] = None
            rows.append(x)
            targets.append(y)
        taken.labelled = [*done]
        if rows:
            taken.X = np.concatenate([arrival.X, np.stack(rows)])
            taken.Y = np.concatenate([arrival.Y, np.stack(targets)])
        return taken

    def _room(self, more: int) -> bool:
        """Whether more inputs may wait, with the room that the oldest can make."""
        over = self._count + more - self._most
        if over <= 0:
            return True
        wanted = self._crowded + over
        if self._store.waiting_since(self._wall - CROWDED, wanted) < wanted:
            return False
        self._crowded, self._count = wanted, self._count - over
        return True

    def keep(self, taken: Taken, answer: dict[str, Any]) -> None:
        """It was learned: let later arrivals of the group see it, and store it with the group."""
        for name, x in taken.arrival.waiting:
            self._count += self._find(name) is None
            self._waiting[name] = x
        for name in taken.labelled:
            self._waiting[name] = None
            self._count -= 1
        key = taken.arrival.key
        if key is not None:
            self._answers[key] = (taken.arrival.digest or "", json.dumps(answer))
        self._taken.append(taken)
        self.rows += len(taken.X)

    def write(self, transaction: Transaction) -> None:
        """Everything into the transaction, in the order in which it was learned."""
        for taken in self._taken:
            arrival = taken.arrival
            if len(taken.X):
                transaction.samples(taken.X, taken.Y)
            for name, x in arrival.waiting:
                transaction.wait(name, x, self._wall)
            for name in taken.labelled:
                transaction.label(name)
            if arrival.key is not None:
                transaction.key(arrival.key, *self._answers[arrival.key])
            if arrival.source is not None and arrival.position is not None:
                transaction.offset(arrival.source, arrival.position)

    def __bool__(self) -> bool:
        """Whether there is anything to write."""
        return bool(self._taken)

    def _find(self, name: str) -> Array | None:
        if name in self._waiting:
            return self._waiting[name]
        return self._store.waiting(name)
