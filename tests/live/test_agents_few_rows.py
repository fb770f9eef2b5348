"""Single rows cannot be read off: any two entries that a node seals differ by `fewest_rows`."""

import itertools
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
from test_agents_claims import ATTACKER, VICTIM, SealedLink
from test_agents_sums import EVERY, SumsLink

from dokl.base.errors import BadFile
from dokl.live.certificates.signing import seal_and_entry
from dokl.live.description import ExchangePolicy, Model
from dokl.live.protocol.effects import SendTheta
from dokl.live.protocol.messages import HEADER, HELLO, SUMS, VERSIONS, Message, mark_of, pack
from dokl.live.protocol.sealing import UNKNOWN
from dokl.live.protocol.sum_sharing import QUIET_SECONDS
from dokl.live.protocol.versions import _VERSION
from dokl.live.store import Store
from dokl.live.transports.memory import Hub, MemoryTransport
from dokl.network.sums import origins
from fake_link import rows
from live_networks import small
from memory_agents import WAIT, arrival, killed, made, wait
from stores import opened
from variants import first

FEWEST = 10
POLICY = replace(EVERY, fewest_rows=FEWEST)


def entry_in(data):
    """The entry in the bytes of a message of sums."""
    return origins.from_bytes(seal_and_entry(data[HEADER.size :])[2])


class Lab(SumsLink):
    """Notes of which rows each entry is that the victim seals."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.ids, self.number, self.seen = [], itertools.count(), []

    def learn(self, n):
        self.teach(VICTIM, n)
        self.ids.append(frozenset(next(self.number) for _ in range(n)))

    def _done(self, name, effects):
        before = self.kept.get(name, (0, b""))[1]
        super()._done(name, effects)
        after = self.kept.get(name, (0, b""))[1]
        if name == VICTIM and after != before:
            self._note(origins.from_bytes(seal_and_entry(after)[2]))

    def _note(self, entry):
        same = [ids for known, ids in self.seen if known.content == entry.content]
        ids = same[0] if same else frozenset().union(*self.ids)
        assert len(ids) == entry.sums.rows or not entry.sums.rows
        self.seen.append((entry, ids if entry.sums.rows else frozenset()))

    def check(self):
        """Of no two entries the difference is of few rows."""
        for (_, one), (_, other) in itertools.combinations(self.seen, 2):
            assert one == other or len(one ^ other) >= FEWEST

    def rows_told(self):
        return [entry.sums.rows for entry, _ in self.seen]

    def restart(self, forget=0, lost=False):
        """As after a crash; the last batches may be gone, or all of its store."""
        self.kill(VICTIM)
        del self.journal[VICTIM][len(self.ids) - forget :], self.ids[len(self.ids) - forget :]
        if lost:
            self.kept.pop(VICTIM, None)
            self.journal[VICTIM], self.ids = [], []
        self.run(1)
        self.start(VICTIM)


def claim(link, to, version):
    """A list in which the attacker says that it holds this version of the victim's sums."""
    node = link.nodes[ATTACKER]._node
    data = node.pack_body(VERSIONS, _VERSION.pack(mark_of(to), *version), link.now, waiting=True)
    link._done(to, link.nodes[to].message(ATTACKER, data, link.now))


def test_claims_after_every_row_get_no_single_rows():
    lab = Lab(nx.star_graph(3), POLICY).start()
    for _ in range(60):
        lab.learn(1)
        own = lab.nodes[VICTIM]._way.account.get(VICTIM)
        inc, told = (lab.nodes[VICTIM]._way.sealing.incarnation, 0) if own is None else own.version
        for version in ((inc, told + 1), (inc + 1, 0), (inc + 5, 10**6)):
            claim(lab, VICTIM, version)
        lab.run(2)
    assert lab.rows_told() == [10, 20, 30, 40, 50, 60]
    sent = [entry_in(e.data) for e in lab.effects(SendTheta) if e.data[5] == SUMS]
    assert {entry.sums.rows for entry in sent if entry.origin == VICTIM} == set(lab.rows_told())


