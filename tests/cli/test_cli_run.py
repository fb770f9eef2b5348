"""dokl run, graph and demo, inside this process."""

import json
import tomllib
from dataclasses import fields, is_dataclass

import numpy as np
import pytest

from commands import dokl, fails, json_of, readings, write_csv
from dokl.base import config
from dokl.learning.schedules import from_settings
from dokl.paper.jobs.settings import EXAMPLE, Simulation

SMALL = """
[data]
nodes = 4
steps = 200
[features]
D = 40
[run]
runs = 2
"""


def run_small(tmp_path, more="", *arguments, text=SMALL):
    (tmp_path / "c.toml").write_text(text + more)
    return dokl("run", tmp_path / "c.toml", *arguments)


# -- run ---------------------------------------------------------------------------------------
def test_the_example_is_a_configuration_that_runs(tmp_path):
    (tmp_path / "my.toml").write_text(dokl("run", "--example").stdout)
    text = (tmp_path / "my.toml").read_text().replace("steps = 3000", "steps = 60")
    (tmp_path / "my.toml").write_text(text)
    result = dokl("run", tmp_path / "my.toml", "--runs", 2)
    assert "together" in result.stdout
    assert "alone" in result.stdout
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    curves = json.loads((tmp_path / "curves.json").read_text())
    assert len(curves["curves"]["together"]["mse"]["mean"]) == 60
    assert curves["config"]["data"]["nodes"] == 20


def uncommented(text):
    """The example with every key in it switched on."""
    lines = []
    for line in text.splitlines():
        key = line.removeprefix("# ").split(" = ")[0]
        lines.append(line.removeprefix("# ") if key.isidentifier() else line)
    return "\n".join(lines)


def test_the_example_shows_every_key_there_is():
    shown = tomllib.loads(uncommented(EXAMPLE))
    for section in fields(Simulation):
        known = {f.name for f in fields(config.typing.get_type_hints(Simulation)[section.name])}
        assert set(shown[section.name]) == known
    assert is_dataclass(config.parse(Simulation, shown))


def test_every_key_of_the_example_has_a_word_of_explanation():
    for line in uncommented(EXAMPLE).splitlines():
        if " = " in line and not line.startswith(("nodes", "seed", "#")):
            assert "#" in line, line


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("[netwrk]\n", "unknown section 'netwrk': did you mean 'network'"),
        ("[network]\ngrph = 'ring'\n", "did you mean 'graph'"),
        ("[network]\ngraph = 3\n", "[network] graph must be text, got 3"),
        ("[network]\ngraph = 'rign'\n", "did you mean 'ring'"),
        ("[network]\nevery = 'often'\n", "[network] every must be a whole number"),
        ("[network]\nalone = 1\n", "[network] alone must be true or false"),
        ("[learn]\nloss = 'sqared'\n", "did you mean 'squared'"),
        ("[learn]\nschedule = 'pegasus'\n", "did you mean 'pegasos'"),
        ("[learn]\nschedule = 'pegasos'\nmu = 1.0\n", "takes lam, n0, and not mu"),
        ("[learn]\nmu = true\n", "[learn] mu must be a number"),
        ("[output]\nrecord = ['mes']\n", "did you mean 'mse'"),
        ("[output]\nrecord = 'mse'\n", "[output] record must be a list"),
        ("[output]\nplot = 'x.gif'\n", "png, svg, pdf"),
        ("[output]\nplot = 'x.png'\nrecord = ['node_mse']\n", "nothing to draw"),
        ("[learn\n", "not valid TOML"),
    ],
)
def test_what_is_wrong_in_a_configuration_is_named(tmp_path, more, message):
    (tmp_path / "c.toml").write_text(SMALL + more)
    said = fails("run", tmp_path / "c.toml")
    assert message in said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c.toml"]


