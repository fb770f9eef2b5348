"""What is sent and how it is mixed: by hand, on every engine, and the same live as simulated."""

from dataclasses import replace

import networkx as nx
import numpy as np
import pytest

from dokl import (
    Exchange,
    Features,
    Gaussian,
    GraphRecipe,
    Mixing,
    Problem,
    Sending,
    gradient,
    losses,
    run,
    schedules,
)
from dokl.agents.description import ExchangePolicy
from dokl.diffusion import init, step
from dokl.errors import BadInput, UnknownName
from dokl.exchange.rules import exchange_once
from dokl.graphs import metropolis
from dokl.streams import Example2, Missing
from fake_link import Link, described

PROBLEM = Problem(
    Features(Gaussian(5.0), 5, 20), gradient(losses.squared(), schedules.constant(0.5))
)
STREAM = Missing(Example2(K=6, n=200), 0.1)
GRAPH = GraphRecipe("ring", 6)
RULES = {
    "rounded": {"sending": Sending("float16")},
    "quiet": {"sending": Sending(least=0.05)},
    "parts": {"sending": Sending(parts=3)},
    "clipped": {"mixing": Mixing(0.05)},
    "all": {"sending": Sending("float16", 0.02, 2), "mixing": Mixing(0.1)},
}


def ring(K):
    from scipy.sparse import csr_array

    return csr_array(metropolis(nx.cycle_graph(K)))


def by_hand(A, payload, told, sending, mixing, turn):
    """One exchange as plain loops over nodes, neighbours and numbers."""
    K, size = payload.shape
    A, mixed, told, sent = A.toarray(), payload.copy(), told.copy(), 0
    chosen = [i for i in range(size) if i % sending.parts == turn % sending.parts]
    speaks = []
    for k in range(K):
        change = sum((payload[k, i] - told[k, i]) ** 2 for i in chosen)
        length = sum(payload[k, i] ** 2 for i in chosen)
        speaks.append(sending.least == 0 or change > sending.least**2 * length)
    for k in range(K):
        for other in range(K):
            if other == k or A[k, other] == 0 or not speaks[other]:
                continue
            heard = {i: payload[other, i] for i in chosen}
            if sending.dtype == "float16":
                heard = {i: float(np.float16(v)) for i, v in heard.items()}
            apart = {i: v - payload[k, i] for i, v in heard.items()}
            norm = sum(v * v for v in apart.values()) ** 0.5
            short = mixing.clip / norm if mixing.clip and norm > mixing.clip else 1.0
            for i, v in apart.items():
                mixed[k, i] += A[k, other] * short * v
    for k in range(K):
        if speaks[k]:
            links = sum(1 for other in range(K) if other != k and A[other, k] != 0)
            sent += links * len(chosen) * (2 if sending.dtype == "float16" else 8)
            for i in chosen:
                told[k, i] = payload[k, i]
    return mixed, told, sent


@pytest.mark.parametrize("name", RULES)
def test_an_exchange_is_what_loops_by_hand_make_of_it(name):
    rng = np.random.default_rng(3)
    rules = {"sending": Sending(), "mixing": Mixing()} | RULES[name]
    payload, told = rng.normal(size=(5, 12)), np.zeros((5, 12))
    told[2:4] = payload[2:4] * 1.001  # these have hardly changed
    for turn in range(4):
        mixed, now, sent = exchange_once(
            rules["sending"], rules["mixing"], ring(5), turn, payload, told
        )
        true = by_hand(ring(5), payload, told, rules["sending"], rules["mixing"], turn)
        np.testing.assert_allclose(mixed, true[0], atol=1e-12)
        np.testing.assert_allclose(now, true[1], atol=1e-12)
        # A message of a part is as long as the longest part.
        parts = rules["sending"].parts
        assert sent == true[2] if 12 % parts == 0 else sent >= true[2]


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
    ends = []
    for engine in ("numba", "reference"):
        exchange = Exchange(GRAPH, order, 3, 0.5, **RULES[name])
        record = ("predictions", "state")
        ends.append(
            run(PROBLEM, exchange, STREAM, engine=engine, dtype=np.float64, record=record, seed=2)
        )
    ours, true = ends
    np.testing.assert_allclose(
        ours.curves["predictions"], true.curves["predictions"], atol=1e-9, equal_nan=True
    )
    np.testing.assert_allclose(ours.states[0].theta, true.states[0].theta, atol=1e-9)
    assert ours.states[0].sent == true.states[0].sent > 0


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
    with pytest.raises(BadInput, match="running means together with rules"):
        run(PROBLEM, exchange, STREAM, engine="numba")
    with pytest.raises(BadInput, match="rules of sending or mixing"):
        run(PROBLEM, replace(exchange, average="none"), STREAM, engine="jax")


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
