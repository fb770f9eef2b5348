"""Exchanges with rules of their own, for an engine that runs nodes alone: a round, steps, a round.

Between two exchanges nodes are alone, and the engine runs them as fast as it can; the exchange
itself is `diffusion.combine`, whatever is sent and however it is mixed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from dokl.arrays import Array, Block
from dokl.diffusion import Problem, combine
from dokl.exchange import Exchange
from dokl.state import State

Advance = Callable[[State, Block], tuple[State, Array]]


def advance(
    problem: Problem, exchange: Exchange, alone: Advance, state: State, block: Block
) -> tuple[State, Array]:
    """Run a block, exchanging where it is time; alone: the engine without exchange."""
    graphs, cta, found, start = exchange.graphs, exchange.order == "cta", [], 0
    while start < block.n:
        if cta and state.clock % exchange.every == 0:
            state = combine(problem, exchange, graphs, state)
        stop = min(block.n, start + exchange.every - state.clock % exchange.every)
        state, f = _alone(alone, state, block.steps(start, stop))
        found.append(f)
        if not cta and state.clock % exchange.every == 0:
            # As in `diffusion.step_z`, the clock of the step that ends with the exchange.
            before = replace(state, clock=state.clock - 1)
            state = replace(combine(problem, exchange, graphs, before), clock=state.clock)
        start = stop
    if not found:
        return _alone(alone, state, block)
    return state, found[0] if len(found) == 1 else np.concatenate(found)


def _alone(alone: Advance, state: State, block: Block) -> tuple[State, Array]:
    """The engine's own arrays move on; what only the exchange knows stays."""
    new, f = alone(state, block)
    kept: dict[str, Any] = {
        name: array for name, array in state.nodes.items() if name not in new.nodes
    }
    return replace(new.having(**kept), sent=state.sent), f
