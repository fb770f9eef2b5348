import dataclasses
import math

import numpy as np
import pytest
from scipy.sparse import csr_array, random_array

from dokl.base.errors import BadInput, UnknownName
from dokl.base.random_numbers import generator
from dokl.simulation.streams import (
    EXAMPLES,
    AbruptDrift,
    Example1,
    Example2,
    Example3,
    Example4,
    Missing,
    Shards,
    SlowDrift,
    Stream,
    example,
)

SMALL = [
    Example1(K=3, n=40, centres=6),
    Example2(K=3, n=40),
    Example3(K=3, n=40),
    Example3(K=3, n=40, inputs="state"),
    Example4(K=3, n=40),
    AbruptDrift(Example2(K=3, n=40), at=[0.5]),
    SlowDrift(Example1(K=3, n=40)),
    Missing(Example4(K=3, n=40), p=0.3),
    Shards(np.arange(120.0).reshape(120, 1), np.arange(120.0), K=3),
]


# --- Stream -----------------------------------------------------------------------------


def test_shapes_and_slices():
    X, y = np.zeros((6, 2, 3)), np.arange(24.0).reshape(6, 2, 2)
    stream = Stream(X, y, np.ones((6, 2)))
    assert (stream.n, stream.K, stream.d, stream.m) == (6, 2, 3, 2)
    part = stream.rows(2, 5)
    assert (part.n, part.K, part.d, part.m) == (3, 2, 3, 2)
    np.testing.assert_array_equal(part.y, y[2:5])
    assert np.shares_memory(part.X, X)
    assert np.shares_memory(part.y, y)
    assert part.weight.shape == (3, 2)
    assert stream.rows(4, 100).n == 2
    assert Stream(X, y[..., 0]).m == 1


def test_sparse_rows_are_step_major():
    dense = np.arange(24.0).reshape(4, 2, 3)
    stream = Stream(csr_array(dense.reshape(8, 3)), np.zeros((4, 2)))
    assert (stream.n, stream.K, stream.d) == (4, 2, 3)
    np.testing.assert_array_equal(stream.rows(1, 3).X.toarray(), dense[1:3].reshape(4, 3))


def test_kinds_of_numbers():
    X32 = np.zeros((2, 2, 1), dtype=np.float32)
    stream = Stream(X32, np.array([[0, 1], [1, 0]]))
    assert stream.X is X32  # float32 is kept, and not copied
    assert stream.y.dtype == np.float64
    whole = csr_array(np.eye(4, dtype=np.int64))
    assert Stream(whole, np.zeros((2, 2))).X.dtype == np.float64


@pytest.mark.parametrize("sparse", [False, True])
def test_missing_samples_may_hold_anything(sparse):
    X, y, weight = np.ones((3, 2, 2)), np.ones((3, 2)), np.ones((3, 2))
    X[1, 0], y[1, 0], weight[1, 0] = np.nan, np.inf, 0.0
    given = csr_array(X.reshape(6, 2)) if sparse else X
    stream = Stream(given, y, weight)
    held = stream.X.toarray().reshape(3, 2, 2) if sparse else stream.X
    np.testing.assert_array_equal(held[1, 0], [0, 0])
    assert held.sum() == 10
    assert stream.y[1, 0] == 0
    assert np.isnan(X[1, 0]).all()  # the caller's array is left alone
    assert np.isinf(y[1, 0])


def with_nan(shape, *place):
    a = np.zeros(shape)
    a[place] = np.nan
    return a