def test_restarts_after_every_row_give_no_single_rows():
    lab = Lab(nx.star_graph(3), POLICY).start()
    for _ in range(35):
        lab.learn(1)
        claim(lab, VICTIM, (lab.nodes[VICTIM]._way.sealing.incarnation + 1, 3))
        lab.run(2)
        lab.restart()
        lab.run(3)
    assert lab.rows_told() == [10, 20, 30]
    lab.check()


@pytest.mark.parametrize("seed", first(*range(8)))
def test_whatever_happens_no_two_entries_differ_by_few_rows(seed):
    """Claims, crashes, lost batches, a lost store: row by row, what was sealed is accounted for."""
    rng = np.random.default_rng(seed)
    lab = Lab(nx.star_graph(3), POLICY, seed=seed, loss=0.1).start()
    for _ in range(60):
        lab.learn(int(rng.integers(1, 8)))
        event = rng.integers(10)
        if event < 3:
            lab.restart()
        elif event == 3:
            lab.restart(forget=int(rng.integers(1, 4)))
        elif event == 4 and rng.random() < 0.3:
            lab.restart(lost=True)
        else:
            claim(
                lab, VICTIM, (lab.nodes[VICTIM]._way.sealing.incarnation + int(rng.integers(3)), 99)
            )
        lab.run(float(rng.uniform(0, 4)))
    lab.check()
    assert len(lab.seen) > 5
    lab.learn(2 * FEWEST)  # more than 5 % of the rows it has, so that they are told
    lab.run(60)
    known = [n.facts()["sums"]["origins"][VICTIM] for n in lab.nodes.values()]
    assert max(known) - min(known) < FEWEST, "and all of it gets there"


def test_a_node_that_lost_few_rows_withdraws_its_sums_until_there_are_enough_new_ones():
    lab = Lab(nx.star_graph(3), POLICY).start()
    for _ in range(3):
        lab.learn(10)
        lab.run(5)
    lab.learn(3)
    lab.learn(10)
    lab.run(10)
    assert lab.rows_told() == [10, 20, 30, 43]
    lab.restart(forget=1)
    lab.run(10)
    assert lab.rows_told()[4:] == [0]
    lab.learn(9)
    lab.run(10)
    assert lab.rows_told()[4:] == [0]
    lab.learn(1)
    lab.run(10)
    assert lab.rows_told()[4:] == [0, 43]
    assert set(lab.totals().values()) == {43}
    lab.check()


def test_sums_of_an_unknown_past_count_from_the_start():
    """A store that kept nothing of what was sealed, of an earlier dokl say."""
    link = SumsLink(nx.path_graph(2), POLICY)
    link.kept = {"n00": UNKNOWN}
    link.journal["n00"] = [rows(link.source, 25)]
    link.start()
    link.run(20)
    assert link.totals()["n01"] == 0
    link.teach("n00", 9)
    link.run(20)
    assert link.totals()["n01"] == 0
    link.teach("n00", 1)
    link.run(20)
    assert link.totals()["n01"] == 35


def test_a_sealed_entry_heard_again_makes_no_node_tell_few_rows(tmp_path):
    """The attacker held it back, and the node's store lost it together with the last rows."""
    link = SealedLink(tmp_path, nx.star_graph(2), POLICY).start()
    link.teach(VICTIM, 10)
    link.run(10)
    early = link.kept[VICTIM]
    link.teach(VICTIM, 10)
    link.run(10)
    held = link.nodes[VICTIM]._way.sealed[VICTIM]
    for name in list(link.nodes):
        link.kill(name)
    link.kept[VICTIM] = early
    link.start()
    link.teach(VICTIM, 2)
    data = link.nodes[ATTACKER]._node.pack_body(SUMS, held, link.now)
    link._done(VICTIM, link.nodes[VICTIM].message(ATTACKER, data, link.now))
    link.run(30)
    assert link.nodes[VICTIM]._way.account[VICTIM].sums.rows == 10
    assert link.kept[VICTIM][0] == 22
    link.teach(VICTIM, 10)
    link.run(30)
    assert set(link.totals().values()) == {32}


