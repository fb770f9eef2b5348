"""A bank of experts: least squares on learned maps, of several memories, mixed without a setting.

It predicts from the first row on. At each pilot (30, 60, 125... rows) length scales are learned
from the rows so far, maps are made, and all experts start again and learn those rows; the rows
that follow are predicted before they are learned, and mixed by what each expert would have gained.
`learn` returns a new bank: a call that fails changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dokl import draws, scales
from dokl.arrays import Array
from dokl.experts import kept as keeping
from dokl.experts import mixture as mixing
from dokl.experts.kept import Kept
from dokl.experts.kinds import Kind, Settings
from dokl.experts.maps import NestedMap, median_distance, nested_map
from dokl.experts.mixture import Mixture
from dokl.experts.scaling import Scaling, scaling_of
from dokl.methods.squares import blocks
from dokl.methods.squares import memory as memories
from dokl.methods.squares.memory import Memory, Numbers
from dokl.scales import Scales

# Rows whose features are in memory at once, and after which experts meet.
AT_ONCE = 512
LEAST_RIDGE = 1e-4
# Centres are chosen among so many times as many rows.
CANDIDATES = 4


@dataclass(frozen=True)
class Generation:
    """What was fixed at a pilot: scalings of inputs and targets, scales by kernel, maps by kind."""

    inputs: Scaling
    targets: Scaling
    scales: Scales
    maps: dict[tuple[Any, str], NestedMap]


@dataclass(frozen=True)
class Bank:
    """d inputs, m outputs. now: None before the first pilot; memories, awake: one per expert.

    total: (weight, sum of w y, sum of w y^2), what is known before the first pilot.
    """

    settings: Settings
    d: int
    m: int
    kept: Kept
    mixture: Mixture
    total: tuple[float, Array, Array]
    now: Generation | None = None
    memories: tuple[Memory, ...] = ()
    awake: Array | None = None

    @property
    def seen(self) -> int:
        """Rows learned."""
        return self.kept.seen

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
class Told:
    """What was said of rows before they were learned: mean (n, m) and variance (n, m)."""

    mean: Array
    variance: Array


def start(d: int, m: int, settings: Settings) -> Bank:
    """A bank that has seen nothing."""
    total = 0.0, np.zeros(m), np.zeros(m)
    mixture = mixing.start(len(settings.kinds))
    return Bank(settings, d, m, keeping.nothing(d, m), mixture, total)


# -- learning ----------------------------------------------------------------------------------
def learn(bank: Bank, X: Array, Y: Array, weight: Array | None = None) -> tuple[Bank, Told]:
    """Rows X: (n, d), Y: (n, m), finite, of positive weight: (n,), in order."""
    w = np.ones(len(X)) if weight is None else weight
    told, at = [], 0
    with one_blas_thread(), ThreadPoolExecutor(cores()) as pool:
        while at < len(X):
            stop = min(len(X), at + _until_pilot(bank), at + AT_ONCE - bank.seen % AT_ONCE)
            bank, said = _learn_some(bank, X[at:stop], Y[at:stop], w[at:stop], pool.map)
            told.append(said)
            at = stop
    if len(told) == 1:
        return bank, told[0]
    empty = np.empty((0, bank.m))
    return bank, Told(
        np.concatenate([t.mean for t in told] or [empty]),
        np.concatenate([t.variance for t in told] or [empty]),
    )


def _until_pilot(bank: Bank) -> int:
    """Rows before the next pilot."""
    return min((p - bank.seen for p in bank.settings.pilots if p > bank.seen), default=1 << 62)


def _learn_some(
    bank: Bank, X: Array, Y: Array, w: Array, each: Callable[..., Iterable[Any]]
) -> tuple[Bank, Told]:
    """Rows without a pilot among them; a pilot after the last, if it is time."""
    if bank.now is None:
        told, total = _running_mean(bank, Y, w)
        bank = replace(bank, total=total)
    else:
        bank, told = _learn_by_experts(bank, bank.now, X, Y, w, each)
    settings = bank.settings
    kept = keeping.and_then(bank.kept, X, Y, w, settings.kept, settings.seed)
    bank = replace(bank, kept=kept)
    return (pilot(bank, each) if bank.seen in settings.pilots else bank), told


def _running_mean(bank: Bank, Y: Array, w: Array) -> tuple[Told, tuple[float, Array, Array]]:
    """The mean and variance of the targets before each row."""
    weight, first, second = bank.total
    W = weight + np.concatenate([[0.0], np.cumsum(w)])
    S = first + np.vstack([np.zeros(bank.m), np.cumsum(w[:, None] * Y, axis=0)])
    Q = second + np.vstack([np.zeros(bank.m), np.cumsum(w[:, None] * Y**2, axis=0)])
    known = np.maximum(W, 1e-300)[:, None]
    mean = S / known
    variance = np.maximum(Q / known - mean**2, 0.0)
    variance[W == 0] = 1.0
    return Told(mean[:-1], variance[:-1]), (float(W[-1]), S[-1], Q[-1])


def _learn_by_experts(
    bank: Bank, now: Generation, X: Array, Y: Array, w: Array, each: Callable[..., Iterable[Any]]
) -> tuple[Bank, Told]:
    assert bank.awake is not None
    y, Z = now.targets.inward(Y), features(bank, now, X)
    up = np.flatnonzero(bank.awake).tolist()
    weight = None if (w == 1.0).all() else w

    def one(i: int) -> tuple[Memory, blocks.Found]:
        return blocks.learn(_numbers(bank, now, i), bank.memories[i], Z[i], y, weight)

    n, E, m = len(X), len(bank.kinds), bank.m
    F, V = np.zeros((n, E, m)), np.zeros((n, E, m))
    known = list(bank.memories)
    for i, (memory, found) in zip(up, each(one, up), strict=True):
        known[i], F[:, i] = memory, found.f
        V[:, i] = found.noise * (1.0 + found.q)[:, None]
    F, V = F * now.targets.size + now.targets.centre, V * now.targets.size**2
    mixture, f, used = mixing.mixed(bank.mixture, F, Y, bank.awake, weight)
    spread = V + (F - f[:, None]) ** 2
    told = Told(f, np.einsum("ne,nem->nm", used, spread))
    return replace(bank, memories=tuple(known), mixture=mixture), told


def _numbers(bank: Bank, now: Generation, i: int) -> Numbers:
    kind = bank.kinds[i]
    ridge = max(now.maps[kind.features].scales.noise, LEAST_RIDGE)
    return Numbers(ridge, 1.0 - 1.0 / kind.memory, bank.settings.bound)


def features(bank: Bank, now: Generation, X: Array) -> list[Array]:
    """z of rows X: (n, d) for each expert, (n, D) each, shared where they are the same."""
    rows = now.inputs.clipped(X)
    whole = {key: made.transform(rows) for key, made in now.maps.items()}
    cut: dict[Any, Array] = {}
    out = []
    for kind in bank.kinds:
        width = now.maps[kind.features].width(kind.width)
        key = kind.features, width
        if key not in cut:
            cut[key] = np.ascontiguousarray(whole[kind.features][:, :width])
        out.append(cut[key])
    return out


# -- pilots ------------------------------------------------------------------------------------
def pilot(bank: Bank, each: Callable[..., Iterable[Any]] = map) -> Bank:
    """Learn scales from the rows that are kept, make maps, and let all experts learn those rows."""
    X, Y, w = bank.kept.all()
    now = generation(bank, X, Y, w)
    bank = replace(bank, now=now, awake=np.ones(len(bank.kinds), bool))
    y, Z = now.targets.inward(Y), features(bank, now, X)
    recent = bank.kept.newest()
    Y_recent, Z_recent = now.targets.inward(recent[1]), features(bank, now, recent[0])
    # A sample stands for all rows seen; those that forget want the newest in their order.
    sampled = bank.seen > len(X)

    def one(i: int) -> Memory:
        D, numbers = Z[i].shape[1], _numbers(bank, now, i)
        memory = memories.start(D, bank.m, numbers.rho)
        if sampled and numbers.lam < 1.0:
            return blocks.learn(numbers, memory, Z_recent[i], Y_recent, recent[2])[0]
        share = bank.seen / max(1, len(X))
        return blocks.learn(numbers, memory, Z[i], y, w * share)[0]

    return replace(bank, memories=tuple(each(one, range(len(bank.kinds)))))


def generation(bank: Bank, X: Array, Y: Array, w: Array) -> Generation:
    """Scalings, scales and maps by these rows."""
    inputs, targets = scaling_of(X, w), scaling_of(Y, w)
    rows, y = inputs.clipped(X), targets.inward(Y)
    begin = None if bank.now is None else bank.now.scales
    some = _some(bank.settings.seed, len(rows), scales.MOST)
    found = scales.learned(rows[some], y[some], begin=begin)
    middle = median_distance(rows[some])
    centres = min(bank.settings.most, len(rows))
    among = rows[_some(bank.settings.seed, len(rows), CANDIDATES * centres)]
    maps = {}
    for base, kernel in dict.fromkeys(kind.features for kind in bank.kinds):
        own = found if base == "learned" else scales.isotropic(float(base) * middle, bank.d)
        maps[base, kernel] = nested_map(kernel, own, among, centres)
    return Generation(inputs, targets, found, maps)


def _some(seed: int, n: int, most: int) -> Array:
    """Numbers of at most so many of n rows, in order: always the same for a seed."""
    if n <= most:
        return np.arange(n)
    return np.sort(np.argsort(draws.uniforms(seed, ("pilot", n), n))[:most])


# -- predicting --------------------------------------------------------------------------------
def predict(bank: Bank, X: Array) -> Array:
    """Means (n, m) of rows X: (n, d)."""
    if bank.now is None:
        weight, first, _ = bank.total
        return np.tile(first / weight if weight else first, (len(X), 1))
    return _in_pieces(lambda rows: _mean(bank, bank.now, rows), X, bank.m)  # type: ignore[arg-type]


def _mean(bank: Bank, now: Generation, X: Array) -> Array:
    """Experts that share a map are one vector."""
    rows, total = now.inputs.clipped(X), np.zeros((len(X), bank.m))
    for key, theta in folded(bank, now).items():
        total += now.maps[key].transform(rows)[:, : theta.shape[1]] @ theta.T
    return now.targets.outward(total)


def folded(bank: Bank, now: Generation) -> dict[tuple[Any, str], Array]:
    """For each map the experts' vectors, weighed and added: (m, D)."""
    out: dict[tuple[Any, str], Array] = {}
    weights = bank.weights
    for kind, memory, w in zip(bank.kinds, bank.memories, weights, strict=True):
        if w > 0:
            D = now.maps[kind.features].D
            theta = out.setdefault(kind.features, np.zeros((bank.m, D)))
            theta[:, : memory.theta.shape[1]] += w * memory.theta
    return out


