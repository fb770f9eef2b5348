"""From a sample (or a law of the inputs), a graph and a budget to a plan."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from dokl.base.arrays import Array, Block, check_rows, is_sparse
from dokl.base.errors import BadInput
from dokl.base.progress import Bar
from dokl.base.random_numbers import generator
from dokl.base.unlocked import one_thread
from dokl.estimators.choices import median_distance, width
from dokl.learning import kernels, losses, schedules
from dokl.learning.columns import are_classes
from dokl.learning.features import FeatureMap, sample
from dokl.learning.scales import Scales
from dokl.network import graphs
from dokl.network.exchange import Exchange
from dokl.simulation import theory
from dokl.simulation.diffusion import Problem, init
from dokl.simulation.engines import choose
from dokl.simulation.methods import gradient
from dokl.tables.plan.advice import Advice, Budget, Plan, step_words
from dokl.tables.plan.pilots import (
    EXPERT_SHARE,
    SCALE_ROWS,
    ExpertPilot,
    Pilots,
    even,
    expert_pilot,
    least_noise,
    lower_end,
    sample_scales,
)

DEFAULT_D = 1000
SEARCH_SHARE = 20  # of a hundred parts of all work: widths and steps
THEORY_ROWS = 1500
LONGEST_CURVE = 20_000
# Of ridge regression, over the largest eigenvalue. Rows it has not seen choose among them:
# generalised cross-validation is fooled where the same inputs come again and again (airfoil).
STRENGTHS = np.logspace(-8, 0, 17)


@one_thread()  # hundreds of small products
def plan(
    X: Any,
    y: object,
    *,
    task: str = "auto",
    weights: object = None,
    budget: Budget | None = None,
    D: int | None = None,
    kernel: str = "gaussian",
    seed: int = 0,
    predict: bool = True,
    bar: Bar | None = None,
) -> Plan:
    """Recommend width, size, step and exchange for data like this sample.

    X: (N, d) dense or CSR, as the learner will see it (standardise it first); y: (N,) numbers or
    labels. weights: (K, K) of the network, None for one node. The rows should be in no order.
    predict: whether theory is asked, too, which takes most of the time. bar: to show how far it is;
    it advances by SEARCH_SHARE + EXPERT_SHARE.
    """
    budget = budget or Budget()
    X, Y, classifying = checked_sample(X, y, task)
    size, why = _size(X.shape[1], Y.shape[1], D, budget)
    scales = sample_scales(X, Y, classifying)
    pilots = _pilots(X, Y, classifying, kernel, size, seed, scales)
    best, error = pilots.search()
    bar = bar or Bar()
    bar.advance(SEARCH_SHARE, "learning a sample")
    experts = expert_pilot(X, Y, classifying, budget, weights is not None, D, bar)
    if experts.refused:
        bar.advance(EXPERT_SHARE)
    schedule, alpha, average = pilots.settings(best)
    sigma, stretched = pilots.sigma(best), pilots.made(best)
    lengths = stretched.lengths if isinstance(stretched, kernels.Stretched) else None
    features = sample(stretched, X.shape[1], size, pilots.variant, seed)
    predicted = None
    if predict and not classifying:
        predicted = _predict(features, X, Y[:, 0], schedule, weights)
    made = _Setting(features, schedule, weights, budget, average, Y.shape[1])
    head = experts.lines
    if predicted is not None:
        head.append(_floor(X, Y, scales, error, experts, predicted))
    if budget.accuracy is not None:
        head.append(_verdict(budget.accuracy, error, predicted, experts))
    lines = _pilot_lines(sigma, lengths, (size, why), schedule, error, classifying)
    lines += _theory_lines(predicted, made) + _price_lines(predicted, made)
    return Plan(
        "classification" if classifying else "regression", kernel, sigma, size, pilots.variant,
        pilots.loss.name, schedule, alpha, average, made.every(),
        predicted.r if predicted else None, head + lines, predicted.curve if predicted else None,
        predicted.alone if predicted else None, pilots.spent, lengths,
        "gradient" if experts.refused else "bank", experts,
    )  # fmt: skip


def _pilots(
    X: object, Y: Array, classifying: bool, kernel: str, size: int, seed: int, scales: Scales | None
) -> Pilots:
    """Runs of the gradient method on the sample, before the first of them."""
    variant = "orthogonal" if kernels.resolve(kernel, 1.0).isotropic else "paired"
    loss = losses.hinge() if classifying else losses.squared()
    pilots = Pilots(X, Y, classifying, loss, kernel, base(X), size, variant, seed)
    pilots.plain, pilots.lengths = width("scale", X), _lengths(scales, kernel)
    return pilots


def _pilot_lines(
    sigma: float, lengths: tuple[float, ...] | None, size: tuple[int, str], schedule: Any,
    error: float, classifying: bool,
) -> list[Advice]:  # fmt: skip
    """What the pilots of the gradient method settled; size: of the model, and what decided it."""
    lines = [Advice("sigma", sigma, "pilot runs; rows are alike, and come in no order")]
    if lengths is not None:
        about = f"{min(lengths):.3g} to {max(lengths):.3g}"
        rests_on = f"marginal likelihood, {SCALE_ROWS} rows"
        lines.append(Advice("width along each input", about, rests_on))
    name = "error rate" if classifying else "mean square error"
    return [
        *lines,
        Advice("D", *size),
        Advice("step", step_words(schedule), "pilot runs of one pass"),
        Advice(f"{name} of the pilots", error, "a third of the sample, once"),
    ]


def _floor(
    X: Any, Y: Array, found: Scales | None, error: float, experts: ExpertPilot, gradient: _Predicted
) -> Advice:
    """An error that nothing here gets below: noise, and what pilots have reached already."""
    spread = float(Y.var())
    reached = {"noise": least_noise(X, found) * spread, "vector": gradient.j_opt}
    pilots = [(error, X.shape[0] // 6)] + [(experts.error, experts.rows // 2)] * bool(experts.rows)
    reached["pilots"] = min(lower_end(each, rows) for each, rows in pilots)
    lowest = min(reached, key=lambda name: reached[name])
    words = {
        "noise": f"noise by marginal likelihood, {SCALE_ROWS} rows, less two standard errors",
        "vector": "noise and misfit of the best vector",
        "pilots": "what the pilots reached, less two standard errors",
    }
    return Advice("smallest reachable error", reached[lowest], words[lowest])


def _lengths(found: Scales | None, kernel: str) -> tuple[float, ...] | None:
    """Length scales of geometric mean 1; None where there are none."""
    if found is None or kernel == "laplacian" or len(found.lengths) == 1:
        return None
    relative = found.lengths / np.exp(np.log(found.lengths).mean())
    return tuple(float(f"{each:.4g}") for each in relative)


@one_thread()
def plan_law(
    mean: Any,
    cov: Any,
    *,
    noise: float,
    sigma: float,
    D: int,
    mu: float | None = None,
    target: Any = None,
    weights: object = None,
    budget: Budget | None = None,
    kernel: str = "gaussian",
    variant: str = "cos",
    seed: int = 0,
) -> Plan:
    """The same from a stated law, inputs ~ N(mean, cov): no data, so the width is given.

    target: a function of X: (n, d); None takes a random expansion of 50 kernels with power 1.
    mu: None takes half the mean-square limit.
    """
    budget = budget or Budget()
    mean = np.atleast_1d(np.asarray(mean, float))
    inputs = theory.gaussian_inputs(mean, cov)
    features = sample(kernels.resolve(kernel, sigma), len(mean), D, variant, seed)
    basis = theory.basis(features, inputs)
    target = target if target is not None else _expansion(features, inputs, seed)
    about = theory.model_on(basis, np.asarray(target(inputs.X), float)[:, None], noise)
    limit = theory.mean_square_limit(basis)
    step = 0.5 * limit if mu is None else mu
    schedule = schedules.constant(step)
    predicted = _predicted(about, schedule, weights)
    made = _Setting(features, schedule, weights, budget, "none", 1)
    lines = [
        Advice("sigma", sigma, "given"),
        Advice("D", D, "given"),
        Advice("step", step_words(schedule), "given" if mu else "half the mean-square limit"),
    ]
    lines.append(
        Advice("smallest reachable error", predicted.j_opt, "noise and misfit of the best vector")
    )
    lines += _theory_lines(predicted, made) + _price_lines(predicted, made)
    if budget.accuracy is not None:
        lines.append(_verdict(budget.accuracy, predicted.steady, predicted))
    return Plan(
        "regression", kernel, sigma, D, variant, "squared", schedule, 0.0, "none", made.every(),
        predicted.r, lines, predicted.curve, predicted.alone,
    )  # fmt: skip


def _expansion(features: FeatureMap, inputs: Any, seed: int) -> Any:
    rng = generator(seed, "plan-target")
    centres = inputs.X[rng.choice(len(inputs.X), 50, p=inputs.weight)]
    bare = theory.KernelExpansion(features.kernel, centres, rng.standard_normal(50))
    size = math.sqrt(float(inputs.weight @ bare(inputs.X) ** 2))
    return theory.KernelExpansion(features.kernel, centres, bare.coefficients / size)


def checked_sample(X: Any, y: Any, task: str) -> tuple[Any, Array, bool]:
    """X as rows, Y: (N, m) as the engines take it, and whether there are classes."""
    if task not in ("auto", "regression", "classification"):
        raise BadInput(f"task must be auto, regression or classification, got {task!r}")
    X = check_rows(X if is_sparse(X) else np.asarray(X, float), np.shape(X)[1])
    y = np.asarray(y)
    if y.shape != (X.shape[0],):
        raise BadInput(f"y must have shape ({X.shape[0]},), one target a row; got {y.shape}")
    if X.shape[0] < 50:
        raise BadInput(f"a plan needs a sample of 50 rows or more, got {X.shape[0]}")
    if task == "regression" or (task == "auto" and not are_classes(y)):
        return X, np.asarray(y, float)[:, None], False
    labels = np.unique(y)
    if len(labels) < 2:
        raise BadInput(f"the sample has one class only: {labels.tolist()}")
    if len(labels) == 2:
        return X, np.where(y == labels[1], 1.0, -1.0)[:, None], True
    return X, np.where(y[:, None] == labels, 1.0, -1.0), True


def base(X: object) -> float:
    """The median distance between rows, around which widths are tried."""
    distance = median_distance(X, "plan-distance")
    if distance == 0:
        raise BadInput("all rows of the sample are the same: there is nothing to learn from them")
    return distance


def _size(d: int, m: int, D: int | None, budget: Budget) -> tuple[int, str]:
    """The number of features, and what decided it."""
    if D is not None:
        return even(D, D), "given"
    size, why = DEFAULT_D, "the usual; more features, a finer kernel"
    if budget.memory is not None:
        # theta, its average or second copy, and a frequency of d numbers for every two features
        most = int(budget.memory / (4 * (2 * m + d / 2)))
        if most < size:
            size, why = most, "memory: vectors, averages and frequencies in float32"
    if budget.microseconds is not None:
        most = int(budget.microseconds / _cost(d))
        if most < size:
            size, why = most, "time: measured on this machine just now"
    if size < 2:
        raise BadInput("the budget leaves no room for even two features")
    return even(size, size), why


def _cost(d: int) -> float:
    """Microseconds per sample and feature of the Numba engine, on this machine."""
    features = sample(kernels.Gaussian(1.0), d, 2000, "paired", 0)
    problem = Problem(features, gradient(losses.squared(), schedules.normalised(0.5)))
    exchange = Exchange()
    _, engine, prepared = choose("auto", problem, exchange, None)
    rows = generator(0, "plan-speed").standard_normal((500, d))
    block = Block(rows, np.zeros((500, 1)), None, np.arange(500)[:, None])
    state, times = init(problem, exchange, 1, 1, prepared.dtype), []
    for _ in range(4):
        began = time.perf_counter()
        engine.advance(prepared, state, block, 1)
        times.append(time.perf_counter() - began)
    return min(times) / 500 / 2000 * 1e6


@dataclass(frozen=True)
class _Predicted:
    """What theory predicts: curves, limits, and the modes worth sending."""

    steady: float
    steady_alone: float
    settles: int | None
    curve: Any
    alone: Any
    j_opt: float
    limit: float
    lambda_max: float
    r: int


def _predict(
    features: FeatureMap, X: Any, y: Array, schedule: object, weights: object
) -> _Predicted:
    """Theory on a part of the sample: the function by ridge regression, the noise by its residual.

    X: (N, d), y: (N,). One half fits, the other estimates the noise; then they change places.
    """
    rows = min(X.shape[0], THEORY_ROWS)
    part = X[:rows].toarray() if is_sparse(X) else X[:rows]
    Z, y = features.transform(part), y[:rows]
    half = rows // 2
    each = np.empty((len(STRENGTHS), rows))
    for fit, rest in ((slice(0, half), slice(half, rows)), (slice(half, rows), slice(0, half))):
        each[:, rest] = _ridges(Z[fit], y[fit], Z[rest])
    fitted = each[np.argmin(((each - y) ** 2).mean(axis=1))]
    noise = float(np.sqrt(np.mean((y - fitted) ** 2)))
    inputs = theory.sampled_inputs(part)
    modes = theory.leading_modes(features, inputs, tail=1e-3)
    about = theory.model_on(theory.basis(features, inputs, modes), fitted[:, None], noise)
    return _predicted(about, schedule, weights)


def _ridges(Z: Array, y: Array, new: Array) -> Array:
    """Ridge regression through the kernel matrix, of every strength: (strengths, len(new))."""
    values, axes = np.linalg.eigh(Z @ Z.T)
    across, turned = (new @ Z.T) @ axes, axes.T @ y
    s = np.maximum(values[-1], 1e-12) * STRENGTHS[:, None]
    return np.asarray((turned / (np.maximum(values, 0) + s)) @ across.T)


def _predicted(about: Any, schedule: Any, weights: Any) -> _Predicted:
    basis = about.basis
    mu = float(schedule(1, basis.modes.trace))
    steady = theory.steady_state(about, mu, weights)
    alone = theory.steady_state(about, mu)
    n = LONGEST_CURVE
    curve = theory.learning_curve(about, schedule, n, weights)
    curve_alone = theory.learning_curve(about, schedule, n) if weights is not None else None
    limit = theory.mean_square_limit(basis)
    settles = curve.settles(1.0, steady) if math.isfinite(steady) else None
    top = float(basis.values[0])
    return _Predicted(
        steady, alone, settles, curve, curve_alone, about.j_opt, limit, top, _worth(about)
    )


def _worth(about: Any) -> int:
    """How few modes lose at most 2% of the reachable error: what modal messages need."""
    power = np.diagonal(about.start) * about.basis.values  # what each mode explains
    missing = about.j_opt + power.sum() - np.cumsum(power)
    enough = np.flatnonzero(missing <= 1.02 * about.j_opt)
    return int(enough[0]) + 1 if enough.size else len(power)


def links(weights: object) -> float:
    """Messages that a node sends at a combination, on average."""
    A = graphs.check_weights(weights, doubly=False)
    return float((A.nnz - np.count_nonzero(A.diagonal())) / A.shape[0])


@dataclass(frozen=True)
class _Setting:
    """What the price is made of."""

    features: FeatureMap
    schedule: Any
    weights: Any
    budget: Budget
    average: str
    m: int

    @property
    def links(self) -> float:
        """Messages a node sends at a combination, on average."""
        return 0.0 if self.weights is None else links(self.weights)

    def bytes_each(self) -> float:
        """Bytes a node sends per second when it combines at every sample."""
        return 4.0 * self.features.D * self.m * self.links * self.budget.rate

    def every(self) -> int:
        """Combine at every n samples, to stay within the budget."""
        most = self.budget.bytes_per_second
        if most is None or self.weights is None:
            return 1
        return max(1, math.ceil(self.bytes_each() / most))


def _theory_lines(found: _Predicted | None, made: _Setting) -> list[Advice]:
    """Predicted errors and limits."""
    if found is None:
        return [Advice("predicted curve", "none", "the theory covers the squared loss only")]
    law = "independent samples of one law; fourth-order theory"
    lines = [
        Advice("step limit in the mean", 2 / found.lambda_max, "2 / lambda_max of R_zz"),
        Advice("step limit in the mean square", found.limit, f"{law}, one node"),
        Advice("the paper's mean-square condition", 1 / found.lambda_max, "small steps only"),
        Advice("error of the best vector", found.j_opt, "noise and misfit, by ridge regression"),
        Advice("predicted steady error", found.steady, f"{law}, every sample exchanged"),
        Advice("samples until within 1 dB", found.settles or f"> {LONGEST_CURVE}", law),
    ]
    if made.weights is not None:
        lines.append(Advice("predicted steady error alone", found.steady_alone, law))
    return lines


def _price_lines(found: _Predicted | None, made: _Setting) -> list[Advice]:
    """What it costs: memory, bytes, agreement."""
    d, D, m = made.features.d, made.features.D, made.m
    copies = 2 if made.average != "none" or made.weights is not None else 1
    memory = 4 * (copies * m * D + made.features.n_frequencies * d)
    lines = [Advice("memory of a node, bytes", memory, "float32; vectors and frequencies")]
    if made.weights is None:
        return lines
    every = made.every()
    fact = graphs.describe(made.weights)
    lines += [
        Advice("exchange every", every, "bytes_per_second, if given; the prediction is for 1"),
        Advice(
            "bytes sent per node and second", made.bytes_each() / every, f"{made.links:.2f} links"
        ),
        Advice("lambda_2", fact.lambda_2, "second eigenvalue of the weights: the weakest link"),
    ]
    if found is not None:
        share = found.r / D
        lines.append(
            Advice("modes worth sending", found.r, f"2% more error for {share:.1%} of the bytes")
        )
    return lines


def _verdict(
    wanted: float, error: float, found: _Predicted | None, experts: ExpertPilot | None = None
) -> Advice:
    reached = found.steady if found is not None else error
    if experts is not None and not experts.refused:
        reached = experts.error
    word = "reached" if reached <= wanted else "not reached"
    return Advice(f"accuracy {wanted:g}", f"{word}: {reached:.4g}", "predicted, or of the pilots")
