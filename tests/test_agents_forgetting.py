"""Shared experts that forget, live: what they know follows from how the total grows."""

import networkx as nx
import numpy as np
import pytest

from dokl.agents.sums import SquaresLearner, learner
from dokl.agents.sums.forgetting import Kept, forgetting
from dokl.methods.cooperation import node
from dokl.methods.squares import blocks, shared
from dokl.methods.squares import memory as memories
from dokl.methods.squares.memory import Numbers
from fake_link import rows
from test_agents_sums import SumsLink, network_of

D = 6
NUMBERS = Numbers(rho=0.5, lam=0.9, bound=np.inf)


def sums_of(Z, Y):
    return shared.unpacked(shared.of_rows(Z, Y, None), Z.shape[1], Y.shape[1])


def some_rows(n, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, D)), rng.normal(size=(n, 1))


def test_rows_that_come_one_by_one_are_forgotten_as_an_own_expert_does():
    """Which forgets after each row, and the shared one before the next."""
    Z, Y = some_rows(40)
    own, kept = memories.start(D, 1, NUMBERS.rho), None
    for t in range(len(Z)):
        own, _ = blocks.learn(NUMBERS, own, Z[t : t + 1], Y[t : t + 1], None)
        kept = forgetting(kept, sums_of(Z[: t + 1], Y[: t + 1]), NUMBERS)
    found = shared.learned(kept.left, NUMBERS.rho)
    np.testing.assert_allclose(np.sqrt(NUMBERS.lam) * found.theta, own.theta, atol=1e-9)


def test_a_total_that_lost_rows_is_begun_with_again():
    Z, Y = some_rows(40)
    before = forgetting(None, sums_of(Z, Y), NUMBERS)
    fewer = sums_of(Z[:30], Y[:30])
    assert forgetting(before, fewer, NUMBERS) == Kept(fewer, fewer)


@pytest.fixture
def one():
    return network_of(nx.path_graph(2)).learner()


def test_what_changed_long_ago_is_known_by_all_rows_and_forgotten_by_others(one):
    """The network's function changes its sign: the expert of 1,000 rows follows."""
    rng, state, kept, total = np.random.default_rng(0), one.start(), {}, None
    for part in range(16):
        X, Y = rows(rng, 500)
        Z = one.problem.features.transform(X)
        came = sums_of(Z, Y if part < 8 else -Y)
        total = came if total is None else total + came
        state, kept = one.knowing(state, total, kept)
    X, Y = rows(rng, 200)
    Z = one.problem.features.transform(X)

    def error(name):
        theta = state.nodes[f"{name}.theta"][0]
        return np.mean((Z[:, : theta.shape[1]] @ theta.T + Y) ** 2)

    names = [one.crew.names[i] for i in one.crew.shared]
    assert error(names[2]) < 0.05 * error(names[0])
    assert error(names[1]) < error(names[0])


def test_a_state_of_fewer_experts_goes_on(one, monkeypatch):
    """As an agent of an earlier version left it; nothing that was learned is lost."""
    X, Y = rows(np.random.default_rng(0), 300)
    with monkeypatch.context() as patch:
        patch.setattr(learner, "MEMBERS", learner.MEMBERS[:6])
        old = SquaresLearner(one.problem.features, 0.01, 6.0, 1, None, "0" * 16)
        before, _ = old.learn(old.start(), X[:200], Y[:200])
    state = one.unpack(old.pack(before))
    np.testing.assert_array_equal(state.nodes["own0.theta"], before.nodes["own0.theta"])
    np.testing.assert_array_equal(state.sums, before.sums)
    assert state.clock == before.clock == 200
    after, said = one.learn(state, X[200:], Y[200:])
    _, whole = one.learn(one.start(), X, Y)
    assert np.mean((said - Y[200:]) ** 2) < 1.5 * np.mean((whole[200:] - Y[200:]) ** 2)
    assert np.isfinite(node.predicted(one.crew, after, 0, np.ones((1, one.D)))[0]).all()


def test_nodes_forget_what_travels():
    """The sums of all nodes, which turn round meanwhile; nobody's own rows are many."""
    link, source = SumsLink(nx.path_graph(3)).start(), np.random.default_rng(1)
    for turn in range(30):
        for name in link.nodes:
            X, Y = rows(source, 60)
            link._done(name, link.nodes[name].samples(X, Y if turn < 15 else -Y, link.now))
        link.run(2)
    X, Y = rows(source, 200)
    Z = link.learner.problem.features.transform(X)
    for each in link.nodes.values():
        errors = [
            np.mean((Z[:, : theta.shape[1]] @ theta.T + Y) ** 2)
            for theta in (each.state.nodes[f"shared{j}.theta"][0] for j in range(3))
        ]
        assert errors[2] < 0.5 * errors[0]
        assert errors[1] < errors[0]
