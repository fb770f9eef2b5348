"""An agent: clock, store, transport and protocol tied together by one thread.

Everything that changes the model happens in that thread, one group of events after the other:
compute what follows, commit it to the store, and only then adopt it, acknowledge the samples and
send. So a sample that was acknowledged is in the journal, and a group that cannot be stored has
not happened.
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
from pathlib import Path
from typing import Any

from dokl.base.arrays import Array
from dokl.base.errors import BadInput, DoklError
from dokl.live.agent import status
from dokl.live.agent.answers import Answer, Busy, Job, Stopping, refuse
from dokl.live.agent.backlog import SLICE, Backlog
from dokl.live.agent.clock import Clock, JumpWatch
from dokl.live.agent.compiling import prepare
from dokl.live.agent.consequences import Consequences
from dokl.live.agent.curve import LossCurve
from dokl.live.agent.group import Group, Held
from dokl.live.agent.inbox import Inbox
from dokl.live.agent.keeping import Keeping
from dokl.live.agent.logs import Log
from dokl.live.agent.newest import NewestRows
from dokl.live.agent.problems import Disputes, Problems
from dokl.live.agent.reloading import expiry, reload_description
from dokl.live.agent.restoring import restored
from dokl.live.agent.rolls import roll_of
from dokl.live.agent.waiting import WaitingInputs
from dokl.live.description import Network
from dokl.live.inputs import Arrival, Inputs
from dokl.live.protocol.effects import Effect
from dokl.live.store import Store, StoreFailed
from dokl.live.sums import SumsLearner
from dokl.live.transports import Transport
from dokl.network.state import State

IDLE = 1.0  # seconds between two looks at the world when nothing is due
LIVELY = 2.0  # seconds after a message in which the next one is looked for at the pace of exchange
AHEAD = 86_400.0  # seconds by which a neighbour's clock may be ahead of ours when it starts
SQUARES_ROWS = 1000  # rows between two snapshots by method "squares", at most
PATIENCE = 0.1  # seconds for which rows that arrive put messages and what is due off, at most
COURTESY = 0.001  # seconds between two turns for whoever asks how it is
RETRY = 0.5  # seconds after a failure until what is due is tried again, if nothing else comes


class Agent:
    """One node of a live network; `start` it, `submit` arrivals, `predict`, and `stop`.

    warm: a state to begin with where the store has none yet.
    """

    def __init__(
        self,
        network: Network,
        name: str,
        store: Store,
        transport: Transport,
        clock: Clock | None = None,
        log: Log | None = None,
        warm: State | None = None,
    ) -> None:
        self.network, self.name, self.clock = network, name, clock or Clock()
        self.store, self.transport = store, transport
        self.log = log or Log(name, self.clock)
        self.learner, self.inputs = network.learner(name), Inputs(network)
        self.curve, self.newest, self.counts = LossCurve(), NewestRows(), Counter[str]()
        told = self.curve, self.newest, self.log, self.clock
        self._consequences = Consequences(transport, *told)
        self.started = self.clock.wall()
        self.source: dict[str, Any] | None = None
        self.problems, self._disputes = Problems(self.clock), Disputes(self.log)
        self.when_reloaded: Callable[[], None] = lambda: None
        self.certificate_expires = expiry(network, name)
        self._began = self.clock.now()
        self._jumps = JumpWatch(self.clock)
        prepare(self.learner, self.log, self.clock)  # before the journal is learned again
        heard = self.log, self.problems, self._consequences.note
        self.protocol = restored(network, name, self.learner, store, warm, *heard)
        self._adopted = self.protocol.state  # what is stored, while a group is under way
        self._inbox = Inbox(transport, self.log)
        self._backlog = Backlog(self.protocol.queued)
        self._held: deque[Held] = deque()
        self._leave_by = math.inf  # until when rows that wait are learned, at the end
        self._asking = 0  # threads that wait for the lock
        self._orders: deque[Callable[[], None]] = deque()
        self._wakened = self._stopping = False
        self._waiting = WaitingInputs(store, self.clock, self.log)
        self._keeping = Keeping(self.store.path, self.learner, name)
        self._lively_until = self._held_until = self._began
        self._put_off = math.inf  # since when rows that arrive put the rest off
        self._ready = threading.Condition()
        self._lock = threading.RLock()  # protocol and store, between the thread and `status`
        self._thread = threading.Thread(target=self._run, name=f"agent {name}", daemon=True)

    # -- for everyone, from any thread -------------------------------------------------------
    def start(self) -> None:
        """Open the transport and begin."""
        self._backlog.pace.measure(self.learner, self.clock.now)
        self.transport.open()
        network, mark = self.network.about.name, self.learner.fingerprint
        near = list(self.network.neighbours(self.name))
        self.log("started", network=network, fingerprint=mark, neighbours=near, pid=os.getpid())
        self._thread.start()

    def submit(self, arrival: Arrival) -> Future[Answer]:
        """Hand over samples; the future is done when they are in the journal."""
        rows, future = arrival.rows, Future[Answer]()
        with self._ready:
            if self._stopping:
                raise Stopping("this agent is about to end: send to it again when it is back")
            most = self.network.limits.queue_rows
            if rows > most and arrival.source is None:
                raise BadInput(f"{rows:,} rows at once, and {most:,} may be: send smaller batches")
            seconds = self._backlog.wait(rows, self.network.limits)
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
        """What else was asked of inputs X: (n, d): intervals, of method "squares"."""
        if isinstance(self.learner, SumsLearner) and list(names) == ["intervals"]:
            return self.learner.interval_answers(self._adopted, X)
        raise BadInput(f"a node of a network has no {names[0]}: it says numbers, or scores")

    def status(self) -> dict[str, Any]:
        """What there is to know, as JSON can write it."""
        with self._asked():
            return status.of(self)

    @contextmanager
    def _asked(self) -> Iterator[None]:
        """The lock, for another thread than the agent's; that one waits a moment for it between
        two turns, since whoever frees a lock is often the first to take it again.
        """
        self._asking += 1
        with self._lock:
            self._asking -= 1
            yield

    def position(self, source: str) -> dict[str, Any] | None:
        """How far a source was read when the last of its samples was stored."""
        with self._asked():
            return self.store.offset(source)

    def wake(self) -> None:
        """Something arrived: look at it soon."""
        with self._ready:
            self._wakened = True
            self._ready.notify()

    def order(self, what: Callable[[], None]) -> None:
        """Have something done between two groups, in the agent's own thread."""
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
        self.transport.close()
        with self._lock, suppress(StoreFailed):
            self.store.close()
        self.log("stopped", samples=self.store.samples)

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
        """Rows after which the state is written: least squares takes longer to learn them again."""
        rows = self.network.durability.snapshot_rows
        return min(rows, SQUARES_ROWS) if isinstance(self.learner, SumsLearner) else rows

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
            self.protocol.at_once = self._backlog.pace.rows(SLICE)
            mark = self.protocol.mark()
            try:
                self._serve(jobs, mark)
            except Exception as error:  # one bad event must not end the agent
                self.protocol.back(mark)
                if self._put_off == math.inf:  # not a turn of rows alone
                    self._inbox.clear()
                self._failed(error, jobs)
            if self.clock.now() >= self._held_until:
                self._learn_queued()
        with self._ready:
            self._backlog.done(jobs, self.protocol.queued)

    def _wait(self) -> bool:
        """Sleep until something is to be done; False when all is done and we are to stop."""
        with self._ready:
            if not (self._backlog or self._orders or self._wakened or self._stopping):
                pause = self._pause(self.clock.now())
                if pause > 0:
                    self._ready.wait(pause)
            self._wakened = False
            left = self._backlog or self._orders or self._put_off < math.inf
            behind = self._backlog.behind > 0 and self.protocol.learns
            behind = behind and self.clock.now() < self._leave_by
            return bool(left) or behind or not self._stopping

    def _pause(self, now: float) -> float:
        """Seconds until the next look: not all transports say when something has arrived."""
        if now < self._held_until:
            return self._held_until - now
        due, pace = self.protocol.next_due(now), self.network.exchange.every_seconds
        longest = pace if 0 < pace < IDLE and now < self._lively_until else IDLE
        return longest if due is None else min(longest, due - now)

    def _obey(self) -> None:
        """Do what was ordered; none of it is part of a group, and none is taken back with one."""
        while self._orders:
            try:
                self._orders.popleft()()
            except Exception as error:
                self._failed(error, [])

    def _serve(self, jobs: list[Job], mark: Any) -> None:
        """One group: what arrived, what is due, stored together; `mark` is how it was before.

        Who sends rows is answered first: messages and what is due, which may be a solution for D
        unknowns, come in a turn of their own, unless rows never cease.
        """
        self._look_at_clock()
        now = self.clock.now()
        self._waiting.expire(self.network.limits.waiting_hours)
        group = Group(self.store, self.protocol, self.counts, self.clock.wall())
        everything = not jobs or now >= self._put_off + PATIENCE
        self._put_off = math.inf if everything else min(now, self._put_off)
        group.effects += self._heard(now) if everything else []
        self._take(group, jobs, now)
        group.effects += self._guarded(partial(self.protocol.tick, now)) if everything else []
        try:
            group.commit(self._snapshot_rows)
        except StoreFailed as error:
            self.protocol.back(mark)
            self.protocol.put_off_sealing(now)
            self._not_stored(error, jobs)
        else:
            self.problems.pop("store", None)
            self._adopted = self.protocol.state
            if everything:
                self._inbox.clear()
            self._disputes.see(self.protocol.disputes(now))
            self._happened(group, now)
            if not everything:
                self._wakened = True  # the rest follows at once

    def _take(self, group: Group, jobs: list[Job], now: float) -> None:
        """Learn arrivals, as long as that takes no longer than a slice: the others are stored, and
        learned after that, slice by slice. So nobody waits for a large one that came before.
        """
        pace, spent = self._backlog.pace, 0.0
        for arrival, future in jobs:
            takes = pace.seconds(arrival.rows)
            at_once = not self.protocol.queued and spent + takes <= SLICE
            began, learned = self.clock.now(), self.protocol.learned
            group.take(arrival, future, now, at_once, self._backlog.is_large(arrival.rows))
            if self.protocol.learned > learned:
                spent += takes
                pace.add(self.protocol.learned - learned, self.clock.now() - began)

    def _learn_queued(self) -> None:
        """A slice of the rows that are in the journal and not learned yet."""
        if not (self.protocol.queued and self.protocol.learns):
            return
        pace, mark = self._backlog.pace, self.protocol.mark()
        group = Group(self.store, self.protocol, self.counts, self.clock.wall())
        began, learned = self.clock.now(), self.protocol.learned
        try:
            group.effects += self.protocol.learn_queued(began)
            pace.add(self.protocol.learned - learned, self.clock.now() - began)
            group.commit(self._snapshot_rows)
        except StoreFailed as error:  # they stay in the journal, and wait
            self.protocol.back(mark)
            self._not_stored(error, [])
        except Exception as error:
            self.protocol.back(mark)
            self._failed(error, [])
        else:
            self._adopted = self.protocol.state
            self._happened(group, began)

    def _happened(self, group: Group, now: float) -> None:
        """It is stored, so it is not taken back, whatever goes wrong with telling others."""
        try:
            self._carry_out(group.effects, now)
        except Exception as error:
            self._failed(error, [])
        group.settle()
        self._held.extend(group.held)
        while self._held and self._held[0][0] <= self.protocol.learned:
            self._held.popleft()[1]()
        every, wall = 60 * self.network.durability.keep_minutes, self.clock.wall()
        if self.protocol.step and self._keeping.due(every, wall):
            failed = self._keeping.keep(self.protocol.packed_state(), self.protocol.learned, wall)
            if failed:
                self.log("snapshot not kept", often=True, reason=failed)

    def _heard(self, now: float) -> list[Effect]:
        """Neighbours that came and went, and what they sent."""
        effects: list[Effect] = []
        if self._inbox.fetch():
            self._lively_until = now + LIVELY
        begun = max(self.clock.wall(), self.store.incarnation / 1e9 + self.uptime)
        self.protocol.latest = int((begun + AHEAD) * 1e9)
        self.protocol.seen_twice(self.transport.twice(), now)
        for peer, up in self._inbox.events:
            change = self.protocol.peer_up if up else self.protocol.peer_lost
            effects += self._guarded(partial(change, peer, now))
        for peer, _, data in self._inbox.messages:
            effects += self._guarded(partial(self.protocol.message, peer, data, now))
        for peer in self._inbox.too_large():
            self.protocol.too_large(peer, now)
        return effects

    def _guarded(self, event: Callable[[], list[Effect]]) -> list[Effect]:
        """What follows from an event; one that cannot be computed with is left out and noticed."""
        try:
            return event()
        except DoklError as error:
            self.problems.note("learning", str(error))
            self.log("not learned", often=True, reason=str(error))
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
        self.problems.note("internal", f"internal error: {error!r}")
        self.log("internal error", often=True, reason=repr(error))
        for _, future in jobs:
            refuse(future, error)

    # -- effects -----------------------------------------------------------------------------
    def _carry_out(self, effects: list[Effect], now: float) -> None:
        self._consequences.carry_out(effects)
        if self.network.exchange.mode == "pull" and self.protocol.step:
            packed, hello = self.protocol.packed(now), self.protocol.hello(now)
            self.transport.offer(packed, (self.store.incarnation, self.protocol.step), hello)

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
            if self.protocol.step:
                with self.store.transaction() as transaction:
                    transaction.snapshot(self.protocol.packed_state(), self.protocol.learned)
        except StoreFailed as error:
            self.log("not stored", reason=str(error))  # the journal has it all
        for _, tell in self._held:
            tell()  # they are in the journal
        for _, future in self._backlog.left():
            refuse(future, Stopping("this agent is about to end"))

    # -- changes -----------------------------------------------------------------------------
    def purge(self, older_s: float = 0.0) -> Future[int]:
        """Let inputs go that have waited so long for a label; how many, once it is stored."""
        return self._ordered(partial(self._waiting.let_go, older_s))

    def finish_source(self) -> None:
        """The own stream is at its end: neighbours in lockstep need not wait for it."""
        now = self.clock.now
        self.order(lambda: self._carry_out(self.protocol.finish(now()), now()))

    def reload(self, path: Path) -> Future[None]:
        """Take a changed description: new neighbours, a new access table, new certificates."""
        return self._ordered(partial(self._reload, path))

    def _ordered(self, what: Callable[[], Any]) -> Future[Any]:
        """Done in the agent's thread; its result, or why there is none."""
        done = Future[Any]()

        def do() -> None:
            try:
                done.set_result(what())
            except Exception as error:
                done.set_exception(error)

        self.order(do)
        return done

    def _reload(self, path: Path) -> None:
        try:
            network = reload_description(path, self.name, self.network)
            roll = roll_of(network, self.name)
            self.protocol.check_change(roll)
            self.transport.reopen(network)  # which refuses certificates that cannot be used
            self.network = network
            self.protocol.change(network.neighbours(self.name), network.exchange, roll)
            self.certificate_expires = expiry(network, self.name)
            self.when_reloaded()
        except Exception as error:  # of files and certificates, too; samples go on
            self.log("reload refused", reason=str(error))
            self.problems["reload"] = f"the changed description was refused: {error}"
            raise
        self.problems.pop("reload", None)
        self.log("reloaded", neighbours=list(network.neighbours(self.name)))
