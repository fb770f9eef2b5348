"""One node of a network that shares sums: what a live agent is, and what can be simulated.

    own         exactly an `AutoRegressor`, on the node's own rows
    network     experts on the agreed map that know the total of all sums as last received,
                mixed by what each would have gained on this node's rows
    corrected   the mean of both, by how sure each is, with what the node has learned of its errors
    mixture     of these three (`dokl.network.node`)

Two things happen to a node: it learns rows of its own, and it receives a new total. Between two
totals the network's experts stay as they are. Rows are learned one by one, so the same rows and
totals in the same order give the same bits however rows are cut into calls: after a crash the rows
of the journal, cut as they may be, give what they gave before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from dokl.base.arrays import Array
from dokl.learning import mixture as mixing
from dokl.learning.experts import learn as learning
from dokl.learning.experts import predicting
from dokl.learning.experts.bank import Prediction, mean_and_variance
from dokl.learning.experts.kinds import Settings
from dokl.learning.experts.scaling import Scaling
from dokl.learning.mixture import Mixture
from dokl.learning.squares import sums as adding
from dokl.learning.squares.memory import LIST, Memory
from dokl.learning.squares.sums import Sums
from dokl.network import node as nodes
from dokl.network.agreed import AgreedMap, LearnedMap
from dokl.network.node import NetworkNode
from dokl.network.sharing import SUMMED
from dokl.network.sums import shared

# The network's experts: memory in rows of the network, and centres, None for all.
EXPERTS = tuple((kind.memory, kind.width) for kind in SUMMED)
_EVERYBODY = np.ones(len(EXPERTS), bool)
# Of standardised targets. Sums travel in float32: one square that does not fit, and no neighbour
# could read this node's sums any more.
LARGEST = 1e12


@dataclass(frozen=True)
class OwnSums:
    """Sums of the node's own rows. added: of most of them; Z: (LIST, D), Y: (LIST, m) and weight:
    (LIST,) of the newest n, which are added when the list is full: one product for many rows.
    """

    added: Sums
    Z: Array
    Y: Array
    weight: Array
    n: int = 0

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return self.added.rows + self.n

    def total(self) -> Sums:
        """Of all rows."""
        if not self.n:
            return self.added
        return adding.add(self.added, self.Z[: self.n], self.Y[: self.n], self.weight[: self.n])


@dataclass(frozen=True)
class SummingNode:
    """node: own bank, corrections and mixture. memories: of the network's EXPERTS, none before
    anything was received; mixture: of these. own: sums of the node's rows, on the agreed map.
    """

    node: NetworkNode
    own: OwnSums
    memories: tuple[Memory, ...] = ()
    mixture: Mixture = field(default_factory=lambda: mixing.start(len(EXPERTS)))


def start(made: AgreedMap, settings: Settings) -> SummingNode:
    """An untrained node; settings: those of a single learner."""
    nothing = sums_of(adding.no_rows(made.D, made.m))
    return SummingNode(nodes.start(made.d, made.m, settings), nothing)


def sums_of(total: Sums) -> OwnSums:
    """Own sums of rows that were added up before."""
    m, D = total.zy.shape
    return OwnSums(total, np.zeros((LIST, D)), np.zeros((LIST, m)), np.zeros(LIST))


# -- what happens to a node ------------------------------------------------------------------------
def learn(
    node: SummingNode, made: AgreedMap, number: int, X: Array, Y: Array
) -> tuple[SummingNode, Prediction]:
    """Rows X: (n, d), Y: (n, m) of the node with this number on the map; what it predicted for
    each before it learned it.
    """
    found = [predict(node, made, number, X[:0])]
    for i in range(len(X)):
        node, prediction = _learn_one(node, made, number, X[i : i + 1], Y[i : i + 1])
        found.append(prediction)
    parts = zip(*(vars(each).values() for each in found), strict=True)
    return node, Prediction(*map(np.concatenate, parts))


def receive(node: SummingNode, made: AgreedMap, totals: Sequence[Sums]) -> SummingNode:
    """The node with a new total of all nodes' rows, its own among them: for each of
    EXPERTS what it has not forgotten, of its features.
    """
    pairs = zip(totals, EXPERTS, strict=True)
    known = (adding.narrow(total, made.width(centres)) for total, (_, centres) in pairs)
    first = node.node if node.memories else _listening(node.node, made)
    solved = tuple(shared.to_memory(each, made.ridge) for each in known)
    return replace(node, node=first, memories=solved)


def predict(node: SummingNode, made: AgreedMap, number: int, X: Array) -> Prediction:
    """Of rows X: (n, d) at the node with this number on the map."""
    alone = predicting.predict_with_variance(node.node.own, X)
    if not node.memories:
        return nodes.predict(node.node, X, alone, alone)
    F, V = _by_experts(node.memories, made, made.transform(X, number))
    mean, variance = mixing.combine(node.mixture.weights(_EVERYBODY), F, V)
    return nodes.predict(node.node, X, alone, Prediction(mean, variance, alone.widths))


def _learn_one(
    node: SummingNode, made: AgreedMap, number: int, x: Array, y: Array
) -> tuple[SummingNode, Prediction]:
    """One row: (1, d) and (1, m)."""
    Z, bound = made.transform(x, number), node.node.own.settings.bound
    known = node.node.own.now is not None
    own, alone = learning.learn(node.node.own, x, y)
    weight = _bound_weight(alone, y, bound) if known else 1.0
    prediction, mixture = alone, node.mixture
    if node.memories:
        F, V = _by_experts(node.memories, made, Z)
        mixture, mean, variance = mixing.mix(
            mixture, F, V, y, _EVERYBODY, None, bound, relative=True
        )
        prediction = Prediction(mean, variance, alone.widths)
    after, found = nodes.learn(replace(node.node, own=own), x, y, None, alone, prediction)
    size = np.clip(made.targets.inward(y)[0], -LARGEST, LARGEST)
    sums = _with_row(node.own, Z[0], size, weight)
    return replace(node, node=after, own=sums, mixture=mixture), found


def _by_experts(memories: Sequence[Memory], made: AgreedMap, Z: Array) -> tuple[Array, Array]:
    """Means and variances (n, E, m) of rows with features Z: (n, D), in the targets' units."""
    F, V = [], []
    for memory, (_, centres) in zip(memories, EXPERTS, strict=True):
        z = np.ascontiguousarray(Z[:, : made.width(centres)])
        mean, variance = memory.predict(z)
        F.append(made.targets.outward(mean))
        V.append(variance * made.targets.size**2)
    return np.stack(F, axis=1), np.stack(V, axis=1)


