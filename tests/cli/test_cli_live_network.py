"""dokl network: describe a live network, check it, and change who is in it."""

import json
import re
import stat
import tomllib
from pathlib import Path

import click
import numpy as np
import pytest
from test_cli_help import words_of

from commands import dokl, fails, json_of, readings, write_csv
from dokl.base.errors import BadInput
from dokl.cli.network import network as group
from dokl.estimators.choices import median_distance, width
from dokl.live.certificates import load_certificate
from dokl.live.certificates.checks import problems
from dokl.live.description import read
from dokl.live.inputs import Inputs
from dokl.live.jobs import networks as live
from dokl.live.jobs import places

QUICK = ("--graph", "ring", "--nodes", 4, "--inputs", 2, "--components", 20)


@pytest.fixture
def lab(tmp_path):
    dokl("network", "new", tmp_path / "lab.toml", *QUICK)
    return tmp_path / "lab.toml"


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    return write_csv(tmp_path_factory.mktemp("sample") / "r.csv", readings(300))


def files(folder):
    return sorted(path.name for path in folder.iterdir())


# -- new ---------------------------------------------------------------------------------------
def test_new_writes_a_sound_network_and_says_what_is_next(tmp_path):
    result = dokl("network", "new", tmp_path / "lab.toml", *QUICK)
    network = read(tmp_path / "lab.toml")
    assert problems(network) == []
    assert network.names == ("a", "b", "c", "d")
    assert len(network.links) == 4
    assert network.secure
    assert files(tmp_path) == ["lab.certs", "lab.toml"]
    assert stat.S_IMODE(network.folder.stat().st_mode) == 0o700
    assert f"dokl network check {tmp_path / 'lab.toml'}" in result.stderr
    assert "dokl up" in result.stderr
    assert network.fingerprint in result.stdout
    dokl("network", "check", tmp_path / "lab.toml")


ROWS = ("--graph", "ring", "--nodes", 3, "--target", "pm25", "--share", "rows")


def test_a_network_that_shares_rows_needs_no_sample(tmp_path):
    path = tmp_path / "lab.toml"
    columns = "temp,kind,when:time"
    given = ("--columns", columns, "--levels", "kind=street,park")
    result = dokl("network", "new", path, *ROWS, *given)
    assert "each of its rows, sealed, to all nodes, which keep the last 20,000" in result.stderr
    assert "sigma" not in path.read_text()
    network = read(path)
    assert problems(network) == []
    assert network.model.rows
    inputs = Inputs(network)
    assert inputs.columns == ("temp", "when", "kind")
    row = {"temp": 1013.2, "when": "2026-11-18T12:00", "kind": "harbour", "pm25": 8}
    there = inputs.from_json(json.dumps([row, {**row, "temp": None, "kind": "park"}]).encode())
    assert there.X[:, 0].tolist() == [1013.2, 0.0]  # a missing number
    assert there.X[:, -2:].tolist() == [[0.0, 0.0], [0.0, 1.0]]  # an unknown level is none
    again = json_of("network", "show", path, "--json")
    assert again["model"]["share"] == "rows"


def test_new_says_what_leaves_a_node(tmp_path):
    vectors = dokl("network", "new", tmp_path / "v.toml", *QUICK).stderr
    assert "what leaves a node: its vector" in vectors
    sums = dokl("network", "new", tmp_path / "s.toml", *QUICK, "--method", "squares").stderr
    assert "what leaves a node: sums over at least 50 new rows" in sums


def test_what_does_not_go_with_rows_is_refused(tmp_path):
    path = tmp_path / "lab.toml"
    new = "network", "new", path
    assert "--columns is for --share rows" in fails(*new, *ROWS[:6], "--columns", "temp")
    assert "NAME:time" in fails(*new, *ROWS, "--columns", "temp:colour")
    assert "--levels" in fails(*new, *ROWS, "--columns", "temp", "--levels", "kind=a,b")
    assert "what are the inputs?" in fails(*new, *ROWS)
    assert "Give --target" in fails(*new, *ROWS[:4], *ROWS[6:], "--columns", "temp")
    for option in (("--sigma", 2), ("--map", "drawn"), ("--method", "gradient")):
        result = dokl(*new, *ROWS, "--columns", "temp", *option, code=2)
        assert "with --share rows each node learns by least squares" in result.stderr
    assert not path.exists()


