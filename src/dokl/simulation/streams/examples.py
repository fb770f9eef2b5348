"""The data of the paper's examples, in the corrected readings: one recipe each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Protocol, runtime_checkable

import numpy as np

from dokl.base.arrays import Array, check_whole
from dokl.base.errors import BadInput, UnknownName
from dokl.base.random_numbers import generator
from dokl.simulation.streams.stream import Stream

Target = Callable[[Array], Array]  # (n, K, d) -> (n, K)


@runtime_checkable
class Law(Protocol):
    """Inputs and target drawn separately, so that a target can change on the same inputs."""

    @property
    def n(self) -> int:
        """Number of steps."""

    @property
    def K(self) -> int:
        """Number of nodes."""

    @property
    def noise(self) -> float:
        """Standard deviation of what is added to the target."""

    def draw_inputs(self, rng: np.random.Generator) -> Array:
        """X: (n, K, d)."""

    def draw_target(self, rng: np.random.Generator) -> Target:
        """One function (n, K, d) -> (n, K), the same for all nodes."""


def draw_law(
    law: Law,
    seed: int,
    targets: int,
    mix: Callable[[list[Array]], Array],
    nodes: Array | None = None,
) -> Stream:
    """One stream from several targets; the inputs, noise and first targets depend on seed alone.

    With `nodes`, of these only: the same numbers, and targets are computed for no others.
    """
    X = law.draw_inputs(generator(seed, "inputs"))
    noise = _noise(law.noise, seed, X.shape[:2])
    if nodes is not None:
        X, noise = X[:, nodes], noise[:, nodes]
    drawn_targets = [law.draw_target(generator(seed, ("target", i))) for i in range(targets)]
    clean = mix([target(X) for target in drawn_targets])
    return Stream(X, clean + noise)


def _noise(sd: float, seed: int, shape: tuple[int, ...]) -> Array:
    return sd * generator(seed, "noise").standard_normal(shape)


def _check_example(recipe: Any, *counts: str) -> None:
    for name in counts:
        check_whole(name, getattr(recipe, name))
    if not recipe.noise >= 0:
        raise BadInput(f"noise is a standard deviation, 0 or more; got {recipe.noise!r}")


@dataclass(frozen=True)
class Example1:
    """y = sum_m a_m kappa(c_m, x) + noise, x and c_m ~ N(0, I_d), a_m ~ N(0, coefficient_sd^2).

    The paper does not give the number of centres; 20 to 100 fit its curves. Example 5 is K = 1.
    """

    K: int = 20
    n: int = 5000
    d: int = 5
    sigma: float = 5.0
    centres: int = 50
    noise: float = 0.1
    coefficient_sd: float = 5.0

    def __post_init__(self) -> None:
        """Check the numbers."""
        _check_example(self, "K", "n", "d", "centres")
        if not self.sigma > 0:
            raise BadInput(f"sigma must be positive; got {self.sigma!r}")

    def draw_inputs(self, rng: np.random.Generator) -> Array:
        """X: (n, K, d)."""
        return rng.standard_normal((self.n, self.K, self.d))

    def draw_target(self, rng: np.random.Generator) -> Target:
        """A kernel expansion with its own centres and coefficients."""
        c = rng.standard_normal((self.centres, self.d))
        a = self.coefficient_sd * rng.standard_normal(self.centres)

        def target(X: Array) -> Array:
            rows = X.reshape(-1, self.d)
            parts = range(0, len(rows), 2048)  # so that the kernel values stay in cache
            y = [self._kappa(rows[i : i + 2048], c) @ a for i in parts]
            return np.concatenate(y).reshape(X.shape[:-1])

        return target

    def _kappa(self, x: Array, c: Array) -> Array:
        """The Gaussian kernel between x: (r, d) and c: (M, d), by one product: (r, M)."""
        squared = (x**2).sum(-1)[:, None] + (c**2).sum(-1) - 2 * x @ c.T
        return np.asarray(np.exp(squared / (-2 * self.sigma**2)))

    def draw(self, seed: int) -> Stream:
        """The stream of this seed."""
        return draw_law(self, seed, 1, lambda y: y[0])

    def draw_nodes(self, seed: int, nodes: Array) -> Stream:
        """The same of some nodes only."""
        return draw_law(self, seed, 1, lambda y: y[0], nodes)


@dataclass(frozen=True)
class Example2:
    """y = w0'x + 0.1 (w1'x)^2 + noise, x, w0, w1 ~ N(0, I_d). Example 6 is K = 1."""

    K: int = 20
    n: int = 15000
    d: int = 5
    noise: float = 0.05

    def __post_init__(self) -> None:
        """Check the numbers."""
        _check_example(self, "K", "n", "d")

    def draw_inputs(self, rng: np.random.Generator) -> Array:
        """X: (n, K, d)."""
        return rng.standard_normal((self.n, self.K, self.d))

    def draw_target(self, rng: np.random.Generator) -> Target:
        """A linear and a squared term with their own directions."""
        w0, w1 = rng.standard_normal((2, self.d))
        return lambda X: X @ w0 + 0.1 * (X @ w1) ** 2

    def draw(self, seed: int) -> Stream:
        """The stream of this seed."""
        return draw_law(self, seed, 1, lambda y: y[0])

    def draw_nodes(self, seed: int, nodes: Array) -> Stream:
        """The same of some nodes only."""
        return draw_law(self, seed, 1, lambda y: y[0], nodes)


@dataclass(frozen=True)
class Example3:
    """d_n = d_{n-1} / (1 + d_{n-1}^2) + u_{n-1}^3, y_n = d_n + noise, u ~ N(0, .15^2), d_1 = 1.

    The paper's reading is inputs="input": x = u_{n-1}, one number. Each node's d is then hidden
    from it and nearly a random walk of its own, so cooperation hurts. With inputs="state",
    x = (d_{n-1}, u_{n-1}), all nodes learn the same function and it helps. Step i (from 0) of the
    stream is n = i + 2. Example 7 is K = 1.
    """

    K: int = 20
    n: int = 500
    noise: float = 0.01
    inputs: str = "input"

    def __post_init__(self) -> None:
        """Check the numbers."""
        _check_example(self, "K", "n")
        if self.inputs not in ("input", "state"):
            raise UnknownName("inputs", self.inputs, ["input", "state"])

    def draw(self, seed: int) -> Stream:
        """The stream of this seed."""
        u = 0.15 * generator(seed, "inputs").standard_normal((self.n, self.K))
        d = np.ones((self.n + 1, self.K))
        for i in range(self.n):
            d[i + 1] = d[i] / (1 + d[i] ** 2) + u[i] ** 3
        X = np.stack([d[:-1], u] if self.inputs == "state" else [u], axis=-1)
        return Stream(X, d[1:] + _noise(self.noise, seed, u.shape))


@dataclass(frozen=True)
class Example4:
    """d_n = u_n + .5 v_n - .2 d_{n-1} + .35 d_{n-2}, y_n = phi(d_n) + noise, x_n = (u_n, v_n).

    v ~ N(0, .0156) and u = .5 v + N(0, .0156), both variances; d_1 = d_2 = 1, and step i (from 0)
    of the stream is n = i + 3. Example 8 is K = 1.
    """

    K: int = 20
    n: int = 1000
    noise: float = 0.001

    def __post_init__(self) -> None:
        """Check the numbers."""
        _check_example(self, "K", "n")

    def draw(self, seed: int) -> Stream:
        """The stream of this seed."""
        normal = generator(seed, "inputs").standard_normal((2, self.n, self.K))
        v, own = np.sqrt(0.0156) * normal
        u = 0.5 * v + own
        d = np.ones((self.n + 2, self.K))
        for i in range(self.n):
            d[i + 2] = u[i] + 0.5 * v[i] - 0.2 * d[i + 1] + 0.35 * d[i]
        y = _phi(d[2:]) + _noise(self.noise, seed, u.shape)
        return Stream(np.stack([u, v], axis=-1), y)


def _phi(d: Array) -> Array:
    positive = d / (3 * np.sqrt(0.1 + 0.9 * d**2))
    below = np.minimum(d, 0)  # exp of a large positive d is not wanted, and could overflow
    negative = -(below**2) * (1 - np.exp(0.7 * below)) / 3
    return np.asarray(np.where(d >= 0, positive, negative))


EXAMPLES: dict[str, Callable[..., Any]] = {
    "example1": Example1,
    "example2": Example2,
    "example3": Example3,
    "example4": Example4,
}


def example(name: str | int, **params: object) -> Any:
    """One of the paper's examples by name or number.

    >>> example(3, K=5)
    Example3(K=5, n=500, noise=0.01, inputs='input')
    """
    key = str(name).lower()
    key = key if key.startswith("example") else f"example{key}"
    if key not in EXAMPLES:
        raise UnknownName("example", name, EXAMPLES)
    known = [f.name for f in fields(EXAMPLES[key])]  # type: ignore[arg-type]
    for param in params:
        if param not in known:
            raise UnknownName(f"parameter of {key}", param, known)
    return EXAMPLES[key](**params)
