"""Few bits a number, messages that get lost, and graphs in turn."""

import numpy as np
import pytest
from scipy.sparse import csr_array

import naive_exchange
from dokl import Exchange, GraphRecipe, Problem, Sending, run
from dokl.base.errors import BadInput
from dokl.network.exchange import Mixing
from dokl.network.exchange.coding import bytes_of, quantize
from dokl.network.graphs import check_weights, one_peer
from dokl.paper.problems import example_problem
from dokl.simulation.diffusion import init, step
from dokl.simulation.streams import Example2

PROBLEM = example_problem(60, mu=0.5)


@pytest.mark.parametrize("bits", range(1, 9))
def test_what_coding_leaves_is_as_little_as_it_should_be(bits):
    """Of a Gaussian, what Max's tables say; of anything, never more than there was."""
    left = (0.3634, 0.1188, 0.03744, 0.01154, 0.00349, 0.00104, 0.000304, 0.0000869)
    rng = np.random.default_rng(bits)
    change = rng.normal(size=40_000)
    error = np.mean((change - quantize(change, bits)) ** 2)
    assert error == pytest.approx(left[bits - 1], rel=0.06)
    single = np.zeros(500)
    single[7] = 1.0
    for change in (single, np.ones(3), rng.standard_cauchy(300), np.array([1e-30, -2e30])):
        assert np.sum((change - quantize(change, bits)) ** 2) <= np.sum(change**2) * (1 + 1e-6)
    np.testing.assert_array_equal(quantize(np.zeros(4), bits), np.zeros(4))


