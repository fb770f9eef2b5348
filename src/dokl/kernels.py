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

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dokl.errors import BadInput, UnknownName
from dokl.random_numbers import Array, Label, gamma_quantile, generator, normal_quantile, uniforms

# Frequencies are drawn in groups of this many, each from its own stream of words, so that large
# draws need little scratch. It shapes the numbers: changing it changes every omega.
_GROUP = 4096


def _positive(name: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not (math.isfinite(number) and number > 0):
        raise BadInput(f"{name} must be a finite number above 0, got {value!r}")
    return number


def _sum_squares(v: Array) -> Array:
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
            value = _positive(field.name, getattr(self, field.name))
            object.__setattr__(self, field.name, value)


class _Mixture(Kernel):
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


@dataclass(frozen=True)
class Gaussian(_Mixture):
    """kappa = exp(-|delta|^2 / (2 sigma^2)); omega ~ N(0, I_d / sigma^2).

    Rahimi and Recht, Random features for large-scale kernel machines, 2007.

    >>> print(Gaussian(sigma=1.0)([[0.0], [1.0]]).round(4))
    [1.     0.6065]
    """

    sigma: float
    name = "gaussian"

    def _kappa(self, v: Array) -> Any:
        return np.exp(-0.5 * _sum_squares(v / self.sigma))

    def n_uniforms(self, d: int) -> int:
        """One per coordinate: the scale is fixed."""
        return d

    def mixing_scale(self, u: Array) -> Array:
        """Constant, 1/sigma."""
        return np.full_like(u, 1 / self.sigma)

    def frequencies(self, U: Array) -> Array:
        """U: (n, d) -> omega: (n, d)."""
        return normal_quantile(U) / self.sigma


@dataclass(frozen=True)
class Laplacian(Kernel):
    """kappa = exp(-|delta|_1 / sigma), with the L1 norm; omega_i ~ Cauchy(1/sigma), independent.

    Not isotropic: its contours are the diamonds of the L1 norm. The kernel exp(-|delta|_2 / sigma)
    is `Matern(sigma, nu=0.5)`. Rahimi and Recht 2007, figure 1.

    >>> print(Laplacian(sigma=2.0)([1.0, -1.0]).round(4))
    0.3679
    """

    sigma: float
    name = "laplacian"
    isotropic = False

    def _kappa(self, v: Array) -> Any:
        return np.exp(-np.abs(v / self.sigma).sum(-1))

    def frequencies(self, U: Array) -> Array:
        """tan(pi (u - 1/2)) / sigma, in the tails by the cotangent of the small angle."""
        v = U - 0.5
        inner = np.tan(np.pi * np.clip(v, -0.25, 0.25))
        outer = np.copysign(1 / np.tan(np.pi * np.minimum(U, 1 - U)), v)
        return np.where(np.abs(v) <= 0.25, inner, outer) / self.sigma


@dataclass(frozen=True)
class Matern(_Mixture):
    """kappa = 2^(1-nu) / Gamma(nu) t^nu K_nu(t), t = sqrt(2 nu) |delta| / sigma.

    omega is multivariate t with 2 nu degrees of freedom and scale 1/sigma: s^2 = nu / (sigma^2 G),
    G ~ Gamma(nu). Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, 4.2.1.
    nu = 1/2 is exp(-|delta| / sigma); nu to infinity tends to the Gaussian.

    >>> print(Matern(sigma=1.0, nu=0.5)([[0.0], [1.0]]).round(4))
    [1.     0.3679]
    """

    sigma: float
    nu: float = 1.5
    name = "matern"

    def _kappa(self, v: Array) -> Any:
        t = np.sqrt(2 * self.nu * _sum_squares(v / self.sigma))
        closed = {0.5: 1.0, 1.5: 1 + t, 2.5: 1 + t + t * t / 3}
        return closed[self.nu] * np.exp(-t) if self.nu in closed else _bessel_matern(t, self.nu)

    def mixing_scale(self, u: Array) -> Array:
        """s = sqrt(nu / G) / sigma; a G below 1e-60 (nu << 1 only) would overflow float32."""
        G = np.maximum(gamma_quantile(u, self.nu), 1e-60)
        return np.asarray(np.sqrt(self.nu / G) / self.sigma)


def _bessel_matern(t: Array, nu: float) -> Array:
    """2^(1-nu) / Gamma(nu) t^nu K_nu(t) by logarithms, so that large t and nu do not overflow."""
    from scipy.special import gammaln, kve

    with np.errstate(all="ignore"):  # K_nu overflows at and near 0, where the limit takes over
        log_bessel = np.log(kve(nu, t)) - t
        out = np.exp((1 - nu) * math.log(2) - gammaln(nu) + nu * np.log(t) + log_bessel)
    trusted = np.isfinite(log_bessel) & (nu <= 100)
    return np.asarray(np.where(trusted, np.minimum(out, 1.0), _large_order_matern(t, nu)))


def _large_order_matern(t: Array, nu: float) -> Array:
    """The same for large nu, or t near 0, from Debye's uniform expansion of K_nu (DLMF 10.41.4).

    Its growing parts cancel those of Gamma(nu) exactly; what is left is exact at t = 0 and good
    to 1e-12 for nu > 100.
    """
    z2 = (t / nu) ** 2
    w = np.sqrt(1 + z2)
    q = z2 / (1 + w)

    def series(p: Array) -> Array:
        u1 = p * (3 - 5 * p**2) / 24
        u2 = p**2 * (81 - 462 * p**2 + 385 * p**4) / 1152
        u3 = p**3 * (30375 - 369603 * p**2 + 765765 * p**4 - 425425 * p**6) / 414720
        high = 349922430 * p**4 - 446185740 * p**6 + 185910725 * p**8
        u4 = p**4 * (4465125 - 94121676 * p**2 + high) / 39813120
        return np.asarray(1 - u1 / nu + u2 / nu**2 - u3 / nu**3 + u4 / nu**4)

    correction = series(1 / w) / series(np.ones_like(w))
    return np.asarray(np.exp(nu * (np.log1p(q / 2) - q)) / np.sqrt(w) * correction)


@dataclass(frozen=True)
class Cauchy(_Mixture):
    """kappa = 1 / (1 + |delta|^2 / sigma^2), isotropic.

    omega = s g, s^2 = 2 E / sigma^2 with E ~ Exp(1): a multivariate (symmetric) Laplace law,
    density proportional to |omega|^(1-d/2) K_{1-d/2}(sigma |omega|). It is the rational quadratic
    kernel with alpha = 1 and sigma / sqrt(2); Rasmussen and Williams 2006, 4.2.1.

    >>> print(Cauchy(sigma=1.0)([[0.0, 0.0], [1.0, 0.0]]).round(4))
    [1.  0.5]
    """

    sigma: float
    name = "cauchy"

    def _kappa(self, v: Array) -> Any:
        return 1 / (1 + _sum_squares(v / self.sigma))

    def mixing_scale(self, u: Array) -> Array:
        """s = sqrt(2 E) / sigma."""
        return np.asarray(np.sqrt(-2 * np.log1p(-u)) / self.sigma)


@dataclass(frozen=True)
class RationalQuadratic(_Mixture):
    """kappa = (1 + |delta|^2 / (2 alpha sigma^2))^(-alpha).

    omega = s g, s^2 = G / (alpha sigma^2) with G ~ Gamma(alpha): a mixture of Gaussian kernels of
    all lengths; alpha to infinity tends to the Gaussian. Rasmussen and Williams 2006, 4.2.1.

    >>> print(RationalQuadratic(sigma=1.0, alpha=2.0)([[0.0], [2.0]]).round(4))
    [1.   0.25]
    """

    sigma: float
    alpha: float = 1.0
    name = "rational_quadratic"

    def _kappa(self, v: Array) -> Any:
        ratio = _sum_squares(v / self.sigma) / (2 * self.alpha)
        return np.exp(-self.alpha * np.log1p(ratio))

    def mixing_scale(self, u: Array) -> Array:
        """s = sqrt(G / alpha) / sigma."""
        return np.asarray(np.sqrt(gamma_quantile(u, self.alpha) / self.alpha) / self.sigma)


@dataclass(frozen=True)
class Custom(Kernel):
    """A kernel of your own, from its function and a sampler of its spectral density.

    `function(delta: (..., d)) -> (...)`, with kappa(0) = 1; `sampler(rng, n, d) -> omega: (n, d)`,
    called for at most 4096 frequencies at a time. The rng is Philox-based and seeded by dokl, but
    NumPy may change what its distributions make of the words: nodes that must agree should run
    the same NumPy, or draw from `rng.bit_generator.random_raw`.

    >>> kernel = Custom(lambda v: np.exp(-0.5 * (v**2).sum(-1)),
    ...                 lambda rng, n, d: rng.standard_normal((n, d)), name="mine")
    >>> kernel.sample(seed=1, n=4, d=2).shape
    (4, 2)
    """

    function: Callable[[Array], Any]
    sampler: Callable[[np.random.Generator, int, int], Any]
    name: str
    isotropic: bool = False

    def __post_init__(self) -> None:
        """Refuse early what could only fail late."""
        if not self.name or not isinstance(self.name, str):
            raise BadInput(f"a custom kernel needs a name, got {self.name!r}")
        for role in ("function", "sampler"):
            if not callable(getattr(self, role)):
                raise BadInput(f"{role} of kernel {self.name!r} must be callable")

    def spec(self) -> dict[str, Any]:
        """Its name, which proves little: fingerprints add the frequencies themselves."""
        return {"name": self.name, "custom": True}

    def n_uniforms(self, d: int) -> int:
        """Refused: a sampler has no form in uniform numbers."""
        raise BadInput(
            f"kernel {self.name!r} is drawn by its sampler, not from uniform numbers: "
            "use variant 'cos' or 'paired'"
        )

    def _kappa(self, v: Array) -> Array:
        out = np.asarray(self.function(v), dtype=np.float64)
        if out.shape != v.shape[:-1]:
            wanted = f"must map shape {v.shape} to {v.shape[:-1]}"
            raise BadInput(f"function of kernel {self.name!r} {wanted}, got {out.shape}")
        return out

    def _draw(self, seed: int, label: Label, n: int, d: int) -> Array:
        omega = np.asarray(self.sampler(generator(seed, label), n, d), dtype=np.float64)
        if omega.shape != (n, d) or not np.isfinite(omega).all():
            wanted = f"must return finite frequencies of shape {(n, d)}"
            raise BadInput(f"sampler of kernel {self.name!r} {wanted}, got shape {omega.shape}")
        return omega


@dataclass(frozen=True)
class Stretched(Kernel):
    """Another kernel of delta / lengths: one length scale for each input.

    >>> kernel = Stretched(Gaussian(1.0), (0.5, 2.0))
    >>> bool(kernel([0.5, 2.0]) == Gaussian(1.0)([1.0, 1.0]))
    True
    """

    kernel: Kernel
    lengths: tuple[float, ...]
    name = "stretched"

    def __post_init__(self) -> None:
        """Every length a finite float above 0."""
        lengths = tuple(_positive("a length", each) for each in self.lengths)
        object.__setattr__(self, "lengths", lengths)

    @property
    def isotropic(self) -> bool:  # type: ignore[override]
        """Whether the kernel within is: frequencies are drawn for it, and then stretched."""
        return self.kernel.isotropic

    def spec(self) -> dict[str, Any]:
        """That of the kernel within, and the lengths."""
        return {"name": self.name, "kernel": self.kernel.spec(), "lengths": list(self.lengths)}

    def n_uniforms(self, d: int) -> int:
        """As the kernel within."""
        return self.kernel.n_uniforms(d)

    def frequencies(self, U: Array) -> Array:
        """Those of the kernel within, divided by the lengths."""
        return np.asarray(self.kernel.frequencies(U) / np.array(self.lengths))

    def radii(self, seed: int, n: int, d: int) -> Array:
        """Of the kernel within, before anything is stretched."""
        return self.kernel.radii(seed, n, d)

    def _kappa(self, v: Array) -> Any:
        return self.kernel(v / np.array(self.lengths))


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


def resolve(kernel: str | Kernel, sigma: Any = None, **params: float) -> Kernel:
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
