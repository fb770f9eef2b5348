"""The pieces behind the commands: text out, scores, stopping, live sources."""

import csv
import io
import json
import os
import signal
import threading
import time

import numpy as np
import pytest

from commands import dokl, write_csv
from dokl import AutoRegressor, load
from dokl.base.errors import BadInput, listed
from dokl.base.progress import PATIENCE, Stopped, stoppable
from dokl.learning.experts import pending
from dokl.paper.jobs.samples import Rows, signs, stream_by_node
from dokl.tables.jobs.output import as_text
from dokl.tables.jobs.sources import Source, Wanted
from dokl.tables.models.scores import ClassScore, RegressionScore, make_score, restored
from dokl.tables.readers import Options, open_table

pytestmark = pytest.mark.usefixtures("short_searches")

AWKWARD = ["plain", 'quo"ted', "com,ma", "new\nline", " blank ", "100%s", None, "ünï", "007", "1e5"]


# -- text --------------------------------------------------------------------------------------
def columns(texts=AWKWARD):
    n = len(texts)
    return {
        "a % b": np.array(texts, object),
        "label": np.array(["x", "y"] * n)[:n],
        "n": np.arange(n),
        "x": np.linspace(-1, 1, n) / 3,
        "gap": np.where(np.arange(n) % 2, np.nan, 1e-30),
    }


def test_csv_comes_back_as_it_was():
    rows = list(csv.DictReader(io.StringIO(as_text(columns(), "csv", True), newline="")))
    assert [row["a % b"] for row in rows] == ["" if t is None else t for t in AWKWARD]
    assert [float(row["x"]) for row in rows] == pytest.approx(columns()["x"].tolist(), rel=1e-8)
    assert [row["gap"] for row in rows][:3] == ["1e-30", "", "1e-30"]
    assert [row["label"] for row in rows][:2] == ["x", "y"]


def test_the_header_comes_once():
    first, later = as_text(columns(), "csv", True), as_text(columns(), "csv", False)
    assert first == "a % b,label,n,x,gap\n" + later


def test_json_lines_come_back_as_they_were():
    rows = [json.loads(line) for line in as_text(columns(), "jsonl", True).splitlines()]
    # A text that is a number in JSON is written as one; 007 is none.
    expected = [100000.0 if text == "1e5" else text for text in AWKWARD]
    assert [row["a % b"] for row in rows] == expected
    assert [row["gap"] for row in rows][:2] == [1e-30, None]
    assert [row["n"] for row in rows] == list(range(len(AWKWARD)))


def test_digits_of_double_precision():
    values = {"x": np.array([np.pi, 1 / 3])}
    text = as_text(values, "csv", False, 17)
    assert [float(line) for line in text.splitlines()] == values["x"].tolist()


# -- scores ------------------------------------------------------------------------------------
@pytest.mark.parametrize("cut", [1, 7, 100])
def test_scores_do_not_depend_on_how_rows_come(cut):
    rng = np.random.default_rng(0)
    y, guess = rng.normal(size=(2, 300)) + 1e3
    score = RegressionScore()
    for start in range(0, 300, cut):
        score.add(y[start : start + cut], guess[start : start + cut])
    figures = score.figures()
    assert figures["mse"] == pytest.approx(((y - guess) ** 2).mean())
    assert figures["mae"] == pytest.approx(np.abs(y - guess).mean())
    assert figures["r2"] == pytest.approx(1 - ((y - guess) ** 2).sum() / 300 / y.var())


def test_classes_are_counted_and_shown_as_whole_numbers():
    score = make_score(classifying=True)
    score.add(np.array([1.0, -1.0, 1.0, 1.0]), np.array([1, -1, -1, 1]))
    assert score.figures() == {
        "rows": 4, "accuracy": 0.75, "error": 0.25, "recall -1": 1.0, "recall 1": 2 / 3,
    }  # fmt: skip
    assert "25.00%" in score.line()


