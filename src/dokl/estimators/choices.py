"""What "scale", "median" and "auto" stand for: widths, feature variants, steps, passes, seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from dokl.base.arrays import is_sparse
from dokl.base.errors import BadInput, UnknownName
from dokl.base.random_numbers import check_seed, generator
from dokl.learning import kernels, losses, schedules
from dokl.learning.features import VARIANTS
from dokl.learning.kernels import Kernel
from dokl.learning.losses import Loss
from dokl.learning.schedules import Schedule

SIGMAS = ("scale", "median")
# Fit repeats a small data set until about this many updates have been made.
ENOUGH_UPDATES, MOST_PASSES = 10_000, 100


def set_parameters(estimator: object, arguments: Mapping[str, Any]) -> None:
    """Keep the arguments of a constructor, its `locals()`, unchanged, as scikit-learn wants it."""
    for name, value in arguments.items():
        if name != "self":
            setattr(estimator, name, value)


def seed_of(random_state: object) -> int:
    """An integer is the seed itself, so that nodes can agree on it; else one is drawn."""
    if isinstance(random_state, int | np.integer) and not isinstance(random_state, bool):
        return check_seed(random_state)
    from sklearn.utils import check_random_state

    return int(check_random_state(random_state).randint(2**31 - 1))


class Seeded:
    """`seed`, as River calls it, or `random_state`, as scikit-learn does; the latter counts where
    both are given. None draws one, which is kept: what is drawn again is the same.
    """

    seed: int | None
    random_state: int | None = None
    _kept_seed: int | None = None

    def _keep_seed(self) -> None:
        if self.seed is None or self.random_state is not None:
            self._kept_seed = seed_of(self.seed if self.random_state is None else self.random_state)

    @property
    def _seed(self) -> int:
        """An integer; pickles of earlier versions have only `seed`."""
        return check_seed(self.seed) if self._kept_seed is None else self._kept_seed


def width(sigma: Any, X: Any) -> float:
    """The kernel's width: a number, "scale" or "median" of X: (n, d).

    "scale" is scikit-learn's gamma="scale", gamma = 1/(d v): sigma = sqrt(d v / 2), with v the
    mean variance of the columns. (scikit-learn's is that of all entries together, which takes
    the distance between columns, 1013 hPa and 21 degrees, for spread; standardised columns have
    none.) Where X has no spread (a single row, say) unit variance is assumed.
    """
    if isinstance(sigma, str):
        if sigma not in SIGMAS:
            raise UnknownName("sigma", sigma, SIGMAS)
        value = math.sqrt(X.shape[1] * variance(X) / 2) if sigma == "scale" else median_distance(X)
        return value if math.isfinite(value) and value > 0 else math.sqrt(X.shape[1] / 2)
    real = isinstance(sigma, int | float | np.number) and not isinstance(sigma, bool)
    if not (real and math.isfinite(sigma) and sigma > 0):
        raise BadInput(f"sigma must be a number above 0, 'scale' or 'median', got {sigma!r}")
    return float(sigma)


def variance(X: Any) -> float:
    """Mean of the variances of the columns of X, in float64."""
    if is_sparse(X):
        (n, d), values = X.shape, X.data.astype(np.float64)
        means = np.bincount(X.indices, values, d) / n
        return float(((values**2).sum() / n - (means**2).sum()) / d)
    return float(np.var(X, axis=0, dtype=np.float64).mean())


def median_distance(X: Any, label: str = "median-distance") -> float:
    """Median distance between different rows of X, from 2000 random pairs; 0 if all are equal.

    The pairs are always the same ones for a label.
    """
    a, b = generator(0, label).integers(X.shape[0], size=(2, 2000))
    gaps = X[a] - X[b]
    squared = gaps.multiply(gaps).sum(axis=1) if is_sparse(gaps) else (gaps**2).sum(axis=1)
    squared = np.asarray(squared, np.float64).ravel()
    apart = squared[squared > 0]
    return float(np.sqrt(np.median(apart))) if apart.size else 0.0


def kernel_of(kernel: Any, sigma: Any, X: Any) -> Kernel:
    """The kernel by name with its width, or the kernel object as given."""
    if isinstance(kernel, str) and isinstance(sigma, tuple | list | np.ndarray):
        return kernels.resolve(kernel, sigma)
    return kernels.resolve(kernel, width(sigma, X) if isinstance(kernel, str) else None)


def variant_of(features: object, kernel: Kernel, D: int) -> str:
    """ "auto" is orthogonal where the kernel allows it, else paired; cos where D is odd."""
    if features not in ("auto", *VARIANTS):
        raise UnknownName("features", features, ("auto", *VARIANTS))
    if D % 2 and features not in ("auto", "cos"):
        raise BadInput(
            f"features {features!r} come in pairs (cos, sin) and need an even n_components, "
            f"got {D}: use {D + 1}, or features='cos'"
        )
    if features != "auto":
        return str(features)
    if D % 2:
        return "cos"
    return "orthogonal" if kernel.isotropic else "paired"


def loss_of(loss: Any, classifying: bool) -> Loss:
    """The loss by name, which must suit the targets."""
    found = losses.resolve(loss)
    if found.margin and not classifying:
        raise BadInput(
            f"loss {found.name!r} is for classes -1 and 1; a regressor takes "
            "squared, huber, absolute, epsilon_insensitive or quantile"
        )
    return found


def step_of(step: object, loss: Loss, alpha: float, longest: float, classifying: bool) -> Schedule:
    """The schedule: a number, a schedule, a callable, a name, or "auto".

    longest is sup |z|^2, the intercept's share included. "auto" is safe in the mean square: no
    step exceeds 1 / (curvature |z|^2 + alpha) where the slope is unbounded.

    - regressors: 0.5 / (|z|^2 + alpha), constant, so that it keeps tracking; for slopes that jump
      (absolute, quantile...) 1 / (|z|^2 + alpha) over sqrt(n): a constant never settles there;
    - classifiers: 1 / (alpha (n + n0)) with n0 = 0.1/alpha where the slope is bounded (hinge,
      logistic), and n0 large enough for a safe first step where it is not.
    """
    if isinstance(step, str) and step == "auto":
        smooth = math.isfinite(loss.curvature)
        steepest = longest * (loss.curvature if smooth else 1.0)
        if classifying and alpha > 0:
            return schedules.pegasos(alpha, (0.1 if loss.bounded else steepest) / alpha)
        if not smooth:
            return schedules.sqrt(1.0 / (steepest + alpha))
        return schedules.normalised(0.5 * min(1.0, 1.0 / loss.curvature), alpha + 1e-12)
    if isinstance(step, str) and step == "pegasos":
        if alpha == 0:
            raise BadInput("step='pegasos' is 1/(alpha n): it needs an alpha above 0")
        return schedules.pegasos(alpha)
    if isinstance(step, str) and step not in schedules.BUILTIN:
        raise UnknownName("step", step, ("auto", *schedules.BUILTIN))
    if isinstance(step, str):
        raise BadInput(
            f"step {step!r} needs its numbers: pass a schedule, e.g. dokl.schedules.{step}(...)"
        )
    schedule = schedules.resolve(step)
    first = schedule(1, longest)
    if not (math.isfinite(first) and first > 0):
        raise BadInput(f"a step must be above 0; the schedule given makes it {first!r} at n = 1")
    return schedule


def passes_of(passes: object, rows_per_node: int) -> int:
    """How often `fit` goes through the data; "auto" repeats small sets up to 100 times."""
    if isinstance(passes, str) and passes == "auto":
        return min(MOST_PASSES, max(1, math.ceil(ENOUGH_UPDATES / max(1, rows_per_node))))
    if isinstance(passes, bool) or not isinstance(passes, int | np.integer) or passes < 1:
        raise BadInput(f"passes must be a whole number, at least 1, or 'auto', got {passes!r}")
    return int(passes)
