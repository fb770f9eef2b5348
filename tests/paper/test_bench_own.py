"""The comparison on a user's own file: what is read, who sees what when, and what is told."""

import json
import sys
from itertools import pairwise

import numpy as np
import pytest
from click.testing import CliRunner

from commands import dokl
from dokl.base.errors import BadInput, UnknownName, install_line
from dokl.cli import commands
from dokl.paper.bench import entrants, own, show
from dokl.paper.bench.entrants import NAMES, Entrant, OwnTable, read
from dokl.paper.bench.own import chosen, compare_on
from dokl.paper.bench.tasks import Rows
from dokl.tables.jobs.sources import Source
from dokl.tables.jobs.start import Training
from variants import first

pytestmark = pytest.mark.usefixtures("short_searches")


def table(n=120, d=3, classes=0, seed=0):
    """A linear target with little noise, or classes by it."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * [1.0, 10.0, 100.0][:d] + 5.0
    y = X @ (1.0 / np.array([1.0, 10.0, 100.0][:d])) + 0.01 * rng.normal(size=n)
    scaled = (X - X.mean(axis=0)) / X.std(axis=0)
    if not classes:
        return OwnTable("mine", Rows(X, y), scaled)
    numbers = np.digitize(y, np.quantile(y, np.arange(1, classes) / classes))
    return OwnTable("mine", Rows(X, numbers), scaled, tuple("abcde"[:classes]))


@pytest.fixture
def csv(tmp_path):
    """Numbers with gaps, a text, an id, and a target that some rows lack."""
    rng = np.random.default_rng(0)
    lines = ["id,temp,place,price,kind"]
    for i in range(90):
        temp, place = rng.normal(), ("roof", "yard")[i % 2]
        price = f"{3 * temp + (place == 'roof'):.4f}" if i % 30 else ""
        lines.append(f"no{i},{f'{temp:.4f}' if i % 7 else 'NA'},{place},{price},{'ab'[temp > 0]}")
    path = tmp_path / "mine.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


# -- what is read --------------------------------------------------------------------------------
def test_rows_come_in_order_with_texts_and_gaps_as_inputs(csv):
    from dokl.tables.readers import Options

    source = Source(str(csv), Options(drop=("id", "kind"), chunk=40))
    found = read(source, Training(target="price"), None)
    assert (found.n, found.d, found.labels) == (87, 3, ())  # three rows have no price
    X = found.rows.X
    assert X[:3, 1:].tolist() == [[0.0, 1.0], [1.0, 0.0], [0.0, 1.0]]
    gap = 6  # row 7 of the file, whose number is missing: the mean of those before it
    assert X[gap, 0] == pytest.approx(X[:gap, 0].mean())
    assert found.scaled[gap, 0] == pytest.approx(0.0)
    np.testing.assert_array_equal(X[:60], read(source, Training(target="price"), 60).rows.X)
    texts = read(source, Training(target="place"), None)
    assert texts.labels == ("roof", "yard")
    assert texts.rows.y[:3].tolist() == [0, 1, 0]


def test_files_that_cannot_be_compared_on_are_refused(tmp_path):
    few, same, one = (tmp_path / f"{name}.csv" for name in ("few", "same", "one"))
    few.write_text("x,y\n" + "1,2.5\n" * 20)
    same.write_text("x,y\n" + "".join(f"{i},2.5\n" for i in range(60)))
    one.write_text("x,y\n" + "".join(f"{i},red\n" for i in range(60)))
    for path, message in ((few, "20 rows"), (same, "does not vary"), (one, "one class only")):
        with pytest.raises(BadInput, match=message):
            read(Source(str(path)), Training(target="y"), None)
    with pytest.raises(BadInput, match="--target"):
        read(Source(str(few)), Training(), None)


def test_a_libsvm_file_is_written_out(tmp_path):
    path = tmp_path / "rows.libsvm"
    path.write_text("".join(f"{i % 2} 1:{i} 3:1\n" for i in range(60)))
    found = read(Source(str(path)), Training(), None)
    assert found.rows.X[5].tolist() == [5.0, 0.0, 1.0]
    assert found.labels == (0.0, 1.0)


def test_pieces_cover_the_rows_and_end_where_fifths_do(monkeypatch):
    monkeypatch.setattr(entrants, "PIECE", 16)
    found = list(table(103).pieces())
    assert (found[0][0], found[-1][1]) == (0, 103)
    assert all(a[1] == b[0] for a, b in pairwise(found))
    assert set(table(103).cuts) == {20, 41, 61, 82} <= {j for _, j in found}


def test_errors_are_those_after_the_first_fifth():
    t = table(100)
    f = np.zeros(100)
    y = t.rows.y[20:]
    assert t.error(f) == pytest.approx(np.mean(y**2) / np.var(y))
    assert t.error(f[:20]) is None
    assert t.error(f[:60]) == pytest.approx(np.mean(y[:40] ** 2) / np.var(y[:40]))
    labels = table(100, classes=2)
    wrong = np.where(np.arange(100) < 60, labels.rows.y, 1 - labels.rows.y)
    assert labels.error(wrong) == pytest.approx(40 / 80)


# -- who sees what -------------------------------------------------------------------------------
# LightGBM and CatBoost fit hundreds of trees to ten rows, on threads that wait for each other: once
# is enough.
QUICK = [name for name in NAMES if name not in ("lightgbm", "catboost")]


@pytest.mark.parametrize(("classes", "names"), first((0, QUICK), (2, NAMES), (3, QUICK), always=2))
def test_everybody_predicts_every_row(classes, names):
    there, missing = chosen(names)
    assert len(there) + len(missing) == len(names)
    found = compare_on(table(60, classes=classes), there)
    assert found.skipped == {}
    assert not found.interrupted
    assert [o.name for o in found.outcomes] == [e.name for e in there]
    for outcome in found.outcomes:
        assert outcome.rows == 60
        assert outcome.seconds > 0
        assert np.isfinite(outcome.error)
        assert outcome.peak_growth is None or outcome.peak_growth >= 0


def test_errors_are_worth_comparing():
    names = ["auto", "kernel", "ridge", "linear", "vw"]
    found = compare_on(table(200), chosen(names)[0])
    error = {o.name: o.error for o in found.outcomes}
    assert error["ridge"] < 0.01
    assert error["auto"] < 0.1
    assert error["kernel"] < 1.0
    found = compare_on(table(200, classes=2), chosen(["auto", "ridge", "sgd"])[0])
    assert all(o.error < 0.25 for o in found.outcomes)


def test_nobody_sees_a_row_before_it_is_predicted():
    """Targets change at a row: what was predicted before it is the same."""
    t, at = table(100), 40
    changed = t.rows.y.copy()
    changed[at:] += 100.0
    other = OwnTable("mine", Rows(t.rows.X, changed), t.scaled)
    for entrant in chosen(QUICK)[0]:
        said = []
        for each in (t, other):
            feed, close = entrant.start(each)
            said.append(np.concatenate([feed(i, j) for i, j in each.pieces()]))
            close()
        np.testing.assert_allclose(said[0][: at + 1], said[1][: at + 1], err_msg=entrant.name)


def test_who_is_refitted_gets_all_rows_so_far_at_each_fifth():
    t, sizes = table(100), []

    class Model:
        def fit(self, X, y):
            sizes.append(len(X))
            return self

        def predict(self, X):
            return np.zeros(len(X))

    feed, _ = entrants._refitted(Model, t)
    for i, j in t.pieces():
        feed(i, j)
    assert sizes == [20, 40, 60, 80]
    same = OwnTable("mine", Rows(t.rows.X, np.repeat([0, 1], [50, 50])), t.scaled, ("a", "b"))
    feed, _ = entrants._refitted(Model, same)  # one class only so far: nothing can be fitted
    assert feed(20, 40).tolist() == [0] * 20
    assert sizes == [20, 40, 60, 80]


# -- missing, failing, interrupted ---------------------------------------------------------------
def test_a_missing_library_is_named_with_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    there, missing = chosen(["lightgbm", "ridge"])
    assert [e.name for e in there] == ["ridge"]
    assert missing == {"LightGBM": f"not installed: {install_line('bench')}"}
    with pytest.raises(UnknownName, match="did you mean 'forest'"):
        chosen(["forrest"])


def entrant(name, step):
    return Entrant(name, name.title(), "dokl", "made up", lambda t: (step, lambda: None))


def zeros(i, j):
    return np.zeros(j - i)


def test_one_that_fails_does_not_take_the_others_along():
    found = compare_on(table(), [entrant("bad", lambda i, j: 1 / 0), entrant("good", zeros)])
    assert found.skipped == {"Bad": "failed: ZeroDivisionError: division by zero"}
    assert [o.name for o in found.outcomes] == ["good"]


def interrupting(at, warm_ups=1):
    """Ctrl-C while row `at` is learned, after warming up."""
    starts = [0]

    def start(t):
        starts[0] += 1

        def step(i, j):
            if starts[0] > warm_ups and j > at:
                raise KeyboardInterrupt
            return zeros(i, j)

        return step, lambda: None

    return Entrant("slow", "Slow", "dokl", "made up", start)


def test_ctrl_c_leaves_what_there_is(monkeypatch):
    told = []
    found = compare_on(
        table(), [entrant("good", zeros), interrupting(60), entrant("never", zeros)],
        lambda rows, word: told.append((rows, word)),
    )  # fmt: skip
    assert found.interrupted
    assert [(o.name, o.rows) for o in found.outcomes] == [("good", 120), ("slow", 48)]
    assert found.outcomes[1].error == found.table.error(np.zeros(48))
    assert sum(rows for rows, _ in told) == 168
    assert (24, "Slow: 48 of 120 rows") in told
    assert compare_on(table(), [interrupting(0, warm_ups=0)]).outcomes == []


# -- command -------------------------------------------------------------------------------------
def test_the_command_prints_the_best_first(csv):
    asked = "bench", "--data", csv, "--target", "price", "--drop", "id", "--only", "ridge,kernel"
    result = dokl(*asked, "--rows", "80")
    assert "not used" not in result.stdout
    assert result.exit_code == 0, result.output
    assert "mine.csv: 80 rows in order, 5 inputs, regression" in result.stdout
    assert "error / variance after the first 16 rows" in result.stdout
    assert result.stdout.index("sklearn Ridge") < result.stdout.index("dokl, Kernel")
    assert "refitted to all rows at each fifth" in result.stdout
    assert "the first 80 rows of mine.csv; --rows 0 takes all" in result.stderr
    assert "smallest error: sklearn Ridge" in result.stdout
    assert "smallest error in each fifth of the rows: 2. " in result.stdout


def test_who_wins_where_is_said():
    t = table(100)
    y, last = t.rows.y, np.arange(100) >= 80

    def says(values):
        return lambda i, j: values[i:j]

    made = {"auto": y + 0.2, "early": np.where(last, y + 0.3, y), "late": np.where(last, y, y + 9)}
    found = compare_on(t, [entrant(name, says(values)) for name, values in made.items()])
    first, fifths, fastest, ours = show.winners(found)
    assert first.startswith("smallest error: Early ")
    assert "then Auto" in first
    assert "2. Early; 3. Early; 4. Early; 5. Late" in fifths
    assert fastest.startswith("fastest: ")
    assert ours.startswith("Auto is no. 2 of 3: 1.78 times the error")
    assert show.winners(compare_on(t, [entrant("auto", zeros)])) == []


def test_the_command_prints_json(csv):
    result = dokl("bench", "--data", csv, "--target", "kind", "--drop", "id", "--drop", "price",
                  "--only", "sgd", "--only", "ridge", "--json")  # fmt: skip
    assert result.exit_code == 0, result.output
    record = json.loads(result.stdout)
    assert record["classes"] == ["a", "b"]
    assert record["metric"] == "error rate"
    assert (record["rows"], record["d"], record["after"]) == (90, 3, 18)
    assert [r["name"] for r in record["results"]] == ["sgd", "ridge"]
    assert all(0 <= r["error"] < 0.5 for r in record["results"])
    assert not record["interrupted"]


def test_the_command_ends_with_130_after_ctrl_c(csv, monkeypatch):
    monkeypatch.setattr(own, "ENTRANTS", [entrant("auto", zeros), interrupting(60)])
    result = dokl("bench", "--data", csv, "--target", "price", "--drop", "id", code=130)
    assert "Auto" in result.stdout
    assert "Slow (52 rows)" in result.stdout
    assert "interrupted" in result.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--target", "y"], "name it with --data"),
        (["--only", "ridge"], "--only needs your own file"),
        (["--data", "FILE", "--data", "xor"], "one file at a time"),
        (["--data", "FILE", "--target", "price", "--peers", "river"], "see --only"),
        (["--data", "FILE", "--target", "prize"], "did you mean 'price'"),
        (["--data", "FILE", "--target", "price", "--only", "rigde"], "did you mean 'ridge'"),
        (["--data", "nowhere.csv", "--target", "price"], "nowhere.csv"),
    ],
)
def test_the_command_says_what_is_wrong(csv, options, message):
    words = [str(csv) if word == "FILE" else word for word in options]
    result = CliRunner().invoke(commands, ["bench", *words])
    assert result.exit_code in (1, 2)
    assert message in result.stderr


def test_the_help_names_all_of_them():
    text = " ".join(dokl("bench", "--help").output.split())
    assert f"On your file: {', '.join(NAMES)}; all." in text
    assert show.own_record(compare_on(table(), []))["results"] == []
