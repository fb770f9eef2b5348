"""`dokl watch`: polling agents that die, hang and lie; the table."""

import io
import json
import os
import pty
import re
import signal
import ssl
import time
from dataclasses import asdict, replace

import numpy as np
import pytest

from commands import dokl, fails, json_of
from dokl.base.errors import BadInput
from dokl.live.certificates import Authority, node_files
from dokl.live.dashboard import fetch, terminal
from dokl.live.dashboard.collect import Collector
from dokl.live.dashboard.layout import given_places, places
from dokl.live.dashboard.status import MOST_LINES, MOST_ROWS, parse
from dokl.live.dashboard.view import NodeView
from dokl.live.description import read
from fake_agents import HOSTILE, NAMES, RATE, FakeLab, ring_with_chords, start_watch


def by_name(view):
    return {node.name: node for node in view.nodes}


# --- what an agent says ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [b"", b"<html>", b"[]", b"null", b'{"name": 3}', b"[" * 100_000, b"\xff\xfe", b" " * 2_000_000],
)
def test_what_is_no_status_is_refused(body):
    with pytest.raises(BadInput, match="its /status"):
        parse(body)


@pytest.mark.parametrize("junk", [None, -1, 1e999, float("nan"), "x" * 10_000, [], {}, [[1]], True])
def test_nonsense_in_a_status_becomes_nothing(lab, junk):
    honest = lab.agents["a"].status()
    for key in honest.keys() - {"name"}:
        said = parse(json.dumps(honest | {key: junk}).encode())
        assert said.samples is None or said.samples >= 0
        assert len(said.network) <= 300
    for key in ("recent", "curve", "kind"):
        said = parse(json.dumps(honest | {"error": {key: junk}}).encode())
        assert said.kind == "mse"
        assert said.curve == ()


def test_text_is_printable_and_bounded():
    said = parse(json.dumps({"name": "a", "problems": [HOSTILE] * 99, "assumptions": [3]}).encode())
    assert said.problems == ("<script>alert(1)</script> [2J [red]",) * MOST_LINES
    assert said.assumptions == ()


def test_rows_that_make_no_sense_are_left_out():
    rows = [
        [1, 2.0, 2.5, 2.0, 3.0],
        [2, 1.0, 1.0, 3.0, 0.5],
        [2, 1.0, 1.0, None, None],
        [3, None, 1, 0, 1],
    ]
    told = {"name": "a", "newest": {"target": HOSTILE, "coverage": 2, "rows": [*rows, [9], "x"]}}
    newest = parse(json.dumps(told).encode()).newest
    assert [(row.number, row.inside) for row in newest.rows] == [(1.0, True), (2.0, None)]
    assert newest.coverage is None
    assert "\x1b" not in newest.target
    many = [[n, 0.0, 0.0, None, None] for n in range(5000)]
    long = parse(json.dumps({"name": "a", "newest": {"rows": many}}).encode()).newest
    assert len(long.rows) == MOST_ROWS
    assert long.rows[-1].number == 4999


# --- where nodes are drawn -------------------------------------------------------------------


@pytest.mark.parametrize("k", [1, 2, 3, 20, 100, 130])
def test_places_fill_the_square_are_apart_and_always_the_same(k):
    names = [f"n{i}" for i in range(k)]
    links = ring_with_chords(names, 7) if k > 2 else []
    found = places(names, links)
    assert list(found) == names
    assert found == places(names, links)
    assert all(0 <= x <= 1 and 0 <= y <= 1 for x, y in found.values())
    assert len(set(found.values())) == k


def test_a_graph_in_pieces_has_places_too():
    found = places(list("abcdef"), [("a", "b"), ("b", "c"), ("d", "e")])
    assert len(set(found.values())) == 6


# --- polling ---------------------------------------------------------------------------------


def test_everyone_is_seen_and_rates_need_two_looks(collector):
    first = by_name(collector.poll())
    assert [node.state for node in first.values()] == ["up"] * 4
    assert first["a"].samples_per_s is None
    time.sleep(0.1)
    view = collector.poll()
    for node in view.nodes:
        assert node.samples_per_s > 0
        assert node.bytes_per_s > 0
        assert 0 < node.error < 1
        assert 0 < node.oldest_message_s < 1
        assert (node.neighbours_up, node.neighbours) == (2, 2)
    assert {link.state for link in view.links} == {"up"}
    assert view.totals["up"] == 4
    assert view.totals["samples_per_s"] == sum(node.samples_per_s for node in view.nodes)


