"""dokl train and inspect: files into a model, inside this process."""

import numpy as np
import pytest

from commands import INPUTS, dokl, fails, json_of, make_folder, readings, write_csv
from dokl.tables.models import TableModel

pytestmark = pytest.mark.usefixtures("short_searches")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_folder(tmp_path_factory.mktemp("cli"))


def test_training_prints_the_prequential_error_and_writes_a_model(folder, tmp_path):
    arguments = ("train", folder / "r.csv", "--target", "y", "--drop", "label", *INPUTS)
    result = dokl(*arguments, "--model", tmp_path / "m.dokl")
    assert "prequential" in result.stdout
    assert "600" in result.stdout
    assert "r2" in result.stdout
    assert "rows/s; model in" in result.stderr
    assert (tmp_path / "m.dokl").read_bytes() == (folder / "y.dokl").read_bytes()


@pytest.mark.parametrize("name", ["r.csv.gz", "r.jsonl"])
def test_all_formats_give_the_same_model(folder, tmp_path, name):
    dokl("train", folder / name, "--target", "y", "--drop", "label", *INPUTS,
         "--model", tmp_path / "m.dokl")  # fmt: skip
    assert (tmp_path / "m.dokl").read_bytes() == (folder / "y.dokl").read_bytes()


def test_parquet_gives_the_same_model(folder, tmp_path):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.table(readings()), tmp_path / "r.parquet")
    dokl("train", tmp_path / "r.parquet", "--target", "y", "--drop", "label", *INPUTS,
         "--model", tmp_path / "m.dokl")  # fmt: skip
    assert (tmp_path / "m.dokl").read_bytes() == (folder / "y.dokl").read_bytes()


def test_stdin_gives_the_same_model(folder, tmp_path):
    text = (folder / "r.csv").read_bytes()
    dokl("train", "-", "--target", "y", "--drop", "label", *INPUTS,
         "--model", tmp_path / "m.dokl", input=text)  # fmt: skip
    assert (tmp_path / "m.dokl").read_bytes() == (folder / "y.dokl").read_bytes()


def test_libsvm_from_stdin_asks_for_the_number_of_features(folder, tmp_path):
    text = (folder / "r.svm").read_bytes()
    arguments = ("train", "-", "--model", tmp_path / "m.dokl", "--components", "60")
    message = fails(*arguments, input=text)
    assert "number of features" in message
    assert "--n-features" in message
    found = json_of(*arguments, "--n-features", 3, "--json", input=text)
    assert found["settings"]["inputs"] == 3


def test_libsvm_models_know_their_features(folder, tmp_path):
    model = tmp_path / "m.dokl"
    start = ("--method", "gradient", "--components", "60", "--json")
    trained = json_of("train", folder / "r.svm", "--model", model, *start)
    assert trained["settings"]["estimator"] == "KernelClassifier"
    score = json_of("evaluate", model, "-", "--format", "libsvm", "--json",
                    input=(folder / "r.svm").read_bytes())  # fmt: skip
    assert score["rows"] == 600
    assert score["accuracy"] > 0.8
    assert {"recall -1", "recall 1"} <= set(score)


def test_continuing_in_two_parts_equals_one_go(folder, tmp_path):
    lines = (folder / "r.csv").read_text().splitlines(keepends=True)
    first, second, model = tmp_path / "1.csv", tmp_path / "2.csv", tmp_path / "m.dokl"
    first.write_text("".join(lines[:301]))
    second.write_text("".join([lines[0], *lines[301:]]))
    start = ("--target", "y", "--drop", "label", *INPUTS, "--sigma", "1")
    dokl("train", first, *start, "--model", model)
    result = dokl("train", second, "--model", model, "--continue")
    assert "this run" in result.stdout
    assert "since the start" in result.stdout
    dokl("train", folder / "r.csv", *start, "--model", tmp_path / "all.dokl")
    parts, whole = TableModel.load(model), TableModel.load(tmp_path / "all.dokl")
    assert np.array_equal(parts.estimator.coef_, whole.estimator.coef_)
    assert parts.rows_read == whole.rows_read == 600


