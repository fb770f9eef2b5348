"""Covariances in single precision (`base/codec`); records as such are in test_properties."""

from dataclasses import dataclass

import numpy as np
import pytest

from dokl.base import codec
from dokl.base.arrays import Array
from dokl.learning.experts import bank, learn, saving
from dokl.learning.experts.kinds import Settings, one

RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, size=(1500, 3))
NOISELESS = (X[:, :1] + X[:, 1:2]) * X[:, 2:]


@dataclass(frozen=True)
class Known:
    P: Array
    zz: Array


def covariance(spread, D=60):
    """Of eigenvalues from 1 down to 1/spread."""
    U = np.linalg.qr(RNG.normal(size=(D, D)))[0]
    return np.asfortranarray(np.tril(U * np.geomspace(1.0, 1.0 / spread, D) @ U.T))


def whole(lower):
    return lower + np.tril(lower, -1).T


def test_a_rounded_factor_is_of_a_covariance_where_a_rounded_covariance_is_none():
    P = covariance(1e10)
    rounded = whole(P.astype(np.float32).astype(float))
    assert np.linalg.eigvalsh(rounded)[0] < 0
    meta, arrays = codec.encode(Known(P, P), exact=False)
    assert arrays["P"].dtype == np.float32
    assert arrays["zz"].dtype == np.float64
    back = codec.decode(meta, arrays, [Known])
    np.testing.assert_array_equal(back.zz, P)
    np.testing.assert_allclose(whole(back.P), whole(P), atol=1e-6)
    assert np.linalg.eigvalsh(whole(back.P))[0] > 0.5e-10


def test_what_is_no_covariance_stays_in_double_precision():
    P = -covariance(10.0)
    for exact in (True, False):
        back = codec.decode(*codec.encode(Known(P, P), exact), [Known])
        np.testing.assert_array_equal(back.P, P)


def test_a_factor_of_another_size_is_refused():
    P = covariance(10.0)
    meta, arrays = codec.encode(Known(P, P), exact=False)
    with pytest.raises(ValueError, match="triangle of 60 rows"):
        codec.decode(meta, arrays | {"P": arrays["P"][:-1]}, [Known])


def test_a_bank_saved_every_hundred_rows_learns_as_one_never_saved():
    """Noiseless targets have covariances of the widest range."""
    settings = Settings(most=100, pilots=(100,))
    often = never = learn.learn(bank.start(3, 1, settings), X[:500], NOISELESS[:500])[0]
    never, known = learn.learn(never, X[500:], NOISELESS[500:])
    means = []
    for at in range(500, len(X), 100):
        often = saving.decode(*saving.encode(often, exact=False))
        often, told = learn.learn(often, X[at : at + 100], NOISELESS[at : at + 100])
        means.append(told.mean)
    off, errors = np.concatenate(means) - known.mean, known.mean - NOISELESS[500:]
    assert np.sqrt(np.mean(off**2)) < 1e-3 * np.sqrt(np.mean(errors**2))
    assert often.mended == never.mended == 0


def test_inputs_that_have_come_far_are_saved():
    X = np.concatenate([np.sin(np.arange(30.0)), np.arange(1.0, 31.0)])[:, None]
    settings = Settings(one(), most=20, pilots=(30,))
    known, _ = learn.learn(bank.start(1, 1, settings), X, X)
    meta, arrays = saving.encode(known)
    back = saving.decode(meta, arrays)
    np.testing.assert_array_equal(back.extent, known.extent)
    assert back.extent[0] > 4.5
    for wrong in (np.full(2, 6.0), np.full(1, 3.0), np.full(1, np.nan)):
        with pytest.raises(ValueError, match="extent"):
            saving.decode(meta, arrays | {"extent": wrong})
    _, before = saving.encode(learn.learn(bank.start(1, 1, settings), X[:30], X[:30])[0])
    assert "extent" not in before  # files, and fingerprints of them, are as they were


def test_a_saved_bank_takes_half_of_what_it_took():
    known, _ = learn.learn(bank.start(3, 1, Settings(most=200)), X[:300], NOISELESS[:300])
    size = {
        exact: sum(array.nbytes for array in saving.encode(known, exact)[1].values())
        for exact in (True, False)
    }
    assert size[False] < 0.6 * size[True]
