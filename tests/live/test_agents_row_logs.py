"""Logs of rows: what any interleaving of loss, repetition, reordering, partition, restart and fork
leaves, and what a batch may be."""

import random
import sys
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dokl.base.errors import BadInput, Diverged
from dokl.learning.experts.bank import Prediction
from dokl.learning.experts.kinds import Settings
from dokl.learning.squares.blocks import NotDefinite
from dokl.live.certificates.signing import Seals
from dokl.live.description import ExchangePolicy
from dokl.live.protocol import Protocol, batches, logs, row_sharing
from dokl.live.protocol.effects import Notice, Save, SaveLog, SendHello, SendTheta
from dokl.live.protocol.learning_line import LearningLine, learn_next
from dokl.live.protocol.logs import OriginLog
from dokl.live.protocol.messages import HAVE, HEADER, ROWS, STRETCH, WANT, mark_of
from dokl.live.protocol.roll import Roll
from dokl.live.rows.learner import RowsLearner, RowsState, rows_of

NAMES = ("a", "b", "c", "d")
LINKS = (("a", "b"), ("b", "c"), ("c", "d"), ("d", "a"))  # a ring: two ways to everybody
POLICY = ExchangePolicy(every_seconds=0.1, join_seconds=1.0, seal_seconds=0.5)
CONTEXT = batches.Context(b"n" * 8, bytes(8), 1, 1)


class CountingLearner(RowsLearner):
    """Learns nothing, and remembers in its state which rows were heard: (origin, value)."""

    def learn_predicting(self, state, X, Y):
        known = rows_of(state)
        at = np.full(len(X), self.clock)
        more = {"X": np.vstack([known.X, X]), "Y": np.vstack([known.Y, Y])}
        more["at"] = np.concatenate([known.at, at])
        new = _with(RowsState(replace(known, **more)), state)
        return new, Prediction(Y * 0, Y * 0 + 1, np.ones((len(Y), 1, 5)))

    def receive(self, state, parts, late=False):
        new, more = state, ()
        for origin, _, Y, end in parts:
            new = self.receive_from(new, origin, end)
            more += tuple((origin, float(y)) for y in Y[:, 0])
        return _with(new, state, more)

    def receive_from(self, state, origin, number):
        return _with(super().receive_from(state, origin, number), state)

    def sealing(self, state, rows):
        return _with(super().sealing(state, rows), state)

    def following(self, state, number):
        return _with(super().following(state, number), state)


def heard_rows(state):
    return vars(state).get("heard_rows", ())


def _with(new, old, more=()):
    object.__setattr__(new, "heard_rows", heard_rows(old) + more)
    return new


@dataclass
class Disk:
    """What a node has stored: its own rows, snapshot and logs."""

    rows: list = field(default_factory=list)
    snapshot: tuple = (None, 0)
    logs: dict = field(default_factory=dict)

    def copy(self):
        kept = {name: dict(log) for name, log in self.logs.items()}
        return Disk(list(self.rows), self.snapshot, kept)

    def keep(self, effect):
        log = self.logs.setdefault(effect.origin, {})
        for first in [first for first in log if first < effect.base or first >= effect.cut]:
            del log[first]
        log.update(effect.batches)

    def stored(self):
        return [log[first] for _, log in sorted(self.logs.items()) for first in sorted(log)]


class Node:
    """One node as an agent would drive it: effects are stored first, then carried out."""

    def __init__(self, name, disk, incarnation, net, kept=20_000):
        self.name, self.disk, self.net, self.floods, self.notices = name, disk, net, [], []
        learner = CountingLearner("lab", name, NAMES, 1, 1, Settings(), None, "f" * 16)
        near = [a if b == name else b for a, b in LINKS if name in (a, b)]
        state, learned = disk.snapshot
        policy = replace(POLICY, kept_rows=kept)
        roll = Roll(frozenset(NAMES), Seals())
        given = learner, name, near, policy, incarnation, state, learned, roll
        self.protocol = Protocol(*given, stored=disk.stored())
        for y in disk.rows[learned:]:
            self.protocol.replay(np.zeros((1, 1)), np.full((1, 1), y))

    @property
    def logs(self):
        return self.protocol._way.logs

    @property
    def heard(self):
        return heard_rows(self.protocol.state)

    def do(self, event, *given):
        effects = event(*given)
        for effect in effects:
            if isinstance(effect, SaveLog):
                self.disk.keep(effect)
            if isinstance(effect, Notice):
                self.notices.append(effect.kind)
        if any(isinstance(effect, Save) for effect in effects):
            self.disk.snapshot = self.protocol.state, self.protocol.learned
        for effect in effects:
            if isinstance(effect, SendTheta | SendHello):
                if effect.data[5] == ROWS:
                    self.floods.append(effect.data[HEADER.size :])
                self.net.send(self.name, effect.data)

    def row(self, y, now):
        self.disk.rows.append(y)
        self.do(self.protocol.samples, np.zeros((1, 1)), np.full((1, 1), y), now)

    def tick(self, now):
        self.do(self.protocol.tick, now)


