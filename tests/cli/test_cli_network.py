"""dokl train --nodes: a network learns from a file whose rows belong to nodes."""

import json

import numpy as np
import pytest

from commands import INPUTS, dokl, fails, json_of, readings, rows_of, write_csv
from dokl.tables.jobs.start import MOST_INPUTS
from dokl.tables.models import TableModel

pytestmark = pytest.mark.usefixtures("short_searches")


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    """Rows of four stations, mixed, and a model of their network."""
    place = tmp_path_factory.mktemp("network")
    columns = readings(800)
    columns["station"] = np.random.default_rng(1).choice(list("ABCD"), 800)
    write_csv(place / "r.csv", columns)
    (place / "links.csv").write_text("from,to\nA,B\nB,C\nC,D\n")
    dokl("train", place / "r.csv", "--target", "y", "--drop", "label", *INPUTS, "--nodes",
         "station", "--graph", place / "links.csv", "--model", place / "m.dokl")  # fmt: skip
    return place


def test_a_network_learns_from_a_column_of_nodes(network):
    found = json_of("inspect", network / "m.dokl", "--json")
    assert found["estimator"] == "DiffusionRegressor"
    assert found["node_names"] == ["A", "B", "C", "D"]
    assert found["node_column"] == "station"
    assert found["standardisation"] == "fixed"
    assert found["samples_learned"] == 800


def test_fixed_standardisation_is_part_of_the_fingerprint(network):
    model = TableModel.load(network / "m.dokl")
    assert model.fingerprint_ != model.estimator.fingerprint_
    model.preprocessor.moments.total += 1.0
    other = model.fingerprint_
    assert other != json_of("inspect", network / "m.dokl", "--json")["fingerprint"]


def test_a_network_predicts_by_its_mean_or_by_node(network):
    arguments = (network / "m.dokl", network / "r.csv", "--json")
    mean = json_of("evaluate", *arguments, "--together")
    own = json_of("evaluate", *arguments, "--by-node")
    assert mean["r2"] > 0.5
    assert own["r2"] > 0.5
    assert mean["mse"] != own["mse"]
    rows = dokl("predict", network / "m.dokl", network / "r.csv", "--by-node", "--keep", "station")
    assert len(rows_of(rows.stdout)) == 800


def test_rows_are_predicted_by_their_own_node_where_they_name_it(network, tmp_path):
    """Silently by all together, Beijing's next week had an error of .50 and not .133."""
    model, rows, own = network / "m.dokl", network / "r.csv", "each row is predicted by its own"
    by_node = json_of("evaluate", model, rows, "--by-node", "--json")
    usual = dokl("evaluate", model, rows, "--json")
    assert json.loads(usual.stdout) == by_node
    assert usual.stderr == f"{own} node, which column 'station' names; --together: by what all " \
        "nodes have learned\n"  # fmt: skip
    asked = ("predict", model, "-")
    lines = rows.read_text().splitlines()
    named = dokl(*asked, input="\n".join(lines[:9]))
    assert own in named.stderr
    told = dokl(*asked, "--by-node", input="\n".join(lines[:9]))
    assert (named.stdout, told.stderr) == (told.stdout, "")
    together = dokl(*asked, "--together", input="\n".join(lines[:9]))
    assert together.stderr == ""
    cut = "\n".join(line.rsplit(",", 1)[0] for line in lines[:9])
    without = dokl(*asked, input=cut)
    assert "no column 'station' to name each row's node: predicted by what all" in without.stderr
    assert without.stdout == together.stdout
    assert "has no column 'station'" in fails(*asked, "--by-node", input=cut)
    objects = [dict(zip(lines[0].split(","), line.split(","), strict=True)) for line in lines[1:9]]
    text = "".join(json.dumps(each) + "\n" for each in objects)
    as_json = dokl(*asked, "--format", "jsonl", input=text)
    assert (as_json.stdout, as_json.stderr) == (named.stdout, named.stderr)
    stranger = "\n".join([lines[0], lines[1][:-1] + "Z"])
    message = fails(*asked, "--by-node", input=stranger)
    assert "node 'Z' is not in the network" in message
    assert "(--together, in predict and evaluate, needs none)" in message


@pytest.fixture
def strangers(network, tmp_path):
    """Twelve rows, of which two are of strange nodes and one of none; which are not."""
    header, *lines = (network / "r.csv").read_text().splitlines()[:13]
    for i, node in {2: "zz", 5: "", 9: "yy"}.items():
        lines[i] = lines[i].rsplit(",", 1)[0] + f",{node}"
    (tmp_path / "s.csv").write_text("\n".join([header, *lines]) + "\n")
    return tmp_path / "s.csv", [i not in (2, 5, 9) for i in range(12)]


