"""An agent: clock, store, transport and protocol tied together by one thread.

Everything that changes the model happens in that thread, one group of events after the other:
compute what follows, commit it to the store, and only then adopt it, acknowledge the samples and
send. So a sample that was acknowledged is in the journal, and a group that cannot be stored has
not happened.
"""

from __future__ import annotations

import os
import threading
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dokl.agents import status
from dokl.agents.clock import Clock, JumpWatch
from dokl.agents.curve import Curve
from dokl.agents.description import Network
from dokl.agents.inputs import Arrival, Inputs
from dokl.agents.intake import Intake, Taken
from dokl.agents.learner import Learner, pack_state, unpack_state
from dokl.agents.logs import Log
from dokl.agents.protocol import Protocol
from dokl.agents.protocol.effects import (
    Ask,
    Combined,
    Effect,
    Learned,
    Notice,
    Refuse,
    Save,
    SendHello,
    SendTheta,
)
from dokl.agents.store import Store, StoreFailed
from dokl.agents.transports import Transport
from dokl.arrays import Array
from dokl.diffusion import State
from dokl.errors import BadInput, Diverged, DoklError, FingerprintMismatch

GROUP = 4000  # rows that share one transaction, at most
IDLE = 1.0  # seconds between two looks at the world when nothing is due
LIVELY = 2.0  # seconds after a message in which the next one is looked for at the pace of exchange
RETRY = 0.5  # seconds after a failure until what is due is tried again, if nothing else comes

Job = tuple[Arrival, "Future[dict[str, Any]]"]


class Busy(DoklError):
    """The queue is full: come back in `retry_after` seconds."""

    def __init__(self, retry_after: float) -> None:
        self.retry_after = retry_after
        super().__init__(f"the queue is full: send again in {retry_after:.1f} seconds")


