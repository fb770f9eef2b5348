"""Rows that are wrong, or in a bad order, through the real commands."""

import json

import numpy as np
import pytest

from awkward import QUICK, numbers, trained, written
from commands import dokl, fails, json_of, rows_of
from dokl.tables.models import TableModel

pytestmark = pytest.mark.usefixtures("short_searches")


# -- rows that are wrong -----------------------------------------------------------------------
def spoiled(folder):
    plain = numbers(300)
    a = [*map(str, plain["a"])]
    a[20] = a[250] = "oops"
    path = written(folder / "bad.csv", plain | {"a": a})
    with path.open("a") as file:
        file.write("1,2\n")
    return path


def test_bad_rows_are_skipped_counted_and_written_with_reasons(tmp_path):
    path, model = spoiled(tmp_path), tmp_path / "m.dokl"
    start = ("train", path, "--target", "y", *QUICK, "--model", model)
    assert "line 302" in fails(*start)
    assert not model.exists()
    said = dokl(*start, "--on-error", "skip")
    refused = tmp_path / "m.dokl.refused.csv"
    assert f"3 rows that cannot be used were passed over; they are in {refused}" in said.stderr
    rows = rows_of(refused.read_text())
    assert sorted(int(row["line"]) for row in rows) == [22, 252, 302]
    assert "'oops' is not a number" in {row["line"]: row["reason"] for row in rows}["22"]
    assert TableModel.load(model).rows_read == 298
    place = tmp_path / "why.csv"
    score = dokl("evaluate", model, path, "--on-error", "skip", "--refused", place, "--json")
    assert json.loads(score.stdout)["rows"] == 298
    assert len(place.read_text().splitlines()) == 4
    out = tmp_path / "p.csv"
    dokl("predict", model, path, "-o", out, "--on-error", "skip")
    assert len(out.read_text().splitlines()) == 299
    assert (tmp_path / "p.csv.refused.csv").exists()


def test_stopping_at_a_bad_row_keeps_what_was_learned(tmp_path):
    path, model = spoiled(tmp_path), tmp_path / "m.dokl"
    start = ("train", path, "--target", "y", *QUICK, "--model", model)
    result = dokl(*start, "--on-error", "stop", code=1)
    assert f"{path}, line 22: column 'a': 'oops' is not a number" in result.stderr
    assert "--continue --skip 20" in result.stderr
    assert TableModel.load(model).rows_read == 20
    path.write_text(path.read_text().replace("oops", "0").removesuffix("1,2\n"))
    dokl("train", path, "--model", model, "--continue", "--skip", 20)
    whole = tmp_path / "whole.dokl"
    dokl("train", path, "--target", "y", *QUICK, "--model", whole, "--sigma", 1)
    assert TableModel.load(model).rows_read == TableModel.load(whole).rows_read == 300
    bad, out = spoiled(tmp_path), tmp_path / "p.csv"
    said = dokl("predict", model, bad, "-o", out, "--on-error", "stop", code=1).stderr
    assert "The rows before it were predicted" in said
    assert len(out.read_text().splitlines()) == 21
    scored = dokl("evaluate", model, bad, "--on-error", "stop", code=1)
    assert "The scores are those of the rows before" in scored.stderr
    assert "20" in scored.stdout


def test_labels_never_seen_can_be_skipped(tmp_path):
    columns = {"a": numbers()["a"], "label": ["x", "y"] * 60}
    _, model = trained(written(tmp_path / "t.csv", columns), "label")
    columns["label"][7] = "novel"
    path = written(tmp_path / "u.csv", columns)
    assert "line 9: label 'novel' was never seen" in fails("evaluate", model, path)
    place = tmp_path / "r.csv"
    more = ("--on-error", "skip", "--refused", place)
    assert json_of("evaluate", model, path, "--json", *more)["rows"] == 119
    assert "label 'novel' was never seen" in place.read_text()
    dokl("train", path, "--model", model, "--continue", *more)
    assert TableModel.load(model).tally.n == 120 + 119