def test_ports_are_all_different_and_low(lab):
    nodes = read(lab).nodes.values()
    ports = [int(each.rpartition(":")[2]) for node in nodes for each in (node.address, node.http)]
    assert len(set(ports)) == 8
    assert max(ports) < 32768


def test_play_needs_no_certificates(tmp_path):
    dokl("network", "new", tmp_path / "lab.toml", *QUICK, "--insecure-loopback")
    assert files(tmp_path) == ["lab.toml"]
    assert not read(tmp_path / "lab.toml").secure
    dokl("network", "check", tmp_path / "lab.toml")


def test_options_arrive_in_the_file(tmp_path):
    (tmp_path / "links.csv").write_text("from,to\nroof,yard\nyard,cellar\n")
    dokl("network", "new", tmp_path / "x.toml", "--name", "house", "--graph",
         tmp_path / "links.csv", "--node", "roof=10.0.0.1:7000", "--inputs", 3, "--target", "z",
         "--kernel", "matern", "-p", "nu=1.5", "-p", "eps=0.001", "--sigma", "2.5",
         "--components", "64",
         "--variant", "sobol", "--seed", 7, "--loss", "huber:2", "--mu", "0.25", "--lam", "0.01",
         "--intercept", "1", "--exchange", "pull", "--every-samples", "50", "--dtype", "float16",
         "--clip", "3", "--base-port", "9100", "--http-base-port", "9200")  # fmt: skip
    data = tomllib.loads((tmp_path / "x.toml").read_text())
    network = read(tmp_path / "x.toml")
    assert data["network"]["name"] == "house"
    assert network.names == ("roof", "yard", "cellar")
    assert network.nodes["roof"].address == "10.0.0.1:7000"
    assert network.nodes["yard"].address == "127.0.0.1:9100"
    assert network.nodes["cellar"].http == "127.0.0.1:9202"
    model = network.model
    assert (model.kernel, model.parameters, model.sigma) == ("matern", {"nu": 1.5}, 2.5)
    assert (model.D, model.variant, model.seed, model.eps) == (64, "sobol", 7, 0.001)
    assert (model.loss, model.loss_parameter, model.mu) == ("huber", 2.0, 0.25)
    assert (model.lam, model.intercept) == (0.01, 1.0)
    policy = network.exchange
    assert (policy.mode, policy.every_seconds, policy.every_samples) == ("pull", 0.0, 50)
    assert (policy.dtype, policy.clip) == ("float16", 3.0)
    assert network.inputs.target == "z"


def test_a_network_is_written_with_a_clip_that_is_safe_and_check_remarks_on_none(tmp_path):
    path = tmp_path / "lab.toml"
    dokl("network", "new", path, *QUICK, "--insecure-loopback")
    assert tomllib.loads(path.read_text())["exchange"]["clip"] == "auto"
    assert "can leave no neighbour out" not in dokl("network", "check", path).stderr
    path.write_text(path.read_text().replace('clip = "auto"', "clip = 0.0   "))
    assert read(path).exchange.clip == 0.0  # it means what it meant
    assert "can leave no neighbour out" in dokl("network", "check", path).stderr
    path.write_text(path.read_text().replace("clip = 0.0   ", ""))
    assert read(path).exchange.clip == "auto"
    wrong = dokl("network", "new", tmp_path / "x.toml", *QUICK, "--clip", "-1", code=2)
    assert "--clip" in wrong.stderr


def test_the_better_method_is_pointed_to(tmp_path, sample):
    start = ("network", "new", tmp_path / "lab.toml", "--nodes", 3, "--insecure-loopback",
             "--overwrite", "--components", 20)  # fmt: skip
    known = ("--sample", sample, "--target", "y", "--drop", "id", "--drop", "label")
    words = "--method squares predicts better"
    assert words in dokl(*start, *known).stderr
    for more in (("--method", "gradient"), ("--method", "squares"), ("--quiet",)):
        assert words not in dokl(*start, *known, *more).stderr
    assert words not in dokl(*start, "--inputs", 2).stderr


