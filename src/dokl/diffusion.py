"""Algorithm 1 on one page: nodes combine their vectors and adapt them to their own samples.

Every gradient learner here is a rank-one update of a combined estimate:

    psi   = sum_l a[k,l] theta[l]                              # combine
    theta = (1 - mu*lam) * psi - mu * slope(y, psi@z) * z      # adapt

`slope` is the derivative of the loss in the prediction: KLMS, Pegasos, logistic and Huber
regression differ only there and in the schedule mu. One node is K = 1, working alone is A = I,
and adapt-then-combine swaps the two lines. This file is the readable truth; the engines are
faster copies of `step`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from dokl.arrays import Array, Block, first_bad
from dokl.errors import BadInput, Diverged, UnknownName
from dokl.features import FeatureMap
from dokl.graphs import check_weights
from dokl.losses import Loss
from dokl.metrics import mean_present
from dokl.schedules import Schedule

ORDERS = ("cta", "atc")
AVERAGES = ("none", "uniform", "weighted")


@dataclass(frozen=True)
class Problem:
    """What is learned: features z (a map, or a recipe of one), loss, schedule, L2 strength lam."""

    features: Any
    loss: Loss
    schedule: Schedule
    lam: float = 0.0

    def __post_init__(self) -> None:
        if not (np.isfinite(self.lam) and self.lam >= 0):
            raise BadInput(f"regularization lam must be finite and at least 0, got {self.lam!r}")


@dataclass(frozen=True)
class Exchange:
    """How nodes share: who with whom, in which order, how often, and what stays private.

    weights    (K, K) stochastic matrix, dense or CSR; a sequence of them, used in turn step by
               step (a changing network); a recipe of either; None: every node alone.
    order      "cta" combine-then-adapt (the paper; a node delivers its adapted vector) or
               "atc" adapt-then-combine (delivers the combined vector; same a-priori errors).
    every      combine at every so many steps.
    intercept  size c of a private constant feature, never shared: f = theta'z + c b. 0: none.
    average    what is delivered: the last vector ("none"), or the mean of all of them, "uniform"
               or "weighted" by step number (the first iterates of Pegasos are wild).
    """

    weights: Any = None
    order: str = "atc"
    every: int = 1
    intercept: float = 0.0
    average: str = "none"

    def __post_init__(self) -> None:
        if self.order not in ORDERS:
            raise UnknownName("order", self.order, ORDERS)
        if self.average not in AVERAGES:
            raise UnknownName("average", self.average, AVERAGES)
        if not (isinstance(self.every, int | np.integer) and self.every >= 1):
            raise BadInput(f"every must be a whole number of steps, at least 1, got {self.every!r}")
        if not (np.isfinite(self.intercept) and self.intercept >= 0):
            raise BadInput(f"intercept must be finite and at least 0, got {self.intercept!r}")

    @cached_property
    def graphs(self) -> list[Any]:
        """The combination matrices, checked, as CSR arrays; empty when every node is alone.

        Rows must sum to one, and all graphs of a sequence together must connect the network. The
        theory also wants columns that sum to one; `graphs.check_weights` tells.
        """
        if self.weights is None:
            return []
        several = isinstance(self.weights, Sequence) or getattr(self.weights, "ndim", 2) == 3
        each = self.weights if several else [self.weights]
        checked = [check_weights(A, doubly=False, connected=False) for A in each]
        for A in checked:
            A.eliminate_zeros()  # a stored zero is no link
        if not checked:
            raise BadInput("weights are an empty sequence: give a matrix, or None to work alone")
        if all(A.shape == checked[0].shape for A in checked):
            if all(A.nnz == A.shape[0] and (A.diagonal() == 1).all() for A in checked):
                return []  # identities: alone, and nothing to compute
            check_weights(sum(checked) / len(checked), doubly=False)
            return checked
        raise BadInput(f"weights change their size: {[A.shape for A in checked]}")


@dataclass
class State:
    """All that the nodes remember; its size never depends on how much was learned.

    theta: (K, m, D); bias: (K, m) private intercepts; mean_theta, mean_bias: running averages,
    or None; count: (K,) samples seen per node; clock: steps taken; peak: largest |y| seen.
    """

    theta: Array
    bias: Array
    mean_theta: Array | None
    mean_bias: Array | None
    count: Array
    clock: int = 0
    peak: float = 0.0

    def copy(self) -> State:
        """An independent copy: engines advance a copy, so a failed call changes nothing."""
        means = self.mean_theta, self.mean_bias
        mean_theta, mean_bias = (None if a is None else a.copy() for a in means)
        arrays = self.theta.copy(), self.bias.copy(), mean_theta, mean_bias, self.count.copy()
        return State(*arrays, self.clock, self.peak)

    def delivered(self) -> tuple[Array, Array]:
        """The vectors (K, m, D) and intercepts (K, m) to predict with."""
        if self.mean_theta is None or self.mean_bias is None:
            return self.theta, self.bias
        return self.mean_theta, self.mean_bias


def init(
    problem: Problem, exchange: Exchange, K: int, m: int = 1, dtype: Any = np.float64
) -> State:
    """Every node at theta = 0."""
    theta, bias = np.zeros((K, m, problem.features.D), dtype), np.zeros((K, m), dtype)
    count = np.zeros(K, np.int64)
    if exchange.average == "none":
        return State(theta, bias, None, None, count)
    return State(theta, bias, theta.copy(), bias.copy(), count)


def combine(graphs: list[Any], clock: int, theta: Array) -> Array:
    """psi_k = sum_l a_kl theta_l with the graph whose turn it is; theta: (K, m, D)."""
    A = graphs[clock % len(graphs)]
    mixed: Array = (A @ theta.reshape(len(theta), -1)).reshape(theta.shape)
    return mixed


def combines_now(exchange: Exchange, graphs: list[Any], clock: int) -> bool:
    """Whether this step combines. The orders are offset by one step so that both make the
    same a-priori errors: ATC ends step `every` where CTA begins the step after it.
    """
    turn = clock if exchange.order == "cta" else clock + 1
    return bool(graphs) and turn % exchange.every == 0


def adapt(
    problem: Problem, exchange: Exchange, state: State, psi: Array, Z: Array, Y: Array, w: Array
) -> tuple[Array, Array]:
    """One gradient step per node from psi: (K, m, D); Z: (K, D), Y: (K, m), w: (K,).

    Returns the new theta and the a-priori predictions f: (K, m). Nodes with w = 0 have no
    sample: they keep psi, and their prediction is NaN.
    """
    c, theta, f = exchange.intercept, psi.copy(), np.full(Y.shape, np.nan)
    for k in np.flatnonzero(w > 0):
        z = Z[k]
        f[k] = psi[k] @ z + c * state.bias[k]
        state.count[k] += 1
        mu = problem.schedule(int(state.count[k]), float(z @ z + c * c))
        pull = mu * w[k] * problem.loss.slope(Y[k], f[k])  # (m,)
        theta[k] = (1 - mu * problem.lam) * psi[k] - pull[:, None] * z
        state.bias[k] -= pull * c
    return theta, f


def step(
    problem: Problem, exchange: Exchange, state: State, X: Array, Y: Array, w: Array | None = None
) -> tuple[State, Array]:
    """All nodes take one step on X: (K, d), Y: (K, m); returns the new state and f: (K, m)."""
    Z = problem.features.transform(X)
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
    mixing, clock = combines_now(exchange, graphs, state.clock), state.clock
    if exchange.order == "cta":
        psi = combine(graphs, clock, state.theta) if mixing else state.theta
        theta, f = adapt(problem, exchange, state, psi, Z, Y, w)
    else:
        theta, f = adapt(problem, exchange, state, state.theta, Z, Y, w)
        theta = combine(graphs, clock, theta) if mixing else theta
    state = replace(state, theta=theta.astype(state.theta.dtype, copy=False), clock=clock + 1)
    return _average(exchange, state), f


def average_gain(average: str, clock: int) -> float:
    """Weight of the newest vector in the running mean after `clock` steps (clock >= 1)."""
    return 1.0 / clock if average == "uniform" else 2.0 / (clock + 1)


def _average(exchange: Exchange, state: State) -> State:
    if state.mean_theta is not None and state.mean_bias is not None:
        gain = average_gain(exchange.average, state.clock)
        state.mean_theta += gain * (state.theta - state.mean_theta)
        state.mean_bias += gain * (state.bias - state.mean_bias)
    return state


def check_block(features: FeatureMap, nodes: int | None, state: State, block: Block) -> None:
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


def used_rows(block: Block) -> Array:
    """Numbers of the rows that nodes learn from, in order: not absent, and of some weight."""
    rows = np.unique(block.index[block.index >= 0])
    return rows if block.weight is None else rows[block.weight[rows] > 0]


def check_progress(
    problem: Problem, exchange: Exchange, state: State, block: Block, f: Array, largest: float
) -> None:
    """After a block: raise if targets were not finite, or if the iterates diverged.

    f: (n, K, m) predictions and the largest |f| among them, infinite if theta is not finite.
    Losses with a bounded slope move by bounded steps, so only the others are held to a multiple
    of the targets' size.
    """
    if not math.isfinite(state.peak):
        used = used_rows(block)
        bad = first_bad(block.Y[used])
        row = "" if bad is None else f" of row {used[bad[0]]}"
        raise BadInput(f"target{row} is NaN or infinite: remove the row or give it weight 0")
    limit = math.inf if problem.loss.bounded else 1e6 * (1.0 + state.peak)
    if largest <= limit and largest < math.inf:
        return
    wild = np.flatnonzero(~(np.abs(np.nan_to_num(f)) < min(limit, 1e30)).all(axis=(1, 2)))
    at = state.clock - len(f) + (int(wild[0]) + 1 if wild.size else len(f))
    longest = problem.features.sup_norm2 + exchange.intercept**2
    curvature = problem.loss.curvature if math.isfinite(problem.loss.curvature) else 1.0
    first = float(problem.schedule(1, longest))
    safe = 1.0 / (curvature * longest + problem.lam)
    raise Diverged(
        f"the iterates diverged at step {at}: the step of schedule "
        f"{problem.schedule.name!r} is {first:.4g} at n = 1, and the mean square is only sure to "
        f"stay finite below {2 * safe:.4g} = 2/(curvature * sup|z|^2 + lam), the intercept "
        f"included. Use a step of at most {safe:.4g}. Nothing was changed."
    )


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
        return mean_present(self._recorded(name), (0,))

    def error(self, name: str) -> Array:
        """Standard error of that mean."""
        curves = self._recorded(name)
        count = (~np.isnan(curves)).sum(axis=0)
        variance = mean_present((curves - self[name]) ** 2, (0,))
        return np.asarray(np.sqrt(variance / np.maximum(count - 1, 1)))

    def tail(self, name: str = "mse", share: float = 0.1) -> Array:
        """Mean of the last tenth of each run: (runs,), the steady state when there is one."""
        curves = self._recorded(name)
        keep = max(1, round(share * curves.shape[1]))
        return mean_present(curves[:, -keep:].reshape(self.runs, -1), (1,))

    def _recorded(self, name: str) -> Array:
        if name not in self.curves:
            raise UnknownName("recorded quantity", name, self.curves)
        return self.curves[name]
