"""What holds for any rows, any order and any interleaving, by Hypothesis.

Numbers of examples are small in `make test`; each property is marked slow once more, with ten
times as many (`any_example`).
"""

import functools
import itertools
import json
from dataclasses import dataclass, replace
from typing import ClassVar

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_agents_sums import SumsLink

from dokl import AutoRegressor
from dokl.base import codec
from dokl.learning.columns import Preprocessor
from dokl.learning.squares import sums
from dokl.live.description import ExchangePolicy
from dokl.live.protocol import Protocol, pieces
from dokl.live.protocol.effects import Ask, SendHello, SendTheta
from dokl.live.protocol.messages import (
    HELLO,
    LARGEST_COUNT,
    SAID,
    THETA,
    Message,
    RefusalNotice,
    pack,
    unpack,
)
from dokl.live.protocol.versions import pack_versions, unpack_versions
from dokl.network import state as states
from dokl.network.sums import origins, shared
from dokl.network.sums.origins import Entry
from fake_link import described, rows

pytestmark = pytest.mark.usefixtures("short_searches")

D, M = 4, 2


def any_example(*strategies, examples):
    """A test with some examples, and the same marked slow with ten times as many."""

    def decorate(function):
        @pytest.mark.parametrize("times", [1, pytest.param(10, marks=pytest.mark.slow)])
        def test(times):
            how = {"deadline": None, "derandomize": True, "database": None}
            settings(max_examples=examples * times, **how)(given(*strategies)(function))()

        test.__doc__, test.__name__ = function.__doc__, function.__name__
        return test

    return decorate


# -- accounts, whatever the order ----------------------------------------------------------------
@functools.cache
def sums_of(n, seed):
    rng = np.random.default_rng(seed)
    return sums.add(sums.no_rows(D, M), rng.normal(size=(n, D)), rng.normal(size=(n, M)))


ENTRIES = st.builds(
    lambda origin, incarnation, n, seed: Entry(origin, incarnation, sums_of(n, seed)),
    st.sampled_from("abc"), st.integers(0, 2), st.integers(0, 4), st.integers(0, 2),
)  # fmt: skip


def content(account):
    return {name: (entry.version, entry.content) for name, entry in account.items()}


@any_example(st.lists(ENTRIES, max_size=12), st.randoms(use_true_random=False), examples=100)
def test_accounts_do_not_depend_on_order_repetition_or_grouping(entries, random):
    whole = origins.merge({}, entries)
    heard = [*entries, *(random.choice(entries) for _ in range(5 if entries else 0))]
    random.shuffle(heard)
    cut = random.randint(0, len(heard))
    left, right = (origins.merge({}, part) for part in (heard[:cut], heard[cut:]))
    for joined in (origins.merge(left, right.values()), origins.merge(right, left.values())):
        assert content(joined) == content(whole)
        if joined:
            ours, theirs = (shared.pack(origins.total(each)) for each in (joined, whole))
            assert ours.tobytes() == theirs.tobytes()
    assert content(origins.merge(whole, whole.values())) == content(whole)


# -- the algebra of sums -------------------------------------------------------------------------
SEEDS = st.integers(0, 10**6)


def some_rows(seed, n, scale=1.0):
    rng = np.random.default_rng(seed)
    return scale * rng.normal(size=(n, D)), rng.normal(size=(n, M)), rng.uniform(0.1, 1.0, n)


def near(one, other):
    assert one.rows == other.rows
    size = max(np.abs(shared.pack(other)).max(), 1.0)
    np.testing.assert_allclose(shared.pack(one), shared.pack(other), atol=1e-12 * size)


@any_example(SEEDS, st.lists(st.integers(0, 5), min_size=1, max_size=6),
             st.sampled_from([1e-4, 1.0, 1e4]), examples=80)  # fmt: skip
def test_sums_of_parts_add_up_and_subtract(seed, lengths, scale):
    Z, Y, w = some_rows(seed, sum(lengths), scale)
    whole = sums.add(sums.no_rows(D, M), Z, Y, w)
    parts, at = [], 0
    for n in lengths:
        each = slice(at, at + n)
        parts.append(sums.add(sums.no_rows(D, M), Z[each], Y[each], w[each]))
        at += n
    total = functools.reduce(sums.Sums.__add__, parts)
    near(total, whole)
    near(functools.reduce(sums.Sums.__add__, reversed(parts)), whole)
    assert shared.pack(parts[0] + parts[-1]).tobytes() == (
        shared.pack(parts[-1] + parts[0]).tobytes()
    )
    rest = functools.reduce(sums.Sums.__add__, parts[1:], sums.no_rows(D, M))
    near(total - parts[0], rest)
    near(sums.narrow(total, 2), functools.reduce(
        sums.Sums.__add__, [sums.narrow(each, 2) for each in parts]))  # fmt: skip


