"""Method "squares" live: sums per origin over links that lose, repeat, reorder and break."""

import itertools
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest

from dokl.base.errors import BadInput
from dokl.learning.experts import predicting
from dokl.learning.squares import sums
from dokl.live.agent.clock import Clock
from dokl.live.agent.rolls import roll_of
from dokl.live.certificates.signing import Seals
from dokl.live.description import ExchangePolicy, parse
from dokl.live.description.text import text
from dokl.live.protocol import Protocol
from dokl.live.protocol.effects import Save, SaveSealed, SendTheta
from dokl.live.protocol.messages import SUMS, VERSIONS, mark_of
from dokl.live.protocol.roll import Roll
from dokl.live.protocol.versions import pack_versions, unpack_versions
from dokl.network.sums import checks, origins
from dokl.network.sums.origins import Entry
from fake_link import Link, described, letter, reasons, rows
from live_networks import on_disk
from variants import first

EVERY = ExchangePolicy(every_seconds=0.1, fewest_rows=1)


def network_of(graph, policy=EVERY, **model):
    made = described(graph, method="squares", **{"D": 20, **model})
    return replace(made, exchange=policy)


class SumsLink(Link):
    """A link of nodes by method "squares"; each keeps a journal of what it acknowledged."""

    def __init__(self, graph, policy=EVERY, repeat=0.0, **options):
        super().__init__(network_of(graph, policy), policy, **options)
        self.repeat, self.journal, self.kept, self.latest = repeat, {}, {}, None
        self.roll = Roll(frozenset(self.network.names), Seals())
        self.source = np.random.default_rng(5)

    def start(self, *names):
        for name in names or self.network.names:
            about = self.network.neighbours(name), self.policy, next(self.incarnations)
            kept = {"roll": self.roll_for(name), "sealed": self.kept.get(name, (0, b""))}
            self.nodes[name] = Protocol(self.learner, name, *about, **kept)
            self.nodes[name].latest = self.latest
            for X, Y in self.journal.setdefault(name, []):
                self.nodes[name].replay(X, Y)
            self.up.add(name)
            self._meet(name)
        return self

    def _done(self, name, effects):
        super()._done(name, effects)
        for effect in effects:
            if isinstance(effect, SaveSealed):
                self.kept[name] = effect.rows, effect.sealed

    def roll_for(self, name):
        return self.roll

    def teach(self, name, n):
        X, Y = rows(self.source, n)
        self.journal[name].append((X, Y))
        self._done(name, self.nodes[name].samples(X, Y, self.now))

    def carry(self, name, peer, what, body):
        super().carry(name, peer, what, body)
        if self.rng.random() < self.repeat:
            super().carry(name, peer, what, body)

    def acknowledged(self):
        return {name: sum(len(X) for X, _ in kept) for name, kept in self.journal.items()}

    def totals(self):
        return {name: node.facts()["sums"]["rows"] for name, node in self.nodes.items()}


# -- the account ------------------------------------------------------------------------------
def test_every_node_comes_to_know_all_rows_once_and_falls_silent():
    link = SumsLink(nx.path_graph(4)).start()
    for name in link.nodes:
        link.teach(name, 30)
    link.run(30)
    assert set(link.totals().values()) == {120}
    before = dict(link.sent)
    link.run(500)
    assert link.sent == before
    assert all(node.next_due(link.now) is None for node in link.nodes.values())


def test_disagreement_is_the_share_of_rows_that_neighbours_do_not_have_in_common():
    link = SumsLink(nx.path_graph(3)).start()
    assert link.nodes["n00"].facts()["disagreement"] is None
    for name in link.nodes:
        link.teach(name, 30)
    link.run(30)
    assert [node.facts()["disagreement"] for node in link.nodes.values()] == [0.0, 0.0, 0.0]
    seen = []
    link.teach("n00", 30)
    for _ in range(100):
        link.run(0.05)
        seen.append(link.nodes["n00"].facts()["disagreement"])
    assert max(seen) == pytest.approx(30 / 120)
    link.run(30)
    assert link.nodes["n00"].facts()["disagreement"] == 0.0


