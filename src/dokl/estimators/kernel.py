"""One node: online kernel regression and classification with bounded memory."""

from __future__ import annotations

from dokl.base.arrays import Array
from dokl.estimators.choices import set_parameters
from dokl.estimators.learner import Classification, Regression, if_logistic, logarithm


class KernelRegressor(Regression):
    """Online kernel regression with a model of fixed size (RFF-KLMS and relatives).

    Learns in one pass, row by row, in the order given to `partial_fit`; memory and time per row
    never grow. `fit` forgets everything first and goes through the data in shuffled passes. A
    parameter changed later counts from the next `fit`. Rows of weight 0 are left out; other
    weights multiply the step of their row.

    Parameters
    ----------
    kernel : "gaussian", "laplacian", "matern" (or "matern12", "matern32", "matern52"), "cauchy",
        "rational_quadratic", or a kernel object of `dokl.kernels` (which has its own width).
    sigma : the kernel's width: a number, a tuple of one for each input, "scale" (from the mean
        variance of the columns, as scikit-learn's gamma="scale" for standardised ones) or "median"
        (median distance): of all
        rows given to `fit`, or of the first ones given to `partial_fit`. There the first 64 that
        differ from the one before are kept, and learned again where they show that the width was
        more than a tenth off; then it stays. One row alone has no variance and counts as 1.
    n_components : D, the length of the model's vector; even for all features but "cos".
    features : "auto" (orthogonal where the kernel allows it, else paired; cos if n_components is
        odd), "cos" (the paper's), "paired", "orthogonal", "sobol" or "structured" (fast for many
        inputs).
    loss : "squared", "huber", "absolute", "epsilon_insensitive", "quantile", or a `dokl.Loss`
        (for example `dokl.losses.quantile(0.9)`). All but "squared" pull with bounded force,
        however far off. For them targets are centred and scaled by the median and quartiles of all
        rows given to `fit`, or of the first 64 as `sigma` is; a loss's own number counts in that
        size. Predictions and `coef_` are in the targets' units, to which the centre adds.
    step : "auto", a number (a constant step), a schedule of `dokl.schedules`, or a function of
        (n, |z|^2), where |z| is 1 (for "cos" about 1), plus 1 with an intercept. "auto" is
        0.5/(|z|^2 + alpha), which keeps tracking a target that moves; a smaller number ends with
        less noise, a larger one follows faster; from 2/|z|^2 on it diverges. For losses with a
        kink ("absolute", "epsilon_insensitive", "quantile") it is 1/((|z|^2 + alpha) sqrt(n)).
    alpha : strength of the L2 regularization.
    average : "none", "uniform" or "weighted": predict with the last vector or a running mean.
    intercept : whether to learn a constant besides.
    passes : how often `fit` goes through the data; "auto" repeats small data sets.
    shuffle : whether `fit` shuffles.
    dtype : "float32" or "float64".
    engine : "auto", "numba" or "reference".
    verbose : show a progress bar during `fit`.
    random_state : an integer is the seed of the features themselves: models with the same one
        (and kernel, width, size) share a `fingerprint_`, and may be averaged.

    Attributes
    ----------
    feature_map_, sigma_, loss_, schedule_, state_, coef_, engine_, fingerprint_, n_features_in_

    Examples
    --------
    >>> import numpy as np
    >>> X = np.linspace(-3, 3, 500)[:, None]
    >>> model = KernelRegressor(sigma=0.5, random_state=0).fit(X, np.sin(2 * X[:, 0]))
    >>> bool(abs(model.predict([[0.5]])[0] - np.sin(1.0)) < 0.05)
    True
    """

    def __init__(
        self,
        kernel: object = "gaussian",
        *,
        sigma: object = "scale",
        n_components: int = 500,
        features: str = "auto",
        loss: object = "squared",
        step: object = "auto",
        alpha: float = 0.0,
        average: str = "none",
        intercept: bool = False,
        passes: object = "auto",
        shuffle: bool = True,
        dtype: object = "float32",
        engine: str = "auto",
        verbose: bool = False,
        random_state: object = None,
    ) -> None:
        set_parameters(self, locals())

    def fit(self, X: object, y: object, sample_weight: object = None) -> KernelRegressor:
        """Learn from scratch. X: (n, d) dense or CSR; y: (n,) or (n, m)."""
        self._fit(X, y, sample_weight, None)
        return self

    def partial_fit(self, X: object, y: object, sample_weight: object = None) -> KernelRegressor:
        """Learn from these rows, in this order, once; the first 64 settle sigma."""
        self._partial_fit(X, y, sample_weight, None)
        return self

    def predict(self, X: object) -> Array:
        """Predictions (n,), or (n, m) for several outputs."""
        return self._predict(X)


class KernelClassifier(Classification):
    """Online kernel classification with a model of fixed size (RFF-Pegasos and relatives).

    Parameters are those of `KernelRegressor`, with other defaults:

    loss : "hinge" (a support vector machine), "logistic" (gives `predict_proba`),
        "squared_hinge", "squared", or a `dokl.Loss`.
    step : "auto" is 1/(alpha (n + n0)) with n0 = 0.1/alpha (|z|^2/alpha for "squared" and
        "squared_hinge"); "pegasos" is the paper's 1/(alpha n).
    alpha : strength of the L2 regularization; 1e-4.
    average : "weighted" by n, which wins by far after one pass ("none" is the paper's choice).

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(2000, 2))
    >>> y = np.where(X[:, 0] * X[:, 1] > 0, "same", "other")
    >>> model = KernelClassifier(random_state=0).partial_fit(X, y, classes=["other", "same"])
    >>> bool(model.score(X, y) > 0.95)
    True
    """

    def __init__(
        self,
        kernel: object = "gaussian",
        *,
        sigma: object = "scale",
        n_components: int = 500,
        features: str = "auto",
        loss: object = "hinge",
        step: object = "auto",
        alpha: float = 1e-4,
        average: str = "weighted",
        intercept: bool = False,
        passes: object = "auto",
        shuffle: bool = True,
        dtype: object = "float32",
        engine: str = "auto",
        verbose: bool = False,
        random_state: object = None,
    ) -> None:
        set_parameters(self, locals())

    def fit(self, X: object, y: object, sample_weight: object = None) -> KernelClassifier:
        """Learn from scratch. X: (n, d) dense or CSR; y: (n,) labels of any kind."""
        self._fit(X, y, sample_weight, None)
        return self

    def partial_fit(
        self, X: object, y: object, classes: object = None, sample_weight: object = None
    ) -> KernelClassifier:
        """Learn from these rows, in this order, once; the first call names all classes."""
        self._partial_fit(X, y, sample_weight, None, classes)
        return self

    def predict(self, X: object) -> Array:
        """Labels (n,)."""
        return self._predict(X)

    def decision_function(self, X: object) -> Array:
        """Scores: (n,) for two classes (positive: the second), else (n, classes)."""
        return self._decide(X)

    @if_logistic
    def predict_proba(self, X: object) -> Array:
        """Probabilities (n, classes), with the logistic loss only."""
        return self._probabilities(X)

    @if_logistic
    def predict_log_proba(self, X: object) -> Array:
        """Logarithms of `predict_proba`."""
        return logarithm(self._probabilities(X))
