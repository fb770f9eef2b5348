"""A problem as JAX takes it: arrays in turns, graphs, and functions that can be traced."""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterator
from functools import lru_cache
from types import FunctionType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dokl.base.arrays import Array
from dokl.learning.features import ProjectedMap
from dokl.learning.losses import Function, Loss
from dokl.learning.schedules import Schedule
from dokl.network.exchange import Exchange
from dokl.simulation.diffusion import Problem
from dokl.simulation.engines.choice import NotCompilable
from dokl.simulation.engines.jax_traced import FEW_INPUTS, TracedRule

# Up to this many nodes a product with the full matrix is faster than going along the links.
DENSE_UP_TO = 64


def rule_of(problem: Problem, exchange: Exchange) -> TracedRule:
    """What the compilation depends on; raises NotCompilable for what the scan does not know."""
    if problem.method.name != "gradient":
        raise NotCompilable(f"the scan knows the method 'gradient', not {problem.method.name!r}")
    if not exchange.plain and exchange.average != "none":
        raise NotCompilable("running means together with rules of sending or mixing")
    features, schedule = problem.map, problem.gradient.schedule
    projected = isinstance(features, ProjectedMap)
    base = features.base if isinstance(features, ProjectedMap) else features
    structured = base.signs is not None
    rate: str | Function = "normalised" if schedule.normalised else "given"
    return TracedRule(
        loss=traced_slope(problem.gradient.loss),
        rate=rate if schedule.function is None else traced_rate(schedule.function),
        paired=base.paired,
        structured=structured,
        projected=projected,
        ahead=structured or projected or base.d > FEW_INPUTS,
        cta=exchange.order == "cta",
        mixing=mixing_of(exchange.graphs if exchange.plain else []),
        steady=False,
        biased=exchange.intercept > 0,
        shrinking=problem.gradient.lam > 0,
        weighted=False,
        averaging=exchange.average != "none",
    )


_numbers: dict[tuple[int, Any], dict[str, Array]] = {}


def map_numbers(features: Any, dtype: Any) -> dict[str, Array]:
    """`_map_numbers`, once for a map as long as it lives: at D = 100,000 it takes a second."""
    key = id(features), dtype
    if key not in _numbers:
        _numbers[key] = _map_numbers(features, dtype)
        weakref.finalize(features, _numbers.pop, key, None)
    return _numbers[key]


def _map_numbers(features: Any, dtype: Any) -> dict[str, Array]:
    """The feature map in turns; features of amplitude 0 fill up the last structured block."""
    if hasattr(features, "modes"):
        numbers = _map_numbers(features.base, dtype)
        return numbers | {"modes": _modes(features, numbers["amplitude"].size, dtype)}
    amplitude = np.full(features.n_frequencies, features.scale, dtype)
    if features.signs is None:
        omega, base = features.omega_turns(dtype), features.phase_turns(dtype)
        return {"omega": omega, "base": base, "amplitude": amplitude}
    norms = features.norms_turns(dtype)
    amplitude = np.pad(amplitude, (0, norms.size - amplitude.size))
    return {"signs": features.signs.astype(dtype), "norms": norms, "amplitude": amplitude}


def _modes(features: Any, width: int, dtype: Any) -> Array:
    """V: (D, r) with rows of zeros for features of amplitude 0."""
    base, V = features.base, features.modes
    apart = V.reshape(base.D // base.n_frequencies, base.n_frequencies, -1)
    apart = np.pad(apart, [(0, 0), (0, width - base.n_frequencies), (0, 0)])
    return apart.reshape(-1, V.shape[1]).astype(dtype)


def mixing_of(graphs: list[Any]) -> str:
    """How to combine: along the links where the network is large and they are few."""
    if not graphs:
        return "none"
    K, nnz = graphs[0].shape[0], max(A.nnz for A in graphs)
    return "dense" if K <= DENSE_UP_TO or 8 * nnz > K * K else "edges"


def graph_numbers(graphs: list[Any], mixing: str, dtype: Any) -> dict[str, Array]:
    """All matrices, the identity last: for steps that do not combine."""
    if mixing == "none":
        return {}
    K = graphs[0].shape[0]
    if mixing == "dense":
        return {"A": np.stack([*(A.toarray() for A in graphs), np.eye(K)]).astype(dtype)}
    every = [*((A.indices, np.diff(A.indptr), A.data) for A in graphs)]
    every.append((np.arange(K), np.ones(K, int), np.ones(K)))
    length = max(len(columns) for columns, _, _ in every)
    source = np.zeros((len(every), length), np.int32)
    target = np.full((len(every), length), K, np.int32)  # one row too far: thrown away
    weight = np.zeros((len(every), length), dtype)
    for i, (columns, degrees, values) in enumerate(every):
        source[i, : len(columns)] = columns
        target[i, : len(columns)] = np.repeat(np.arange(K), degrees)
        weight[i, : len(columns)] = values
    return {"source": source, "target": target, "weight": weight}


def rates(schedule: Schedule, count: Array) -> Array:
    """The step at each count, before it is divided by |z|^2; 1 where a function will say it."""
    if schedule.function is not None:
        return np.ones(count.shape)
    return np.asarray(schedule.scale / (count + schedule.offset) ** schedule.power)


def traced_slope(loss: Loss) -> str | Function:
    """A built-in loss by name; a user's slope if it can be traced, else its value's derivative."""
    return loss.name if loss.builtin else _slope(loss.slope_function, loss.value_function)


@lru_cache(maxsize=64)
def _slope(slope: Function | None, value: Function) -> Function:
    known = [] if slope is None else _readings(slope)
    ways = [*known, *(_derivative(reading) for reading in _readings(value))]
    return _first_that_traces(ways, jnp.float32)


@lru_cache(maxsize=64)
def traced_rate(function: Function) -> Function:
    """A user's schedule (n, q) -> mu, traceable."""
    return _first_that_traces(list(_readings(function)), jnp.int32)


def _derivative(value: Function) -> Function:
    def slope(y: Any, f: Any) -> Any:
        return jax.grad(lambda f: jnp.asarray(value(y, f), f.dtype))(f)

    return slope


def _readings(function: Function) -> Iterator[Function]:
    """The function itself, and the same source with JAX where it says NumPy or math."""
    yield function
    if isinstance(function, FunctionType):
        swapped = {
            name: jnp if value is np or value is math else value
            for name, value in function.__globals__.items()
        }
        other = FunctionType(
            function.__code__, swapped, function.__name__, function.__defaults__,
            function.__closure__,
        )  # fmt: skip
        other.__kwdefaults__ = function.__kwdefaults__
        yield other


def _first_that_traces(ways: list[Function], first: Any) -> Function:
    why = "it is not a function"
    shape: Any = jax.ShapeDtypeStruct
    numbers = shape((), first), shape((), jnp.float32)
    for function in ways:
        try:
            found = jax.eval_shape(function, *numbers)
        except Exception as error:  # a user's function may raise anything
            why = str(error).splitlines()[0] if str(error) else type(error).__name__
            continue
        if getattr(found, "shape", None) == () and jnp.issubdtype(found.dtype, jnp.floating):
            return function
        why = "it does not return one number"
    raise NotCompilable(why)
