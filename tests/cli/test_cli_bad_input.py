"""Whatever is wrong with what is given: one clear line, exit code 1, earlier files as they were."""

import json

import numpy as np
import pytest
from safetensors.numpy import save_file

from commands import INPUTS, dokl, fails, json_of, make_folder, readings, write_csv
from dokl import files
from dokl.base.errors import BadInput
from dokl.learning.cells.cells import SKIP
from dokl.tables.jobs.in_memory import fit_table
from dokl.tables.readers import Options, open_table

pytestmark = pytest.mark.usefixtures("short_searches")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_folder(tmp_path_factory.mktemp("bad"))


@pytest.fixture
def model(folder, tmp_path):
    """A copy of a model; whatever happens, it must be there afterwards, bit for bit."""
    path, before = tmp_path / "kept.dokl", (folder / "y.dokl").read_bytes()
    path.write_bytes(before)
    yield path
    assert path.read_bytes() == before
    assert not list(tmp_path.glob(".*"))  # no half-written files


SKIPPING = ("--on-error", "skip", "--refused", "{data}")
READERS = ("predict", "evaluate", "inspect", "train")


def uses(command, model, data):
    """Arguments of a command that loads a model."""
    if command == "train":
        return "train", data, "--model", model, "--continue"
    return (command, model) if command == "inspect" else (command, model, data)


# -- model files -------------------------------------------------------------------------------
def truncated(good):
    return good[: len(good) // 2]


def changed(good):
    return good[:-5] + bytes([good[-5] ^ 1]) + good[-4:]


def newer(good):
    length = int.from_bytes(good[:8], "little")
    header = json.loads(good[8 : 8 + length])
    text = json.loads(header["__metadata__"]["dokl"])
    header["__metadata__"]["dokl"] = json.dumps(text | {"format": files.FORMAT + 1, "dokl": "9.0"})
    data = json.dumps(header).encode()
    return len(data).to_bytes(8, "little") + data + good[8 + length :]


@pytest.mark.parametrize("command", READERS)
@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (truncated, "truncated"),
        (changed, "damaged"),
        (newer, "newer dokl, 9.0"),
        (lambda good: b"", "empty"),
        (lambda good: b"a,b\n1,2\n", "not"),
    ],
)
def test_model_files_that_cannot_be_used(folder, tmp_path, command, spoil, message):
    path = tmp_path / "m.dokl"
    path.write_bytes(spoil((folder / "y.dokl").read_bytes()))
    before = path.read_bytes()
    said = fails(*uses(command, path, folder / "r.csv"))
    assert message in said
    assert str(path) in said
    assert path.read_bytes() == before


@pytest.mark.parametrize("command", READERS)
def test_foreign_files_absent_files_and_folders_are_no_models(folder, tmp_path, command):
    save_file({"x": np.zeros(3)}, tmp_path / "x.safetensors")
    assert "not one of dokl's" in fails(*uses(command, tmp_path / "x.safetensors", "r.csv"))
    assert "no such file" in fails(*uses(command, tmp_path / "none.dokl", "r.csv"))
    assert "folder" in fails(*uses(command, tmp_path, "r.csv"))


def test_a_damaged_preprocessing_is_refused(folder, tmp_path):
    meta, arrays = files.read(folder / "y.dokl")
    arrays["extra.count"] = arrays["extra.count"][:1]
    files.write(tmp_path / "m.dokl", "model", meta, arrays)
    assert "damaged" in fails("inspect", tmp_path / "m.dokl")


def test_a_scaling_that_was_exchanged_does_not_match_the_fingerprint(folder, tmp_path):
    path = tmp_path / "m.dokl"
    dokl("train", folder / "r.csv", "--target", "y", "--drop", "label", *INPUTS,
         "--standardise", "fixed", "--model", path)  # fmt: skip
    meta, arrays = files.read(path)
    arrays["extra.total"] = arrays["extra.total"] + 1
    files.write(path, "model", meta, arrays)
    assert "fingerprint" in fails("inspect", path)


# -- data files --------------------------------------------------------------------------------
@pytest.mark.parametrize("command", ["train", "predict", "evaluate"])
def test_data_files_that_are_not_there_or_are_none(folder, tmp_path, model, command):
    (tmp_path / "empty.csv").touch()
    assert "empty" in fails(*uses(command, model, tmp_path / "empty.csv"))
    (tmp_path / "header.csv").write_text("a,b,place,y\n")
    assert "no rows" in fails(*uses(command, model, tmp_path / "header.csv"))
    assert "no such file" in fails(*uses(command, model, tmp_path / "none.csv"))
    assert "directory" in fails(*uses(command, model, tmp_path))