def test_a_killed_agent_is_down_and_comes_back(lab, collector):
    collector.poll()
    before = by_name(collector.poll())["b"].samples
    lab.kill("b")
    view = collector.poll()
    gone = by_name(view)["b"]
    assert (gone.state, gone.why) == ("down", "nothing listens at its address")
    assert gone.samples == before
    assert gone.samples_per_s is gone.bytes_per_s is gone.oldest_message_s is None
    down = {(link.a, link.b) for link in view.links if link.state == "down"}
    assert down == {("a", "b"), ("b", "c")}
    (said,) = by_name(view)["a"].assumptions
    assert said.startswith("neighbour 'b' is down: its weight 0.25 is back at self")
    lab.revive("b")
    back = by_name(collector.poll())["b"]
    assert (back.state, back.why, back.samples_per_s) == ("up", None, None)


def test_each_fault_is_told_once_and_in_words(lab, collector):
    lab.kill("b")
    lab.agents["d"].changes = {
        "problems": ["the disk is full"], "source": {"finished": True}, "disagreement": 1e-15,
    }  # fmt: skip
    view = collector.poll()
    assert [(each.kind, each.text) for each in view.troubles] == [
        ("down", "b is down (nothing listens at its address); a and c continue without it"),
        ("problem", "the disk is full"),
    ]
    nodes = by_name(view)
    assert nodes["a"].says == ()  # its neighbour has a row of its own
    assert nodes["b"].says == ("nothing listens at its address",)
    assert nodes["d"].says == ("the disk is full",)
    assert nodes["d"].remarks == ("its source has ended",)
    lab.kill("a")
    lab.kill("c")
    texts = [each.text for each in collector.poll().troubles]
    assert texts[0] == "a is down (nothing listens at its address); d continues without it"
    assert texts[1] == (
        "b is down (nothing listens at its address); all its neighbours are down, too"
    )


def test_the_column_of_problems_has_no_remarks(lab, collector):
    """What sharing is worth, that a stream has ended, what the theory would want: no problems."""
    lab.agents["a"].changes = {
        "source": {"finished": True}, "sharing": {"ratio": 0.917},
        "assumptions": ["neighbour 'b' is clipped: what is combined is no average"],
    }  # fmt: skip
    view = collector.poll()
    node = by_name(view)["a"]
    assert terminal.cells(node)[-1] == ""
    assert not view.troubles
    assert node.remarks == (
        "its source has ended",
        "neighbour 'b' is clipped: what is combined is no average",
        "with the others its error is 0.92 of what it is alone",
    )


def test_a_link_that_is_down_between_two_that_are_up(lab, collector):
    lab.agents["a"].changes = {"neighbours": {"b": {"up": False, "age_s": 9.0}}}
    (trouble,) = collector.poll().troubles
    assert trouble.text == "the link between a and b is down; both continue without it"


def test_a_small_terminal_keeps_the_names(lab, collector):
    from rich.console import Console

    lab.kill("d")
    view = collector.poll()
    long = replace(
        view, nodes=tuple(replace(n, name=f"Wanshouxigong-{n.name}") for n in view.nodes)
    )
    for width in (80, 120):
        console = Console(width=width, height=24, file=io.StringIO(), highlight=False)
        console.print(terminal.table(long, 16, width))
        shown = console.file.getvalue()
        assert all(f"Wanshouxigong-{name}" in shown for name in lab.names)
        assert shown.index("Wanshouxigong-d") < shown.index("Wanshouxigong-a")  # what is down
        assert max(map(len, shown.splitlines())) <= width
        assert ("disagreement" in shown) == (width == 120)


def test_stations_are_drawn_where_they_are(lab):
    text = lab.path.read_text()
    where = {"a": (116.4, 40.0), "b": (116.4, 39.9), "c": (116.6, 40.0), "d": (116.5, 40.1)}
    for name, (east, north) in where.items():
        text = text.replace(f"[nodes.{name}]\n", f"[nodes.{name}]\nat = [{east}, {north}]\n")
    lab.path.write_text(text)
    network = read(lab.path)
    assert network.nodes["c"].at == (116.6, 40.0)
    drawn = places(network.names, network.links, given_places(network))
    assert drawn["a"][0] == drawn["b"][0] < drawn["d"][0] < drawn["c"][0]  # west to east
    assert drawn["d"][1] < drawn["a"][1] == drawn["c"][1] < drawn["b"][1]  # north above
    wide, tall = drawn["c"][0] - drawn["a"][0], drawn["b"][1] - drawn["d"][1]
    assert np.isclose(wide / tall, np.cos(np.deg2rad(40.0)), rtol=1e-3)  # not stretched
    lab.path.write_text(text.replace("at = [116.6, 40.0]\n", ""))
    assert given_places(read(lab.path)) is None
    lab.path.write_text(text.replace("at = [116.6, 40.0]", "at = [116.6, 140.0]"))
    with pytest.raises(BadInput, match="longitude, latitude"):
        read(lab.path)


