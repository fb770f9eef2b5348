import json
import shlex
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from commands import dokl, fails, json_of, write_csv
from dokl import (
    AutoRegressor,
    Exchange,
    KernelRegressor,
    Mixing,
    NetworkRegressor,
    Sending,
    graphs,
    run,
)
from dokl.base.errors import BadInput
from dokl.cli import commands
from dokl.live.certificates.checks import problems
from dokl.live.description import read
from dokl.simulation.streams import Stream
from dokl.tables.models import TableModel
from dokl.tables.plan import Budget, compare, plan, plan_law
from dokl.tables.plan.pilots import STEPS, WIDTHS, Candidate, best_of
from dokl.tables.plan.questions import learning_curve
from dokl.tables.plan.ways import VectorRules

pytestmark = pytest.mark.usefixtures("short_searches")
rng = np.random.default_rng(0)
X = rng.normal(size=(3000, 3))
y = np.sin(X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.normal(size=3000)
labels = np.where(X[:, 0] * X[:, 1] > 0, "same", "other")
ring = graphs.metropolis(graphs.ring(10))


def value(made, name):
    return next(line.value for line in made.lines if line.name == name)


@pytest.fixture(scope="module")
def advised(short_searches_of_module):
    with short_searches_of_module():
        return plan(X, y, D=256, weights=ring)


def test_the_advice_learns_and_the_prediction_holds(advised):
    model = advised.estimator(random_state=5)
    scores = model.prequential(X, y)
    measured = np.mean((scores[-1000:] - y[-1000:]) ** 2)
    predicted = advised.curve_alone.mse[1999:2999].mean()
    assert 0.6 < predicted / measured < 1.7  # from 1500 rows, function and noise both estimated
    assert value(advised, "predicted steady error") < value(advised, "predicted steady error alone")


def test_the_price_is_at_most_two_passes_and_a_bit(advised):
    assert advised.spent <= 64 / 30 * len(X) * 256


def test_every_line_says_what_it_rests_on(advised):
    assert all(line.rests_on for line in advised.lines)
    assert value(advised, "lambda_2") == pytest.approx(graphs.describe(ring).lambda_2)
    sent = value(advised, "bytes sent per node and second")
    assert sent == 4 * 256 * 2  # two links, once a second


def test_labels_make_a_classifier():
    made = plan(X, labels, D=200)
    assert made.task == "classification"
    assert made.curve is None
    model = made.estimator(random_state=1).partial_fit(X, labels, classes=["other", "same"])
    assert model.score(X, labels) > 0.9


@pytest.mark.parametrize(
    ("targets", "task"),
    [(1 + (y > 0), "classification"), (np.rint(200 * y).astype(int), "regression")],
)
def test_the_task_is_that_of_train(targets, task, tmp_path):
    """Few kinds of whole numbers are classes and many are numbers, in `plan` as in `train`."""
    made = plan(X[:500], targets[:500], D=50)
    assert made.task == task
    rows = zip(*X[:500, :2].T.tolist(), targets[:500].tolist(), strict=True)
    text = "".join(f"{a!r},{b!r},{t}\n" for a, b, t in rows)
    (tmp_path / "r.csv").write_text("a,b,t\n" + text)
    arguments = ("train", tmp_path / "r.csv", "--target", "t", "--model", tmp_path / "m.dokl")
    found = json_of(*arguments, "--components", 20, "--json")["prequential"]
    assert ("accuracy" in found) == (task == "classification")


def test_several_classes():
    three = np.where(X[:, 0] > 0.5, 2, np.where(X[:, 1] > 0, 1, 0))
    made = plan(X, three, D=100, task="classification")
    assert made.estimator(random_state=1).fit(X, three).score(X, three) > 0.85


def test_a_network_with_these_settings_learns(advised):
    import networkx as nx

    network = advised.network(nx.cycle_graph(10), random_state=0).fit(X, y)
    assert network.score(X, y) > 0.9


def test_the_memory_budget_sets_the_size():
    made = plan(X[:250], y[:250], budget=Budget(memory=2000))
    assert value(made, "memory of a node, bytes") <= 2000
    assert "memory" in next(line.rests_on for line in made.lines if line.name == "D")


def test_the_time_budget_sets_the_size():
    made = plan(X[:250], y[:250], budget=Budget(microseconds=0.02))
    assert made.D < 1000


def test_the_bytes_budget_spaces_the_exchange():
    budget = Budget(rate=10, bytes_per_second=2000)
    made = plan(X[:250], y[:250], D=100, weights=ring, budget=budget)
    assert made.every == 4  # 100 floats to two neighbours ten times a second are 8000 bytes
    assert value(made, "bytes sent per node and second") <= 2000


@pytest.mark.parametrize(("wanted", "word"), [(1e-9, "not reached"), (10.0, "reached")])
def test_accuracy_gets_a_verdict(wanted, word):
    made = plan(X[:250], y[:250], D=100, budget=Budget(accuracy=wanted))
    assert value(made, f"accuracy {wanted:g}").startswith(word)


def test_a_stated_law_needs_no_data():
    made = plan_law(np.zeros(2), 1.0, noise=0.1, sigma=2.0, D=200, mu=1.0, variant="paired")
    assert value(made, "step limit in the mean square") == pytest.approx(2.0, abs=1e-3)
    # |z| = 1: steady state J (1 + mu / (2 - mu)) = 2 J
    assert value(made, "predicted steady error") == pytest.approx(
        2 * value(made, "smallest reachable error"), rel=0.01
    )
    half = plan_law(np.zeros(2), 1.0, noise=0.1, sigma=2.0, D=200, variant="paired")
    assert half.schedule.scale == pytest.approx(1.0, abs=1e-3)


def test_neighbours_outvote_a_lucky_one():
    found = {Candidate(w, 4): 0.3 for w in range(len(WIDTHS))}
    found |= {Candidate(2, 4): 0.11, Candidate(3, 4): 0.10, Candidate(4, 4): 0.11}
    found[Candidate(7, 4)] = 0.09  # alone among bad ones: luck
    assert best_of(found, 1) == [Candidate(3, 4)]


def test_near_stays_inside_the_lists():
    corner = set(Candidate(0, len(STEPS) - 1).near())
    assert corner == {Candidate(0, 7), Candidate(0, 6), Candidate(1, 7)}


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (lambda: plan(X[:10], y[:10]), "50 rows"),
        (lambda: plan(X, y[:-1]), "one target a row"),
        (lambda: plan(X, y, task="guess"), "task must be"),
        (lambda: plan(np.ones((100, 2)), y[:100]), "all rows of the sample are the same"),
        (lambda: plan(X, np.full(3000, "a")), "one class only"),
        (lambda: plan(np.where(X > 3, np.nan, X), y), "NaN or infinity"),
        (lambda: Budget(rate=0), "rate must be above 0"),
        (lambda: plan(X, y, budget=Budget(memory=8)), "no room"),
    ],
)
def test_bad_input_is_said_in_one_line(bad, said):
    with pytest.raises(BadInput, match=said):
        bad()