def test_empty_files_train_nothing(tmp_path):
    (tmp_path / "empty.csv").touch()
    message = fails("train", tmp_path / "empty.csv", "--target", "y", "--model", tmp_path / "m")
    assert "empty" in message
    assert "empty" in fails("train", "-", "--target", "y", "--model", tmp_path / "m", input=b"")
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize("command", ["train", "predict", "evaluate"])
def test_a_wrong_cell_is_named_by_file_line_and_column(tmp_path, model, command):
    columns = readings(20)
    columns["b"] = [*columns["b"][:12], "twelve", *columns["b"][13:]]
    path = write_csv(tmp_path / "wrong.csv", columns)
    message = fails(*uses(command, model, path))
    assert f"{path}, line 14, column 'b': 'twelve' is not a number" in message


CELL = ("--text COLUMN", "--missing A,B,... names spellings", SKIP)


@pytest.mark.parametrize("command", ["predict", "evaluate", "train"])
def test_options_that_help_are_named_wherever_it_stops(tmp_path, folder, command):
    """They belong to the error, not to its words, and stay with it when more is said."""
    columns, kept = readings(20), tmp_path / "kept.dokl"
    columns["b"] = [*columns["b"][:12], "twelve", *columns["b"][13:]]
    path = write_csv(tmp_path / "wrong.csv", columns)
    kept.write_bytes((folder / "y.dokl").read_bytes())
    for way in ("fail", "stop"):
        message = dokl(*uses(command, kept, path), "--on-error", way, code=1).stderr.strip()
        assert message.endswith(f" ({'; '.join(CELL)})")


@pytest.mark.parametrize(
    ("text", "told", "options"),
    [
        ("a,b\n1,2\n1,x\n", {}, CELL),
        ("a,b\n1,2\n1\n", {}, (SKIP,)),
        ("1,2\n3,4\n", {}, ("--no-header",)),
        ("a|b\n1,234|1\n2,345|2\n", {}, ("--decimal . or --decimal ,",)),
        ("a,b\n$3,1\n€4,2\n", {"chunk": 9}, ("--text COLUMN",)),
        ("a,b\n01/02/2020,1\n03/04/2020,2\n", {}, ("--dates dmy or --dates mdy",)),
        ("1 0:1\n", {"format": "libsvm"}, ("--zero-based",)),
        ("1 1:x\n", {"format": "libsvm"}, ()),
    ],
)
def test_what_cannot_be_read_names_the_options_that_help(tmp_path, text, told, options):
    path = tmp_path / "r.txt"
    path.write_text(text)
    with (
        pytest.raises(BadInput) as found,
        open_table(path, Options(**{"chunk": 1} | told)) as reader,
    ):
        list(reader)
    assert found.value.options == options


def test_words_of_a_message_choose_no_option(monkeypatch, folder):
    """A node that a simulation does not know was answered with an option of `predict`."""

    def broken(*_):
        raise BadInput("z: not in the network, whose nodes are a, b. Mend the cell, Exclude it")

    monkeypatch.setattr("dokl.tables.jobs.describe.describe", broken)
    assert fails("inspect", folder / "y.dokl").endswith("Exclude it")


def test_a_wrong_cell_far_into_a_new_training_leaves_no_model(tmp_path):
    columns = readings(300)
    columns["b"] = [*columns["b"][:250], "?!", *columns["b"][251:]]
    path = write_csv(tmp_path / "wrong.csv", columns)
    message = fails("train", path, "--target", "y", "--drop", "label", *INPUTS, "--chunk", 100,
                    "--model", tmp_path / "m.dokl")  # fmt: skip
    assert "line 252, column 'b'" in message
    assert "--text" in message
    assert not (tmp_path / "m.dokl").exists()


def test_a_wrong_cell_does_not_matter_where_it_is_not_used(tmp_path, model):
    path = write_csv(tmp_path / "r.csv", readings(20) | {"id": ["?!"] * 19 + ["7"]})
    dokl("predict", model, path)


@pytest.mark.parametrize("command", ["train", "predict", "evaluate"])
def test_a_column_missing_or_renamed_since_training_is_named(tmp_path, model, command):
    columns = readings(20)
    columns = {{"place": "Place"}.get(name, name): column for name, column in columns.items()}
    path = write_csv(tmp_path / "r.csv", columns)
    message = fails(*uses(command, model, path))
    assert f"{path} has no column 'place'; the nearest is 'Place'" in message
    assert "trained with columns a, b" in message


def test_evaluating_needs_the_target(tmp_path, model):
    path = write_csv(tmp_path / "r.csv", {k: v for k, v in readings(20).items() if k != "y"})
    assert "no column 'y'" in fails("evaluate", model, path)
    dokl("predict", model, path)


