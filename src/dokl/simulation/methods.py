"""Methods: what a node remembers, how samples change it, what it sends. One method, one place.

method    what every method declares
gradient  a rank-one step along the slope of a loss: KLMS, Pegasos, logistic, Huber...
squares   exact recursive least squares, with or without forgetting
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dokl.base.errors import UnknownName
from dokl.simulation.gradient import Gradient, gradient
from dokl.simulation.gradient import of_spec as _gradient_of
from dokl.simulation.method import Method
from dokl.simulation.squares import Squares, squares
from dokl.simulation.squares import of_spec as _squares_of

__all__ = [
    "Gradient",
    "Method",
    "Squares",
    "from_spec",
    "gradient",
    "squares",
]

_BY_NAME = {"gradient": _gradient_of, "squares": _squares_of}


def from_spec(spec: Mapping[str, Any]) -> Any:
    """The method that `spec` described.

    >>> from dokl import losses, schedules
    >>> method = gradient(losses.huber(0.5), schedules.sqrt(1.0), 1e-3)
    >>> from_spec(method.spec()) == method
    True
    """
    if spec["name"] not in _BY_NAME:
        raise UnknownName("method", spec["name"], _BY_NAME)
    return _BY_NAME[spec["name"]](spec)
