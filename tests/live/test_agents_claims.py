"""What a neighbour claims to hold of a node's sums proves nothing: only a seal does."""

import itertools
from dataclasses import replace

import networkx as nx
import pytest
from test_agents_sums import EVERY, SumsLink

from dokl.live.certificates.signing import Seals
from dokl.live.protocol.messages import LARGEST_COUNT, SUMS, VERSIONS, mark_of
from dokl.live.protocol.versions import _VERSION
from dokl.network.sums import origins
from fake_link import letter, reasons
from live_networks import on_disk

VICTIM, RELAY, ATTACKER = "n00", "n01", "n02"
LATEST = 1000  # the largest start that clocks allow; those of the tests count up from 100


class SealedLink(SumsLink):
    """Nodes with certificates of one authority; clocks allow starts up to LATEST."""

    def __init__(self, folder, graph, policy=EVERY, **options):
        super().__init__(graph, policy, **options)
        names = tuple((letter(a), letter(b)) for a, b in graph.edges)
        self.files, self.latest = on_disk(folder, links=names), LATEST

    def seals(self, name):
        return Seals(self.files.certificate_files(name))

    def roll_for(self, name):
        return replace(self.roll, seals=self.seals(name))

    def claim(self, sender, to, whom, version):
        """A list of versions in which `sender` says that it holds this one of `whom`."""
        node = self.nodes[sender]._node
        body = _VERSION.pack(mark_of(whom), *version)
        data = node.pack_body(VERSIONS, body, self.now, waiting=True)
        self._done(to, self.nodes[to].message(sender, data, self.now))

    def problems(self):
        return [text for node in self.nodes.values() for text in node.facts()["problems"]]


@pytest.fixture
def link(tmp_path):
    """The victim in the middle: everybody else is its neighbour."""
    made = SealedLink(tmp_path, nx.star_graph(3)).start()
    for name in made.nodes:
        made.teach(name, 20)
    return made.run(20)


@pytest.mark.parametrize("incarnation", [LARGEST_COUNT - 1, LARGEST_COUNT - 2, 900, 2**64 - 1])
def test_a_claim_moves_nobodys_counters(link, incarnation):
    before = link.nodes[VICTIM]._way.sealing.incarnation
    for rows in (1, 10**6):
        link.claim(ATTACKER, VICTIM, VICTIM, (incarnation, rows))
        link.teach(VICTIM, 5)
        link.run(20)
    assert link.nodes[VICTIM]._way.sealing.incarnation == before
    assert set(link.totals().values()) == {90}
    link.kill(VICTIM)
    link.run(5)
    link.start(VICTIM)
    link.claim(ATTACKER, VICTIM, VICTIM, (incarnation, 1))
    link.teach(VICTIM, 5)
    link.run(20)
    assert set(link.totals().values()) == {95}, "nor after a restart"
    assert link.problems() == []
    assert all(
        max(e.version) < LATEST for n in link.nodes.values() for e in n._way.account.values()
    )


def test_sums_from_a_start_later_than_clocks_allow_are_neither_kept_nor_passed_on(link):
    sums = link.learner.own_sums(link.nodes[VICTIM].state)
    before = link.nodes[RELAY]._way.account[VICTIM].version
    poisoned = origins.to_bytes(origins.Entry(VICTIM, LATEST + 1, sums))
    data = link.nodes[VICTIM]._node.pack_body(SUMS, link.seals(VICTIM).seal(poisoned), link.now)
    for name in (RELAY, ATTACKER):
        assert reasons(link.nodes[name].message(VICTIM, data, link.now)) == ["ahead"]
    assert link.nodes[RELAY]._way.account[VICTIM].version == before
    link.teach(VICTIM, 5)
    link.run(20)
    assert set(link.totals().values()) == {85}


def test_a_node_without_its_journal_learns_its_start_from_what_it_sealed_itself(link):
    """Its clock went back as well: its new sums would be older than those that others hold."""
    link.kill(VICTIM)
    link.journal[VICTIM], link.incarnations = [], itertools.count(5)
    del link.kept[VICTIM]
    link.run(5)
    link.start(VICTIM)
    link.run(5)
    link.teach(VICTIM, 7)
    link.run(30)
    assert link.nodes[VICTIM]._node.incarnation < 100
    assert set(link.totals().values()) == {67}
    assert link.problems() == []


def test_what_another_seals_in_a_nodes_name_moves_nothing(link):
    node, other = link.nodes[VICTIM], link.nodes[ATTACKER]._node
    before = node._way.sealing.incarnation
    entry = origins.Entry(VICTIM, 900, link.learner.own_sums(node.state))
    forged = link.seals(ATTACKER).seal(origins.to_bytes(entry))
    effects = node.message(ATTACKER, other.pack_body(SUMS, forged, link.now), link.now)
    assert reasons(effects) == ["signature"]
    assert node._way.sealing.incarnation == before
