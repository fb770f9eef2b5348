"""Models of tables: what predicts raw rows, in Python and by the commands alike."""

import copy
import hashlib
from pathlib import Path

import numpy as np
import pandas
import pytest
from scipy.sparse import csr_array

import dokl as library
from commands import INPUTS, dokl, json_of, readings, rows_of, write_csv
from dokl import TableModel, files
from dokl.base.errors import BadFile, BadInput, DoklError
from dokl.learning.columns import Preprocessor
from dokl.tables.readers import Options, open_table

GOLDEN = Path(__file__).parents[1] / "golden"
# Written by version 0.1: never write these files again.
#   dokl train table.csv --target ozone --drop label --drop station --text zone --components 40
#        --seed 5 -p intercept=true
#   dokl train table.csv --target label --drop ozone --nodes station --graph ring --components 30
#        --loss logistic
# of 400 rows place,temp,zone,wind,station,ozone,label with cells missing in all but zone and label.
HASHES = {
    "table-v1.dokl": "16db1cb2ae726ac19f12ea2bc766587e0d5c52ec1c0a79b91404281e04ae1b2a",
    "table-network-v1.dokl": "6af8c5967c9d410040b17e5936d6dc035df22a5844ef12690a6cbd383a312337",
}
NEW = "place,temp,zone,wind\nroof,20.5,1,2.5\n,31,0,\nattic,,2,0.3\ncellar,-3.25,9,11\n"
STATIONS = ["a", "b", "c", "a"]
OZONE = [4467.35645, 4738.72949, 4276.40869, 3878.22534]
SCORES = [
    [5.29667044, -7.32176065, -3.0855217],
    [8.77509499, -8.21988297, -2.3559413],
    [0.413103402, -2.26965213, -1.82550967],
    [0.838627219, 0.282325029, -0.51564002],
]


@pytest.fixture
def model():
    return library.load(GOLDEN / "table-v1.dokl")


@pytest.fixture
def network():
    return library.load(GOLDEN / "table-network-v1.dokl")


# -- files of earlier versions -----------------------------------------------------------------
@pytest.mark.parametrize("name", HASHES)
def test_the_golden_files_are_as_they_were(name):
    assert hashlib.sha256((GOLDEN / name).read_bytes()).hexdigest() == HASHES[name]


def test_old_files_predict_what_they_did():
    rows = rows_of(dokl("predict", GOLDEN / "table-v1.dokl", "-", input=NEW).stdout)
    np.testing.assert_allclose([float(row["prediction"]) for row in rows], OZONE, rtol=1e-5)
    lines = [
        f"{line},{node}" for line, node in zip(NEW.split(), ["station", *STATIONS], strict=True)
    ]
    arguments = (GOLDEN / "table-network-v1.dokl", "-", "--scores", "--by-node")
    rows = rows_of(dokl("predict", *arguments, input="\n".join(lines) + "\n").stdout)
    found = [[float(row[f"score {label}"]) for label in ("high", "low", "middle")] for row in rows]
    np.testing.assert_allclose(found, SCORES, rtol=1e-4, atol=1e-4)
    assert [row["prediction"] for row in rows] == ["high"] * 4


def test_what_a_table_model_tells(model, network):
    assert isinstance(model, TableModel)
    assert model.columns == ("temp", "wind", "place", "zone")  # numbers first, in the first files
    assert (model.target, model.node) == ("ozone", None)
    assert (model.rows_read, model.rows_skipped) == (400, 8)
    assert type(model.estimator) is library.KernelRegressor
    assert model.tally.figures()["rows"] == 392
    for name in ("classes_", "decision_function", "predict_proba"):
        assert not hasattr(model, name)
    assert "KernelRegressor" in repr(model)
    assert network.classes_.tolist() == ["high", "low", "middle"]
    assert (network.target, network.node) == ("label", "station")
    assert network.fingerprint_ == "a337b629bca94e02"
    assert network.fingerprint_ != network.estimator.fingerprint_


