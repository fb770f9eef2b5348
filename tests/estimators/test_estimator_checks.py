"""scikit-learn's own interrogation of every estimator."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from dokl import (
    AutoClassifier,
    AutoRegressor,
    DiffusionClassifier,
    DiffusionRegressor,
    KernelClassifier,
    KernelRegressor,
    Lags,
    NetworkClassifier,
    NetworkRegressor,
    RandomFeatures,
)

ESTIMATORS = [
    KernelRegressor(),
    KernelClassifier(),
    KernelClassifier(loss="logistic"),
    NetworkRegressor(n_nodes=2, n_components=10),
    DiffusionRegressor(),
    DiffusionClassifier(),
    RandomFeatures(),
    Lags(),
    AutoRegressor(20),
    AutoClassifier(20),
]
# They take long, and share nearly all code with the regressor.
LATER = [NetworkClassifier(n_nodes=2, n_components=10)]
# A row of weight 2 is one step of twice the length; the same row given twice is two steps, the
# second from where the first one led. scikit-learn lists both for its own SGD, too.
ORDER_MATTERS = dict.fromkeys(
    (
        "check_sample_weight_equivalence_on_dense_data",
        "check_sample_weight_equivalence_on_sparse_data",
    ),
    "one step of weight 2 is not two steps of weight 1",
)


# Experts that forget remember so many rows, and a row given twice is two of them.
ROWS_COUNT = {
    "check_sample_weight_equivalence_on_dense_data": "experts remember rows, whatever their weight"
}


# A row is transformed with what came before it, then remembered: that is what lags are.
REMEMBERS = {"check_dict_unchanged": "transform remembers the rows"}


def expected_failures(estimator):
    if isinstance(estimator, Lags):
        return REMEMBERS
    if isinstance(estimator, RandomFeatures):
        return {}
    return ROWS_COUNT if isinstance(estimator, AutoRegressor | AutoClassifier) else ORDER_MATTERS


@pytest.mark.usefixtures("short_searches")
@parametrize_with_checks(ESTIMATORS, expected_failed_checks=expected_failures)
def test_scikit_learn_agrees(estimator, check):
    check(estimator)


@pytest.mark.slow
@pytest.mark.usefixtures("short_searches")
@parametrize_with_checks(LATER, expected_failed_checks=expected_failures)
def test_scikit_learn_agrees_with_network_classifiers(estimator, check):
    check(estimator)