class Net:
    """Links that lose, repeat, reorder, and fail; nodes that crash and come back."""

    def __init__(self, seed=0, kept=20_000):
        self.random, self.now, self.kept = random.Random(seed), 100.0, kept
        self.queues = {(a, b): [] for x, y in LINKS for a, b in ((x, y), (y, x))}
        self.up = dict.fromkeys(LINKS, True)
        self.value, self.incarnation = 0.0, 1
        self.backups = {}
        self.nodes = {name: self._node(name, Disk()) for name in NAMES}
        for a, b in LINKS:
            self._meet(a, b)

    def _node(self, name, disk):
        self.incarnation += 1
        return Node(name, disk, self.incarnation, self, self.kept)

    def _meet(self, a, b):
        for one, other in ((a, b), (b, a)):
            self.nodes[one].do(self.nodes[one].protocol.peer_up, other, self.now)

    def _link(self, a, b):
        return (a, b) if (a, b) in self.up else (b, a)

    def send(self, name, data):
        for (a, b), queue in self.queues.items():
            if a == name and self.up[self._link(a, b)]:
                queue.append(data)
                del queue[:-64]

    def deliver(self, way, pick=0, drop=False, keep=False):
        queue = self.queues[way]
        if queue and self.up[self._link(*way)]:
            pick = min(pick, len(queue) - 1)
            data = queue[pick] if keep else queue.pop(pick)
            if not drop:
                node = self.nodes[way[1]]
                node.do(node.protocol.message, way[0], data, self.now)

    def row(self, name):
        self.value += 1.0
        self.nodes[name].row(self.value, self.now)

    def tick(self, name, seconds=0.0):
        self.now += seconds
        self.nodes[name].tick(self.now)

    def cut(self, link):
        if self.up[link]:
            self.up[link] = False
            for one, other in (link, link[::-1]):
                self.queues[one, other].clear()
                self.nodes[one].do(self.nodes[one].protocol.peer_lost, other, self.now)

    def join(self, link):
        if not self.up[link]:
            self.up[link] = True
            self._meet(*link)

    def crash(self, name, disk=None):
        """kill -9 and a start from its disk, or from an older copy of it."""
        near = [link for link in LINKS if name in link and self.up[link]]
        for link in near:
            self.cut(link)
        old = self.nodes[name]
        self.nodes[name] = self._node(name, old.disk if disk is None else disk.copy())
        self.nodes[name].notices = old.notices
        for link in near:
            self.join(link)

    def settle(self, seconds=90.0):
        """No more faults: until nothing is on its way any more."""
        for link in LINKS:
            self.join(link)
        self.settle_some(NAMES, seconds)

    def settle_some(self, names, seconds):
        """These go on, over the links that are up."""
        end = self.now + seconds
        while self.now < end:
            self.now += 0.1
            for name in names:
                self.nodes[name].tick(self.now)
            for way in self.queues:
                while self.queues[way]:
                    self.deliver(way)


def values(log):
    """The targets of all rows in a log."""
    found = [batches.read_rows(CONTEXT, batch)[1][:, 0].tolist() for batch in log.batches]
    return [y for part in found for y in part]


def tips(net):
    return [
        {name: (log.end, log.tip) for name, log in node.logs.items()} for node in net.nodes.values()
    ]


WHO, LINK = st.sampled_from(NAMES), st.sampled_from(LINKS)
WAY = st.sampled_from([w for a, b in LINKS for w in ((a, b), (b, a))])
STEP = st.one_of(
    st.tuples(st.just("row"), WHO),
    st.tuples(st.just("tick"), WHO, st.sampled_from([0.0, 0.3, 1.0])),
    st.tuples(st.just("deliver"), WAY, st.integers(0, 3), st.booleans(), st.booleans()),
    st.tuples(st.just("cut"), LINK),
    st.tuples(st.just("join"), LINK),
    st.tuples(st.just("crash"), WHO),
)
FORK = st.one_of(STEP, st.tuples(st.just("backup"), WHO), st.tuples(st.just("restore"), WHO))
FEW = settings(
    max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)


def run(net, steps):
    for what, *about in steps:
        if what == "backup":
            net.backups[about[0]] = net.nodes[about[0]].disk.copy()
        elif what == "restore":
            if about[0] in net.backups:
                net.crash(about[0], net.backups[about[0]])
        else:
            getattr(net, what)(*about)


@FEW
@given(st.lists(STEP, max_size=120))
def test_every_row_is_heard_once_everywhere(steps):
    net = Net()
    run(net, steps)
    net.settle()
    own = {name: net.nodes[name].disk.rows for name in NAMES}
    everything = sorted((name, y) for name in NAMES for y in own[name])
    for node in net.nodes.values():
        assert sorted(node.heard) == everything
        for name in NAMES:
            assert [y for who, y in node.heard if who == name] == own[name]
            log = node.logs.get(name, OriginLog())
            assert (log.end, log.forks, log.missing) == (len(own[name]), 0, 0)
        assert not node.notices


@FEW
@given(st.lists(FORK, max_size=160))
def test_logs_agree_after_forks(steps):
    net = Net()
    run(net, steps)
    net.settle(20.0)
    for name in NAMES:  # where rows were lost, the next one says so
        net.row(name)
    net.settle()
    first, *others = tips(net)
    assert all(other == first for other in others)
    for name in NAMES:
        assert values(net.nodes["a"].logs[name]) == net.nodes[name].disk.rows
    for node in net.nodes.values():
        heard = node.protocol._way.learner.next_rows(node.protocol.state)
        assert {name: heard[name] for name in node.logs} == {n: g.end for n, g in node.logs.items()}


@FEW
@given(st.lists(FORK, max_size=160), st.integers(3, 12))
def test_little_is_kept(steps, kept):
    net = Net(kept=kept)
    run(net, steps)
    for node in net.nodes.values():
        for log in node.logs.values():
            assert log.end - log.base <= kept or len(log.batches) == 1
            assert all(a.end == b.first for a, b in zip(log.batches, log.batches[1:], strict=False))


