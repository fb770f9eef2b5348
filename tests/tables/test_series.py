"""Lags and horizons of models that take raw rows: in Python, by the commands, and served."""

import itertools
import json
import shutil

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_serve import Face

import dokl as library
from commands import dokl, fails, json_of, rows_of
from dokl.base.errors import BadInput

pytestmark = pytest.mark.usefixtures("short_searches")
QUICK = ("--components", "30", "-p", "experts=one", "-q")
LAGGED = ("--lag", "temp=1,24", "--rolling", "temp=24", "--difference", "temp=1")


def weather(n=400, places=("roof", "yard"), seed=0):
    """Hours of places: a daily wave, and a slow change that only the past tells."""
    rng = np.random.default_rng(seed)
    rows = []
    slow = np.zeros(len(places))
    for t in range(n):
        slow = 0.97 * slow + rng.normal(size=len(places))
        for k, place in enumerate(places):
            temp = 10 * (k + 1) + slow[k] + 3 * np.sin(2 * np.pi * t / 24)
            when = np.datetime64("2024-01-01T00", "s") + 3600 * t
            rows.append({"when": str(when), "place": place, "wind": rng.normal(), "temp": temp})
    return pd.DataFrame(rows)


@pytest.fixture(scope="module")
def files(tmp_path_factory, short_searches_of_module):
    folder, table = tmp_path_factory.mktemp("series"), weather()
    table[:600].to_csv(folder / "a.csv", index=False)
    table[600:].to_csv(folder / "b.csv", index=False)
    for name, more in {"now": (), "later": ("--horizon", "6")}.items():
        with short_searches_of_module():
            dokl("train", folder / "a.csv", "--target", "temp", *LAGGED, *more, "--by", "place",
                 *QUICK, "--model", folder / f"{name}.dokl")  # fmt: skip
    return folder


def predictions(*words):
    return [float(row["prediction"]) for row in rows_of(dokl("predict", *words).stdout)]


@pytest.mark.parametrize("name", ["now", "later"])
def test_commands_go_on_from_the_rows_that_were_learned(files, name):
    model, table = files / f"{name}.dokl", pd.read_csv(files / "b.csv")
    whole = predictions(model, files / "b.csv")
    assert whole == predictions(model, files / "b.csv", "--chunk", "7")
    loaded = library.load(model)
    np.testing.assert_allclose(loaded.predict(table), whole, rtol=1e-9)
    by_hand = []
    for start in range(0, len(table), 50):
        rows = table[start : start + 50]
        by_hand += loaded.predict(rows).tolist()
        loaded.remember(rows)
    np.testing.assert_allclose(by_hand, whole, rtol=1e-9)
    again = library.load(loaded.save(files / "again.dokl"))
    last = table.iloc[-1:].assign(when="2024-02-01")
    assert again.predict(last) == loaded.predict(last)


def test_a_horizon_predicts_what_comes_later(files):
    found = json_of("evaluate", files / "later.dokl", files / "b.csv", "--json")
    table = pd.read_csv(files / "b.csv")
    model = library.load(files / "later.dokl")
    ahead = table.groupby("place")["temp"].shift(-6)
    told = model.predict(table)
    mine = np.sqrt(np.nanmean((ahead - told) ** 2))
    assert found["rows"] == len(table)  # six rows of each place waited in the model
    assert abs(found["rmse"] - mine) < 0.15 * mine
    assert found["r2"] > 0.5
    assert model.score(table) == pytest.approx(found["r2"])
    names = json_of("inspect", files / "later.dokl", "--json")["input_names"]
    assert {"temp", "temp lag 1", "temp lag 24", "temp mean 24", "temp difference 1"} <= {*names}
    now = json_of("inspect", files / "now.dokl", "--json")["input_names"]
    assert "temp" not in now
    found = json_of("inspect", files / "later.dokl", "--json")["lags"]
    assert found == {"by": "place", "time": "when", "horizon": "6"}


