"""The feature map z: R^d -> R^D with z(x)'z(y) close to kappa(x - y).

Every node of a network must own the same map, so it is a function of (kernel, d, D, variant,
seed) alone, the same on every machine to 1e-12, and carries a fingerprint of these.

variant       z                                                  frequencies
"cos"         sqrt(2/D) cos(omega'x + b), b ~ U[0, 2 pi]         D, independent
"paired"      sqrt(2/D) [cos(omega'x), sin(omega'x)], |z| = 1    D/2, independent
"orthogonal"  as paired                                          orthogonal in blocks of d
"sobol"       as paired                                          shifted quasi-Monte Carlo
"structured"  as paired; D log d operations instead of D d       rows of norms * H S0 H S1 H S2

>>> from dokl.learning.kernels import Gaussian
>>> z = sample(Gaussian(sigma=5.0), d=5, D=300, variant="orthogonal", seed=1)
>>> Z = z.transform(np.eye(5))
>>> bool(abs(Z[0] @ Z[1] - Gaussian(5.0)(np.eye(5)[0] - np.eye(5)[1])) < 0.01)
True

References: Rahimi and Recht 2007 (cos); Sutherland and Schneider 2015 (paired beats cos for the
Gaussian kernel); Yu et al., Orthogonal random features, 2016 (orthogonal and structured); Yang
et al., Quasi-Monte Carlo feature maps, 2014 (sobol).
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray

from dokl.base import random_numbers
from dokl.base.arrays import check_rows, is_sparse
from dokl.base.errors import BadInput, UnknownName
from dokl.base.fingerprints import digest
from dokl.base.random_numbers import Array
from dokl.base.unlocked import one_thread
from dokl.learning.kernels import Custom, Kernel, Stretched, resolve

VARIANTS = ("cos", "paired", "orthogonal", "sobol", "structured")

# Part of every fingerprint: raise it whenever the same seed gives other numbers.
FORMAT = 1

# With few signs H S0 H S1 H S2 has few directions (in R^2 only the diagonals) and E z'z is not
# kappa; from 32 dimensions on the bias is about 0.001. Smaller inputs are padded with zeros.
_LEAST_STRUCTURED = 32

_SCRATCH = 2**21  # float64 numbers in a temporary array, 16 MiB


@dataclass(frozen=True)
class FeatureMap:
    """A drawn feature map; made by `sample` or `Features.draw`. Arrays are read-only."""

    kernel: Kernel
    d: int
    D: int
    variant: str
    seed: int
    omega: Array | None = field(default=None, repr=False, compare=False)  # (d, F)
    phases: Array | None = field(default=None, repr=False, compare=False)  # (F,), cos only
    signs: NDArray[np.int8] | None = field(default=None, repr=False, compare=False)  # (3, B, p)
    norms: Array | None = field(default=None, repr=False, compare=False)  # (B, p)

    def __post_init__(self) -> None:
        """Freeze the arrays: a map that drifts would keep its fingerprint."""
        for array in (self.omega, self.phases, self.signs, self.norms):
            if array is not None:
                array.setflags(write=False)

    @property
    def paired(self) -> bool:
        """Whether z is [cos, sin] of the same frequencies."""
        return self.variant != "cos"

    @property
    def n_frequencies(self) -> int:
        """F: D for cos, D/2 for the paired variants."""
        return self.D // 2 if self.paired else self.D

    @property
    def scale(self) -> float:
        """sqrt(2/D), the factor in front of every cosine."""
        return float(np.sqrt(2 / self.D))

    @property
    def sup_norm2(self) -> float:
        """The largest that |z|^2 can be."""
        return 1.0 if self.paired else 2.0

    @cached_property
    def fingerprint(self) -> str:
        """16 hexadecimal digits; equal for maps whose theta may be averaged."""
        made_of: dict[str, Any] = {"format": FORMAT, "kernel": self.kernel.spec(), "d": self.d}
        made_of |= {"D": self.D, "variant": self.variant, "seed": self.seed}
        if isinstance(self.kernel, Custom):  # its name does not define its frequencies
            drawn = self.omega if self.omega is not None else self.norms
            with np.errstate(over="ignore"):
                rounded = np.asarray(drawn, "<f4").tobytes()
            made_of["drawn"] = hashlib.sha256(rounded).hexdigest()
        return digest(made_of)

    def transform(self, X: object) -> Array:
        """X: (n, d), dense or scipy.sparse -> z: (n, D)."""
        angles = self.angles(X)
        F = self.n_frequencies
        z = np.empty((angles.shape[0], self.D))
        if self.phases is not None:
            angles += self.phases
        np.cos(angles, out=z[:, :F])
        if self.paired:
            np.sin(angles, out=z[:, F:])
        z *= self.scale
        return z

    def angles(self, X: Any) -> Array:
        """X: (n, d) -> omega'x: (n, F), in radians and without phases."""
        X = self._checked(X)
        if self.omega is not None:
            return np.asarray(X @ self.omega)
        out = np.empty((X.shape[0], self.n_frequencies))
        assert self.norms is not None
        step = max(1, _SCRATCH // self.norms.size)
        for start in range(0, out.shape[0], step):
            out[start : start + step] = self._structured(X[start : start + step])
        return out

    def dense_omega(self) -> Array:
        """The frequencies as columns, (d, F), for every variant."""
        return self.omega if self.omega is not None else self.angles(np.eye(self.d))

    def omega_turns(self, dtype: DTypeLike = np.float64) -> Array:
        """omega / (2 pi): (d, F). Engines count in turns, where range reduction is exact."""
        if self.omega is None:
            raise BadInput("structured features have no omega: use signs and norms_turns")
        return np.ascontiguousarray(self.omega / (2 * np.pi), dtype=dtype)

    def phase_turns(self, dtype: DTypeLike = np.float64) -> Array:
        """b / (2 pi): (F,); zeros for the paired variants."""
        phases = np.zeros(self.n_frequencies) if self.phases is None else self.phases
        return np.asarray(phases / (2 * np.pi), dtype=dtype)

    def norms_turns(self, dtype: DTypeLike = np.float64) -> Array:
        """norms / (2 pi p^(3/2)): (B, p), what the unnormalised H S0 H S1 H S2 x is to be times."""
        if self.norms is None:
            raise BadInput(f"{self.variant} features have no norms: use omega_turns")
        return np.asarray(self.norms / (2 * np.pi * self.norms.shape[1] ** 1.5), dtype=dtype)

    def project(self, modes: object) -> ProjectedMap:
        """The map V'z on the columns of modes, V: (D, r), orthonormal: r numbers per message."""
        return ProjectedMap(self, np.array(modes, dtype=np.float64))

    def _checked(self, X: object) -> Any:
        if not is_sparse(X):
            try:
                X = np.asarray(X, dtype=np.float64)
            except (TypeError, ValueError) as error:
                raise BadInput(f"X must be an array of numbers: {error}") from None
        return check_rows(X, self.d)

    def _structured(self, X: Any) -> Array:
        """norms * (H S0 H S1 H S2 x) for a few rows; S2 acts first, H is orthonormal."""
        assert self.norms is not None
        assert self.signs is not None
        p = self.norms.shape[1]
        w = np.zeros((X.shape[0], 1, p))
        w[:, 0, : self.d] = X.toarray() if is_sparse(X) else X
        for signs in self.signs[::-1]:
            w = hadamard(w * signs)
        w *= self.norms / p**1.5
        return w.reshape(X.shape[0], -1)[:, : self.n_frequencies]


@dataclass(frozen=True, eq=False)
class ProjectedMap:
    """V'z for a map z and orthonormal V: (D, r); made by `FeatureMap.project`.

    All nodes need the same V to the last bit, so compute it once and hand it out with sigma and
    the seed: eigenvectors of nearly equal eigenvalues may turn between machines.
    """

    base: FeatureMap
    modes: Array = field(repr=False)
    paired = False  # |V'z| is not fixed, so engines measure it

    def __post_init__(self) -> None:
        V, D = self.modes, self.base.D
        if V.ndim != 2 or V.shape[0] != D or not 1 <= V.shape[1] <= D:
            raise BadInput(f"modes must have shape ({D}, r) with 1 <= r <= {D}, got {V.shape}")
        if not np.abs(V.T @ V - np.eye(V.shape[1])).max() < 1e-6:
            raise BadInput("modes must be orthonormal columns: orthogonalise them first (QR)")
        V.setflags(write=False)

    @property
    def d(self) -> int:
        """Number of inputs."""
        return self.base.d

    @property
    def D(self) -> int:
        """r, the length of V'z and of theta."""
        return int(self.modes.shape[1])

    @property
    def sup_norm2(self) -> float:
        """A bound on |V'z|^2: that of |z|^2."""
        return self.base.sup_norm2

    @cached_property
    def fingerprint(self) -> str:
        """That of the map and of every bit of the modes."""
        bits = hashlib.sha256(np.ascontiguousarray(self.modes, "<f8").tobytes()).hexdigest()
        return digest({"projected": self.base.fingerprint, "r": self.D, "modes": bits})

    def transform(self, X: object) -> Array:
        """X: (n, d), dense or scipy.sparse -> V'z: (n, r)."""
        return np.asarray(self.base.transform(X) @ self.modes)


AnyMap = FeatureMap | ProjectedMap


class MapRecipe(Protocol):
    """What draws a map from a seed."""

    def draw(self, seed: int) -> AnyMap:
        """The map of this seed."""


@dataclass(frozen=True)
class Features:
    """The recipe of a feature map: everything but the seed.

    >>> from dokl.learning.kernels import Gaussian
    >>> recipe = Features(Gaussian(0.7), d=2, D=8, variant="paired")
    >>> recipe.draw(3) == sample(Gaussian(0.7), 2, 8, "paired", seed=3)
    True
    """

    kernel: Kernel
    d: int
    D: int
    variant: str = "cos"

    def __post_init__(self) -> None:
        """Refuse what cannot be drawn here, before any seed is spent on it."""
        resolve(self.kernel)
        if self.variant not in VARIANTS:
            raise UnknownName("variant", self.variant, VARIANTS)
        for name in ("d", "D"):
            object.__setattr__(self, name, _count(name, getattr(self, name)))
        if self.variant != "cos" and self.D % 2:
            raise BadInput(
                f"variant {self.variant!r} makes pairs (cos, sin) and needs an even D, "
                f"got {self.D}: use {self.D + 1}, or variant 'cos'"
            )
        if isinstance(self.kernel, Stretched):
            self._check_lengths(self.kernel)
        if self.variant in ("orthogonal", "structured") and not self.kernel.isotropic:
            raise BadInput(
                f"variant {self.variant!r} needs an isotropic kernel and {self.kernel.name!r} is "
                "not: use 'paired', 'sobol' or 'cos'"
            )
        most = random_numbers.MAX_SOBOL_DIMENSION
        if self.variant == "sobol" and self.kernel.n_uniforms(self.d) > most:
            raise BadInput(
                f"variant 'sobol' goes up to dimension {most}, and kernel "
                f"{self.kernel.name!r} needs {self.kernel.n_uniforms(self.d)}: use 'structured'"
            )

    def _check_lengths(self, kernel: Stretched) -> None:
        if len(kernel.lengths) != self.d:
            raise BadInput(f"there are {len(kernel.lengths)} length scales for {self.d} inputs")
        if self.variant == "structured":
            raise BadInput("variant 'structured' has one width for all inputs: use 'orthogonal'")

    def draw(self, seed: int) -> FeatureMap:
        """The map of this seed."""
        seed = random_numbers.check_seed(seed)
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):  # checked just below
            arrays = _DRAW[self.variant](self, seed)
        for name in ("omega", "norms"):
            if name in arrays and not np.isfinite(arrays[name]).all():
                raise BadInput(f"{self.kernel!r} gives infinite frequencies: sigma is too small")
        return FeatureMap(self.kernel, self.d, self.D, self.variant, seed, **arrays)