def test_the_shared_expert_is_that_of_one_place_with_all_rows():
    link = SumsLink(nx.cycle_graph(4)).start()
    for name in link.nodes:
        link.teach(name, 50)
    link.run(30)
    X, Y = (
        np.concatenate([part[i] for n in link.journal for part in link.journal[n]]) for i in (0, 1)
    )
    Z = link.learner.made.transform(X)
    best = np.linalg.solve(Z.T @ Z + 0.01 * np.eye(20), Z.T @ Y)
    for node in link.nodes.values():
        theta = node.state.node.memories[0].theta.T
        assert np.abs(theta - best).max() < 1e-3 * np.abs(best).max()


@pytest.mark.parametrize("restarts", [False, True])
def test_the_last_of_others_takes_its_rows_away_too(restarts):
    link = SumsLink(nx.path_graph(2)).start()
    for name in link.nodes:
        link.teach(name, 50)
    link.run(30)
    node, alone = link.nodes["n00"], replace(link.roll, names=frozenset({"n00"}))
    assert node.state.node.memories
    if restarts:
        given = [], link.policy, 500, node.state, node.learned, alone
        node = Protocol(link.learner, "n00", *given)
        node.samples(*rows(link.source, 1), link.now)
    else:
        node.change([], None, alone)
    effects = node.tick(link.now + 5.0)
    assert node.state.node.memories == ()
    assert any(isinstance(e, Save) for e in effects)
    X = rows(link.source, 5)[0]
    alone = predicting.predict_with_variance(node.state.node.node.own, X)
    assert np.array_equal(link.learner.predict(node.state, X), alone.mean)


@pytest.mark.parametrize("seconds", [0.6, 1.0, 31.0])
def test_sums_are_shared_at_any_pace(seconds):
    """Lists of versions go out meanwhile, and must not put the entries off."""
    link = SumsLink(nx.path_graph(2), replace(EVERY, every_seconds=seconds)).start()
    for name in link.nodes:
        link.teach(name, 30)
    link.run(3 * seconds + 10)
    assert link.totals() == {"n00": 60, "n01": 60}
    assert link.sent["hello"] < 60


def test_versions_are_compared_while_rows_keep_coming():
    """Both ends always have rows to tell; what one has of a third still reaches the other."""
    link = SumsLink(nx.path_graph(3), replace(EVERY, every_seconds=2.0)).start("n00", "n01")
    link.teach("n00", 30)
    link.run(20)
    link.kill("n00")
    link.start("n02")
    for _ in range(60):
        for name in ("n01", "n02"):
            link.teach(name, 5)
        link.run(0.5)
    assert link.nodes["n02"].facts()["sums"]["origins"]["n00"] == 30


@pytest.mark.parametrize("seed", range(6))
def test_whatever_happens_no_row_is_lost_or_counted_twice(seed):
    """Losses, repeats, reordering, partitions, crashes, a node that leaves and one that comes."""
    rng = np.random.default_rng(seed)
    graph = [nx.cycle_graph(5), nx.path_graph(4), nx.star_graph(4)][seed % 3]
    link = SumsLink(graph, seed=seed, loss=0.2, delay=(0.001, 0.6), repeat=0.3)
    late = letter(len(graph) - 1)
    link.start(*(name for name in link.network.names if name != late))
    for turn in range(25):
        for name in list(link.nodes):
            if rng.random() < 0.6:
                link.teach(name, int(rng.integers(1, 6)))
        event = rng.integers(5)
        if event == 0 and len(link.nodes) > 1:
            link.kill(str(rng.choice(sorted(link.nodes))))
        elif event == 1:
            for name in sorted(set(link.journal) - set(link.nodes)):
                link.start(name)
        elif event == 2:
            link.part(link.network.links[int(rng.integers(len(link.network.links)))])
        elif event == 3:
            link.heal()
        if turn == 12:
            link.start(late)
        link.run(float(rng.uniform(0, 1.5)))
        for name, total in link.totals().items():
            assert total <= sum(link.acknowledged().values())
            known = link.nodes[name].facts()["sums"]["origins"]
            assert all(known[n] <= link.acknowledged()[n] for n in known)
            assert known[name] == link.acknowledged()[name]
    link.heal()
    link.start(*sorted(set(link.journal) - set(link.nodes)))
    for name in link.nodes:
        link.teach(name, 20)  # enough for each to tell all of its rows
    link.run(60)
    assert set(link.totals().values()) == {sum(link.acknowledged().values())}
    for node in link.nodes.values():
        assert node.facts()["sums"]["origins"] == link.acknowledged()


