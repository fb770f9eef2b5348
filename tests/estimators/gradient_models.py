"""Small estimators of the gradient method, rows for them, and how they are compared."""

import functools

import numpy as np

from dokl import (
    DiffusionClassifier,
    DiffusionRegressor,
    KernelClassifier,
    KernelRegressor,
)
from dokl.network.state import to_arrays

SMALL = {"sigma": 1.0, "n_components": 50, "random_state": 0}

Regressor = functools.partial(KernelRegressor, **SMALL)
Classifier = functools.partial(KernelClassifier, **SMALL)
FOUR = {"n_nodes": 4}
Network = functools.partial(DiffusionRegressor, "ring", **FOUR, **SMALL)
NetworkOfClassifiers = functools.partial(DiffusionClassifier, "ring", **FOUR, **SMALL)
EVERY = [Regressor, Classifier, Network, NetworkOfClassifiers]


def f(X):
    return np.sin(2 * X[:, 0]) + X[:, 0] * X[:, 1]


def rows(n, seed=0, noise=0.1):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, f(X) + noise * rng.normal(size=n)


X, y = rows(400)
NEW, TRUE = rows(300, seed=1, noise=0.0)
three = np.digitize(y, [-0.5, 0.7])


def targets(make):
    return y > 0 if make in (Classifier, NetworkOfClassifiers) else y


def started(make, n=400, **parameters):
    """A model that has seen n rows through `partial_fit`."""
    model = make(**parameters)
    named = {"classes": [False, True]} if hasattr(model, "decision_function") else {}
    return model.partial_fit(X[:n], targets(make)[:n], **named)


def scores_of(model, X, **nodes):
    decide = getattr(model, "decision_function", None)
    return model.predict(X, **nodes) if decide is None else decide(X, **nodes)


def same_state(a, b):
    pairs = zip(to_arrays(a.state_).items(), to_arrays(b.state_).items(), strict=True)
    return all(u == v and np.array_equal(x, y) for (u, x), (v, y) in pairs)
