"""Models made small: they predict the same, hold no matrix, and refuse to learn."""

import copy
from pathlib import Path

import numpy as np
import pandas
import pytest

import dokl
from dokl import AutoClassifier, AutoRegressor, files
from dokl.base.errors import BadFile, BadInput
from dokl.estimators import folded
from dokl.estimators.predict_only import NEWEST

pytestmark = pytest.mark.usefixtures("short_searches")

RNG = np.random.default_rng(0)
X = RNG.normal(size=(400, 3))
Y = np.sin(2 * X[:, 0]) + X[:, 1] ** 2 + 0.05 * RNG.normal(size=400)
SMALL = {"n_components": 60, "random_state": 0}


@pytest.fixture(scope="module")
def model():
    return AutoRegressor(**SMALL).partial_fit(X, 100 + 7 * Y)


@pytest.mark.parametrize("rows", [1, 400])
def test_it_predicts_the_same(tmp_path, rows):
    model = AutoRegressor(**SMALL).partial_fit(X[:rows], Y[:rows])
    small = dokl.load(folded(model).save(tmp_path / "small.dokl"))
    np.testing.assert_allclose(small.predict(X), model.predict(X), rtol=0, atol=1e-12)
    assert small.score(X, Y) == model.score(X, Y)
    assert small.fingerprint_ == model.fingerprint_
    assert (small.relevance_ == model.relevance_).all()
    assert (small.rows_, small.remembers_) == (rows, model.remembers_)


def test_the_file_holds_no_matrix(tmp_path, model):
    whole, small = model.save(tmp_path / "m.dokl"), folded(model).save(tmp_path / "small.dokl")
    assert small.stat().st_size < 0.1 * whole.stat().st_size
    arrays = files.read(small, "model")[1]
    centres = sum(len(a) for name, a in arrays.items() if name.endswith("centres"))
    numbers = sum(a.size for name, a in arrays.items() if name != "folded.counts")
    assert numbers < centres * (3 + 1) + 100
    assert arrays["folded.counts"].nbytes < 10_000


def test_rows_far_ahead_of_a_series_that_rises():
    noise, rows = np.random.default_rng(1).normal(size=1001), 700
    series = 0.1 * np.maximum(np.arange(1001) - 500, 0) + noise
    model = AutoRegressor(**SMALL, experts="lasting")
    model.partial_fit(series[:rows, None], series[1 : rows + 1])
    later, steps = series[rows:-1, None], np.arange(1, 1001 - rows)
    expected = model.predict(later, steps_ahead=steps)
    np.testing.assert_allclose(folded(model).predict(later, steps_ahead=steps), expected)
    assert model.bank_.extent is not None
    lower, upper = folded(model).predict_interval(later, steps_ahead=steps)
    np.testing.assert_allclose(0.5 * (lower + upper), expected)


def test_intervals_have_one_width_and_std_is_refused(model):
    small = folded(model)
    lower, upper = small.predict_interval(X, 0.9)
    np.testing.assert_allclose(0.5 * (lower + upper), model.predict(X))
    assert np.ptp(upper - lower) < 1e-9
    full = np.subtract(*model.predict_interval(X[-NEWEST:], 0.9, 1)[::-1])  # like what comes
    lower, upper = small.predict_interval(X, 0.9, steps_ahead=1)
    assert (upper - lower)[0] == pytest.approx(full.mean(), rel=1e-6)
    assert (small.predict_interval(X, 0.97)[1] > upper).all()
    with pytest.raises(BadInput, match="no standard deviations"):
        small.predict(X, return_std=True)


def test_it_refuses_to_learn(model):
    small = folded(model)
    for learn in (small.fit, small.partial_fit, small.prequential):
        with pytest.raises(BadInput, match="cannot learn: continue with the model"):
            learn(X, Y)
    assert folded(small) is small


def test_several_outputs_names_and_a_single_expert(tmp_path):
    frame = pandas.DataFrame(X, columns=["a", "b", "c"])
    model = AutoRegressor(experts="one", **SMALL).fit(frame, np.column_stack([Y, -Y]))
    small = dokl.load(folded(model).save(tmp_path / "small.dokl"))
    np.testing.assert_allclose(small.predict(frame), model.predict(frame), rtol=0, atol=1e-12)
    assert small.feature_names_in_.tolist() == ["a", "b", "c"]
    assert small.predict_interval(frame)[0].shape == (400, 2)


