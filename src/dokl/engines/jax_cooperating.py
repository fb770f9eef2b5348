"""Method `cooperation` by JAX: all members of all nodes of all realizations in one program.

What nodes know lies on the device for the time of a call, and so do their exchanges, where all is
sent and the weighted mean taken; other rules, and large networks, exchange as `diffusion.combine`
does, between two programs. Everything is in float64. A matrix that rounding has spoiled is rare,
and left to BLAS, which starts that member again: the call is then run there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dokl.arrays import Array, Block, used_rows
from dokl.diffusion import Problem, check_progress, largest_prediction
from dokl.engines import cooperating, jax_crew, jax_squares, jax_sums, rounds
from dokl.engines.jax_blocks import BlockNumbers, Known
from dokl.engines.jax_crew import (
    CrewAccounts,
    CrewGroup,
    CrewLayout,
    Gains,
    Held,
    Shared,
    Steps,
    Turns,
)
from dokl.engines.jax_squares import SquaresBatch, SquaresPlan, alone, load, predict, together
from dokl.exchange import Exchange
from dokl.methods.cooperation import node
from dokl.methods.cooperation.node import LEAST_WEIGHT, Team
from dokl.methods.squares.memory import LIST
from dokl.state import State

__all__ = ["advance", "advance_many", "alone", "load", "plan", "predict", "step", "together"]

# Steps of a chunk at most, rows of its blocks, and bytes of its samples and predictions.
LONGEST, BLOCK, ROOM = 1024, 64, 1 << 28
# Up to this many nodes they exchange on the device, by full matrices.
DENSE_UP_TO = 512
# log lam^rows below which a member's a P + b I is written as one matrix after each block.
LEAST = -300.0
COUNTED = ("reach", "own_reach", "energy", "covered", "error", "learned", "count")


def plan(problem: Problem, exchange: Exchange, dtype: Any = np.float64) -> SquaresPlan:
    """Prepare a problem (its features drawn) for `advance`; raises NotCompilable."""
    return jax_squares.plan(problem, exchange, dtype)


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
        jax_squares.check(plan, state, one)
    work = _Work(batch, states)
    with jax.enable_x64(True):
        if work.on_device:
            found = work.advance(states, blocks)
        else:
            pairs = [(plan.problem, plan.exchange) for plan in batch.plans]
            found = rounds.advance_many(pairs, work.advance, states, blocks)
    results = []
    for plan, old, one, (state, f) in zip(batch.plans, states, blocks, found, strict=True):
        if not all(np.isfinite(array).all() for array in state.nodes.values()):
            given = cooperating.plan(plan.problem, plan.exchange)
            results.append(cooperating.advance(given, old, one))
            continue
        largest = largest_prediction(f, state.theta)
        check_progress(plan.problem, plan.exchange, state, one, f, largest)
        results.append((replace(state, nodes={name: state.nodes[name] for name in old.nodes}), f))
    return results


def step(
    plan: SquaresPlan, state: State, X: Array, Y: Array, w: Array | None = None
) -> tuple[State, Array]:
    """All nodes take one step on X: (K, d), Y: (K, m); returns the new state and f: (K, m)."""
    return rounds.one_step(advance, plan, state, X, Y, w)


class _Work:
    """One call: who is at work, in which groups, over which graphs."""

    def __init__(self, batch: SquaresBatch, states: Sequence[State]) -> None:
        first = batch.plans[0]
        self.batch, self.exchange = batch, first.exchange
        self.K, self.m, self.D = states[0].theta.shape
        self.crew: Team = first.problem.method.crew(first.exchange)
        self.on_device = first.exchange.plain and self.K <= DENSE_UP_TO
        if not self.on_device:
            self.exchange = Exchange()  # of a program; nodes exchange between two of them

    def layout(self, T: int) -> CrewLayout:
        """Of chunks of T steps."""
        crew, members, groups = self.crew, self.crew.members, dict[Any, list[int]]()
        for i, member in enumerate(members):
            shared, lasting = member.role == "shared", crew.numbers[i].lam == 1.0
            key = shared, member.D(self.D), member.width == 0, shared and lasting
            groups.setdefault(key, []).append(i)
        made = {True: list[CrewGroup](), False: list[CrewGroup]()}
        for (shared, D, constant, lasting), each in groups.items():
            fades = T * min(math.log(crew.numbers[i].lam) for i in each) < LEAST
            made[shared].append(CrewGroup(tuple(each), D, constant, lasting, fades))
        bases, own = tuple(crew.base(i) for i in range(len(members))), tuple(crew.own)
        kind, runs = self.batch.plans[0].rule, len(self.batch.plans)
        both = tuple(made[True]), tuple(made[False])
        return CrewLayout(kind, self.batch.own, runs, self.K, bases, own, *both)

    def advance(
        self, states: Sequence[State], blocks: Sequence[Block]
    ) -> list[tuple[State, Array]]:
        """All chunks of a block in turn."""
        n, clock, runs, told = blocks[0].n, states[0].clock, len(states), []
        each = 8 * runs * self.K * (blocks[0].X.shape[1] + 6 * len(self.crew.members) * self.m)
        T = min(LONGEST, max(1, ROOM // each), 1 << max(0, n - 1).bit_length())
        T = 1 << (T.bit_length() - 1)
        layout, B = self.layout(T), min(T, BLOCK)
        held, flows = self.held(layout, states), self.flows()
        numbers = self.numbers(layout)
        for start in range(0, n, T):
            some = [one.steps(start, min(n, start + T)) for one in blocks]
            given = _steps(some, T), _turns(self.exchange, clock + start, some[0].n, T)
            about = layout, B, self.batch.map, numbers, flows
            held, mean = jax_crew.learned(*about, held, *given)
            shown = given[0].shown[: some[0].n, :, None]
            told.append(np.where(shown, np.asarray(mean)[: some[0].n], np.nan))
        f = np.concatenate(told) if told else np.empty((0, runs * self.K, self.m))
        return self.results(layout, held, states, blocks, f)

    # -- to the device and back ----------------------------------------------------------------
    def numbers(self, layout: CrewLayout) -> Any:
        """Those of all groups, and the bound on errors."""
        N = layout.runs * self.K

        def of(group: CrewGroup) -> BlockNumbers:
            each = [self.crew.numbers[i] for i in group.members]
            columns = zip(*((one.rho, one.lam, one.bound) for one in each), strict=True)
            return BlockNumbers(*(jnp.asarray(np.repeat(column, N)) for column in columns))

        parts = (tuple(map(of, groups)) for groups in (layout.shared, layout.rest))
        return *parts, jnp.asarray(self.crew.bound)

    def flows(self) -> Any:
        """(graphs + 1, runs, K, K), the last of zeros."""
        none = np.zeros((1, len(self.batch.plans), self.K, self.K))
        if not self.exchange.graphs:
            return jnp.asarray(none)
        each = [[flow.toarray() for flow in plan.exchange.flows] for plan in self.batch.plans]
        return jnp.asarray(np.concatenate([np.stack(each, axis=1), none]))

    def held(self, layout: CrewLayout, states: Sequence[State]) -> Held:
        """What nodes know, on the device."""

        def of(name: str) -> Array:
            return np.concatenate([state.nodes[name] for state in states])

        def known(group: CrewGroup) -> Known:
            def each(part: str) -> Any:
                names = (f"{self.crew.names[i]}.{part}" for i in group.members)
                return jnp.asarray(np.concatenate([of(name) for name in names]))

            P = jax_squares.whole(*map(each, ("P", "a", "b", "W", "c", "n")))
            ones = jnp.ones(len(P))
            return Known(each("theta"), P, ones, 0.0 * ones, each("num"), each("den"))

        def shared(group: CrewGroup) -> Shared:
            at, order = self.crew.sums(self.D, self.m), self.crew.shared
            sums = np.concatenate([of("sums")[:, at[i]] for i in group.members])
            seen = np.concatenate([of("seen")[:, order.index(i)] for i in group.members])
            unpacked = jax_sums.unpacked(jnp.asarray(sums), group.D, self.m)
            return Shared(known(group), unpacked, jnp.asarray(seen))

        alone, both = (
            Gains(*(jnp.asarray(of(f"{name}.{part}")) for part in Gains._fields))
            for name in ("alone", "all")
        )
        accounts = CrewAccounts(*(jnp.asarray(of(name)) for name in COUNTED))
        members = tuple(map(shared, layout.shared)), tuple(map(known, layout.rest))
        return Held(*members, alone, both, accounts)

    def results(
        self,
        layout: CrewLayout,
        held: Held,
        states: Sequence[State],
        blocks: Sequence[Block],
        f: Array,
    ) -> list[tuple[State, Array]]:
        """States of all realizations, and what was said of their rows."""
        arrays, found, K = self.arrays(layout, held), [], self.K
        for r, (state, one) in enumerate(zip(states, blocks, strict=True)):
            own = slice(r * K, (r + 1) * K)
            mine = {name: np.array(array[own]) for name, array in arrays.items()}
            mine |= {name: np.empty_like(state.nodes[name]) for name in ("theta", "bias")}
            if "common" in state:
                mine["common"] = np.empty_like(state.common)
            peak = float(np.abs(one.Y[used_rows(one)]).max(initial=state.peak))
            new = State(mine, state.clock + one.n, peak, state.sent)
            node.fold(self.crew, new)
            found.append((new, f[:, own]))
        return found

    def arrays(self, layout: CrewLayout, held: Held) -> dict[str, Array]:
        """Everything by name, of the nodes of all realizations one after the other."""
        N, crew = layout.runs * self.K, self.crew
        knowing = [*(each.known for each in held.shared), *held.rest]
        found = dict(zip(COUNTED, map(np.asarray, held.accounts), strict=True))
        for group, known in zip((*layout.shared, *layout.rest), knowing, strict=True):
            parts = {name: np.asarray(part) for name, part in known._asdict().items()}
            for e, i in enumerate(group.members):
                own = slice(e * N, (e + 1) * N)
                mine = {name: part[own] for name, part in parts.items()}
                mine |= {"W": np.zeros((N, LIST, group.D)), "c": np.zeros((N, LIST))}
                mine["n"] = np.zeros(N, np.int64)
                found |= {f"{crew.names[i]}.{name}": part for name, part in mine.items()}
        for name, gains in (("alone", held.alone), ("all", held.all)):
            found |= {f"{name}.{part}": np.asarray(a) for part, a in gains._asdict().items()}
        if crew.shared:
            found |= self.shared_arrays(layout, held, N)
        return found

    def shared_arrays(self, layout: CrewLayout, held: Held, N: int) -> dict[str, Array]:
        """sums: (N, S) and seen: (N, shared)."""
        sums, seen = dict[int, Array](), dict[int, Array]()
        for group, each in zip(layout.shared, held.shared, strict=True):
            vectors, rows = np.asarray(jax_sums.packed(each.sums)), np.asarray(each.seen)
            for e, i in enumerate(group.members):
                own = slice(e * N, (e + 1) * N)
                sums[i], seen[i] = vectors[own], rows[own]
        order = self.crew.shared
        return {
            "sums": np.hstack([sums[i] for i in order]),
            "seen": np.stack([seen[i] for i in order], axis=1),
        }


# -- steps and exchanges -------------------------------------------------------------------------
def _steps(blocks: Sequence[Block], T: int) -> Steps:
    """Rows of all nodes, filled up to T steps; zeros where there is no row."""
    each = []
    for one in blocks:
        at = np.maximum(one.index, 0)
        weight = np.ones(at.shape) if one.weight is None else one.weight[at].astype(np.float64)
        shown = (one.index >= 0) & (weight > 0)
        x, y = (
            np.where(shown[..., None], part, 0.0)
            for part in (jax_squares.dense(one.X, at), one.Y[at].astype(np.float64))
        )
        w = np.where(shown & (weight >= LEAST_WEIGHT), weight, 0.0)
        each.append((x[:, None], y, w, shown))
    full = (np.concatenate(part, axis=1) for part in zip(*each, strict=True))
    return Steps(*(np.pad(a, [(0, T - len(a))] + [(0, 0)] * (a.ndim - 1)) for a in full))


def _turns(exchange: Exchange, clock: int, n: int, T: int) -> Turns:
    """When nodes exchange in a chunk of T steps, of which n are there."""
    none = len(exchange.graphs)
    every = min(exchange.every, T) if none else T
    B = min(BLOCK, 1 << (every - 1).bit_length())
    # Steps of a piece lie between two exchanges; one more is for an exchange before all steps.
    pieces = 3 + T // every + (T // B if every > B else 0)
    at, graph, place = np.full((pieces, B), T), np.full(pieces, none), np.zeros(T, np.int64)
    after, i = np.full(T + 1, none), 0  # the exchange before all steps comes last
    for start, stop, turn in rounds.spans(exchange, clock, n):
        if start == stop:
            i = max(i, 1)
            graph[i - 1] = after[start - 1] = turn % none
        for first in range(start, stop, B):
            some = np.arange(first, min(stop, first + B))
            at[i, : len(some)], place[some] = some, i * B + np.arange(len(some))
            i += 1
    return Turns(at, place, graph, after[:T], after[T])
