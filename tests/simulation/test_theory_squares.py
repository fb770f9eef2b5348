"""Predicted curves of least squares: against counting by hand, and against simulation."""

import numpy as np
import pytest

import dokl
from dokl import Exchange, Features, Gaussian, GraphRecipe, Problem, graphs, squares, theory
from dokl.base.errors import BadInput
from dokl.base.random_numbers import generator
from dokl.simulation.streams import Example1, Stream
from dokl.simulation.theory.squares import _alike, _counts, _Knowledge
from variants import first

INPUTS = theory.gaussian_inputs([0.0] * 5, 1.0)


class OneTarget:
    """Example 1 with its function held fixed."""

    def __init__(self, n, K):
        self.law, self.n, self.K = Example1(K=K, n=n), n, K
        self.target = self.law.draw_target(generator(3, ("target", 0)))

    def draw(self, seed):
        X = self.law.draw_inputs(generator(seed, "inputs"))
        noise = self.law.noise * generator(seed, "noise").standard_normal(X.shape[:2])
        return Stream(X, self.target(X) + noise)


def test_rows_are_counted_as_rounds_of_averaging_count_them():
    A = GraphRecipe("ring", 5).draw(0).toarray()
    every, step = 3, 3 * 4 + 3  # four rounds, and two own rows since
    copies = np.zeros((5, 5, 4))  # how often node k counts a row of node l of block b
    for b in range(4):
        copies[:, :, b] += np.eye(5)
        copies = np.einsum("kl,lmb->kmb", A, copies)
    expected = np.sort(np.append(5 * copies.ravel(), 1.0))
    weights, many = _counts(A, every, step)
    some = many > 0
    order = np.argsort(weights[some], kind="stable")
    np.testing.assert_allclose(weights[some][order], expected, atol=1e-12)
    # of a node's rows: two own ones, and every block of everybody
    assert many.sum() == pytest.approx(2 + 4 * every * 5)
    # in the end each row counts once
    weights, many = _counts(A, every, 1 + 3 * 1000)
    assert weights @ many == pytest.approx(3000 * 5)


def test_nodes_that_know_more_are_counted_apart_until_all_know_the_same():
    K, every = 6, 5
    A = graphs.metropolis(graphs.build("star", K)).toarray()
    groups = [sorted(map(len, _alike(A, every, step))) for step in (every, every + 1)]
    assert groups == [[K], [1, K - 1]]
    z = Features(Gaussian(5.0), 5, 30).draw(1)
    about = theory.model(z, INPUTS, lambda X: X[:, 0], 0.1)
    each = [_Knowledge(about, 0.01).error(*_counts(A, every, every + 1, [k])) for k in range(K)]
    assert max(each) > 1.2 * min(each)
    known = _Knowledge(about, 0.01)
    assert known.mean_error(A, every, every + 1) == pytest.approx(np.mean(each), rel=1e-3)
    assert not known.one
    known.mean_error(A, every, 1 + 200 * every)
    assert known.one


@pytest.mark.parametrize("together", first(False, True))
def test_predicted_curves_lie_on_simulated_ones(together):
    z, stream = Features(Gaussian(5.0), 5, 60).draw(1), OneTarget(200, 8)
    about = theory.model(z, INPUTS, stream.target, 0.1, theory.leading_modes(z, INPUTS, 60))
    A = GraphRecipe("random", 8, params={"p": 0.4}).draw(2) if together else None
    problem = Problem(z, squares(0.01, bound=np.inf, share="sums"))
    trace = dokl.run(problem, Exchange(A, every=10), stream, runs=15, show_progress=False)
    curve = theory.squares_curve(about, 0.01, 200, A, every=10)
    assert np.isnan(curve.disagreement).all()
    for a, b in ((0, 1), (5, 10), (10, 30), (60, 80), (150, 200)):
        seen = trace.curves["mse"][:, a:b].mean(axis=1)
        error = seen.std() / np.sqrt(len(seen)) / seen.mean() * 10 / np.log(10)
        gap = 10 * np.log10(curve.mse[a:b].mean() / seen.mean())
        assert abs(gap) < 0.2 + 3 * error, (a, b, gap, error)


def test_what_cannot_be_predicted_is_refused():
    z = Features(Gaussian(5.0), 5, 20).draw(1)
    about = theory.model(z, INPUTS, lambda X: X[:, 0], 0.1)
    directed = np.array([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5], [0.5, 0.0, 0.5]])
    for bad, said in (
        ({"ridge": 0.0, "n": 10}, "ridge must be above 0"),
        ({"ridge": 0.1, "n": 0}, "at least 1"),
        ({"ridge": 0.1, "n": 10, "weights": directed}, "symmetric"),
    ):
        with pytest.raises(BadInput, match=said):
            theory.squares_curve(about, **bad)
