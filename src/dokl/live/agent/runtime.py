"""An agent: a service that has neighbours, tied to them by a protocol and a transport.

Messages are part of the groups that `Service` stores: what follows from them is committed first,
and only then adopted and sent on.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

from dokl.base.arrays import Array
from dokl.live.agent import status
from dokl.live.agent.clock import Clock
from dokl.live.agent.effect_handlers import EffectHandler, SendingHandler
from dokl.live.agent.group import Group
from dokl.live.agent.inbox import Inbox
from dokl.live.agent.logs import Log
from dokl.live.agent.problems import Disputes
from dokl.live.agent.reloading import changes, expiry, reload_description
from dokl.live.agent.replies import Job
from dokl.live.agent.restoring import restored_protocol
from dokl.live.agent.rolls import roll_of
from dokl.live.agent.service import IDLE, RETRY, Service
from dokl.live.description import Network
from dokl.live.listeners import LEVEL, ListeningLearner
from dokl.live.protocol import Protocol
from dokl.live.protocol.effects import Effect
from dokl.live.store import Store, StoreFailed
from dokl.live.transports import Transport
from dokl.network.state import State

LIVELY = 2.0  # seconds after a message in which the next one is looked for at the pace of exchange
AHEAD = 86_400.0  # seconds by which a neighbour's clock may be ahead of ours when it starts
SQUARES_ROWS = 1000  # rows between two snapshots by method "squares", at most
PATIENCE = 0.1  # seconds for which rows that arrive put messages and what is due off, at most


class Agent(Service):
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
        self.network, self.transport = network, transport
        self.when_reloaded: Callable[[], None] = lambda: None
        self.certificate_expires = expiry(network, name)
        super().__init__(network, name, network.learner(name), store, clock, log, warm)
        self._disputes = Disputes(self.log)
        self._inbox = Inbox(transport, self.log)
        self._lively_until = self._began
        self._put_off = math.inf  # since when rows that arrive put the rest off
        self._calm_until = -math.inf  # until when what is due is not tried again
        self._everything = True  # whether messages and what is due are part of the present group
        if isinstance(self.learner, ListeningLearner):
            self.coverage = LEVEL

    def _new_handler(self) -> EffectHandler:
        receivers = self.curve, self.newest, self.log, self.clock
        return SendingHandler(self.transport, *receivers)

    def _restored(self, warm: State | None) -> Protocol:
        receivers = self.log, self.problems, self._handler.note
        given = self.network, self.name, self.learner, self.store, warm
        offset = self.clock.wall() - self.clock.now()
        self.protocol = restored_protocol(*given, *receivers, offset)
        return self.protocol

    # -- for everyone, from any thread -------------------------------------------------------
    def _open(self) -> None:
        self.transport.open()
        network, mark = self.network.about.name, self.learner.fingerprint
        near = list(self.network.neighbours(self.name))
        self.log("started", network=network, fingerprint=mark, neighbours=near, pid=os.getpid())

    def _close(self) -> None:
        self.transport.close()

    def further(self, X: Array, names: Sequence[str]) -> dict[str, Any]:
        """What else was asked of inputs X: (n, d): intervals, of method "squares"."""
        if isinstance(self.learner, ListeningLearner) and list(names) == ["intervals"]:
            return self.learner.interval_answers(self._adopted, X)
        return super().further(X, names)

    def _facts(self) -> dict[str, Any]:
        return status.of_agent(self)

    def not_ready(self) -> str:
        """The same; a newcomer first starts from its neighbours' vectors."""
        if self.protocol.joining:
            return "joining: it looks for neighbours to start from"
        return super().not_ready()

    def wake(self) -> None:
        """Something arrived: look at it soon."""
        with self._ready:
            self._wakened = True
            self._ready.notify()

    @property
    def _snapshot_rows(self) -> int:
        """Rows after which the state is written: least squares takes longer to learn them again."""
        rows = super()._snapshot_rows
        return min(rows, SQUARES_ROWS) if isinstance(self.learner, ListeningLearner) else rows

    # -- the thread --------------------------------------------------------------------------
    @property
    def _unfinished(self) -> bool:
        return self._put_off < math.inf

    def _longest_pause(self, now: float) -> float:
        """Not all transports report arrivals."""
        pace = self.network.exchange.every_seconds
        return pace if 0 < pace < IDLE and now < self._lively_until else IDLE

    def _events(self, group: Group, jobs: list[Job], now: float) -> None:
        """Who sends rows is answered first: messages and what is due, which may be a solution for
        D unknowns, come in a turn of their own, unless rows never cease.
        """
        self.protocol.offset = self.clock.wall() - now
        self._everything = not jobs or now >= self._put_off + PATIENCE
        self._put_off = math.inf if self._everything else min(now, self._put_off)
        group.effects += self._receive(now) if self._everything else []
        super()._events(group, jobs, now)
        if self._everything:
            self._tick(group, now)

    def _tick(self, group: Group, now: float) -> None:
        """What is due; where that fails it is due again, and must not be tried without end."""
        if now >= self._calm_until:
            tick = partial(self.protocol.tick, now)
            group.effects += self._guarded(tick, self._calm_down)

    def _calm_down(self) -> None:
        self._calm_until = self.clock.now() + RETRY

    def _pause(self, now: float) -> float:
        learning = self.node.queued and self.node.learns
        pause = super()._pause(now)
        return pause if learning else max(pause, self._calm_until - now)

    def _committed(self, now: float) -> None:
        if self._everything:
            self._inbox.clear()
        else:
            self._wakened = True  # the rest follows at once
        self._disputes.see(self.protocol.disputes(now))

    def _given_up(self) -> None:
        if self._put_off == math.inf:  # not a turn of rows alone
            self._inbox.clear()

    def _not_stored(self, error: StoreFailed, jobs: list[Job]) -> None:
        self.protocol.put_off_sealing(self.clock.now())
        super()._not_stored(error, jobs)

    def _receive(self, now: float) -> list[Effect]:
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

    def _carry_out(self, effects: list[Effect], now: float) -> None:
        super()._carry_out(effects, now)
        if self.network.exchange.mode == "pull" and self.protocol.step:
            packed, hello = self.protocol.packed(now), self.protocol.hello(now)
            self.transport.offer(packed, (self.store.incarnation, self.protocol.step), hello)

    # -- changes -----------------------------------------------------------------------------
    def finish_source(self) -> None:
        """The own stream is at its end: neighbours in lockstep need not wait for it."""
        now = self.clock.now
        self.order(lambda: self._carry_out(self.protocol.finish(now()), now()))

    def reload(self, path: Path) -> Future[None]:
        """Take a changed description: new neighbours, a new access table, new certificates."""
        return self._ordered(partial(self._reload, path))

    def _reload(self, path: Path) -> None:
        before = self.network
        try:
            network = reload_description(path, self.name, self.network)
            roll = roll_of(network, self.name)
            self.protocol.check_change(roll)
            self.transport.reopen(network)  # which refuses certificates that cannot be used
            self.description = self.network = network
            self.inputs.most_rows = network.limits.queue_rows
            self.protocol.change(network.neighbours(self.name), network.exchange, roll)
            self.certificate_expires = expiry(network, self.name)
            self.when_reloaded()
        except Exception as error:  # of files and certificates, too; samples go on
            self.log("reload refused", reason=str(error))
            self._audited("reload", ok=False, why=str(error))
            self.problems["reload"] = f"the changed description was refused: {error}"
            raise
        self.problems.pop("reload", None)
        self.log("reloaded", neighbours=list(network.neighbours(self.name)))
        self._audited("reload", ok=True, **changes(before, network, self.name))