class Stopping(DoklError):
    """The agent is about to end."""


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
        self.learner, self.inputs = Learner(network), Inputs(network)
        self.curve, self.counts = Curve(), Counter[str]()
        self.started = self.clock.wall()
        self.disagreement: float | None = None
        self.source: dict[str, Any] | None = None
        self.problems: dict[str, str] = {}
        self.when_reloaded: Callable[[], None] = lambda: None
        self.certificate_expires = _expiry(network, name)
        self._began, self._rate = self.clock.now(), 1000.0
        self._jumps = JumpWatch(self.clock)
        self.protocol = self._restored(warm)
        self._adopted = self.protocol.state  # what is stored, while a group is under way
        self._events: list[tuple[str, bool]] = []  # of neighbours, heard and not stored yet
        self._messages: list[tuple[str, str, bytes]] = []
        self._queue: deque[Job] = deque()
        self._queued = 0
        self._orders: deque[Callable[[], None]] = deque()
        self._wakened = self._stopping = False
        self._lively_until = self._held_until = self._began
        self._ready = threading.Condition()
        self._lock = threading.RLock()  # protocol and store, between the thread and `status`
        self._thread = threading.Thread(target=self._run, name=f"agent {name}", daemon=True)

    # -- for everyone, from any thread -------------------------------------------------------
    def start(self) -> None:
        """Open the transport and begin."""
        self.transport.open()
        self.log("started", **self._introduction())
        self._thread.start()

    def submit(self, arrival: Arrival) -> Future[dict[str, Any]]:
        """Hand over samples; the future is done when they are in the journal."""
        rows, future = arrival.rows, Future[dict[str, Any]]()
        with self._ready:
            if self._stopping:
                raise Stopping("this agent is about to end: send to it again when it is back")
            most = self.network.limits.queue_rows
            if rows > most and arrival.source is None:
                raise BadInput(f"{rows:,} rows at once, and {most:,} may be: send smaller batches")
            waiting = self._queued + self.protocol.queued  # in lockstep rows wait there
            if waiting and waiting + rows > most:
                self.counts["busy"] += 1
                raise Busy(max(0.1, round(self._queued / self._rate, 1)))
            self._queue.append((arrival, future))
            self._queued += rows
            self._ready.notify()
        return future

    def predict(self, X: Array) -> list[Any]:
        """Numbers or labels for inputs X: (n, d)."""
        return self.learner.answers(self.scores(X))

    def scores(self, X: Array) -> Array:
        """The function itself, (n, m), with the vector of this moment, as it is stored."""
        return self.learner.scores(self._adopted, X)

    def status(self) -> dict[str, Any]:
        """What there is to know, as JSON can write it."""
        with self._lock:
            return status.of(self)

    def position(self, source: str) -> dict[str, Any] | None:
        """How far a source was read when the last of its samples was stored."""
        with self._lock:
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
            self._stopping = True
            self._ready.notify()
        if self._thread.is_alive():
            self._thread.join(timeout)
        self.transport.close()
        with self._lock, suppress(StoreFailed):
            self.store.close()
        self.log("stopped", samples=self.store.samples)

    @property
    def queued(self) -> int:
        """Rows that wait to be learned and acknowledged."""
        return self._queued

    @property
    def uptime(self) -> float:
        """Seconds since the start."""
        return self.clock.now() - self._began

    # -- starting ----------------------------------------------------------------------------
    def _restored(self, warm: State | None) -> Protocol:
        """The state before the end, however that came: the snapshot, and the journal after it."""
        packed, learned, batches = self.store.restore()
        state = warm if packed is None else unpack_state(packed, self.learner.m, self.learner.D)
        protocol = Protocol(
            self.learner,
            self.name,
            self.network.neighbours(self.name),
            self.network.exchange,
            self.store.incarnation,
            state,
            learned,
        )
        replayed = 0
        for X, Y in batches:
            for effect in protocol.replay(X, Y):
                self._note(effect)
            replayed += len(X)
        if replayed or packed is not None:
            self.log("restored", learned=protocol.learned, replayed=replayed)
        elif warm is not None:
            with self.store.transaction() as transaction:  # the journal begins from here
                transaction.snapshot(pack_state(warm), 0)
            self.log("warm start", count=int(warm.count[0]))
        return protocol

    def _introduction(self) -> dict[str, Any]:
        about = {"network": self.network.about.name, "fingerprint": self.learner.fingerprint}
        neighbours = list(self.network.neighbours(self.name))
        return {**about, "neighbours": neighbours, "pid": os.getpid()}

    # -- the thread --------------------------------------------------------------------------
    def _run(self) -> None:
        while self._wait():
            jobs, began = self._drained(), self.clock.now()
            with self._lock:
                mark = self.protocol.mark()
                try:
                    self._serve(jobs)
                except Exception as error:  # one bad event must not end the agent
                    self.protocol.back(mark)
                    self._events, self._messages = [], []
                    self._failed(error, jobs)
            self._measure(jobs, began)
        with self._lock:
            self._farewell()

    def _wait(self) -> bool:
        """Sleep until something is to be done; False when all is done and we are to stop."""
        with self._ready:
            if not (self._queue or self._orders or self._wakened or self._stopping):
                pause = self._pause(self.clock.now())
                if pause > 0:
                    self._ready.wait(pause)
            self._wakened = False
            return bool(self._queue or self._orders) or not self._stopping

    def _pause(self, now: float) -> float:
        """Seconds until the next look: not all transports say when something has arrived."""
        if now < self._held_until:
            return self._held_until - now
        due, pace = self.protocol.next_due(now), self.network.exchange.every_seconds
        longest = pace if 0 < pace < IDLE and now < self._lively_until else IDLE
        return longest if due is None else min(longest, due - now)

    def _drained(self) -> list[Job]:
        jobs: list[Job] = []
        rows = 0
        with self._ready:
            while self._queue and rows < GROUP:
                jobs.append(self._queue.popleft())
                rows += jobs[-1][0].rows
        return jobs

    def _serve(self, jobs: list[Job]) -> None:
        """One group: what arrived, what is due, stored together."""
        while self._orders:
            self._orders.popleft()()
        self._look_at_clock()
        now, mark = self.clock.now(), self.protocol.mark()
        effects = self._heard(now)
        intake = Intake(self.store)
        settle: list[Callable[[], None]] = []
        for arrival, future in jobs:
            effects += self._take(intake, arrival, future, now, settle)
        effects += self._guarded(partial(self.protocol.tick, now))
        try:
            self._commit(intake, effects)
        except StoreFailed as error:
            self.protocol.back(mark)
            self._not_stored(error, jobs)
        else:
            self.problems.pop("store", None)
            self._adopted, self._events, self._messages = self.protocol.state, [], []
            self._happened(effects, now, settle)

    def _happened(
        self, effects: list[Effect], now: float, settle: list[Callable[[], None]]
    ) -> None:
        """It is stored, so it is not taken back, whatever goes wrong with telling others."""
        try:
            self._carry_out(effects, now)
        except Exception as error:
            self._failed(error, [])
        for each in settle:
            each()

    def _heard(self, now: float) -> list[Effect]:
        """Neighbours that came and went, and what they sent."""
        effects: list[Effect] = []
        self._listen(now)
        for peer, up in self._events:
            change = self.protocol.peer_up if up else self.protocol.peer_lost
            effects += self._guarded(partial(change, peer, now))
        for peer, _, data in self._messages:
            effects += self._guarded(partial(self.protocol.message, peer, data, now))
        return effects

    def _listen(self, now: float) -> None:
        """What is new, after what was heard in a group that could not be stored: a neighbour says
        only once that it came. Of that the last two events and the newest messages are enough.
        """
        events, messages = self.transport.events(), self.transport.receive()
        for peer, up in events:
            self.log("neighbour up" if up else "neighbour lost", neighbour=peer)
        if messages:
            self._lively_until = now + LIVELY
        self._events = _last_two([*self._events, *events])
        newer = {message[:2] for message in messages}
        self._messages = [old for old in self._messages if old[:2] not in newer] + messages

    def _guarded(self, event: Callable[[], list[Effect]]) -> list[Effect]:
        """What follows from an event; one that cannot be computed with is left out and noticed."""
        try:
            return event()
        except DoklError as error:
            self.problems["learning"] = str(error)
            self.log("not learned", often=True, reason=str(error))
            return []

    def _take(
        self,
        intake: Intake,
        arrival: Arrival,
        future: Future[dict[str, Any]],
        now: float,
        settle: list[Callable[[], None]],
    ) -> list[Effect]:
        """Learn an arrival; `settle` gets what tells its sender, once everything is stored."""
        try:
            earlier = intake.repeated(arrival)
            if earlier is not None:
                self.counts["repeated"] += 1
                settle.append(partial(_answer, future, earlier))
                return []
            taken = intake.sort(arrival)
            effects = self._learned(taken, now) if len(taken.X) else []
        except DoklError as error:
            self.counts["refused"] += 1
            settle.append(partial(_refuse, future, error))
            return []
        before = self.store.samples + sum(len(each.X) for each, _ in intake.taken)
        answer = taken.answer(before + len(taken.X))
        intake.keep(taken, answer)
        self.counts["accepted"] += 1
        self.counts["unknown"] += len(taken.unknown)
        settle.append(partial(_answer, future, answer))
        return effects

    def _learned(self, taken: Taken, now: float) -> list[Effect]:
        """Learn its rows. A sender hears that some diverge; of a file the others are learned, in
        one transaction with the position after all of them.
        """
        try:
            return self.protocol.samples(taken.X, taken.Y, now)
        except (BadInput, Diverged):
            if taken.arrival.source is None:
                raise
        effects: list[Effect] = []
        good: list[int] = []
        for i in range(len(taken.X)):
            try:
                effects += self.protocol.samples(taken.X[i : i + 1], taken.Y[i : i + 1], now)
                good.append(i)
            except (BadInput, Diverged) as error:
                taken.skipped.append(str(error))
        taken.X, taken.Y = taken.X[good], taken.Y[good]
        return effects

    def _commit(self, intake: Intake, effects: list[Effect]) -> None:
        rows = self.store.rows_since_snapshot + sum(len(taken.X) for taken, _ in intake.taken)
        saving = any(isinstance(effect, Save) for effect in effects)
        saving = saving or rows >= self.network.durability.snapshot_rows
        if intake.taken or saving:
            with self.store.transaction() as transaction:
                intake.write(transaction)
                if saving:
                    transaction.snapshot(pack_state(self.protocol.state), self.protocol.learned)

    def _not_stored(self, error: StoreFailed, jobs: list[Job]) -> None:
        self._held_until = self.clock.now() + RETRY
        self.counts["store failures"] += 1
        self.problems["store"] = str(error)
        self.log("not stored", often=True, reason=str(error))
        for _, future in jobs:
            _refuse(future, error)

    def _failed(self, error: Exception, jobs: list[Job]) -> None:
        self._held_until = self.clock.now() + RETRY
        self.problems["internal"] = f"internal error: {error!r}"
        self.log("internal error", often=True, reason=repr(error))
        for _, future in jobs:
            if not future.done():
                _refuse(future, error)

    # -- effects -----------------------------------------------------------------------------
    def _carry_out(self, effects: list[Effect], now: float) -> None:
        for effect in effects:
            if isinstance(effect, SendTheta):
                self.transport.send("theta", effect.data)
            elif isinstance(effect, SendHello):
                self.transport.send("hello", effect.data)
            elif isinstance(effect, Ask):
                self.transport.ask(effect.peer, effect.known)
            else:
                self._note(effect)
        if self.network.exchange.mode == "pull" and self.protocol.step:
            packed, hello = self.protocol.packed(now), self.protocol.hello(now)
            self.transport.offer(packed, (self.store.incarnation, self.protocol.step), hello)

    def _note(self, effect: Effect) -> None:
        if isinstance(effect, Learned):
            self.curve.add(effect.losses, effect.learned)
        elif isinstance(effect, Combined):
            size = float(np.vdot(self.protocol.state.theta, self.protocol.state.theta))
            self.disagreement = effect.distance2 / size if size > 0 else None
        elif isinstance(effect, Refuse):
            about = {"neighbour": effect.peer, "reason": effect.reason, "text": effect.text}
            self.log("message refused", often=True, **about)
        elif isinstance(effect, Notice):
            self.log(effect.kind, often=True, text=effect.text)

    def _measure(self, jobs: list[Job], began: float) -> None:
        """Rows per second, for telling a busy sender when to come back."""
        rows = sum(arrival.rows for arrival, _ in jobs)
        with self._ready:
            self._queued -= rows
        if rows:
            speed = rows / max(self.clock.now() - began, 1e-4)
            self._rate += 0.1 * (speed - self._rate)

    def _look_at_clock(self) -> None:
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
                    transaction.snapshot(pack_state(self.protocol.state), self.protocol.learned)
        except StoreFailed as error:
            self.log("not stored", reason=str(error))  # the journal has it all
        for _, future in self._queue:
            _refuse(future, Stopping("this agent is about to end"))

    # -- changes -----------------------------------------------------------------------------
    def finish_source(self) -> None:
        """The own stream is at its end: neighbours in lockstep need not wait for it."""
        self.order(
            lambda: self._carry_out(self.protocol.finish(self.clock.now()), self.clock.now())
        )

    def reload(self, path: Path) -> Future[None]:
        """Take a changed description: new neighbours, a new access table, new certificates."""
        done = Future[None]()

        def change() -> None:
            try:
                self._reload(path)
                done.set_result(None)
            except Exception as error:  # of files and certificates, too; samples go on
                self.log("reload refused", reason=str(error))
                self.problems["reload"] = f"the changed description was refused: {error}"
                done.set_exception(error)

        self.order(change)
        return done

    def _reload(self, path: Path) -> None:
        from dokl.agents.description import read

        network = read(path)
        if self.name not in network.names:
            raise BadInput(f"{path}: node {self.name!r} is not in it any more: stop this agent")
        if network.fingerprint != self.learner.fingerprint:
            ours, theirs = self.learner.fingerprint, network.fingerprint
            raise FingerprintMismatch(f"{path}: a running agent keeps its features", ours, theirs)
        _check_unchanged(self.network, network)
        self.transport.reopen(network)  # which refuses certificates that cannot be used
        self.network = network
        self.protocol.change(network.neighbours(self.name), network.exchange)
        self.certificate_expires = _expiry(network, self.name)
        self.when_reloaded()
        self.problems.pop("reload", None)
        self.log("reloaded", neighbours=list(network.neighbours(self.name)))


