"""Probabilities calibrated online: against plain loops, in any cut, and what they promise."""

from dataclasses import asdict

import numpy as np
import pytest

from dokl import AutoClassifier
from dokl.learning import calibration

pytestmark = pytest.mark.usefixtures("short_searches")


def stream(k=4, n=3000, seed=0, noise=0.6):
    """Scores that decide for the true class, with noise, and the class numbers."""
    rng = np.random.default_rng(seed)
    y = rng.choice(k, n, p=np.arange(1, k + 1) / (k * (k + 1) / 2))
    F = -0.7 + noise * rng.normal(size=(n, k))
    F[np.arange(n), y] += 1.2
    return (F, y) if k > 2 else (calibration.both(F[:, 1:] - F[:, :1]), y)


def follow(state, F, y, w=None):
    """The state after, and the probabilities that stood before each row."""
    state, level = calibration.follow(state, F, y, w)
    return state, calibration.softmax(level)


def log_loss(P, y):
    return -np.log(P[np.arange(len(y)), y]).mean()


def same(a, b):
    pairs = zip(asdict(a).values(), asdict(b).values(), strict=True)
    return all(np.array_equal(x, y) for x, y in pairs)


def short(step):
    return step / max(1.0, np.abs(step).max())


def plain(F, y, w):
    """The formulas of the page as plain loops, one row after the other."""
    n, k = F.shape
    slope, bias, A, each = np.array([1.5, 0.5]), np.zeros(k), 2 * np.eye(2), np.full(k, 20.0)
    pull, gains, P, seen, last = [0.0, 0.0], [0.0, 0.0], [], 0, 0
    for t in range(n):
        f = np.clip(F[t], -3, 3)
        u = (1 + f) / 2
        h = np.stack([f, np.log((u + np.sqrt(u**2 + 4 * 0.03**2)) / 2)])
        p = np.exp(slope @ h + bias)
        p /= p.sum()
        P.append(p)
        if w[t] == 0:
            continue
        g = p - (np.arange(k) == y[t])
        spread = (h * p) @ h.T - np.outer(h @ p, h @ p)
        pull = [pull[0] + w[t] * h @ g, pull[1] + w[t] * g]
        gains = [gains[0] + w[t] * spread, gains[1] + w[t] * p * (1 - p)]
        seen += 1
        if seen in (1, 2, 4, 8, 16) or seen % 32 == 0:
            keep = (1 - 1 / 500) ** (seen - last)
            A = keep * A + (1 - keep) * 2 * np.eye(2) + gains[0]
            each = keep * each + (1 - keep) * 20 + gains[1]
            slope = slope - short(np.linalg.inv(A) @ pull[0])
            if slope[1] < 0:  # what is left of the quadratic form where slope[1] is 0
                slope = np.array([A[0] @ slope / A[0, 0], 0.0])
            assert slope[0] >= 0
            bias = bias - short(pull[1] / each)
            pull, gains, last = [0.0, 0.0], [0.0, 0.0], seen
    return np.array(P)


def test_the_formulas_as_plain_loops():
    F, y = stream(n=400)
    w = np.random.default_rng(1).integers(0, 4, 400) / 2
    _, P = follow(calibration.start(4), F, y, w)
    np.testing.assert_allclose(P, plain(F, y, w), rtol=1e-9)


@pytest.mark.parametrize("k", [2, 3, 26, 130])
def test_cuts_do_not_matter_to_the_last_bit(k):
    F, y = stream(k, n=500)
    w = np.random.default_rng(1).integers(0, 3, 500) / 2
    whole, P = follow(calibration.start(k), F, y, w)
    for cuts in (range(1, 500), [3, 31, 32, 33, 40, 40, 250]):
        learned, parts = calibration.start(k), []
        for rows in np.split(np.arange(500), cuts):
            learned, part = follow(learned, F[rows], y[rows], w[rows])
            parts.append(part)
        assert np.array_equal(np.concatenate(parts), P)
        assert same(learned, whole)


