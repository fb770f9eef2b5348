"""Commands on models without settings: train, predict, evaluate, inspect, export."""

import re
import subprocess
import sys

import numpy as np
import pytest

import dokl as library
from commands import dokl, fails, json_of, make_folder, readings, rows_of, write_csv
from dokl.base.errors import BadInput
from dokl.learning.columns import Preprocessor
from dokl.learning.experts.kinds import for_numbers
from dokl.tables.jobs.in_memory import fit_table
from dokl.tables.jobs.start import MOST_INPUTS
from dokl.tables.jobs.train import ChunkPart, FrozenComparison, cut, stops
from dokl.tables.jobs.train import rows_of as some_rows
from dokl.tables.models import TableModel
from dokl.tables.models.scores import Coverage
from dokl.tables.readers import Chunk

pytestmark = pytest.mark.usefixtures("short_searches")

QUICK = ("--drop", "id", "--components", "40")
START = ("--target", "y", "--drop", "label", *QUICK)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, short_searches_of_module):
    with short_searches_of_module():
        return trained(make_folder(tmp_path_factory.mktemp("experts")))


def trained(place):
    """r.csv in two parts, and models of it: auto-auto.dokl and auto-label.dokl."""
    lines = (place / "r.csv").read_text().splitlines(keepends=True)
    for name, rows in (("first", lines[1:257]), ("rest", lines[257:])):
        (place / f"{name}.csv").write_text("".join([lines[0], *rows]))
    for name, more in (("auto", START), ("label", ("--target", "label", "--drop", "y", *QUICK))):
        path = place / f"auto-{name}.dokl"
        dokl("train", place / "r.csv", *more, "--model", path, "--quiet")
    return place


# -- train ---------------------------------------------------------------------------------------
def test_training_prints_tracking_frozen_intervals_memory_and_speed(folder, tmp_path):
    result = dokl("train", folder / "r.csv", *START, "--model", tmp_path / "m.dokl")
    for words in ("prequential", "all rows", "after row 512", "frozen there", "r2"):
        assert words in result.stdout
    assert "90 % intervals held" in result.stdout
    assert re.search(r"the model remembers all \d+ rows", result.stdout)
    assert "rows/s; model in" in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert (tmp_path / "m.dokl").read_bytes() == (folder / "auto-auto.dokl").read_bytes()


def test_programs_get_the_same_figures(folder, tmp_path):
    found = json_of("train", folder / "r.csv", *START, "--model", tmp_path / "m.dokl", "--json")
    assert found["settings"]["estimator"] == "AutoRegressor"
    assert found["prequential"]["rows"] == found["intervals"]["rows"] == 600
    assert 0.85 < found["intervals"]["coverage"] < 0.95
    assert found["intervals"]["half_width"] > 0
    assert found["frozen"]["row"] == 512
    assert found["frozen"]["rows"] == found["frozen"]["tracking"]["rows"] == 88
    assert found["frozen"]["tracking"]["r2"] > 0.9
    assert re.fullmatch(r"remembers all \d+ rows", found["remembers"])
    assert found["rows_per_second"] > 0


@pytest.mark.full_searches
def test_the_frozen_error_is_that_of_a_model_of_the_first_rows(folder, tmp_path):
    model, more, all_of_it = (tmp_path / name for name in ("m.dokl", "more.csv", "all.csv"))
    lines = (folder / "r.csv").read_text().splitlines(keepends=True)
    more.write_text("".join([lines[0], *lines[257:513]]))
    all_of_it.write_text("".join(lines[:513]))
    dokl("train", folder / "first.csv", *START, "--model", model)
    alone = json_of("evaluate", model, more, "--json")
    for arguments in ((more, "--model", model, "--continue"),
                      (all_of_it, *START, "--model", tmp_path / "n.dokl")):  # fmt: skip
        frozen = json_of("train", *arguments, "--json")["frozen"]
        assert (frozen["row"], frozen["rows"]) == (256, 256)  # no row came after row 512
        assert frozen["mse"] == pytest.approx(alone["mse"], rel=1e-9)
        assert 0.1 * frozen["mse"] < frozen["tracking"]["mse"] < frozen["mse"]
    again = ("train", folder / "first.csv", "--model", model, "--continue", "--passes", 2)
    assert json_of(*again, "--json")["frozen"] is None  # which would meet what it has learned


