"""The paper's experiments, small: what must hold whatever the number of runs."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from dokl.base.errors import UnknownName
from dokl.base.progress import Bar
from dokl.cli import commands
from dokl.network.exchange import Exchange
from dokl.paper.datasets import Dataset, waveform
from dokl.paper.reproduce import (
    beside,
    cache,
    figures,
    findings,
    html,
    lines,
    markdown,
    mnist,
    runner,
    settings,
    tables,
    texts,
    timing,
)
from dokl.paper.reproduce.parts import PARTS, choose_parts
from dokl.paper.reproduce.results import FigureCurve, PartResult, Row, bin_means, edges, middles
from dokl.paper.reproduce.settings import ReproduceOptions, classification, expected
from dokl.simulation.diffusion import Problem
from dokl.simulation.engines import run
from dokl.simulation.methods import gradient
from dokl.simulation.streams import Shards

REAL = Path(__file__).parents[3] / "shared" / "data"


@pytest.fixture
def options(tmp_path):
    return ReproduceOptions(tmp_path, seed=3, quick=True, show_progress=False)


@pytest.fixture
def panel(monkeypatch, options):
    """Run a panel with other numbers, without its theory."""

    def made(name, runs, **changes):
        monkeypatch.setattr(figures, "figure", lambda _: replace(settings.figure(name), **changes))
        monkeypatch.setattr(lines, "predict_lines", lambda *_: lines.Predicted())
        return figures.reproduce(name, replace(options, runs=runs))

    return made


def steady(result, start):
    return findings.value(result, "steady state", start)


@pytest.fixture
def waves(monkeypatch):
    """Waveform data without a file."""
    X, labels = waveform(3000, seed=1)
    data = Dataset("waveform", (X - X.mean(0)) / X.std(0), np.where(labels == 1, 1.0, -1.0))
    small = replace(settings.classification("waveform"), D=200, sizes=(1300,))
    monkeypatch.setattr(ReproduceOptions, "dataset", lambda self, name: data)
    monkeypatch.setattr(tables, "classification", lambda name: small)
    monkeypatch.setattr(beside, "classification", lambda name: small)
    return data


@pytest.fixture
def digits(monkeypatch):
    """Something like MNIST, small, and its setting."""
    rng = np.random.default_rng(2)
    X = rng.random((260, 6))
    y = np.where(X[:, 0] + X[:, 1] > 1, 1.0, -1.0)
    data = Dataset("mnist", X[:200], y[:200], X[200:], y[200:])
    setting = replace(settings.classification("mnist"), sigma2=0.3, lam=0.01, D=40)
    monkeypatch.setattr(ReproduceOptions, "dataset", lambda self, name: data)
    monkeypatch.setattr(mnist, "classification", lambda name: setting)
    monkeypatch.setattr(mnist, "QUICK_D", setting.D)
    return data, setting


class TestFigures:
    def test_cooperation_helps_in_example_1(self, panel):
        result = panel("fig1a", 3, n=4000, D=1500)
        assert steady(result, "together") < steady(result, "alone") - 1.5
        assert -20 < steady(result, "together") < -15

    def test_cooperation_helps_in_example_2(self, panel):
        result = panel("fig1b", 4, n=3000)
        assert steady(result, "together") < steady(result, "alone") - 1

    def test_cooperation_hurts_in_example_3(self, panel):
        result = panel("fig1c", 20)
        assert steady(result, "together") == pytest.approx(-23.36, abs=0.7)
        assert steady(result, "alone") == pytest.approx(-29.22, abs=0.7)
        assert "hurts" in result.notes[0]

    def test_cooperation_helps_in_example_4(self, panel):
        result = panel("fig1d", 20)
        assert steady(result, "together") == pytest.approx(-26.17, abs=0.4)
        assert steady(result, "alone") == pytest.approx(-23.35, abs=0.4)

    def test_steady_state_of_example_5_rises_with_D_towards_2_s2(self, panel):
        result = panel("fig2", 8, n=4000, widths=(500, 2000))
        few, many = (steady(result, f"D = {D}") for D in (500, 2000))
        assert few == pytest.approx(-15.87, abs=0.4)
        assert many == pytest.approx(-16.66, abs=0.3)
        assert few > many > result.levels[lines.RIGHT_LEVEL] > result.levels[lines.PAPER_LEVEL]

    @pytest.mark.parametrize(("name", "runs", "size"), [("fig3c", 60, 7.35), ("fig3d", 30, 32.0)])
    def test_dictionary_sizes(self, panel, name, runs, size):
        row = findings.row(panel(name, runs), "dictionary", "QKLMS centres")
        assert row.ours == pytest.approx(size, abs=4 * row.error)

    def test_example_5_needs_q_of_1(self, panel):
        sizes = {}
        for q in (1.0, 5.0):
            result = panel("fig3a", 2, D=50, n=3000, q=q)
            sizes[q] = findings.value(result, "dictionary", "QKLMS centres")
        assert sizes[1.0] > 600
        assert sizes[5.0] < 120

    def test_theory_lines(self, options, monkeypatch):
        small = replace(settings.figure("fig1a"), D=200, n=600, nodes=4)
        monkeypatch.setattr(figures, "figure", lambda _: small)
        monkeypatch.setattr(lines, "POINTS", 256)
        result = figures.reproduce("fig1a", replace(options, runs=4))
        theory = [c for c in result.curves if c.theory]
        assert len(theory) == 4
        assert all(len(c.mean) == len(c.at) == len(middles(600)) for c in theory)
        right, printed = (
            findings.value(result, "theory", f"{words}: alone")
            for words in reversed(lines.METHODS.values())
        )
        assert right == pytest.approx(steady(result, "alone"), abs=6)  # one map, few targets
        assert printed < right

    def test_bins(self):
        cuts = edges(5000)
        assert cuts[0] == 0
        assert cuts[-1] == 5000
        assert (np.diff(cuts) > 0).all()
        assert len(cuts) < 300
        curve = np.random.default_rng(0).random((2, 5000))
        assert (bin_means(curve) * np.diff(cuts)).sum() == pytest.approx(curve.sum())


class TestTables:
    @pytest.mark.slow
    def test_cooperation_helps(self, options, waves):
        result = tables.reproduce("table3", "waveform", replace(options, runs=3))
        for times in (1, 2, 5):
            both = [
                findings.value(result, "N = 1300", f"{words} ({times})")
                for words in tables.WORDS.values()
            ]
            assert both[0] < both[1] - 1
        rows = result.rows
        assert rows[2].ours < rows[0].ours  # more passes, fewer errors
        assert rows[0].paper == 16.26
        assert rows[0].prototype == 14.82

    def test_error_rates_are_those_of_the_map(self):
        setting = replace(settings.classification("banana"), D=30)
        rng = np.random.default_rng(1)
        problem = tables.problem_of(setting, 2)
        drawn = Problem(
            problem.features.draw(5), gradient(problem.method.loss, problem.method.schedule)
        )
        X, theta = rng.normal(size=(200, 2)), rng.normal(size=(2, 3, 30))
        y = np.where(rng.random(200) < 0.5, 1.0, -1.0)
        f = drawn.features.transform(X) @ theta.reshape(6, 30).T
        true = 100 * (np.where(f >= 0, 1, -1) != y[:, None]).mean(axis=0).reshape(2, 3)
        np.testing.assert_allclose(tables.error_rates(drawn, theta, X, y), true, atol=0.6)

    def test_beside_averaging_and_the_combined_vector_help(self, options, waves):
        result = beside.reproduce("waveform", replace(options, runs=2))
        at = {key: findings.value(result, "N = 1300", beside.WORDS[key] + " (1)")
              for key in ("cta", "atc", "cta-average", "ours", "central-average")}  # fmt: skip
        assert at["ours"] < at["cta"]
        assert at["atc"] < at["cta"]
        assert at["cta-average"] < at["cta"]
        assert at["central-average"] < at["cta"]
        assert findings.value(result, "N = 1300", beside.WORDS["svc"]) < at["cta"]

    def test_blocks_of_features_give_what_the_engine_gives(self, digits, monkeypatch):
        data, setting = digits
        monkeypatch.setattr(mnist, "BLOCK", 40 * 60)
        found = mnist.realize(mnist.draw(data, setting, 200, seed=4))
        own = mnist.spawn(4, 3)
        rows = mnist.split(data, 200, seed=own[2])
        shards = Shards(rows.X_train, rows.y_train, 20, shuffle=False, passes=5)
        problem = tables.problem_of(setting, 6)
        drawn = replace(problem, features=problem.features.draw(own[0]))
        exchange = Exchange(tables.graph(20).draw(own[1]), "cta")
        state = run(drawn, exchange, shards, record=("state",), dtype=np.float64).states[0]
        errors = tables.error_rates(drawn, state.theta[:, 0], rows.X_test, rows.y_test)
        assert found["20-together"][-1] == pytest.approx(errors.mean(), abs=1.0)
        assert set(found) == {"5-together", "5-alone", "20-together", "20-alone"}

    @pytest.mark.slow
    def test_mnist_gives_the_same_with_jax(self, digits, options):
        data, _ = digits
        both = {}
        for engine in ("auto", "jax"):
            asked = replace(options, runs=3, engine=engine)
            result = tables.reproduce("table2", "mnist", asked)
            assert result.made["engine"] == {"auto": "numpy", "jax": "jax"}[engine] + ", float32"
            assert ("jax" in result.made["machine"]) == (engine == "jax")
            assert not any(row.judged for row in result.rows)
            both[engine] = cache.gather(asked.out, mnist.work(data, asked), 3, Bar()).arrays
        assert len([*options.out.glob("cache/*/*")]) == 6
        for name, errors in both["auto"].items():
            assert errors.shape == (3, 3)
            assert 2 < errors.mean() < 40
            # Rounding may flip a prediction: one of 60, of one of five nodes, makes 0.33 points.
            np.testing.assert_allclose(both["jax"][name], errors, atol=0.7, err_msg=name)

    def test_mnist_takes_a_gpu_where_there_is_one(self, digits, options, monkeypatch):
        data, _ = digits
        whole = replace(options, quick=False)
        for asked, there, engine, runs in (
            ("auto", None, "numpy", 1), ("auto", "Thinking Machine", "jax", 10),
            ("jax", None, "jax", 10), ("numba", "Thinking Machine", "numpy", 1),
        ):  # fmt: skip
            monkeypatch.setattr(mnist, "gpu", lambda there=there: there)
            own = replace(whole, engine=asked)
            assert mnist.engine_of(own) == engine
            assert mnist.work(data, own).runs == runs

    def test_times_and_sizes(self, options, monkeypatch):
        small = {name: replace(settings.figure(name), n=400, D=50) for name in timing.PANELS}
        monkeypatch.setattr(timing, "figure", small.get)
        result = timing.reproduce(options)
        ratios = [r for r in result.rows if "/" in r.what]
        assert len(ratios) == 4
        assert all(r.ours > 0 and r.paper > 1 for r in ratios)


class TestResume:
    def work(self, calls, stop_at=None, runs=35):
        def compute(seed, count):
            if len(calls) == stop_at:
                raise KeyboardInterrupt
            calls.append((seed, count))
            return {"x": np.full((count, 2), seed % 1000, float)}

        return cache.Work("test", {"a": 1}, runs, 10, compute)

    def test_nothing_is_computed_twice(self, tmp_path):
        calls = []
        with pytest.raises(KeyboardInterrupt):
            cache.gather(tmp_path, self.work(calls, stop_at=2), 1, Bar())
        assert [count for _, count in calls] == [10, 10]
        work = self.work(calls)
        assert work.missing(tmp_path) == 15
        found = cache.gather(tmp_path, work, 1, Bar())
        assert [count for _, count in calls] == [10, 10, 10, 5]
        assert found.arrays["x"].shape == (35, 2)
        again = cache.gather(tmp_path, self.work(calls), 1, Bar())
        assert len(calls) == 4
        np.testing.assert_array_equal(again.arrays["x"], found.arrays["x"])

    def test_other_settings_are_another_work_and_damage_is_repaired(self, tmp_path):
        calls = []
        cache.gather(tmp_path, self.work(calls, runs=10), 1, Bar())
        other = cache.Work("test", {"a": 2}, 10, 10, self.work([]).compute)
        assert other.missing(tmp_path) == 10
        next(tmp_path.glob("cache/*/*")).write_bytes(b"half a file")
        cache.gather(tmp_path, self.work(calls, runs=10), 1, Bar())
        assert len(calls) == 2

    def test_an_interrupted_command_goes_on(self, tmp_path, monkeypatch):
        command = ["reproduce", "fig1", "--only", "c", "--runs", "30", "--out", str(tmp_path), "-q"]
        whole, done = figures.run, []

        def interrupted(*args, **how):
            if len(done) == 4:
                raise KeyboardInterrupt
            done.append(how["seed"])
            return whole(*args, **how)

        monkeypatch.setattr(figures, "run", interrupted)
        result = CliRunner().invoke(commands, command)
        assert result.exit_code == 130
        kept = {path: path.stat().st_mtime_ns for path in tmp_path.glob("cache/*/*")}
        assert len(kept) == 4
        monkeypatch.setattr(
            figures, "run", lambda *a, **h: (done.append(h["seed"]), whole(*a, **h))[1]
        )
        result = CliRunner().invoke(commands, command)
        assert result.exit_code == 0, result.output
        assert len(done) == 6
        assert all(path.stat().st_mtime_ns == when for path, when in kept.items())
        for name in ("fig1c.png", "fig1c.svg", "fig1c.csv", "fig1c.json", "report.html"):
            assert (tmp_path / name).stat().st_size > 200


def a_result(name="fig1a"):
    made = ReproduceOptions(None).made([cache.Gathered({}, 3.0, "0.1.0")], 2)
    at, mean = [1.0, 2.0, 3.0], [1.0, 0.1, 0.02]
    rows = [
        Row("steady state", "together", "dB", -19.0, 0.1, 20, None, -18.96),
        Row("steady state", "alone", "dB", -12.0, 0.1, 20, None, -16.74),
    ]
    curves = [FigureCurve(label, at, mean, mean, mean) for label in ("together", "alone")]
    curves.append(FigureCurve("theory, fourth order: alone", at, mean, theory=True))
    return PartResult(name, "Example 1: <small>", rows, curves, {}, ["A remark."], made)


class TestReport:
    def test_a_row_agrees_within_three_errors_or_0_3_dB(self):
        assert Row("", "", "dB", -19.0, 0.01, 9, None, -19.2).agrees()
        assert Row("", "", "%", 10.0, 0.1, 9, 11.0, 10.5, 0.1).agrees() is False
        assert Row("", "", "%", 10.0, 0.1, 9, 11.0, 10.4, 0.1).agrees()
        assert Row("", "", "%", 10.0, 0.1, 9, 11.0).agrees() is None
        assert Row("", "", "%", 10.0, 0.1, 2, 11.0, 10.5, 0.1).agrees() is None  # too few runs
        assert Row("", "", "%", 10.0, 0.5, 9, 11.0).from_paper() == -2.0

    def test_the_page_is_self_contained(self):
        page = html.page({"fig1a": a_result()})
        assert "http" not in page.replace("http-equiv", "")
        assert all(
            src.startswith("data:image/png;base64,") for src in re.findall('src="(.*?)"', page)
        )
        assert "&lt;small&gt;" in page
        assert "seed 1" in page
        assert "Not run: fig1b" in page
        assert 'class="no"' in page

    def test_the_text_lists_every_exception(self, tmp_path):
        written = markdown.write({"fig1a": a_result()}, tmp_path / "R.md")
        text = written[0].read_text()
        assert "alone: ours -12.00 dB, prototype -16.74" in text
        assert "1 of 2 figures agree" in text
        assert (tmp_path / "docs" / "reproduction" / "fig1a.png").exists()
        assert str(tmp_path) not in text

    def test_the_text_tells_where_mnist_differs_from_the_paper(self):
        found = {f"{K}-{who}": np.array([[1.0, 0.7, 0.6], [1.1, 0.7, 0.5]] * 3)
                 for K in (5, 20) for who in tables.WORDS}  # fmt: skip
        rows = tables.rows_of("mnist", 0, 5, {w: found[f"5-{w}"] for w in tables.WORDS}, True)
        made = {**a_result().made, "runs": 6, "seconds": 90.0}
        results = {"table2-mnist": PartResult("table2-mnist", "MNIST, 5 nodes", rows, made=made)}
        told = findings.against(results)
        assert "Distributed-Pegasos (1) +0.26" in told
        assert "(5) -0.04" not in told
        assert "do not all agree" in told
        assert "1.5 minutes for all four networks, 6 runs, on" in findings.summary(results)
        assert findings.against({"table2-mnist": replace(results["table2-mnist"], rows=[])}) == ""

    def test_results_are_stored_and_written_again(self, tmp_path):
        runner.save(tmp_path, a_result())
        assert runner.read_results(tmp_path)["fig1a"] == a_result()
        runner.write(tmp_path)
        assert json.loads((tmp_path / "fig1a.json").read_text())["rows"][0]["agrees"] is True
        first = (tmp_path / "fig1a.svg").read_bytes()
        assert b"<svg" in first

    def test_provenance_names_the_gpu(self):
        made = a_result().made
        where = made["machine"] | {"gpu": "Thinking Machine", "jax": "0.8"}
        told = texts.provenance({**made, "engine": "jax, float32", "machine": where})
        assert "jax, float32" in told
        assert "Thinking Machine, JAX 0.8; " in told
        assert "(shared)" not in told

    def test_provenance_names_no_place(self):
        told = texts.provenance(a_result().made)
        assert "cores" in told
        assert "/" not in told.replace("(shared)", "")


class TestCommand:
    def test_list(self, tmp_path):
        shown = CliRunner().invoke(
            commands, ["reproduce", "list", "--json", "--out", str(tmp_path)]
        )
        assert [row["part"] for row in json.loads(shown.output)] == list(PARTS)

    def test_missing_data_says_where_to_get_it(self, tmp_path):
        asked = ["reproduce", "table2", "--only", "banana", "--data-dir", str(tmp_path)]
        shown = CliRunner().invoke(commands, [*asked, "--out", str(tmp_path / "out")])
        assert shown.exit_code == 1
        assert "banana" in shown.output

    def test_names(self, tmp_path):
        with pytest.raises(UnknownName, match="fig1"):
            choose_parts("fig11")
        with pytest.raises(UnknownName, match="banana"):
            choose_parts("table2", ("bananas",))
        assert [p.name for p in choose_parts("table3", ("mnist",))] == ["table3-mnist"]
        assert "table3-mnist" not in [p.name for p in choose_parts("all")]
        assert "table3-mnist" in [p.name for p in choose_parts("all", long=True)]

    def test_engines(self, tmp_path):
        with pytest.raises(UnknownName, match="Known: auto, jax, numba, reference"):
            ReproduceOptions(tmp_path, engine="mpi")
        jax, numba = (ReproduceOptions(tmp_path, engine=name) for name in ("jax", "numba"))
        assert "it runs numba, not jax" in runner.remark(PARTS["table5"], jax)
        assert "runs in NumPy" in runner.remark(PARTS["table2-mnist"], numba)
        assert runner.remark(PARTS["table2-mnist"], jax) == ""
        assert runner.remark(PARTS["fig1a"], jax) == ""

    def test_report_without_results(self, tmp_path):
        asked = ["reproduce", "report", "--out", str(tmp_path), "--md", str(tmp_path / "R.md")]
        shown = CliRunner().invoke(commands, asked)
        assert shown.exit_code == 1
        assert "no results yet" in shown.output

    def test_every_expected_figure_has_its_part(self):
        told = settings.expected()
        assert all(name in PARTS for name in told["steady"])
        for data in ("adult", "banana", "waveform", "mnist"):
            for size in settings.classification(data).sizes:
                table = told["tables"][f"{data}-{size}" if size else data]
                assert all(
                    len(row["paper"]) == len(row["prototype"]) == 3 for row in table.values()
                )


@pytest.mark.skipif(
    not (REAL / "waveform.csv.gz").is_file(),
    reason="the real data files are not in ../shared/data",
)
def test_the_prototypes_floor_of_waveform_is_of_one_split():
    from sklearn.svm import SVC

    setting, N = classification("waveform"), 4000
    rows = np.loadtxt(REAL / "waveform.csv.gz", delimiter=",", skiprows=1)
    X, y = rows[:, :-1], rows[:, -1]
    machine = SVC(C=1 / (setting.lam * N), gamma=1 / (2 * setting.sigma2)).fit(X[:N], y[:N])
    error = 100 * np.mean(machine.predict(X[N:]) != y[N:])
    assert error == pytest.approx(expected()["beside"]["waveform"]["svc"], abs=0.05)