def test_a_sample_settles_scaling_and_sigma(tmp_path, sample):
    dokl("network", "new", tmp_path / "lab.toml", "--graph", "complete", "--nodes", 3,
         "--components", 20,
         "--sample", sample, "--target", "y", "--drop", "id", "--drop", "label")  # fmt: skip
    network, rows = read(tmp_path / "lab.toml"), readings(300)
    inputs = network.inputs
    assert (inputs.numeric, inputs.drop) == (("a", "b"), ("id", "label"))
    assert inputs.levels == (("place", ("cellar", "roof", "yard")),)
    assert (inputs.task, inputs.standardise, network.d) == ("regression", "fixed", 5)
    columns = {name: rows[name] for name in ("a", "b")}
    columns["place"] = rows["place"].astype(object)
    X = network.preprocessor().transform(columns)
    assert np.allclose(X[:, :2].mean(axis=0), 0)
    assert np.allclose(X[:, :2].std(axis=0), 1)
    assert network.model.sigma == float(f"{width('scale', X):.3g}")  # as `dokl train`, rounded
    low, high = inputs.target_range
    assert low < rows["y"].min() - 9 * np.ptp(rows["y"]) < rows["y"].max() < high
    for (low, high), name in zip(inputs.ranges, inputs.numeric, strict=True):
        assert low < rows[name].min() - 9 * np.ptp(rows[name]) < rows[name].max() < high
    assert inputs.outside == "refuse"
    assert network.model.mu == 0.5
    dokl("network", "new", tmp_path / "median.toml", "--components", 20,
         "--sample", sample, "--nodes", 3,
         "--sigma", "median", "--target", "y", "--drop", "id", "--drop", "label")  # fmt: skip
    assert read(tmp_path / "median.toml").model.sigma == float(f"{median_distance(X):.3g}")


def test_a_quiet_check_gives_the_verdict_and_no_table(lab):
    quiet = dokl("network", "check", lab, "--quiet")
    assert (quiet.stdout, quiet.stderr) == ("", f"{lab}: fine\n")


def test_faces_of_real_hosts_have_ports_to_remember(tmp_path):
    dokl("network", "new", tmp_path / "lab.toml", "--graph", "complete", "--inputs", 2, "--D", 20,
         "--node", "hill=10.0.0.1:7447", "--node", "park=10.0.0.2:7447")  # fmt: skip
    network = read(tmp_path / "lab.toml")
    assert [node.http for node in network.nodes.values()] == ["127.0.0.1:8081", "127.0.0.1:8082"]


def test_sigma_is_written_as_a_person_would(tmp_path, sample):
    dokl("network", "new", tmp_path / "lab.toml", "--nodes", 2, "--graph", "complete", "--D", 20,
         "--sample", sample, "--target", "y", "--drop", "id", "--drop", "label")  # fmt: skip
    (line,) = (each for each in (tmp_path / "lab.toml").read_text().splitlines()
               if each.startswith("sigma"))  # fmt: skip
    assert re.match(r"sigma = \d\.\d{1,2} ", line), line


def test_without_a_sample_numbers_are_believed_up_to_a_thousand(tmp_path):
    path = tmp_path / "lab.toml"
    dokl("network", "new", path, "--nodes", 2, "--graph", "complete", "--D", 20, "--inputs", 2)
    inputs = read(path).inputs
    assert inputs.target_range == (-1000.0, 1000.0)
    assert inputs.ranges == ((-1000.0, 1000.0),) * 2
    fingerprint = read(path).fingerprint
    text = path.read_text()
    path.write_text(text.replace('outside = "refuse"', 'outside = "clip"  '))
    assert (read(path).inputs.outside, read(path).fingerprint) == ("clip", fingerprint)
    for wrong, why in (
        ("ranges = [[-1000.0, 1000.0]]", "1 entries for 2"),
        ("ranges = [[-1000.0, 1000.0], [3.0, 2.0]]", "'x2' needs"),
    ):
        path.write_text(re.sub(r"ranges = .*\]\]", wrong, text))
        with pytest.raises(BadInput, match=why):
            read(path)