@pytest.mark.parametrize(
    ("X", "y", "weight", "message"),
    [
        (np.zeros((4, 2, 3)), np.zeros(4), None, r"y must have shape \(n, K\)"),
        (np.zeros((0, 2, 3)), np.zeros((0, 2)), None, "none of them 0"),
        (np.zeros((4, 3, 3)), np.zeros((4, 2)), None, r"X must have shape \(4, 2, d\)"),
        (np.zeros((8, 3)), np.zeros((4, 2)), None, r"X must have shape \(4, 2, d\)"),
        (csr_array((7, 3)), np.zeros((4, 2)), None, "8 rows"),
        (np.zeros((4, 2, 3)), np.full((4, 2), "a"), None, "real numbers"),
        (with_nan((4, 2, 3), 2, 1, 0), np.zeros((4, 2)), None, "X has NaN .* step 2, node 1"),
        (np.zeros((4, 2, 3)), with_nan((4, 2), 3, 0), None, "y has NaN .* step 3, node 0"),
        (csr_array(with_nan((8, 3), 5, 1)), np.zeros((4, 2)), None, "step 2, node 1"),
        (np.zeros((4, 2, 3)), np.zeros((4, 2)), np.ones(4), r"weight must have shape \(4, 2\)"),
        (np.zeros((4, 2, 3)), np.zeros((4, 2)), -np.ones((4, 2)), "step 0, node 0 is -1"),
        (np.zeros((4, 2, 3)), np.zeros((4, 2)), with_nan((4, 2), 1, 1), "step 1, node 1 is nan"),
    ],
)
def test_bad_streams_are_named(X, y, weight, message):
    with pytest.raises(BadInput, match=message):
        Stream(X, y, weight)


# --- recipes in general -----------------------------------------------------------------


@pytest.mark.parametrize("recipe", SMALL, ids=lambda r: type(r).__name__)
def test_same_seed_same_stream_other_seed_other_stream(recipe):
    a, b, c = recipe.draw(1), recipe.draw(1), recipe.draw(2)
    assert (a.n, a.K) == (40, 3)
    np.testing.assert_array_equal(a.X, b.X)
    np.testing.assert_array_equal(a.y, b.y)
    assert (a.X != c.X).any()
    assert (a.y != c.y).any()
    assert (a.y[:, 0] != a.y[:, 1]).any()  # every node has its own realization


def test_examples_by_name():
    assert example("example1") == Example1()
    assert example("2", K=5) == Example2(K=5)
    assert example(4).n == 1000
    assert [EXAMPLES[f"example{i}"]().n for i in (1, 2, 3, 4)] == [5000, 15000, 500, 1000]
    with pytest.raises(UnknownName, match="unknown example 'exmple3': "):
        example("exmple3")
    with pytest.raises(
        UnknownName, match="parameter of example1 'centers': did you mean 'centres'"
    ):
        example(1, centers=3)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Example1(K=0), "K must be a whole number"),
        (lambda: Example2(n=1.5), "n must be a whole number"),
        (lambda: Example1(sigma=0), "sigma must be positive"),
        (lambda: Example3(noise=-1), "standard deviation"),
        (lambda: Example3(inputs="stat"), "did you mean 'state'"),
    ],
)
def test_bad_examples_are_named(make, message):
    with pytest.raises(BadInput, match=message):
        make()


# --- each example against plain loops ---------------------------------------------------


def test_example1_by_loops():
    law = Example1(K=2, n=30, centres=4, d=3, sigma=1.5)
    stream = law.draw(9)
    rng = generator(9, ("target", 0))
    c, a = rng.standard_normal((4, 3)), 5.0 * rng.standard_normal(4)
    eta = 0.1 * generator(9, "noise").standard_normal((30, 2))
    for i in range(30):
        for k in range(2):
            y = eta[i, k]
            for m in range(4):
                y += a[m] * math.exp(-sum((stream.X[i, k] - c[m]) ** 2) / (2 * 1.5**2))
            assert stream.y[i, k] == pytest.approx(y, abs=1e-12)


def test_example2_by_loops():
    stream = Example2(K=2, n=30).draw(9)
    w0, w1 = generator(9, ("target", 0)).standard_normal((2, 5))
    eta = 0.05 * generator(9, "noise").standard_normal((30, 2))
    for i in range(30):
        for k in range(2):
            linear = sum(w0[j] * stream.X[i, k, j] for j in range(5))
            square = sum(w1[j] * stream.X[i, k, j] for j in range(5)) ** 2
            assert stream.y[i, k] == pytest.approx(linear + 0.1 * square + eta[i, k], abs=1e-12)