def test_the_plan_is_json(advised):
    packed = json.loads(json.dumps(advised.to_dict()))
    assert packed["D"] == 256
    assert len(packed["curve"]["mse"]) <= 201


def test_the_command_plans_and_draws(tmp_path):
    data = tmp_path / "readings.csv"
    rows = "\n".join(f"{a:.5f},{b:.5f},{c:.5f},{t:.5f}" for (a, b, c), t in zip(X, y, strict=True))
    data.write_text("a,b,c,y\n" + rows + "\n")
    picture = tmp_path / "curve.png"
    words = ["plan", str(data), "--target", "y", "--components", "100", "--graph", "ring"]
    words += ["--rows", "200"]
    shown = CliRunner().invoke(commands, [*words, "--plot", str(picture), "--json"])
    assert shown.exit_code == 0, shown.output
    assert json.loads(shown.stdout)["task"] == "regression"
    assert picture.stat().st_size > 5000


@pytest.mark.slow
@pytest.mark.full_searches
def test_advice_takes_changes_and_is_never_worse_than_no_settings():
    rng = np.random.default_rng(0)
    rng.normal(size=(4, 3000))  # of other draws most mislead the search, or it is not taken
    inputs = rng.normal(size=(2000, 8))  # one of which counts
    target = np.sin(3 * inputs[:, 0]) + 0.1 * rng.normal(size=2000)
    made = plan(inputs, target, D=128)
    assert made.lengths is not None
    assert made.lengths[0] < 0.5 * min(made.lengths[1:])
    models = made.estimator(random_state=0), KernelRegressor(n_components=128, random_state=0)
    ours, usual = (np.mean((m.prequential(inputs, target) - target)[1000:] ** 2) for m in models)
    assert ours < 0.5 * usual
    assert made.estimator(n_components=40).n_components == 40
    spelled = KernelRegressor(sigma=made.lengths, n_components=128, random_state=0)
    assert spelled.partial_fit(inputs, target).fingerprint_ == models[0].fingerprint_