@pytest.fixture(scope="module")
def cooperating(network):
    """A small network of the same rows, whose nodes cooperate, and which has intervals."""
    rows = (network / "r.csv").read_text().splitlines()[:41]
    (network / "few.csv").write_text("\n".join(rows) + "\n")
    dokl("train", network / "few.csv", "--target", "y", "--drop", "label", "--drop", "id",
         "--components", 20, "--nodes", "station", "--graph", network / "links.csv", "--model",
         network / "c.dokl", "-q")  # fmt: skip
    return network / "c.dokl"


@pytest.mark.parametrize("more", [(), ("--interval", 90)])
def test_rows_of_no_node_are_predicted_together(network, cooperating, strangers, more):
    """They were refused, with what was predicted before them written by then."""
    (path, named), model = strangers, cooperating if more else network / "m.dokl"
    made = dokl("predict", model, path, *more, "--chunk", 4)
    together = rows_of(dokl("predict", model, path, *more, "--together").stdout)
    own = rows_of(dokl("predict", model, path, *more, "--by-node", "--on-error", "skip",
                       "--refused", path.with_name("out.csv")).stdout)  # fmt: skip
    left, found = iter(own), rows_of(made.stdout)
    expected = [next(left) if is_own else row for row, is_own in zip(together, named, strict=True)]
    assert [*left] == []
    assert [row.keys() for row in found] == [row.keys() for row in expected]
    for row, wanted in zip(found, expected, strict=True):
        assert [*map(float, row.values())] == pytest.approx([*map(float, wanted.values())])
    assert made.stderr.splitlines()[1:] == [
        "3 rows name no node of the network ('zz', an empty cell, 'yy'): predicted by what all "
        "nodes have learned together; --by-node refuses such rows"
    ]
    assert dokl("predict", model, path, "-q").stderr == ""


def test_rows_of_no_node_are_scored_together(network, strangers):
    (path, named), model = strangers, network / "m.dokl"
    scored = dokl("evaluate", model, path, "--json")
    found, rows = json.loads(scored.stdout), rows_of(dokl("predict", model, path, "-q").stdout)
    y = [float(row["y"]) for row in rows_of(path.read_text())]
    errors = np.array(y) - [float(row["prediction"]) for row in rows]
    assert found["rows"] == 12
    assert found["mse"] == pytest.approx(np.mean(errors**2), rel=1e-6)
    assert sum(each["rows"] for each in found["nodes"].values()) == sum(named)
    assert "3 rows name no node of the network ('zz', an empty cell, 'yy')" in scored.stderr


def test_rows_of_no_node_are_wrong_where_nodes_are_asked_for(network, strangers, tmp_path):
    asked = network / "m.dokl", strangers[0], "--by-node"
    out, refused = tmp_path / "p.csv", tmp_path / "refused.csv"
    for command in ("predict", "evaluate"):
        assert "s.csv, line 4, column 'station': node 'zz' is not in" in fails(command, *asked)
        skipped = dokl(command, *asked, "--on-error", "skip", "--refused", refused)
        assert "3 rows that cannot be used were passed over" in skipped.stderr
        reasons = [(row["line"], row["reason"]) for row in rows_of(refused.read_text())]
        assert [line for line, _ in reasons] == ["4", "7", "11"]
        empty = "column 'station': the cell is empty, and names no node of the network, whose nodes"
        assert reasons[1][1].startswith(empty)
    said = dokl("predict", *asked, "--on-error", "stop", "-o", out, code=1).stderr
    assert "line 4: column 'station': node 'zz' is not in the network" in said
    assert len(rows_of(out.read_text())) == 2


def test_a_network_is_compared_with_itself_frozen(tmp_path):
    """By the same code, and the same words, as a model of one place."""
    columns = readings(165) | {"station": np.array(list("ABC") * 55)}
    path, model = write_csv(tmp_path / "r.csv", columns), tmp_path / "m.dokl"
    start = ("train", path, "--target", "y", "--drop", "label", "--drop", "id", "--nodes",
             "station", "--graph", "ring", "--components", 20, "--chunk", 66, "--model",
             model)  # fmt: skip
    shown = dokl(*start).stdout
    assert "after row 129" in shown  # the end of the step in which 128 rows were seen
    assert "frozen there: the model of row 129, which did not learn later rows" in shown
    found = json_of(*start, "--overwrite", "--json")["frozen"]
    assert (found["row"], found["rows"], found["tracking"]["rows"]) == (129, 36, 36)
    cut = write_csv(tmp_path / "cut.csv", {name: cells[:129] for name, cells in columns.items()})
    dokl("train", cut, *start[2:], "--overwrite", "-q")
    rest = write_csv(tmp_path / "rest.csv", {name: cells[129:] for name, cells in columns.items()})
    alone = json_of("evaluate", model, rest, "--json")
    assert found["mse"] == pytest.approx(alone["mse"], rel=1e-9)
    gone_on = json_of("train", rest, "--model", model, "--continue", "--json")["frozen"]
    assert gone_on["mse"] == pytest.approx(alone["mse"], rel=1e-9)