def test_example3_by_loops():
    stream, state = (Example3(K=2, n=30, noise=0, inputs=i).draw(9) for i in ("input", "state"))
    assert stream.X.shape == (30, 2, 1)
    assert state.X.shape == (30, 2, 2)
    np.testing.assert_array_equal(state.X[..., 1], stream.X[..., 0])
    for k in range(2):
        d = 1.0
        for i in range(30):
            assert state.X[i, k, 0] == pytest.approx(d)
            d = d / (1 + d * d) + stream.X[i, k, 0] ** 3
            assert stream.y[i, k] == pytest.approx(d, abs=1e-12)


def test_example4_by_loops():
    stream = Example4(K=2, n=60, noise=0).draw(9)
    signs = set()
    for k in range(2):
        older, old = 1.0, 1.0
        for i in range(60):
            u, v = stream.X[i, k]
            older, old = old, u + 0.5 * v - 0.2 * old + 0.35 * older
            signs.add(old >= 0)
            if old >= 0:
                phi = old / (3 * math.sqrt(0.1 + 0.9 * old**2))
            else:
                phi = -(old**2) * (1 - math.exp(0.7 * old)) / 3
            assert stream.y[i, k] == pytest.approx(phi, abs=1e-12)
    assert signs == {True, False}


# --- statistics -------------------------------------------------------------------------


def test_input_laws():
    X = Example4(K=20, n=1000).draw(0).X.reshape(-1, 2)
    u_variance, shared = 0.25 * 0.0156 + 0.0156, 0.5 * 0.0156
    expected = np.array([[u_variance, shared], [shared, 0.0156]])
    np.testing.assert_allclose(np.cov(X.T), expected, rtol=0.06)
    assert Example3(K=20).draw(0).X.std() == pytest.approx(0.15, rel=0.03)
    X = Example1(K=20, n=500, centres=1).draw(0).X.reshape(-1, 5)
    np.testing.assert_allclose(np.cov(X.T), np.eye(5), atol=0.05)
    assert abs(X.mean()) < 0.02


@pytest.mark.parametrize(
    ("recipe", "sd"), [(Example1, 0.1), (Example2, 0.05), (Example3, 0.01), (Example4, 0.001)]
)
def test_noise_levels(recipe, sd):
    noisy = recipe(K=10, n=400)
    clean = dataclasses.replace(noisy, noise=0.0)
    difference = noisy.draw(3).y - clean.draw(3).y
    assert difference.std() == pytest.approx(sd, rel=0.05)


def test_example1_coefficients():
    # kappa is 1 for a huge sigma, so y is the sum of 50 coefficients: variance 50 * 25
    law = Example1(K=1, n=1, sigma=1e6, noise=0.0)
    y = [law.draw(s).y[0, 0] for s in range(600)]
    assert np.std(y) == pytest.approx(math.sqrt(50 * 25), rel=0.1)


# --- data sets --------------------------------------------------------------------------


def test_shards_deal_equal_counts_and_drop_the_rest():
    X = np.arange(23.0)[:, None]
    stream = Shards(X, X[:, 0], K=4).draw(0)
    assert (stream.n, stream.K) == (5, 4)
    assert len(np.unique(stream.y)) == 20
    np.testing.assert_array_equal(stream.X[..., 0], stream.y)


def test_shards_rows_stay_with_their_node_over_passes():
    y = np.arange(40.0)
    recipe = Shards(y[:, None], y, K=4, passes=3)
    passes = recipe.draw(5).y.reshape(3, 10, 4)
    for later in passes[1:]:
        np.testing.assert_array_equal(np.sort(later, axis=0), np.sort(passes[0], axis=0))
        assert (later != passes[0]).any()
    same = dataclasses.replace(recipe, reshuffle=False).draw(5).y.reshape(3, 10, 4)
    np.testing.assert_array_equal(same[1], same[0])
    np.testing.assert_array_equal(same[0], passes[0])  # the deal does not depend on the passes
    plain = dataclasses.replace(recipe, shuffle=False).draw(5).y
    np.testing.assert_array_equal(plain, np.tile(y.reshape(10, 4), (3, 1)))