@pytest.mark.parametrize("name", HASHES)
def test_old_files_go_on_as_if_never_saved(name, tmp_path):
    model = library.load(GOLDEN / name)
    again = library.load(library.save(model, tmp_path / "m.dokl"))
    rows = [row | {"station": "a", "ozone": 4000.0, "label": "low"} for row in RECORDS]
    for each in (model, again):
        each.partial_fit(rows)
    first = model.save(tmp_path / "1.dokl").read_bytes()
    assert again.save(tmp_path / "2.dokl").read_bytes() == first


# -- forms of rows -----------------------------------------------------------------------------
RECORDS = [
    {"place": "roof", "temp": 20.5, "zone": 1, "wind": 2.5},
    {"temp": 31, "zone": "0", "wind": None},  # no place
    {"place": "attic", "temp": float("nan"), "zone": 2, "wind": "0.3"},
    {"place": " cellar ", "temp": "-3.25", "zone": 9, "wind": 11, "other": object()},
]
COLUMNS = {name: [row.get(name) for row in RECORDS] for name in ("place", "temp", "zone", "wind")}
TYPED = pandas.DataFrame(
    {
        "place": ["roof", None, "attic", "cellar"],
        "temp": [20.5, 31.0, np.nan, -3.25],
        "zone": [1, 0, 2, 9],
        "wind": [2.5, np.nan, 0.3, 11.0],
    }
)
ORDERED = [[COLUMNS[name][i] for name in ("temp", "wind", "place", "zone")] for i in range(4)]
FORMS = {
    "records": RECORDS,
    "a tuple of records": tuple(RECORDS),
    "columns": COLUMNS,
    "other columns besides": {"more": [1, 2, 3, "x"], **dict(reversed(COLUMNS.items()))},
    "arrays": {name: np.array(cells, object) for name, cells in COLUMNS.items()},
    "series": {name: TYPED[name] for name in TYPED},
    "a data frame": TYPED,
    "of objects": pandas.DataFrame(COLUMNS),
    "with a category": TYPED.astype({"place": "category"}),
    "with NA": TYPED.convert_dtypes(),
    "with levels that became floats": TYPED.astype({"zone": float}),
    "records with NA": TYPED.convert_dtypes().to_dict("records"),
    "with columns that are no names": pandas.DataFrame(ORDERED),
    "lists": ORDERED,
    "an array of objects": np.array(ORDERED, object),
    "an array of texts": np.array(ORDERED, object).astype(str),
}


@pytest.mark.parametrize("form", FORMS)
def test_raw_rows_come_in_many_forms(model, form):
    np.testing.assert_allclose(model.predict(FORMS[form]), OZONE, rtol=1e-5)
    assert model.preprocessor.unseen == {"place": 1, "zone": 1}


def test_rows_of_readers_and_of_iterators(model, tmp_path):
    (tmp_path / "new.csv").write_text(NEW)
    with open_table(tmp_path / "new.csv", Options(text="zone")) as reader:
        np.testing.assert_allclose(model.predict(reader.first), OZONE, rtol=1e-5)
    np.testing.assert_allclose(model.predict(iter(RECORDS)), OZONE, rtol=1e-5)


def test_rows_of_arrow(model):
    arrow = pytest.importorskip("pyarrow")
    table = arrow.table({name: TYPED[name] for name in TYPED})
    np.testing.assert_allclose(model.predict(table), OZONE, rtol=1e-5)


