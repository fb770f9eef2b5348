"""Protocols on a fake link in virtual time: it loses, delays, reorders and splits, by a seed."""

import heapq
import itertools
from dataclasses import replace

import networkx as nx
import numpy as np

from dokl.learning.experts.kinds import one
from dokl.live.description import About, AgreedInputs, ExchangePolicy, Model, Network, Node
from dokl.live.protocol import Protocol
from dokl.live.protocol.effects import Ask, Notice, Refuse, SendHello, SendTheta
from dokl.live.protocol.messages import HELLO, THETA, Message, pack

PUSH = ExchangePolicy(mode="push", every_seconds=0.1)
PULL = ExchangePolicy(mode="pull", every_seconds=0.1)
PEGASOS = {"loss": "hinge", "schedule": "pegasos", "mu": None, "lam": 1e-3}


class FewExperts(Network):
    """A network whose single learners are small: one expert, and few pilots."""

    @property
    def alone(self):
        return replace(super().alone, kinds=one(), most=30, pilots=(30, 60, 120))


def described(graph=None, d=2, labels=(), kind=FewExperts, **model):
    """A description without addresses that matter; nodes are named by letters."""
    graph = nx.path_graph(2) if graph is None else graph
    names = [letter(k) for k in graph]
    links = tuple((letter(a), letter(b)) for a, b in graph.edges)
    settings = Model(**{"D": 20, "schedule": "normalised", "mu": 0.5, "seed": 3, **model})
    nodes = {name: Node(f"127.0.0.1:{7000 + i}") for i, name in enumerate(names)}
    about = About("lab", security="insecure-loopback", links=links)
    return kind(about, settings, AgreedInputs.plain(d, labels=labels), nodes=nodes)


def letter(k):
    return f"n{k:02d}"


