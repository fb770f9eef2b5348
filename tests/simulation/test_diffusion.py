import math

import numpy as np
import pytest
from scipy.sparse import csr_array

from dokl import losses, schedules
from dokl.base.errors import BadGraph, BadInput, UnknownName
from dokl.learning.features import sample
from dokl.learning.kernels import Gaussian
from dokl.network.exchange import Exchange
from dokl.network.graphs import complete, metropolis, ring
from dokl.simulation.diffusion import Problem, combines_now, init, step
from dokl.simulation.methods import gradient

FEATURES = sample(Gaussian(1.0), d=2, D=12, seed=3)
KLMS = Problem(FEATURES, gradient(losses.squared(), schedules.constant(0.5)))
RING = metropolis(ring(4))
PAIRS = [  # neither connects four nodes by itself, together they do
    np.array([[0.5, 0.5, 0, 0], [0.5, 0.5, 0, 0], [0, 0, 0.5, 0.5], [0, 0, 0.5, 0.5]]),
    np.array([[0.5, 0, 0, 0.5], [0, 0.5, 0.5, 0], [0, 0.5, 0.5, 0], [0.5, 0, 0, 0.5]]),
]


def samples(n, K=4, m=1, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, K, 2)), rng.standard_normal((n, K, m))


def learn(exchange, n=30, problem=KLMS, K=4, weight=None, data=None):
    """All states, the first one included, and the predictions (n, K, m)."""
    X, Y = samples(n, K) if data is None else data
    states, f = [init(problem, exchange, K, Y.shape[2])], []
    for t in range(len(X)):
        state, prediction = step(
            problem, exchange, states[-1], X[t], Y[t], None if weight is None else weight[t]
        )
        states.append(state)
        f.append(prediction)
    return states, np.array(f)


# --- one step, by hand ------------------------------------------------------------------


def test_one_step_of_combine_then_adapt():
    exchange = Exchange(metropolis(complete(2)), order="cta")
    problem = Problem(FEATURES, gradient(losses.squared(), schedules.constant(0.5), lam=0.1))
    X, Y = samples(1, K=2)
    state = init(problem, exchange, K=2)
    state.theta[:] = np.arange(24.0).reshape(2, 1, 12) / 24
    new, f = step(problem, exchange, state, X[0], Y[0])
    psi = state.theta.mean(axis=0)[0]
    for k, z in enumerate(FEATURES.transform(X[0])):
        assert f[k, 0] == pytest.approx(psi @ z)
        expected = (1 - 0.5 * 0.1) * psi + 0.5 * (Y[0, k, 0] - psi @ z) * z
        np.testing.assert_allclose(new.theta[k, 0], expected, atol=1e-14)


def test_one_step_of_adapt_then_combine():
    exchange = Exchange(metropolis(complete(2)), order="atc")
    X, Y = samples(1, K=2)
    state = init(KLMS, exchange, K=2)
    state.theta[:] = np.arange(24.0).reshape(2, 1, 12) / 24
    new, f = step(KLMS, exchange, state, X[0], Y[0])
    adapted = []
    for k, z in enumerate(FEATURES.transform(X[0])):
        assert f[k, 0] == pytest.approx(state.theta[k, 0] @ z)
        adapted.append(state.theta[k, 0] + 0.5 * (Y[0, k, 0] - f[k, 0]) * z)
    for k in range(2):
        np.testing.assert_allclose(new.theta[k, 0], np.mean(adapted, axis=0), atol=1e-14)


def test_pegasos_forgets_its_start_at_the_first_step():
    lam = 0.1
    pegasos = Problem(FEATURES, gradient(losses.hinge(), schedules.pegasos(lam), lam))
    state = init(pegasos, Exchange(), K=1)
    state.theta[:] = 7.0
    x, y = np.array([[0.3, -0.2]]), np.array([[-1.0]])
    new, f = step(pegasos, Exchange(), state, x, y)
    z = FEATURES.transform(x)[0]
    expected = (y[0, 0] / lam) * z if y[0, 0] * f[0, 0] < 1 else 0 * z
    np.testing.assert_allclose(new.theta[0, 0], expected, atol=1e-12)