def test_a_batch_travels_once_over_each_direction():
    net = Net()
    for _ in range(40):
        for name in NAMES:
            net.row(name)
        net.settle(1.0)
    net.settle(20.0)
    total = sum(len(log.batches) for log in net.nodes["a"].logs.values())
    for node in net.nodes.values():
        sent = [sealed for body in node.floods for sealed in batches.unpack_batches(body, {})]
        assert len(sent) == len(set(sent)) <= total


def test_an_old_backup_forks_and_everybody_hears_of_it():
    net = Net()
    for _ in range(3):
        net.row("a")
    net.settle(5.0)
    backup = net.nodes["a"].disk.copy()
    for _ in range(4):
        net.row("a")
    net.settle(5.0)
    for link in (("a", "b"), ("d", "a")):
        net.cut(link)
    net.crash("a", backup)
    for _ in range(2):
        net.row("a")
    for _ in range(30):  # alone, it seals after a while
        net.tick("a", 0.2)
    net.settle(30.0)
    assert {node.logs["a"].end for node in net.nodes.values()} == {5}
    for node in net.nodes.values():
        assert node.logs["a"].forks
        assert any("'a' has sealed different rows" in text for text in node.protocol.disputes())


def test_what_a_journal_lost_is_lost_for_all_and_told():
    net = Net(kept=4)
    for _ in range(9):
        net.row("a")
        net.settle(1.0)
    assert net.nodes["c"].logs["a"].end == 9
    net.crash("a", Disk())
    net.incarnation = 1  # and its clock was set back
    net.nodes["a"].protocol._node.incarnation = 1
    net.row("a")
    net.settle(30.0)
    for node in net.nodes.values():
        assert values(node.logs["a"]) == net.nodes["a"].disk.rows == [10.0]
        assert node.logs["a"].forks


def test_who_was_away_for_long_goes_on_with_what_is_kept():
    net = Net(kept=8)
    for link in (("c", "d"), ("d", "a")):
        net.cut(link)
    for _ in range(30):
        net.row("a")
        for name in "abc":
            net.tick(name, 0.4)
        for way in net.queues:
            while net.queues[way]:
                net.deliver(way)
    net.settle(30.0)
    far = net.nodes["d"].logs["a"]
    assert far.end == 30
    assert far.missing >= 20
    assert any("no longer kept" in text for text in net.nodes["d"].protocol._way.remarks(net.now))


def test_a_crash_loses_no_row_that_was_learned_and_is_no_longer_kept():
    net = Net(kept=8)
    for _ in range(40):
        net.row("a")
        net.settle(0.7)
    for name in "ac":
        assert net.nodes[name].logs["a"].base > 20
        net.crash(name)
    net.settle(30.0)
    for node in net.nodes.values():
        assert [y for who, y in node.heard if who == "a"] == net.nodes["a"].disk.rows


def forged(net, name, kind, body):
    """A message that a node would never send."""
    return net.nodes[name].protocol._node.pack_body(kind, body, net.now)


def without(net, way, forgeries, seconds):
    """Go on for a while; what goes one way is lost, and these come in its place."""
    for _ in range(int(seconds / 0.1)):
        net.now += 0.1
        for name in NAMES:
            net.nodes[name].tick(net.now)
        net.queues[way].clear()
        for data in forgeries:
            net.nodes[way[1]].do(net.nodes[way[1]].protocol.message, way[0], data, net.now)
        for each in net.queues:
            while each != way and net.queues[each]:
                net.deliver(each)


def delayed(net, way, delay, seconds):
    """Go on for a while; what goes one way takes so long."""
    late = []
    for _ in range(int(seconds / 0.1)):
        net.now += 0.1
        for name in NAMES:
            net.nodes[name].tick(net.now)
        late += [(net.now + delay, data) for data in net.queues[way]]
        net.queues[way].clear()
        while late and late[0][0] <= net.now:
            node = net.nodes[way[1]]
            node.do(node.protocol.message, way[0], late.pop(0)[1], net.now)
        for each in net.queues:
            while each != way and net.queues[each]:
                net.deliver(each)


def parted():
    """A network in which b, c and d have five rows of c, and a has none of them."""
    net = Net()
    for link in (("a", "b"), ("d", "a")):
        net.cut(link)
    for _ in range(5):
        net.row("c")
    net.settle_some("bcd", 6.0)
    assert net.nodes["d"].logs["c"].end == 5
    for link in (("a", "b"), ("d", "a")):
        net.join(link)
    return net


def test_who_claims_rows_and_has_none_holds_nobody_up():
    net = parted()
    claimed = logs._VERSION.pack(mark_of("c"), 0, 1_000_000, b"x" * 8)
    have = forged(net, "b", HAVE, claimed)
    without(net, ("b", "a"), [have], 10.0)
    assert net.nodes["a"].logs["c"].end == 5
    assert net.nodes["a"].logs["c"].missing == 0


def one_has_the_newest_alone(rows=4):
    """b, c and d have rows of c, b only the last of them, and a has just met b and d."""
    net = Net()
    for link in (("a", "b"), ("d", "a")):
        net.cut(link)
    for _ in range(rows):
        net.row("c")
        net.settle_some("bcd", 2.0)
    way = net.nodes["b"].protocol._way
    way.logs = {**way.logs, "c": OriginLog(way.logs["c"].batches[-1:])}
    for link in (("a", "b"), ("d", "a")):
        net.join(link)
    return net