def test_arrays_have_the_columns_of_the_table(tmp_path):
    path = write_csv(tmp_path / "r.csv", readings(200))
    start = ("--target", "y", "--drop", "label", *INPUTS, "--text", "place")
    dokl("train", path, *start, "--model", tmp_path / "m.dokl")
    model, frame = library.load(tmp_path / "m.dokl"), pandas.DataFrame(readings(200))
    assert model.columns == ("a", "b", "place")
    model.preprocessor.columns = ("place", "b", "a")
    found = model.predict(frame[["place", "b", "a"]].to_numpy())
    np.testing.assert_array_equal(found, model.predict(frame))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"place": "roof", "tmp": 1, "zone": 1, "wind": 2}], "'temp' was there .*nearest .*'tmp'"),
        (TYPED.rename(columns={"zone": "Zone"}), "'zone' was there in training .* is 'Zone'"),
        (TYPED.to_numpy()[:, :3], "have 3 columns, .* trained with 4: temp, wind, place, zone"),
        (
            TYPED.assign(temp=["1", "2", "warm", "4"]),
            "row 3, column 'temp': 'warm' is not a number",
        ),
        (TYPED.assign(place=[["roof"]] * 4), r"row 1, column 'place': \['roof'\] is not a single"),
        ({**COLUMNS, "temp": [1.0, 2.0]}, "not as long as the others"),
        (RECORDS[0], "one value, 'roof': put a single row into a list"),
        (TYPED.assign(wind=np.inf), "column 'wind' holds infinity"),
        ([], "no rows"),
        (TYPED[:0], "no rows"),
        (np.zeros(4), r"rows must be a data frame.* not an array of shape \(4,\)"),
        ([1.0, 2.0], "rows must be a data frame"),
        ("new.csv", "rows must be .* not str"),
        (3, "rows must be .* not int"),
        (csr_array(np.eye(4)), "rows must be .* not csr_array"),
        (pandas.concat([TYPED, TYPED], axis=1), "two columns 'place'"),
    ],
)
def test_rows_that_cannot_be_used_are_one_clear_line(model, rows, message):
    with pytest.raises(BadInput, match=message) as error:
        model.predict(rows)
    assert "\n" not in str(error.value)


def test_networks_predict_by_node_or_all_together(network):
    np.testing.assert_allclose(network.decision_function(RECORDS, STATIONS), SCORES, atol=1e-4)
    np.testing.assert_allclose(network.decision_function(RECORDS, "a")[0], SCORES[0], atol=1e-4)
    assert network.predict(RECORDS, nodes=STATIONS).tolist() == ["high"] * 4
    proba = network.predict_proba(RECORDS)
    assert (network.predict(RECORDS) == network.classes_[proba.argmax(axis=1)]).all()
    with pytest.raises(BadInput, match="node 'z' is not in the graph"):
        network.predict(RECORDS, nodes="z")


# -- learning on -------------------------------------------------------------------------------
FIRST = {
    "place": np.array(["roof", "yard", "cellar"] * 20, object),
    "temp": np.linspace(-3, 30, 60).round(2),
    "wind": np.tile([1.0, 2.0, np.nan, 4.0], 15),
}


def started(estimator, y, **more):
    """A model of FIRST that has learned it once."""
    return TableModel(estimator, Preprocessor.plan(FIRST), "y").partial_fit(FIRST, y, **more)


def test_python_learns_as_the_command_does(tmp_path):
    columns = {name: cells.tolist() for name, cells in FIRST.items()}
    columns["wind"] = ["" if cell != cell else cell for cell in columns["wind"]]
    columns["y"] = ["" if i % 7 == 3 else i % 5 for i in range(60)]
    path = write_csv(tmp_path / "r.csv", columns)
    start = ("--target", "y", "--method", "gradient", "--components", 20, "--sigma", 1, "--quiet")
    for name in ("1.dokl", "2.dokl"):
        dokl("train", path, *start, "--model", tmp_path / name)
    dokl("train", path, "--model", tmp_path / "1.dokl", "--continue", "--quiet")
    again = library.load(tmp_path / "2.dokl")
    for rows in (slice(0, 20), slice(20, 21), slice(21, 60)):  # the bits do not depend on cuts
        again.partial_fit({name: cells[rows] for name, cells in columns.items()})
    again.save(tmp_path / "2.dokl")
    there, here = (files.read(tmp_path / name, "model") for name in ("1.dokl", "2.dokl"))
    assert there[0] == here[0]
    np.testing.assert_allclose(there[1].pop("extra.score"), here[1].pop("extra.score"))
    for name, array in there[1].items():
        np.testing.assert_array_equal(array, here[1][name], strict=True)


