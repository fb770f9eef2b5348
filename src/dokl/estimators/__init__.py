"""scikit-learn faces: estimators that learn from a stream, alone or over a network.

>>> import numpy as np
>>> from dokl import KernelRegressor
>>> rng = np.random.default_rng(0)
>>> X = rng.normal(size=(2000, 2))
>>> y = np.sin(2 * X[:, 0]) * X[:, 1]
>>> model = KernelRegressor(random_state=0)
>>> for rows in np.array_split(np.arange(2000), 10):  # a stream, ten rows at a time or a million
...     model = model.partial_fit(X[rows], y[rows])
>>> bool(model.score(X, y) > 0.9)
True
"""

from dokl.estimators.auto import AutoClassifier, AutoRegressor, merge
from dokl.estimators.diffusion import DiffusionClassifier, DiffusionRegressor
from dokl.estimators.kernel import KernelClassifier, KernelRegressor
from dokl.estimators.lags import Lags
from dokl.estimators.network import NetworkClassifier, NetworkRegressor
from dokl.estimators.predict_only import folded
from dokl.estimators.transformer import RandomFeatures

__all__ = [
    "AutoClassifier",
    "AutoRegressor",
    "DiffusionClassifier",
    "DiffusionRegressor",
    "KernelClassifier",
    "KernelRegressor",
    "Lags",
    "NetworkClassifier",
    "NetworkRegressor",
    "RandomFeatures",
    "folded",
    "merge",
]