def lines_of(folder, *options, target=None, rows=1000):
    """What the command says under `applied` and the like, and the file it was asked about."""
    data = folder / "readings.csv"
    target = y if target is None else target
    text = "\n".join(f"{a:.5f},{b:.5f},{t}" for (a, b, _), t in zip(X, target, strict=True))
    data.write_text("a,b,y\n" + text + "\n")
    shown = dokl("plan", data, "--target", "y", "--rows", rows, *options).stdout.splitlines()
    return {what[:-1]: line.strip() for what, line in pairwise(shown) if line.startswith("  dokl ")}


def apply(line, folder):
    """Run a command that was printed, with its files in a folder."""
    words = shlex.split(line)[1:]
    made = {name: str(folder / name) for name in ("model.dokl", "network.toml")}
    dokl(*(made.get(word, word) for word in words))
    return next(Path(made[word]) for word in words if word in made)


@pytest.mark.full_searches
def test_the_command_prints_the_lines_that_apply_its_advice(tmp_path):
    lines = lines_of(tmp_path, "--components", 60)
    assert "--method gradient" in lines["applied"]
    model = apply(lines["applied"], tmp_path)
    assert TableModel.load(model).estimator.n_components == 60
    network = read(apply(lines["as a live network"], tmp_path))
    assert problems(network) == []
    widths = f"{lines['applied']} ".partition("--sigma ")[2].partition(" ")[0]
    assert network.model.sigma == tuple(map(float, widths.split(",")))
    assert network.model.D == 60
    assert network.exchange.every_samples == 1


def test_a_network_of_classes_is_made_by_its_line(tmp_path):
    options = "--components", 40, "--graph", "star", "--nodes", 4
    lines = lines_of(tmp_path, *options, target=labels, rows=200)
    network = read(apply(lines["as a live network"], tmp_path))
    assert network.inputs.labels == ("other", "same")
    assert (network.model.loss, network.model.schedule, len(network.names)) == (
        "hinge",
        "pegasos",
        4,
    )


@pytest.mark.slow
@pytest.mark.full_searches
def test_experts_are_advised_unless_a_budget_forbids_them(tmp_path):
    few = slice(400)
    made = plan(X[few], y[few])
    assert made.method == "bank"
    assert isinstance(made.estimator(n_components=50), AutoRegressor)
    assert made.estimator().random_state == 0  # as `dokl train`: the same model each time
    assert made.estimator(random_state=5).random_state == 5
    assert isinstance(made.estimator("gradient"), KernelRegressor)
    floor, pilots = value(made, "smallest reachable error"), value(made, "error of the experts")
    assert 0 < floor < pilots < value(made, "mean square error of the pilots")
    reached = made.estimator(random_state=0, n_components=200).prequential(X[:900], y[:900])
    assert floor < np.mean((reached - y[:900])[600:] ** 2)
    for budget in (Budget(memory=1e6), Budget(microseconds=0.5)):
        assert plan(X[few], y[few], budget=budget).method == "gradient"


@pytest.mark.full_searches
def test_advice_is_stable_over_seeds():
    few, test = slice(300), slice(1000, None)
    made = [plan(X[few], labels[few], seed=seed) for seed in (0, 1)]
    assert {each.method for each in made} == {"bank"}
    models = [each.estimator(random_state=i, n_components=100) for i, each in enumerate(made)]
    learned = [m.partial_fit(X[few], labels[few], classes=["other", "same"]) for m in models]
    wrong = [1 - m.score(X[test], labels[test]) for m in learned]
    assert max(wrong) <= 1.1 * min(wrong)


@pytest.fixture(scope="module")
def compared(tmp_path_factory, short_searches_of_module):
    data = tmp_path_factory.mktemp("ways") / "readings.csv"
    rows = np.column_stack([X[:300, :2], y[:300]])
    np.savetxt(data, rows, delimiter=",", header="a,b,y", comments="")
    words = ("plan", data, "--target", "y", "--components", 60, "--graph", "ring", "--nodes", 5)
    with short_searches_of_module():
        return dokl(*words, "--bytes", 3000, "--verbose")