def predict_with_variance(bank: Bank, X: Array) -> Told:
    """Means and variances (n, m) of rows X: (n, d)."""
    if bank.now is None:
        weight, first, second = bank.total
        mean = first / weight if weight else first
        variance = np.maximum(second / weight - mean**2, 0.0) if weight else np.ones(bank.m)
        return Told(np.tile(mean, (len(X), 1)), np.tile(variance, (len(X), 1)))
    now = bank.now
    both = _in_pieces(lambda rows: _both(bank, now, rows), X, 2 * bank.m)
    return Told(both[:, : bank.m], both[:, bank.m :])


def _both(bank: Bank, now: Generation, X: Array) -> Array:
    weights = bank.weights
    Z, F, V = features(bank, now, X), [], []
    used = np.flatnonzero(weights > 0).tolist()
    for i in used:
        memory = bank.memories[i]
        F.append(now.targets.outward(Z[i] @ memory.theta.T))
        V.append((1.0 + memory.variance(Z[i]))[:, None] * memory.noise * now.targets.size**2)
    w, each = weights[used][:, None, None], np.array(F)
    mean = (w * each).sum(axis=0)
    return np.hstack([mean, (w * (np.array(V) + (each - mean) ** 2)).sum(axis=0)])


def _in_pieces(function: Callable[[Array], Array], X: Array, width: int) -> Array:
    parts = [function(X[i : i + AT_ONCE]) for i in range(0, len(X), AT_ONCE)]
    return np.concatenate(parts) if parts else np.empty((0, width))


# -- threads -----------------------------------------------------------------------------------
def cores() -> int:
    """How many experts learn at once."""
    import os

    return os.cpu_count() or 1


def one_blas_thread() -> Any:
    """Experts share the cores; threads inside a product would only wait for each other."""
    from threadpoolctl import threadpool_limits

    return threadpool_limits(1, "blas")


def remembers(bank: Bank) -> float:
    """About how many rows count in a prediction: the experts' memories, weighed."""
    weights = bank.weights
    spans = [min(kind.memory, bank.seen) for kind in bank.kinds]
    return float(math.exp(float(weights @ np.log(np.maximum(spans, 1.0)))))