def test_skipping_rows_starts_later(folder, tmp_path):
    start = ("--target", "y", "--drop", "label", *INPUTS, "--chunk", 100)
    dokl("train", folder / "r.csv", *start, "--skip", 250, "--model", tmp_path / "m.dokl")
    assert TableModel.load(tmp_path / "m.dokl").rows_read == 350


def test_passes_go_through_the_file_again(folder, tmp_path):
    start = ("--target", "y", "--drop", "label", *INPUTS, "--passes", 3)
    result = dokl("train", folder / "r.csv", *start, "--model", tmp_path / "m.dokl")
    assert "3 passes" in result.stdout
    assert TableModel.load(tmp_path / "m.dokl").rows_read == 1800
    message = fails("train", "-", *start, "--model", tmp_path / "n.dokl", input="a,y\n1,2\n")
    assert "stdin can be read only once" in message


def test_a_model_file_is_not_replaced_by_accident(folder, tmp_path):
    arguments = ("train", folder / "r.csv", "--target", "y", "--model", folder / "y.dokl")
    before = (folder / "y.dokl").read_bytes()
    message = fails(*arguments)
    assert "--continue" in message
    assert "--overwrite" in message
    assert (folder / "y.dokl").read_bytes() == before
    both = dokl(*arguments, "--continue", "--overwrite", code=2)
    assert "not both" in both.stderr


def test_continuing_refuses_what_the_model_has_settled(folder):
    go_on = ("train", folder / "r.csv", "--model", folder / "y.dokl", "--continue")
    result = dokl(*go_on, "--components", "70", "--seed", "3", code=2)
    assert "--components" in result.stderr
    assert "--seed" in result.stderr
    assert "target is 'y'" in dokl(*go_on, "--target", "b", code=2).stderr


def test_missing_targets_are_skipped_and_counted(tmp_path):
    columns = readings(200)
    columns["y"] = ["" if i % 10 == 3 else value for i, value in enumerate(columns["y"])]
    write_csv(tmp_path / "r.csv", columns)
    result = dokl("train", tmp_path / "r.csv", "--target", "y", "--drop", "label", *INPUTS,
                  "--model", tmp_path / "m.dokl")  # fmt: skip
    assert "20 rows without a target were skipped" in result.stderr
    found = json_of("inspect", tmp_path / "m.dokl", "--json")
    assert found["samples_learned"] == 180
    assert found["rows_skipped"] == 20
    columns["y"] = ["" if i == 3 else 1.5 * i for i in range(200)]
    write_csv(tmp_path / "s.csv", columns)
    result = dokl("train", tmp_path / "s.csv", "--target", "y", "--drop", "label", *INPUTS,
                  "--model", tmp_path / "n.dokl")  # fmt: skip
    assert "\n1 row without a target was skipped" in result.stderr


def test_levels_that_come_up_later_are_told_and_can_be_named(folder, tmp_path):
    columns = readings(300)
    columns["place"] = ["roof"] * 100 + ["attic"] * 200
    path = write_csv(tmp_path / "r.csv", columns)
    start = ("--target", "y", "--drop", "label", *INPUTS, "--chunk", 100)
    result = dokl("train", path, *start, "--model", tmp_path / "m.dokl")
    assert "column 'place': 200 texts are none of the levels" in result.stderr
    assert "--levels" in result.stderr
    result = dokl("train", path, *start, "--levels", "place=attic, roof",
                  "--model", tmp_path / "n.dokl")  # fmt: skip
    assert "--levels" not in result.stderr
    names = json_of("inspect", tmp_path / "n.dokl", "--json")["input_names"]
    assert names == ["a", "b", "place=attic", "place=roof"]


