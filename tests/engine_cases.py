"""The cases that every engine is held to, their slow truth, and how states are compared."""

import functools
import math
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

import naive
from dokl import losses, schedules
from dokl.base.arrays import Block
from dokl.learning.features import sample
from dokl.learning.kernels import Gaussian
from dokl.learning.losses import Loss
from dokl.network.exchange import Exchange
from dokl.network.graphs import complete, metropolis, ring, star
from dokl.simulation.diffusion import Problem, init
from dokl.simulation.methods import gradient

SQUARED, HUBER = losses.squared(), losses.huber(0.5)
EPSILON, QUANTILE = losses.epsilon_insensitive(0.2), losses.quantile(0.8)
HALF, SQRT = schedules.constant(0.5), schedules.sqrt(0.7)
SLOW = schedules.inverse_power(0.8, 0.3, n0=2)


@dataclass(frozen=True)
class Case:
    """A small problem, its network and its samples, all from one line of settings."""

    name: str
    variant: str = "cos"
    loss: Loss = SQUARED
    schedule: schedules.Schedule = HALF
    lam: float = 0.0
    K: int = 4
    d: int = 2
    D: int = 12
    n: int = 200
    m: int = 1
    order: str = "cta"
    every: int = 1
    graph: str = "ring"
    intercept: float = 0.0
    average: str = "none"
    missing: bool = False
    weighted: bool = False
    inputs: str = "dense"

    @functools.cached_property
    def problem(self):
        features = sample(Gaussian(1.5), self.d, self.D, self.variant, seed=5)
        return Problem(features, gradient(self.loss, self.schedule, self.lam))

    @functools.cached_property
    def exchange(self):
        weights = {
            "alone": None,
            "ring": metropolis(ring(self.K)),
            "complete": metropolis(complete(self.K)),
            "sequence": [metropolis(ring(self.K)), metropolis(star(self.K)), np.eye(self.K)],
        }[self.graph]
        return Exchange(weights, self.order, self.every, self.intercept, self.average)

    @functools.cached_property
    def block(self):
        """Rows in random order; a fifth of the samples missing, and other weights, if asked for."""
        rng = np.random.default_rng(len(self.name))
        N = self.n * self.K
        X = rng.standard_normal((N, self.d))
        target = np.sin(X[:, :1] * np.arange(1, self.m + 1)) + 0.3 * rng.standard_normal((N, 1))
        Y = np.where(target > 0, 1.0, -1.0) if self.loss.margin else target
        if self.inputs == "csr":
            X *= rng.random((N, self.d)) < 0.6
            X[::7] = 0  # empty rows
            X = csr_array(X)
        elif self.inputs == "repeats":
            X = with_repeats(X)
        elif self.inputs == "zero":
            X = csr_array((N, self.d))
        weight = rng.choice([0.0, 0.5, 1.0, 1.7], N) if self.weighted else None
        index = rng.permutation(N).reshape(self.n, self.K)
        if self.missing:
            index[rng.random(index.shape) < 0.2] = -1
        return Block(X, Y, weight, index)

    @functools.cached_property
    def truth(self):
        """Predictions, theta, bias and the means, by naive.py."""
        block, exchange, problem = self.block, self.exchange, self.problem
        rows = np.maximum(block.index, 0)
        weight = np.ones(len(block.Y)) if block.weight is None else block.weight
        weight = np.where(block.index >= 0, weight[rows], 0.0)
        X = block.X.toarray() if hasattr(block.X, "toarray") else block.X
        graphs = [A.toarray().tolist() for A in exchange.graphs]
        method = problem.method
        learned = naive.learn(
            problem.features, method.loss, method.schedule, method.lam, graphs, exchange.order,
            exchange.every, exchange.intercept, exchange.average, X[rows].tolist(),
            block.Y[rows].tolist(), weight.tolist(), self.K,
        )  # fmt: skip
        return [np.array(part) for part in learned]


def with_repeats(X):
    """CSR that stores every number as two halves in the same column, as scipy allows."""
    N, d = X.shape
    columns = np.tile(np.repeat(np.arange(d), 2), N)
    return csr_array(
        (np.repeat(X.ravel() / 2, 2), columns, 2 * d * np.arange(N + 1)), shape=X.shape
    )