def test_a_column_that_never_varied_has_a_range_of_its_own(tmp_path):
    Path(tmp_path / "s.csv").write_text("rain,wind,y\n" + "0,1.5,2\n0,2.5,3\n" * 20)
    dokl("network", "new", tmp_path / "lab.toml", "--nodes", 2, "--graph", "complete", "--D", 20,
         "--sample", tmp_path / "s.csv", "--target", "y", "--task", "regression")  # fmt: skip
    inputs = read(tmp_path / "lab.toml").inputs
    assert dict(zip(inputs.numeric, inputs.ranges, strict=True))["rain"] == (-1000.0, 1000.0)


def test_labels_are_settled_and_the_loss_suits_them(tmp_path, sample):
    options = ("--nodes", 2, "--graph", "complete", "--components", 20, "--sample", sample)
    dokl("network", "new", tmp_path / "lab.toml", *options, "--target", "label", "--drop", "id",
         "--drop", "y")  # fmt: skip
    network = read(tmp_path / "lab.toml")
    assert network.inputs.labels == ("other", "same")
    assert network.model.loss == "logistic"
    dokl("network", "new", tmp_path / "k.toml", "--nodes", 2, "--graph", "complete",
         "--components", 20,
         "--inputs", 2, "--classes", "3,1,2")  # fmt: skip
    assert read(tmp_path / "k.toml").inputs.labels == (1, 2, 3)