def test_outputs_learn_side_by_side():
    X, Y = samples(20, m=3)
    exchange = Exchange(RING, intercept=0.5)
    together, f = learn(exchange, data=(X, Y))
    for o in range(3):
        alone, g = learn(exchange, data=(X, Y[..., o : o + 1]))
        np.testing.assert_allclose(f[..., o], g[..., 0], atol=1e-12)
        np.testing.assert_allclose(together[-1].theta[:, o], alone[-1].theta[:, 0], atol=1e-12)


def test_everyone_starts_at_zero():
    state = init(KLMS, Exchange(average="uniform"), K=3, m=2, dtype=np.float32)
    assert state.theta.shape == state.mean_theta.shape == (3, 2, 12)
    assert state.bias.shape == state.mean_bias.shape == (3, 2)
    assert state.theta.dtype == np.float32
    assert not state.theta.any()
    assert state.clock == 0
    assert "mean_theta" not in init(KLMS, Exchange(), K=3)


def test_a_step_leaves_the_old_state_untouched():
    exchange = Exchange(RING, intercept=1.0, average="weighted")
    states, _ = learn(exchange, n=3)
    old, kept = states[-1], states[-1].copy()
    X, Y = samples(1, seed=9)
    new, _ = step(KLMS, exchange, old, X[0], Y[0])
    for name in ("theta", "bias", "mean_theta", "mean_bias", "count"):
        np.testing.assert_array_equal(getattr(old, name), getattr(kept, name))
        assert not np.shares_memory(getattr(new, name), getattr(old, name))
    assert (old.clock, new.clock) == (3, 4)


# --- the two orders ---------------------------------------------------------------------


@pytest.mark.parametrize("every", [1, 3])
def test_both_orders_make_the_same_errors_before_adapting(every):
    cta, f = learn(Exchange(RING, "cta", every))
    atc, g = learn(Exchange(RING, "atc", every))
    np.testing.assert_allclose(f, g, atol=1e-13)
    for n in range(1, 31):  # theta_n of atc is psi_{n+1} of cta
        theta = cta[n].theta[:, 0]
        psi = RING @ theta if n % every == 0 else theta
        np.testing.assert_allclose(atc[n].theta[:, 0], psi, atol=1e-13)


def test_over_a_changing_network_they_do_so_one_graph_apart():
    _, f = learn(Exchange([PAIRS[1], PAIRS[0]], "cta"))
    _, g = learn(Exchange(PAIRS, "atc"))
    np.testing.assert_allclose(f, g, atol=1e-13)


@pytest.mark.parametrize(("order", "first"), [("cta", 0), ("atc", 2)])
def test_every_third_step_combines(order, first):
    exchange = Exchange(RING, order, every=3)
    turns = [t for t in range(12) if combines_now(exchange, exchange.graphs, t)]
    assert turns == list(range(first, 12, 3))


def test_a_network_that_never_combines_works_alone():
    X, Y = samples(10)
    rare, _ = learn(Exchange(RING, "atc", every=11), data=(X, Y))
    alone, _ = learn(Exchange(None), data=(X, Y))
    np.testing.assert_array_equal(rare[-1].theta, alone[-1].theta)


@pytest.mark.parametrize("order", ["cta", "atc"])
def test_identity_weights_are_the_same_as_none(order):
    for weights in (np.eye(4), csr_array(np.eye(4)), [np.eye(4), np.eye(4)]):
        assert Exchange(weights, order).graphs == []
    identity, f = learn(Exchange(np.eye(4), order))
    alone, g = learn(Exchange(None, order))
    np.testing.assert_array_equal(f, g)
    np.testing.assert_array_equal(identity[-1].theta, alone[-1].theta)


@pytest.mark.parametrize("every", [1, 3])
def test_graphs_take_turns(every):
    exchange = Exchange(PAIRS, "cta", every)
    X, Y = samples(8)
    states, _ = learn(exchange, data=(X, Y), weight=np.zeros((8, 4)))
    state = states[-1]
    state.theta[:] = np.random.default_rng(1).standard_normal(state.theta.shape)
    state.clock = 0
    for t in range(8):
        new, _ = step(KLMS, exchange, state, X[t], Y[t], np.zeros(4))
        mixed = PAIRS[t % 2] @ state.theta[:, 0] if t % every == 0 else state.theta[:, 0]
        np.testing.assert_allclose(new.theta[:, 0], mixed, atol=1e-14)
        state = new