def test_what_is_told_of_a_snapshot(folder):
    model = TableModel.load(folder / "auto-auto.dokl")
    compared = FrozenComparison()
    assert compared.newest() is None
    compared.take(model)
    assert compared.newest() is None
    columns = {k: np.asarray(v, object if k == "place" else None) for k, v in readings(40).items()}
    chunk = Chunk(tuple(columns), columns, range(40))
    for rows, expected in ((slice(0, 40), 40), (slice(0, 5), 40)):
        piece = some_rows(chunk, rows.start, rows.stop)
        part = ChunkPart(piece, piece.columns["y"], np.ones(piece.n, bool))
        guess = compared.guess(model, part)
        np.testing.assert_allclose(guess.mean(axis=0), model.predict(piece), atol=1e-12)
        compared.add(model, part, guess, guess.mean(axis=0))
        assert compared.newest().score.n == expected
        compared.take(model)  # of which a few rows tell little: the one before is told
    assert compared.newest().figures()["tracking"] == compared.newest().score.figures()


def test_intervals_are_counted_before_each_row_was_learned(folder):
    model = TableModel.load(folder / "auto-auto.dokl")
    X = model.inputs(readings())
    y = np.asarray(readings()["y"], float)
    fresh = library.AutoRegressor(n_components=40, random_state=0)
    f, lower, upper = fresh.prequential(X, y, return_interval=0.9)
    expected = Coverage()
    expected.add(y, lower, upper)
    assert model.coverage.sums() == pytest.approx(expected.sums(), rel=1e-9)
    assert model.tally.figures()["mse"] == pytest.approx(np.mean((f - y) ** 2), rel=1e-9)


def test_numbers_go_to_the_experts_as_they_are(folder, tmp_path):
    columns = readings(200)
    columns["a"] = ["" if i % 10 == 3 else 1000 + value for i, value in enumerate(columns["a"])]
    path = write_csv(tmp_path / "r.csv", columns)
    dokl("train", path, *START, "--model", tmp_path / "m.dokl", "-q")
    model = TableModel.load(tmp_path / "m.dokl")
    assert json_of("inspect", tmp_path / "m.dokl", "--json")["standardisation"] == "off"
    X = model.inputs([{"a": 1001.5, "b": None, "place": "roof"}])
    assert X[0, 0] == 1001.5
    assert X[0, 1] == pytest.approx(np.mean(columns["b"]))
    assert X[0, 2:].tolist() == [0, 1, 0]
    fixed = ("--standardise", "fixed", "--model", tmp_path / "f.dokl")
    dokl("train", path, *START, *fixed, "-q")
    assert abs(TableModel.load(tmp_path / "f.dokl").inputs([{"a": 1001.5, "b": 0, "place": ""}])
               ).max() < 5  # fmt: skip


@pytest.mark.parametrize(
    ("options", "estimator", "experts"),
    [
        ((), "AutoClassifier", 2),
        (("--method", "bank"), "AutoClassifier", 2),
        (("-p", "experts=one"), "AutoClassifier", 1),
        (("--method", "gradient"), "KernelClassifier", 0),
    ],
)
def test_methods(folder, tmp_path, options, estimator, experts):
    start = ("--target", "label", "--drop", "y", *QUICK, *options, "--json")
    found = json_of("train", folder / "r.csv", *start, "--model", tmp_path / "m.dokl")
    assert found["settings"]["estimator"] == estimator
    assert found["settings"]["method"] == ("bank" if experts else "gradient")
    assert found["intervals"] is None
    assert (found["frozen"] is None) == (not experts)
    told = json_of("inspect", tmp_path / "m.dokl", "--json").get("experts", [])
    assert min(len(told), 2) == experts