def test_configurations_that_are_not_there(tmp_path):
    assert "no such file" in fails("run", tmp_path / "c.toml")
    assert "directory" in fails("run", tmp_path)
    assert "--example" in dokl("run", code=2).stderr
    (tmp_path / "c.toml").write_bytes(b"\xff\xfe")
    assert "not valid TOML" in fails("run", tmp_path / "c.toml")


def test_the_command_line_overrides_and_writes_elsewhere(tmp_path):
    more = "[output]\njson = 'c.json'\nrecord = ['mse', 'bytes']\n"
    out = tmp_path / "new" / "folder"
    result = run_small(tmp_path, more, "--out", out, "--engine", "reference", "--seed", 5, "--json")
    found = json.loads(result.stdout)
    assert found["made"]["engine"] == "reference"
    assert found["made"]["seed"] == 5
    assert json.loads((out / "c.json").read_text())["summary"] == found["summary"]
    (tmp_path / "file").touch()
    assert "cannot be made a folder" in fails(
        "run", tmp_path / "c.toml", "--out", tmp_path / "file"
    )


@pytest.mark.parametrize(
    "told",
    [
        ("learn.method=squares", "learn.share=sums", "network.every=10", "sending.dtype=float32"),
        ("learn.method=squares", "learn.share=origins", "learn.robust=true", "network.every=20"),
        ("sending.bits=2", "sending.refresh=5", "mixing.rule=ios", "mixing.faulty=1"),
        ("attacks.attack=noise", "attacks.p=0.5", "attacks.faulty=[1]", "mixing.rule=trimmed"),
    ],
    ids=lambda told: told[0] if told[0] != "learn.method=squares" else told[1],
)
def test_any_key_can_be_told(tmp_path, told):
    """Methods, what is sent, how it is mixed, and attacks, each under its name in Python."""
    words = [word for each in told for word in ("--set", each)]
    found = json.loads(run_small(tmp_path, "", "--json", "--runs", 1, *words).stdout)
    for each in told:
        section, _, rest = each.partition(".")
        key, _, value = rest.partition("=")
        assert str(found["config"][section][key]).lower() == value
    assert {row["who"] for row in found["summary"]} == {"together", "alone"}
    assert all(np.isfinite(row["mean"]) for row in found["summary"])


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ("bits=2", "use section.key=value"),
        ("sending.bist=2", "did you mean 'bits'"),
        ("sending.bits=9", "bits must be a whole number"),
        ("mixing.rule=iso", "did you mean 'ios'"),
        ("learn.ridge=0.1", "ridge is not for method 'gradient'"),
        ("learn.method=square", "did you mean 'squares'"),
        ("attacks.attack=noice", "did you mean 'noise'"),
        ("attacks.p=1.0", "none is named"),
        ("attacks.faulty=[1]", "give both, or neither"),
    ],
)
def test_what_is_told_wrongly_is_named(tmp_path, told, message):
    (tmp_path / "c.toml").write_text(SMALL)
    assert message in fails("run", tmp_path / "c.toml", "--set", told)


def test_names_of_earlier_files_are_read(tmp_path):
    earlier = "[lies]\nattack = 'noise'\nliars = [1]\n[mixing]\nrule = 'ios'\nliars = 1\n"
    config = json.loads(run_small(tmp_path, earlier, "--json", "--runs", 1).stdout)["config"]
    assert config["attacks"]["faulty"] == [1]
    assert config["mixing"]["faulty"] == 1
    both = "[mixing]\nrule = 'ios'\nliars = 1\nfaulty = 1\n"
    (tmp_path / "c.toml").write_text(SMALL + both)
    assert "liars is the earlier name of faulty" in fails("run", tmp_path / "c.toml")


def test_attacks_take_their_own_parameters(tmp_path):
    (tmp_path / "c.toml").write_text(SMALL)
    words = (
        "--set",
        "attacks.attack=isolation",
        "--set",
        "attacks.p=2.0",
        "--set",
        "attacks.faulty=[1]",
    )
    assert "p is not for attack 'isolation'" in fails("run", tmp_path / "c.toml", *words)
    words = "--set", "learn.method=squares", "--set", "learn.loss=hinge"
    assert "loss must be 'squared'" in fails("run", tmp_path / "c.toml", *words)


