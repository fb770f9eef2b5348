"""Nodes that lie: what they say by hand, on every engine, and what the rules of mixing save."""

import networkx as nx
import numpy as np
import pytest
from scipy.sparse import csr_array

import naive_exchange
from dokl import Exchange, Mixing, Problem, Sending, run, squares
from dokl.base.arrays import Block
from dokl.base.errors import BadInput, UnknownName
from dokl.network.exchange import attacks
from dokl.network.exchange.rules import Faults, exchange_once
from dokl.network.graphs import (
    complete,
    faulty_tolerated,
    metropolis,
    most_faulty,
    ring,
    star,
    uniform,
)
from dokl.paper.problems import example_problem
from dokl.simulation.streams import Example2, Missing
from variants import first

PROBLEM = example_problem(20, mu=0.5)
K, FAULTY = 7, (1, 4)
STREAM = Missing(Example2(K=K, n=120), 0.1)
WHOLE = csr_array(metropolis(complete(K)))
SAYING = [
    attacks.sign_flip(2.0),
    attacks.isolation(),
    attacks.little(),
    attacks.inflated(3.0, since=2),
    attacks.stale(since=2),
]
RULES = {
    "mean": (Sending(), Mixing()),
    "ios": (Sending("float32"), Mixing(rule="ios")),
    "trimmed, quiet": (Sending(least=0.05), Mixing(rule="trimmed", faulty=2)),
    "few bits": (Sending(bits=2, parts=2, refresh=2), Mixing(rule="ios", faulty=2)),
}


@pytest.mark.parametrize("attack", SAYING, ids=lambda attack: attack.name)
@pytest.mark.parametrize("name", RULES)
def test_lies_are_what_loops_by_hand_make_of_them(name, attack):
    rng, (sending, mixing) = np.random.default_rng(5), RULES[name]
    A = csr_array(metropolis(nx.circulant_graph(K, [1, 2])))
    payload, told = rng.normal(size=(K, 12)), np.zeros((K, 12))
    for turn in range(5):
        given = A, turn, payload, told
        mixed, now, sent = exchange_once(sending, mixing, *given, Faults(attack, FAULTY))
        true = naive_exchange.exchange(A, payload, told, sending, mixing, turn, attack, FAULTY)
        np.testing.assert_allclose(mixed, true[0], atol=1e-12)
        np.testing.assert_allclose(now, true[1], atol=1e-12)
        assert sent == true[2]
        payload, told = mixed + 0.1 * rng.normal(size=(K, 12)), now


def test_an_isolated_node_is_where_it_would_be_alone():
    payload = np.random.default_rng(0).normal(size=(K, 5))
    faults = Faults(attacks.isolation(), FAULTY)
    mixed, _, _ = exchange_once(Sending(), Mixing(), WHOLE, 0, payload, 0 * payload, faults)
    honest = np.setdiff1d(np.arange(K), FAULTY)
    np.testing.assert_allclose(mixed[honest], payload[honest], atol=1e-12)


def test_noise_is_of_its_size_and_the_same_again():
    own, nothing = np.ones(20_000), np.zeros((0, 20_000))
    seen = attacks.Seen(3, 1, own, own, own, nothing, np.zeros(0), 0.2, seed=7)
    attack = attacks.noise(0.5)
    said = attack.message(seen, attack.p) - own
    assert (said.mean(), said.std()) == pytest.approx((0.0, 0.5), abs=0.02)
    np.testing.assert_array_equal(attack.message(seen, attack.p) - own, said)


def test_an_attack_is_a_value():
    assert attacks.sign_flip(2.0) == attacks.sign_flip(2.0) != attacks.sign_flip(3.0)
    assert set(attacks.ATTACKS) == {
        "sign_flip", "noise", "isolation", "little", "inflated", "stale", "flipped_labels",
    }  # fmt: skip
    assert all(made().name == name for name, made in attacks.ATTACKS.items())