@pytest.mark.slow
def test_a_training_goes_on_in_another_file_and_in_passes(tmp_path):
    """In two files it learns the same as in one; a second pass begins with an empty memory."""
    table = weather(450)  # the first of two files covers two weeks, as both do
    for name, rows in {"both": table, "a": table[:750], "b": table[750:]}.items():
        rows.to_csv(tmp_path / f"{name}.csv", index=False)
    start = ("--target", "temp", "--lag", "temp=1,24", "--horizon", "6", "--by", "place", *QUICK)
    for name, model in {"both": "one", "a": "two"}.items():
        dokl("train", tmp_path / f"{name}.csv", *start, "--model", tmp_path / f"{model}.dokl")
    dokl("train", tmp_path / "b.csv", "--model", tmp_path / "two.dokl", "--continue", "-q")
    later = weather(5, seed=1).assign(when=[f"2024-02-{d:02d}" for d in range(1, 11)])
    later.to_csv(tmp_path / "c.csv", index=False)
    one, two = (predictions(tmp_path / f"{k}.dokl", tmp_path / "c.csv") for k in ("one", "two"))
    np.testing.assert_allclose(one, two, rtol=1e-6)
    passes = ("--passes", "2", "--model", tmp_path / "twice.dokl")
    dokl("train", tmp_path / "both.csv", *start, *passes)
    twice, once = (library.load(tmp_path / f"{name}.dokl") for name in ("twice", "one"))
    assert twice.rows_read == 2 * once.rows_read
    for place in ("roof", "yard"):
        ours, theirs = (each.series.lags.past.groups[place] for each in (twice, once))
        np.testing.assert_array_equal(ours.times, theirs.times)
        np.testing.assert_array_equal(ours.values, theirs.values)


def test_inputs_hold_nothing_of_the_future(files):
    """Later values of every column may be anything: nothing changes before."""
    for name in ("now", "later"):
        model, table = library.load(files / f"{name}.dokl"), pd.read_csv(files / "b.csv")
        before = model.inputs(table)
        table.loc[100:, ["wind", "temp"]] += 1000.0
        after = model.inputs(table)
        np.testing.assert_array_equal(before[:100], after[:100])
        if name == "now":  # the target of a row itself is not known
            assert (before[100] != after[100]).sum() == 1  # the wind


@settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(cuts=st.lists(st.integers(1, 199), max_size=5), horizon=st.sampled_from([0, 3, "3h"]))
def test_learning_does_not_depend_on_chunks(cuts, horizon):
    table = weather(150)
    first, rest = table[:100], table[100:]
    made = {
        "lags": {"temp": [1, "24h"], "wind": 2}, "rolling": {"temp": 5}, "by": "place",
        "horizon": horizon, "n_components": 20, "experts": "one", "random_state": 0,
    }  # fmt: skip
    one, many = (library.fit_table(first, "temp", **made) for _ in range(2))
    one.partial_fit(rest)
    ends = sorted({0, *cuts, 200})
    for start, stop in itertools.pairwise(ends):
        many.partial_fit(rest[start:stop])
    probe = weather(5, seed=1).assign(when=[f"2024-02-{d:02d}" for d in range(1, 11)])
    np.testing.assert_array_equal(one.inputs(probe), many.inputs(probe))
    np.testing.assert_allclose(one.predict(probe), many.predict(probe), rtol=1e-6)


def test_rows_out_of_order_are_named_and_may_be_passed_over(files, tmp_path):
    table = pd.read_csv(files / "a.csv")
    mixed = pd.concat([table[:300], table[100:102], table[299:300], table[300:]])
    mixed.to_csv(tmp_path / "m.csv", index=False)
    start = ("train", tmp_path / "m.csv", "--target", "temp", "--lag", "temp=1", "--by", "place")
    message = fails(*start, *QUICK, "--model", tmp_path / "m.dokl")
    assert "line 302, column 'when': 2024-01-03T02:00:00 is before 2024-01-07T05:00:00" in message
    assert "of place 'roof'" in message
    assert not (tmp_path / "m.dokl").exists()
    dokl(*start, *QUICK, "--model", tmp_path / "m.dokl", "--on-error", "skip")
    refused = rows_of((tmp_path / "m.dokl.refused.csv").read_text())
    assert [row["line"] for row in refused] == ["302", "303", "304"]
    assert "repeats the time" in refused[2]["reason"]
    dokl("train", files / "a.csv", *start[2:], *QUICK, "--model", tmp_path / "s.dokl")
    b = files / "b.csv"
    assert predictions(tmp_path / "m.dokl", b) == predictions(tmp_path / "s.dokl", b)


def test_rows_of_before_are_predicted_with_no_memory(files):
    """A file that begins before the rows learned does not follow them."""
    model = files / "now.dokl"
    found = predictions(model, files / "a.csv")
    loaded = library.load(model)
    loaded.series = loaded.series.empty()
    np.testing.assert_allclose(loaded.predict(pd.read_csv(files / "a.csv")), found, rtol=1e-9)


