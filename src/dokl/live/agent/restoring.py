"""A service's state from its store: the snapshot, and the journal after it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from dokl.live.agent.columns import take_over
from dokl.live.agent.logs import Log
from dokl.live.agent.problems import Problems
from dokl.live.agent.rolls import roll_of
from dokl.live.description import Network
from dokl.live.protocol import Protocol
from dokl.live.protocol.effects import Effect
from dokl.live.protocol.local import LocalNode
from dokl.live.protocol.sealing import UNKNOWN
from dokl.live.store import Store, StoreFailed
from dokl.live.sums import SumsLearner
from dokl.network.state import State
from dokl.simulation.learner import Learner

Restored = TypeVar("Restored", bound=LocalNode)


def restored(
    store: Store,
    learner: Learner,
    warm: State | None,
    made: Callable[[State | None, int], Restored],
    log: Log,
    problems: Problems,
    note: Callable[[Effect], None],
) -> Restored:
    """What learns, as it was before the end, however that came.

    warm: a state to begin with where the store has none. made: gives a node of a state and the
    number of rows in it. note: receives what replayed rows did.
    """
    packed, learned, batches = store.restore()
    node = made(warm if packed is None else learner.unpack(packed), learned)
    if store.power_cut:
        text = f"the last {store.power_cut:,} acknowledged rows went when the machine did"
        problems.note("lost", text)
        log("rows lost", rows=store.power_cut, text=text)
    replayed = 0
    for X, Y in batches:
        for effect in node.replay(X, Y):
            note(effect)
        replayed += len(X)
    if replayed or packed is not None:
        log("restored", learned=node.learned, replayed=replayed)
    elif warm is not None:
        with store.transaction() as transaction:  # the journal begins from here
            transaction.snapshot(learner.pack(warm), 0)
        log("warm start", count=int(warm.count[0]))
    return node


def restored_protocol(
    network: Network,
    name: str,
    learner: Learner,
    store: Store,
    warm: State | None,
    log: Log,
    problems: Problems,
    note: Callable[[Effect], None],
    offset: float = 0.0,
) -> Protocol:
    """The protocol of a node of a network, with the sums that it sealed last, or the rows that it
    keeps. offset: what the clock of events lacks to be that of people.
    """
    if store.fingerprint != learner.fingerprint:
        take_over(store, network, name, log)
    known = store.sealed()
    sure = known is not None and not store.power_cut  # which may have taken what was sealed last
    sealed = (
        known if known is not None and sure else (UNKNOWN[0], b"" if known is None else known[1])
    )

    def made(state: State | None, learned: int) -> Protocol:
        given = learner, name, network.neighbours(name), network.exchange, store.incarnation
        roll, stored = roll_of(network, name), store.log()
        return Protocol(*given, state, learned, roll, sealed, stored, offset)

    protocol = restored(store, learner, warm, made, log, problems, note)
    if isinstance(learner, SumsLearner) and not sure:
        with suppress(StoreFailed), store.transaction() as transaction:  # the same the next time
            transaction.sealed(learner.own_rows(protocol.state), sealed[1])
    if protocol.renumber():
        with suppress(StoreFailed), store.transaction() as transaction:
            transaction.snapshot(protocol.packed_state(), protocol.learned)
    return protocol