@pytest.mark.parametrize(
    ("target", "drop", "more"), [("y", "label", ()), ("label", "y", ("--loss", "logistic"))]
)
def test_a_trained_model_of_the_same_choices_has_the_same_fingerprint(
    tmp_path, sample, target, drop, more
):
    chosen = ("--target", target, "--drop", "id", "--drop", drop, "--sigma", "2", "--seed", "3")
    dokl("network", "new", tmp_path / "lab.toml", "--nodes", 3, "--graph", "ring",
         "--sample", sample, *chosen, "--components", "20")  # fmt: skip
    dokl("train", sample, *chosen, *more, "--method", "gradient", "--components", "20",
         "--standardise", "fixed", "--model", tmp_path / "m.dokl")  # fmt: skip
    found = json_of("inspect", tmp_path / "m.dokl", "--json")
    assert found["fingerprint"] == read(tmp_path / "lab.toml").fingerprint


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--graph", "rign", "--nodes", 4, "--inputs", 2), "did you mean 'ring'"),
        (("--graph", "ring", "--inputs", 2), "how many nodes"),
        (("--graph", "ring", "--nodes", 4), "what are the inputs"),
        (("--graph", "ring", "--nodes", 4, "--sample", "no.csv", "--target", "y"), "no.csv"),
        (("--graph", "ring", "--nodes", 4, "--sample", "no.csv", "--inputs", 2), "--sample or"),
        ((*QUICK, "--sigma", "wide"), "a number above 0, auto, scale or median"),
        ((*QUICK, "--loss", "hubr"), "did you mean 'huber'"),
        ((*QUICK, "--loss", "huber:x"), "'x' is not a number"),
        ((*QUICK, "--loss", "hinge"), "is for classes"),
        ((*QUICK, "--task", "classification"), "--classes"),
        ((*QUICK, "--host", "10.0.0.1", "--insecure-loopback"), "anyone could join"),
        ((*QUICK, "--name", "my lab"), "--name"),
        ((*QUICK, "--base-port", 65534), "not enough ports"),
        (("--graph", "ring", "--inputs", 2, "--node", "a=b", "--node", "c"), "not HOST:PORT"),
        (("--graph", "complete", "--inputs", 2, "--node", "a b", "--node", "c"), "node name"),
        (("--graph", "complete", "--inputs", 2, "--node", "ca", "--node", "c"), "authority"),
        ((*QUICK, "-p", "nu=3"), "nu"),
    ],
)
def test_a_failing_new_is_one_line_and_leaves_nothing(tmp_path, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    assert message in fails("network", "new", "lab.toml", *options)
    assert files(tmp_path) == []


def test_a_new_that_cannot_write_leaves_nothing(tmp_path, monkeypatch):
    def full(path, text):
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr("dokl.live.jobs.new.atomic_text", full)
    assert "No space left" in fails("network", "new", tmp_path / "lab.toml", *QUICK)
    assert files(tmp_path) == []


def test_an_earlier_network_is_replaced_only_when_told(lab):
    old = (lab.read_bytes(), (lab.parent / "lab.certs/a.key").read_bytes())
    assert "--overwrite" in fails("network", "new", lab, *QUICK)
    assert old == (lab.read_bytes(), (lab.parent / "lab.certs/a.key").read_bytes())
    dokl("network", "new", lab, "--graph", "ring", "--nodes", 3, "--inputs", 2, "--overwrite")
    assert read(lab).names == ("a", "b", "c")
    assert "d.key" not in files(lab.parent / "lab.certs")
    assert files(lab.parent) == ["lab.certs", "lab.toml"]


def test_folders_that_are_missing_or_no_files(tmp_path):
    assert "make it first" in fails("network", "new", tmp_path / "no" / "lab.toml", *QUICK)
    assert "a file is expected" in fails("network", "new", tmp_path, *QUICK)


# -- check and show ----------------------------------------------------------------------------
def test_check_shows_what_there_is_to_know(lab):
    result = dokl("network", "check", lab)
    for part in ("lambda_2", "0.3333", "fingerprint", "b, d", read(lab).nodes["a"].address):
        assert part in result.stdout
    assert result.stderr.strip() == f"{lab}: fine"
    found = json_of("network", "check", lab, "--json")
    assert found["problems"] == []
    assert found["nodes"]["a"]["neighbours"] == ["b", "d"]


def test_check_says_all_that_is_wrong(lab):
    text = lab.read_text().replace('["a", "b"],', '["a", "q"],')
    lab.write_text(text.replace("seed = 1", "seed = 2"))
    (lab.parent / "lab.certs/b.key").chmod(0o644)
    result = dokl("network", "check", lab, code=1)
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 3
    for part, line in zip(("names 'q'", "comes to", "chmod 600"), lines, strict=True):
        assert part in line
    assert len(json_of("network", "check", lab, "--json", code=1)["problems"]) == 3


def test_check_of_one_node_needs_only_its_files(lab):
    (lab.parent / "lab.certs/b.key").unlink()
    dokl("network", "check", lab, "--name", "a")
    dokl("network", "check", lab, "--name", "b", code=1)
    assert "unknown node" in fails("network", "check", lab, "--name", "x")


def test_show_is_the_description_as_data(lab):
    found = json_of("network", "show", lab, "--json")
    assert found["fingerprint"] == read(lab).fingerprint
    assert found["model"]["D"] == 20
    assert list(found["nodes"]) == ["a", "b", "c", "d"]
    assert "[exchange]" in dokl("network", "show", lab).stdout


# -- changes -----------------------------------------------------------------------------------
def test_add_node_keeps_comments_and_makes_a_certificate(lab):
    lab.write_text(lab.read_text().replace("[nodes.b]", "# beside the window\n[nodes.b]  # bee"))
    before = lab.read_text()
    result = dokl("network", "add-node", lab, "f", "--link", "a", "--link", "c")
    network = read(lab)
    assert network.neighbours("f") == ("a", "c")
    assert problems(network) == []
    assert network.nodes["f"].http is not None
    assert all(line in lab.read_text() for line in before.splitlines())
    reload = [line for line in result.stderr.splitlines() if "dokl agent reload" in line]
    assert reload == [f"  dokl agent reload {lab} --name {name}" for name in "ac"]


def test_add_node_takes_the_next_free_ports_of_the_base(tmp_path, monkeypatch):
    lab, busy = tmp_path / "lab.toml", {7452}
    monkeypatch.setattr(places, "_is_free", lambda host, port: port not in busy)
    ports = ("--base-port", "7447", "--http-base-port", "8081")
    dokl("network", "new", lab, *QUICK, *ports, "--insecure-loopback")
    places_of = []
    for name, more in (("e", ()), ("f", ()), ("g", ("--http", "127.0.0.1:7454")), ("h", ())):
        dokl("network", "add-node", lab, name, "--link", "a", *more)
        node = read(lab).nodes[name]
        places_of.append((node.address, node.http))
    assert places_of == [
        ("127.0.0.1:7451", "127.0.0.1:8085"),
        ("127.0.0.1:7453", "127.0.0.1:8086"),  # somebody else listens at 7452
        ("127.0.0.1:7455", "127.0.0.1:7454"),
        ("127.0.0.1:7456", "127.0.0.1:8087"),
    ]
    dokl("network", "remove-node", lab, "e")
    dokl("network", "add-node", lab, "i", "--link", "a")
    assert read(lab).nodes["i"].address == "127.0.0.1:7457"
    monkeypatch.setattr(places, "_is_free", lambda host, port: False)
    said = fails("network", "add-node", lab, "j", "--link", "a")
    assert "no port above 7457 is free here: give --address HOST:PORT" in said


def test_add_node_takes_addresses(lab):
    dokl("network", "add-node", lab, "f", "--link", "a", "--address", "10.0.0.9:7447",
         "--http", "127.0.0.1:9009")  # fmt: skip
    node = read(lab).nodes["f"]
    assert (node.address, node.http) == ("10.0.0.9:7447", "127.0.0.1:9009")
    assert problems(read(lab)) == []
    assert "--address" in fails("network", "add-node", lab, "g", "--link", "a")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("a", "--link", "b"), "already"),
        (("f", "--link", "x"), "unknown node"),
        (("f g", "--link", "a"), "node name"),
        (("A", "--link", "b"), "capitals"),
        (("f", "--link", "a", "--address", "nowhere"), "not HOST:PORT"),
    ],
)
def test_a_failing_add_changes_nothing(lab, words, message):
    before = lab.read_bytes(), files(lab.parent / "lab.certs")
    assert message in fails("network", "add-node", lab, *words)
    assert before == (lab.read_bytes(), files(lab.parent / "lab.certs"))


