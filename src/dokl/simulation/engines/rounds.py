"""Exchanges with rules of their own, for an engine that runs nodes alone: a round, steps, a round.

Between two exchanges nodes are alone, and the engine runs them as fast as it can; the exchange
itself is `diffusion.combine`, whatever is sent and however it is mixed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dokl.base.arrays import Array, Block
from dokl.network.exchange import Exchange
from dokl.network.state import State
from dokl.simulation.diffusion import Problem, combine

Advance = Callable[[State, Block], tuple[State, Array]]
AdvanceMany = Callable[[Sequence[State], Sequence[Block]], Sequence[tuple[State, Array]]]
Combine = Callable[[Sequence[State]], Sequence[State]]


def advance(
    problem: Problem, exchange: Exchange, alone: Advance, state: State, block: Block
) -> tuple[State, Array]:
    """Run a block, exchanging where it is time; alone: the engine without exchange."""

    def each(states: Sequence[State], blocks: Sequence[Block]) -> list[tuple[State, Array]]:
        return [alone(*one) for one in zip(states, blocks, strict=True)]

    return advance_many([(problem, exchange)], each, [state], [block])[0]


def advance_many(
    pairs: Sequence[tuple[Problem, Exchange]],
    alone: AdvanceMany,
    states: Sequence[State],
    blocks: Sequence[Block],
    combine: Combine | None = None,
) -> list[tuple[State, Array]]:
    """The same for realizations in step: all exchange at the same steps, each over its graphs.

    combine: how, where the engine has a way of its own.
    """
    combined = combine or (
        lambda states: [_combine(*pair, state) for pair, state in zip(pairs, states, strict=True)]
    )
    exchange, n = pairs[0][1], blocks[0].n
    cta, every, found, start = exchange.order == "cta", exchange.every, [], 0
    if not any(exchange.graphs for _, exchange in pairs):
        return _alone(alone, states, blocks)
    while start < n:
        clock = states[0].clock
        if cta and clock % every == 0:
            states = combined(states)
        stop = min(n, start + every - clock % every)
        advanced = _alone(alone, states, [block.steps(start, stop) for block in blocks])
        states = [state for state, _ in advanced]
        found.append([f for _, f in advanced])
        if not cta and states[0].clock % every == 0:
            # As in `diffusion.step_z`, the clock of the step that ends with the exchange.
            ended = combined([replace(state, clock=state.clock - 1) for state in states])
            states = [replace(state, clock=state.clock + 1) for state in ended]
        start = stop
    if not found:
        return _alone(alone, states, blocks)
    joined = found[0] if len(found) == 1 else map(np.concatenate, zip(*found, strict=True))
    return list(zip(states, joined, strict=True))


def one_step(
    advance: Callable[..., tuple[State, Array]],
    plan: object,
    state: State,
    X: Array,
    Y: Array,
    w: Array | None = None,
) -> tuple[State, Array]:
    """All nodes take one step on X: (K, d), Y: (K, m), by an engine's `advance`; returns the new
    state and f: (K, m).
    """
    index = np.arange(len(Y), dtype=np.int64).reshape(1, -1)
    state, f = advance(plan, state, Block(X, np.asarray(Y), w, index))
    return state, f[0]


def _combine(problem: Problem, exchange: Exchange, state: State) -> State:
    graphs = exchange.graphs
    return combine(problem, exchange, graphs, state) if graphs else state


def _alone(
    alone: AdvanceMany, states: Sequence[State], blocks: Sequence[Block]
) -> list[tuple[State, Array]]:
    """The engine's own arrays move on; what only the exchange knows stays."""
    advanced = []
    for state, (new, f) in zip(states, alone(states, blocks), strict=True):
        kept: dict[str, Any] = {
            name: array for name, array in state.nodes.items() if name not in new.nodes
        }
        advanced.append((replace(new.having(**kept), sent=state.sent), f))
    return advanced