@pytest.mark.parametrize("nodes", [(), ("--nodes", "place", "--graph", "ring")])
@pytest.mark.parametrize("method", [(), ("--method", "bank")])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--sigma", "scale"), "--sigma: only --method gradient has that"),
        (("--alpha", "0", "--loss", "squared"), "--loss, --alpha: only --method gradient has"),
        (("--kernel", "gaussian", "--features", "auto"), "--kernel, --features: only --method"),
        (("--step", "auto"), "Add --method gradient, or leave it out"),
        (("-p", "average=none"), "average is a parameter of method gradient, and this is method"),
    ],
)
def test_no_setting_chooses_a_method(folder, tmp_path, options, message, method, nodes):
    """Also not if it is given with the value that it has anyway."""
    arguments = ("train", folder / "first.csv", *START, *method, *nodes, *options)
    code = 1 if "-p" in options else 2
    assert message in dokl(*arguments, "--model", tmp_path / "m.dokl", code=code).stderr
    assert not (tmp_path / "m.dokl").exists()


def test_settings_of_the_other_method(folder, tmp_path):
    start = ("train", folder / "first.csv", *START, "--model", tmp_path / "m.dokl")
    told = dokl(*start, "--standardise", "running", code=2).stderr
    assert "--standardise running: only --method gradient has that" in told
    told = fails(*start, "--method", "gradient", "-p", "experts=one")
    assert "experts is a parameter of method bank, and this is method gradient" in told
    with pytest.raises(
        BadInput, match=r"sigma is a parameter of method gradient.*method='gradient'"
    ):
        fit_table({"a": np.arange(9.0), "y": np.arange(9.0)}, "y", sigma=1.0)


def test_settings_of_the_experts_and_of_nobody(folder, tmp_path):
    start = ("train", folder / "first.csv", "--target", "label", "--drop", "y", *QUICK)
    dokl(*start, "-p", "class_weight=balanced", "-p", "bound=5", "--model", tmp_path / "m.dokl")
    estimator = TableModel.load(tmp_path / "m.dokl").estimator
    assert (estimator.class_weight, estimator.bound) == ("balanced", 5)
    told = fails(*start, "-p", "bond=5", "--model", tmp_path / "n.dokl")
    assert "parameter of AutoClassifier 'bond'" in told


def test_networks_cooperate_or_diffuse(folder, tmp_path):
    start = ("train", folder / "first.csv", *START, "--nodes", "place", "--graph", "ring", *QUICK)
    for name, more in {"own": (), "bank": ("--method", "bank"), "old": ("--method", "gradient"),
                       "set": ("--method", "gradient", "--step", "0.5")}.items():  # fmt: skip
        model, cooperates = tmp_path / f"{name}.dokl", name in ("own", "bank")
        result = dokl(*start, *more, "--model", model)
        assert ("90 % intervals held" in result.stdout) == cooperates
        kind = "NetworkRegressor" if cooperates else "DiffusionRegressor"
        assert json_of("inspect", model, "--json")["estimator"] == kind
    asked = ("predict", tmp_path / "own.dokl", folder / "first.csv", "--by-node")
    for row in rows_of(dokl(*asked, "--interval", "90").stdout):
        assert float(row["lower"]) < float(row["prediction"]) < float(row["upper"])
    assert "--interval works" in fails(*asked, "--std")
    found = json_of("inspect", tmp_path / "own.dokl", "--json")
    assert found["method"] == "bank"
    assert found["sharing"].startswith("sharing has ")
    for row in rows_of(dokl(*asked[:-1], "--together", "--interval", "90").stdout):
        low, at, high = (float(row[name]) for name in ("lower", "prediction", "upper"))
        assert at == pytest.approx(0.5 * (low + high), abs=1e-4)
    told = dokl("export", tmp_path / "own.dokl", tmp_path / "own.c").stderr
    assert "for an unknown node: --node NAME exports one" in told
    told = dokl("export", tmp_path / "own.dokl", tmp_path / "b.c", "--node", "roof").stderr
    assert "intervals have one width in an export of a network" in told
    assert "never seen" not in told
    small = ("export", tmp_path / "own.dokl", tmp_path / "small.dokl", "--predict-only")
    assert "export it to .onnx or .c" in (told := fails(*small))
    assert "--node NAME" in told