@any_example(SEEDS, st.integers(0, 30), st.integers(1, 12), examples=60)
def test_leaving_one_origin_out_is_as_if_it_had_never_been(seed, n, other):
    a, b = (Entry(name, 0, sums_of(rows, seed + i)) for i, (name, rows) in
            enumerate((("a", n), ("b", other))))  # fmt: skip
    both, alone = origins.merge({}, [a, b]), origins.merge({}, [a])
    gone = origins.merge(both, [Entry("b", 1, sums_of(0, seed))])
    bits = shared.pack(origins.total(alone)).tobytes()
    assert shared.pack(origins.total(gone)).tobytes() == bits
    assert shared.pack(origins.total(both, without=["b"])).tobytes() == bits


@any_example(SEEDS, st.integers(1, 30), st.floats(1e-3, 10.0), examples=60)
def test_what_was_learned_by_rows_is_what_sums_solve(seed, n, ridge):
    Z, Y, w = some_rows(seed, n)
    solved = sums.solve(sums.add(sums.no_rows(D, M), Z, Y, w), ridge)
    matrix = Z.T @ (w[:, None] * Z) + ridge * np.eye(D)
    expected = np.linalg.solve(matrix, Z.T @ (w[:, None] * Y)).T
    np.testing.assert_allclose(solved.theta, expected, atol=1e-8)


# -- bytes, there and back -------------------------------------------------------------------------
NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=40)
COUNTS = st.integers(0, LARGEST_COUNT - 1)


@any_example(NAMES, COUNTS, st.integers(0, 9), SEEDS, st.randoms(use_true_random=False),
             examples=60)  # fmt: skip
def test_entries_and_their_pieces_come_back_in_any_order(name, incarnation, n, seed, random):
    entry = Entry(name, incarnation, sums_of(n, seed % 100))
    exact = origins.from_bytes(origins.to_bytes(entry, np.float64))
    assert (exact.origin, exact.version, exact.content) == (name, entry.version, entry.content)
    body = origins.to_bytes(entry)
    assert origins.to_bytes(origins.from_bytes(body)) == body, "a relay passes on the same bytes"
    parts = origins.pieces(body, 60)
    sent = [*parts, *random.sample(parts, len(parts) // 2)]
    random.shuffle(sent)
    kept, wholes = (), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces, "WHOLE", 10)  # so that these are pieces of something large
        patch.setattr(pieces, "SIZE", 60)
        for part in sent:
            kept, whole = pieces.add(kept, part, len(body), now=0.0)
            wholes += [] if whole is None else [whole]
    assert wholes
    assert set(wholes) == {body}


REFUSALS = st.builds(RefusalNotice, st.binary(min_size=8, max_size=8), st.integers(0, 2**64 - 1),
                     st.sampled_from(SAID))  # fmt: skip
NUMBERS32 = st.floats(-(2.0**99), 2.0**99, width=32)


@any_example(
    st.tuples(st.integers(0, 65535), COUNTS, COUNTS, COUNTS, COUNTS),
    st.floats(allow_nan=False, allow_infinity=False), st.booleans(), st.booleans(),
    st.one_of(st.lists(NUMBERS32, min_size=6, max_size=6), st.lists(REFUSALS, max_size=5)),
    examples=120,
)  # fmt: skip
def test_messages_come_back(counters, wall, finished, waiting, inside):
    theta = inside if inside and isinstance(inside[0], float) else None
    about = {"fingerprint": "00112233aabbccdd", "m": 2, "D": 3}
    message = Message(
        HELLO if theta is None else THETA, **about, degree=counters[0], incarnation=counters[1],
        step=counters[2], count=counters[3], learned=counters[4], wall=wall, finished=finished,
        waiting=waiting, refusals=() if theta is not None else tuple(inside),
        theta=None if theta is None else np.array(theta, np.float32).reshape(2, 3),
    )  # fmt: skip
    got = unpack(pack(message), **about)
    assert replace(got, theta=None) == replace(message, theta=None)
    if theta is not None:
        assert got.theta.tobytes() == message.theta.tobytes()


@any_example(st.lists(ENTRIES, max_size=6), examples=40)
def test_versions_come_back(entries):
    account = origins.merge({}, entries)
    known = unpack_versions(pack_versions(account))
    assert sorted(known.values()) == sorted(entry.version for entry in account.values())


KINDS = st.sampled_from(["f4", "f8", "i8"])


@any_example(
    st.dictionaries(st.sampled_from(["theta", "count", "sums", "P"]),
                    st.tuples(st.lists(st.integers(1, 3), max_size=2), KINDS), min_size=1),
    st.integers(1, 3), SEEDS, st.integers(0, 2**40), st.floats(0, 1e300), examples=60,
)  # fmt: skip
def test_states_come_back_to_the_last_bit(arrays, K, seed, clock, peak):
    rng = np.random.default_rng(seed)
    nodes = {
        name: (1e3 * rng.normal(size=(K, *shape))).astype(kind)
        for name, (shape, kind) in arrays.items()
    }
    got = states.unpack(states.pack(states.State(nodes, clock, peak)))
    assert (got.clock, got.peak) == (clock, peak)
    assert list(got.nodes) == list(nodes)
    for name, array in nodes.items():
        assert got.nodes[name].dtype == array.dtype
        np.testing.assert_array_equal(got.nodes[name], array)


@dataclass(frozen=True)
class Leaf:
    number: float
    text: str | None
    array: np.ndarray


@dataclass(frozen=True)
class Tree:
    leaves: tuple[Leaf, ...]
    counts: dict[str, int]
    P: np.ndarray


LEAVES = st.builds(
    Leaf, st.floats(), st.none() | st.text(),
    st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=4).map(np.array),
)  # fmt: skip