def test_scores_go_on_after_saving():
    rng = np.random.default_rng(1)
    y, guess = rng.normal(size=(2, 50))
    whole, part = RegressionScore(), RegressionScore()
    part.add(y[:20], guess[:20])
    again = restored(part.sums(), None)
    for score in (whole,):
        score.add(y[:20], guess[:20])
    whole.add(y[20:], guess[20:])
    again.add(y[20:], guess[20:])
    assert again.figures() == whole.figures()
    labels = ["a", "b", "c"]
    counted = ClassScore()
    counted.add(np.array(["a", "b", "a"]), np.array(["a", "a", "b"]))
    assert restored(counted.sums(labels), labels).figures() == counted.figures()
    assert make_score(True).figures() == make_score(False).figures() == {"rows": 0}


def test_the_line_of_a_progress_bar_is_about_recent_rows():
    score = RegressionScore()
    score.add(np.zeros(20_000), np.full(20_000, 3.0))
    score.add(np.zeros(20_000), np.ones(20_000))
    assert score.line() == "mse 1"


# -- stopping ----------------------------------------------------------------------------------
def test_a_piece_of_work_is_finished_first():
    done = []

    def work():
        with stoppable() as whole:
            for i in range(3):
                with whole():
                    if i == 1:
                        signal.raise_signal(signal.SIGINT)
                    done.append(i)

    with pytest.raises(Stopped):
        work()
    assert done == [0, 1]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_between_pieces_it_stops_at_once():
    with pytest.raises(Stopped) as stop, stoppable():
        signal.raise_signal(signal.SIGTERM)
    assert stop.value.signum == signal.SIGTERM


def test_a_second_time_does_not_wait():
    def twice():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt), stoppable() as whole, whole():
        twice()


def test_a_piece_that_takes_long_is_given_up_unless_it_is_settled():
    def work(settle):
        with stoppable() as whole, whole() as settled:
            if settle:
                settled()
            signal.raise_signal(signal.SIGTERM)
            time.sleep(2 * PATIENCE)
            done.append(1)

    done = []
    with pytest.raises(Stopped):
        work(settle=False)
    assert not done
    with pytest.raises(Stopped):
        work(settle=True)
    assert done


def test_training_is_stopped_amid_a_long_part_and_goes_on_where_it_was(tmp_path, monkeypatch):
    X = np.random.default_rng(0).normal(size=(400, 2))
    path, model = tmp_path / "rows.csv", tmp_path / "rows.dokl"
    write_csv(path, {"a": X[:, 0], "b": X[:, 1], "y": X[:, 0] ** 2})
    learned, stopped = pending.run_pilot, threading.Event()

    def slow(bank, *given):
        if bank.seen > 200 and not stopped.is_set():
            os.kill(os.getpid(), signal.SIGTERM)
            stopped.wait(600)
        return learned(bank, *given)

    monkeypatch.setattr(pending, "run_pilot", slow)
    began = time.monotonic()
    dokl("train", path, "--target", "y", "--model", model, code=143)
    assert time.monotonic() - began < 300
    assert load(model).rows_read == load(model).estimator.bank_.seen == 128
    stopped.set()
    dokl("train", path, "--model", model, "--continue", "--skip", 128)
    straight = AutoRegressor(random_state=0).partial_fit(X, X[:, 0] ** 2)
    np.testing.assert_allclose(load(model).estimator.predict(X), straight.predict(X), atol=1e-6)


def test_an_ignored_signal_stays_ignored():
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with stoppable():
            signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)


def test_other_threads_are_left_alone():
    done = []

    def work():
        with stoppable() as whole, whole():
            done.append(1)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [1]