def test_quiet_prints_the_table_only(tmp_path):
    assert run_small(tmp_path, "", "--quiet").stderr == ""


def test_rows_of_a_file_belong_to_nodes(tmp_path):
    columns = readings(400)
    columns["station"] = np.random.default_rng(0).choice(list("ABC"), 400)
    write_csv(tmp_path / "r.csv", columns)
    (tmp_path / "links.csv").write_text("A,B\nB,C\n")
    text = """
[data]
file = "r.csv"
target = "y"
node = "station"
drop = ["id", "label"]
[features]
sigma = 1.5
D = 60
[network]
graph = "links.csv"
[run]
runs = 2
[output]
record = ["mse", "node_mse"]
"""
    found = json.loads(run_small(tmp_path, "", "--json", text=text).stdout)
    longest = max(np.unique(columns["station"], return_counts=True)[1])
    assert len(found["curves"]["together"]["mse"]["mean"]) == longest
    ring = json.loads(
        run_small(tmp_path, "", "--json", text=text.replace("links.csv", "ring")).stdout
    )
    assert ring["summary"][0]["mean"] > 0
    (tmp_path / "c.toml").write_text(text.replace('"station"', '"statin"'))
    assert "nearest is 'station'" in fails("run", tmp_path / "c.toml")
    (tmp_path / "links.csv").write_text("A,B\n")
    (tmp_path / "c.toml").write_text(text)
    assert "C: not in the network" in fails("run", tmp_path / "c.toml")


def test_rows_of_a_file_are_dealt_and_labels_become_signs(tmp_path):
    write_csv(tmp_path / "r.csv", readings(400))
    text = """
[data]
file = "r.csv"
target = "label"
drop = ["id", "y"]
nodes = 4
steps = 60
passes = 2
[features]
sigma = 1.5
D = 60
[learn]
loss = "logistic"
[run]
runs = 1
[output]
record = ["mistakes"]
"""
    found = json.loads(run_small(tmp_path, "", "--json", text=text).stdout)
    assert len(found["curves"]["together"]["mistakes"]["mean"]) == 120
    for old, new, message in (
        ('"label"', '"place"', "two classes, and there are 3"),
        ('"label"', '"lable"', "no column 'lable'"),
        ('target = "label"', "", "target must be one of"),
        ('file = "r.csv"', 'file = "s.csv"', "no such file"),
        ('file = "r.csv"', 'file = "r.csv"\nexample = "example1"', "keep one of them"),
        ('file = "r.csv"\n', "", "target is for a file"),
        ("nodes = 4", "nodes = 4\ndrift = 'slow'", "no target to change"),
        ("nodes = 4", "nodes = 4\ndrift = 'fast'", "unknown drift 'fast'"),
    ):
        (tmp_path / "c.toml").write_text(text.replace(old, new))
        assert message in fails("run", tmp_path / "c.toml")


def test_schedules_take_their_own_numbers():
    def learn(**given):
        parsed = config.parse(Simulation, {"learn": given})
        return from_settings(parsed.learn, "[learn]")

    assert learn(schedule="pegasos", lam=0.5, n0=3.0).spec()["offset"] == 3.0
    assert learn(schedule="inverse_power", power=0.7).spec()["power"] == 0.7
    assert learn(schedule="normalised")(1, 2.0) == pytest.approx(0.25)
    assert learn()(1, 2.0) == 1.0