@any_example(st.lists(LEAVES, max_size=3), st.dictionaries(st.text(), st.integers(), max_size=3),
             st.integers(0, 4), SEEDS, examples=60)  # fmt: skip
def test_records_come_back_from_json_and_arrays(leaves, counts, n, seed):
    lower = np.asfortranarray(np.tril(np.random.default_rng(seed).normal(size=(n, n))))
    tree = Tree(tuple(leaves), counts, lower)
    meta, arrays = codec.encode(tree)
    got = codec.decode(json.loads(json.dumps(meta)), arrays, [Tree, Leaf])
    assert got.counts == counts
    np.testing.assert_array_equal(got.P, lower)
    assert len(got.leaves) == len(leaves)
    for ours, theirs in zip(got.leaves, leaves, strict=True):
        assert (repr(ours.number), ours.text) == (repr(theirs.number), theirs.text)
        np.testing.assert_array_equal(ours.array, theirs.array)


@dataclass(frozen=True)
class Branch:
    SAVED_AS: ClassVar[str] = "Bough"

    length: float


def test_files_name_a_renamed_record_as_before():
    meta, arrays = codec.encode(Branch(2.0))
    assert meta == {"$": "Bough", "length": 2.0}
    assert codec.decode(meta, arrays, [Branch]) == Branch(2.0)
    with pytest.raises(KeyError):
        codec.decode(meta | {"$": "Branch"}, arrays, [Branch])


# -- rows in any chunks --------------------------------------------------------------------------
def chunks(n, cuts):
    ends = sorted({0, *(cut % (n + 1) for cut in cuts), n})
    return [slice(a, b) for a, b in itertools.pairwise(ends)]


CUTS = st.lists(st.integers(1, 10**6), max_size=8)


@any_example(CUTS, SEEDS, st.sampled_from(["running", "off"]), st.floats(-1e9, 1e9), examples=40)
def test_preprocessing_gives_the_same_bits_in_any_chunks(cuts, seed, mode, offset):
    rng = np.random.default_rng(seed)
    a = offset + rng.normal(size=60)
    a[rng.random(60) < 0.2] = np.nan
    table = {"a": a, "place": rng.choice(np.array(["x", "y", None], object), 60)}
    one, many = (Preprocessor.plan(table, standardise=mode) for _ in range(2))
    whole = one.learn_transform(table)
    parts = [many.learn_transform({name: column[part] for name, column in table.items()})
             for part in chunks(60, cuts)]  # fmt: skip
    assert np.concatenate(parts).tobytes() == whole.tobytes()
    assert many.transform(table).tobytes() == one.transform(table).tobytes()


@functools.cache
def learned_whole(seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(150, 2))
    y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=150)
    model = small_model()
    return X, y, model.prequential(X, y), model


def small_model():
    return AutoRegressor(n_components=20, experts="one", random_state=0)


@any_example(CUTS, st.integers(0, 1), examples=6)
def test_a_model_learns_the_same_in_any_chunks(cuts, seed):
    """Each example learns a model: a few are enough beside the fixed cuts of `test_auto`."""
    X, y, expected, whole = learned_whole(seed)
    model = small_model()
    found = [model.prequential(X[part], y[part]) for part in chunks(150, cuts)]
    np.testing.assert_allclose(np.concatenate(found), expected, atol=1e-7)
    np.testing.assert_allclose(model.predict(X), whole.predict(X), atol=1e-7)


