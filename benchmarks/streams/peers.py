"""What one would use instead: each takes a whole stream and returns its prediction of each row.

Libraries' defaults, each only if installed. Batch learners are fitted again at 1/5, 2/5, 3/5 and
4/5 of the stream and predict the fifth that follows.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from benchmarks.streams.data import running_scale
from dokl.paper.bench.entrants import Flat

Prequential = Callable[[np.ndarray, np.ndarray], np.ndarray]


def refitted(make: Callable[[], Any]) -> Prequential:
    """Fitted on everything so far, four times."""

    def run(X: np.ndarray, y: np.ndarray) -> np.ndarray:
        f = np.full(len(y), y[0])
        edges = np.linspace(0, len(y), 6).astype(int)
        for start, stop in pairwise(edges[1:]):
            f[start:stop] = make().fit(X[:start], y[:start]).predict(X[start:stop])
        return f

    return run


def one_by_one(make: Callable[[], Any]) -> Prequential:
    """River's way: a row is a dict."""

    def run(X: np.ndarray, y: np.ndarray) -> np.ndarray:
        model, f, targets = make(), np.full(len(y), y[0]), y.tolist()
        for i, row in enumerate(X.tolist()):
            x = dict(enumerate(row))
            predicted = model.predict_one(x)
            f[i] = predicted if predicted is not None else y[0]
            model.learn_one(x, targets[i])
        return f

    return run


def lightgbm_regressor() -> Any:
    from lightgbm import LGBMRegressor

    return LGBMRegressor(random_state=0, verbose=-1)


def lightgbm_classifier() -> Any:
    from lightgbm import LGBMClassifier

    return LGBMClassifier(random_state=0, verbose=-1)


def catboost_regressor() -> Any:
    from catboost import CatBoostRegressor

    return CatBoostRegressor(random_seed=0, verbose=False, allow_writing_files=False)


def catboost_classifier() -> Any:
    from catboost import CatBoostClassifier

    return Flat(CatBoostClassifier(random_seed=0, verbose=False, allow_writing_files=False))


def trees_regressor() -> Any:
    from sklearn.ensemble import ExtraTreesRegressor

    return ExtraTreesRegressor(random_state=0)


def trees_classifier() -> Any:
    from sklearn.ensemble import ExtraTreesClassifier

    return ExtraTreesClassifier(random_state=0)


def process() -> Any:
    """An exact Gaussian process with a length for every input, of 1,000 rows at most."""
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    return _Sampled(
        lambda d: GaussianProcessRegressor(
            ConstantKernel() * RBF(np.ones(d) * d**0.5) + WhiteKernel(0.1), normalize_y=True
        )
    )


class _Sampled:
    """Fitted on standardised inputs of 1,000 rows: its time grows with the cube of them."""

    def __init__(self, make: Callable[[int], Any]) -> None:
        self.make = make

    def fit(self, X: np.ndarray, y: np.ndarray) -> _Sampled:
        some = np.random.default_rng(0).permutation(len(X))[:1000]
        self.centre, self.size = X.mean(axis=0), np.maximum(X.std(axis=0), 1e-12)
        self.model = self.make(X.shape[1]).fit((X[some] - self.centre) / self.size, y[some])
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        return np.asarray(self.model.predict((X - self.centre) / self.size))


def ridge() -> Any:
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), Ridge())


def forest() -> Any:
    from river.forest import ARFRegressor

    return ARFRegressor(n_models=10, seed=1)


def forest_of_classes() -> Any:
    from river.forest import ARFClassifier

    return ARFClassifier(n_models=10, seed=1)


def linear() -> Any:
    from river.linear_model import LinearRegression
    from river.preprocessing import StandardScaler

    return StandardScaler() | LinearRegression()


def gradient_regressor(X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """KernelRegressor with its defaults, on inputs of unit size."""
    from dokl import KernelRegressor

    return KernelRegressor(random_state=0).prequential(running_scale(X), y)


def gradient_classifier(X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """KernelClassifier with its defaults, on inputs of unit size."""
    from dokl import KernelClassifier

    return KernelClassifier(random_state=0).prequential(running_scale(X), y, classes=np.unique(y))


# name -> package that it needs, whether it is slow, function
REGRESSORS: dict[str, tuple[str, bool, Prequential]] = {
    "LightGBM refitted": ("lightgbm", False, refitted(lightgbm_regressor)),
    "CatBoost refitted": ("catboost", False, refitted(catboost_regressor)),
    "ExtraTrees refitted": ("sklearn", False, refitted(trees_regressor)),
    "Gaussian process refitted": ("sklearn", True, refitted(process)),
    "River ARF": ("river", True, one_by_one(forest)),
    "River linear": ("river", False, one_by_one(linear)),
    "Ridge refitted": ("sklearn", False, refitted(ridge)),
    "gradient": ("dokl", False, gradient_regressor),
}
CLASSIFIERS: dict[str, tuple[str, bool, Prequential]] = {
    "LightGBM refitted": ("lightgbm", False, refitted(lightgbm_classifier)),
    "CatBoost refitted": ("catboost", False, refitted(catboost_classifier)),
    "ExtraTrees refitted": ("sklearn", False, refitted(trees_classifier)),
    "River ARF": ("river", True, one_by_one(forest_of_classes)),
    "gradient": ("dokl", False, gradient_classifier),
}


def best_batch(errors: dict[str, float]) -> tuple[str, float] | None:
    """The batch learner that was best on this stream, chosen in hindsight, and its error."""
    batch = {name: error for name, error in errors.items() if name.endswith(" refitted")}
    return min(batch.items(), key=lambda each: each[1]) if batch else None


ALONE: list[bool] = []  # not empty: without any of them


def present(peers: dict[str, tuple[str, bool, Prequential]], quick: bool) -> dict[str, Prequential]:
    """Those that are installed; in a hurry without the slow ones."""
    return {
        name: run
        for name, (package, slow, run) in peers.items()
        if importlib.util.find_spec(package) is not None and not (quick and slow) and not ALONE
    }