def test_a_hung_agent_holds_up_nobody_for_longer_than_the_timeout(lab):
    with Collector(lab.path, timeout=2.0) as collector:
        collector.poll()
        lab.agents["c"].hang()
        for _ in range(2):
            view = collector.poll()
            assert by_name(view)["c"].why == "no answer within 2 s"
            assert view.totals["up"] == 3
        lab.agents["c"].release()
        states = [by_name(collector.poll())["c"].state for _ in range(10)]
        assert states[-1] == "up"


@pytest.mark.slow
def test_a_hung_agent_does_not_change_the_rates_of_others(lab):
    with Collector(lab.path, timeout=2.0) as collector:
        for _ in range(3):
            collector.poll()
            time.sleep(0.5)
        lab.agents["a"].hang()  # the first that is waited for
        rates = [node.samples_per_s for node in collector.poll().nodes if node.name != "a"]
    assert rates == pytest.approx([RATE] * 3, rel=0.35)


def test_the_past_is_bounded(lab):
    with Collector(lab.path, kept=5) as collector:
        for _ in range(8):
            collector.poll()
        assert {len(past.points) for past in collector.pasts.values()} == {5}
        assert {len(curve) for curve in collector.curves(7).values()} <= set(range(8))


def test_counts_that_go_back_give_no_rate(lab, collector):
    lab.agents["a"].changes = {"samples": 1000, "bytes_in": 10**6}
    collector.poll()
    lab.agents["a"].changes = {"samples": 3, "bytes_in": 0, "bytes_out": 0}
    node = by_name(collector.poll())["a"]
    assert node.samples_per_s is None
    assert node.bytes_per_s is None


def test_numbers_that_only_just_are_some_make_no_infinity(lab, collector):
    """Of a single one the page's feed would end, and its charts would draw axes for ever."""
    for junk in (1.7e308, 5e-324):
        keys = ("samples", "bytes_in", "bytes_out", "disagreement", "uptime_s")
        for agent in lab.agents.values():
            agent.changes = dict.fromkeys(keys, junk)
            agent.changes["error"] = {"recent": junk, "curve": [[1, junk], [junk, 1]]}
        views = [collector.poll() for _ in range(3)]
        told = [asdict(view) | {"totals": view.totals} for view in views]
        text = json.dumps([told, collector.curves(60)], allow_nan=False)
        assert "e+3" not in text
        assert "e-3" not in text


def test_nodes_of_which_nothing_is_known_have_the_kind_of_error_of_the_others(tmp_path):
    with FakeLab(tmp_path, "ab", [("a", "b")], kind="mistakes") as lab:
        text = lab.path.read_text()
        labels = '[inputs]\ntask = "classification"\nlabels = ["n", "y"]\n'
        lab.path.write_text(text.replace("[inputs]\n", labels))
        lab.kill("a")
        with Collector(lab.path) as collector:
            assert [node.kind for node in collector.poll().nodes] == ["mistakes"] * 2


def test_what_is_no_agent_is_down_and_says_why(lab, collector):
    lab.agents["a"].raw = b"<html>"
    lab.agents["b"].raw = b" " * 1_100_000
    found = by_name(collector.poll())
    assert found["a"].why == "its /status is not JSON"
    assert found["b"].why.startswith("its /status is longer than")
    lab.agents["a"].raw = lab.agents["b"].raw = None
    assert collector.poll().totals["down"] == 0


def test_a_stranger_and_another_fingerprint_are_remarked(lab, collector):
    lab.agents["a"].changes = {"name": "z"}
    lab.agents["b"].changes = {"fingerprint": "abcd"}
    stranger, fingerprints = collector.poll().remarks
    assert stranger == "at the address of a answers z of network lab"
    assert "abcd" in fingerprints


def test_a_node_without_a_face_is_known_by_its_neighbours(lab):
    text = lab.path.read_text()
    lab.path.write_text(re.sub(r"(\[nodes.a\]\n.*\n)http = .*\n", r"\1", text))
    with Collector(lab.path) as collector:
        node = by_name(collector.poll())["a"]
        assert (node.state, node.why) == ("up", "it has no HTTP interface; its neighbours see it")
        lab.kill("a")
        assert by_name(collector.poll())["a"].state == "down"