class Link:
    """K protocols, and what is on its way between them.

    loss: share of messages that vanish; delay: (shortest, longest), drawn for each message, so
    they overtake each other; cut: set of frozenset pairs between which nothing passes.
    """

    def __init__(self, network, policy=PUSH, seed=0, loss=0.0, delay=(0.001, 0.02), learner=None):
        self.network, self.policy = network, policy
        self.learner = learner or network.learner()
        self.rng = np.random.default_rng(seed)
        self.loss, self.delay, self.cut = loss, delay, set()
        self.now, self.order, self.waiting = 0.0, itertools.count(), []
        self.nodes, self.up, self.hung, self.backlog = {}, set(), set(), {}
        self.incarnations = itertools.count(100)
        self.sent = {"theta": 0, "hello": 0, "ask": 0}
        self.log = []  # (time, name, effect)

    # -- who is there ------------------------------------------------------------------------
    def start(self, *names, state=None, learned=0, policy=None, learner=None):
        for name in names or self.network.names:
            neighbours = self.network.neighbours(name)
            about = policy or self.policy, next(self.incarnations), state, learned
            self.nodes[name] = Protocol(learner or self.learner, name, neighbours, *about)
            self.up.add(name)
            self._meet(name)
        return self

    def kill(self, name):
        self.up.discard(name)
        self.hung.discard(name)
        self.backlog.pop(name, None)
        del self.nodes[name]
        # What was on its way to it is gone; its samples will come when it is back, or never.
        kept = ("samples", "finish")
        self.waiting = [e for e in self.waiting if e[3] != name or e[2] in kept]
        heapq.heapify(self.waiting)
        for peer in self._near(name):
            self._at(self.now + 0.006, "lost", peer, name)

    def wake(self):
        """Whoever hung goes on, and finds all that came meanwhile, in its order."""
        self.hung.clear()
        for name, events in self.backlog.items():
            for what, body in events:
                self._at(self.now, what, name, body)
        self.backlog = {}

    def part(self, *pairs):
        for a, b in pairs:
            self.cut.add(frozenset((a, b)))
            self._at(self.now + 0.01, "lost", a, b)
            self._at(self.now + 0.01, "lost", b, a)

    def heal(self):
        healed, self.cut = self.cut, set()
        for a, b in (tuple(pair) for pair in healed):
            if {a, b} <= self.up:
                self._at(self.now + 0.01, "up", a, b)
                self._at(self.now + 0.02, "up", b, a)

    def _meet(self, name):
        for peer in self._near(name):
            if peer in self.up and frozenset((name, peer)) not in self.cut:
                self._at(self.now + float(self.rng.uniform(0, 0.05)), "up", name, peer)
                self._at(self.now + float(self.rng.uniform(0, 0.05)), "up", peer, name)

    def _near(self, name):
        return self.network.neighbours(name)

    # -- time --------------------------------------------------------------------------------
    def feed(self, name, X, Y, at=None):
        self._at(self.now if at is None else at, "samples", name, (X, Y))

    def finish(self, name, at=None):
        self._at(self.now if at is None else at, "finish", name, None)

    def run(self, seconds, most=200_000):
        end = self.now + seconds
        for _ in range(most):
            due = self._next()
            if due is None or due > end:
                self.now = end
                return self
            self.now = max(self.now, due)
            self._one()
        raise AssertionError("the network does not come to rest: too many events")

    def _next(self):
        times = [self.waiting[0][0]] if self.waiting else []
        times += [t for t in (self._due(name) for name in self.nodes) if t is not None]
        return min(times, default=None)

    def _due(self, name):
        return None if name in self.hung else self.nodes[name].next_due(self.now)

    def _one(self):
        if self.waiting and self.waiting[0][0] <= self.now:
            _, _, what, to, body = heapq.heappop(self.waiting)
            self._event(what, to, body)
            return
        for name in sorted(self.nodes):
            due = self._due(name)
            if due is not None and due <= self.now:
                self._done(name, self.nodes[name].tick(self.now))
                after = self._due(name)
                assert after is None or after > self.now, f"{name} is due again at once"
                return

    def _event(self, what, to, body):
        node = self.nodes.get(to)
        if node is None:
            return
        if to in self.hung:
            self.backlog.setdefault(to, []).append((what, body))
            return
        if what == "message":
            self._done(to, node.message(*body, self.now))
        elif what == "samples":
            self._done(to, node.samples(*body, self.now))
        elif what == "ask":
            self._answer(to, *body)
        elif what == "finish":
            self._done(to, node.finish(self.now))
        else:
            event = node.peer_up if what == "up" else node.peer_lost
            self._done(to, event(body, self.now))

    def _at(self, time, what, to, body):
        heapq.heappush(self.waiting, (time, next(self.order), what, to, body))

    # -- effects -----------------------------------------------------------------------------
    def _done(self, name, effects):
        for effect in effects:
            self.log.append((self.now, name, effect))
            if isinstance(effect, SendTheta | SendHello):
                self.sent["theta" if isinstance(effect, SendTheta) else "hello"] += 1
                for peer in self._near(name):
                    self.carry(name, peer, "message", (name, effect.data))
            elif isinstance(effect, Ask):
                self.sent["ask"] += 1
                self.carry(name, effect.peer, "ask", (name, effect.known))

    def _answer(self, name, asker, known):
        node = self.nodes[name]
        newer = (node._node.incarnation, node.step) != known and node.step > 0
        data = node.packed(self.now) if newer else node.hello(self.now)
        self.carry(name, asker, "message", (name, data))

    def carry(self, name, peer, what, body):
        pair = frozenset((name, peer))
        if pair in self.cut or peer not in self.up or self.rng.random() < self.loss:
            return
        self._at(self.now + float(self.rng.uniform(*self.delay)), what, peer, body)

    # -- what came of it ---------------------------------------------------------------------
    def theta(self, name):
        return self.nodes[name].state.theta[0].astype(np.float64)

    def apart(self, names=None):
        """Largest distance between two nodes' vectors, relative to their length."""
        thetas = [self.theta(name) for name in names or self.nodes]
        size = max(np.linalg.norm(theta) for theta in thetas) or 1.0
        pairs = itertools.combinations(thetas, 2)
        return max((np.linalg.norm(a - b) / size for a, b in pairs), default=0.0)

    def effects(self, kind, name=None):
        return [e for _, who, e in self.log if isinstance(e, kind) and name in (None, who)]

    def notices(self, kind):
        return [e.text for e in self.effects(Notice) if e.kind == kind]

    def reasons(self):
        return {e.reason for e in self.effects(Refuse)}


def rows(rng, n, d=2, noise=0.05):
    """Samples of one smooth function."""
    X = rng.uniform(-1, 1, (n, d))
    y = np.sin(2 * X[:, 0]) + 0.5 * X[:, -1] + noise * rng.standard_normal(n)
    return X, y[:, None]


# -- single nodes and their messages ----------------------------------------------------------
def theta_message(learner, theta, step=1, incarnation=7, **about):
    theta = np.broadcast_to(np.asarray(theta, np.float32), (learner.m, learner.D))
    given = {"degree": 1, "count": 50, "learned": 50, **about}
    kind = HELLO if given.pop("hello", False) else THETA
    message = Message(
        kind, learner.fingerprint, learner.m, learner.D, incarnation=incarnation, step=step,
        theta=None if kind == HELLO else theta, **given,
    )  # fmt: skip
    return pack(message)


def reasons(effects):
    return [effect.reason for effect in effects if isinstance(effect, Refuse)]


def grown(small, rng, neighbours=("n01",), policy=PUSH, **about):
    """A node that has learned something and knows that its neighbours are up."""
    state, _ = small.learn(small.start(), *rows(rng, 50))
    node = Protocol(small, "n00", neighbours, policy, 1, state, 50)
    for name in neighbours:
        node.peer_up(name, 0.0)
    node.tick(0.0)
    return node