def test_a_label_never_seen_is_named_by_its_line(folder, tmp_path):
    columns = readings(20)
    columns["label"] = [*columns["label"][:5], "novel", *columns["label"][6:]]
    path = write_csv(tmp_path / "r.csv", columns)
    for command in ("evaluate", "train"):
        message = fails(*uses(command, folder / "label.dokl", path))
        assert f"{path}, line 7: label 'novel' was never seen" in message
        assert "other, same" in message


def test_a_file_sorted_by_label_asks_for_the_classes(tmp_path):
    columns = readings(200)
    order = np.argsort(columns["label"], kind="stable")
    path = write_csv(tmp_path / "r.csv", {k: np.array(v)[order] for k, v in columns.items()})
    start = ("train", path, "--target", "label", "--drop", "y", *INPUTS, "--chunk", 50)
    assert "--classes" in fails(*start, "--model", tmp_path / "m.dokl")
    dokl(*start, "--classes", "same,other", "--model", tmp_path / "m.dokl")
    message = fails(*start, "--classes", "same,othr", "--model", tmp_path / "n.dokl")
    assert "'other'" in message


def test_a_target_that_is_missing_or_misspelled(folder, tmp_path):
    start = ("train", folder / "r.csv", "--model", tmp_path / "m.dokl")
    assert "--target: id, a, b" in fails(*start)
    assert "did you mean 'label'" in fails(*start, "--target", "lable")
    assert "no column 'idd'; the nearest is 'id'" in fails(*start, "--target", "y", "--drop", "idd")
    assert "holds text" in fails(*start, "--target", "label", "--task", "regression")


def test_columns_of_names_and_free_text_are_not_used_and_named_at_once(tmp_path):
    columns = readings(200)
    plain = write_csv(tmp_path / "r.csv", columns)
    columns |= {
        "who": [f"person {i}" for i in range(200)],
        "ticket": [f"A/5 {7 * (i % 120)}" for i in range(200)],
        "note": [f"this is what they wrote of number {i % 90}" for i in range(200)],
    }
    path = write_csv(tmp_path / "names.csv", columns)
    start = ("--target", "y", "--drop", "label", "--drop", "id", "--components", 30)
    said = dokl("train", path, *start, "--model", tmp_path / "m.dokl").stdout
    (line,) = [line for line in said.splitlines() if line.startswith("not used: ")]
    assert "'who' (200 different texts in 200 rows, like 'person 0')" in line
    assert "'ticket' (120 different texts in 200 rows, like 'A/5 0')" in line
    assert "'note' (free text, 8 words on average" in line
    assert "--levels" in line
    dokl("train", plain, *start, "--model", tmp_path / "n.dokl")
    without = json_of("evaluate", tmp_path / "m.dokl", plain, "--json")  # which has no such columns
    assert without["mse"] == json_of("evaluate", tmp_path / "n.dokl", plain, "--json")["mse"]
    planned = dokl("plan", path, "--target", "y", "--rows", 200)
    assert "not used: 'who'" in planned.stdout + planned.stderr


def test_a_table_of_names_alone_is_refused(tmp_path):
    columns = {"who": [f"person {i}" for i in range(200)], "y": range(200)}
    message = fails("train", write_csv(tmp_path / "r.csv", columns), "--target", "y",
                    "--task", "regression", "--model", tmp_path / "m.dokl")  # fmt: skip
    assert "'who' (200 different texts in 200 rows" in message
    assert "--numeric COLUMN" in message


def test_all_targets_missing_saves_nothing(tmp_path):
    path = write_csv(tmp_path / "r.csv", {"a": [1, 2, 3], "y": ["", "NA", ""]})
    message = fails("train", path, "--target", "y", "--model", tmp_path / "m.dokl")
    assert "no row with a target" in message
    assert not (tmp_path / "m.dokl").exists()


def test_named_columns_and_libsvm_are_not_mixed(folder, tmp_path, model):
    assert "LIBSVM" in fails("predict", model, folder / "r.svm")
    dokl("train", folder / "r.svm", "--model", tmp_path / "svm.dokl", "--components", "60")
    assert "3 inputs" in fails("predict", tmp_path / "svm.dokl", folder / "r.csv")
    start = ("train", folder / "r.svm", "--model", tmp_path / "m.dokl")
    assert "leave out the target" in fails(*start, "--target", "y")
    (tmp_path / "zero.svm").write_text("1 0:1 1:2\n-1 1:1\n")
    assert "--zero-based" in fails("train", tmp_path / "zero.svm", *start[2:])


# -- where to write ----------------------------------------------------------------------------
def test_places_where_no_file_can_be(folder, tmp_path, model):
    start = ("train", folder / "r.csv", "--target", "y", "--drop", "label", *INPUTS)
    assert "folder" in fails(*start, "--model", tmp_path)
    assert "folder" in fails(*start, "--model", tmp_path, "--overwrite")
    assert "no folder" in fails(*start, "--model", tmp_path / "none" / "m.dokl")
    assert "folder" in fails("predict", model, folder / "r.csv", "--out", tmp_path)
    assert "no folder" in fails("predict", model, folder / "r.csv", "-o", tmp_path / "no" / "p.csv")


