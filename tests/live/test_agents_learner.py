"""One node's learning: the same bits however rows are cut, combining, joining, packing."""

import struct
import zlib

import numpy as np
import pytest

from dokl.base.arrays import Block
from dokl.base.errors import BadInput, Diverged
from dokl.network.exchange import Exchange, Mixing
from dokl.network.state import pack as pack_state
from dokl.network.state import unpack as unpack_state
from dokl.simulation.diffusion import init
from dokl.simulation.engines import reference
from fake_link import described, rows

LABELS = ("bird", "cat", "dog")


def targets(y, m):
    return np.stack([np.where(np.floor(3 * y[:, 0]) % m == o, 1.0, -1.0) for o in range(m)], axis=1)


def learner_of(**model):
    labels = model.pop("labels", ())
    return described(d=model.pop("d", 2), labels=labels, **model).learner()


@pytest.mark.parametrize(
    "model",
    [
        {"D": 500},
        {"D": 302, "variant": "cos", "d": 11},
        {
            "D": 40,
            "labels": LABELS,
            "loss": "hinge",
            "schedule": "pegasos",
            "mu": None,
            "lam": 0.01,
        },
        {"D": 64, "variant": "structured", "d": 20, "intercept": 1.0},
        {"D": 30, "labels": ("n", "y"), "loss": "logistic", "intercept": 0.5, "lam": 1e-3},
    ],
    ids=["plain", "cos", "classes", "structured", "intercept"],
)
def test_same_bits_however_rows_are_cut(rng, model):
    learner = learner_of(**model)
    X, Y = rows(rng, 400, learner.d)
    Y = Y if learner.classes is None else targets(Y, learner.m)
    ends = []
    for step in (1, 7, 64, 100, 400):
        state, f = learner.start(), []
        for i in range(0, 400, step):
            state, part = learner.learn(state, X[i : i + step], Y[i : i + step])
            f.append(part)
        ends.append((pack_state(state), np.concatenate(f).tobytes()))
    assert len(set(ends)) == 1


def test_learns_what_the_reference_engine_learns(rng):
    network = described(D=60, intercept=0.7)
    learner = network.learner()
    X, Y = rows(rng, 80)
    state, f = learner.learn(learner.start(), X, Y)
    problem, exchange = network.problem(), Exchange(None, intercept=0.7)
    plan, index = reference.plan(problem, exchange), np.arange(80).reshape(-1, 1)
    block = Block(X, Y, None, index)
    true, g = reference.advance(plan, init(problem, exchange, 1), block)
    assert np.allclose(state.theta, true.theta, atol=1e-4)
    assert np.allclose(state.bias, true.bias, atol=1e-4)
    assert np.allclose(f, g[:, 0], atol=1e-4)
    scores = reference.predict(plan, true.theta[0], true.bias[0], X)
    assert np.allclose(learner.predict(state, X), scores, atol=1e-4)


def test_learning_changes_nothing_but_its_result(rng):
    learner = learner_of()
    state, _ = learner.learn(learner.start(), *rows(rng, 30))
    before = pack_state(state)
    learner.learn(state, *rows(rng, 30))
    learner.combine(state, [(0.5, np.ones((1, 20), np.float32))])
    learner.adopt(state, [np.ones((1, 20), np.float32)], [5])
    for X, Y in (([[np.nan, 0]], [[1]]), ([[1, 2]], [[np.inf]]), ([[1e300, 0]], [[1]])):
        with pytest.raises(BadInput, match="row 0"):
            learner.learn(state, X, Y)
    with pytest.raises(BadInput, match="shape"):
        learner.learn(state, [[1.0]], [[1.0]])
    with pytest.raises(BadInput, match="target"):
        learner.learn(state, [[1.0, 2.0]], [[1.0], [2.0]])
    with pytest.raises(BadInput, match="numbers"):
        learner.learn(state, [["one", "two"]], [[1.0]])
    assert pack_state(state) == before


def test_no_rows_change_nothing(rng):
    learner = learner_of()
    state, _ = learner.learn(learner.start(), *rows(rng, 5))
    same, f = learner.learn(state, np.zeros((0, 2)), np.zeros((0, 1)))
    assert f.shape == (0, 1)
    assert pack_state(same) == pack_state(state)


def test_what_diverges_does_so_in_any_cut(rng):
    """The engine allows for the largest target of a batch; here only earlier ones count."""
    learner = learner_of(schedule="constant", mu=50.0)
    X, Y = rows(rng, 12)
    Y[11] = 1e30  # as one batch the engine would let this pass
    with pytest.raises(Diverged):
        learner.learn(learner.start(), X, Y)

    def one_by_one():
        state = learner.start()
        for i in range(12):
            state, _ = learner.learn(state, X[i : i + 1], Y[i : i + 1])

    with pytest.raises(Diverged):
        one_by_one()


def test_theta_that_leaves_float32_is_refused_at_once():
    learner = learner_of(schedule="constant", mu=1e6)
    with pytest.raises(Diverged):
        learner.learn(learner.start(), [[0.0, 0.0]], [[3e38]])


# -- combining --------------------------------------------------------------------------------
def start_at(learner, theta):
    return learner.start().having(theta=np.asarray(theta, np.float32)[None])