def sample(kernel: Kernel, d: int, D: int, variant: str = "cos", seed: int = 0) -> FeatureMap:
    """Draw the feature map of a kernel on R^d; D is the length of z and of theta."""
    return Features(kernel, d, D, variant).draw(seed)


def hadamard(w: Array) -> Array:
    """Unnormalised Walsh-Hadamard transform over the last axis, whose length is a power of two.

    >>> print(hadamard(np.array([1.0, 2.0, 0.0, 0.0])))
    [ 3. -1.  3. -1.]
    """
    shape, half = w.shape, 1
    while half < shape[-1]:
        pairs = w.reshape(*shape[:-1], -1, 2, half)
        w = np.stack((pairs[..., 0, :] + pairs[..., 1, :], pairs[..., 0, :] - pairs[..., 1, :]), -2)
        half *= 2
    return w.reshape(shape)


def _count(name: str, value: Any) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        number = 0
    if number < 1 or isinstance(value, bool):
        raise BadInput(f"{name} must be a whole number of at least 1, got {value!r}")
    return number


def _cos(recipe: Features, seed: int) -> dict[str, Any]:
    omega = recipe.kernel.sample(seed, recipe.D, recipe.d).T
    return {
        "omega": np.ascontiguousarray(omega),
        "phases": 2 * np.pi * random_numbers.uniforms(seed, "phase", recipe.D),
    }


