"""The feature map alone, as a scikit-learn transformer."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from dokl.base.arrays import Array, check_whole
from dokl.estimators.choices import kernel_of, seed_of, variant_of
from dokl.estimators.inputs import all_or_nothing, float_type, valid_numbers
from dokl.estimators.plain import Savable
from dokl.learning.features import sample


class RandomFeatures(Savable, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Map rows x to z(x) with z(x)'z(y) close to a shift-invariant kernel of x - y.

    What scikit-learn's `RBFSampler` does, for more kernels and with better maps; parameters are
    those of `KernelRegressor`.

    Examples
    --------
    >>> import numpy as np
    >>> Z = RandomFeatures("matern", sigma=2.0, n_components=400, random_state=0).fit_transform(
    ...     np.eye(3)
    ... )
    >>> Z.shape
    (3, 400)
    """

    def __init__(
        self,
        kernel: object = "gaussian",
        *,
        sigma: object = "scale",
        n_components: int = 500,
        features: str = "auto",
        dtype: DTypeLike = "float64",
        random_state: object = None,
    ) -> None:
        self.kernel = kernel
        self.sigma = sigma
        self.n_components = n_components
        self.features = features
        self.dtype = dtype
        self.random_state = random_state

    def fit(self, X: Any, y: object = None) -> RandomFeatures:
        """Draw the features; of X: (n, d) only its width d and, for sigma, its spread matter."""
        with all_or_nothing(self):
            X = valid_numbers(self, X, accept_sparse="csr", dtype=float_type(self.dtype))
            kernel = kernel_of(self.kernel, self.sigma, X)
            self.sigma_ = float(getattr(kernel, "sigma", np.nan))
            D = check_whole("n_components", self.n_components)
            variant = variant_of(self.features, kernel, D)
            self.feature_map_ = sample(kernel, X.shape[1], D, variant, seed_of(self.random_state))
            self.fingerprint_ = self.feature_map_.fingerprint
            self._n_features_out = D
        return self

    def transform(self, X: Any) -> Array:
        """z of each row: (n, n_components)."""
        check_is_fitted(self, "feature_map_")
        kind = float_type(self.dtype)
        X = valid_numbers(self, X, accept_sparse="csr", dtype=kind, reset=False)
        out = np.empty((X.shape[0], self.feature_map_.D), kind)
        for start in range(0, X.shape[0], 4096):  # bounds the temporaries
            rows = slice(start, start + 4096)
            out[rows] = self.feature_map_.transform(X[rows])
        return out

    def __sklearn_tags__(self) -> Any:
        """Sparse input is welcome."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = []
        return tags
