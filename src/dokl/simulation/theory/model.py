"""What is learned, on the modes: least-squares solution, misfit, noise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from dokl.base.arrays import Array
from dokl.learning.features import AnyMap
from dokl.simulation.theory.inputs import InputLaw
from dokl.simulation.theory.modes import Basis, Modes, basis
from dokl.simulation.theory.moments import cross_moment, power, target_values


@dataclass(frozen=True)
class DataModel:
    """y = theta_*'phi + misfit(x) + noise, with E[misfit phi] = 0.

    start: (r, r) is theta_* theta_*', where all nodes begin (theta = 0), averaged over targets;
    residual: (S,) is E[(y - theta_*'phi)^2 | x]; coupling: (S, r) is phi_i theta_*i misfit, by
    which the mean of theta and the misfit meet in the fourth-order term.
    """

    basis: Basis
    start: Array
    residual: Array
    coupling: Array

    @property
    def j_opt(self) -> float:
        """The error of theta_*: noise and misfit. J_opt = s^2 + E f^2 - p'R^-1 p on the modes."""
        return float(self.basis.weight @ self.residual)

    def added(self, B: Array, tail: float, decay: Array) -> Array:
        """E[(E[e^2 | x]) phi phi'] - R B R, what a sample adds to its node's block, over mu^2.

        E[e^2|x] = phi'B phi + tail - 2 misfit E[U]'phi + residual, where E[U] = -decay theta_*.
        """
        extra = self.residual + 2 * (self.coupling @ decay) + tail
        values = self.basis.values
        return np.asarray(self.basis.fourth(B, extra) - values[:, None] * B * values)


def model(
    features: AnyMap,
    inputs: InputLaw,
    target: object,
    noise: ArrayLike = 0.0,
    modes: Modes | None = None,
) -> DataModel:
    """The model of a target seen through features under a law of the inputs.

    target: a function of X: (n, d), such as a `KernelExpansion`; a list of them, averaged over;
    or data, y: (S,) or (S, J) on the points of `sampled_inputs`. noise: standard deviation of
    what is added to the target, one number or one per point.
    """
    at = basis(features, inputs, modes)
    return model_on(at, target_values(target, inputs), noise)


def model_on(at: Basis, values: Array, noise: ArrayLike = 0.0) -> DataModel:
    """The same on a basis at hand, from target values (S, J) on its points."""
    theta = (at.phi * at.weight[:, None]).T @ values / at.values[:, None]
    misfit = values - at.phi @ theta
    # theta belongs to V'z and not to its repaired copy: otherwise the quadrature error of a large
    # coefficient would be taken for signal in modes that are slow to learn
    theta = at.turn @ theta
    J = values.shape[1]
    residual = (misfit**2).mean(axis=1) + np.square(noise)
    return DataModel(at, theta @ theta.T / J, residual, at.phi * (misfit @ theta.T / J))


def wiener(features: AnyMap, inputs: InputLaw, target: object, modes: Modes) -> Array:
    """theta_* = R^-1 E[z f] on the modes, as a vector of the map itself: (D,) or (D, J)."""
    p = modes.vectors.T @ cross_moment(features, inputs, target)
    return np.asarray(modes.vectors @ (p.T / modes.values).T)


def optimal_error(
    features: AnyMap, inputs: InputLaw, target: object, noise: float, modes: Modes
) -> float:
    """J_opt = s^2 + E f^2 - p'R^-1 p, in closed form where `cross_moment` and `power` have one."""
    p = modes.vectors.T @ cross_moment(features, inputs, target)
    explained = (p**2).T / modes.values
    return float(noise**2 + power(inputs, target) - explained.sum(axis=-1).mean())
