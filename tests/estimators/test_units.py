"""Losses with a bounded slope need no care about the targets' offset and scale."""

import numpy as np
import pytest

import dokl
from dokl import DiffusionRegressor, KernelRegressor, losses
from dokl.estimators.guesses import near_unit, unit_of
from dokl.learning.experts.scaling import Scaling

RNG = np.random.default_rng(0)
X = RNG.normal(size=(400, 2))
Y = np.sin(2 * X[:, 0]) + 0.3 * X[:, 1] + 0.1 * RNG.standard_t(2, size=400)
LOSSES = ["huber", "absolute", "epsilon_insensitive", "quantile", losses.quantile(0.8)]
RAW = [(1e4, 1.0), (0.0, 1e-6), (-3e7, 1e3)]


def model(loss="huber", **more):
    return KernelRegressor(loss=loss, n_components=60, random_state=0, **more)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("sigma", ["scale", 1.0])
def test_offset_and_scale_change_nothing(loss, sigma):
    plain = model(loss, sigma=sigma).partial_fit(X, Y)
    assert plain.score(X, Y) > 0.2
    for offset, scale in RAW:
        raw = model(loss, sigma=sigma).partial_fit(X, offset + scale * Y)
        np.testing.assert_allclose((raw.predict(X) - offset) / scale, plain.predict(X), atol=2e-3)
        np.testing.assert_allclose(raw.coef_ / scale, plain.coef_, atol=2e-3)
    fitted = model(loss, sigma=sigma).fit(X, 1e4 + 1e-2 * Y)
    assert fitted.score(X, 1e4 + 1e-2 * Y) > 0.2


@pytest.mark.parametrize("cut", [1, 7, 50])
def test_rows_that_come_one_by_one_find_the_unit_too(cut):
    raw, told = model(), []
    for i in range(0, 400, cut):
        told.append(raw.prequential(X[i : i + cut], 1e4 + 1e-3 * Y[i : i + cut]))
    assert raw.score(X, 1e4 + 1e-3 * Y) > 0.5
    f = np.concatenate(told)
    assert np.mean((f[100:] - 1e4 - 1e-3 * Y[100:]) ** 2) < 1e-6 * np.var(Y)


def test_the_unit_is_robust_saved_and_part_of_the_fingerprint(tmp_path):
    spoiled = np.append(Y, 1e9)
    unit = unit_of(spoiled[:, None])
    assert near_unit(unit, unit_of(Y[:, None]))
    assert unit_of(np.full((5, 1), 3.0)).size == 1.0
    assert not near_unit(unit, Scaling(unit.centre + unit.size, unit.size))
    first, other = (model().partial_fit(X[:n], 1e4 + Y[:n]) for n in (200, 400))
    assert first.fingerprint_ != other.fingerprint_
    for rows in (20, 400):  # the first rows may still change it
        kept = model(sigma=1.0).partial_fit(X[:rows], 1e4 + Y[:rows])
        loaded = dokl.load(kept.save(tmp_path / f"{rows}.dokl"))
        assert loaded.fingerprint_ == kept.fingerprint_
        assert (loaded.predict(X) == kept.predict(X)).all()
        again = (m.partial_fit(X[:90], 1e4 + Y[:90]).predict(X) for m in (kept, loaded))
        np.testing.assert_array_equal(*again)


def test_networks_and_several_outputs():
    both = np.column_stack([1e4 + Y, 1e-6 * Y])
    several = model().partial_fit(X, both).predict(X)
    plain = model().partial_fit(X, Y).predict(X)
    np.testing.assert_allclose(several[:, 0] - 1e4, plain, atol=2e-3)
    np.testing.assert_allclose(1e6 * several[:, 1], plain, atol=2e-3)
    network = DiffusionRegressor("ring", loss="huber", n_nodes=4, random_state=0)
    assert network.partial_fit(X, 1e4 + Y).score(X, 1e4 + Y) > 0.2


def test_squared_losses_and_old_files_have_none():
    assert model("squared").partial_fit(X, Y)._unit is None
    assert dokl.load("tests/golden/model-v1.safetensors")._unit is None
