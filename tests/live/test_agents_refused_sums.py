"""Sums that are refused for good are a problem that people see, at both ends, until it is over."""

from dataclasses import replace

import networkx as nx
import pytest
from test_agents_claims import SealedLink
from test_agents_sums import SumsLink

from dokl.live.protocol.effects import SendTheta
from dokl.live.protocol.messages import SUMS, VERSIONS
from dokl.live.protocol.neighbours import Fault
from dokl.live.protocol.versions import pack_versions
from dokl.network.sums import origins
from fake_link import letter


@pytest.fixture
def pair():
    link = SumsLink(nx.path_graph(2)).start()
    for name in link.nodes:
        link.teach(name, 20)
    return link.run(10)


def problems(link, name):
    return link.nodes[name].facts()["problems"]


def believing(link, name, target):
    """Let a node believe targets up to this size from now on."""
    near = link.network.neighbours(name)
    link.nodes[name].change(near, None, replace(link.roll_for(name), target=target))


def test_a_lasting_refusal_is_a_problem_at_both_ends_until_sums_are_accepted(pair):
    believing(pair, "n00", 1e-3)
    pair.teach("n01", 20)
    pair.run(60)  # lists of versions go to and fro meanwhile
    (here,), (there,) = problems(pair, "n00"), problems(pair, "n01")
    assert here.startswith("what 'n01' sends is refused (sums): ")
    assert "sums of 'n01' that cannot be: squares of targets" in here
    assert there == "'n00' refuses what this node sends (sums): see its log"
    pair.run(300)
    assert problems(pair, "n00") == [here], "it stays, in the same words"
    believing(pair, "n00", 20.0)
    pair.run(30)
    assert problems(pair, "n00") == problems(pair, "n01") == []
    assert set(pair.totals().values()) == {60}


def test_lists_of_versions_and_hellos_do_not_reset_the_count(pair):
    node, other = pair.nodes["n00"], pair.nodes["n01"]
    sums = pair.learner.own_sums(other.state)
    wrong = replace(sums, rows=sums.rows + 1, zz=2.0 * sums.zz)
    for at in range(4):
        now = pair.now + at
        entry = other._node.pack_body(SUMS, pair.roll.seals.seal(
            origins.to_bytes(origins.Entry("n01", 10**6, wrong))), now)  # fmt: skip
        told = other._node.pack_body(VERSIONS, pack_versions(other._way.account), now)
        for data in (entry, told, other.hello(now)):
            node.message("n01", data, now)
    assert node._node.peers["n01"].faults["n01"].times == 4
    assert "what 'n01' sends is refused (sums)" in problems(pair, "n00")[0]


def test_sums_of_one_origin_do_not_cover_those_of_another(tmp_path):
    """A neighbour forges another's sums, and sends its own in good order."""
    link = SealedLink(tmp_path, nx.path_graph(3)).start()
    for name in link.nodes:
        link.teach(name, 20)
    link.run(20)
    sums = link.learner.own_sums(link.nodes["n02"].state)
    entry = origins.to_bytes(origins.Entry("n02", 900, replace(sums, rows=sums.rows + 1)))
    for _ in range(8):
        link.teach("n01", 5)
        forged = link.nodes["n01"]._node.pack_body(SUMS, link.seals("n01").seal(entry), link.now)
        link._at(link.now, "message", "n00", ("n01", forged))
        link.run(1)
    (text,) = problems(link, "n00")
    assert "what 'n01' sends is refused (signature): " in text
    assert "sums of 'n02'" in text
    assert "refuses what this node sends (signature)" in problems(link, "n01")[0]
    assert problems(link, "n02") == [], "nothing is proven against the one whose name was used"
    link.run(200)
    assert problems(link, "n00") == problems(link, "n01") == [], "it ended"
    assert set(link.totals().values()) == {100}


def test_who_sealed_what_cannot_be_hears_of_it_and_not_who_passed_it_on():
    """The relay, with other bounds, believes what the node behind it refuses."""
    link = SumsLink(nx.complete_graph(3)).start()
    link.part((letter(0), letter(2)))
    for name in link.nodes:
        link.teach(name, 20)
    link.run(20)
    believing(link, "n00", 1e-3)
    link.teach("n02", 20)
    link.run(20)
    assert "sums of 'n02' that cannot be" in problems(link, "n00")[0]
    assert problems(link, "n01") == []
    link.heal()
    link.run(20)
    assert "'n00' refuses what this node sends (sums)" in problems(link, "n02")[0]


def test_single_refusals_far_apart_never_add_up(pair):
    node = pair.nodes["n00"]
    for at in range(5):
        node._at(100.0 * (1 + at)).spurn("n01", "sums", "cannot be", "n01")
        node.tick(100.0 * (1 + at) + 90.0)
    assert problems(pair, "n00") == []
    assert node._node.peers["n01"].faults == {}


def test_a_fault_lasts_by_times_and_by_seconds():
    assert not Fault("sums", "", 2, 0.0, 9.0).lasting
    assert not Fault("sums", "", 9, 0.0, 1.9).lasting
    assert Fault("sums", "", 3, 0.0, 2.0).lasting


def test_sums_go_on_to_one_who_refuses_them_but_not_all_the_time(pair):
    believing(pair, "n00", 1e-3)
    pair.teach("n01", 20)
    pair.run(30)
    before = len(pair.effects(SendTheta, "n01"))
    pair.run(100)
    assert 4 <= len(pair.effects(SendTheta, "n01")) - before <= 10