@pytest.mark.parametrize("cuts", [[0.5], [0.2, 1.0]])
def test_classes(tmp_path, cuts):
    labels = np.array(["low", "mid", "high"])[np.digitize(Y, cuts)]
    model = AutoClassifier(**SMALL).fit(X, labels)
    small = dokl.load(folded(model).save(tmp_path / "small.dokl"))
    assert (small.predict(X) == model.predict(X)).all()
    np.testing.assert_array_equal(small.decision_function(X), model.decision_function(X))


def test_what_cannot_be_made_smaller():
    with pytest.raises(BadInput, match="cannot be smaller"):
        folded(dokl.KernelRegressor(n_components=20).fit(X, Y))
    with pytest.raises(BadInput, match="NetworkRegressor has no small"):
        folded(dokl.NetworkRegressor("ring", n_nodes=3, n_components=20).fit(X[:60], Y[:60]))


def test_nonsense_in_a_file_is_an_error_of_ours(tmp_path, model):
    path = folded(model).save(tmp_path / "small.dokl")
    meta, arrays = files.read(path, "model")
    for name in arrays:
        for junk in (np.zeros(0), np.full(arrays[name].shape, np.nan), np.array(["x"])):
            if name.endswith("apart") and junk.dtype.kind == "f":
                continue  # where it is empty, nothing is added to distances
            files.write(path, "model", meta, arrays | {name: junk})
            with pytest.raises(BadFile, match="damaged"):
                dokl.load(path)
    strange = copy.deepcopy(meta["folded"])
    strange["parts"][0]["bumps"][0]["kernel"] = "mine"
    for junk in (None, 3, {}, strange, {**meta["folded"], "parts": []}):
        files.write(path, "model", meta | {"folded": junk}, arrays)
        with pytest.raises(BadFile, match="damaged"):
            dokl.load(path)


# -- files of earlier versions, which hold arrays by names of their own; never write them again ----
GOLDEN = Path(__file__).parents[1] / "golden"
GOLDEN_ROWS = np.array([[0.5, -1.0], [-0.25, 0.75], [0.0, 0.0]])
EARLIER = {
    "numbers": (
        [1.7204867633553529, 1.3598961757774755, 1.0065815259184734],
        [1.5198735133271537, 1.1592829257492763, 0.8059682758902743],
    ),
    "parts": (  # ranks, what is added to distances, and vectors on random features
        [1.0262523392581513, 1.2763770947041084, 1.078489916819184],
        [0.8256390892299522, 1.0757638446759092, 0.8778766667909849],
    ),
}


@pytest.mark.parametrize("name", EARLIER)
def test_earlier_files_predict_as_they_did_and_are_written_anew(tmp_path, name):
    model = dokl.load(GOLDEN / f"folded-{name}.safetensors")
    for each in (model, dokl.load(model.save(tmp_path / "new.dokl"))):
        found = each.predict(GOLDEN_ROWS), each.predict_interval(GOLDEN_ROWS, 0.9, steps_ahead=3)[0]
        np.testing.assert_allclose(found, EARLIER[name], rtol=1e-12)
        assert each.rows_ == 120


def test_earlier_files_of_classes(tmp_path):
    model = dokl.load(GOLDEN / "folded-classes.safetensors")
    for each in (model, dokl.load(model.save(tmp_path / "new.dokl"))):
        found = each.predict_proba(GOLDEN_ROWS)[:, 1]
        expected = [0.8100753048268463, 0.9235032264077793, 0.3965948598929822]
        np.testing.assert_allclose(found, expected, rtol=1e-12)
        assert each.classes_.tolist() == ["no", "yes"]


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("folded.parts.0.base", np.zeros(2)),
        ("folded.parts.0.bumps.0.heights", np.zeros((1, 1))),
        ("folded.parts.0.inputs.size", np.array([1.0, 1.0, 0.0])),
        ("folded.tracker.width", np.zeros((2, 5))),
        ("folded.spread", np.array([np.nan])),
        ("folded.relevance", np.zeros(1)),
    ],
)
def test_parts_that_do_not_fit_are_refused(tmp_path, model, name, wrong):
    path = folded(model).save(tmp_path / "small.dokl")
    meta, arrays = files.read(path, "model")
    assert name in arrays
    files.write(path, "model", meta, arrays | {name: wrong})
    with pytest.raises(BadFile, match="damaged"):
        dokl.load(path)