def test_few_rows_are_not_told():
    link = SumsLink(nx.path_graph(2), replace(EVERY, fewest_rows=10)).start()
    link.teach("n00", 9)
    link.run(20)
    assert link.totals() == {"n00": 9, "n01": 0}
    link.teach("n00", 1)
    link.run(20)
    assert link.totals() == {"n00": 10, "n01": 10}
    link.kill("n00")
    link.start("n00")
    link.teach("n00", 5)
    link.run(20)
    assert link.totals() == {"n00": 15, "n01": 10}, "nor after a restart"
    link.teach("n00", 5)
    link.run(20)
    assert link.totals() == {"n00": 20, "n01": 20}


def test_a_node_that_went_back_takes_its_rows_back():
    link = SumsLink(nx.path_graph(3)).start()
    for name in link.nodes:
        link.teach(name, 20)
    link.teach("n00", 30)
    link.run(20)
    link.kill("n00")
    link.journal["n00"].pop()
    link.run(5)
    link.start("n00")
    link.run(20)
    assert set(link.totals().values()) == {60}


def test_whoever_is_taken_out_of_the_network_takes_its_rows_away():
    link = SumsLink(nx.complete_graph(3)).start()
    for name in link.nodes:
        link.teach(name, 20)
    link.run(20)
    link.kill("n02")
    roll = Roll(frozenset({"n00", "n01"}), Seals())
    link.nodes["n00"].change(["n01"], None, roll)
    link.run(20)
    link.nodes["n01"].change(["n00"], None, roll)
    link.run(20)
    assert link.totals() == {"n00": 40, "n01": 40}


# -- bits -------------------------------------------------------------------------------------
def test_with_exchange_off_a_replay_gives_the_same_bits_however_it_is_cut():
    network = network_of(nx.path_graph(2), ExchangePolicy(mode="off"))
    learner, roll = network.learner(), roll_of(network, "n00")
    X, Y = rows(np.random.default_rng(0), 200)

    def node(state=None, learned=0):
        return Protocol(learner, "n00", ["n01"], network.exchange, 1, state, learned, roll)

    whole = node()
    whole.samples(X, Y, 0.0)
    for cut in (1, 63, 64, 65, 130):
        crashed = node()
        for i in range(cut):
            crashed.samples(X[i : i + 1], Y[i : i + 1], 0.0)
        again = node(learner.unpack(crashed.packed_state()), cut)
        again.replay(X[cut:], Y[cut:])
        assert again.packed_state() == whole.packed_state()


def test_a_target_too_large_to_be_learned_is_refused_and_changes_nothing():
    learner = network_of(nx.path_graph(2)).learner()
    X, Y = rows(np.random.default_rng(0), 60)
    state, _ = learner.learn(learner.start(), X[:50], Y[:50])
    before = learner.pack(state)
    Y[53] = 1e308
    with np.errstate(all="ignore"), pytest.raises(BadInput, match="too large"):
        learner.learn(state, X[50:], Y[50:])
    assert learner.pack(state) == before


def test_back_is_as_if_nothing_had_come():
    link = SumsLink(nx.path_graph(2)).start()
    for name in link.nodes:
        link.teach(name, 70)
    link.run(5)
    node = link.nodes["n00"]
    packed, facts, mark = node.packed_state(), str(node.facts()), node.mark()
    node.samples(*rows(link.source, 90), link.now)
    node.tick(link.now + 3)
    node.back(mark)
    assert (node.packed_state(), str(node.facts())) == (packed, facts)


# -- trust ------------------------------------------------------------------------------------
def message(link, entry, sender="n01", seals=None):
    node = link.nodes[sender]._node
    return node.pack_body(SUMS, (seals or Seals()).seal(origins.to_bytes(entry)), link.now)


@pytest.fixture
def pair():
    link = SumsLink(nx.path_graph(2)).start()
    for name in link.nodes:
        link.teach(name, 40)
    return link.run(10)


