"""The side-by-side comparison: shapes, skipping and honesty. Nothing here depends on speed."""

import json
import sys
from itertools import pairwise

import numpy as np
import pytest
from click.testing import CliRunner
from scipy import sparse

from dokl import datasets
from dokl.base.errors import UnknownName
from dokl.cli import commands
from dokl.paper.bench import peers as peers_module
from dokl.paper.bench import show, tasks
from dokl.paper.bench.compare import compare, installed, rounds_of, side_by_side
from dokl.paper.bench.engines import EngineRow
from dokl.paper.bench.memory import peak_growth
from dokl.paper.bench.peers import FAMILIES, PEERS, Peer
from dokl.paper.bench.tasks import Rows

KEYS = {
    "peer",
    "family",
    "version",
    "fed",
    "settings",
    "rows",
    "samples_per_second",
    "times_dokl",
    "prequential",
    "test",
    "model_bytes",
    "peak_rss_growth",
}


def there(task):
    """Names of the peers that are installed here and suit the task."""
    return [peer.name for peer in PEERS if peer.installed and peer.suits(task)]


@pytest.fixture(scope="module")
def found():
    """Both generated streams, every peer; few rows."""
    return side_by_side(["xor", "example2"], FAMILIES, 450, 150)


def test_every_installed_peer_has_a_result(found):
    comparisons, skipped = found
    missing = {peer.name for peer in PEERS if not peer.installed}
    assert set(skipped) == missing
    for comparison in comparisons:
        assert not comparison.skipped
        assert [r.peer for r in comparison.results] == there(comparison.task)


def test_figures_are_figures(found):
    for comparison in found[0]:
        for r in comparison.results:
            assert r.samples_per_second > 0
            assert r.times_dokl > 0
            assert 0 < r.model_bytes < 10_000_000
            assert r.peak_rss_growth is None or r.peak_rss_growth >= 0
            assert (r.prequential is None) == (r.fed == "all at once")
            assert r.rows <= len(comparison.task.learn)
            assert len(r.settings) > 3


def test_accuracy_stands_beside_speed(found):
    xor = {r.peer: r for r in found[0][0].results}
    assert xor["dokl"].test > 0.9
    assert xor["dokl"].test == xor["dokl, by row"].test  # the same numbers, fed otherwise
    assert xor["dokl"].prequential == xor["dokl, by row"].prequential
    assert xor["sklearn, by row"].test > 0.9
    assert xor["SVC"].test > 0.95
    if "River" in xor:  # it maps each input by itself, and none of them says anything
        assert xor["River"].test < 0.65
        assert xor["dokl in River"].test > 0.9
    if "VW" in xor:
        assert xor["VW"].test > 0.85
        assert xor["VW --ksvm"].test > 0.9
    regression = {r.peer: r for r in found[0][1].results}
    assert regression["KernelRidge"].test < regression["dokl"].test < 0.2
    assert regression["sklearn, by row"].test < 0.2
    assert regression.get("padasip", regression["dokl"]).test < 0.2


def test_the_record_is_json(found):
    text = json.dumps(show.record(*found), allow_nan=False)
    record = json.loads(text)
    assert set(record) == {"machine", "results", "skipped"}
    assert {"cores", "load", "python", "dokl", "numpy"} <= set(record["machine"])
    for entry in record["results"]:
        assert entry["metric"] == {"xor": "accuracy", "example2": "mse"}[entry["data"]]
        assert entry["rows"] == 450
        assert entry["test_rows"] == 150
        for result in entry["peers"]:
            assert set(result) == KEYS


def test_numbers_that_are_none_become_null():
    assert show._finite({"test": np.inf, "rows": 3}) == {"test": None, "rows": 3}


def test_table_and_picture(found, capsys, tmp_path):
    show.print_tables(found[0])
    show.print_settings(found[0])
    printed = capsys.readouterr().out
    assert "time/dokl" in printed
    assert "dokl, by row" in printed
    assert "never sums" in printed
    picture = show.draw(found[0], tmp_path / "bench.png")
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_engines_are_compared_in_words_and_json(capsys):
    rows = [
        EngineRow("a network", "reference", "float64", 2.0, 2.5, 1.0, 0.0),
        EngineRow("a network", "jax", note="pip install 'dokl[jax]'"),
    ]
    show.print_engines(rows)
    printed = capsys.readouterr().out
    assert "reference, float64" in printed
    assert "pip install 'dokl[jax]'" in printed
    record = json.loads(json.dumps(show.engines_record(rows), allow_nan=False))
    assert [row["seconds"] for row in record["engines"]] == [2.0, None]


# -- skipping ------------------------------------------------------------------------------------
def test_a_missing_library_is_named_and_skipped(monkeypatch):
    monkeypatch.setitem(sys.modules, "vowpalwabbit", None)
    usable, skipped = installed(["sklearn", "vw"])
    assert {peer.family for peer in usable} == {"dokl", "sklearn"}
    assert set(skipped) == {"VW", "VW --ksvm"}
    assert "dokl[bench]" in skipped["VW"]