@pytest.mark.parametrize("bits", [1, 2, 3, 5, 8])
def test_a_payload_that_rests_is_soon_known(bits):
    payload, told = np.random.default_rng(0).normal(size=101), np.zeros(101)
    for _ in range(40):
        told = told + quantize(payload - told, bits)
    assert np.std(told - payload) < (0.03 if bits == 1 else 1e-4)
    assert bytes_of(101, bits) == 4 + -(-101 * bits // 8)


def test_bits_cost_what_they_say_and_little_accuracy():
    stream = Example2(K=6, n=600)
    together = Exchange(GraphRecipe("ring", 6))
    plain = run(PROBLEM, together, stream, record=("mse", "bytes"), dtype=np.float64, seed=1)
    for bits, most in ((1, 1.1), (2, 1.02), (4, 1.005)):
        exchange = Exchange(GraphRecipe("ring", 6), sending=Sending(bits=bits))
        few = run(PROBLEM, exchange, stream, record=("mse", "bytes"), dtype=np.float64, seed=1)
        assert few.curves["bytes"][0, -1] == 600 * 12 * bytes_of(60, bits)
        assert few.curves["bytes"][0, -1] < bits / 35 * plain.curves["bytes"][0, -1]
        assert few.tail().mean() < most * plain.tail().mean()


def test_bits_keep_the_mean_of_the_network():
    """What coding does to a vector cancels out: with weights whose columns sum to one."""
    rng = np.random.default_rng(2)
    from dokl.network.exchange.rules import exchange_once

    payload = rng.normal(size=(8, 30))
    told = np.zeros_like(payload)
    mean = payload.mean(axis=0)
    for turn in range(60):
        A = csr_array(one_peer(8)[turn % 3]) if turn % 2 else csr_array(np.full((8, 8), 1 / 8))
        payload, told, _ = exchange_once(Sending(bits=1), Mixing(), A, turn, payload, told)
        np.testing.assert_allclose(payload.mean(axis=0), mean, atol=1e-12)
    assert np.abs(payload - mean).max() < 0.05


# --- one peer at a time -------------------------------------------------------------------


def test_one_peer_graphs_send_one_message_each_and_agree():
    for K in (1, 2, 5, 8, 12, 16):
        graphs = one_peer(K)
        x = np.random.default_rng(K).normal(size=K)
        mean, apart = x.mean(), np.abs(x - x.mean()).max()
        for A in graphs:
            check_weights(A, connected=False)
            assert (np.diff(A.indptr) == min(K, 2)).all()
            x = A @ x
        assert np.abs(x - mean).max() <= (1e-12 if K & (K - 1) == 0 else apart)
    assert [len(one_peer(12, every)) for every in (1, 3)] == [4, 12]
    with pytest.raises(BadInput, match="every"):
        one_peer(4, every=0)


@pytest.mark.parametrize("order", ["cta", "atc"])
def test_graphs_take_turns_exchange_by_exchange(order):
    """Each of the graphs is used, whatever `every` is."""
    from dokl.simulation.diffusion import combines_now

    for every in (1, 2, 3, 4):
        exchange = Exchange(one_peer(8, every), order, every)
        used = [
            clock % len(exchange.graphs)
            for clock in range(6 * every)
            if combines_now(exchange, exchange.graphs, clock)
        ]
        offsets = [int(exchange.graphs[i].toarray()[0].nonzero()[0][1]) for i in used]
        assert offsets[:6] == [1, 2, 4, 1, 2, 4]


@pytest.mark.parametrize("sending", [Sending(bits=2), Sending("float32", 0.2), Sending(parts=2)])
@pytest.mark.parametrize("order", ["cta", "atc"])
def test_every_peer_in_turn_knows_what_it_was_told(order, sending):
    """A neighbour of one graph has heard nothing of what was told in another."""
    K, every, n, seats = 5, 2, 24, 3
    graphs = [A.toarray() for A in one_peer(K, every)]
    exchange = Exchange(graphs, order, every, sending=sending)
    problem = Problem(PROBLEM.features.draw(0), PROBLEM.method)
    stream = Example2(K=K, n=n).draw(3)
    state = init(problem, exchange, K)
    alone = Exchange()
    true, sent = init(problem, alone, K), 0
    several = seats if sending.remembers else 1
    told = [np.zeros((K, 60)) for _ in range(several)]

    def mix(true, clock):
        turn = clock // every
        A, seat = csr_array(graphs[clock % len(graphs)]), turn % several
        given = true.theta[:, 0], told[seat], sending, Mixing(), turn // several
        mixed, told[seat], more = naive_exchange.exchange(A, *given)
        return true.having(theta=mixed[:, None]), more

    for t in range(n):
        X, Y = stream.X[t], stream.y[t][:, None]
        state, _ = step(problem, exchange, state, X, Y)
        if order == "cta" and t % every == 0:
            true, more = mix(true, t)
            sent += more
        true, _ = step(problem, alone, true, X, Y)
        if order == "atc" and (t + 1) % every == 0:
            true, more = mix(true, t)
            sent += more
        np.testing.assert_allclose(state.theta, true.theta, atol=1e-12)
    assert state.sent == sent > 0


@pytest.mark.parametrize("engine", ["numba", "jax"])
def test_engines_agree_on_graphs_in_turn(engine):
    pytest.importorskip(engine)
    exchange = Exchange(one_peer(6, 3), "atc", 3, sending=Sending(bits=3, least=0.01))
    settings = {"dtype": np.float64, "record": ("mse", "bytes", "state"), "seed": 1}
    stream = Example2(K=6, n=60)
    ours, true = (
        run(PROBLEM, exchange, stream, engine=e, **settings) for e in (engine, "reference")
    )
    np.testing.assert_allclose(ours.states[0].theta, true.states[0].theta, atol=1e-9)
    np.testing.assert_array_equal(ours.curves["bytes"], true.curves["bytes"])


def test_bad_settings_are_named():
    for bad in (
        {"bits": 9},
        {"bits": -1},
        {"bits": 1.5},
        {"refresh": -1, "bits": 2},
        {"refresh": 3},
    ):
        with pytest.raises(BadInput, match=next(iter(bad))):
            Sending(**bad)
