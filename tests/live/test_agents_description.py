"""The description of a live network: what it says, what it comes to, and what can be wrong."""

import re
from dataclasses import replace

import numpy as np
import pytest

from dokl.base.errors import BadInput, UnknownName
from dokl.learning.columns import Preprocessor
from dokl.live.certificates.checks import problems
from dokl.live.description import (
    About,
    AgreedInputs,
    ExchangePolicy,
    Model,
    Node,
    host_port,
    is_loopback,
    parse,
    read,
)
from dokl.live.description.inspection import layout_problems
from dokl.live.description.text import text
from live_networks import small

ROWS = {
    "temp": np.array([20.1, 22.7, np.nan, 19.0]),
    "wind": np.array([1e9 + 0.1, 1e9 + 0.2, 1e9, 1e9 - 3]),
    "place": np.array(["roof", 'a "quoted"\tone', "roof", None], object),
}


def scaled(**more):
    """Inputs of ROWS, standardised by them."""
    prepared = Preprocessor.plan(ROWS, standardise="fixed")
    agreed = {k: tuple(v) for k, v in prepared.agreed().items() if k != "standardise"}
    agreed["levels"] = tuple(prepared.levels.items())
    return AgreedInputs(standardise="fixed", **agreed, **more), prepared


def without_line(network):
    return replace(network, inputs=replace(network.inputs, fingerprint=None))


# -- there and back ----------------------------------------------------------------------------
def test_what_is_written_is_read_again():
    inputs, _ = scaled(target="y", labels=("no", "yes"), task="classification", drop=("id",))
    network = small(
        inputs=inputs,
        model=Model(sigma=0.1 + 0.2, D=30, kernel="matern", parameters={"nu": 1.5}, mu=1e-7,
                    loss="logistic", lam=1e-9, intercept=0.5),
        exchange=ExchangePolicy("pull", 0.5, 10, "float16", 2.5),
        routes={"b->a": "localhost:9000"},
    )  # fmt: skip
    assert without_line(parse(text(network), "lab.toml")) == network


def test_scaling_survives_to_the_last_bit():
    inputs, prepared = scaled()
    again = parse(text(small(inputs=inputs))).preprocessor()
    assert again.frozen
    assert np.array_equal(again.transform(ROWS), prepared.transform(ROWS))
    assert again.agreed() == prepared.agreed()


def test_defaults_of_a_short_file():
    network = parse(
        '[network]\nname = "n"\n[inputs]\nnumeric = ["x"]\n'
        "shift = [0]\ncount = [0]\ntotal = [0]\nsquare = [0]\n"
        '[nodes.a]\naddress = "127.0.0.1:1"\n'
    )
    assert network.secure
    assert network.folder.name == "network.certs"
    assert (network.exchange.mode, network.durability.mode) == ("push", "process")
    assert network.names == ("a",)
    assert network.neighbours("a") == ()
    assert (network.d, network.m) == (1, 1)


def test_a_face_is_not_needed():
    network = small(nodes={name: Node(f"[::1]:{i}") for i, name in enumerate("abc", 1)})
    assert parse(text(network)).nodes["c"] == Node("[::1]:3")


# -- who talks to whom -------------------------------------------------------------------------
def test_neighbours_and_who_dials_whom():
    network = small(links=(("c", "a"), ("a", "b"), ("b", "d"), ("d", "a")))
    assert network.names == ("c", "a", "b", "d")
    assert network.neighbours("a") == ("b", "c", "d")
    assert network.degree("d") == 2
    assert network.dials("c") == {}
    assert network.dials("a") == {"c": network.nodes["c"].address}
    assert set(network.dials("d")) == {"a", "b"}
    dialled = [frozenset((name, peer)) for name in network.names for peer in network.dials(name)]
    assert sorted(map(sorted, dialled)) == sorted(map(sorted, network.links))


def test_a_route_says_where_to_dial_and_may_turn_the_direction():
    network = small(routes={"b->a": "10.1.1.1:5", "b->c": "10.1.1.1:6"})
    assert network.dials("b") == {"a": "10.1.1.1:5", "c": "10.1.1.1:6"}
    assert network.dials("c") == {}


