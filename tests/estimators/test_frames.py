"""Raw tables in Python: data frames with texts, times and gaps, and arrays with NaN."""

import datetime
import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import get_tags

import dokl
from dokl import AutoClassifier, AutoRegressor, NetworkClassifier, NetworkRegressor
from dokl.base.errors import BadInput

pytestmark = pytest.mark.usefixtures("short_searches")
RNG = np.random.default_rng(0)
N = 160
HOURS = pd.date_range("2024-01-01", periods=N, freq="h")
SMALL = {"n_components": 20, "random_state": 0}


def frame():
    """A column of each kind, with gaps in all but the truth values."""
    made = pd.DataFrame(
        {
            "temp": RNG_TEMP,
            "floor": pd.array([1, 2, 3, None] * (N // 4), dtype="Int64"),
            "place": np.array(["USA", "roof", None, "yard", "roof"] * (N // 5), object),
            "kind": pd.Categorical([3, 1, 3, None] * (N // 4), categories=[1, 2, 3]),
            "open": np.arange(N) % 3 == 0,
            "when": HOURS,
            "waited": pd.to_timedelta(np.arange(N) % 5, unit="s"),
        }
    )
    made.loc[3, "when"] = pd.NaT
    return made


RNG_TEMP = np.where(np.arange(N) % 7 == 2, np.nan, RNG.normal(size=N))
FRAME = frame()
Y = (
    3.0 * (FRAME["place"] == "roof")
    + 2.0 * FRAME["open"]
    + FRAME["temp"].fillna(0.0)
    + np.cos(2 * np.pi * HOURS.hour / 24)
).to_numpy()
INPUTS = (
    "temp", "floor", "open", "waited", "when: time of day cos", "when: time of day sin",
    "place=USA", "place=roof", "place=yard", "kind=1", "kind=2", "kind=3",
)  # fmt: skip
NODES = np.array(["north", "south"])[np.arange(N) % 2]
MADE = [
    (AutoRegressor(**SMALL), Y, {}),
    (AutoClassifier(**SMALL), Y > 1.5, {}),
    (NetworkRegressor("complete", **SMALL), Y, {"nodes": NODES}),
    (NetworkClassifier("complete", **SMALL), Y > 1.5, {"nodes": NODES}),
]


@pytest.fixture(scope="module")
def model(short_searches_of_module):
    with short_searches_of_module():
        return AutoRegressor(**SMALL).fit(FRAME, Y)


# -- what is taken -----------------------------------------------------------------------------
@pytest.mark.parametrize(("estimator", "y", "how"), MADE, ids=lambda x: type(x).__name__)
def test_every_kind_of_column(estimator, y, how, tmp_path):
    made = clone(estimator).fit(FRAME, y, **how)
    assert made.score(FRAME, y) > 0.8
    assert made.inputs_ == INPUTS
    assert made.feature_names_in_.tolist() == list(FRAME)
    assert made.n_features_in_ == FRAME.shape[1]
    assert get_tags(made).input_tags.allow_nan
    for again in (pickle.loads(pickle.dumps(made)), dokl.load(made.save(tmp_path / "m.dokl"))):
        assert again.feature_names_in_.tolist() == list(FRAME)
        assert again.n_features_in_ == FRAME.shape[1]
        np.testing.assert_array_equal(again.predict(FRAME), made.predict(FRAME))
        again.partial_fit(FRAME[:5], y[:5], **{k: v[:5] for k, v in how.items()})
    assert not hasattr(clone(made), "preprocessor_")


def test_periods_are_times():
    days = pd.period_range("2024-01-01", periods=90, freq="D")
    made = AutoRegressor(**SMALL).fit(pd.DataFrame({"day": days, "a": np.arange(90.0)}), Y[:90])
    times = pd.DataFrame({"day": days.to_timestamp(), "a": np.arange(90.0)})
    assert "day: time of week cos" in made.inputs_
    assert np.array_equal(
        made.predict(times), AutoRegressor(**SMALL).fit(times, Y[:90]).predict(times)
    )


def test_what_is_no_table_or_no_label_is_named():
    rows = FRAME[:40].to_dict("records")
    with pytest.raises(BadInput, match="X is a list of dicts"):
        AutoRegressor(**SMALL).fit(rows, Y[:40])
    with pytest.raises(BadInput, match="y holds times"):
        AutoRegressor(**SMALL).fit(FRAME[:40], HOURS[:40])
    labels = np.array(["a", "b"] * 20, object)
    labels[3] = None
    with pytest.raises(BadInput, match="y has no label in row 3"):
        AutoClassifier(**SMALL).fit(FRAME[:40], labels)
    labels[3] = 7
    with pytest.raises(BadInput, match="y mixes int, str"):
        AutoClassifier(**SMALL).fit(FRAME[:40], labels)


def test_what_it_can_tell_is_of_its_inputs(model):
    assert model.relevance_.shape == (len(INPUTS),)
    assert len(model.experts_) == 18
    bars = model.plot_relevance().get_yticklabels()
    assert {label.get_text() for label in bars} == set(INPUTS)


def test_polars_and_pandas_are_read_alike(model):
    kinds = [None if pd.isna(v) else str(int(v)) for v in FRAME["kind"]]
    other = pl.DataFrame(
        {
            "temp": pl.Series(FRAME["temp"].tolist(), nan_to_null=True),
            "floor": [None if pd.isna(v) else int(v) for v in FRAME["floor"]],
            "place": [None if pd.isna(v) else v for v in FRAME["place"]],
            "kind": pl.Series(kinds, dtype=pl.Enum(["1", "2", "3"])),
            "open": FRAME["open"].tolist(),
            "when": [None if pd.isna(v) else v.to_pydatetime() for v in FRAME["when"]],
            "waited": [v.to_pytimedelta() for v in FRAME["waited"]],
        }
    )
    np.testing.assert_array_equal(model.predict(other), model.predict(FRAME))
    again = AutoRegressor(**SMALL).fit(other, Y)
    assert again.inputs_ == INPUTS
    np.testing.assert_array_equal(again.predict(FRAME), model.predict(FRAME))
    plain = pl.DataFrame({"a": RNG_TEMP, "b": np.arange(N)})
    same = AutoRegressor(**SMALL).fit(plain, Y).predict(plain)
    alike = AutoRegressor(**SMALL).fit(plain.to_pandas(), Y).predict(plain.to_pandas())
    np.testing.assert_array_equal(same, alike)


def test_the_command_line_makes_the_same_inputs(model):
    table = dokl.fit_table(FRAME.assign(y=Y), "y", **SMALL)
    assert set(table.preprocessor.names_out) == set(INPUTS) - {"kind=2"}  # declared, never there


@pytest.mark.parametrize(
    ("cells", "inputs"),
    [
        (["1,5", "2,25", "-3,0"], ["c"]),
        (["$1,200", "$3.50", "$7"], ["c"]),
        (["12:30", "23:00", "01:15"], ["c: time of day cos", "c: time of day sin"]),
        (["1", "2", "NA"], ["c"]),
        ([datetime.time(1), datetime.time(13), None], ["c: time of day cos", "c: time of day sin"]),
        ([True, False, None], ["c"]),
        (["a", "b", "NA"], ["c=a", "c=b"]),
    ],
)
def test_cells_are_read_as_in_files(cells, inputs):
    rows = pd.DataFrame({"c": pd.Series(cells * 10, dtype=object), "x": np.arange(30.0)})
    model = AutoRegressor(**SMALL).fit(rows, np.arange(30.0))
    assert set(model.inputs_) == {"x", *inputs}
    assert np.isfinite(model.predict(rows)).all()


def test_rows_without_names():
    mixed = np.array([["a", 1.0], ["b", np.nan], ["a", 3.0]] * 10, object)
    y = np.arange(30.0) % 3
    model = AutoRegressor(**SMALL).fit(mixed, y)
    assert model.inputs_ == ("x2", "x1=a", "x1=b")
    assert not hasattr(model, "feature_names_in_")
    np.testing.assert_array_equal(model.predict(mixed.tolist()), model.predict(mixed))
    numbered = pd.DataFrame(mixed)  # names that are no texts
    np.testing.assert_array_equal(AutoRegressor(**SMALL).fit(numbered, y).predict(numbered),
                                  model.predict(mixed))  # fmt: skip
    with pytest.raises(BadInput, match="have 3 columns"):
        model.predict(np.zeros((2, 3)))


def test_rows_without_names_are_taken_in_the_order_of_training():
    table = FRAME[["temp", "place", "when"]]
    model = AutoRegressor(**SMALL).fit(table, Y)
    for rows in (table.to_numpy(object), table.to_numpy(object).tolist()):
        np.testing.assert_array_equal(model.predict(rows), model.predict(table))
    with pytest.raises(BadInput, match="these rows have 2 columns, and the model was trained with"):
        model.predict(table[["temp", "place"]].to_numpy(object))


# -- gaps --------------------------------------------------------------------------------------
GAPS = RNG.normal(size=(N, 3))
GAPS[RNG.random((N, 3)) < 0.2] = np.nan
SUMS = np.nan_to_num(GAPS) @ [1.0, 2.0, 0.0]


@pytest.mark.parametrize(("estimator", "_", "how"), MADE, ids=lambda x: type(x).__name__)
def test_arrays_with_nan(estimator, _, how, tmp_path):
    y = SUMS > 0 if estimator._classifying else SUMS
    made = clone(estimator).fit(GAPS, y, **how)
    assert made.score(GAPS, y) > 0.7
    again = dokl.load(made.save(tmp_path / "m.dokl"))
    np.testing.assert_array_equal(again.predict(GAPS), made.predict(GAPS))
    # A missing number stands at the mean of its column.
    means = np.where(np.isnan(GAPS), np.nanmean(GAPS, axis=0), GAPS)
    if not estimator._classifying:
        np.testing.assert_allclose(made.predict(means), made.predict(GAPS), atol=1e-6)


@pytest.mark.parametrize("cut", [1, 37])
@pytest.mark.parametrize("rows", [GAPS, FRAME], ids=["array", "frame"])
def test_any_cut_gives_the_same(rows, cut):
    whole, cut_up, first = AutoRegressor(**SMALL), AutoRegressor(**SMALL), 100
    for made in (whole, cut_up):  # the first call decides what columns are
        made.partial_fit(rows[:first], Y[:first])
    f = whole.prequential(rows[first:], Y[first:])
    ends = range(first, N, cut)
    parts = [cut_up.prequential(rows[i : i + cut], Y[i : i + cut]) for i in ends]
    np.testing.assert_allclose(np.concatenate(parts), f, atol=1e-7)
    for name in ("count", "total", "square", "shift"):  # to the last bit
        each = [getattr(made.preprocessor_.moments, name) for made in (whole, cut_up)]
        np.testing.assert_array_equal(*each)


def test_gaps_may_come_late_and_means_count_all_rows():
    plain = np.arange(60.0).reshape(30, 2)
    model = AutoRegressor(**SMALL).partial_fit(plain, plain.sum(axis=1))
    mean = plain.mean(axis=0)
    np.testing.assert_allclose(model.predict([[np.nan, 7.0]]), model.predict([[mean[0], 7.0]]))


def test_rows_of_weight_0_are_not_looked_at():
    weight = (np.arange(N) % 4 > 0).astype(float)
    there = weight > 0
    for rows in (GAPS, FRAME):
        odd = rows.copy()
        if rows is GAPS:
            odd[~there] = 1e6
        else:
            odd.loc[~there, ["temp", "place"]] = 1e6, "nowhere"
        some = AutoRegressor(**SMALL).fit(rows[there], Y[there])
        weighted = AutoRegressor(**SMALL).fit(odd, Y, sample_weight=weight)
        assert weighted.inputs_ == some.inputs_
        np.testing.assert_allclose(weighted.predict(rows), some.predict(rows), atol=1e-9)


def test_numbers_alone_give_what_they_gave():
    full = np.nan_to_num(GAPS)
    named = pd.DataFrame(full, columns=list("abc"))
    model = AutoRegressor(**SMALL).fit(full, SUMS)
    np.testing.assert_array_equal(AutoRegressor(**SMALL).fit(named, SUMS).predict(named),
                                  model.predict(full))  # fmt: skip
    huge = full * 1e200  # whose squares no number holds
    with np.errstate(over="ignore"):
        assert np.isfinite(AutoRegressor(**SMALL).fit(huge, SUMS).predict(huge)).all()


# -- later rows --------------------------------------------------------------------------------
def test_columns_are_found_by_name(model):
    told = model.predict(FRAME)
    np.testing.assert_array_equal(model.predict(FRAME[list(FRAME)[::-1]]), told)
    with pytest.raises(BadInput, match="column 'temp' was there in training and is missing now"):
        model.predict(FRAME.drop(columns="temp"))
    before = model.bank_
    with pytest.raises(BadInput, match="column 'wind' was not there in training"):
        model.partial_fit(FRAME.assign(wind=1.0), Y)
    assert model.bank_ is before


def test_new_levels_are_none_of_the_old_ones(model):
    odd = FRAME.assign(place="cellar", kind=pd.Categorical([7] * N))
    none = FRAME.assign(place=None, kind=None)
    np.testing.assert_array_equal(model.predict(odd), model.predict(none))
    grown = pickle.loads(pickle.dumps(model)).partial_fit(odd, Y)
    assert grown.inputs_ == INPUTS
    assert grown.preprocessor_.unseen["place"] == N
    assert model.preprocessor_.unseen["place"] == 0


def test_a_column_that_changes_its_kind_is_named(model):
    with pytest.raises(BadInput, match="row 1, column 'temp': 'warm' is not a number"):
        model.predict(FRAME.assign(temp="warm"))
    with pytest.raises(BadInput, match="column 'when': 'noon' is not a time"):
        model.predict(FRAME.assign(when="noon"))
    model.predict(FRAME.assign(when=HOURS.astype(str), temp=FRAME["temp"].astype(str)))
    plain = AutoRegressor(**SMALL).fit(FRAME[["temp"]], Y)
    with pytest.raises(BadInput, match="row 1, column 'temp': 'warm' is not a number"):
        plain.predict(pd.DataFrame({"temp": ["warm"]}))


# -- refusals ----------------------------------------------------------------------------------
def test_infinity_is_refused(model):
    with pytest.raises(ValueError, match="infinity"):
        AutoRegressor(**SMALL).fit(np.where(np.isnan(GAPS), np.inf, GAPS), SUMS)
    with pytest.raises(BadInput, match="column 'temp' holds infinity"):
        model.predict(FRAME.assign(temp=np.inf))


def test_what_cannot_be_read_says_what_to_do():
    y = np.arange(60.0)
    with pytest.raises(BadInput, match=r"01/02/2024' may begin with .* give the column as"):
        AutoRegressor(**SMALL).fit(pd.DataFrame({"d": ["01/02/2024", "03/04/2024"] * 30}), y)
    with pytest.raises(BadInput, match=r"row 60, column 'd': 'x' is not a number. In a data frame"):
        AutoRegressor(**SMALL).fit(pd.DataFrame({"d": [*map(str, range(59)), "x"]}), y)
    names = pd.DataFrame({"name": [f"n{i}x" for i in range(60)], "x": y})
    with pytest.raises(BadInput, match="column 'name' holds 60 different texts"):
        AutoRegressor(**SMALL).fit(names, y)


@pytest.mark.parametrize("made", [AutoRegressor(), NetworkRegressor(), dokl.KernelRegressor()])
def test_targets_that_are_texts_name_the_class_that_learns_them(made):
    other = type(made).__name__.replace("Regressor", "Classifier")
    for y in (FRAME["place"].fillna("none"), ["roof"] * N, np.array(["a", "2"] * (N // 2))):
        with pytest.raises(BadInput, match=f"numbers, not texts like '.*{other} learns classes"):
            made.fit(RNG.normal(size=(N, 2)), y)
    if isinstance(made, AutoRegressor):  # numbers that are written are numbers
        made.set_params(**SMALL).fit(RNG.normal(size=(N, 2)), np.array(["1.5", "2"] * (N // 2)))


@pytest.mark.parametrize("made", [dokl.KernelRegressor(), dokl.DiffusionRegressor(n_nodes=2)])
def test_estimators_of_numbers_name_the_one_that_takes_tables(made):
    other = type(made).__name__.replace("Kernel", "Auto").replace("Diffusion", "Network")
    for rows in (FRAME, FRAME[["when", "floor"]], FRAME[["place"]]):
        with pytest.raises(BadInput, match=f"text or times, .*{other} takes them as they are"):
            made.fit(rows, Y)
    with pytest.raises(BadInput, match=f"Input X contains NaN: .*{other} takes them"):
        made.fit(GAPS, SUMS)


def test_no_rows_are_refused(model):
    for call in (model.predict, lambda rows: AutoRegressor().fit(rows, [])):
        with pytest.raises(BadInput, match="X has no rows"):
            call(FRAME[:0])


def test_a_model_without_means_refuses_gaps(model, tmp_path):
    old = AutoRegressor(**SMALL).fit(np.nan_to_num(GAPS), SUMS)
    del old.preprocessor_  # as files of earlier versions have it
    old = dokl.load(old.save(tmp_path / "old.dokl"))
    assert np.isfinite(old.predict(np.nan_to_num(GAPS))).all()
    for call in (lambda: old.predict(GAPS), lambda: old.partial_fit(GAPS, SUMS)):
        with pytest.raises(BadInput, match="saved by an earlier version"):
            call()
    with pytest.raises(BadInput, match="takes numbers only"):
        old.predict(FRAME)


# -- around it ---------------------------------------------------------------------------------
def test_pipelines_and_transformers():
    scaled = make_column_transformer(
        (StandardScaler(), ["temp"]), remainder="passthrough", verbose_feature_names_out=False
    ).set_output(transform="pandas")
    pipeline = make_pipeline(scaled, AutoRegressor(**SMALL)).fit(FRAME, Y)
    assert pipeline[-1].inputs_ == INPUTS
    assert pipeline.score(FRAME, Y) > 0.8


def test_files_exports_and_small_models(model, tmp_path):
    path = model.save(tmp_path / "m.dokl")
    table = dokl.TableModel.load(path)
    np.testing.assert_array_equal(table.predict(FRAME), model.predict(FRAME))
    record = {"temp": 0.5, "place": "roof", "when": "2024-01-02 05:00", "open": True}
    assert np.isfinite(table.predict([{**dict.fromkeys(FRAME), **record}])).all()
    from dokl.estimators import folded

    small = folded(model)
    np.testing.assert_array_equal(small.predict(FRAME), model.predict(FRAME))
    again = dokl.load(small.save(tmp_path / "small.dokl"))
    np.testing.assert_array_equal(again.predict(FRAME), model.predict(FRAME))


def test_exports_take_columns_as_those_of_files_do(model, tmp_path):
    from dokl.tables.export.c_source import write_c
    from dokl.tables.export.onnx import write_onnx

    runtime = pytest.importorskip("onnxruntime")
    write_c(model, tmp_path / "m.h")
    write_onnx(model, tmp_path / "m.onnx", precision="double")
    session = runtime.InferenceSession(str(tmp_path / "m.onnx"))
    seconds = (FRAME["when"] - pd.Timestamp(0)).dt.total_seconds()
    cells = {"when": seconds, "kind": FRAME["kind"].astype("Int64").astype(str)}
    cells |= {"floor": FRAME["floor"].astype(float), "waited": FRAME["waited"].dt.total_seconds()}
    feed = {}
    for name in (each.name for each in session.get_inputs()):
        found = cells.get(name, FRAME[name])
        text = name in ("place", "kind")
        found = found.astype(str).to_numpy(object) if text else found.to_numpy(float)
        feed[name] = found.reshape(-1, 1)
    said = session.run(None, feed)[0]
    np.testing.assert_allclose(np.ravel(said), model.predict(FRAME), rtol=1e-6, atol=1e-6)


def test_models_of_other_columns_do_not_merge():
    rows = pd.DataFrame({"place": ["a", "b"] * 40, "x": np.arange(80.0)})
    y = np.arange(80.0)
    first = AutoRegressor(experts="one", **SMALL).fit(rows, y)
    second = first.fresh().partial_fit(rows, y)
    assert dokl.merge(first, second).inputs_ == first.inputs_
    second.preprocessor_.levels = {"place": ("a", "c")}
    with pytest.raises(BadInput, match="different columns"):
        dokl.merge(first, second)
