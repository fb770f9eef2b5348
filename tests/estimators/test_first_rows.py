"""The width guessed from the first rows of a stream: it is not settled by too few of them."""

import functools
import pickle
from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.base import clone

import dokl
from dokl import DiffusionClassifier, DiffusionRegressor, KernelClassifier, KernelRegressor
from dokl.base.errors import BadFile, Diverged
from dokl.network.state import to_arrays

Network, NetworkOfClassifiers = DiffusionRegressor, DiffusionClassifier
WIDE = 100 * np.random.default_rng(0).normal(size=(1000, 10)) + 50


def smoothly(X):
    return np.sin(X[:, 0] / 100)


def same(a, b):
    """Whether two models have learned the same, to the last bit."""
    ours, theirs = to_arrays(a.state_), to_arrays(b.state_)
    pairs = [(ours[name], theirs[name]) for name in ours.keys() | theirs.keys()]
    return a.fingerprint_ == b.fingerprint_ and all(np.array_equal(u, v) for u, v in pairs)


def rows_then(make, first, *sizes, form=np.asarray, **named):
    """A model fed with `first` rows of zeros, then with WIDE in pieces of these sizes."""
    model = make(n_components=50, random_state=0)
    t = smoothly(WIDE) > 0 if named else smoothly(WIDE)
    if first:
        model.partial_fit(form(np.zeros((first, 10))), t[:1].repeat(first), **named)
    ends = np.cumsum(sizes)
    for start, end in zip(ends - sizes, ends, strict=True):
        model.partial_fit(form(WIDE[start:end]), t[start:end], **named)
    return model


def test_a_width_does_not_freeze_on_one_row():
    model = KernelRegressor(random_state=0).partial_fit([[1013, 21, 60]], [1.0])
    assert model.sigma_ == pytest.approx(np.sqrt(3 / 2))  # unit variance until there is any
    assert model.predict([[1013, 21, 60]]) == pytest.approx([0.5], abs=1e-3)


@pytest.mark.parametrize("form", [np.asarray, csr_array])
@pytest.mark.parametrize("sigma", ["scale", "median"])
@pytest.mark.parametrize("make", [KernelRegressor, Network])
def test_a_width_does_not_freeze_on_rows_that_are_all_the_same(make, sigma, form):
    make = functools.partial(make, sigma=sigma)
    wanted = rows_then(make, 0, 1000, form=form).sigma_
    for sizes in ((1000,), (1,) * 120, (30,) * 5, (2, 400)):
        for zeros in (0, 50, 250):
            model = rows_then(make, zeros, *sizes, form=form)
            assert model.sigma_ == pytest.approx(wanted, rel=0.15)
            assert model._first is None
            assert np.isfinite(model.predict(form(WIDE))).all()
            before = model.state_.theta.copy(), model.sigma_
            model.partial_fit(form(WIDE / 10), smoothly(WIDE))  # settled once and for all
            assert model.sigma_ == before[1]
            assert not np.array_equal(model.state_.theta, before[0])


@pytest.mark.parametrize("make", [KernelRegressor, Network])
def test_starting_again_forgets_no_row(make):
    """What was learned before the width was known is learned again, weights and nodes and all."""
    nodes = {"nodes": np.arange(60) % 20} if make is Network else {}
    weight, t = np.linspace(0.5, 1.0, 60), smoothly(WIDE)
    stepwise, at_once = (make(n_components=50, random_state=0) for _ in range(2))
    for start, end in ((0, 1), (1, 60)):
        named = {name: values[start:end] for name, values in nodes.items()}
        stepwise.partial_fit(
            WIDE[start:end], t[start:end], sample_weight=weight[start:end], **named
        )
    at_once.partial_fit(WIDE[:60], t[:60], sample_weight=weight, **nodes)
    assert stepwise.sigma_ == at_once.sigma_
    assert stepwise.fingerprint_ == at_once.fingerprint_
    assert stepwise.state_.count.tolist() == at_once.state_.count.tolist()
    if make is KernelRegressor:  # a network's steps are cut by calls
        assert same(stepwise, at_once)


def test_enough_rows_at_once_settle_the_width():
    X, y = WIDE[:64], smoothly(WIDE[:64])
    model = KernelRegressor(n_components=50, random_state=0).partial_fit(X, y)
    plain = clone(model).set_params(sigma=model.sigma_).partial_fit(X, y)
    assert model._first is None
    assert same(model.partial_fit(5 * X, y), plain.partial_fit(5 * X, y))


def test_a_call_that_fails_after_a_new_start_changes_nothing():
    make = functools.partial(KernelRegressor, step=3.0)
    model = rows_then(make, 3, 1)
    before, packed = dict(vars(model)), pickle.dumps(model)
    with pytest.raises(Diverged):
        model.partial_fit(WIDE, smoothly(WIDE))
    assert vars(model) == before
    assert pickle.dumps(model) == packed


def test_parameters_changed_among_the_first_rows_wait_for_fit():
    changed = {"kernel": "laplacian", "n_components": 8, "random_state": None, "alpha": 0.5}
    model, plain = (rows_then(KernelRegressor, 3, 1) for _ in range(2))
    model.set_params(**changed).partial_fit(WIDE, smoothly(WIDE))
    assert same(model, plain.partial_fit(WIDE, smoothly(WIDE)))
    model = rows_then(KernelRegressor, 3, 1).set_params(**changed).fit(WIDE, smoothly(WIDE))
    assert model.feature_map_.D == 8
    assert model._first is None


@pytest.mark.parametrize("form", [np.asarray, csr_array])
@pytest.mark.parametrize("make", [KernelRegressor, Network, KernelClassifier, NetworkOfClassifiers])
def test_saved_among_the_first_rows(make, form, tmp_path):
    named = {"classes": [False, True]} if hasattr(make(), "decision_function") else {}
    t = smoothly(WIDE) > 0 if named else smoothly(WIDE)
    model = rows_then(make, 5, 1, 1, form=form, **named)
    assert model._first is not None
    again = [pickle.loads(pickle.dumps(model)), dokl.load(dokl.save(model, tmp_path / "m.dokl"))]
    for part in (slice(2, 20), slice(20, 400), slice(400, 1000)):
        model.partial_fit(form(WIDE[part]), t[part])
        for other in again:
            assert same(other.partial_fit(form(WIDE[part]), t[part]), model)
            assert (other._first is None) == (model._first is None)
    assert model.sigma_ > 100
    assert clone(model)._first is None


@pytest.mark.parametrize(
    "change",
    [{"Y": np.zeros((2, 2))}, {"weight": np.array([1.0, -1.0])}, {"owner": np.array([0, 1])},
     {"X": np.full((2, 10), np.nan, np.float32)}, {"weight": np.ones(3)}],
)  # fmt: skip
def test_first_rows_that_cannot_be_are_refused(change, tmp_path, monkeypatch):
    model = rows_then(KernelRegressor, 0, 1, 1)
    packed = model._first.packed() | change
    monkeypatch.setattr(type(model._first), "packed", lambda self: packed)
    path = dokl.save(model, tmp_path / "m.dokl")
    with pytest.raises(BadFile, match="damaged"):
        dokl.load(path)


def test_a_width_that_nobody_can_guess_is_refused(tmp_path):
    model = rows_then(KernelRegressor, 0, 1, 1)
    model._first = replace(model._first, sigma="wild")
    path = dokl.save(model, tmp_path / "m.dokl")
    with pytest.raises(BadFile, match="damaged"):
        dokl.load(path)