def test_rows_without_a_target_or_a_node_are_passed_over(model, network):
    before = model.predict(RECORDS)
    found = model.prequential(RECORDS, [None, 4500.0, float("nan"), "4000"])
    assert np.isnan(found).tolist() == [True, False, True, False]
    assert found[1] != before[1]  # the scaling has gone along
    assert (model.rows_read, model.rows_skipped, model.tally.n) == (404, 10, 394)
    assert np.isnan(model.prequential(RECORDS, [None] * 4)).all()
    rows = [dict(row, station=n) for row, n in zip(RECORDS, ["a", None, "b", "c"], strict=True)]
    found = network.prequential(rows, ["high", "low", None, "low"])
    assert [label is None for label in found] == [False, True, True, False]
    assert network.estimator.state_.count.sum() == 402
    found = network.prequential(RECORDS, ["high", "low", None, "low"], nodes=STATIONS)
    assert [label is None for label in found] == [False, False, True, False]
    assert network.estimator.state_.count.sum() == network.tally.n == 405


def test_the_target_may_be_among_the_columns(model):
    other, rows = copy.deepcopy(model), TYPED.assign(ozone=[4500, 4600, 4200, 3900])
    found = model.prequential(rows)
    np.testing.assert_array_equal(found, other.prequential(COLUMNS, rows["ozone"]))
    assert model.score(rows) == other.score(COLUMNS, rows["ozone"])
    np.testing.assert_array_equal(model.predict(rows), other.predict(RECORDS))
    with pytest.raises(BadInput, match="the target is needed: give y, or a column 'ozone'"):
        model.partial_fit(RECORDS)
    for wrong, n in (([1.0, 2.0, 3.0], 3), (4.5, 1)):
        with pytest.raises(BadInput, match=f"4 rows and {n} targets"):
            model.partial_fit(RECORDS, wrong)
    with pytest.raises(BadInput, match="row 2, column 'ozone': 'high' is not a number"):
        model.partial_fit(RECORDS, [1.0, "high", 3.0, 4.0])


def test_a_network_needs_the_node_of_each_row(network):
    with pytest.raises(BadInput, match="column 'station' was there in training"):
        network.partial_fit(RECORDS, ["low"] * 4)
    with pytest.raises(BadInput, match="nodes names 2 nodes for 4 rows"):
        network.partial_fit(RECORDS, ["low"] * 4, nodes=["a", "b"])


@pytest.mark.parametrize("labels", [["no", "yes"], [0, 1], [False, True]])
def test_labels_of_all_kinds(labels, tmp_path):
    y = np.array(labels)[(FIRST["place"] == "roof").astype(int)]
    estimator = library.KernelClassifier(n_components=20, random_state=0)
    model = started(estimator, y, classes=labels)
    assert model.score(FIRST, y) == np.mean(model.predict(FIRST) == y)
    again = library.load(model.save(tmp_path / "m.dokl"))
    assert again.classes_.tolist() == labels
    np.testing.assert_array_equal(again.predict(FIRST), model.predict(FIRST))
    assert model.decision_function(FIRST).shape == (60,)
    assert not hasattr(model, "predict_proba")  # which needs the logistic loss


def test_a_failed_call_changes_nothing(model, tmp_path):
    def saved(each):
        return each.save(tmp_path / "m.dokl").read_bytes(), dict(each.preprocessor.unseen)

    estimator = library.KernelClassifier(n_components=20, random_state=0)
    labels = started(estimator, FIRST["place"], classes=["cellar", "roof", "yard"])
    before = saved(labels)
    with pytest.raises(BadInput, match="label 'attic' is not one of the classes"):
        labels.partial_fit({**FIRST, "place": ["attic"] * 60}, ["attic"] * 60)
    assert saved(labels) == before
    before = saved(model)
    with pytest.raises(BadInput, match="too large for float32"):
        model.partial_fit(RECORDS, [1.0, 2.0, 3.0, 1e300])
    assert saved(model) == before


# -- estimators that were saved by themselves ----------------------------------------------------
def test_an_estimator_without_preprocessing_takes_rows_as_they_are(tmp_path):
    frame = pandas.DataFrame({"u": np.linspace(-1, 1, 50), "v": np.linspace(0, 1, 50) ** 2})
    y = frame["u"] * frame["v"]
    named = library.KernelRegressor(n_components=20, random_state=0).fit(frame, y)
    model = TableModel.load(named.save(tmp_path / "m.dokl"))
    expected = named.predict(frame)
    for rows in (frame, frame[["v", "u"]], frame.to_dict("records"), frame.to_dict("list")):
        np.testing.assert_array_equal(model.predict(rows), expected)
    np.testing.assert_array_equal(model.predict(frame.to_numpy()), expected)
    with pytest.raises(BadInput, match="'v' has text or missing"):
        model.predict(frame.assign(v=np.nan))
    model.target = "y"
    model.partial_fit(frame.assign(y=y))
    assert library.load(model.save(tmp_path / "m.dokl")).columns == ("u", "v")


