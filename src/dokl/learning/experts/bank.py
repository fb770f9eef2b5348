"""A bank of experts: what it knows. `learning`, `pilots` and `predicting` work with it."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from dokl.base.arrays import Array
from dokl.base.background import Each, Task
from dokl.base.codec import IF_SET, UNSAVED
from dokl.learning import intervals
from dokl.learning import mixture as mixing
from dokl.learning.drift import Drift
from dokl.learning.experts import buffer as keeping
from dokl.learning.experts import group_errors as correcting
from dokl.learning.experts.buffer import Buffer
from dokl.learning.experts.group_errors import GroupErrors
from dokl.learning.experts.kinds import Kind, MapKey, Settings
from dokl.learning.experts.maps import GroupedMap, NestedMap
from dokl.learning.experts.places import GroupPlaces
from dokl.learning.experts.rivals import Rivals
from dokl.learning.experts.scaling import Scaling, follow, limits
from dokl.learning.intervals import Tracker
from dokl.learning.mixture import Mixture
from dokl.learning.scales import Scales
from dokl.learning.squares.memory import Memory, Numbers
from dokl.learning.squares.sums import Sums

# Rows whose features are in memory at once, and after which experts meet.
AT_ONCE = 512
LEAST_RIDGE = 1e-4

Total = tuple[float, Array, Array]  # weight, sum of w y and of w y^2, (m,) each


@dataclass(frozen=True)
class PilotMaps:
    """What was fixed at a pilot: scalings of inputs and targets, scales by kernel, maps by kind."""

    SAVED_AS: ClassVar[str] = "Generation"

    inputs: Scaling
    targets: Scaling
    scales: Scales
    maps: Mapping[MapKey, NestedMap | GroupedMap]
    places: GroupPlaces | None = None  # of groups, where the last input is one

    def inward(self, X: Array, extent: Array | None) -> Array:
        """Rows X: (n, d) standardised, by extents of inputs, (d,) or of each row; the number of a
        group stays as it is.
        """
        if self.places is None:
            return self.inputs.clipped(X, limits(extent))
        return np.hstack([self.inputs.clipped(X[:, :-1], limits(extent)), X[:, -1:]])

    def extents(self, extent: Array | None, X: Array) -> tuple[Array | None, Array | None]:
        """Extents of inputs before each of rows X: (n, d), and after all of them (`follow`)."""
        return follow(extent, self.inputs.inward(X if self.places is None else X[:, :-1]))


@dataclass(frozen=True)
class Pending:
    """A pilot whose map is not adopted yet: the rows that came after it, X (n, d), Y (n, m) and
    weight (n,). work: a bank with the new map, in the making; None where it is to be begun again.
    """

    X: Array
    Y: Array
    weight: Array
    work: Task[Bank] | None = field(default=None, compare=False, repr=False, metadata=UNSAVED)

    def rows(self, some: slice = slice(None)) -> tuple[Array, Array, Array]:
        """X, Y and weight of some of them."""
        return self.X[some], self.Y[some], self.weight[some]


@dataclass(frozen=True)
class Bank:
    """d inputs, m outputs. now: None before the first map; memories, awake: one per expert.

    total: what is known of targets before the first map.
    kept: rows up to a pilot that is pending, and all of them where none is. group_errors: where the
    settings want them.
    """

    settings: Settings
    d: int
    m: int
    kept: Buffer
    mixture: Mixture
    total: Total
    now: PilotMaps | None = None
    memories: tuple[Memory, ...] = ()
    awake: Array | None = None
    tracker: Tracker = field(default_factory=intervals.start)
    sums: tuple[Sums | None, ...] = ()
    mended: int = 0  # how often a matrix had to be made again
    idle: Array = field(default_factory=lambda: np.zeros(0, int))  # checks without weight, each
    surprise: tuple[float, int] = (0.0, 0)  # sum of squared scores since the last check, and count
    pending: Pending | None = None
    # How frozen copies of it age; None where none are kept, as in networks.
    drift: Drift | None = None
    rivals: Rivals | None = None  # what predicts beside them; None where no copies are kept
    group_errors: GroupErrors | None = None
    # How far standardised inputs have come since the last pilot, (d,) without groups: `follow`.
    extent: Array | None = field(default=None, metadata=IF_SET)

    @property
    def seen(self) -> int:
        """Rows learned."""
        return self.kept.seen + (0 if self.pending is None else len(self.pending.X))

    @property
    def stored(self) -> Buffer:
        """The rows kept, and those since a pilot that is pending."""
        if self.pending is None:
            return self.kept
        settings, kept = self.settings, keeping.copy(self.kept)
        return keeping.append(kept, *self.pending.rows(), settings.kept, settings.seed)

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The experts."""
        return self.settings.kinds

    @property
    def weights(self) -> Array:
        """What each expert counts in the next prediction: (E,), summing to one."""
        awake = np.ones(len(self.kinds), bool) if self.awake is None else self.awake
        return self.mixture.weights(awake)