def test_flipped_labels_are_the_liars_own():
    index = np.array([[0, 1, 2], [2, -1, 0]])
    one = Block(np.arange(6.0).reshape(3, 2), np.array([[1.0], [2.0], [3.0]]), None, index)
    attacked = attacks.attacked_rows(attacks.flipped_labels(), (2,), one)
    np.testing.assert_array_equal(attacked.Y[attacked.index[:, 0], 0], [1.0, 3.0])
    np.testing.assert_array_equal(attacked.Y[attacked.index[:, 2], 0], [-3.0, -1.0])
    np.testing.assert_array_equal(attacked.X[attacked.index[:, 2]], one.X[index[:, 2]])
    assert attacked.index[1, 1] == -1
    several = Block(csr_array(one.X), np.eye(3), np.ones(3), index)
    attacked = attacks.attacked_rows(attacks.flipped_labels(), (0,), several)
    np.testing.assert_array_equal(attacked.Y[attacked.index[:, 0]], np.eye(3)[[2, 0]])
    assert len(attacked.weight) == attacked.X.shape[0]


@pytest.mark.parametrize("engine", ["numba", "jax"])
@pytest.mark.parametrize("method", ["gradient", "squares"])
@pytest.mark.parametrize(
    "attack", first(attacks.flipped_labels(), attacks.noise(0.1), attacks.little(1.0)),
    ids=lambda attack: attack.name,
)  # fmt: skip
def test_engines_agree_on_liars(attack, method, engine):
    pytest.importorskip(engine)
    problem = PROBLEM if method == "gradient" else Problem(PROBLEM.features, squares(0.1))
    mixing = Mixing(rule="ios")
    exchange = Exchange(
        metropolis(complete(K)), "atc", 4, mixing=mixing, attack=attack, faulty=FAULTY
    )
    record = ("predictions", "mse", "theta", "state")
    settings = {"dtype": np.float64, "record": record, "seed": 2, "snapshot": 30}
    ours, true = (
        run(problem, exchange, STREAM, engine=e, **settings) for e in (engine, "reference")
    )
    for name in ("predictions", "mse", "theta"):
        np.testing.assert_allclose(ours.curves[name], true.curves[name], atol=1e-8)
    np.testing.assert_allclose(ours.states[0].theta, true.states[0].theta, atol=1e-8)


def test_results_are_of_honest_nodes():
    exchange = Exchange(metropolis(complete(K)), attack=attacks.flipped_labels(), faulty=FAULTY)
    record = ("predictions", "mse", "node_mse", "theta", "disagreement")
    trace = run(PROBLEM, exchange, STREAM, record=record, snapshot=60, seed=1)
    honest = np.setdiff1d(np.arange(K), FAULTY)
    assert np.isnan(trace.curves["predictions"][:, :, list(FAULTY)]).all()
    each = trace.curves["node_mse"]
    assert np.isnan(each[..., list(FAULTY)]).all()
    there = np.nanmean(each[..., honest], axis=-1)
    np.testing.assert_allclose(trace.curves["mse"], there)
    assert trace.curves["theta"].shape[2] == len(honest)
    assert trace.states[0].K == K


def test_ios_holds_where_the_mean_is_led_astray():
    stream, A, ends = Example2(K=10, n=500), metropolis(complete(10)), {}
    for rule in ("mean", "ios", "trimmed"):
        for attack in (None, attacks.sign_flip(1.0), attacks.stale(5), attacks.flipped_labels()):
            faults = {} if attack is None else {"attack": attack, "faulty": FAULTY}
            exchange = Exchange(A, every=5, mixing=Mixing(rule=rule, faulty=2), **faults)
            ends[rule, attack and attack.name] = run(PROBLEM, exchange, stream, seed=1).tail()[0]
    calm = ends["mean", None]
    for name in ("sign_flip", "stale", "flipped_labels"):
        assert ends["ios", name] < 1.15 * calm < 0.7 * ends["mean", name]
        assert ends["trimmed", name] < 0.9 * ends["mean", name]
    assert max(ends["ios", None], ends["trimmed", None]) < 1.15 * calm