def test_rows_without_names(tmp_path):
    X = np.random.default_rng(0).normal(size=(50, 3))
    Y = np.c_[X[:, 0], X[:, 1]]
    model = TableModel(library.KernelRegressor(n_components=20, random_state=0))
    expected = model.estimator.fit(X, Y).predict(X)
    assert model.columns is None
    for rows in (X, X.tolist(), X.astype(object), pandas.DataFrame(X)):
        np.testing.assert_array_equal(model.predict(rows), expected)
    np.testing.assert_allclose(model.predict(csr_array(X)), expected, atol=1e-5)
    np.testing.assert_array_equal(model.predict(dict(zip("abc", X.T, strict=True))), expected)
    assert np.isnan(model.prequential(X, np.where(X[:, :1] > 1, np.nan, Y))).any()
    with pytest.raises(BadInput, match="takes 3 inputs and there are 2 columns: a, b"):
        model.predict(dict(zip("ab", X.T, strict=False)))
    again = library.load(model.save(tmp_path / "m.dokl"))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


def test_models_of_libsvm_rows(tmp_path):
    (tmp_path / "r.svm").write_text("".join(f"{i % 2} 1:{i % 5} 3:{i % 3}\n" for i in range(40)))
    path = tmp_path / "m.dokl"
    dokl("train", tmp_path / "r.svm", "--model", path, "--components", 20, "--quiet")
    model = library.load(path)
    assert (model.columns, model.target, model.rows_read) == (None, None, 40)
    assert model.classes_.tolist() == [0, 1]
    rows = rows_of(dokl("predict", path, tmp_path / "r.svm").stdout)
    X = csr_array([[i % 5, 0, i % 3] for i in range(40)], dtype=float)
    assert [int(row["prediction"]) for row in rows] == model.predict(X).tolist()


# -- models without settings -------------------------------------------------------------------
def test_tables_have_intervals_where_the_estimator_has_them(tmp_path):
    estimator = library.AutoRegressor(n_components=20, random_state=0)
    model = TableModel(estimator, Preprocessor.plan(FIRST, standardise="off"), "y")
    y = np.where(np.arange(60) % 7 == 3, np.nan, FIRST["temp"])
    assert np.isnan(model.prequential(FIRST, y)).sum() == 9
    assert model.coverage.n == model.tally.n == 51
    before = model.coverage.sums()
    with pytest.raises(BadInput, match="not a number"):
        model.partial_fit(FIRST, ["x"] * 60)
    np.testing.assert_array_equal(model.coverage.sums(), before)
    again = library.load(model.save(tmp_path / "m.dokl"))
    np.testing.assert_array_equal(again.coverage.sums(), before)
    mean, std = again.predict(FIRST, return_std=True)
    np.testing.assert_allclose(mean, model.predict(FIRST), atol=1e-9)
    lower, upper = again.predict_interval(FIRST, 0.8)
    assert (lower < mean).all()
    assert (upper > mean).all()
    assert (std > 0).all()


def test_a_copy_that_only_predicts(model, tmp_path):
    estimator = library.AutoRegressor(n_components=20, random_state=0)
    full = TableModel(estimator, Preprocessor.plan(FIRST, standardise="off"), "y")
    small = full.partial_fit(FIRST, FIRST["temp"]).predict_only()
    expected = full.predict(FIRST)
    full.partial_fit(FIRST, -FIRST["temp"])
    again = library.load(small.save(tmp_path / "small.dokl"))
    for each in (small, again):
        np.testing.assert_array_equal(each.predict(FIRST), expected)
        assert (each.rows_read, each.tally.n, each.coverage.n) == (60, 60, 60)
        with pytest.raises(BadInput, match="cannot learn"):
            each.partial_fit(FIRST, FIRST["temp"])
    with pytest.raises(BadInput, match="cannot be smaller"):
        model.predict_only()


