"""Refusals that last: told at both ends, without weight, and no start runs ahead of the clock."""

import networkx as nx
import numpy as np
import pytest

from dokl.live.protocol.effects import SendHello
from dokl.live.protocol.messages import (
    HEADER,
    HELLO,
    MOST_REFUSALS,
    REFUSAL,
    Message,
    RefusalNotice,
    Refused,
    mark_of,
    pack,
    unpack,
)
from dokl.live.protocol.neighbours import LAPSE
from fake_link import PULL, Link, described, grown, reasons, rows, theta_message


@pytest.fixture
def node(small):
    return grown(small, np.random.default_rng(0))


def about(node, name="n01"):
    facts = node.facts()
    return facts["neighbours"][name]["weight"], facts["problems"]


def hellos(small, effects):
    """The hellos among effects, read."""
    given = {"fingerprint": small.fingerprint, "m": small.m, "D": small.D}
    return [unpack(e.data, **given) for e in effects if isinstance(e, SendHello)]


def say(node, data, at):
    return [*node.message("n01", data, at), *node.tick(at)]


# -- another layout, vectors that cannot be ---------------------------------------------------
def other_layout(small):
    good = bytearray(theta_message(small, 0.1))
    good[4] = 9
    return bytes(good)


def test_another_layout_is_a_problem_and_has_no_weight(node, small):
    assert about(node) == (0.5, [])
    for i in range(4):
        assert reasons(say(node, other_layout(small), 1.0 + i)) == ["version"]
    weight, problems = about(node)
    assert weight == 0.0
    assert "'n01'" in problems[0]
    assert "layout 9" in problems[0]
    assert any("refused" in text for text in node.facts()["assumptions"])
    say(node, theta_message(small, 0.1, step=3), 6.0)
    assert about(node) == (0.5, [])


def test_a_single_refusal_is_no_problem(node, small):
    say(node, other_layout(small), 1.0)
    say(node, other_layout(small), 1.1)
    say(node, other_layout(small), 1.2)
    assert about(node) == (0.5, [])


def test_vectors_that_cannot_be_are_not_made_good_by_a_hello(node, small):
    for step in range(4):
        say(node, theta_message(small, 1e31, step=step + 1), 1.0 + step)
    assert about(node)[0] == 0.0
    say(node, theta_message(small, 0.0, step=9, hello=True, wall=9.0), 6.0)
    assert about(node)[0] == 0.0
    say(node, theta_message(small, 0.1, step=10, wall=10.0), 7.0)
    assert about(node) == (0.5, [])


def test_what_the_transport_throws_away_counts(node):
    for at in (1.0, 2.0, 3.5):
        node.too_large("n01", at)
    weight, problems = about(node)
    assert weight == 0.0
    assert "larger than any" in problems[0]


# -- the other end -----------------------------------------------------------------------------
def test_who_is_refused_hears_of_it_and_gives_the_weight_back(node, small):
    told = []
    for i in range(30):
        told += hellos(small, say(node, other_layout(small), 1.0 + i / 4))
    mine = [r for hello in told for r in hello.refusals if r.whom == mark_of("n01")]
    assert {r.reason for r in mine} == {"version"}

    other = grown(small, np.random.default_rng(1), neighbours=("n00",))
    other._node.name = "n01"
    for step, refusals in enumerate([(RefusalNotice(mark_of("n01"), 1, "large"),), ()]):
        hello = Message(HELLO, small.fingerprint, small.m, small.D, 1, 7, step, wall=float(step),
                        refusals=refusals)  # fmt: skip
        other.message("n00", pack(hello), 1.0 + step)
        weight, problems = about(other, "n00")
        assert (weight, len(problems)) == ((0.0, 1) if refusals else (0.5, 0))
        assert not problems or "'n00' refuses what this node sends (large)" in problems[0]


def test_both_ends_find_back_together(small):
    """One end sends vectors that cannot be, for a while; nothing is left of it afterwards."""
    link = Link(described(nx.path_graph(2)), seed=4, learner=small).start()
    rng = np.random.default_rng(3)
    for i in range(20):
        link.feed("n00", *rows(rng, 5), at=0.1 * i)
        link.feed("n01", *rows(rng, 5), at=0.1 * i)
    link.run(30.0)
    wild = theta_message(small, 1e29, step=500, incarnation=link.nodes["n01"]._node.incarnation)
    for at in (0.1, 1.1, 2.6):
        link._at(30.0 + at, "message", "n00", ("n01", wild))
    link.run(5.0)
    assert about(link.nodes["n00"], "n01")[0] == 0.0
    assert about(link.nodes["n01"], "n00")[0] == 0.0
    assert "refuses what this node sends" in about(link.nodes["n01"], "n00")[1][0]
    link.feed("n01", *rows(rng, 5))
    link.run(10.0)
    assert about(link.nodes["n00"], "n01") == (0.5, [])
    assert about(link.nodes["n01"], "n00") == (0.5, [])