@dataclass(frozen=True)
class Prediction:
    """Predictions of rows before they were learned: mean (n, m), variance (n, m), and half the
    width of their intervals in standard deviations, (n, m, levels).
    """

    mean: Array
    variance: Array
    widths: Array


def start(d: int, m: int, settings: Settings) -> Bank:
    """A bank that has seen nothing."""
    total = 0.0, np.zeros(m), np.zeros(m)
    mixture, tracker = mixing.start(len(settings.kinds)), intervals.start(settings.levels, m)
    errors = correcting.start(m) if settings.group_errors else None
    kept = keeping.no_rows(d, m)
    return Bank(settings, d, m, kept, mixture, total, tracker=tracker, group_errors=errors)


def mean_and_variance(total: Total) -> tuple[Array, Array]:
    """Of targets, (m,) each; 0 and 1 before there are any."""
    weight, first, second = total
    if not weight:
        return first, np.ones(len(first))
    mean = first / weight
    return mean, np.maximum(second / weight - mean**2, 0.0)


def numbers_of(bank: Bank, now: PilotMaps, i: int) -> Numbers:
    """Ridge, memory and bound of expert i."""
    kind = bank.kinds[i]
    ridge = max(now.maps[kind.features].scales.noise, LEAST_RIDGE)
    return Numbers(ridge, 1.0 - 1.0 / kind.memory, bank.settings.bound)


def features(
    bank: Bank,
    now: PilotMaps,
    X: Array,
    which: Sequence[int],
    each: Each = map,
    learning: bool = False,
) -> dict[int, Array]:
    """z of rows X: (n, d) for each of these experts, (n, D), shared where they are the same.
    learning: whether the bank learns these rows next, so that inputs count as far as the rows
    before each have come.
    """
    before = extents(bank, now, X)[0] if learning else None
    rows = now.inward(X, bank.extent if before is None else before)
    widths = {i: now.maps[bank.kinds[i].features].width(bank.kinds[i].width) for i in which}
    most: dict[Any, int] = {}
    keys = {i: bank.kinds[i].features for i in which}
    for i, key in keys.items():
        most[key] = max(widths[i], most.get(key, 0))
    made = each(lambda key: now.maps[key].transform(rows, most[key]), most)
    whole = dict(zip(most, made, strict=True))
    cut: dict[Any, Array] = {}
    for i, key in keys.items():
        if (key, widths[i]) not in cut:
            cut[key, widths[i]] = np.ascontiguousarray(whole[key][:, : widths[i]])
    return {i: cut[key, widths[i]] for i, key in keys.items()}


def extents(bank: Bank, now: PilotMaps, X: Array) -> tuple[Array | None, Array | None]:
    """Extents of inputs before each of rows X: (n, d), and after all of them. Sums that are to be
    added to others are of features that never change.
    """
    fixed = bank.settings.sums or bank.settings.fixed_inputs
    return (None, None) if fixed else now.extents(bank.extent, X)


def by_each(
    bank: Bank, now: PilotMaps, Z: Mapping[int, Array], each: Each = map
) -> tuple[list[Array], list[Array]]:
    """Means and variances, (n, m) for each of the experts whose features Z: (n, D) are given."""

    def one(i: int) -> tuple[Array, Array]:
        mean, variance = bank.memories[i].predict(Z[i])
        return now.targets.outward(mean), variance * now.targets.size**2

    found = list(each(one, Z))
    return [mean for mean, _ in found], [variance for _, variance in found]


def fingerprint(bank: Bank) -> str:
    """16 hexadecimal digits of what was fixed at the last pilot; none before the first."""
    now = bank.now
    if now is None:
        return "0" * 16
    digest = hashlib.sha256()
    arrays = [now.inputs.centre, now.inputs.size, now.targets.centre, now.targets.size]
    for key, made in now.maps.items():
        digest.update(repr(key).encode())
        own = made.scales
        arrays += [own.lengths, np.array([own.amplitude, own.linear, own.noise]), made.centres]
        if made.ranks is not None:
            arrays += [made.ranks.values, made.ranks.scores]
    for array in arrays:
        digest.update(np.ascontiguousarray(array, "<f8").tobytes())
    return digest.hexdigest()[:16]


def remembers(bank: Bank) -> float:
    """About how many rows count in a prediction: the experts' memories, weighed."""
    weights = bank.weights
    spans = [min(kind.memory, bank.seen) for kind in bank.kinds]
    return float(math.exp(float(weights @ np.log(np.maximum(spans, 1.0)))))


def matrix_bytes(kinds: Sequence[Kind], most: int) -> float:
    """What the matrices of these experts take, all awake, with `most` centres for the widest."""
    widths = [most if kind.width is None else min(most, kind.width) for kind in kinds]
    return 8.0 * sum(2 * width * width for width in widths)
