"""Step schedules: (n, |z|^2) -> mu, where n counts a node's own samples from 1.

Every built-in schedule is one formula with other numbers,

    mu(n, q) = scale / (n + offset)^power / (eps + q  if normalised, else 1),

so engines carry five numbers and not a family of classes. A callable `(n, q) -> mu` works too.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dokl.base.errors import BadInput, UnknownName


@dataclass(frozen=True)
class Schedule:
    """A step schedule; make one with the functions below.

    >>> sqrt(0.5)(4, 1.0)
    0.25
    """

    name: str
    scale: float
    offset: float = 0.0
    power: float = 0.0
    normalised: bool = False
    eps: float = 0.0
    function: Callable[[int, float], float] | None = None

    def __call__(self, n: Any, q: Any = 1.0) -> Any:
        """Step for the n-th sample (from 1), whose features have squared norm q."""
        if self.function is not None:
            return self.function(n, q)
        mu = self.scale / (n + self.offset) ** self.power
        return mu / (self.eps + q) if self.normalised else mu

    def spec(self) -> dict[str, Any]:
        """Name and numbers, for files and messages."""
        if self.function is not None:
            return {"name": self.name}
        keys = ("name", "scale", "offset", "power", "normalised", "eps")
        return {key: getattr(self, key) for key in keys}


def _checked(what: str, value: Any, low: float, strict: bool = True) -> float:
    number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if not (number and math.isfinite(value) and (value > low or (not strict and value == low))):
        bound = f"above {low:g}" if strict else f"of at least {low:g}"
        raise BadInput(f"{what} must be a finite number {bound}, got {value!r}")
    return float(value)


def constant(mu: float) -> Schedule:
    """mu: keeps tracking a function that moves."""
    return Schedule("constant", _checked("step mu", mu, 0))


def sqrt(mu: float) -> Schedule:
    """mu / sqrt(n): nodes agree, and regret grows as sqrt(n) (the paper's Assumption 1)."""
    return Schedule("sqrt", _checked("step mu", mu, 0), power=0.5)


def pegasos(lam: float, n0: float = 0.0) -> Schedule:
    """1 / (lam (n + n0)): Pegasos; n0 > 0 tames its first steps, of length 1/lam."""
    lam = _checked("regularization lam of the pegasos schedule", lam, 0)
    return Schedule("pegasos", 1.0 / lam, _checked("offset n0", n0, 0, strict=False), 1.0)


def inverse_power(mu: float, power: float, n0: float = 0.0) -> Schedule:
    """mu / (n + n0)^power."""
    power = _checked("power", power, 0, strict=False)
    offset = _checked("offset n0", n0, 0, strict=False)
    return Schedule("inverse_power", _checked("step mu", mu, 0), offset, power)


def normalised(mu: float = 0.5, eps: float = 1e-12) -> Schedule:
    """mu / (eps + |z|^2): safe in the mean square for mu < 2 whatever the features' length."""
    scale, eps = _checked("step mu", mu, 0), _checked("eps", eps, 0, strict=False)
    return Schedule("normalised", scale, normalised=True, eps=eps)


def custom(function: Callable[[int, float], float], name: str = "custom") -> Schedule:
    """A schedule of your own: a function of (n, |z|^2)."""
    return Schedule(name, math.nan, function=function)


BUILTIN: dict[str, Callable[..., Schedule]] = {
    "constant": constant,
    "sqrt": sqrt,
    "pegasos": pegasos,
    "inverse_power": inverse_power,
    "normalised": normalised,
}


def resolve(schedule: Any, **params: float) -> Schedule:
    """A schedule from a name, a number (a constant step), a callable, or itself.

    >>> resolve(0.5).name, resolve("sqrt", mu=1.0).power
    ('constant', 0.5)
    """
    if isinstance(schedule, Schedule):
        return schedule
    if isinstance(schedule, str):
        if schedule not in BUILTIN:
            raise UnknownName("schedule", schedule, BUILTIN)
        try:
            return BUILTIN[schedule](**params)
        except TypeError as error:
            message = f"schedule {schedule!r}: {str(error).split('() ')[-1]}"
            raise BadInput(message) from None
    return custom(schedule) if callable(schedule) else constant(schedule)


def from_settings(settings: Any, section: str) -> Schedule:
    """The schedule that a section of a file names, from those of mu, n0, power and eps it takes.

    settings has `schedule`, these four (None where not given), and `lam`, which pegasos takes.
    """
    if settings.schedule not in BUILTIN:
        raise UnknownName("schedule", settings.schedule, BUILTIN)
    taken = inspect.signature(BUILTIN[settings.schedule]).parameters
    given = {key: getattr(settings, key) for key in ("mu", "n0", "power", "eps")}
    numbers = {key: value for key, value in given.items() if value is not None}
    for key in numbers:
        if key not in taken:
            takes = ", ".join(taken)
            raise BadInput(f"{section} schedule {settings.schedule!r} takes {takes}, and not {key}")
    if "lam" in taken:
        numbers["lam"] = settings.lam
    elif taken["mu"].default is inspect.Parameter.empty:
        numbers.setdefault("mu", 1.0)
    return resolve(settings.schedule, **numbers)


def from_spec(spec: Mapping[str, Any]) -> Schedule:
    """The schedule that `spec()` describes; one of your own is code, and refused here.

    >>> from_spec(pegasos(1e-3, n0=5).spec()) == pegasos(1e-3, n0=5)
    True
    """
    name = spec["name"]
    if "scale" not in spec:
        raise BadInput(f"schedule {name!r} is a function, its description has no numbers")
    scale = _checked("scale", spec["scale"], 0)
    keys = ("offset", "power", "eps")
    offset, power, eps = (_checked(key, spec[key], 0, strict=False) for key in keys)
    if not isinstance(spec["normalised"], bool):
        raise BadInput(f"normalised is {spec['normalised']!r}: true or false is expected")
    return Schedule(name, scale, offset, power, spec["normalised"], eps)


def check_schedule(schedule: Schedule) -> None:
    """Interrogate a schedule: finite and positive for every n and |z|^2, never growing in n.

    >>> check_schedule(pegasos(1e-3))
    """
    n = [1, 2, 3, 10, 100, 10_000, 10_000_000]
    for q in (1e-3, 1.0, 2.0):
        mu = np.array([float(schedule(i, q)) for i in n])
        if not (np.isfinite(mu).all() and (mu > 0).all()):
            raise BadInput(
                f"schedule {schedule.name!r} is not finite and positive: {mu} at n = {n}"
            )
        if (np.diff(mu) > 1e-12 * mu[:-1]).any():
            raise BadInput(f"schedule {schedule.name!r} grows with n: {mu} at n = {n}")