# -- starts -------------------------------------------------------------------------------------
def test_no_start_runs_ahead_of_the_clock(node, small):
    node.latest = 1000
    assert reasons(node.message("n01", theta_message(small, 5.0, incarnation=2**61), 1.0)) == [
        "ahead"
    ]
    assert reasons(node.message("n01", theta_message(small, 0.1, incarnation=7), 1.1)) == []
    assert about(node) == (0.5, [])


def test_a_thief_that_leaves_locks_nobody_out(node, small):
    """A newer start under the name of a neighbour that goes on speaking, and then falls silent."""
    say(node, theta_message(small, 0.1, step=1), 1.0)
    say(node, theta_message(small, 9.0, step=1, incarnation=500), 2.0)  # with a stolen key
    heard = []
    for i in range(40):
        at = 3.0 + i / 2
        heard += [at] if not reasons(say(node, _theta(small, 2 + i, at), at)) else []
        if at == 6.0:
            weight, problems = about(node)
            assert weight == 0.0
            assert "two agents speak as 'n01'" in problems[0]
    assert heard[0] == pytest.approx(2.0 + LAPSE, abs=0.6)
    assert len(heard) > 10
    assert about(node) == (0.5, [])


def _theta(small, step, at, incarnation=7):
    return theta_message(small, 0.1, step=step, incarnation=incarnation, wall=at)


def test_two_agents_under_one_name_are_told_apart_and_both_hear_of_it(node, small):
    said = []
    for i in range(24):
        at = 1.0 + i / 4
        said += hellos(small, say(node, _theta(small, i, at, incarnation=7 + i % 2), at))
    weight, problems = about(node)
    assert weight == 0.0
    assert "two agents speak as 'n01'" in problems[0]
    last = said[-1].refusals
    assert {(r.incarnation, r.reason) for r in last} == {(7, "twice"), (8, "twice")}
    for mine in (7, 8):
        agent = grown(small, np.random.default_rng(mine), neighbours=("n00",))
        agent._node.name, agent._node.incarnation = "n01", mine
        agent.message("n00", pack(said[-1]), 1.0)
        assert "messages of two agents with this node's name" in about(agent, "n00")[1][0]
    node.tick(8.0)
    end = 1.0 + 23 / 4
    for i in range(8):  # one of them ends
        at = end + 2 * i
        say(node, _theta(small, 100 + i, at, incarnation=8), at)
    assert about(node) == (0.5, [])


def test_two_that_the_transport_sees_are_not_used_though_silent(node, small):
    node.seen_twice(["n01"], 1.0)
    assert about(node)[0] == 0.0
    (hello,) = hellos(small, node.tick(1.5))
    assert hello.refusals[0].reason == "twice"
    node.seen_twice([], 9.0)
    assert about(node) == (0.5, [])


def test_overtaken_messages_are_no_rivals(node, small):
    say(node, _theta(small, 5, 1.0, incarnation=8), 1.0)
    for i in range(6):  # the last of an earlier process, again and again
        say(node, _theta(small, 4, 0.5), 1.0 + i)
    assert about(node) == (0.5, [])


# -- bytes --------------------------------------------------------------------------------------
def test_refusals_in_a_hello_are_bounded_and_checked(small):
    given = {"fingerprint": small.fingerprint, "m": small.m, "D": small.D}
    many = tuple(RefusalNotice(mark_of(f"n{i}"), i, "stale") for i in range(MOST_REFUSALS + 5))
    hello = Message(HELLO, small.fingerprint, small.m, small.D, 1, 7, 0, refusals=many)
    data = pack(hello)
    assert unpack(data, **given).refusals == many[:MOST_REFUSALS]
    unknown = data[: HEADER.size] + REFUSAL.pack(mark_of("x"), 1, 200)
    assert unpack(unknown, **given).refusals == ()
    for wrong in (data[:-1], data + bytes(REFUSAL.size)):
        with pytest.raises(Refused, match="size"):
            unpack(wrong, **given)


def test_a_refused_neighbour_is_still_asked_and_told(small):
    """Who is refused goes on sending, or nothing it has could ever be in order again."""
    node = grown(small, np.random.default_rng(0), policy=PULL)
    for at in (1.0, 2.0, 3.5):
        node.too_large("n01", at)
    X, Y = rows(np.random.default_rng(5), 5)
    effects = [*node.samples(X, Y, 4.0), *node.tick(4.5)]
    assert any(type(e).__name__ == "Ask" for e in effects)