def test_shards_of_sparse_rows():
    X = random_array((30, 8), density=0.3, rng=np.random.default_rng(0), format="coo")
    y = np.arange(60.0).reshape(30, 2)
    stream = Shards(X, y, K=3).draw(1)
    assert (stream.n, stream.K, stream.d, stream.m) == (10, 3, 8, 2)
    which = (stream.y[..., 0] / 2).astype(int).ravel()
    np.testing.assert_array_equal(stream.X.toarray(), X.toarray()[which])


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"K": 11}, "cannot deal 10 rows over 11 nodes"),
        ({"K": 2, "passes": 0}, "passes must be a whole number"),
        ({"K": 2, "y": np.zeros(9)}, r"got \(10, 1\) and \(9,\)"),
    ],
)
def test_bad_shards_are_named(params, message):
    with pytest.raises(BadInput, match=message):
        Shards(**{"X": np.zeros((10, 1)), "y": np.zeros(10), **params})


# --- drift and missing samples ----------------------------------------------------------


def test_abrupt_drift_changes_the_target_at_the_right_step():
    law = Example2(K=2, n=60, noise=0.0)
    base, drift = law.draw(4), AbruptDrift(law, at=[20, 0.75]).draw(4)
    np.testing.assert_array_equal(drift.X, base.X)
    np.testing.assert_array_equal(drift.y[:20], base.y[:20])
    assert (drift.y[20:] != base.y[20:]).all()
    for i, part in enumerate([slice(0, 20), slice(20, 45), slice(45, 60)]):
        target = law.draw_target(generator(4, ("target", i)))
        np.testing.assert_allclose(drift.y[part], target(drift.X)[part])


def test_slow_drift_goes_from_one_target_to_another():
    law = Example1(K=2, n=51, noise=0.0)
    f, g = (law.draw_target(generator(4, ("target", i))) for i in (0, 1))
    drift = SlowDrift(law).draw(4)
    a, b = f(drift.X), g(drift.X)
    np.testing.assert_allclose(drift.y[0], a[0])
    np.testing.assert_allclose(drift.y[25], (a[25] + b[25]) / 2)
    np.testing.assert_allclose(drift.y[-1], b[-1])


@pytest.mark.parametrize("at", [[], [0], [60], [30, 30], [40, 20], [0.0], [-3]])
def test_bad_drift_steps_are_named(at):
    with pytest.raises(BadInput, match="increasing steps between 1 and 59"):
        AbruptDrift(Example2(n=60), at=at)


def test_drift_needs_a_target():
    for make in (SlowDrift, lambda base: AbruptDrift(base, at=[5])):
        with pytest.raises(BadInput, match="Example3 has no target to change"):
            make(Example3())


def test_missing_rate_for_all_and_for_each_node():
    base = Example2(K=4, n=2000)
    stream = Missing(base, p=0.3).draw(1)
    assert set(np.unique(stream.weight)) == {0.0, 1.0}
    assert (stream.weight == 0).mean() == pytest.approx(0.3, abs=4 * math.sqrt(0.21 / 8000))
    present = stream.weight > 0
    np.testing.assert_array_equal(stream.y[present], base.draw(1).y[present])
    assert (stream.X[~present] == 0).all()
    each = Missing(base, p=[0.0, 0.5, 0.9, 1.0]).draw(1)
    rates = (each.weight == 0).mean(axis=0)
    np.testing.assert_allclose(rates, [0.0, 0.5, 0.9, 1.0], atol=0.05)
    assert rates[[0, 3]].tolist() == [0.0, 1.0]


def test_missing_of_a_fixed_stream_keeps_its_weights():
    fixed = Stream(np.ones((50, 2, 1)), np.ones((50, 2)), np.full((50, 2), 2.0))
    weight = Missing(fixed, p=0.5).draw(0).weight
    assert set(np.unique(weight)) == {0.0, 2.0}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Missing(Example2(), p=1.5), "one probability"),
        (lambda: Missing(Example2(), p=[[0.5]]), "one for each node"),
        (lambda: Missing(Missing(Example2(), 0.1), 0.1), "combine them"),
        (lambda: Missing(Example2(K=3, n=5), p=[0.5, 0.5]).draw(0), "2 entries, .* 3 nodes"),
    ],
)
def test_bad_missing_is_named(make, message):
    with pytest.raises(BadInput, match=message):
        make()
