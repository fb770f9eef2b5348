"""Parts of the bank of experts: maps, mixture, rows that are kept, who sleeps, what is mended."""

from dataclasses import replace

import numpy as np
import pytest

from dokl import AutoRegressor
from dokl.learning import mixture, scales
from dokl.learning.experts import bank, buffer, pilots, predicting, rows
from dokl.learning.experts import learn as learning
from dokl.learning.experts.kinds import Kind, Settings, for_classes, lasting_for_numbers, one
from dokl.learning.experts.maps import median_distance, nested_map
from dokl.learning.experts.rows import RepairNotice, checked
from dokl.learning.experts.scaling import (
    ABSURD_INPUT,
    CLIP,
    cut_wild_targets,
    follow,
    follow_on,
    limits,
    scaling_of,
)
from dokl.learning.scales import Scales, correlation, isotropic, squared_distances
from dokl.learning.squares import blocks

RNG = np.random.default_rng(1)


# --- maps -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", ["gaussian", "matern32"])
def test_a_nested_map_is_the_kernel_on_its_centres(kernel):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(60, 3))
    own = Scales(np.array([1.0, 2.0, 5.0]), 1.5, 0.5)
    made = nested_map(kernel, own, X, 60)
    Z = made.transform(X)
    K = 1.5**2 * correlation(kernel, squared_distances(X / own.lengths, X / own.lengths))
    K += 0.5**2 * X @ X.T / 3 + 1.0
    np.testing.assert_allclose(Z @ Z.T, K, atol=1e-3)
    narrow = nested_map(kernel, own, X, 20)
    np.testing.assert_allclose(narrow.transform(X), Z[:, : narrow.D], atol=1e-9)
    assert made.width(10) == 14
    assert made.width(None) == made.D == Z.shape[1]


def test_a_map_of_equal_rows_has_one_centre():
    assert len(nested_map("gaussian", isotropic(1.0, 2), np.ones((50, 2)), 30).centres) == 1
    assert median_distance(np.ones((5, 2))) == 1.0


def test_kernels_learn_the_scales_of_many_rows_of_classes_from_rows_of_their_own(monkeypatch):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(90, 2))
    Y = np.where(X[:, :1] > 0, 1.0, -1.0)
    empty = bank.start(2, 1, Settings(for_classes(), most=20, classes=2))
    seen, learn = [], scales.learn_class_scales

    def heard(rows, numbers, classes, kernel="gaussian"):
        seen.append((kernel, {tuple(row) for row in rows.tolist()}))
        return learn(rows, numbers, classes, kernel, 3)

    monkeypatch.setattr(scales, "learn_class_scales", heard)
    few = pilots.run_pilot(empty, X, Y, np.ones(90)).maps
    assert few["learned", "gaussian"].scales is few["learned", "matern32"].scales
    monkeypatch.setattr(scales, "MOST", 60)
    monkeypatch.setattr(pilots, "MANY", 90)
    many = pilots.run_pilot(empty, X, Y, np.ones(90))
    (_, everything), *each = seen
    assert [(kernel, len(rows)) for kernel, rows in each] == [("gaussian", 45), ("matern32", 45)]
    assert each[0][1] | each[1][1] == everything
    assert many.maps["learned", "gaussian"].scales is many.scales
    assert many.maps["learned", "matern32"].scales is not many.scales
    alone = bank.start(2, 1, Settings((Kind("learned", "matern32"),), most=20, classes=2))
    pilots.run_pilot(alone, X, Y, np.ones(90))
    assert [len(rows) for _, rows in seen[3:]] == [60]


# --- mixture --------------------------------------------------------------------------------------


def naive_mixture(F, Y):
    """Gaillard, Stoltz and van Erven's algorithm as loops over experts."""
    n, E = F.shape
    R, V, c, out = [0.0] * E, [0.0] * E, 0.0, []
    for t in range(n):
        positive = [max(r, 0.0) for r in R]
        raw = [p / (c + v) if p else 0.0 for p, v in zip(positive, V, strict=True)]
        w = [r / sum(raw) for r in raw] if any(raw) else [1 / E] * E
        f = sum(w[i] * F[t, i] for i in range(E))
        out.append(f)
        for i in range(E):
            r = 2 * (f - Y[t]) * (f - F[t, i])
            R[i], V[i], c = R[i] + r, V[i] + r * r, max(c, r * r)
    return out