def test_very_many_inputs_want_a_method(tmp_path):
    d = MOST_INPUTS + 1
    text = "".join(f"{i % 2} 1:{i % 5} {d}:{i % 3}\n" for i in range(40))
    (tmp_path / "wide.svm").write_text(text)
    (tmp_path / "narrow.svm").write_text(text.replace(f"{d}:", "3:"))
    told = fails("train", tmp_path / "wide.svm", "--model", tmp_path / "m.dokl")
    assert f"there are {d} inputs" in told
    assert "choose --method gradient, or --method bank, which takes minutes" in told
    for name, more, estimator in (
        ("wide", ("--method", "gradient"), "KernelClassifier"),
        ("narrow", (), "AutoClassifier"),
    ):
        model = tmp_path / f"{name}.dokl"
        dokl("train", tmp_path / f"{name}.svm", "--model", model, "--components", 20, *more)
        assert json_of("inspect", model, "--json")["estimator"] == estimator
        assert json_of("evaluate", model, tmp_path / f"{name}.svm", "--json")["rows"] == 40


def test_continuing_in_two_parts_equals_one_go_to_single_precision(folder, tmp_path):
    parts = tmp_path / "m.dokl"
    dokl("train", folder / "first.csv", *START, "--model", parts)
    result = dokl("train", folder / "rest.csv", "--model", parts, "--continue")
    assert "this run" in result.stdout
    assert "since the start" in result.stdout
    again, whole = TableModel.load(parts), TableModel.load(folder / "auto-auto.dokl")
    assert again.rows_read == whole.rows_read == 600
    rows = readings(200, seed=1)
    np.testing.assert_allclose(again.predict(rows), whole.predict(rows), atol=1e-5)
    std = [model.predict(rows, return_std=True)[1] for model in (again, whole)]
    np.testing.assert_allclose(*std, atol=1e-5)
    assert again.coverage.sums() == pytest.approx(whole.coverage.sums(), rel=1e-5)
    assert "--method" in dokl("train", folder / "rest.csv", "--model", parts, "--continue",
                              "--method", "bank", code=2).stderr  # fmt: skip


def test_the_first_rows_settle_the_classes_though_they_are_learned_in_parts(tmp_path):
    columns = {"a": np.arange(300) % 7, "label": ["x"] * 100 + ["y"] * 100 + ["z"] * 100}
    path = write_csv(tmp_path / "r.csv", columns)
    dokl("train", path, "--target", "label", "--components", 20, "--model", tmp_path / "m.dokl")
    assert json_of("inspect", tmp_path / "m.dokl", "--json")["classes"] == ["x", "y", "z"]


NO_NUMBA = """
import sys
from dokl.cli import commands
for words in sys.argv[1].split(" ; "):
    try:
        commands(words.split())
    except SystemExit as end:
        assert not end.code, words
assert "numba" not in sys.modules
"""