def test_an_add_that_cannot_write_changes_nothing(lab, monkeypatch):
    def full(path, text):
        raise OSError(28, "No space left on device", str(path))

    before = lab.read_bytes(), files(lab.parent / "lab.certs")
    monkeypatch.setattr(live, "atomic_text", full)
    fails("network", "add-node", lab, "f", "--link", "a")
    assert before == (lab.read_bytes(), files(lab.parent / "lab.certs"))


def test_without_the_authoritys_key_nobody_joins(lab):
    (lab.parent / "lab.certs/ca.key").unlink()
    assert "ca.key: not here; do this where the network was made" in fails(
        "network", "add-node", lab, "f", "--link", "a"
    )


def test_remove_node_takes_everything_along(lab):
    broker = '[sources.b]\nkind = "mqtt"\nbrokers = ["127.0.0.1:1883"]\ntopics = ["t"]\n'
    lab.write_text(lab.read_text() + broker)
    result = dokl("network", "remove-node", lab, "b")
    network = read(lab)
    assert network.names == ("a", "c", "d")
    assert problems(network) == []
    assert network.sources == {}
    assert not [name for name in files(network.folder) if name.startswith("b.")]
    assert "--name a" in result.stderr
    assert "--name c" in result.stderr
    dokl("network", "add-node", lab, "b", "--link", "a")


def test_a_network_that_falls_apart_is_told(lab):
    dokl("network", "remove-node", lab, "b")
    assert "separate networks" in dokl("network", "remove-node", lab, "d").stderr