# --- samples that are not there ---------------------------------------------------------


@pytest.mark.parametrize("order", ["cta", "atc"])
def test_a_node_without_a_sample_only_combines(order):
    exchange = Exchange(RING, order, intercept=1.0)
    states, _ = learn(exchange, n=5)
    old, (X, Y) = states[-1], samples(1, seed=5)
    new, f = step(KLMS, exchange, old, X[0], Y[0], np.array([1.0, 0.0, 1.0, 1.0]))
    assert np.isnan(f[1]).all()
    assert np.isfinite(f[[0, 2, 3]]).all()
    assert list(new.count - old.count) == [1, 0, 1, 1]
    np.testing.assert_array_equal(new.bias[1], old.bias[1])
    if order == "cta":
        np.testing.assert_allclose(new.theta[1, 0], (RING @ old.theta[:, 0])[1], atol=1e-14)


def test_each_node_counts_its_own_samples_for_the_schedule():
    problem = Problem(FEATURES, gradient(losses.squared(), schedules.sqrt(1.0)))
    X, Y = samples(2, K=2)
    weight = np.array([[1.0, 0.0], [1.0, 1.0]])
    states, _ = learn(Exchange(), problem=problem, K=2, weight=weight, data=(X, Y))
    z = FEATURES.transform(X[1])[1]
    np.testing.assert_allclose(states[-1].theta[1, 0], Y[1, 1, 0] * z, atol=1e-14)  # mu(1) = 1
    assert list(states[-1].count) == [2, 1]


def test_a_sample_of_weight_two_pulls_twice():
    X, Y = samples(1, K=1)
    once, _ = learn(Exchange(), K=1, data=(X, Y))
    twice, _ = learn(Exchange(), K=1, data=(X, Y), weight=np.full((1, 1), 2.0))
    np.testing.assert_allclose(twice[-1].theta, 2 * once[-1].theta)


# --- what stays private -----------------------------------------------------------------


@pytest.mark.parametrize("order", ["cta", "atc"])
def test_the_intercept_is_never_shared(order):
    """Two nodes see the same function, five up and five down: theta agrees, the bias does not."""
    exchange = Exchange(metropolis(complete(2)), order, intercept=1.0)
    problem = Problem(FEATURES, gradient(losses.squared(), schedules.constant(0.3)))
    rng = np.random.default_rng(2)
    X = rng.standard_normal((600, 2, 2))
    Y = (np.sin(X[..., :1]) + np.array([5.0, -5.0])[:, None]).reshape(600, 2, 1)
    states, f = learn(exchange, problem=problem, K=2, data=(X, Y))
    bias = states[-1].bias[:, 0]
    assert bias[0] > 3
    assert bias[1] < -3
    assert np.abs(f[-50:] - Y[-50:]).mean() < 0.5
    _, without = learn(Exchange(metropolis(complete(2)), order), problem=problem, data=(X, Y), K=2)
    assert np.abs(without[-50:] - Y[-50:]).mean() > 3


def test_a_bias_moves_by_its_own_gradient_alone():
    exchange = Exchange(RING, intercept=2.0)
    X, Y = samples(1)
    states, _ = learn(exchange, data=(X, Y))
    np.testing.assert_allclose(states[-1].bias[:, 0], 0.5 * 2.0 * Y[0, :, 0], atol=1e-14)


def test_the_intercept_counts_in_a_normalised_step():
    problem = Problem(FEATURES, gradient(losses.squared(), schedules.normalised(1.0, eps=0.0)))
    X, Y = samples(1, K=1)
    exchange = Exchange(intercept=2.0)
    states, _ = learn(exchange, problem=problem, K=1, data=(X, Y))
    z = FEATURES.transform(X[0])[0]
    after = states[-1].theta[0, 0] @ z + 2.0 * states[-1].bias[0, 0]
    assert after == pytest.approx(Y[0, 0, 0])  # one normalised step of 1 fits the sample