def _listening(node: NetworkNode, made: AgreedMap) -> NetworkNode:
    """The node with corrections, now that there is something to correct."""
    now = node.own.now
    if isinstance(made, LearnedMap):
        inputs, size = made.inputs, made.targets.size
    elif now is not None:
        inputs, size = now.inputs, now.targets.size
    else:
        inputs, size = Scaling(np.zeros(made.d), np.ones(made.d)), _spread(node)
    return nodes.with_corrections(node, inputs, size)


def _spread(node: NetworkNode) -> Array:
    """The standard deviation (m,) of the targets so far, 1 where there is none."""
    size = np.sqrt(mean_and_variance(node.own.total)[1])
    return np.where(size > 0, size, 1.0)


def _bound_weight(alone: Prediction, y: Array, bound: float) -> float:
    """What a row weighs in the sums: one that is more than n standard deviations from what
    the own learner predicts pulls like one of that size. It follows from own rows alone.
    """
    size = float(np.sqrt(np.mean((y - alone.mean) ** 2 / np.maximum(alone.variance, 1e-300))))
    return 1.0 if size <= bound else bound / size


def _with_row(own: OwnSums, z: Array, y: Array, weight: float) -> OwnSums:
    """With a row more. Places beyond n are nobody's: an earlier record does not look at them."""
    n = own.n
    own.Z[n], own.Y[n], own.weight[n] = z, y, weight
    own = replace(own, n=n + 1)
    return own if n + 1 < LIST else sums_of(own.total())