def test_the_mixture_is_what_loops_by_hand_compute():
    rng = np.random.default_rng(1)
    Y = rng.normal(size=200)
    F = Y[:, None] * [1.0, 0.5, -1.0] + rng.normal(size=(200, 3))
    awake = np.ones(3, bool)
    _, f, variance = mixture.mix(
        mixture.start(3), F[:, :, None], np.ones((200, 3, 1)), Y[:, None], awake
    )
    np.testing.assert_allclose(f[:, 0], naive_mixture(F, Y), atol=1e-12)
    assert (variance >= 1).all()


def test_the_best_expert_is_found_and_sleepers_do_not_count():
    rng = np.random.default_rng(1)
    Y = rng.normal(size=(500, 1))
    F = np.stack([Y + 0.1 * rng.normal(size=Y.shape), np.zeros_like(Y), -Y], axis=1)
    V = np.ones_like(F)
    found, f, _ = mixture.mix(mixture.start(3), F, V, Y, np.ones(3, bool))
    assert np.mean((f - Y)[250:] ** 2) < 0.03
    assert found.weights(np.array([False, True, True]))[0] == 0


# --- rows that are kept ---------------------------------------------------------------------------


@pytest.mark.parametrize("cut", [1, 13, 500])
def test_a_fair_sample_in_any_cut(cut):
    rows = np.arange(500.0)[:, None]
    found = buffer.no_rows(1, 1)
    for i in range(0, 500, cut):
        some = rows[i : i + cut]
        found = buffer.append(found, some, 2 * some, np.ones(len(some)), 100, seed=3)
    whole = buffer.append(buffer.no_rows(1, 1), rows, 2 * rows, np.ones(500), 100, seed=3)
    X, Y, w = found.all()
    np.testing.assert_array_equal(X, whole.all()[0])
    np.testing.assert_array_equal(Y, 2 * X)
    assert len(w) == 100
    assert (np.diff(X[:, 0]) > 0).all()
    assert found.seen == 500
    np.testing.assert_array_equal(found.newest()[0][-1], [499.0])


def test_every_row_is_as_likely_to_be_kept():
    counts = np.zeros(300)
    for seed in range(300):
        rows = np.arange(300.0)[:, None]
        found = buffer.append(buffer.no_rows(1, 1), rows, rows, np.ones(300), 60, seed)
        counts[found.all()[0][:, 0].astype(int)] += 1
    assert abs(counts.mean() - 60) < 1e-9
    thirds = counts.reshape(3, 100).mean(axis=1)
    assert thirds.max() - thirds.min() < 4  # of 60, with a standard error of 0.7


# --- scaling --------------------------------------------------------------------------------------


def test_scalings():
    rng = np.random.default_rng(1)
    values = np.column_stack([rng.normal(5, 2, 1000), np.full(1000, 1e9), np.zeros(1000)])
    found = scaling_of(values)
    np.testing.assert_allclose(found.outward(found.inward(values)), values)
    assert found.size[1] == found.size[2] == 1.0
    wild = np.append(rng.normal(size=99), 1e6)[:, None]
    assert cut_wild_targets(wild).max() < 200
    flat = np.append(np.zeros(99), 7.0)[:, None]
    np.testing.assert_array_equal(cut_wild_targets(flat), flat)


# --- the bank -------------------------------------------------------------------------------------

FEW = tuple(Kind("learned", "gaussian", memory, 20) for memory in (np.inf, 300.0, 30.0))
X = RNG.normal(size=(9000, 2))
SETTINGS = Settings(FEW, 20, pilots=(50, 400))


def test_useless_experts_sleep_and_wake_when_surprised(monkeypatch):
    y = np.sin(X[:, :1])
    settled, _ = learning.learn(bank.start(2, 1, SETTINGS), X[:7500], y[:7500])
    assert settled.awake.sum() < 3
    before = settled.memories[2]
    changed, _ = learning.learn(settled, X[7500:8600], -3 * y[7500:8600])
    assert changed.awake.all()
    assert changed.memories[2] is not before
    told = learning.learn(changed, X[8600:], -3 * y[8600:])[1].mean
    assert np.mean((told + 3 * y[8600:]) ** 2) < 0.1


def test_after_a_pilot_useless_experts_sleep_again_at_the_next_check(monkeypatch):
    monkeypatch.setattr(rows, "CHECK", 32)
    X = np.random.default_rng(0).normal(size=(300, 2))
    Y = np.sin(X[:, :1])
    kinds = Kind("learned", "gaussian"), Kind(1.0, "gaussian", 10.0, 2)
    settings = Settings(kinds, most=30, pilots=(30, 270))
    asleep = learning.learn(bank.start(2, 1, settings), X[:269], Y[:269])[0]
    assert asleep.awake.tolist() == [True, False]
    woken = learning.learn(asleep, X[269:287], Y[269:287])[0]
    assert woken.awake.all()
    assert woken.weights[1] == 0.0
    later = learning.learn(woken, X[287:288], Y[287:288])[0]
    assert later.awake.tolist() == [True, False]