def test_a_peer_that_breaks_does_not_take_the_others_along():
    def broken(task):
        raise RuntimeError("no luck")

    def late(task):
        run = peers_module.sklearn_batches(task)
        return peers_module.Run(run.feed, lambda: 1 / 0, run.size)

    task = tasks.load("xor", 300, 50)
    peers = [
        *PEERS[:2],
        Peer("other", "broken", "sklearn", "batches", "none", broken),
        Peer("other", "late", "sklearn", "batches", "none", late),
    ]
    comparison = compare(task, peers)
    assert [r.peer for r in comparison.results] == ["dokl", "dokl, by row"]
    assert comparison.skipped == {
        "broken": "failed: RuntimeError: no luck",
        "late": "failed: ZeroDivisionError: division by zero",
    }


def test_absent_data_is_named_and_skipped(tmp_path):
    comparisons, skipped = side_by_side(["banana", "xor"], [], 100, 50, tmp_path)
    assert [c.task.name for c in comparisons] == ["xor"]
    assert "banana.csv" in skipped["banana"]


def test_unknown_names_are_errors():
    with pytest.raises(UnknownName, match="did you mean 'banana'"):
        side_by_side(["bananas"], [], 100, 50)
    with pytest.raises(UnknownName, match="did you mean 'river'"):
        installed(["rivers"])


# -- inputs --------------------------------------------------------------------------------------
def test_all_forms_hold_the_same_rows():
    dense = np.array([[0.5, 0.0], [0.0, -2.0]])
    y = np.array([1.0, -1.0])
    plain, csr = Rows(dense, y), Rows(sparse.csr_array(dense), y)
    assert plain.dicts == [{"x0": 0.5, "x1": 0.0}, {"x0": 0.0, "x1": -2.0}]
    assert csr.dicts == [{"x0": 0.5}, {"x1": -2.0}]
    assert csr.lines == ["1 |f x0:0.5", "-1 |f x1:-2"]
    assert csr.single[1][0].toarray().tolist() == [[0.0, -2.0]]
    assert len(plain.first(1)) == 1


def test_rounds_cover_all_rows_in_whole_batches():
    for n in (1, 255, 256, 3000, 10_000, 32_561):
        rounds = rounds_of(n)
        assert rounds[0][0] == 0
        assert rounds[-1][1] == n
        assert len(rounds) <= 13
        assert all(a[1] == b[0] and a[1] % 256 == 0 for a, b in pairwise(rounds))


def test_sparse_data_and_limited_peers(monkeypatch):
    rng = np.random.default_rng(0)
    X = sparse.csr_matrix((rng.random((500, 123)) < 0.1).astype(np.float32))
    y = np.where(X[:, :60].sum(axis=1).A1 > X[:, 60:].sum(axis=1).A1, 1.0, -1.0)
    data = datasets.Dataset("adult", X[:400], y[:400], X[400:], y[400:])
    monkeypatch.setattr(datasets, "load", lambda *args: data)
    few = [
        Peer(p.family, p.name, p.package, p.fed, p.settings, p.start, p.suits, p.most and 90)
        for p in PEERS
        if p.installed
    ]
    comparison = compare(tasks.load("a9a", 130, 60), few)
    assert comparison.skipped == {}
    rows = {r.peer: r.rows for r in comparison.results}
    assert rows["dokl"] == 130
    assert rows["SVC"] == 90
    assert all(r.test > 0.5 for r in comparison.results)


def test_peak_growth_sees_what_was_there_for_a_moment():
    grown = peak_growth(lambda: bytes(b"x" * 50_000_000) and None)
    assert grown is None or grown > 40_000_000


def test_peak_growth_without_the_system_telling(monkeypatch, tmp_path):
    monkeypatch.setattr("dokl.paper.bench.memory.PROCESS", tmp_path / "nowhere")
    done = []
    assert peak_growth(lambda: done.append(1)) is None
    assert done == [1]


# -- command -------------------------------------------------------------------------------------
def test_json_alone_is_on_stdout(capfd):  # and not what libraries print from C
    args = ["bench", "--data", "xor", "--rows", "200", "--peers", "vw", "--json"]
    with pytest.raises(SystemExit) as end:
        commands(args)
    assert end.value.code == 0
    record = json.loads(capfd.readouterr().out)
    assert record["results"][0]["data"] == "xor"


def test_the_command_prints_tables_and_names_what_is_absent(tmp_path):
    picture = tmp_path / "b.svg"
    args = ["bench", "--data", "xor", "--data", "banana", "--data-dir", str(tmp_path)]
    args += ["--rows", "150", "--peers", "sklearn", "--plot", str(picture)]
    result = CliRunner().invoke(commands, args)
    assert result.exit_code == 0, result.output
    assert "xor: 150 rows to learn" in result.stdout
    assert "skipped banana: there is no banana.csv.gz" in result.stderr
    assert picture.exists()
    wrong = CliRunner().invoke(commands, ["bench", "--rows", "-1"])
    assert wrong.exit_code == 1
    assert "must be 0 (all) or more" in wrong.stderr
