"""dokl train --test and evaluate --test: rows that are scored and not learned."""

import os
import signal

import numpy as np
import pytest

from commands import dokl, fails, json_of, make_folder, readings, times_file, write_csv
from dokl.tables.jobs import predict
from dokl.tables.jobs.course import MOST_DRAWN, PredictionPairs
from dokl.tables.jobs.predict import HoldOut
from dokl.tables.jobs.sources import Source
from dokl.tables.models import TableModel

pytestmark = pytest.mark.usefixtures("short_searches")

GRADIENT = ("--target", "y", "--drop", "label", "--drop", "id", "--method", "gradient")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = make_folder(tmp_path_factory.mktemp("held"))
    lines = (place / "r.csv").read_text().splitlines(keepends=True)
    (place / "first.csv").write_text("".join(lines[:481]))
    (place / "last.csv").write_text("".join([lines[0], *lines[481:]]))
    return place


def test_the_last_rows_are_scored_first_and_not_learned(folder, tmp_path):
    start = ("train", folder / "r.csv", *GRADIENT, "--test", "last:20%")
    found = json_of(*start, "--model", tmp_path / "m.dokl", "--json")
    dokl("train", folder / "first.csv", *GRADIENT, "--model", tmp_path / "n.dokl")
    assert (tmp_path / "m.dokl").read_bytes() == (tmp_path / "n.dokl").read_bytes()
    alone = json_of("evaluate", tmp_path / "n.dokl", folder / "last.csv", "--json")
    assert next(iter(found)) == "test"
    assert (found["test"]["rows"], found["prequential"]["rows"]) == (120, 480)
    assert found["test"]["mse"] == alone["mse"]
    assert alone["prequential"]["mse"] == found["prequential"]["mse"]
    result = dokl(*start, "--model", tmp_path / "o.dokl")
    title, _, names, *_ = result.stdout[result.stdout.index("held out") :].splitlines()
    assert title.startswith("held out: the last 20 % of the rows")
    assert names.split() == ["held", "out", "prequential"]
    assert "has not learned the 120 rows held out" in result.stderr


@pytest.mark.parametrize("chunk", [7, 8192])
def test_random_rows_are_the_same_for_train_and_evaluate(folder, tmp_path, chunk):
    model = tmp_path / "m.dokl"
    how = (folder / "r.csv", "--test", "random:25%", "--json")
    found = json_of("train", *how, *GRADIENT, "--model", model)
    again = json_of("evaluate", model, *how, "--chunk", chunk)
    assert found["test"]["mse"] == pytest.approx(again["mse"], rel=1e-12)
    assert 100 < again["rows"] < 200
    assert again["rows"] + found["prequential"]["rows"] == 600
    everything = json_of("evaluate", model, folder / "r.csv", "--json")
    assert everything["rows"] == 600
    assert everything["prequential"]["rows"] == found["prequential"]["rows"]


def test_every_row_is_learned_or_held_out(folder):
    for text in ("last:10%", "random:10%"):
        sources = HoldOut.of(text).split(Source(str(folder / "r.csv")))
        lines = list[int]()
        for source in sources:
            with source.open() as reader:
                lines += [line for chunk in reader for line in chunk.lines]
        assert sorted(lines) == list(range(2, 602))


@pytest.mark.parametrize("name", ["r.csv.gz", "r.jsonl", "r.parquet", "r.svm"])
def test_rows_of_every_format_can_be_held_out(folder, tmp_path, name):
    if name == "r.parquet":
        arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        parquet.write_table(arrow.table(readings()), folder / name)
    start = ("--method", "gradient") if name == "r.svm" else GRADIENT
    found = json_of("train", folder / name, *start, "--test", "last:5%", "--chunk", "100",
                    "--model", tmp_path / "m.dokl", "--json")  # fmt: skip
    assert (found["test"]["rows"], found["prequential"]["rows"]) == (30, 570)


def test_lags_go_on_from_the_rows_that_were_learned(tmp_path):
    path, _ = times_file(tmp_path / "t.csv")
    start = ("train", path, "--target", "y", "--lag", "y=1,2", "--components", "20")
    found = json_of(*start, "--test", "last:40%", "--model", tmp_path / "m.dokl", "--json")
    assert found["test"]["rows"] == 60
    assert set(found["test"]["persistence"]) >= {"the last value"}
    assert found["test"]["intervals"]["rows"] == 60
    message = fails(*start, "--test", "random:40%", "--model", tmp_path / "n.dokl")
    assert "--test last:40%" in message
    lines = path.read_text().splitlines(keepends=True)
    (tmp_path / "last.csv").write_text("".join([lines[0], *lines[91:]]))
    alone = json_of("evaluate", tmp_path / "m.dokl", tmp_path / "last.csv", "--json")
    assert alone["mse"] == found["test"]["mse"]  # the file goes on from there, too