def test_rows_are_not_given_up_before_every_neighbour_has_said_what_it_has():
    """One has the newest rows only, and answers before the other has said that it has all."""
    net = one_has_the_newest_alone()
    without(net, ("d", "a"), [], 3.0)
    net.settle(30.0)
    assert net.nodes["a"].logs["c"].missing == 0
    assert [y for who, y in net.nodes["a"].heard if who == "c"] == net.nodes["c"].disk.rows


@pytest.mark.parametrize("delay", [4.0, 12.0])
def test_an_answer_that_takes_long_is_one(delay):
    """A slow link: nothing that comes over it is given up for what another has."""
    net = one_has_the_newest_alone()
    net.settle_some(NAMES, 0.2)  # both have said what they have
    delayed(net, ("d", "a"), delay, 60.0)
    assert net.nodes["a"].logs["c"].missing == 0
    assert [y for who, y in net.nodes["a"].heard if who == "c"] == net.nodes["c"].disk.rows


def test_over_a_slow_link_a_question_is_not_repeated_every_second():
    net = parted()
    net.cut(("a", "b"))
    asked, send = [], net.send

    def sent(name, data):
        if name == "a" and data[5] == WANT:
            asked.append(net.now)
        send(name, data)

    net.send = sent
    delayed(net, ("d", "a"), 10.0, 40.0)
    assert net.nodes["a"].logs["c"].end == 5
    assert len(asked) <= 5


@pytest.mark.parametrize("claims", [False, True])
def test_who_comes_and_goes_delays_nobody_for_long(claims):
    """It is never away when the other answers; and perhaps claims to have what is lacking."""
    net = one_has_the_newest_alone()
    net.cut(("c", "d"))
    node, way = net.nodes["a"], ("d", "a")
    for _ in range(100):
        node.do(node.protocol.peer_lost, "d", net.now)
        node.do(node.protocol.peer_up, "d", net.now)
        tip = net.random.randbytes(8)
        have = forged(net, "d", HAVE, logs._VERSION.pack(mark_of("c"), 0, 1_000, tip))
        without(net, way, [have] * claims, 0.6)
    assert node.logs["c"].end == 4
    assert node.logs["c"].missing == 3


def claimed_by_one_that_never_answers(net):
    """What comes in place of all that d sends to a: a list of rows of c, and no answer."""
    return [forged(net, "d", HAVE, logs._VERSION.pack(mark_of("c"), 0, 1_000, b"x" * 8))]


def test_patience_with_a_gap_begins_with_a_batch_whose_seal_is_good(monkeypatch):
    """Anybody can make up later rows without one."""
    net = one_has_the_newest_alone()
    have, way = claimed_by_one_that_never_answers(net), net.nodes["a"].protocol._way

    def broken(batch):
        raise BadInput("its seal is broken")

    with monkeypatch.context() as patch:
        patch.setattr(way, "_check_seal", broken)
        without(net, ("d", "a"), have, 40.0)
    assert not way.asking.gaps
    without(net, ("d", "a"), have, 20.0)
    assert "c" not in way.logs
    without(net, ("d", "a"), have, 40.0)
    assert (way.logs["c"].end, way.logs["c"].missing) == (4, 3)


def test_rows_of_another_origin_prove_no_gap():
    net = one_has_the_newest_alone()
    net.cut(("d", "a"))
    way = net.nodes["a"].protocol._way
    far = chain(way.context, "d", 5, 1)[-1:]
    listed = [logs._VERSION.pack(mark_of(name), 0, 1_000, b"x" * 8) for name in "cd"]
    have = forged(net, "b", HAVE, b"".join(listed))
    head, body = mark_of("a") + mark_of("c") + b"x" * 8, batches.pack_batches(far, set())
    without(net, ("b", "a"), [have, forged(net, "b", STRETCH, head + body)], 5.0)
    assert not way.asking.gaps
    assert net.nodes["a"].protocol._node.refused["rows"]


def test_a_batch_of_an_unknown_certificate_proves_no_gap(monkeypatch):
    net = one_has_the_newest_alone()
    have, way = claimed_by_one_that_never_answers(net), net.nodes["a"].protocol._way
    with monkeypatch.context() as patch:
        patch.setattr(row_sharing, "unpack_batches", lambda data, known: [None])
        without(net, ("d", "a"), have, 5.0)
    assert not way.asking.gaps


def test_a_gap_ends_when_nobody_has_later_rows():
    """Those who may have the rows between are waited for anew when there are later ones again."""
    net = one_has_the_newest_alone()
    have, way = claimed_by_one_that_never_answers(net), net.nodes["a"].protocol._way
    without(net, ("d", "a"), have, 10.0)
    assert way.asking.gaps
    net.cut(("a", "b"))
    without(net, ("d", "a"), [forged(net, "d", HAVE, b"")], 40.0)
    net.join(("a", "b"))
    without(net, ("d", "a"), have, 20.0)
    assert "c" not in way.logs
    without(net, ("d", "a"), have, 20.0)
    assert way.logs["c"].end == 4