def test_sums_that_cannot_be_are_refused_and_change_nothing(pair):
    node, learner = pair.nodes["n00"], pair.learner
    own = learner.own_sums(pair.nodes["n01"].state)
    before = node.packed_state()
    wrong = [
        replace(own, rows=own.rows + 1, zz=-own.zz),
        replace(own, rows=own.rows + 1, zy=1e6 * own.zy),
        replace(own, rows=own.rows + 1, zz=2.0 * own.zz),
    ]
    for each in wrong:
        effects = node.message("n01", message(pair, Entry("n01", 10**6, each)), pair.now)
        assert reasons(effects) == ["sums"]
    nobody = message(pair, Entry("nobody", 1, own))
    assert reasons(node.message("n01", nobody, pair.now)) == ["signature"]
    assert node.packed_state() == before
    assert node.facts()["refused"]["sums"] == 3


def test_rows_are_bounded_per_origin_and_time(pair):
    node = pair.nodes["n00"]
    node.change(["n01"], None, replace(pair.roll, rate=10.0))
    own = pair.learner.own_sums(pair.nodes["n01"].state)
    many = own
    for _ in range(200):
        many = many + own
    much = message(pair, Entry("n01", 10**6, many))
    assert reasons(node.message("n01", much, pair.now)) == ["sums"]


def test_a_node_with_many_rows_that_starts_again_is_still_believed():
    link = SumsLink(nx.path_graph(2))
    link.roll = replace(link.roll, rate=2.0, begun=-1000.0)
    link.start()
    link.teach("n00", 900)
    link.run(20)
    link.kill("n00")
    link.start("n00")
    link.teach("n00", 60)
    link.run(20)
    assert link.totals() == {"n00": 960, "n01": 960}
    assert link.nodes["n01"].facts()["refused"].get("sums", 0) == 0


def test_the_first_entry_of_an_origin_is_bounded_by_the_age_of_the_network():
    link = SumsLink(nx.path_graph(2))
    link.roll = replace(link.roll, rate=10.0, begun=-100.0)  # 160 s with what may be saved up
    link.start()
    node, learner = link.nodes["n00"], link.learner
    node.peer_up("n01", 0.0)
    state, _ = learner.learn(learner.start(), *rows(link.source, 40))
    few, many = learner.own_sums(state), sums.no_rows(20, 1)
    for _ in range(50):
        many = many + few
    for own, wrong in ((many, ["sums"]), (few, [])):
        effects = node.message("n01", message(link, Entry("n01", 10**6, own)), 0.1)
        assert reasons(effects) == wrong
    assert node.facts()["sums"]["origins"]["n01"] == 40


def test_a_description_says_when_the_network_began(tmp_path):
    class Set(Clock):
        def wall(self):
            return 1_700_000_000.0

        def now(self):
            return 500.0

    made = network_of(nx.path_graph(2))
    made = replace(made, about=replace(made.about, begun="2023-11-14"))
    again = parse(text(made))
    assert again.about.begun == "2023-11-14"
    seconds = 1_700_000_000 - 1_699_920_000  # that day began at 1,699,920,000
    assert roll_of(again, "n00", Set()).begun == 500.0 - seconds
    assert roll_of(network_of(nx.path_graph(2)), "n00").begun == float("-inf")
    with pytest.raises(BadInput, match="a day like"):
        replace(made.about, begun="yesterday")


@pytest.mark.slow
def test_flipped_labels_cost_next_to_nothing():
    """They pass every check; the own expert guards against them."""
    errors = {}
    for attacking in (False, True):
        link = SumsLink(nx.path_graph(3)).start()
        source = np.random.default_rng(1)
        for _ in range(40):
            for name in link.nodes:
                X, Y = rows(source, 20)
                sign = -1.0 if attacking and name != "n00" else 1.0
                link._done(name, link.nodes[name].samples(X, sign * Y, link.now))
            link.run(2)
        worth = link.learner.worth(link.nodes["n00"].state)
        errors[attacking] = worth["ratio"]
        problems = link.nodes["n00"].facts()["problems"]
        assert bool(problems) == attacking
        assert not attacking or "the rows of 'n01'" in problems[0]
    assert errors[True] < 1.1
    assert errors[False] < 1.02


