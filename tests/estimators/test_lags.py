"""Lags, rolling means and differences: in scikit-learn, in River, by hand."""

import copy
import itertools
import pickle

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline

from dokl import AutoRegressor, Lags, NetworkRegressor
from dokl.base.errors import BadInput

BACK = {"lags": {"a": [1, 3], "b": 2}, "rolling": {"a": [2, 4]}, "differences": {"b": [1, 2]}}
TIMED = {
    "lags": {"a": ["1h", "3h"], "b": 2},
    "rolling": {"a": "2h", "b": 3},
    "differences": {"b": ["2h", 1]},
}


def frame(n=40, groups=3, seed=0, gaps=True):
    """Rows of several places, in the order of time; some hours and some cells are missing."""
    rng = np.random.default_rng(seed)
    hours = np.sort(rng.choice(3 * n, n, replace=False)) if gaps else np.arange(n)
    a, b = rng.normal(size=(2, n * groups))
    a[rng.random(len(a)) < 0.1] = np.nan
    when = np.datetime64("2024-03-01T00:00", "s") + np.repeat(hours, groups) * 3600
    place = np.tile([f"p{i}" for i in range(groups)], n)
    return pd.DataFrame({"when": when, "place": place, "a": a, "b": b})


def by_hand(table, by, column, back):
    """Lag in rows, as pandas has it."""
    return table.groupby(by)[column].shift(back).to_numpy()


def test_rows_are_as_pandas_makes_them():
    table = frame()
    found = Lags(**BACK, by="place", time="when").set_output(transform="pandas")
    out = found.fit_transform(table)
    assert list(out) == [
        "a", "b", "a lag 1", "a lag 3", "b lag 2", "a mean 2", "a mean 4", "b difference 1",
        "b difference 2",
    ]  # fmt: skip
    np.testing.assert_array_equal(out["a lag 3"], by_hand(table, "place", "a", 3))
    np.testing.assert_array_equal(out["b lag 2"], by_hand(table, "place", "b", 2))
    np.testing.assert_array_equal(out["b difference 2"], table.groupby("place")["b"].diff(2))
    mean = table.groupby("place")["a"].transform(lambda a: a.rolling(4, min_periods=1).mean())
    np.testing.assert_allclose(out["a mean 4"], mean)


def test_times_are_looked_up_across_gaps():
    when = pd.to_datetime(["2024-01-01 00:00", "2024-01-01 01:00", "2024-01-01 03:00"])
    table = pd.DataFrame({"t": when, "a": [1.0, 2.0, 4.0]})
    back = {"lags": {"a": ["1h", "2h", "3h"]}, "rolling": {"a": "2h"}, "differences": {"a": "2h"}}
    out = Lags(**back, time="t").set_output(transform="pandas").fit_transform(table)
    assert np.isnan(out["a lag 1h"].iloc[2])  # the row of 01:00 is twice as old
    assert out["a lag 2h"].iloc[2] == 2.0
    assert out["a lag 3h"].iloc[2] == 1.0
    assert out["a mean 2h"].tolist() == [1.0, 1.5, 4.0]
    assert out["a difference 2h"].iloc[2] == 2.0


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 5),
    cuts=st.lists(st.integers(0, 90), max_size=6),
    timed=st.booleans(),
    hidden=st.booleans(),
)
def test_any_cut_into_chunks_gives_the_same_bits(seed, cuts, timed, hidden):
    table = frame(30, seed=seed)
    back = TIMED if timed else BACK
    make = Lags(**back, by="place", time="when", drop=["a"] if hidden else [])
    whole = make.fit_transform(table)
    ends = sorted({0, *cuts, len(table)})
    cut = copy.deepcopy(make)
    parts, first = [], True
    for start, stop in itertools.pairwise(ends):
        rows = table.iloc[start:stop]
        parts.append(cut.fit_transform(rows) if first else cut.transform(rows))
        cut, first = pickle.loads(pickle.dumps(cut)), False
    np.testing.assert_array_equal(np.concatenate(parts), whole)