def test_a_text_column_may_look_like_numbers(tmp_path):
    columns = {"zone": np.arange(300) % 4, "y": (np.arange(300) % 4 == 2) * 1.5}
    path = write_csv(tmp_path / "r.csv", columns)
    start = ("--target", "y", "--method", "gradient", "--components", "60", "--sigma", "1")
    dokl("train", path, *start, "--text", "zone", "--model", tmp_path / "m.dokl")
    names = json_of("inspect", tmp_path / "m.dokl", "--json")["input_names"]
    assert names == ["zone=0", "zone=1", "zone=2", "zone=3"]
    # The model knows that it is text, and need not be told again.
    assert json_of("evaluate", tmp_path / "m.dokl", path, "--json")["r2"] > 0.99


def test_a_table_without_header_has_columns_x1_x2(tmp_path):
    (tmp_path / "r.csv").write_text("".join(f"{i % 7};{i % 3};{i % 7}\n" for i in range(200)))
    result = fails("train", tmp_path / "r.csv", "--target", "x3", "--model", tmp_path / "m.dokl")
    assert "--no-header" in result
    start = ("--no-header", "--delimiter", ";", "--components", "60")
    dokl("train", tmp_path / "r.csv", "--target", "x3", *start[:3], *start[3:],
         "--model", tmp_path / "m.dokl")  # fmt: skip
    assert json_of("inspect", tmp_path / "m.dokl", "--json")["input_names"] == ["x1", "x2"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--loss", "quantile:0.9"), {"loss": {"name": "quantile", "p": 0.9}}),
        (("--kernel", "matern32"), {"kernel": {"name": "matern", "nu": 1.5}}),
        (("-p", "average=uniform", "-p", "intercept=true"), {"average": "uniform"}),
        (("-p", "dtype=float64", "--sigma", "2"), {"dtype": "float64"}),
        (("--step", "0.25"), {"schedule": {"name": "constant", "scale": 0.25}}),
        (("--task", "regression", "--features", "paired"), {"features": "paired"}),
    ],
)
def test_settings_of_the_estimator_are_options(folder, tmp_path, options, expected):
    arguments = ("train", folder / "r.csv", "--target", "y", "--drop", "label", *INPUTS)
    found = json_of(*arguments, "--json", "--model", tmp_path / "m.dokl", *options)["settings"]
    for key, value in expected.items():
        part = {k: found[key][k] for k in value} if isinstance(value, dict) else found[key]
        assert part == value


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--loss", "quantil"), "did you mean 'quantile'"),
        (("--loss", "huber:x"), "'x' is not a number"),
        (("-p", "averag=uniform"), "did you mean 'average'"),
        (("--sigma", "-1"), "sigma must be"),
        (("--step", "sqrt"), "needs its numbers"),
        (("--components", "61", "--features", "paired"), "even"),
        (("--classes", "p,q", "--task", "regression"), None),
    ],
)
def test_wrong_settings_are_one_clear_line(folder, tmp_path, options, message):
    arguments = ("train", folder / "r.csv", "--target", "y", "--drop", "label", *INPUTS)
    if message is None:
        assert "--classes" in dokl(*arguments, "--model", tmp_path / "m", *options, code=2).stderr
    else:
        assert message in fails(*arguments, "--model", tmp_path / "m.dokl", *options)
    assert not list(tmp_path.iterdir())


def test_a_model_no_better_than_the_mean_is_said(tmp_path):
    X = np.random.default_rng(0).normal(size=(200, 600))
    columns = {f"c{i}": X[:, i] for i in range(600)}
    path, model = tmp_path / "wide.csv", tmp_path / "wide.dokl"
    write_csv(path, {**columns, "y": 2 * X[:, 0]})
    how = "--target", "y", "--model", model, "--method", "gradient", "--overwrite"
    said = dokl("train", path, *how).output
    assert "nothing was learned" in said
    assert "--drop COLUMN" in said
    write_csv(path, {"c0": X[:, 0], "y": 2 * X[:, 0]})
    assert "nothing was learned" not in dokl("train", path, *how).output
