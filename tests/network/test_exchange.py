"""What is sent and how it is mixed: by hand, on every engine, and the same live as simulated."""

from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
from scipy.sparse import csr_array

import naive_exchange
from dokl import Exchange, GraphRecipe, Mixing, Sending, run
from dokl.base.errors import BadInput, UnknownName
from dokl.live.description import ExchangePolicy
from dokl.network.exchange.rules import exchange_once
from dokl.network.graphs import metropolis
from dokl.paper.problems import example_problem
from dokl.simulation.diffusion import init, step
from dokl.simulation.streams import Example2, Missing
from fake_link import Link, described

PROBLEM = example_problem(20, mu=0.5)
STREAM = Missing(Example2(K=6, n=200), 0.1)
GRAPH = GraphRecipe("ring", 6)
RULES = {
    "rounded": {"sending": Sending("float16")},
    "quiet": {"sending": Sending(least=0.05)},
    "parts": {"sending": Sending(parts=3)},
    "clipped": {"mixing": Mixing(0.05)},
    "all": {"sending": Sending("float16", 0.02, 2), "mixing": Mixing(0.1)},
    "two bits": {"sending": Sending(bits=2)},
    "one bit, in parts, quiet": {"sending": Sending("float32", 0.05, 2, bits=1, refresh=3)},
    "ios": {"mixing": Mixing(rule="ios", faulty=1, far=0)},
    "trimmed": {"mixing": Mixing(0.3, "trimmed", 1), "sending": Sending(bits=4)},
    "robust": {"mixing": Mixing(rule="ios", far=1.1), "sending": Sending(least=0.02)},
}


def ring(K):
    return csr_array(metropolis(nx.cycle_graph(K)))


@pytest.mark.parametrize("name", RULES)
def test_an_exchange_is_what_loops_by_hand_make_of_it(name):
    rng = np.random.default_rng(3)
    rules = {"sending": Sending(), "mixing": Mixing()} | RULES[name]
    for A in (ring(5), csr_array(metropolis(nx.complete_graph(5)))):
        payload, told = rng.normal(size=(5, 12)), np.zeros((5, 12))
        told[2:4] = payload[2:4] * 1.001  # these have hardly changed
        for turn in range(7):
            args = A, turn, payload, told
            mixed, now, sent = exchange_once(rules["sending"], rules["mixing"], *args)
            true = naive_exchange.exchange(A, payload, told, *rules.values(), turn)
            np.testing.assert_allclose(mixed, true[0], atol=1e-12)
            np.testing.assert_allclose(now, true[1], atol=1e-12)
            # A message of a part is as long as the longest part.
            assert sent == true[2] if 12 % rules["sending"].parts == 0 else sent >= true[2]
            payload, told = mixed + 0.1 * rng.normal(size=(5, 12)), now


def test_everything_sent_and_the_mean_is_the_product():
    rng = np.random.default_rng(0)
    payload = rng.normal(size=(7, 30))
    mixed, _, sent = exchange_once(Sending(), Mixing(), ring(7), 0, payload, np.zeros_like(payload))
    np.testing.assert_allclose(mixed, ring(7) @ payload, atol=1e-14)
    assert sent == 14 * 30 * 8
    assert Exchange().plain
    assert not Exchange(mixing=Mixing(1.0)).plain


@pytest.mark.parametrize("order", ["cta", "atc"])
@pytest.mark.parametrize("name", RULES)
def test_compiled_and_reference_agree_on_rules(name, order):
    check_engines(Exchange(GRAPH, order, 3, 0.5, **RULES[name]), ("numba",))


def check_engines(exchange, engines, **settings):
    """Engines give what the reference gives: predictions, vectors and bytes."""
    settings |= {"dtype": np.float64, "record": ("predictions", "state"), "seed": 2}
    true = run(PROBLEM, exchange, STREAM, engine="reference", **settings)
    for engine in engines:
        check_same(run(PROBLEM, exchange, STREAM, engine=engine, **settings), true)


def check_same(ours, true):
    np.testing.assert_allclose(
        ours.curves["predictions"], true.curves["predictions"], atol=1e-9, equal_nan=True
    )
    for one, other in zip(ours.states, true.states, strict=True):
        np.testing.assert_allclose(one.theta, other.theta, atol=1e-9)
        assert one.sent == other.sent > 0


@pytest.mark.parametrize("name", ["quiet", "one bit, in parts, quiet", "ios"])
def test_jax_and_reference_agree_on_rules(name):
    pytest.importorskip("jax")
    check_engines(Exchange(GRAPH, "atc", 3, 0.5, **RULES[name]), ("jax",), runs=2)


def test_silence_and_parts_save_bytes_and_nodes_still_agree():
    together = Exchange(GRAPH, every=1)
    plain = run(PROBLEM, together, STREAM, record=("mse", "bytes", "state"), seed=1)
    for sending, least in ((Sending(least=0.05), 0.8), (Sending(parts=4), 0.3)):
        quiet = run(
            PROBLEM, replace(together, sending=sending), STREAM, record=("mse", "state"), seed=1
        )
        assert quiet.states[0].sent < least * plain.curves["bytes"][0, -1]
        assert quiet.tail().mean() < 1.3 * plain.tail().mean()


def test_what_no_engine_has_is_refused_or_left_to_the_reference():
    exchange = Exchange(GRAPH, average="uniform", sending=Sending(parts=2))
    for engine in ("numba", "jax"):
        with pytest.raises(BadInput, match="running means together with rules"):
            run(PROBLEM, exchange, STREAM, engine=engine)


def test_bad_rules_are_named():
    with pytest.raises(UnknownName, match="float8"):
        Sending("float8")
    for bad in ({"least": -1.0}, {"least": float("nan")}, {"parts": 0}, {"parts": 1.5}):
        with pytest.raises(BadInput, match=next(iter(bad))):
            Sending(**bad)
    with pytest.raises(BadInput, match="clip"):
        Mixing(-1.0)


# --- the same rule, live and simulated ----------------------------------------------------


@pytest.mark.parametrize("order", ["cta", "atc"])
@pytest.mark.parametrize(
    "rules",
    [
        {},
        {"dtype": "float16"},
        {"clip": 0.05},
        {"dtype": "float16", "clip": 0.05},
    ],
    ids=str,
)
def test_live_in_lockstep_is_what_is_simulated(rules, order):
    """Agents over a link, and `diffusion.step` with the same rules on the same rows."""
    rng, n = np.random.default_rng(8), 25
    network = described(nx.cycle_graph(4))
    policy = ExchangePolicy(mode="lockstep", order=order, patience_seconds=60.0, **rules)
    X = rng.uniform(-1, 1, (n, 4, 2)).astype(np.float32)
    Y = np.sin(3 * X[..., :1]) + X[..., 1:]
    link = Link(network, policy).start()
    for k, name in enumerate(network.names):
        for t in range(n):
            link.feed(name, X[t : t + 1, k], Y[t : t + 1, k])
        link.finish(name)
    link.run(300.0)
    sending = Sending("float16") if "dtype" in rules else Sending("float32")
    exchange = Exchange(
        metropolis(nx.cycle_graph(4)), order, sending=sending, mixing=Mixing(rules.get("clip", 0.0))
    )
    problem = network.problem()
    state = init(problem, exchange, 4, 1)
    for t in range(n):
        state, _ = step(problem, exchange, state, X[t], Y[t])
    for k, name in enumerate(network.names):
        assert link.nodes[name].learned == n
        np.testing.assert_allclose(link.nodes[name].state.theta[0], state.theta[k], atol=2e-4)