def test_lags_are_proposed_and_said(files, tmp_path):
    start = ("train", files / "a.csv", "--target", "temp", "--lags", "auto", "--by", "place")
    said = dokl(*start, *QUICK[:-1], "--model", tmp_path / "m.dokl").stdout
    line = next(line for line in said.splitlines() if "propose" in line)
    assert "temp lag 1" in line
    noise = weather(300).assign(temp=np.random.default_rng(0).normal(size=600))
    noise.to_csv(tmp_path / "n.csv", index=False)
    said = dokl("train", tmp_path / "n.csv", *start[2:], *QUICK[:-1], "--model",
                tmp_path / "n.dokl").stdout  # fmt: skip
    assert "none explains the target" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--lag", "temp=0"), "neither a number of rows"),
        (("--lag", "cold=1"), "no column 'cold' for lags"),
        (("--lag", "place=1"), "holds no numbers"),
        (("--by", "place"), "are for lags and horizons"),
        (("--lag", "temp=1"), "repeats the time"),
        (("--lag", "temp=1", "--nodes", "place", "--by", "wind"), "leave out --by wind"),
        (("--lag", "temp=1", "--time", "wind"), "holds no times"),
    ],
)
def test_what_cannot_be_is_refused(files, tmp_path, words, said):
    start = ("train", files / "a.csv", "--target", "temp", "--model", tmp_path / "m.dokl")
    assert said in fails(*start, *words, "-q")


def test_a_model_with_lags_is_not_exported(files, tmp_path):
    assert "remembers rows" in fails("export", files / "now.dokl", tmp_path / "m.onnx")


def test_damaged_memory_is_refused(files):
    model = library.load(files / "later.dokl")
    meta, arrays = model.series.spec()
    with pytest.raises(BadInput, match="other inputs"):
        type(model.series).from_spec(meta, arrays, d=3)
    short = arrays | {"lags.times": arrays["lags.times"][1:]}
    with pytest.raises(BadInput, match="do not fit"):
        type(model.series).from_spec(meta, short, model.preprocessor.d)


@pytest.mark.parametrize("name", ["now", "later"])
def test_a_served_model_goes_on_and_survives_a_crash(files, tmp_path, name):
    path, table = files / f"{name}.dokl", pd.read_csv(files / "b.csv")
    rows = json.loads(table.to_json(orient="records"))
    asked = rows if name == "later" else [{k: r[k] for k in r if k != "temp"} for r in rows]
    model = library.load(path)
    with Face(path, tmp_path / "state") as face:
        for i in range(0, 60, 2):  # an hour of both places at a time
            wanted = model.predict(table[i : i + 2].drop(columns=[] if name == "later" else "temp"))
            told = face.predict(asked[i : i + 2])["predictions"]
            np.testing.assert_allclose(told, wanted, rtol=1e-6)
            assert face.learn(rows[i : i + 2])["accepted"] == 2
            model.partial_fit(table[i : i + 2])
        assert "is before" in face.learn(rows[:1], code=422)["error"]
        assert "repeats the time" in face.predict(asked[59:60], code=422)["error"]
        strange = {**asked[60], "place": "attic"}
        assert "not trained with this one" in face.predict([strange], code=422)["error"]
        after = face.predict(asked[60:62])["predictions"]
        shutil.copytree(tmp_path / "state", tmp_path / "crashed")  # as kill -9 leaves it
    for state in ("state", "crashed"):
        with Face(path, tmp_path / state) as face:
            assert face.predict(asked[60:62])["predictions"] == after
    np.testing.assert_allclose(model.predict(table[60:62]), after, rtol=1e-6)


def test_persistence_stands_beside_the_model(files, tmp_path):
    found = json_of("evaluate", files / "later.dokl", files / "b.csv", "--json")["persistence"]
    assert set(found) == {"the last value", "a day before"}  # not a week of rows
    table = pd.read_csv(files / "b.csv")
    error = table["temp"] - table.groupby("place")["temp"].shift(6)
    assert found["the last value"]["rmse"] == pytest.approx(np.sqrt(np.nanmean(error**2)))
    assert found["the last value"]["rows"] == error.notna().sum()
    error = table["temp"] - table.groupby("place")["temp"].shift(24)
    assert found["a day before"]["rmse"] == pytest.approx(np.sqrt(np.nanmean(error**2)))
    assert found["the last value"]["model"] < found["the last value"]["rmse"]