def test_a_revoked_name_never_comes_back(lab):
    found = json_of("network", "revoke", lab, "b", "--json")
    assert found["reload"] == ["a", "c"]
    assert found["problems"] == []
    assert read(lab).about.revoked == ("b",)
    assert "revoked = [" in lab.read_text()
    assert "was revoked" in fails("network", "add-node", lab, "b", "--link", "a")
    assert "is revoked" in fails("network", "remove-node", lab, "b")
    assert "unknown node" in fails("network", "revoke", lab, "x")


def test_renew_replaces_key_and_certificate_and_keeps_the_token(lab):
    folder = lab.parent / "lab.certs"
    old = {path.name: path.read_bytes() for path in folder.iterdir()}
    result = dokl("network", "renew", lab, "--name", "a", "--days", 7)
    new = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert {name for name in old if old[name] != new[name]} == {"a.key", "a.pem"}
    assert problems(read(lab)) == []
    assert stat.S_IMODE((folder / "a.key").stat().st_mode) == 0o600
    ends = [load_certificate(folder / f"{name}.pem").not_valid_after_utc for name in "ab"]
    assert ends[0] < ends[1]
    assert f"dokl agent reload {lab} --name a" in result.stderr
    assert json_of("network", "renew", lab, "--json")["reload"] == ["a", "b", "c", "d"]


def test_renew_follows_changed_addresses(lab):
    lab.write_text(lab.read_text().replace(read(lab).nodes["a"].address, "10.0.0.5:7447"))
    assert "not made out for 10.0.0.5" in dokl("network", "check", lab, code=1).stderr
    dokl("network", "renew", lab, "--name", "a")
    dokl("network", "check", lab)


def test_nothing_to_renew_in_play(tmp_path):
    dokl("network", "new", tmp_path / "p.toml", *QUICK, "--insecure-loopback")
    assert "no certificates" in fails("network", "renew", tmp_path / "p.toml")
    dokl("network", "add-node", tmp_path / "p.toml", "f", "--link", "a")
    dokl("network", "remove-node", tmp_path / "p.toml", "f")
    assert files(tmp_path) == ["p.audit.jsonl", "p.toml"]


# -- help --------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", sorted(group.commands))
def test_every_command_has_help_that_fits_and_examples_that_parse(name):
    text = dokl("network", name, "--help").output
    assert max(map(len, text.splitlines())) <= 100
    options = [p for p in group.commands[name].params if isinstance(p, click.Option)]
    assert all(option.help for option in options)
    lines = [line for line in text.split("Examples:")[1].splitlines() if "dokl " in line]
    assert lines
    for line in lines:
        words = words_of(line)
        assert words[:2] == ["network", name]
        group.commands[name].make_context(name, words[2:])


# -- widths, one for each input ------------------------------------------------------------------
def test_length_scales_are_agreed_on_by_the_sample(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    columns = {"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "y": np.sin(3 * X[:, 1])}
    rows = write_csv(tmp_path / "r.csv", columns)
    new = ("--nodes", 3, "--sample", rows, "--target", "y", "--insecure-loopback")
    dokl("network", "new", tmp_path / "lab.toml", *new, "--sigma", "learned")
    lab = read(tmp_path / "lab.toml")
    assert problems(lab) == []
    a, b, c = lab.model.sigma
    assert b < 0.5 * min(a, c)
    assert lab.features().kernel.lengths == (a, b, c)
    told = ("--sigma", f"{a},{b},{c}")  # said or learned, it is the same network
    dokl("network", "new", tmp_path / "told.toml", *new, *told)
    assert read(tmp_path / "told.toml").fingerprint == lab.fingerprint
    dokl("network", "new", tmp_path / "one.toml", *new)
    assert read(tmp_path / "one.toml").fingerprint != lab.fingerprint


def test_widths_that_cannot_be_are_refused(tmp_path):
    new = ("network", "new", tmp_path / "x.toml", *QUICK, "--sigma")
    assert "3 widths for 2 inputs" in fails(*new, "1,2,3")
    assert "--sample" in fails(*new, "learned")


def test_an_unknown_command_of_agents_is_named():
    message = dokl("agent", "status", "lab.toml", code=2).stderr
    assert "there is no command 'status', and no such file" in message
    assert "rollback" in message
    assert "dokl watch" in message