@pytest.mark.parametrize("k", [2, 4])
def test_probabilities_are_calibrated(k):
    F, y = stream(k, n=6000)
    learned, P = follow(calibration.start(k), F, y)
    P, y = P[1000:], y[1000:]
    np.testing.assert_allclose(P.sum(axis=1), 1.0)
    sure = P.max(axis=1)
    right = P.argmax(axis=1) == y
    for low, high in ((0.5, 0.7), (0.7, 0.9), (0.9, 1.0)):
        some = (sure > low) & (sure <= high)
        assert right[some].mean() == pytest.approx(sure[some].mean(), abs=0.03)
    assert learned.seen == 6000


def test_what_stands_before_a_row_is_what_is_predicted_for_it():
    F, y = stream(n=200)
    learned, _ = follow(calibration.start(4), F[:150], y[:150])
    _, P = follow(learned, F[150:151], y[150:151])
    assert np.array_equal(calibration.probabilities(learned, F[150:151]), P)


def test_it_follows_scores_that_change():
    F, y = stream(n=8000)
    F[4000:] *= 0.25  # from now on, far too modest
    _, P = follow(calibration.start(4), F, y)
    assert log_loss(P[5000:], y[5000:]) < 1.05 * log_loss(P[1000:4000], y[1000:4000])


def test_a_row_of_weight_0_changes_nothing():
    F, y = stream(n=100)
    learned, _ = follow(calibration.start(4), F, y)
    after, P = follow(learned, F[:20], y[:20], np.zeros(20))
    assert same(after, learned)
    assert np.isfinite(P).all()


def test_weights_move_probabilities_towards_a_rare_class():
    F, y = stream(2, n=4000)
    w = np.where(y == 0, 10.0, 1.0)
    plainly, _ = follow(calibration.start(2), F, y)
    weighed, _ = follow(calibration.start(2), F, y, w)
    at = np.zeros((1, 2))
    more, less = (calibration.probabilities(c, at)[0, 0] for c in (weighed, plainly))
    odds = (more / (1 - more)) / (less / (1 - less))
    assert 6 < odds < 15


def test_huge_weights_and_wild_scores_do_not_throw_the_map_away():
    rng = np.random.default_rng(3)
    y = (rng.random(3000) < 0.005).astype(int)
    F = rng.normal(size=(3000, 1)) - 0.5
    F[::100] = 1e12  # and sure of it
    F = calibration.both(F)
    w = np.where(y == 1, 100.0, 0.5)
    learned, P = follow(calibration.start(2), F, y, w)
    assert np.isfinite(P).all()
    assert (np.abs(learned.bias) < 3).all()
    assert (learned.slopes < 3).all()


def test_a_class_that_never_came_gets_little():
    F, y = stream(3, n=3000)
    F = np.hstack([F, np.full((3000, 1), -1.0)])
    _, P = follow(calibration.start(4), F, y)
    assert P[1000:, 3].mean() < 0.01


def test_no_rows():
    learned, P = follow(calibration.start(3), np.empty((0, 3)), np.empty(0, int))
    assert same(learned, calibration.start(3))
    assert P.shape == (0, 3)
    assert calibration.probabilities(learned, np.empty((0, 3))).shape == (0, 3)


def test_a_classifier_has_probabilities_that_fit_its_answers(tmp_path):
    rng = np.random.default_rng(2)
    X = rng.normal(size=(500, 2))
    y = np.array(["a", "b", "c"])[np.digitize(X[:, 0] + 0.3 * rng.normal(size=500), [-0.5, 0.5])]
    model = AutoClassifier(40, random_state=0).partial_fit(X, y, classes=["a", "b", "c"])
    p = model.predict_proba(X)
    assert (model.classes_[p.argmax(axis=1)] == model.predict(X)).all()
    np.testing.assert_allclose(np.exp(model.predict_log_proba(X)), p, atol=1e-12)
    loss = -np.mean(np.log(p[np.arange(500), np.searchsorted(model.classes_, y)]))
    assert loss < 0.6  # 1.1 is a guess
    import dokl

    np.testing.assert_array_equal(dokl.load(model.save(tmp_path / "c.dokl")).predict_proba(X), p)