def test_a_model_worse_than_persistence_says_so(tmp_path):
    walk = np.cumsum(np.random.default_rng(0).normal(size=500))
    when = np.datetime64("2024-01-01", "s") + 3600 * np.arange(500)
    table = pd.DataFrame({"when": when, "x": np.random.default_rng(1).normal(size=500), "y": walk})
    table.to_csv(tmp_path / "w.csv", index=False)
    start = ("train", tmp_path / "w.csv", "--target", "y", *QUICK, "--model", tmp_path / "w.dokl")
    said = dokl(*start).stdout
    assert "persistence, rmse on the same rows: the last value" in said
    assert "worse than repeating the last value" in said
    assert "--lags auto" in said
    ahead = (*start, "--overwrite", "--test", "last:20%", "--horizon", "5")
    assert "may help (--lags auto)" in dokl(*ahead).stdout
    said = dokl(*ahead, "--lags", "auto").stdout
    assert "worse than repeating the last value" in said
    assert "may help (--lags auto)" not in said  # they were looked for
    dokl(*start, "--overwrite")
    said = dokl("evaluate", tmp_path / "w.dokl", tmp_path / "w.csv").stdout
    assert "persistence, rmse on the same rows: the last value" in said
    shuffled = table.sample(frac=1, random_state=0)
    shuffled.to_csv(tmp_path / "s.csv", index=False)
    assert "persistence" not in dokl("evaluate", tmp_path / "w.dokl", tmp_path / "s.csv").stdout
    table.drop(columns="when").to_csv(tmp_path / "n.csv", index=False)
    none = dokl("train", tmp_path / "n.csv", *start[2:-1], tmp_path / "n.dokl").stdout
    assert "persistence" not in none


def test_what_is_predicted_before_anything_is_learned_is_not_beside_persistence(tmp_path):
    y = 300 + 4 * np.sin(np.arange(200) / 6) + np.random.default_rng(0).normal(size=200)
    (tmp_path / "y.csv").write_text("y\n" + "\n".join(f"{v:.2f}" for v in y) + "\n")
    words = ("train", tmp_path / "y.csv", "--target", "y", "--lag", "y=1", "--horizon", "2", *QUICK)
    found = json_of(*words, "--model", tmp_path / "y.dokl", "--json")["persistence"]
    assert found["the last value"]["rows"] == 197  # of 198 with a target
    assert found["the last value"]["model"] < 5  # the first is predicted as 0


@pytest.mark.parametrize("horizon", ["0", "3"])
def test_nodes_of_a_network_have_a_past_of_their_own(tmp_path, horizon):
    table = weather(150)
    table[:240].to_csv(tmp_path / "a.csv", index=False)
    table[240:].to_csv(tmp_path / "b.csv", index=False)
    model = tmp_path / "m.dokl"
    dokl("train", tmp_path / "a.csv", "--target", "temp", "--lag", "temp=1,24", "--nodes", "place",
         "--horizon", horizon, "--components", "20", "--model", model, "-q")  # fmt: skip
    loaded = library.load(model)
    assert (loaded.estimator.experts, loaded.series.plan.by) == ("lasting", "place")
    X = loaded.inputs(table[240:])
    lag = list(loaded.preprocessor.names_out).index("temp lag 1")
    own = table["temp"].shift(2).to_numpy()[240:]  # the place's, an hour before
    assert np.corrcoef(X[:, lag], own)[0, 1] > 0.999999
    found = json_of("evaluate", model, tmp_path / "b.csv", "--json")
    assert found["r2"] > 0.5
    dokl("train", tmp_path / "b.csv", "--model", model, "--continue", "-q")
    after = library.load(model)
    assert after.rows_read == 300
    assert set(after.series.lags.past.groups) == {"roof", "yard"}


def test_experts_of_a_horizon_forget_nothing_and_one_is_linear(tmp_path, short_searches):
    """Beyond the rows seen a line goes on as a line."""
    t = np.arange(300.0)
    rows = {"t": t, "y": 0.5 * t + np.sin(t)}
    model = library.fit_table(rows, "y", horizon=2, lags={"y": [1, 2]})
    experts = model.estimator.experts_
    assert model.estimator.experts == "lasting"
    assert {each["memory"] for each in experts} == {np.inf}
    assert any(each["expert"] == "linear, all rows" for each in experts)
    model.save(tmp_path / "m.dokl")
    again = library.load(tmp_path / "m.dokl")
    later = {"t": np.arange(300.0, 310.0), "y": 0.5 * np.arange(300, 310) + np.sin(t[:10] + 300)}
    np.testing.assert_array_equal(again.predict(later), model.predict(later))
