"""A service: rows in, stored before they are acknowledged, learned, and predictions out.

Everything that changes the model happens in one thread, one group of events after the other:
compute what follows, commit it to the store, and only then adopt it and acknowledge the samples.
So a sample that was acknowledged is in the journal, and a group that cannot be stored has not
happened. `Agent` in `runtime` is a service that has neighbours.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from dokl.base.arrays import Array
from dokl.base.errors import BadInput, DoklError
from dokl.live.agent import status
from dokl.live.agent.backlog import SLICE, Backlog
from dokl.live.agent.clock import Clock, JumpWatch
from dokl.live.agent.compiling import prepare
from dokl.live.agent.curve import LossCurve
from dokl.live.agent.effect_handlers import EffectHandler
from dokl.live.agent.group import Group, Held
from dokl.live.agent.logs import Log
from dokl.live.agent.newest_rows import NewestRows
from dokl.live.agent.problems import Problems
from dokl.live.agent.replies import Answer, Busy, Job, Stopping, refuse
from dokl.live.agent.restoring import restored
from dokl.live.agent.snapshots import SnapshotSchedule
from dokl.live.agent.waiting import WaitingInputs
from dokl.live.description import ServiceDescription
from dokl.live.inputs import Arrival, Inputs
from dokl.live.protocol.effects import Effect
from dokl.live.protocol.local import LocalNode, RowLearning
from dokl.live.store import AuditLog, Store, StoreFailed, audit_path
from dokl.network.state import State
from dokl.simulation.learner import Learner

IDLE = 1.0  # seconds between two looks at the world when nothing is due
COURTESY = 0.001  # seconds between two turns, for status requests
FRESH = 1.0  # seconds after which what `status` falls back on is renewed
RETRY = 0.5  # seconds after a failure until what is due is tried again, if nothing else comes


class Service:
    """One learner behind a journal; `start` it, `submit` arrivals, `predict`, and `stop`.

    warm: a state to begin with where the store has none yet. node: what learns; its state is
    replaced, never written to.
    """

    complete_rows = False  # whether a JSON body must have every input column
    coverage: float | None = None  # of the intervals in `newest`, where there are any

    def __init__(
        self,
        description: ServiceDescription,
        name: str,
        learner: Learner,
        store: Store,
        clock: Clock | None = None,
        log: Log | None = None,
        warm: State | None = None,
    ) -> None:
        self.description, self.name, self.clock = description, name, clock or Clock()
        self.log = log or Log(name, self.clock)
        self.store, self.learner = store, learner
        self.inputs = Inputs(description, self.complete_rows)
        self.curve, self.newest, self.counts = LossCurve(), NewestRows(), Counter[str]()
        self._handler = self._new_handler()
        self.started = self.clock.wall()
        self.source: dict[str, Any] | None = None
        self._audit = AuditLog(audit_path(store.path))
        self.problems = Problems(self.clock)
        self._began = self.clock.now()
        self._jumps = JumpWatch(self.clock)
        prepare(self.learner, self.log, self.clock)  # before the journal is learned again
        self.node = self._restored(warm)
        self._adopted = self.node.state  # what is stored, while a group is under way
        self._backlog = Backlog(self.node.queued)
        self._held: deque[Held] = deque()
        self._leave_by = math.inf  # until when rows that wait are learned, at the end
        self._asking = 0  # threads that wait for the lock
        self._status = dict[str, Any](), -math.inf  # as of the last look, and when that was
        self._orders: deque[Callable[[], None]] = deque()
        self._wakened = self._stopping = False
        self._waiting = WaitingInputs(store, self.clock, self.log)
        self._keeping = SnapshotSchedule(self.store.path, self.learner, name)
        self._held_until = self._began
        self._behind = store.samples  # rows of earlier runs, all to be learned before it is ready
        self._ready = threading.Condition()
        self._lock = threading.RLock()  # node and store, between the thread and `status`
        self._thread = threading.Thread(target=self._run, name=f"service {name}", daemon=True)

    def _new_handler(self) -> EffectHandler:
        return EffectHandler(self.curve, self.newest, self.log, self.clock)

    def _restored(self, warm: State | None) -> LocalNode:
        """What learns, as it was before the end, however that came."""
        receivers = self.log, self.problems, self._handler.note
        return restored(
            self.store,
            self.learner,
            warm,
            lambda state, learned: LocalNode(RowLearning(self.learner, state, learned)),
            *receivers,
        )

    # -- for everyone, from any thread -------------------------------------------------------
    def start(self) -> None:
        """Begin."""
        self._backlog.pace.measure(self.learner, self.clock.now)
        self._open()
        self._look_at_status()
        self._thread.start()

    def _open(self) -> None:
        mark = self.learner.fingerprint
        self.log("started", title=self.description.title, fingerprint=mark, pid=os.getpid())

    def submit(self, arrival: Arrival) -> Future[Answer]:
        """Hand over samples; the future is done when they are in the journal."""
        rows, future = arrival.rows, Future[Answer]()
        with self._ready:
            if self._stopping:
                raise Stopping("this agent is about to end: send to it again when it is back")
            most = self.description.limits.queue_rows
            if rows > most and arrival.source is None:
                raise BadInput(f"{rows:,} rows at once, and {most:,} may be: send smaller batches")
            seconds = self._backlog.wait(rows, self.description.limits)
            if seconds:
                self.counts["busy"] += 1
                raise Busy(seconds)
            if self._backlog.is_large(rows):
                self._backlog.large += rows
                future.add_done_callback(partial(self._answered, rows))
            self._backlog.add((arrival, future))
            self._ready.notify()
        return future

    def _answered(self, rows: int, _: object) -> None:
        """A large arrival is learned, or refused."""
        with self._ready:
            self._backlog.large -= rows

    def predict(self, X: Array) -> list[Any]:
        """Numbers or labels for inputs X: (n, d)."""
        return self.learner.answers(self.scores(X))

    def scores(self, X: Array) -> Array:
        """The function itself, (n, m), with the vector of this moment, as it is stored."""
        return self.learner.predict(self._adopted, X, workers=1)

    def further(self, X: Array, names: Sequence[str]) -> dict[str, Any]:
        """What else was asked of inputs X: (n, d)."""
        raise BadInput(f"there are no {names[0]} here: only predictions, or scores")

    def status(self, seconds: float = math.inf) -> dict[str, Any]:
        """What there is to know, as JSON can write it. Where a computation goes on for longer than
        that, what was known before it, `age_s` ago; rows that are stored count at once.
        """
        with self._asked(seconds) as free:
            if free:
                self._look_at_status()
            found, at = self._status
        age = 0.0 if free else round(max(0.0, self.clock.now() - at), 3)
        ready = not self.not_ready()
        return {**found, "samples": self.store.samples, "ready": ready, "age_s": age}

    def _look_at_status(self) -> None:
        """With the lock held, or before the thread begins."""
        self._status = self._facts(), self.clock.now()

    def _facts(self) -> dict[str, Any]:
        return status.of(self)

    @contextmanager
    def _asked(self, seconds: float = math.inf) -> Iterator[bool]:
        """The lock, for another thread than the service's; that one waits a moment for it between
        two turns, since the thread that frees a lock is often the first to take it again. False
        where it is not free in that time.
        """
        with self._ready:  # two threads that count at once would miscount for good
            self._asking += 1
        free = self._lock.acquire(timeout=-1 if seconds == math.inf else seconds)
        with self._ready:
            self._asking -= 1
        try:
            yield free
        finally:
            if free:
                self._lock.release()

    def not_ready(self) -> str:
        """Why others should wait before they rely on this service; "" where they need not. For
        everybody's ears, from any thread, and without the lock: it is answered at once.
        """
        if self._stopping:
            return "stopping"
        if "store" in self.problems:
            return "the journal cannot be written"
        if self._behind and self.node.learned < self._behind:
            left = self._behind - self.node.learned
            return f"catching up: {left:,} rows of the journal are not learned yet"
        self._behind = 0
        return ""

    def position(self, source: str) -> dict[str, Any] | None:
        """How far a source was read when the last of its samples was stored."""
        with self._asked():
            return self.store.offset(source)

    def order(self, what: Callable[[], None]) -> None:
        """Have something done between two groups, in the service's own thread."""
        with self._ready:
            self._orders.append(what)
            self._ready.notify()

    def stop(self, timeout: float = 10.0) -> None:
        """Take no more, finish what is queued, save, and close everything."""
        with self._ready:
            self._stopping, self._leave_by = True, self.clock.now() + timeout / 2
            self._ready.notify()
        if self._thread.is_alive():
            self._thread.join(timeout)
        self._close()
        with self._lock, suppress(StoreFailed):
            self.store.close()
        self.log("stopped", samples=self.store.samples)

    def _close(self) -> None:
        """Close what is open besides the store."""

    @property
    def queued(self) -> int:
        """Rows that wait to be learned."""
        return self._backlog.rows + self._backlog.behind

    @property
    def queued_seconds(self) -> float:
        """What learning them will take, by what rows have taken so far."""
        return self._backlog.seconds

    @property
    def _snapshot_rows(self) -> int:
        """Rows after which the state is written."""
        return self.description.durability.snapshot_rows

    @property
    def uptime(self) -> float:
        """Seconds since the start."""
        return self.clock.now() - self._began

    # -- the thread --------------------------------------------------------------------------
    def _run(self) -> None:
        while self._wait():
            self._turn()
            if self._asking:
                time.sleep(COURTESY)
        with self._lock:
            self._farewell()

    def _turn(self) -> None:
        """One group, and then a slice of the rows that wait to be learned."""
        with self._ready:
            jobs = self._backlog.group()
        with self._lock:
            self._obey()
            self.node.at_once = self._backlog.pace.rows(SLICE)
            mark = self.node.mark()
            try:
                self._serve(jobs, mark)
            except Exception as error:  # one bad event must not end the service
                self.node.back(mark)
                self._given_up()
                self._failed(error, jobs)
            if self.clock.now() >= self._held_until:
                self._learn_queued()
            self._done()
            self._renew_status()

    def _done(self) -> None:
        """There is room again for as many rows as the present group had."""
        with self._ready:
            self._backlog.done(self.node.queued)

    def _renew_status(self) -> None:
        """For those who ask during the next turn: it may take long."""
        if self.clock.now() < self._status[1] + FRESH:
            return
        try:
            self._look_at_status()
        except Exception as error:
            self._failed(error, [])

    def _wait(self) -> bool:
        """Sleep until something is to be done; False when all is done and we are to stop."""
        with self._ready:
            if not (self._backlog or self._orders or self._wakened or self._stopping):
                pause = self._pause(self.clock.now())
                if pause > 0:
                    self._ready.wait(pause)
            self._wakened = False
            left = self._backlog or self._orders or self._unfinished
            behind = self._backlog.behind > 0 and self.node.learns
            behind = behind and self.clock.now() < self._leave_by
            return bool(left) or behind or not self._stopping

    @property
    def _unfinished(self) -> bool:
        """Whether events wait for a turn of their own."""
        return False

    def _pause(self, now: float) -> float:
        """Seconds until the next look."""
        if now < self._held_until:
            return self._held_until - now
        due, longest = self.node.next_due(now), self._longest_pause(now)
        return longest if due is None else min(longest, due - now)

    def _longest_pause(self, now: float) -> float:
        return IDLE

    def _obey(self) -> None:
        """Do what was ordered; none of it is part of a group, and none is taken back with one."""
        while self._orders:
            try:
                self._orders.popleft()()
            except Exception as error:
                self._failed(error, [])

    def _serve(self, jobs: list[Job], mark: Any) -> None:
        """One group: what arrived, what is due, stored together; `mark` is how it was before."""
        self._look_at_clock()
        now = self.clock.now()
        self._waiting.expire(self.description.limits.waiting_hours)
        group = Group(self.store, self.node, self.counts, self.clock.wall())
        self._events(group, jobs, now)
        try:
            # What failed last is tried again, though nobody sends: until then it is a problem.
            group.commit(self._snapshot_rows, probe="store" in self.problems)
        except StoreFailed as error:
            self.node.back(mark)
            self._not_stored(error, jobs)
        else:
            self.problems.pop("store", None)
            self._adopted = self.node.state
            self._committed(now)
            self._happened(group, now)

    def _events(self, group: Group, jobs: list[Job], now: float) -> None:
        """Put what happened into the group."""
        self._take(group, jobs, now)

    def _committed(self, now: float) -> None:
        """The group is stored; called before its senders are answered."""

    def _given_up(self) -> None:
        """The group failed in a way that would come again."""

    def _take(self, group: Group, jobs: list[Job], now: float) -> None:
        """Learn arrivals, as long as that takes no longer than a slice: the others are stored, and
        learned after that, slice by slice. So nobody waits for a large one that came before.
        """
        pace, spent = self._backlog.pace, 0.0
        for arrival, future in jobs:
            takes = pace.seconds(arrival.rows)
            at_once = not self.node.queued and spent + takes <= SLICE
            began, learned = self.clock.now(), self.node.learned
            group.take(arrival, future, now, at_once, self._backlog.is_large(arrival.rows))
            if self.node.learned > learned:
                spent += takes
                pace.add(self.node.learned - learned, self.clock.now() - began)

    def _learn_queued(self) -> None:
        """A slice of the rows that are in the journal and not learned yet."""
        if not (self.node.queued and self.node.learns):
            return
        pace, mark = self._backlog.pace, self.node.mark()
        group = Group(self.store, self.node, self.counts, self.clock.wall())
        began, learned = self.clock.now(), self.node.learned
        try:
            group.effects += self.node.learn_queued(began)
            pace.add(self.node.learned - learned, self.clock.now() - began)
            group.commit(self._snapshot_rows)
        except StoreFailed as error:  # they stay in the journal, and wait
            self.node.back(mark)
            self._not_stored(error, [])
        except Exception as error:
            self.node.back(mark)
            self._failed(error, [])
        else:
            self._adopted = self.node.state
            self._happened(group, began)

    def _happened(self, group: Group, now: float) -> None:
        """It is stored, so it is not taken back, whatever fails when others are informed."""
        try:
            self._carry_out(group.effects, now)
        except Exception as error:
            self._failed(error, [])
        every, wall = 60 * self.description.durability.keep_minutes, self.clock.wall()
        self._done()  # who is answered may send more at once
        group.settle()
        self._held.extend(group.held)
        while self._held and self._held[0][0] <= self.node.learned:
            self._held.popleft()[1]()
        if self.node.step and self._keeping.due(every, wall):
            failed = self._keeping.keep(self.node.packed_state(), self.node.learned, wall)
            if failed:
                self.log("snapshot not kept", often=True, reason=failed)

    def _carry_out(self, effects: list[Effect], now: float) -> None:
        self._handler.carry_out(effects)

    def _guarded(
        self, event: Callable[[], list[Effect]], failed: Callable[[], None] = lambda: None
    ) -> list[Effect]:
        """What follows from an event; one that cannot be computed with is left out and noticed, so
        that it keeps no other one, of another neighbour say, from having its effect. failed: called
        then.
        """
        mark = self.node.mark()
        try:
            return event()
        except DoklError as error:
            self.problems.note("learning", str(error))
            self.log("not learned", often=True, reason=str(error))
        except Exception as error:
            self.node.back(mark)
            self._note_error(error)
        failed()
        return []

    def _not_stored(self, error: StoreFailed, jobs: list[Job]) -> None:
        self._held_until = self.clock.now() + RETRY
        self.counts["store failures"] += 1
        self.problems["store"] = str(error)
        self.log("not stored", often=True, reason=str(error))
        for _, future in jobs:
            refuse(future, error)

    def _failed(self, error: Exception, jobs: list[Job]) -> None:
        self._held_until = self.clock.now() + RETRY
        self._note_error(error)
        for _, future in jobs:
            refuse(future, error)

    def _note_error(self, error: Exception) -> None:
        self.problems.note("internal", f"internal error: {error!r}")
        self.log("internal error", often=True, reason=repr(error))

    def _look_at_clock(self) -> None:
        self.problems.forget()
        by = self._jumps.jumped()
        if by is not None:
            self.counts["clock jumps"] += 1
            self.log("clock jumped", seconds=round(by, 3))

    def _farewell(self) -> None:
        """The last thing: a snapshot, so that the next start need not replay.

        Who has learned nothing leaves none, and is a newcomer the next time, too.
        """
        try:
            if self.node.step:
                with self.store.transaction() as transaction:
                    transaction.snapshot(self.node.packed_state(), self.node.learned)
        except StoreFailed as error:
            self.log("not stored", reason=str(error))  # the journal has it all
        for _, answer in self._held:
            answer()  # they are in the journal
        for _, future in self._backlog.left():
            refuse(future, Stopping("this agent is about to end"))

    # -- changes -----------------------------------------------------------------------------
    def purge(self, older_s: float = 0.0) -> Future[int]:
        """Let inputs go that have waited so long for a label; how many, once it is stored."""
        return self._ordered(partial(self._waiting.let_go, older_s))

    def _audited(self, event: str, **facts: Any) -> None:
        """A line for those who ask later who changed what."""
        if not self._audit(event, self.name, **facts):
            self.log("audit line not written", event_of=event)

    def _ordered(self, what: Callable[[], Any]) -> Future[Any]:
        """Done in the service's thread; its result, or why there is none."""
        done = Future[Any]()

        def do() -> None:
            try:
                done.set_result(what())
            except Exception as error:
                done.set_exception(error)

        self.order(do)
        return done