@pytest.mark.parametrize(
    "style",
    [
        "%Y/%m/%d %H:%M",
        "%d.%m.%Y %H:%M",
        "%d %b %Y %H:%M",
        "%Y-%m-%dT%H:%M:00Z",
        "%d-%b-%y %I:%M %p",
    ],
)
def test_times_may_be_texts_as_in_files(style):
    when = pd.date_range("2024-01-30 22:00", periods=6, freq="h").delete(3)
    lags = Lags([1, "1h"], columns=["y"], time="when")
    wanted = lags.fit_transform(pd.DataFrame({"when": when, "y": np.arange(5.0)}))
    table = pd.DataFrame({"when": when.strftime(style), "y": np.arange(5.0)})
    np.testing.assert_array_equal(lags.fit_transform(table), wanted)
    one_by_one = lags.fit(table[:1]).transform(table[1:2])  # a single row is read the same
    np.testing.assert_array_equal(one_by_one, wanted[1:2])


def test_years_may_be_texts():
    table = pd.DataFrame({"when": ["2021", "2022", "2024"], "y": [1.0, 2.0, 3.0]})
    found = Lags("365d", columns=["y"], time="when").fit_transform(table)
    np.testing.assert_array_equal(found[:, -1], [np.nan, 1.0, np.nan])


def test_texts_that_may_be_two_dates_are_refused_with_what_is_read():
    table = pd.DataFrame({"when": ["1/2/2024", None, "1/3/2024"], "y": [1.0, 2.0, 3.0]})
    with pytest.raises(BadInput, match=r"column 'when' holds no times: '1/./2024'.*31 Dec 2024"):
        Lags(1, columns=["y"], time="when").fit(table)


def test_row_by_row_is_the_same_and_memory_is_bounded():
    table = frame(200)
    whole = Lags(**BACK, by="place").fit_transform(table.drop(columns="when"))
    lags = Lags(**BACK, by="place")
    rows = [table.drop(columns="when").iloc[[i]] for i in range(len(table))]
    found = [lags.fit_transform(rows[0])] + [lags.transform(row) for row in rows[1:]]
    np.testing.assert_array_equal(np.concatenate(found), whole)
    assert len(pickle.dumps(lags)) < 4000
    again = lags.preview(rows[-1])
    np.testing.assert_array_equal(again, lags.preview(rows[-1]))  # which remembers nothing


def test_polars_frames_are_taken_as_those_of_pandas():
    polars = pytest.importorskip("polars")
    when = pd.date_range("2024-01-01", periods=6, freq="h")
    whole = pd.array([1, 2, None, 4, 5, 6], dtype="Int64")
    table = pd.DataFrame({"when": when, "place": list("ababab"), "x": whole})
    lags = Lags({"x": [1, "2h"]}, by="place", time="when", horizon=1)
    same = polars.from_pandas(table)
    expected = lags.fit_transform(table), lags.targets(table, table["x"].astype(float))
    found = lags.fit_transform(same), lags.targets(same, same["x"])
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_what_is_dropped_is_not_known_in_its_own_row():
    table = pd.DataFrame({"x": [1.0, 2.0, 3.0, 4.0], "y": [10.0, 20.0, 40.0, 80.0]})
    lags = Lags({"y": 1}, {"y": 2}, {"y": 1}, drop=["y"]).set_output(transform="pandas")
    out = lags.fit_transform(table)
    assert list(out) == ["x", "y lag 1", "y mean 2", "y difference 1"]
    assert out.iloc[3].tolist() == [4.0, 40.0, 30.0, 20.0]
    later = lags.transform(pd.DataFrame({"x": [5.0], "y": [np.nan]}))  # y is to be predicted
    assert later.iloc[0].tolist() == [5.0, 80.0, 60.0, 40.0]


def test_repeated_and_earlier_times_name_row_and_column():
    table = frame(5, groups=2)
    with pytest.raises(BadInput, match=r"row 2, column 'when': .* repeats the time .*several pl"):
        Lags(1, columns=["b"], time="when", drop=["place"]).fit(table)
    lags = Lags(1, columns=["b"], time="when", by="place").fit(table)
    before = pickle.dumps(lags.memory_)
    with pytest.raises(BadInput, match=r"row 1, column 'when': .* is before .* of place 'p0'"):
        lags.transform(table.iloc[:1])
    assert pickle.dumps(lags.memory_) == before  # nothing was remembered
    lost = table.assign(when=table["when"].where(table.index != 3))
    with pytest.raises(BadInput, match=r"row 4, column 'when': the time is missing"):
        Lags("1h", columns=["b"], time="when", by="place").fit(lost)
    gone = table.assign(place=table["place"].where(table.index != 2))
    with pytest.raises(BadInput, match=r"row 3, column 'place': the cell is empty"):
        Lags(1, columns=["b"], by="place", drop=["when"]).fit(gone)


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"lags": 0}, "neither a number of rows"),
        ({"lags": "3 fortnights"}, "neither a number of rows"),
        ({"lags": "24h"}, "no column of times"),
        ({"lags": {"c": 1}}, "'c' is needed for lags"),
        ({"lags": {"place": 1}}, "'place' holds text"),
        ({"lags": {"a": 1}, "by": "b", "max_groups": 5}, "more than 5 groups"),
        ({"lags": {"a": 1}}, "encode it before"),
    ],
)
def test_what_makes_no_sense_is_refused(how, words):
    with pytest.raises(BadInput, match=words):
        Lags(**how).fit(frame()[["place", "a", "b"]])