def test_a_revoked_node_is_as_if_it_were_not_there():
    written = text(small()).replace("revoked = []", 'revoked = ["c"]')
    network = parse(written)
    assert network.names == ("a", "b")
    assert network.links == (("a", "b"),)
    assert network.neighbours("b") == ("a",)
    with pytest.raises(BadInput, match="'c' is revoked"):
        network.neighbours("c")
    assert "revoked 'c' is still linked with b" in problems(network)[0]
    assert network.fingerprint == small().fingerprint


def test_without_takes_links_and_routes_along():
    network = small(routes={"b->a": "localhost:5", "c->b": "localhost:6"}).without(["a"])
    assert network.names == ("b", "c")
    assert network.about.links == (("b", "c"),)
    assert network.routes == {"c->b": "localhost:6"}


def test_unknown_nodes_name_the_nearest():
    with pytest.raises(UnknownName, match="did you mean 'roof'"):
        small(links=(("roof", "yard"),)).node("rof")


# -- what must be the same ---------------------------------------------------------------------
def test_the_fingerprint_is_of_what_averaging_needs_and_of_nothing_else():
    network, ours = small(), small().fingerprint
    for same in (
        {"model": Model(D=20, loss="huber", schedule="sqrt", lam=0.1, intercept=1.0)},
        {"exchange": ExchangePolicy("off")},
        {"nodes": {"z": Node("127.0.0.1:1")}},
    ):
        assert replace(network, **same).fingerprint == ours
    for other in (
        {"model": Model(D=22)},
        {"model": Model(D=20, sigma=1.5)},
        {"model": Model(D=20, seed=2)},
        {"model": Model(D=20, variant="cos")},
        {"inputs": AgreedInputs.plain(4)},
        {"inputs": replace(network.inputs, numeric=("x1", "x3", "x2"))},
        {"inputs": replace(network.inputs, total=(0.0, 0.0, 1e-300))},
        {"inputs": AgreedInputs.plain(3, labels=(0, 1))},
    ):
        assert replace(network, **other).fingerprint != ours
    labels = [AgreedInputs.plain(3, labels=pair) for pair in ((0, 1), (0, 2))]
    assert len({replace(network, inputs=each).fingerprint for each in labels}) == 2


def test_the_features_are_those_of_the_fingerprint_and_drawn_once():
    network = small(model=Model(kernel="cauchy", sigma=2.0, D=16, variant="sobol", seed=9))
    drawn = network.features()
    assert drawn is network.features()
    assert drawn.omega.shape == (3, 8)
    assert (drawn.kernel.sigma, drawn.seed) == (2.0, 9)


def test_problem_takes_the_numbers_of_its_schedule():
    problem = small(model=Model(D=20, schedule="pegasos", lam=0.1, n0=3.0)).problem()
    assert problem.method.schedule(1, 1.0) == pytest.approx(1 / (0.1 * 4))
    assert problem.method.lam == 0.1
    assert small(model=Model(D=20, schedule="sqrt")).problem().method.schedule(4, 1.0) == 0.5
    loss = small(model=Model(D=20, loss="huber", loss_parameter=2.0)).problem().method.loss
    assert loss.spec() == {"name": "huber", "p": 2.0}


def test_outputs_of_classes():
    for labels, m in (((), 1), (("a", "b"), 1), ((1, 2, 3), 3)):
        assert small(inputs=AgreedInputs.plain(2, labels=labels)).m == m