CASES = [
    Case("plain"),
    Case("alone", graph="alone", K=3, order="atc"),
    Case("one node", K=1, graph="alone", d=5, D=32, schedule=SQRT),
    Case("one node, averaged", K=1, graph="alone", average="weighted", intercept=1.0, missing=True),
    Case("complete graph", K=9, graph="complete", n=40, D=16, order="atc"),
    Case("complete graph, outputs", K=9, graph="complete", n=40, m=3, average="uniform"),
    Case("odd D", D=13, order="atc", every=3),
    Case("one feature", D=1, m=3, K=1, graph="alone", schedule=schedules.constant(0.3)),
    # losses
    Case("hinge", loss=losses.hinge(), schedule=schedules.pegasos(0.05), lam=0.05, order="atc"),
    Case("squared hinge", loss=losses.squared_hinge(), variant="paired", average="weighted"),
    Case("logistic", loss=losses.logistic(), schedule=SQRT, m=3, lam=1e-2, intercept=0.5),
    Case("huber", loss=HUBER, variant="orthogonal", order="atc", every=3, average="uniform"),
    Case("absolute", loss=losses.absolute(), schedule=SQRT, weighted=True),
    Case("epsilon", loss=EPSILON, schedule=SLOW, missing=True, order="atc", inputs="csr"),
    Case("quantile", loss=QUANTILE, schedule=SQRT, graph="sequence", m=3, weighted=True),
    # schedules
    Case(
        "pegasos with offset", loss=losses.hinge(), schedule=schedules.pegasos(0.01, 50), lam=0.01
    ),
    Case("normalised", schedule=schedules.normalised(0.9, eps=0.01), intercept=0.7, order="atc"),
    Case("normalised pairs", variant="sobol", schedule=schedules.normalised(1.2), intercept=0.7),
    Case(
        "normalised, structured", variant="structured", schedule=schedules.normalised(), D=24, d=5
    ),
    # variants, and how the loops gather their inputs, eight rows at a time
    Case("d=1", d=1, variant="sobol", D=14),
    Case("d=5", d=5, variant="orthogonal", D=22, m=3),
    Case("d=8", d=8, variant="paired", D=16, order="atc"),
    Case("d=9", d=9, variant="orthogonal", D=16, schedule=SQRT),
    Case("d=17", d=17, variant="cos", D=19, n=80, intercept=0.3),
    Case("d=17 pairs", d=17, variant="paired", D=32, n=80, order="atc", missing=True),
    Case("structured", d=2, variant="structured", D=32, order="atc", average="weighted"),
    Case("structured, blocks", d=17, variant="structured", D=100, n=40, m=3),
    # sparse inputs
    Case("csr", inputs="csr", d=9, D=16, missing=True, weighted=True),
    Case("csr pairs", inputs="csr", d=17, variant="paired", D=32, n=80, order="atc"),
    Case("csr, structured", inputs="csr", d=9, variant="structured", D=40, n=80, every=3),
    Case("csr, all zero", inputs="zero", d=5, intercept=1.0),
    Case("csr, all zero, structured", inputs="zero", d=5, variant="structured", n=40),
    Case("csr with repeats", inputs="repeats", d=9, n=80),
    Case("csr with repeats, structured", inputs="repeats", d=9, variant="structured", D=16, n=80),
    # exchange
    Case("sequence", graph="sequence", average="uniform", missing=True),
    Case("sequence, atc", graph="sequence", order="atc", average="weighted", every=3),
    Case("every third", every=3, average="weighted", intercept=0.4, m=3),
    Case("every third, atc", order="atc", every=3, average="uniform", missing=True, weighted=True),
    Case(
        "regularised", lam=0.05, loss=losses.hinge(), weighted=True, missing=True, average="uniform"
    ),
]
SMOOTH = [case for case in CASES if math.isfinite(case.loss.curvature)]


def fresh(case, dtype=np.float64):
    return init(case.problem, case.exchange, case.K, case.m, dtype)


def run(engine, case, dtype=np.float64):
    plan = engine.plan(case.problem, case.exchange, dtype)
    return engine.advance(plan, fresh(case, dtype), case.block)


def follows(case, state, f, tol):
    """A state and predictions are those of the slow truth."""
    predictions, theta, bias, mean, mean_bias = case.truth
    close = functools.partial(np.testing.assert_allclose, rtol=tol, atol=tol)
    close(f, predictions)
    close(state.theta, theta)
    close(state.bias, bias)
    if case.average != "none":
        close(state.mean_theta, mean)
        close(state.mean_bias, mean_bias)


def assert_same(state, other, **tolerance):
    """Two states equal, bit for bit unless a tolerance is given."""
    compare = functools.partial(np.testing.assert_allclose, rtol=0, **{"atol": 0} | tolerance)
    for name in ("theta", "bias", "count"):
        compare(getattr(state, name), getattr(other, name), err_msg=name)
    for mine, theirs in zip(state.delivered(), other.delivered(), strict=True):
        compare(mine, theirs, err_msg="delivered")
    assert state.clock == other.clock