@pytest.mark.parametrize("share", [None, "sums", "rows"])
def test_what_leaves_a_node_is_chosen_and_told(tmp_path, share):
    columns = readings(249) | {"station": np.array(list("ABC") * 83)}
    path, model = write_csv(tmp_path / "r.csv", columns), tmp_path / "m.dokl"
    more = () if share is None else ("--share", share)
    start = ("train", path, "--target", "y", "--drop", "label", "--drop", "id", "--nodes",
             "station", "--graph", "ring", "--components", 20, "--model", model)  # fmt: skip
    picture = tmp_path / "p.svg"
    shown = dokl(*start, *more, "--plot", picture).stdout
    every = "what leaves a node: every row" in shown
    assert every == (share == "rows")
    assert ("what leaves a node: sums over at least 50 rows" in shown) != every
    assert "the error over all nodes" in shown
    assert "kB on average" in shown
    found = json_of("inspect", model, "--json")
    assert found["share"] == (share or "sums")
    assert found["sent_bytes"] > 1000
    assert TableModel.load(model).estimator.cooperation_.places is not None
    drawn = picture.read_text()
    assert "error of each node" in drawn
    assert "error saved by sharing" in drawn


def test_what_leaves_a_node_is_a_question_of_banks_in_networks(network, tmp_path):
    start = ("train", network / "r.csv", "--target", "y", "--model", tmp_path / "m.dokl")
    told = dokl(*start, "--share", "rows", code=2).stderr
    assert "--share needs --nodes" in told
    told = fails(*start, "--nodes", "station", "--method", "gradient", "--share", "rows")
    assert "share is a parameter of method bank" in told
    go_on = ("train", network / "r.csv", "--model", network / "m.dokl", "--continue")
    told = dokl(*go_on, "--share", "rows", code=2).stderr
    assert "leave out --share" in told


def test_a_network_goes_on(network, tmp_path):
    model = tmp_path / "m.dokl"
    model.write_bytes((network / "m.dokl").read_bytes())
    dokl("train", network / "r.csv", "--model", model, "--continue")
    assert json_of("inspect", model, "--json")["samples_learned"] == 1600


def test_a_topology_gets_as_many_nodes_as_there_are_names(network, tmp_path):
    arguments = ("train", network / "r.csv", "--target", "label", "--drop", "y", *INPUTS)
    found = json_of(*arguments, "--nodes", "station", "--graph", "ring", "--json",
                    "--model", tmp_path / "m.dokl")  # fmt: skip
    assert found["settings"]["estimator"] == "DiffusionClassifier"
    assert json_of("inspect", tmp_path / "m.dokl", "--json")["nodes"] == 4


def test_the_graph_that_was_taken_is_told(network, tmp_path):
    start = ("train", network / "r.csv", "--target", "y", "--drop", "label", *INPUTS, "--nodes",
             "station", "--overwrite", "--model", tmp_path / "m.dokl")  # fmt: skip
    shown = dokl(*start, "--seed", 3).stdout
    assert "4 nodes by column 'station', " in shown
    assert " links between them by the topology 'random', seed 3; --graph\n" in shown
    found = json_of(*start, "--graph", "ring", "--json")["guesses"]
    assert (
        "4 nodes by column 'station', 4 links between them by the topology 'ring'; --graph" in found
    )
    links = network / "links.csv"
    assert f" 3 links between them from {links}; --graph" in dokl(*start, "--graph", links).stdout


