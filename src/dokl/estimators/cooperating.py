"""The learning behind `NetworkRegressor` and `NetworkClassifier`: nodes that share sums of rows.

The estimators use these functions and nothing else of what lies below: `start`, `fit`, `learn`,
`predict`, `interval`, `ends`, `sharing`, `message_bytes` and `fingerprint`. A network is a value:
`fit` and `learn` return a new one.
"""

from __future__ import annotations

import numpy as np

from dokl import intervals
from dokl.arrays import Array
from dokl.errors import BadInput
from dokl.estimators import pilots
from dokl.estimators.choices import in_order
from dokl.estimators.pilots import CooperatingNetwork
from dokl.estimators.worth import SharingWorth, sharing_worth
from dokl.exchange import Exchange
from dokl.methods.cooperation import node, reach
from dokl.methods.cooperation.node import LEAST_WEIGHT, Said
from dokl.unlocked import one_thread

__all__ = [
    "LEAST_WEIGHT",
    "MOST_INPUTS",
    "CooperatingNetwork",
    "SharingWorth",
    "ends",
    "fingerprint",
    "fit",
    "interval",
    "learn",
    "message_bytes",
    "offset",
    "predict",
    "sharing",
    "start",
    "width",
]

# With more inputs, length scales take minutes to learn.
MOST_INPUTS = 300
BOUND = 10.0


def start(
    exchange: Exchange, K: int, m: int, most: int, seed: int, classes: int = 0
) -> CooperatingNetwork:
    """K nodes that have learned nothing. m: outputs; most: features; classes: 0 for numbers."""
    return CooperatingNetwork(exchange, K, m, most, seed, classes, BOUND)


def fit(
    network: CooperatingNetwork, X: Array, Y: Array, weight: Array, owner: Array | None
) -> tuple[CooperatingNetwork, Array, Array]:
    """Rows X: (n, d), Y: (n, m), weight and owner (the node): (n,), on one map made from all.

    Returns what was predicted of each row before it was learned, (n, m), and whether that was
    fair, (n,): by a map that the row did not choose.
    """
    owner = np.arange(len(X)) % network.K if owner is None else owner
    network, predicted, fair = pilots.fitted(network, X, Y, weight, in_order(network.K, owner))
    return network, predicted, fair & (weight >= LEAST_WEIGHT)


def learn(
    network: CooperatingNetwork, X: Array, Y: Array, weight: Array, owner: Array | None
) -> tuple[CooperatingNetwork, Said]:
    """Rows as for `fit`, once and in this order; what was predicted of each just before."""
    if owner is None:  # dealing goes on where it stopped, or node 0 would get all single rows
        owner = (np.arange(len(X)) + network.seen) % network.K
    network, predicted = pilots.learn(network, X, Y, weight, in_order(network.K, owner))
    if network.map is None:
        raise BadInput(
            f"all sample weights are below {LEAST_WEIGHT:g}: there is nothing to start from"
        )
    return network, predicted


def predict(network: CooperatingNetwork, X: Array, owner: Array | None = None) -> Array:
    """(n, m) of rows X: (n, d), each by the node `owner`: (n,); None: by what all have learned."""
    if owner is None:
        scores = np.asarray(network.learner.predict(network.learned_state, X), np.float64)
        return _outward(network, scores, None)
    scores = np.empty((len(X), network.m))
    for k in np.unique(owner):
        own = np.flatnonzero(owner == k)
        scores[own] = network.learner.predict(network.learned_state, X[own], k)
    return _outward(network, scores, owner)


@one_thread()
def interval(
    network: CooperatingNetwork, X: Array, coverage: float, owner: Array | None = None
) -> tuple[Array, Array]:
    """Ends (n, m) around `predict`, which hold the target in this share of rows."""
    Z, crew = network.learned_map.transform(X), network.crew
    if owner is None:
        mean, spread = _together(network, X, Z, coverage)
    else:
        mean, spread = np.empty((2, len(X), network.m))
        for k in np.unique(owner).tolist():
            own = np.flatnonzero(owner == k)
            mean[own], variance = node.predicted(crew, network.learned_state, k, Z[own])
            spread[own] = np.sqrt(variance) * width(network, k, coverage)
    return _outward(network, mean - spread, owner), _outward(network, mean + spread, owner)


def ends(predicted: Said, coverage: float) -> tuple[Array, Array]:
    """Ends (n, m) of the intervals that `learn` predicted."""
    first = intervals.start(outputs=predicted.mean.shape[1])
    far = intervals.width_at(first, coverage, predicted.widths) * np.sqrt(predicted.variance)
    return predicted.mean - far, predicted.mean + far


def sharing(network: CooperatingNetwork, names: list[object]) -> SharingWorth:
    """What sharing is worth to each node so far, and who could teach it most."""
    crew, made = network.crew, network.learned_map
    about = names, float(np.mean(made.targets.size**2)), made.offsets
    return sharing_worth(crew, network.learned_state, network.exchange, *about)


def message_bytes(network: CooperatingNetwork) -> int:
    """Bytes of what a node sends to each neighbour when it is time."""
    method = network.learner.problem.method
    return int(method.outgoing(network.learned_state.part(slice(0, 1))).nbytes)


def fingerprint(network: CooperatingNetwork) -> str:
    """Of the map that all nodes share."""
    return network.learned_map.fingerprint


def offset(network: CooperatingNetwork, k: int | None = None) -> Array:
    """What is added to the scores of node k, or for a row of any node, by rows seen: (m,)."""
    offsets, count = network.learned_map.offsets, network.learned_state.count
    whole: Array = count @ offsets / max(1, count.sum()) if k is None else offsets[k]
    return whole


def width(network: CooperatingNetwork, k: int, coverage: float) -> Array:
    """Half the width of intervals of node k in standard deviations: (m,)."""
    widths = reach.widths(network.learned_state.reach[k], network.learned_state.own_reach[k])
    return intervals.width_at(intervals.start(outputs=widths.shape[0]), coverage, widths)


def _outward(network: CooperatingNetwork, scores: Array, owner: Array | None) -> Array:
    """Scores (n, m) of these nodes, or of the network, in the targets' own units."""
    if owner is not None:
        return network.learned_map.outward(scores, owner)
    return network.learned_map.targets.outward(scores + offset(network))


def _together(
    network: CooperatingNetwork, X: Array, Z: Array, coverage: float
) -> tuple[Array, Array]:
    """What the network predicts, and half the width of its intervals, (n, m).

    A row is taken for that of any node, by how many each has seen, so squares add up: of the
    nodes' own half widths, and of how far what they predict lies from what the network does, which
    nobody has tracked and counts as a standard deviation.
    """
    from scipy.special import ndtri

    state, crew = network.learned_state, network.crew
    far = float(ndtri(0.5 + 0.5 * intervals.check_level(coverage)))
    mean = np.asarray(network.learner.predict(state, X), np.float64)
    squares = np.zeros_like(mean)
    for k in np.flatnonzero(state.count).tolist():
        own, variance = node.predicted(crew, state, k, Z)
        own += offset(network, k) - offset(network)
        wide = variance * width(network, k, coverage) ** 2
        squares += state.count[k] / state.count.sum() * (wide + (far * (own - mean)) ** 2)
    return mean, np.sqrt(squares)
