"""The isotropic kernels: Gaussian scale mixtures, each with the law of its scale."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from dokl.base.random_numbers import Array, gamma_quantile, normal_quantile
from dokl.learning.kernels.base import ScaleMixture, sum_squares


@dataclass(frozen=True)
class Gaussian(ScaleMixture):
    """kappa = exp(-|delta|^2 / (2 sigma^2)); omega ~ N(0, I_d / sigma^2).

    Rahimi and Recht, Random features for large-scale kernel machines, 2007.

    >>> print(Gaussian(sigma=1.0)([[0.0], [1.0]]).round(4))
    [1.     0.6065]
    """

    sigma: float
    name = "gaussian"

    def _kappa(self, v: Array) -> Any:
        return np.exp(-0.5 * sum_squares(v / self.sigma))

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
class Matern(ScaleMixture):
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
        t = np.sqrt(2 * self.nu * sum_squares(v / self.sigma))
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
    return np.asarray(np.where(trusted, np.minimum(out, 1.0), large_order_matern(t, nu)))


def large_order_matern(t: Array, nu: float) -> Array:
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
class Cauchy(ScaleMixture):
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
        return 1 / (1 + sum_squares(v / self.sigma))

    def mixing_scale(self, u: Array) -> Array:
        """s = sqrt(2 E) / sigma."""
        return np.asarray(np.sqrt(-2 * np.log1p(-u)) / self.sigma)


@dataclass(frozen=True)
class RationalQuadratic(ScaleMixture):
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
        ratio = sum_squares(v / self.sigma) / (2 * self.alpha)
        return np.exp(-self.alpha * np.log1p(ratio))

    def mixing_scale(self, u: Array) -> Array:
        """s = sqrt(G / alpha) / sigma."""
        return np.asarray(np.sqrt(gamma_quantile(u, self.alpha) / self.alpha) / self.sigma)
