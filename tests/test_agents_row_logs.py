"""Logs of rows: what any interleaving of loss, repetition, reordering, partition, restart and fork
leaves, and what a batch may be."""

import random
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dokl.base.errors import BadInput
from dokl.learning.experts.bank import Prediction
from dokl.learning.experts.kinds import Settings
from dokl.live.certificates.signing import Seals
from dokl.live.description import ExchangePolicy
from dokl.live.protocol import Protocol, batches, logs
from dokl.live.protocol.effects import Notice, Save, SaveLog, SendHello, SendTheta
from dokl.live.protocol.logs import OriginLog
from dokl.live.protocol.messages import HAVE, HEADER, ROWS, STRETCH, mark_of
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

    def hear(self, state, origin, X, Y, end, late=False):
        new = self.hear_from(state, origin, end)
        more = tuple((origin, float(y)) for y in Y[:, 0])
        return _with(new, state, more)

    def hear_from(self, state, origin, number):
        return _with(super().hear_from(state, origin, number), state)

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
        learner = CountingLearner("lab", name, NAMES, 1, 1, Settings(), None, "f" * 16, kept)
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
        end = self.now + seconds
        while self.now < end:
            self.now += 0.1
            for name in NAMES:
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
        heard = node.protocol._way.learner.heard(node.protocol.state)
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


def parted():
    """A network in which b, c and d have five rows of c, and a has none of them."""
    net = Net()
    for link in (("a", "b"), ("d", "a")):
        net.cut(link)
    for _ in range(5):
        net.row("c")
    for _ in range(60):
        net.now += 0.1
        for name in "bcd":
            net.nodes[name].tick(net.now)
        for way in net.queues:
            while net.queues[way]:
                net.deliver(way)
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
    with pytest.raises(BadInput, match="other rows than it says"):
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
