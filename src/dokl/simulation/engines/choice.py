"""Which engine runs a problem: the one asked for, or what size and machine suggest."""

from __future__ import annotations

import importlib
import importlib.util
import warnings
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from dokl.base.errors import BadInput, MissingExtra, UnknownName
from dokl.network.exchange import Exchange
from dokl.simulation.diffusion import Problem

ENGINES = {
    "reference": "dokl.simulation.engines.reference",
    "numba": "dokl.simulation.engines.numba_engine",
    "jax": "dokl.simulation.engines.jax_engine",
    "mpi": "dokl.simulation.engines.mpi_engine",
}
# Methods that an engine runs by a module of their own.
OF_METHOD = {
    ("numba", "squares"): "dokl.simulation.engines.blas",
    ("jax", "squares"): "dokl.simulation.engines.jax_squares",
}
DEFAULT_DTYPE = {
    "reference": np.float64,
    "numba": np.float32,
    "jax": np.float32,
    "mpi": np.float32,
}
# Engines that need a package which is not always there: what to ask for, and what installs it.
OPTIONAL = {"jax": ("jax", "jax")}
# Numbers of theta to update (runs x steps x nodes x outputs x D) from which a GPU is worth its
# compilation of some seconds; the Numba engine does about this many in a few seconds.
WORTH_A_GPU = 2e10
# Instead of an engine that cannot run a problem.
USUAL = "use engine='reference', or write losses and schedules with NumPy functions of numbers"


class NotCompilable(Exception):
    """A problem that an engine cannot run: its loss, schedule, method or rules of exchange; and
    what to use instead.
    """

    def __init__(self, why: str, instead: str = USUAL) -> None:
        super().__init__(why)
        self.instead = instead


class EngineNotice(UserWarning):
    """Says that another engine than the usual one was taken, and why."""


def module_of(name: str, method: str = "gradient") -> Any:
    """The module that runs a method; MissingExtra where the engine's package is absent."""
    if name in OPTIONAL:
        package, extra = OPTIONAL[name]
        if importlib.util.find_spec(package) is None:
            raise MissingExtra(f"engine {name!r}", extra)
    return importlib.import_module(OF_METHOD.get((name, method), ENGINES[name]))


@lru_cache(maxsize=1)
def gpu() -> str | None:
    """The name of a GPU that JAX can use, or None; JAX is only imported where it has a plugin."""
    plugins = importlib.util.find_spec("jax_plugins")
    if plugins is None or importlib.util.find_spec("jax") is None:
        return None
    jax = importlib.import_module("jax")
    devices = jax.local_devices()
    return None if devices[0].platform == "cpu" else str(devices[0].device_kind)


def candidates(engine: str, work: float) -> list[str]:
    """Engines to try in turn; "auto" takes the GPU only for much work, and never JAX on a CPU."""
    if engine not in (*ENGINES, "auto"):
        raise UnknownName("engine", engine, (*ENGINES, "auto"))
    if engine != "auto":
        return [engine]
    if work < WORTH_A_GPU or gpu() is None:
        return ["numba"]
    return ["jax", "numba"]


def choose(
    engine: str, problem: Problem, exchange: Exchange, dtype: DTypeLike | None, work: float = 0.0
) -> tuple[str, Any, Any]:
    """(name, module, plan) for a drawn problem; "auto" says so if it does not take the usual one.

    work: how many numbers of theta there are to update, as far as that is known.

    >>> choose("nuba", None, None, None)
    Traceback (most recent call last):
    dokl.base.errors.UnknownName: unknown engine 'nuba': did you mean 'numba'? ...
    """
    why = instead = ""
    method = getattr(getattr(problem, "method", None), "name", "gradient")
    for name in candidates(engine, work):
        module = module_of(name, method)
        try:
            plan = module.plan(problem, exchange, dtype or DEFAULT_DTYPE.get(name, np.float64))
        except NotCompilable as error:
            why, instead = str(error), error.instead
            continue
        if engine == "auto" and name == "jax":
            _say(f"engine='auto' takes 'jax' on {gpu()}, for {work:.1e} updates")
        return name, module, plan
    if engine != "auto":
        raise BadInput(f"engine {engine!r} cannot run this problem ({why}): {instead}")
    _say(f"the fast engine does not compile this ({why}): using the slower reference engine")
    return choose("reference", problem, exchange, dtype)


def _say(what: str) -> None:
    warnings.warn(what, EngineNotice, stacklevel=4)
