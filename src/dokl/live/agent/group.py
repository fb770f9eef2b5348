"""One group of events: what follows from them, stored in one transaction, and then answered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial

from dokl.base.errors import BadInput, Diverged, DoklError
from dokl.live.agent.intake import Intake, Taken
from dokl.live.agent.replies import Answer, answer, refuse
from dokl.live.inputs import Arrival
from dokl.live.protocol.effects import Effect, Save, SaveLog, SaveSealed
from dokl.live.protocol.local import LocalNode
from dokl.live.store import Store

Held = tuple[int, Callable[[], None]]  # an answer that is due once this many rows are learned


class Group:
    """Arrivals are `take`n, other events' effects added; then `commit`, then `settle`.

    held: answers for when rows that wait are learned, in their order.
    """

    def __init__(self, store: Store, node: LocalNode, counts: Counter[str], wall: float) -> None:
        self._store, self._node, self._counts = store, node, counts
        self._intake = Intake(store, wall)
        self._settle: list[Callable[[], None]] = []
        self.held: list[Held] = []
        self.effects: list[Effect] = []

    def take(
        self, arrival: Arrival, future: Future[Answer], now: float, at_once: bool, hold: bool
    ) -> None:
        """Learn an arrival, at once or after those that wait; its sender is answered when
        everything is stored. hold: and when it is learned, unless that waits for neighbours.
        """
        try:
            earlier = self._intake.repeated(arrival)
            if earlier is not None:
                self._counts["repeated"] += 1
                self._settle.append(partial(answer, future, earlier))
                return
            taken = self._intake.sort(arrival)
            self.effects += self._learned(taken, now, at_once) if len(taken.X) else []
        except DoklError as error:
            self._counts["refused"] += 1
            self._settle.append(partial(refuse, future, error))
            return
        reply = taken.answer(self._store.samples + self._intake.rows + len(taken.X))
        self._intake.keep(taken, reply)
        self._counts["accepted"] += 1
        self._counts["unknown"] += len(taken.unknown) + len(taken.expired)
        send_answer = partial(answer, future, reply)
        if hold and self._node.queued and self._node.learns:
            self.held.append((self._node.learned + self._node.queued, send_answer))
        else:
            self._settle.append(send_answer)

    def _learned(self, taken: Taken, now: float, at_once: bool) -> list[Effect]:
        """Learn its rows. A sender is informed that some diverge; of a file the others are learned,
        in one transaction with the position after all of them.
        """
        try:
            return self._node.samples(taken.X, taken.Y, now, at_once)
        except (BadInput, Diverged):
            if taken.arrival.source is None:
                raise
        effects: list[Effect] = []
        good: list[int] = []
        for i in range(len(taken.X)):
            try:
                effects += self._node.samples(taken.X[i : i + 1], taken.Y[i : i + 1], now)
                good.append(i)
            except (BadInput, Diverged) as error:
                taken.skipped.append(str(error))
        taken.X, taken.Y = taken.X[good], taken.Y[good]
        return effects

    def commit(self, snapshot_rows: int, probe: bool = False) -> None:
        """Store it all, whole or not at all, with a snapshot where one is due.

        probe: write though there is nothing to store, to see whether that can be done.
        """
        saving = any(isinstance(effect, Save) for effect in self.effects)
        before = self._store.samples - self._store.rows_since_snapshot
        saving = saving or self._node.learned - before >= snapshot_rows
        sealed = [effect for effect in self.effects if isinstance(effect, SaveSealed)]
        logs = [effect for effect in self.effects if isinstance(effect, SaveLog)]
        if self._intake or saving or sealed or logs or probe:
            with self._store.transaction() as transaction:
                self._intake.write(transaction)
                if sealed:
                    transaction.sealed(sealed[-1].rows, sealed[-1].sealed)
                for each in logs:
                    transaction.log(each.origin, each.base, each.cut, each.batches)
                if saving:
                    packed = self._node.packed_state()
                    transaction.snapshot(packed, self._node.learned)

    def settle(self) -> None:
        """Answer the senders."""
        for each in self._settle:
            each()
