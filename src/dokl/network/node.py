"""A node of a network: a lone learner that also listens.

    own         exactly the lone learner, on the node's own rows
    network     the bank over (row, node), which learns what everybody shares
    corrected   the network's prediction with what the node has learned of its errors here
    mixture     of these three, weighted by what each would have gained on the node's own rows

So a node is never much worse than it would be alone, and where others help it is better.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np

from dokl.base.arrays import Array
from dokl.learning import intervals
from dokl.learning import mixture as mixing
from dokl.learning.experts import bank as banks
from dokl.learning.experts.bank import Bank, Prediction
from dokl.learning.experts.kinds import Settings
from dokl.learning.experts.scaling import Scaling
from dokl.learning.intervals import LEVELS, Tracker
from dokl.learning.mixture import Mixture
from dokl.network import corrections as correcting
from dokl.network.corrections import Corrections

MEMBERS = ("own", "network", "corrected")
# Before its first rows a node believes the network, with its own correction: as though that had
# gained as much as one row can give.
FIRST_GAIN = mixing.MOST
# Rows over which errors are averaged for people to read, and a node's first rows, which are not
# counted: everybody errs there.
LATELY, BEGINNING = 1000.0, 50
_LEVEL = LEVELS.index(0.9)


@dataclass(frozen=True)
class Errors:
    """Discounted sums: of squared errors, (3,) of the lone learner, of the network and of the
    mixture, of how often 90 % intervals held, and of their weight. rows: seen.
    """

    total: Array = field(default_factory=lambda: np.zeros(3))
    covered: float = 0.0
    weight: float = 0.0
    rows: int = 0


@dataclass(frozen=True)
class NetworkNode:
    """own: the lone learner; corrections: None before the network has a map; mixture: of MEMBERS;
    tracker: of the widths of intervals.
    """

    own: Bank
    mixture: Mixture
    tracker: Tracker
    corrections: Corrections | None = None
    errors: Errors = field(default_factory=Errors)

    @property
    def weights(self) -> Array:
        """What each of MEMBERS counts in the next prediction: (3,)."""
        return self.mixture.weights(self.awake)

    @property
    def awake(self) -> Array:
        """Which of MEMBERS know anything: (3,)."""
        return np.array([self.own.seen > 0, True, self.corrections is not None])


def start(d: int, m: int, settings: Settings) -> NetworkNode:
    """A node that has seen nothing."""
    gain = np.array([0.0, 0.0, FIRST_GAIN])
    mixture = Mixture(gain, np.zeros(len(MEMBERS)), FIRST_GAIN**2)
    own = banks.start(d, m, settings)
    return NetworkNode(own, mixture, intervals.start(settings.levels, m))


def with_corrections(node: NetworkNode, inputs: Scaling, size: Array) -> NetworkNode:
    """The node once the network has a map, whose inputs (d) and targets (m) have these scales."""
    if node.corrections is not None:
        return node
    return replace(node, corrections=correcting.start(inputs, size))


def learn(
    node: NetworkNode,
    X: Array,
    Y: Array,
    weight: Array | None,
    alone: Prediction,
    shared: Prediction,
) -> tuple[NetworkNode, Prediction]:
    """Rows X: (n, d), Y: (n, m) of the node, which its own bank (`node.own`, by now) predicted as
    `alone` and the network as `shared` before they were learned. Returns what the node predicted.
    """
    bound, known = node.own.settings.bound, node.corrections
    corrected = shared.mean, shared.variance
    if known is not None:
        known, *corrected = correcting.learn(known, X, Y, *corrected, weight, bound)  # type: ignore[assignment]
    F, V = _stacked(alone, shared, corrected)
    awake = np.array([True, True, known is not None])
    mixture, mean, variance = mixing.mixed(node.mixture, F, V, Y, awake, weight, bound, True)
    scores = np.abs(Y - mean) / np.sqrt(np.maximum(variance, 1e-300))
    tracker, widths = intervals.follow_scores(node.tracker, scores)
    inside = (scores <= widths[:, :, _LEVEL]).mean(axis=1)
    most = bound**2 * variance if bound < math.inf else np.full(variance.shape, math.inf)
    errors = _counted(node.errors, [alone.mean, shared.mean, mean], Y, inside, most)
    node = replace(node, mixture=mixture, tracker=tracker, corrections=known, errors=errors)
    return node, Prediction(mean, variance, widths)


def predict(node: NetworkNode, X: Array, alone: Prediction, shared: Prediction) -> Prediction:
    """What the node predicts for rows X: (n, d), given what its own bank and the network do."""
    corrected = shared.mean, shared.variance
    if node.corrections is not None:
        corrected = correcting.predict(node.corrections, X, *corrected)
    mean, variance = mixing.combine(node.weights, *_stacked(alone, shared, corrected))
    return Prediction(mean, variance, np.tile(node.tracker.widths, (len(X), 1, 1)))


def _stacked(
    alone: Prediction, shared: Prediction, corrected: tuple[Array, Array]
) -> tuple[Array, Array]:
    """Means and variances of MEMBERS: (n, 3, m) each."""
    F = np.stack([alone.mean, shared.mean, corrected[0]], axis=1)
    return F, np.stack([alone.variance, shared.variance, corrected[1]], axis=1)


def _counted(errors: Errors, means: list[Array], Y: Array, inside: Array, most: Array) -> Errors:
    """Errors with further rows, of which the first ones of a node do not count. A squared error
    counts as `most`: (n, m) at most, or one wild target would hide all others for long.
    """
    skip = max(0, min(len(Y), BEGINNING - errors.rows))
    squares = [np.minimum((f - Y) ** 2, most).mean(axis=1) for f in means]
    squared = np.stack(squares, axis=1)[skip:]
    keep = 1.0 - 1.0 / LATELY
    decay = keep ** np.arange(len(squared) - 1, -1, -1)
    gone = keep ** len(squared)
    total = gone * errors.total + decay @ squared
    covered = gone * errors.covered + float(decay @ inside[skip:])
    weight = gone * errors.weight + float(decay.sum())
    return Errors(total, covered, weight, errors.rows + len(Y))
