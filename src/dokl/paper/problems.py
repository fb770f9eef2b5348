"""What the paper's Examples 1, 2 and 5 are learned by."""

from __future__ import annotations

from dokl.learning import losses, schedules
from dokl.learning.features import Features
from dokl.learning.kernels import Gaussian
from dokl.simulation.diffusion import Problem
from dokl.simulation.methods import gradient


def example_problem(D: int, mu: float = 1.0) -> Problem:
    """Gradient steps of constant length mu for the squared loss, on D features of a Gaussian kernel
    of width 5 in five dimensions.
    """
    step = gradient(losses.squared(), schedules.constant(mu))
    return Problem(Features(Gaussian(5.0), 5, D), step)
