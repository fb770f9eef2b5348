"""Probabilities calibrated online: against plain loops, in any cut, and what they promise."""

import math

import numpy as np
import pytest

from dokl import AutoClassifier, calibration

RNG = np.random.default_rng(2)


def scored(n=400, classes=3):
    y = RNG.integers(classes, size=n)
    G = np.where(y[:, None] == np.arange(classes), 0.5, -0.6) + 0.7 * RNG.normal(size=(n, classes))
    return G, y


def by_hand(G, y):
    """Newton steps with a discount, number by number."""
    n, K = G.shape
    b, c = [1.5, 0.5], [0.0] * K
    A, d, keep, out = [[1.0, 0.0], [0.0, 1.0]], [5.0] * K, 0.999, []
    for t in range(n):
        h = []
        for k in range(K):
            u = (1 + G[t, k]) / 2
            h.append((G[t, k], math.log((u + math.sqrt(u * u + 4 * 0.04**2)) / 2)))
        level = [b[0] * h[k][0] + b[1] * h[k][1] + c[k] for k in range(K)]
        out.append(level)
        top = max(level)
        total = sum(math.exp(v - top) for v in level)
        p = [math.exp(v - top) / total for v in level]
        g = [p[k] - (1.0 if y[t] == k else 0.0) for k in range(K)]
        mean = [sum(p[k] * h[k][i] for k in range(K)) for i in range(2)]
        for i in range(2):
            for j in range(2):
                spread = sum(p[k] * h[k][i] * h[k][j] for k in range(K)) - mean[i] * mean[j]
                A[i][j] = keep * A[i][j] + (1 - keep) * (1.0 if i == j else 0.0) + spread
        slope = [sum(g[k] * h[k][i] for k in range(K)) for i in range(2)]
        det = A[0][0] * A[1][1] - A[0][1] * A[1][0]
        b = [
            b[0] - (A[1][1] * slope[0] - A[0][1] * slope[1]) / det,
            b[1] - (A[0][0] * slope[1] - A[1][0] * slope[0]) / det,
        ]
        for k in range(K):
            d[k] = keep * d[k] + (1 - keep) * 5.0 + p[k] * (1 - p[k])
            c[k] -= g[k] / d[k]
    return out


def test_it_is_what_loops_by_hand_compute_in_any_cut():
    G, y = scored(150)
    _, level = calibration.followed(calibration.start(3), G, y)
    np.testing.assert_allclose(level, by_hand(G, y), atol=1e-9)
    state, parts = calibration.start(3), []
    for i in range(0, 150, 11):
        state, part = calibration.followed(state, G[i : i + 11], y[i : i + 11])
        parts.append(part)
    np.testing.assert_allclose(np.concatenate(parts), level, atol=1e-12)


@pytest.mark.parametrize("classes", [2, 5])
def test_probabilities_are_as_often_right_as_they_say(classes):
    G, y = scored(6000, classes)
    _, level = calibration.followed(calibration.start(classes), 3 * G, y)  # far too sure
    p = calibration.softmax(level)[2000:]
    sure, right = p.max(axis=1), p.argmax(axis=1) == y[2000:]
    gap = 0.0
    for low in np.arange(0, 1, 0.1):
        mine = (sure >= low) & (sure < low + 0.1)
        if mine.any():
            gap += mine.mean() * abs(sure[mine].mean() - right[mine].mean())
    assert gap < 0.03
    assert np.allclose(p.sum(axis=1), 1)


def test_a_classifier_has_probabilities_that_fit_its_answers(tmp_path):
    X = RNG.normal(size=(500, 2))
    y = np.array(["a", "b", "c"])[np.digitize(X[:, 0] + 0.3 * RNG.normal(size=500), [-0.5, 0.5])]
    model = AutoClassifier(40, random_state=0).partial_fit(X, y, classes=["a", "b", "c"])
    p = model.predict_proba(X)
    assert (model.classes_[p.argmax(axis=1)] == model.predict(X)).all()
    np.testing.assert_allclose(np.exp(model.predict_log_proba(X)), p, atol=1e-12)
    loss = -np.mean(np.log(p[np.arange(500), np.searchsorted(model.classes_, y)]))
    assert loss < 0.6  # 1.1 is a guess
    import dokl

    np.testing.assert_array_equal(dokl.load(model.save(tmp_path / "c.dokl")).predict_proba(X), p)