def test_targets_lie_a_horizon_later():
    table = pd.DataFrame({"g": ["u", "v"] * 4, "y": np.arange(8.0)})
    lags = Lags({"y": 1}, by="g", horizon=2).fit(table)
    np.testing.assert_array_equal(
        lags.targets(table, table["y"]), [4.0, 5.0, 6.0, 7.0, *[np.nan] * 4]
    )
    hours = frame(20, groups=1).drop(columns="place")
    lags = Lags({"b": 1}, time="when", horizon="2h").fit(hours)
    found = lags.targets(hours, hours["b"])
    when = hours["when"].to_numpy()
    for i in np.flatnonzero(~np.isnan(found)):
        late = when[np.flatnonzero(hours["b"] == found[i])[0]] - when[i]
        assert np.timedelta64(2, "h") <= late <= np.timedelta64(3, "h")


@pytest.mark.usefixtures("short_searches")
def test_in_a_pipeline_it_finds_what_a_lag_explains():
    rng = np.random.default_rng(0)
    x = rng.normal(size=600)
    y = np.concatenate([[0.0, 0.0], np.tanh(x[:-2])])
    model = make_pipeline(Lags([1, 2]), SimpleImputer(), AutoRegressor(50, random_state=0))
    model.fit(x[:500, None], y[:500])
    assert model.score(x[500:, None], y[500:]) > 0.95  # the first test row follows the last one
    without = AutoRegressor(50, random_state=0).fit(x[:500, None], y[:500])
    assert without.score(x[500:, None], y[500:]) < 0.3


@pytest.mark.usefixtures("short_searches")
def test_in_a_pipeline_nodes_of_a_network_have_their_own_past():
    rng = np.random.default_rng(0)
    x, place = rng.normal(size=500), np.tile(["roof", "yard"], 250)
    y = np.concatenate([[0.0, 0.0], np.tanh(x[:-2])])  # the row before, of the same place
    table = pd.DataFrame({"x": x, "place": place})
    network = NetworkRegressor(n_components=20, experts="lasting", random_state=0)
    model = make_pipeline(Lags(1, by="place"), network)
    model.fit(table[:400], y[:400], networkregressor__nodes=place[:400])
    found = model.predict(table[400:], nodes=place[400:])
    assert np.mean((found - y[400:]) ** 2) < 0.1 * np.var(y)
    with pytest.raises(BadInput, match="unknown experts 'one'"):
        NetworkRegressor(experts="one").fit(x[:, None], y)


@pytest.mark.usefixtures("short_searches")
def test_in_river_the_target_of_before_is_a_feature():
    river = pytest.importorskip("dokl.estimators.river")
    rng = np.random.default_rng(1)
    walks = np.cumsum(rng.normal(size=(300, 2)), axis=0) * [1.0, -1.0] + [0.0, 500.0]
    rows = [
        ({"place": f"p{k}", "when": 60.0 * t}, walks[t, k]) for t in range(300) for k in range(2)
    ]
    lags = river.Lags({"y": [1, "2min"]}, by="place", time="when", target="y")
    model = lags | river.AutoRegressor(n_components=50)
    errors = []
    for x, y in rows:
        errors.append(abs((model.predict_one(x) or 0.0) - y))
        model.learn_one(x, y)
    assert np.mean(errors[300:]) < 2.0
    out = lags.transform_one({"place": "p1", "when": 300 * 60.0})
    assert out == {"y lag 1": walks[-1, 1], "y lag 2min": walks[-2, 1]}
    again = pickle.loads(pickle.dumps(lags))
    assert again.transform_one({"place": "p1", "when": 300 * 60.0}) == out
    with pytest.raises(BadInput, match="has no 'when'"):
        lags.learn_one({"place": "p1"}, 1.0)
