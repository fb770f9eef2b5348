"""One name for one thing, in Python and on the command line; and what messages say to do."""

import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import dokl
from commands import dokl as run
from commands import json_of, readings, write_csv
from dokl.base import progress as bars
from dokl.base.errors import BadInput, MissingExtra
from dokl.tables.models import TableModel

pytestmark = pytest.mark.usefixtures("short_searches")

X = np.random.default_rng(0).normal(size=(300, 2))
Y = np.sin(X[:, 0]) + X[:, 1]
LABEL = np.where(Y > 0, "up", "down")


# -- names -------------------------------------------------------------------------------------
def test_components_everywhere_and_the_old_name_is_taken_with_a_note(tmp_path):
    start = ("network", "new", tmp_path / "n.toml", "--nodes", 2, "--graph", "complete",
             "--inputs", 2, "--insecure-loopback", "--overwrite")  # fmt: skip
    new, old = run(*start, "--components", 30), run(*start, "--D", 30)
    assert "--D is the earlier name of --components" in old.stderr
    assert "--D is" not in new.stderr
    assert json_of("network", "show", tmp_path / "n.toml", "--json")["model"]["D"] == 30


def test_rbf_is_a_kernel_everywhere(tmp_path):
    dokl.KernelRegressor(kernel="rbf", sigma=1.0, random_state=0).fit(X, Y)
    path = write_csv(tmp_path / "r.csv", {"a": X[:, 0], "b": X[:, 1], "y": Y})
    run("train", path, "--target", "y", "--method", "gradient", "--kernel", "rbf", "--components",
        20, "--model", tmp_path / "m.dokl")  # fmt: skip
    found = json_of("inspect", tmp_path / "m.dokl", "--json")
    assert found["kernel"]["name"] == "gaussian"


def test_topologies_take_the_names_of_nodes(tmp_path):
    rows, y = X[:140], Y[:140]
    names = np.array(["A", "B", "C", "D"])[np.arange(140) % 4]
    small = {"n_components": 20, "random_state": 0}
    fitted = dokl.NetworkRegressor("ring", **small).fit(rows, y, nodes=names)
    model = dokl.NetworkRegressor("ring", **small).partial_fit(rows, y, names)
    for each in (fitted, model):
        assert each.nodes_.tolist() == ["A", "B", "C", "D"]
        assert each.predict(rows[:3], nodes="B").shape == (3,)
        assert each.score(rows, y, nodes=names) > 0.5
        assert each.score(rows, y, nodes=names) != each.score(rows, y)
    loaded = dokl.load(model.save(tmp_path / "m.dokl"))
    np.testing.assert_array_equal(
        loaded.predict(rows, nodes=names), model.predict(rows, nodes=names)
    )
    loaded.partial_fit(rows[:20], y[:20], nodes=names[:20])
    by_number = dokl.NetworkRegressor("ring", n_nodes=4, **small).fit(rows, y, np.arange(140) % 4)
    np.testing.assert_array_equal(by_number.predict(rows), fitted.predict(rows))
    classifier = dokl.NetworkClassifier("complete", n_components=20, random_state=0)
    labels = LABEL[:140]
    assert classifier.fit(rows, labels, nodes=names).score(rows, labels, nodes="A") > 0.7


def test_a_table_of_a_network_scores_by_node(tmp_path):
    columns = readings(240) | {"station": np.array(list("ABCD"))[np.arange(240) % 4]}
    path = write_csv(tmp_path / "r.csv", columns)
    shown = run("train", path, "--target", "y", "--drop", "label", "--drop", "id", "--nodes",
                "station", "--graph", "ring", "--components", 30, "--model", tmp_path / "m.dokl",
                "--plot", tmp_path / "c.png")  # fmt: skip
    table = shown.stdout.split("nodes\n")[1]
    assert [line.split()[0] for line in table.splitlines() if line[2:3] in "ABCD"][:4] == [*"ABCD"]
    assert (tmp_path / "c.png").stat().st_size > 10_000
    model = TableModel.load(tmp_path / "m.dokl")
    rows = {name: columns[name] for name in ("a", "b", "place")}
    mine = model.score(rows, columns["y"], nodes=columns["station"])
    found = json_of("evaluate", tmp_path / "m.dokl", path, "--by-node", "--json")
    assert found["r2"] == pytest.approx(mine, abs=1e-6)
    assert sorted(found["nodes"]) == [*"ABCD"]
    assert sum(each["rows"] for each in found["nodes"].values()) == 240
    shown = run("evaluate", tmp_path / "m.dokl", path, "--by-node").stdout
    assert "node" in shown
    assert "rmse" in shown


# -- what messages say -------------------------------------------------------------------------
def test_probabilities_are_refused_with_the_remedy(tmp_path):
    model = dokl.KernelClassifier(random_state=0).fit(X, LABEL)
    assert not hasattr(model, "predict_proba")
    with pytest.raises(AttributeError, match=r"KernelClassifier\(loss='logistic'\) has it"):
        model.predict_proba(X)
    with pytest.raises(AttributeError, match="loss='logistic'"):
        TableModel(model).predict_proba(X)
    good = dokl.KernelClassifier(loss="logistic", random_state=0).fit(X, LABEL)
    np.testing.assert_allclose(good.predict_proba(X).sum(axis=1), 1)


