"""dokl predict, evaluate and inspect: a model on new rows, inside this process."""

import json

import numpy as np
import pytest

import dokl as library
from commands import INPUTS, dokl, fails, json_of, make_folder, readings, rows_of, write_csv
from dokl.tables.models import TableModel


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_folder(tmp_path_factory.mktemp("cli"))


def test_predictions_are_those_of_the_library(folder):
    rows = rows_of(dokl("predict", folder / "y.dokl", folder / "r.csv").stdout)
    model, columns = TableModel.load(folder / "y.dokl"), readings()
    X = model.preprocessor.transform(
        {"a": columns["a"], "b": columns["b"], "place": columns["place"].astype(object)}
    )
    expected = model.estimator.predict(X)
    got = np.array([float(row["prediction"]) for row in rows])
    assert np.abs(got - expected).max() <= 1e-8 * np.abs(expected).max()


def test_kept_columns_are_copied_to_the_last_digit(folder):
    result = dokl("predict", folder / "y.dokl", folder / "r.csv", "--keep", "id", "--keep", "a")
    row = rows_of(result.stdout)[7]
    assert list(row) == ["id", "a", "prediction"]
    assert row["id"] == "1000000000000007"
    assert row["a"] == str(readings()["a"][7])


def test_json_lines_out(folder, tmp_path):
    out = tmp_path / "p.jsonl"
    arguments = ("predict", folder / "label.dokl", folder / "r.jsonl", "--keep", "id", "--proba")
    dokl(*arguments, "-o", out)
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(lines) == 600
    assert lines[3]["id"] == 10**15 + 3
    assert lines[3]["prediction"] in ("same", "other")
    assert lines[3]["probability other"] + lines[3]["probability same"] == pytest.approx(1)
    assert dokl(*arguments, "--as", "jsonl").stdout == out.read_text()


def test_scores_and_probabilities_are_for_those_who_have_them(folder):
    rows = rows_of(dokl("predict", folder / "label.dokl", folder / "r.csv", "--scores").stdout)
    assert all((float(r["score"]) > 0) == (r["prediction"] == "same") for r in rows)
    assert "classifiers" in fails("predict", folder / "y.dokl", folder / "r.csv", "--proba")


def test_columns_that_the_model_does_not_know_do_not_matter(folder, tmp_path):
    columns = readings(50)
    shuffled = {"junk": ["?!"] * 50, "b": columns["b"], "place": columns["place"]}
    write_csv(tmp_path / "r.csv", {**shuffled, "a": columns["a"]}, delimiter="\t")
    write_csv(tmp_path / "s.csv", columns)
    got = dokl("predict", folder / "y.dokl", tmp_path / "r.csv").stdout
    assert got == dokl("predict", folder / "y.dokl", tmp_path / "s.csv").stdout


def test_missing_numbers_and_new_levels_are_predicted_and_told(folder):
    text = "a,b,place\n,0.5,roof\nNA,0.5,roof\n0.1,0.5,attic\n0.1,0.5,\n"
    result = dokl("predict", folder / "y.dokl", "-", input=text)
    rows = [row["prediction"] for row in rows_of(result.stdout)]
    assert rows[0] == rows[1]
    assert rows[2] == rows[3]
    assert "column 'place': 1 texts" in result.stderr
    assert dokl("predict", folder / "y.dokl", "-", "--quiet", input=text).stderr == ""


def test_a_key_that_json_lines_lack_is_a_missing_value(folder):
    text = '{"b": 0.5, "place": "roof"}\n{"a": 0.1, "b": 0.5, "place": "roof"}\n'
    rows = rows_of(dokl("predict", folder / "y.dokl", "-", input=text).stdout)
    assert len(rows) == 2


def test_a_column_that_is_empty_in_the_first_rows_keeps_its_kind(folder, tmp_path):
    columns = {"a": [""] * 5, "b": [1.0] * 5, "place": [""] * 5}
    write_csv(tmp_path / "r.csv", columns)
    assert len(rows_of(dokl("predict", folder / "y.dokl", tmp_path / "r.csv").stdout)) == 5