def test_who_answers_with_nothing_again_and_again_holds_nobody_up():
    net = one_has_the_newest_alone()
    net.cut(("c", "d"))
    for _ in range(400):
        tip = net.random.randbytes(8)
        have = forged(net, "d", HAVE, logs._VERSION.pack(mark_of("c"), 0, 1_000, tip))
        answer = forged(net, "d", STRETCH, mark_of("a") + mark_of("c") + tip)
        without(net, ("d", "a"), [answer, have], 0.1)
    assert net.nodes["a"].logs["c"].end == 4


def test_who_never_says_what_it_has_holds_nobody_up():
    net = Net()
    for link in (("a", "b"), ("d", "a"), ("c", "d")):
        net.cut(link)
    for _ in range(2):
        net.row("c")
        net.settle_some("bc", 2.0)
    way = net.nodes["b"].protocol._way
    way.logs = {**way.logs, "c": OriginLog(way.logs["c"].batches[-1:])}
    for link in (("a", "b"), ("d", "a")):
        net.join(link)
    without(net, ("d", "a"), [], 25.0)
    assert net.nodes["a"].logs["c"].end == 2


def test_who_asks_without_end_is_answered_at_a_pace_and_holds_nobody_up():
    net = parted()
    way, sent = net.nodes["b"].protocol._way, []
    net.send = lambda name, data: sent.append(data) if name == "b" and data[5] == STRETCH else None

    def ask(origin):
        question = forged(net, "a", WANT, logs.pack_want("b", origin, []))
        net.nodes["b"].do(net.nodes["b"].protocol.message, "a", question, net.now)

    for _ in range(100):
        net.now += 0.01
        ask(mark_of("c"))
        net.nodes["b"].tick(net.now)
    assert 15 < len(sent) <= 21
    for i in range(40):
        ask(bytes([i]) * 8)  # of nobody
    question = forged(net, "c", WANT, logs.pack_want("b", mark_of("c"), []))
    net.nodes["b"].do(net.nodes["b"].protocol.message, "c", question, net.now)
    assert ("c", mark_of("c")) in way.wanted
    while way.wanted:
        net.tick("b", 0.05)
    assert sent[-1][HEADER.size :][:8] == mark_of("c")


def test_who_is_asked_for_many_origins_is_not_given_up_for_one_that_has_less(monkeypatch):
    """It answers one question after the other, and has all rows; the other has the newest."""
    ring, many = NAMES, tuple(f"o{i}" for i in range(40))
    monkeypatch.setattr(sys.modules[__name__], "NAMES", ring + many)
    net = Net()
    for link in (("a", "b"), ("d", "a")):
        net.cut(link)
    net.settle_some(ring, 2.0)
    context = net.nodes["b"].protocol._way.context
    for name in many:
        log, before = [], batches.NOTHING
        for first in range(4):
            packed = entry([[0.0]], [[1.0]], first, before, origin=name, context=context)
            log.append(batches.read_batch(context, packed))
            before = log[-1].hash
        for node, kept in (("b", log), ("c", log), ("d", log[-1:])):
            way = net.nodes[node].protocol._way
            way.logs = {**way.logs, name: OriginLog(tuple(kept))}
    for link in (("a", "b"), ("d", "a")):
        net.join(link)
    net.settle_some(ring, 30.0)
    found = net.nodes["a"].logs
    assert {(found[name].end, found[name].missing) for name in many} == {(4, 0)}


def test_what_waits_to_be_sent_is_bounded(monkeypatch):
    monkeypatch.setattr(row_sharing, "MOST_FLOOD", 3)
    net = Net()
    for link in LINKS[2:]:
        net.cut(link)
    for _ in range(9):
        net.row("a")
        net.tick("a", 0.6)
    for data in net.queues["a", "b"]:
        net.nodes["b"].protocol.message("a", data, net.now)
    assert len(net.nodes["b"].protocol._way.flood) == 3
    net.settle(30.0)
    assert all(node.logs["a"].end == 9 for node in net.nodes.values())


def test_answers_to_another_are_not_taken_for_all_there_is(monkeypatch):
    """Two ask for the same rows; the one whose answers the other reads, too, goes away."""
    monkeypatch.setattr(row_sharing, "MESSAGE", 1000)
    net = Net()
    for _ in range(12):
        net.row("d")
        net.settle_some(NAMES, 0.7)
    for link in LINKS:
        net.cut(link)
    net.crash("a", Disk())
    net.crash("c", Disk())
    net.join(("a", "b"))
    net.join(("b", "c"))
    way = net.nodes["c"].protocol._way
    for _ in range(40):
        net.settle_some("abc", 0.1)
        if way.logs and net.up["a", "b"]:
            net.cut(("a", "b"))
            assert way.logs["d"].end < 12
    net.settle_some("bc", 30.0)
    assert net.nodes["c"].logs["d"].end == 12


def test_an_answer_that_nobody_asked_for_changes_nothing():
    net = parted()
    tip = net.nodes["d"].logs["c"].tip[:8]
    answer = forged(net, "b", STRETCH, mark_of("a") + mark_of("c") + tip)
    without(net, ("b", "a"), [answer], 10.0)
    assert net.nodes["a"].logs["c"].end == 5


def test_a_newcomer_does_not_flood_what_its_neighbours_have():
    net = parted()
    net.settle(10.0)
    assert net.nodes["a"].logs["c"].end == 5
    assert net.nodes["a"].floods == []


# -- batches ---------------------------------------------------------------------------------------
def entry(X, Y, first=0, before=batches.NOTHING, incarnation=1, origin="a", context=CONTEXT):
    X, Y = np.asarray(X, float), np.asarray(Y, float)
    packed = batches.pack_entry(context, origin, incarnation, first, X, Y, 1.0, 2.0, before)
    return Seals().seal(packed)