def test_entries_are_sealed_by_their_origin(tmp_path):
    network = on_disk(tmp_path)
    a, b = (Seals(network.certificate_files(name)) for name in ("a", "b"))
    (tmp_path / "other").mkdir()
    stranger = Seals(on_disk(tmp_path / "other").certificate_files("a"))
    entry = b"what a has learned"
    assert b.opened(a.seal(entry)) == ("a", entry)
    broken = a.seal(entry)[:-1] + b"!"
    for sealed in (broken, stranger.seal(entry), Seals().seal(entry), b"", b"\xff" * 40):
        with pytest.raises(BadInput):
            b.opened(sealed)


def test_a_relayed_entry_of_another_name_is_refused(tmp_path):
    network = on_disk(tmp_path)
    link = SumsLink(nx.path_graph(2))
    link.roll = Roll(frozenset({"n00", "n01", "a"}), Seals(network.certificate_files("b")))
    link.start()
    attacker = Seals(network.certificate_files("c"))
    entry = Entry("a", 1, sums.no_rows(20, 1))
    node = link.nodes["n00"]
    node.peer_up("n01", 0.0)
    effects = node.message("n01", message(link, entry, seals=attacker), 0.1)
    assert reasons(effects) == ["signature"]
    assert "sealed by 'c'" in effects[0].text


# -- what travels -----------------------------------------------------------------------------
def test_versions_are_packed_and_unpacked():
    account = {n: Entry(n, i, sums.no_rows(2, 1)) for i, n in enumerate(("a", "b"))}
    assert unpack_versions(pack_versions(account)) == {mark_of("a"): (0, 0), mark_of("b"): (1, 0)}
    assert unpack_versions(b"short") == {}


def test_entries_are_sent_by_rows_and_not_all_the_time():
    link = SumsLink(nx.path_graph(2), replace(EVERY, fewest_rows=50)).start()
    for _ in range(100):
        for name in link.nodes:
            link.teach(name, 5)
        link.run(0.1)
    link.run(10)
    assert set(link.totals().values()) == {1000}
    assert len(link.effects(SendTheta)) <= 2 * (500 / 50) * 1.5


def test_an_origin_is_told_again_once_it_has_five_percent_more_rows():
    link = SumsLink(nx.path_graph(2), replace(EVERY, fewest_rows=10)).start()
    link.teach("n00", 400)
    link.run(20)
    assert link.totals()["n01"] == 400
    before = len(link.effects(SendTheta))
    for _ in range(19):
        link.teach("n00", 1)
        link.run(10)
    assert len(link.effects(SendTheta)) == before, "while more rows come"
    link.teach("n00", 1)
    link.run(20)
    assert link.totals()["n01"] == 420
    assert len(link.effects(SendTheta)) == before + 1


def entries_sent(link, name):
    """Times and sizes of the entries that a node sent to each of its neighbours."""
    return [(at, len(e.data)) for at, who, e in link.log if who == name and is_entry(e)]


def is_entry(effect):
    return isinstance(effect, SendTheta)


@pytest.mark.parametrize("most", first(1000, 5000))
def test_sums_take_no_more_of_a_link_than_they_may(most):
    """Everybody changes faster than the links can tell, and nobody's entry loses its turn."""
    link = SumsLink(nx.cycle_graph(5), replace(EVERY, bytes_per_second=most)).start()
    for _ in range(30):
        for name in link.nodes:
            link.teach(name, 6)
        link.run(1)
    for node in link.nodes.values():
        known = node.facts()["sums"]["origins"]
        assert len(known) == 5
        assert min(known.values()) > 60, "a third of the rows"
    for name in link.nodes:
        sent = entries_sent(link, name)
        for (at, size), (then, _) in itertools.pairwise(sent):
            assert then - at >= size / most - 1e-9
    for name in link.nodes:
        link.teach(name, 20)
    link.run(60)
    assert set(link.totals().values()) == {5 * 200}


def test_a_node_that_may_send_any_number_of_bytes_does():
    link = SumsLink(nx.path_graph(2), replace(EVERY, bytes_per_second=0)).start()
    link.teach("n00", 30)
    link.run(10)
    assert link.totals()["n01"] == 30


def test_nobody_passes_on_what_all_its_neighbours_have():
    link = SumsLink(nx.complete_graph(4), replace(EVERY, bytes_per_second=1000)).start()
    for name in link.nodes:
        link.teach(name, 30)
    link.run(60)
    assert set(link.totals().values()) == {120}
    assert len(link.effects(SendTheta)) <= 2 * 4, "of 16 where each passes on all that it hears"


