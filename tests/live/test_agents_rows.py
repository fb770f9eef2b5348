"""Live nodes that share rows: what they learn, what a crash leaves, and what they refuse."""

import sqlite3
import time
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

from dokl.base.errors import BadFile, BadInput
from dokl.estimators import AutoRegressor
from dokl.learning.experts import learn as learning
from dokl.learning.experts.bank import start as start_bank
from dokl.learning.experts.kinds import Settings
from dokl.live.agent.rolls import roll_of
from dokl.live.description import AgreedInputs, Durability, ExchangePolicy, Limits, Model, parse
from dokl.live.description.inspection import nonsense
from dokl.live.description.text import text
from dokl.live.jobs.agents import identity
from dokl.live.jobs.export import export
from dokl.live.jobs.rollback import rollback
from dokl.live.protocol import Protocol, batches
from dokl.live.protocol.effects import Notice, Refuse, SaveLog, SendHello, SendTheta
from dokl.live.protocol.messages import ROWS
from dokl.live.store import Store, accept_loss
from dokl.live.store.copies import copy_store
from dokl.live.transports.memory import Hub
from dokl.network import banks, listening
from dokl.network import node as nodes
from dokl.network.sharing import SharingRule
from dokl.tables.models import TableModel
from live_networks import on_disk, small
from memory_agents import arrival, killed, made, rows, starting, wait

pytestmark = pytest.mark.usefixtures("short_searches")

MODEL = Model(method="squares", share="rows", own_components=60)
QUICK = ExchangePolicy(join_seconds=0.3, seal_seconds=0.1)
FEW = Settings(most=40, seed=3)


def sharing(**parts):
    return small(**{"model": MODEL, "exchange": QUICK, **parts})


def bits(prediction):
    return b"".join(np.ascontiguousarray(part).tobytes() for part in vars(prediction).values())