@pytest.mark.slow
def test_ways_to_share_are_compared_in_a_table(compared):
    rows = [line.split() for line in compared.stdout.splitlines() if line.startswith("  squares, ")]
    assert [row[1] for row in rows].count("sums") == 3
    assert "over budget" in compared.stdout
    assert sum(line.rstrip().endswith(" best") for line in compared.stdout.splitlines()) == 1


def test_each_way_runs_as_its_line_says(compared):
    lines = [line.strip() for line in compared.stdout.splitlines()]
    lines = lines[lines.index("in Python, of a stream of your rows:") + 1 :]
    names = {"stream": Stream(X[:60, None, :2].repeat(5, 1), y[:60, None].repeat(5, 1))}
    for line in lines:
        way = line.partition("#")[2].strip()
        exec(f"made = {line}" if way else line, names)
        if way.startswith("banks, "):
            assert type(names["made"]) is NetworkRegressor
            assert names["made"].share == way.partition(", ")[2]
        elif way:
            assert np.isfinite(names["made"]["mse"]).all()
    assert sum("# " in line for line in lines) == 8


def test_ways_are_what_they_say():
    made = plan(X[:200], y[:200], D=60, weights=ring)
    ways = compare(made, X[:200], y[:200], ring, Budget(bytes_per_second=1000))
    found = {(way.name, way.every): way for way in ways}
    assert [way.bytes_sent for way in ways] == sorted(way.bytes_sent for way in ways)
    assert found["gradient, vectors", 1].bytes_sent == 60 * 4 * 2
    assert found["squares, alone", 0].bytes_sent == 0
    assert found["squares, sums", 1].error < found["squares, alone", 0].error
    assert not found["squares, sums", 1].fits
    # Everybody passes on every row of 10 nodes over two links: a header and four numbers. Rows of
    # the last five steps are still on their way.
    assert found["banks, rows", 1].bytes_sent == 10 * 2 * (32 + 4 * 8) * 15 / 20
    assert found["banks, sums", 1].bytes_sent == 0  # 20 rows of a node are too few to send
    stream = Stream(X[:200].reshape(20, 10, 3), y[:200].reshape(20, 10))
    way = found["squares, sums", 10]
    assert run(way.problem, way.exchange, stream)["mse"][10:].mean() == pytest.approx(way.error)
    wide = graphs.metropolis(graphs.ring(30))
    with pytest.raises(BadInput, match="too few to try 30 nodes"):
        compare(made, X[:50], y[:50], wide)


def test_ways_by_rules_of_ones_own(tmp_path):
    rules = VectorRules(Sending(bits=2), Mixing(rule="ios"))
    made = plan(X[:200], y[:200], D=60, weights=ring)
    ways = compare(made, X[:200], y[:200], ring, rules=rules)
    found = {(way.name, way.every): way for way in ways}
    vectors, sums = found["gradient, vectors", 1], found["squares, sums", 1]
    assert vectors.bytes_sent == (60 * 2 / 8 + 4) * 2
    assert "sending=Sending(bits=2), mixing=Mixing(rule='ios')" in vectors.python
    assert sums.exchange == Exchange(sums.exchange.weights)
    np.savetxt(tmp_path / "r.csv", X[:20], delimiter=",", header="a,b,y", comments="")
    words = "plan", tmp_path / "r.csv", "--target", "y", "--set"
    assert "needs DATA and --graph" in fails(*words, "sending.bits=2")
    assert "did you mean 'bits'" in fails(*words, "sending.bist=2", "--graph", "ring")


def test_ways_of_classes():
    made = plan(X[:200], labels[:200], D=40, weights=ring)
    assert all(0 <= way.error <= 1 for way in compare(made, X[:200], labels[:200], ring))


def test_the_command_needs_data_or_a_law():
    shown = CliRunner().invoke(commands, ["plan", "--inputs", "3"])
    assert shown.exit_code == 1
    assert "--noise, --sigma, --components" in shown.stderr


def test_the_page_of_a_plan_has_pictures_tables_and_commands(tmp_path):
    data, page = tmp_path / "readings.csv", tmp_path / "report.html"
    rows = "\n".join(f"{a:.5f},{b:.5f},{t:.5f}" for (a, b, _), t in zip(X, y, strict=True))
    data.write_text("warm,wet,y\n" + rows + "\n")
    words = ["plan", data, "--target", "y", "--rows", 250, "--html", page]
    told = dokl(*words, "--plot", tmp_path / "p.svg")
    assert f"page in {page}" in told.stderr
    assert f"picture in {tmp_path / 'p.svg'}" in told.stderr
    text = page.read_text()
    for part in (
        "data:image/png;base64",
        "smallest reachable error",
        "dokl train",
        "taken as a qua",
    ):
        assert part in text
    picture = (tmp_path / "p.svg").read_text()
    for part in ("experts on the sample", "relevance of inputs", "interval", "theory predicts"):
        assert f"<!-- {part}" in picture or part in picture


