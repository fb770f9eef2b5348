"""Nodes that share rows, over links that lose, repeat and reorder: they count what they hear."""

import random
from dataclasses import dataclass, field, replace

import numpy as np

from dokl.learning.experts.bank import Prediction
from dokl.learning.experts.kinds import Settings
from dokl.live.certificates.signing import Seals
from dokl.live.description import ExchangePolicy
from dokl.live.protocol import Protocol, batches
from dokl.live.protocol.effects import Notice, Save, SaveLog, SendHello, SendTheta
from dokl.live.protocol.logs import OriginLog
from dokl.live.protocol.messages import HEADER, ROWS
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


def counting(name, names=NAMES):
    return CountingLearner("lab", name, names, 1, 1, Settings(), None, "f" * 16)


def fail_on(monkeypatch, values, error, name="a"):
    """Let a node fail to learn rows of these values; how many origins were tried together."""
    tried, receive = [], CountingLearner.receive

    def failing(self, state, parts, late=False):
        if self.name == name and any(y in values for _, _, Y, _ in parts for y in Y[:, 0]):
            tried.append(len(parts))
            raise error
        return receive(self, state, parts, late)

    monkeypatch.setattr(CountingLearner, "receive", failing)
    return tried


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
        learner = counting(name, net.origins)
        near = [a if b == name else b for a, b in LINKS if name in (a, b)]
        state, learned = disk.snapshot
        policy = replace(POLICY, kept_rows=kept)
        roll = Roll(frozenset(net.origins), Seals())
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

    def __init__(self, seed=0, kept=20_000, more=()):
        """more: origins of the network besides the nodes."""
        self.random, self.now, self.kept = random.Random(seed), 100.0, kept
        self.origins = (*NAMES, *more)
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


def entry(X, Y, first=0, before=batches.NOTHING, incarnation=1, origin="a", context=CONTEXT):
    X, Y = np.asarray(X, float), np.asarray(Y, float)
    packed = batches.pack_entry(context, origin, incarnation, first, X, Y, 1.0, 2.0, before)
    return Seals().seal(packed)


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


def one_has_the_newest_alone(rows=4, hearing="bcd"):
    """b, c and perhaps d have rows of c, b only the last of them, and a has just met b and d."""
    net = Net()
    for link in (("a", "b"), ("d", "a")):
        net.cut(link)
    if "d" not in hearing:
        net.cut(("c", "d"))
    for _ in range(rows):
        net.row("c")
        net.settle_some(hearing, 2.0)
    way = net.nodes["b"].protocol._way
    way.logs = {**way.logs, "c": OriginLog(way.logs["c"].batches[-1:])}
    for link in (("a", "b"), ("d", "a")):
        net.join(link)
    return net