@given(st.lists(st.floats(-1e30, 1e30), min_size=1, max_size=20), st.integers(0, 7))
@settings(max_examples=50, deadline=None, derandomize=True)
def test_rows_come_back_to_the_bit(values, decimals):
    for column in (np.array(values), np.round(np.array(values) % 1000, decimals)):
        sealed = entry(column[:, None], column[::-1, None])
        X, Y = batches.read_rows(CONTEXT, batches.read_batch(CONTEXT, sealed))
        assert X[:, 0].tobytes() == column.tobytes()
        assert Y[:, 0].tobytes() == column[::-1].tobytes()


def test_rows_take_less_than_twice_their_csv():
    rng = np.random.default_rng(0)
    context = batches.Context(b"n" * 8, bytes(8), 8, 1)
    table = np.round(np.cumsum(rng.normal(size=(40, 9)), axis=0) + 20, 1)
    csv = sum(len(",".join(map(str, row))) + 1 for row in table.tolist())
    made = entry(table[:, :8], table[:, 8:], context=context)
    assert len(made) + 64 + 80 < 1.0 * csv  # with the header of a message and a signature


@given(st.binary(max_size=300))
@settings(max_examples=100, deadline=None, derandomize=True)
def test_rubbish_is_refused(data):
    with pytest.raises(BadInput):
        batches.read_rows(CONTEXT, batches.read_batch(CONTEXT, Seals().seal(data)))


def test_batches_of_other_networks_columns_and_sizes_are_refused():
    sealed = entry([[1.0]], [[2.0]])
    for change in ({"network": b"o" * 8}, {"columns": b"o" * 8}):
        with pytest.raises(BadInput, match=r"another network|other columns"):
            batches.read_batch(replace(CONTEXT, **change), sealed)
    wide = replace(CONTEXT, d=2)
    with pytest.raises(BadInput, match="other rows than its header"):
        batches.read_rows(wide, batches.read_batch(wide, sealed))
    with pytest.raises(BadInput, match="cannot be used"):
        batches.read_rows(CONTEXT, batches.read_batch(CONTEXT, entry([[np.inf]], [[1.0]])))


def test_forks_of_one_start_are_followed_only_so_often():
    log, taken = OriginLog(), 0
    for i in range(400):
        batch = batches.read_batch(CONTEXT, entry([[float(i)]], [[0.0]]))
        log, what = logs.add(log, batch, 100)
        taken += what == logs.NEW
    assert taken <= logs.MOST_FORKS + 1
    assert len(log.batches) == 1


def test_names_that_nobody_has_proved_are_not_kept_for_ever():
    """Python 3.12 never frees an interned text."""
    origin = "of nobody " + "x" * 200
    given = origin, 1, 0, np.ones((2, 1)), np.ones((2, 1)), 1.0, 2.0, batches.NOTHING
    sealed = Seals().seal(batches.pack_entry(CONTEXT, *given))
    one, other = (batches.read_batch(CONTEXT, sealed) for _ in range(2))
    assert one.origin is other.origin
    again = "".join(list(origin))
    assert sys.intern(again) is again


def test_own_batches_that_are_no_longer_kept_are_no_fork():
    """Others keep a little more, and answer each other's questions, which this node reads, too."""
    net = Net(kept=4)
    net.row("a")
    net.settle(1.0)
    (old,) = net.nodes["b"].logs["a"].batches
    for _ in range(8):
        net.row("a")
        net.settle(1.0)
    node, before = net.nodes["a"], net.nodes["a"].logs["a"]
    assert before.base > old.end
    body = batches.pack_batches([old], set())
    node.do(node.protocol.message, "b", forged(net, "b", ROWS, body), net.now)
    assert node.logs["a"] is before
    assert not node.notices


@pytest.mark.parametrize("more", [9, 11, 20])
def test_logs_agree_after_a_fork_whose_place_nobody_keeps(more):
    """It came back from an old backup while one node was away, and much has come since."""
    net = Net(kept=4)
    for _ in range(3):
        net.row("a")
        net.settle(0.8)
    backup = net.nodes["a"].disk.copy()
    for _ in range(9):
        net.row("a")
        net.settle(0.8)
    for link in (("c", "d"), ("d", "a")):
        net.cut(link)
    net.crash("a", backup)
    net.settle_some("abc", 2.0)
    for _ in range(more):
        net.row("a")
        net.settle_some("abc", 0.8)
    net.settle(20.0)
    first, *others = tips(net)
    assert all(other == first for other in others)
    assert values(net.nodes["d"].logs["a"]) == net.nodes["a"].disk.rows[-4:]


def lost_a_journal(monkeypatch, kept):
    """Node a has rows of o from before that lost its journal, as many batches of them; of those
    since, b has the last ten alone and d has all 60. a has just met both.
    """
    monkeypatch.setattr(sys.modules[__name__], "NAMES", (*NAMES, "o"))
    net = Net()
    for link in LINKS:
        net.cut(link)
    context = net.nodes["a"].protocol._way.context
    old, new = (chain(context, "o", *about) for about in ((10, 1), (6, 2)))
    for node, log in (("a", old[-kept:]), ("b", new[-1:]), ("d", new)):
        way = net.nodes[node].protocol._way
        way.logs = {**way.logs, "o": OriginLog(tuple(log))}
    return net