def test_a_lying_list_of_versions_keeps_nothing_from_others():
    """One who claims to have everything is not sent it; the others are."""
    link = SumsLink(nx.star_graph(2)).start().run(3)
    hub, attacker = link.nodes["n00"], link.nodes["n01"]._node
    claimed = {name: Entry(name, 10**9, sums.no_rows(20, 1)) for name in link.network.names}
    link.teach("n00", 30)
    for _ in range(40):
        body = attacker.pack_body(VERSIONS, pack_versions(claimed), link.now)
        link._done("n00", hub.message("n01", body, link.now))
        link.run(0.5)
    assert link.nodes["n02"].facts()["sums"]["origins"]["n00"] == 30


def test_the_description_says_it_and_refuses_what_cannot_be():
    made = network_of(nx.path_graph(2), replace(EVERY, bytes_per_second=5000.0))
    again = parse(text(made))
    assert again.model.squares
    assert (again.exchange.fewest_rows, again.exchange.bytes_per_second) == (1, 5000.0)
    with pytest.raises(BadInput, match=r"bytes_per_second must be at least 1,000, or 0 for any"):
        ExchangePolicy(bytes_per_second=10)
    assert again.fingerprint == made.fingerprint
    assert again.fingerprint != described(nx.path_graph(2)).fingerprint
    with pytest.raises(BadInput, match="sums are pushed"):
        parse(text(replace(made, exchange=replace(EVERY, mode="pull"))))
    with pytest.raises(BadInput, match="MB an origin"):
        parse(text(network_of(nx.path_graph(2), D=4000)))
    with pytest.raises(BadInput, match="least squares"):
        network_of(nx.path_graph(2), loss="huber")


# -- rows of little weight --------------------------------------------------------------------
def hard_targets(kind, f, rng):
    """Targets (n,) of which many are far from what is expected; f: (n,) an easy function."""
    n = len(f)
    noise, t = 0.05 * rng.standard_normal(n), np.arange(n)
    return {
        "cauchy": f + rng.standard_cauchy(n),
        "large": 1e6 * (f + noise),
        "another unit": (f + noise) * np.where(t < n // 2, 1.0, 1000.0),
        "still, then not": np.where(t < n // 2, 0.0, 1000.0 * (f + noise)),
        "spikes": f + 1000.0 * (rng.random(n) < 0.2),
    }[kind]


@pytest.mark.parametrize(
    "kind", first("cauchy", "large", "another unit", "still, then not", "spikes")
)
def test_honest_rows_are_never_too_light(kind):
    learner = network_of(nx.path_graph(2)).learner()
    rng = np.random.default_rng(2)
    X = rng.uniform(-1, 1, (2000, 2))
    Y = hard_targets(kind, np.sin(2 * X[:, 0]), rng)[:, None]
    limits = checks.RowLimits(1.0 + 1e-6, 10.0 * float(np.abs(Y).max()))
    state, before = learner.start(), None
    for i in range(0, 2000, 50):
        state, _ = learner.learn(state, X[i : i + 50], Y[i : i + 50])
        data = origins.to_bytes(Entry("a", 1, learner.own_sums(state)))
        entry = origins.from_bytes(data)
        assert checks.growth_faults(before, entry, learner.layout, limits) == []
        before = entry


def test_many_rows_of_no_weight_are_refused(pair):
    node = pair.nodes["n00"]
    node.change(["n01"], None, replace(pair.roll, target=20.0))
    own = pair.learner.own_sums(pair.nodes["n01"].state)
    light = sums.times(replace(own, rows=5000), 1e-6)
    effects = node.message("n01", message(pair, Entry("n01", 10**6, light)), pair.now)
    assert reasons(effects) == ["sums"]
    assert "5000 rows weigh" in effects[0].text
    more = replace(own, rows=own.rows + 5000)
    known = node._way.account["n01"].incarnation
    effects = node.message("n01", message(pair, Entry("n01", known, more)), pair.now)
    assert reasons(effects) == ["sums"]
    assert node.facts()["sums"]["origins"]["n01"] == own.rows
