"""Losses: a value and its slope in the prediction.

Each loss is two small functions of the target `y`, the prediction `f` and one parameter `p`,
written so that the same source works on NumPy arrays (the reference engine) and, compiled, on
numbers (the Numba engine). Margin losses want targets -1 and +1.

==================== ============================== ==============================
name                 value                          slope
==================== ============================== ==============================
squared              (f - y)^2 / 2                  f - y
hinge                max(0, 1 - y f)                -y  if y f < 1
squared_hinge        max(0, 1 - y f)^2 / 2          -y max(0, 1 - y f)
logistic             log(1 + exp(-y f))             -y / (1 + exp(y f))
huber                squared inside p, linear out   clip(f - y, -p, p)
absolute             |f - y|                        sign(f - y)
epsilon_insensitive  max(0, |f - y| - p)            sign(f - y)  if |f - y| > p
quantile             pinball at level p             1 - p above y, -p below
==================== ============================== ==============================

L2 regularization is not part of a loss: it is `lam` of the `Problem`, which shrinks theta.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dokl.base.errors import BadInput, UnknownName

Function = Callable[..., Any]


@dataclass(frozen=True)
class Loss:
    """A convex loss: `value(y, f)` and `slope(y, f)`, the (sub)derivative in the prediction f.

    `curvature` bounds the slope's growth (its Lipschitz constant, infinite for a slope that
    jumps) and `bounded` says whether the slope itself is bounded: a step that is too long makes
    a loss with an unbounded slope diverge.

    >>> Loss("mine", lambda y, f: (f - y) ** 4 / 4, lambda y, f: (f - y) ** 3).slope(0.0, 2.0)
    8.0
    """

    name: str
    value_function: Function
    slope_function: Function
    p: float | None = None
    margin: bool = False
    curvature: float = math.inf
    bounded: bool = False
    builtin: bool = False

    def value(self, y: object, f: object) -> Any:
        """The loss of predicting f where y is true."""
        return self.value_function(y, f, self.p) if self.builtin else self.value_function(y, f)

    def slope(self, y: object, f: object) -> Any:
        """Derivative of the loss in the prediction f."""
        return self.slope_function(y, f, self.p) if self.builtin else self.slope_function(y, f)

    def spec(self) -> dict[str, Any]:
        """Name and parameter, for files and messages."""
        return {"name": self.name} if self.p is None else {"name": self.name, "p": self.p}


def _squared(y: Any, f: Any, p: object) -> Any:
    return 0.5 * (f - y) ** 2


def squared_slope(y: Any, f: Any, p: object) -> Any:
    """Slope of the squared loss; the 1/2 in its value keeps mu = 1 off the stability edge."""
    return f - y


def _hinge(y: Any, f: Any, p: object) -> Any:
    return np.maximum(0.0, 1.0 - y * f)


def hinge_slope(y: Any, f: Any, p: object) -> Any:
    """Subgradient of the hinge: zero at the kink itself, as in Pegasos."""
    return -y * (y * f < 1.0)


def _squared_hinge(y: Any, f: Any, p: object) -> Any:
    return 0.5 * np.maximum(0.0, 1.0 - y * f) ** 2


def squared_hinge_slope(y: Any, f: Any, p: object) -> Any:
    """Slope of the squared hinge."""
    return -y * np.maximum(0.0, 1.0 - y * f)


def _logistic(y: Any, f: Any, p: object) -> Any:
    return np.logaddexp(0.0, -y * f)


def logistic_slope(y: Any, f: Any, p: object) -> Any:
    """Slope of the logistic loss, through tanh because exp overflows."""
    return -0.5 * y * (1.0 - np.tanh(0.5 * y * f))


def _huber(y: Any, f: Any, p: Any) -> Any:
    inside = np.minimum(np.abs(f - y), p)
    return inside * (np.abs(f - y) - 0.5 * inside)


def huber_slope(y: Any, f: Any, p: Any) -> Any:
    """Slope of Huber's loss: the residual, clipped."""
    return np.minimum(np.maximum(f - y, -p), p)


def _absolute(y: Any, f: Any, p: object) -> Any:
    return np.abs(f - y)


def absolute_slope(y: Any, f: Any, p: object) -> Any:
    """Subgradient of the absolute loss."""
    return np.sign(f - y)


def _epsilon_insensitive(y: Any, f: Any, p: Any) -> Any:
    return np.maximum(0.0, np.abs(f - y) - p)


def epsilon_insensitive_slope(y: Any, f: Any, p: Any) -> Any:
    """Subgradient of the epsilon-insensitive loss: nothing inside the tube."""
    return np.sign(f - y) * (np.abs(f - y) > p)


def _quantile(y: Any, f: Any, p: Any) -> Any:
    return np.maximum(p * (y - f), (1.0 - p) * (f - y))


def quantile_slope(y: Any, f: Any, p: Any) -> Any:
    """Subgradient of the pinball loss; zero is inside the subdifferential at the kink."""
    return (1.0 - p) * (f > y) - p * (f < y)