def chain(context, origin, n, incarnation, last=None):
    """So many batches of ten rows, each following on the one before."""
    found, first, before = [], 0, batches.NOTHING
    for _ in range(n):
        if last is not None:
            first, before = last.end, last.hash
        rows = np.zeros((10, 1)), np.arange(10.0)[:, None] + first
        packed = entry(*rows, first, before, incarnation, origin, context)
        last = batches.read_batch(context, packed)
        found.append(last)
    return found


@pytest.mark.parametrize("kept", [10, 2, 5])
def test_a_log_that_began_again_is_taken_from_who_has_most_of_it(kept, monkeypatch):
    """The one that has only its end answers first."""
    net = lost_a_journal(monkeypatch, kept)
    net.join(("a", "b"))
    net.join(("d", "a"))
    without(net, ("d", "a"), [], 3.0)
    net.settle_some(("a", "b", "d"), 20.0)
    log = net.nodes["a"].logs["o"]
    assert values(log) == np.arange(60.0).tolist()
    assert log.missing == 0


@pytest.mark.parametrize("kept", [10, 2, 5])
def test_rows_that_a_log_began_with_and_nobody_has_are_missing(kept, monkeypatch):
    net = lost_a_journal(monkeypatch, kept)
    net.join(("a", "b"))
    net.settle_some(("a", "b"), 20.0)
    log = net.nodes["a"].logs["o"]
    assert (log.base, log.end, log.missing) == (50, 60, 50)


@pytest.mark.parametrize("size", [1, 200_000])
def test_a_fork_is_found_behind_many_rows_that_are_no_longer_kept(size, monkeypatch):
    """Who answers keeps more of what both once had than one answer holds."""
    monkeypatch.setattr(row_sharing, "MESSAGE", size)
    net = lost_a_journal(monkeypatch, 2)
    way = net.nodes["d"].protocol._way
    old = chain(way.context, "o", 5, 1)
    way.logs = {**way.logs, "o": OriginLog((*old, *chain(way.context, "o", 6, 2, old[-1])))}
    net.join(("d", "a"))
    net.settle_some("ad", 20.0)
    log = net.nodes["a"].logs["o"]
    assert (log.base, log.end, log.missing) == (50, 110, 0)


def test_who_claims_the_start_of_a_log_holds_nobody_up_for_long(monkeypatch):
    net = lost_a_journal(monkeypatch, 10)
    net.join(("a", "b"))
    net.join(("d", "a"))
    have = forged(net, "d", HAVE, logs._VERSION.pack(mark_of("o"), 0, 1_000, b"x" * 8))
    without(net, ("d", "a"), [have], 25.0)
    assert net.nodes["a"].logs["o"].end == 100
    without(net, ("d", "a"), [have], 35.0)
    assert net.nodes["a"].logs["o"].end == 60


def test_no_seal_is_checked_of_what_changes_nothing(monkeypatch):
    """Batches that an origin sealed for places far ahead would each take a check, without end."""
    net = Net()
    net.settle_some(NAMES, 1.0)
    node, checked = net.nodes["a"], []
    way = node.protocol._way
    monkeypatch.setattr(way, "_check_seal", checked.append, raising=True)
    far = [entry([[0.0]], [[1.0]], first, b"x" * 16, origin="c", context=way.context)
           for first in range(5, 105)]  # fmt: skip
    body = batches.pack_batches([batches.read_batch(way.context, each) for each in far], set())
    node.do(node.protocol.message, "b", forged(net, "b", ROWS, body), net.now)
    assert not checked
    assert "c" not in node.logs


def test_of_a_message_of_rubbish_little_is_read():
    net = Net()
    net.settle_some(NAMES, 1.0)
    node, body = net.nodes["a"], b""
    for _ in range(1000):
        body += batches._LENGTH.pack(6) + b"\1" + batches._LENGTHS.pack(0, 0) + b"x"
    node.do(node.protocol.message, "b", forged(net, "b", ROWS, body), net.now)
    assert 0 < node.protocol._node.refused["rows"] <= row_sharing.MOST_REFUSED


@pytest.mark.parametrize("error", [Diverged("no"), np.linalg.LinAlgError("no"), ValueError("no")])
def test_a_batch_that_cannot_be_learned_is_tried_once(error, monkeypatch):
    tried, receive = [], CountingLearner.receive

    def failing(self, state, parts, late=False):
        if self.name == "a" and any(2.0 in Y for _, _, Y, _ in parts):
            tried.append(len(parts))
            raise error
        return receive(self, state, parts, late)

    monkeypatch.setattr(CountingLearner, "receive", failing)
    net = Net()
    for link in (("a", "b"), ("d", "a")):
        net.cut(link)
    for _ in range(4):
        net.row("c")
        net.settle_some("bcd", 1.0)
    net.settle(5.0)  # all four come together
    node = net.nodes["a"]
    assert [y for _, y in node.heard] == [1.0, 3.0, 4.0]
    assert tried == [4, 3, 1]
    assert node.notices == ["not learned"]
    facts = node.protocol._way.facts()
    assert (facts["failed"], facts["failed_rows"], facts["behind"]) == ({"c": 1}, 1, 0)
    assert "1 rows of 'c' could not be learned, and were passed over" in node.protocol.disputes()
    net.crash("a")  # nor after a restart
    net.settle(5.0)
    assert tried == [4, 3, 1]


