"""Algorithm 1 on one page: nodes combine what they have learned and adapt it to their own samples.

    psi   = sum_l a[k,l] theta[l]                              # combine
    theta = adapt(psi, x, y)                                   # adapt

How a sample changes a node is its *method*. The paper's is `simulation.gradient`, a rank-one update
of the combined estimate,

    theta = (1 - mu*lam) * psi - mu * slope(y, psi@z) * z

One node is K = 1, working alone is A = I, and adapt-then-combine swaps the two lines. This file is
the readable truth; the engines are faster copies of `step`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import numpy as np
from numpy.typing import DTypeLike

from dokl.base.arrays import Array, Block
from dokl.base.errors import BadInput, UnknownName
from dokl.learning.features import AnyMap, MapRecipe
from dokl.learning.metrics import mean_present
from dokl.network import state as states
from dokl.network.exchange import Exchange
from dokl.network.exchange.conserving import conserve_once
from dokl.network.exchange.rules import exchange_once
from dokl.network.state import State
from dokl.simulation.gradient import Gradient
from dokl.simulation.method import Method
from dokl.simulation.squares import Squares


@dataclass(frozen=True)
class Problem:
    """What is learned and how: features z (a map, or a recipe of one), and a method."""

    features: AnyMap | MapRecipe
    method: Method

    @property
    def map(self) -> AnyMap:
        """The features of a problem that is known to have drawn them."""
        return cast(AnyMap, self.features)

    @property
    def gradient(self) -> Gradient:
        """The method of a problem that is known to take gradient steps."""
        assert isinstance(self.method, Gradient)
        return self.method

    @property
    def squares(self) -> Squares:
        """The method of a problem that is known to be least squares."""
        assert isinstance(self.method, Squares)
        return self.method


def init(
    problem: Problem, exchange: Exchange, K: int, m: int = 1, dtype: DTypeLike = np.float64
) -> State:
    """K nodes that know nothing."""
    state = states.start(slots_of(problem, exchange, m), K, dtype)
    exchange.honest(K)  # faulty nodes must be among the nodes
    if exchange.graphs and not exchange.plain and not problem.method.merges:
        state.nodes["told"] = np.tile(0 * problem.method.outgoing(state), exchange.seats)
    return state


def slots_of(problem: Problem, exchange: Exchange, m: int) -> states.Slots:
    """The arrays of one node with m outputs, by name."""
    return problem.method.slots(problem.map, m, exchange)


def combine(problem: Problem, exchange: Exchange, graphs: list[Any], state: State) -> State:
    """Every node mixes what it has with what its neighbours sent, over the graph whose turn it is.

    Where all is sent and the weighted mean taken, that is psi_k = sum_l a_kl theta_l. What must
    not get lost, as sums of rows must not, is exchanged so that the network's total stays.
    """
    method = problem.method
    if method.merges:
        A = graphs[state.clock % len(graphs)]
        state, sent = problem.squares.merged(problem.map, exchange, state, A)
        return replace(state, sent=state.sent + sent)
    return method.incoming(*exchange_vectors(problem, exchange, graphs, state))


def exchange_vectors(
    problem: Problem, exchange: Exchange, graphs: list[Any], state: State
) -> tuple[State, Array]:
    """What each node has mixed, (K, P), and the state that remembers what was sent."""
    which, method = state.clock % len(graphs), problem.method
    A, payload = graphs[which], method.outgoing(state)
    if exchange.plain:
        return state, payload + exchange.flows[which] @ payload if method.conserved else A @ payload
    turn, sent_copies = state.clock // exchange.every, state.told.copy()
    seat, size = turn % exchange.seats, payload.shape[1]
    own = slice(seat * size, (seat + 1) * size)  # what the neighbours in this graph were sent
    sending, turn, known = exchange.sending, turn // exchange.seats, sent_copies[:, own]
    if method.conserved:
        links = A, exchange.flows[which]
        wild = partial(method.wild, problem.map, state)
        mixed, sent_copies[:, own], sent = conserve_once(
            sending, *links, turn, payload, known, exchange.faults, wild
        )
    else:
        mixed, sent_copies[:, own], sent = exchange_once(
            sending, exchange.mixing, A, turn, payload, known, exchange.faults
        )
    return replace(state.having(told=sent_copies), sent=state.sent + sent), mixed.astype(
        payload.dtype
    )


def combines_now(exchange: Exchange, graphs: list[Any], clock: int) -> bool:
    """Whether this step combines. The orders are offset by one step so that both make the
    same a-priori errors: ATC ends step `every` where CTA begins the step after it.
    """
    turn = clock if exchange.order == "cta" else clock + 1
    return bool(graphs) and turn % exchange.every == 0


def step(
    problem: Problem, exchange: Exchange, state: State, X: Array, Y: Array, w: Array | None = None
) -> tuple[State, Array]:
    """All nodes take one step on X: (K, d), Y: (K, m); returns the new state and f: (K, m)."""
    Z = problem.map.transform(X)
    w = np.ones(len(Y)) if w is None else w
    return step_z(problem, exchange, exchange.graphs, state.copy(), Z, Y, w)


def step_z(
    problem: Problem,
    exchange: Exchange,
    graphs: list[Any],
    state: State,
    Z: Array,
    Y: Array,
    w: Array,
) -> tuple[State, Array]:
    """The step itself, on a state that may be overwritten and features already computed."""
    mixing, kinds = combines_now(exchange, graphs, state.clock), _kinds(state)
    if mixing and exchange.order == "cta":
        state = combine(problem, exchange, graphs, state)
    state, f = problem.method.adapt(exchange, state, Z, Y, w)
    if mixing and exchange.order == "atc":
        state = combine(problem, exchange, graphs, state)
    nodes = {name: array.astype(kinds[name], copy=False) for name, array in state.nodes.items()}
    return _average(exchange, replace(state, nodes=nodes, clock=state.clock + 1)), f


def _kinds(state: State) -> dict[str, Any]:
    return {name: array.dtype for name, array in state.nodes.items()}


def average_gain(average: str, clock: int) -> float:
    """Weight of the newest vector in the running mean after `clock` steps (clock >= 1)."""
    return 1.0 / clock if average == "uniform" else 2.0 / (clock + 1)


def _average(exchange: Exchange, state: State) -> State:
    if "mean_theta" in state:
        gain = average_gain(exchange.average, state.clock)
        state.nodes["mean_theta"] += gain * (state.theta - state.mean_theta)
        state.nodes["mean_bias"] += gain * (state.bias - state.mean_bias)
    return state


def check_block(features: AnyMap, nodes: int | None, state: State, block: Block) -> None:
    """Refuse what cannot be learned from, before anything has changed.

    `nodes` is the size of the combination matrices, None where every node is alone.
    """
    K, m, _ = state.theta.shape
    if block.X.shape[1] != features.d:
        raise BadInput(f"samples have {block.X.shape[1]} inputs, the features expect {features.d}")
    if block.index.shape[1] != K or block.Y.shape[1] != m:
        raise BadInput(
            f"the stream has {block.index.shape[1]} nodes and {block.Y.shape[1]} outputs, "
            f"the state {K} and {m}"
        )
    if nodes is not None and nodes != K:
        raise BadInput(f"the combination weights are for {nodes} nodes, the stream has {K}")
    N = block.X.shape[0]
    if len(block.Y) != N or (block.weight is not None and len(block.weight) != N):
        raise BadInput(f"X has {N} rows; targets, and weights if any, must have as many")


def check_index(block: Block) -> None:
    """Refuse an index beyond the last row; the compiled loops find that out by themselves."""
    N, last = block.X.shape[0], int(block.index.max(initial=-1))
    if last >= N:
        raise BadInput(f"the index asks for row {last}, and there are {N} rows")


def largest_prediction(f: Array, theta: Array) -> float:
    """The largest |f|: (n, K, m), without absent ones; infinite if theta is not finite."""
    if not np.isfinite(theta).all():
        return math.inf
    return float(np.abs(f[~np.isnan(f)]).max(initial=0.0))


def check_progress(
    problem: Problem, exchange: Exchange, state: State, block: Block, f: Array, largest: float
) -> None:
    """After a block: the method raises if targets were not finite, or if the iterates diverged.

    f: (n, K, m) predictions and the largest |f| among them, infinite if theta is not finite.
    """
    problem.method.check(problem.map, exchange, state, block, f, largest)


@dataclass
class Trace:
    """What a run recorded: `curves[name]` has shape (runs, points, ...), taken after `at[name]`
    steps. `states` are the final states, one per run where they were asked for. Means are of
    what is there: NaN says that no node had a sample.
    """

    curves: dict[str, Array]
    at: dict[str, Array]
    states: list[State]
    runs: int
    steps: int
    seed: int
    engine: str
    dtype: str
    seconds: float

    def __getitem__(self, name: str) -> Array:
        """The mean over runs of a recorded quantity."""
        return mean_present(self._record(name), (0,))

    def error(self, name: str) -> Array:
        """Standard error of that mean."""
        curves = self._record(name)
        count = (~np.isnan(curves)).sum(axis=0)
        variance = mean_present((curves - self[name]) ** 2, (0,))
        return np.asarray(np.sqrt(variance / np.maximum(count - 1, 1)))

    def tail(self, name: str = "mse", share: float = 0.1) -> Array:
        """Mean of the last tenth of each run: (runs,), the steady state when there is one."""
        curves = self._record(name)
        keep = max(1, round(share * curves.shape[1]))
        return mean_present(curves[:, -keep:].reshape(self.runs, -1), (1,))

    def _record(self, name: str) -> Array:
        if name not in self.curves:
            raise UnknownName("recorded quantity", name, self.curves)
        return self.curves[name]