@pytest.mark.parametrize("kind", ["jsonl", "svm", "latin"])
def test_bad_lines_of_other_files(tmp_path, kind):
    good = {"jsonl": '{"a": %d, "y": 1.5}', "svm": "1.5 1:%d", "latin": "%d,1.5"}[kind]
    bad = {"jsonl": '{"a": 1, "y"', "svm": "1.5 x:2", "latin": "1,\xe4"}[kind]
    lines = [good % i for i in range(40)]
    lines[9] = bad
    text = ("a,y\n" if kind == "latin" else "") + "\n".join(lines) + "\n"
    path = tmp_path / f"t.{'csv' if kind == 'latin' else kind}"
    path.write_bytes(text.encode("latin-1"))
    target = () if kind == "svm" else ("--target", "y")
    start = ("train", path, *target, "--task", "regression", *QUICK, "--model", tmp_path / "m")
    assert f"line {10 + (kind == 'latin')}" in fails(*start)
    dokl(*start, "--on-error", "skip")
    assert TableModel.load(tmp_path / "m").rows_read == 39


def test_two_halves_of_an_object_are_no_two_rows(tmp_path):
    (tmp_path / "t.jsonl").write_text('{"a": 1, "y": [2}\n{"x": 3]}\n')
    (tmp_path / "u.jsonl").write_text('{"a": [1\n2], "y": 2}\n{"a": 1, "y": 1}, {"a": 1, "y": 1}\n')
    for name in "tu":
        message = fails("train", tmp_path / f"{name}.jsonl", "--target", "y", "--model",
                        tmp_path / "m.dokl")  # fmt: skip
        assert "line 1: this is not JSON" in message


# -- the order of rows -------------------------------------------------------------------------
def test_a_file_sorted_by_its_label_is_told_in_words(tmp_path):
    rng = np.random.default_rng(0)
    label = rng.permutation(np.repeat(["no", "yes"], 200))
    a = rng.normal(size=400).round(3)
    order = np.argsort(label, kind="stable")
    path = written(tmp_path / "t.csv", {"a": a, "label": label[order]})
    model = ("--model", tmp_path / "m.dokl")
    said = dokl("train", path, "--target", "label", *model, "--no-shuffle").stdout
    assert "the rows are sorted by their label" in said
    assert "--shuffle learns the rows in random order" in said
    path = written(tmp_path / "u.csv", {"a": a, "label": label})
    said = dokl("train", path, "--target", "label", *model, "--overwrite").stdout
    assert "sorted" not in said


def test_rows_that_change_along_the_file_are_told_with_both_errors(tmp_path):
    rng = np.random.default_rng(0)
    a, noise = rng.normal(size=(2, 500)).round(3)
    drift = 0.004 * np.maximum(0, np.arange(500) - 200)
    model = ("--target", "y", "--components", 30, "--model", tmp_path / "m.dokl", "--overwrite")
    path = written(tmp_path / "t.csv", {"a": a, "y": a + drift + 0.3 * noise})
    found = json_of("train", path, *model, "--json")
    still, follows = found["frozen"]["rmse"], found["frozen"]["tracking"]["rmse"]
    assert 1.5 < still / follows < 2.5
    (said,) = [line for line in found["words"] if "change along the file" in line]
    assert f"rmse {follows:.5g} against {still:.5g}, frozen" in said
    assert "experts that forget nothing may lower (-p experts=lasting)" in said
    lasting = dokl("train", path, *model, "-p", "experts=lasting").stdout
    assert "-p experts=lasting" not in lasting
    path = written(tmp_path / "u.csv", {"a": a, "y": a + 0.3 * noise})
    assert "change along" not in dokl("train", path, *model).stdout


def test_the_error_of_a_bad_row_says_how_to_pass_over_it(tmp_path):
    path = written(tmp_path / "w.csv", {"a": [*range(30), "oops"], "y": range(31)})
    told = fails("train", path, "--target", "y", "--model", tmp_path / "m.dokl", *QUICK)
    assert "'oops' is not a number" in told
    assert "--on-error skip" in told
    assert "stop keeps what was done before them" in told
    asked = ("train", path, "--target", "y", "--model", tmp_path / "m.dokl", *QUICK)
    assert fails(*asked, "--on-error", "fail") == told
    assert not (tmp_path / "m.dokl").exists()
    assert "1 row that cannot be used was passed" in dokl(*asked, "--on-error", "skip").stderr
