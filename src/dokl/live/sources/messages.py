"""Where messages of a broker become samples: parsed, journaled, and only then settled.

A message is acknowledged to the broker when it is in the journal, or among the dead letters. If
we end before that, it delivers the message again; if we end after the journal and before the broker
knows, the message's key is in the journal, and it is not learned twice.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np

from dokl.base.arrays import Array
from dokl.base.errors import BadInput, DoklError
from dokl.live.agent.replies import Answer, Busy, Stopping
from dokl.live.inputs import Arrival, bodies
from dokl.live.inputs.bodies import BodyTable
from dokl.live.sources.dead_letters import DeadLetters, SensorMessage
from dokl.live.store import StoreFailed, TooManyWaiting

if TYPE_CHECKING:
    from dokl.live.agent.runtime import Agent

BATCH = 500  # messages that are settled together, at most
HELD = 0.5  # seconds until what could not be stored is tried again


def new_facts(name: str, kind: str) -> dict[str, Any]:
    """What /status says of a source that is a broker."""
    counts = ("rows", "messages", "repeated", "asked", "dead_letters", "published", "unpublished")
    begun = {"name": name, "kind": kind, "connected": False, "connects": 0, "finished": False}
    return {**begun, **dict.fromkeys(counts, 0)}


@dataclass
class _Item:
    """A message on its way. arrival: None where there is nothing to learn. answer: the predictions
    to publish. reason: why it is a dead letter.
    """

    message: SensorMessage
    arrival: Arrival | None = None
    answer: bytes | None = None
    reason: str | None = None
    settled: bool = False

    def refuse(self, reason: str) -> None:
        """It can never be learned."""
        self.reason, self.answer, self.settled = reason, None, True


class MessageIntake:
    """Takes messages for an agent; `predicts`: answers are wanted. One thread at a time."""

    def __init__(
        self, agent: Agent, dead_letters: DeadLetters, stop: threading.Event, predicts: bool
    ) -> None:
        self._agent, self._dead_letters, self._stop = agent, dead_letters, stop
        self._predicts = predicts
        self.facts: dict[str, Any] = agent.source if agent.source is not None else {}

    def take(self, messages: Sequence[SensorMessage]) -> list[bytes] | None:
        """Until all are settled: what to publish. None where we are to stop and some are not:
        then none may be acknowledged.
        """
        items = [self._parsed(message) for message in messages]
        if not (self._deliver(items) and self._bury([item for item in items if item.reason])):
            return None
        self.facts["messages"] += len(messages)
        return [item.answer for item in items if item.answer is not None]

    # -- bodies ------------------------------------------------------------------------------
    def _parsed(self, message: SensorMessage) -> _Item:
        item = _Item(message)
        ids: Sequence[str | None] = ()
        try:
            table = self._table(message.body)
            if self._is_question(table):
                X = self._agent.inputs.asked(table)
                self.facts["asked"] += 1
                item.settled = True
            else:
                item.arrival = self._arrival(table, message)
                X, ids = _rows(item.arrival)
            if self._predicts and len(X):
                item.answer = self._answer(message, X, ids)
        except BadInput as error:
            item.refuse(str(error))
        return item

    def _table(self, body: bytes) -> BodyTable:
        most = self._agent.network.limits.body_bytes
        if len(body) > most:
            raise BadInput(f"{len(body):,} bytes, and {most:,} are the most (body_bytes)")
        read = bodies.from_json if body.lstrip()[:1] in (b"{", b"[") else bodies.from_csv
        return read(body, self._agent.inputs.most_rows)

    def _is_question(self, table: BodyTable) -> bool:
        """Whether it has inputs alone, where predictions are published."""
        named = self._agent.inputs.target in table.cells or "id" in table.cells
        return self._predicts and not named

    def _arrival(self, table: BodyTable, message: SensorMessage) -> Arrival:
        arrival = self._agent.inputs.arrival(table)
        if message.key is None:
            return arrival
        return replace(arrival, key=message.key, digest=sha256(message.body).hexdigest())

    def _answer(self, message: SensorMessage, X: Array, ids: Sequence[str | None]) -> bytes:
        """Predictions of rows X (n, d), made before these are learned."""
        about = {"node": self._agent.name, "from": message.where}
        named = {"ids": list(ids)} if any(name is not None for name in ids) else {}
        return json.dumps({**about, **named, "predictions": self._agent.predict(X)}).encode()

    # -- into the journal --------------------------------------------------------------------
    def _deliver(self, items: Sequence[_Item]) -> bool:
        """Whether all of them are in the journal, or refused for good."""
        left = [item for item in items if not item.settled]
        # A label must not overtake its input, so these go one by one.
        alone = any(i.arrival is not None and (i.arrival.waiting or i.arrival.labels) for i in left)
        while left:
            if self._stop.is_set():
                return False
            pause = self._round(left[:1] if alone else left)
            left = [item for item in left if not item.settled]
            if pause:
                self._stop.wait(pause)
        return True

    def _round(self, items: Sequence[_Item]) -> float:
        """Hand over as many as there is room for; seconds until the rest should be tried."""
        under_way: list[tuple[_Item, Future[Answer]]] = []
        pause = 0.0
        for item in items:
            assert item.arrival is not None
            try:
                under_way.append((item, self._agent.submit(item.arrival)))
            except Busy as busy:
                pause = 0.0 if under_way else busy.retry_after
                break
            except BadInput as error:
                item.refuse(str(error))
        return max([pause, *(self._result(item, future) for item, future in under_way)])

    def _result(self, item: _Item, future: Future[Answer]) -> float:
        """Note what became of a message; seconds until it should be tried again, 0 for never."""
        problems = self._agent.problems
        try:
            answer = future.result()
        except Stopping:
            raise
        except (Busy, StoreFailed):
            return HELD
        except TooManyWaiting as error:
            problems["source"] = f"the source is held up: {error}"
            return HELD
        except DoklError as error:
            item.refuse(str(error))
        except Exception as error:  # whatever it is, the messages after it must go on
            item.refuse(f"internal error: {error!r}")
        else:
            problems.pop("source", None)
            self._learned(item, bool(answer["repeated"]))
        return 0.0

    def _learned(self, item: _Item, repeated: bool) -> None:
        item.settled = True
        if repeated:
            self.facts["repeated"] += 1
            item.answer = None
        elif item.arrival is not None:
            self.facts["rows"] += item.arrival.rows

    # -- dead letters ------------------------------------------------------------------------
    def _bury(self, dead: Sequence[_Item]) -> bool:
        """Whether those that are no samples lie in the file."""
        agent, path = self._agent, self._dead_letters.path.name
        if not dead:
            return True
        refused = [(item.message, str(item.reason)) for item in dead]
        while True:
            try:
                self._dead_letters.add(refused, agent.clock.wall())
                break
            except OSError as error:
                text = f"the source is held up: {path} cannot be written ({error.strerror})"
                agent.problems["source"] = text
            if self._stop.wait(HELD):
                return False
        agent.problems.pop("source", None)
        self.facts["dead_letters"] += len(dead)
        for message, reason in refused:
            agent.log("dead letter", often=True, where=message.where, why=reason)
        n, (message, reason) = self.facts["dead_letters"], refused[-1]
        text = f"messages that are no samples, {n:,} so far, lie in {path}; the last"
        agent.problems.note("dead letters", f"{text}, of {message.where}: {reason}")
        return True


def _rows(arrival: Arrival) -> tuple[Array, Sequence[str | None]]:
    """Inputs (n, d) of samples and of rows that wait for labels, and the ids of all of them."""
    if not arrival.waiting:
        return arrival.X, [None] * len(arrival.X)
    ids = [*[None] * len(arrival.X), *(name for name, _ in arrival.waiting)]
    return np.concatenate([arrival.X, np.stack([x for _, x in arrival.waiting])]), ids
