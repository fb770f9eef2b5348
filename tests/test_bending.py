"""Inputs with long tails, drawn in."""

import numpy as np
import pytest
from scipy.stats import yeojohnson

from dokl.learning.experts.bending import Bending, bending_of, bent


@pytest.mark.parametrize("power", [-1.0, 0.0, 0.5, 1.0, 2.0, 2.75])
def test_bent_as_published(power):
    x = np.linspace(-4, 4, 33)
    np.testing.assert_allclose(bent(x, power), yeojohnson(x, power), atol=1e-12)


def test_long_tails_become_short_and_the_rest_stays():
    rng = np.random.default_rng(0)
    n = 800
    long, plain, two = np.exp(1.2 * rng.normal(size=n)), rng.normal(size=n), rng.random(n) < 0.05
    X = np.column_stack([long, -long, plain, two, np.full(n, 3.0)])
    found = bending_of(X, np.ones(n))
    assert found.power[0] < 0.5
    assert found.power[1] == 2.0 - found.power[0]
    assert abs(found.power[2] - 1.0) <= 0.25
    assert found.power[3:].tolist() == [1.0, 1.0]
    rows = found.clipped(X)
    assert abs(rows[:, 0]).max() < 4.5 < abs((long - long.mean()) / long.std()).max()
    np.testing.assert_allclose(rows.mean(axis=0)[:3], 0.0, atol=0.02)
    np.testing.assert_allclose(rows.std(axis=0)[:3], 1.0, atol=0.02)
    np.testing.assert_array_equal(rows[:, 4], 0.0)


def test_wild_inputs_neither_decide_nor_overflow():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 1))
    wild = np.concatenate([X, [[1e6]]])
    found = bending_of(wild[:-1], np.ones(500))
    assert abs(found.clipped(wild)).max() == 5.0
    assert np.isfinite(Bending(*(np.full(1, v) for v in (0, 1, 3, 0, 1))).clipped(wild)).all()
    few = bending_of(X[:5] ** 2, np.ones(5))
    np.testing.assert_array_equal(few.power, 1.0)