# -- the live protocol under any interleaving ----------------------------------------------------
class Pool:
    """Nodes, and messages on their way that are delivered in any order, repeated or lost."""

    def __init__(self, link):
        self.link, self.waiting, self.now = link, [], 0.0
        link.carry = lambda name, peer, what, body: self.waiting.append((what, peer, body))
        link._meet = lambda name: None
        link.start()
        for name in link.nodes:
            for peer in link.network.neighbours(name):
                self._done(name, link.nodes[name].peer_up(peer, self.now))

    def _done(self, name, effects):
        self.link._done(name, [e for e in effects if isinstance(e, SendTheta | SendHello | Ask)])

    def happen(self, choice, which):
        """One event: rows, a message that is delivered, repeated or lost, or time."""
        names = self.link.network.names
        name = names[which % len(names)]
        if choice == 0:
            self.teach(name, 1 + which % 3)
        elif choice == 1:
            self.now += (0.01, 0.1, 1.0, 7.0)[which % 4]
            self._done(name, self.link.nodes[name].tick(self.now))
        elif self.waiting:
            event = self.waiting[which % len(self.waiting)]
            if choice != 3:  # else it comes again
                self.waiting.pop(which % len(self.waiting))
            if choice != 4:  # else it is lost
                self.deliver(*event)

    def deliver(self, what, to, body):
        self.link.now = self.now
        self.link._event(what, to, body)

    def settle(self, most=3000):
        """Nothing is lost from now on, until there is nothing left to do."""
        for _ in range(most):
            if self.waiting:
                self.deliver(*self.waiting.pop(0))
                continue
            due = [d for node in self.link.nodes.values() if (d := node.next_due(self.now))]
            if not due:
                return
            self.now = max(self.now, min(due))
            for name, node in self.link.nodes.items():
                self._done(name, node.tick(self.now))
        raise AssertionError("the network does not come to rest")


class SumsPool(Pool):
    def __init__(self):
        super().__init__(SumsLink(nx.path_graph(3)))

    def teach(self, name, n):
        self.link.now = self.now
        self.link.teach(name, n)


EVENTS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 50)), max_size=40)


@any_example(EVENTS, examples=15)
def test_sums_of_all_rows_reach_every_node_whatever_happens_to_messages(events):
    pool = SumsPool()
    for choice, which in events:
        pool.happen(choice, which)
    pool.teach("n00", 2)
    pool.settle()
    acknowledged = sum(pool.link.acknowledged().values())
    assert set(pool.link.totals().values()) == {acknowledged}, "no row is lost or counted twice"
    accounts = [node._way.account for node in pool.link.nodes.values()]
    assert all(content(account) == content(accounts[0]) for account in accounts)


LOCKSTEP = ExchangePolicy(mode="lockstep", patience_seconds=1e9)


@functools.cache
def learner_of_two():
    return described(nx.path_graph(2)).learner()


def exchange_rows(events):
    """Two nodes in lockstep with 6 rows each; the bits of both at the end."""
    learner, rng = learner_of_two(), np.random.default_rng(1)
    given = {name: rows(rng, 6) for name in ("n00", "n01")}
    other = {"n00": "n01", "n01": "n00"}
    nodes = {name: Protocol(learner, name, [other[name]], LOCKSTEP, 1) for name in given}
    waiting, now, fed = [], 0.0, dict.fromkeys(given, 0)

    def done(name, effects):
        waiting.extend(
            (other[name], e.data) for e in effects if isinstance(e, SendTheta | SendHello)
        )

    def feed(name, n):
        X, Y = (part[fed[name] : fed[name] + n] for part in given[name])
        fed[name] += len(X)
        if len(X):
            done(name, nodes[name].samples(X, Y, now))

    for name in nodes:
        done(name, nodes[name].peer_up(other[name], now))
    for choice, which in events:
        name = ("n00", "n01")[which % 2]
        if choice == 0:
            feed(name, 1 + which % 3)
        elif choice == 1:
            now += 0.5
            done(name, nodes[name].tick(now))
        elif waiting:
            to, data = waiting[which % len(waiting)]
            if choice != 3:
                waiting.pop(which % len(waiting))
            if choice != 4:
                done(to, nodes[to].message(other[to], data, now))
    for _ in range(400):
        for name in nodes:
            feed(name, 6)
        if waiting:
            to, data = waiting.pop(0)
            done(to, nodes[to].message(other[to], data, now))
        else:
            now += 0.5
            for name in nodes:
                done(name, nodes[name].tick(now))
        if not waiting and all(node.queued == 0 and node.learned == 6 for node in nodes.values()):
            break
    assert all(node.learned == 6 for node in nodes.values())
    return [states.pack(node.state) for node in nodes.values()]


@any_example(EVENTS, examples=25)
def test_in_lockstep_the_order_of_events_changes_no_bit(events):
    assert exchange_rows(events) == exchange_rows([])