def test_sparse_rows_are_made_dense_for_those_who_want_that():
    X = csr_array([[i % 5, 0, i % 3] for i in range(60)], dtype=float)
    model = TableModel(library.AutoRegressor(n_components=20, random_state=0))
    model.partial_fit(X, X.toarray()[:, 0])
    np.testing.assert_array_equal(model.predict(X), model.predict(X.toarray()))


# -- saving ------------------------------------------------------------------------------------
def test_nothing_learned_nothing_saved(tmp_path):
    model = TableModel(library.KernelRegressor(), Preprocessor.plan(FIRST), "y")
    with pytest.raises(BadInput, match="KernelRegressor that has learned nothing"):
        library.save(model, tmp_path / "m.dokl")


def test_objects_of_your_own(tmp_path):
    mine = library.losses.Loss("mine", lambda y, f: (f - y) ** 2, lambda y, f: 2 * (f - y))
    estimator = library.KernelRegressor(n_components=20, loss=mine, engine="reference", step=0.1)
    model = started(estimator, FIRST["temp"] / 30)
    path = library.save(model, tmp_path / "m.dokl")
    again = library.load(path, objects={"mine": mine})
    np.testing.assert_array_equal(again.predict(FIRST), model.predict(FIRST))


def test_any_nonsense_in_what_belongs_to_a_table_is_an_error_of_ours(tmp_path, monkeypatch):
    """Never the estimator alone, which would predict nonsense."""
    monkeypatch.setattr("os.fsync", lambda number: None)
    meta, arrays = files.read(GOLDEN / "table-network-v1.dokl", "model")
    path, wrong = tmp_path / "m.dokl", []

    def refused(extra, others):
        files.write(path, "model", meta | {"extra": extra}, others)
        try:
            assert isinstance(library.load(path), TableModel)
            library.load(path).predict(RECORDS)
        except DoklError as error:
            wrong.append(error)

    prepared = meta["extra"]["preprocessing"]
    for junk in (None, -1, "x", [], {}, [["x", 3]], 0.5):
        for key in meta["extra"]:
            refused(meta["extra"] | {key: junk}, arrays)
        for key in prepared:
            refused(meta["extra"] | {"preprocessing": prepared | {key: junk}}, arrays)
    for key in meta["extra"]:
        refused({name: value for name, value in meta["extra"].items() if name != key}, arrays)
    for name in [name for name in arrays if name.startswith("extra.")]:
        for junk in (np.zeros(0), np.full(arrays[name].shape, np.nan), np.array(["x"])):
            refused(meta["extra"], arrays | {name: junk})
        refused(meta["extra"], {key: value for key, value in arrays.items() if key != name})
    assert len(wrong) > 60
    files.write(path, "model", meta, {k: v for k, v in arrays.items() if k != "extra.rows"})
    with pytest.raises(BadFile, match=r"m\.dokl: the file is damaged"):
        library.load(path)


def test_another_scaling_is_a_mismatch(tmp_path):
    meta, arrays = files.read(GOLDEN / "table-network-v1.dokl", "model")
    files.write(tmp_path / "m.dokl", "model", meta, arrays | {"extra.shift": np.ones(3)})
    with pytest.raises(BadFile, match="the saved preprocessing: fingerprint"):
        library.load(tmp_path / "m.dokl")


def test_what_is_written_can_be_inspected(model, tmp_path):
    found = json_of("inspect", model.save(tmp_path / "m.dokl"), "--json")
    assert found["target"] == "ozone"
    assert found["rows_read"] == 400


def test_labels_may_be_among_the_first_columns():
    estimator = library.KernelClassifier(n_components=20, random_state=0)
    model = TableModel(estimator, Preprocessor.plan(FIRST, exclude=["place"]), "place")
    model.partial_fit(pandas.DataFrame(FIRST), classes=["cellar", "roof", "yard"])
    assert model.columns == ("temp", "wind")
    assert set(model.predict(FIRST)) <= {"cellar", "roof", "yard"}
