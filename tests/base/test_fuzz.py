"""Damaged input of every kind: read, or rejected with one line. `fuzz` has the harnesses.

A few inputs run always; `make test-all` runs a minute of them, the same ones each time.
"""

import functools
import sqlite3
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from commands import fails
from dokl.base.errors import BadFile, BadInput, UnknownName, listed
from dokl.live.description import parse
from dokl.live.store import read_offset, read_saved, records
from dokl.tables.jobs.start import Training, known_classes
from dokl.tables.readers import open_table
from fuzz import run
from fuzz.targets import IDENTITY, TARGETS

# Inputs in `make test`, and in `make test-all`: about a second, and about ten, for each target.
RUNS = {
    "messages": (500, 5000),
    "descriptions": (60, 800),
    "csv": (60, 800),
    "json": (150, 2500),
    "train": (10, 150),
    "models": (60, 800),
    "journals": (25, 300),
}
FOUND = sorted(path for path in run.FOUND.glob("*/*") if path.is_file())


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    """Targets by name, each made once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda number: None)  # thousands of files, none to be kept
        yield functools.cache(lambda name: TARGETS[name](tmp_path_factory.mktemp(name)))


@pytest.mark.parametrize("name", TARGETS)
def test_valid_input_is_accepted(target, name):
    made = target(name)
    assert made.valid
    for data in made.valid:
        made.read(data)


def check(made, runs, seed):
    tried, found = run.fuzz(made, runs=runs, seed=seed)
    assert tried == runs or found
    for each in found:
        each.save()
        raise AssertionError(f"{each.text}; the input is {each.save()}") from each.error


@pytest.mark.slow
def test_the_command_for_longer_runs_works():
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "tests.fuzz", "json", "--seconds", "0.5"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "json: " in done.stdout
    assert " 0 findings" in done.stdout


@pytest.mark.parametrize("name", RUNS)
def test_damaged_input_is_read_or_rejected_with_one_line(target, name):
    check(target(name), RUNS[name][0], seed=0)


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_much_damaged_input_is_read_or_rejected_with_one_line(target, name):
    check(target(name), RUNS[name][1], seed=1)


@pytest.mark.parametrize("path", FOUND, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_what_was_found_before_stays_repaired(target, path):
    finding = run.examine(target(path.parent.name), path.read_bytes())
    assert finding is None, finding.text


def test_every_target_is_run():
    assert RUNS.keys() == TARGETS.keys()


def test_a_finding_is_found():
    """The harness itself: errors, endless messages and loops are findings, rejections are none."""

    def read(data):
        if data == b"reject":
            raise BadInput("no")
        if data == b"two lines":
            raise BadInput("no\nnever")
        if data == b"loop":
            while True:
                pass
        raise KeyError(data)

    made = run.Target("none", lambda rng: rng.choice((b"reject", b"crash")), read)
    assert run.examine(made, b"reject") is None
    assert "not one line" in run.examine(made, b"two lines").text
    assert "KeyError" in run.examine(made, b"crash").text
    assert "processor time" in run.examine(made, b"loop", seconds=0.1).text
    tried, found = run.fuzz(made, runs=50)
    assert (len(found), tried < 50) == (1, True)
    assert run.fuzz(made, runs=50)[0] == tried, "the same inputs each time"


# -- what was found, in words --------------------------------------------------------------------
NUMBERS = """
[network]
name = "lab"
[inputs]
numeric = ["x"]
shift = [0.0]
count = [0.0]
total = [0.0]
square = [0.0]
"""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[network]\nname = " + "9" * 5000, "a number of too many digits"),
        ("x = " + "[" * 5000, "too deeply nested"),
        (NUMBERS + "[exchange]\nevery_seconds = 1" + "0" * 400, "every_seconds must be a number"),
        (NUMBERS + '[nodes.a]\naddress = "h:' + "9" * 5000 + '"', "is not HOST:PORT"),
    ],
)
def test_descriptions(text, words):
    with pytest.raises(BadInput) as caught:
        parse(text)
    assert words in str(caught.value)
    assert str(caught.value).startswith("network.toml")
    assert len(str(caught.value)) <= 2000


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("1 99999999999:1", "line 2: feature number '99999999999' is too large"),
        (f"1 {'9' * 5000}:1", "line 2: feature number"),
        ("1 1:1 ²:1", "'²:1' is not a feature number"),
    ],
)
def test_libsvm_numbers(tmp_path, row, words):
    path = tmp_path / "t.svm"
    path.write_text(f"1 1:2\n{row}\n", encoding="utf-8")
    with pytest.raises(BadInput) as caught, open_table(path) as reader:
        list(reader)
    assert words in str(caught.value)


def test_a_position_that_is_none(tmp_path, target):
    made = target("journals")
    path = tmp_path / "a.db"
    path.write_bytes(made.valid[0][2 + int.from_bytes(made.valid[0][:2], "little") :])
    for wrong in ("7", "", "[1", "[" * 5000):
        with sqlite3.connect(path) as db:
            db.execute("UPDATE offsets SET position = ?", (wrong,))
        db.close()
        with pytest.raises(BadFile, match="how far a source was read"):
            read_offset(path, "a.csv")


def test_what_is_no_array(tmp_path):
    for wrong in (7, "text", None):
        with pytest.raises(BadFile, match="0 bytes where 2 numbers are expected"):
            records.array(tmp_path / "a.db", "<f8", wrong, (2,))


def test_damaged_pages_are_told_on_one_line(tmp_path, target):
    data = target("journals").valid[0]
    database, path = data[2 + int.from_bytes(data[:2], "little") :], tmp_path / "a.db"
    told = []
    for page in range(4096, len(database), 4096):
        path.write_bytes(database[:page] + b"\x07" * 512 + database[page + 512 :])
        with suppress(BadFile):
            list(read_saved(path, IDENTITY)[2])
            continue
        with pytest.raises(BadFile) as caught:
            read_saved(path, IDENTITY)
        told.append(str(caught.value))
    assert len(told) > 5
    assert not [text for text in told if "\n" in text]


def test_a_message_quotes_no_more_than_its_reader_can_use():
    error = BadInput("a.csv, line 3: " + "x" * 10**6 + " is no number: use --text")
    assert len(str(error)) == 2000
    assert str(error).startswith("a.csv, line 3: xxx")
    assert str(error).endswith("xxx is no number: use --text")


def test_quantities_are_no_classes(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a,y\n" + "".join(f"{i},{i / 3}\n" for i in range(20)))
    for method in ("gradient", "bank"):
        said = fails("train", path, "--target", "y", "--task", "classification", "--method",
                     method, "--components", "8", "-q", "--model", tmp_path / "m.dokl")  # fmt: skip
        assert "classes are texts or whole numbers" in said
        assert "--task regression" in said


def test_large_labels_stay_what_they_are():
    y = np.array([0.0, 1e30, 1e30])
    assert known_classes(Training(target="y"), y).tolist() == [0.0, 1e30]
    assert known_classes(Training(target="y"), y[:2] / 1e30).dtype == np.int64


def test_names_of_several_lines_are_listed_on_one():
    error = UnknownName("column", "y", ["a\nb", "größe"])
    assert str(error) == r"unknown column 'y': Known: a\nb, größe."
    assert listed(["a\nb"]) == r"a\nb"
