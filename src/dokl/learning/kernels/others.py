"""The kernels that are no scale mixtures: of the L1 norm, of one's own, and stretched ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dokl.base.errors import BadInput
from dokl.base.random_numbers import Array, Label, generator
from dokl.learning.kernels.base import Kernel, positive


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

    >>> from dokl.learning.kernels import Gaussian
    >>> kernel = Stretched(Gaussian(1.0), (0.5, 2.0))
    >>> bool(kernel([0.5, 2.0]) == Gaussian(1.0)([1.0, 1.0]))
    True
    """

    kernel: Kernel
    lengths: tuple[float, ...]
    name = "stretched"

    def __post_init__(self) -> None:
        """Every length a finite float above 0."""
        lengths = tuple(positive("a length", each) for each in self.lengths)
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
