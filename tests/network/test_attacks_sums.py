"""Faulty nodes: what flows where averaged sums travel, and that single learners guard nodes."""

import functools

import numpy as np
import pytest
from scipy.sparse import csr_array

from dokl import AutoRegressor, NetworkRegressor, Sending
from dokl.network.exchange import attacks
from dokl.network.exchange.conserving import conserve_once, flows
from dokl.network.exchange.rules import Faults
from dokl.network.graphs import complete, metropolis
from variants import first

K, FAULTY = 6, (1, 4)
WEIGHTS = csr_array(metropolis(complete(K)))


def exchanged(attack, payload, told, turn=0, wild=lambda said: False):
    links = WEIGHTS, flows(WEIGHTS)
    return conserve_once(Sending(), *links, turn, payload, told, Faults(attack, FAULTY), wild)


def test_a_lie_flows_as_it_was_told_and_liars_keep_their_own_account():
    payload = np.random.default_rng(0).normal(size=(K, 4))
    attack = attacks.sign_flip(2.0, since=1)
    honest, told, _ = exchanged(attack, payload, 0 * payload)
    np.testing.assert_allclose(honest, WEIGHTS @ payload, atol=1e-14)
    mixed, now, sent = exchanged(attack, payload, told, turn=1)
    said = payload.copy()
    said[list(FAULTY)] *= -2.0
    for k in range(K):
        heard = payload if k in FAULTY else said
        np.testing.assert_allclose(mixed[k], WEIGHTS[[k]].toarray()[0] @ heard, atol=1e-14)
    np.testing.assert_array_equal(now, told)
    assert sent == K * (K - 1) * payload[0].nbytes


def test_what_was_told_before_is_repeated():
    rng = np.random.default_rng(0)
    first, later = rng.normal(size=(2, K, 4))
    _, told, _ = exchanged(attacks.stale(since=1), first, 0 * first)
    mixed, told, _ = exchanged(attacks.stale(since=1), later, told, turn=1)
    said = later.copy()
    said[list(FAULTY)] = first[list(FAULTY)]
    np.testing.assert_allclose(mixed[0], WEIGHTS[[0]].toarray()[0] @ said, atol=1e-14)
    np.testing.assert_array_equal(told, said)


def test_where_nothing_said_can_be_honest_nodes_keep_their_total():
    payload = np.random.default_rng(0).normal(size=(K, 4))
    mixed, _, _ = exchanged(attacks.inflated(), payload, 0 * payload, wild=lambda said: True)
    honest = np.setdiff1d(np.arange(K), FAULTY)
    np.testing.assert_allclose(mixed[honest].sum(0), payload[honest].sum(0), atol=1e-14)


# -- networks of single learners ------------------------------------------------------------------
def dealt(n=170):
    """Rows (n * K, 3) of K nodes in turn that see the same function, through noise."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(n * K, 3))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.3 * rng.normal(size=n * K)


FALSE_TARGETS = {
    "flipped": lambda y, rng: -y,
    "a constant": lambda y, rng: np.full_like(y, 5.0),
    "noise": lambda y, rng: 3.0 * rng.normal(size=len(y)),
}


SETTINGS = {"n_components": 60, "random_state": 0}


@functools.cache
def error_alone(k):
    """Of node k by itself, after its first 100 rows."""
    X, y = (each[k::K] for each in dealt())
    return np.mean((AutoRegressor(**SETTINGS).prequential(X, y) - y)[100:] ** 2)


@pytest.mark.usefixtures("short_searches")
@pytest.mark.parametrize("share", ["rows", "sums"])
@pytest.mark.parametrize("attack", first(*FALSE_TARGETS))
def test_no_honest_node_is_worse_off_than_alone_whatever_rows_faulty_ones_have(attack, share):
    """A third of the nodes; errors of each honest node after its first 100 rows.

    Noise costs up to 1.3 times the error alone where the first rows count as well: a node that
    knows nothing yet believes the others.
    """
    X, y = dealt()
    node = np.arange(len(y)) % K
    told, attacking = y.copy(), np.isin(node, FAULTY)
    told[attacking] = FALSE_TARGETS[attack](y[attacking], np.random.default_rng(4))
    model = NetworkRegressor("complete", share=share, **SETTINGS)
    said = model.prequential(X, told, nodes=node)
    for k in np.setdiff1d(np.arange(K), FAULTY):
        mine = node == k
        assert np.mean((said[mine] - y[mine])[100:] ** 2) < 1.1 * error_alone(k)
