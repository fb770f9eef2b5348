"""Ways for the nodes of a network to share: methods and exchanges, tried on a sample side by side.

Vectors cost D numbers a message and learn slowly; sums of rows cost D^2 / 2 and give every node
what all rows in one place would predict. What that is worth depends on the data and on how often
one can afford to send, so it is tried: the same rows, dealt out to the nodes, by each of them.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from dokl.base.arrays import Array, is_sparse
from dokl.base.errors import BadInput
from dokl.base.unlocked import one_thread
from dokl.estimators import NetworkClassifier, NetworkRegressor
from dokl.learning import classification, kernels, losses
from dokl.learning.features import FeatureMap, sample
from dokl.learning.scales import Scales
from dokl.network.exchange import Exchange, Mixing, Sending
from dokl.network.graphs import check_weights
from dokl.network.sharing import WAYS
from dokl.simulation.diffusion import Problem
from dokl.simulation.engines import run
from dokl.simulation.methods import gradient, squares
from dokl.simulation.streams import Stream
from dokl.tables.plan.advice import Budget, Plan
from dokl.tables.plan.pilots import even, sample_scales
from dokl.tables.plan.planner import checked_sample

NETWORK_ROWS = 900  # of the sample, over all nodes; some seconds
FEWEST = 10  # rows of each node, if there are this many
EVERY = (1, 10, 50)
MOST_D = 300  # of squares, whose messages and time go with its square
MOST_BYTES = 2e8  # of all nodes' matrices in the trial
RIDGE = 0.01


@dataclass(frozen=True)
class Way:
    """One way to share, every n rows of a node (0: never).

    error: mean square or rate, over the second half of the rows that nodes had; bytes_sent: by a
    node for each of its rows; microseconds: a row, on this machine; fits: whether the budget allows
    it. `run(way.problem, way.exchange, stream)` does it; a network of banks is an `estimator`
    instead.
    """

    name: str
    every: int
    error: float
    bytes_sent: float
    microseconds: float
    fits: bool = True
    problem: Problem | None = field(default=None, repr=False)
    exchange: Exchange | None = field(default=None, repr=False)
    estimator: Any = field(default=None, repr=False)

    @property
    def python(self) -> str:
        """What does the same in Python, of `weights` and a `stream`, with every number."""
        if self.problem is None or self.exchange is None:
            kind, given = type(self.estimator).__name__, self.estimator
            how = f"share={given.share!r}, every={given.every}, random_state={given.random_state}"
            return f"{kind}(weights, {how})"
        shared = "" if self.exchange.weights is None else f"weights, every={self.exchange.every}"
        for name in ("sending", "mixing"):
            shared += _rules_words(name, getattr(self.exchange, name))
        problem = f"Problem({self.map_python}, {_method_words(self.problem.method)})"
        return f"run({problem}, Exchange({shared}), stream)"

    @property
    def map_python(self) -> str:
        """Its feature map in Python; empty for banks, which make their own."""
        if self.problem is None:
            return ""
        made = self.problem.map
        assert isinstance(made, FeatureMap)
        return f"Features({made.kernel!r}, {made.d}, {made.D}, {made.variant!r}).draw({made.seed})"

    def to_dict(self) -> dict[str, Any]:
        """What is a number or a text."""
        names = "name", "every", "error", "bytes_sent", "microseconds", "fits", "python"
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class VectorRules:
    """What goes out and how it is mixed, where vectors travel; of sums the type of number alone."""

    sending: Sending = field(default_factory=Sending)
    mixing: Mixing = field(default_factory=Mixing)

    def of(self, method: Any) -> dict[str, Any]:
        """The rules of an exchange by this method."""
        if not method.conserved:
            return {"sending": self.sending, "mixing": self.mixing}
        return {} if self.sending.dtype == "float16" else {"sending": Sending(self.sending.dtype)}


@one_thread()
def compare(
    advice: Plan, X: Any, y: object, weights: Any, budget: Budget | None = None, seed: int = 0,
    rules: VectorRules | None = None,
) -> list[Way]:  # fmt: skip
    """Try ways to share on the sample that a plan was made from, in the order of what they send.

    X: (N, d) and y: (N,) as for `plan`, weights: (K, K). Rows are dealt out to the nodes in turn.
    """
    X, Y, classifying = checked_sample(X, y, advice.task)
    if is_sparse(X):
        raise BadInput("ways to share are compared on dense rows: sparse ones travel as vectors")
    given = weights, classifying, seed, _dealt(X, Y, weights), rules or VectorRules()
    trial = _Trial(advice, budget or Budget(), *given)
    step = gradient(losses.resolve(advice.loss), advice.schedule, advice.alpha)
    narrow, ridge = trial.least_squares(sample_scales(X, Y, classifying))
    wide = trial.features(advice.lengths or advice.sigma, advice.D)
    sums, vectors = squares(ridge, share="sums"), squares(ridge)
    ways = [
        trial.way("squares, alone", Problem(narrow, vectors), 0),
        trial.way("gradient, vectors", Problem(wide, step), advice.every),
        trial.way("squares, vectors", Problem(narrow, vectors), 1),
        *(trial.way("squares, sums", Problem(narrow, sums), n) for n in EVERY),
        *(trial.banks(share) for share in WAYS),
    ]
    return sorted(ways, key=lambda way: way.bytes_sent)


@dataclass(frozen=True)
class _Trial:
    """What all ways have in common; stream: rows X (n, K, d) and targets (n, K, m)."""

    advice: Plan
    budget: Budget
    weights: Any
    classifying: bool
    seed: int
    stream: Stream
    rules: VectorRules

    def features(self, sigma: object, D: int) -> FeatureMap:
        """Of the plan's kernel and kind."""
        made = kernels.resolve(self.advice.kernel, sigma)
        return sample(made, self.stream.d, D, self.advice.variant, self.seed)

    def least_squares(self, found: Scales | None) -> tuple[FeatureMap, float]:
        """Features and ridge as the rows' length scales and noise say; else as for gradients."""
        room = math.sqrt(MOST_BYTES / (16 * self.stream.K))
        D = even(int(min(MOST_D, room)), self.advice.D)
        if found is None or self.advice.kernel == "laplacian":
            return self.features(self.advice.lengths or self.advice.sigma, D), RIDGE
        lengths = tuple(float(f"{each:.4g}") for each in found.lengths)
        ridge = min(1.0, max(1e-4, found.noise / max(found.amplitude, 1e-3) ** 2))
        return self.features(lengths, D), float(f"{ridge:.2g}")

    def way(self, name: str, problem: Problem, every: int) -> Way:
        """One way, run once; every: rows from one exchange to the next, 0 for none."""
        rules = self.rules.of(problem.method) if every else {}
        exchange = Exchange(self.weights if every else None, every=every or 1, **rules)
        what = "mistakes" if self.classifying else "mse"
        trace = run(problem, exchange, self.stream, record=(what, "bytes"), workers=1,
                    show_progress=False)  # fmt: skip
        samples = self.stream.n * self.stream.K
        error = float(trace[what][self.stream.n // 2 :].mean())
        sent = float(trace["bytes"][-1]) / samples
        return self._way(name, every, error, sent, trace.seconds / samples, problem, exchange)

    def banks(self, share: str) -> Way:
        """The estimators without settings, which send rows, or sums once they matter."""
        kind: Any = NetworkClassifier if self.classifying else NetworkRegressor
        given = {"share": share, "every": 1, "random_state": self.seed}
        network = kind(self.weights, **given)
        n, K, d = self.stream.X.shape
        nodes, X, Y = np.tile(np.arange(K), n), self.stream.X.reshape(-1, d), self._flat()
        y, began = (
            classification.class_numbers(Y) if self.classifying else Y[:, 0],
            time.perf_counter(),
        )
        known = {"classes": np.arange(max(2, Y.shape[1]))} if self.classifying else {}
        predicted = network.prequential(X, y, nodes=nodes, **known)
        seconds, late = (time.perf_counter() - began) / (n * K), slice(n // 2 * K, None)
        error = np.mean(
            predicted[late] != y[late] if self.classifying else (predicted - y)[late] ** 2
        )
        sent = float(network.sent_bytes_.sum()) / (n * K)
        made = kind(self.weights, **given)
        return self._way(f"banks, {share}", 1, float(error), sent, seconds, estimator=made)

    def _flat(self) -> Array:
        return np.asarray(self.stream.y).reshape(self.stream.n * self.stream.K, -1)

    def _way(
        self, name: str, every: int, error: float, sent: float, seconds: float, problem: Any = None,
        exchange: Any = None, estimator: Any = None,
    ) -> Way:  # fmt: skip
        budget, took = self.budget, seconds * 1e6
        asked = [(budget.bytes_per_second, sent * budget.rate), (budget.microseconds, took)]
        fits = all(most is None or needed <= most for most, needed in asked)
        return Way(name, every, error, sent, took, fits, problem, exchange, estimator)


def _rules_words(name: str, rules: Any) -> str:
    """Rules of an exchange in Python, what is usual left out."""
    settings = {f.name: getattr(rules, f.name) for f in fields(rules)}
    usual = type(rules)()
    words = [f"{key}={value!r}" for key, value in settings.items() if value != getattr(usual, key)]
    return f", {name}={type(rules).__name__}({', '.join(words)})" if words else ""


def _method_words(method: Any) -> str:
    if method.name == "squares":
        return f"squares({method.ridge:g}, share={method.share!r})"
    schedule = method.schedule
    step = f"normalised({schedule.scale:g})"
    if schedule.name == "pegasos":
        step = f"pegasos({method.lam:g}, {schedule.offset:g})"
    return f"gradient(losses.{method.loss.name}(), schedules.{step}, {method.lam:g})"


def _dealt(X: Array, Y: Array, weights: object) -> Stream:
    """Rows dealt out to the nodes in turn."""
    K = check_weights(weights, doubly=False).shape[0]
    n = min(X.shape[0], max(NETWORK_ROWS, FEWEST * K)) // K
    if n < 2:
        raise BadInput(f"{X.shape[0]} rows are too few to try {K} nodes: two rows each, or more")
    return Stream(X[: n * K].reshape(n, K, -1), Y[: n * K].reshape(n, K, -1))
