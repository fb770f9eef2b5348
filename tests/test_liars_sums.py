"""Nodes that lie where averaged sums travel: what flows, and that own experts guard a node."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from dokl import Exchange, Features, Gaussian, Problem, Sending, Stream, run
from dokl.network.exchange import attacks
from dokl.network.exchange.conserving import conserve_once, flows
from dokl.network.exchange.rules import Lies
from dokl.network.graphs import complete, metropolis
from dokl.network.sums import shared
from dokl.simulation.methods import cooperation

K, LIARS = 6, (1, 4)
WEIGHTS = csr_array(metropolis(complete(K)))
QUIET = {"show_progress": False}


def exchanged(attack, payload, told, turn=0, wild=lambda said: False):
    links = WEIGHTS, flows(WEIGHTS)
    return conserve_once(Sending(), *links, turn, payload, told, Lies(attack, LIARS), wild)


def test_a_lie_flows_as_it_was_told_and_liars_keep_their_own_account():
    payload = np.random.default_rng(0).normal(size=(K, 4))
    attack = attacks.sign_flip(2.0, since=1)
    honest, told, _ = exchanged(attack, payload, 0 * payload)
    np.testing.assert_allclose(honest, WEIGHTS @ payload, atol=1e-14)
    mixed, now, sent = exchanged(attack, payload, told, turn=1)
    said = payload.copy()
    said[list(LIARS)] *= -2.0
    for k in range(K):
        heard = payload if k in LIARS else said
        np.testing.assert_allclose(mixed[k], WEIGHTS[[k]].toarray()[0] @ heard, atol=1e-14)
    np.testing.assert_array_equal(now, told)
    assert sent == K * (K - 1) * payload[0].nbytes


def test_what_was_told_before_is_repeated():
    rng = np.random.default_rng(0)
    first, later = rng.normal(size=(2, K, 4))
    _, told, _ = exchanged(attacks.stale(since=1), first, 0 * first)
    mixed, told, _ = exchanged(attacks.stale(since=1), later, told, turn=1)
    said = later.copy()
    said[list(LIARS)] = first[list(LIARS)]
    np.testing.assert_allclose(mixed[0], WEIGHTS[[0]].toarray()[0] @ said, atol=1e-14)
    np.testing.assert_array_equal(told, said)


def test_where_nothing_said_can_be_honest_nodes_keep_their_total():
    payload = np.random.default_rng(0).normal(size=(K, 4))
    mixed, _, _ = exchanged(attacks.inflated(), payload, 0 * payload, wild=lambda said: True)
    honest = np.setdiff1d(np.arange(K), LIARS)
    np.testing.assert_allclose(mixed[honest].sum(0), payload[honest].sum(0), atol=1e-14)


def rows(n=500, d=3):
    """Nodes that see the same function, through noise.

    Flipped labels, here of a third of the nodes, cost something before a mixture has found out. Of
    500 rows that is a small share: 1.03 of the worst node's own alone (1.07 with rounds every 5
    rows). Of 150 it may be 1.18, and with noise of 0.1, where own experts soon err next to nothing,
    1.39: there the bound of 1.1 does not hold.
    """
    rng = np.random.default_rng(3)
    X = rng.normal(size=(n * K, d))
    Y = np.sin(X[:, :1]) + 0.5 * rng.normal(size=(n * K, 1))
    return Stream(X.reshape(n, K, d), Y.reshape(n, K, 1))


PROBLEM = Problem(Features(Gaussian(1.0), 3, 40, "paired"), cooperation())


def errors(exchange, engine="numba", stream=None):
    """Squared errors (n, K) before each row was learned; NaN for liars."""
    given = rows() if stream is None else stream
    trace = run(PROBLEM, exchange, given, record=("node_mse",), engine=engine, **QUIET)
    return trace.curves["node_mse"][0]


@pytest.fixture(scope="module")
def alone():
    return errors(Exchange())


@pytest.mark.parametrize("name", sorted(attacks.ATTACKS))
def test_whatever_liars_say_nobody_is_worse_off_than_alone(name, alone):
    found = errors(Exchange(WEIGHTS, every=20, attack=attacks.ATTACKS[name](), liars=LIARS))
    honest = np.setdiff1d(np.arange(K), LIARS)
    for span in (slice(None), slice(-160, None)):
        ratio = found[span].mean(axis=0) / alone[span].mean(axis=0)
        assert (ratio[honest] < 1.1).all()
    assert np.isnan(found[:, list(LIARS)]).all()


def test_engines_agree_on_lies():
    stream = Stream(*(part[:40] for part in (rows().X, rows().y)))
    lied = Exchange(WEIGHTS, "cta", 4, attack=attacks.isolation(), liars=LIARS)
    fast, slow = (errors(lied, engine, stream) for engine in ("numba", "reference"))
    np.testing.assert_allclose(fast, slow, atol=1e-8)


def test_no_honest_copy_is_refused():
    trace = run(PROBLEM, Exchange(WEIGHTS, every=10), rows(60), record=("state",), **QUIET)
    state, features = trace.states[0], PROBLEM.features.draw(0)
    for said in PROBLEM.method.outgoing(state):
        assert not PROBLEM.method.wild(features, state, said)
        assert PROBLEM.method.wild(features, state, -said)
        assert PROBLEM.method.wild(features, state, np.where(said == said[0], np.nan, said))
        many = said.copy()
        many[: shared.size(40, 1)] *= 2
        assert PROBLEM.method.wild(features, state, many)
