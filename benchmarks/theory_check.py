"""Predicted against simulated learning curves, and the step limit against ensembles.

`python -m benchmarks.theory_check [--quick] [--only curves|limits|squares] [--example 1]`, by
hand, some ten minutes on two idle cores. Theory and simulation share feature map, graph and
targets; only inputs and noise are random.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

import dokl
from dokl import (
    Exchange,
    Features,
    Gaussian,
    GraphRecipe,
    Problem,
    gradient,
    losses,
    schedules,
    squares,
    theory,
)
from dokl.base.random_numbers import generator
from dokl.simulation.streams import Example1, Example2, Example3, Example4, Stream

MUS = (0.25, 0.5, 1.0, 1.5)
TARGETS = 8
FIRST = 20  # the step from which curves are compared
WINDOWS = 14


@dataclass(frozen=True)
class FixedTarget:
    """A stream recipe with one target: inputs and noise are redrawn, the function is not."""

    law: Any
    target: Any

    @property
    def n(self) -> int:
        return int(self.law.n)

    @property
    def K(self) -> int:
        return int(self.law.K)

    def draw(self, seed: int) -> Stream:
        X = self.law.draw_inputs(generator(seed, "inputs"))
        noise = self.law.noise * generator(seed, "noise").standard_normal(X.shape[:2])
        return Stream(X, self.target(X) + noise)


@dataclass(frozen=True)
class Case:
    """An example: its features, what it streams, its model, and how many runs it takes."""

    name: str
    features: Any
    streams: list[Any]
    model: Any
    runs: int  # of 20 nodes, per stream
    mus: tuple[float, ...] = MUS
    fine: int = 64
    judged: bool = True  # False: for information, an assumption of the theory is broken or repaired


def law_case(law: Any, name: str, D: int, r: int, points: int, **rest: Any) -> Case:
    features = Features(Gaussian(5.0), law.d, D).draw(1)
    inputs = theory.gaussian_inputs(np.zeros(law.d), 1.0, points)
    targets = [law.draw_target(generator(seed, ("target", 0))) for seed in range(TARGETS)]
    modes = theory.leading_modes(features, inputs, r)
    model = theory.model(features, inputs, targets, law.noise, modes)
    return Case(name, features, [FixedTarget(law, t) for t in targets], model, **rest)


@dataclass(frozen=True)
class IndependentExample4:
    """Example 4 with the unseen part of d drawn afresh at every step, from its stationary law."""

    n: int = 1000
    K: int = 20

    def draw(self, seed: int) -> Stream:
        rng = generator(seed, "inputs")
        x = rng.standard_normal((self.n, self.K, 2)) @ np.linalg.cholesky(COV4).T
        h = np.sqrt(HIDDEN4) * rng.standard_normal((self.n, self.K))
        y = phi(x[..., 0] + 0.5 * x[..., 1] + h) + 0.001 * rng.standard_normal(h.shape)
        return Stream(x, y)


COV4 = 0.0156 * np.array([[1.25, 0.5], [0.5, 1.0]])
DRIVE4 = float(np.array([1, 0.5]) @ COV4 @ np.array([1, 0.5]))
HIDDEN4 = DRIVE4 * 0.65 / (1.35 * (0.65**2 - 0.2**2)) - DRIVE4  # d less its drive: an AR(2)


def case4(runs: int) -> Case:
    """x = (u, v); what the node does not see, h = -.2 d_{n-1} + .35 d_{n-2}, acts as noise."""
    features = Features(Gaussian(0.05), 2, 200).draw(1)
    inputs = theory.gaussian_inputs(np.zeros(2), COV4)
    node, weight = np.polynomial.hermite_e.hermegauss(80)
    d = inputs.X[:, 0] + 0.5 * inputs.X[:, 1]
    y = phi(d[:, None] + np.sqrt(HIDDEN4) * node)
    weight = weight / weight.sum()
    mean = y @ weight
    noise = np.sqrt((y - mean[:, None]) ** 2 @ weight + 0.001**2)
    modes = theory.leading_modes(features, inputs, tail=1e-6)
    model = theory.model(features, inputs, mean, noise, modes)
    return Case("4", features, [Example4()], model, runs)


def case3(runs: int) -> Case:
    """x = u alone; what is not seen, d / (1 + d^2), is slow, nearly a random walk, and no noise."""
    features = Features(Gaussian(0.05), 1, 100).draw(1)
    inputs = theory.gaussian_inputs([0.0], 0.15**2)
    streams = [Example3().draw(seed) for seed in range(100)]
    unseen = np.stack([s.y - s.X[..., 0] ** 3 for s in streams])[:, FIRST:]
    target = inputs.X[:, 0] ** 3 + unseen.mean()
    model = theory.model(features, inputs, target, float(unseen.std()))
    return Case("3", features, [Example3()], model, runs, mus=(1.0,), judged=False)


def phi(d: np.ndarray) -> np.ndarray:
    below = np.minimum(d, 0)
    up = d / (3 * np.sqrt(0.1 + 0.9 * d**2))
    return np.where(d >= 0, up, -(below**2) * (1 - np.exp(0.7 * below)) / 3)


def simulate(case: Case, mu: float, weights: Any) -> tuple[np.ndarray, np.ndarray]:
    """Mean curve and its standard error window by window, targets held fixed."""
    problem = Problem(case.features, gradient(losses.squared(), schedules.constant(mu)))
    exchange = Exchange(weights, order="cta")
    parts, errors = [], []
    for number, stream in enumerate(case.streams):
        trace = dokl.run(problem, exchange, stream, runs=case.runs, seed=number, engine="numba")
        windows = averaged(trace.curves["mse"].astype(np.float64))
        parts.append(windows.mean(axis=0))
        errors.append(windows.var(axis=0, ddof=1) / case.runs)
    return np.mean(parts, axis=0), np.sqrt(np.sum(errors, axis=0)) / len(parts)


def averaged(curves: np.ndarray) -> np.ndarray:
    """Curves (..., n) as means over windows from FIRST on, even in log n; the last tenth last."""
    n = curves.shape[-1]
    edges = np.unique(np.geomspace(FIRST, n + 1, WINDOWS + 1).astype(int)) - 1
    means = [curves[..., a:b].mean(-1) for a, b in pairwise(edges)]
    return np.stack([*means, curves[..., -n // 10 :].mean(-1)], axis=-1)


def makers(less: int) -> dict[str, Callable[[], Case]]:
    repaired = {"name": "4i", "streams": [IndependentExample4()], "judged": False}
    return {
        "1": lambda: law_case(Example1(n=3000), "1", 2500, 60, 4096, runs=40 // less),
        "2": lambda: law_case(Example2(), "2", 300, 126, 8192, runs=40 // less, fine=32),
        "3": lambda: case3(400 // less),
        "4": lambda: case4(800 // less),
        "4i": lambda: replace(case4(800 // less), **repaired),
    }


def curves(quick: bool, examples: list[str]) -> None:
    print("dB: predicted minus simulated. 'from 20': the worst of the windows; se: its own error")
    head = f"{'ex':3}{'mu':>6} {'nodes':9}{'r':>4} {'from 20':>9}{'se':>7} {'tail':>8}{'se':>7}"
    print(f"{head} {'simulated tail':>15} {'small-step':>11}  verdict")
    weights = GraphRecipe("random", 20).draw(3)
    for name, make in makers(8 if quick else 1).items():
        if examples and name not in examples:
            continue
        case = make()
        for mu in case.mus:
            for A in (None, weights):
                print(compare(case, mu, A), flush=True)
    print("4i: Example 4 with independent samples. 3, 4i: for information, not judged")


def compare(case: Case, mu: float, A: Any) -> str:
    n = case.streams[0].n
    seen, error = simulate(case, mu, A)
    predicted = averaged(theory.learning_curve(case.model, mu, n, A, fine=case.fine).mse)
    gap, se = 10 * np.log10(predicted / seen), 10 / np.log(10) * error / seen
    worst = int(np.abs(gap[:-1]).argmax())
    try:
        small = averaged(theory.learning_curve(case.model, mu, n, A, "small-step").mse)[-1]
        paper = f"{10 * np.log10(small / seen[-1]):+.2f}"
    except dokl.errors.Diverged:
        paper = "diverges"
    good = abs(gap[worst]) <= 0.2 and abs(gap[-1]) <= 0.1 and se[-1] < 0.05
    nodes, r = "alone" if A is None else "together", case.model.basis.modes.r
    line = f"{case.name:3}{mu:6.2f} {nodes:9}{r:4d} {gap[worst]:+9.3f}{se[worst]:7.3f}"
    line += f" {gap[-1]:+8.3f}{se[-1]:7.3f} {10 * np.log10(seen[-1]):15.2f} {paper:>11}"
    return f"{line}  {('within' if good else 'OUTSIDE') if case.judged else '-'}"


def limits(quick: bool) -> None:
    """E|U|^2 of runs without noise, a tenth below and above the limit; ensembles of 10,000."""
    runs = 2000 if quick else 10_000
    print(f"\nE[(theta'z)^2] without noise and target, over {runs} runs, by steps")
    inputs = theory.gaussian_inputs([0.0], 0.15**2)
    features = Features(Gaussian(0.05), 1, 100).draw(1)
    basis = theory.basis(features, inputs)
    A = GraphRecipe("random", 5).draw(0)
    found = theory.step_limits(basis, A)
    print(found)
    for name, limit, weights in (
        ("alone", found.mean_square, None),
        ("5 together", found.network, A.toarray()),
    ):
        for share in (0.9, 1.1):
            power = ensemble(features, inputs, share * float(limit), weights, runs, 400)
            marks = "  ".join(f"{n}: {power[n - 1]:.3g}" for n in (1, 10, 30, 100, 200, 400))
            print(f"{name:11} {share:.1f} of {limit:.4f}:  {marks}")


def ensemble(features: Any, inputs: Any, mu: float, A: Any, runs: int, steps: int) -> np.ndarray:
    """Mean of e^2 over runs and nodes, from a random theta, y = 0."""
    rng = np.random.default_rng(5)
    K = 1 if A is None else len(A)
    theta = np.repeat(rng.standard_normal((runs, 1, features.D)), K, axis=1).astype(np.float32)
    out = np.empty(steps)
    sd = float(np.sqrt(inputs.cov[0, 0]))
    for n in range(steps):
        psi = theta if A is None else np.einsum("kl,rld->rkd", A.astype(np.float32), theta)
        X = sd * rng.standard_normal((runs * K, 1))
        Z = features.transform(X).reshape(theta.shape).astype(np.float32)
        e = np.einsum("rkd,rkd->rk", psi, Z)
        out[n] = float(np.mean(np.square(e, dtype=np.float64)))
        theta = psi - np.float32(mu) * e[..., None] * Z
    return out


def least_squares(quick: bool) -> None:
    """Sums that travel, Examples 1 and 2: predicted minus simulated, dB, window by window."""
    rho, every, n = 1e-4, 10, 300
    windows = (5, 10), (10, 20), (20, 30), (30, 40), (60, 80), (150, 200), (250, 300)
    print(f"\nleast squares, D = 100, ridge {rho:g}, a round every {every} rows: dB apart, rows")
    print("example " + "".join(f"{f'{a}-{b}':>16}" for a, b in windows))
    weights = GraphRecipe("random", 20).draw(3)
    for name, law in (("1", Example1(n=n)), ("2", Example2(n=n))):
        case = law_case(law, name, 100, 100, 4096, runs=4 if quick else 24)
        case = replace(case, streams=case.streams[:2] if quick else case.streams)
        problem = Problem(case.features, squares(rho, bound=np.inf, share="sums"))
        exchange, parts, errors = Exchange(weights, every=every), [], []
        for number, stream in enumerate(case.streams):
            trace = dokl.run(problem, exchange, stream, runs=case.runs, seed=number)
            seen = np.stack([trace.curves["mse"][:, a:b].mean(axis=1) for a, b in windows], axis=1)
            parts.append(seen.mean(axis=0))
            errors.append(seen.var(axis=0, ddof=1) / case.runs)
        targets = [stream.target for stream in case.streams]
        inputs = theory.gaussian_inputs(np.zeros(law.d), 1.0, 4096)
        modes = theory.leading_modes(case.features, inputs, 100)
        model = theory.model(case.features, inputs, targets, law.noise, modes)
        predicted = theory.squares_curve(model, rho, n, weights, every).mse
        mean, error = np.mean(parts, axis=0), np.sqrt(np.sum(errors, axis=0)) / len(parts)
        gaps = [
            f"{10 * np.log10(predicted[a:b].mean() / m):+.2f} ({4.34 * e / m:.2f})"
            for (a, b), m, e in zip(windows, mean, error, strict=True)
        ]
        print(f"{name:8}" + "".join(f"{gap:>16}" for gap in gaps))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.theory_check", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer runs")
    parser.add_argument("--only", choices=["curves", "limits", "squares"])
    parser.add_argument("--example", action="append", choices=list(makers(1)), default=[])
    args = parser.parse_args()
    began = time.perf_counter()
    if args.only in (None, "curves"):
        curves(args.quick, args.example)
    if args.only in (None, "limits"):
        limits(args.quick)
    if args.only in (None, "squares"):
        least_squares(args.quick)
    print(f"{time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
