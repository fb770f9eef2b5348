"""Sums that travel in pieces: lost, repeated, late, mixed up, forged, and never too many kept."""

from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
from test_agents_sums import EVERY, SumsLink

from dokl.base.errors import BadInput
from dokl.live.certificates.signing import Seals
from dokl.live.protocol import pieces
from dokl.live.protocol.effects import SendTheta
from dokl.live.protocol.messages import HEADER, PIECE, SUMS
from dokl.live.transports.boxes import ReceiveBox, SendBox
from dokl.network.sums import origins
from dokl.network.sums.origins import Entry
from fake_link import reasons

BODY = bytes(range(256)) * 8


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Pieces of 300 bytes, four of an entry of the tests' networks."""
    monkeypatch.setattr(pieces, "WHOLE", 500)
    monkeypatch.setattr(pieces, "SIZE", 300)


def put_together(parts, most=2048, now=0.0, kept=()):
    found = []
    for part in parts:
        kept, whole = pieces.add(kept, part, most, now)
        found += [] if whole is None else [whole]
    return kept, found


# -- pieces -----------------------------------------------------------------------------------
@pytest.mark.parametrize("seed", range(5))
def test_pieces_in_any_order_and_repeated_make_the_whole_once(seed):
    parts = pieces.cut(BODY)
    assert len(parts) == pieces.number(len(BODY)) == 8
    assert max(map(len, parts)) == pieces.largest(len(BODY)) == 300
    order = np.random.default_rng(seed).permutation(8)
    twice = [parts[i] for i in np.concatenate([order[:7], order[:7], order[7:]])]
    assert put_together(twice) == ((), [BODY])


def test_two_wholes_do_not_mix_and_a_third_takes_the_place_of_the_oldest():
    bodies = [bytes([n]) * 700 for n in range(3)]
    first, second, third = map(pieces.cut, bodies)
    mixed = [part for pair in zip(first, second, strict=True) for part in pair]
    assert put_together(mixed)[1] == bodies[:2]
    kept, _ = put_together([first[0], second[0], third[0]])
    assert [each.mark for each in kept] == [second[0][:16], third[0][:16]]
    assert put_together(second[1:], kept=kept)[1] == [bodies[1]]


def test_a_lost_piece_is_made_up_for_by_the_next_time():
    parts = pieces.cut(BODY)
    kept, whole = put_together([*parts[:3], *parts[4:]])
    assert whole == []
    assert put_together(parts[:4], kept=kept)[1] == [BODY]


def test_what_waits_too_long_is_forgotten():
    parts = pieces.cut(BODY)
    kept, _ = put_together(parts[:7])
    assert pieces.alive(kept, pieces.EXPIRY - 1) == kept
    assert pieces.alive(kept, pieces.EXPIRY) == ()
    assert put_together(parts[7:], now=pieces.EXPIRY + 1, kept=kept)[1] == []


def test_pieces_of_nothing_are_refused():
    part = pieces.cut(BODY)[0]
    head = origins.PIECE.pack
    wrong = [
        b"",
        part[:20],
        part + b"!",
        head(b"x" * 16, 3, 3) + b"y",
        head(b"x" * 16, 0, 9) + b"y",
    ]
    for piece in (*wrong, head(b"x" * 16, 0, 0) + b"y"):
        with pytest.raises(BadInput):
            pieces.add((), piece, len(BODY), 0.0)
    with pytest.raises(BadInput, match="do not make the whole"):
        put_together([*pieces.cut(BODY)[:7], pieces.cut(BODY)[7][:-1] + b"!"])


# -- nodes ------------------------------------------------------------------------------------
def test_large_sums_reach_everybody_in_pieces_and_fall_silent():
    link = SumsLink(nx.path_graph(4)).start()
    for name in link.nodes:
        link.teach(name, 30)
    link.run(60)
    assert set(link.totals().values()) == {120}
    kinds = {effect.data[5] for effect in link.effects(SendTheta)}
    assert kinds == {PIECE}
    assert max(len(e.data) for e in link.effects(SendTheta)) <= HEADER.size + 300
    before = dict(link.sent)
    link.run(500)
    assert link.sent == before
    assert not any(kept for node in link.nodes.values() for kept in node._way.coming.values())