@pytest.mark.parametrize("command", ["train", "network", "run"])
def test_a_header_among_the_edges_is_guessed(network, tmp_path, command):
    (tmp_path / "links.csv").write_text("station_a,station_b\nA,B\nB,C\nC,D\n")
    (tmp_path / "r.toml").write_text('[network]\ngraph = "links.csv"\n')
    links, model = tmp_path / "links.csv", tmp_path / "m.dokl"
    asked = {
        "train": ("train", network / "r.csv", "--target", "y", "--nodes", "station", "--graph",
                  links, "--model", model),
        "network": ("network", "new", tmp_path / "n.toml", "--graph", links, "--sample",
                    network / "r.csv", "--target", "y"),
        "run": ("run", tmp_path / "r.toml"),
    }  # fmt: skip
    message = fails(*asked[command])
    assert "its first line links 'station_a' and 'station_b' with each other, and" in message
    assert "leave it out, or let it read from,to" in message


def test_first_rows_of_one_node_only_are_told(network, tmp_path):
    columns = readings(400)
    columns["station"] = np.repeat(list("ABCD"), 100)
    path = write_csv(tmp_path / "r.csv", columns)
    result = dokl("train", path, "--target", "y", "--drop", "label", *INPUTS, "--nodes", "station",
                  "--graph", "ring", "--chunk", 100, "--model", tmp_path / "m.dokl")  # fmt: skip
    assert "come from 1 of 4 nodes" in result.stderr


def test_rows_that_are_grouped_by_node_are_told(tmp_path):
    columns, words = readings(120), "rows are grouped by node, 118 of the first 120 are of the same"
    start = ("--target", "y", "--drop", "label", "--drop", "id", "--nodes", "station", "--graph",
             "ring", "--components", 20, "--overwrite", "--model", tmp_path / "m.dokl")  # fmt: skip
    for first, told in ((60, True), (110, True), (0, False)):  # 0: mixed, few of one node
        stations = np.where(np.arange(120) < first, "A", "B")
        stations = stations if first else np.where(np.arange(120) % 20 == 7, "A", "B")
        path = write_csv(tmp_path / "r.csv", columns | {"station": stations})
        assert (words in dokl("train", path, *start).stderr) == told
    path = write_csv(tmp_path / "r.csv", columns | {"station": np.repeat(["A", "B"], 60)})
    assert "are grouped" not in dokl("train", path, *start, "--method", "gradient").stderr


def test_a_network_of_very_many_inputs_wants_gradients(tmp_path):
    rng = np.random.default_rng(0)
    columns = {f"x{i}": rng.normal(size=40).round(2) for i in range(MOST_INPUTS + 1)}
    columns |= {"y": rng.normal(size=40).round(3), "station": list("ABCD") * 10}
    path = write_csv(tmp_path / "wide.csv", columns)
    start = ("train", path, "--target", "y", "--nodes", "station", "--graph", "ring", "--overwrite",
             "--components", 20, "--model", tmp_path / "m.dokl")  # fmt: skip
    told = fails(*start)
    assert f"there are {MOST_INPUTS + 1} inputs" in told
    assert told.rstrip().endswith("choose --method gradient")
    assert "DiffusionRegressor takes sparse rows" in fails(*start, "--method", "bank")
    assert not (tmp_path / "m.dokl").exists()
    dokl(*start, "--method", "gradient")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--nodes", "statio", "--graph", "ring"), "the nearest is 'station'"),
        (("--nodes", "station", "--graph", "rign"), "did you mean 'ring'"),
        (("--nodes", "station", "--standardise", "running"), "one scaling of their inputs"),
        (("--nodes", "station", "-p", "rule=metropols"), "did you mean 'metropolis'"),
    ],
)
def test_wrong_networks_are_one_clear_line(network, tmp_path, options, message):
    arguments = ("train", network / "r.csv", "--target", "y", "--drop", "label", *INPUTS)
    assert message in fails(*arguments, "--model", tmp_path / "m.dokl", *options)


def test_a_node_that_is_not_in_the_network_names_its_line(network, tmp_path):
    (tmp_path / "links.csv").write_text("A B\nB C\n")
    message = fails("train", network / "r.csv", "--target", "y", "--drop", "label", *INPUTS,
                    "--nodes", "station", "--graph", tmp_path / "links.csv",
                    "--model", tmp_path / "m.dokl")  # fmt: skip
    assert "column 'station': node 'D' is not in the network" in message
    assert "r.csv, line " in message


def test_networks_and_single_nodes_are_not_mixed_up(network, tmp_path):
    assert "--nodes" in dokl("train", "x.csv", "--graph", "ring", "--model", "m", code=2).stderr
    alone = ("train", network / "r.csv", "--target", "y", "--drop", "label", "--drop", "station")
    dokl(*alone, *INPUTS, "--model", tmp_path / "m.dokl")
    assert "--by-node" in fails("predict", tmp_path / "m.dokl", network / "r.csv", "--by-node")