def test_what_cannot_be_held_out_is_said(folder, tmp_path):
    start = ("train", folder / "r.csv", *GRADIENT, "--model", tmp_path / "m.dokl")
    for text in ("20%", "last:0%", "first:10%", "random:100%", "last:20"):
        assert "write last:20% or random:20%" in fails(*start, "--test", text)
    assert "are 0" in fails(*start, "--test", "last:0.01%")
    stdin = ("train", "-", *GRADIENT, "--model", tmp_path / "m.dokl", "--test", "last:20%")
    assert "stdin can be read only once" in fails(*stdin, input="a,y\n1,2\n")
    assert not (tmp_path / "m.dokl").exists()


def test_a_label_that_is_held_out_only_is_said_after_the_training(tmp_path):
    columns = readings(100)
    columns["label"][-3:] = "third"
    path, model = write_csv(tmp_path / "r.csv", columns), tmp_path / "m.dokl"
    start = ("train", path, "--target", "label", "--drop", "id", "--method", "gradient", "-q")
    result = dokl(*start, "--model", model, "--test", "last:20%", code=1)
    assert "rows held out cannot be scored" in result.stderr
    assert "'third' was never seen" in result.stderr
    assert TableModel.load(model).rows_read == 80


def test_the_page_begins_with_the_rows_held_out(folder, tmp_path):
    pytest.importorskip("matplotlib")
    page, picture, model = (tmp_path / name for name in ("p.html", "p.svg", "m.dokl"))
    start = ("train", folder / "r.csv", *GRADIENT, "--test", "last:20%", "--model", model)
    found = json_of(*start, "--html", page, "--plot", picture, "--json")
    text = page.read_text()
    first = text[text.index("<table>") : text.index("</table>")]
    assert first.index("<th>held out</th>") < first.index("<th>prequential</th>")
    assert f"<td>r2</td><td>{found['test']['r2']:.5g}</td>" in first
    drawn = picture.read_text()
    for title in ("predicted against actual, held-out rows", "residuals over time, held-out rows"):
        assert f"<!-- {title} -->" in drawn


def test_confusion_and_calibration_are_drawn_of_classes(folder, tmp_path):
    pytest.importorskip("matplotlib")
    picture = tmp_path / "p.svg"
    dokl("evaluate", folder / "label.dokl", folder / "r.csv", "--plot", picture)
    for title in ("confusion matrix, rows of the file", "calibration of probabilities"):
        assert f"<!-- {title}" in picture.read_text()


def test_pairs_are_the_same_however_rows_are_cut():
    rng = np.random.default_rng(0)
    y, predicted = rng.normal(size=(2, 3 * MOST_DRAWN))
    whole, parts = PredictionPairs(), PredictionPairs()
    whole.add(y, predicted)
    for start in range(0, len(y), 700):
        parts.add(y[start : start + 700], predicted[start : start + 700])
    for name in ("rows", "y", "predicted"):
        assert getattr(whole, name) == getattr(parts, name)
    assert MOST_DRAWN / 2 < len(whole.rows) <= MOST_DRAWN


def test_calibration_counts_what_every_class_was_given():
    pairs = PredictionPairs(classifying=True)
    given = np.array([[0.95, 0.05], [0.35, 0.65]])
    pairs.add_probabilities(np.array(["a", "a"]), given, np.array(["a", "b"]))
    assert pairs.calibration[[0, 3, 6, 9]].tolist() == [
        [1, 0.05, 0], [1, 0.35, 1], [1, 0.65, 0], [1, 0.95, 1]
    ]  # fmt: skip


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_model_is_kept_that_is_stopped_while_it_is_tested(folder, tmp_path, monkeypatch, signum):
    def stopped(*given, **how):
        os.kill(os.getpid(), signum)

    monkeypatch.setattr(predict, "evaluate", stopped)
    model = tmp_path / "m.dokl"
    start = ("train", folder / "r.csv", *GRADIENT, "--test", "last:20%", "--model", model)
    result = dokl(*start, code=128 + signum)
    assert "prequential" in result.stdout
    assert f"dokl evaluate {model} {folder / 'r.csv'} --test last:20%" in result.stderr
    monkeypatch.undo()
    assert (
        json_of("evaluate", model, folder / "r.csv", "--test", "last:20%", "--json")["rows"] == 120
    )
