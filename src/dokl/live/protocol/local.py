"""What a node does with its own rows: learned in the order of their arrival, without neighbours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dokl.base.arrays import Array
from dokl.base.errors import BadInput, Diverged
from dokl.live.protocol.effects import Effect, LearnedRows, Notice, Save
from dokl.network.state import State
from dokl.simulation.learner import Learner

ALL = 1 << 62  # rows
MOST_GONE = 1024  # rows learned that a queue may still hold, besides those of one batch


class Queue:
    """Rows that wait to be learned, first in, first out; a mark costs nothing."""

    def __init__(self) -> None:
        self._batches: list[tuple[Array, Array]] = []
        self._head = self._row = self._gone = self.rows = 0  # _gone: rows before the head

    def add(self, X: Array, Y: Array) -> None:
        """Append rows; they are copied, since the caller may use its arrays again."""
        if len(X):
            self._batches.append((X.copy(), Y.copy()))
            self.rows += len(X)

    def take(self, most: int) -> tuple[Array, Array]:
        """The next rows, at most n, and no more than were added together."""
        X, Y = self._batches[self._head]
        rows = slice(self._row, min(self._row + most, len(X)))
        self._row, self.rows = rows.stop, self.rows - (rows.stop - rows.start)
        if rows.stop == len(X):
            self._head, self._row, self._gone = self._head + 1, 0, self._gone + len(X)
            if not self.rows or self._gone >= MOST_GONE:
                # A new list: marks may still hold the old one.
                self._batches, self._head, self._gone = self._batches[self._head :], 0, 0
        return X[rows], Y[rows]

    def mark(self) -> Any:
        """How it is now."""
        counts = self._head, self._row, self._gone, self.rows
        return self._batches, len(self._batches), counts

    def back(self, mark: Any) -> None:
        """As it was then."""
        self._batches, length, (self._head, self._row, self._gone, self.rows) = mark
        del self._batches[length:]


class RowLearning:
    """The state of a node and the rows that it has accepted. `step` counts changes of the state.

    at_once: rows of the queue that are learned before anything else has its turn.
    """

    def __init__(self, learner: Learner, state: State | None, learned: int) -> None:
        self.learner, self.learned = learner, learned
        self.state = learner.start() if state is None else state
        self.step = 1 if state is not None and bool(state.theta.any()) else 0
        self.queue, self.at_once = Queue(), ALL
        self.diverged = 0

    def learn(self, X: Array, Y: Array) -> list[Effect]:
        """Learn rows; raises and changes nothing where that cannot be."""
        state, f, half = self.learner.learn_saying(self.state, X, Y)
        self._predicted(X, Y, f)
        self.state = state
        self.step, self.learned = self.step + 1, self.learned + len(X)
        losses = self.learner.losses(Y, f)
        return [LearnedRows(len(X), f, losses, self.learned, Y, half)]

    def _predicted(self, X: Array, Y: Array, f: Array) -> None:
        """Called with predictions f (n, m) of rows that are about to be learned."""

    def drain(self, learn: Callable[[Array, Array], list[Effect]]) -> list[Effect]:
        """Learn the next rows of the queue, which were accepted, by a function of X and Y."""
        effects, left = list[Effect](), self.at_once
        while left > 0 and self.queue.rows:
            X, Y = self.queue.take(left)
            left -= len(X)
            effects += self.learn_accepted(learn, X, Y)
        return effects

    def learn_accepted(
        self, learn: Callable[[Array, Array], list[Effect]], X: Array, Y: Array
    ) -> list[Effect]:
        """Learn rows that were accepted; those that cannot be learned are passed over, alone."""
        try:
            return learn(X, Y)
        except (BadInput, Diverged) as error:
            if len(X) == 1:
                return self.pass_over(1, error)
        rows = [slice(i, i + 1) for i in range(len(X))]
        return [effect for r in rows for effect in self.learn_accepted(learn, X[r], Y[r])]

    def pass_over(self, rows: int, error: BadInput | Diverged) -> list[Effect]:
        """Rows that were accepted and, with the theta of now, diverge: they count as learned."""
        self.learned, self.diverged = self.learned + rows, self.diverged + rows
        return [Notice("diverged", f"{rows} rows were passed over: {error}"), Save()]

    def mark(self) -> dict[str, Any]:
        """All that changes; arrays and dictionaries in it are replaced, never written to."""
        return {**vars(self), "queue": (self.queue, self.queue.mark())}

    def back(self, mark: dict[str, Any]) -> None:
        """As it was at the mark."""
        queue, rows = mark["queue"]
        queue.back(rows)
        vars(self).update({**mark, "queue": queue})


class LocalNode:
    """A node without neighbours: events in, effects out; the base of `Protocol`, which adds them.

    learned counts the rows of the store that are in the state; `queued` further rows are accepted
    and not learned yet.
    """

    def __init__(self, rows: RowLearning) -> None:
        self._rows = rows

    @property
    def state(self) -> State:
        """What the node has learned; never written to, only replaced."""
        return self._rows.state

    def packed_state(self) -> bytes:
        """All that the node has learned, in bytes."""
        return self._rows.learner.pack(self._rows.state)

    @property
    def learned(self) -> int:
        """Rows learned from."""
        return self._rows.learned

    @property
    def step(self) -> int:
        """The version of the state."""
        return self._rows.step

    @property
    def queued(self) -> int:
        """Rows that were taken and wait to be learned."""
        return self._rows.queue.rows

    @property
    def at_once(self) -> int:
        """Rows that were taken, and are learned before anything else has its turn."""
        return self._rows.at_once

    @at_once.setter
    def at_once(self, rows: int) -> None:
        self._rows.at_once = rows

    @property
    def learns(self) -> bool:
        """Whether rows that were taken are learned without waiting for neighbours."""
        return True

    def samples(self, X: Array, Y: Array, now: float, at_once: bool = True) -> list[Effect]:
        """Rows X: (n, d), Y: (n, m) to learn; BadInput or Diverged where that cannot be.

        at_once False: they are taken, and learned by `learn_queued`; and so are all after them.
        """
        X, Y = self._rows.learner.rows(X, Y)
        self._accept(now)
        if self.learns and (self._rows.queue.rows or not at_once):
            self._rows.queue.add(X, Y)
            return []
        return self._learn(X, Y, now)

    def _accept(self, now: float) -> None:
        """Rows can be used and are about to be taken."""

    def _learn(self, X: Array, Y: Array, now: float) -> list[Effect]:
        return self._rows.learn(X, Y)

    def learn_queued(self, now: float) -> list[Effect]:
        """Learn the next rows that were taken, at most `at_once` of them."""
        return self._rows.drain(lambda X, Y: self._learn(X, Y, now)) if self.learns else []

    def replay(self, X: Array, Y: Array) -> list[Effect]:
        """Rows of the journal after a restart."""
        return self._rows.learn_accepted(self._rows.learn, X, Y)

    def next_due(self, now: float) -> float | None:
        """When the node wants its next turn; None: not before something else happens."""
        return now if self.queued and self.learns else None

    def mark(self) -> Any:
        """All that events change, for `back`."""
        return self._rows.mark()

    def back(self, mark: Any) -> None:
        """As if the events since the mark had not come; what they wanted must not be done."""
        self._rows.back(mark)
