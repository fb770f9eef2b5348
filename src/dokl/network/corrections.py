"""What a node adds to predictions: what it has learned of the errors on its own rows.

What is corrected is the mean of both banks' predictions, its own and the network's, each counting
by how sure it is (`node.ExpectedErrors`).

Two kinds of errors can be foreseen. This mean errs at one node in the same direction for a while (a
station that drifts, an hour that differs): the node learns that by least squares on a constant and
on its inputs, with memories from ten rows on. And errors go on from row to row, here and around
(smoke that reaches all stations): the node learns the next error of its own bank, and of the mean,
from

    the last error of its own bank, the last error of the mean,
    the mean error of the network's bank on the rows received since

in units of what was expected. Where errors have nothing to do with each other, that learns zero.
All these experts and "no correction" are mixed by what each gains (`dokl.network.guard`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from dokl.base.arrays import Array
from dokl.learning import mixture as mixing
from dokl.learning.experts.scaling import Scaling
from dokl.learning.mixture import Mixture
from dokl.learning.squares import blocks
from dokl.learning.squares import memory as memories
from dokl.learning.squares.blocks import Found, NotDefinite
from dokl.learning.squares.memory import Memory, Numbers
from dokl.network import guard
from dokl.network.guard import RecentErrors

Pair = tuple[Array, Array]  # means and variances (n, m)
CONSTANT, INPUTS, ERRORS = "constant", "inputs", "errors"
OWN, BOTH = 0, 1


@dataclass(frozen=True)
class Corrector:
    """An expert: a memory in rows, what its features are, and whose errors it learns."""

    memory: float
    features: str
    bank: int = BOTH

    @property
    def ridge(self) -> float:
        """How many rows "nothing can be foreseen" counts for."""
        return 30.0 if self.features == ERRORS else 1.0

    def numbers(self, bound: float) -> Numbers:
        """For least squares."""
        return Numbers(self.ridge, 1.0 - 1.0 / self.memory, bound)

    def width(self, d: int, m: int) -> int:
        """Numbers in its features, of d inputs and m outputs."""
        return {CONSTANT: 1, INPUTS: 1 + d, ERRORS: 3 * m}[self.features]


EXPERTS = (
    Corrector(10, CONSTANT),
    Corrector(100, CONSTANT),
    Corrector(100, INPUTS),
    Corrector(1000, INPUTS),
    Corrector(1000, ERRORS, OWN),
    Corrector(1000, ERRORS),
)
# An error predicts the next one as far as this many standard deviations: beyond, it is
# more likely to be a wild target.
LARGEST = 2.0
# "No correction", and the experts.
MIXED = 1 + len(EXPERTS)


@dataclass(frozen=True)
class Corrections:
    """inputs: how rows are standardised; size: (m,), of targets; experts' memories; mixture: of "no
    correction" and the experts, in this order; last: (2, m), the last error of the own bank and of
    the mean of both, in standard deviations.
    """

    inputs: Scaling
    size: Array
    memories: tuple[Memory, ...]
    mixture: Mixture
    last: Array = field(default_factory=lambda: np.zeros((2, 1)))
    recent: RecentErrors = field(default_factory=lambda: guard.start(MIXED))

    @property
    def weights(self) -> Array:
        """What "no correction" and each expert count in the next prediction: (MIXED,)."""
        return self.mixture.weights(guard.used(np.ones(MIXED, bool), self.recent.failing))


def start(inputs: Scaling, size: Array) -> Corrections:
    """Nothing learned. inputs: of d columns; size: (m,)."""
    d, m = len(inputs.centre), len(size)
    known = tuple(memories.start(each.width(d, m), m, each.ridge) for each in EXPERTS)
    # A node that knows nothing yet believes both, not its own bank alone.
    gain = np.array([mixing.MOST] + [mixing.MOST * (each.bank == BOTH) for each in EXPERTS])
    mixture = Mixture(gain, np.zeros(MIXED), mixing.MOST**2)
    return Corrections(inputs, size, known, mixture, np.zeros((2, m)))


def completed(known: Corrections) -> Corrections:
    """Corrections of an earlier version, which had fewer experts, with the others."""
    fresh, had = start(known.inputs, known.size), len(known.memories)
    if had == len(EXPERTS):
        return known
    more = np.zeros(len(EXPERTS) - had)
    gain, square = (np.append(part, more) for part in (known.mixture.gain, known.mixture.square))
    mixture = replace(known.mixture, gain=gain, square=square)
    return replace(fresh, memories=(*known.memories, *fresh.memories[had:]), mixture=mixture)


def errors_of(Y: Array, mean: Array, variance: Array) -> Array:
    """Errors (n, m) in standard deviations, as far as they count."""
    return np.clip((Y - mean) / np.sqrt(np.maximum(variance, 1e-300)), -LARGEST, LARGEST)


def features(corrections: Corrections, X: Array) -> Array:
    """Rows X: (n, d) -> z: (n, 1 + d)."""
    rows = corrections.inputs.clipped(X)
    return np.hstack([np.ones((len(X), 1)), rows / np.sqrt(max(1, rows.shape[1]))])


def learn(
    corrections: Corrections, X: Array, Y: Array, own: Pair, both: Pair, received: Array,
    weight: Array | None, bound: float,
) -> tuple[Corrections, Array, Array]:  # fmt: skip
    """Rows X: (n, d), Y: (n, m), which the node's own bank and both banks predicted so;
    received: (n, m), mean errors of the network's bank on what was received before each.

    Returns means and variances (n, m) with the correction that each row had before it was learned.
    """
    errors = np.stack([errors_of(Y, *own), errors_of(Y, *both)], axis=1)  # (n, 2, m)
    before = np.concatenate([corrections.last[None], errors])[:-1]
    Z = features(corrections, X), np.hstack([before.reshape(len(X), -1), received])
    F, V = [both[0]], [both[1]]
    known = list(corrections.memories)
    for i, expert in enumerate(EXPERTS):
        mean, variance = (own, both)[expert.bank]
        z, unit = _given(expert, Z), _unit(corrections, expert, variance)
        known[i], found = _learn_one(expert, known[i], z, (Y - mean) / unit, weight, bound)
        F.append(mean + found.f * unit)
        V.append(found.noise * (1.0 + found.q)[:, None] * unit**2)
    mixture, recent, mean, spread = guard.mix(
        corrections.mixture, corrections.recent, np.stack(F, axis=1), np.stack(V, axis=1), Y, *own,
        None, weight, bound,
    )  # fmt: skip
    last = errors[-1] if len(errors) else corrections.last
    about = {"memories": tuple(known), "mixture": mixture, "last": last, "recent": recent}
    return replace(corrections, **about), mean, spread  # type: ignore[arg-type]


def predict(
    corrections: Corrections, X: Array, own: Pair, both: Pair, received: Array
) -> tuple[Array, Array]:
    """Means and variances (n, m) of rows X: (n, d) with their correction; received: (m,)."""
    foreseen = np.concatenate([*corrections.last, received])
    Z = features(corrections, X), np.tile(foreseen, (len(X), 1))
    F, V = [both[0]], [both[1]]
    for expert, memory in zip(EXPERTS, corrections.memories, strict=True):
        mean, variance = (own, both)[expert.bank]
        unit = _unit(corrections, expert, variance)
        error, spread = memory.predict(_given(expert, Z))
        F.append(mean + error * unit)
        V.append(spread * unit**2)
    return mixing.combine(corrections.weights, np.stack(F, axis=1), np.stack(V, axis=1))


def _given(expert: Corrector, Z: tuple[Array, Array]) -> Array:
    """The features of rows for an expert, of those on inputs and of those on errors."""
    if expert.features == ERRORS:
        return Z[1]
    return Z[0] if expert.features == INPUTS else Z[0][:, :1]


def _unit(corrections: Corrections, expert: Corrector, variance: Array) -> Array:
    """In what an expert counts errors: the size of targets, or what is expected, (n, m)."""
    if expert.features == ERRORS:
        return np.sqrt(np.maximum(variance, 1e-300))
    return corrections.size


def _learn_one(
    expert: Corrector, known: Memory, z: Array, error: Array, weight: Array | None, bound: float
) -> tuple[Memory, Found]:
    """Errors (n, m) of rows with features z: (n, D)."""
    numbers = expert.numbers(bound)
    try:
        return blocks.learn(numbers, known, z, error, weight)
    except NotDefinite:  # rounding; a short memory loses little by beginning again
        fresh = memories.start(z.shape[1], error.shape[1], expert.ridge)
        return blocks.learn(numbers, fresh, z, error, weight)
