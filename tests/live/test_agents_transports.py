"""The settings of Zenoh, the boxes, and the network in memory: all without a socket."""

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from dokl.base.errors import BadFile, BadInput, UnknownName
from dokl.live.description import About, AgreedInputs, Model, Network, Node
from dokl.live.transports import QUEUE, Transport
from dokl.live.transports import zenoh_settings as settings
from dokl.live.transports.boxes import ReceiveBox, SendBox
from dokl.live.transports.memory import Hub, MemoryTransport

LINKS = (("a", "b"), ("b", "c"))


def lab(names="abc", links=LINKS, security="mtls", routes=None, path="lab.toml"):
    nodes = {name: Node(f"127.0.0.1:{7001 + i}") for i, name in enumerate(names)}
    parts = {"nodes": nodes, "routes": routes or {}, "path": Path(path)}
    return Network(About("lab", links, security), Model(), AgreedInputs.plain(2), **parts)


# -- settings ----------------------------------------------------------------------------------
def test_only_the_given_links_and_only_tls():
    found = settings.configuration(lab(), "b", 1000)
    buffers = "#so_sndbuf=65536;so_rcvbuf=65536"
    assert found["listen/endpoints"] == ["tls/127.0.0.1:7002" + buffers]
    assert found["connect/endpoints"] == ["tls/127.0.0.1:7001" + buffers]  # the earlier; c dials b
    assert found["transport/link/protocols"] == ["tls"]
    assert not found["scouting/multicast/enabled"]
    assert not found["scouting/gossip/enabled"]
    assert not found["transport/shared_memory/enabled"]
    assert found["connect/timeout_ms"] == -1
    # Else a neighbour with a good certificate could have a gigabyte put together here.
    assert 1000 < found["transport/link/rx/max_message_size"] < 2_000_000
    tls = found["transport/link/tls"]
    assert tls["enable_mtls"]
    assert tls["verify_name_on_connect"]
    assert tls["close_link_on_expiration"]
    assert tls["listen_private_key"] == "lab.certs/b.key"


def test_a_route_is_dialled_in_place_of_the_address():
    found = settings.configuration(lab(routes={"b->a": "10.0.0.9:7"}), "b", 1000)
    assert found["connect/endpoints"][0].startswith("tls/10.0.0.9:7#")


def test_without_certificates_there_is_no_access_table_and_nothing_but_loopback():
    network = lab(security="insecure-loopback")
    found = settings.configuration(network, "b", 1000)
    assert found["transport/link/protocols"] == ["tcp"]
    assert "access_control" not in found
    assert "transport/link/tls" not in found
    open_to_all = replace(network, nodes=network.nodes | {"b": Node("192.168.1.7:7002")})
    with pytest.raises(BadInput, match="'b' has no certificates"):
        settings.configuration(open_to_all, "b", 1000)
    with pytest.raises(BadInput, match=r"'c' has no certificates at 192\.168\.1\.7"):
        settings.configuration(open_to_all, "c", 1000)  # which dials it


def allowed(table, peer, flow):
    """{(message, key)} that a neighbour may send ("ingress") or be sent ("egress")."""
    assert table["default_permission"] == "deny"
    [subject] = [s["id"] for s in table["subjects"] if s["cert_common_names"] == [peer]]
    named = {r for p in table["policies"] if p["subjects"] == [subject] for r in p["rules"]}
    rules = [r for r in table["rules"] if r["id"] in named and r["flows"] == [flow]]
    assert all(rule["permission"] == "allow" for rule in rules)
    return {(m, k) for rule in rules for m in rule["messages"] for k in rule["key_exprs"]}


def test_a_neighbour_may_speak_only_as_itself():
    heard = allowed(settings.access_table(lab(), "b"), "a", "ingress")
    assert heard == {
        ("put", "dokl/lab/theta/a"),
        ("put", "dokl/lab/hello/a"),
        ("liveliness_token", "dokl/lab/alive/a"),
        ("reply", "dokl/lab/pull/a/b"),
        ("declare_queryable", "dokl/lab/pull/a/b"),
        ("query", "dokl/lab/pull/b/a"),
        ("declare_subscriber", "dokl/lab/theta/b"),
        ("declare_subscriber", "dokl/lab/hello/b"),
        ("declare_liveliness_subscriber", "dokl/lab/alive/b"),
        ("liveliness_query", "dokl/lab/alive/b"),
    }