# -- the store --------------------------------------------------------------------------------
def test_what_was_sealed_is_stored_and_damage_is_noticed(tmp_path):
    store = opened(tmp_path / "a.db")
    assert store.sealed() is None
    with store.transaction() as change:
        change.sealed(7, b"sums")
    store.close()
    store = opened(tmp_path / "a.db")
    assert store.sealed() == (7, b"sums")
    store._db.execute("UPDATE about SET value = ? WHERE key = 'sealed'", (bytes(16),))
    store.close()
    with pytest.raises(BadFile, match="sums that it sealed"):
        opened(tmp_path / "a.db")


def lab_of_two(tmp_path):
    policy = ExchangePolicy(every_seconds=0.02, join_seconds=0.1, fewest_rows=FEWEST)
    network = small(links=(("a", "b"),), exchange=policy, model=Model(D=20, method="squares"))
    hub, got = Hub(), []
    other = MemoryTransport(network, "b", hub=hub)
    other.open()
    learner = network.learner()

    def say(kind, body=b""):
        about = learner.fingerprint, learner.m, learner.D, 1, 7, 0
        other.send("hello", pack(Message(kind, *about, body=body)))

    def told():
        got.extend(entry_in(data) for _, _, data in other.receive() if data[5] == SUMS)
        say(VERSIONS, _VERSION.pack(mark_of("a"), 8, 8))
        return {entry.sums.rows for entry in got}

    return network, hub, say, told


def test_an_agent_that_is_killed_tells_no_few_rows(tmp_path):
    network, hub, say, told = lab_of_two(tmp_path)
    agent = made(tmp_path, network, hub=hub)
    agent.start()
    say(HELLO)
    for seed in range(12):
        agent.submit(arrival(1, seed)).result(WAIT)
    wait(lambda: told())
    first = max(told())
    for turn in range(2):
        killed(agent)
        agent = made(tmp_path, network, hub=hub)
        kept, sealed = agent.store.sealed()
        assert kept == first + turn * FEWEST
        assert entry_in(bytes(HEADER.size) + sealed).sums.rows == kept
        agent.start()
        say(HELLO)
        for seed in range(5):
            agent.submit(arrival(1, seed)).result(WAIT)
            told()
        goal = first + (turn + 1) * FEWEST
        agent.submit(arrival(goal - agent.store.samples, 9)).result(WAIT)
        wait(lambda goal=goal: goal in told())
    agent.stop()
    assert sorted(told()) == [first, first + FEWEST, first + 2 * FEWEST]


def test_an_old_store_tells_nothing_of_rows_that_may_have_been_told(tmp_path):
    network, hub, _, _ = lab_of_two(tmp_path)
    agent = made(tmp_path, network, hub=hub)
    agent.start()
    agent.submit(arrival(30)).result(WAIT)
    agent.stop()
    store = Store.open(tmp_path / "a.db", agent._keeping._identity, "process", network.limits)
    store._db.execute("DELETE FROM about WHERE key = 'sealed'")
    store.close()
    agent = made(tmp_path, network, hub=hub)
    assert agent.store.sealed() == (30, b"")
    agent.store.close()


def test_the_last_rows_are_told_once_no_more_come():
    """Within 5 % of what was sent, rows wait while more come, and not for ever."""
    lab = Lab(nx.star_graph(3), POLICY).start()
    lab.learn(1000)
    lab.run(5)
    lab.learn(20)  # 2 %
    lab.run(QUIET_SECONDS - 5)
    assert lab.rows_told() == [1000]
    lab.run(10)
    assert lab.rows_told() == [1000, 1020]
    assert set(lab.totals().values()) == {1020}
    lab.learn(FEWEST - 1)  # too few, however long it is quiet
    lab.run(3 * QUIET_SECONDS)
    assert lab.rows_told() == [1000, 1020]
    lab.check()
