"""A node of a network: a learner that also learns from others.

    own         exactly an `AutoRegressor`, on the node's own rows
    network     the bank over (row, node), which learns what everybody shares
    corrected   their mean, weighted by how sure each is, with what the node has learned of the
                errors of all three here
    mixture     of these three, weighted by what each would have gained on the node's own rows

So a node is never much worse than it would be alone, and where others help it is better. One that
begins to fail is dropped (`guard`).
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
from dokl.network import guard
from dokl.network.corrections import Corrections, Pair
from dokl.network.guard import RecentErrors

MEMBERS = ("own", "network", "corrected")
# Before its first rows a node believes the network, with its own correction: as though that had
# gained as much as one row can give.
FIRST_GAIN = mixing.MOST
# Rows over which the variances of the own and of the network's bank are averaged.
SURE = 50.0
# Rows over which errors are averaged for people to read, and a node's first rows, which are not
# counted: everybody errs there.
LATELY, BEGINNING = 1000.0, 50
# Rows after which gains fade: a part that grows worse slowly, below what the guard sees, must not
# live on what it gained long ago. Where nobody is faulty that costs .2 to .8 % of error.
FADES = 200.0
LEAST = 1e-300  # of variances, which targets of tiny units make vanish
_LEVEL = LEVELS.index(0.9)


@dataclass(frozen=True)
class Errors:
    """Discounted sums: of squared errors, (3,) of the own learner, of the network and of the
    mixture, of how often 90 % intervals held, and of their weight. rows: seen.
    """

    total: Array = field(default_factory=lambda: np.zeros(3))
    covered: float = 0.0
    weight: float = 0.0
    rows: int = 0


@dataclass(frozen=True)
class HeardErrors:
    """Errors of the network's bank on what others have sent, before it learned it, in standard
    deviations: their sum, (m,), and how many there are.
    """

    total: Array = field(default_factory=lambda: np.zeros(1))
    count: int = 0

    @property
    def mean(self) -> Array:
        """(m,); 0 where nothing was received."""
        return np.asarray(self.total / max(1, self.count))

    def and_then(self, errors: Array) -> HeardErrors:
        """With those of further rows: (n, m)."""
        return HeardErrors(self.total + errors.sum(axis=0), self.count + len(errors))


@dataclass(frozen=True)
class ExpectedErrors:
    """What the own bank and the network's expect of their squared errors: discounted sums over the
    node's rows but for the first, of which the own bank may believe that all targets are equal.
    """

    own: float = LEAST
    network: float = 0.0

    @property
    def share(self) -> float:
        """What the network counts in the mean of both: less, the less sure it is."""
        return self.own / (self.own + self.network)

    def and_then(self, own: float, network: float) -> ExpectedErrors:
        """With those of a further row."""
        keep = 1.0 - 1.0 / SURE
        return ExpectedErrors(keep * self.own + max(own, LEAST), keep * self.network + network)


@dataclass(frozen=True)
class NetworkNode:
    """own: the own learner; corrections: None before the network has a map; mixture: of MEMBERS;
    tracker: of the widths of intervals; heard: since the newest of its own rows.
    """

    own: Bank
    mixture: Mixture
    tracker: Tracker
    corrections: Corrections | None = None
    errors: Errors = field(default_factory=Errors)
    recent: RecentErrors = field(default_factory=lambda: guard.start(len(MEMBERS)))
    heard: HeardErrors = field(default_factory=HeardErrors)
    expected: ExpectedErrors = field(default_factory=ExpectedErrors)

    @property
    def weights(self) -> Array:
        """What each of MEMBERS counts in the next prediction: (3,)."""
        return self.mixture.weights(guard.used(self.awake, self.recent.failing))

    @property
    def awake(self) -> Array:
        """Which of MEMBERS know anything: (3,). The network's bank does once it has a map; before
        that, only a node without rows of its own has use for it.
        """
        mapped = self.corrections is not None
        return np.array([self.own.seen > 0, mapped or self.own.seen == 0, mapped])

    @property
    def share(self) -> float:
        """What the network counts in the mean of both: all, while the own bank has no map."""
        return self.expected.share if self.errors.rows >= self.first_pilot else 1.0

    @property
    def first_pilot(self) -> int:
        """Rows after which the own bank has a map."""
        return min(self.own.settings.pilots, default=0)


def start(d: int, m: int, settings: Settings) -> NetworkNode:
    """A node that has seen nothing."""
    own = banks.start(d, m, settings)
    heard = HeardErrors(np.zeros(m))
    return NetworkNode(own, _first_mixture(), intervals.start(settings.levels, m), heard=heard)


def _first_mixture() -> Mixture:
    gain = np.array([0.0, 0.0, FIRST_GAIN])
    return Mixture(gain, np.zeros(len(MEMBERS)), FIRST_GAIN**2)


def completed(node: NetworkNode) -> NetworkNode:
    """A node of an earlier version, with what it did not have."""
    if len(node.heard.total) != node.own.m:
        node = replace(node, heard=HeardErrors(np.zeros(node.own.m)))
    if node.corrections is None:
        return node
    return replace(node, corrections=correcting.completed(node.corrections))


def with_corrections(node: NetworkNode, inputs: Scaling, size: Array) -> NetworkNode:
    """The node once the network has a map, whose inputs (d) and targets (m) have these scales. A
    node that knows nothing yet believes the network first. One with rows enough for a map of its
    own begins half way between the two, or the first rows of a faulty node would be believed at
    once.
    """
    if node.corrections is not None:
        return node
    mapped = node.errors.rows >= node.first_pilot
    expected = ExpectedErrors(LEAST, LEAST) if mapped else ExpectedErrors()
    recent, corrections = guard.start(len(MEMBERS)), correcting.start(inputs, size)
    about = {"recent": recent, "corrections": corrections, "expected": expected}
    return replace(node, mixture=_first_mixture(), **about)  # type: ignore[arg-type]


def for_later_rows(node: NetworkNode) -> NetworkNode:
    """The node as it predicts rows of which the next is long past: no error follows from the last,
    or from what was received.
    """
    known, heard = node.corrections, HeardErrors(np.zeros(node.own.m))
    if known is not None:
        known = replace(known, last=np.zeros_like(known.last))
    return replace(node, corrections=known, heard=heard)


def without_recent(node: NetworkNode) -> NetworkNode:
    """The node once its banks have changed: it knows nothing of how they err at present."""
    known = node.corrections
    if known is not None:
        known = replace(known, recent=guard.start(len(known.recent.total)))
    recent = guard.start(len(MEMBERS))
    return for_later_rows(replace(node, corrections=known, recent=recent))


def receive(node: NetworkNode, bank: Bank, found: Prediction, Y: Array) -> NetworkNode:
    """The node once the network's bank, with a map, has predicted rows so, and received Y: (n,
    m).
    """
    if bank.now is None:
        return node
    errors = correcting.errors_of(Y, found.mean, found.variance)
    return replace(node, heard=node.heard.and_then(errors))


def learn(
    node: NetworkNode,
    X: Array,
    Y: Array,
    weight: Array | None,
    alone: Prediction,
    shared: Prediction,
    heard: Array | None = None,
) -> tuple[NetworkNode, Prediction]:
    """Rows X: (n, d), Y: (n, m) of the node, which its own bank (`node.own`, by now) predicted as
    `alone` and the network as `shared` before they were learned. Returns what the node predicted.

    heard: (n, m), mean errors of what was received before each row; None if that is all before the
    first.
    """
    if heard is None:
        heard = np.zeros(Y.shape)
        heard[:1] = node.heard.mean
    bound, known = node.own.settings.bound, node.corrections
    own, network = (alone.mean, alone.variance), (shared.mean, shared.variance)
    corrected, expected = network, node.expected
    if known is not None:
        both, expected = _together(node, own, network)
        known, *corrected = correcting.learn(known, X, Y, own, both, heard, weight, bound)  # type: ignore[assignment]
    F, V = _stack(own, network, corrected)
    awake = np.array([True, known is not None, known is not None])
    mixture, recent, mean, variance = guard.mix(
        node.mixture, node.recent, F, V, Y, *own, awake, weight, bound, FADES
    )
    scores = np.abs(Y - mean) / np.sqrt(np.maximum(variance, 1e-300))
    tracker, widths = intervals.follow_scores(node.tracker, scores)
    inside = (scores <= widths[:, :, _LEVEL]).mean(axis=1)
    most = bound**2 * variance if bound < math.inf else np.full(variance.shape, math.inf)
    about = {
        "mixture": mixture,
        "tracker": tracker,
        "corrections": known,
        "errors": _count_errors(node.errors, [alone.mean, shared.mean, mean], Y, inside, most),
        "recent": recent,
        "heard": HeardErrors(np.zeros(node.own.m)) if len(Y) else node.heard,
        "expected": expected,
    }
    return replace(node, **about), Prediction(mean, variance, widths)  # type: ignore[arg-type]


def predict(
    node: NetworkNode, X: Array, alone: Prediction, shared: Prediction, heard: Array | None = None
) -> Prediction:
    """What the node predicts for rows X: (n, d), given what its own bank and the network do, and
    mean errors (m,) of what was received since its newest row, where the node does not know them.
    """
    heard = node.heard.mean if heard is None else heard
    own, network = (alone.mean, alone.variance), (shared.mean, shared.variance)
    corrected = network
    if node.corrections is not None:
        both = _mean(own, network, node.share)
        corrected = correcting.predict(node.corrections, X, own, both, heard)
    mean, variance = mixing.combine(node.weights, *_stack(own, network, corrected))
    return Prediction(mean, variance, np.tile(node.tracker.widths, (len(X), 1, 1)))


def _together(node: NetworkNode, own: Pair, network: Pair) -> tuple[Pair, ExpectedErrors]:
    """The mean of both banks' predictions for rows of the node that it is about to learn, each row
    by what was expected before it; and what is expected after them.
    """
    expected, share, seen = node.expected, np.ones((len(own[0]), 1)), node.errors.rows
    variances = np.stack([own[1].mean(axis=1), network[1].mean(axis=1)], axis=1).tolist()
    for i, each in enumerate(variances):
        if seen + i >= node.first_pilot:
            share[i] = expected.share
        if seen + i >= guard.FEWEST:
            expected = expected.and_then(*each)
    return _mean(own, network, share), expected


def _mean(own: Pair, network: Pair, share: Array | float) -> Pair:
    """Of means and variances (n, m); share: what the network counts."""
    first, second = ((1.0 - share) * a + share * b for a, b in zip(own, network, strict=True))
    return first, second


def _stack(own: Pair, network: Pair, corrected: Pair) -> Pair:
    """Means and variances of MEMBERS: (n, 3, m) each."""
    pairs = zip(own, network, corrected, strict=True)
    mean, variance = (np.stack(parts, axis=1) for parts in pairs)
    return mean, variance


def _count_errors(
    errors: Errors, means: list[Array], Y: Array, inside: Array, most: Array
) -> Errors:
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
