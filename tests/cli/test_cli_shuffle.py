"""dokl train --shuffle: rows whose order has no meaning."""

import signal

import numpy as np
import pytest

import dokl as dokl_library
from commands import dokl, fails, json_of, write_csv
from dokl.tables.jobs import sources
from dokl.tables.jobs import train as job
from dokl.tables.jobs.sources import Source, shuffled
from dokl.tables.jobs.start import Training
from dokl.tables.jobs.train import train
from dokl.tables.models import TableModel
from dokl.tables.readers import Options, open_table

pytestmark = pytest.mark.usefixtures("short_searches")

SMALL = ("--components", 30)
KEPT = "--no-shuffle keeps theirs"


def sorted_rows(path, n=300, by="y", **more):
    rng = np.random.default_rng(0)
    a, b, noise = rng.normal(size=(3, n)).round(4)
    columns = {"a": a, "b": b, "y": (np.sin(a) + b + 0.1 * noise).round(4)}
    order = np.argsort(columns[by], kind="stable")
    write_csv(path, {name: values[order] for name, values in columns.items()} | more)
    return path


@pytest.mark.full_searches
def test_rows_held_out_at_random_have_no_order(tmp_path):
    path = sorted_rows(tmp_path / "t.csv", by="a")
    how = ("train", path, "--target", "y", *SMALL, "--test", "random:20%", "--json", "--model")
    found = json_of(*how, tmp_path / "m.dokl")
    assert any(KEPT in line for line in found["guesses"])
    kept = json_of(*how, tmp_path / "n.dokl", "--no-shuffle")
    assert not any(KEPT in line for line in kept["guesses"])
    assert found["test"]["rows"] == kept["test"]["rows"]
    assert found["test"]["r2"] > 0.95 > kept["test"]["r2"]


def test_rows_sorted_by_their_target_are_shuffled(tmp_path):
    path, model = sorted_rows(tmp_path / "t.csv"), tmp_path / "m.dokl"
    said = dokl("train", path, "--target", "y", *SMALL, "--model", model).stdout
    assert f"the rows are sorted by 'y', and learned in random order; {KEPT}" in said
    assert json_of("evaluate", model, path, "--json")["r2"] > 0.95
    labels = {"kind": np.repeat(["x", "y", "z"], 100)}
    path = sorted_rows(tmp_path / "u.csv", **labels)
    how = ("train", path, "--target", "kind", "--drop", "y", *SMALL, "--model", model)
    assert "sorted by 'kind'" in dokl(*how, "--overwrite").stdout


def test_fit_table_does_the_same(tmp_path):
    y = np.sort(np.random.default_rng(0).normal(size=200))
    rows = {"a": y + 1.0, "y": y}
    how = {"n_components": 30, "random_state": 0}
    with pytest.warns(UserWarning, match="sorted by 'y', .* shuffle=False keeps theirs"):
        model = dokl_library.fit_table(rows, "y", **how)
    assert np.abs(model.predict(rows) - y).max() < 0.3
    asked = dokl_library.fit_table(rows, "y", shuffle=True, **how)
    assert asked.predict(rows).tolist() == model.predict(rows).tolist()
    kept = dokl_library.fit_table(rows, "y", shuffle=False, **how)
    assert kept.predict(rows).tolist() != model.predict(rows).tolist()


def test_order_is_kept_where_it_may_mean_something(tmp_path):
    days = np.arange("2024-01-01", "2024-10-27", dtype="datetime64[D]").astype(str)
    path = sorted_rows(tmp_path / "t.csv", day=days)
    how = ("train", path, "--target", "y", *SMALL, "--model", tmp_path / "m.dokl")
    assert KEPT not in dokl(*how).stdout
    assert KEPT not in dokl(*how, "--overwrite", "--drop", "day", "--no-shuffle").stdout
    plain = sorted_rows(tmp_path / "u.csv", by="a")
    assert KEPT not in dokl("train", plain, *how[2:], "--overwrite").stdout
    sorted_rows(path)
    assert KEPT not in dokl("train", "-", *how[2:], "--overwrite", input=path.read_bytes()).stdout
    message = fails(*how, "--overwrite", "--lag", "a=1", "--shuffle")
    assert "in order of time: leave out --shuffle" in message


