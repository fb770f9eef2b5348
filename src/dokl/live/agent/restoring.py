"""An agent's state from its store: the snapshot, and the journal after it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from dokl.live.agent.logs import Log
from dokl.live.agent.problems import Problems
from dokl.live.agent.rolls import roll_of
from dokl.live.description import Network
from dokl.live.protocol import Protocol
from dokl.live.protocol.effects import Effect
from dokl.live.protocol.sealing import UNKNOWN
from dokl.live.store import Store, StoreFailed
from dokl.live.sums import SumsLearner
from dokl.network.state import State
from dokl.simulation.learner import Learner


def restored(
    network: Network,
    name: str,
    learner: Learner,
    store: Store,
    warm: State | None,
    log: Log,
    problems: Problems,
    note: Callable[[Effect], None],
) -> Protocol:
    """The protocol as it was before the end, however that came.

    warm: a state to begin with where the store has none. note: hears what replayed rows did.
    """
    packed, learned, batches = store.restore()
    state = warm if packed is None else learner.unpack(packed)
    known = store.sealed()
    sure = known is not None and not store.power_cut  # which may have taken what was sealed last
    sealed = (
        known if known is not None and sure else (UNKNOWN[0], b"" if known is None else known[1])
    )
    protocol = Protocol(
        learner,
        name,
        network.neighbours(name),
        network.exchange,
        store.incarnation,
        state,
        learned,
        roll_of(network, name),
        sealed,
    )
    if store.power_cut:
        text = f"the last {store.power_cut:,} acknowledged rows went when the machine did"
        problems.note("lost", text)
        log("rows lost", rows=store.power_cut, text=text)
    replayed = 0
    for X, Y in batches:
        for effect in protocol.replay(X, Y):
            note(effect)
        replayed += len(X)
    if isinstance(learner, SumsLearner) and not sure:
        with suppress(StoreFailed), store.transaction() as transaction:  # the same the next time
            transaction.sealed(learner.own_rows(protocol.state), sealed[1])
    if replayed or packed is not None:
        log("restored", learned=protocol.learned, replayed=replayed)
    elif warm is not None:
        with store.transaction() as transaction:  # the journal begins from here
            transaction.snapshot(learner.pack(warm), 0)
        log("warm start", count=int(warm.count[0]))
    return protocol