def test_nothing_is_compiled(folder, tmp_path):
    """Numba takes a second to load, and half a minute the first time."""
    data, model = folder / "first.csv", tmp_path / "m.dokl"
    start = " ".join(map(str, ("--chunk", 150, *START)))
    words = " ; ".join([
        f"train {data} {start} --model {model} -q",
        f"train {data} --model {model} --continue -q",
        f"predict {model} {data} -o {tmp_path / 'p.csv'} --std -q",
        f"evaluate {model} {data} -q",
        f"export {model} {tmp_path / 's.dokl'} --predict-only -q",
        f"predict {tmp_path / 's.dokl'} {data} -o {tmp_path / 'p.csv'} -q",
    ])  # fmt: skip
    done = subprocess.run([sys.executable, "-c", NO_NUMBA, words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# -- parts ---------------------------------------------------------------------------------------
def test_parts_end_at_pilots_and_snapshots_of_the_rows_that_have_a_target():
    assert stops(0, 600, (30, 60)) == [30, 32, 60, 64, 128, 256, 512, 600]
    assert stops(1000, 1200, (1500,)) == [1024, 1500, 1536, 2048, 2200]
    columns = {"a": np.arange(100.0), "y": np.where(np.arange(100) % 2, np.nan, 1.0)}
    model = TableModel(library.AutoRegressor(), Preprocessor.plan(columns, ["y"], "off"), "y")
    keep = ~np.isnan(columns["y"])
    chunk = Chunk(("a", "y"), columns, range(2, 102))
    parts = cut(model, ChunkPart(chunk, columns["y"][keep], keep))
    assert [len(part.y) for part in parts] == [30, 2, 18]
    assert [part.chunk.n for part in parts] == [59, 4, 37]
    assert ["scales" in part.doing for part in parts] == [True, False, False]
    assert [part.chunk.first_line for part in parts] == [2, 61, 65]
    nobody = ChunkPart(chunk, columns["y"][:0], np.zeros(100, bool))
    assert cut(model, nobody) == [nobody]


# -- predict, evaluate, inspect ------------------------------------------------------------------
def test_intervals_and_deviations_are_columns(folder):
    path = folder / "auto-auto.dokl"
    model, data = TableModel.load(path), folder / "r.csv"
    rows = rows_of(dokl("predict", path, data, "--interval", 95, "--std").stdout)
    assert list(rows[0]) == ["prediction", "lower", "upper", "std"]
    found = {name: np.array([float(row[name]) for row in rows]) for name in rows[0]}
    mean, std = model.predict(readings(), return_std=True)
    ahead = 1 + np.arange(len(rows))
    lower, upper = model.predict_interval(readings(), 0.95, steps_ahead=ahead)
    for name, values in (("prediction", mean), ("std", std), ("lower", lower), ("upper", upper)):
        np.testing.assert_allclose(found[name], values, rtol=1e-9, atol=1e-9)
    rows = rows_of(dokl("predict", path, data, "--keep", "id", "--interval", 50).stdout)
    assert list(rows[0]) == ["id", "prediction", "lower", "upper"]
    assert list(rows_of(dokl("predict", path, data, "--std").stdout)[0]) == ["prediction", "std"]
    assert "--interval 90" in dokl("predict", path, data, "--interval", 0.9, code=2).stderr


@pytest.mark.parametrize("option", [("--interval", "90"), ("--std",)])
def test_models_without_intervals_say_so(folder, option):
    for name, what in (("y.dokl", "a KernelRegressor"), ("auto-label.dokl", "a classifier")):
        message = fails("predict", folder / name, folder / "r.csv", *option)
        assert f"{option[0]} is for regressions by --method bank" in message
        assert what in message
    with pytest.raises(ValueError, match="no standard deviations"):
        TableModel.load(folder / "y.dokl").predict(readings(), return_std=True)


def test_several_outputs_have_several_columns(tmp_path):
    X = np.random.default_rng(0).normal(size=(80, 2))
    model = library.AutoRegressor(n_components=20, random_state=0).fit(X, X)
    path = model.save(tmp_path / "m.dokl")
    data = write_csv(tmp_path / "x.csv", {"u": X[:, 0], "v": X[:, 1]})
    row = rows_of(dokl("predict", path, data, "--interval", 90, "--std").stdout)[0]
    names = ("prediction", "lower", "upper", "std")
    assert list(row) == [f"{name} {i}" for name in names for i in (1, 2)]


def test_evaluate_counts_intervals(folder):
    result = dokl("evaluate", folder / "auto-auto.dokl", folder / "r.csv")
    assert "90 % intervals held" in result.stdout
    found = json_of("evaluate", folder / "auto-auto.dokl", folder / "r.csv", "--json")
    assert found["intervals"]["level"] == 0.9
    assert found["intervals"]["rows"] == found["rows"] == 600
    label = json_of("evaluate", folder / "auto-label.dokl", folder / "r.csv", "--json")
    assert "intervals" not in label


def test_inspect_shows_experts_relevance_memory_and_coverage(folder):
    text = dokl("inspect", folder / "auto-auto.dokl").stdout
    for words in ("AutoRegressor", "remembers", "all ", "90 % intervals", "expert",
                  "learned scales", "relevance", "b "):  # fmt: skip
        assert words in text
    found = json_of("inspect", folder / "auto-auto.dokl", "--json")
    assert next(iter(found["relevance"])) in ("a", "b")
    assert sum(found["relevance"].values()) == pytest.approx(1)
    assert len(found["experts"]) == len(for_numbers())
    assert found["experts"][0]["weight"] == max(row["weight"] for row in found["experts"])
    assert None in [row["memory"] for row in found["experts"]]
    assert found["samples_learned"] == found["intervals"]["rows"] == 600
    assert json_of("inspect", folder / "auto-label.dokl", "--json")["classes"] == ["other", "same"]


# -- export --------------------------------------------------------------------------------------
def test_a_small_copy_predicts_the_same_and_does_not_learn(folder, tmp_path):
    small, data = tmp_path / "small.dokl", folder / "r.csv"
    for name in ("auto-auto.dokl", "auto-label.dokl"):
        result = dokl("export", folder / name, small, "--predict-only", "--overwrite")
        assert f"{small}: " in result.stderr
        assert small.stat().st_size < 0.2 * (folder / name).stat().st_size
        expected, found = TableModel.load(folder / name), TableModel.load(small)
        if name == "auto-auto.dokl":
            new = readings(300, seed=2)
            np.testing.assert_allclose(found.predict(new), expected.predict(new), atol=1e-12)
        assert dokl("predict", small, data).stdout == dokl("predict", folder / name, data).stdout
        told, score = (json_of("evaluate", p, data, "--json") for p in (small, folder / name))
        assert {**told, "intervals": None} == {**score, "intervals": None}
        assert found.tally.figures() == expected.tally.figures()
        before = small.read_bytes()
        message = fails("train", data, "--model", small, "--continue")
        assert "exported for predicting only and cannot learn" in message
        assert small.read_bytes() == before
    assert json_of("inspect", small, "--json")["predict_only"] is True


def test_the_small_copy_has_intervals_of_one_width_and_no_deviations(folder, tmp_path):
    small, data = tmp_path / "small.dokl", folder / "r.csv"
    dokl("export", folder / "auto-auto.dokl", small, "--predict-only", "-q")
    rows = rows_of(dokl("predict", small, data, "--interval", 90).stdout)
    widths = np.array([float(row["upper"]) - float(row["lower"]) for row in rows])
    assert np.ptp(widths) < 1e-9
    assert "--interval works" in fails("predict", small, data, "--std")


def test_what_cannot_be_exported(folder, tmp_path):
    path, small = folder / "auto-auto.dokl", tmp_path / "small.dokl"
    assert "--predict-only" in dokl("export", path, small, code=2).stderr
    gradient = fails("export", folder / "y.dokl", small, "--predict-only")
    assert "cannot be smaller" in gradient
    small.write_text("precious")
    assert "--overwrite replaces it" in fails("export", path, small, "--predict-only")
    assert small.read_text() == "precious"