def _paired(recipe: Features, seed: int) -> dict[str, Any]:
    omega = recipe.kernel.sample(seed, recipe.D // 2, recipe.d).T
    return {"omega": np.ascontiguousarray(omega)}


def _orthogonal(recipe: Features, seed: int) -> dict[str, Any]:
    """Orthogonal directions; the norms are the kernel's own, independent of each other.

    Norms fixed at their mean, as sometimes seen, would be another kernel.
    """
    d, F = recipe.d, recipe.D // 2
    omega = np.empty((d, F))
    for start, directions in _haar_blocks(seed, d, F):
        m = min(directions.shape[0], F - start)
        omega[:, start : start + m] = directions[:m].T
    omega *= recipe.kernel.radii(seed, F, d)
    if isinstance(recipe.kernel, Stretched):
        omega /= np.array(recipe.kernel.lengths)[:, None]
    return {"omega": omega}


def _haar_blocks(seed: int, d: int, F: int) -> Iterator[tuple[int, Array]]:
    """Uniformly random orthogonal matrices, a stack at a time, as rows: (start, (b d, d))."""
    stack = max(1, 2**16 // d**2)
    for number, start in enumerate(range(0, F, stack * d)):
        u = random_numbers.uniforms(seed, ("direction", number), (stack, d, d))
        b = min(stack, -((start - F) // d))  # blocks still needed
        # These are small: several threads only wait for each other, on a busy machine for seconds.
        with one_thread():
            q, r = np.linalg.qr(random_numbers.normal_quantile(u[:b]))
        # LAPACK leaves the signs open; with those of R fixed, Q is Haar and unique
        q *= np.where(np.diagonal(r, axis1=1, axis2=2) < 0, -1.0, 1.0)[:, None, :]
        yield start, q.transpose(0, 2, 1).reshape(-1, d)


def _sobol(recipe: Features, seed: int) -> dict[str, Any]:
    d, F = recipe.d, recipe.D // 2
    U = random_numbers.sobol(seed, F, recipe.kernel.n_uniforms(d))
    omega = np.empty((d, F))
    step = max(1, _SCRATCH // U.shape[1])
    for start in range(0, F, step):
        omega[:, start : start + step] = recipe.kernel.frequencies(U[start : start + step]).T
    return {"omega": omega}


def _structured(recipe: Features, seed: int) -> dict[str, Any]:
    """Signs and norms; a frequency isotropic in R^p has the right law in its first d entries."""
    p = max(_LEAST_STRUCTURED, 1 << (recipe.d - 1).bit_length())
    B = -(-(recipe.D // 2) // p)
    bits = random_numbers.words(seed, "signs", 3 * B * p) >> np.uint64(63)
    signs = (1 - 2 * bits.astype(np.int8)).reshape(3, B, p)
    return {"signs": signs, "norms": recipe.kernel.radii(seed, B * p, p).reshape(B, p)}


_DRAW = {
    "cos": _cos,
    "paired": _paired,
    "orthogonal": _orthogonal,
    "sobol": _sobol,
    "structured": _structured,
}