@pytest.mark.parametrize("lines", [10**4, 100])
def test_every_row_comes_once_in_an_order_of_lines_alone(tmp_path, monkeypatch, lines):
    monkeypatch.setattr(sources, "SHUFFLED_LINES", lines)
    path, orders = sorted_rows(tmp_path / "t.csv"), []
    rows = path.read_text().splitlines()
    for how in ({"chunk": 40}, {"chunk": 7, "columns": ("a",)}):
        with open_table(path, Options(**how)) as reader:
            chunks = list(shuffled(reader))
        assert len(chunks) == (1 if lines > 1000 else 4)
        orders.append([line for chunk in chunks for line in chunk.lines])
        for chunk in chunks:
            for line, a in zip(chunk.lines, chunk.columns["a"].tolist(), strict=True):
                assert float(rows[line - 1].split(",")[0]) == a
    assert orders[0] == orders[1]
    assert sorted(orders[0]) == list(range(2, 302))
    assert orders[0] != sorted(orders[0])


def test_every_pass_has_the_same_order(tmp_path, monkeypatch):
    path = sorted_rows(tmp_path / "t.csv", n=200)
    seen, learn = [], job.learn

    def noted(model, chunk, *more):
        seen.extend(chunk.lines)
        return learn(model, chunk, *more)

    monkeypatch.setattr(job, "learn", noted)
    monkeypatch.setattr(sources, "FEW_ROWS", 40)  # which later passes read at once
    training = Training("y", parameters={"n_components": 30})
    found = train(Source(str(path)), training, tmp_path / "m.dokl", passes=2)
    assert found.shuffled
    assert seen[:200] == seen[200:] != sorted(seen[:200])


def test_rows_of_libsvm_files_are_shuffled(tmp_path):
    text = "".join(f"{i} 1:{i} {2 + i % 3}:1\n" for i in range(1, 61))
    (tmp_path / "t.svm").write_text(text)
    with open_table(tmp_path / "t.svm", Options(chunk=7)) as reader:
        (whole,) = shuffled(reader)
    assert sorted(whole.y.tolist()) == list(range(1, 61))
    assert whole.X[:, [0]].toarray().ravel().tolist() == whole.y.tolist()
    assert list(whole.lines) == whole.y.tolist()


def test_rows_keep_their_order_where_those_before_a_wrong_one_count(tmp_path):
    path, model = sorted_rows(tmp_path / "t.csv"), tmp_path / "m.dokl"
    lines = path.read_text().splitlines()
    lines[250] = "x,1,2"
    path.write_text("\n".join(lines) + "\n")
    how = ("train", path, "--target", "y", *SMALL, "--model", model, "--chunk", 60)
    assert "line 251" in fails(*how)
    assert "leave out --shuffle" in fails(*how, "--shuffle", "--on-error", "stop")
    assert not model.exists()
    for test in ((), ("--test", "random:20%")):
        stopped = dokl(*how, *test, "--on-error", "stop", "--overwrite", code=1)
        assert KEPT not in stopped.stdout
        assert "--no-shuffle" in stopped.stderr
        assert TableModel.load(model).rows_read > 190


def test_an_interrupted_training_goes_on_with_the_rows_that_are_left(tmp_path):
    path, model = sorted_rows(tmp_path / "t.csv"), tmp_path / "m.dokl"
    source = Source(str(path))
    training = Training("y", parameters={"n_components": 30}, shuffle=True)

    def watch(reader, score, *rest):
        if score.n == 128:
            signal.raise_signal(signal.SIGTERM)

    halt = train(source, training, model, watch=watch).halt
    assert halt is not None
    assert 128 <= halt.rows < 300
    again = Training(shuffle=True)
    whole = train(source, again, model, TableModel.load(model), skip=halt.rows)
    straight = train(source, training, tmp_path / "n.dokl")
    assert whole.model.rows_read == straight.model.rows_read == 300
    kept, those = (found.model.estimator.bank_.stored.all() for found in (whole, straight))
    for mine, theirs in zip(kept, those, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-6)  # the same rows in the same order