def test_a_spoiled_matrix_is_mended_and_said():
    y = np.sin(X[:, :1])
    first, _ = learning.learn(bank.start(2, 1, SETTINGS), X[:600], y[:600])
    spoiled = first.memories[0].P.copy(order="F")
    spoiled.T.flat[:: len(spoiled) + 1] = -1.0
    broken = (replace(first.memories[0], P=spoiled), *first.memories[1:])
    with pytest.warns(RepairNotice, match="expert 0 .* lost the definiteness"):
        after, told = learning.learn(replace(first, memories=broken), X[600:700], y[600:700])
    assert after.mended == 1
    assert np.mean((told.mean - y[600:700]) ** 2) < 0.01


def test_folded_predictions_are_those_of_the_experts():
    y = np.sin(X[:, :1])
    found, _ = learning.learn(bank.start(2, 1, Settings(most=40)), X[:700], y[:700])
    told = predicting.predict_with_variance(found, X[:50])
    np.testing.assert_allclose(predicting.predict(found, X[:50]), told.mean, atol=1e-10)


def test_what_is_predicted_next_is_what_is_told():
    y = np.sin(X[:, :1])
    found, _ = learning.learn(bank.start(2, 1, SETTINGS), X[:600], y[:600])
    expected = predicting.predict_with_variance(found, X[600:601])
    _, told = learning.learn(found, X[600:601], y[600:601])
    np.testing.assert_allclose(told.mean, expected.mean, atol=1e-10)
    np.testing.assert_allclose(told.variance, expected.variance, rtol=1e-8)


def test_a_check_needs_its_time():
    found, _ = learning.learn(bank.start(2, 1, SETTINGS), X[:500], X[:500, :1])
    assert checked(found, found.now, 500) is found
    assert blocks.LIST == 64


# -- all rows at once --------------------------------------------------------------------------
def test_weights_are_those_that_err_least_on_rows_held_back():
    rng = np.random.default_rng(3)
    truth = rng.normal(size=(4000, 1))
    common = rng.normal(size=(4000, 1))
    errors = np.stack([0.5 * common, 0.6 * rng.normal(size=(4000, 1)), 2.0 + common], axis=1)
    errors[7] = [[-8.0], [8.0], [0.0]]  # one row on which the worst happens to be right
    passed = mixture.mix(
        mixture.start(3), truth[:, None] + errors, np.ones((4000, 3, 1)), truth, np.ones(3, bool)
    )[0]
    found = mixture.weigh(passed, errors, np.ones(4000)).weights(np.ones(3, bool))
    G = np.einsum("nem,nfm->ef", errors, errors)
    best = min(
        ((a, b) for a in np.linspace(0, 1, 201) for b in np.linspace(0, 1 - a, 101)),
        key=lambda w: np.array([*w, 1 - sum(w)]) @ G @ np.array([*w, 1 - sum(w)]),
    )
    np.testing.assert_allclose(found, [*best, 1 - sum(best)], atol=0.02)
    assert found.sum() == pytest.approx(1.0)


@pytest.mark.slow
def test_fit_is_no_worse_than_one_pass():
    for seed in (1, 3, 11):
        rng = np.random.default_rng(seed)
        X, T = rng.normal(size=(500, 4)), rng.normal(size=(1000, 4))
        y, t = (np.sin(2 * Z[:, 0]) + Z[:, 1] * Z[:, 2] for Z in (X, T))
        y = y + 0.1 * rng.normal(size=500)
        fitted, passed = AutoRegressor(random_state=0), AutoRegressor(random_state=0)
        errors = [
            np.mean((model.predict(T) - t) ** 2) / np.var(t)
            for model in (fitted.fit(X, y), passed.partial_fit(X, y))
        ]
        assert errors[0] < min(1.1 * errors[1], 0.01)


def test_a_large_amplitude_takes_more_centres():
    X = np.random.default_rng(0).normal(size=(400, 2))
    smooth = Scales(np.full(2, 4.0), amplitude=20.0, noise=0.01)
    left = 400.0 - (nested_map("gaussian", smooth, X, 400).transform(X)[:, 3:] ** 2).sum(axis=1)
    assert left.max() < 0.05 * smooth.noise


# --- inputs beyond the range of the last pilot ----------------------------------------------------