# -- graph -------------------------------------------------------------------------------------
def test_a_graph_is_described_drawn_and_written(tmp_path):
    plot, weights = tmp_path / "g.svg", tmp_path / "w.csv"
    arguments = ("graph", "random", "--nodes", 8, "-p", "p=0.5", "--seed", 3)
    result = dokl(*arguments, "--plot", plot, "--weights", weights)
    assert "algebraic connectivity" in result.stdout
    assert "plot: " in result.stderr
    assert "<svg" in plot.read_text()
    found = json_of(*arguments, "--json")
    assert found["K"] == 8
    assert found["lambda_2"] == pytest.approx(1 - found["gap"])
    lines = [line.split(",") for line in weights.read_text().splitlines()[1:]]
    sums = [sum(float(w) for a, _, w in lines if a == str(k)) for k in range(8)]
    assert sums == pytest.approx([1.0] * 8)


@pytest.mark.parametrize(
    "text", ["from,to\nA,B\nB,C\n", "A B\nB C # a remark\n\n", "A;B\nB;C\n", "A\tB\nB\tC"]
)
def test_a_graph_from_a_file_of_edges(tmp_path, text):
    path = tmp_path / "links.txt"
    path.write_text(text)
    found = json_of("graph", path, "--json")
    assert (found["K"], found["edges"], found["diameter"]) == (3, 2, 2)
    dokl("graph", path, "--weights", tmp_path / "w.csv", "--quiet")
    assert "A,B,0.3333" in (tmp_path / "w.csv").read_text()


def test_a_graph_that_falls_apart_never_agrees(tmp_path):
    (tmp_path / "links.csv").write_text("A,B\nC,D\n")
    result = dokl("graph", tmp_path / "links.csv")
    assert "never" in result.stdout
    assert "2 separate parts" in result.stderr
    assert json_of("graph", tmp_path / "links.csv", "--json")["steps_to_tenth"] is None
    assert json_of("graph", "complete", "--json")["steps_to_tenth"] == 1
    assert "biased" in dokl("graph", "star", "--rule", "uniform").stdout


def test_wrong_graphs_are_one_clear_line(tmp_path):
    assert "did you mean 'ring'" in fails("graph", "rign")
    assert "has no parameter 'p'" in fails("graph", "ring", "-p", "p=0.5")
    assert "no such file" in fails("graph", tmp_path / "none.csv")
    assert "directory" in fails("graph", tmp_path)
    path = tmp_path / "links.csv"
    for text, message in (
        ("A,B\nA,B,C\n", "line 2: an edge is two node names"),
        ("A,\n", "line 1"),
        ("# nothing\n", "no edges"),
    ):
        path.write_text(text)
        assert message in fails("graph", path)
    path.write_bytes(b"\xff\xfe\x00")
    assert "UTF-8" in fails("graph", path)
    path.write_text("A,B\n")
    assert "takes no parameter" in fails("graph", path, "-p", "p=1")
    assert "png, svg, pdf" in fails("graph", "ring", "--plot", tmp_path / "g.gif")
    assert "KEY=VALUE" in dokl("graph", "ring", "-p", "p", code=2).stderr


# -- demo --------------------------------------------------------------------------------------
def test_demo_prints_json_and_draws(tmp_path, monkeypatch):
    from dokl.paper.jobs import demo

    monkeypatch.setattr(demo, "DEMO_STEPS", 200)
    monkeypatch.setattr(demo, "DEMO_D", 100)
    monkeypatch.setattr(demo, "SUMS_D", 200)
    found = json_of("demo", "--runs", 2, "--json", "--out", tmp_path)
    assert found["runs"] == 2
    assert found["together"]["bytes_per_step"] > found["sums"]["bytes_per_step"] / 2 > 0
    assert found["sums"]["final_error_db"] < found["together"]["final_error_db"] - 3
    assert abs(found["sums"]["final_error_db"] - found["place"]["final_error_db"]) < 1
    assert (tmp_path / "dokl-demo.png").exists()
    text = dokl("demo", "--runs", 1, "--quiet", "--out", tmp_path)
    assert "times smaller" in text.stdout
    assert text.stderr == ""
    assert "is not a folder" in fails("demo", "--quiet", "--out", tmp_path / "none")