# -- refusals ----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("every_seconds", "every_second", r"key in \[exchange\] .*did you mean 'every_seconds'"),
        ("[durability]", "[durabilty]", "unknown section 'durabilty': did you mean 'durability'"),
        ("http =", "htpp =", r"key in \[nodes.a\] 'htpp': did you mean 'http'"),
        ('mode = "push"', 'mode = "psh"', r"\[exchange\] mode 'psh': did you mean 'push'"),
        ('name = "lab"', "", r"\[network\] name is missing"),
        ('name = "lab"', 'name = "my lab"', "letters A-Z"),
        ('address = "127.0.0.1:7000"', "", r"\[nodes.a\] address is missing"),
        ("D = 20", 'D = "20"', r"\[model\] D must be a whole number"),
        ("D = 20", "D = 21", r"\[model\] variant 'orthogonal' makes pairs"),
        ('kernel = "gaussian"', 'kernel = "gausian"', "did you mean 'gaussian'"),
        ('loss = "squared"', 'loss = "hinge"', "is for classes"),
        ('schedule = "normalised"', 'schedule = "normalized"', "did you mean 'normalised'"),
        ('schedule = "normalised"', 'schedule = "pegasos"\nmu = 1.0', "takes lam, n0, and not mu"),
        ("lam = 0.0", "lam = -1.0", r"\[model\] lam must be finite and at least 0"),
        ("every_seconds = 0.1", "every_seconds = 0", "nothing would ever be exchanged"),
        ('clip = "auto"', "clip = nan", r"\[exchange\] clip must be finite"),
        ('clip = "auto"', 'clip = "aut"', "did you mean 'auto'"),
        ("keys = 100000", "keys = 0", r"\[limits\] keys must be finite and at least 1"),
        ("shift = [0.0, ", "shift = [", r"\[inputs\] shift has 2 numbers for 3 numeric columns"),
        ("shift = [0.0", "shift = [inf", "not finite"),
        ('target = "y"', 'target = "x1"', "column 'x1' is named twice"),
        ('"x1"', '"id"', "a column 'id'"),
        ("levels = []", 'levels = [["p", "q"]]', "each entry is"),
        ('task = "regression"', 'task = "classification"', "labels must be two or more"),
        ('task = "regression"', 'task = "regression"\nlabels = [1, 2]', "labels are for"),
        ("[nodes.a]", "[nodes.'a b']", "node name 'a b'"),
        ("[nodes.a]", "[nodes.CA]", "certificate authority has this name"),
        ('["a", "b"]', '["a", "b", "c"]', "a link is two node names"),
        ('["a", "b"]', '["a", "x"]', "names 'x', and there is no"),
        ('["a", "b"]', '["b", "b"]', "links a node with itself"),
        ('["a", "b"]', '["c", "b"]', "is listed twice"),
        ('"127.0.0.1:7000"', '"127.0.0.1"', "address '127.0.0.1' is not HOST"),
        ("sigma = 1.0", "sigma = 1.5", "fingerprint is [0-9a-f]{16}, and this content comes to"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_one_clear_line(old, new, message):
    written = text(small())
    assert old in written
    with pytest.raises(BadInput, match=message) as caught:
        parse(written.replace(old, new, 1), "lab.toml")
    assert str(caught.value).startswith("lab.toml: ")
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_or_no_toml(tmp_path):
    with pytest.raises(BadInput, match="no such file"):
        read(tmp_path / "lab.toml")
    with pytest.raises(BadInput, match="not valid TOML"):
        parse("[network")


def test_several_faults_are_counted_and_the_lenient_reader_leaves_them_to_problems():
    written = text(small()).replace('["a", "b"]', '["x", "y"]')
    with pytest.raises(BadInput, match=re.escape("(and 1 more: dokl network check)")):
        parse(written)
    assert len([p for p in problems(parse(written, strict=False)) if "[network] links" in p]) == 2


# -- everything that problems() names ----------------------------------------------------------
NODES = {name: Node(f"127.0.0.1:{7000 + i}") for i, name in enumerate("abc")}


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"about": About("n", (("a", "b"), ("b", "x")), "insecure-loopback")}, "names 'x'"),
        ({"about": About("n", (("a", "a"),), "insecure-loopback")}, "with itself"),
        ({"about": About("n", (("a", "b"), ("b", "a")), "insecure-loopback")}, "twice"),
        ({"about": About("n", (("a", "b"),), "insecure-loopback")},
         "make 2 separate networks; c cannot reach"),
        ({"nodes": NODES | {"c": Node("127.0.0.1:7000")}}, "127.0.0.1:7000 is used twice"),
        ({"nodes": NODES | {"c": Node("127.0.0.1:7002", http="127.0.0.1:7000")}},
         "a listens and c has its HTTP interface there"),
        ({"nodes": NODES | {"c": Node("127.0.0.1:7002", http="localhost:7000")}},
         "a listens and c has its HTTP interface there"),
        ({"nodes": NODES | {"c": Node("127.0.0.1:7002", "0.0.0.0:8000", "127.0.0.1:8000")}},
         "0.0.0.0:8000 is used twice: c listens and c has its HTTP interface there"),
        ({"nodes": NODES | {"c": Node("127.0.0.1:7000", "127.0.0.1:5")}}, "a, c are all dialled"),
        ({"nodes": NODES | {"c": Node("10.0.0.1:7000")}}, "not on loopback"),
        ({"nodes": NODES | {"c": Node("127.0.0.1:7002", "0.0.0.0:7002")}}, "listen 0.0.0.0:7002"),
        ({"nodes": NODES | {"b": Node("0.0.0.0:7001")}}, "c would dial b at 0.0.0.0:7001"),
        ({"nodes": NODES | {"a": Node("[::]:7000")}}, '[nodes.a] listen = "[::]:7000"'),
        ({"routes": {"b->a": "10.0.0.9:7000"}}, "10.0.0.9:7000 is not on loopback"),
        ({"nodes": NODES | {"c": Node("127.0.0.1:99999")}}, "is not HOST:PORT"),
        ({"nodes": NODES | {"C": Node("127.0.0.1:9")}}, "differ only in capitals"),
        ({"routes": {"a->c": "localhost:1"}}, "not linked"),
        ({"routes": {"a-c": "localhost:1"}}, "is not \"FROM->TO\""),
        ({"routes": {"a->b": "localhost:1", "b->a": "localhost:2"}}, "only one side"),
        ({"routes": {"b->a": "localhost"}}, "is not HOST:PORT"),
        ({"model": Model(D=20, sigma=-1.0)}, "sigma"),
        ({"model": Model(D=20, loss="sqared")}, "did you mean 'squared'"),
        ({"model": Model(D=20, schedule="constnt")}, "did you mean 'constant'"),
        ({"inputs": replace(AgreedInputs.plain(3), fingerprint="0" * 16)}, "comes to"),
    ],
)  # fmt: skip
def test_every_problem_is_named(parts, message):
    found = layout_problems(small(**parts))
    assert any(message in line for line in found), found
    assert not any("\n" in line for line in found)