def test_a_changed_description_is_taken_and_a_broken_one_is_not(lab, collector):
    collector.poll()
    text = lab.path.read_text()
    lab.path.write_text(text + '[nodes.e]\naddress = "127.0.0.1:1"\nhttp = "127.0.0.1:1"\n')
    view = collector.poll()
    assert [node.name for node in view.nodes] == [*NAMES, "e"]
    assert view.version == 2
    lab.path.write_text("[network\n")
    view = collector.poll()
    assert len(view.nodes) == 5
    assert "showing the earlier description" in view.remarks[0]
    lab.path.write_text(text)
    assert collector.poll().remarks == ()


def test_elsewhere_it_speaks_https_trusts_the_networks_ca_alone_and_sends_the_token(
    lab, collector, monkeypatch
):
    monkeypatch.setattr(fetch, "is_loopback", lambda address: False)
    network = read(lab.path)
    assert "ca.pem is needed" in by_name(collector.poll())["a"].why
    network.folder.mkdir()
    authority, stranger = Authority.new("lab"), Authority.new("lab")
    for name, content in authority.files().items():
        (network.folder / name).write_bytes(content)
    for name, signer in (("a", authority), ("b", stranger)):
        for file, content in node_files(network, name, signer, 30).items():
            (network.folder / file).write_bytes(content)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*network.certificate_files(name)[1:])
        lab.agents[name].server.socket = context.wrap_socket(
            lab.agents[name].server.socket, server_side=True
        )
    found = by_name(collector.poll())
    assert found["a"].state == "up"
    token = network.token("a", reading=True)
    assert lab.agents["a"].asked[-1]["Authorization"] == f"Bearer {token}"
    assert found["b"].why.startswith("its certificate is not of this network")
    assert lab.agents["b"].asked == []
    assert found["c"].why.startswith("it does not speak TLS")


def test_on_loopback_no_token_is_sent(lab, collector):
    collector.poll()
    assert "Authorization" not in lab.agents["a"].asked[-1]


# --- the table -------------------------------------------------------------------------------


def test_once_prints_a_table(lab):
    lab.kill("d")
    lab.agents["a"].changes = {"problems": [HOSTILE]}
    shown = dokl("watch", lab.path, "--once", "--every", "0.1").stdout
    assert "3 up, 1 down" in shown
    (row,) = (line for line in shown.splitlines() if line.lstrip().startswith("d "))
    assert "DOWN" in row
    assert "nothing listens" in row
    assert "<script>alert(1)</script> [2J [red]" in shown
    assert "\x1b" not in shown


def test_a_chosen_node_shows_measured_and_predicted(lab):
    lab.learned = 5000
    shown = dokl("watch", lab.path, "--once", "--node", "b", "--every", "0.1").output
    assert "b: power of the last 100 rows; 90 of 100 within the interval" in shown
    assert "90 % interval" in shown
    assert shown.count("outside") == 1
    newest = json_of("watch", lab.path, "--json", "--node", "b", "--every", "0.1")["newest"]
    assert newest["rows"][-1].keys() == {"number", "measured", "predicted", "lower", "upper"}
    assert "bb" in fails("watch", lab.path, "--node", "bb")


def test_json_is_one_document(lab):
    lab.kill("d")
    found = json_of("watch", lab.path, "--json", "--every", "0.1")
    assert [node["state"] for node in found["nodes"]] == ["up", "up", "up", "down"]
    assert found["totals"]["up"] == 3
    assert found["nodes"][0]["samples_per_s"] > 0


def test_a_long_table_leaves_out_calm_nodes_only():
    nodes = [NodeView(f"n{i}", "down" if i == 7 else "up") for i in range(9)]
    nodes[8] = NodeView("n8", "up", problems=("full",))
    assert [n.name for n in terminal.choose_nodes(nodes, 4)] == ["n0", "n1", "n7", "n8"]
    assert [n.name for n in terminal.choose_nodes(nodes, 1)] == ["n7", "n8"]
    assert terminal.choose_nodes(nodes, 9) == nodes


def test_what_cannot_be_watched_is_said_in_a_line(lab, tmp_path):
    assert "there is no such file" in fails("watch", tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("[network]\nnam = 'x'\n")
    assert "nam" in fails("watch", tmp_path / "bad.toml")
    port = lab.ports["a"]
    assert "cannot listen" in fails("watch", lab.path, "--web", "--port", port)
    assert "--once" in dokl("watch", lab.path, "--web", "--once", code=2).stderr


def test_ctrl_c_ends_the_live_table_cleanly(lab):
    ours, theirs = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "120", "LINES": "40"}
    process = start_watch(lab.path, "--every", "0.2", stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    shown = b""
    try:
        while shown.count(b"4 up, 0 down") < 2:
            shown += os.read(ours, 65536)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    assert b"Traceback" not in shown