def _inside(name: str, label: str, p: Any, high: float = math.inf) -> float:
    number = isinstance(p, int | float | np.integer | np.floating) and not isinstance(p, bool)
    if not (number and 0 < p < high):
        bound = "a finite number above 0" if high == math.inf else f"between 0 and {high:g}"
        raise BadInput(f"loss {name!r}: {label} must be {bound}, got {p!r}")
    return float(p)


def squared() -> Loss:
    """(f - y)^2 / 2: KLMS, least squares."""
    return Loss("squared", _squared, squared_slope, None, False, 1.0, False, True)


def hinge() -> Loss:
    """max(0, 1 - y f): support vector machines, Pegasos (Shalev-Shwartz et al. 2011)."""
    return Loss("hinge", _hinge, hinge_slope, None, True, math.inf, True, True)


def squared_hinge() -> Loss:
    """max(0, 1 - y f)^2 / 2."""
    return Loss("squared_hinge", _squared_hinge, squared_hinge_slope, None, True, 1.0, False, True)


def logistic() -> Loss:
    """log(1 + exp(-y f)): its predictions are log-odds, so probabilities follow."""
    return Loss("logistic", _logistic, logistic_slope, None, True, 0.25, True, True)


def huber(p: float = 1.0) -> Loss:
    """Squared within p of the target, linear beyond: outliers pull with bounded force."""
    p = _inside("huber", "delta", p)
    return Loss("huber", _huber, huber_slope, p, False, 1.0, True, True)


def absolute() -> Loss:
    """|f - y|: the median."""
    return Loss("absolute", _absolute, absolute_slope, None, False, math.inf, True, True)


def epsilon_insensitive(p: float = 0.1) -> Loss:
    """max(0, |f - y| - p): support vector regression."""
    p = _inside("epsilon_insensitive", "epsilon", p)
    fs = _epsilon_insensitive, epsilon_insensitive_slope
    return Loss("epsilon_insensitive", *fs, p, False, math.inf, True, True)


def quantile(p: float = 0.5) -> Loss:
    """Pinball loss: the prediction settles at the quantile of level p."""
    p = _inside("quantile", "the level", p, high=1)
    return Loss("quantile", _quantile, quantile_slope, p, False, math.inf, True, True)


BUILTIN: dict[str, Callable[..., Loss]] = {
    "squared": squared,
    "hinge": hinge,
    "squared_hinge": squared_hinge,
    "logistic": logistic,
    "huber": huber,
    "absolute": absolute,
    "epsilon_insensitive": epsilon_insensitive,
    "quantile": quantile,
}


def resolve(loss: str | Loss, **params: float) -> Loss:
    """A loss from its name, or the loss itself.

    >>> resolve("huber", p=2.0).slope(0.0, 5.0)
    np.float64(2.0)
    """
    if isinstance(loss, Loss):
        return loss
    if loss not in BUILTIN:
        raise UnknownName("loss", loss, BUILTIN)
    try:
        return BUILTIN[loss](**params)
    except TypeError:
        raise BadInput(f"loss {loss!r} takes no parameter {', '.join(params)}") from None


def from_spec(spec: Mapping[str, Any]) -> Loss:
    """The loss that `spec()` describes; one of your own is code, and UnknownName here.

    >>> from_spec(quantile(0.9).spec()) == quantile(0.9)
    True
    """
    params = dict(spec)
    return resolve(str(params.pop("name")), **params)


def check_loss(loss: Loss) -> None:
    """Interrogate a loss: convex, finite, and its slope is a derivative or subgradient.

    Run it on a loss of your own before you trust it; it raises BadInput on the first fault.

    >>> check_loss(squared())
    """
    f = np.linspace(-3.0, 3.0, 241) + 1e-3
    h = 1e-6
    for y in (-1.0, 1.0) if loss.margin else (-1.5, 0.0, 0.7, 2.0):
        value = np.array([float(loss.value(y, v)) for v in f])
        slope = np.array([float(loss.slope(y, v)) for v in f])
        before, after = (np.array([float(loss.value(y, v + s)) for v in f]) for s in (-h, h))
        if not (np.isfinite(value).all() and np.isfinite(slope).all()):
            raise BadInput(f"loss {loss.name!r}: value or slope is not finite at y = {y}")
        # The line through (f_i, value_i) with the slope there must stay under the whole curve.
        under = value[:, None] + slope[:, None] * (f[None, :] - f[:, None]) <= value[None, :] + 1e-9
        if not under.all():
            i, j = np.argwhere(~under)[0]
            raise BadInput(
                f"loss {loss.name!r}: slope at (y={y}, f={f[i]:.3f}) is no subgradient of a convex "
                f"function: the tangent is above the value at f={f[j]:.3f}"
            )
        # At a kink every slope between the two one-sided ones will do.
        tol = 1e-4 * (1 + np.abs(slope).max())
        if ((value - before) / h - slope > tol).any() or (slope - (after - value) / h > tol).any():
            raise BadInput(f"loss {loss.name!r}: slope differs from finite differences at y = {y}")
