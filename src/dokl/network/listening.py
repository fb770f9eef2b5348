"""One node of a network that shares rows: what a live agent is, and what can be simulated.

    own         exactly the lone learner, on the node's own rows
    network     a bank over (row, node) that learns every row that is heard, the node's own among
                them, in the order in which they are
    corrected   the network's prediction with what the node has learned of its errors here
    mixture     of these three (`dokl.network.node`)

Two things happen to a node: it learns rows of its own, one by one, and it hears rows. The same
events in the same order, heard rows in the same chunks, give what the simulated node gives
(`dokl.network.banks`), bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dokl.base.arrays import Array, limited
from dokl.learning.experts import bank as banks
from dokl.learning.experts import learn as learning
from dokl.learning.experts import predicting
from dokl.learning.experts.bank import Bank, Prediction
from dokl.learning.experts.kinds import Settings, of_groups
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
    """Of the bank over (row, node); settings: those of a lone learner."""
    return replace(settings, kinds=of_groups(settings.kinds), grouped=True)


def start(d: int, m: int, settings: Settings, listens: bool = True) -> ListeningNode:
    """A node that has seen and heard nothing; settings: those of a lone learner. One that does not
    listen is that lone learner, to the bit.
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
    found = [predict(node, number, X[:0])]
    for i in range(len(X)):
        node, told = _learn_one(node, number, X[i : i + 1], Y[i : i + 1])
        found.append(told)
    parts = zip(*(vars(each).values() for each in found), strict=True)
    return node, Prediction(*map(np.concatenate, parts))


def hear(
    node: ListeningNode, number: Array, X: Array, Y: Array, late: bool = False
) -> ListeningNode:
    """Rows X: (n, d), Y: (n, m) of nodes by number: (n,). late: they come long after their time,
    and short memories are not to lose newer rows to them.
    """
    own = node.node.own
    bank = _new_bank(own.d, own.m, own.settings) if node.bank is None else node.bank
    rows = np.hstack([X, np.asarray(number, np.float64)[:, None]])
    if late:
        bank = learning.learn_late(bank, rows, limited(Y))
    else:
        bank, _ = learning.learn(bank, rows, limited(Y))
    units = node.units
    if units is None and bank.now is not None:
        units = bank.now.inputs, bank.now.targets
    return replace(node, node=_ready(node.node, units), bank=bank, units=units)


def forget_others(node: ListeningNode) -> ListeningNode:
    """The node with a network's bank that has heard nothing; corrections stay as they are."""
    own = node.node.own
    return replace(node, bank=_new_bank(own.d, own.m, own.settings))


def predict(node: ListeningNode, number: int, X: Array) -> Prediction:
    """Of rows X: (n, d) at the node with this number."""
    alone = predicting.predict_with_variance(node.node.own, X)
    if node.bank is None:
        return alone
    shared = predicting.predict_with_variance(node.bank, _with(X, number))
    return nodes.predict(node.node, X, alone, shared)


def _learn_one(
    node: ListeningNode, number: int, x: Array, y: Array
) -> tuple[ListeningNode, Prediction]:
    """One row: (1, d) and (1, m)."""
    own, alone = learning.learn(node.node.own, x, y)
    if node.bank is None:
        return replace(node, node=replace(node.node, own=own)), alone
    shared = predicting.predict_with_variance(node.bank, _with(x, number))
    after, told = nodes.learn(replace(node.node, own=own), x, y, None, alone, shared)
    return replace(node, node=after), told


def _ready(node: NetworkNode, units: tuple[Scaling, Scaling] | None) -> NetworkNode:
    """The node with corrections, once the network has a map."""
    if units is None:
        return node
    inputs, targets = units
    return nodes.with_corrections(node, inputs, targets.size)


def _with(X: Array, number: int) -> Array:
    return np.hstack([X, np.full((len(X), 1), float(number))])