def test_rows_that_are_learned_again_and_fail_count_once(monkeypatch):
    """One that leaves takes its rows away, and all others are lined up again."""
    receive = CountingLearner.receive

    def failing(self, state, parts, late=False):
        if self.name == "a" and any(2.0 in Y for _, _, Y, _ in parts):
            raise Diverged("no")
        return receive(self, state, parts, late)

    def forgetting(self, state):
        for name in self.names:
            state = self.receive_from(state, name, 0)
        return state

    monkeypatch.setattr(CountingLearner, "receive", failing)
    monkeypatch.setattr(CountingLearner, "forget_others", forgetting)
    net = Net()
    for name in "cccd":
        net.row(name)
        net.settle(2.0)
    node = net.nodes["a"].protocol
    assert node._way.facts()["failed"] == {"c": 1}
    node.change(["b"], None, Roll(frozenset("abc"), Seals()))
    net.settle_some("a", 5.0)
    assert [y for _, y in net.nodes["a"].heard] == [1.0, 3.0, 4.0, 1.0, 3.0]
    assert node._way.facts()["failed"] == {"c": 1}


def line_of(waiting):
    """A learner, and a line of (origin, first row) whose rows are worth 0 ... n - 1 in order; the
    logs keep the last of each origin's batches of ten rows, as many as there are.
    """
    learner = CountingLearner("lab", "a", NAMES, 1, 1, Settings(), None, "f" * 16)
    context, found = batches.Context.of(learner), {}
    for i, (name, first) in enumerate(waiting):
        log = found.get(name, OriginLog())
        follows = log.end == first
        rows = np.zeros((10, 1)), np.full((10, 1), float(i))
        packed = entry(*rows, first, log.tip, origin=name, context=context)
        batch = batches.read_batch(context, packed)
        found[name] = OriginLog((*log.batches, batch) if follows else (batch,))
    line = LearningLine(tuple((name, first, False) for name, first in waiting))
    return line, found, learner, context


def test_batches_behind_one_that_is_gone_are_learned():
    line, found, learner, context = line_of([("a", 0), ("b", 0), ("a", 100), ("b", 10)])
    assert found["a"].base == 100
    state = learner.start()
    while line.waiting:
        line, state, _, _ = learn_next(line, found, learner, state, context, 2.0)
    assert heard_rows(state) == tuple(
        (o, y) for o, y in zip("bab", (1.0, 2.0, 3.0), strict=True) for _ in range(10)
    )
    assert line.skipped == {"a": 100}


def learn_failing(waiting, error, of, monkeypatch):
    """What is learned of a line where an error comes of batches of these values."""
    line, found, learner, context = line_of(waiting)
    receive = CountingLearner.receive

    def failing(self, state, parts, late=False):
        if any(y in of for _, _, Y, _ in parts for y in Y[:, 0]):
            raise error
        return receive(self, state, parts, late)

    monkeypatch.setattr(CountingLearner, "receive", failing)
    state = learner.start()
    while line.waiting:
        line, state, _, _ = learn_next(line, found, learner, state, context, 2.0)
    return line, [y for _, y in heard_rows(state)][::10]


@pytest.mark.parametrize(
    "error", [MemoryError(), OSError(), RuntimeError("can't start new thread"), KeyError("a bug")]
)
def test_what_rows_cannot_cause_passes_none_of_them_over(error, monkeypatch):
    with pytest.raises(type(error)):
        learn_failing([("b", 0), ("c", 0)], error, {0.0}, monkeypatch)


def test_what_befalls_the_rows_of_several_origins_in_turn_is_not_their_fault(monkeypatch):
    lined = [("b", 0), ("c", 0), ("d", 0), ("b", 10)]
    with pytest.raises(RuntimeError, match="no rows can be learned, of b, c, d: a bug"):
        learn_failing(lined, ValueError("a bug"), {0.0, 1.0, 2.0, 3.0}, monkeypatch)


def test_rows_that_cannot_be_learned_are_passed_over_where_others_can(monkeypatch):
    lined = [("b", 0), ("b", 10), ("b", 20), ("c", 0), ("d", 0), ("c", 10), ("d", 10)]
    error, bad = NotDefinite("no"), {0.0, 1.0, 2.0, 3.0, 5.0, 6.0}
    line, learned = learn_failing(lined, error, bad, monkeypatch)
    assert learned == [4.0]
    assert line.failed == {"b": 30, "c": 20, "d": 10}


def test_who_asks_without_end_gets_few_bytes_a_second(monkeypatch):
    net = parted()
    sent = []
    net.send = lambda name, data: sent.append(len(data)) if data[5] == STRETCH else None
    question = forged(net, "a", WANT, logs.pack_want("b", mark_of("c"), []))
    monkeypatch.setattr(row_sharing, "ANSWER_BYTES", 2000.0)
    for _ in range(100):
        net.now += 0.1
        net.nodes["b"].do(net.nodes["b"].protocol.message, "a", question, net.now)
        net.nodes["b"].tick(net.now)
    assert 10_000 < sum(sent) < 22_000 + max(sent)


def test_an_answer_to_somebody_who_has_less_is_not_read(monkeypatch):
    net = parted()
    node, log = net.nodes["d"], net.nodes["c"].logs["c"]
    body = batches.pack_batches(list(log.batches), set())
    head = mark_of("a") + mark_of("c") + log.tip[:8]
    monkeypatch.setattr(row_sharing, "unpack_batches", None)
    node.do(node.protocol.message, "c", forged(net, "c", STRETCH, head + body), net.now)
    assert node.logs["c"].end == 5
