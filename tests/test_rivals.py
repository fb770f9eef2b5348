"""The baselines on random features, held to direct solutions and to loops over single rows."""

import numpy as np
import pytest

from dokl import baselines, graphs
from dokl.base.errors import BadInput
from dokl.base.random_numbers import spawn
from dokl.learning.features import Features
from dokl.learning.kernels import Gaussian
from dokl.network.graphs import GraphRecipe
from dokl.paper.baselines import APSM, ConsensusGP, DiffusionRLS, FeatureADMM
from dokl.simulation.streams import Example2, Stream

K, D = 4, 10
RECIPE = Features(Gaussian(1.5), 2, D)
RING = graphs.metropolis(graphs.build("ring", K))
ALL = {"record": ("predictions", "bytes", "state"), "dtype": np.float64, "show_progress": False}


def small_stream(n=30):
    """Samples with weights, some of them missing."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, K, 2))
    y = np.sin(2 * X[..., 0]) + 0.1 * rng.normal(size=(n, K))
    return Stream(X, y, rng.choice([0.0, 0.5, 1.0], p=[0.2, 0.3, 0.5], size=(n, K)))


def drawn(stream, recipe=RECIPE):
    """The map that seed 0 draws, and all features: (n, K, D)."""
    features = recipe.draw(spawn(spawn(0, 1)[0], 3)[0])
    return features, features.transform(stream.X.reshape(-1, 2)).reshape(*stream.y.shape, -1)


def predictions(result):
    return result.curves["predictions"][0, ..., 0]


def test_diffusion_rls_is_a_direct_solution_at_each_node_between_averages():
    stream = small_stream()
    result = baselines.run(DiffusionRLS(RECIPE, 0.3, weights=RING), stream, **ALL)
    _, Z = drawn(stream)
    A, theta, matrix = RING.toarray(), np.zeros((K, D)), np.tile(0.3 * np.eye(D), (K, 1, 1))
    for t, (z, y, w) in enumerate(zip(Z, stream.y, stream.weight, strict=True)):
        for k in range(K):
            expected = theta[k] @ z[k] if w[k] else np.nan
            np.testing.assert_allclose(predictions(result)[t, k], expected, atol=1e-10)
            matrix[k] += w[k] * np.outer(z[k], z[k])
            gain = np.linalg.solve(matrix[k], w[k] * z[k])
            theta[k] = theta[k] + gain * (y[k] - theta[k] @ z[k])
        theta = A @ theta
    for k, model in enumerate(result.models[0]):
        np.testing.assert_allclose(model.theta, theta[k], atol=1e-10)
        np.testing.assert_allclose(model.predict(stream.X[0]), Z[0] @ theta[k], atol=1e-10)
    assert result["bytes"][-1] == 30 * 2 * K * D * 8


def test_a_consensus_gp_is_the_process_on_all_rows_where_consensus_is_complete():
    stream = small_stream()
    everyone = np.full((K, K), 1 / K)
    result = baselines.run(ConsensusGP(RECIPE, 0.1, 1, everyone), stream, **ALL)
    _, Z = drawn(stream)
    for t in range(len(Z)):
        old, y, w = Z[:t].reshape(-1, D), stream.y[:t].ravel(), stream.weight[:t].ravel()
        theta = np.linalg.solve(old.T @ (w[:, None] * old) + 0.1 * np.eye(D), old.T @ (w * y))
        expected = np.where(stream.weight[t] > 0, Z[t] @ theta, np.nan)
        np.testing.assert_allclose(predictions(result)[t], expected, atol=1e-9)


def test_a_consensus_gp_averages_increments_round_by_round():
    stream = small_stream(12)
    wide = Features(Gaussian(4.0), 2, D)
    result = baselines.run(ConsensusGP((RECIPE, wide), 0.1, 3, RING), stream, **ALL)
    A = RING.toarray()
    every = [drawn(stream, recipe)[1] for recipe in (RECIPE, wide)]
    L = np.tile(np.eye(D), (2, K, 1, 1))
    b, evidence = np.zeros((2, K, D)), np.zeros((2, K))
    for t, (y, w) in enumerate(zip(stream.y, stream.weight, strict=True)):
        found, more = np.zeros((2, K)), np.zeros((2, K))
        for i in range(2):
            z = every[i][t]
            U = np.stack([w[k] / 0.1 * np.outer(z[k], z[k]) for k in range(K)])
            v = np.stack([w[k] / 0.1 * y[k] * z[k] for k in range(K)])
            for k in range(K):
                P = np.linalg.inv(L[i, k])
                found[i, k] = z[k] @ P @ b[i, k]
                s = 0.1 + z[k] @ P @ z[k]
                more[i, k] = (w[k] > 0) * -0.5 * (np.log(s) + (y[k] - found[i, k]) ** 2 / s)
            for _ in range(3):
                U, v = np.einsum("kl,lij->kij", A, U), A @ v
                more[i] = A @ more[i]
            L[i] += K * U
            b[i] += K * v
        share = np.exp(evidence) / np.exp(evidence).sum(axis=0)
        expected = np.where(w > 0, (share * found).sum(axis=0), np.nan)
        np.testing.assert_allclose(predictions(result)[t], expected, atol=1e-9)
        evidence += K * more
    assert result["bytes"][-1] == 12 * 3 * 2 * K * 8 * 2 * (D * (D + 3) // 2 + 1)
    share = np.exp(evidence[:, 1]) / np.exp(evidence[:, 1]).sum()
    thetas = [np.linalg.solve(L[i, 1], b[i, 1]) for i in range(2)]
    expected = sum(share[i] * every[i][0] @ thetas[i] for i in range(2))
    np.testing.assert_allclose(result.models[0][1].predict(stream.X[0]), expected, atol=1e-9)


def waiting(n=30, more=3000):
    """A stream whose nodes have no samples any more after n steps."""
    first = small_stream(n)
    X = np.concatenate([first.X, np.zeros((more, K, 2))])
    y, w = (np.concatenate([a, np.zeros((more, K))]) for a in (first.y, first.weight))
    return first, Stream(X, y, w)


def agreed(stream, Z, lam):
    """What all nodes together would choose: the mean of their mean losses."""
    zz = np.einsum("tk,tki,tkj->kij", stream.weight, Z, Z)
    zy = np.einsum("tk,tki->ki", stream.weight * stream.y, Z)
    count = stream.weight.sum(axis=0)
    matrix = (zz / count[:, None, None]).sum(axis=0) + lam * np.eye(D)
    return np.linalg.solve(matrix, (zy / count[:, None]).sum(axis=0))


def test_admm_agrees_on_what_all_would_choose_together():
    first, stream = waiting()
    result = baselines.run(FeatureADMM(RECIPE, 0.01, 0.05, weights=RING), stream, **ALL)
    best = agreed(first, drawn(first)[1], 0.01)
    for model in result.models[0]:
        np.testing.assert_allclose(model.theta, best, atol=1e-6)


def test_admm_is_silent_where_little_changes_and_still_agrees():
    first, stream = waiting()
    always = FeatureADMM(RECIPE, 0.01, 0.05, weights=RING)
    censored = FeatureADMM(RECIPE, 0.01, 0.05, threshold=1.0, decay=0.99, weights=RING)
    assert (always.name, censored.name) == ("dkla", "coke")
    both = [baselines.run(method, stream, **ALL) for method in (always, censored)]
    assert both[1]["bytes"][500] < 0.5 * both[0]["bytes"][500]
    best = agreed(first, drawn(first)[1], 0.01)
    for model in both[1].models[0]:
        np.testing.assert_allclose(model.theta, best, atol=1e-3)


@pytest.mark.parametrize(("eps", "q"), [(0.0, 1), (0.05, 3)])
def test_apsm_projects_on_the_newest_hyperslabs(eps, q):
    stream = small_stream()
    result = baselines.run(APSM(RECIPE, 0.8, eps, q, RING), stream, **ALL)
    _, Z = drawn(stream)
    A, theta, kept = RING.toarray(), np.zeros((K, D)), [[] for _ in range(K)]
    for t in range(len(Z)):
        theta = A @ theta
        for k in np.flatnonzero(stream.weight[t] > 0):
            psi = theta[k].copy()
            np.testing.assert_allclose(predictions(result)[t, k], psi @ Z[t, k], atol=1e-10)
            kept[k] = [*kept[k], (Z[t, k], stream.y[t, k])][-q:]
            pulls = []
            for z, y in kept[k]:
                e = y - psi @ z
                pulls.append(np.sign(e) * max(abs(e) - eps, 0) / (z @ z) * z)
            mean = np.mean(pulls, axis=0)
            if mean @ mean > 0:
                farther = np.mean([p @ p for p in pulls]) / (mean @ mean)
                theta[k] = psi + 0.8 * farther * mean
    for k, model in enumerate(result.models[0]):
        np.testing.assert_allclose(model.theta, theta[k], atol=1e-10)


def test_they_learn_an_example_of_the_paper_and_least_squares_learns_faster():
    stream, graph = Example2(K=6, n=300), GraphRecipe("random", 6)
    recipe = Features(Gaussian(5.0), 5, 60)
    methods = [
        DiffusionRLS(recipe, 0.01, weights=graph),
        ConsensusGP(recipe, 0.05, 2, graph),
        FeatureADMM(recipe, 1e-4, 1e-2, weights=graph),
        APSM(recipe, 0.5, 0.05, 8, graph),
    ]
    traces = [baselines.run(m, stream, seed=1, show_progress=False) for m in methods]
    last = [float(trace.tail().mean()) for trace in traces]
    assert max(last) < 0.2  # of a variance of 9.5, noise 0.01
    assert max(last[:3]) < last[3]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: DiffusionRLS(RECIPE, lam=0.0), "lam must be above 0"),
        (lambda: ConsensusGP(RECIPE, rounds=-1), "rounds must be a whole number"),
        (lambda: FeatureADMM(RECIPE, every=0), "every must be a whole number"),
        (lambda: FeatureADMM(RECIPE, threshold=-1), "threshold must be at least 0"),
        (lambda: APSM(RECIPE, mu=2.0), "mu must be above 0 and below 2"),
        (lambda: APSM(RECIPE, eps=-1), "eps must be finite"),
        (lambda: APSM(RECIPE, q=0), "q must be a whole number"),
    ],
)
def test_parameters_that_cannot_be(make, said):
    with pytest.raises(BadInput, match=said):
        make()