def test_install_lines_work_from_a_checkout(monkeypatch, tmp_path):
    (tmp_path / "src" / "dokl").mkdir(parents=True)
    (tmp_path / "pyproject.toml").touch()
    monkeypatch.setattr(dokl, "__file__", str(tmp_path / "src" / "dokl" / "__init__.py"))
    assert f"pip install -e '{tmp_path}[plot]'" in str(MissingExtra("a picture", "plot"))
    monkeypatch.setattr(dokl, "__file__", str(tmp_path / "lib" / "x" / "dokl" / "__init__.py"))
    assert str(MissingExtra("x", "plot")) == "x needs an optional package: pip install 'dokl[plot]'"


def test_a_pipeline_is_told_what_can_be_saved(tmp_path):
    pipeline = make_pipeline(StandardScaler(), dokl.KernelRegressor(random_state=0)).fit(X, Y)
    with pytest.raises(BadInput, match=r"a Pipeline cannot be saved here") as told:
        dokl.save(pipeline, tmp_path / "m.dokl")
    assert "dokl.save(model['kernelregressor'], path)" in str(told.value)
    assert "dokl.fit_table(rows, target=...)" in str(told.value)
    assert "dokl train" in str(told.value)


def test_fit_table_is_dokl_train_in_python(tmp_path):
    pandas = pytest.importorskip("pandas")
    when = pandas.date_range("2024-01-01", periods=300, freq="3h")
    rows = {"when": when, "a": X[:, 0], "place": np.where(X[:, 1] > 0, "up", "down"), "y": Y}
    frame = pandas.DataFrame(rows)
    frame.to_csv(tmp_path / "r.csv", index=False)
    run("train", tmp_path / "r.csv", "--target", "y", "--model", tmp_path / "m.dokl",
        "--components", 50, "--seed", 0)  # fmt: skip
    model = dokl.fit_table(frame, "y", n_components=50, random_state=0)
    theirs = TableModel.load(tmp_path / "m.dokl")
    assert model.preprocessor.names_out == theirs.preprocessor.names_out
    np.testing.assert_allclose(model.predict(frame), theirs.predict(frame), atol=1e-5)
    loaded = dokl.load(dokl.save(model, tmp_path / "n.dokl"))
    np.testing.assert_array_equal(loaded.predict(frame[:5]), model.predict(frame[:5]))
    labels = dokl.fit_table({"a": X[:, 0], "l": LABEL}, "l", method="gradient", random_state=0)
    assert labels.classes_.tolist() == ["down", "up"]


# -- notebooks and pictures --------------------------------------------------------------------
def test_progress_in_a_notebook_needs_no_widgets(monkeypatch):
    shown = []
    handle = SimpleNamespace(update=shown.append)
    display = ModuleType("IPython.display")
    display.HTML = str
    display.display = lambda page, display_id: (shown.append(page), handle)[1]
    python = ModuleType("IPython")
    python.get_ipython = lambda: SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", python)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    monkeypatch.setattr(bars, "REFRESH_SECONDS", 0.0)
    assert bars.in_notebook()
    with bars.progress(10, "learning <b>", show=True) as bar:
        bar.advance(4)
        bar.advance(6, "x < y")
    assert len(shown) == 3
    assert 'value="4" max="10"' in shown[0]
    assert "learning &lt;b&gt;" in shown[-1]
    assert "10 of 10 samples" in shown[-1]
    assert "x &lt; y" in shown[-1]


def test_models_show_their_experts_as_html():
    model = dokl.AutoRegressor(n_components=50, random_state=0)
    assert "weight" not in model._repr_html_().split("</style>")[-1].split("rows learned")[0][-50:]
    model.partial_fit(X, Y)
    page = model._repr_html_()
    assert "<th>weight</th>" in page
    assert "300 rows learned" in page
    assert model.experts_[0]["expert"] in page
    assert "<th>weight</th>" in model._repr_mimebundle_()["text/html"]
    table = dokl.fit_table({"a": X[:, 0], "y": Y}, "y", n_components=50, random_state=0)
    assert "<th>weight</th>" in table._repr_html_()
    assert "prequential" in table._repr_html_()


def test_plots_are_figures():
    figure = pytest.importorskip("matplotlib.figure")
    table = dokl.fit_table({"a": X[:, 0], "b": X[:, 1], "y": Y}, "y", n_components=50)
    made = table.plot()
    assert isinstance(made, figure.Figure)
    assert len(made.axes) == 2
    with pytest.raises(BadInput, match="which inputs matter"):
        dokl.fit_table({"a": X[:, 0], "y": Y}, "y", method="gradient").plot()


def test_train_and_evaluate_draw_and_write_a_page(tmp_path):
    path = write_csv(tmp_path / "r.csv", {"a": X[:, 0], "b": X[:, 1], "y": Y})
    model, page, plot = tmp_path / "m.dokl", tmp_path / "r.html", tmp_path / "c.png"
    run("train", path, "--target", "y", "--model", model, "--components", 50, "--plot", plot,
        "--html", page)  # fmt: skip
    assert plot.read_bytes().startswith(b"\x89PNG")
    text = page.read_text()
    for words in ("what was guessed", "--delimiter", "relevance of inputs", "rmse", "image/png"):
        assert words in text
    assert "<script" not in text
    assert "http" not in text.replace("http-equiv", "")
    run("evaluate", model, path, "--plot", tmp_path / "e.svg", "--html", tmp_path / "e.html")
    assert "90 % intervals held" in (tmp_path / "e.html").read_text()
    assert (tmp_path / "e.svg").read_text().lstrip().startswith("<?xml")
    said = run("train", path, "--target", "y", "--model", tmp_path / "n.dokl", "--plot",
               tmp_path / "c.gif", code=1)  # fmt: skip
    assert "a picture is png, svg, pdf" in said.stderr