def test_what_one_node_lets_out_is_what_its_neighbour_lets_in():
    network = lab()
    tables = {name: settings.access_table(network, name) for name in network.names}
    for a, b in network.links:
        for one, other in ((a, b), (b, a)):
            out = allowed(tables[one], other, "egress")
            assert out == allowed(tables[other], one, "ingress")


def test_names_that_end_like_others_share_no_rules():
    network = lab(("a", "x-a", "a-x", "b"), (("a", "b"), ("x-a", "b"), ("a-x", "b")))
    table = settings.access_table(network, "b")
    for peer in ("a", "x-a", "a-x"):
        heard = allowed(table, peer, "ingress")
        assert {key for message, key in heard if message == "put"} == {
            f"dokl/lab/{kind}/{peer}" for kind in ("theta", "hello")
        }


def test_a_revoked_node_is_no_subject():
    table = settings.access_table(lab().without(["c"]), "b")
    assert [subject["id"] for subject in table["subjects"]] == ["a"]
    assert "/c" not in str(table)


def test_a_session_that_could_not_open_is_refused_before_anything_is_changed(tmp_path):
    with pytest.raises(BadFile, match=r"ca\.pem"):
        settings.check(lab(path=tmp_path / "lab.toml"), "a", 1000)
    with pytest.raises(UnknownName, match="node"):
        settings.check(lab(), "nobody", 1000)


# -- boxes -------------------------------------------------------------------------------------
def test_the_newest_of_each_kind_is_sent():
    box = SendBox(lossless=False)
    box.hold(False)
    for step in range(100):
        box.put("theta", b"%d" % step)
    box.put("hello", b"h")
    assert [box.take(), box.take()] == [("theta", b"99"), ("hello", b"h")]
    with pytest.raises(UnknownName, match="'thetta': did you mean 'theta'"):
        box.put("thetta", b"")


def test_without_loss_all_are_sent_in_order_and_a_full_box_lets_the_oldest_go():
    box = SendBox(lossless=True)
    for step in range(QUEUE + 3):
        box.put("theta", b"%d" % step)
    box.hold(False)
    assert [box.take()[1] for _ in range(QUEUE)] == [b"%d" % (3 + i) for i in range(QUEUE)]
    assert box.dropped == 3


def test_the_sender_waits_while_the_box_is_held_and_goes_when_it_closes():
    box, sent = SendBox(lossless=False), []

    def send():
        while (message := box.take()) is not None:
            sent.append(message)
            done.set()

    done = threading.Event()
    thread = threading.Thread(target=send)
    thread.start()
    box.put("theta", b"1")
    assert not done.wait(0.05)
    box.hold(False)
    assert done.wait(5)
    box.close()
    thread.join(5)
    assert not thread.is_alive()
    assert sent == [("theta", b"1")]


class Endless:
    """A payload that must not be copied."""

    def __len__(self):
        return 1 << 40

    def __bytes__(self):
        raise AssertionError("copied")


def test_a_payload_that_is_too_large_is_counted_and_not_copied():
    woken = []
    box = ReceiveBox(False, 10, lambda: woken.append(1))
    box.know(["a"])
    box.arrived("a", "theta", Endless())
    box.arrived("a", "theta", b"0123456789")
    assert box.refused == {"a": 1}
    assert box.bytes_in == {"a": 10}
    assert box.taken() == [("a", "theta", b"0123456789")]
    assert len(woken) == 1


def test_who_is_no_neighbour_any_more_is_forgotten():
    box = ReceiveBox(False, 10, lambda: None)
    box.know(["a", "b"])
    for peer in "ab":
        box.saw(peer, True)
        box.arrived(peer, "theta", b"x")
    box.know(["b", "c"])
    box.arrived("a", "theta", b"again")
    box.saw("a", False)
    assert box.taken() == [("b", "theta", b"x")]
    assert box.events() == [("b", True)]
    assert box.up == {"b"}


