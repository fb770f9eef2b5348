"""Theory that predicts: autocorrelation, step limits, learning curves, agreement and regret.

Everything rests on one law of the inputs (`gaussian_inputs`, `sampled_inputs`), the same for all
nodes, samples that are independent of each other, and the squared loss (regret: any convex one).

>>> from dokl import Features, Gaussian
>>> z = Features(Gaussian(5.0), d=2, D=100, variant="paired").draw(1)
>>> x = gaussian_inputs([0.0, 0.0], 1.0)
>>> about = model(z, x, lambda X: X[:, 0] + 0.1 * X[:, 1] ** 2, noise=0.1)
>>> round(step_limits(about.basis).mean_square, 3)
2.0
>>> curve = learning_curve(about, 1.0, n=2000)
>>> bool(curve.mse[0] > 1 > 0.03 > curve.mse[-1] > curve.j_opt)
True
"""

from dokl.simulation.theory.curves import METHODS, PredictedCurve, learning_curve
from dokl.simulation.theory.inputs import InputLaw, gaussian_inputs, sampled_inputs
from dokl.simulation.theory.limits import (
    StepLimits,
    mean_square_limit,
    mean_square_radius,
    network_limit,
    printed_radius,
    small_step_eigenvalues,
    small_step_radius,
    steady_state,
    step_limits,
    unit_norm_steady_state,
)
from dokl.simulation.theory.mixing import KINDS, graph_modes
from dokl.simulation.theory.model import DataModel, model, model_on, optimal_error, wiener
from dokl.simulation.theory.modes import Basis, ModalFeatures, Modes, basis, leading_modes
from dokl.simulation.theory.moments import (
    KernelExpansion,
    autocorrelation,
    cross_moment,
    power,
    product,
)
from dokl.simulation.theory.regret import (
    best_fixed,
    disagreement_bound,
    gradient_bound,
    measured_regret,
    regret_bound,
    second_modulus,
)
from dokl.simulation.theory.squares import squares_curve

__all__ = [
    "Basis",
    "DataModel",
    "InputLaw",
    "KINDS",
    "KernelExpansion",
    "METHODS",
    "ModalFeatures",
    "Modes",
    "PredictedCurve",
    "StepLimits",
    "autocorrelation",
    "basis",
    "best_fixed",
    "cross_moment",
    "disagreement_bound",
    "gaussian_inputs",
    "gradient_bound",
    "graph_modes",
    "leading_modes",
    "learning_curve",
    "mean_square_limit",
    "mean_square_radius",
    "measured_regret",
    "model",
    "model_on",
    "network_limit",
    "optimal_error",
    "power",
    "printed_radius",
    "product",
    "regret_bound",
    "sampled_inputs",
    "second_modulus",
    "small_step_eigenvalues",
    "small_step_radius",
    "squares_curve",
    "steady_state",
    "step_limits",
    "unit_norm_steady_state",
    "wiener",
]
