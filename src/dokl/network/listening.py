"""One node of a network that shares rows: what a live agent is, and what can be simulated.

    own         exactly an `AutoRegressor`, on the node's own rows
    network     a bank over (row, node) that learns every row received, the node's own among
                them, in the order in which they are
    corrected   the mean of both, by how sure each is, with what the node has learned of its errors
    mixture     of these three (`dokl.network.node`)

Two things happen to a node: it learns rows of its own, and it receives rows. The same events in the
same order and chunks give what the simulated node gives (`dokl.network.banks`), bit for bit; in
other chunks the same but for rounding.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dokl.base.arrays import Array, limited
from dokl.learning.experts import bank as banks
from dokl.learning.experts import learn as learning
from dokl.learning.experts import predicting
from dokl.learning.experts.bank import Bank, Prediction
from dokl.learning.experts.kinds import Settings
from dokl.learning.experts.scaling import Scaling
from dokl.network import node as nodes
from dokl.network.node import NetworkNode


@dataclass(frozen=True)
class ListeningNode:
    """node: own bank, corrections and mixture. bank: over (row, node), None while there is nobody
    to listen to. units: how its first map scaled inputs and targets, in which corrections are.
    """

    node: NetworkNode
    bank: Bank | None = None
    units: tuple[Scaling, Scaling] | None = None


def bank_settings(settings: Settings) -> Settings:
    """Of the bank over (row, node); settings: those of a single learner."""
    return replace(settings, grouped=True)


def start(d: int, m: int, settings: Settings, listens: bool = True) -> ListeningNode:
    """An untrained node; settings: those of a single learner. One that does not
    listen is that single learner, to the bit.
    """
    bank = _new_bank(d, m, settings) if listens else None
    return ListeningNode(nodes.start(d, m, settings), bank)


def _new_bank(d: int, m: int, settings: Settings) -> Bank:
    return banks.start(d + 1, m, bank_settings(settings))


# -- what happens to a node ------------------------------------------------------------------------
def learn(node: ListeningNode, number: int, X: Array, Y: Array) -> tuple[ListeningNode, Prediction]:
    """Rows X: (n, d), Y: (n, m) of the node, which has this number in the network's bank; what it
    predicted for each before it learned it.
    """
    Y = limited(Y)
    own, alone = learning.learn(node.node.own, X, Y)
    if node.bank is None or not len(X):
        return replace(node, node=replace(node.node, own=own)), alone
    shared = predicting.predict_with_variance(node.bank, _with(X, number))
    after, prediction = nodes.learn(replace(node.node, own=own), X, Y, None, alone, shared)
    return replace(node, node=after), prediction


def receive(
    node: ListeningNode, number: Array, X: Array, Y: Array, late: bool = False
) -> ListeningNode:
    """Rows X: (n, d), Y: (n, m) of nodes by number: (n,). late: they come long after their time,
    and short memories are not to lose newer rows to them.
    """
    own = node.node.own
    bank = _new_bank(own.d, own.m, own.settings) if node.bank is None else node.bank
    rows = np.hstack([X, np.asarray(number, np.float64)[:, None]])
    known = node.node
    if late:
        bank = learning.learn_late(bank, rows, limited(Y))
    else:
        before = bank
        bank, found = learning.learn(bank, rows, limited(Y))
        known = nodes.receive(known, before, found, limited(Y))
    units = node.units
    if units is None and bank.now is not None:
        units = bank.now.inputs, bank.now.targets
    return replace(node, node=_ready(known, units), bank=bank, units=units)


def forget_others(node: ListeningNode) -> ListeningNode:
    """The node with an untrained network's bank; corrections stay as they are."""
    own = node.node.own
    return replace(node, bank=_new_bank(own.d, own.m, own.settings))


def predict(node: ListeningNode, number: int, X: Array) -> Prediction:
    """Of rows X: (n, d) at the node with this number."""
    alone = predicting.predict_with_variance(node.node.own, X)
    if node.bank is None:
        return alone
    shared = predicting.predict_with_variance(node.bank, _with(X, number))
    return nodes.predict(node.node, X, alone, shared)


def _ready(node: NetworkNode, units: tuple[Scaling, Scaling] | None) -> NetworkNode:
    """The node with corrections, once the network has a map."""
    if units is None:
        return node
    inputs, targets = units
    return nodes.with_corrections(node, inputs, targets.size)


def _with(X: Array, number: int) -> Array:
    return np.hstack([X, np.full((len(X), 1), float(number))])
