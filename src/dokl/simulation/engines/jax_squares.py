"""Method `squares` by JAX: nodes and realizations side by side, on a GPU or on the CPU, in float64.

Every node of every realization is a learner with a matrix of its own. Between two exchanges they
are alone: their rows, without those that are absent, are learned in exact blocks (`jax_blocks`).
Matrices stay on the device for the time of a call; what is sent comes back for every exchange,
which is `diffusion.combine`, whatever its rules. Sums are solved on the device (`jax_sums`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import DTypeLike

from dokl.base.arrays import Array, Block, check_rows, is_sparse, used_rows
from dokl.learning.features import FeatureMap
from dokl.learning.squares.blocks import NotDefinite
from dokl.learning.squares.memory import LIST
from dokl.network.exchange import Exchange
from dokl.network.state import State
from dokl.network.sums import sharing
from dokl.simulation.diffusion import (
    Problem,
    check_block,
    check_index,
    check_progress,
    exchange_vectors,
    largest_prediction,
)
from dokl.simulation.engines import jax_sums, jax_traced, jax_translate, rounds
from dokl.simulation.engines.choice import NotCompilable
from dokl.simulation.engines.jax_blocks import BLOCK, BlockNumbers, Known, block, fold

# Bytes of samples that are given to the device at once, and rows to predict.
SAMPLES, ROWS = 1 << 26, 1024
# log lam^rows at which a P + b I is written as one matrix, well before numbers overflow.
LEAST = -300.0


@dataclass(frozen=True)
class MapKind:
    """What the features depend on besides arrays, as `traced.features` reads it."""

    paired: bool
    structured: bool
    projected: bool
    D: int


@dataclass(frozen=True)
class SquaresPlan:
    """A problem and an exchange with the feature map as arrays; everything is in float64."""

    problem: Problem
    exchange: Exchange
    rule: MapKind
    map: dict[str, Array]
    dtype: DTypeLike = np.float64
    kept: dict[str, Any] = field(default_factory=dict, compare=False)  # what lies on the device


@dataclass(frozen=True)
class SquaresBatch:
    """Plans of realizations, with their maps on the device; own: each has another one."""

    plans: Sequence[SquaresPlan]
    map: dict[str, Any]
    own: bool


def plan(problem: Problem, exchange: Exchange, dtype: DTypeLike = np.float64) -> SquaresPlan:
    """Prepare a problem (its features drawn) for `advance`; raises NotCompilable."""
    features = problem.map
    base = getattr(features, "base", features)
    if not isinstance(base, FeatureMap):
        raise NotCompilable(f"expected a FeatureMap, got a {type(base).__name__}")
    if problem.method.merges and exchange.graphs:
        raise NotCompilable(
            "sums per origin, which each node checks, merges and solves on the CPU",
            "use engine='numba', or share='sums', by which nodes come to know the same rows",
        )
    kind = MapKind(base.paired, base.signs is not None, base is not features, features.D)
    return SquaresPlan(problem, exchange, kind, jax_translate.map_numbers(features, np.float64))


def together(plans: Sequence[SquaresPlan]) -> SquaresBatch:
    """The plans of many realizations, on the device; they must be of one kind and size."""
    first = plans[0]
    own = any(p.problem.map is not first.problem.map for p in plans)
    with jax.enable_x64(True):
        arrays = {
            name: jnp.asarray(np.stack([p.map[name] for p in plans]) if own else first.map[name])
            for name in first.map
        }
    return SquaresBatch(plans, arrays, own)


def alone(plan: SquaresPlan) -> SquaresBatch:
    """One realization by itself; its map stays on the device as long as the plan."""
    if "alone" not in plan.kept:
        plan.kept["alone"] = together([plan])
    batch: SquaresBatch = plan.kept["alone"]
    return batch


def load(plan: SquaresPlan, block: Block) -> Block:
    """The block in float64."""
    return block.cast(plan.dtype)


def advance(
    plan: SquaresPlan, state: State, block: Block, workers: int | None = None
) -> tuple[State, Array]:
    """Run a block; returns a new state and the a-priori predictions f: (n, K, m), NaN if absent."""
    return advance_many(alone(plan), [state], [block])[0]


def advance_many(
    batch: SquaresBatch, states: Sequence[State], blocks: Sequence[Block]
) -> list[tuple[State, Array]]:
    """`advance` for every realization of a batch: blocks of the same number of steps."""
    for plan, state, one in zip(batch.plans, states, blocks, strict=True):
        check(plan, state, one)
    with jax.enable_x64(True):
        work = _Work(batch, states)
        pairs = [(plan.problem, plan.exchange) for plan in batch.plans]
        combine = work.combine if work.shares else None
        found = rounds.advance_many(pairs, work.alone, states, blocks, combine)
        nodes = work.nodes()
    results, known = [], zip(states, found, nodes, strict=True)
    for plan, one, (old, (state, f), more) in zip(batch.plans, blocks, known, strict=True):
        arrays = state.nodes | more
        new = replace(state, nodes={name: arrays[name] for name in old.nodes})
        if not np.isfinite(new.theta).all():
            raise NotDefinite("a matrix has lost its definiteness to rounding")
        largest = largest_prediction(f, new.theta)
        check_progress(plan.problem, plan.exchange, new, one, f, largest)
        results.append((new, f))
    return results


def check(plan: SquaresPlan, state: State, block: Block) -> None:
    """Refuse what cannot be learned from, before anything is computed."""
    graphs, features = plan.exchange.graphs, plan.problem.map
    check_block(features, graphs[0].shape[0] if graphs else None, state, block)
    check_index(block)
    used = used_rows(block)
    check_rows(block.X[used], features.d)
    peak = float(np.abs(block.Y[used]).max(initial=state.peak))
    if not math.isfinite(peak):
        wrong = replace(state, peak=peak)
        check_progress(plan.problem, plan.exchange, wrong, block, np.empty((0, 1, 1)), math.inf)


class _Work:
    """What all learners know, on the device, for the time of one call."""

    def __init__(self, batch: SquaresBatch, states: Sequence[State]) -> None:
        self.batch, self.runs = batch, len(states)
        self.K, self.m, self.D = states[0].theta.shape

        def of_all(name: str) -> Array:
            each = [state.nodes[name] for state in states]
            return each[0] if len(each) == 1 else np.concatenate(each)

        P = whole(*(of_all(name) for name in ("P", "a", "b", "W", "c", "n")))
        # Copies, since what is known is overwritten on the device.
        theta, num, den = (jnp.array(of_all(name)) for name in ("theta", "num", "den"))
        self.known = Known(theta, P, jnp.ones_like(den), jnp.zeros_like(den), num, den)
        numbers = [plan.problem.squares.numbers for plan in batch.plans]
        columns = zip(*((one.rho, one.lam, one.bound) for one in numbers), strict=True)
        self.settings = BlockNumbers(*(jnp.asarray(np.repeat(c, self.K)) for c in columns))
        forgets = min(math.log(one.lam) for one in numbers)
        self.most = LEAST / forgets if forgets < 0 else math.inf
        self.since = 0  # rows since a P + b I was written as one matrix
        self.shares = "sums" in states[0]
        self.fresh: Any = None  # sums of rows since the last exchange, where they travel

    def alone(self, states: Sequence[State], blocks: Sequence[Block]) -> list[tuple[State, Array]]:
        """Every learner its own rows, in order."""
        n, N = blocks[0].n, self.runs * self.K
        there, order = _order(blocks)
        theta = jnp.array(np.concatenate([state.theta for state in states]))
        self.known = self.known._replace(theta=theta)
        predicted = np.full((len(order), N, self.m), np.nan)
        self.fresh = jax_sums.no_rows(N, self.m, self.D) if self.shares else None
        for start, stop, B in self._pieces(len(order)):
            samples = self._samples(blocks, order[start:stop], there[start:stop])
            predicted[start:stop] = self._learn(B, *samples)[: stop - start]
        out = np.full((n, N, self.m), np.nan)
        predicted[~there] = np.nan
        np.put_along_axis(out, order[:, :, None], predicted, axis=0)
        thetas, results = np.array(self.known.theta), []
        grown = None if self.fresh is None else np.asarray(jax_sums.pack(self.fresh))
        for i, (state, one) in enumerate(zip(states, blocks, strict=True)):
            own = slice(i * self.K, (i + 1) * self.K)
            nodes = {"theta": thetas[own], "count": state.count + there[:, own].sum(axis=0)}
            if grown is not None:
                name = sharing.growing(state)
                nodes[name] = state.nodes[name] + grown[own]
            peak = float(np.abs(one.Y[used_rows(one)]).max(initial=state.peak))
            results.append((State(nodes, state.clock + n, peak), out[:, own]))
        return results

    def combine(self, states: Sequence[State]) -> list[State]:
        """Exchange sums, and solve all learners' at once."""
        new, got = [], []
        for plan, state in zip(self.batch.plans, states, strict=True):
            given = plan.problem, plan.exchange, plan.exchange.graphs, state
            state, mixed = exchange_vectors(*given)
            got.append(sharing.received(plan.problem.squares.fewest, state, mixed))
            new.append(state)
        sums, times, since = (
            np.concatenate(part)
            for part in zip(
                *((one.nodes["sums"], one.times, one.since) for one in got), strict=True
            )
        )
        own = [one.nodes["pending"] for one in got if "pending" in one.nodes]
        held = jnp.asarray(np.concatenate(own)) if own else None
        found = jax_sums.solve(self.settings, self.m, self.D, sums, times, since, held)
        ones = jnp.ones_like(found.den)
        self.known, self.since = Known(*found[:2], ones, 0 * ones, *found[2:4]), 0
        theta, left, K = np.array(found.theta), np.array(found.left), self.K
        each = zip(new, got, range(0, len(left), K), strict=True)
        return [
            state.having(**one.nodes | {"theta": theta[i : i + K], "sums": left[i : i + K]})
            for state, one, i in each
        ]

    def _pieces(self, rows: int) -> Iterator[tuple[int, int, int]]:
        """(start, stop, B): blocks of B rows, a power of two of them, so that few are compiled."""
        d, start = self.batch.plans[0].problem.map.d, 0
        room = SAMPLES // (8 * self.runs * self.K * (d + self.m + 1))
        while start < rows:
            B = min(BLOCK, 1 << (rows - start - 1).bit_length())
            count = int(min(rows - start, room, self.most)) // B
            stop = start + B * (1 << max(0, count.bit_length() - 1))
            yield start, min(stop, rows), B
            start = stop

    def _samples(
        self, blocks: Sequence[Block], order: Array, there: Array
    ) -> tuple[Array, Array, Array]:
        """x: (rows, N, d), y: (rows, N, m), w: (rows, N); zeros where there is no row."""
        each = []
        for i, one in enumerate(blocks):
            own = slice(i * self.K, (i + 1) * self.K)
            at = np.maximum(np.take_along_axis(one.index, order[:, own], axis=0), 0)
            weight = np.ones(at.shape) if one.weight is None else one.weight[at]
            each.append((dense(one.X, at), one.Y[at], weight))
        x, y, w = (np.concatenate(part, axis=1) for part in zip(*each, strict=True))
        x, y = (np.where(there[:, :, None], part, 0.0) for part in (x, y))
        return x, y, np.where(there, w, 0.0)

    def _learn(self, B: int, x: Array, y: Array, w: Array) -> Array:
        """Learn these rows; f: (rows, N, m), with rows filled up to whole blocks of B."""
        rows = -(-len(w) // B) * B
        if self.since + rows > self.most:
            self.known, self.since = _fold(self.known), 0
        self.since += rows
        x, y, w = (_in_blocks(each, rows, B) for each in (x, y, w))
        x = x.reshape(len(x), self.runs, self.K, B, -1)
        about = self.batch.plans[0].rule, self.batch.own, self.batch.map, self.settings
        (self.known, self.fresh), f = _learned(*about, (self.known, self.fresh), x, y, w)
        return np.moveaxis(np.asarray(f), 2, 1).reshape(rows, -1, self.m)

    def nodes(self) -> list[dict[str, Array]]:
        """What the nodes of each realization know, by name; theta and count are the states'."""
        known, K, results = _fold(self.known), self.K, []
        for i in range(self.runs):
            own = slice(i * K, (i + 1) * K)
            names = ("P", "a", "b", "num", "den")
            nodes = {name: np.array(getattr(known, name)[own]) for name in names}
            empty = np.zeros((K, LIST, self.D)), np.zeros((K, LIST)), np.zeros(K, np.int64)
            results.append(nodes | dict(zip("Wcn", empty, strict=True)))
        return results


def _order(blocks: Sequence[Block]) -> tuple[Array, Array]:
    """Which of its steps each learner learns from, those without a row last: there, order, both
    (rows, N) with as many rows as the learner that has most.
    """
    present = np.concatenate(
        [
            one.index >= 0
            if one.weight is None
            else (one.index >= 0) & (one.weight[np.maximum(one.index, 0)] > 0)
            for one in blocks
        ],
        axis=1,
    )
    order = np.argsort(~present, axis=0, kind="stable")[: present.sum(axis=0).max(initial=0)]
    return np.take_along_axis(present, order, axis=0), order


def dense(X: Any, at: Array) -> Array:
    """Rows X[at]: (rows, K, d) in float64."""
    rows = X[at.ravel()]
    rows = rows.toarray() if is_sparse(X) else np.asarray(rows)
    return rows.astype(np.float64, copy=False).reshape(*at.shape, -1)


def _in_blocks(table: Array, rows: int, B: int) -> Array:
    """(rows, N, ...) filled up with zeros -> (rows / B, N, B, ...)."""
    pad = [(0, rows - len(table))] + [(0, 0)] * (table.ndim - 1)
    full = np.pad(table, pad)
    return np.moveaxis(full.reshape(-1, B, *table.shape[1:]), 1, 2)


@jax.jit
def whole(P: Any, a: Any, b: Any, W: Any, c: Any, n: Any) -> Any:
    """The covariances (N, D, D) of memories with a list, of whose P the upper triangle counts."""
    full = jnp.triu(P) + jnp.triu(P, 1).mT
    V = W * jnp.where(jnp.arange(W.shape[1]) < n[:, None], c, 0.0)[:, :, None]
    eye = jnp.eye(P.shape[-1])
    return a[:, None, None] * full + b[:, None, None] * eye - V.mT @ V


_fold = jax.jit(fold, donate_argnums=0)


def features_of(kind: MapKind, map: Any, x: Any) -> Any:
    """x: (..., d) -> z: (..., D); what fills up a structured map is cut off."""
    rule: Any = kind
    z = jax_traced.features(rule, map, x)
    return z[..., : kind.D // z.shape[-2]].reshape(*x.shape[:-1], kind.D)


@partial(jax.jit, static_argnums=(0, 1), donate_argnums=4)
def _learned(
    kind: MapKind, own: bool, map: Any, settings: BlockNumbers, held: Any, x: Any, y: Any, w: Any
) -> Any:
    """Blocks in turn, x: (blocks, runs, K, B, d), y: (blocks, N, B, m), w: (blocks, N, B); held:
    what is known, and the sums of rows since the last exchange or None.
    """
    features = jax.vmap(partial(features_of, kind), in_axes=(0 if own else None, 0))

    def one(held: Any, step: Any) -> Any:
        (known, fresh), (x, y, w) = held, step
        Z = features(map, x).reshape(*w.shape, kind.D)
        known, f, held = block(settings, known, Z, y, w)
        grown = fresh if fresh is None else jax_sums.add(fresh, Z, y, held)
        return (known, grown), f

    return lax.scan(one, held, (x, y, w))


def step(
    plan: SquaresPlan, state: State, X: Array, Y: Array, w: Array | None = None
) -> tuple[State, Array]:
    """All nodes take one step on X: (K, d), Y: (K, m); returns the new state and f: (K, m)."""
    return rounds.one_step(advance, plan, state, X, Y, w)


@partial(jax.jit, static_argnums=0)
def _scores(kind: MapKind, map: Any, theta: Any, x: Any) -> Any:
    return features_of(kind, map, x) @ theta.T


def predict(
    plan: SquaresPlan, theta: Array, bias: Array, X: Any, workers: int | None = None
) -> Array:
    """Scores (N, m) of rows X with theta: (m, D), bias: (m,); some rows at a time."""
    X, out = check_rows(X, plan.problem.map.d), np.empty((X.shape[0], len(theta)))
    batch, N = alone(plan), X.shape[0]
    rows = min(ROWS, 1 << max(N - 1, 0).bit_length())
    with jax.enable_x64(True):
        vectors = jnp.asarray(theta, np.float64)
        for start in range(0, N, rows):
            x = dense(X, np.arange(start, min(start + rows, N)))
            full = np.pad(x, [(0, rows - len(x)), (0, 0)])
            found = np.asarray(_scores(plan.rule, batch.map, vectors, full))
            out[start : start + rows] = found[: len(x)]
    return out + bias