def _last_two(events: list[tuple[str, bool]]) -> list[tuple[str, bool]]:
    """Of each neighbour, the last times that it came or went."""
    seen, kept = Counter[str](), list[tuple[str, bool]]()
    for peer, up in reversed(events):
        seen[peer] += 1
        if seen[peer] <= 2:
            kept.append((peer, up))
    return kept[::-1]


def _check_unchanged(old: Network, new: Network) -> None:
    """Refuse what a running agent cannot take over, rather than to pretend that it had."""
    changed = [
        f"[model] {key}"
        for key in (
            "loss",
            "loss_parameter",
            "schedule",
            "mu",
            "lam",
            "n0",
            "power",
            "eps",
            "intercept",
        )
        if getattr(old.model, key) != getattr(new.model, key)
    ]
    changed += ["[durability] mode"] if old.durability.mode != new.durability.mode else []
    steps = [network.exchange.mode == "lockstep" for network in (old, new)]
    changed += ["[exchange] mode, to or from lockstep,"] if steps[0] != steps[1] else []
    if changed:
        raise BadInput(f"{new.path}: {changed[0]} was changed: restart this agent for that")


def _expiry(network: Network, name: str) -> float | None:
    """When the node's certificate runs out, in seconds since 1970."""
    from dokl.agents.certificates import expires

    ends = expires(network, name)
    return None if ends is None else ends.timestamp()


def _answer(future: Future[dict[str, Any]], answer: dict[str, Any]) -> None:
    if future.set_running_or_notify_cancel():
        future.set_result(answer)


def _refuse(future: Future[dict[str, Any]], error: Exception) -> None:
    if future.set_running_or_notify_cancel():
        future.set_exception(error)