def test_pieces_wait_for_each_other_however_slowly_they_come():
    link = SumsLink(nx.path_graph(2), replace(EVERY, every_seconds=40.0)).start()
    link.teach("n00", 30)
    link.run(600)
    assert link.totals() == {"n00": 30, "n01": 30}
    assert len(link.effects(SendTheta)) == pieces.number(len(link.nodes["n00"]._way.sealed["n00"]))


@pytest.mark.parametrize("seed", range(4))
def test_lost_repeated_and_late_pieces_change_no_total(seed):
    link = SumsLink(nx.cycle_graph(4), seed=seed, loss=0.2, delay=(0.001, 0.6), repeat=0.3).start()
    for turn in range(10):
        for name in list(link.nodes):
            link.teach(name, 4)
        if turn == 5:
            link.kill("n01")
        link.run(1.0)
        assert all(t <= sum(link.acknowledged().values()) for t in link.totals().values())
    link.start("n01")
    link.run(120)
    assert set(link.totals().values()) == {sum(link.acknowledged().values())}


def test_rows_that_come_meanwhile_do_not_starve_what_is_on_its_way():
    """An entry on its way is sent to its end, however often there is a newer one."""
    link = SumsLink(nx.path_graph(2), replace(EVERY, every_seconds=0.5)).start()
    for _ in range(40):
        link.teach("n00", 2)
        link.run(0.3)
    assert link.totals()["n01"] >= 40


def test_a_neighbour_takes_bounded_room_whatever_it_sends():
    link = SumsLink(nx.path_graph(2)).start().run(1)
    node, most = link.nodes["n00"], 8
    for n in range(200):
        piece = origins.PIECE.pack(n.to_bytes(16, "big"), n % most, most) + b"x" * 280
        body = link.nodes["n01"]._node.pack_body(PIECE, piece, link.now)
        node.message("n01", body, link.now)
    assert len(node._way.coming["n01"]) == pieces.KEPT
    node.tick(link.now + pieces.EXPIRY)
    assert node._way.coming["n01"] == ()
    node.message("n01", body, link.now)
    node.peer_lost("n01", link.now)
    assert "n01" not in node._way.coming


def test_the_whole_is_signed_and_a_forged_piece_spoils_only_itself():
    link = SumsLink(nx.path_graph(2)).start()
    for name in link.nodes:
        link.teach(name, 40)
    link.run(20)
    node, sender = link.nodes["n00"], link.nodes["n01"]._node
    own = link.learner.own_sums(link.nodes["n01"].state)
    sealed = Seals().seal(origins.to_bytes(Entry("n01", 10**6, replace(own, rows=own.rows + 1))))
    parts = pieces.cut(sealed)
    forged = parts[-1][:-1] + bytes([parts[-1][-1] ^ 1])
    found = [
        reasons(node.message("n01", sender.pack_body(PIECE, part, link.now), link.now))
        for part in (*parts[:-1], forged)
    ]
    assert found == [[]] * (len(parts) - 1) + [["signature"]]
    for part in parts:
        node.message("n01", sender.pack_body(PIECE, part, link.now), link.now)
    assert node.facts()["sums"]["origins"]["n01"] == own.rows + 1


def test_small_sums_travel_whole(monkeypatch):
    monkeypatch.setattr(pieces, "WHOLE", 2_000_000)
    link = SumsLink(nx.path_graph(2)).start()
    link.teach("n00", 30)
    link.run(10)
    assert {effect.data[5] for effect in link.effects(SendTheta)} == {SUMS}


# -- the boxes of a transport -----------------------------------------------------------------
def test_boxes_keep_as_many_pieces_as_belong_together():
    out = SendBox(False, depth=3)
    out.hold(False)
    for n in range(5):
        out.put("theta", b"%d" % n)
        out.put("hello", b"h%d" % n)
    taken = [out.take() for _ in range(6)]
    assert [data for kind, data in taken if kind == "theta"] == [b"2", b"3", b"4"]
    box = ReceiveBox(False, 100, lambda: None, depth=2)
    box.know(["a"])
    for n in range(4):
        box.arrived("a", "theta", b"%d" % n)
    assert box.taken() == [("a", "theta", b"2"), ("a", "theta", b"3")]
