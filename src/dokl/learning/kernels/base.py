"""What every kernel is: its value, its spectral density, and how frequencies are drawn from it."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dokl.base.errors import BadInput
from dokl.base.random_numbers import Array, Label, gamma_quantile, normal_quantile, uniforms

# Frequencies are drawn in groups of this many, each from its own stream of words, so that large
# draws need little scratch. It shapes the numbers: changing it changes every omega.
_GROUP = 4096


def positive(name: str, value: Any) -> float:
    """The value as a float; refused unless finite and above 0."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not (math.isfinite(number) and number > 0):
        raise BadInput(f"{name} must be a finite number above 0, got {value!r}")
    return number


def sum_squares(v: Array) -> Array:
    """|v|^2 over the last axis; v: (..., d) -> (...)."""
    return np.asarray(np.einsum("...d,...d->...", v, v))


def _vectors(delta: ArrayLike) -> Array:
    v = np.asarray(delta, dtype=np.float64)
    if v.ndim == 0:
        raise BadInput("delta must have shape (..., d), got a single number")
    return v


class Kernel:
    """What the rest of dokl asks of a kernel; those below only fill in the blanks."""

    name: str
    isotropic: bool  # whether kappa depends on |delta| alone

    def __call__(self, delta: ArrayLike) -> Array:
        """kappa(delta); delta: (..., d) -> (...)."""
        return np.asarray(self._kappa(_vectors(delta)))

    def spec(self) -> dict[str, Any]:
        """Name and parameters, JSON-able: what a fingerprint is made of."""
        return {"name": self.name, **vars(self)}

    def n_uniforms(self, d: int) -> int:
        """How many uniform numbers make one frequency in R^d."""
        return d

    def frequencies(self, U: Array) -> Array:
        """U: (n, n_uniforms(d)) in (0, 1) -> omega: (n, d), by inverse distribution functions."""
        raise NotImplementedError

    def sample(self, seed: int, n: int, d: int) -> Array:
        """Independent omega: (n, d); a larger n starts with the draws of a smaller one."""
        omega = np.empty((n, d))
        for group, start in enumerate(range(0, n, _GROUP)):
            stop = min(start + _GROUP, n)
            omega[start:stop] = self._draw(seed, ("omega", group), stop - start, d)
        return omega

    def radii(self, seed: int, n: int, d: int) -> Array:
        """Independent draws of |omega|, omega in R^d, apart from those of `sample`; (n,)."""
        radii = np.empty(n)
        for group, start in enumerate(range(0, n, _GROUP)):
            stop = min(start + _GROUP, n)
            omega = self._draw(seed, ("radius", group), stop - start, d)
            radii[start:stop] = np.linalg.norm(omega, axis=1)
        return radii

    def _kappa(self, v: Array) -> Any:
        raise NotImplementedError

    def _draw(self, seed: int, label: Label, n: int, d: int) -> Array:
        return self.frequencies(uniforms(seed, label, (n, self.n_uniforms(d))))

    def __post_init__(self) -> None:
        """Every parameter a finite float above 0, so that 5 and 5.0 are the same kernel."""
        for field in fields(self):  # type: ignore[arg-type]  # every subclass is a dataclass
            value = positive(field.name, getattr(self, field.name))
            object.__setattr__(self, field.name, value)


class ScaleMixture(Kernel):
    """Gaussian scale mixtures: isotropic, omega = s g, s from one mixing variable."""

    isotropic = True

    def n_uniforms(self, d: int) -> int:
        """One per coordinate and, first because Sobol' points are best there, the mixing one."""
        return d + 1

    def mixing_scale(self, u: Array) -> Array:
        """u: (n,) -> s: (n,), the random scale of the Gaussian."""
        raise NotImplementedError

    def frequencies(self, U: Array) -> Array:
        """U: (n, d + 1) -> omega: (n, d)."""
        return self.mixing_scale(U[:, 0])[:, None] * normal_quantile(U[:, 1:])

    def radii(self, seed: int, n: int, d: int) -> Array:
        """s chi_d: the same law as |omega|, at 2 uniforms each instead of d + 1."""
        u = uniforms(seed, "radius", (n, 2))
        chi = np.sqrt(2 * gamma_quantile(u[:, 0], d / 2))
        return np.asarray(chi * self.mixing_scale(u[:, 1]))
