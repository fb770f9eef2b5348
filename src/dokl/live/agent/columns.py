"""A journal of earlier columns becomes one of those of now, when its agent starts.

Rows that it has not learned are learned by the earlier columns first, as any restart does: then
every row is in the log of sealed batches, or among the own rows that wait to be sealed. The new
state has learned the own ones that are kept; the network's bank learns all kept ones again. All of
it is one change of the store, so a crash leaves the earlier columns or those of now.
"""

from __future__ import annotations

import numpy as np

from dokl.base.errors import BadInput
from dokl.live.agent.logs import Log
from dokl.live.description import Network
from dokl.live.description.epochs import waiting_map
from dokl.live.protocol.batches import Context, read_batch, read_rows
from dokl.live.protocol.local import LocalNode, RowLearning
from dokl.live.protocol.logs import OriginLog, restored
from dokl.live.rows import RowsLearner
from dokl.live.store import Store
from dokl.live.store.records import Identity


def take_over(store: Store, network: Network, name: str, log: Log) -> None:
    """Let the store of node `name` have the columns of the network."""
    former = next(each for each in network.former if each.fingerprint == store.fingerprint)
    earlier, learner = former.rows_learner(name), network.rows_learner(name)
    packed, learned, batches = store.restore()
    rows = RowLearning(earlier, None if packed is None else earlier.unpack(packed), learned)
    for X, Y in batches:
        LocalNode(rows).replay(X, Y)
    own, context = _own_log(store, learner), Context.of(learner)
    kept = [read_rows(context, batch) for batch in own.batches]
    none = np.zeros((0, learner.inputs)), np.zeros((0, learner.m))
    X, Y = map(np.concatenate, zip(none, *kept, strict=True))
    done = max(0, own.end - earlier.sealed(rows.state))
    state = learner.take_over(rows.state, store.fingerprint, X, Y, done)
    waiting = former.inputs, former.preprocessor(), network.inputs, network.preprocessor()
    m, D, d, agreed = learner.m, learner.D, learner.d, learner.fingerprint
    identity: Identity = {"name": name, "fingerprint": agreed, "m": m, "D": D, "d": d}
    gone = store.change_columns(identity, learner.pack(state), waiting_map(*waiting))
    came = [column for column in network.inputs.columns if column not in former.inputs.columns]
    went = [column for column in former.inputs.columns if column not in network.inputs.columns]
    count = int(state.count[0])
    log("columns changed", added=came, dropped=went, learned_again=count, expired=gone)


def _own_log(store: Store, learner: RowsLearner) -> OriginLog:
    """The sealed rows of its node that a store keeps."""
    context = Context.of(learner)
    try:
        every = [read_batch(context, sealed) for sealed in store.log()]
    except BadInput as error:
        raise BadInput(f"{store.path}: its rows cannot be kept: {error}") from None
    return restored([batch for batch in every if batch.origin == learner.name])