def test_events_of_a_link_that_flaps_do_not_pile_up():
    box = ReceiveBox(False, 10, lambda: None)
    box.know(["a"])
    for _ in range(1000):
        box.saw("a", True)
        box.saw("a", False)
    box.saw("a", True)
    found = box.events()
    assert len(found) <= 2
    assert found[-1] == ("a", True)


# -- memory ------------------------------------------------------------------------------------
def opened(hub, network=None, lossless=False):
    network = network or lab()
    made: dict[str, Transport] = {
        name: MemoryTransport(network, name, lossless, hub=hub) for name in network.names
    }
    for transport in made.values():
        transport.open()
    return made


def test_neighbours_hear_each_other_and_nobody_else():
    nodes = opened(Hub())
    assert nodes["b"].events() == [("a", True), ("c", True)]
    nodes["a"].send("hello", b"from a")
    assert nodes["b"].receive() == [("a", "hello", b"from a")]
    assert nodes["c"].receive() == []
    assert nodes["a"].bytes_out == {"b": 6}
    assert nodes["b"].bytes_in == {"a": 6, "c": 0}


@pytest.mark.parametrize("lossless", [False, True])
def test_the_newest_theta_or_all_of_them(lossless):
    nodes = opened(Hub(), lossless=lossless)
    for step in range(5):
        nodes["a"].send("theta", b"%d" % step)
    found = [data for _, _, data in nodes["b"].receive()]
    assert found == ([b"0", b"1", b"2", b"3", b"4"] if lossless else [b"4"])


def test_a_question_is_answered_in_short_if_nothing_is_newer():
    hub = Hub(delay=(1.0, 1.0))
    nodes = opened(hub)
    nodes["a"].offer(b"long", (3, 7), b"short")
    for known, answer in (((3, 6), ("theta", b"long")), ((3, 7), ("hello", b"short"))):
        nodes["b"].ask("a", known)
        nodes["b"].ask("a", known)  # one at a time
        hub.advance(2)
        assert nodes["b"].receive() == [("a", *answer)]
        hub.advance(2)
        assert nodes["b"].receive() == []


def test_a_lost_question_can_be_asked_again_later():
    hub = Hub(drop=1.0)
    nodes = opened(hub)
    nodes["a"].offer(b"long", (1, 1), b"short")
    nodes["b"].ask("a", (0, 0))
    hub.drop = 0.0
    nodes["b"].ask("a", (0, 0))
    assert nodes["b"].receive() == []
    hub.advance(5)
    nodes["b"].ask("a", (0, 0))
    assert nodes["b"].receive() == [("a", "theta", b"long")]


def test_a_partition_and_its_healing():
    hub = Hub(delay=(1.0, 1.0))
    nodes = opened(hub)
    nodes["b"].events()
    nodes["a"].send("theta", b"lost on the way")
    hub.partition("a", "bc")
    hub.advance(2)
    assert nodes["b"].receive() == []
    assert nodes["b"].events() == [("a", False)]
    hub.heal()
    assert nodes["b"].events() == [("a", True)]
    nodes["c"].close()
    assert nodes["b"].events() == [("c", False)]


def chatter(seed, **how):
    hub = Hub(seed, drop=0.3, delay=(0.0, 1.0), **how)
    nodes = opened(hub, lossless=True)
    for step in range(40):
        nodes["a"].send("theta", b"%d" % step)
        hub.advance(0.01)
    hub.advance(2)
    return [int(data) for _, _, data in nodes["b"].receive()]


def test_bad_luck_is_the_same_for_the_same_seed():
    first = chatter(1)
    assert first == chatter(1) != chatter(2)
    assert 15 < len(first) < 40
    assert first == sorted(first)
    assert chatter(1, reorder=True) != sorted(chatter(1, reorder=True))


def test_a_new_neighbour_in_memory():
    hub = Hub()
    nodes = opened(hub, lab(links=(("a", "b"),)))
    wider = lab()
    for transport in nodes.values():
        transport.reopen(wider)
    assert nodes["b"].events() == [("a", True), ("c", True)]
    nodes["c"].send("hello", b"new")
    assert nodes["b"].receive() == [("c", "hello", b"new")]