# --- how many a neighbourhood can stand ---------------------------------------------------


def test_what_a_neighbourhood_can_stand():
    assert most_faulty([]) == 0
    assert [int(faulty_tolerated(complete(n))[0]) for n in (2, 3, 4, 6, 7, 10)] == [
        0,
        0,
        1,
        1,
        2,
        3,
    ]
    assert not faulty_tolerated(ring(9)).any()
    np.testing.assert_array_equal(faulty_tolerated(star(8)), [2] + 7 * [0])
    heavy = np.array([[0.2, 0.4, 0.2, 0.2], [0.4, 0.2, 0.2, 0.2], [0.2] * 2 + [0.3] * 2])
    heavy = np.vstack([heavy, [0.2, 0.2, 0.3, 0.3]])
    np.testing.assert_array_equal(faulty_tolerated(heavy), [0, 0, 1, 1])  # one weighs 0.4: too much
    np.testing.assert_array_equal(faulty_tolerated(uniform(complete(7))), 7 * [2])
    for weights in ([0.2, 0.2, 0.2], [0.1] * 9, [0.3, 0.1, 0.1, 0.1, 0.1, 0.1]):
        assert most_faulty(weights) == naive_exchange.stood(weights)


def test_dropped_neighbours_are_told_and_never_oneself():
    own = np.array([5.0, 5.0])
    far, near = np.array([100.0, 0.0]), np.zeros(2)
    heard = [(0.2, near), (0.2, far), (0.2, near), (0.2, near)]
    mixing = Mixing(rule="ios")
    assert mixing.kept(own, heard) == [True, False, True, True]
    np.testing.assert_allclose(mixing.mixed(own, heard), own * 0.2 / 0.8)
    assert Mixing().kept(own, heard) == [True] * 4
    even = [(0.2, own + 1), (0.2, own - 1), (0.2, own + 1.5), (0.2, own - 1.25)]
    assert mixing.kept(own, even) == [True] * 4  # nobody is far off
    assert Mixing(rule="ios", far=0).kept(own, even) == [True, True, False, True]
    for rule in ("ios", "trimmed"):
        np.testing.assert_array_equal(Mixing(rule=rule, faulty=4, far=0).mixed(own, heard), own)
        np.testing.assert_array_equal(Mixing(rule=rule).mixed(own, []), own)


def test_huge_vectors_are_dropped_like_others():
    own, huge = np.zeros(3), np.full(3, 3e38, np.float32)
    heard = [(0.2, own + 1), (0.2, own + 1), (0.2, huge), (0.2, own + 1)]
    for rule in ("ios", "trimmed"):
        mixed = Mixing(rule=rule, faulty=1).mixed(own, heard)
        assert ((mixed > 0.5) & (mixed <= 1)).all()


def test_bad_liars_are_named():
    with pytest.raises(UnknownName, match="median"):
        Mixing(rule="median")
    with pytest.raises(BadInput, match="far"):
        Mixing(rule="ios", far=-1.0)
    for faulty in (-1, 1.5, True):
        with pytest.raises(BadInput, match="faulty"):
            Mixing(rule="ios", faulty=faulty)
    with pytest.raises(BadInput, match="give both, or neither"):
        Exchange(attack=attacks.isolation())
    with pytest.raises(BadInput, match="give both, or neither"):
        Exchange(faulty=(1,))
    with pytest.raises(BadInput, match="different nodes"):
        Exchange(attack=attacks.isolation(), faulty=(1, 1))
    exchange = Exchange(metropolis(ring(K)), attack=attacks.isolation(), faulty=(K,))
    with pytest.raises(BadInput, match="at least one must be honest"):
        run(PROBLEM, exchange, STREAM)
    with pytest.raises(BadInput, match="since"):
        attacks.stale(since=-1)
    with pytest.raises(BadInput, match="strength"):
        attacks.sign_flip(float("nan"))