def rising(n=500, slope=0.03):
    """The value before each row, and each: level up to row 125, the last pilot, then rising."""
    rng = np.random.default_rng(0)
    y = slope * np.maximum(np.arange(n + 1) - 125, 0) + rng.normal(size=n + 1)
    return y[:-1, None], y[1:, None]


def test_no_input_is_followed_for_ever():
    _, extent = follow(np.array([4.0, 9e3]), np.tile([0.0, 1e300], (2000, 1)))
    assert extent.tolist() == [4.0, ABSURD_INPUT]


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_series_that_rises_is_followed_between_pilots(sign):
    X, Y = rising()
    settings = Settings(lasting_for_numbers(), most=30, pilots=(30, 125))
    known, found = learning.learn(bank.start(1, 1, settings), sign * X, sign * Y)
    error = (sign * Y - found.mean)[350:]
    assert np.mean(error**2) < 1.1 * np.mean((Y - X)[350:] ** 2)
    assert limits(known.extent)[0] > 11.0 > CLIP
    assert learning.forget_all(known).extent is None
    fixed = replace(settings, fixed_inputs=True)
    known, found = learning.learn(bank.start(1, 1, fixed), sign * X, sign * Y)
    assert known.extent is None
    assert np.mean((sign * Y - found.mean)[350:] ** 2) > 2.0 * np.mean(error**2)


def test_rows_far_ahead_of_a_series_that_rises_may_come_further():
    steps = np.array([1.0, 20.0, 100.0, 1000.0])
    least = np.full(2, 4.0)
    assert follow_on(None, steps, 400) is None
    assert follow_on(least, steps, 400) is least
    ahead = follow_on(np.array([8.0, 4.0]), steps, 400)
    assert ahead[:, 1].tolist() == [4.0] * 4
    assert ahead[0, 0] == 8.0
    assert (np.diff(ahead[:, 0]) > 0).all()
    np.testing.assert_allclose(ahead[2:, 0], 8.0 * (1.0 + 2.0 * (steps[2:] - 1.0) / 400))


def test_a_frozen_bank_follows_a_series_that_rises():
    X, Y = rising(900)
    settings = Settings(lasting_for_numbers(), most=30, pilots=(30, 125))
    known, _ = learning.learn(bank.start(1, 1, settings), X[:500], Y[:500])
    later, steps = X[500:], np.arange(1, 401)
    found = predicting.predict(known, later, steps)
    assert np.mean((Y[500:] - found) ** 2) < 2.0 * np.mean((Y - X)[500:] ** 2)
    stuck = predicting.predict(known, later)
    assert np.mean((Y[500:] - stuck) ** 2) > 2.0 * np.mean((Y[500:] - found) ** 2)
    both = predicting.predict_with_variance(known, later, steps)
    np.testing.assert_allclose(both.mean, found, atol=1e-9)
    some = slice(290, 310)
    np.testing.assert_allclose(
        predicting.predict(known, later[some], steps[some]), found[some], atol=1e-9
    )


@pytest.mark.parametrize("cut", [1, 7])
def test_inputs_beyond_the_range_count_the_same_in_any_cut(cut):
    X, Y = rising(300, 0.05)
    settings = Settings(one(), most=20, pilots=(30, 125))
    whole, found = learning.learn(bank.start(1, 1, settings), X, Y)
    parts, means = bank.start(1, 1, settings), []
    for at in range(0, len(X), cut):
        parts, told = learning.learn(parts, X[at : at + cut], Y[at : at + cut])
        means.append(told.mean)
    np.testing.assert_array_equal(parts.extent, whole.extent)
    np.testing.assert_allclose(np.concatenate(means), found.mean, rtol=0, atol=1e-9)
    after, _ = learning.learn(whole, X[:0], Y[:0])
    _, later = learning.learn(whole, X[-1:], Y[-1:])
    np.testing.assert_allclose(predicting.predict(after, X[-1:]), later.mean, atol=1e-9)


def test_rare_outliers_change_no_limit():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(5000, 2))
    out = rng.uniform(size=5000) < 0.05
    rows[out, 0] = rng.choice([-1e6, 10.0, 1e3], out.sum())
    before, after = follow(None, rows)
    assert (limits(before) == CLIP).all()
    assert after.max() < 4.5
    assert follow(None, rows[~out]) == (None, None)
    stays = follow(None, np.full((300, 1), -20.0))[1]
    assert limits(stays)[0] > 20.0
    assert limits(follow(stays, np.zeros((1000, 1)))[1])[0] == CLIP