def test_combine_is_the_weighted_mean(rng):
    learner = learner_of(labels=LABELS, loss="hinge")
    own, a, b = rng.standard_normal((3, 3, 20)).astype(np.float32)
    state = start_at(learner, own).having(bias=np.full((1, 3), 7.0, np.float32))
    new = learner.combine(state, [(0.25, a), (0.5, b)])
    assert new.theta.dtype == np.float32
    assert np.allclose(new.theta[0], 0.25 * own + 0.25 * a + 0.5 * b, atol=1e-6)
    assert (new.bias == 7.0).all(), "the intercept is private"
    assert learner.combine(state, []) is state


@pytest.mark.parametrize("tau", [0.1, 1.0, 30.0])
def test_clip_bounds_what_a_neighbour_can_do(rng, tau):
    learner = learner_of()
    own = rng.standard_normal((1, 20)).astype(np.float32)
    near, far = own + np.float32(0.01), own + 1e6 * rng.standard_normal((1, 20))
    state = start_at(learner, own)
    moved = learner.combine(state, [(0.3, far.astype(np.float32))], Mixing(tau)).theta[0] - own
    assert np.linalg.norm(moved) == pytest.approx(0.3 * tau, rel=1e-4)
    assert moved.ravel() @ (far - own).ravel() > 0, "the direction stays"
    honest = learner.combine(state, [(0.3, near)], Mixing(tau)).theta
    assert np.array_equal(honest, learner.combine(state, [(0.3, near)]).theta)


def test_adopt_takes_the_mean_and_the_count():
    """With a count of 0 the first Pegasos step, of length 1/lam, would wipe everything out."""
    labels, lam = ("n", "y"), 1e-3
    learner = learner_of(labels=labels, loss="hinge", schedule="pegasos", mu=None, lam=lam)
    ones = np.ones((1, 20), np.float32)
    state = learner.adopt(learner.start(), [ones, 3 * ones], [1000, 3001])
    assert (state.theta == 2.0).all()
    assert state.count.tolist() == [2000]
    new, _ = learner.learn(state, [[0.1, 0.2]], [[-1.0]])
    assert np.linalg.norm(new.theta - state.theta) < 0.6
    wrecked = state.having(count=np.zeros(1, np.int64))
    new, _ = learner.learn(wrecked, [[0.1, 0.2]], [[-1.0]])
    assert np.linalg.norm(new.theta - state.theta) > 100


# -- answers ----------------------------------------------------------------------------------
def test_adopt_is_not_led_astray_by_one_of_three():
    learner = learner_of()
    honest, lie = np.ones((1, 20), np.float32), np.full((1, 20), 1e20, np.float32)
    state = learner.adopt(learner.start(), [honest, lie, 1.1 * honest], [100, 2**61, 120])
    assert np.allclose(state.theta[0], 1.1)
    assert state.count[0] == 120


def test_answers_and_losses():
    f = np.array([[0.5], [-2.0]])
    regression, two = learner_of(), learner_of(labels=("n", "y"), loss="hinge")
    three = learner_of(labels=LABELS, loss="hinge")
    assert regression.answers(f) == [0.5, -2.0]
    assert regression.losses(np.array([[1.5], [-2.0]]), f).tolist() == [1.0, 0.0]
    assert two.answers(f) == ["y", "n"]
    assert two.losses(np.array([[1.0], [1.0]]), f).tolist() == [0.0, 1.0]
    scores = np.array([[-1.0, 0.2, 0.1], [3.0, -1.0, -1.0]])
    assert three.answers(scores) == ["cat", "bird"]
    truth = np.array([[-1.0, 1.0, -1.0], [-1.0, 1.0, -1.0]])
    assert three.losses(truth, scores).tolist() == [0.0, 1.0]
    assert (regression.classes, two.classes, three.m, two.m) == (None, ["n", "y"], 3, 1)


# -- packing ----------------------------------------------------------------------------------
def test_a_packed_state_is_exact(rng):
    learner = learner_of(labels=LABELS, loss="hinge", intercept=1.0)
    state, _ = learner.learn(learner.start(), rng.uniform(-1, 1, (9, 2)), np.ones((9, 3)))
    again = unpack_state(pack_state(state))
    assert pack_state(again) == pack_state(state)
    assert again.theta.dtype == np.float32
    assert (again.count[0], again.clock, again.peak) == (9, 9, 1.0)
    X, Y = rng.uniform(-1, 1, (9, 2)), np.ones((9, 3))
    assert pack_state(learner.learn(again, X, Y)[0]) == pack_state(learner.learn(state, X, Y)[0])


def test_a_damaged_state_is_refused():
    data = pack_state(learner_of().start())
    for bad in (b"", b"x" * 200, data[:-1], data + b"0", data[:50] + b"\x01" + data[51:]):
        with pytest.raises(BadInput, match="damaged"):
            unpack_state(bad)
    with pytest.raises(BadInput, match=r"theta is float32\(1, 1, 20\), not float32\(1, 1, 22\)"):
        learner_of(D=22).unpack(data)
    assert pack_state(learner_of().unpack(data)) == data


def test_a_state_of_version_0_1_is_still_read(rng):
    learner = learner_of()
    state, _ = learner.learn(learner.start(), *rows(rng, 9))
    head = struct.pack("<8sIIqqd", b"doklst1\n", 1, 20, 9, 9, state.peak)
    body = head + state.theta.astype("<f4").tobytes() + state.bias.astype("<f4").tobytes()
    old = body + struct.pack("<I", zlib.crc32(body))
    assert pack_state(learner.unpack(old)) == pack_state(state)
    with pytest.raises(BadInput, match="damaged"):
        learner.unpack(old[:40] + b"\x01" + old[41:])


@pytest.fixture
def rng():
    return np.random.default_rng(5)