# -- sources -----------------------------------------------------------------------------------
@pytest.fixture
def pipe(tmp_path):
    """A named pipe, and a way to write to it while it is read."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writers = []

    def write(*pieces):
        def feed():
            with open(path, "wb", buffering=0) as file:
                for piece in pieces:
                    if isinstance(piece, threading.Event):
                        piece.wait(60)
                    else:
                        file.write(piece)

        writers.append(threading.Thread(target=feed))
        writers[-1].start()
        return path

    yield write
    for writer in writers:
        writer.join()


@pytest.mark.parametrize("first", [b"a,b\n1,2\n3,4\n5", b"a,b\n1,2\n3,4\n"])
def test_a_live_pipe_gives_the_rows_that_are_there(pipe, first):
    go = threading.Event()
    rest = b",6\n7,8\n" if first.endswith(b"5") else b"5,6\n7,8\n"
    path = pipe(first, go, rest)
    with open_table(path, Options("csv"), live=True) as reader:
        chunks = iter(reader)
        seen = next(chunks).n
        if seen < 2:
            seen += next(chunks).n
        assert seen == 2
        go.set()
        later = [value for chunk in chunks for value in chunk.columns["a"]]
    assert later == [5.0, 7.0]


def test_a_pipe_goes_live_after_the_first_chunk(pipe):
    go = threading.Event()
    path = pipe(b'{"a": 1}\n{"a": 2}\n{"a": 3}\n', go, b'{"a": 4}')
    with open_table(path, Options("jsonl", chunk=2)) as reader:
        reader.go_live()
        chunks = iter(reader)
        assert next(chunks).n == 2
        assert next(chunks).columns["a"].tolist() == [3.0]
        go.set()
        assert next(chunks).columns["a"].tolist() == [4.0]
        assert next(chunks, None) is None


def test_a_quoted_cell_may_arrive_in_pieces(pipe):
    go = threading.Event()
    path = pipe(b'a,t\n1,"two\n', go, b'lines"\n2,x\n')
    go.set()
    with open_table(path, Options("csv"), live=True) as reader:
        texts = [text for chunk in reader for text in chunk.columns["t"]]
    assert texts == ["two\nlines", "x"]


def test_files_are_read_in_full_chunks_even_if_live(tmp_path):
    (tmp_path / "r.csv").write_text("a\n" + "1\n" * 100)
    with open_table(tmp_path / "r.csv", Options(chunk=40), live=True) as reader:
        reader.go_live()
        assert [chunk.n for chunk in reader] == [40, 40, 20]


def test_columns_that_are_dropped_are_not_converted(tmp_path):
    (tmp_path / "r.csv").write_text("a,b\n1,x\n2,3\n4,5\n")
    with Source(str(tmp_path / "r.csv"), Options(drop="b")).open() as reader:
        assert reader.names == ("a",)
    with pytest.raises(BadInput, match="no column 'c'"):
        Source(str(tmp_path / "r.csv"), Options(drop="c")).open()
    with pytest.raises(BadInput, match="trained with columns a, z"):
        Source(str(tmp_path / "r.csv")).open(Wanted(("a", "z"), trained=("a", "z")))


def test_long_lists_are_shortened():
    assert listed([1, 2, 3], 2) == "1, 2 and 1 more"
    assert listed([]) == ""


# -- whole files -------------------------------------------------------------------------------
def test_rows_go_to_their_nodes_in_order():
    X = np.arange(5.0)[:, None]
    rows = Rows(X, X[:, 0], np.array(list("ABAAB"), object))
    stream = stream_by_node(rows, ["A", "B"], None, 1)
    assert stream.y.tolist() == [[0, 1], [2, 4], [3, 0]]
    assert stream.weight.tolist() == [[1, 1], [1, 1], [1, 0]]
    assert stream_by_node(rows, ["A", "B"], 2, 2).y.tolist() == [[0, 1], [2, 4], [0, 1], [2, 4]]
    with pytest.raises(BadInput, match="B: not in the network"):
        stream_by_node(rows, ["A"], None, 1)


def test_two_labels_become_signs():
    assert signs(np.array([0.0, 1.0, 0.0])).tolist() == [-1, 1, -1]
    assert signs(np.array(["no", "yes"], object)).tolist() == [-1, 1]
    with pytest.raises(BadInput, match="there are 1"):
        signs(np.array([2.0, 2.0]))
