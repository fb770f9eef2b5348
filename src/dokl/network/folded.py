"""What predicts at one node of a network, folded: a sum of parts without matrices.

A node mixes its own bank, the network's bank and that bank with corrections. Each mean is a sum of
kernels, or linear (`dokl.learning.experts.folding`), so the mixture is one, too:

    f = w_own own(x) + w_network network(x, node) + w_correction correction(x)

Every part has its own scaling of inputs, and its weight is in the scale of its targets. What is
folded predicts later rows: what the last errors predict for the next row is left out.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from dokl.base.arrays import Array
from dokl.learning import intervals
from dokl.learning.experts import folding
from dokl.learning.experts.bank import Bank
from dokl.learning.experts.folding import Folded, Part, Waves
from dokl.learning.experts.scaling import Scaling
from dokl.network import banks
from dokl.network.agreed import AgreedMap, LearnedMap
from dokl.network.banks import BankNetwork
from dokl.network.corrections import ERRORS, EXPERTS, OWN, Corrections
from dokl.network.listening import ListeningNode
from dokl.network.node import NetworkNode
from dokl.network.summing import SummingNode

# Rows by which the one width of a node's intervals is set: what comes next is like them.
NEWEST = 100


def folded_parts(network: BankNetwork, k: int) -> tuple[Part, ...]:
    """Parts whose predictions add up to that of node k; -1: of a node that nobody has seen."""
    if k >= 0 or network.K == 1:
        return _at(network, max(k, 0))
    bank = network.bank
    if bank is not None and bank.now is not None:
        return (_of_group(bank, k),)
    seen = network.seen
    if not seen.any():
        return (folding.fold(network.nodes[0].own),)
    shares = (seen / seen.sum()).tolist()
    pairs = zip(network.nodes, shares, strict=True)
    return tuple(_weigh(folding.fold(node.own), w) for node, w in pairs if w > 0)


def summing_parts(node: SummingNode, made: AgreedMap, number: int) -> tuple[Part, ...]:
    """Parts whose predictions add up to that of a node that shares sums."""
    if not node.memories:
        return (folding.fold(node.node.own),)
    return _mix(node.node, _of_network(node, made, number))


def _of_network(node: SummingNode, made: AgreedMap, number: int) -> Part:
    """What the network's experts predict together."""
    theta = np.zeros((made.m, made.D))
    weights = node.mixture.weights(np.ones(len(node.memories), bool)).tolist()
    for w, memory in zip(weights, node.memories, strict=True):
        theta[:, : memory.theta.shape[1]] += w * memory.theta
    if isinstance(made, LearnedMap):
        return folding.folded_on_map(made.made, made.inputs, made.targets, theta, number)
    drawn = made.features
    phases = None if drawn.paired else drawn.phases
    return Waves(drawn.dense_omega(), phases, drawn.scale, theta, np.zeros(made.m))


def interval_width(network: BankNetwork, k: int, coverage: float) -> Array:
    """Half the width (m,) that intervals of node k (-1: of a node that nobody has seen) have on
    average for the newest rows that are kept: of the node, or of all where it has none.
    """
    X = _newest(network, k)
    found = banks.predict(banks.for_later_rows(network), X, np.full(len(X), k))
    width = intervals.width_at(network.nodes[0].own.tracker, coverage, found.widths)
    return np.asarray((width * np.sqrt(found.variance)).mean(axis=0))


def _at(network: BankNetwork, k: int) -> tuple[Part, ...]:
    """Of a node of the network, by the weights of its members."""
    return _listening(banks.ready(network, network.nodes[k]), network.bank, k)


def listening_parts(node: ListeningNode, number: int) -> tuple[Part, ...]:
    """Parts whose predictions add up to that of a node that shares rows."""
    return _listening(node.node, node.bank, number)


def _listening(node: NetworkNode, bank: Bank | None, k: int) -> tuple[Part, ...]:
    """Of a node with a network's bank, if there is one yet."""
    if bank is None:
        return (folding.fold(node.own),)
    return _mix(node, _of_group(bank, k))


def _mix(node: NetworkNode, network: Part) -> tuple[Part, ...]:
    """By the weights of the node's members; network: what all nodes together predict here."""
    own, shared, corrected = node.weights.tolist()
    if node.corrections is not None:
        weights, share = node.corrections.weights.tolist(), node.share
        by_own = weights[0] * (1.0 - share)
        for w, expert in zip(weights[1:], EXPERTS, strict=True):
            by_own += w if expert.bank == OWN else w * (1.0 - share)
        own, shared = own + corrected * by_own, shared + corrected * (1.0 - by_own)
    else:
        shared += corrected
    parts = [(own, folding.fold(node.own)), (shared, network)]
    if node.corrections is not None:
        parts.append((corrected, _linear(node.corrections)))
    return tuple(_weigh(part, w) for w, part in parts if w > 0)


def _of_group(bank: Bank, k: int) -> Folded:
    """The network's bank for the rows of one node, without the column of its number."""
    made, d = folding.fold(bank, k), bank.d - 1
    if bank.now is not None:
        return made
    inputs = Scaling(made.inputs.centre[:d], made.inputs.size[:d])
    return replace(made, inputs=inputs, slope=made.slope[:, :d])


def _linear(known: Corrections) -> Folded:
    """The corrections: a constant, and a slope for standardised inputs."""
    d, m = len(known.inputs.centre), len(known.size)
    total = np.zeros((m, 1 + d))
    for w, expert, memory in zip(known.weights[1:].tolist(), EXPERTS, known.memories, strict=True):
        if expert.features != ERRORS:
            total[:, : memory.theta.shape[1]] += w * memory.theta
    slope = total[:, 1:] / math.sqrt(max(1, d))
    return Folded(known.inputs, Scaling(np.zeros(m), known.size), total[:, 0], slope, ())


def _weigh(part: Part, weight: float) -> Part:
    """A part times its weight."""
    if isinstance(part, Waves):
        return replace(part, theta=weight * part.theta, constant=weight * part.constant)
    targets = Scaling(weight * part.targets.centre, weight * part.targets.size)
    return replace(part, targets=targets)


def _newest(network: BankNetwork, k: int) -> Array:
    """Up to NEWEST rows (n, d) of a node, or of all: each node's newest in turn."""
    own = [node.own.stored.newest()[0] for node in network.nodes]
    if (k >= 0 or network.K == 1) and len(own[max(k, 0)]):
        return own[max(k, 0)][-NEWEST:]
    some = [rows[::-1] for rows in own if len(rows)]
    each = -(-NEWEST // max(1, len(some)))
    return np.concatenate([rows[:each] for rows in some] or [own[0]])