def stream(n, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, np.sin(2 * X[:, :1]) + 0.1 * rng.normal(size=(n, 1))


# -- one node --------------------------------------------------------------------------------------
@pytest.mark.parametrize("steps", [36, pytest.param(270, marks=pytest.mark.slow)])
def test_a_live_node_is_the_simulated_one_to_the_bit(steps):
    K, delay = 2, 3
    X, Y = stream(steps)
    Y = Y + (np.arange(steps) % K)[:, None]
    network = banks.start(2, 1, FEW, SharingRule("rows", delay, np.array([1, 1])))
    live = [listening.start(2, 1, FEW) for _ in range(K)]
    for t in range(steps):
        k, now = t % K, slice(t, t + 1)
        index = np.where(np.arange(K) == k, 0, -1)[None]
        network, told = banks.learn(network, X[now], Y[now], np.ones(1), index)
        if t >= delay:
            heard = slice(t - delay, t - delay + 1)
            number = np.array([(t - delay) % K])
            live = [listening.receive(node, number, X[heard], Y[heard]) for node in live]
        live[k], mine = listening.learn(live[k], k, X[now], Y[now])
        assert bits(mine) == bits(told)
    assert network.bank.now is not None
    new = stream(5, seed=1)[0]
    for k in range(K):
        expected = banks.predict(network, new, np.full(5, k))
        assert bits(listening.predict(live[k], k, new)) == bits(expected)


@pytest.mark.parametrize("chunk", [7, pytest.param(20, marks=pytest.mark.slow)])
def test_a_live_node_is_the_simulated_one_to_the_bit_in_the_same_chunks(chunk):
    """Rows come in chunks, as clients send them, and travel while none come."""
    K, delay = 2, 30
    X, Y = stream(20 * chunk)
    network = banks.start(2, 1, FEW, SharingRule("rows", delay, np.array([1, 1])))
    live, before = [listening.start(2, 1, FEW) for _ in range(K)], None
    for t in range(20):
        k, now = t % K, slice(t * chunk, (t + 1) * chunk)
        index = np.full((chunk + delay, K), -1)
        index[:chunk, k] = np.arange(chunk)
        network, told = banks.learn(network, X[now], Y[now], np.ones(chunk), index)
        if before is not None:
            number = np.full(chunk, (t - 1) % K)
            live = [listening.receive(node, number, X[before], Y[before]) for node in live]
        live[k], mine = listening.learn(live[k], k, X[now], Y[now])
        assert bits(mine) == bits(told)
        before = now
    assert network.bank.now is not None


def test_rows_of_one_call_are_learned_together(monkeypatch):
    """One by one, each takes several times as long."""
    calls, learn = [], learning.learn
    monkeypatch.setattr(
        learning, "learn", lambda bank, X, *a: calls.append(len(X)) or learn(bank, X, *a)
    )
    learner = sharing().learner("a")
    learner.learn(learner.start(), *rows(25))
    assert calls == [25]


def test_batches_that_wait_are_learned_together(monkeypatch):
    """Of several origins, in their order, as one chunk: each by itself takes twice as long."""
    network, chunks, receive = sharing(), [], listening.receive

    def counted(node, number, X, Y, late=False):
        chunks.append(number.tolist())
        return receive(node, number, X, Y, late)

    node = protocol(network, "b")
    for name, n in (("a", 30), ("c", 20)):
        node.peer_up(name, 100.0)
        _, data = spoken(network, name, n)
        for each in data:
            node.message(name, each, 100.0)
    monkeypatch.setattr(listening, "receive", counted)
    node.tick(101.0)
    assert chunks == [[0] * 30 + [2] * 20]
    assert node.facts()["sums"]["origins"] == {"a": 30, "b": 0, "c": 20}
    assert node.facts()["sums"]["behind"] == 0


def test_without_neighbours_it_is_the_lone_learner():
    X, Y = rows(40)
    learner = sharing(links=(), nodes={"a": small().nodes["a"]}).learner("a")
    model, state = AutoRegressor(n_components=60, random_state=1), learner.start()
    for i in range(len(X)):
        row = slice(i, i + 1)
        state, f, _ = learner.learn_saying(state, X[row], Y[row])
        assert f[0, 0] == model.prequential(X[row], Y[row, 0])[0]


def test_a_state_is_exact_as_bytes():
    learner = sharing().learner("a")
    state = learner.start()
    X, Y = rows(70)
    state, *_ = learner.learn_saying(state, X[:35], Y[:35])
    state = learner.receive(state, [("b", X[35:], Y[35:], 35)])
    state = learner.sealing(state, 10)
    again = learner.unpack(learner.pack(state))
    new = rows(5, seed=2)[0]
    assert bits(learner.predict_all(again, new)) == bits(learner.predict_all(state, new))
    assert learner.next_rows(again) == {"a": 0, "b": 35, "c": 0}
    assert learner.sealed(again) == 10
    assert np.array_equal(learner.unsealed(again)[0], X[10:35])
    other = sharing(model=replace(MODEL, own_components=50)).learner("a")
    with pytest.raises(BadInput, match="settings"):
        other.unpack(learner.pack(state))


def test_old_rows_leave_short_memories_alone():
    node = listening.start(2, 1, FEW)
    X, Y = stream(100)
    node = listening.receive(node, np.zeros(90), X[:90], Y[:90])
    late = listening.receive(node, np.ones(10), X[90:], Y[90:] + 50, late=True)
    kinds = node.bank.kinds
    for kind, before, after in zip(kinds, node.bank.memories, late.bank.memories, strict=True):
        assert (before is after) == (kind.memory < np.inf)
    assert late.bank.seen == 100
    assert learning.learn_late(node.bank, np.empty((0, 3)), np.empty((0, 1))).seen == 90


@pytest.mark.slow
@pytest.mark.parametrize("how", ["flipped", "constant", "noise", "drift"])
def test_faulty_origins_harm_no_honest_node(how):
    """Three of eight nodes, from the start: scored 100 rows after, against the own learner."""
    K, faulty, steps = 8, 3, 200
    rng = np.random.default_rng(0)
    X = rng.normal(size=(K * steps, 3))
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.normal(size=K * steps)
    who, when = np.tile(np.arange(K), steps), np.repeat(np.arange(steps), K)
    told = {
        "flipped": -y,
        "constant": np.full_like(y, 3.0),
        "noise": y + 5 * rng.normal(size=len(y)),
        "drift": y + 0.02 * when,
    }
    Y = np.where(who < faulty, told[how], y)[:, None]
    given = Settings(most=100, seed=1)
    network = banks.start(3, 1, given, SharingRule("rows", 4, np.full(K, 2)))
    index = np.arange(K * steps).reshape(steps, K)
    _, found = banks.learn(network, X, Y, np.ones(len(Y)), index)
    for k in range(faulty, K):
        mine = who == k
        _, lone = learning.learn(start_bank(3, 1, given), X[mine], Y[mine])
        late = when[mine] >= 100
        error, alone = (
            np.mean((mean[late, 0] - y[mine][late]) ** 2) for mean in (found.mean[mine], lone.mean)
        )
        assert error <= 1.1 * alone


# -- agents ----------------------------------------------------------------------------------------
def agree(agents, **counts):
    def same():
        facts = [agent.status()["sharing"] for agent in agents]
        return all(f["origins"] == counts and not f["behind"] for f in facts)

    wait(same)


def test_agents_share_rows_across_a_crash(tmp_path):
    hub, network = Hub(), sharing()
    with starting(tmp_path) as started:
        a, b, c = (started(network, name, hub=hub) for name in "abc")
        for k, agent in enumerate((a, b, c)):
            agent.submit(arrival(20 + k, seed=k)).result(20)
        agree([a, b, c], a=20, b=21, c=22)
        killed(b)
        a.submit(arrival(5, seed=9)).result(20)
        back = started(network, "b", hub=hub)
        back.submit(arrival(3, seed=10)).result(20)
        agree([a, back, c], a=25, b=24, c=22)
        for agent in (a, back, c):
            facts = agent.status()
            assert facts["problems"] == []
            assert facts["sharing"]["forks"] == {}
            X = rows(3)[0]
            assert np.isfinite(agent.predict(X)).all()
            assert agent.further(X, ["intervals"])["coverage"] == 0.9


def test_a_newcomer_takes_what_is_kept(tmp_path):
    hub, network = Hub(), sharing()
    with starting(tmp_path) as started:
        a, b = (started(network, name, hub=hub) for name in "ab")
        a.submit(arrival(40)).result(20)
        agree([a, b], a=40, b=0, c=0)
        c = started(network, "c", hub=hub)
        agree([a, b, c], a=40, b=0, c=0)
        assert c.status()["sharing"]["kept"] == {"a": 40}


def described(tmp_path):
    """A network that keeps a snapshot at every stop; its file, and the folder of its journals."""
    path, folder = tmp_path / "lab.toml", tmp_path / "lab.state"
    network = sharing(path=path, durability=Durability(keep_minutes=1e-9))
    path.write_text(text(network))
    folder.mkdir()
    return network, path, folder


def learned(agent, own):
    """Wait until its own rows are sealed, and learned by the network's bank."""
    wait(lambda: agent.status()["sharing"]["kept"] == {"a": own})
    wait(lambda: not agent.status()["sharing"]["behind"])


def test_a_node_goes_back_in_time_and_is_exported(tmp_path):
    network, path, folder = described(tmp_path)
    agent = made(folder, network, "a")
    agent.start()
    agent.submit(arrival(40)).result(20)
    learned(agent, 40)
    X, known = rows(4, seed=5)[0], agent.protocol.state.rows
    later = replace(known.node, node=nodes.for_later_rows(known.node.node))
    before = listening.predict(later, 0, X).mean[:, 0]
    agent.stop()
    export(path, "a", tmp_path / "a.dokl")
    model = TableModel.load(tmp_path / "a.dokl")
    assert np.allclose(model.estimator.predict(X), before, rtol=1e-6)
    assert rollback(path, time.time(), ["a"])["a"].undone == 0
    again = made(folder, network, "a")
    again.start()
    again.submit(arrival(3, seed=1)).result(20)
    wait(lambda: not again.status()["sharing"]["unsealed"])
    assert again.status()["sharing"]["origins"]["a"] == 43
    again.stop()


# -- protocol --------------------------------------------------------------------------------------
def protocol(network, name, incarnation=1):
    near = network.neighbours(name)
    learner, roll = network.learner(name), roll_of(network, name)
    return Protocol(learner, name, near, network.exchange, incarnation, roll=roll)


def flooded(node, now):
    """The batches that a node sends after its rows are due, as messages."""
    found = []
    for step in range(20):
        effects = node.tick(now + 0.2 * step)
        found += [e.data for e in effects if isinstance(e, SendTheta) and e.data[5] == ROWS]
    return found


def spoken(network, name="a", n=10):
    """A node that has rows, and what it floods."""
    node = protocol(network, name)
    node.peer_up(network.neighbours(name)[0], 0.0)
    node.samples(*rows(n), 0.1)
    return node, flooded(node, 1.0)


def test_rows_under_anothers_seal_are_refused(tmp_path):
    network = on_disk(tmp_path, model=MODEL, exchange=QUICK)
    node, _ = spoken(network)
    b = protocol(network, "b")
    b.peer_up("a", 0.0)
    way, X, Y = node._way, *rows(2)
    for origin, reason in (("c", "signature"), ("x", "stranger")):
        given = origin, 1, 0, X, Y, 1.0, 2.0, batches.NOTHING
        sealed = way.roll.seals.seal(batches.pack_entry(way.context, *given))
        batch = batches.read_batch(way.context, sealed)
        body = batches.pack_batches([batch], set())
        data = node._node.pack_body(ROWS, body, 1.0)
        (refused,) = b.message("a", data, 2.0)
        assert isinstance(refused, Refuse)
        assert refused.reason == reason
    assert b._way.logs == {}


def test_an_origin_has_quotas(tmp_path):
    exchange = replace(QUICK, rows_per_second=1, kept_rows=30)
    network = sharing(exchange=exchange)
    a, b = protocol(network, "a"), protocol(network, "b")
    a.peer_up("b", 0.0)
    b.peer_up("a", 0.0)
    taken = []
    for step in range(8):
        a.samples(*rows(10, seed=step), 5.0 * step)
        for data in flooded(a, 5.0 * step + 1):
            taken += [type(e) for e in b.message("a", data, 5.0 * step)]
    assert Refuse in taken
    assert b._way.logs["a"].end < 80
    assert b._way.logs["a"].end - b._way.logs["a"].base <= 30


def test_own_rows_that_wait_are_sealed_though_fewer_are_kept():
    network = sharing(exchange=replace(QUICK, kept_rows=30))
    a, b = protocol(network, "a"), protocol(network, "b")
    a.peer_up("b", 0.0)
    b.peer_up("a", 0.0)
    a.replay(*rows(100))  # a crash came before they were sealed
    numbers = []
    for data in flooded(a, 1.0):
        numbers += [e.cut for e in b.message("a", data, 2.0) if isinstance(e, SaveLog)]
    assert numbers[0] == 0
    assert b._way.logs["a"].end == a._way.logs["a"].end == 100
    assert b._way.logs["a"].missing == 0


def test_without_exchange_the_newest_own_rows_wait():
    network = sharing(exchange=replace(QUICK, mode="off", kept_rows=30))
    a, (X, Y) = protocol(network, "a"), rows(100)
    a.samples(X, Y, 0.1)
    learner = network.learner("a")
    assert np.array_equal(learner.unsealed(a.state)[0], X[70:])
    again = Protocol(learner, "a", [], network.exchange, 2, a.state, 100, roll_of(network, "a"))
    again.replay(X[:20], Y[:20])
    assert np.array_equal(learner.unsealed(again.state)[0], np.concatenate([X[90:], X[:20]]))


def test_a_target_beyond_what_is_believed_is_refused():
    network = sharing()
    inputs = replace(network.inputs, target_range=(-2.0, 2.0))
    _, (data, *_) = spoken(network)
    b = protocol(replace(network, inputs=inputs), "b")
    assert [type(e) for e in b.message("a", data, 1.0)][-1] is SaveLog
    node = protocol(network, "a")
    node.peer_up("b", 0.0)
    X, Y = rows(5)
    node.samples(X, Y + 100, 0.1)
    b = protocol(replace(network, inputs=inputs), "b")
    (refused,) = b.message("a", flooded(node, 1.0)[0], 1.0)
    assert refused.reason == "rows"
    assert "at most 2 is believed" in refused.text


def test_of_a_message_of_broken_seals_few_are_checked(tmp_path):
    network = on_disk(tmp_path, model=MODEL, exchange=QUICK)
    node, _ = spoken(network, n=40)
    b = protocol(network, "b")
    b.peer_up("a", 0.0)
    way, checked = node._way, []
    opened = b._way.roll.seals.opened
    b._way.roll.seals.opened = lambda sealed: checked.append(sealed) or opened(sealed)
    forged = []
    for i in range(100):
        entry = batches.pack_entry(way.context, "c", 1, i, *rows(1), 1.0, 2.0, batches.NOTHING)
        forged.append(batches.read_batch(way.context, way.roll.seals.seal(entry)))
    body = batches.pack_batches(forged, set())
    refused = b.message("a", node._node.pack_body(ROWS, body, 1.0), 2.0)
    assert {e.reason for e in refused} == {"signature"}
    assert len(checked) < 10


@pytest.mark.parametrize(
    ("inputs", "targets"), [(1.0, 1e-160), (1.0, 5e-324), (5e-324, 1.0), (1e38, 1e-300)]
)
def test_absurdly_small_rows_of_an_origin_stop_nobody(inputs, targets):
    network, (X, Y) = sharing(), rows(60, seed=1)
    a, b = protocol(network, "a"), protocol(network, "b")
    a.peer_up("b", 0.0)
    b.peer_up("a", 0.0)
    a.samples((X > 1) * inputs, np.round(3 * Y) * targets, 0.1)
    for data in flooded(a, 1.0):
        b.message("a", data, 2.0)
    for step in range(20):
        b.tick(3.0 + step)
    assert b.facts()["sums"]["behind"] == 0
    X, Y = rows(40, seed=2)
    (learned, *_) = b.samples(X, Y, 30.0)
    assert np.isfinite(learned.f).all()
    prediction = b._node.learner.predict_all(b.state, X)
    assert all(np.isfinite(part).all() for part in vars(prediction).values())


def test_other_columns_are_refused_by_name():
    _, (data, *_) = spoken(sharing())
    other = sharing(inputs=replace(small().inputs, target="z"))
    b = protocol(other, "b")
    refused = [e for e in b.message("a", data, 1.0) if isinstance(e, Refuse)]
    assert [e.reason for e in refused] == ["fingerprint"]


@pytest.mark.parametrize("restarts", [False, True])
def test_a_removed_origin_takes_its_rows_away(restarts):
    network = sharing()
    _, (data, *_) = spoken(network)
    b = protocol(network, "b")
    saved = [e for e in b.message("a", data, 1.0) if isinstance(e, SaveLog)]
    b.tick(1.1)
    assert b.facts()["sums"]["origins"]["a"] == 10
    left = network.without(["a"])
    if restarts:
        given = left.neighbours("b"), left.exchange, 2, b.state, b.learned, roll_of(left, "b")
        stored = [sealed for _, sealed in saved[0].batches]
        b = Protocol(left.learner("b"), "b", *given, stored=stored)
    else:
        b.change(left.neighbours("b"), left.exchange, roll_of(left, "b"))
    effects = b.tick(1.2)
    assert any(isinstance(e, Notice) and e.kind == "rebuilt" for e in effects)
    assert SaveLog("a", 1 << 62, 0) in effects
    assert "a" not in b.facts()["sums"]["origins"]
    assert b.state.rows.node.bank.seen == 0


def test_a_state_of_before_a_removal_learns_without_the_removed_origin():
    """A rollback, say: the log is gone, and the state still has its rows."""
    network = sharing()
    _, (data, *_) = spoken(network)
    b = protocol(network, "b")
    b.message("a", data, 1.0)
    b.samples(*rows(5, seed=3), 1.1)
    saved = [e for s in range(9) for e in b.tick(1.2 + s) if isinstance(e, SaveLog)]
    assert b.state.rows.node.bank.seen == 15
    left = network.without(["a"])
    given = left.neighbours("b"), left.exchange, 2, b.state, b.learned, roll_of(left, "b")
    stored = [sealed for each in saved for _, sealed in each.batches]
    back = Protocol(left.learner("b"), "b", *given, stored=stored)
    effects = back.tick(1.2)
    assert any(isinstance(e, Notice) and e.kind == "rebuilt" for e in effects)
    assert back.state.rows.node.bank.seen == 5
    assert left.learner("b").next_rows(back.state) == {"a": 0, "b": 5, "c": 0}


def test_what_is_not_stored_has_not_happened(tmp_path):
    network = sharing()
    _, (data, *_) = spoken(network)
    b = protocol(network, "b")
    mark = b.mark()
    assert b.message("a", data, 1.0)
    b.back(mark)
    assert b._way.logs == {}
    assert any(isinstance(e, SaveLog) for e in b.message("a", data, 1.0))


def test_a_link_carries_less_than_twice_the_csv(tmp_path):
    """Twelve stations in a ring, 20 rows a second of 8 inputs, seals with certificates."""
    names = [f"s{i}" for i in range(12)]
    links = tuple(zip(names, (*names[1:], names[0]), strict=True))
    about = {"inputs": AgreedInputs.plain(8), "model": MODEL, "exchange": ExchangePolicy()}
    network = on_disk(tmp_path, links=links, **about)
    nodes = {name: protocol(network, name, incarnation=i + 1) for i, name in enumerate(names)}
    table = np.round(10 + 5 * np.random.default_rng(0).normal(size=(336, 9)), 1)
    csv = sum(len(",".join(map(str, row))) + 1 for row in table.tolist())
    sent, now = dict.fromkeys(names, 0), 100.0
    for a, b in links:
        nodes[a].peer_up(b, now)
        nodes[b].peer_up(a, now)

    def carry_out(name, effects):
        for effect in effects:
            if isinstance(effect, SendTheta | SendHello):
                sent[name] += len(effect.data)
                for peer in network.neighbours(name):
                    carry_out(peer, nodes[peer].message(name, effect.data, now))

    for t in range(len(table) + 160):
        now += 0.05
        name = names[t % 12]
        if t < len(table):
            row = table[t : t + 1]
            carry_out(name, nodes[name].samples(row[:, :8], row[:, 8:], now))
        for name in names:
            nodes[name].at_once = 0  # what is heard need not be learned here
            carry_out(name, nodes[name].tick(now))
    assert all(node.facts()["sums"]["rows"] == len(table) for node in nodes.values())
    assert max(sent.values()) < 2 * csv, max(sent.values()) / csv


# -- description -----------------------------------------------------------------------------------
def test_a_description_reads_as_it_was_written():
    network = sharing(exchange=ExchangePolicy(kept_rows=500, seal_seconds=2.0))
    again = parse(text(network))
    assert again.model == Model(method="squares", share="rows", own_components=60)
    assert again.exchange == network.exchange
    assert again.fingerprint == network.fingerprint
    assert network.fingerprint != sharing(model=Model(D=20, method="squares")).fingerprint


def test_what_cannot_be_shared_is_refused():
    with pytest.raises(BadInput, match="share = 'rows' is for method"):
        Model(share="rows")
    pull = sharing(exchange=ExchangePolicy(mode="pull"))
    assert any("rows are pushed" in line for line in nonsense(pull))
    many = sharing(exchange=ExchangePolicy(kept_rows=20_000_000))
    assert any("keep fewer" in line for line in nonsense(many))


def test_a_damaged_log_is_noticed(tmp_path):
    about = {"name": "a", "fingerprint": "f00d", "m": 1, "D": 2, "d": 3}
    with opened(tmp_path, about) as store:
        with store.transaction() as change:
            change.log("a", 0, 0, [(0, b"one"), (4, b"two")])
            change.log("b", 0, 0, [(7, b"three")])
        with store.transaction() as change:
            change.log("a", 4, 9, [(9, b"four")])
        assert store.log() == [b"two", b"four", b"three"]
        with sqlite3.connect(store.path) as db:
            db.execute("UPDATE log SET crc = crc + 1 WHERE origin = 'b'")
        with pytest.raises(BadFile, match="rows of 'b'"):
            store.log()


@contextmanager
def opened(folder, about):
    store = Store.open(folder / "a.db", about, "process", Limits())
    yield store
    store.close()


def test_damaged_batches_are_dropped_and_come_again(tmp_path):
    hub, network = Hub(), sharing()
    with starting(tmp_path) as started:
        a, b = (started(network, name, hub=hub) for name in "ab")
        a.submit(arrival(40)).result(20)
        b.submit(arrival(20, seed=2)).result(20)
        agree([a, b], a=40, b=20, c=0)
        killed(b)
        path = tmp_path / "b.db"
        with sqlite3.connect(path) as db:
            db.execute("UPDATE log SET sealed = zeroblob(9)")
        db.close()
        with pytest.raises(BadFile, match="accept-loss DESCRIPTION --name b"):
            made(tmp_path, network, "b", hub=hub)
        with pytest.raises(BadFile, match=r"rows of 'a' does not match\)$"):
            copy_store(path, identity(network, "b"), tmp_path / "copy")
        assert accept_loss(path, identity(network, "b")).dropped["log"] > 1
        back = started(network, "b", hub=hub)
        back.submit(arrival(30, seed=3)).result(20)
        agree([a, back], a=40, b=50, c=0)
        wait(lambda: back.status()["sharing"]["kept"] == {"a": 40, "b": 50})
        assert back.protocol.state.rows.node.bank.seen == 90


def test_rows_under_numbers_of_lost_ones_are_learned():
    network = sharing()
    node, _ = spoken(network)
    assert network.learner("a").next_rows(node.state)["a"] == 10
    given = network.neighbours("a"), network.exchange, 2, node.state, 10, roll_of(network, "a")
    back = Protocol(network.learner("a"), "a", *given)  # its log could not be believed
    back.samples(*rows(4, seed=1), 20.0)
    flooded(back, 21.0)
    assert back._way.logs["a"].end == 4
    assert back.state.rows.node.bank.seen == 14


def test_rows_under_numbers_of_lost_ones_are_sealed_and_learned_once_across_a_crash(tmp_path):
    network = sharing()
    with starting(tmp_path) as started:
        a = started(network)
        a.submit(arrival(10)).result(20)
        learned(a, 10)
        a.stop()
        with sqlite3.connect(tmp_path / "a.db") as db:
            db.execute("UPDATE log SET crc = crc + 1")
        db.close()
        accept_loss(tmp_path / "a.db", identity(network, "a"))
        a = started(network)
        a.submit(arrival(4, seed=1)).result(20)
        learned(a, 4)
        killed(a)
        a = started(network)
        learned(a, 4)
        assert a.status()["sharing"]["unsealed"] == 0
        assert a.protocol.state.rows.node.bank.seen == 14


def test_rows_that_come_after_a_rollback_are_sealed_across_a_crash(tmp_path):
    network, path, folder = described(tmp_path)
    with starting(folder) as started:
        a = started(network)
        a.submit(arrival(20)).result(20)
        learned(a, 20)
        a.stop()
        moment = time.time()
        a = started(network)
        a.submit(arrival(40, seed=4)).result(20)
        learned(a, 60)
        a.stop()
        assert rollback(path, moment, ["a"])["a"].learned == 20
        a = started(replace(network, exchange=replace(QUICK, seal_seconds=1e6)))
        a.submit(arrival(3, seed=1)).result(20)
        assert a.status()["sharing"]["unsealed"] == 3
        killed(a)
        learned(started(network), 63)
