"""Shift-invariant kernels kappa(x - y), each with its spectral density.

Bochner: kappa(delta) = E cos(omega' delta) for omega drawn from the kernel's spectral density,
if kappa(0) = 1. `sample` draws those frequencies. The isotropic kernels here are all Gaussian
scale mixtures: omega = s g with g ~ N(0, I_d) and one random scale s, so |omega| = s chi_d.

>>> kernel = resolve("matern32", sigma=2.0)
>>> kernel
Matern(sigma=2.0, nu=1.5)
>>> delta = np.array([1.0, 1.0])
>>> estimate = np.cos(kernel.sample(seed=0, n=100_000, d=2) @ delta).mean()
>>> bool(abs(estimate - kernel(delta)) < 0.01)
True
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from dokl.base.errors import BadInput, UnknownName
from dokl.learning.kernels.base import Kernel
from dokl.learning.kernels.mixtures import Cauchy, Gaussian, Matern, RationalQuadratic
from dokl.learning.kernels.others import Custom, Laplacian, Stretched

__all__ = [
    "Cauchy",
    "Custom",
    "Gaussian",
    "Kernel",
    "Laplacian",
    "Matern",
    "RationalQuadratic",
    "Stretched",
    "from_spec",
    "resolve",
]

_NAMED: dict[str, tuple[Callable[..., Kernel], dict[str, float]]] = {
    "gaussian": (Gaussian, {}),
    "rbf": (Gaussian, {}),
    "laplacian": (Laplacian, {}),
    "matern": (Matern, {}),
    "matern12": (Matern, {"nu": 0.5}),
    "matern32": (Matern, {"nu": 1.5}),
    "matern52": (Matern, {"nu": 2.5}),
    "cauchy": (Cauchy, {}),
    "rational_quadratic": (RationalQuadratic, {}),
}


def resolve(kernel: str | Kernel, sigma: object = None, **params: float) -> Kernel:
    """A kernel from its name and parameters; a kernel passes through unchanged.

    sigma: its length scale; or several, one for each input.

    >>> resolve("rbf", sigma=5)
    Gaussian(sigma=5.0)
    >>> resolve("rbf", sigma=[5, 2])
    Stretched(kernel=Gaussian(sigma=1.0), lengths=(5.0, 2.0))
    """
    if not isinstance(kernel, str):
        if not isinstance(kernel, Kernel):
            raise BadInput(f"kernel must be a name or a Kernel, got {kernel!r}")
        if sigma is not None or params:
            raise BadInput(f"{kernel!r} already has its parameters: give a name to set others")
        return kernel
    if kernel not in _NAMED:
        raise UnknownName("kernel", kernel, _NAMED)
    if isinstance(sigma, tuple | list | np.ndarray):
        return Stretched(resolve(kernel, 1.0, **params), tuple(sigma))
    make, fixed = _NAMED[kernel]
    if sigma is None:
        raise BadInput(f"kernel {kernel!r} needs sigma, its length scale")
    free = {f.name for f in fields(make)} - {"sigma"} - set(fixed)  # type: ignore[arg-type]
    for name in params:
        if name not in free:
            raise UnknownName(f"parameter of kernel {kernel!r}", name, free | {"sigma"})
    return make(sigma=sigma, **fixed, **params)


def from_spec(spec: Mapping[str, Any]) -> Kernel:
    """The kernel that `spec()` describes; one of your own is code, and UnknownName here.

    >>> from_spec(Matern(2.0, nu=2.5).spec())
    Matern(sigma=2.0, nu=2.5)
    """
    params = dict(spec)
    if params["name"] == Stretched.name:
        return Stretched(from_spec(params["kernel"]), tuple(params["lengths"]))
    return resolve(params.pop("name"), **params)