def test_nothing_is_wrong_with_a_sound_network():
    assert problems(small()) == []


def test_nodes_behind_one_gateway_may_listen_at_the_same_port():
    places = {n: Node(f"gate.example:{9000 + i}", "0.0.0.0:7447") for i, n in enumerate("abc")}
    links = (("a", "b"), ("b", "c"))
    assert layout_problems(small(about=About("n", links), nodes=places)) == []


# -- addresses ---------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "address",
    ["", "host", ":1", "host:", "host:0", "host:65536", "host:x", "::1:80", "a b:1", "h:²"],
)
def test_addresses_that_are_none(address):
    with pytest.raises(BadInput, match="is not HOST:PORT"):
        host_port(address)


def test_loopback():
    assert all(map(is_loopback, ("127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "localhost:1")))
    assert not any(map(is_loopback, ("0.0.0.0:1", "10.0.0.1:1", "[::]:1", "example.org:1")))


def test_schedules_of_the_command_line_are_those_of_the_library():
    from dokl import schedules
    from dokl.cli import network_new
    from dokl.live.description import agreed, sections

    assert set(network_new.SCHEDULES) == set(schedules.BUILTIN)
    assert network_new.MODES == sections.MODES
    assert network_new.DTYPES == sections.DTYPES
    assert network_new.STANDARDISE == agreed.STANDARDISE