# --- averages ---------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["cta", "atc"])
@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize("average", ["uniform", "weighted"])
def test_averages_are_what_their_names_say(order, every, average):
    exchange = Exchange(RING, order, every, intercept=0.5, average=average)
    states, _ = learn(exchange)
    for n in (1, 2, 30):
        share = np.ones(n) if average == "uniform" else np.arange(1.0, n + 1)
        thetas = np.stack([state.theta for state in states[1 : n + 1]])
        biases = np.stack([state.bias for state in states[1 : n + 1]])
        theta, bias = states[n].delivered()
        np.testing.assert_allclose(theta, np.average(thetas, axis=0, weights=share), atol=1e-12)
        np.testing.assert_allclose(bias, np.average(biases, axis=0, weights=share), atol=1e-12)


def test_without_averaging_the_last_vector_is_delivered():
    states, _ = learn(Exchange(RING))
    assert states[-1].delivered()[0] is states[-1].theta
    assert states[-1].delivered()[1] is states[-1].bias


def test_averaging_does_not_change_the_learning():
    _, plain = learn(Exchange(RING))
    _, averaged = learn(Exchange(RING, average="weighted"))
    np.testing.assert_array_equal(plain, averaged)


# --- what is refused --------------------------------------------------------------------


@pytest.mark.parametrize("lam", [-1e-9, math.nan, math.inf])
def test_lam_is_finite_and_not_negative(lam):
    with pytest.raises(BadInput, match="lam must be finite and at least 0"):
        Problem(FEATURES, gradient(losses.squared(), schedules.constant(1), lam))


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"order": "act"}, "unknown order 'act': did you mean"),
        ({"average": "wheighted"}, "did you mean 'weighted'"),
        ({"every": 0}, "every must be a whole number of steps, at least 1, got 0"),
        ({"every": 1.5}, "every must be a whole number"),
        ({"every": True}, "every must be a whole number"),
        ({"intercept": -1.0}, "intercept must be finite and at least 0"),
        ({"intercept": math.nan}, "intercept must be finite"),
    ],
)
def test_an_exchange_that_cannot_be(settings, complaint):
    with pytest.raises(BadInput, match=complaint):
        Exchange(**settings)


def test_misspelled_settings_are_unknown_names():
    with pytest.raises(UnknownName):
        Exchange(order="combine")


@pytest.mark.parametrize(
    ("weights", "complaint"),
    [
        (np.kron(np.eye(2), np.full((2, 2), 0.5)), "not connected: 2 parts"),
        (np.array([[0.5, 0.4], [0.5, 0.5]]), "row 0 of the weights sums to 0.9"),
        (np.array([[1.5, -0.5], [0.5, 0.5]]), "not negative"),
        (np.array([[math.nan, 1.0], [0.5, 0.5]]), "finite"),
        (np.array([[0.0, 1.0], [1.0, 0.0]]), "only swap"),
        (np.full((2, 3), 1 / 3), "square"),
        ([PAIRS[0], PAIRS[0]], "not connected: 2 parts"),
    ],
)
def test_weights_that_cannot_carry_the_algorithm(weights, complaint):
    with pytest.raises(BadGraph, match=complaint):
        _ = Exchange(weights).graphs


def test_weights_that_change_their_size():
    with pytest.raises(BadInput, match=r"weights change their size: \[\(4, 4\), \(3, 3\)\]"):
        _ = Exchange([RING, metropolis(ring(3))]).graphs


def test_an_empty_sequence_of_weights():
    with pytest.raises(BadInput, match="empty sequence"):
        _ = Exchange([]).graphs


def test_a_sequence_needs_to_connect_only_as_a_whole():
    assert len(Exchange(PAIRS).graphs) == 2


def test_a_stack_of_matrices_is_a_sequence():
    stacked = Exchange(np.stack(PAIRS)).graphs
    assert [(A.toarray() == B).all() for A, B in zip(stacked, PAIRS, strict=True)] == [True, True]


def test_rows_must_sum_to_one_and_columns_need_not():
    assert len(Exchange(np.array([[0.9, 0.1], [0.5, 0.5]])).graphs) == 1


def test_a_stored_zero_is_no_link():
    entries = np.array([1.0, 0.0, 0.0, 1.0]), np.array([0, 1, 0, 1]), np.array([0, 2, 4])
    assert Exchange(csr_array(entries, shape=(2, 2))).graphs == []