def test_estimators_saved_in_python_predict_plain_columns(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2))
    model = library.KernelRegressor(n_components=60, random_state=0).fit(X, X[:, 0])
    path = tmp_path / "m.safetensors"
    model.save(path)
    write_csv(tmp_path / "x.csv", {"u": X[:, 0], "v": X[:, 1]})
    rows = rows_of(dokl("predict", path, tmp_path / "x.csv").stdout)
    assert float(rows[0]["prediction"]) == pytest.approx(model.predict(X[:1])[0], rel=1e-7)
    write_csv(tmp_path / "xy.csv", {"u": X[:, 0], "v": X[:, 1], "y": X[:, 0]})
    assert "2 inputs" in fails("predict", path, tmp_path / "xy.csv")
    assert "target" in fails("evaluate", path, tmp_path / "xy.csv")
    score = json_of("evaluate", path, tmp_path / "xy.csv", "--target", "y", "--json")
    assert score["r2"] > 0.9
    dokl("train", tmp_path / "xy.csv", "--model", path, "--continue", "--target", "y")
    assert json_of("inspect", path, "--json")["rows_read"] == 200


def test_a_feature_map_is_no_predictor(tmp_path):
    path = tmp_path / "m.dokl"
    library.RandomFeatures(n_components=20, random_state=0).fit(np.eye(3)).save(path)
    (tmp_path / "x.csv").write_text("a,b,c\n1,2,3\n")
    assert "does not predict" in fails("predict", path, tmp_path / "x.csv")
    assert json_of("inspect", path, "--json")["estimator"] == "RandomFeatures"


# -- evaluate and inspect ---
def test_evaluate_scores_rows_that_have_a_target(folder, tmp_path):
    result = dokl("evaluate", folder / "y.dokl", folder / "r.csv")
    assert "r2" in result.stdout
    found = json_of("evaluate", folder / "label.dokl", folder / "r.csv", "--json")
    assert found["rows"] == 600
    assert found["accuracy"] == pytest.approx(1 - found["error"])
    assert {"recall same", "recall other"} <= set(found)


def test_figures_that_are_not_defined_are_null(folder, tmp_path):
    write_csv(tmp_path / "r.csv", readings() | {"y": [1.5] * 600})
    assert json_of("evaluate", folder / "y.dokl", tmp_path / "r.csv", "--json")["r2"] is None
    assert "undefined" in dokl("evaluate", folder / "y.dokl", tmp_path / "r.csv").stdout
    start = ("--target", "y", "--drop", "label", *INPUTS)
    dokl("train", tmp_path / "r.csv", *start, "--model", tmp_path / "m.dokl")
    assert json_of("inspect", tmp_path / "m.dokl", "--json")["prequential"]["r2"] is None


def test_inspect_for_people_and_for_programs(folder):
    text = dokl("inspect", folder / "label.dokl").stdout
    assert "KernelClassifier" in text
    assert "place=cellar" in text
    found = json_of("inspect", folder / "label.dokl", "--json")
    assert found["classes"] == ["other", "same"]
    assert found["target"] == "label"
    assert found["standardisation"] == "running"
    assert found["file_size"] == (folder / "label.dokl").stat().st_size


def test_the_file_does_not_grow_with_what_was_learned(folder, tmp_path):
    start = ("--target", "y", "--drop", "label", *INPUTS)
    dokl("train", folder / "r.csv", *start, "--passes", 20, "--model", tmp_path / "m.dokl")
    assert (tmp_path / "m.dokl").stat().st_size == (folder / "y.dokl").stat().st_size


def test_no_colour_and_no_bar_when_piped(folder, tmp_path):
    start = ("--target", "y", "--drop", "label", *INPUTS)
    result = dokl("train", folder / "r.csv", *start, "--model", tmp_path / "m.dokl")
    assert "\x1b" not in result.output
    quiet = dokl("train", folder / "r.csv", "--model", tmp_path / "m.dokl", "--continue", "-q")
    assert quiet.stderr == ""