def test_a_fault_in_the_middle_leaves_earlier_predictions(tmp_path, model):
    out = tmp_path / "p.csv"
    out.write_text("precious\n")
    columns = readings(300)
    columns["b"] = [*columns["b"][:250], "?!", *columns["b"][251:]]
    path = write_csv(tmp_path / "wrong.csv", columns)
    fails("predict", model, path, "--chunk", 100, "--out", out)
    assert out.read_text() == "precious\n"


def test_keeping_a_column_that_is_not_there(folder, model):
    message = fails("predict", model, folder / "r.csv", "--keep", "idd")
    assert message.endswith("no column 'idd'; the nearest is 'id'")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ConnectionRefusedError(111, "Connection refused"), "Connection refused"),
        (OSError(5, "Input/output error", "disk.csv"), "disk.csv: Input/output error"),
        (OSError("no route"), "no route"),
        (TimeoutError(), "TimeoutError"),
    ],
)
def test_an_error_that_names_no_file_is_not_blamed_on_stdout(folder, monkeypatch, error, said):
    def broken(*_):
        raise error

    monkeypatch.setattr("dokl.tables.jobs.describe.describe", broken)
    assert fails("inspect", folder / "y.dokl") == said


def test_a_column_of_names_that_is_named_a_group_is_used(tmp_path):
    columns = readings(120)
    columns |= {"who": [f"person {i % 70}" for i in range(120)]}
    path, model = write_csv(tmp_path / "r.csv", columns), tmp_path / "m.dokl"
    start = ("train", path, "--target", "y", "--drop", "label", "--drop", "id", "--components", 20)
    assert "not used: 'who'" in dokl(*start, "--model", model).stdout
    said = dokl(*start, "--group", "who", "--model", model, "--overwrite").stdout
    assert "not used" not in said
    assert "column 'who': 70 levels in the first rows, each a group" in said
    rows = {name: list(values) for name, values in columns.items()}
    with pytest.warns(UserWarning, match="not used: 'who'"):
        fit_table(rows, "y", drop=("id", "label"), n_components=20)


def test_names_in_capitals_are_proposed(tmp_path):
    path = write_csv(tmp_path / "r.csv", {"YEAR": [1, 2, 3], "ACTIVITY": [1.5, 2.5, 0.5]})
    message = fails("train", path, "--target", "activty", "--model", tmp_path / "m.dokl")
    assert "unknown target column 'activty': did you mean 'ACTIVITY'?" in message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0.1 0.2\n0.3 0.4\n", ("--target", "x2", "--no-header")),
        ("'a' 'y'\n0.1 0.2\n", ("--target", "y")),
    ],
)
def test_cells_that_spaces_separate_are_named(tmp_path, text, words):
    (tmp_path / "r.csv").write_text(text)
    message = fails("train", tmp_path / "r.csv", *words, "--model", tmp_path / "m.dokl")
    assert "cells seem to be separated by spaces (--delimiter ' ')" in message


@pytest.mark.parametrize("name", ["p.xlsx", "p.csv.gz", "p.json"])
def test_predictions_have_no_name_of_another_format(model, folder, tmp_path, name):
    message = fails("predict", model, folder / "r.csv", "--out", tmp_path / name)
    assert "predictions are written as .csv, .jsonl or .parquet" in message
    dokl("predict", model, folder / "r.csv", "--out", tmp_path / name, "--as", "csv")


# -- files that are read -----------------------------------------------------------------------
@pytest.mark.parametrize(
    "words",
    [
        ("train", "{data}", "--target", "y", "--model", "{data}", "--overwrite"),
        ("train", "{data}", "--target", "y", "--model", "m.dokl", "--html", "{data}"),
        ("train", "{data}", "--target", "y", "--model", "m.dokl", *SKIPPING),
        ("predict", "{model}", "{data}", "--out", "{data}"),
        ("predict", "{model}", "{data}", "--out", "{model}"),
        ("evaluate", "{model}", "{data}", "--html", "{data}"),
        ("evaluate", "{model}", "{data}", "--html", "{model}"),
        ("backtest", "{data}", "--target", "y", "--html", "{data}"),
        ("plan", "{data}", "--target", "y", "--html", "{data}"),
    ],
    ids=" ".join,
)
def test_a_command_does_not_write_a_file_that_it_reads(model, tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    data = write_csv(tmp_path / "rows.csv", readings(40))
    before = data.read_bytes()
    said = fails(*(word.format(data=data, model=model) for word in words))
    assert said.endswith("is read by this command: write to another file")
    assert data.read_bytes() == before
