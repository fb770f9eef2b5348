"""Least squares from Dask's partitions: the model of one pass over all rows."""

import importlib

import numpy as np
import pytest

import dokl
from commands import readings
from dokl.base.errors import BadInput, UnknownName
from dokl.learning.experts.bank import features, numbers_of
from dokl.learning.squares import sums

dask = pytest.importorskip("dask")
pytest.importorskip("dask.dataframe")
pd = pytest.importorskip("pandas")
adapter = importlib.import_module("dokl.tables.dask")
fit_squares = adapter.fit_squares


@pytest.fixture(autouse=True)
def here():
    """No threads: tests are quick, and alike each time."""
    with dask.config.set(scheduler="synchronous"):
        yield


def frame(n=3000, seed=0):
    columns = readings(n, seed)
    del columns["id"]
    columns["a"][::11] = np.nan
    return pd.DataFrame(columns)


def of_frame(data, parts=7):
    import dask.dataframe as dd

    return dd.from_pandas(data, npartitions=parts, sort=False)


def one_pass(model, data, target):
    """theta of all rows at once, by the map that the model has."""
    estimator = model.estimator
    bank, y = estimator.bank_, data[target].to_numpy()
    Y = bank.now.targets.inward(estimator._targets(y))
    Z = features(bank, bank.now, model.inputs(data), [0])[0]
    total = sums.add(sums.no_rows(Z.shape[1], Y.shape[1]), Z, Y)
    return sums.solve(total, numbers_of(bank, bank.now, 0).rho)


def test_numbers_are_those_of_one_pass(tmp_path):
    data, later = frame(), frame(500, seed=1)
    model = fit_squares(of_frame(data), "y", exclude=["label"], n_components=80, pilot_rows=300)
    assert (model.rows_read, model.rows_skipped) == (3000, 0)
    memory, whole = model.estimator.bank_.memories[0], one_pass(model, data, "y")
    np.testing.assert_allclose(memory.theta, whole.theta, rtol=0, atol=1e-9)
    np.testing.assert_allclose(np.tril(memory.P), np.tril(whole.P), rtol=0, atol=1e-9)
    assert model.score(later.dropna()) > 0.95
    lower, upper = model.predict_interval(later)
    inside = (lower <= later["y"]) & (later["y"] <= upper)
    assert 0.85 < inside.mean() < 0.95
    loaded = dokl.load(model.save(tmp_path / "m.dokl"))
    np.testing.assert_array_equal(loaded.predict(later), model.predict(later))
    loaded.partial_fit(later)  # it goes on, as an ordinary model
    assert loaded.rows_read == 3500


def test_a_stream_of_the_same_rows_gives_the_same_model():
    data, later = frame(), frame(200, seed=1)
    model = fit_squares(of_frame(data), "y", exclude=["label"], n_components=60, pilot_rows=300)
    streamed = model.estimator.fresh().partial_fit(model.inputs(data), data["y"])
    told = streamed.predict(model.inputs(later))
    np.testing.assert_allclose(model.predict(later), told, rtol=0, atol=1e-6)


def test_labels_and_probabilities():
    data, later = frame(), frame(1000, seed=1)
    model = fit_squares(of_frame(data), "label", exclude=["y"], n_components=80, pilot_rows=300)
    memory, whole = model.estimator.bank_.memories[0], one_pass(model, data, "label")
    np.testing.assert_allclose(memory.theta, whole.theta, rtol=0, atol=1e-9)
    assert model.score(later) > 0.9
    said = model.predict_proba(later)[:, 1]
    sure = said > 0.8
    assert abs((later["label"][sure] == "same").mean() - said[sure].mean()) < 0.05


def test_a_bag_of_dicts_gives_the_model_of_a_dataframe():
    import dask.bag as db

    data, later = frame(1200), frame(100, seed=1)
    records = data.drop(columns="label").replace({np.nan: None}).to_dict("records")
    bag = db.from_sequence(records, npartitions=5)
    whole = of_frame(data.drop(columns="label"), 5)
    a, b = (fit_squares(rows, "y", n_components=40, pilot_rows=300) for rows in (bag, whole))
    assert a.fingerprint_ == b.fingerprint_
    np.testing.assert_allclose(a.predict(later), b.predict(later), rtol=0, atol=1e-9)


def test_models_of_one_map_merge():
    data = frame(2000)
    model = fit_squares(of_frame(data), "y", exclude=["label"], n_components=40, pilot_rows=300)
    more, later = frame(700, seed=2), frame(100, seed=1)
    other = model.estimator.fresh().partial_fit(model.inputs(more), more["y"])
    both = dokl.merge(model.estimator, other)
    apart = dokl.merge(model.estimator, other).without(other)
    assert both.bank_.seen == 2700
    X = model.inputs(later)
    np.testing.assert_allclose(apart.predict(X), model.predict(later), rtol=0, atol=1e-6)


def test_gaps_and_what_only_some_partitions_have():
    data = frame(1500)
    data.loc[data.index[::10], "y"] = np.nan
    data.loc[data.index[1000:], "place"] = "attic"  # a level that the pilot may not have
    empty = of_frame(data, 3)
    whole = fit_squares(
        empty[empty["b"] < 9], "y", exclude=["label"], n_components=30, pilot_rows=300
    )
    assert (whole.rows_read, whole.rows_skipped) == (1500, 150)
    nothing = of_frame(data, 3)
    nothing = nothing[nothing["b"] > 99]
    with pytest.raises(BadInput, match=r"no column 'y'; there are no rows|no row"):
        fit_squares(nothing, "y", n_components=30)


def test_classes_that_the_pilot_lacks_are_named():
    data = pd.DataFrame({"a": np.arange(400) % 40 / 10.0})
    data["kind"] = np.where(np.arange(400) == 399, "rare", np.where(data.a > 2, "high", "low"))
    known = ["high", "low", "rare"]
    model = fit_squares(of_frame(data, 2), "kind", classes=known, n_components=20, pilot_rows=50)
    assert model.classes_.tolist() == known
    with pytest.raises(BadInput, match="'rare' is not one of the classes"):
        fit_squares(of_frame(data, 2), "kind", n_components=20, pilot_rows=50)


def test_the_bar_is_dasks_own(capsys):
    data = frame(300)
    fit_squares(of_frame(data, 3), "y", exclude=["label"], n_components=20, progress=True)
    assert "100% Completed" in capsys.readouterr().out


def test_what_is_said_of_mistakes():
    data = of_frame(frame(100), 2)
    with pytest.raises(BadInput, match="a Dask dataframe or bag is expected"):
        fit_squares(frame(10), "y")
    with pytest.raises(BadInput, match="there is no column 'z'"):
        fit_squares(data, "z")
    with pytest.raises(UnknownName, match="did you mean 'regression'"):
        fit_squares(data, "y", task="regresion")