# -- what people ask ---------------------------------------------------------------------------
@pytest.mark.parametrize("classifying", [False, True])
def test_a_learning_curve_is_that_of_its_law(classifying):
    draw, n = np.random.default_rng(0), np.arange(1, 4097)
    law = np.minimum(1.0, 0.05 + 20.0 / n) if classifying else 0.2 + 30.0 / n
    if classifying:
        targets, said = np.zeros(4096), (draw.uniform(size=4096) < law).astype(float)
    else:
        targets, said = np.zeros(4096), np.sqrt(law) * draw.normal(size=4096)
    curve = learning_curve(targets, said, classifying)
    assert curve.last == 4096
    floor = curve.shown(0.05 if classifying else 0.2)
    assert curve.at(16_000) == pytest.approx(floor, rel=0.2)
    assert curve.rows_for(0.5 * curve.floor) is None
    assert 100 < curve.enough < 3000
    assert curve.at(curve.rows_for(curve.floor * 1.5)) == pytest.approx(
        curve.shown(curve.floor * 1.5), rel=0.01
    )
    assert learning_curve(targets[:200], said[:200], classifying) is None


@pytest.fixture(scope="module")
def asked(tmp_path_factory, short_searches_of_module):
    """What the command says of hourly rows where a column, the hour before and the place matter."""
    draw, n = np.random.default_rng(0), 480
    a, b, noise = draw.normal(size=(3, n))
    place, slow = draw.choice(["roof", "yard"], n), np.zeros(n)
    for t in range(1, n):
        slow[t] = 0.9 * slow[t - 1] + 0.3 * noise[t]
    target = np.sin(2 * a) + (place == "roof") + slow
    when = [f"2024-01-{1 + t // 24:02} {t % 24:02}:00" for t in range(n)]
    columns = {"when": when, "a": a.round(4), "b": b.round(4), "place": place, "y": target.round(4)}
    path = write_csv(tmp_path_factory.mktemp("asked") / "r.csv", columns)
    with short_searches_of_module():
        return dokl("plan", path, "--target", "y").stdout


def test_questions_come_first_in_plain_words(asked):
    lines = asked.splitlines()
    first = next(i for i, line in enumerate(lines) if line.endswith("?"))
    asked_for = [line for line in lines if line.endswith("?")]
    assert asked_for == [
        "how many rows do I need?",
        "what will more rows buy?",
        "which columns matter?",
        "would lags help?",
        "what would sharing buy?",
    ]
    told = dict(pairwise(lines[first:]))
    assert told["what will more rows buy?"].startswith("  twice as many: ")
    matter, _, little = told["which columns matter?"].partition("; little: ")
    assert matter.startswith("  a (")
    assert "b" in little.split(", ")
    assert told["would lags help?"].startswith("  yes: ")
    assert "dokl train --lags auto" in told["would lags help?"]
    assert "each place" in told["what would sharing buy?"]
    assert "extrapolated: mean square error = c + a / n^" in asked
    for word in ("lambda", "R_zz", "mean square limit", "eigenvalue"):
        assert word not in asked


def test_lags_that_do_not_help_and_rows_too_few_are_told(tmp_path):
    path = write_csv(tmp_path / "r.csv", {"a": X[:100, 0].round(4), "y": y[:100].round(4)})
    told = dokl("plan", path, "--target", "y").stdout
    assert "too few rows to decide" in told
    assert "would lags help?\n  no: none explains the target" in told
    assert "no nodes to share with" in told
    assert "lambda_max" in dokl("plan", path, "--target", "y", "--verbose").stdout


def test_questions_are_json_and_say_what_was_not_tried(tmp_path):
    path = write_csv(tmp_path / "r.csv", {"a": X[:100, 0].round(4), "y": y[:100].round(4)})
    found = json_of("plan", path, "--target", "y", "--components", 20, "--json")["questions"]
    assert "number of components was asked for" in found["how many rows do I need?"]["answer"]
